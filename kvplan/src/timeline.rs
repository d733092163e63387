//! Which positions of a sequence a rank holds.
//!
//! Under context parallelism the ranks of a group are dealt runs of `interleave` tokens in turn: with two ranks,
//! blocks of 4 tokens and runs of 2, rank 1 holds
//!
//! ```text
//! position   0  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15
//! block            0  0        0  0        1  1        1  1
//! ```
//!
//! Without it a rank is dealt everything.

use kvspec::{GroupId, Usage, ValidSpec};

use crate::serve::Positions;

/// Which positions of a sequence the blocks of one group of one worker hold.
///
/// A group of state slots is a sequence of slots, one "token" long each, and never split over ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Timeline {
    pub(crate) block_tokens: u64,
    /// Tokens of a run that lies on one rank.
    pub(crate) interleave: u64,
    /// This rank, and the number of ranks that runs are dealt to.
    pub(crate) rank: u64,
    pub(crate) size: u64,
}

impl Timeline {
    /// The timeline of a group that the spec lists.
    pub(crate) fn of(spec: &ValidSpec, group: GroupId) -> Self {
        let (dcp, group) = (spec.topology.dcp, &spec.groups[group.index()]);
        match group.usage {
            Usage::Tokens => Self {
                block_tokens: group.block_tokens,
                interleave: spec.interleave_of(group),
                rank: u64::from(dcp.rank),
                size: u64::from(dcp.size),
            },
            Usage::State => Self { block_tokens: 1, interleave: 1, rank: 0, size: 1 },
        }
    }

    /// The same group at another rank of the tensor-parallel stage.
    pub(crate) fn of_rank(self, tp_rank: u32) -> Self {
        Self { rank: u64::from(tp_rank) % self.size, ..self }
    }

    /// Which positions of a sequence the rank holds.
    pub(crate) fn positions(&self) -> Positions {
        Positions { run: self.interleave, first: self.rank, every: self.size }
    }

    /// Tokens of the sequence that one block's worth of every rank covers.
    pub(crate) fn period(&self) -> u128 {
        u128::from(self.block_tokens) * u128::from(self.size)
    }

    pub(crate) fn runs_in_block(&self) -> u64 {
        self.block_tokens / self.interleave
    }

    /// First position in the sequence of the rank's run with this number.
    pub(crate) fn run_start(&self, run: u128) -> u128 {
        (run * u128::from(self.size) + u128::from(self.rank)) * u128::from(self.interleave)
    }

    /// Blocks that a prompt of so many tokens has at this rank.
    pub(crate) fn num_blocks(&self, tokens: u128) -> u64 {
        let own = tokens.saturating_sub(u128::from(self.rank) * u128::from(self.interleave));
        u64::try_from(own.div_ceil(self.period())).unwrap_or(u64::MAX)
    }

    /// Positions of which a list of `len` blocks from list index `first` says that this rank or a sibling of its
    /// context-parallel group may hold them.
    pub(crate) fn hull(&self, first: u64, len: u64) -> (u128, u128) {
        let (size, interleave) = (u128::from(self.size), u128::from(self.interleave));
        if len == 0 {
            return (0, u128::from(self.rank) * interleave);
        }
        let run = |block: u128| self.run_start(block * u128::from(self.runs_in_block()));
        let siblings = (size - 1) * interleave;
        let first = u128::from(first);
        let end = run(first + u128::from(len)) - size * interleave + interleave;
        // The sequence begins at 0: before it there is nothing that a sibling could hold.
        let start = if run(first) > siblings { run(first) - siblings } else { 0 };
        (start, end + siblings)
    }

    /// Whether block number `block` of this rank's list holds a position of `hull`.
    pub(crate) fn meets(&self, block: u64, hull: (u128, u128)) -> bool {
        let runs = u128::from(self.runs_in_block());
        let first = u128::from(block) * runs;
        // Runs of a block ascend: the first that ends after the hull's start decides.
        let (mut low, mut high) = (first, first + runs);
        while low < high {
            let mid = (low + high) / 2;
            if self.run_start(mid) + u128::from(self.interleave) <= hull.0 { low = mid + 1 } else { high = mid }
        }
        low < first + runs && self.run_start(low) < hull.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(block_tokens: u64) -> Timeline {
        Timeline { block_tokens, interleave: block_tokens, rank: 0, size: 1 }
    }

    #[test]
    fn a_rank_implies_what_its_siblings_may_hold() {
        let t = Timeline { block_tokens: 64, interleave: 64, rank: 2, size: 4 };
        assert_eq!(t.hull(0, 0), (0, 128));
        // Run 2 of the sequence: siblings may hold runs -1..=5.
        assert_eq!(t.hull(0, 1), (0, 6 * 64));
        assert_eq!(whole(64).hull(3, 2), (192, 320));
        assert!(whole(64).meets(3, (192, 320)) && !whole(64).meets(5, (192, 320)));
    }
}
