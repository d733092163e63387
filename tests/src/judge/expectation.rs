//! What a destination rank must receive, cell by cell.

use std::collections::{HashMap, HashSet};

use kvplan::request::BlockList;
use kvspec::{CacheSpec, Layer, Part, Usage};

use super::rows::{Row, Rows};
use crate::cells::{Cell, Deal, Key, Place, first_unit, for_each_cell, is_idle, run_tokens};
use crate::transfer::Worker;

/// Bytes of one destination row that a source could deliver from one of its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where they go.
    pub dst: Place,
    /// Where they are.
    pub src: Place,
    /// How many.
    pub len: u64,
    /// Row at the destination.
    pub dst_row: Row,
    /// Row at the source.
    pub src_row: Row,
    /// Group at the destination.
    pub dst_group: u32,
    /// Group at the source.
    pub src_group: u32,
    /// Block stride at the destination.
    pub dst_stride: u64,
}

/// Everything one destination rank needs.
#[derive(Clone, Debug, Default)]
pub struct Expectation<'a> {
    /// For each source rank every needed cell that it holds.
    pub held_by_cell: Vec<Vec<(Key<'a>, Piece)>>,
    /// Every needed cell that no source holds and that comes back as a range to zero.
    pub zero_by_cell: Vec<(Key<'a>, Place, u64)>,
    /// For each source rank what it holds of the needed bytes, sorted by destination; pieces do not overlap.
    pub held: Vec<Vec<Piece>>,
    /// Needed bytes that some source holds: start and length, sorted and merged.
    pub needed: Vec<(Place, u64)>,
    /// Needed bytes that come back as ranges to zero, sorted and merged.
    pub zero: Vec<(Place, u64)>,
    /// Why the request must be refused by at least one pair; empty when it must not.
    pub refusals: Vec<String>,
}

/// A listed cell of a source.
#[derive(Clone, Copy)]
struct Stored {
    place: Place,
    row: Row,
    group: u32,
}

impl<'a> Expectation<'a> {
    /// Enumerates what `destination` needs and who holds it.
    #[must_use]
    pub fn of(destination: &'a Worker, sources: &'a [Worker]) -> Expectation<'a> {
        let mut expectation = Expectation { held_by_cell: vec![Vec::new(); sources.len()], ..Expectation::default() };
        check_lists(&destination.spec, &destination.lists, true, &mut expectation.refusals);
        for source in sources {
            check_lists(&source.spec, &source.lists, false, &mut expectation.refusals);
        }
        if !expectation.refusals.is_empty() {
            return expectation;
        }
        let stored: Vec<HashMap<Key<'_>, Stored>> = sources.iter().map(stored_cells).collect();
        let rows = Rows::of(&destination.spec);
        for list in &destination.lists {
            for (index, layer) in destination.spec.layers.iter().enumerate() {
                if layer.group == list.group {
                    expectation.add_layer(destination, sources, &stored, &rows, index, layer, list);
                }
            }
        }
        for held in &expectation.held_by_cell {
            expectation.held.push(merge_pieces(held.iter().map(|(_, piece)| *piece).collect()));
        }
        let all = expectation.held.iter().flatten().map(|piece| (piece.dst, piece.len)).collect();
        expectation.needed = union(all);
        expectation.zero = union(expectation.zero_by_cell.iter().map(|(_, place, len)| (*place, *len)).collect());
        expectation
    }

    #[allow(clippy::too_many_arguments, reason = "one loop body, split off for its indentation")]
    fn add_layer(
        &mut self,
        destination: &'a Worker,
        sources: &'a [Worker],
        stored: &[HashMap<Key<'a>, Stored>],
        rows: &Rows,
        layer_index: usize,
        layer: &'a Layer,
        list: &BlockList,
    ) {
        for (part_index, part) in layer.parts.iter().enumerate() {
            if is_idle(&destination.spec, layer, part) {
                continue;
            }
            for (offset, block) in list.blocks.iter().enumerate().filter(|(_, block)| !block.is_hole()) {
                let entry = list.start() + offset as u64;
                let mut cells = Vec::new();
                for_each_cell(&destination.spec, layer, part, entry, block.0, |cell| cells.push(cell));
                let tokens = block_tokens(&destination.spec, layer, entry);
                for cell in cells {
                    let mut owners = 0;
                    let mut held = 0;
                    for (index, source) in sources.iter().enumerate() {
                        if !owns(&source.spec, &cell.key) {
                            continue;
                        }
                        owners += 1;
                        if let Some(from) = stored[index].get(&cell.key) {
                            held += 1;
                            let family = rows.family(layer_index, part_index, cell.local_unit);
                            let piece = Piece {
                                dst: cell.place,
                                src: from.place,
                                len: cell.len,
                                dst_row: Row { family, block: block.0 },
                                src_row: from.row,
                                dst_group: layer.group.0,
                                src_group: from.group,
                                dst_stride: part.block_stride,
                            };
                            self.held_by_cell[index].push((cell.key, piece));
                        } else if is_hole(source, &cell.key) {
                            self.refusals.push(format!("{:?} is a hole at source {index}", cell.key));
                        } else if !may_be_zero(source, &cell.key, &tokens) {
                            self.refusals.push(format!("no source holds anything of the block of {:?}", cell.key));
                        }
                    }
                    if owners == 0 {
                        self.refusals.push(format!("no source owns {:?}", cell.key));
                    } else if held == 0 {
                        self.zero_by_cell.push((cell.key, cell.place, cell.len));
                    } else if held < owners {
                        self.refusals.push(format!("replicas of {:?} differ in what they list", cell.key));
                    }
                }
            }
        }
    }
}

/// Errors of a list on its own: ids out of range, ids twice.
fn check_lists(spec: &CacheSpec, lists: &[BlockList], destination: bool, refusals: &mut Vec<String>) {
    let mut group_of = HashMap::new();
    let mut seen = HashSet::new();
    for list in lists {
        let Some(group) = spec.groups.get(list.group.index()) else {
            refusals.push(format!("there is no group {}", list.group));
            continue;
        };
        for block in list.blocks.iter().filter(|block| !block.is_hole()) {
            if u64::from(block.0) >= group.num_blocks {
                refusals.push(format!("block {block} is not below {}", group.num_blocks));
            }
            if *group_of.entry((group.pool, *block)).or_insert(list.group) != list.group {
                refusals.push(format!("block {block} is listed under two groups of pool {}", group.pool));
            }
            if !seen.insert((list.group, *block)) && destination {
                refusals.push(format!("block {block} is listed twice"));
            }
        }
    }
}

fn stored_cells(source: &Worker) -> HashMap<Key<'_>, Stored> {
    let spec = &source.spec;
    let rows = Rows::of(spec);
    let mut stored = HashMap::new();
    for list in &source.lists {
        for (layer_index, layer) in spec.layers.iter().enumerate().filter(|(_, layer)| layer.group == list.group) {
            for (part_index, part) in layer.parts.iter().enumerate().filter(|(_, part)| !is_idle(spec, layer, part)) {
                for (offset, block) in list.blocks.iter().enumerate().filter(|(_, block)| !block.is_hole()) {
                    let entry = list.start() + offset as u64;
                    for_each_cell(spec, layer, part, entry, block.0, |cell: Cell<'_>| {
                        let row = Row { family: rows.family(layer_index, part_index, cell.local_unit), block: block.0 };
                        stored.insert(cell.key, Stored { place: cell.place, row, group: layer.group.0 });
                    });
                }
            }
        }
    }
    stored
}

