//! Checks of a request's block lists, before anything is planned from them.

use std::collections::HashMap;

use kvspec::{BlockId, GroupId, PoolId, Usage, ValidSpec};

use crate::align::{Listed, Unplaced, places};
use crate::pair::PairPlan;
use crate::refusal::{RequestError, Side};
use crate::request::{Align, BlockList, Request};

/// The checked lists of one side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lists<'a>(&'a [BlockList]);

impl<'a> Lists<'a> {
    /// The group's list, if it has one.
    pub(crate) fn of(&self, group: GroupId) -> Option<&'a BlockList> {
        self.0.iter().find(|list| list.group == group)
    }
}

/// Where lists begin that were placed by others, and that each of them is placed once.
#[derive(Debug, Default)]
pub(crate) struct Places(HashMap<(Side, GroupId), u64>);

impl Places {
    /// Forgets the lists of the request before.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// List indices that the lists of two groups that meet begin at: here, at the peer.
    pub(crate) fn of(
        &mut self,
        align: Option<Align>,
        local: Listed<'_>,
        remote: Listed<'_>,
    ) -> Result<(u64, u64), RequestError> {
        let (local_group, local_len) = (local.list.group, local.list.blocks.len() as u64);
        let (remote_group, remote_len) = (remote.list.group, remote.list.blocks.len() as u64);
        let (here, there) = places(align, local, remote).map_err(|why| match why {
            Unplaced::Lengths => RequestError::Misaligned { local_group, local_len, remote_group, remote_len },
            Unplaced::Tails => RequestError::NoTail { local_group, local_len, remote_group, remote_len },
        })?;
        // An empty list has no place.
        if align == Some(Align::Tail) && local_len > 0 && remote_len > 0 {
            for (side, group, first) in [(Side::Local, local_group, here), (Side::Remote, remote_group, there)] {
                let other = *self.0.entry((side, group)).or_insert(first);
                if other != first {
                    return Err(RequestError::TwoPlaces { side, group, first: other, other: first });
                }
            }
        }
        Ok((here, there))
    }
}

/// Block ids of one pool that were listed, with the group that listed them.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    ids: Vec<(PoolId, BlockId, GroupId)>,
    bits: Vec<u64>,
    groups: Vec<GroupId>,
    pools: Vec<PoolId>,
}

/// Checks lists of blocks that somebody is to write, before anything else is known of the request: every group is one of
/// the spec, listed once, every block is one of its group, and none is listed twice in its pool.
///
/// # Errors
///
/// [`RequestError`], of the side that is given.
pub fn check_destination(spec: &ValidSpec, side: Side, lists: &[BlockList]) -> Result<(), RequestError> {
    check_lists(spec, side, lists, true, &mut Seen::default()).map(drop)
}

impl PairPlan {
    /// The lists of this worker and of the peer, if the request is one that this plan may answer.
    pub(crate) fn check_request<'a>(
        &self,
        request: &'a Request,
        seen: &mut Seen,
    ) -> Result<(Lists<'a>, Lists<'a>), RequestError> {
        let op = self.options.op;
        if request.op != op {
            return Err(RequestError::Direction { request: request.op, plan: op });
        }
        let (local_is_destination, remote_is_destination) = op.local_first(true, false);
        let local = check_lists(&self.local, Side::Local, &request.local, local_is_destination, seen)?;
        let remote = check_lists(&self.remote, Side::Remote, &request.remote, remote_is_destination, seen)?;
        Ok((local, remote))
    }
}

