//! Whole-spec validation: every rule, and everything that breaks one.
//!
//! | rules on | module |
//! |---|---|
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
mod topology;
mod words;

pub use finding::Finding;
pub use findings::Findings;
pub use words::{CellOf, Dimension, PartField};

use crate::spec::{CacheSpec, SPEC_VERSION};

/// Everything that is wrong with the spec, in the order version, topology, storages, groups, layers, overlaps.
pub(crate) fn check(spec: &CacheSpec) -> Result<(), Findings> {
    let mut findings = Vec::new();
    if spec.version != SPEC_VERSION {
        findings.push(Finding::Version { given: spec.version, known: SPEC_VERSION });
    }
    let topology_holds = topology::check(spec, &mut findings);
    storages::check(spec, &mut findings);
    let placed = layers::check(spec, topology_holds, &mut findings);
    overlaps::check(&placed, &mut findings);
    if findings.is_empty() { Ok(()) } else { Err(Findings(findings)) }
}
