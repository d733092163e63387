//! How the blocks of two workers meet in the sequence.
//!
//! Both sides hold a sequence in blocks, but the block sizes may differ, and under context parallelism a rank holds
//! only every n-th run of tokens ([`Timeline`]). The ways in which two blocks can overlap repeat with a period, so one period is
//! worked out once: the distinct overlaps are [`Cut`]s, and for each destination block of the period the schedule
//! lists which source block it meets in which cut. Equal block sizes give one cut and a period of one block.
//! Nothing here depends on the number of blocks.

use std::collections::BTreeMap;

use kvspec::divisor::gcd;

use crate::request::Op;
use crate::timeline::Timeline;

/// Tokens of a local block that face as many tokens of a remote block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Cut {
    /// First token in the local block.
    pub(crate) local: u64,
    /// First token in the remote block.
    pub(crate) remote: u64,
    /// Number of tokens.
    pub(crate) tokens: u64,
}

/// A meeting of a destination block of the period with a source block, relative to the period's first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meeting {
    pub(crate) source_block: u64,
    pub(crate) cut: u32,
}

/// One period of two timelines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Schedule {
    /// Distinct cuts, sorted.
    pub(crate) cuts: Vec<Cut>,
    /// Source blocks in a period.
    pub(crate) source_period: u64,
    meetings: Vec<Meeting>,
    /// For destination block i of the period, `meetings[starts[i]..starts[i + 1]]`.
    starts: Vec<u32>,
}

/// One period has too many meetings to be planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooIrregular;

/// Bound on the runs that one period may have on either side.
const MAX_RUNS: u128 = 1 << 20;

impl Schedule {
    #[cfg(test)]
    fn new(local: Timeline, remote: Timeline, op: Op) -> Result<Self, TooIrregular> {
        Self::within(local, remote, op, &mut u128::MAX.clone())
    }

    /// The meetings of a source's blocks with a destination's. The runs of both in a period, each of which is looked at,
    /// are taken off `runs_left`.
    pub(crate) fn within(
        local: Timeline,
        remote: Timeline,
        op: Op,
        runs_left: &mut u128,
    ) -> Result<Self, TooIrregular> {
        let (destination, source) = op.destination_first(local, remote);
        let (dp, sp) = (destination.period(), source.period());
        let period = lcm(dp, sp).ok_or(TooIrregular)?;
        let runs = |t: &Timeline| period / t.period() * u128::from(t.runs_in_block());
        if runs(&destination) > MAX_RUNS || runs(&source) > MAX_RUNS {
            return Err(TooIrregular);
        }
        *runs_left = runs_left.checked_sub(runs(&destination) + runs(&source)).ok_or(TooIrregular)?;

        let small = |value: u128| u64::try_from(value).map_err(|_| TooIrregular);
        let num_destination_blocks = small(period / dp)?;
        let mut found: Vec<(u64, u64, Cut)> = Vec::new();
        let (mut d, mut s) = (0, 0);
        while d < runs(&destination) && s < runs(&source) {
            let (d_start, s_start) = (destination.run_start(d), source.run_start(s));
            let d_end = d_start + u128::from(destination.interleave);
            let s_end = s_start + u128::from(source.interleave);
            let (start, end) = (d_start.max(s_start), d_end.min(s_end));
            if start < end {
                // Place in the rank's own tokens: block and token in it.
                let place = |t: &Timeline, run: u128, run_start: u128| {
                    let token = run * u128::from(t.interleave) + (start - run_start);
                    Ok((small(token / u128::from(t.block_tokens))?, small(token % u128::from(t.block_tokens))?))
                };
                let (d_block, d_token) = place(&destination, d, d_start)?;
                let (s_block, s_token) = place(&source, s, s_start)?;
                let (local, remote) = op.local_first(d_token, s_token);
                let tokens = small(end - start)?;
                match found.last_mut() {
                    // Runs that follow each other on both ranks are one cut.
                    Some((db, sb, last))
                        if *db == d_block
                            && *sb == s_block
                            && last.local + last.tokens == local
                            && last.remote + last.tokens == remote =>
                    {
                        last.tokens += tokens;
                    }
                    _ => found.push((d_block, s_block, Cut { local, remote, tokens })),
                }
            }
            if d_end <= s_end { d += 1 } else { s += 1 }
        }

        let mut ids: BTreeMap<Cut, u32> = found.iter().map(|&(_, _, cut)| (cut, 0)).collect();
        for (id, slot) in (0u32..).zip(ids.values_mut()) {
            *slot = id;
        }
        let mut starts = Vec::new();
        let mut meetings = Vec::with_capacity(found.len());
        let mut next = found.iter().peekable();
        for block in 0..num_destination_blocks {
            starts.push(u32::try_from(meetings.len()).map_err(|_| TooIrregular)?);
            while let Some(&(_, source_block, cut)) = next.next_if(|(d_block, _, _)| *d_block == block) {
                meetings.push(Meeting { source_block, cut: ids[&cut] });
            }
        }
        starts.push(u32::try_from(meetings.len()).map_err(|_| TooIrregular)?);
        Ok(Self { cuts: ids.into_keys().collect(), source_period: small(period / sp)?, meetings, starts })
    }

