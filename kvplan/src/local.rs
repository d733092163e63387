//! What one worker registers and advertises: memory ranges and regions.
//!
//! A memory range is a storage that a travelling layer uses, once, whatever the number of views over it. A region is
//! a family of equal byte ranges, one for each block. Replicated parts that lie in one row and have the same number of
//! blocks fold into one region; head-sharded parts and state keep one of their own, because another rank holds other
//! units of them. Each region lists its members with their offset in it, so that a peer with any other layout can
//! address a single page.

use std::collections::HashMap;

use kvspec::{GroupId, LayerName, MemKind, PartName, PoolId, Sharding, StorageIndex, Usage, ValidSpec};
use serde::Serialize;

use crate::rows::{Page, RowKey, Rows, parts};

/// A storage to register for transfers: `len` bytes at `base`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct MemoryRange {
    /// The storage.
    pub storage: StorageIndex,
    /// Address of the first byte.
    pub base: u64,
    /// Length in bytes.
    pub len: u64,
    /// Kind of memory.
    pub mem: MemKind,
}

/// Equal byte ranges, one for each block: block b's is `block_len` bytes at `offset + b·block_stride` in the storage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Region {
    /// The storage it lies in.
    pub storage: StorageIndex,
    /// Bytes from the storage's base to block 0's range.
    pub offset: u64,
    /// Bytes of one block's range.
    pub block_len: u64,
    /// Bytes from one block's range to the next.
    pub block_stride: u64,
    /// Number of blocks.
    pub num_blocks: u64,
    /// Pages in each block's range, in order of offset.
    pub members: Vec<Member>,
}

/// A part's page inside a region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Member {
    /// The layer.
    pub layer: LayerName,
    /// The part.
    pub part: PartName,
    /// The layer's group.
    pub group: GroupId,
    /// Bytes from the start of the region's range.
    pub offset: u64,
    /// Bytes up to the end of the page's last cell.
    pub len: u64,
}

/// Whole rows were required of a worker whose layers do not share one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("whole rows are required, but layer {layer}: part {part} {why}")]
#[non_exhaustive]
pub struct RowBroken {
    /// The first layer that is not in its pool's row.
    pub layer: LayerName,
    /// Its part.
    pub part: PartName,
    /// Why.
    pub why: OutOfRow,
}

/// Why a part does not travel in its pool's row.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OutOfRow {
    /// Split over TP ranks.
    #[error("is sharded over tensor-parallel ranks in {total} units; only replicated parts travel as a row")]
    Sharded {
        /// Units of the whole model.
        total: u64,
    },
    /// Request state.
    #[error("keeps request state; only token blocks travel as a row")]
    State,
    /// Another allocation.
    #[error("lies in storage {storage} and the row in storage {row}; allocate all layers of a pool together")]
    OtherStorage {
        /// The part's.
        storage: StorageIndex,
        /// The row's.
        row: StorageIndex,
    },
    /// Another distance between blocks.
    #[error(
        "has block stride {stride} and the row {row}; in a block-outermost layout all pages share one block stride"
    )]
    OtherStride {
        /// The part's.
        stride: u64,
        /// The row's.
        row: u64,
    },
    /// Outside the stride.
    #[error(
        "begins {distance} bytes after the row, whose blocks are {stride} bytes apart; use a block-outermost layout \
         (BLHNC, BLNHC, BHLNC)"
    )]
    OutsideStride {
        /// Bytes from the row's start.
        distance: u64,
        /// The row's block stride.
        stride: u64,
    },
    /// Another number of blocks.
    #[error("has {num_blocks} blocks and the row {row}; a row's groups have equally many")]
    OtherNumBlocks {
        /// The part's.
        num_blocks: u64,
        /// The row's.
        row: u64,
    },
}

/// What a worker registers and advertises.
#[derive(Clone, Debug)]
pub struct LocalPlan {
    spec: ValidSpec,
    memory_ranges: Vec<MemoryRange>,
    regions: Vec<Region>,
}

impl LocalPlan {
    /// Folds a worker's caches into memory ranges and regions. Cannot fail: what does not fold keeps a region of its
    /// own.
    #[must_use]
    pub fn new(spec: &ValidSpec) -> Self {
        Self { spec: spec.clone(), memory_ranges: memory_ranges(spec), regions: regions(spec) }
    }

    /// The same, for deployments that count on whole rows: every pool's travelling parts must share one region.
    ///
    /// # Errors
    ///
    /// [`RowBroken`] names the first layer that does not, and why.
    pub fn with_whole_rows(spec: &ValidSpec) -> Result<Self, RowBroken> {
        let plan = Self::new(spec);
        plan.check_whole_rows()?;
        Ok(plan)
    }

    /// The spec.
    #[must_use]
    pub fn spec(&self) -> &ValidSpec {
        &self.spec
    }

    /// Storages to register, in order of their index.
    #[must_use]
    pub fn memory_ranges(&self) -> &[MemoryRange] {
        &self.memory_ranges
    }

