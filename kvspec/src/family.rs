//! Strided families of byte ranges, and whether two of them meet.
//!
//! The cells of a part are a *family*: `run` bytes at `start + Σ iₖ·strideₖ` for every index of a loop nest. A
//! pool may have four billion blocks, so whether two families share a byte is never decided by listing them. It
//! is a bounded integer problem: two families meet when some difference of their indices puts the distance of
//! the two runs below their lengths. The search takes the variables by descending stride, leaves a branch
//! when what remains cannot reach the target or the common divisor of the remaining strides skips it, and
//! solves the last two variables in closed form with Euclid's algorithm. Layouts whose strides nest, which is
//! nearly all of them, are decided in a few steps; a work [`Budget`] bounds the rest.
//!
//! ```
//! use kvspec::family::{Budget, Family, Overlap};
//!
//! // K and V packed: 256 bytes each, every 512 bytes, 64 tokens a block, four billion blocks.
//! let k = Family::new(0, 256, [(u64::from(u32::MAX), 32_768), (64, 512)]);
//! let v = Family { start: 256, ..k.clone() };
//! assert_eq!(k.overlap(&v, &mut Budget::default()), Overlap::Disjoint);
//! assert_eq!(k.overlap_self(&mut Budget::default()), Overlap::Disjoint);
//!
//! let misplaced = Family { start: 255, ..k.clone() };
//! assert!(matches!(k.overlap(&misplaced, &mut Budget::default()), Overlap::Overlapping { .. }));
//! ```

use crate::divisor::gcd;
use crate::spec::Part;

/// `run` bytes at `start + Σ iₖ·strideₖ`, `0 ≤ iₖ < countₖ`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Family {
    /// Address of the first byte of the run with all indices 0.
    pub start: u64,
    /// Bytes of one run.
    pub run: u64,
    /// `(count, stride)` of each loop, in any order; loops of count 1 are dropped by [`Family::new`].
    pub loops: Vec<(u64, u64)>,
}

/// Whether two families share a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlap {
    /// They share none.
    Disjoint,
    /// They share one.
    Overlapping {
        /// Distance from the start of one run of the first family to the start of the run of the second that
        /// it meets: the second's start minus the first's.
        distance: i128,
    },
    /// The work budget ended first; nothing is known.
    Unknown,
}

/// How much work may be done, in steps of about ten nanoseconds. One budget can be handed through many calls, so that
/// all that a peer's word sets in motion has one bound. A step is charged for what it costs, not for being one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget(pub u64);

impl Budget {
    /// What everything may cost that connecting a peer sets in motion: a tenth of a second.
    pub const CONNECT: Budget = Budget(10_000_000);

    /// Takes `amount` off the budget; `false` when it is used up.
    pub fn spend(&mut self, amount: u64) -> bool {
        match self.0.checked_sub(amount) {
            Some(left) => {
                self.0 = left;
                true
            }
            None => {
                self.0 = 0;
                false
            }
        }
    }
}

impl Default for Budget {
    /// A fifth of a second at most.
    fn default() -> Self {
        Self(20_000_000)
    }
}

impl Family {
    /// A family; loops of count 1 have no effect and are dropped.
    pub fn new(start: u64, run: u64, loops: impl IntoIterator<Item = (u64, u64)>) -> Self {
        Self { start, run, loops: loops.into_iter().filter(|&(count, _)| count != 1).collect() }
    }

    /// The cells of a part over all blocks of its group, relative to the storage's base.
    #[must_use]
    pub fn of_part(part: &Part, num_blocks: u64) -> Self {
        let axes = part.tokens.iter().map(|axis| (axis.count, axis.stride));
        let outer = [(num_blocks, part.block_stride), (part.units.count, part.units.stride)];
        Self::new(part.offset, part.content, outer.into_iter().chain(axes))
    }

