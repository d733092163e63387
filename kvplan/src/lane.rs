//! Lanes: everything that moves between one local group and one remote group, of one kind of memory on either side.

use std::sync::Arc;

use serde::Serialize;

use kvspec::{Axis, GroupId, MemKind, Part, Usage, ValidSpec};

use crate::copy::{Copy, Loop, Place, Placed, merge};
use crate::refine::{Piece, States, pieces};
use crate::refusal::Refusal;
use crate::rows::PartRef;
use crate::schedule::{Cut, Schedule};
use crate::template::{Band, Run, SideRows, Template, Unroller};

/// What keeps the two sides of a plan apart in lanes. Lanes come in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct LaneKey {
    /// Group here.
    pub local_group: GroupId,
    /// Group at the peer.
    pub remote_group: GroupId,
    /// Kind of memory here.
    pub local_mem: MemKind,
    /// Kind of memory at the peer.
    pub remote_mem: MemKind,
}

/// A part that moves: the same units of the same part on both sides.
#[derive(Clone, Debug)]
pub(crate) struct PartPair<'a> {
    pub(crate) origin: PartRef,
    pub(crate) local: &'a Part,
    pub(crate) remote: &'a Part,
    /// First unit to move, as an index of either side's own units.
    pub(crate) local_unit: u64,
    pub(crate) remote_unit: u64,
    pub(crate) num_units: u64,
}

/// One cut of a lane: its normal form and what that unrolls to.
#[derive(Clone, Debug)]
pub(crate) struct CutPlan {
    pub(crate) cut: Cut,
    /// Normal form.
    pub(crate) copies: Vec<Placed>,
    pub(crate) template: Template,
}

/// One lane of a plan.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) key: LaneKey,
    pub(crate) schedule: Arc<Schedule>,
    pub(crate) cuts: Vec<CutPlan>,
    /// Local rows in use, in order of address.
    pub(crate) bands: Vec<Band>,
    /// Whether going through the bands in order, and through blocks in order within each, gives ascending addresses.
    pub(crate) bands_ascend: bool,
    pub(crate) local: SideRows,
    pub(crate) remote: SideRows,
}

/// Bytes that the pieces and runs of a plan may take while it is made; what is kept of it is about half.
const MAX_BYTES: usize = 128 << 20;
/// Bytes of a piece with its loops, and of the run that it becomes, before and in the template: no less than they are.
const RUN_BYTES: usize = 288;
const _: () =
    assert!(size_of::<Placed>() + 2 * size_of::<Loop>() + size_of::<(Band, Run)>() + size_of::<Run>() <= RUN_BYTES);
/// Bound on the runs of one block, over all cuts and lanes of a plan, and on the pieces that they are made of.
pub(crate) const MAX_RUNS: u64 = (MAX_BYTES / RUN_BYTES) as u64;

/// What the caller allows of a plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) max_gap: u64,
    pub(crate) min_run: u64,
}

/// What lanes are made of besides their parts.
pub(crate) struct LaneSide<'a> {
    pub(crate) spec: &'a ValidSpec,
    pub(crate) rows: SideRows,
    pub(crate) group: GroupId,
}

impl Lane {
    pub(crate) fn new(
        key: LaneKey,
        local: LaneSide<'_>,
        remote: LaneSide<'_>,
        schedule: Arc<Schedule>,
        parts: &[PartPair<'_>],
        bounds: Bounds,
        runs_left: &mut u64,
    ) -> Result<Self, Refusal> {
        let usage = local.spec.groups[local.group.index()].usage;
        let mut normal_forms = Vec::with_capacity(schedule.cuts.len());
        let mut num_runs = 0u64;
        let mut token_steps = Vec::new();
        let mut limit = usize::try_from(*runs_left).unwrap_or(usize::MAX);
        let factors: Vec<_> = parts.iter().map(|pair| (factors(pair.local), factors(pair.remote))).collect();
        for &cut in &schedule.cuts {
            let mut copies = Vec::with_capacity(parts.len());
            for (pair, factors) in parts.iter().zip(&factors) {
                let steps = if usage == Usage::Tokens { Some(&mut token_steps) } else { None };
                copies_of((pair, factors), cut, usage, &local, steps, &mut limit, &mut copies)?;
            }
            merge(&mut copies);
            num_runs = copies.iter().fold(num_runs, |sum, placed| sum.saturating_add(placed.copy.num_runs()));
            normal_forms.push((cut, copies));
        }
        // Pieces that were merged have cost as much as those that were not.
        let pieces = *runs_left - limit as u64;
        let spent = pieces.max(num_runs);
        let Some(left) = runs_left.checked_sub(spent) else {
            let (layer, before) = (layer_of(&local, parts), MAX_RUNS - *runs_left);
            return Err(Refusal::TooManyRuns { layer, runs: spent, before, limit: MAX_RUNS });
        };
        *runs_left = left;
        token_steps.sort_unstable();
        token_steps.dedup();
        let by_token = |placed: &Placed| {
            let steps = |l: &Loop| token_steps.binary_search(&(l.local_stride, l.remote_stride)).is_ok();
            placed.copy.loops.iter().any(steps)
        };

        let unroller = Unroller { local: &local.rows, remote: &remote.rows, max_gap: bounds.max_gap };
        let unrolled: Vec<_> = normal_forms
            .into_iter()
            .map(|(cut, copies)| {
                let runs = unroller.unroll(&copies, &by_token);
                (cut, copies, runs)
            })
            .collect();
        let short = unrolled.iter().flat_map(|(_, _, runs)| runs).map(|(_, run)| run);
        if let Some(run) = short.filter(|run| run.by_token && run.len < bounds.min_run).min_by_key(|run| run.len) {
            let (layer, part) = run.origin.of(local.spec);
            return Err(Refusal::ShortRuns {
                layer: layer.name.clone(),
                part: part.name.clone(),
                run: run.len,
                min_run: bounds.min_run,
            });
        }

        let mut bands: Vec<Band> = unrolled.iter().flat_map(|(_, _, runs)| runs).map(|(band, _)| *band).collect();
        bands.sort_unstable_by_key(|band| (band.storage, band.start, band.row));
        bands.dedup();
        let cuts: Vec<CutPlan> = unrolled
            .into_iter()
            .map(|(cut, copies, runs)| CutPlan { cut, copies, template: Template::new(runs, &bands) })
            .collect();
        let num_blocks = local.spec.groups[local.group.index()].num_blocks;
        let bands_ascend = bands_ascend(&bands, &cuts, num_blocks);
        Ok(Self { key, schedule, cuts, bands, bands_ascend, local: local.rows, remote: remote.rows })
    }

    /// Runs of one block, over all cuts.
    pub(crate) fn num_runs(&self) -> u64 {
        self.cuts.iter().map(|cut| cut.template.runs.len() as u64).sum()
    }

    /// The unroller that this lane's templates were made with, for gaps that appear between requested blocks.
    pub(crate) fn unroller(&self, max_gap: u64) -> Unroller<'_> {
        Unroller { local: &self.local, remote: &self.remote, max_gap }
    }
}

