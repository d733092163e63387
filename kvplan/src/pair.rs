//! Pairing: two workers' specs become a plan, or a list of reasons why not.
//!
//! Layers meet by name and parts by name. For each pair of parts the units in common that this source must deliver
//! ([`serve`](crate::serve)), the ways in which blocks meet ([`schedule`](crate::schedule)) and the token factors
//! ([`refine`](crate::refine)) give strided copies; everything in one lane is normalised together. The cost follows
//! the number of parts; the number of blocks never enters.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use kvspec::bounded::Bounded;
use kvspec::family::Budget;
use kvspec::{GroupId, Layer, Part, Sharding, StorageIndex, Usage, ValidSpec};

use crate::gap::{FreeBytes, Owners};
use crate::lane::{Bounds, Lane, LaneKey, LaneSide, MAX_RUNS, PartPair};
use crate::layers::Selections;
use crate::names::PartsByName;
use crate::refusal::{PairError, Refusal, Side};
use crate::request::Op;
use crate::rows::{PartRef, Rows};
use crate::schedule::Schedule;
use crate::serve::served_units;
use crate::template::SideRows;
use crate::timeline::Timeline;

/// What a caller asks of a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PairOptions {
    /// Direction: whether this worker is the destination or the source.
    pub op: Op,
    /// Longest gap, in bytes, that may travel as padding to save a descriptor; `u64::MAX` for any. At the default of
    /// 0 no byte is written that the spec does not declare.
    pub max_gap: u64,
    /// Shortest run, in bytes, along the token axis that the caller accepts; 0 accepts all.
    pub min_run: u64,
    /// Refuse a pair in which a block is more than one descriptor.
    pub require_whole_rows: bool,
}

/// Bound on the runs of the periods of a plan's schedules, whether they meet or not.
const MAX_SCHEDULES: u128 = 1 << 22;
/// Steps of a budget for each layer and part of either side, and for each run of a block or of a schedule.
const PART_STEPS: u64 = 60;
const RUN_STEPS: u64 = 60;

/// Bound on the meetings of one period, over all pairs of groups of a plan.
const MAX_MEETINGS: usize = 1 << 19;

/// A plan for one pair of workers and one direction: immutable, shareable between threads.
#[derive(Debug)]
pub struct PairPlan {
    pub(crate) options: PairOptions,
    pub(crate) local: ValidSpec,
    pub(crate) remote: ValidSpec,
    pub(crate) lanes: Vec<Lane>,
    pub(crate) selections: Selections,
}

impl PairPlan {
    /// Plans transfers between a worker and its peer.
    ///
    /// A pair in which other ranks serve everything, or whose pipeline stages have no layer in common, gives an empty
    /// plan.
    ///
    /// # Errors
    ///
    /// All [`Refusal`]s that apply, in the order of the local layers.
    pub fn new(local: &ValidSpec, remote: &ValidSpec, options: &PairOptions) -> Result<Self, PairError> {
        Self::new_within(local, remote, options, &mut Budget(u64::MAX))
    }

    /// The same within a budget of work, which what is done is taken off: for a peer whose spec is not known.
    ///
    /// # Errors
    ///
    /// As [`PairPlan::new`], and [`Refusal::TooMuchWork`].
    pub fn new_within(
        local: &ValidSpec,
        remote: &ValidSpec,
        options: &PairOptions,
        budget: &mut Budget,
    ) -> Result<Self, PairError> {
        let steps = budget.0;
        let too_much = || PairError { refusals: vec![Refusal::TooMuchWork { steps }] };
        let num_parts = |spec: &ValidSpec| spec.layers.iter().map(|layer| 1 + layer.parts.len() as u64).sum::<u64>();
        if !budget.spend((num_parts(local) + num_parts(remote)).saturating_mul(PART_STEPS)) {
            return Err(too_much());
        }
        let mut refusals = fingerprint_refusals(local, remote);
        let parts = match_parts(local, remote, options.op, &mut refusals);
        if !refusals.is_empty() {
            return Err(PairError::of(refusals));
        }

        let (lanes, mut refusals) = lanes(local, remote, options, parts, budget).ok_or_else(too_much)?;
        let (local, remote) = (local.clone(), remote.clone());
        let plan = Self { options: *options, local, remote, lanes, selections: Selections::default() };
        if options.require_whole_rows {
            refusals.extend(plan.broken_row(&plan.lanes));
        }
        if refusals.is_empty() { Ok(plan) } else { Err(PairError::of(refusals)) }
    }

