//! Circular buffers.

use super::{Describe, KindError, Page, PartShape, Section, States, Units};
use crate::spec::{Kind, Usage};

/// One ring a request: part `ring`, in a group of state.
///
/// Shape of one block: `[heads, capacity_tokens, row_bytes]`. The ring travels whole, whatever its fill, so both
/// sides have the same capacity; where the ring's head stands is the engine's to pass on.
///
/// ```
/// use kvspec::Usage;
/// use kvspec::kinds::{Describe, Ring};
///
/// // The latest 16 tokens of two heads, on every rank.
/// let page = Ring::new(16, 256, "bf16").heads(2).describe()?;
/// assert_eq!(page.usage, Usage::State);
/// # Ok::<(), kvspec::kinds::KindError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ring {
    capacity_tokens: u64,
    row_bytes: u64,
    format: String,
    units: Units,
}

impl Ring {
    /// A ring of `capacity_tokens` rows of one replicated head.
    #[must_use]
    pub fn new(capacity_tokens: u64, row_bytes: u64, format: impl Into<String>) -> Self {
        Self { capacity_tokens, row_bytes, format: format.into(), units: Units::Replicated(1) }
    }

    /// `num_heads` heads, all of them on every rank.
    #[must_use]
    pub fn heads(self, num_heads: u64) -> Self {
        Self { units: Units::Replicated(num_heads), ..self }
    }

    /// `num_heads` heads over all ranks.
    #[must_use]
    pub fn sharded_heads(self, num_heads: u64) -> Self {
        Self { units: Units::Sharded(num_heads), ..self }
    }
}

impl Describe for Ring {
    fn describe(&self) -> Result<Page, KindError> {
        let section = Section {
            states: States::Fixed(vec![self.capacity_tokens]),
            ..Section::of(PartShape {
                name: "ring".into(),
                units: self.units,
                content: self.row_bytes,
                format: self.format.clone(),
            })
        };
        Ok(Page { kind: Kind::CircularBuffer, usage: Usage::State, sections: vec![section] })
    }
}
