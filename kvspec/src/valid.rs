//! A spec that has been checked whole: the proof as a type.

use std::ops::{Deref, Range};
use std::sync::Arc;

use crate::error::SpecError;
use crate::sharding::{Sharding, owned_units};
use crate::spec::{CacheSpec, Group, Layer, Part, Storage, Usage};

/// A [`CacheSpec`] that passed validation. Cheap to clone; immutable.
///
/// Everything that validation promises may be relied on: indices are in range, every cell lies in its storage,
/// no sum or product of the part formula overflows.
#[derive(Clone, Debug, PartialEq)]
pub struct ValidSpec(Arc<CacheSpec>);

impl CacheSpec {
    /// Checks the whole spec and reports everything that is wrong with it.
    ///
    /// Tokens per state are brought to lowest terms, so that they compare by value.
    ///
    /// # Errors
    ///
    /// [`SpecError::Invalid`] with all findings.
    pub fn validate(mut self) -> Result<ValidSpec, SpecError> {
        for part in self.layers.iter_mut().flat_map(|layer| &mut layer.parts) {
            part.tokens_per_state = part.tokens_per_state.reduced();
        }
        crate::validate::check(&self).map_err(SpecError::Invalid)?;
        Ok(ValidSpec(Arc::new(self)))
    }
}

impl Deref for ValidSpec {
    type Target = CacheSpec;

    fn deref(&self) -> &CacheSpec {
        &self.0
    }
}

impl ValidSpec {
    /// Whether two workers have the same caches, wherever their memory lies: what is planned for one holds for the
    /// other, since a plan's offsets are within storages.
    #[must_use]
    pub fn has_caches_of(&self, other: &Self) -> bool {
        let (a, b) = (&*self.0, &*other.0);
        let alike = |(a, b): (&Storage, &Storage)| (a.len, a.mem, a.shared) == (b.len, b.mem, b.shared);
        Arc::ptr_eq(&self.0, &other.0)
            || (a.fingerprint == b.fingerprint
                && a.topology == b.topology
                && a.groups == b.groups
                && a.storages.len() == b.storages.len()
                && a.storages.iter().zip(&b.storages).all(alike)
                && a.layers == b.layers)
    }

    /// The layer's group.
    #[must_use]
    pub fn group_of(&self, layer: &Layer) -> &Group {
        &self.groups[layer.group.index()]
    }

    /// Global units of the part that this worker holds: `[first, first + units.count)`.
    #[must_use]
    pub fn units_of(&self, part: &Part) -> Range<u64> {
        match part.sharding {
            Sharding::Replicated => 0..part.units.count,
            Sharding::Sharded { first: Some(first), .. } => first..first + part.units.count,
            Sharding::Sharded { total, first: None } => owned_units(total, self.topology.tp),
        }
    }

    /// Stored states in one block of the part: the product of its token factors.
    #[must_use]
    pub fn states_of(&self, part: &Part) -> u64 {
        part.tokens.iter().map(|axis| axis.count).product()
    }

    /// Whether this worker takes no part in moving the storage: a shared mapping that TP rank 0 fills.
    #[must_use]
    pub fn is_borrowed(&self, part: &Part) -> bool {
        self.storages[part.storage.index()].shared && self.topology.tp.rank != 0
    }

    /// Length of one run of context-parallel tokens in a group of [`Usage::Tokens`]; 1 slot for state.
    #[must_use]
    pub fn interleave_of(&self, group: &Group) -> u64 {
        match group.usage {
            Usage::Tokens => self.topology.dcp.interleave.unwrap_or(group.block_tokens),
            Usage::State => 1,
        }
    }
}
