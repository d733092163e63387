//! What a call through the C ABI costs over the same call in Rust: one request of 64 blocks, answered and copied out.
//!
//! `cargo bench -p kvffi` prints nanoseconds a call: the best of many rounds, since anything else that runs on the machine
//! only adds.

use std::hint::black_box;
use std::time::{Duration, Instant};

use kvffi::{
    KVFFI_OK, kvffi_answer, kvffi_answer_free, kvffi_answer_get_descriptors, kvffi_answer_new, kvffi_block_list,
    kvffi_descriptor, kvffi_pair, kvffi_pair_answer, kvffi_pair_free, kvffi_pair_new, kvffi_request, kvffi_spec,
    kvffi_spec_free, kvffi_spec_from_json,
};
use kvplan::{BlockList, Descriptors, Op, PairOptions, PairPlan, Request};
use kvspec::{BlockId, CacheSpec, GroupId};

const SPEC: &str = r#"{"version": 1, "fingerprint": {"model": "m"},
    "storages": [{"base": 4096, "len": 75497472, "mem": "dram"}],
    "groups": [{"pool": 0, "block_tokens": 64, "num_blocks": 1024}],
    "layers": [{"name": "l", "group": 0, "kind": "mla", "parts": [{"name": "latent", "storage": 0, "offset": 0,
        "block_stride": 73728, "sharding": "replicated", "units": {"count": 1, "stride": 73728},
        "tokens": [{"count": 64, "stride": 1152}], "content": 1152}]}]}"#;
const NUM_BLOCKS: usize = 64;

/// Time of one call: the best of 200 rounds of 1,000 calls.
fn best(mut call: impl FnMut() -> usize) -> Duration {
    let mut round = || {
        let start = Instant::now();
        for _ in 0..1000 {
            assert_eq!(black_box(call()), NUM_BLOCKS);
        }
        start.elapsed() / 1000
    };
    (0..200).map(|_| round()).min().unwrap_or_default()
}

fn in_rust(blocks: &[u32]) -> Duration {
    let spec = CacheSpec::from_json(SPEC).and_then(CacheSpec::validate).expect("a spec");
    let plan = PairPlan::new(&spec, &spec, &PairOptions::default()).expect("a plan");
    let list = || BlockList { group: GroupId(0), first: 0, blocks: blocks.iter().copied().map(BlockId).collect() };
    let request = Request { op: Op::Read, local: vec![list()], remote: vec![list()] };
    let mut answer = Descriptors::new();
    best(|| {
        plan.descriptors(&request, &mut answer).expect("an answer");
        answer.as_slice().len()
    })
}

fn through_c(blocks: &[u32]) -> Duration {
    let mut spec: *mut kvffi_spec = std::ptr::null_mut();
    let mut pair: *mut kvffi_pair = std::ptr::null_mut();
    let mut answer: *mut kvffi_answer = std::ptr::null_mut();
    let none = std::ptr::null_mut();
    // SAFETY: as the header asks; every handle is freed once, at the end.
    unsafe {
        assert_eq!(kvffi_spec_from_json(SPEC.as_ptr().cast(), SPEC.len(), &raw mut spec, none), KVFFI_OK);
        assert_eq!(kvffi_pair_new(spec, spec, std::ptr::null(), &raw mut pair, none), KVFFI_OK);
        assert_eq!(kvffi_answer_new(&raw mut answer, none), KVFFI_OK);
    }
    let list = kvffi_block_list { group: 0, reserved: 0, first: 0, blocks: blocks.as_ptr(), num_blocks: blocks.len() };
    let struct_size = size_of::<kvffi_request>();
    let request =
        kvffi_request { struct_size, op: 0, flags: 0, local: &list, num_local: 1, remote: &list, num_remote: 1 };
    let nothing = kvffi_descriptor { local_storage: 0, remote_storage: 0, local_offset: 0, remote_offset: 0, len: 0 };
    let mut descriptors = [nothing; NUM_BLOCKS];
    let time = best(|| {
        let mut len = 0;
        let (array, out_len) = (descriptors.as_mut_ptr(), &raw mut len);
        // SAFETY: as the header asks.
        unsafe {
            assert_eq!(kvffi_pair_answer(pair, &raw const request, answer, none), KVFFI_OK);
            assert_eq!(kvffi_answer_get_descriptors(answer, array, NUM_BLOCKS, out_len, none), KVFFI_OK);
        }
        len
    });
    // SAFETY: as the header asks.
    unsafe {
        kvffi_answer_free(answer);
        kvffi_pair_free(pair);
        kvffi_spec_free(spec);
    }
    time
}

fn main() {
    // Every second block, so that no two merge.
    let blocks: Vec<u32> = (0..).step_by(2).take(NUM_BLOCKS).collect();
    let (rust, c) = (in_rust(&blocks), through_c(&blocks));
    println!("answer {NUM_BLOCKS} blocks in Rust: {} ns", rust.as_nanos());
    println!("the same through C, with the copy: {} ns", c.as_nanos());
    println!("overhead: {} ns", c.as_nanos().saturating_sub(rust.as_nanos()));
}
