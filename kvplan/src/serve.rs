//! Who serves whom: one deterministic function of two topologies.
//!
//! For every destination rank, part, unit and position exactly one source rank delivers. With h holders of a key and
//! m readers of it, both in rank order, reader i takes holder ⌊i·h/m⌋, so no holder serves more than ⌈m/h⌉. Both
//! sides of a pair work it out from topologies and unit totals alone, in pull and in push. A layer lies on one
//! pipeline stage of a deployment, and context-parallel siblings hold different positions, so the holders of a key
//! are tensor-parallel ranks of one stage, one from each context-parallel group.
//!
//! [`sources`], [`targets`] and [`readers`] answer for a whole stage from the spec of any one of its ranks, because
//! the standard sharding rule says what the others hold. A rank with explicit unit ranges speaks for itself alone:
//! ask once for each.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use kvspec::family::Budget;
use kvspec::{Layer, Part, PartName, Shard, Sharding, Usage, ValidSpec, owned_units, ranks_of_unit};

use serde::Serialize;

use crate::names::PartsByName;
use crate::schedule::Schedule;
use crate::timeline::Timeline;

/// What one rank of a peer's stage and this rank exchange of one part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// The peer's tensor-parallel rank.
    pub tp_rank: u32,
    /// The peer's pipeline stage.
    pub pp_rank: u32,
    /// The part.
    pub part: PartName,
    /// Units of the whole model that are exchanged.
    pub units: Range<u64>,
    /// Positions that the peer's rank holds.
    pub positions: Positions,
}

/// Positions of a sequence that a rank holds: runs of `run` tokens, every `every`-th from number `first` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Positions {
    /// Tokens in a run.
    pub run: u64,
    /// Number of the rank's first run.
    pub first: u64,
    /// Ranks that the runs are dealt to; 1 means all positions.
    pub every: u64,
}

/// A rank's place in its stage: all of its topology that decides what it holds of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Seat {
    tp: Shard,
    dcp_size: u32,
    usage: Usage,
}

/// Where a rank stands among the ranks that hold the same unit at the same positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Standing {
    index: u64,
    count: u64,
}

impl Seat {
    fn of(spec: &ValidSpec, usage: Usage) -> Self {
        Self { tp: spec.topology.tp, dcp_size: spec.topology.dcp.size, usage }
    }

    /// Units that the rank in this seat holds of a part, given the part as any rank of its stage lists it.
    fn units(&self, part: &Part) -> Range<u64> {
        match part.sharding {
            Sharding::Replicated => 0..part.units.count,
            Sharding::Sharded { first: Some(first), .. } => first..first + part.units.count,
            Sharding::Sharded { total, first: None } => owned_units(total, self.tp),
        }
    }

    /// The rank's standing among the holders of `unit`; context-parallel siblings hold other positions and do not
    /// count.
    fn standing(&self, part: &Part, shared: bool, unit: u64) -> Standing {
        let ranks = match part.sharding {
            // A shared mapping is read and written by rank 0 alone; an explicit range has one owner.
            _ if shared => return Standing { index: 0, count: 1 },
            Sharding::Sharded { first: Some(_), .. } => return Standing { index: 0, count: 1 },
            Sharding::Replicated => 0..self.tp.size,
            Sharding::Sharded { total, first: None } => ranks_of_unit(total, self.tp.size, unit),
        };
        let siblings = match self.usage {
            Usage::Tokens => self.dcp_size,
            Usage::State => 1,
        };
        let group = |rank: u32| u64::from(rank / siblings);
        Standing { index: group(self.tp.rank) - group(ranks.start), count: group(ranks.end) - group(ranks.start) }
    }
}

/// A part as a rank holds it.
#[derive(Clone, Copy, Debug)]
struct Held<'a> {
    seat: Seat,
    part: &'a Part,
    shared: bool,
}

/// All that decides which units a rank holds of a part, and which others hold them.
type HeldKey = (Seat, Sharding, u64, bool);

