//! How the limits of a transfer trade throughput against the wait of everything else, on real NIXL between two
//! processes. The defaults of `kvnixl::Limits` come from here; `kvnixl/docs/TUNING.md` keeps the numbers.

#[path = "../tests/common/mod.rs"]
mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::process::{self, PeerProcess};
use common::{PATIENCE, Via, Worker, descriptor};
use kvnixl::{Limits, Peer, TransferOptions};
use kvplan::{Descriptor, Op};

/// Of each case; the middle one is shown.
const ROUNDS: usize = 7;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn main() {
    if process::is_peer() {
        return process::serve();
    }
    for (via, bytes) in [(Via::Default, 256 * MIB), (Via::Tcp, 64 * MIB)] {
        sweep(via, bytes);
    }
    small_transfers();
}

fn sweep(via: Via, bytes: u64) {
    let len = usize::try_from(bytes).unwrap();
    let remote = PeerProcess::spawn(via, len, 1);
    let local = Worker::nixl("decode", via, len, 2);
    let peer = local.agent.connect(&remote.blob).unwrap();
    let rows: Vec<Descriptor> =
        (0..bytes / (64 * KIB)).map(|i| descriptor(i * 64 * KIB, (i ^ 1) * 64 * KIB, 64 * KIB)).collect();
    let all = u64::MAX;
    let limits = |descriptor_bytes, request_bytes, request_descriptors| {
        let mut limits = Limits::default();
        (limits.descriptor_bytes, limits.request_bytes, limits.request_descriptors) =
            (descriptor_bytes, request_bytes, request_descriptors);
        limits
    };
    println!("\n{via:?}, {} MiB; notify: the time a notification takes to send meanwhile", bytes / MIB);
    println!(
        "{:<12}{:>12}{:>12}{:>12}{:>8}{:>10}{:>14}{:>14}",
        "", "descriptor", "request", "descriptors", "op", "GB/s", "notify ms", "longest ms"
    );
    let whole = [descriptor(0, 0, bytes)];
    let mut cases: Vec<(&str, &[Descriptor], Limits)> = Vec::new();
    for request_bytes in [MIB, 2 * MIB, 4 * MIB, 8 * MIB, 32 * MIB] {
        cases.push(("one range", &whole, limits(MIB, request_bytes, 1 << 20)));
    }
    for descriptor_bytes in [64 * KIB, 256 * KIB, 4 * MIB] {
        cases.push(("one range", &whole, limits(descriptor_bytes, 4 * MIB, 1 << 20)));
    }
    cases.push(("one range", &whole, limits(all, all, 1 << 20)));
    for request_descriptors in [16, 64, 512] {
        cases.push(("64 KiB rows", &rows, limits(all, all, request_descriptors)));
    }
    cases.push(("64 KiB rows", &rows, limits(all, all, 1 << 20)));
    let cases: Vec<_> = cases.into_iter().flat_map(|case| [(Op::Read, case), (Op::Write, case)]).collect();
    // Interleaved, so that what else the machine does meets all cases alike.
    let mut runs: Vec<Vec<(f64, f64, f64)>> = vec![Vec::new(); cases.len()];
    for _ in 0..ROUNDS {
        for ((op, (_, descriptors, limits)), runs) in cases.iter().zip(&mut runs) {
            runs.push(run(&local, &peer, *op, descriptors, *limits));
        }
    }
    for ((op, (name, _, limits)), runs) in cases.iter().zip(&mut runs) {
        let mut middle = |of: fn(&(f64, f64, f64)) -> f64| {
            runs.sort_by(|a, b| of(a).total_cmp(&of(b)));
            of(&runs[ROUNDS / 2])
        };
        let (seconds, median, longest) = (middle(|run| run.0), middle(|run| run.1), middle(|run| run.2));
        let shown = |value: u64| if value == all { "all".to_owned() } else { format!("{} KiB", value / KIB) };
        #[expect(clippy::cast_precision_loss, reason = "for display")]
        let rate = bytes as f64 / seconds / 1e9;
        println!(
            "{name:<12}{:>12}{:>12}{:>12}{:>8}{rate:>10.2}{:>14.3}{:>14.3}",
            shown(limits.descriptor_bytes),
            shown(limits.request_bytes),
            limits.request_descriptors,
            format!("{op:?}"),
            median * 1e3,
            longest * 1e3
        );
    }
}

/// Seconds of the transfer, and of the median and longest notification sent meanwhile.
fn run(local: &Worker, peer: &Peer, op: Op, descriptors: &[Descriptor], limits: Limits) -> (f64, f64, f64) {
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let notifier = scope.spawn(|| {
            let mut times = Vec::new();
            while !ended.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(2));
                let start = Instant::now();
                local.agent.notify(peer, b"meanwhile").unwrap();
                times.push(start.elapsed().as_secs_f64());
            }
            times.sort_by(f64::total_cmp);
            (times[times.len() / 2], times[times.len() - 1])
        });
        let start = Instant::now();
        let transfer = local.agent.start(peer, op, descriptors, TransferOptions::default().limits(limits)).unwrap();
        transfer.wait(PATIENCE * 3).unwrap();
        let seconds = start.elapsed().as_secs_f64();
        ended.store(true, Ordering::Release);
        let (median, longest) = notifier.join().unwrap();
        (seconds, median, longest)
    })
}

/// From start to done, one after the other.
fn small_transfers() {
    let remote = PeerProcess::spawn(Via::Default, 1 << 20, 1);
    let local = Worker::nixl("decode", Via::Default, 1 << 20, 2);
    let peer = local.agent.connect(&remote.blob).unwrap();
    let mut times: Vec<f64> = (0..2000)
        .map(|_| {
            let start = Instant::now();
            let transfer = local.agent.start(&peer, Op::Read, &[descriptor(0, 0, 4096)], TransferOptions::default());
            transfer.unwrap().wait(PATIENCE).unwrap();
            start.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!("\n4 KiB read from start to done: median {:.1} us, 99 % {:.1} us", times[1000], times[1980]);
}
