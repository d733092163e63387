//! Bytes that are written and not needed, and whether anybody owns them.

use std::collections::HashSet;

use kvspec::family::{Budget, Family, Overlap};
use kvspec::{BlockId, GroupId, Layer, Part, PoolId, StorageIndex, ValidSpec};

use super::Steps;
use super::error::{NotFree, VerifyError};
use super::needed::Listed;

/// What setting up one comparison of a part with a gap costs.
const OVERLAP_STEPS: u64 = 16;

/// Destination bytes that are written and not needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Padding {
    pub(super) storage: StorageIndex,
    pub(super) offset: u64,
    pub(super) len: u64,
}

/// A part with all its cells.
struct Owner<'a> {
    layer: &'a Layer,
    part: &'a Part,
    family: Family,
    /// Behind its last byte.
    end: u64,
}

/// Who owns the bytes of the destination, and which of its blocks a request lists.
pub(super) struct Owners<'a> {
    spec: &'a ValidSpec,
    owners: Vec<Owner<'a>>,
    /// For each list its group, pool and blocks.
    listed: Vec<(GroupId, PoolId, HashSet<BlockId>)>,
}

impl<'a> Owners<'a> {
    pub(super) fn of(destination: Listed<'a>) -> Self {
        let spec = destination.spec;
        let owner = |layer: &'a Layer, part: &'a Part| {
            let family = Family::of_part(part, spec.group_of(layer).num_blocks);
            let end = family.extent().and_then(|extent| family.start.checked_add(extent)).unwrap_or(u64::MAX);
            Owner { layer, part, family, end }
        };
        let owners = spec.layers.iter().flat_map(|layer| layer.parts.iter().map(move |part| owner(layer, part)));
        let listed = destination.lists.iter().map(|list| {
            let pool = spec.groups[list.group.index()].pool;
            (list.group, pool, list.blocks.iter().copied().collect())
        });
        Self { spec, owners: owners.collect(), listed: listed.collect() }
    }

    /// Whether padding may be written: no byte of it is a part's, but for parts that overlay a listed block of
    /// another group.
    pub(super) fn allow(&self, padding: Padding, steps: &mut Steps) -> Result<(), VerifyError> {
        let Padding { storage, offset, len } = padding;
        let gap = Family::new(offset, len, []);
        let mut budget = Budget::default();
        for Owner { layer, part, family, end } in &self.owners {
            steps.spend(1)?;
            if part.storage != storage || offset + len <= family.start || *end <= offset {
                continue;
            }
            let left = budget.0;
            let overlap = family.overlap(&gap, &mut budget);
            steps.spend(OVERLAP_STEPS + (left - budget.0))?;
            if overlap == Overlap::Disjoint {
                continue;
            }
            let overlaid: Vec<_> = self.overlaid(layer, part).collect();
            let mut at = Family::of_part(part, 1);
            for block in blocks_near(part, self.spec.group_of(layer).num_blocks, offset, len) {
                at.start = part.offset + u64::from(block.0) * part.block_stride;
                let mut budget = Budget::default();
                let touched = at.overlap(&gap, &mut budget) != Overlap::Disjoint;
                steps.spend(OVERLAP_STEPS + (Budget::default().0 - budget.0))?;
                if touched && !overlaid.iter().any(|listed| listed.contains(&block)) {
                    let (layer, part) = (layer.name.clone(), part.name.clone());
                    let why = NotFree::Owned { layer, part, block };
                    return Err(VerifyError::Overwritten { storage, offset, len, why });
                }
            }
        }
        Ok(())
    }

    /// Listed blocks whose bytes the part overlays: those of other groups of its pool with parts of its storage and
    /// stride.
    fn overlaid(&self, layer: &Layer, part: &Part) -> impl Iterator<Item = &HashSet<BlockId>> {
        let pool = self.spec.group_of(layer).pool;
        let alike = |other: &Part| (other.storage, other.block_stride) == (part.storage, part.block_stride);
        let overlays = move |group: GroupId| {
            group != layer.group && self.owners.iter().any(|owner| owner.layer.group == group && alike(owner.part))
        };
        let of_pool = self.listed.iter().filter(move |(_, of, _)| *of == pool);
        of_pool.filter(move |(group, ..)| overlays(*group)).map(|(.., blocks)| blocks)
    }
}

/// Blocks of a part whose extent may reach into a range.
fn blocks_near(part: &Part, num_blocks: u64, offset: u64, len: u64) -> impl Iterator<Item = BlockId> {
    let extent = u128::from(Family::of_part(part, 1).extent().unwrap_or(u64::MAX));
    let stride = u128::from(part.block_stride.max(1));
    let (start, end) = (u128::from(offset), u128::from(offset) + u128::from(len));
    let base = u128::from(part.offset);
    let first = start.checked_sub(base + extent).map_or(0, |distance| distance / stride);
    let last = end.checked_sub(base).map_or(0, |distance| distance / stride + 1);
    // A group has fewer blocks than there are block ids.
    let clip = |block: u128| u32::try_from(block.min(u128::from(num_blocks))).unwrap_or(u32::MAX);
    (clip(first)..clip(last)).map(BlockId)
}
