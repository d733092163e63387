//! Index caches of sparse attention.

use super::{Describe, KindError, Page, PartShape, Section, States, Units};
use crate::spec::{Kind, Usage};
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
pub struct Indexer {
    row_bytes: u64,
    format: String,
    tokens_per_state: TokensPerState,
    page_align: u64,
}

impl Indexer {
    /// 128 fp8 elements and one f32 scale: 132 bytes.
    #[must_use]
    pub fn fp8() -> Self {
        Self::new(132, "fp8+scale")
    }

    /// Rows of any number of bytes and format.
    #[must_use]
    pub fn new(row_bytes: u64, format: impl Into<String>) -> Self {
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
}

impl Describe for Indexer {
    fn describe(&self) -> Result<Page, KindError> {
        let section = Section {
            states: States::PerToken(self.tokens_per_state),
            align: self.page_align,
            ..Section::of(PartShape {
                name: "index".into(),
                units: Units::Replicated(1),
                content: self.row_bytes,
                format: self.format.clone(),
            })
        };
        Ok(Page { kind: Kind::Indexer, usage: Usage::Tokens, sections: vec![section] })
    }
}
