//! One rank of a deployment in a process of its own, on real NIXL, told what to do over standard input.
//!
//! `kv_worker ROLE TP_RANK TP_SIZE`. It prints its blob, then answers each command with one line:
//! `pull BLOB…` reads the request from every peer that serves this rank and checks all of its own memory;
//! `push BLOB…` writes the request to every peer that this rank serves and tells each when the last byte is in place;
//! `pushed BLOB…` waits until all peers that serve this rank have written, and checks all of its own memory.

use std::io::{BufRead, Write};
use std::time::{Duration, Instant};

use kvnixl::{Agent, Limits, NixlOptions, Peer, TransferOptions};
use kvplan::{BlockList, Descriptors, LocalPlan, Op, PairOptions, PairPlan, Request, sources};
use kvspec::kinds::{Attention, Element, Mamba2, Mla};
use kvspec::{Arrange, BlockId, Blocks, Fingerprint, GroupId, Layout, Pool, Role, Shard, Topology, ValidSpec};

const PATIENCE: Duration = Duration::from_secs(60);
/// What a destination holds before; no pattern makes it often.
const UNTOUCHED: u8 = 0xa5;

fn main() {
    // SAFETY: no other thread yet.
    unsafe { kvnixl::library::set_process_defaults() };
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [role, rank, size] = &args[..] else { panic!("usage: kv_worker prefill|decode TP_RANK TP_SIZE") };
    let shard = Shard { rank: rank.parse().expect("a rank"), size: size.parse().expect("a size") };
    let worker = Worker::start(role, shard);
    say(&hex(&worker.agent.export().expect("a registered agent exports a blob")));
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("standard input is text");
        let (command, blobs) = line.split_once(' ').expect("a command and blobs");
        let peers: Vec<Peer> =
            blobs.split(' ').map(|blob| worker.agent.connect(&bytes(blob)).expect("the peer fits")).collect();
        say(&match command {
            "pull" => worker.pull(&peers),
            "push" => worker.push(&peers),
            "pushed" => worker.pushed(&peers),
            other => panic!("no command {other}"),
        });
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").expect("the test reads");
    out.flush().expect("the test reads");
}

/// A hybrid model: MLA layers with a GQA draft packed in their row, and Mamba2 state in a pool of its own.
fn spec(role: &str, tp: Shard) -> (Vec<u64>, impl Fn(&[u64]) -> ValidSpec) {
    // The two sides differ in layout and in block size as well.
    let (layout, block_tokens) = if role == "prefill" { (Layout::Blhnc, 64) } else { (Layout::Lbhnc, 32) };
    let target = (0..3).fold(Blocks::tokens(block_tokens), |blocks, i| blocks.layer(format!("mla.{i}"), Mla::fp8()));
    let tokens = target.layer_as("draft", Attention::new(8, 64, Element::BF16), Role::Draft);
    let state =
        (0..2).fold(Blocks::state(), |blocks, i| blocks.layer(format!("ssm.{i}"), Mamba2::new(16, 32, 4, 16, 4)));
    let arranged = Arrange::new(
        Fingerprint { model: "hetero".into(), ..Default::default() },
        Topology { tp, ..Default::default() },
    )
    .pool(Pool::new(layout, 24).blocks(tokens))
    .pool(Pool::new(Layout::Blhnc, 6).blocks(state))
    .build()
    .expect("the geometry is sound");
    let lens = arranged.storage_lens();
    (lens, move |bases: &[u64]| {
        arranged.clone().at(bases).expect("one base a storage").validate().expect("a valid spec")
    })
}

/// Blocks of one side's request: four prefill blocks of 64 tokens are eight decode blocks of 32.
fn lists(role: &str, op: Op) -> Vec<BlockList> {
    let list = |group, blocks: &[u32]| BlockList {
        group: GroupId(group),
        first: None,
        blocks: blocks.iter().copied().map(BlockId).collect(),
    };
    match (role, op) {
        ("prefill", Op::Read) => vec![list(0, &[7, 3, 4, 20]), list(1, &[2])],
        ("prefill", Op::Write) => vec![list(0, &[1, 2, 9, 8]), list(1, &[5])],
        (_, Op::Read) => vec![list(0, &[5, 6, 9, 1, 0, 22, 23, 12]), list(1, &[3])],
        (_, Op::Write) => vec![list(0, &[2, 3, 4, 7, 8, 10, 11, 13]), list(1, &[4])],
    }
}

struct Worker {
    role: String,
    agent: Agent,
    spec: ValidSpec,
    memory: Vec<&'static mut [u8]>,
}

impl Worker {
    fn start(role: &str, tp: Shard) -> Self {
        let (lens, spec_at) = spec(role, tp);
        let memory: Vec<&'static mut [u8]> = lens
            .iter()
            .map(|&len| Box::leak(vec![UNTOUCHED; usize::try_from(len).expect("fits")].into_boxed_slice()))
            .collect();
        let bases: Vec<u64> = memory.iter().map(|m| m.as_ptr().expose_provenance() as u64).collect();
        let spec = spec_at(&bases);
        let agent = Agent::nixl(&format!("{role}-{}", tp.rank), &NixlOptions::default(), Limits::default())
            .expect("this test needs NIXL, which make test provides");
        // SAFETY: the memory is leaked, and this process looks only at settled bytes.
        unsafe { agent.register(&LocalPlan::new(&spec)) }.expect("registered once");
        let mut worker = Self { role: role.to_owned(), agent, spec, memory };
        if role == "prefill" {
            worker.fill(Op::Read);
            worker.fill(Op::Write);
        }
        worker
    }

