//! What a transfer costs on real NIXL between two processes, beside raw NIXL: the bytes, the overhead of a request, the
//! post, notifications meanwhile, an idle agent. `kvnixl/docs/TUNING.md` keeps the numbers.
//!
//! `cargo bench -p kvnixl --bench transfer [idle|overhead|rates|requests|echo]`. Cases are interleaved within a run,
//! medians are shown; the backend's parameters are the same on both ways.

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::{Duration, Instant};

use common::bare::Bare;
use common::process::{self, PeerProcess};
use common::{Memory, PATIENCE, Via, Worker, descriptor};
use kvnixl::{Agent, Limits, NixlOptions, Peer, TransferOptions};
use kvplan::{BlockList, Descriptor, Descriptors, Op, PairOptions, PairPlan, Request};
use kvspec::{BlockId, GroupId};
use nixl_sys::XferOp;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const ROUNDS: usize = 7;
const RATE_ROUNDS: usize = 21;

fn main() {
    if process::is_peer() {
        return process::serve();
    }
    let wanted = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    let parts: [(&str, fn()); 5] =
        [("idle", idle), ("overhead", overhead), ("rates", rates), ("requests", requests), ("echo", echo)];
    for (name, part) in parts {
        if name.contains(&wanted) {
            part();
        }
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn seconds<T>(run: impl FnOnce() -> T) -> (f64, T) {
    let start = Instant::now();
    let value = run();
    (start.elapsed().as_secs_f64(), value)
}

/// The order of blocks at the peer: no two neighbours are neighbours there.
fn shuffled(num: u64) -> impl Iterator<Item = u64> {
    // An odd step permutes a power of two; otherwise halves are woven.
    (0..num).map(move |i| if num.is_power_of_two() { (i * 5 + 3) % num } else { i / 2 + (i % 2) * num.div_ceil(2) })
}

fn rows(num: u64, len: u64) -> Vec<Descriptor> {
    (0..num).zip(shuffled(num)).map(|(i, j)| descriptor(i * len, j * len, len)).collect()
}

/// Raw NIXL in this process, over memory of its own.
struct Raw {
    bare: Bare,
    memory: Memory,
    peer: String,
    remote: u64,
}

/// Bytes of one raw transfer and what they cost.
struct RawCost {
    create: f64,
    post: f64,
    total: f64,
}

fn address(value: u64) -> usize {
    usize::try_from(value).unwrap()
}

impl Raw {
    fn new(peer: &Peer, blob: &[u8], len: usize) -> Self {
        let memory = Memory::new(len, 3);
        let bare = Bare::new("raw", Via::Default, address(memory.base()), len);
        let name = bare.agent.load_remote_md(process::nixl_metadata(blob)).unwrap();
        Self { bare, memory, peer: name, remote: peer.layout().storages[0].base }
    }

    fn run(&self, op: Op, descriptors: &[Descriptor]) -> RawCost {
        let start = Instant::now();
        let (here, there) = (self.memory.base(), self.remote);
        let piece = |d: &Descriptor| (address(here + d.local_offset), address(there + d.remote_offset), address(d.len));
        let op = if op == Op::Read { XferOp::Read } else { XferOp::Write };
        let request = self.bare.request(op, &self.peer, descriptors.iter().map(piece)).unwrap();
        let create = start.elapsed().as_secs_f64();
        let (post, in_progress) = seconds(|| self.bare.post(&request).unwrap());
        if in_progress {
            self.bare.wait(&request);
        }
        RawCost { create, post, total: start.elapsed().as_secs_f64() }
    }
}

fn ours(local: &Worker, peer: &Peer, op: Op, descriptors: &[Descriptor], limits: Limits) -> f64 {
    let options = TransferOptions::default().limits(limits);
    seconds(|| local.agent.start(peer, op, descriptors, options).unwrap().wait(PATIENCE * 3).unwrap()).0
}

/// One process's two ways to the same peer.
fn both(len: u64) -> (PeerProcess, Worker, Peer, Raw) {
    let bytes = usize::try_from(len).unwrap();
    let remote = PeerProcess::spawn(Via::Default, bytes, 1);
    let local = Worker::nixl("decode", Via::Default, bytes, 2);
    let peer = local.agent.connect(&remote.blob).unwrap();
    let raw = Raw::new(&peer, &remote.blob, bytes);
    for op in [Op::Read, Op::Write] {
        let _ = (ours(&local, &peer, op, &rows(64, 1024), Limits::default()), raw.run(op, &rows(64, 1024)));
    }
    (remote, local, peer, raw)
}

/// The same bytes, by this library and by raw NIXL in the better of two forms.
fn rates() {
    let bytes = 128 * MIB;
    let (_remote, local, peer, raw) = both(bytes);
    println!(
        "\nrates: {} MiB, GB/s (medians of {RATE_ROUNDS}); raw: rows in one request, and one request a MiB",
        bytes / MIB
    );
    println!(
        "{:<22}{:>8}{:>8}{:>12}{:>14}{:>10}{:>10}",
        "rows", "op", "ours", "raw, one", "raw, per MiB", "of one", "of MiB"
    );
    for row in [64 * KIB, 256 * KIB, MIB, 4 * MIB] {
        let rows = rows(bytes / row, row);
        for op in [Op::Read, Op::Write] {
            let [mut a, mut b, mut c] = [const { Vec::new() }; 3];
            for _ in 0..RATE_ROUNDS {
                a.push(ours(&local, &peer, op, &rows, Limits::default()));
                b.push(raw.run(op, &rows).total);
                let per_mib = usize::try_from(MIB.div_ceil(row)).unwrap();
                c.push(rows.chunks(per_mib).map(|rows| raw.run(op, rows).total).sum());
            }
            // What else the machine does changes from round to round: each is compared with itself.
            let ratio = |raw: &[f64]| median(&mut raw.iter().zip(&a).map(|(raw, ours)| raw / ours).collect::<Vec<_>>());
            let ratios = (ratio(&b), ratio(&c));
            #[expect(clippy::cast_precision_loss, reason = "for display")]
            let [a, b, c] = [a, b, c].map(|mut times| bytes as f64 / median(&mut times) / 1e9);
            println!(
                "{:<22}{:>8}{a:>8.2}{b:>12.2}{c:>14.2}{:>10.2}{:>10.2}",
                format!("{} of {} KiB", rows.len(), row / KIB),
                format!("{op:?}"),
                ratios.0,
                ratios.1
            );
        }
    }
}

/// Everything about a request but NIXL's post.
fn overhead() {
    let len = 512 * MIB;
    let (_remote, local, peer, raw) = both(len);
    let blocks = len / KIB;
    let local_spec = common::plan(local.memory.base(), local.memory.len()).spec().clone();
    let pair = PairPlan::new(&local_spec, peer.layout(), &PairOptions::default()).unwrap();
    println!("\noverhead of a request of 1 KiB rows, us (medians of {ROUNDS}); start: our checks and queueing;");
    println!("creation: NIXL's lists and requests, beside one raw request of all; posts and the whole, ours and raw");
    println!(
        "{:>12}{:>10}{:>10}{:>10}{:>14}{:>10}{:>12}{:>12}{:>12}{:>12}",
        "descriptors",
        "planning",
        "start",
        "creation",
        "raw creation",
        "requests",
        "posts",
        "raw post",
        "whole",
        "raw whole"
    );
    for num in [1, 100, 1600, 10_000, 154_737, 500_000] {
        let ids = |order: Vec<u64>| {
            let blocks = order.into_iter().map(|id| BlockId(u32::try_from(id).unwrap())).collect();
            vec![BlockList { group: GroupId(0), first: 0, blocks }]
        };
        let theirs = shuffled(blocks).filter(|id| *id < blocks).take(usize::try_from(num).unwrap()).collect();
        let request = Request { local: ids((0..num).collect()), remote: ids(theirs), ..Default::default() };
        let mut answer = Descriptors::new();
        let mut columns: [Vec<f64>; 8] = Default::default();
        let mut num_requests = 0;
        for _ in 0..ROUNDS {
            let (planning, _) = seconds(|| pair.descriptors(&request, &mut answer).unwrap());
            assert_eq!(answer.as_slice().len() as u64, num);
            let whole = Instant::now();
            let (start, transfer) =
                seconds(|| local.agent.start(&peer, Op::Read, answer.as_slice(), TransferOptions::default()).unwrap());
            transfer.wait(PATIENCE * 3).unwrap();
            let whole = whole.elapsed().as_secs_f64();
            let stats = transfer.stats();
            num_requests = stats.requests;
            let raw = raw.run(Op::Read, answer.as_slice());
            let values = [
                planning,
                start,
                stats.prepare.as_secs_f64(),
                raw.create,
                stats.post.as_secs_f64(),
                raw.post,
                whole,
                raw.total,
            ];
            for (column, value) in columns.iter_mut().zip(values) {
                column.push(value * 1e6);
            }
        }
        let [planning, start, prepare, create, post, raw_post, whole, raw_whole] =
            columns.map(|mut column| median(&mut column));
        println!(
            "{num:>12}{planning:>10.1}{start:>10.1}{prepare:>10.1}{create:>14.1}{num_requests:>10}{post:>12.1}{raw_post:>12.1}{whole:>12.1}{raw_whole:>12.1}"
        );
    }
}

/// 1 MiB requests or 4 MiB requests.
fn requests() {
    let bytes = 256 * MIB;
    let (_remote, local, peer, _raw) = both(bytes);
    println!("\nrequests: {} MiB, GB/s (medians of {ROUNDS}) by size of the request", bytes / MIB);
    println!("{:<12}{:>8}{:>10}{:>10}{:>10}", "rows", "op", "1 MiB", "2 MiB", "4 MiB");
    for row in [64 * KIB, 4 * MIB] {
        let rows = rows(bytes / row, row);
        for op in [Op::Read, Op::Write] {
            let mut times = [const { Vec::new() }; 3];
            for _ in 0..ROUNDS {
                for (times, size) in times.iter_mut().zip([MIB, 2 * MIB, 4 * MIB]) {
                    let mut limits = Limits::default();
                    limits.request_bytes = size;
                    times.push(ours(&local, &peer, op, &rows, limits));
                }
            }
            #[expect(clippy::cast_precision_loss, reason = "for display")]
            let [a, b, c] = times.map(|mut times| bytes as f64 / median(&mut times) / 1e9);
            println!("{:<12}{:>8}{a:>10.2}{b:>10.2}{c:>10.2}", format!("{} KiB", row / KIB), format!("{op:?}"));
        }
    }
}

/// Round trips of a notification, in seconds, until `enough` says so.
fn round_trips(agent: &Agent, peer: &Peer, mut enough: impl FnMut(usize) -> bool) -> Vec<f64> {
    let mut times = Vec::new();
    while !enough(times.len()) {
        let (time, ()) = seconds(|| {
            agent.notify(peer, b"echo").unwrap();
            let start = Instant::now();
            while agent.notifications().unwrap().is_empty() {
                assert!(start.elapsed() < PATIENCE);
                std::thread::yield_now();
            }
        });
        times.push(time);
        std::thread::sleep(Duration::from_micros(500));
    }
    times
}

fn show(what: &str, mut times: Vec<f64>) {
    times.sort_by(f64::total_cmp);
    let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)] * 1e6;
    println!("{what:<44}{:>8}{:>10.0}{:>10.0}{:>10.0}", times.len(), at(50), at(90), at(100));
}

