//! What a transfer costs on real NIXL between two processes, beside raw NIXL: the bytes, the overhead of a request, the
//! post, notifications meanwhile, an idle agent. `kvnixl/docs/TUNING.md` keeps the numbers.
//!
//! `cargo bench -p kvnixl --bench transfer [idle|overhead|rates|small|fair|requests|echo]`. Cases are interleaved within
//! a run, medians are shown.

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
    let parts: [(&str, fn()); 7] = [
        ("idle", idle),
        ("overhead", overhead),
        ("rates", rates),
        ("small", small),
        ("fair", fair),
        ("requests", requests),
        ("echo", echo),
    ];
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
        Self::with("raw", peer, blob, len, &[])
    }

    fn with(name: &str, peer: &Peer, blob: &[u8], len: usize, params: &[(&str, &str)]) -> Self {
        let memory = Memory::new(len, 3);
        let bare = Bare::with(name, params, address(memory.base()), len);
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

/// The same bytes, by this library and by raw NIXL: one request with one thread, with NIXL's threads, and with those and
/// pieces of at most 64 KiB, which they share best. The best of the three counts.
fn rates() {
    let bytes = 128 * MIB;
    let (remote, local, peer, raw) = both(bytes);
    share(&local, &peer, bytes);
    let len = usize::try_from(bytes).unwrap();
    let threads = std::thread::available_parallelism().unwrap().to_string();
    let params = [("num_threads", &*threads), ("split_batch_size", "16")];
    let threaded = Raw::with("raw-threads", &peer, &remote.blob, len, &params);
    let _ = threaded.run(Op::Read, &rows(512, 4096));
    println!("\nrates: {} MiB, GB/s (medians of {RATE_ROUNDS}); ratio: time of raw's best form over ours", bytes / MIB);
    println!(
        "{:<18}{:>8}{:>8}{:>10}{:>14}{:>18}{:>8}{:>18}",
        "rows", "op", "ours", "raw, one", "raw, threads", "threads, 64 KiB", "ratio", "quartiles"
    );
    for row in [KIB, 8 * KIB, 64 * KIB, MIB, 4 * MIB] {
        let rows = rows((bytes / row).min(32 * KIB), row);
        let cut: Vec<Descriptor> = rows.iter().flat_map(|row| cut(row, 64 * KIB)).collect();
        let total: u64 = rows.iter().map(|row| row.len).sum();
        for op in [Op::Read, Op::Write] {
            let mut times = [const { Vec::new() }; 4];
            for _ in 0..RATE_ROUNDS {
                times[0].push(ours(&local, &peer, op, &rows, Limits::default()));
                times[1].push(raw.run(op, &rows).total);
                times[2].push(threaded.run(op, &rows).total);
                times[3].push(threaded.run(op, &cut).total);
            }
            // What else the machine does changes from round to round: each is compared with itself.
            let best = |round: usize| times[1..].iter().map(|raw| raw[round]).fold(f64::MAX, f64::min);
            let mut ratios: Vec<f64> = (0..RATE_ROUNDS).map(|round| best(round) / times[0][round]).collect();
            let ratio = median(&mut ratios);
            let quartiles = format!("{:.2} to {:.2}", ratios[RATE_ROUNDS / 4], ratios[RATE_ROUNDS * 3 / 4]);
            #[expect(clippy::cast_precision_loss, reason = "for display")]
            let [a, b, c, d] = times.map(|mut times| total as f64 / median(&mut times) / 1e9);
            println!(
                "{:<18}{:>8}{a:>8.2}{b:>10.2}{c:>14.2}{d:>18.2}{ratio:>8.2}{quartiles:>18}",
                format!("{} of {} KiB", rows.len(), row / KIB),
                format!("{op:?}"),
            );
        }
    }
}

/// A descriptor in pieces.
fn cut(row: &Descriptor, piece: u64) -> impl Iterator<Item = Descriptor> + use<> {
    let row = *row;
    let at = move |from: u64| descriptor(row.local_offset + from, row.remote_offset + from, piece.min(row.len - from));
    (0..row.len).step_by(usize::try_from(piece).unwrap()).map(at)
}

/// Waits until the copy threads carry what is large.
fn share(local: &Worker, peer: &Peer, bytes: u64) {
    let start = Instant::now();
    while local.agent.stats().copy_threads == 0 {
        assert!(start.elapsed() < PATIENCE);
        ours(local, peer, Op::Read, &rows(4, bytes / 4), Limits::default());
    }
    // Each has met the peer.
    for _ in 0..8 {
        ours(local, peer, Op::Read, &rows(64, bytes / 64), Limits::default());
    }
}

/// From start to done of what is small, beside raw NIXL: one request with one thread, created each time.
fn small() {
    let (_remote, local, peer, raw) = both(MIB * 4);
    share(&local, &peer, MIB * 4);
    println!("\nsmall reads, us (medians of 2001)");
    println!("{:<22}{:>10}{:>10}{:>10}", "rows", "ours", "raw", "ratio");
    for (num, len) in [(1, 4 * KIB), (1, 64 * KIB), (16, KIB), (16, 8 * KIB), (64, KIB), (64, 8 * KIB), (16, 64 * KIB)]
    {
        let rows = rows(num, len);
        let mut times = [const { Vec::new() }; 2];
        for _ in 0..2001 {
            times[0].push(ours(&local, &peer, Op::Read, &rows, Limits::default()) * 1e6);
            times[1].push(raw.run(Op::Read, &rows).total * 1e6);
        }
        let mut ratios: Vec<f64> = times[0].iter().zip(&times[1]).map(|(ours, raw)| ours / raw).collect();
        let [a, b] = times.map(|mut times| median(&mut times));
        println!("{:<22}{a:>10.1}{b:>10.1}{:>10.2}", format!("{num} of {} KiB", len / KIB), median(&mut ratios));
    }
}

/// What a small pull waits beside a large one, and how evenly many share.
fn fair() {
    let bytes = 1024 * MIB;
    let (_remote, local, peer, _raw) = both(bytes);
    share(&local, &peer, bytes);
    let start = |rows: &[Descriptor]| local.agent.start(&peer, Op::Read, rows, TransferOptions::default()).unwrap();
    println!("\nfairness: a read beside one of {} MiB in rows of 64 KiB, us (medians, 90 %)", bytes / MIB);
    println!("{:<22}{:>12}{:>12}{:>12}{:>12}{:>8}", "rows", "alone", "beside", "90 %", "times", "reads");
    for (num, len) in [(1, 4 * KIB), (16, 64 * KIB), (1, MIB)] {
        // Elsewhere each time: what was just read is still in the caches.
        let span = num * len;
        let mut at = 0;
        let mut timed = || {
            at = (at + 37 * span) % (bytes - span);
            let moved = |row: &Descriptor| descriptor(row.local_offset + at, row.remote_offset + at, row.len);
            let rows: Vec<Descriptor> = rows(num, len).iter().map(moved).collect();
            seconds(|| start(&rows).wait(PATIENCE).unwrap()).0 * 1e6
        };
        let mut alone: Vec<f64> = (0..201).map(|_| timed()).collect();
        let mut beside = Vec::new();
        while beside.len() < 201 {
            let large = start(&rows(bytes / (64 * KIB), 64 * KIB));
            while !large.state().is_finished() {
                beside.push(timed());
                std::thread::sleep(Duration::from_millis(1));
            }
            large.wait(PATIENCE).unwrap();
        }
        let (alone, middle) = (median(&mut alone), median(&mut beside));
        let late = beside[beside.len() * 9 / 10];
        println!(
            "{:<22}{alone:>12.0}{middle:>12.0}{late:>12.0}{:>12.2}{:>8}",
            format!("{num} of {} KiB", len / KIB),
            middle / alone,
            beside.len()
        );
    }
    let shared = 8 * MIB;
    let mut ends = Vec::new();
    let begun = Instant::now();
    let transfers: Vec<_> = (0..100).map(|_| start(&rows(shared / (64 * KIB), 64 * KIB))).collect();
    for transfer in &transfers {
        transfer.wait(PATIENCE).unwrap();
        ends.push(transfer.stats().elapsed.unwrap().as_secs_f64());
    }
    let whole = begun.elapsed().as_secs_f64();
    ends.sort_by(f64::total_cmp);
    println!(
        "100 reads of {} MiB at once: the first ends after {:.2} of the whole time, the median after {:.2}",
        shared / MIB,
        ends[0] / whole,
        ends[50] / whole
    );
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
            vec![BlockList { group: GroupId(0), first: None, blocks }]
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
    println!("\nidle agent with its copy threads: CPU of the process over 3 s, by delay of NIXL's progress thread");
    common::only_loopback();
    for micros in [0, 100, 1000, 10_000] {
        let mut options = NixlOptions::default();
        options.progress_delay = Duration::from_micros(micros);
        let worker = Worker::new(Agent::nixl("decode", &options, Limits::default()).unwrap(), 1 << 20, 2);
        let mut remote = PeerProcess::spawn(Via::Default, 1 << 20, 1);
        let peer = worker.agent.connect(&remote.blob).unwrap();
        remote.connect(&worker.agent.export().unwrap());
        share(&worker, &peer, 1 << 20);
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
