//! What a call through the C ABI costs over the same call in Rust: a request answered and copied out, a transfer started,
//! a transfer polled.
//!
//! `cargo bench -p kvffi` prints nanoseconds a call: the best of many rounds, since anything else that runs on the machine
//! only adds.

use std::ffi::CString;
use std::hint::black_box;
use std::time::{Duration, Instant};

use kvffi::*;
use kvnixl::{Agent, Limits, LoopbackNetwork, Peer, Transfer, TransferOptions};
use kvplan::{BlockList, Descriptors, LocalPlan, Op, PairOptions, PairPlan, Request};
use kvspec::{BlockId, CacheSpec, GroupId, ValidSpec};

const NUM_BLOCKS: usize = 64;
const BLOCK: usize = 4096;
const CACHE: usize = 1024 * BLOCK;
const ROUNDS: usize = 200;
/// Transfers under way at once in a round: few, so that their memory stays in the cache.
const TRANSFERS: usize = 100;

fn spec_json(base: usize) -> String {
    format!(
        r#"{{"version": 1, "fingerprint": {{"model": "m"}},
        "storages": [{{"base": {base}, "len": {CACHE}, "mem": "dram"}}],
        "groups": [{{"pool": 0, "block_tokens": 64, "num_blocks": 1024}}],
        "layers": [{{"name": "l", "group": 0, "kind": "mla", "parts": [{{"name": "latent", "storage": 0, "offset": 0,
            "block_stride": {BLOCK}, "sharding": "replicated", "units": {{"count": 1, "stride": {BLOCK}}},
            "tokens": [{{"count": 64, "stride": 64}}], "content": 64}}]}}]}}"#
    )
}

fn spec(base: usize) -> ValidSpec {
    CacheSpec::from_json(&spec_json(base)).and_then(CacheSpec::validate).expect("a spec")
}

/// A cache that is never freed.
fn cache() -> usize {
    Box::leak(vec![1_u8; CACHE].into_boxed_slice()).as_mut_ptr().expose_provenance()
}

/// Time of one call: the best of many rounds, each of which makes so many calls and may clean up after them.
fn best(calls: usize, mut round: impl FnMut() -> Duration) -> Duration {
    let calls = u32::try_from(calls).expect("few");
    (0..ROUNDS).map(|_| round() / calls).min().unwrap_or_default()
}

fn timed(calls: usize, mut call: impl FnMut(usize)) -> Duration {
    let start = Instant::now();
    (0..calls).for_each(&mut call);
    start.elapsed()
}

/// Two workers in this process, through the Rust API.
struct InRust {
    agent: Agent,
    peer: Peer,
    plan: PairPlan,
    request: Request,
    _other: Agent,
}

impl InRust {
    fn new(blocks: &[u32]) -> Self {
        let network = LoopbackNetwork::new();
        let worker = |name: &str| {
            let (agent, spec) = (Agent::loopback(name, &network, Limits::default()).expect("an agent"), spec(cache()));
            // SAFETY: the memory is never freed, and nobody reads it.
            unsafe { agent.register(&LocalPlan::new(&spec)) }.expect("memory");
            (agent, spec)
        };
        let ((agent, ours), (other, _)) = (worker("decode"), worker("prefill"));
        let peer = agent.connect(&other.export().expect("a blob")).expect("a peer");
        let plan = PairPlan::new(&ours, peer.layout(), &PairOptions::default()).expect("a plan");
        let list =
            || BlockList { group: GroupId(0), first: None, blocks: blocks.iter().copied().map(BlockId).collect() };
        let request = Request { op: Op::Read, local: vec![list()], remote: vec![list()], ..Request::default() };
        Self { agent, peer, plan, request, _other: other }
    }

    fn answer(&self) -> Duration {
        let mut answer = Descriptors::new();
        best(1000, || {
            timed(1000, |_| {
                self.plan.descriptors(&self.request, &mut answer).expect("an answer");
                assert_eq!(black_box(answer.as_slice().len()), NUM_BLOCKS);
            })
        })
    }

