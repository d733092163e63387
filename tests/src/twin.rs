//! A naive planner: one copy a cell, by looking every cell up; neighbours of a lane merged.

use std::collections::HashMap;

use kvplan::request::Op;
use kvspec::{CacheSpec, Sharding};

use crate::cells::{Key, Place};
use crate::judge::{Expectation, Piece, may_bridge, owns};
use crate::transfer::{Move, Moved, Transfer};

/// What every pair of ranks should answer: `answers[destination][source]`.
///
/// With `max_gap` 0 a right planner answers exactly this, lane by lane. With gaps it is what greedy bridging of
/// neighbours reaches.
///
/// # Errors
///
/// Why the request must be refused.
pub fn plan(transfer: &Transfer) -> Result<Vec<Vec<Moved>>, String> {
    let mut answers = Vec::new();
    for (reader, destination) in transfer.destinations.iter().enumerate() {
        let expectation = Expectation::of(destination, &transfer.sources);
        if let Some(reason) = expectation.refusals.first() {
            return Err(reason.clone());
        }
        let mut rank = Rank { transfer, reader, stage: stage_of(&destination.spec), serving: HashMap::new() };
        let mut row = Vec::new();
        for (source, held) in expectation.held_by_cell.iter().enumerate() {
            let mine: Vec<&Piece> =
                held.iter().filter(|(key, _)| rank.server(key) == Some(source)).map(|(_, piece)| piece).collect();
            let zero = expectation.zero_by_cell.iter().filter(|(key, _, _)| rank.server(key) == Some(source));
            let zero = crate::judge::union(zero.map(|(_, place, len)| (*place, *len)).collect());
            let (copies, padding_bytes) = merge(transfer, reader, mine);
            row.push(Moved { copies, zero, padding_bytes });
        }
        answers.push(row);
    }
    Ok(answers)
}

/// Who serves one destination rank.
struct Rank<'a> {
    transfer: &'a Transfer,
    reader: usize,
    stage: Vec<CacheSpec>,
    serving: HashMap<Key<'a>, Option<usize>>,
}

impl<'a> Rank<'a> {
    /// Reader i of m takes holder ⌊i·h/m⌋, both in (pp, tp) order.
    fn server(&mut self, key: &Key<'a>) -> Option<usize> {
        let (transfer, reader, stage) = (self.transfer, self.reader, &self.stage);
        *self.serving.entry(*key).or_insert_with(|| {
            let sources = &transfer.sources;
            let holders: Vec<usize> = (0..sources.len()).filter(|&index| owns(&sources[index].spec, key)).collect();
            let readers: Vec<&CacheSpec> = stage.iter().filter(|spec| owns(spec, key)).collect();
            let own = transfer.destinations[reader].spec.topology.tp.rank;
            let place = readers.iter().position(|spec| spec.topology.tp.rank == own)?;
            holders.get(place * holders.len() / readers.len()).copied()
        })
    }
}

/// The TP ranks of a worker's stage, made up from the worker: only what decides ownership is right in them.
fn stage_of(spec: &CacheSpec) -> Vec<CacheSpec> {
    (0..spec.topology.tp.size)
        .map(|rank| {
            let mut spec = spec.clone();
            if rank != spec.topology.tp.rank {
                spec.topology.tp.rank = rank;
                spec.topology.dcp.rank = rank % spec.topology.dcp.size;
                let (rank, size) = (u64::from(rank), u64::from(spec.topology.tp.size));
                for part in spec.layers.iter_mut().flat_map(|layer| &mut layer.parts) {
                    match part.sharding {
                        Sharding::Replicated => {}
                        // Ranges that an engine chose belong to one rank only.
                        Sharding::Sharded { first: Some(_), .. } => part.units.count = 0,
                        Sharding::Sharded { total, first: None } => {
                            part.units.count = ((rank + 1) * total / size - rank * total / size).max(1);
                        }
                    }
                }
            }
            spec
        })
        .collect()
}

/// Merges the pieces of every lane: neighbours that touch, and where allowed the gaps between them.
fn merge(transfer: &Transfer, reader: usize, pieces: Vec<&Piece>) -> (Vec<Move>, u64) {
    let local = |piece: &Piece| match transfer.op {
        Op::Read => (piece.dst_group, piece.src_group, piece.dst),
        Op::Write => (piece.src_group, piece.dst_group, piece.src),
    };
    let mut pieces = pieces;
    pieces.sort_by_key(|piece| local(piece));
    let mut copies: Vec<Move> = Vec::new();
    let mut last: Option<&Piece> = None;
    let mut padding = 0;
    for piece in pieces {
        let gap = last.zip(copies.last()).and_then(|(last, copy)| {
            let lane = (last.dst_group, last.src_group) == (piece.dst_group, piece.src_group);
            let gap = distance(copy.dst, copy.len, piece.dst)?;
            let same = distance(copy.src, copy.len, piece.src) == Some(gap);
            let at = Place { offset: copy.dst.offset + copy.len, ..copy.dst };
            let destination = &transfer.destinations[reader].spec;
            (lane && same && (gap == 0 || may_bridge(destination, at, gap, last, piece, transfer.max_gap)))
                .then_some(gap)
        });
        match (gap, copies.last_mut()) {
            (Some(gap), Some(copy)) => {
                copy.len += gap + piece.len;
                padding += gap;
            }
            _ => copies.push(Move { dst: piece.dst, src: piece.src, len: piece.len }),
        }
        last = Some(piece);
    }
    (copies, padding)
}

fn distance(from: Place, len: u64, to: Place) -> Option<u64> {
    if from.storage == to.storage { to.offset.checked_sub(from.offset + len) } else { None }
}