/// Notifications there and back, with and without 1 GiB under way.
fn echo() {
    let bytes = 1024 * MIB;
    let len = usize::try_from(bytes).unwrap();
    let mut remote = PeerProcess::spawn(Via::Default, len, 1);
    let local = Worker::nixl("decode", Via::Default, len, 2);
    let peer = local.agent.connect(&remote.blob).unwrap();
    remote.connect(&local.agent.export().unwrap());
    remote.echo(20_000);
    println!("\nnotification there and back, us; the peer looks every 20 us");
    println!("{:<44}{:>8}{:>10}{:>10}{:>10}", "", "trips", "median", "90 %", "longest");
    show("nothing else", round_trips(&local.agent, &peer, |num| num >= 500));
    for size in [MIB, 4 * MIB] {
        for (name, row) in [("one range", bytes), ("rows of 64 KiB", 64 * KIB)] {
            let mut limits = Limits::default();
            limits.request_bytes = size;
            let options = TransferOptions::default().limits(limits);
            let transfer = local.agent.start(&peer, Op::Read, &rows(bytes / row, row), options).unwrap();
            let times = round_trips(&local.agent, &peer, |_| transfer.state().is_finished());
            transfer.wait(PATIENCE).unwrap();
            let rate = bytes / KIB * 1000 / u64::try_from(transfer.stats().elapsed.unwrap().as_millis()).unwrap() / KIB;
            show(&format!("1 GiB in {name}, {} MiB requests, {rate} MiB/s", size / MIB), times);
        }
    }
    remote.echoed();
}

