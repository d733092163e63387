//! Two token axes, cut differently, brought to common factors.
//!
//! A part stores the states of a block along one or more factors (kernel blocks inside a logical block). Where two
//! parts meet, a range of states of one side faces an equally long range of the other, and each side's address is
//! affine only between the boundaries of its own factors. [`pieces`] splits the range at exactly those boundaries,
//! and keeps as a loop whatever repeats on both sides, so the number of pieces follows the shape of the factors and
//! not the number of states. Factors that do not divide each other (kernel blocks of 48 against 32) need no case of
//! their own: they only give more pieces.

use kvspec::Axis;

use crate::copy::Loop;

/// A range of states that is affine on both sides: a loop nest from the two starting offsets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) local: u64,
    pub(crate) remote: u64,
    pub(crate) loops: Vec<Loop>,
}

/// One side of a range: token factors and the index of the first state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct States<'a> {
    factors: &'a [Axis],
    start: u64,
}

impl<'a> States<'a> {
    pub(crate) fn new(factors: &'a [Axis], start: u64) -> Self {
        Self { factors, start }
    }

    /// States under one step of the outermost factor; 1 where there is no inner factor.
    fn inner(&self) -> u64 {
        self.factors.iter().skip(1).map(|axis| axis.count).product()
    }

    fn outer_stride(&self) -> u64 {
        self.factors.first().map_or(0, |axis| axis.stride)
    }

    /// Bytes that `count` states further are away, when that is the same from every state.
    fn step(&self, count: u64) -> Option<u64> {
        let inner = self.inner();
        count.is_multiple_of(inner).then(|| count / inner * self.outer_stride())
    }

    /// The same side, entered into the step of the outermost factor that holds its first state.
    fn enter(&self) -> (u64, Self) {
        let inner = self.inner();
        let offset = self.start / inner * self.outer_stride();
        (offset, Self { factors: self.factors.get(1..).unwrap_or(&[]), start: self.start % inner })
    }

    fn skip(&self, count: u64) -> Self {
        Self { start: self.start + count, ..*self }
    }
}

/// More than `limit` pieces: two cuttings that have almost no structure in common.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooManyPieces;

/// Splits `count` states into pieces, appended to `out`.
pub(crate) fn pieces(
    local: States<'_>,
    remote: States<'_>,
    count: u64,
    limit: usize,
    out: &mut Vec<Piece>,
) -> Result<(), TooManyPieces> {
    let mut walk = Walk { limit, loops: Vec::new(), out };
    walk.range(local, 0, remote, 0, count)
}

struct Walk<'a> {
    limit: usize,
    loops: Vec<Loop>,
    out: &'a mut Vec<Piece>,
}

impl Walk<'_> {
    fn range(
        &mut self,
        local: States<'_>,
        local_offset: u64,
        remote: States<'_>,
        remote_offset: u64,
        count: u64,
    ) -> Result<(), TooManyPieces> {
        if count == 0 {
            return Ok(());
        }
        let unit = local.inner().max(remote.inner());
        if unit == 1 {
            let (l, r) = (local.outer_stride(), remote.outer_stride());
            return self.emit(
                local_offset + local.start * l,
                remote_offset + remote.start * r,
                Loop { count, local_stride: l, remote_stride: r },
            );
        }
        let local_is_coarse = local.inner() == unit;
        let coarse = if local_is_coarse { local } else { remote };
        // Descends into one step of the coarse side; the other side keeps its factors.
        let enter = |walk: &mut Self, done: u64, count: u64| {
            let (l, r) = (local.skip(done), remote.skip(done));
            if local_is_coarse {
                let (offset, l) = l.enter();
                walk.range(l, local_offset + offset, r, remote_offset, count)
            } else {
                let (offset, r) = r.enter();
                walk.range(l, local_offset, r, remote_offset + offset, count)
            }
        };

        let head = count.min((unit - coarse.start % unit) % unit);
        if head > 0 {
            enter(self, 0, head)?;
        }
        let whole = (count - head) / unit;
        if whole > 0 {
            match (local.step(unit), remote.step(unit)) {
                (Some(local_stride), Some(remote_stride)) => {
                    self.loops.push(Loop { count: whole, local_stride, remote_stride });
                    enter(self, head, unit)?;
                    self.loops.pop();
                }
                _ => (0..whole).try_for_each(|i| enter(self, head + i * unit, unit))?,
            }
        }
        let done = head + whole * unit;
        if done < count { enter(self, done, count - done) } else { Ok(()) }
    }

    fn emit(&mut self, local: u64, remote: u64, innermost: Loop) -> Result<(), TooManyPieces> {
        if self.out.len() >= self.limit {
            return Err(TooManyPieces);
        }
        let loops = self.loops.iter().copied().chain([innermost]).collect();
        self.out.push(Piece { local, remote, loops });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn address(factors: &[Axis], mut index: u64) -> u64 {
        let mut sum = 0;
        for (level, axis) in factors.iter().enumerate().rev() {
            let i = if level == 0 { index } else { index % axis.count };
            sum += i * axis.stride;
            index /= axis.count;
        }
        sum
    }

    fn factors() -> impl Strategy<Value = Vec<Axis>> {
        prop::collection::vec((1..5u64, 1..100u64).prop_map(|(count, stride)| Axis { count, stride }), 0..4)
    }

    proptest! {
        #[test]
        fn pieces_pair_every_state_once(l in factors(), r in factors(), ls in 0..64u64, rs in 0..64u64, n in 0..64u64) {
            let size = |f: &[Axis]| f.iter().map(|a| a.count).product::<u64>();
            let (ls, rs) = (ls % size(&l), rs % size(&r));
            let n = n.min(size(&l) - ls).min(size(&r) - rs);
            let mut out = Vec::new();
            pieces(States::new(&l, ls), States::new(&r, rs), n, usize::MAX, &mut out).unwrap();
            let mut found = Vec::new();
            for piece in out {
                let copy = crate::copy::Copy { local: piece.local, remote: piece.remote, run: 1, loops: piece.loops };
                copy.for_each_run(&mut |a, b| found.push((a, b)));
            }
            let mut expected: Vec<_> = (0..n).map(|i| (address(&l, ls + i), address(&r, rs + i))).collect();
            found.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(found, expected);
        }
    }
}