    /// Regions, in order of pool, storage and offset.
    #[must_use]
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    fn check_whole_rows(&self) -> Result<(), RowBroken> {
        let mut homes: HashMap<(&LayerName, &PartName), &Region> = HashMap::new();
        for region in &self.regions {
            for member in &region.members {
                homes.entry((&member.layer, &member.part)).or_insert(region);
            }
        }
        let mut rows: HashMap<PoolId, &Region> = HashMap::new();
        for (_, layer, part) in parts(&self.spec).filter(|(_, layer, part)| travels(&self.spec, layer, part)) {
            let pool = self.spec.group_of(layer).pool;
            let Some(&home) = homes.get(&(&layer.name, &part.name)) else { continue };
            let row = *rows.entry(pool).or_insert(home);
            if std::ptr::eq(row, home) {
                continue;
            }
            let why = self.out_of_row(layer, part, home, row);
            return Err(RowBroken { layer: layer.name.clone(), part: part.name.clone(), why });
        }
        Ok(())
    }

    fn out_of_row(&self, layer: &kvspec::Layer, part: &kvspec::Part, home: &Region, row: &Region) -> OutOfRow {
        let num_blocks = self.spec.group_of(layer).num_blocks;
        if self.spec.group_of(layer).usage == Usage::State {
            OutOfRow::State
        } else if let Sharding::Sharded { total, .. } = part.sharding {
            OutOfRow::Sharded { total }
        } else if home.storage != row.storage {
            OutOfRow::OtherStorage { storage: home.storage, row: row.storage }
        } else if home.block_stride != row.block_stride {
            OutOfRow::OtherStride { stride: home.block_stride, row: row.block_stride }
        } else if num_blocks != row.num_blocks {
            OutOfRow::OtherNumBlocks { num_blocks, row: row.num_blocks }
        } else {
            OutOfRow::OutsideStride { distance: home.offset.abs_diff(row.offset), stride: row.block_stride }
        }
    }
}

fn travels(spec: &ValidSpec, layer: &kvspec::Layer, part: &kvspec::Part) -> bool {
    layer.transfer && !spec.is_borrowed(part)
}

/// Storages of a worker to register, in order of their index, without the rest of a [`LocalPlan`].
#[must_use]
pub fn memory_ranges(spec: &ValidSpec) -> Vec<MemoryRange> {
    let mut used: Vec<StorageIndex> =
        parts(spec).filter(|(_, layer, part)| travels(spec, layer, part)).map(|(_, _, part)| part.storage).collect();
    used.sort_unstable();
    used.dedup();
    let range = |storage: StorageIndex| {
        let kvspec::Storage { base, len, mem, .. } = spec.storages[storage.index()];
        MemoryRange { storage, base, len, mem }
    };
    used.into_iter().map(range).collect()
}

/// What the pages of one region have in common: those that fold share a number of blocks, others have a page number
/// of their own.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Fold {
    Row { num_blocks: u64 },
    Page(usize),
}

fn regions(spec: &ValidSpec) -> Vec<Region> {
    let mut regions: Vec<Region> = Vec::new();
    let mut places = HashMap::new();
    for row in &Rows::new(spec).0 {
        let mut pages: Vec<(Fold, &Page)> = Vec::new();
        for (number, page) in row.pages.iter().enumerate() {
            let (layer, part) = page.part.of(spec);
            if !travels(spec, layer, part) {
                continue;
            }
            let group = spec.group_of(layer);
            let folds = part.sharding == Sharding::Replicated && group.usage == Usage::Tokens;
            let fold = if folds { Fold::Row { num_blocks: group.num_blocks } } else { Fold::Page(number) };
            pages.push((fold, page));
        }
        pages.sort_by(|a, b| (&a.0, a.1.offset).cmp(&(&b.0, b.1.offset)));
        for folded in pages.chunk_by(|a, b| a.0 == b.0) {
            add_region(spec, row.key, folded, &mut regions, &mut places);
        }
    }
    regions
}

/// What makes two regions the same: storage, offset, length, stride and number of blocks.
type Place = (StorageIndex, u64, u64, u64, u64);

/// Appends a region, or its members to one with the same base and length.
fn add_region(
    spec: &ValidSpec,
    key: RowKey,
    pages: &[(Fold, &Page)],
    regions: &mut Vec<Region>,
    places: &mut HashMap<Place, usize>,
) {
    let ends = pages.iter().map(|(_, page)| page.offset + page.len);
    let (Some((_, first)), Some(end)) = (pages.first(), ends.max()) else { return };
    let member = |(_, page): &(Fold, &Page)| {
        let (layer, part) = page.part.of(spec);
        Member {
            layer: layer.name.clone(),
            part: part.name.clone(),
            group: layer.group,
            offset: page.offset - first.offset,
            len: page.len,
        }
    };
    let region = Region {
        storage: key.storage,
        offset: first.offset,
        block_len: end - first.offset,
        block_stride: key.stride,
        num_blocks: spec.group_of(first.part.of(spec).0).num_blocks,
        members: pages.iter().map(member).collect(),
    };
    let place = (region.storage, region.offset, region.block_len, region.block_stride, region.num_blocks);
    match places.get(&place).and_then(|&index| regions.get_mut(index)) {
        Some(same) => same.members.extend(region.members),
        None => {
            places.insert(place, regions.len());
            regions.push(region);
        }
    }
}
