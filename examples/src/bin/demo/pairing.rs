//! What a pair plan costs, in time and memory, for few and for many blocks.

use std::alloc::{GlobalAlloc, Layout as AllocLayout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use kvplan::{PairOptions, PairPlan};
use kvspec::Layout;

use crate::error::Error;
use crate::model;

/// The system's allocator, counting the bytes in use.
pub(crate) struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: AllocLayout) -> *mut u8 {
        IN_USE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: AllocLayout) -> *mut u8 {
        IN_USE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise. Without this, zeroed memory would be touched.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: AllocLayout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Pairing two workers of the demo's model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pairing {
    /// Blocks of each worker.
    pub(crate) num_blocks: u32,
    /// Median of many.
    pub(crate) seconds: f64,
    /// Bytes that the plan keeps allocated.
    pub(crate) bytes: usize,
}

/// Pairs a BLHNC prefill worker with an LBHNC decode worker of 1,000 and of 26,104 blocks each. Nothing of those sizes
/// is allocated: plans need addresses, not memory.
pub(crate) fn measure() -> Result<[Pairing; 2], Error> {
    Ok([pair(1_000)?, pair(26_104)?])
}

fn pair(num_blocks: u32) -> Result<Pairing, Error> {
    const TIMES: usize = 101;
    let spec = |layout, base| model::arrange(layout, num_blocks)?.at(&[base])?.validate();
    let (decode, prefill) = (spec(Layout::Lbhnc, 1 << 40)?, spec(Layout::Blhnc, 1 << 41)?);
    let mut bytes = 0;
    let mut seconds = Vec::with_capacity(TIMES);
    for _ in 0..TIMES {
        let before = IN_USE.load(Ordering::Relaxed);
        let started = Instant::now();
        let plan = PairPlan::new(&decode, &prefill, &PairOptions::default())?;
        seconds.push(started.elapsed().as_secs_f64());
        bytes = IN_USE.load(Ordering::Relaxed).saturating_sub(before);
        drop(plan);
    }
    seconds.sort_by(f64::total_cmp);
    Ok(Pairing { num_blocks, seconds: seconds[TIMES / 2], bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_plan_has_one_size_for_all_numbers_of_blocks() {
        // Other tests allocate at the same time; the smallest difference is the plan's own.
        let smallest = |num_blocks| (0..20).map(|_| pair(num_blocks).unwrap().bytes).min().unwrap();
        let (few, many) = (smallest(1_000), smallest(26_104));
        assert!(few > 0 && many.abs_diff(few) < few / 4, "{few} and {many} bytes");
    }
}
