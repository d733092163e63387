//! What a request needs, worked out token by token and cell by cell.

use std::collections::{HashMap, HashSet};

use kvspec::{Axis, BlockId, GroupId, Layer, LayerName, Part, StorageIndex, Usage, ValidSpec};

use super::Steps;
use super::error::VerifyError;
use crate::align;
use crate::descriptor::ZeroRange;
use crate::layers::Layers;
use crate::lists::Places;
use crate::names::PartsByName;
use crate::refusal::RequestError;
use crate::request::{Align, BlockList, Op};
use crate::schedule::Schedule;
use crate::serve::served_units;
use crate::timeline::Timeline;

/// Bytes that must get from a source to a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Needed {
    pub(super) storage: StorageIndex,
    pub(super) offset: u64,
    pub(super) source_storage: StorageIndex,
    pub(super) source_offset: u64,
    pub(super) len: u64,
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
pub(super) fn join(moves: &mut Vec<Needed>) {
    moves.dedup_by(|next, last| last.absorb(next));
}

/// One worker and the lists that a request gives for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Listed<'a> {
    pub(super) spec: &'a ValidSpec,
    pub(super) lists: &'a [BlockList],
}

impl<'a> Listed<'a> {
    fn of(&self, group: GroupId) -> Option<&'a BlockList> {
        self.lists.iter().find(|list| list.group == group)
    }
}

/// Needed bytes, and destination ranges that no source holds, both sorted and joined.
pub(super) fn needed(
    destination: Listed<'_>,
    source: Listed<'_>,
    (op, align): (Op, Option<Align>),
    wanted: Option<&HashSet<&str>>,
    steps: &mut Steps,
) -> Result<(Vec<Needed>, Vec<ZeroRange>), VerifyError> {
    let mut places = Places::default();
    let (mut needed, mut zero) = (Vec::new(), Vec::new());
    for (to, from) in shares(destination.spec, source.spec, wanted) {
        steps.spend(destination.lists.len() as u64 + source.lists.len() as u64)?;
        let Some(list) = destination.of(to.group) else { continue };
        let empty = BlockList { group: from.group, first: None, blocks: Vec::new() };
        let source_list = source.of(from.group).unwrap_or(&empty);
        let here = align::Listed { time: Timeline::of(destination.spec, to.group), list };
        let there = align::Listed { time: Timeline::of(source.spec, from.group), list: source_list };
        let (local, remote) = op.local_first(here, there);
        // Ranks that never hold the same position owe each other nothing, wherever their lists begin.
        let (local, remote) = match Schedule::meet(local.time, remote.time) {
            true => places.of(align, local, remote)?,
            false => (local.list.start(), remote.list.start()),
        };
        let (first, source_first) = op.destination_first(local, remote);
        share_of_lists((&to, list, first), (&from, source_list, source_first), (&mut needed, &mut zero), steps)?;
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

/// The units of a part that move, as one side lists them.
struct Share<'a> {
    part: &'a Part,
    group: GroupId,
    deal: Deal,
    /// The first of them, counted from the first unit that this rank holds.
    first_unit: u64,
    num_units: u64,
}

/// Names of the layers that a request asks for; `None` for all.
pub(super) fn wanted<'a>(
    local: &'a ValidSpec,
    remote: &ValidSpec,
    layers: &'a Layers,
) -> Result<Option<HashSet<&'a str>>, RequestError> {
    let lists = |spec: &ValidSpec, name: &LayerName| spec.layers.iter().any(|layer| layer.name == *name);
    Ok(match layers {
        Layers::All => None,
        Layers::Named(names) => {
            if let Some(layer) = names.iter().find(|&name| !lists(local, name) && !lists(remote, name)) {
                return Err(RequestError::UnknownLayer { layer: layer.clone() });
            }
            Some(names.iter().map(LayerName::as_str).collect())
        }
        Layers::Range(range) => {
            let num_layers = local.layers.len();
            if range.start > range.end || range.end as usize > num_layers {
                return Err(RequestError::LayerRange { from: range.start, to: range.end, num_layers });
            }
            let within = local.layers.iter().zip(0..).filter(|(_, index)| range.contains(index));
            Some(within.map(|(layer, _)| layer.name.as_str()).collect())
        }
    })
}

/// Every part that the source serves the destination, as the destination and as the source list it.
fn shares<'a>(
    destination: &'a ValidSpec,
    source: &'a ValidSpec,
    wanted: Option<&HashSet<&str>>,
) -> Vec<(Share<'a>, Share<'a>)> {
    let at_source: HashMap<&str, &Layer> =
        source.layers.iter().filter(|layer| layer.transfer).map(|layer| (layer.name.as_str(), layer)).collect();
    let mut found = Vec::new();
    let is_wanted = |layer: &Layer| wanted.is_none_or(|wanted| wanted.contains(layer.name.as_str()));
    for layer in destination.layers.iter().filter(|layer| layer.transfer && is_wanted(layer)) {
        let Some(peer) = at_source.get(layer.name.as_str()) else { continue };
        let usage = destination.group_of(layer).usage;
        let there = PartsByName::new(peer);
        for to in &layer.parts {
            let Some(from) = there.find(to.name.as_str()) else { continue };
            let units = served_units((source, from), (destination, to), usage);
            if units.is_empty() {
                continue;
            }
            let share = |spec: &ValidSpec, group: GroupId, part: &'a Part| Share {
                part,
                group,
                deal: Deal::of(spec, group),
                first_unit: units.start - spec.units_of(part).start,
                num_units: units.end - units.start,
            };
            found.push((share(destination, layer.group, to), share(source, peer.group, from)));
        }
    }
    found
}

