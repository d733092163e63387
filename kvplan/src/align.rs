//! Where block lists begin in the sequence, for those that do not say it.
//!
//! A list without `first` may be a whole prompt or its tail, and its length does not tell which. So nothing follows
//! from lengths, but a contradiction: two whole lists have as many blocks as one prompt fills on either side. How many
//! tokens the prompt has is not known within a block, so a list stands for an interval of lengths, and all questions
//! here are about such intervals: block sizes and context-parallel ranks are numbers in them.

use std::ops::RangeInclusive;

use crate::request::{Align, BlockList};
use crate::timeline::Timeline;

/// A list and the timeline of its group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listed<'a> {
    pub(crate) time: Timeline,
    pub(crate) list: &'a BlockList,
}

/// Why the places of two lists are not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unplaced {
    /// Neither list says where it begins, and no prompt fills both.
    Lengths,
    /// They end together in no way, or in several.
    Tails,
}

/// List indices that two lists begin at.
pub(crate) fn places(align: Option<Align>, a: Listed<'_>, b: Listed<'_>) -> Result<(u64, u64), Unplaced> {
    let heads = (a.list.start(), b.list.start());
    if a.list.blocks.is_empty() || b.list.blocks.is_empty() {
        return Ok(heads);
    }
    match (align, a.list.first, b.list.first) {
        (Some(Align::Head), ..) | (_, Some(_), Some(_)) => Ok(heads),
        (None, None, None) => match (a.prompts(0), b.prompts(0)) {
            ((a_short, a_long), (b_short, b_long)) if a_short.max(b_short) <= a_long.min(b_long) => Ok(heads),
            _ => Err(Unplaced::Lengths),
        },
        (None, ..) => Ok(heads),
        (Some(Align::Tail), Some(first), None) => only(b.tails_of(a, first)).map(|place| (first, place)),
        (Some(Align::Tail), None, Some(first)) => only(a.tails_of(b, first)).map(|place| (place, first)),
        (Some(Align::Tail), None, None) => match (b.tails_of(a, 0), a.tails_of(b, 0)) {
            // Both are the whole prompt: found from either side.
            (Some(of_b), Some(of_a)) if of_b == (0..=0) && of_a == (0..=0) => Ok((0, 0)),
            (of_b, None) => only(of_b).map(|place| (0, place)),
            (None, of_a) => only(of_a).map(|place| (place, 0)),
            (Some(_), Some(_)) => Err(Unplaced::Tails),
        },
    }
}

fn only(places: Option<RangeInclusive<u64>>) -> Result<u64, Unplaced> {
    places.filter(|places| places.start() == places.end()).map(|places| *places.start()).ok_or(Unplaced::Tails)
}

impl Listed<'_> {
    /// The shortest and the longest prompt, in tokens, whose last block of this group at this rank is the list's, if the
    /// list begins at `first`.
    fn prompts(&self, first: u64) -> (u128, u128) {
        let runs = u128::from(self.time.runs_in_block());
        let end = u128::from(first) + self.list.blocks.len() as u128;
        (self.time.run_start((end - 1) * runs) + 1, self.time.run_start(end * runs))
    }

    /// Where this list may begin if it ends with the prompt that ends with `whole`, which begins at `first`.
    fn tails_of(&self, whole: Listed<'_>, first: u64) -> Option<RangeInclusive<u64>> {
        let (short, long) = whole.prompts(first);
        let len = self.list.blocks.len() as u64;
        let (fewest, most) = (self.time.num_blocks(short), self.time.num_blocks(long));
        (most >= len).then(|| fewest.max(len) - len..=most - len)
    }
}

#[cfg(test)]
mod tests {
    use kvspec::{BlockId, GroupId};

    use super::*;

    fn time(block_tokens: u64, interleave: u64, rank: u64, size: u64) -> Timeline {
        Timeline { block_tokens, interleave, rank, size }
    }

    fn list(first: Option<u64>, len: usize) -> BlockList {
        BlockList { group: GroupId(0), first, blocks: vec![BlockId(0); len] }
    }

    fn placed(
        align: Option<Align>,
        a: (Timeline, &BlockList),
        b: (Timeline, &BlockList),
    ) -> Result<(u64, u64), Unplaced> {
        places(align, Listed { time: a.0, list: a.1 }, Listed { time: b.0, list: b.1 })
    }

