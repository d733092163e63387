//! Which bytes of a destination row may be overwritten when a gap is bridged.
//!
//! A gap's bytes are safe when they belong to nobody else while the block is owned by its group: bytes that no part
//! declares, and parts of another group of the same pool with the same stride at the same block id (they overlay).
//! Never safe: a part of the same group, at any block id; a part of another pool or another stride. The free bytes
//! of a row are worked out once, in the coordinates of one row, for all its blocks together: a byte counts as free
//! only if it is free at every block id. Rejected: testing each gap by itself against every part, which makes
//! pairing quadratic and cannot answer for gaps that only appear between two requested blocks.

use std::collections::HashMap;

use kvspec::{Axis, GroupId, Part, StorageIndex, ValidSpec};

use crate::copy::{Copy, Loop};
use crate::rows::{Page, Row, RowKey, Rows};

/// Free bytes of a row, as sorted half-open intervals of `[0, stride)`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FreeBytes {
    intervals: Vec<(u64, u64)>,
    stride: u64,
}

/// Bound on the cells that one row is unrolled to; above it no gap of the row is bridged.
const MAX_CELLS: u64 = 1 << 20;
/// Bound on the pages and cells that are looked at for all rows of one plan; above it no gap is bridged. A peer's
/// spec can have so many parts that looking at each row is too much.
const MAX_STEPS: u64 = 1 << 24;

impl FreeBytes {
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

/// A page with all its blocks.
#[derive(Clone, Copy, Debug)]
struct Owner {
    key: RowKey,
    page: Page,
    /// Behind its last block's last byte.
    end: u64,
    /// The furthest end among the owners up to this one.
    reach: u64,
}

/// Every page of a destination, to be found by address: who may own the bytes of a row.
#[derive(Debug)]
pub(crate) struct Owners {
    /// By first byte.
    by_storage: HashMap<StorageIndex, Vec<Owner>>,
    steps_left: u64,
}

impl Owners {
    pub(crate) fn new(spec: &ValidSpec, rows: &Rows) -> Self {
        let mut by_storage: HashMap<StorageIndex, Vec<Owner>> = HashMap::new();
        for row in &rows.0 {
            for &page in &row.pages {
                let num_blocks = spec.group_of(page.part.of(spec).0).num_blocks;
                let end = page.offset + (num_blocks - 1) * row.key.stride + page.len;
                let owners = by_storage.entry(row.key.storage).or_default();
                owners.push(Owner { key: row.key, page, end, reach: end });
            }
        }
        for owners in by_storage.values_mut() {
            owners.sort_by_key(|owner| owner.page.offset);
            let mut reach = 0;
            for owner in owners {
                reach = owner.end.max(reach);
                owner.reach = reach;
            }
        }
        Self { by_storage, steps_left: MAX_STEPS }
    }

    /// Bytes of the row that `group` may overwrite.
    pub(crate) fn free_bytes(&mut self, spec: &ValidSpec, row: &Row, group: GroupId) -> FreeBytes {
        let stride = row.key.stride;
        // Rows of other pools are never written for this group.
        let taken = (row.key.pool == spec.groups[group.index()].pool).then(|| self.taken(spec, row, group)).flatten();
        FreeBytes { intervals: taken.map_or_else(Vec::new, |taken| complement(taken, stride)), stride }
    }

    /// Bytes of the row that somebody else may own, unsorted; `None` when the whole row must be taken as owned.
    fn taken(&mut self, spec: &ValidSpec, row: &Row, group: GroupId) -> Option<Vec<(u64, u64)>> {
        let stride = row.key.stride;
        let num_blocks = spec.groups[group.index()].num_blocks;
        let end = u128::from(row.start) + u128::from(stride) * u128::from(num_blocks);
        let owners = self.by_storage.get(&row.key.storage)?;
        let first = owners.partition_point(|owner| owner.reach <= row.start);
        let behind = owners.partition_point(|owner| u128::from(owner.page.offset) < end);

        let mut taken = Vec::new();
        let mut budget = MAX_CELLS;
        for Owner { key, page, .. } in owners.get(first..behind)?.iter().filter(|owner| owner.end > row.start) {
            self.steps_left = self.steps_left.checked_sub(1)?;
            if key.stride != stride {
                return None;
            }
            let (layer, part) = page.part.of(spec);
            let other_blocks = spec.groups[layer.group.index()].num_blocks;
            // The page of block b' lies at window coordinate x + (b' - b)·stride of block b's row.
            let x = i128::from(page.offset) - i128::from(row.start);
            let s = i128::from(stride);
            if s == 0 || page.len / 4 > stride {
                return None;
            }
            let first = (-x - i128::from(page.len)).div_euclid(s) + 1;
            let last = (s - 1 - x).div_euclid(s);
            let overlay = layer.group != group && key.pool == row.key.pool;
            for distance in first.max(1 - i128::from(num_blocks))..=last.min(i128::from(other_blocks) - 1) {
                if overlay && distance == 0 {
                    continue;
                }
                let cells = cells(part, page);
                budget = budget.checked_sub(cells.num_runs())?;
                self.steps_left = self.steps_left.checked_sub(cells.num_runs())?;
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
        Some(taken)
    }
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
