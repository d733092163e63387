//! Who serves whom: one deterministic function of two topologies.
//!
//! For every destination rank, part, unit and position exactly one source rank delivers. With h holders of a key and
//! m readers of it, both in rank order, reader i takes holder ⌊i·h/m⌋, so no holder serves more than ⌈m/h⌉. Both
//! sides of a pair can work it out from topologies and unit totals alone, in pull and in push.

use std::ops::Range;

use kvspec::{Part, Sharding, Usage, ValidSpec, ranks_of_unit};

/// Where a rank stands among the ranks that hold the same unit at the same positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Standing {
    index: u64,
    count: u64,
}

/// The rank's standing among the holders of `unit`; context-parallel siblings hold other positions and do not count.
fn standing(spec: &ValidSpec, usage: Usage, part: &Part, unit: u64) -> Standing {
    let tp = spec.topology.tp;
    let shared = spec.storages[part.storage.index()].shared;
    let ranks = match part.sharding {
        // A shared mapping is read and written by rank 0 alone; an explicit range has one owner.
        _ if shared => return Standing { index: 0, count: 1 },
        Sharding::Sharded { first: Some(_), .. } => return Standing { index: 0, count: 1 },
        Sharding::Replicated => 0..tp.size,
        Sharding::Sharded { total, first: None } => ranks_of_unit(total, tp.size, unit),
    };
    let siblings = match usage {
        Usage::Tokens => spec.topology.dcp.size,
        Usage::State => 1,
    };
    let group = |rank: u32| u64::from(rank / siblings);
    Standing { index: group(tp.rank) - group(ranks.start), count: group(ranks.end) - group(ranks.start) }
}

/// Global units of a part that `source` delivers to `destination`; empty when other ranks do.
pub(crate) fn served_units(
    source: &ValidSpec,
    source_part: &Part,
    destination: &ValidSpec,
    destination_part: &Part,
    usage: Usage,
) -> Range<u64> {
    let (s, d) = (source.units_of(source_part), destination.units_of(destination_part));
    let units = s.start.max(d.start)..s.end.min(d.end);
    if units.is_empty() || source.is_borrowed(source_part) || destination.is_borrowed(destination_part) {
        return 0..0;
    }
    // Several units in common means that neither side replicates them, or that all of them are replicated alike: the
    // first speaks for all.
    let holder = standing(source, usage, source_part, units.start);
    let reader = standing(destination, usage, destination_part, units.start);
    if reader.index * holder.count / reader.count == holder.index { units } else { 0..0 }
}
