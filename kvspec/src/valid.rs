//! A spec that has been checked whole: the proof as a type.

use std::cell::LazyCell;
use std::collections::HashMap;
use std::ops::{Deref, Range};
use std::sync::Arc;

use crate::error::SpecError;
use crate::family::Budget;
use crate::sharding::{Sharding, owned_units};
use crate::spec::{CacheSpec, Group, Layer, Part, Storage, Usage};

/// Work that [`CacheSpec::validate`] may do: half a second at most.
const MAX_STEPS: u64 = 50_000_000;

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
    pub fn validate(self) -> Result<ValidSpec, SpecError> {
        self.validate_within(&mut Budget(MAX_STEPS))
    }

    /// The same within a budget of work, which what is done is taken off: for specs that somebody else has written.
    ///
    /// # Errors
    ///
    /// [`SpecError::Invalid`] with all findings, also for a spec that it would take more work to check.
    pub fn validate_within(mut self, budget: &mut Budget) -> Result<ValidSpec, SpecError> {
        for part in self.layers.iter_mut().flat_map(|layer| &mut layer.parts) {
            part.tokens_per_state = part.tokens_per_state.reduced();
        }
        crate::validate::check(&self, budget).map_err(SpecError::Invalid)?;
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
    /// Whether what is planned for `planned` holds for this worker: the same rank of the same model has each of its layers
    /// at the same places within storages, wherever its memory lies.
    ///
    /// A spec may be planned for that lists fewer layers, or marks some as staying, to move a part of the caches.
    #[must_use]
    pub fn has_caches_of(&self, planned: &Self) -> bool {
        if Arc::ptr_eq(&self.0, &planned.0) {
            return true;
        }
        let alike = |(a, b): (&Storage, &Storage)| (a.len, a.mem, a.shared) == (b.len, b.mem, b.shared);
        // Made only where the order differs: a table costs more than all the rest.
        let by_name: LazyCell<HashMap<_, _>, _> =
            LazyCell::new(|| self.layers.iter().map(|layer| (layer.name.as_str(), layer)).collect());
        let is_here = |(index, layer): (usize, &Layer)| {
            let same_place = self.layers.get(index).filter(|here| here.name == layer.name);
            let here = same_place.or_else(|| by_name.get(layer.name.as_str()).copied());
            here.is_some_and(|here| here.parts == layer.parts && self.group_of(here) == planned.group_of(layer))
        };
        self.fingerprint == planned.fingerprint
            && self.topology == planned.topology
            && self.storages.len() == planned.storages.len()
            && self.storages.iter().zip(&planned.storages).all(alike)
            && planned.layers.iter().enumerate().all(is_here)
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
