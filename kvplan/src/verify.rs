//! Proof that an answer is right, without moving a byte.
//!
//! [`PairPlan::verify`] works out once more, token by token and cell by cell, which destination bytes the request
//! needs and where the source keeps them. It uses neither the strided-copy algebra nor schedules, templates or free
//! bytes: the two ways of getting there share only the part formula and who serves whom. Debug builds run it on
//! every answer.

use std::collections::HashSet;

use kvspec::family::{Budget, Family, Overlap};
use kvspec::{Axis, BlockId, GroupId, Layer, Part, StorageIndex, ValidSpec};

use crate::descriptor::{Descriptor, Descriptors, ZeroRange};
use crate::lane::{LaneKey, PartPair};
use crate::pair::{PairPlan, match_parts};
use crate::refusal::Side;
use crate::request::{BlockList, Op, Request};
use crate::rows::parts;
use crate::schedule::Timeline;

/// What is wrong with an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// A descriptor leaves its storage.
    #[error(
        "a descriptor of {len} bytes at {offset} leaves storage {storage} of {side}, which has {storage_len} bytes"
    )]
    OutOfBounds {
        /// Whose storage.
        side: Side,
        /// The storage.
        storage: StorageIndex,
        /// Offset in it.
        offset: u64,
        /// Length of the descriptor.
        len: u64,
        /// Length of the storage, 0 where there is no such storage.
        storage_len: u64,
    },
    /// A destination byte is written twice.
    #[error("byte {offset} of destination storage {storage} is written twice")]
    WrittenTwice {
        /// The storage.
        storage: StorageIndex,
        /// The byte.
        offset: u64,
    },
    /// A destination byte that the request needs is not written, or from a wrong place.
    #[error(
        "destination storage {storage} needs {len} bytes at {offset} from byte {source_offset} of source storage {source_storage}; the plan does not bring them from there"
    )]
    NotDelivered {
        /// The storage.
        storage: StorageIndex,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        len: u64,
        /// Where the source keeps them.
        source_storage: StorageIndex,
        /// Offset there.
        source_offset: u64,
    },
    /// Bytes are written that the request does not need and that may belong to somebody.
    #[error("{len} bytes at {offset} of destination storage {storage} are written and not needed: {why}")]
    Overwritten {
        /// The storage.
        storage: StorageIndex,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        len: u64,
        /// Why they may not be.
        why: &'static str,
    },
    /// The ranges to zero are not those that no source holds.
    #[error("the ranges to zero differ from what no source holds at destination storage {storage}, byte {offset}")]
    WrongZero {
        /// The storage.
        storage: StorageIndex,
        /// First byte that differs.
        offset: u64,
    },
    /// The request is too large to be proved within the steps allowed; nothing is known to be wrong.
    #[error("proving the answer takes more than {limit} steps; verify smaller requests")]
    TooLarge {
        /// Steps allowed.
        limit: u64,
    },
    /// The number of padding bytes is not what is moved beyond need.
    #[error("the answer counts {counted} padding bytes and moves {moved}")]
    WrongPadding {
        /// As counted.
        counted: u64,
        /// As moved.
        moved: u64,
    },
}

/// Steps of [`PairPlan::verify`], cells for the most part: some tens of seconds.
const MAX_STEPS: u64 = 1 << 32;
/// Steps that debug builds spend on every answer.
#[cfg(debug_assertions)]
pub(crate) const MAX_DEBUG_STEPS: u64 = 1 << 26;
/// What setting up one comparison of a part with a gap costs.
const OVERLAP_STEPS: u64 = 16;

/// Counts the steps of a proof. Blocks of a peer may claim any number of tokens.
#[derive(Debug)]
struct Steps {
    limit: u64,
    left: u64,
}

impl Steps {
    fn spend(&mut self, steps: u64) -> Result<(), VerifyError> {
        self.left = self.left.checked_sub(steps).ok_or(VerifyError::TooLarge { limit: self.limit })?;
        Ok(())
    }
}

/// Bytes that must get from a source to a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Needed {
    storage: StorageIndex,
    offset: u64,
    source_storage: StorageIndex,
    source_offset: u64,
    len: u64,
}

