//! Rows of bytes that every rank holds: what latents and index caches have in common.

use super::{Page, PartShape, Section, States, Units};
use crate::ids::PartName;
use crate::spec::{Kind, Usage};
use crate::states::TokensPerState;

/// One part of `[states, row_bytes]` a block, replicated over TP; bytes to this library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReplicatedRows {
    pub(super) row_bytes: u64,
    pub(super) format: String,
    /// Tokens that one row stands for.
    pub(super) tokens_per_state: TokensPerState,
    /// Pages are padded to a multiple of so many bytes; 1 for none.
    pub(super) page_align: u64,
}

impl ReplicatedRows {
    /// A row for every token, pages not padded.
    pub(super) fn new(row_bytes: u64, format: impl Into<String>) -> Self {
        Self { row_bytes, format: format.into(), tokens_per_state: TokensPerState::ONE, page_align: 1 }
    }

    /// The page of a layer that holds nothing but these rows.
    pub(super) fn page(&self, kind: Kind, part: impl Into<PartName>) -> Page {
        let section = Section {
            states: States::PerToken(self.tokens_per_state),
            align: self.page_align,
            ..Section::of(PartShape {
                name: part.into(),
                units: Units::Replicated(1),
                content: self.row_bytes,
                format: self.format.clone(),
            })
        };
        Page { kind, usage: Usage::Tokens, sections: vec![section] }
    }
}