    /// Sorts the loops by descending stride, and makes those that continue their run part of it: the same bytes, in
    /// fewer and longer runs.
    pub fn fold(&mut self) {
        self.loops.sort_unstable_by_key(|&(_, stride)| std::cmp::Reverse(stride));
        while let Some(&(count, stride)) = self.loops.last()
            && stride == self.run
            && let Some(run) = self.run.checked_mul(count)
        {
            self.run = run;
            self.loops.pop();
        }
    }

    /// Bytes from the first byte to behind the last one; `None` if that is above `u64::MAX` or the family is
    /// empty.
    #[must_use]
    pub fn extent(&self) -> Option<u64> {
        let mut extent = u128::from(self.run);
        for &(count, stride) in &self.loops {
            let last = u128::from(count.checked_sub(1)?) * u128::from(stride);
            extent = extent.checked_add(last)?;
        }
        u64::try_from(extent).ok()
    }

    /// Whether a byte belongs to both families.
    #[must_use]
    pub fn overlap(&self, other: &Self, budget: &mut Budget) -> Overlap {
        if self.is_empty() || other.is_empty() {
            return Overlap::Disjoint;
        }
        // start + Σ i·s of the other minus that of self, in terms that start at 0: the least distance is the
        // other's start minus self's last start.
        let mut terms = Vec::with_capacity(self.loops.len() + other.loops.len());
        let mut least = i128::from(other.start) - i128::from(self.start);
        for &(count, stride) in &self.loops {
            let Some(reach) = reach(count, stride) else { return Overlap::Unknown };
            least -= reach;
            terms.push((i128::from(count - 1), i128::from(stride)));
        }
        for &(count, stride) in &other.loops {
            if reach(count, stride).is_none() {
                return Overlap::Unknown;
            }
            terms.push((i128::from(count - 1), i128::from(stride)));
        }
        // They meet when -other.run < distance < self.run.
        let low = 1 - i128::from(other.run) - least;
        let high = i128::from(self.run) - 1 - least;
        Problem::new(terms).solve(low, high, budget).map_or(Overlap::Unknown, |found| match found {
            Some(sum) => Overlap::Overlapping { distance: sum + least },
            None => Overlap::Disjoint,
        })
    }

    /// Whether two runs of this family, with different indices, share a byte.
    #[must_use]
    pub fn overlap_self(&self, budget: &mut Budget) -> Overlap {
        if self.is_empty() {
            return Overlap::Disjoint;
        }
        let mut loops: Vec<(u64, u64)> = self.loops.iter().copied().filter(|&(count, _)| count > 1).collect();
        loops.sort_unstable_by_key(|&(_, stride)| std::cmp::Reverse(stride));
        if loops.iter().any(|&(count, stride)| reach(count, stride).is_none()) {
            return Overlap::Unknown;
        }
        // Nested strides, the usual case: every loop steps over all that the faster loops reach.
        let mut span = i128::from(self.run);
        let nested = loops.iter().rev().all(|&(count, stride)| {
            let nested = i128::from(stride) >= span;
            span += reach(count, stride).unwrap_or(0);
            nested
        });
        if nested {
            return Overlap::Disjoint;
        }
        // The difference of two index vectors, up to its sign, has a first loop whose difference is positive;
        // the differences of the loops after it are anything.
        for (first, &(count, stride)) in loops.iter().enumerate() {
            let mut least = i128::from(stride);
            let mut terms = vec![(i128::from(count - 2), i128::from(stride))];
            for &(count, stride) in &loops[first + 1..] {
                least -= reach(count, stride).unwrap_or(0);
                terms.push((2 * i128::from(count - 1), i128::from(stride)));
            }
            let run = i128::from(self.run);
            match Problem::new(terms).solve(1 - run - least, run - 1 - least, budget) {
                Err(OutOfBudget) => return Overlap::Unknown,
                Ok(Some(sum)) => return Overlap::Overlapping { distance: sum + least },
                Ok(None) => {}
            }
        }
        Overlap::Disjoint
    }

