//! Index caches of sparse attention.

use super::replicated::ReplicatedRows;
use super::{Describe, KindError, Page};
use crate::spec::Kind;
use crate::states::TokensPerState;

/// The index cache of a sparse-attention layer: one part `index`, replicated over TP.
///
/// Shape of one block: `[states, row_bytes]`. DeepSeek-V3.2's indexer keeps 128 fp8 elements and one f32 scale a
/// token, 132 bytes ([`Indexer::fp8`]); a pooled indexer keeps such a row for several tokens.
///
/// ```
/// use kvspec::TokensPerState;
/// use kvspec::kinds::{Describe, Indexer};
///
/// assert_eq!(Indexer::fp8().describe()?.sections[0].parts[0].content, 132);
/// let pooled = Indexer::new(132, "fp8+scale").tokens_per_state(TokensPerState::new(4, 1));
/// assert_ne!(pooled.describe()?, Indexer::fp8().describe()?);
/// # Ok::<(), kvspec::kinds::KindError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Indexer(ReplicatedRows);

impl Indexer {
    /// 128 fp8 elements and one f32 scale: 132 bytes.
    #[must_use]
    pub fn fp8() -> Self {
        Self::new(132, "fp8+scale")
    }

    /// Rows of any number of bytes and format.
    #[must_use]
    pub fn new(row_bytes: u64, format: impl Into<String>) -> Self {
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
}

impl Describe for Indexer {
    fn describe(&self) -> Result<Page, KindError> {
        Ok(self.0.page(Kind::Indexer, "index"))
    }
}
