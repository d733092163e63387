//! Whole-spec validation: every rule, and everything that breaks one.
//!
//! | rules on | module |
//! |---|---|
//! | lengths of names | `texts` |
//! | allocations | `storages` |
//! | ranks, context parallelism | `topology` |
//! | groups, layers, parts: names, counts, units, states, bounds | `layers` |
//! | cells that share bytes | `overlaps` |
//! | blocks of unlike ids of one pool that share bytes | `overlays` |
//!
//! What they find is a [`Finding`], in the [words](PartField) of the spec; [`Findings`] are all of one spec.
//!
//! Address arithmetic here is in 128 bits and checked; a part enters the overlap search only when all its cells
//! lie in its storage, so the search deals with numbers below 2⁶⁴.

mod finding;
mod findings;
mod layers;
mod overlaps;
mod overlays;
mod storages;
mod texts;
mod topology;
mod words;

pub use finding::Finding;
pub use findings::Findings;
pub use words::{CellOf, Dimension, PartField, TextOf};

use crate::bounded::Bounded;
use crate::family::Budget;
use crate::spec::{CacheSpec, SPEC_VERSION};

/// Steps of a budget for each layer, part and group that is looked at.
const LAYER_STEPS: u64 = 20;

/// Everything that is wrong with the spec, in the order version, texts, topology, storages, groups, layers, overlaps.
pub(crate) fn check(spec: &CacheSpec, budget: &mut Budget) -> Result<(), Findings> {
    let mut findings = Bounded::default();
    if spec.version != SPEC_VERSION {
        findings.push(Finding::Version { given: spec.version, known: SPEC_VERSION });
    }
    let parts: usize = spec.layers.iter().map(|layer| layer.parts.len()).sum();
    let steps = budget.0;
    if !budget.spend(LAYER_STEPS.saturating_mul((spec.layers.len() + parts + spec.groups.len()) as u64)) {
        return Err(Findings(vec![Finding::TooMuchWork { parts, steps }]));
    }
    texts::check(spec, &mut findings);
    let topology_holds = topology::check(spec, &mut findings);
    storages::check(spec, &mut findings);
    let placed = layers::check(spec, topology_holds, &mut findings);
    if !findings.is_full() {
        overlaps::check(&placed, &mut findings, budget);
    }
    if findings.is_empty() { Ok(()) } else { Err(Findings(findings.into_vec(|more| Finding::More { more }))) }
}
