//! State-space and linear-attention layers: a convolution state and a temporal state for each request.
//!
//! The convolution state keeps the last `conv_kernel - 1` inputs of each channel. Its channels come from several
//! projections, and each projection is sharded over TP by itself: rank r holds *its* channels of x, *its* channels
//! of B, *its* channels of C, one behind the other. So each projection is a part; a slice of the whole is never
//! right. It lies in one of two orders ([`ConvOrder`]).
//!
//! The temporal state is the part `ssm`, by heads (by channels in Mamba1).

use super::{Describe, Element, KindError, Nesting, Page, PartShape, Section, States, Units, product};
use crate::spec::{Kind, Usage};

/// Order of a convolution state's axes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ConvOrder {
    /// `[channels, conv_kernel - 1]`: the inputs of a channel together; the projections one after the other.
    #[default]
    ChannelsFirst,
    /// `[conv_kernel - 1, channels]`: in each row the channels of all projections, so that the sharded axis has a
    /// row axis before it.
    RowsFirst,
}

/// What the kinds of state have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Options {
    conv_kernel: u64,
    conv_element: Element,
    state_element: Element,
    conv_order: ConvOrder,
    replicated: bool,
}

/// A projection of the convolution state: `num` units of `channels` channels each.
struct Projection {
    name: &'static str,
    units: Units,
    channels: u64,
}

impl Options {
    fn new(conv_kernel: u64) -> Self {
        Self {
            conv_kernel,
            conv_element: Element::BF16,
            state_element: Element::F32,
            conv_order: ConvOrder::default(),
            replicated: false,
        }
    }

    fn units(self, num: u64) -> Units {
        if self.replicated { Units::Replicated(num) } else { Units::Sharded(num) }
    }

    /// Sections of the convolution state, then of the temporal one.
    fn page(self, projections: Vec<Projection>, heads: u64, state_elements: u64) -> Result<Page, KindError> {
        let rows = match self.conv_kernel.checked_sub(1) {
            Some(rows) if rows > 0 => rows,
            _ => {
                let part = projections.first().map_or("conv", |projection| projection.name).into();
                return Err(KindError::NoConvolution { part, conv_kernel: self.conv_kernel });
            }
        };
        let part = |projection: &Projection, elements| {
            Ok(PartShape {
                name: projection.name.into(),
                units: projection.units,
                content: self.conv_element.bytes(projection.name, elements)?,
                format: self.conv_element.name.to_owned(),
            })
        };
        let mut sections = Vec::with_capacity(projections.len() + 1);
        match self.conv_order {
            ConvOrder::ChannelsFirst => {
                for projection in &projections {
                    let elements = product(projection.name, &[projection.channels, rows])?;
                    let states = States::Fixed(Vec::new());
                    sections.push(Section { states, ..Section::of(part(projection, elements)?) });
                }
            }
            ConvOrder::RowsFirst => {
                let parts: Result<Vec<_>, _> =
                    projections.iter().map(|projection| part(projection, projection.channels)).collect();
                let states = States::Fixed(vec![rows]);
                sections.push(Section { states, nesting: Nesting::RowsFirst, ..Section::row(parts?) });
            }
        }
        sections.push(Section {
            states: States::Fixed(Vec::new()),
            ..Section::of(PartShape {
                name: "ssm".into(),
                units: self.units(heads),
                content: self.state_element.bytes("ssm", state_elements)?,
                format: self.state_element.name.to_owned(),
            })
        });
        Ok(Page { kind: Kind::Ssm, usage: Usage::State, sections })
    }
}

macro_rules! options {
    ($kind:ident) => {
        impl $kind {
            /// Element type of the convolution state; bf16 by default.
            #[must_use]
            pub fn conv_element(mut self, element: Element) -> Self {
                self.options.conv_element = element;
                self
            }

            /// Element type of the temporal state; f32 by default.
            #[must_use]
            pub fn state_element(mut self, element: Element) -> Self {
                self.options.state_element = element;
                self
            }

            /// Order of the convolution state's axes; channels first by default.
            #[must_use]
            pub fn conv_order(mut self, order: ConvOrder) -> Self {
                self.options.conv_order = order;
                self
            }

            /// The whole state on every TP rank.
            #[must_use]
            pub fn replicated(mut self) -> Self {
                self.options.replicated = true;
                self
            }
        }
    };
}

/// Mamba1: parts `conv.x` and `ssm`, both by channel.
///
/// Shapes: `[intermediate_size, conv_kernel - 1]` and `[intermediate_size, state_size]`.
///
/// ```
/// use kvspec::kinds::{Describe, Element, Mamba1};
///
/// let page = Mamba1::new(8192, 16, 4).describe()?;
/// assert_eq!((page.sections[0].parts[0].content, page.sections[1].parts[0].content), (6, 64));
/// # Ok::<(), kvspec::kinds::KindError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mamba1 {
    intermediate_size: u64,
    state_size: u64,
    options: Options,
}

options!(Mamba1);

