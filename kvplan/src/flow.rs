//! Flows between two deployments: who moves what to whom, and how evenly.
//!
#![doc = include_str!("../docs/topologies.md")]

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use kvspec::bounded::Bounded;
use kvspec::{GroupId, LayerName, PartName, Sharding, Usage};
use serde::Serialize;

use crate::deployment::{Deployment, Rank};
use crate::lane::{Lane, LaneKey};
use crate::pair::{PairOptions, PairPlan, match_parts};
use crate::refusal::PairError;
use crate::request::Op;
use crate::serve::Positions;
use crate::timeline::Timeline;

/// What one source rank moves to one destination rank between two of their groups.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Flow {
    /// Source rank.
    pub from: Rank,
    /// Destination rank.
    pub to: Rank,
    /// Group at the source.
    pub source_group: GroupId,
    /// Group at the destination.
    pub destination_group: GroupId,
    /// Number of layers.
    pub num_layers: usize,
    /// Units, by what they are units of.
    pub units: Vec<UnitShare>,
    /// Positions that the source rank holds; all of them for state.
    pub positions: Positions,
    /// What the destination's blocks hold.
    pub usage: Usage,
    /// Bytes for one destination block, on average.
    pub bytes_per_block: f64,
    /// Descriptors for one destination block, on average, before neighbouring blocks merge.
    pub descriptors_per_block: f64,
    /// Bytes for each token of the sequence, on average; 0 for state.
    pub bytes_per_token: f64,
    /// Bytes for each state slot; 0 for tokens.
    pub bytes_per_slot: f64,
}

/// Units of the parts that are sharded alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnitShare {
    /// Names of the parts.
    pub parts: BTreeSet<PartName>,
    /// Units of the whole model that move; `None` where the parts are replicated and move whole.
    pub units: Option<Range<u64>>,
    /// Units of the whole model; 1 where replicated.
    pub total: u64,
}

/// What one source rank serves.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Load {
    /// The source rank.
    pub rank: Rank,
    /// Destination ranks that read from it: completions to wait for.
    pub readers: usize,
    /// Bytes for each token of a sequence, to all readers.
    pub bytes_per_token: f64,
    /// Bytes for each request's state, to all readers.
    pub bytes_per_slot: f64,
}

/// All flows from one deployment to another.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Flows {
    /// Version of this form.
    pub schema: u32,
    /// By source rank, then destination rank.
    pub flows: Vec<Flow>,
    /// By source rank.
    pub loads: Vec<Load>,
    /// Most bytes that a rank of a stage serves over the mean of its stage, for the worst stage; 1 is even.
    pub imbalance: f64,
}

/// Works out who moves what to whom.
///
/// # Errors
///
/// [`PairError`] of the first pair that is refused, or when the deployments do not hold the same layers.
pub fn flows(source: &Deployment, destination: &Deployment, options: &PairOptions) -> Result<Flows, PairError> {
    source.matches(destination)?;
    let options = PairOptions { op: Op::Read, ..*options };
    let mut flows = Vec::new();
    for from in source.ranks() {
        for to in destination.ranks() {
            let plan = PairPlan::new(to, from, &options)?;
            flows.extend(flows_of(&plan));
        }
    }
    let loads: Vec<Load> = source.ranks().iter().map(|spec| load(Rank::of(spec), &flows)).collect();
    let imbalance = loads.chunk_by(|a, b| a.rank.pp == b.rank.pp).map(stage_imbalance).fold(1.0, f64::max);
    Ok(Flows { schema: 1, flows, loads, imbalance })
}

fn load(rank: Rank, flows: &[Flow]) -> Load {
    let of_rank = || flows.iter().filter(|flow| flow.from == rank);
    let readers: BTreeSet<Rank> = of_rank().map(|flow| flow.to).collect();
    Load {
        rank,
        readers: readers.len(),
        bytes_per_token: of_rank().map(|flow| flow.bytes_per_token).sum(),
        bytes_per_slot: of_rank().map(|flow| flow.bytes_per_slot).sum(),
    }
}

fn stage_imbalance(stage: &[Load]) -> f64 {
    let worst = |bytes: fn(&Load) -> f64| {
        let total: f64 = stage.iter().map(bytes).sum();
        let most = stage.iter().map(bytes).fold(0.0, f64::max);
        if total > 0.0 { most * count(stage.len()) / total } else { 1.0 }
    };
    worst(|load| load.bytes_per_token).max(worst(|load| load.bytes_per_slot))
}

#[allow(clippy::cast_precision_loss, reason = "averages for people")]
fn count(n: usize) -> f64 {
    n as f64
}

#[allow(clippy::cast_precision_loss, reason = "averages for people")]
fn bytes(n: u64) -> f64 {
    n as f64
}

type UnitRange = (u64, u64);

/// Layers of a lane, and the names of its parts by (units, total).
type Moved = (BTreeSet<LayerName>, BTreeMap<(Option<UnitRange>, u64), BTreeSet<PartName>>);

/// The flows of one pair, one for each two groups; `plan` is the destination's.
fn flows_of(plan: &PairPlan) -> Vec<Flow> {
    let (to, from) = (plan.local(), plan.remote());
    let mut shares: BTreeMap<LaneKey, Moved> = BTreeMap::new();
    for (key, pair) in match_parts(to, from, Op::Read, &mut Bounded::default()) {
        let (layer, part) = pair.origin.of(to);
        let share = match part.sharding {
            Sharding::Replicated => (None, 1),
            Sharding::Sharded { total, .. } => {
                let first = to.units_of(part).start + pair.local_unit;
                (Some((first, first + pair.num_units)), total)
            }
        };
        let (layers, units) = shares.entry(key).or_default();
        layers.insert(layer.name.clone());
        units.entry(share).or_default().insert(part.name.clone());
    }
    let flow = |lane: &Lane| {
        let (layers, units) = shares.remove(&lane.key)?;
        let units = units.into_iter().map(|((units, total), parts)| UnitShare {
            parts,
            units: units.map(|(start, end)| start..end),
            total,
        });
        let (group, source_group) = (lane.key.local_group, lane.key.remote_group);
        let time = Timeline::of(to, group);
        let usage = to.groups[group.index()].usage;
        let (bytes_per_block, descriptors_per_block) = lane.per_destination_block();
        let per_token = bytes_per_block / bytes(time.block_tokens) / bytes(time.positions().every);
        Some(Flow {
            from: Rank::of(from),
            to: Rank::of(to),
            source_group,
            destination_group: group,
            num_layers: layers.len(),
            units: units.collect(),
            positions: Timeline::of(from, source_group).positions(),
            usage,
            bytes_per_block,
            descriptors_per_block,
            bytes_per_token: if usage == Usage::Tokens { per_token } else { 0.0 },
            bytes_per_slot: if usage == Usage::State { bytes_per_block } else { 0.0 },
        })
    };
    plan.lanes.iter().filter_map(flow).collect()
}

impl Lane {
    /// Bytes and descriptors for one destination block, averaged over a period of the schedule.
    fn per_destination_block(&self) -> (f64, f64) {
        let (mut total, mut descriptors) = (0.0, 0.0);
        for cut in self.schedule.meetings() {
            let runs = &self.cuts[cut as usize].template.runs;
            total += bytes(runs.iter().map(|run| run.len).sum());
            descriptors += count(runs.len());
        }
        let blocks = count(self.schedule.destination_period());
        (total / blocks, descriptors / blocks)
    }
}
