//! Asks the planner for every pair of ranks of a transfer.

use kvplan::{Align, BlockList, Descriptors, Layers, Op, PairOptions, PairPlan, Request};
use kvspec::{BlockId, CacheSpec, LayerName, ValidSpec};

use crate::cells::Place;
use crate::judge::{Summary, judge};
use crate::memory;
use crate::transfer::{Move, Moved, Transfer, Worker};

/// Where a transfer was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// A spec is invalid.
    #[error("spec: {0}")]
    Spec(String),
    /// Two ranks cannot meet.
    #[error("pair: {0}")]
    Pair(String),
    /// The request is wrong.
    #[error("request: {0}")]
    Request(String),
}

/// Plans all pairs: `answers[destination][source]`.
///
/// # Errors
///
/// The first refusal.
pub fn plan(transfer: &Transfer) -> Result<Vec<Vec<Moved>>, Refused> {
    plan_with(transfer, None, None)
}

/// The same, for those layers of these that a pair lists, and with a word on lists that do not say where they begin.
///
/// # Errors
///
/// The first refusal.
pub fn plan_with(
    transfer: &Transfer,
    layers: Option<&[LayerName]>,
    align: Option<Align>,
) -> Result<Vec<Vec<Moved>>, Refused> {
    let valid = |workers: &[Worker]| -> Result<Vec<ValidSpec>, Refused> {
        let validate = |spec: CacheSpec| spec.validate().map_err(|error| Refused::Spec(error.to_string()));
        workers.iter().map(|worker| validate(worker.spec.clone())).collect()
    };
    let sources = valid(&transfer.sources)?;
    let destinations = valid(&transfer.destinations)?;
    let options = PairOptions { op: transfer.op, max_gap: transfer.max_gap, ..PairOptions::default() };
    let mut out = Descriptors::new();
    let mut answers = Vec::new();
    for (destination, to) in destinations.iter().zip(&transfer.destinations) {
        let mut row = Vec::new();
        for (source, from) in sources.iter().zip(&transfer.sources) {
            let (local, remote, here, there) = match transfer.op {
                Op::Read => (destination, source, to, from),
                Op::Write => (source, destination, from, to),
            };
            let plan = PairPlan::new(local, remote, &options).map_err(|error| Refused::Pair(error.to_string()))?;
            let (local, remote) = (here.lists.clone(), there.lists.clone());
            let listed = |name: &&LayerName| {
                [&plan.local().layers, &plan.remote().layers].into_iter().flatten().any(|layer| layer.name == **name)
            };
            let layers =
                layers.map_or(Layers::All, |names| Layers::Named(names.iter().filter(listed).cloned().collect()));
            let request = Request { op: transfer.op, local, remote, layers, align };
            plan.descriptors(&request, &mut out).map_err(|error| Refused::Request(error.to_string()))?;
            row.push(moved(transfer.op, &out));
        }
        answers.push(row);
    }
    Ok(answers)
}

/// An answer seen from the data: source and destination in place of local and remote.
#[must_use]
pub fn moved(op: Op, out: &Descriptors) -> Moved {
    let copies = out.as_slice().iter().map(|descriptor| {
        let local = Place { storage: descriptor.local_storage.0, offset: descriptor.local_offset };
        let remote = Place { storage: descriptor.remote_storage.0, offset: descriptor.remote_offset };
        let (dst, src) = match op {
            Op::Read => (local, remote),
            Op::Write => (remote, local),
        };
        Move { dst, src, len: descriptor.len }
    });
    let zero = |range: &kvplan::ZeroRange| (Place { storage: range.storage.0, offset: range.offset }, range.len);
    Moved { copies: copies.collect(), zero: out.zero().iter().map(zero).collect(), padding_bytes: out.padding_bytes() }
}

/// Judges the answers of all pairs, and with `bytes` also by copying.
///
/// # Errors
///
/// Everything that is wrong, one finding a line.
pub fn judge_all(transfer: &Transfer, answers: &[Vec<Moved>], bytes: bool) -> Result<Summary, String> {
    let mut total = Summary::default();
    let mut wrong = Vec::new();
    for (rank, (destination, answers)) in transfer.destinations.iter().zip(answers).enumerate() {
        let verdict = judge(destination, &transfer.sources, answers, transfer.max_gap);
        let copied =
            if bytes { memory::judge(destination, &transfer.sources, answers, transfer.max_gap) } else { Ok(()) };
        if verdict.is_ok()
            && let Err(findings) = &copied
        {
            wrong.push(format!("destination {rank}: the bytes differ but no rule is broken: {}", findings[0]));
        }
        match verdict {
            Ok(summary) => {
                total.bytes += summary.bytes;
                total.descriptors += summary.descriptors;
                total.padding += summary.padding;
                total.zero += summary.zero;
            }
            Err(findings) => {
                wrong.extend(findings.iter().take(8).map(|finding| format!("destination {rank}: {finding}")));
            }
        }
    }
    if wrong.is_empty() { Ok(total) } else { Err(wrong.join("\n")) }
}

/// A block list.
#[must_use]
pub fn list(group: u32, first: u64, blocks: &[u32]) -> BlockList {
    BlockList {
        group: kvspec::GroupId(group),
        first: Some(first),
        blocks: blocks.iter().map(|&block| BlockId(block)).collect(),
    }
}