fn find<'a>(spec: &'a CacheSpec, key: &Key<'_>) -> Option<(&'a Layer, &'a Part)> {
    let layer = spec.layers.iter().find(|layer| layer.name.as_str() == key.layer)?;
    let part = layer.parts.iter().find(|part| part.name.as_str() == key.part)?;
    Some((layer, part))
}

/// Whether the rank is one that stores the cell when it is stored at all: layer, unit and position are its own.
#[must_use]
pub fn owns(spec: &CacheSpec, key: &Key<'_>) -> bool {
    let Some((layer, part)) = find(spec, key) else { return false };
    let group = &spec.groups[layer.group.index()];
    let first = first_unit(spec, part);
    !is_idle(spec, layer, part)
        && (first..first + part.units.count).contains(&key.unit)
        && Deal::of(spec, group, part).is_some_and(|deal| deal.holds(key.state))
}

/// Whether the owner's list has a hole where the cell would be.
fn is_hole(source: &Worker, key: &Key<'_>) -> bool {
    let Some((layer, part)) = find(&source.spec, key) else { return false };
    let group = &source.spec.groups[layer.group.index()];
    let Some(deal) = Deal::of(&source.spec, group, part) else { return false };
    let entry = match group.usage {
        Usage::Tokens => deal.own_state(key.state) / crate::cells::num_states(part),
        Usage::State => key.slot,
    };
    source.lists.iter().filter(|list| list.group == layer.group).any(|list| {
        let offset = entry.checked_sub(list.start()).and_then(|offset| usize::try_from(offset).ok());
        offset.and_then(|offset| list.blocks.get(offset)).is_some_and(|block| block.is_hole())
    })
}

