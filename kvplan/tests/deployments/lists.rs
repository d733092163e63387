//! Block lists that fit each other: what a prompt leaves at each rank.

use kvplan::BlockList;
use kvspec::{BlockId, GroupId};

use super::dice::Dice;
use super::side::Side;

/// What is asked for.
#[derive(Clone, Debug)]
pub(super) struct Prompt {
    tokens: u64,
    /// Tokens before this are no longer held at the source.
    window: u64,
    /// Tokens before this are already at the destination.
    hit: u64,
    /// Slots of state at the source: first and number.
    slots: (u64, u64),
    /// One source entry that is a hole, as (group, entry), if any.
    source_hole: Option<(u64, u64)>,
    /// A source group without a list, if any.
    missing: Option<u64>,
}

impl Prompt {
    pub(super) fn draw(dice: &mut Dice) -> Prompt {
        let tokens = 1 + dice.below(40);
        let window = if dice.once_in(3) { dice.below(tokens) } else { 0 };
        let hit = if dice.once_in(2) { window + dice.below(tokens - window) } else { window };
        Prompt {
            tokens,
            window,
            hit,
            slots: (dice.below(2), 1 + dice.below(2)),
            source_hole: dice.once_in(10).then(|| (dice.below(2), dice.below(4))),
            missing: dice.once_in(24).then(|| dice.below(2)),
        }
    }
}

/// One group's list at one rank: entries, and whether there is a list at all.
#[derive(Clone, Debug, Default)]
pub(super) struct Entries {
    first: u64,
    num: u64,
    hole: Option<u64>,
    left_out: bool,
    keep_empty: bool,
}

/// `entries[rank][group]` over all groups of the side.
pub(super) fn entries(side: &Side, prompt: &Prompt, is_source: bool, dice: &mut Dice) -> Vec<Vec<Entries>> {
    let ranks = side.num_ranks() as usize;
    let mut all = vec![Vec::new(); ranks];
    for (index, group) in (0u64..).zip(&side.groups) {
        let (first_hole, left_out, keep_empty) = (dice.once_in(4), dice.once_in(7), dice.below(2) == 1);
        let hole = dice.below(4);
        let mut of_ranks: Vec<(u64, u64)>;
        if group.is_state {
            let (first, num) = prompt.slots;
            let late = if is_source { 0 } else { dice.below(num) };
            of_ranks = vec![(first + late, num - late); ranks];
        } else {
            let from = if is_source { prompt.window } else { prompt.hit };
            let held = |from: u64| -> Vec<(u64, u64)> {
                (0..side.num_ranks()).map(|rank| held(side, group.block_tokens, rank, from, prompt.tokens)).collect()
            };
            of_ranks = held(from);
            // A rank that holds nothing cannot say where its siblings' windows start.
            if is_source && of_ranks.iter().any(|(_, num)| *num == 0) {
                of_ranks = held(0);
            }
        }
        for (of_rank, (first, num)) in all.iter_mut().zip(of_ranks) {
            of_rank.push(if is_source {
                let hole = prompt.source_hole.filter(|(group, _)| *group == index).map(|(_, entry)| entry);
                Entries { first, num, hole, left_out: prompt.missing == Some(index), keep_empty }
            } else {
                Entries { first, num, hole: first_hole.then_some(hole), left_out, keep_empty }
            });
        }
    }
    all
}

/// First and number of the blocks that hold some token of `[from, to)` at a rank.
fn held(side: &Side, block_tokens: u64, rank: u32, from: u64, to: u64) -> (u64, u64) {
    let (tp_rank, _) = side.place_of(rank);
    let (own, size) = (u64::from(tp_rank % side.dcp), u64::from(side.dcp));
    let run = side.interleave.unwrap_or(block_tokens);
    let sequence = |token: u64| (token / run * size + own) * run + token % run;
    let holds = |entry: &u64| {
        (entry * block_tokens..(entry + 1) * block_tokens).any(|token| (from..to).contains(&sequence(token)))
    };
    let entries: Vec<u64> = (0..to).filter(holds).collect();
    (entries.first().copied().unwrap_or(0), entries.len() as u64)
}

/// Blocks that each pool of a side needs, with some to spare.
pub(super) fn blocks_needed(side: &Side, entries: &[Vec<Entries>], slack: [u64; 2]) -> Vec<u64> {
    let needed = |rank: &Vec<Entries>, pool: usize| -> u64 {
        side.groups.iter().zip(rank).filter(|(group, _)| group.pool == pool).map(|(_, entries)| entries.num).sum()
    };
    (0..2).map(|pool| entries.iter().map(|rank| needed(rank, pool)).max().unwrap_or(0).max(1) + slack[pool]).collect()
}

/// The block lists of one rank.
pub(super) fn lists(
    side: &Side,
    rank: u32,
    entries: &[Entries],
    num_blocks: &[u64],
    dice: &mut Dice,
) -> Vec<BlockList> {
    let (_, stage) = side.place_of(rank);
    let mut free: Vec<Vec<u32>> = num_blocks
        .iter()
        .map(|num| {
            let mut ids: Vec<u32> = (0..u32::try_from(*num).expect("small")).collect();
            match dice.below(4) {
                0 => {}
                1 => ids.rotate_left(1),
                2 => ids.reverse(),
                _ => dice.shuffle(&mut ids),
            }
            ids
        })
        .collect();
    let mut lists = Vec::new();
    for (id, group) in side.groups_of(stage).into_iter().enumerate() {
        let entry = &entries[group];
        if entry.left_out || (entry.num == 0 && !entry.keep_empty) {
            continue;
        }
        let num = usize::try_from(entry.num).expect("small");
        let mut blocks: Vec<BlockId> = free[side.groups[group].pool].drain(..num).map(BlockId).collect();
        if let Some(hole) = entry.hole.and_then(|hole| usize::try_from(hole).ok())
            && let Some(block) = blocks.get_mut(hole)
        {
            *block = BlockId::HOLE;
        }
        lists.push(BlockList { group: GroupId(u32::try_from(id).expect("small")), first: Some(entry.first), blocks });
    }
    lists
}