    /// Whether two ranks hold any position in common: whether a run of one overlaps a run of the other.
    ///
    /// Run j of either side lies at `(j·size + rank)·interleave`, so the question is whether some difference of two
    /// such starts, a multiple of the common divisor of the two periods, falls within the runs' lengths.
    pub(crate) fn meet(a: Timeline, b: Timeline) -> bool {
        let period = |t: Timeline| i128::from(t.size) * i128::from(t.interleave);
        let start = |t: Timeline| i128::from(t.rank) * i128::from(t.interleave);
        let step = gcd(period(a), period(b));
        // a starts `distance` before b; they overlap if -b.interleave < -(distance + k·step) < a.interleave.
        let distance = (start(b) - start(a)).rem_euclid(step);
        distance < i128::from(a.interleave) || step - distance < i128::from(b.interleave)
    }

    /// Destination blocks in a period.
    pub(crate) fn destination_period(&self) -> usize {
        self.starts.len() - 1
    }

    /// The cut of every meeting in a period.
    pub(crate) fn meetings(&self) -> impl Iterator<Item = u32> {
        self.meetings.iter().map(|meeting| meeting.cut)
    }

    /// The meetings of each destination block from a list index on, with the list index of the first source block of
    /// its period; `None` when that index does not fit, which no list can reach.
    pub(crate) fn walk(&self, first: u64) -> impl Iterator<Item = Option<(u64, &[Meeting])>> {
        let blocks = self.starts.len() - 1;
        let mut period = (first / blocks as u64).checked_mul(self.source_period);
        let mut phase = usize::try_from(first % blocks as u64).unwrap_or(0);
        std::iter::from_fn(move || {
            let (from, to) = (self.starts[phase] as usize, self.starts[phase + 1] as usize);
            let met = period.map(|period| (period, &self.meetings[from..to]));
            phase += 1;
            if phase == blocks {
                phase = 0;
                period = period.and_then(|period| period.checked_add(self.source_period));
            }
            Some(met)
        })
    }
}

fn lcm(a: u128, b: u128) -> Option<u128> {
    (a / gcd(a, b)).checked_mul(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(block_tokens: u64) -> Timeline {
        Timeline { block_tokens, interleave: block_tokens, rank: 0, size: 1 }
    }

    #[test]
    fn equal_blocks_meet_in_one_cut() {
        let schedule = Schedule::new(whole(64), whole(64), Op::Read).unwrap();
        assert_eq!(schedule.cuts, [Cut { local: 0, remote: 0, tokens: 64 }]);
        let meetings = [Meeting { source_block: 0, cut: 0 }];
        let walked: Vec<_> = schedule.walk(7).take(2).collect();
        assert_eq!(walked, [Some((7, &meetings[..])), Some((8, &meetings[..]))]);
    }

    #[test]
    fn blocks_of_48_and_32_are_cut_at_their_common_refinement() {
        let schedule = Schedule::new(whole(48), whole(32), Op::Read).unwrap();
        let cut = |local, remote, tokens| Cut { local, remote, tokens };
        assert_eq!(schedule.cuts, [cut(0, 0, 32), cut(0, 16, 16), cut(16, 0, 32), cut(32, 0, 16)]);
        let (first, meetings) = schedule.walk(3).next().flatten().unwrap();
        assert_eq!(first, 3);
        assert_eq!(meetings, [Meeting { source_block: 1, cut: 1 }, Meeting { source_block: 2, cut: 2 }]);
    }

    #[test]
    fn context_parallel_ranks_that_agree_meet_whole() {
        let t = Timeline { block_tokens: 64, interleave: 16, rank: 1, size: 4 };
        let schedule = Schedule::new(t, t, Op::Read).unwrap();
        assert_eq!(schedule.cuts, [Cut { local: 0, remote: 0, tokens: 64 }]);
    }

    #[test]
    fn ranks_meet_exactly_where_a_schedule_has_a_cut() {
        for (a_size, b_size) in [(1, 4), (2, 4), (3, 4), (2, 3), (4, 4), (4, 8)] {
            for (a_run, b_run) in [(4, 4), (2, 4), (3, 2), (6, 4)] {
                for (a_rank, b_rank) in (0..a_size).flat_map(|a| (0..b_size).map(move |b| (a, b))) {
                    let a = Timeline { block_tokens: 12, interleave: a_run, rank: a_rank, size: a_size };
                    let b = Timeline { block_tokens: 12, interleave: b_run, rank: b_rank, size: b_size };
                    let cuts = Schedule::new(a, b, Op::Read).unwrap().cuts;
                    assert_eq!(Schedule::meet(a, b), !cuts.is_empty(), "{a:?} {b:?}");
                }
            }
        }
    }

    #[test]
    fn block_sizes_without_common_structure_are_refused_quickly() {
        assert_eq!(Schedule::new(whole(u64::MAX), whole(u64::MAX - 1), Op::Read), Err(TooIrregular));
    }
}
