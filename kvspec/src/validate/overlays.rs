//! Groups of one pool lie over each other, id by id.
//!
//! An id of a pool belongs to one group at a time. So block i of one group may lie over block i of another, and must
//! not meet block j ≠ i of it: both ids may be in use at once. With j = i + d, the distance of two such blocks is
//! `d·stride_q + i·(stride_q - stride_p)` and what the pages add, for `0 ≤ i`, `1 ≤ d` and `i + d` below the number
//! of blocks: two loops, so [`Family`] decides it. Where strides differ the two loops bound each other; then the
//! search goes on from one d that any i could meet to the next, and most often there is none.

use crate::family::{Budget, Family, Overlap};
use crate::spec::Part;

/// The blocks of a part: block 0's cells, and how they repeat.
#[derive(Debug)]
pub(super) struct Blocks {
    page: Family,
    stride: u64,
    count: u64,
}

/// Two blocks of unlike ids, and the first byte that cells of theirs share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clash {
    pub(super) first_block: u64,
    pub(super) second_block: u64,
    pub(super) byte: u64,
}

/// The budget ended first.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Undecided;

impl Blocks {
    /// The blocks of a part of which every cell lies in its storage.
    pub(super) fn of(part: &Part, num_blocks: u64) -> Self {
        let mut page = Family::of_part(part, 1);
        page.fold();
        Self { page, stride: part.block_stride, count: num_blocks }
    }

    /// Block `id` alone.
    fn block(&self, id: u64) -> Family {
        Family { start: self.page.start + id * self.stride, ..self.page.clone() }
    }
}

/// Block i of one part and block j ≠ i of the other that share a byte, the lowest with i < j before any with i > j.
pub(super) fn clash(first: &Blocks, second: &Blocks, budget: &mut Budget) -> Result<Option<Clash>, Undecided> {
    let ids = match rising(first, second, budget)? {
        Some(ids) => Some(ids),
        None => rising(second, first, budget)?.map(|(j, i)| (i, j)),
    };
    let Some((first_block, second_block)) = ids else { return Ok(None) };
    let byte = first_shared(first.block(first_block), second.block(second_block), budget)?;
    Ok(Some(Clash { first_block, second_block, byte }))
}

/// The least d, and for it the least i, such that block i of `p` and block i + d of `q` share a byte.
fn rising(p: &Blocks, q: &Blocks, budget: &mut Budget) -> Result<Option<(u64, u64)>, Undecided> {
    let Some(last) = q.count.checked_sub(1) else { return Ok(None) };
    let mut d = 1;
    while d <= last {
        // Any i that leaves room for the least d: what is not there for all of them is not there.
        let all = |d: u64, num_d: u64| Steps { d, num_d, first: 0, num_i: p.count.min(q.count - d) };
        let Some(next) = lowest(d, last - d + 1, |at, count| all(at, count).meet(p, q, budget))? else {
            return Ok(None);
        };
        let at = |i: u64, count: u64| Steps { d: next, num_d: 1, first: i, num_i: count };
        if let Some(i) = lowest(0, p.count.min(q.count - next), |i, count| at(i, count).meet(p, q, budget))? {
            return Ok(Some((i, i + next)));
        }
        d = next + 1;
    }
    Ok(None)
}

/// Blocks `first..first + num_i` of one part, against those that are `d..d + num_d` further on of the other.
#[derive(Clone, Copy)]
struct Steps {
    d: u64,
    num_d: u64,
    first: u64,
    num_i: u64,
}

impl Steps {
    fn meet(self, p: &Blocks, q: &Blocks, budget: &mut Budget) -> Overlap {
        let (mut here, mut there) = (p.block(self.first), q.block(self.first + self.d));
        there.loops.push((self.num_d, q.stride));
        // Whichever stride is longer, its part moves on by the difference.
        let apart = (self.num_i, p.stride.abs_diff(q.stride));
        if p.stride > q.stride {
            here.loops.push(apart)
        } else {
            there.loops.push(apart)
        }
        here.overlap(&there, budget)
    }
}

