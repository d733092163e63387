//! One block's runs for one cut: the normal form, unrolled once.

use std::ops::Range;
use std::sync::Arc;

use kvspec::{PoolId, StorageIndex};

use crate::copy::{Place, Placed};
use crate::gap::FreeBytes;
use crate::rows::{PartRef, Row, RowKey, Rows};

/// One side's rows, as a lane sees them.
#[derive(Clone, Debug)]
pub(crate) struct SideRows {
    pub(crate) rows: Arc<Rows>,
    pub(crate) pool: PoolId,
    /// At the destination, by row index, the bytes that a gap may overwrite; `None` at the source, whose bytes are
    /// only read.
    pub(crate) free: Option<Arc<[FreeBytes]>>,
}

/// A contiguous run of one block, on either side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Local offset, for block 0.
    pub(crate) local: u64,
    /// Remote offset, for block 0.
    pub(crate) remote: u64,
    pub(crate) len: u64,
    /// Bytes of bridged gaps in it.
    pub(crate) padding: u64,
    pub(crate) remote_stride: u64,
    pub(crate) remote_storage: StorageIndex,
    /// Rows at the peer that its first byte and its last one lie in: runs of two rows may touch, and are one then.
    pub(crate) remote_rows: (u32, u32),
    /// The part its first byte belongs to.
    pub(crate) origin: PartRef,
    /// Whether it came from a copy that steps along the token axis.
    pub(crate) by_token: bool,
}

impl Run {
    /// The row at the peer in which this run ends and `next` begins, if that is one.
    pub(crate) fn row_up_to(&self, next: &Run) -> Option<u32> {
        (self.remote_rows.1 == next.remote_rows.0).then_some(next.remote_rows.0)
    }
}

/// Runs that lie in the same row of the local side; their descriptors are contiguous in address order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Band {
    pub(crate) storage: StorageIndex,
    pub(crate) stride: u64,
    pub(crate) row: u32,
    /// Offset of block 0's row.
    pub(crate) start: u64,
}

/// One block's runs in one cut, by band and local offset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Template {
    pub(crate) runs: Vec<Run>,
    /// For each band of the lane, its runs.
    pub(crate) bands: Vec<Range<usize>>,
}

/// The ends that a gap lies between.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gap {
    /// Block the gap begins in, and the one it ends in.
    pub(crate) blocks: (u64, u64),
    /// Offset in the storage of its first byte.
    pub(crate) from: u64,
    pub(crate) len: u64,
}

impl SideRows {
    /// The row, where all bytes at its addresses are its own: elsewhere nobody can say what a gap lies between.
    pub(crate) fn whole(&self, row: u32) -> Option<&Row> {
        self.rows.0.get(row as usize).filter(|row| !row.is_entered)
    }

    /// Whether a gap lies within this row (or its tail and the next listed row's head) and, at the destination,
    /// belongs to nobody else.
    pub(crate) fn allows(&self, row: u32, gap: Gap) -> bool {
        let Some(row_of) = self.whole(row) else { return false };
        let stride = row_of.key.stride;
        let Some(from) = gap.blocks.0.checked_mul(stride).and_then(|base| gap.from.checked_sub(base + row_of.start))
        else {
            return false;
        };
        let to = from + gap.len;
        let fits = match gap.blocks.1.checked_sub(gap.blocks.0) {
            Some(0) => to <= stride,
            Some(1) => from <= stride && stride <= to && to - stride <= stride,
            _ => false,
        };
        fits && self.free.as_ref().is_none_or(|free| free.get(row as usize).is_some_and(|free| free.cover(from, to)))
    }
}

/// Unrolls copies into bands of sorted runs, joining what touches on both sides and bridging what may be bridged.
pub(crate) struct Unroller<'a> {
    pub(crate) local: &'a SideRows,
    pub(crate) remote: &'a SideRows,
    pub(crate) max_gap: u64,
}

impl Unroller<'_> {
    /// Runs of the copies, each with its local row, sorted by local row and offset and joined.
    pub(crate) fn unroll(&self, copies: &[Placed], by_token: &impl Fn(&Placed) -> bool) -> Vec<(Band, Run)> {
        let mut runs = Vec::new();
        for placed in copies {
            let (origin, by_token) = (placed.origin, by_token(placed));
            let Place { local_storage, local_stride, remote_storage, remote_stride } = placed.place;
            let local_key = RowKey { pool: self.local.pool, storage: local_storage, stride: local_stride };
            let remote_key = RowKey { pool: self.remote.pool, storage: remote_storage, stride: remote_stride };
            placed.copy.for_each_run(&mut |local, remote| {
                let row = self.local.rows.of(local_key, local).unwrap_or(u32::MAX);
                let start = self.local.rows.0.get(row as usize).map_or(0, |row| row.start);
                let remote_row = self.remote.rows.of(remote_key, remote).unwrap_or(u32::MAX);
                runs.push((
                    Band { storage: local_storage, stride: local_stride, row, start },
                    Run {
                        local,
                        remote,
                        len: placed.copy.run,
                        padding: 0,
                        remote_stride,
                        remote_storage,
                        remote_rows: (remote_row, remote_row),
                        origin,
                        by_token,
                    },
                ));
            });
        }
        runs.sort_unstable_by_key(|(band, run)| (band.storage, band.start, band.row, run.local));
        runs.dedup_by(|(next_band, next), (last_band, last)| {
            if next_band != last_band
                || (next.remote_storage, next.remote_stride) != (last.remote_storage, last.remote_stride)
            {
                return false;
            }
            let gap = next.local.checked_sub(last.local + last.len);
            let Some(gap) = gap.filter(|&gap| next.remote.checked_sub(last.remote + last.len) == Some(gap)) else {
                return false;
            };
            let joins = gap == 0 || self.bridges(*last_band, last, next, (0, 0), (0, 0), gap);
            if joins {
                last.len += gap + next.len;
                last.padding += gap + next.padding;
                last.remote_rows.1 = next.remote_rows.1;
                last.by_token |= next.by_token;
            }
            joins
        });
        runs
    }

    /// Whether the gap between two runs, equally long on both sides, may travel with them.
    pub(crate) fn bridges(
        &self,
        band: Band,
        last: &Run,
        next: &Run,
        local_blocks: (u64, u64),
        remote_blocks: (u64, u64),
        gap: u64,
    ) -> bool {
        let Some(remote_row) = last.row_up_to(next).filter(|_| gap <= self.max_gap) else { return false };
        let local = Gap { blocks: local_blocks, from: local_blocks.0 * band.stride + last.local + last.len, len: gap };
        let remote = Gap {
            blocks: remote_blocks,
            from: remote_blocks.0 * last.remote_stride + last.remote + last.len,
            len: gap,
        };
        self.local.allows(band.row, local) && self.remote.allows(remote_row, remote)
    }
}

impl Template {
    /// Groups runs by the lane's bands.
    pub(crate) fn new(runs: Vec<(Band, Run)>, bands: &[Band]) -> Self {
        let mut at = 0;
        let ranges = bands
            .iter()
            .map(|band| {
                let start = at;
                at += runs[at..].iter().take_while(|(b, _)| b == band).count();
                start..at
            })
            .collect();
        Self { runs: runs.into_iter().map(|(_, run)| run).collect(), bands: ranges }
    }
}