/// The cells of one part in the listed blocks.
fn share_of_lists(
    (to, list, first): (&Share<'_>, &BlockList, u64),
    (from, source_list, source_first): (&Share<'_>, &BlockList, u64),
    (needed, zero): (&mut Vec<Needed>, &mut Vec<ZeroRange>),
    steps: &mut Steps,
) -> Result<(), VerifyError> {
    let (to_axes, from_axes) = (axes(to.part), axes(from.part));
    let cell_steps = (1 + to_axes.len() + from_axes.len()) as u64;
    let held = |block: u64| -> Option<BlockId> {
        source_list.blocks.get(usize::try_from(block.checked_sub(source_first)?).ok()?).copied()
    };
    for (&block, index) in list.blocks.iter().zip(first..).filter(|(block, _)| !block.is_hole()) {
        for segment in segments(to.deal, from.deal, index, steps)? {
            let held = held(segment.source_block);
            for (state, source_state) in segment.states(to, from) {
                steps.spend(to.num_units.saturating_mul(cell_steps))?;
                for unit in 0..to.num_units {
                    let offset = cell(to.part, &to_axes, block, to.first_unit + unit, state);
                    let len = to.part.content;
                    let Some(source_block) = held else {
                        zero.push(ZeroRange { storage: to.part.storage, offset, len });
                        continue;
                    };
                    let next = Needed {
                        storage: to.part.storage,
                        offset,
                        source_storage: from.part.storage,
                        source_offset: cell(from.part, &from_axes, source_block, from.first_unit + unit, source_state),
                        len,
                    };
                    if !needed.last_mut().is_some_and(|last| last.absorb(&next)) {
                        needed.push(next);
                    }
                }
            }
        }
    }
    Ok(())
}

/// How a group's tokens are dealt over a sequence: runs of so many go to the ranks in turn. State is not dealt; a
/// slot counts as one token.
///
/// Read from the spec once more, and not taken from the planner's `Timeline`: a mistake there must not prove itself.
#[derive(Clone, Copy, Debug)]
struct Deal {
    block_tokens: u64,
    run: u64,
    rank: u64,
    size: u64,
}

impl Deal {
    fn of(spec: &ValidSpec, group: GroupId) -> Self {
        let (dcp, group) = (spec.topology.dcp, &spec.groups[group.index()]);
        match group.usage {
            Usage::State => Self { block_tokens: 1, run: 1, rank: 0, size: 1 },
            Usage::Tokens => Self {
                block_tokens: group.block_tokens,
                run: dcp.interleave.unwrap_or(group.block_tokens),
                rank: dcp.rank.into(),
                size: dcp.size.into(),
            },
        }
    }

    /// Position in the sequence of the rank's token number `own`.
    fn position(&self, own: u128) -> u128 {
        let run = u128::from(self.run);
        (own / run * u128::from(self.size) + u128::from(self.rank)) * run + own % run
    }

    /// Which of the rank's tokens lies at a position; `None` where it is another rank's.
    fn own(&self, position: u128) -> Option<u128> {
        let (run, size) = (u128::from(self.run), u128::from(self.size));
        (position / run % size == u128::from(self.rank)).then(|| position / run / size * run + position % run)
    }

    /// Tokens from a position to the end of its run.
    fn left(&self, position: u128) -> u64 {
        self.run - u64::try_from(position % u128::from(self.run)).unwrap_or(0)
    }
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

    /// Pairs of states: in the destination's block, in the source's block.
    fn states(&self, to: &Share<'_>, from: &Share<'_>) -> impl Iterator<Item = (u64, u64)> {
        // A block of `block_tokens` tokens holds `count` states, so a token's share is their ratio.
        let scale = |share: &Share<'_>, tokens: u64| {
            let count = share.part.tokens.iter().map(|axis| axis.count).product::<u64>();
            let states = u128::from(tokens) * u128::from(count) / u128::from(share.deal.block_tokens);
            u64::try_from(states).unwrap_or(u64::MAX)
        };
        let (first, source_first) = (scale(to, self.token), scale(from, self.source_token));
        (0..scale(to, self.tokens)).map(move |i| (first + i, source_first + i))
    }
}

/// The segments of the destination's list entry `index` that this source's rank owes.
fn segments(to: Deal, from: Deal, index: u64, steps: &mut Steps) -> Result<Vec<Segment>, VerifyError> {
    let mut found: Vec<Segment> = Vec::new();
    let mut token = 0;
    while token < to.block_tokens {
        steps.spend(1)?;
        let position = to.position(u128::from(index) * u128::from(to.block_tokens) + u128::from(token));
        let tokens = to.left(position).min(from.left(position)).min(to.block_tokens - token);
        let block_tokens = u128::from(from.block_tokens);
        if let Some(own) = from.own(position)
            && let Ok(source_block) = u64::try_from(own / block_tokens)
        {
            let source_token = u64::try_from(own % block_tokens).unwrap_or(0);
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