    fn is_empty(&self) -> bool {
        self.run == 0 || self.loops.iter().any(|&(count, _)| count == 0)
    }
}

/// `(count - 1)·stride`, if it leaves room for sums: address arithmetic stays far inside 128 bits.
fn reach(count: u64, stride: u64) -> Option<i128> {
    let reach = i128::from(count).checked_sub(1)?.checked_mul(i128::from(stride))?;
    (reach <= i128::from(u64::MAX)).then_some(reach)
}

/// Terms of one problem, so that recursion stays shallow. Two disjoint families within 64 bits of addresses have
/// fewer: every loop at least doubles the bytes.
const MAX_TERMS: usize = 128;

#[derive(Debug)]
struct OutOfBudget;

/// Steps for each term of a problem that is set up.
const TERM_STEPS: u64 = 4;
/// Steps for a value of one variable that is tried.
const NODE_STEPS: u64 = 6;
/// Steps for a round of Euclid's algorithm.
const EUCLID_STEPS: u64 = 6;

/// Is there `0 ≤ xₖ ≤ nₖ` with `low ≤ Σ xₖ·sₖ ≤ high`?
struct Problem {
    /// `(n, s)` with n, s ≥ 1, by descending stride, strides distinct.
    terms: Vec<(i128, i128)>,
    /// For each index k: Σ n·s of the terms from k on.
    reach: Vec<i128>,
    /// For each index k: greatest common divisor of the strides from k on; 0 behind the last.
    divisor: Vec<i128>,
}

impl Problem {
    fn new(mut terms: Vec<(i128, i128)>) -> Self {
        terms.retain(|&(n, s)| n > 0 && s > 0);
        terms.sort_unstable_by_key(|&(_, s)| std::cmp::Reverse(s));
        terms.dedup_by(|later, kept| {
            let same = later.1 == kept.1;
            if same {
                kept.0 += later.0;
            }
            same
        });
        let mut reach = vec![0; terms.len() + 1];
        let mut divisor = vec![0; terms.len() + 1];
        for (k, &(n, s)) in terms.iter().enumerate().rev() {
            reach[k] = reach[k + 1] + n * s;
            divisor[k] = gcd(s, divisor[k + 1]);
        }
        Self { terms, reach, divisor }
    }

    /// A reachable sum in `low..=high`.
    fn solve(&self, low: i128, high: i128, budget: &mut Budget) -> Result<Option<i128>, OutOfBudget> {
        if !budget.spend(self.terms.len() as u64 * TERM_STEPS) || self.terms.len() > MAX_TERMS {
            return Err(OutOfBudget);
        }
        if low > high { Ok(None) } else { self.search(0, low, high, budget) }
    }

    fn search(&self, k: usize, low: i128, high: i128, budget: &mut Budget) -> Result<Option<i128>, OutOfBudget> {
        if !budget.spend(NODE_STEPS) {
            return Err(OutOfBudget);
        }
        if high < 0 || low > self.reach[k] {
            return Ok(None);
        }
        if low <= 0 {
            return Ok(Some(0));
        }
        if high >= self.reach[k] {
            return Ok(Some(self.reach[k]));
        }
        // Now 0 < low ≤ high < reach, so at least one term is left.
        let divisor = self.divisor[k];
        if high / divisor * divisor < low {
            return Ok(None);
        }
        let (n, s) = self.terms[k];
        let rest = self.reach[k + 1];
        let first = ceil_div(low - rest, s).max(0);
        let last = (high / s).min(n);
        match self.terms.len() - k {
            // The divisor test above has found a multiple of the one stride.
            1 => return Ok(Some(high / s * s)),
            2 => return two_terms((first, last, s), self.terms[k + 1], (low, high), budget),
            _ => {}
        }
        // The next loops' reach decides how many values of x come into question: one or two when strides nest.
        let mut x = last;
        while x >= first {
            if let Some(sum) = self.search(k + 1, low - x * s, high - x * s, budget)? {
                return Ok(Some(sum + x * s));
            }
            x -= 1;
        }
        Ok(None)
    }
}

