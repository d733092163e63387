//! Multi-head latent attention.

use super::replicated::ReplicatedRows;
use super::{Describe, KindError, Page};
use crate::spec::Kind;
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
pub struct Mla(ReplicatedRows);

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
        Self(ReplicatedRows::new(row_bytes, format))
    }

    /// Tokens that one row stands for; 1 by default.
    #[must_use]
    pub fn tokens_per_state(self, tokens_per_state: TokensPerState) -> Self {
        Self(ReplicatedRows { tokens_per_state, ..self.0 })
    }

    /// Pads pages to a multiple of so many bytes; 1, the default, for none.
    #[must_use]
    pub fn page_align(self, page_align: u64) -> Self {
        Self(ReplicatedRows { page_align, ..self.0 })
    }

    pub(super) fn of_kind(&self, kind: Kind) -> Page {
        self.0.page(kind, "latent")
    }
}

impl Describe for Mla {
    fn describe(&self) -> Result<Page, KindError> {
        Ok(self.of_kind(Kind::Mla))
    }
}