    /// The options that the plan was made with.
    #[must_use]
    pub fn options(&self) -> &PairOptions {
        &self.options
    }

    /// Whether this pair exchanges nothing, whatever the request.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    /// This worker's spec.
    #[must_use]
    pub fn local(&self) -> &ValidSpec {
        &self.local
    }

    /// The peer's spec.
    #[must_use]
    pub fn remote(&self) -> &ValidSpec {
        &self.remote
    }
}

/// Plans what moves, lane by lane, and says why what cannot be planned cannot. `None` if the budget is used up.
pub(crate) fn lanes(
    local: &ValidSpec,
    remote: &ValidSpec,
    options: &PairOptions,
    parts: Vec<(LaneKey, PartPair<'_>)>,
    budget: &mut Budget,
) -> Option<(Vec<Lane>, Bounded<Refusal>)> {
    let mut refusals = Bounded::default();
    let mut by_lane: BTreeMap<LaneKey, Vec<PartPair<'_>>> = BTreeMap::new();
    for (key, pair) in parts {
        by_lane.entry(key).or_default().push(pair);
    }
    let mut schedules: HashMap<(GroupId, GroupId), Option<Arc<Schedule>>> = HashMap::new();
    let (local_is_destination, remote_is_destination) = options.op.local_first(true, false);
    let bridging = options.max_gap > 0;
    let mut local_sides = Sides::new(local, bridging && local_is_destination);
    let mut remote_sides = Sides::new(remote, bridging && remote_is_destination);
    let bounds = Bounds { max_gap: options.max_gap, min_run: options.min_run };
    let mut runs_left = MAX_RUNS.min(budget.0 / RUN_STEPS);
    let by_budget = runs_left < MAX_RUNS;
    let mut schedule_left = if by_budget { runs_left.into() } else { MAX_SCHEDULES };
    let (runs, schedule_runs) = (runs_left, schedule_left);
    let mut meetings_left = MAX_MEETINGS;

    let mut lanes = Vec::with_capacity(by_lane.len());
    for (key, parts) in by_lane {
        let schedule = schedules.entry((key.local_group, key.remote_group)).or_insert_with(|| {
            if meetings_left == 0 {
                return None;
            }
            let (l, r) = (Timeline::of(local, key.local_group), Timeline::of(remote, key.remote_group));
            let schedule = Schedule::within(l, r, options.op, &mut schedule_left).ok()?;
            let left = meetings_left.checked_sub(schedule.meetings().count());
            meetings_left = left.unwrap_or(0);
            left.map(|_| Arc::new(schedule))
        });
        let Some(schedule) = schedule.clone() else {
            if by_budget {
                return None;
            }
            refusals.push(Refusal::Irregular {
                layer: parts[0].origin.of(local).0.name.clone(),
                local: local.groups[key.local_group.index()].block_tokens,
                remote: remote.groups[key.remote_group.index()].block_tokens,
            });
            continue;
        };
        if schedule.cuts.is_empty() {
            // Context-parallel ranks that hold no position in common.
            continue;
        }
        let local_side = LaneSide { spec: local, rows: local_sides.of(key.local_group), group: key.local_group };
        let remote_side = LaneSide { spec: remote, rows: remote_sides.of(key.remote_group), group: key.remote_group };
        match Lane::new(key, local_side, remote_side, schedule, &parts, bounds, &mut runs_left) {
            Ok(lane) => lanes.push(lane),
            Err(refusal) => {
                // What is left to plan would only be refused for the runs that this lane used up.
                let used_up = matches!(refusal, Refusal::TooManyRuns { .. });
                if used_up && by_budget {
                    return None;
                }
                refusals.push(refusal);
                if used_up {
                    break;
                }
            }
        }
    }
    let looked_at = u64::try_from(schedule_runs - schedule_left).unwrap_or(u64::MAX);
    if !budget.spend((runs - runs_left).saturating_add(looked_at).saturating_mul(RUN_STEPS)) {
        return None;
    }
    Some((lanes, refusals))
}

/// Rows of one side, and free bytes of the destination's by group, each worked out when first asked for.
struct Sides<'a> {
    spec: &'a ValidSpec,
    rows: Arc<Rows>,
    /// Who owns what; only at the destination, where gaps are overwritten.
    owners: Option<Owners>,
    free: HashMap<GroupId, Arc<[FreeBytes]>>,
}

