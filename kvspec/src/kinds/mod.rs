//! What a layer's page holds, by kind and independent of where it lies.
//!
//! Engines speak of kinds: GQA with 8 heads, MLA in fp8, Mamba2. Each kind here describes one layer's [`Page`]:
//! which parts it has, how they are sharded, how many states a block stores and how many bytes a cell has. It says
//! nothing about addresses; [`Arrange`](crate::Arrange) chooses places for it and
//! [`FromTensors`](crate::FromTensors) checks an engine's own places against it. Nothing else in the library knows
//! kinds: planning sees parts only.
//!
//! | kind | module | parts |
//! |---|---|---|
//! | [`Attention`]: MHA, GQA, MQA | [`attention`] | `k`, `v` |
//! | [`SlidingWindow`], [`ChunkedLocal`], [`SlidingWindowMla`] | [`window`] | as what they wrap |
//! | [`Mla`]: bf16, fp8, any row, compressed | [`mla`] | `latent` |
//! | [`Indexer`] | [`indexer`] | `index` |
//! | [`Ring`]: circular buffer | [`ring`] | `ring` |
//! | [`Mamba1`], [`Mamba2`], [`GatedDeltaNet`] | [`ssm`] | `conv.x` …, `ssm` |
//! | [`TokenHeadQuant`], [`Nvfp4`], [`BlockScaled`] | [`quant`] | `k`, `v`, `k_scale`, `v_scale` |
//! | [`Opaque`] | [`opaque`] | `aux` |
//!
//! A kind that is missing needs no change here: fill in a [`Page`] and hand it over, since a page describes itself.
//!
//! # A page
//!
//! A page is a sequence of [`Section`]s. In a section of the usual nesting, a *row* of one (unit, state) holds one
//! cell of each part side by side; the [`Layout`](crate::Layout) decides whether units or states are outside:
//!
//! ```text
//! Attention, packed         one section       [K|V] [K|V] [K|V] …
//! Attention, halves         two sections      [K] [K] [K] …  [V] [V] [V] …
//! Mamba2, channels first    four sections     [x] [x] …  [b] …  [c] …  [state] [state] …
//! Mamba2, rows first        two sections      [x x x … b b … c c …] [x x x … b b … c c …] …  [state] …
//! ```

use crate::ids::PartName;
use crate::spec::{Kind, Usage};
use crate::states::TokensPerState;

pub mod attention;
pub mod element;
pub mod indexer;
pub mod mla;
pub mod opaque;
pub mod quant;
mod replicated;
pub mod ring;
pub mod ssm;
pub mod window;

pub use attention::{Attention, KvPacking};
pub use element::Element;
pub use indexer::Indexer;
pub use mla::Mla;
pub use opaque::Opaque;
pub use quant::{BlockScaled, Nvfp4, TokenHeadQuant};
pub use ring::Ring;
pub use ssm::{ConvOrder, GatedDeltaNet, Mamba1, Mamba2};
pub use window::{ChunkedLocal, SlidingWindow, SlidingWindowMla};

/// Something that describes one layer's page.
pub trait Describe {
    /// The page.
    ///
    /// # Errors
    ///
    /// [`KindError`] when the numbers do not make whole bytes or do not fit.
    fn describe(&self) -> Result<Page, KindError>;
}

/// One layer's page, independent of where it lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// What the layer is.
    pub kind: Kind,
    /// Whether a block holds tokens or one request's state.
    pub usage: Usage,
    /// Pieces of the page, in order.
    pub sections: Vec<Section>,
}

impl Describe for Page {
    fn describe(&self) -> Result<Page, KindError> {
        Ok(self.clone())
    }
}

/// A piece of a page whose parts share their states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Parts, in the order in which they lie in a row.
    pub parts: Vec<PartShape>,
    /// States that a block stores.
    pub states: States,
    /// What is outside: units or states.
    pub nesting: Nesting,
    /// The section's length is padded to a multiple of this many bytes; 1 for none.
    pub align: u64,
    /// Number of the buffer that the section lies in: 0 for the layers' main one, others for buffers apart.
    pub buffer: u8,
}

impl Section {
    /// One part by itself, with one state a token, in the main buffer.
    #[must_use]
    pub fn of(part: PartShape) -> Self {
        Self::row([part])
    }

    /// Parts side by side in a row, with one state a token, in the main buffer.
    #[must_use]
    pub fn row(parts: impl IntoIterator<Item = PartShape>) -> Self {
        Self {
            parts: parts.into_iter().collect(),
            states: States::PerToken(TokensPerState::ONE),
            nesting: Nesting::Layout,
            align: 1,
            buffer: 0,
        }
    }
}

/// One part of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartShape {
    /// Name, equal on both sides of a transfer.
    pub name: PartName,
    /// Units of the whole model and whether ranks share them out.
    pub units: Units,
    /// Bytes of one cell.
    pub content: u64,
    /// What the bytes mean; compared for equality when peers meet.
    pub format: String,
}

/// Units of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Units {
    /// Every rank holds this many, with the same bytes.
    Replicated(u64),
    /// This many over all ranks, shared out by [`owned_units`](crate::owned_units).
    Sharded(u64),
}

/// States that a block stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum States {
    /// One for so many tokens.
    PerToken(TokensPerState),
    /// The product of these counts whatever the tokens, outermost first; for [`Usage::State`].
    Fixed(Vec<u64>),
}

/// How states, units and parts nest in a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nesting {
    /// Units and states as the layout says, then one cell of each part. The parts have the same units.
    Layout,
    /// States, then parts, then units, whatever the layout: a state's row holds all units of the first part, then
    /// all of the second. The parts may have unlike units.
    RowsFirst,
}

/// Why a kind describes no page.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KindError {
    /// Elements that do not fill bytes.
    #[error("part {part}: {elements} elements of {bits} bits are not a whole number of bytes")]
    PartialByte {
        /// The part.
        part: PartName,
        /// Elements of one cell.
        elements: u64,
        /// Bits of one element.
        bits: u32,
    },
    /// Scale blocks that do not fill a head.
    #[error("part {part}: {elements} elements are not a whole number of scale blocks of {block}")]
    PartialScaleBlock {
        /// The part.
        part: PartName,
        /// Elements of one cell.
        elements: u64,
        /// Elements that share a scale.
        block: u64,
    },
    /// A convolution without state.
    #[error("part {part}: a convolution kernel of width {conv_kernel} keeps no state; it is at least 2")]
    NoConvolution {
        /// The first part of the convolution state.
        part: PartName,
        /// The kernel's width in tokens.
        conv_kernel: u64,
    },
    /// A size beyond 64 bits.
    #[error("part {part}: the product of {factors:?} is beyond 64 bits")]
    TooLarge {
        /// The part.
        part: PartName,
        /// Numbers that were to be multiplied.
        factors: Vec<u64>,
    },
}

/// The product of sizes of a part.
fn product(part: &str, factors: &[u64]) -> Result<u64, KindError> {
    factors
        .iter()
        .try_fold(1u64, |product, &factor| product.checked_mul(factor))
        .ok_or_else(|| KindError::TooLarge { part: part.into(), factors: factors.to_vec() })
}

/// The sum of sizes of a part.
fn sum(part: &str, terms: &[u64]) -> Result<u64, KindError> {
    terms
        .iter()
        .try_fold(0u64, |sum, &term| sum.checked_add(term))
        .ok_or_else(|| KindError::TooLarge { part: part.into(), factors: terms.to_vec() })
}
