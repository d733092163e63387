//! Rows: which pieces of a pool's blocks lie together within one block stride.

use std::collections::HashMap;

use kvspec::{CacheSpec, Part};

/// A row: the family of pieces and the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Row {
    /// Which family of pieces; families of one worker are numbered from 0.
    pub family: usize,
    /// The block id.
    pub block: u32,
}

/// Layer index, part index, and the unit or `None` for all units.
type PieceId = (usize, usize, Option<u64>);

/// Pool, storage and block stride.
type Stripe = (u32, u32, u64);

/// The row families of one worker.
#[derive(Clone, Debug)]
pub struct Rows {
    families: HashMap<PieceId, usize>,
    /// Where the row of block 0 begins, by family.
    origins: Vec<u64>,
}

/// Bytes from the first to past the last byte of one unit in one block.
fn unit_extent(part: &Part) -> u64 {
    part.tokens.iter().map(|axis| (axis.count - 1) * axis.stride).sum::<u64>() + part.content
}

impl Rows {
    /// Finds the rows of a worker: pieces of one pool, storage and stride, in order of offset, while they fit into
    /// one stride; units that lie outside the block are pieces of their own.
    #[must_use]
    pub fn of(spec: &CacheSpec) -> Rows {
        let mut by_place: HashMap<Stripe, Vec<(u64, u64, PieceId)>> = HashMap::new();
        for (layer_index, layer) in spec.layers.iter().enumerate() {
            let pool = spec.groups[layer.group.index()].pool;
            for (part_index, part) in layer.parts.iter().enumerate() {
                let pieces = by_place.entry((pool.0, part.storage.0, part.block_stride)).or_default();
                let extent = unit_extent(part);
                let all = (part.units.count - 1) * part.units.stride + extent;
                if all <= part.block_stride {
                    pieces.push((part.offset, part.offset + all, (layer_index, part_index, None)));
                } else {
                    for unit in 0..part.units.count {
                        let start = part.offset + unit * part.units.stride;
                        pieces.push((start, start + extent, (layer_index, part_index, Some(unit))));
                    }
                }
            }
        }
        let mut families = HashMap::new();
        let mut origins: Vec<u64> = Vec::new();
        for ((_, _, stride), mut pieces) in by_place {
            pieces.sort_unstable();
            let mut origin = None;
            for (start, end, piece) in pieces {
                if origin.is_none_or(|origin| end > origin + stride) {
                    origin = Some(start);
                    origins.push(start);
                }
                families.insert(piece, origins.len() - 1);
            }
        }
        Rows { families, origins }
    }

    /// Whether some part lies over the rows of others so that bytes which are free in one block of a row are not free
    /// in another: it has another stride, or its blocks are shifted or end elsewhere.
    #[must_use]
    pub fn cross(&self, spec: &CacheSpec) -> bool {
        let mut claims = Vec::new();
        for (layer_index, layer) in spec.layers.iter().enumerate() {
            let group = &spec.groups[layer.group.index()];
            for (part_index, part) in layer.parts.iter().enumerate() {
                for unit in 0..part.units.count {
                    let family = self.family(layer_index, part_index, unit);
                    let origin = self.origins.get(family).copied().unwrap_or(0);
                    let start = part.offset + unit * part.units.stride;
                    let end = start + (group.num_blocks - 1) * part.block_stride + unit_extent(part);
                    let row_end = origin + group.num_blocks * part.block_stride;
                    claims.push((part, group, family, start..end, origin..row_end));
                }
            }
        }
        claims.iter().any(|(part, group, family, bytes, _)| {
            claims.iter().any(|(other, other_group, other_family, _, rows)| {
                let meet = part.storage == other.storage && bytes.start < rows.end && rows.start < bytes.end;
                let beside = part.block_stride == other.block_stride
                    && group.num_blocks == other_group.num_blocks
                    && (rows.start..rows.start + other.block_stride).contains(&bytes.start);
                meet && family != other_family && !beside
            })
        })
    }

    /// Family of one unit of a part.
    #[must_use]
    pub fn family(&self, layer: usize, part: usize, local_unit: u64) -> usize {
        self.families
            .get(&(layer, part, None))
            .or_else(|| self.families.get(&(layer, part, Some(local_unit))))
            .copied()
            .unwrap_or(usize::MAX)
    }
}