impl<'a> Sides<'a> {
    fn new(spec: &'a ValidSpec, is_destination: bool) -> Self {
        let rows = Arc::new(Rows::new(spec));
        let owners = is_destination.then(|| Owners::new(spec, &rows));
        Self { spec, rows, owners, free: HashMap::new() }
    }

    fn of(&mut self, group: GroupId) -> SideRows {
        let pool = self.spec.groups[group.index()].pool;
        let (spec, rows) = (self.spec, &self.rows);
        let free = self.owners.as_mut().map(|owners| {
            let of_row = |row: &_| owners.free_bytes(spec, row, group);
            self.free.entry(group).or_insert_with(|| rows.0.iter().map(of_row).collect()).clone()
        });
        SideRows { rows: self.rows.clone(), pool, free }
    }
}

fn fingerprint_refusals(local: &ValidSpec, remote: &ValidSpec) -> Bounded<Refusal> {
    let mut refusals = Bounded::default();
    for (field, local, remote) in local.fingerprint.differences(&remote.fingerprint) {
        refusals.push(Refusal::Fingerprint { field, local: local.to_owned(), remote: remote.to_owned() });
    }
    refusals
}

/// Meets layers by name; what is incompatible goes to `refusals`, what this pair must move is returned by lane.
pub(crate) fn match_parts<'a>(
    local: &'a ValidSpec,
    remote: &'a ValidSpec,
    op: Op,
    refusals: &mut Bounded<Refusal>,
) -> Vec<(LaneKey, PartPair<'a>)> {
    let at_remote: HashMap<&str, &Layer> = remote.layers.iter().map(|l| (l.name.as_str(), l)).collect();
    let at_local: HashMap<&str, &Layer> = local.layers.iter().map(|l| (l.name.as_str(), l)).collect();
    // Another stage may hold what this one lacks, and a stage may keep a copy that it does not transfer.
    let one_local_stage = local.topology.pp.size == 1;
    let one_remote_stage = remote.topology.pp.size == 1;

    let mut found = Vec::new();
    for (layer, index) in local.layers.iter().zip(0u32..) {
        let Some(peer) = at_remote.get(layer.name.as_str()).copied() else {
            if layer.transfer && one_remote_stage {
                refusals.push(Refusal::LayerMissing { layer: layer.name.clone(), missing_at: Side::Remote });
            }
            continue;
        };
        if layer.transfer != peer.transfer {
            let only_copy = if layer.transfer { one_remote_stage } else { one_local_stage };
            if only_copy {
                refusals.push(Refusal::Transfer {
                    layer: layer.name.clone(),
                    local: layer.transfer,
                    remote: peer.transfer,
                });
            }
            continue;
        }
        if !layer.transfer {
            continue;
        }
        let (usage, peer_usage) = (local.group_of(layer).usage, remote.group_of(peer).usage);
        if usage != peer_usage {
            refusals.push(Refusal::Usage { layer: layer.name.clone(), local: usage, remote: peer_usage });
            continue;
        }
        let (here, there) = (PartsByName::new(layer), PartsByName::new(peer));
        for part in &peer.parts {
            if here.find(part.name.as_str()).is_none() {
                refusals.push(part_missing(layer, part, Side::Local));
            }
        }
        for (part, p) in layer.parts.iter().zip(0u32..) {
            let Some(peer_part) = there.find(part.name.as_str()) else {
                refusals.push(part_missing(layer, part, Side::Remote));
                continue;
            };
            let before = refusals.len();
            compare_parts((local, layer, part), (remote, peer, peer_part), refusals);
            if refusals.len() > before {
                continue;
            }
            let (destination, source) = op.destination_first((local, part), (remote, peer_part));
            let units = served_units(source, destination, usage);
            if units.is_empty() {
                continue;
            }
            let mem = |spec: &ValidSpec, storage: StorageIndex| spec.storages[storage.index()].mem;
            let key = LaneKey {
                local_group: layer.group,
                remote_group: peer.group,
                local_mem: mem(local, part.storage),
                remote_mem: mem(remote, peer_part.storage),
            };
            found.push((
                key,
                PartPair {
                    origin: PartRef { layer: kvspec::LayerIndex(index), part: p },
                    local: part,
                    remote: peer_part,
                    local_unit: units.start - local.units_of(part).start,
                    remote_unit: units.start - remote.units_of(peer_part).start,
                    num_units: units.end - units.start,
                },
            ));
        }
    }
    if one_local_stage {
        for layer in remote.layers.iter().filter(|l| l.transfer && !at_local.contains_key(l.name.as_str())) {
            refusals.push(Refusal::LayerMissing { layer: layer.name.clone(), missing_at: Side::Local });
        }
    }
    found
}