/// Destination bytes that are written and not needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Padding {
    storage: StorageIndex,
    offset: u64,
    len: u64,
}

impl PairPlan {
    /// Shows that an answer of this plan is right for its request: every descriptor lies in bounds on both sides, no
    /// destination byte is written twice, every needed byte comes from its place, nothing live is touched, and zero
    /// ranges and padding are as stated.
    ///
    /// # Errors
    ///
    /// [`VerifyError`] with the first thing that is wrong; [`VerifyError::TooLarge`] for requests of billions of
    /// cells.
    pub fn verify(&self, request: &Request, answer: &Descriptors) -> Result<(), VerifyError> {
        self.verify_within(request, answer, MAX_STEPS)
    }

    /// The same within a number of steps.
    pub(crate) fn verify_within(&self, request: &Request, answer: &Descriptors, limit: u64) -> Result<(), VerifyError> {
        let mut steps = Steps { limit, left: limit };
        let reads = self.options.op == Op::Read;
        let destination = if reads { &self.local } else { &self.remote };
        in_bounds(&self.local, Side::Local, answer, |d| (d.local_storage, d.local_offset))?;
        in_bounds(&self.remote, Side::Remote, answer, |d| (d.remote_storage, d.remote_offset))?;

        let (lists, source_lists) =
            if reads { (&request.local, &request.remote) } else { (&request.remote, &request.local) };
        let (needed, zero) = self.needed(lists, source_lists, &mut steps)?;
        if zero != answer.zero() {
            let differs = zero.iter().zip(answer.zero()).find(|(a, b)| a != b).map(|(a, _)| *a);
            let first = differs.or(zero.get(answer.zero().len()).copied()).or(answer.zero().get(zero.len()).copied());
            let first = first.unwrap_or(ZeroRange { storage: StorageIndex(0), offset: 0, len: 0 });
            return Err(VerifyError::WrongZero { storage: first.storage, offset: first.offset });
        }

        let mut written: Vec<Needed> = answer.as_slice().iter().map(|d| oriented(d, reads)).collect();
        written.sort_unstable();
        let twice = written.windows(2).find(|w| w[0].storage == w[1].storage && w[0].offset + w[0].len > w[1].offset);
        if let Some(w) = twice {
            return Err(VerifyError::WrittenTwice { storage: w[1].storage, offset: w[1].offset });
        }
        join(&mut written);
        let padding = compare(&needed, &written)?;
        let moved = padding.iter().map(|p| p.len).sum();
        if moved != answer.padding_bytes() {
            return Err(VerifyError::WrongPadding { counted: answer.padding_bytes(), moved });
        }
        let listed: Vec<HashSet<u64>> =
            lists.iter().map(|list| list.blocks.iter().map(|block| u64::from(block.0)).collect()).collect();
        let lists: Vec<_> = lists.iter().zip(&listed).collect();
        if padding.is_empty() {
            return Ok(());
        }
        let owners = owners(destination);
        padding.iter().try_for_each(|&padding| self.may_overwrite(destination, &owners, &lists, padding, &mut steps))
    }

    /// Needed bytes, and destination ranges that no source holds, both sorted.
    fn needed(
        &self,
        lists: &[BlockList],
        source_lists: &[BlockList],
        steps: &mut Steps,
    ) -> Result<(Vec<Needed>, Vec<ZeroRange>), VerifyError> {
        let reads = self.options.op == Op::Read;
        let mut refusals = Vec::new();
        let pairs = match_parts(&self.local, &self.remote, self.options.op, &mut refusals);
        let (mut needed, mut zero) = (Vec::new(), Vec::new());
        for (key, pair) in &pairs {
            let (destination_group, source_group) =
                if reads { (key.local_group, key.remote_group) } else { (key.remote_group, key.local_group) };
            let list_of = |lists: &'_ [BlockList], group| lists.iter().position(|list| list.group == group);
            let Some(list) = list_of(lists, destination_group).map(|at| &lists[at]) else { continue };
            let empty = BlockList { group: source_group, first: 0, blocks: Vec::new() };
            let source_list = list_of(source_lists, source_group).map_or(&empty, |at| &source_lists[at]);
            steps.spend(lists.len() as u64 + source_lists.len() as u64)?;
            self.needed_of(*key, pair, list, source_list, (&mut needed, &mut zero), steps)?;
        }
        needed.sort_unstable();
        join(&mut needed);
        zero.sort_unstable();
        zero.dedup_by(|next: &mut ZeroRange, last| {
            let touch = (next.storage, next.offset) == (last.storage, last.offset + last.len);
            if touch {
                last.len += next.len;
            }
            touch
        });
        Ok((needed, zero))
    }