/// Tokens of the sequence (or the slot) that one destination block stands for.
fn block_tokens(spec: &CacheSpec, layer: &Layer, entry: u64) -> Vec<u64> {
    let group = &spec.groups[layer.group.index()];
    if group.usage == Usage::State {
        return vec![entry];
    }
    let dcp = spec.topology.dcp;
    let deal = Deal { rank: dcp.rank.into(), size: dcp.size.into(), run: run_tokens(spec, group) };
    (0..group.block_tokens).map(|token| deal.sequence_state(entry * group.block_tokens + token)).collect()
}

/// Whether the source, or a sibling of its context-parallel group, may hold some of a destination block.
fn may_be_zero(source: &Worker, key: &Key<'_>, tokens: &[u64]) -> bool {
    let Some((layer, _)) = find(&source.spec, key) else { return false };
    let spec = &source.spec;
    let group = &spec.groups[layer.group.index()];
    let list = source.lists.iter().find(|list| list.group == layer.group && !list.blocks.is_empty());
    let (rank, size, run, runs_a_block) = match group.usage {
        Usage::State => (0, 1, 1, 1),
        Usage::Tokens if spec.topology.dcp.size == 1 => (0, 1, group.block_tokens, 1),
        Usage::Tokens => {
            let run = run_tokens(spec, group);
            (u64::from(spec.topology.dcp.rank), u64::from(spec.topology.dcp.size), run, group.block_tokens / run)
        }
    };
    // Runs that this rank or a sibling may hold, half open.
    let hull = match list {
        None => 0..rank,
        Some(list) => {
            let first = list.start() * runs_a_block * size + rank;
            let last = ((list.start() + list.blocks.len() as u64) * runs_a_block - 1) * size + rank;
            (first + 1).saturating_sub(size)..last + size
        }
    };
    tokens.iter().any(|token| hull.contains(&(token / run)))
}

/// Joins pieces that touch on both sides in the same rows.
fn merge_pieces(mut pieces: Vec<Piece>) -> Vec<Piece> {
    pieces.sort_unstable_by_key(|piece| piece.dst);
    pieces.dedup_by(|next, piece| {
        let joined = Piece {
            dst: Place { offset: next.dst.offset.wrapping_sub(piece.len), ..next.dst },
            src: Place { offset: next.src.offset.wrapping_sub(piece.len), ..next.src },
            len: piece.len,
            ..*next
        } == *piece;
        if joined {
            piece.len += next.len;
        }
        joined
    });
    pieces
}

/// Sorts ranges and joins those that touch or overlap.
#[must_use]
pub fn union(mut ranges: Vec<(Place, u64)>) -> Vec<(Place, u64)> {
    ranges.sort_unstable();
    let mut merged: Vec<(Place, u64)> = Vec::new();
    for (place, len) in ranges {
        match merged.last_mut() {
            Some((last, last_len)) if last.storage == place.storage && last.offset + *last_len >= place.offset => {
                *last_len = (*last_len).max(place.offset + len - last.offset);
            }
            _ => merged.push((place, len)),
        }
    }
    merged
}