/// What an agent costs that does nothing, and how long a notification takes to be noticed by one that does nothing.
fn idle() {
    println!("\nidle agent: CPU of the process over 3 s, by delay of NIXL's progress thread");
    common::only_loopback();
    for micros in [0, 100, 1000, 10_000] {
        let mut options = NixlOptions::default();
        options.progress_delay = Duration::from_micros(micros);
        let worker = Worker::new(Agent::nixl("decode", &options, Limits::default()).unwrap(), 1 << 20, 2);
        let mut remote = PeerProcess::spawn(Via::Default, 1 << 20, 1);
        let peer = worker.agent.connect(&remote.blob).unwrap();
        remote.connect(&worker.agent.export().unwrap());
        ours(&worker, &peer, Op::Read, &rows(1, 1024), Limits::default());
        let before = cpu();
        std::thread::sleep(Duration::from_secs(3));
        let used = cpu() - before;
        remote.echo(1500);
        let mut times = round_trips(&worker.agent, &peer, |num| num >= 300);
        remote.echoed();
        println!(
            "delay {micros:>6} us: {:>6.2} % of a core; notification there and back {:>6.0} us (median)",
            used / 3.0 * 100.0,
            median(&mut times) * 1e6
        );
    }
}

/// CPU seconds of this process.
fn cpu() -> f64 {
    // SAFETY: all zero is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is live.
    assert_eq!(unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) }, 0);
    #[expect(clippy::cast_precision_loss, reason = "for display")]
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}