/// Checks one side's lists. Groups whose bytes this worker only borrows are ignored.
fn check_lists<'a>(
    spec: &ValidSpec,
    side: Side,
    lists: &'a [BlockList],
    is_destination: bool,
    seen: &mut Seen,
) -> Result<Lists<'a>, RequestError> {
    let twice = seen.find_group_twice(lists);
    for (at, list) in lists.iter().enumerate() {
        let group_id = list.group;
        let Some(group) = spec.groups.get(group_id.index()) else {
            return Err(RequestError::UnknownGroup { side, group: group_id, num_groups: spec.groups.len() });
        };
        if twice == Some(group_id) && lists[..at].iter().any(|earlier| earlier.group == group_id) {
            return Err(RequestError::GroupTwice { side, group: group_id });
        }
        let size = match group.usage {
            Usage::Tokens => u128::from(group.block_tokens) * u128::from(spec.topology.dcp.size),
            Usage::State => 1,
        };
        let end = (u128::from(list.start()) + list.blocks.len() as u128).checked_mul(size);
        if end.is_none_or(|end| end > u128::from(u64::MAX)) {
            let (first, len) = (list.start(), list.blocks.len() as u64);
            return Err(RequestError::PositionOverflow { side, group: group_id, first, len });
        }
        if is_borrowed(spec, group_id) {
            continue;
        }
        for &block in &list.blocks {
            if !block.is_hole() && u64::from(block.0) >= group.num_blocks {
                let num_blocks = group.num_blocks;
                return Err(RequestError::BlockOutOfRange { side, group: group_id, block, num_blocks });
            }
        }
    }
    if let Some((pool, block, first, second)) = seen.find_twice(spec, lists, is_destination) {
        return Err(RequestError::BlockTwice { side, block, pool, first, second });
    }
    Ok(Lists(lists))
}

/// Whether all of a group's parts lie in memory that TP rank 0 fills for this rank.
fn is_borrowed(spec: &ValidSpec, group: GroupId) -> bool {
    let mut parts = spec.layers.iter().filter(|layer| layer.group == group).flat_map(|layer| &layer.parts);
    spec.topology.tp.rank != 0 && parts.all(|part| spec.is_borrowed(part))
}

/// Lists that are dense enough in their group are checked with one bit a block, others by sorting.
const DENSE: u64 = 64;

impl Seen {
    /// A block id that two groups of one pool list, or, on the destination, one group lists twice.
    fn find_twice(
        &mut self,
        spec: &ValidSpec,
        lists: &[BlockList],
        is_destination: bool,
    ) -> Option<(PoolId, BlockId, GroupId, GroupId)> {
        let pool_of = |list: &BlockList| spec.groups[list.group.index()].pool;
        self.pools.clear();
        self.pools.extend(lists.iter().map(pool_of));
        self.pools.sort_unstable();
        self.ids.clear();
        for list in lists {
            if is_borrowed(spec, list.group) {
                continue;
            }
            let blocks = list.blocks.iter().copied().filter(|block| !block.is_hole());
            if self.is_alone(pool_of(list)) {
                if !is_destination {
                    continue;
                }
                let num_blocks = spec.groups[list.group.index()].num_blocks;
                if num_blocks / DENSE <= list.blocks.len() as u64 {
                    match self.twice_in_dense(blocks, num_blocks) {
                        Some(block) => return Some((pool_of(list), block, list.group, list.group)),
                        None => continue,
                    }
                }
            }
            self.ids.extend(blocks.map(|block| (pool_of(list), block, list.group)));
        }
        self.ids.sort_unstable();
        let twice = |pair: &&[(PoolId, BlockId, GroupId)]| {
            let (a, b) = (pair[0], pair[1]);
            (a.0, a.1) == (b.0, b.1) && (is_destination || a.2 != b.2)
        };
        self.ids.windows(2).find(twice).map(|pair| (pair[0].0, pair[0].1, pair[0].2, pair[1].2))
    }

    /// A group with two lists.
    fn find_group_twice(&mut self, lists: &[BlockList]) -> Option<GroupId> {
        self.groups.clear();
        self.groups.extend(lists.iter().map(|list| list.group));
        self.groups.sort_unstable();
        self.groups.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
    }

    /// Whether only one list is of this pool.
    fn is_alone(&self, pool: PoolId) -> bool {
        let first = self.pools.partition_point(|&other| other < pool);
        self.pools.get(first + 1) != Some(&pool)
    }

    fn twice_in_dense(&mut self, blocks: impl Iterator<Item = BlockId>, num_blocks: u64) -> Option<BlockId> {
        let words = usize::try_from(num_blocks.div_ceil(64)).ok()?;
        self.bits.clear();
        self.bits.resize(words, 0);
        for block in blocks {
            let (word, bit) = (block.index() / 64, 1u64 << (block.0 % 64));
            if self.bits[word] & bit != 0 {
                return Some(block);
            }
            self.bits[word] |= bit;
        }
        None
    }
}
