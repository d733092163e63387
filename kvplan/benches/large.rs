//! A large deployment: prefill 64 workers of TP8 × PP4, decode 128 workers of TP16, requests of 128k tokens.
//!
//! `cargo bench -p kvplan --bench large` prints what planning costs one rank: time and memory to connect one peer, for
//! the first and for the last of all its peers, time to answer one request, and how evenly replicas are served.
#![allow(missing_docs, reason = "a benchmark")]

use std::alloc::{GlobalAlloc, Layout as MemoryLayout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kvplan::{BlockList, Deployment, Descriptors, PairOptions, PairPlan, Request, flows};
use kvspec::kinds::{Attention, Element, Indexer, Mla};
use kvspec::{Arrange, BlockId, Blocks, Fingerprint, GroupId, Layout, Pool, Role, Shard, Topology, ValidSpec};

/// Counts the bytes in use.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on to the system's allocator unchanged; counting touches no memory of the caller.
unsafe impl GlobalAlloc for Counting {
    // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
    unsafe fn alloc(&self, layout: MemoryLayout) -> *mut u8 {
        IN_USE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: as promised by the caller.
        unsafe { System.alloc(layout) }
    }

    // SAFETY: the caller keeps the contract of `GlobalAlloc::dealloc`.
    unsafe fn dealloc(&self, memory: *mut u8, layout: MemoryLayout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as promised by the caller.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const NUM_LAYERS: u32 = 60;
const BLOCK_TOKENS: u64 = 64;
const REQUEST_TOKENS: u64 = 128 * 1024;

/// 60 MLA layers, 20 of them with an indexer, and a GQA draft of 8 heads on the last stage.
fn rank(tp: Shard, pp: Shard) -> ValidSpec {
    let topology = Topology { tp, pp, ..Default::default() };
    let mut blocks = Blocks::tokens(BLOCK_TOKENS);
    for i in (0..NUM_LAYERS).filter(|i| i * pp.size / NUM_LAYERS == pp.rank) {
        blocks = blocks.layer(format!("layers.{i}.attn"), Mla::fp8());
        if i % 3 == 0 {
            blocks = blocks.layer_as(format!("layers.{i}.indexer"), Indexer::fp8(), Role::Indexer);
        }
    }
    if pp.rank + 1 == pp.size {
        blocks = blocks.layer_as("draft.0", Attention::new(8, 128, Element::BF16), Role::Draft);
    }
    let fingerprint = Fingerprint { model: "org/large".into(), ..Default::default() };
    let pool = Pool::new(Layout::Blhnc, 26_104).blocks(blocks);
    let arranged = Arrange::new(fingerprint, topology).pool(pool).build().expect("the geometry is sound");
    arranged.at(&[1 << 40]).expect("one storage").validate().expect("the spec is valid")
}

fn side(tp: u32, pp: u32) -> Vec<ValidSpec> {
    let shard = |rank, size| Shard { rank, size };
    (0..pp).flat_map(|stage| (0..tp).map(move |r| rank(shard(r, tp), shard(stage, pp)))).collect()
}

fn main() {
    let (prefill, decode) = (side(8, 4), side(16, 1));
    let reader = &decode[11];
    let options = PairOptions::default();

    // One decode rank against every rank of all 64 prefill workers: 2,048 peers.
    let mut plans = Vec::new();
    let mut times: Vec<Duration> = Vec::new();
    let before = IN_USE.load(Ordering::Relaxed);
    for _ in 0..64 {
        for peer in &prefill {
            let start = Instant::now();
            let plan = PairPlan::new(reader, peer, &options).expect("the pair fits");
            times.push(start.elapsed());
            plans.push(plan);
        }
    }
    let used = IN_USE.load(Ordering::Relaxed) - before;
    let median = |times: &[Duration]| {
        let mut times = times.to_vec();
        times.sort_unstable();
        times[times.len() / 2]
    };
    let serving = plans.iter().take(prefill.len()).filter(|plan| !plan.is_empty()).count();
    println!(
        "deployment: prefill 64 × TP8 × PP4, decode 128 × TP16; {NUM_LAYERS} MLA layers, 20 indexers, 1 GQA draft"
    );
    println!("peers of one decode rank: {}; of each prefill worker's 32 ranks, {serving} serve it", plans.len());
    println!(
        "planning one peer, median: first 32 peers {:?}, last 32 peers {:?}",
        median(&times[..32]),
        median(&times[times.len() - 32..])
    );
    println!("memory of one peer's plan, mean: {} bytes", used / plans.len());

    // A 128k-token request, blocks in an order in which none are neighbours.
    let num_blocks = u32::try_from(REQUEST_TOKENS / BLOCK_TOKENS).expect("fits");
    let list = |step: u32| {
        vec![BlockList {
            group: GroupId(0),
            first: None,
            blocks: (0..num_blocks).map(|i| BlockId(i * step % 26_101)).collect(),
        }]
    };
    let request = Request { local: list(7), remote: list(11), ..Default::default() };
    let mut answer = Descriptors::new();
    let mut total = (Duration::ZERO, 0, 0);
    for plan in plans.iter().take(prefill.len()).filter(|plan| !plan.is_empty()) {
        plan.descriptors(&request, &mut answer).expect("answered");
        let start = Instant::now();
        plan.descriptors(&request, &mut answer).expect("answered");
        total = (total.0 + start.elapsed(), total.1 + answer.as_slice().len(), total.2 + answer.num_bytes());
    }
    let (time, descriptors, bytes) = total;
    println!(
        "one request of {REQUEST_TOKENS} tokens, all {serving} sources: {descriptors} descriptors, {bytes} bytes, planned in {time:?}"
    );

    let deployments = (Deployment::new(prefill).expect("whole"), Deployment::new(decode).expect("whole"));
    let start = Instant::now();
    let flows = flows(&deployments.0, &deployments.1, &options).expect("they fit");
    println!(
        "all 32 × 16 pairs of two workers: {} flows in {:?}, imbalance {:.3}",
        flows.flows.len(),
        start.elapsed(),
        flows.imbalance
    );
}
