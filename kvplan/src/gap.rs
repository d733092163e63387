//! Which bytes of a destination row may be overwritten when a gap is bridged.
//!
//! A gap's bytes are safe when they belong to nobody else while the block is owned by its group: bytes that no part
//! declares, and parts of another group of the same pool with the same stride at the same block id (they overlay).
//! Never safe: a part of the same group, at any block id; a part of another pool or another stride. The free bytes
//! of a row are worked out once, in the coordinates of one row, for all its blocks together: a byte counts as free
//! only if it is free at every block id. Rejected: testing each gap by itself against every part, which makes
//! pairing quadratic and cannot answer for gaps that only appear between two requested blocks.

use kvspec::{Axis, GroupId, Part, ValidSpec};

use crate::copy::{Copy, Loop};
use crate::rows::{Page, Row, Rows};

/// Free bytes of a row, as sorted half-open intervals of `[0, stride)`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FreeBytes {
    intervals: Vec<(u64, u64)>,
    stride: u64,
}

/// Bound on the cells that one row is unrolled to; above it no gap of the row is bridged.
const MAX_CELLS: u64 = 1 << 20;

impl FreeBytes {
    /// Bytes of the row that `group` may overwrite.
    pub(crate) fn of(spec: &ValidSpec, rows: &Rows, row: &Row, group: GroupId) -> Self {
        Self {
            intervals: taken(spec, rows, row, group).map_or_else(Vec::new, |t| complement(t, row.key.stride)),
            stride: row.key.stride,
        }
    }

    /// Whether all of `[from, to)` is free, counted from the start of a row and running at most into the next one.
    pub(crate) fn cover(&self, from: u64, to: u64) -> bool {
        if to <= self.stride {
            return self.cover_within(from, to);
        }
        self.cover_within(from, self.stride) && self.cover_within(0, to - self.stride)
    }

    fn cover_within(&self, from: u64, to: u64) -> bool {
        if from >= to {
            return from == to;
        }
        let next = self.intervals.partition_point(|&(start, _)| start <= from);
        next.checked_sub(1).is_some_and(|i| to <= self.intervals[i].1)
    }
}

/// Bytes of the row that somebody else may own, unsorted; `None` when the whole row must be taken as owned.
fn taken(spec: &ValidSpec, rows: &Rows, row: &Row, group: GroupId) -> Option<Vec<(u64, u64)>> {
    let stride = row.key.stride;
    let num_blocks = spec.groups[group.index()].num_blocks;
    let mut taken = Vec::new();
    let mut budget = MAX_CELLS;
    for other in &rows.0 {
        if other.key.storage != row.key.storage {
            continue;
        }
        for page in &other.pages {
            let (layer, part) = page.part.of(spec);
            let other_blocks = spec.groups[layer.group.index()].num_blocks;
            if other.key.stride != stride {
                let end = |start: u64, stride: u64, blocks: u64, len: u64| {
                    u128::from(start) + u128::from(stride) * u128::from(blocks - 1) + u128::from(len)
                };
                let apart = end(page.offset, other.key.stride, other_blocks, page.len) <= u128::from(row.start)
                    || end(row.start, stride, num_blocks, stride) <= u128::from(page.offset);
                if apart {
                    continue;
                }
                return None;
            }
            // The page of block b' lies at window coordinate x + (b' - b)·stride of block b's row.
            let x = i128::from(page.offset) - i128::from(row.start);
            let s = i128::from(stride);
            if s == 0 || page.len / 4 > stride {
                return None;
            }
            let first = (-x - i128::from(page.len)).div_euclid(s) + 1;
            let last = (s - 1 - x).div_euclid(s);
            let overlay = layer.group != group && other.key.pool == row.key.pool;
            for distance in first.max(1 - i128::from(num_blocks))..=last.min(i128::from(other_blocks) - 1) {
                if overlay && distance == 0 {
                    continue;
                }
                let cells = cells(part, page);
                budget = budget.checked_sub(cells.num_runs())?;
                cells.for_each_run(&mut |offset, _| {
                    let at = i128::from(offset) - i128::from(row.start) + distance * s;
                    let clip = |v: i128| u64::try_from(v.clamp(0, s)).unwrap_or(0);
                    let (start, end) = (clip(at), clip(at + i128::from(cells.run)));
                    if start < end {
                        taken.push((start, end));
                    }
                });
            }
        }
    }
    Some(taken)
}

/// The cells of a page of block 0, as few runs as they make.
fn cells(part: &Part, page: &Page) -> Copy {
    let axis = |a: &Axis| Loop { count: a.count, local_stride: a.stride, remote_stride: a.stride };
    let units = axis(&Axis { count: page.units, ..part.units });
    Copy::new(page.offset, page.offset, part.content, part.tokens.iter().map(axis).chain([units]))
}

fn complement(mut taken: Vec<(u64, u64)>, stride: u64) -> Vec<(u64, u64)> {
    taken.sort_unstable();
    let mut free = Vec::new();
    let mut at = 0;
    for (start, end) in taken {
        if start > at {
            free.push((at, start));
        }
        at = at.max(end);
    }
    if at < stride {
        free.push((at, stride));
    }
    free
}