impl<'a> Held<'a> {
    fn key(&self) -> HeldKey {
        (self.seat, self.part.sharding, self.part.units.count, self.shared)
    }

    fn of(spec: &ValidSpec, part: &'a Part, usage: Usage) -> Self {
        Self { seat: Seat::of(spec, usage), part, shared: spec.storages[part.storage.index()].shared }
    }

    /// The same part as another rank of the stage holds it.
    fn at(&self, rank: u32) -> Self {
        Self { seat: Seat { tp: Shard { rank, ..self.seat.tp }, ..self.seat }, ..*self }
    }

    /// Ranks of the stage that this part's entry tells about.
    fn ranks(&self) -> Range<u32> {
        match self.part.sharding {
            Sharding::Sharded { first: Some(_), .. } => self.seat.tp.rank..self.seat.tp.rank + 1,
            _ => 0..self.seat.tp.size,
        }
    }

    /// Units that this rank, as a source, delivers to `destination`; empty when other ranks do.
    fn serves(&self, destination: &Held<'_>) -> Range<u64> {
        let (s, d) = (self.seat.units(self.part), destination.seat.units(destination.part));
        let units = s.start.max(d.start)..s.end.min(d.end);
        let borrowed = |held: &Held<'_>| held.shared && held.seat.tp.rank != 0;
        if units.is_empty() || borrowed(self) || borrowed(destination) {
            return 0..0;
        }
        // Several units in common means that neither side replicates them, or that all of them are replicated alike:
        // the first speaks for all.
        let holder = self.seat.standing(self.part, self.shared, units.start);
        let reader = destination.seat.standing(destination.part, destination.shared, units.start);
        if reader.index * holder.count / reader.count == holder.index { units } else { 0..0 }
    }
}

/// Global units of a part that `source` delivers to `destination`; empty when other ranks do.
pub(crate) fn served_units(
    (source, source_part): (&ValidSpec, &Part),
    (destination, destination_part): (&ValidSpec, &Part),
    usage: Usage,
) -> Range<u64> {
    Held::of(source, source_part, usage).serves(&Held::of(destination, destination_part, usage))
}

/// Ranks of the peer's stage that this rank reads a layer from, in rank order.
///
/// `remote` is the spec of any rank of the stage that lists the layer. Empty when either side does not list it or
/// does not transfer it.
#[must_use]
pub fn sources(local: &ValidSpec, remote: &ValidSpec, layer: &str) -> Vec<Share> {
    shares(local, remote, layer, |local, remote| remote.serves(local))
}

/// Ranks of the peer's stage that this rank writes a layer to, in rank order.
///
/// `remote` is the spec of any rank of the stage that lists the layer. Empty when either side does not list it or
/// does not transfer it.
#[must_use]
pub fn targets(local: &ValidSpec, remote: &ValidSpec, layer: &str) -> Vec<Share> {
    shares(local, remote, layer, |local, remote| local.serves(remote))
}