    #[test]
    fn lengths_that_one_prompt_fills_agree_and_others_do_not() {
        let (whole, fine) = (time(64, 64, 0, 1), time(16, 16, 0, 1));
        for (blocks, small) in [(1, 1), (1, 4), (2, 5), (2, 8)] {
            assert_eq!(placed(None, (whole, &list(None, blocks)), (fine, &list(None, small))), Ok((0, 0)));
        }
        for (blocks, small) in [(1, 5), (2, 4), (2, 9)] {
            let found = placed(None, (whole, &list(None, blocks)), (fine, &list(None, small)));
            assert_eq!(found, Err(Unplaced::Lengths), "{blocks} of 64, {small} of 16");
        }
        assert_eq!(placed(None, (fine, &list(None, 1)), (fine, &list(None, 32))), Err(Unplaced::Lengths));
        // Who lists nothing asks for nothing, and who says where it begins has said it.
        assert_eq!(placed(None, (fine, &list(None, 0)), (fine, &list(None, 32))), Ok((0, 0)));
        assert_eq!(placed(None, (fine, &list(Some(31), 1)), (fine, &list(None, 32))), Ok((31, 0)));
        assert_eq!(placed(None, (fine, &list(None, 1)), (fine, &list(Some(0), 32))), Ok((0, 0)));
        assert_eq!(placed(Some(Align::Head), (fine, &list(None, 1)), (fine, &list(None, 32))), Ok((0, 0)));
    }

    #[test]
    fn tails_end_together_or_are_refused() {
        fn tail(a: (Timeline, &BlockList), b: (Timeline, &BlockList)) -> Result<(u64, u64), Unplaced> {
            placed(Some(Align::Tail), a, b)
        }
        let (coarse, fine) = (time(64, 64, 0, 1), time(16, 16, 0, 1));
        assert_eq!(tail((fine, &list(None, 1)), (fine, &list(None, 32))), Ok((31, 0)));
        assert_eq!(tail((fine, &list(None, 32)), (fine, &list(None, 2))), Ok((0, 30)));
        assert_eq!(tail((fine, &list(None, 3)), (fine, &list(None, 3))), Ok((0, 0)));
        // A window at the source that says where it begins.
        assert_eq!(tail((fine, &list(None, 1)), (fine, &list(Some(4), 8))), Ok((11, 4)));
        // 30 blocks of 16 are the 8th of 64, half full; of 8 blocks of 64 nobody knows how full the last one is.
        assert_eq!(tail((coarse, &list(None, 1)), (fine, &list(None, 30))), Ok((7, 0)));
        assert_eq!(tail((fine, &list(None, 2)), (coarse, &list(None, 8))), Err(Unplaced::Tails));
    }

    /// Every answer is the only one that holds for any prompt, by trying all.
    #[test]
    fn places_are_those_that_every_prompt_agrees_on() {
        let times = [time(4, 4, 0, 1), time(6, 6, 0, 1), time(4, 2, 1, 2), time(4, 4, 1, 3), time(1, 1, 0, 1)];
        let holds = |time: Timeline, prompt: u64| {
            (0..64)
                .filter(|&block| {
                    let own = |run| time.run_start(u128::from(block * time.runs_in_block() + run));
                    (0..time.runs_in_block()).any(|run| own(run) < u128::from(prompt))
                })
                .count() as u64
        };
        for (a, b) in times.iter().flat_map(|&a| times.iter().map(move |&b| (a, b))) {
            for (n, m) in (1..6u64).flat_map(|n| (1..6u64).map(move |m| (n, m))) {
                let (of_a, of_b) = (list(None, usize::try_from(n).unwrap()), list(None, usize::try_from(m).unwrap()));
                let mut tails: Vec<(u64, u64)> = Vec::new();
                for prompt in 1..120 {
                    let (k, l) = (holds(a, prompt), holds(b, prompt));
                    if k >= n && l >= m && (k == n || l == m) {
                        tails.push((k - n, l - m));
                    }
                }
                tails.sort_unstable();
                tails.dedup();
                let whole = tails.contains(&(0, 0));
                assert_eq!(placed(None, (a, &of_a), (b, &of_b)).is_ok(), whole, "{a:?} {n} {b:?} {m}");
                let expected = if tails.len() == 1 { Ok(tails[0]) } else { Err(Unplaced::Tails) };
                assert_eq!(placed(Some(Align::Tail), (a, &of_a), (b, &of_b)), expected, "{a:?} {n} {b:?} {m}");
            }
        }
    }
}
