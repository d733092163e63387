//! A repeated request allocates nothing per descriptor. Debug builds prove every answer, which allocates, so this is
//! compiled without debug assertions only: `cargo test --release -p kvplan --test allocations`.
#![cfg(not(debug_assertions))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use kvplan::{BlockList, Descriptors, PairOptions, PairPlan, Request};
use kvspec::{BlockId, CacheSpec, GroupId, ValidSpec};
use serde_json::json;

/// Counts the allocations of each thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed on to the system's allocator unchanged; counting touches no memory of the caller.
unsafe impl GlobalAlloc for Counting {
    // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: as promised by the caller.
        unsafe { System.alloc(layout) }
    }

    // SAFETY: the caller keeps the contract of `GlobalAlloc::dealloc`.
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as promised by the caller.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Three latent layers, each block's pages apart from each other.
fn spec(block_tokens: u64, num_blocks: u64) -> ValidSpec {
    let page = block_tokens * 8;
    let layer = |i: u64| {
        json!({"name": format!("layers.{i}"), "group": 0, "kind": "mla", "parts": [{"name": "latent", "storage": 0,
            "offset": i * num_blocks * page, "block_stride": page, "sharding": "replicated",
            "units": {"count": 1, "stride": page}, "tokens": [{"count": block_tokens, "stride": 8}], "content": 8}]})
    };
    let spec = json!({"version": 1, "fingerprint": {"model": "m"},
        "storages": [{"base": 4096, "len": 3 * num_blocks * page, "mem": "dram"}],
        "groups": [{"pool": 0, "block_tokens": block_tokens, "num_blocks": num_blocks}],
        "layers": [layer(0), layer(1), layer(2)]});
    CacheSpec::from_json(&spec.to_string()).unwrap().validate().unwrap()
}

/// Descriptors and allocations of the second of two equal requests; destination blocks in no order.
fn repeated(local_tokens: u64, blocks: u32) -> (usize, u64) {
    let (local, remote) = (spec(local_tokens, 20_011), spec(16, 20_011));
    let plan = PairPlan::new(&local, &remote, &PairOptions::default()).unwrap();
    let list = |step: u32, len: u32| {
        let blocks = (0..len).map(|i| BlockId((i + 1) * step % 20_011)).collect();
        vec![BlockList { group: GroupId(0), first: None, blocks }]
    };
    let remote_blocks = u32::try_from(u64::from(blocks) * local_tokens / 16).unwrap();
    let request = Request { local: list(7_001, blocks), remote: list(9_001, remote_blocks), ..Default::default() };
    let mut answer = Descriptors::new();
    plan.descriptors(&request, &mut answer).unwrap();
    let before = ALLOCATIONS.with(Cell::get);
    plan.descriptors(&request, &mut answer).unwrap();
    (answer.as_slice().len(), ALLOCATIONS.with(Cell::get) - before)
}

#[test]
fn a_repeated_request_allocates_nothing_for_its_descriptors() {
    // Equal blocks meet in one cut; blocks of 64 and 16 tokens in four.
    for local_tokens in [16, 64] {
        for blocks in [40, 4_000] {
            let (descriptors, allocations) = repeated(local_tokens, blocks);
            assert!(descriptors > blocks as usize, "{descriptors} descriptors");
            println!("{local_tokens} tokens, {blocks} blocks: {descriptors} descriptors, {allocations} allocations");
            assert!(allocations <= 2, "{allocations} allocations for {descriptors} descriptors");
        }
    }
}