fn layer_of(local: &LaneSide<'_>, parts: &[PartPair<'_>]) -> kvspec::LayerName {
    let first = parts.first().map(|pair| pair.origin.of(local.spec).0.name.clone());
    first.unwrap_or_else(|| "".into())
}

/// Appends the copies of one part for one cut.
fn copies_of(
    (pair, (local_factors, remote_factors)): (&PartPair<'_>, &(Vec<Axis>, Vec<Axis>)),
    cut: Cut,
    usage: Usage,
    local_side: &LaneSide<'_>,
    token_steps: Option<&mut Vec<(u64, u64)>>,
    limit: &mut usize,
    out: &mut Vec<Placed>,
) -> Result<(), Refusal> {
    let (local, remote) = (pair.local, pair.remote);
    let (local_start, remote_start, states) = match usage {
        // A slot's states are all of them.
        Usage::State => (0, 0, local.tokens.iter().map(|axis| axis.count).product()),
        Usage::Tokens => {
            let states = |tokens| local.tokens_per_state.states(tokens);
            match (states(cut.local), states(cut.remote), states(cut.tokens)) {
                (Some(l), Some(r), Some(n)) => (l, r, n),
                _ => {
                    let (layer, part) = pair.origin.of(local_side.spec);
                    return Err(Refusal::CutInsideState {
                        layer: layer.name.clone(),
                        part: part.name.clone(),
                        tokens_per_state: part.tokens_per_state,
                        token: cut.local,
                    });
                }
            }
        }
    };

    let mut found: Vec<Piece> = Vec::new();
    let (local_states, remote_states) =
        (States::new(local_factors, local_start), States::new(remote_factors, remote_start));
    if pieces(local_states, remote_states, states, *limit, &mut found).is_err() {
        let layer = pair.origin.of(local_side.spec).0.name.clone();
        return Err(Refusal::TooManyRuns { layer, runs: states, before: MAX_RUNS - *limit as u64, limit: MAX_RUNS });
    }
    if let Some(steps) = token_steps {
        steps.extend(found.iter().flat_map(|piece| &piece.loops).map(|l| (l.local_stride, l.remote_stride)));
    }
    *limit -= found.len();

    let place = Place {
        local_storage: local.storage,
        local_stride: local.block_stride,
        remote_storage: remote.storage,
        remote_stride: remote.block_stride,
    };
    let units = Loop { count: pair.num_units, local_stride: local.units.stride, remote_stride: remote.units.stride };
    let local_base = local.offset + pair.local_unit * local.units.stride;
    let remote_base = remote.offset + pair.remote_unit * remote.units.stride;
    out.extend(found.into_iter().map(|piece| Placed {
        place,
        origin: pair.origin,
        copy: Copy::new(
            local_base + piece.local,
            remote_base + piece.remote,
            local.content,
            piece.loops.into_iter().chain([units]),
        ),
    }));
    Ok(())
}

/// A part's token factors without those of count 1, with factors that are one progression joined.
fn factors(part: &Part) -> Vec<Axis> {
    let mut factors: Vec<Axis> = part.tokens.iter().copied().filter(|axis| axis.count > 1).collect();
    factors.dedup_by(|inner, outer| {
        let one = inner.stride.checked_mul(inner.count) == Some(outer.stride);
        if one {
            *outer = Axis { count: outer.count * inner.count, stride: inner.stride };
        }
        one
    });
    factors
}

/// Whether each band's blocks lie one after another, and all of them before the next band's.
fn bands_ascend(bands: &[Band], cuts: &[CutPlan], num_blocks: u64) -> bool {
    let extent = |i: usize| {
        let runs = || cuts.iter().flat_map(|cut| &cut.template.runs[cut.template.bands[i].clone()]);
        let start = runs().map(|run| run.local).min()?;
        let end = runs().map(|run| run.local + run.len).max()?;
        Some((start, end))
    };
    let mut last: Option<(kvspec::StorageIndex, u64)> = None;
    for (i, band) in bands.iter().enumerate() {
        let Some((start, end)) = extent(i) else { continue };
        let one_by_one = num_blocks == 1 || end - start <= band.stride;
        let after_last = last.is_none_or(|(storage, last_end)| (storage, last_end) <= (band.storage, start));
        if !(one_by_one && after_last) {
            return false;
        }
        last = Some((band.storage, end + (num_blocks - 1) * band.stride));
    }
    true
}