fn part_missing(layer: &Layer, part: &Part, missing_at: Side) -> Refusal {
    Refusal::PartMissing { layer: layer.name.clone(), part: part.name.clone(), missing_at }
}

/// A part of a spec's layer.
pub(crate) type Listed<'a> = (&'a ValidSpec, &'a Layer, &'a Part);

/// The first thing in which a part on two workers differs, however each lays it out and whichever units it holds.
pub(crate) fn difference(local: Listed<'_>, remote: Listed<'_>) -> Option<Refusal> {
    let name = || local.1.name.clone();
    if local.1.transfer != remote.1.transfer {
        return Some(Refusal::Transfer { layer: name(), local: local.1.transfer, remote: remote.1.transfer });
    }
    let usage = |(spec, layer, _): Listed<'_>| spec.group_of(layer).usage;
    if usage(local) != usage(remote) {
        return Some(Refusal::Usage { layer: name(), local: usage(local), remote: usage(remote) });
    }
    let mut refusals = Bounded::default();
    compare_parts(local, remote, &mut refusals);
    refusals.into_vec(Refusal::more).into_iter().next()
}

/// What must be equal for a part's bytes to mean the same on both sides; the usage of its groups is.
fn compare_parts(
    (local_spec, layer, local): Listed<'_>,
    (remote_spec, _, remote): Listed<'_>,
    refusals: &mut Bounded<Refusal>,
) {
    let names = || (layer.name.clone(), local.name.clone());
    let total = |part: &Part| match part.sharding {
        Sharding::Replicated => (None, part.units.count),
        Sharding::Sharded { total, .. } => (Some(total), 0),
    };
    if total(local) != total(remote) {
        let sharding = |part: &Part| match total(part) {
            (None, 1) => "replicated".to_owned(),
            (None, units) => format!("replicated in {units} units"),
            (Some(units), _) => format!("sharded in {units} units"),
        };
        let ((layer, part), local, remote) = (names(), sharding(local), sharding(remote));
        refusals.push(Refusal::Sharding { layer, part, local, remote });
    }
    if local.content != remote.content {
        let ((layer, part), local, remote) = (names(), local.content, remote.content);
        refusals.push(Refusal::Content { layer, part, local, remote });
    }
    if local.format != remote.format {
        let ((layer, part), local, remote) = (names(), local.format.clone(), remote.format.clone());
        refusals.push(Refusal::Format { layer, part, local, remote });
    }
    if local.tokens_per_state != remote.tokens_per_state {
        let ((layer, part), local, remote) = (names(), local.tokens_per_state, remote.tokens_per_state);
        refusals.push(Refusal::TokensPerState { layer, part, local, remote });
    }
    if local_spec.group_of(layer).usage == Usage::State {
        let (local, remote) = (local_spec.states_of(local), remote_spec.states_of(remote));
        if local != remote {
            let (layer, part) = names();
            refusals.push(Refusal::StateSlots { layer, part, local, remote });
        }
    }
}