/// The least number from `start` on, of `count`, for which a range of numbers meets something.
fn lowest(start: u64, count: u64, mut meets: impl FnMut(u64, u64) -> Overlap) -> Result<Option<u64>, Undecided> {
    let (mut start, mut count) = (start, count);
    let mut known = false;
    loop {
        let probe = if known { count / 2 } else { count };
        match meets(start, probe) {
            Overlap::Unknown => return Err(Undecided),
            Overlap::Disjoint if !known => return Ok(None),
            Overlap::Disjoint => (start, count) = (start + probe, count - probe),
            Overlap::Overlapping { .. } => count = probe,
        }
        known = true;
        if count <= 1 {
            return Ok(Some(start));
        }
    }
}

/// The first byte that two families share: of the first cell of one that meets the other, and the other's first there.
fn first_shared(mut a: Family, mut b: Family, budget: &mut Budget) -> Result<u64, Undecided> {
    narrow(&mut a, &b, budget)?;
    narrow(&mut b, &a, budget)?;
    Ok(a.start.max(b.start))
}

/// Leaves of `a` its first run that meets `b`, taking its loops by descending stride.
fn narrow(a: &mut Family, b: &Family, budget: &mut Budget) -> Result<(), Undecided> {
    for k in 0..a.loops.len() {
        let (count, stride) = a.loops[k];
        let start = a.start;
        let of = |a: &mut Family, index: u64, count: u64| {
            a.start = start + index * stride;
            a.loops[k].0 = count;
        };
        let found = lowest(0, count, |index, count| {
            of(a, index, count);
            a.overlap(b, budget)
        })?;
        of(a, found.unwrap_or(0), 1);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn blocks() -> impl Strategy<Value = Blocks> {
        let inner = prop::collection::vec((1..4u64, prop::sample::select(vec![0u64, 2, 5, 9, 40])), 0..3);
        (0..60u64, 1..7u64, inner, 0..40u64, 1..9u64).prop_map(|(start, run, loops, stride, count)| {
            let mut page = Family::new(start, run, loops);
            page.fold();
            Blocks { page, stride, count }
        })
    }

    fn bytes(blocks: &Blocks, id: u64) -> Vec<u64> {
        let mut starts = vec![blocks.page.start + id * blocks.stride];
        for &(count, stride) in &blocks.page.loops {
            starts = starts.iter().flat_map(|start| (0..count).map(move |i| start + i * stride)).collect();
        }
        starts.iter().flat_map(|&start| start..start + blocks.page.run).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]

        #[test]
        fn prop_a_clash_is_found_exactly_where_listing_every_byte_finds_one(p in blocks(), q in blocks()) {
            let clashes = (0..p.count).any(|i| {
                let here = bytes(&p, i);
                (0..q.count).any(|j| i != j && bytes(&q, j).iter().any(|byte| here.contains(byte)))
            });
            match clash(&p, &q, &mut Budget::default()) {
                Ok(None) => prop_assert!(!clashes),
                Ok(Some(Clash { first_block: i, second_block: j, byte })) => {
                    prop_assert!(i != j && i < p.count && j < q.count, "{} {}", i, j);
                    prop_assert!(bytes(&p, i).contains(&byte) && bytes(&q, j).contains(&byte), "{} {} {}", i, j, byte);
                }
                Err(Undecided) => prop_assert!(false, "out of budget"),
            }
        }
    }

    #[test]
    fn four_billion_blocks_of_unlike_strides_are_decided_in_a_few_steps() {
        let of = |start, run, stride| Blocks { page: Family::new(start, run, []), stride, count: u64::from(u32::MAX) };
        let mut budget = Budget(10_000);
        // Ten bytes of each thousand: the blocks drift apart by a byte each and meet again after 990.
        let met = clash(&of(0, 10, 1000), &of(0, 10, 999), &mut budget);
        assert_eq!(met, Ok(Some(Clash { first_block: 990, second_block: 991, byte: 990_009 })));
        let few = |stride| Blocks { count: 900, ..of(0, 10, stride) };
        assert_eq!(clash(&few(1000), &few(999), &mut budget), Ok(None));
        assert!(budget.0 > 0);
    }
}