/// Number of destination ranks that read something from this source rank, or that it writes something to: the
/// completions it must see before it may free a request's blocks.
///
/// `stages` holds the spec of one rank of each pipeline stage of the destination that is known so far, or of every
/// rank where unit ranges are explicit; the number is final when no stage is missing.
#[must_use]
pub fn readers(source: &ValidSpec, stages: &[ValidSpec]) -> usize {
    let at_source: HashMap<&str, &Layer> = source.layers.iter().map(|layer| (layer.name.as_str(), layer)).collect();
    let mut found: HashSet<(u32, u32)> = HashSet::new();
    // Layers are alike as a rule: what decides who reads them is asked once.
    let mut asked = HashSet::new();
    let mut budget = Budget(MAX_READER_STEPS);
    'stages: for stage in stages {
        let size = stage.topology.tp.size;
        for peer in stage.layers.iter().filter(|peer| peer.transfer) {
            let Some(layer) = at_source.get(peer.name.as_str()).filter(|layer| layer.transfer) else { continue };
            let usage = source.group_of(layer).usage;
            if usage != stage.group_of(peer).usage {
                continue;
            }
            let times = (Timeline::of(source, layer.group), Timeline::of(stage, peer.group));
            let by_name = PartsByName::new(peer);
            for (part, to) in layer.parts.iter().filter_map(|part| Some((part, by_name.find(part.name.as_str())?))) {
                let (here, there) = (Held::of(source, part, usage), Held::of(stage, to, usage));
                let key = (stage.topology.pp.rank, here.key(), there.key(), times);
                if !asked.insert(key) {
                    continue;
                }
                for rank in there.ranks() {
                    let stage_and_rank = (stage.topology.pp.rank, rank);
                    // A peer can describe each part in another way, so that the answer is too dear: then all ranks of
                    // its stage count, and leases last until they have all been heard of.
                    let counts = !budget.spend(1)
                        || (!here.serves(&there.at(rank)).is_empty() && Schedule::meet(times.0, times.1.of_rank(rank)));
                    if counts {
                        found.insert(stage_and_rank);
                    }
                }
                if budget.0 == 0 {
                    found.extend((0..size).map(|rank| (stage.topology.pp.rank, rank)));
                    continue 'stages;
                }
            }
        }
    }
    found.len()
}

/// Ranks that [`readers`] looks at; some tens of nanoseconds each.
const MAX_READER_STEPS: u64 = 1 << 21;

fn shares(
    local: &ValidSpec,
    remote: &ValidSpec,
    layer: &str,
    serves: impl Fn(&Held<'_>, &Held<'_>) -> Range<u64>,
) -> Vec<Share> {
    let find = |spec: &'_ ValidSpec| spec.layers.iter().position(|l| l.name.as_str() == layer && l.transfer);
    let (Some(l), Some(r)) = (find(local), find(remote)) else { return Vec::new() };
    let (layer, peer): (&Layer, &Layer) = (&local.layers[l], &remote.layers[r]);
    let usage = local.group_of(layer).usage;
    if usage != remote.group_of(peer).usage {
        return Vec::new();
    }
    let (time, peer_time) = (Timeline::of(local, layer.group), Timeline::of(remote, peer.group));

    let mut found = Vec::new();
    let by_name = PartsByName::new(peer);
    for (part, peer_part) in layer.parts.iter().filter_map(|part| Some((part, by_name.find(part.name.as_str())?))) {
        let (here, there) = (Held::of(local, part, usage), Held::of(remote, peer_part, usage));
        for rank in there.ranks() {
            let units = serves(&here, &there.at(rank));
            let peer_time = peer_time.of_rank(rank);
            if units.is_empty() || !Schedule::meet(time, peer_time) {
                continue;
            }
            found.push(Share {
                tp_rank: rank,
                pp_rank: remote.topology.pp.rank,
                part: part.name.clone(),
                units,
                positions: peer_time.positions(),
            });
        }
    }
    found.sort_by_key(|share| share.tp_rank);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Replicas of one unit on `holders` ranks, read by `readers`: how many each holder serves.
    fn served(holders: u32, readers: u32) -> Vec<usize> {
        let standing = |index: u32, count: u32| Standing { index: u64::from(index), count: u64::from(count) };
        (0..holders)
            .map(|h| {
                (0..readers)
                    .filter(|&r| {
                        let (holder, reader) = (standing(h, holders), standing(r, readers));
                        reader.index * holder.count / reader.count == holder.index
                    })
                    .count()
            })
            .collect()
    }

    #[test]
    fn no_holder_serves_more_than_its_share() {
        for holders in 1..=16 {
            for readers in 1..=32 {
                let served = served(holders, readers);
                assert_eq!(served.iter().sum::<usize>(), readers as usize);
                let most = readers.div_ceil(holders) as usize;
                assert!(served.iter().all(|&n| n <= most), "{holders} holders, {readers} readers: {served:?}");
            }
        }
    }
}