/// A sum `x·s + y·t` in `low..=high` with `first ≤ x ≤ last` and `0 ≤ y ≤ n`, where every such x leaves an
/// interval that meets `0..=n·t`.
fn two_terms(
    (first, last, s): (i128, i128, i128),
    (n, t): (i128, i128),
    (low, high): (i128, i128),
    budget: &mut Budget,
) -> Result<Option<i128>, OutOfBudget> {
    if first > last {
        return Ok(None);
    }
    // A multiple of t lies in [low - x·s, high - x·s] when (high - x·s) mod t ≤ high - low. It may lie outside
    // 0..=n·t, but then the nearer end lies in the interval as well.
    let width = high - low;
    let steps = if width >= t - 1 {
        Some(0)
    } else {
        let at_first = (high - first * s).rem_euclid(t);
        // at_first - k·s ≡ something in 0..=width, that is k·s ≡ at_first - width ..= at_first.
        let (l, r) = (at_first - width, at_first);
        if l <= 0 { Some(0) } else { first_hit(s.rem_euclid(t), t, l, r, budget)? }
    };
    let Some(x) = steps.and_then(|steps| first.checked_add(steps)).filter(|&x| x <= last) else { return Ok(None) };
    let y = (high - x * s).div_euclid(t).clamp(0, n);
    Ok(Some(x * s + y * t))
}

/// The least `k ≥ 0` with `l ≤ a·k mod m ≤ r`, where `0 ≤ a < m` and `0 < l ≤ r < m`.
fn first_hit(a: i128, m: i128, l: i128, r: i128, budget: &mut Budget) -> Result<Option<i128>, OutOfBudget> {
    if !budget.spend(EUCLID_STEPS) {
        return Err(OutOfBudget);
    }
    if a == 0 {
        return Ok(None);
    }
    let direct = ceil_div(l, a);
    if direct * a <= r {
        return Ok(Some(direct));
    }
    // No multiple of a lies in l..=r, so a·k - m·j does for some j > 0: m·j ≡ -r ..= -l (mod a).
    let j = first_hit(m % a, a, (-r).rem_euclid(a), (-l).rem_euclid(a), budget)?;
    Ok(j.map(|j| ceil_div(l + m * j, a)))
}