    fn start_and_poll(&self) -> (Duration, Duration) {
        let mut answer = Descriptors::new();
        self.plan.descriptors(&self.request, &mut answer).expect("an answer");
        let start = || {
            let started = self.agent.start(&self.peer, Op::Read, answer.as_slice(), TransferOptions::default());
            started.expect("a transfer")
        };
        let starts = best(TRANSFERS, || {
            let mut transfers: Vec<Transfer> = Vec::with_capacity(TRANSFERS);
            let time = timed(TRANSFERS, |_| transfers.push(start()));
            for transfer in transfers {
                transfer.wait(Duration::from_secs(60)).expect("it ends");
            }
            time
        });
        let transfer = start();
        transfer.wait(Duration::from_secs(60)).expect("it ends");
        let polls = best(1000, || timed(1000, |_| assert!(black_box(transfer.state()).is_settled())));
        (starts, polls)
    }
}

/// The same through C.
struct ThroughC {
    agent: *mut kvffi_agent,
    other: *mut kvffi_agent,
    peer: *mut kvffi_peer,
    pair: *mut kvffi_pair,
    answer: *mut kvffi_answer,
    loopback: *mut kvffi_loopback,
    blocks: Vec<u32>,
}

const NONE: *mut *mut kvffi_error = std::ptr::null_mut();

