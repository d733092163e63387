//! Quantised attention, by where the scales lie.
//!
//! | scales | kind |
//! |---|---|
//! | one for a tensor, kept elsewhere (plain FP8) | [`Attention`] with [`Element::FP8_E4M3`] |
//! | inside the row, behind each key and value | [`TokenHeadQuant`] |
//! | in the page, behind all heads' data | [`Nvfp4`] |
//! | in buffers of their own | [`BlockScaled`] |

use super::{Attention, Describe, Element, KindError, KvPacking, Page, PartShape, Section, States, Units};
use crate::spec::{Kind, Usage};
use crate::states::TokensPerState;

/// Keys and values with a scale for each token and head, inside the row: parts `k` and `v`.
///
/// A cell is `[head_size elements | scale]`. Data and scale are one cell, so they always travel together.
///
/// ```
/// use kvspec::kinds::{Describe, Element, TokenHeadQuant};
///
/// // INT4 with an f32 scale: 64 + 4 bytes.
/// let page = TokenHeadQuant::new(8, 128, Element::INT4, 4).describe()?;
/// assert_eq!(page.sections[0].parts[0].content, 68);
/// assert_eq!(page.sections[0].parts[0].format, "int4+scale4");
/// # Ok::<(), kvspec::kinds::KindError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenHeadQuant(Attention);

impl TokenHeadQuant {
    /// `num_kv_heads` heads of `head_size` elements, each key and value with `scale_bytes` bytes of scale.
    #[must_use]
    pub fn new(num_kv_heads: u64, head_size: u64, element: Element, scale_bytes: u64) -> Self {
        let format = format!("{}+scale{scale_bytes}", element.name);
        Self(Attention::new(num_kv_heads, head_size, element).row_scale(scale_bytes).format(format))
    }

    /// Elements of a value, where it differs from a key.
    #[must_use]
    pub fn value_head_size(self, value_head_size: u64) -> Self {
        Self(self.0.value_head_size(value_head_size))
    }

    /// How K and V lie to each other.
    #[must_use]
    pub fn packing(self, packing: KvPacking) -> Self {
        Self(self.0.packing(packing))
    }
}

impl Describe for TokenHeadQuant {
    fn describe(&self) -> Result<Page, KindError> {
        self.0.describe()
    }
}

/// NVFP4: parts `k`, `k_scale`, `v`, `v_scale`, each for all heads before the next.
///
/// A page is `[K data | K scales | V data | V scales]`: two elements a byte, and one fp8 scale for 16 elements.
/// A rank's slice of heads is thus four pieces of the page and not one.
///
/// ```
/// use kvspec::kinds::{Describe, Nvfp4};
///
/// let page = Nvfp4::new(8, 128).describe()?;
/// let content: Vec<u64> = page.sections.iter().map(|section| section.parts[0].content).collect();
/// assert_eq!(content, [64, 8, 64, 8]);
/// # Ok::<(), kvspec::kinds::KindError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nvfp4 {
    num_kv_heads: u64,
    head_size: u64,
    value_head_size: u64,
}

/// Elements that share a scale in NVFP4.
const NVFP4_BLOCK: u64 = 16;

impl Nvfp4 {
    /// `num_kv_heads` heads of `head_size` elements.
    #[must_use]
    pub fn new(num_kv_heads: u64, head_size: u64) -> Self {
        Self { num_kv_heads, head_size, value_head_size: head_size }
    }

    /// Elements of a value, where it differs from a key.
    #[must_use]
    pub fn value_head_size(self, value_head_size: u64) -> Self {
        Self { value_head_size, ..self }
    }
}

impl Describe for Nvfp4 {
    fn describe(&self) -> Result<Page, KindError> {
        let section = |name: &str, content, format: &str| {
            Section::of(PartShape {
                name: name.into(),
                units: Units::Sharded(self.num_kv_heads),
                content,
                format: format.to_owned(),
            })
        };
        let mut sections = Vec::with_capacity(4);
        for (data, scale, elements) in [("k", "k_scale", self.head_size), ("v", "v_scale", self.value_head_size)] {
            if elements % NVFP4_BLOCK != 0 {
                return Err(KindError::PartialScaleBlock { part: scale.into(), elements, block: NVFP4_BLOCK });
            }
            sections.push(section(data, Element::FP4_E2M1.bytes(data, elements)?, "nvfp4"));
            sections.push(section(scale, elements / NVFP4_BLOCK, "fp8_e4m3"));
        }
        Ok(Page { kind: Kind::Attention, usage: Usage::Tokens, sections })
    }
}

/// Attention whose scales lie in buffers of their own: parts `k`, `v`, `k_scale` and `v_scale`.
///
/// ```
/// use kvspec::TokensPerState;
/// use kvspec::kinds::{Attention, BlockScaled, Describe, Element};
///
/// // One f32 scale for each head and 16 tokens, beside an fp8 cache.
/// let kind = BlockScaled::new(Attention::new(8, 128, Element::FP8_E4M3), Element::F32, 1)
///     .tokens_per_scale(TokensPerState::new(16, 1));
/// let page = kind.describe()?;
/// assert_eq!(page.sections[1].parts[0].content, 4);
/// assert_eq!(page.sections[1].buffer, 2);
/// # Ok::<(), kvspec::kinds::KindError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockScaled {
    attention: Attention,
    scale: Element,
    scales_per_head: u64,
    tokens_per_scale: TokensPerState,
}

impl BlockScaled {
    /// `scales_per_head` scales for each head and token, for keys and for values.
    #[must_use]
    pub fn new(attention: Attention, scale: Element, scales_per_head: u64) -> Self {
        Self { attention, scale, scales_per_head, tokens_per_scale: TokensPerState::ONE }
    }

    /// Tokens that share a scale; 1 by default.
    #[must_use]
    pub fn tokens_per_scale(self, tokens_per_scale: TokensPerState) -> Self {
        Self { tokens_per_scale, ..self }
    }
}

impl Describe for BlockScaled {
    fn describe(&self) -> Result<Page, KindError> {
        let mut page = self.attention.describe()?;
        for (name, buffer) in [("k_scale", 2), ("v_scale", 3)] {
            page.sections.push(Section {
                states: States::PerToken(self.tokens_per_scale),
                buffer,
                ..Section::of(PartShape {
                    name: name.into(),
                    units: Units::Sharded(self.attention.num_kv_heads()),
                    content: self.scale.bytes(name, self.scales_per_head)?,
                    format: self.scale.name.to_owned(),
                })
            });
        }
        Ok(page)
    }
}