fn ceil_div(a: i128, b: i128) -> i128 {
    a.div_euclid(b) + i128::from(a.rem_euclid(b) != 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn starts(family: &Family) -> Vec<u64> {
        let mut starts = vec![family.start];
        for &(count, stride) in &family.loops {
            starts = starts.iter().flat_map(|start| (0..count).map(move |i| start + i * stride)).collect();
        }
        starts
    }

    fn meet(a: u64, a_run: u64, b: u64, b_run: u64) -> bool {
        a < b + b_run && b < a + a_run
    }

    fn families() -> impl Strategy<Value = Family> {
        let tame =
            prop::collection::vec((1..5u64, prop::sample::select(vec![0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 36])), 0..4);
        let wild = prop::collection::vec((1..6u64, 0..40u64), 0..4);
        (0..120u64, 1..5u64, prop_oneof![tame, wild]).prop_map(|(start, run, loops)| Family::new(start, run, loops))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]

        #[test]
        fn prop_overlap_agrees_with_enumeration(a in families(), b in families()) {
            let expected = starts(&a).iter().any(|&x| starts(&b).iter().any(|&y| meet(x, a.run, y, b.run)));
            match a.overlap(&b, &mut Budget::default()) {
                Overlap::Disjoint => prop_assert!(!expected),
                Overlap::Overlapping { distance } => {
                    prop_assert!(expected);
                    prop_assert!(distance < i128::from(a.run) && distance > -i128::from(b.run));
                    let real = starts(&a).iter().any(|&x| {
                        starts(&b).iter().any(|&y| i128::from(y) - i128::from(x) == distance)
                    });
                    prop_assert!(real, "no two runs are {distance} apart");
                }
                Overlap::Unknown => prop_assert!(false, "out of budget"),
            }
        }

        #[test]
        fn prop_self_overlap_agrees_with_enumeration(a in families()) {
            let all = starts(&a);
            let expected = (0..all.len()).any(|i| (0..i).any(|j| meet(all[i], a.run, all[j], a.run)));
            match a.overlap_self(&mut Budget::default()) {
                Overlap::Disjoint => prop_assert!(!expected),
                Overlap::Overlapping { .. } => prop_assert!(expected),
                Overlap::Unknown => prop_assert!(false, "out of budget"),
            }
        }

        #[test]
        fn prop_first_hit_agrees_with_counting(m in 2..60i128, a in 0..60i128, l in 1..60i128, w in 0..60i128) {
            let (a, l) = (a % m, 1 + l % (m - 1));
            let r = (l + w).min(m - 1);
            let expected = (0..m).find(|k| (l..=r).contains(&(a * k % m)));
            prop_assert_eq!(first_hit(a, m, l, r, &mut Budget::default()).unwrap(), expected);
        }
    }

    #[test]
    fn numbers_near_two_to_the_64_are_decided_or_refused_without_overflow() {
        let far = Family::new(u64::MAX - 8, 8, []);
        let near = Family::new(0, 8, [(3, u64::MAX / 2 - 4)]);
        assert!(matches!(far.overlap(&near, &mut Budget::default()), Overlap::Overlapping { .. }));
        let beyond = Family::new(0, 1, [(u64::MAX, u64::MAX), (u64::MAX, u64::MAX)]);
        assert_eq!(beyond.overlap(&near, &mut Budget::default()), Overlap::Unknown);
        assert_eq!(beyond.extent(), None);
    }

    #[test]
    fn billions_of_interleaved_blocks_with_unlike_strides_take_few_steps() {
        let mut budget = Budget(400);
        let a = Family::new(0, 6, [(4_000_000_000, 1024)]);
        let b = Family::new(7, 1, [(3_000_000_000, 1000)]);
        assert_eq!(a.overlap(&b, &mut budget), Overlap::Disjoint);
        let c = Family::new(7, 2, [(3_000_000_000, 1000)]);
        assert!(matches!(a.overlap(&c, &mut budget), Overlap::Overlapping { .. }));
    }

    #[test]
    fn strides_with_a_common_divisor_are_told_apart_at_once() {
        let primes = [1_000_003u64, 1_000_033, 1_000_037, 1_000_039, 1_000_081, 1_000_099, 1_000_117, 1_000_121];
        let a = Family::new(0, 1, primes.map(|p| (1_000_000, 2 * p)));
        let b = Family::new(1_000_000_000_001, 1, primes.map(|p| (1_000_000, 2 * p + 2)));
        assert_eq!(a.overlap(&b, &mut Budget(80)), Overlap::Disjoint);
    }

    #[test]
    fn a_hostile_nest_ends_with_the_budget() {
        // A subset-sum problem of 50 numbers.
        let mut state = 12_345u64;
        let mut strides = || {
            let mut next = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (2, (1 << 55) + (state >> 10))
            };
            std::array::from_fn::<_, 25, _>(|_| next())
        };
        let (a, b) = (Family::new(0, 1, strides()), Family::new(1 << 56, 1, strides()));
        let mut budget = Budget(100_000);
        assert_eq!(a.overlap(&b, &mut budget), Overlap::Unknown);
        assert_eq!(budget, Budget(0));
        let deep = Family::new(0, 1, (0..100_000).map(|i| (2, i + 1)));
        assert_eq!(deep.overlap_self(&mut Budget::default()), Overlap::Unknown);
    }
}