    fn needed_of(
        &self,
        key: LaneKey,
        pair: &PartPair<'_>,
        list: &BlockList,
        source_list: &BlockList,
        (needed, zero): (&mut Vec<Needed>, &mut Vec<ZeroRange>),
        steps: &mut Steps,
    ) -> Result<(), VerifyError> {
        let reads = self.options.op == Op::Read;
        let time = |spec: &ValidSpec, group: GroupId| Timeline::new(spec, &spec.groups[group.index()]);
        let (local_time, remote_time) = (time(&self.local, key.local_group), time(&self.remote, key.remote_group));
        let local = (pair.local, pair.local_unit, local_time);
        let remote = (pair.remote, pair.remote_unit, remote_time);
        let ((to, to_unit, to_time), (from, from_unit, from_time)) =
            if reads { (local, remote) } else { (remote, local) };
        let (to_axes, from_axes) = (axes(to), axes(from));
        let cell_steps = (1 + to_axes.len() + from_axes.len()) as u64;
        let held = |block: u64| -> Option<BlockId> {
            source_list.blocks.get(usize::try_from(block.checked_sub(source_list.first)?).ok()?).copied()
        };
        for (&block, index) in list.blocks.iter().zip(list.first..).filter(|(block, _)| !block.is_hole()) {
            for segment in segments(to_time, from_time, index, steps)? {
                let held = held(segment.source_block);
                for (state, source_state) in states(to, to_time, &segment, from, from_time) {
                    steps.spend(pair.num_units.saturating_mul(cell_steps))?;
                    for unit in 0..pair.num_units {
                        let offset = cell(to, &to_axes, block, to_unit + unit, state);
                        let len = to.content;
                        match held {
                            Some(source_block) => {
                                let next = Needed {
                                    storage: to.storage,
                                    offset,
                                    source_storage: from.storage,
                                    source_offset: cell(from, &from_axes, source_block, from_unit + unit, source_state),
                                    len,
                                };
                                if !needed.last_mut().is_some_and(|last| last.absorb(&next)) {
                                    needed.push(next);
                                }
                            }
                            None => zero.push(ZeroRange { storage: to.storage, offset, len }),
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether padding may be written: nobody but the requested blocks' own group may own the bytes.
    fn may_overwrite(
        &self,
        spec: &ValidSpec,
        owners: &[Owner<'_>],
        lists: &[(&BlockList, &HashSet<u64>)],
        Padding { storage, offset, len }: Padding,
        steps: &mut Steps,
    ) -> Result<(), VerifyError> {
        let refuse = |why| Err(VerifyError::Overwritten { storage, offset, len, why });
        if self.options.max_gap == 0 {
            return refuse("no gap may be bridged");
        }
        let gap = Family::new(offset, len, []);
        let mut budget = Budget::default();
        for Owner { layer, part, family, end } in owners {
            steps.spend(1)?;
            if part.storage != storage || offset + len <= family.start || *end <= offset {
                continue;
            }
            let group = spec.group_of(layer);
            let left = budget.0;
            let overlap = family.overlap(&gap, &mut budget);
            steps.spend(OVERLAP_STEPS + (left - budget.0))?;
            if overlap == Overlap::Disjoint {
                continue;
            }
            // Overlaid bytes are free where another group of the pool was asked for the block.
            let overlays = |list: &BlockList| {
                let same_stride = |p: &Part| p.storage == storage && p.block_stride == part.block_stride;
                list.group != layer.group
                    && spec.groups[list.group.index()].pool == group.pool
                    && parts(spec).any(|(_, l, p)| l.group == list.group && same_stride(p))
            };
            let overlaying: Vec<_> = lists.iter().filter(|(list, _)| overlays(list)).collect();
            let is_listed = |block| overlaying.iter().any(|(_, listed)| listed.contains(&block));
            let mut at = Family::of_part(part, 1);
            for block in blocks_near(part, group.num_blocks, offset, len) {
                at.start = part.offset + block * part.block_stride;
                let mut budget = Budget::default();
                let touched = at.overlap(&gap, &mut budget) != Overlap::Disjoint;
                steps.spend(OVERLAP_STEPS + (Budget::default().0 - budget.0))?;
                if touched && !is_listed(block) {
                    return refuse("a part of the same group, another block, pool or stride lies there");
                }
            }
        }
        Ok(())
    }
}

/// A part with all its cells.
struct Owner<'a> {
    layer: &'a Layer,
    part: &'a Part,
    family: Family,
    /// Behind its last byte.
    end: u64,
}

fn owners(spec: &ValidSpec) -> Vec<Owner<'_>> {
    let owner = |(_, layer, part): (_, _, _)| {
        let family = Family::of_part(part, spec.group_of(layer).num_blocks);
        let end = family.extent().and_then(|extent| family.start.checked_add(extent)).unwrap_or(u64::MAX);
        Owner { layer, part, family, end }
    };
    parts(spec).map(owner).collect()
}

fn oriented(d: &Descriptor, reads: bool) -> Needed {
    let local = (d.local_storage, d.local_offset);
    let remote = (d.remote_storage, d.remote_offset);
    let ((storage, offset), (source_storage, source_offset)) = if reads { (local, remote) } else { (remote, local) };
    Needed { storage, offset, source_storage, source_offset, len: d.len }
}

fn in_bounds(
    spec: &ValidSpec,
    side: Side,
    answer: &Descriptors,
    place: impl Fn(&Descriptor) -> (StorageIndex, u64),
) -> Result<(), VerifyError> {
    for d in answer.as_slice() {
        let (storage, offset) = place(d);
        let storage_len = spec.storages.get(storage.index()).map_or(0, |s| s.len);
        if offset.checked_add(d.len).is_none_or(|end| end > storage_len) {
            return Err(VerifyError::OutOfBounds { side, storage, offset, len: d.len, storage_len });
        }
    }
    Ok(())
}

/// Tokens of a destination block that lie in one block of this source.
struct Segment {
    token: u64,
    source_block: u64,
    source_token: u64,
    tokens: u64,
}

impl Segment {
    fn is_followed_by(&self, token: u64, source_block: u64, source_token: u64) -> bool {
        self.source_block == source_block
            && self.token + self.tokens == token
            && self.source_token + self.tokens == source_token
    }
}

/// The segments of the destination's list entry `index` that this source's rank owes.
fn segments(to: Timeline, from: Timeline, index: u64, steps: &mut Steps) -> Result<Vec<Segment>, VerifyError> {
    let mut found: Vec<Segment> = Vec::new();
    let mut token = 0;
    while token < to.block_tokens {
        steps.spend(1)?;
        let rank_token = u128::from(index) * u128::from(to.block_tokens) + u128::from(token);
        let (position, left) = to.position(rank_token);
        let (owner, source_rank_token, source_left) = from.holder(position);
        let tokens = left.min(source_left).min(to.block_tokens - token);
        let block_tokens = u128::from(from.block_tokens);
        if owner == from.rank
            && let Ok(source_block) = u64::try_from(source_rank_token / block_tokens)
        {
            let source_token = u64::try_from(source_rank_token % block_tokens).unwrap_or(0);
            match found.last_mut() {
                // A state may span runs that follow each other on both sides.
                Some(last) if last.is_followed_by(token, source_block, source_token) => last.tokens += tokens,
                _ => found.push(Segment { token, source_block, source_token, tokens }),
            }
        }
        token += tokens;
    }
    Ok(found)
}

/// Pairs of states of a segment: in the destination's block, in the source's block.
fn states(
    to: &Part,
    to_time: Timeline,
    segment: &Segment,
    from: &Part,
    from_time: Timeline,
) -> impl Iterator<Item = (u64, u64)> {
    let count = |part: &Part| part.tokens.iter().map(|axis| axis.count).product::<u64>();
    // A block of `block_tokens` tokens holds `count` states, so a token's share is their ratio.
    let scale = |part: &Part, time: Timeline, tokens: u64| {
        let states = u128::from(tokens) * u128::from(count(part)) / u128::from(time.block_tokens);
        u64::try_from(states).unwrap_or(u64::MAX)
    };
    let (first, source_first) = (scale(to, to_time, segment.token), scale(from, from_time, segment.source_token));
    let num = scale(to, to_time, segment.tokens);
    (0..num).map(move |i| (first + i, source_first + i))
}

/// Token factors that tell states apart, innermost first; a part may list any number of others.
fn axes(part: &Part) -> Vec<Axis> {
    part.tokens.iter().rev().copied().filter(|axis| axis.count > 1).collect()
}

/// Offset of a cell in its storage.
fn cell(part: &Part, axes: &[Axis], block: BlockId, unit: u64, state: u64) -> u64 {
    let mut rest = state;
    let mut offset = part.offset + u64::from(block.0) * part.block_stride + unit * part.units.stride;
    for &Axis { count, stride } in axes {
        offset += rest % count * stride;
        rest /= count;
    }
    offset
}

impl Needed {
    /// Takes in `next` if it touches on both sides.
    fn absorb(&mut self, next: &Needed) -> bool {
        let touch = (self.storage, self.source_storage) == (next.storage, next.source_storage)
            && self.offset + self.len == next.offset
            && self.source_offset + self.len == next.source_offset;
        if touch {
            self.len += next.len;
        }
        touch
    }
}

/// Joins what touches on both sides, whichever lanes or layers it comes from; the list is sorted.
fn join(moves: &mut Vec<Needed>) {
    moves.dedup_by(|next, last| last.absorb(next));
}

/// Checks that everything needed is written from its place; returns what is written beyond it.
fn compare(needed: &[Needed], written: &[Needed]) -> Result<Vec<Padding>, VerifyError> {
    let mut padding = Vec::new();
    let mut rest = needed.iter().copied().peekable();
    let not_delivered = |n: Needed| VerifyError::NotDelivered {
        storage: n.storage,
        offset: n.offset,
        len: n.len,
        source_storage: n.source_storage,
        source_offset: n.source_offset,
    };
    for w in written {
        let (mut at, end) = (w.offset, w.offset + w.len);
        while let Some(&n) = rest.peek().filter(|n| n.storage == w.storage && n.offset < end) {
            let source_offset = w.source_offset + (n.offset.max(w.offset) - w.offset);
            let right = n.source_storage == w.source_storage && n.source_offset == source_offset;
            if n.offset < at || n.offset + n.len > end || !right {
                return Err(not_delivered(n));
            }
            if n.offset > at {
                padding.push(Padding { storage: w.storage, offset: at, len: n.offset - at });
            }
            at = n.offset + n.len;
            rest.next();
        }
        if at < end {
            padding.push(Padding { storage: w.storage, offset: at, len: end - at });
        }
    }
    rest.next().map_or(Ok(padding), |n| Err(not_delivered(n)))
}

/// Blocks of a part whose extent may reach into a range.
fn blocks_near(part: &Part, num_blocks: u64, offset: u64, len: u64) -> impl Iterator<Item = u64> {
    let extent = u128::from(Family::of_part(part, 1).extent().unwrap_or(u64::MAX));
    let stride = u128::from(part.block_stride.max(1));
    let (start, end) = (u128::from(offset), u128::from(offset) + u128::from(len));
    let base = u128::from(part.offset);
    let first = start.checked_sub(base + extent).map_or(0, |distance| distance / stride);
    let last = end.checked_sub(base).map_or(0, |distance| distance / stride + 1);
    let clip = |v: u128| u64::try_from(v).unwrap_or(u64::MAX).min(num_blocks);
    clip(first)..clip(last)
}

#[cfg(test)]
mod tests;