    /// Calls `visit(storage, offset, len, first byte's identity)` for every cell of the request's blocks.
    fn for_each_cell(&self, op: Op, mut visit: impl FnMut(usize, usize, usize, u64)) {
        for list in lists(&self.role, op) {
            for layer in self.spec.layers.iter().filter(|layer| layer.group == list.group) {
                for part in &layer.parts {
                    let states = self.spec.states_of(part);
                    for (entry, block) in (0u64..).zip(&list.blocks) {
                        for unit in 0..part.units.count {
                            for state in 0..states {
                                let (mut rest, mut inner) = (state, 0);
                                for axis in part.tokens.iter().rev() {
                                    inner += rest % axis.count * axis.stride;
                                    rest /= axis.count;
                                }
                                let at = part.offset
                                    + u64::from(block.0) * part.block_stride
                                    + unit * part.units.stride
                                    + inner;
                                let global = self.spec.units_of(part).start + unit;
                                let names = layer.name.as_str().bytes().chain(part.name.as_str().bytes());
                                let numbers = [op as u64, global, entry * states + state];
                                let identity = names.map(u64::from).chain(numbers).fold(0xcbf2_9ce4_8422_2325, mix);
                                let place = |v: u64| usize::try_from(v).expect("fits");
                                visit(part.storage.index(), place(at), place(part.content), identity);
                            }
                        }
                    }
                }
            }
        }
    }

    fn fill(&mut self, op: Op) {
        let mut cells = Vec::new();
        self.for_each_cell(op, |storage, at, len, identity| cells.push((storage, at, len, identity)));
        for (storage, at, len, identity) in cells {
            for (byte, i) in self.memory[storage][at..at + len].iter_mut().zip(0..) {
                *byte = value(identity, i);
            }
        }
    }

    /// Checks every byte of this worker's memory; both transfers' blocks when `pushed`.
    fn check(&self, ops: &[Op]) -> String {
        let mut expected: Vec<Vec<u8>> = self.memory.iter().map(|m| vec![UNTOUCHED; m.len()]).collect();
        let mut needed = 0;
        for &op in ops {
            self.for_each_cell(op, |storage, at, len, identity| {
                needed += len;
                for (byte, i) in expected[storage][at..at + len].iter_mut().zip(0..) {
                    *byte = value(identity, i);
                }
            });
        }
        for (storage, (found, expected)) in self.memory.iter().zip(&expected).enumerate() {
            // SAFETY: the slice is live; the bytes are read once more because transfers wrote them.
            let found = unsafe { std::slice::from_raw_parts(std::hint::black_box(found.as_ptr()), found.len()) };
            if let Some(at) = found.iter().zip(expected).position(|(f, e)| f != e) {
                return format!("wrong byte {at} of storage {storage}: {} and not {}", found[at], expected[at]);
            }
        }
        format!("ok {needed}")
    }

    fn plan(&self, peer: &Peer, op: Op) -> PairPlan {
        let options = PairOptions { op, ..Default::default() };
        PairPlan::new(&self.spec, peer.layout(), &options).expect("the pair fits")
    }

    fn run(&self, peers: &[Peer], op: Op, notify: bool) -> usize {
        let other = if self.role == "prefill" { "decode" } else { "prefill" };
        let request = Request { op, local: lists(&self.role, op), remote: lists(other, op), ..Request::default() };
        let mut transfers = Vec::new();
        for peer in peers {
            let plan = self.plan(peer, op);
            if plan.is_empty() {
                continue;
            }
            let mut answer = Descriptors::new();
            plan.descriptors(&request, &mut answer).expect("the request is sound");
            let mut options = TransferOptions::default().deadline(PATIENCE);
            if notify {
                options = options.notify(*b"written");
            }
            transfers.push(self.agent.start_answer(peer, &answer, options).expect("started"));
        }
        for transfer in &transfers {
            transfer.wait(PATIENCE).expect("moved");
        }
        transfers.len()
    }

    fn pull(&self, peers: &[Peer]) -> String {
        self.run(peers, Op::Read, false);
        self.check(&[Op::Read])
    }

    fn push(&self, peers: &[Peer]) -> String {
        format!("ok {}", self.run(peers, Op::Write, true))
    }

    fn pushed(&self, peers: &[Peer]) -> String {
        let serves = |peer: &&Peer| {
            let rank = peer.layout().topology.tp.rank;
            let shares = |layer: &kvspec::Layer| sources(&self.spec, peer.layout(), layer.name.as_str());
            self.spec.layers.iter().flat_map(shares).any(|share| share.tp_rank == rank)
        };
        let expected = peers.iter().filter(serves).count();
        let start = Instant::now();
        let mut seen = 0;
        while seen < expected {
            seen += self.agent.notifications().expect("notifications arrive").len();
            assert!(start.elapsed() < PATIENCE, "{seen} of {expected} writers came");
            std::thread::sleep(Duration::from_millis(1));
        }
        self.check(&[Op::Read, Op::Write])
    }
}

fn mix(hash: u64, value: u64) -> u64 {
    (hash ^ value).wrapping_mul(0x0100_0000_01b3)
}

fn value(identity: u64, byte: u64) -> u8 {
    let word = mix(identity, byte).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (word >> 56).to_le_bytes()[0]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    let digit = |i: usize| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).expect("hexadecimal");
    (0..hex.len() / 2).map(digit).collect()
}