impl ThroughC {
    fn new(blocks: &[u32]) -> Self {
        let [mut agent, mut other] = [std::ptr::null_mut(); 2];
        let (mut peer, mut pair, mut answer) = (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
        let (mut loopback, mut blob) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: as the header asks; every handle is freed once.
        unsafe {
            assert_eq!(kvffi_loopback_new(&raw mut loopback, NONE), KVFFI_OK);
            let options = kvffi_agent_options {
                struct_size: size_of::<kvffi_agent_options>(),
                loopback,
                ..std::mem::zeroed::<kvffi_agent_options>()
            };
            let mut specs: Vec<*mut kvffi_spec> = Vec::new();
            for (name, agent) in [("decode", &mut agent), ("prefill", &mut other)] {
                let (json, name) = (spec_json(cache()), CString::new(name).expect("no NUL"));
                let (mut spec, mut plan) = (std::ptr::null_mut(), std::ptr::null_mut());
                assert_eq!(kvffi_agent_new(name.as_ptr(), &raw const options, agent, NONE), KVFFI_OK);
                assert_eq!(kvffi_spec_from_json(json.as_ptr().cast(), json.len(), &raw mut spec, NONE), KVFFI_OK);
                assert_eq!(kvffi_local_plan_new(spec, 0, &raw mut plan, NONE), KVFFI_OK);
                assert_eq!(kvffi_agent_register(*agent, plan, NONE), KVFFI_OK);
                kvffi_local_plan_free(plan);
                specs.push(spec);
            }
            assert_eq!(kvffi_agent_export(other, &raw mut blob, NONE), KVFFI_OK);
            let (data, len) = (kvffi_bytes_data(blob), kvffi_bytes_len(blob));
            assert_eq!(kvffi_agent_connect(agent, data, len, &raw mut peer, NONE), KVFFI_OK);
            kvffi_bytes_free(blob);
            assert_eq!(kvffi_pair_new(specs[0], specs[1], std::ptr::null(), &raw mut pair, NONE), KVFFI_OK);
            assert_eq!(kvffi_answer_new(&raw mut answer, NONE), KVFFI_OK);
            specs.into_iter().for_each(|spec| kvffi_spec_free(spec));
        }
        Self { agent, other, peer, pair, answer, loopback, blocks: blocks.to_vec() }
    }

    /// Answers the request and copies the descriptors out.
    fn answer_once(&self, descriptors: &mut [kvffi_descriptor; NUM_BLOCKS]) {
        let (blocks, num_blocks) = (self.blocks.as_ptr(), self.blocks.len());
        let list = kvffi_block_list { group: 0, reserved: 0, first: 0, blocks, num_blocks };
        let struct_size = size_of::<kvffi_request>();
        let request = kvffi_request {
            struct_size,
            op: 0,
            flags: 0,
            local: &list,
            num_local: 1,
            remote: &list,
            num_remote: 1,
            layers: std::ptr::null(),
            num_layers: 0,
            from_layer: 0,
            to_layer: 0,
        };
        let mut len = 0;
        let (array, out_len) = (descriptors.as_mut_ptr(), &raw mut len);
        // SAFETY: as the header asks.
        unsafe {
            assert_eq!(kvffi_pair_answer(self.pair, &raw const request, self.answer, NONE), KVFFI_OK);
            assert_eq!(kvffi_answer_get_descriptors(self.answer, array, NUM_BLOCKS, out_len, NONE), KVFFI_OK);
        }
        assert_eq!(black_box(len), NUM_BLOCKS);
    }

    fn answer(&self) -> Duration {
        let mut descriptors = NOTHING;
        best(1000, || timed(1000, |_| self.answer_once(&mut descriptors)))
    }

    /// Starts from an array, starts from an answer, polls.
    fn start_and_poll(&self) -> (Duration, Duration, Duration) {
        let mut descriptors = NOTHING;
        self.answer_once(&mut descriptors);
        let (array, none) = (descriptors.as_ptr(), std::ptr::null());
        let from_array = |out: *mut *mut kvffi_transfer| {
            // SAFETY: as the header asks.
            unsafe { kvffi_agent_start(self.agent, self.peer, KVFFI_OP_READ, array, NUM_BLOCKS, none, out, NONE) }
        };
        let from_answer = |out: *mut *mut kvffi_transfer| {
            // SAFETY: as the header asks.
            unsafe { kvffi_agent_start_answer(self.agent, self.peer, self.answer, none, out, NONE) }
        };
        let starts = |start: &dyn Fn(*mut *mut kvffi_transfer) -> kvffi_status| {
            best(TRANSFERS, || {
                let mut transfers = vec![std::ptr::null_mut(); TRANSFERS];
                let time = timed(TRANSFERS, |i| assert_eq!(start(&raw mut transfers[i]), KVFFI_OK));
                for transfer in transfers {
                    // SAFETY: as the header asks; freed once.
                    unsafe {
                        assert_eq!(kvffi_transfer_wait(transfer, 60_000, NONE), KVFFI_OK);
                        kvffi_transfer_free(transfer);
                    }
                }
                time
            })
        };
        let (array, answer) = (starts(&from_array), starts(&from_answer));
        let mut transfer = std::ptr::null_mut();
        assert_eq!(from_answer(&raw mut transfer), KVFFI_OK);
        // SAFETY: as the header asks; freed once.
        unsafe {
            assert_eq!(kvffi_transfer_wait(transfer, 60_000, NONE), KVFFI_OK);
            let polls =
                best(1000, || timed(1000, |_| assert_eq!(black_box(kvffi_transfer_poll(transfer, NONE)), KVFFI_OK)));
            kvffi_transfer_free(transfer);
            (array, answer, polls)
        }
    }
}

const NOTHING: [kvffi_descriptor; NUM_BLOCKS] =
    [kvffi_descriptor { local_storage: 0, remote_storage: 0, local_offset: 0, remote_offset: 0, len: 0 }; NUM_BLOCKS];

impl Drop for ThroughC {
    fn drop(&mut self) {
        // SAFETY: as the header asks; freed once.
        unsafe {
            kvffi_answer_free(self.answer);
            kvffi_pair_free(self.pair);
            kvffi_peer_free(self.peer);
            kvffi_agent_free(self.agent);
            kvffi_agent_free(self.other);
            kvffi_loopback_free(self.loopback);
        }
    }
}

fn report(what: &str, rust: Duration, c: Duration) {
    let over = c.as_nanos().saturating_sub(rust.as_nanos());
    println!("{what:<48} {:>6} ns in Rust {:>6} ns through C {over:>6} ns over", rust.as_nanos(), c.as_nanos());
}

fn main() {
    // Every second block, so that no two merge.
    let blocks: Vec<u32> = (0..).step_by(2).take(NUM_BLOCKS).collect();
    let (in_rust, through_c) = (InRust::new(&blocks), ThroughC::new(&blocks));
    report("answer 64 blocks; C copies descriptors out", in_rust.answer(), through_c.answer());
    let ((start, poll), (array, answer, c_poll)) = (in_rust.start_and_poll(), through_c.start_and_poll());
    report("start 64 descriptors from an array", start, array);
    report("start 64 descriptors from an answer", start, answer);
    report("poll", poll, c_poll);
}
