//! Whose bytes a gap is made of.

use kvspec::CacheSpec;

use super::expectation::Piece;
use super::verdict::Finding;
use crate::cells::{Place, num_states, token_offset};

/// A part that declares some byte of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// Layer index.
    pub layer: usize,
    /// Part index in the layer.
    pub part: usize,
    /// Group index.
    pub group: u32,
    /// The block that the byte belongs to.
    pub block: u64,
}

/// Every (part, block) of a worker that declares a byte in `[at, at + len)`.
#[must_use]
pub fn owners(spec: &CacheSpec, at: Place, len: u64) -> Vec<Owner> {
    let mut found = Vec::new();
    let end = at.offset + len;
    for (layer_index, layer) in spec.layers.iter().enumerate() {
        let num_blocks = spec.groups[layer.group.index()].num_blocks;
        for (part_index, part) in layer.parts.iter().enumerate().filter(|(_, part)| part.storage.0 == at.storage) {
            for unit in 0..part.units.count {
                let base = part.offset + unit * part.units.stride;
                for state in 0..num_states(part) {
                    // Blocks b with first < end and first + content > at, first = start + b·stride.
                    let start = base + token_offset(part, state);
                    if start >= end {
                        continue;
                    }
                    let behind = at.offset.saturating_sub(start + part.content - 1);
                    let lowest = if start + part.content > at.offset { 0 } else { behind.div_ceil(part.block_stride) };
                    let past = (end - start).div_ceil(part.block_stride).min(num_blocks);
                    for block in lowest..past {
                        let owner = Owner { layer: layer_index, part: part_index, group: layer.group.0, block };
                        if !found.contains(&owner) {
                            found.push(owner);
                        }
                    }
                }
            }
        }
    }
    found
}

/// Whether the gap between two pieces may be bridged by one descriptor.
#[must_use]
pub fn may_bridge(spec: &CacheSpec, at: Place, len: u64, before: &Piece, after: &Piece, max_gap: u64) -> bool {
    check_gap(spec, at, len, before, after, max_gap).is_ok()
}

/// Whether the gap between two pieces that one descriptor carries may be bridged.
///
/// # Errors
///
/// Why not.
pub(super) fn check_gap(
    spec: &CacheSpec,
    at: Place,
    len: u64,
    before: &Piece,
    after: &Piece,
    max_gap: u64,
) -> Result<(), Finding> {
    if len > max_gap {
        return Err(Finding::LongGap { at, len, max_gap });
    }
    if before.dst_group != after.dst_group || before.src_group != after.src_group {
        return Err(Finding::GapAcrossLanes { at, len });
    }
    for (first, second, side) in
        [(before.dst_row, after.dst_row, "destination"), (before.src_row, after.src_row, "source")]
    {
        let neighbours = second.block == first.block || first.block.checked_add(1) == Some(second.block);
        if first.family != second.family || !neighbours {
            return Err(Finding::GapAcrossRows { at, len, side });
        }
    }
    let pool = spec.groups[before.dst_group as usize].pool;
    for owner in owners(spec, at, len) {
        let part = &spec.layers[owner.layer].parts[owner.part];
        let listed = owner.block == u64::from(before.dst_row.block) || owner.block == u64::from(after.dst_row.block);
        let overlay = owner.group != before.dst_group
            && spec.groups[owner.group as usize].pool == pool
            && part.block_stride == before.dst_stride
            && listed;
        if !overlay {
            return Err(Finding::GapOverLiveBytes {
                at,
                len,
                layer: spec.layers[owner.layer].name.to_string(),
                part: part.name.to_string(),
                block: owner.block,
            });
        }
    }
    Ok(())
}