impl Mamba1 {
    /// `intermediate_size` channels over all ranks, each with `state_size` elements of state.
    #[must_use]
    pub fn new(intermediate_size: u64, state_size: u64, conv_kernel: u64) -> Self {
        Self { intermediate_size, state_size, options: Options::new(conv_kernel) }
    }
}

impl Describe for Mamba1 {
    fn describe(&self) -> Result<Page, KindError> {
        let x = Projection { name: "conv.x", units: self.options.units(self.intermediate_size), channels: 1 };
        self.options.page(vec![x], self.intermediate_size, self.state_size)
    }
}

/// Mamba2: parts `conv.x`, `conv.b`, `conv.c` and `ssm`.
///
/// Shapes: x `[num_heads·head_size, conv_kernel - 1]`, b and c `[num_groups·state_size, conv_kernel - 1]`, ssm
/// `[num_heads, head_size, state_size]`. B and C are sharded by channel; with one group every rank needs it whole
/// and they are replicated. With more ranks than groups a rank needs the whole group of its heads: say
/// [`Mamba2::whole_groups`] on every side.
///
/// ```
/// use kvspec::kinds::{Describe, Mamba2, Units};
///
/// let page = Mamba2::new(64, 64, 8, 128, 4).describe()?;
/// let units: Vec<Units> = page.sections.iter().map(|section| section.parts[0].units).collect();
/// assert_eq!(units, [4096, 1024, 1024, 64].map(Units::Sharded));
///
/// let one_group = Mamba2::new(64, 64, 1, 128, 4).describe()?;
/// assert_eq!(one_group.sections[1].parts[0].units, Units::Replicated(128));
/// # Ok::<(), kvspec::kinds::KindError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mamba2 {
    num_heads: u64,
    head_size: u64,
    num_groups: u64,
    state_size: u64,
    whole_groups: bool,
    options: Options,
}

options!(Mamba2);

impl Mamba2 {
    /// `num_heads` heads of `head_size` channels over all ranks, `num_groups` groups of B and C, and
    /// `state_size` elements of state a channel.
    #[must_use]
    pub fn new(num_heads: u64, head_size: u64, num_groups: u64, state_size: u64, conv_kernel: u64) -> Self {
        Self { num_heads, head_size, num_groups, state_size, whole_groups: false, options: Options::new(conv_kernel) }
    }

    /// Shards B and C by whole groups and not by channel: with more ranks than groups, neighbouring ranks hold the
    /// same group.
    #[must_use]
    pub fn whole_groups(self) -> Self {
        Self { whole_groups: true, ..self }
    }
}

impl Describe for Mamba2 {
    fn describe(&self) -> Result<Page, KindError> {
        let x = self.options.units(product("conv.x", &[self.num_heads, self.head_size])?);
        let (bc, channels) = if self.num_groups == 1 {
            (Units::Replicated(self.state_size), 1)
        } else if self.whole_groups {
            (self.options.units(self.num_groups), self.state_size)
        } else {
            (self.options.units(product("conv.b", &[self.num_groups, self.state_size])?), 1)
        };
        let projections = vec![
            Projection { name: "conv.x", units: x, channels: 1 },
            Projection { name: "conv.b", units: bc, channels },
            Projection { name: "conv.c", units: bc, channels },
        ];
        self.options.page(projections, self.num_heads, product("ssm", &[self.head_size, self.state_size])?)
    }
}

/// Gated delta net: parts `conv.q`, `conv.k`, `conv.v` and `ssm`.
///
/// Shapes: q and k `[num_key_heads·key_size, conv_kernel - 1]`, v `[num_value_heads·value_size, …]`, ssm
/// `[num_value_heads, key_size, value_size]`. Also Kimi's delta attention, where all three are equal.
///
/// ```
/// use kvspec::kinds::{Describe, GatedDeltaNet};
///
/// let page = GatedDeltaNet::new(16, 128, 32, 128, 4).describe()?;
/// assert_eq!(page.sections.len(), 4);
/// assert_eq!(page.sections[3].parts[0].content, 128 * 128 * 4);
/// # Ok::<(), kvspec::kinds::KindError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatedDeltaNet {
    num_key_heads: u64,
    key_size: u64,
    num_value_heads: u64,
    value_size: u64,
    options: Options,
}

options!(GatedDeltaNet);

impl GatedDeltaNet {
    /// Heads over all ranks and elements of each, for queries and keys and for values.
    #[must_use]
    pub fn new(num_key_heads: u64, key_size: u64, num_value_heads: u64, value_size: u64, conv_kernel: u64) -> Self {
        Self { num_key_heads, key_size, num_value_heads, value_size, options: Options::new(conv_kernel) }
    }
}

impl Describe for GatedDeltaNet {
    fn describe(&self) -> Result<Page, KindError> {
        let qk = self.options.units(product("conv.k", &[self.num_key_heads, self.key_size])?);
        let v = self.options.units(product("conv.v", &[self.num_value_heads, self.value_size])?);
        let projections = [("conv.q", qk), ("conv.k", qk), ("conv.v", v)]
            .map(|(name, units)| Projection { name, units, channels: 1 })
            .into();
        self.options.page(projections, self.num_value_heads, product("ssm", &[self.key_size, self.value_size])?)
    }
}
