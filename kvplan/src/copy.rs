//! The strided-copy algebra: one small data type that every plan is made of.
//!
//! A [`Copy`](struct@Copy) says that for every index of a loop nest, `run` bytes on one side correspond to `run` bytes on the
//! other. Whole rows, per-layer pages, head slices, interleaved K and V, token ranges and SSM sub-projections are
//! not cases here: they are what the normal form looks like for different numbers. Two rewrites reach it, and both
//! keep the set of byte pairs as it is: a loop whose strides equal the run becomes a longer run, or two loops that
//! are one arithmetic progression become one ([`Copy::new`]); two copies whose runs touch on both sides become one
//! ([`merge`]).

use std::cmp::Reverse;

use kvspec::StorageIndex;

use crate::rows::PartRef;

/// One loop of a [`Copy`](struct@Copy): `count` steps, each so many bytes apart on either side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Loop {
    /// Steps; above 1 in normal form.
    pub(crate) count: u64,
    /// Bytes between steps at the local side.
    pub(crate) local_stride: u64,
    /// Bytes between steps at the remote side.
    pub(crate) remote_stride: u64,
}

/// Byte pairs of a strided copy: for every index of `loops`, `run` bytes at `local + Σ i·local_stride` correspond
/// to `run` bytes at `remote + Σ i·remote_stride`.
///
/// Offsets are bytes from the base of a storage, for block 0; a block adds its number times its stride.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Copy {
    /// Local offset of the first run.
    pub(crate) local: u64,
    /// Remote offset of the first run.
    pub(crate) remote: u64,
    /// Contiguous bytes.
    pub(crate) run: u64,
    /// Loop nest, largest local stride first.
    pub(crate) loops: Vec<Loop>,
}

impl Copy {
    /// A copy in normal form.
    pub(crate) fn new(local: u64, remote: u64, run: u64, loops: impl IntoIterator<Item = Loop>) -> Self {
        let mut loops: Vec<Loop> = loops.into_iter().filter(|l| l.count > 1).collect();
        loops.sort_unstable_by_key(|l| Reverse((l.local_stride, l.remote_stride)));
        let mut copy = Self { local, remote, run, loops };
        copy.collapse();
        copy
    }

    /// Turns loops into longer runs and joins loops that are one progression, until neither applies.
    fn collapse(&mut self) {
        self.loops.dedup_by(|inner, outer| {
            let one = is_product(outer.local_stride, inner.local_stride, inner.count)
                && is_product(outer.remote_stride, inner.remote_stride, inner.count);
            if one {
                *outer = Loop { count: outer.count * inner.count, ..*inner };
            }
            one
        });
        while let Some(inner) = self.loops.last()
            && inner.local_stride == self.run
            && inner.remote_stride == self.run
        {
            self.run *= inner.count;
            self.loops.pop();
        }
    }

    /// Number of runs.
    pub(crate) fn num_runs(&self) -> u64 {
        self.loops.iter().fold(1, |runs, l| runs.saturating_mul(l.count))
    }

    /// Calls `visit(local, remote)` for every run.
    pub(crate) fn for_each_run(&self, visit: &mut impl FnMut(u64, u64)) {
        fn walk(loops: &[Loop], local: u64, remote: u64, visit: &mut impl FnMut(u64, u64)) {
            match loops.split_first() {
                None => visit(local, remote),
                Some((outer, inner)) => {
                    for i in 0..outer.count {
                        walk(inner, local + i * outer.local_stride, remote + i * outer.remote_stride, visit);
                    }
                }
            }
        }
        walk(&self.loops, self.local, self.remote, visit);
    }
}

fn is_product(product: u64, a: u64, b: u64) -> bool {
    a.checked_mul(b) == Some(product)
}

/// Where a copy lies and how its block offsets grow; copies that differ here never become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    /// Storage here.
    pub(crate) local_storage: StorageIndex,
    /// Bytes from block to block here.
    pub(crate) local_stride: u64,
    /// Storage at the peer.
    pub(crate) remote_storage: StorageIndex,
    /// Bytes from block to block at the peer.
    pub(crate) remote_stride: u64,
}

/// A copy of block 0, with its place and the local part it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    /// Storages and block strides.
    pub(crate) place: Place,
    /// Byte pairs.
    pub(crate) copy: Copy,
    /// The local part that its first byte belongs to.
    pub(crate) origin: PartRef,
}

/// Joins copies of the same place and loops whose runs touch on both sides, and collapses what came of it, until
/// neither rewrite applies.
pub(crate) fn merge(copies: &mut Vec<Placed>) {
    // The remote offset minus the local one: runs touch on both sides only at equal distance.
    let distance = |c: &Copy| c.remote.wrapping_sub(c.local);
    loop {
        copies.sort_unstable_by(|a, b| {
            let key = |p: &Placed| (p.place, distance(&p.copy), p.copy.local);
            (&a.copy.loops, key(a)).cmp(&(&b.copy.loops, key(b)))
        });
        let before = copies.len();
        copies.dedup_by(|next, last| {
            let touch = last.place == next.place
                && last.copy.loops == next.copy.loops
                && distance(&last.copy) == distance(&next.copy)
                && last.copy.local + last.copy.run == next.copy.local;
            if touch {
                last.copy.run += next.copy.run;
            }
            touch
        });
        if copies.len() == before {
            return;
        }
        for placed in copies.iter_mut() {
            placed.copy.collapse();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lp(count: u64, local_stride: u64, remote_stride: u64) -> Loop {
        Loop { count, local_stride, remote_stride }
    }

    #[test]
    fn dense_loops_become_one_run() {
        let copy = Copy::new(0, 100, 4, [lp(3, 4, 4), lp(2, 12, 12)]);
        assert_eq!(copy, Copy { local: 0, remote: 100, run: 24, loops: vec![] });
    }

    #[test]
    fn a_strided_progression_stays_one_loop() {
        let copy = Copy::new(0, 0, 4, [lp(2, 24, 48), lp(3, 8, 16), lp(1, 999, 7)]);
        assert_eq!(copy.loops, vec![lp(6, 8, 16)]);
    }

    #[test]
    fn merging_two_halves_collapses_the_loop_they_share() {
        let s = StorageIndex(0);
        let place = Place { local_storage: s, local_stride: 64, remote_storage: s, remote_stride: 64 };
        let origin = PartRef { layer: kvspec::LayerIndex(0), part: 0 };
        let half = |at| Placed { place, origin, copy: Copy::new(at, at, 4, [lp(5, 8, 8)]) };
        let mut copies = vec![half(4), half(0)];
        merge(&mut copies);
        assert_eq!(copies.len(), 1);
        assert_eq!(copies[0].copy, Copy { local: 0, remote: 0, run: 40, loops: vec![] });
    }
}
