//! Multi-head latent attention.

use super::{Describe, KindError, Page, PartShape, Section, States, Units};
use crate::spec::{Kind, Usage};
use crate::states::TokensPerState;

/// Multi-head latent attention: one part `latent`, replicated over TP.
///
/// Shape of one block: `[states, row_bytes]`. The row is bytes to this library:
///
/// | row | bytes | source |
/// |---|---|---|
/// | [`Mla::bf16`] | 1152: 512 latent and 64 rotary elements of bf16 | DeepSeek-V2/V3, FlashMLA |
/// | [`Mla::fp8`] | 656: 512 of fp8, 4 scales of f32, 64 rotary elements of bf16 | FlashMLA's fp8 sparse cache |
/// | [`Mla::opaque`] | any | the engine |
///
/// Compressed MLA stores a state for several tokens, or several states a token, in pages that are padded to an
/// alignment:
///
/// ```
/// use kvspec::TokensPerState;
/// use kvspec::kinds::{Describe, Mla};
///
/// assert_eq!(Mla::bf16().describe()?.sections[0].parts[0].content, 1152);
/// assert_eq!(Mla::fp8().describe()?.sections[0].parts[0].content, 656);
///
/// // One 584-byte state for four tokens, pages padded to multiples of 576 bytes.
/// let compressed = Mla::opaque(584, "fp8+bf16+scale").tokens_per_state(TokensPerState::new(4, 1)).page_align(576);
/// assert_eq!(compressed.describe()?.sections[0].align, 576);
/// # Ok::<(), kvspec::kinds::KindError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mla {
    row_bytes: u64,
    format: String,
    tokens_per_state: TokensPerState,
    page_align: u64,
}

impl Mla {
    /// Rows of 576 bf16 elements: 1152 bytes.
    #[must_use]
    pub fn bf16() -> Self {
        Self::opaque(1152, "bf16")
    }

    /// FlashMLA's fp8 rows with scales and a bf16 rotary part: 656 bytes.
    #[must_use]
    pub fn fp8() -> Self {
        Self::opaque(656, "fp8_ds_mla")
    }

    /// Rows of any number of bytes and format.
    #[must_use]
    pub fn opaque(row_bytes: u64, format: impl Into<String>) -> Self {
        Self { row_bytes, format: format.into(), tokens_per_state: TokensPerState::ONE, page_align: 1 }
    }

    /// Tokens that one row stands for; 1 by default.
    #[must_use]
    pub fn tokens_per_state(self, tokens_per_state: TokensPerState) -> Self {
        Self { tokens_per_state, ..self }
    }

    /// Pads pages to a multiple of so many bytes; 1, the default, for none.
    #[must_use]
    pub fn page_align(self, page_align: u64) -> Self {
        Self { page_align, ..self }
    }

    pub(super) fn of_kind(&self, kind: Kind) -> Result<Page, KindError> {
        let section = Section {
            states: States::PerToken(self.tokens_per_state),
            align: self.page_align,
            ..Section::of(PartShape {
                name: "latent".into(),
                units: Units::Replicated(1),
                content: self.row_bytes,
                format: self.format.clone(),
            })
        };
        Ok(Page { kind, usage: Usage::Tokens, sections: vec![section] })
    }
}

impl Describe for Mla {
    fn describe(&self) -> Result<Page, KindError> {
        self.of_kind(Kind::Mla)
    }
}
