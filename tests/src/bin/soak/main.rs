//! Producers and consumers, each a process on real NIXL, exchange requests while a supervisor kills, stops and restarts
//! them. Every byte that arrives is checked, and at the end every block is accounted for.
//!
//! `soak SECONDS AT_LEAST` (the Makefile's `make soak`). The last line says what came of it:
//!
//! `N transfers, 0 wrong, 0 lost, 0 failed`
//!
//! | word | counts |
//! |---|---|
//! | transfers | pulls and pushes whose every byte was right |
//! | wrong | blocks with a byte that was not, free blocks that somebody wrote, requests with two outcomes |
//! | lost | blocks, leases and requests that were not accounted for at the end, and workers that hung or ended |
//! | failed | requests that failed though neither side had been killed or stopped meanwhile |
//!
//! Half of the time the kernel copies between the processes, half of it everything takes TCP.

mod caches;
mod consumer;
mod fleet;
mod producer;
mod supervisor;
mod worker;

use std::process::ExitCode;
use std::time::Duration;

use kvspec::Layout;

fn main() -> ExitCode {
    // SAFETY: no other thread yet.
    unsafe { kvnixl::library::set_process_defaults() };
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["worker", name, transport] => {
            work(name, transport == "tcp");
            ExitCode::SUCCESS
        }
        [seconds, at_least] => {
            let seconds = seconds.parse().expect("a number of seconds");
            let at_least = at_least.parse().expect("a number of transfers");
            supervisor::run(Duration::from_secs(seconds), at_least)
        }
        _ => panic!("usage: soak SECONDS AT_LEAST"),
    }
}

fn work(name: &str, tcp: bool) {
    // Rows meet rows, and rows meet single layers.
    let layout = if name == "decode-1" || fleet::is_producer(name) { Layout::Blhnc } else { Layout::Lbhnc };
    let worker = worker::Worker::start(name, layout, tcp);
    if fleet::is_producer(name) {
        worker.run(producer::Producer::default());
    } else {
        let producers =
            fleet::WORKERS.iter().filter(|name| fleet::is_producer(name)).map(ToString::to_string).collect();
        let seed = worker.exchange.agent().incarnation();
        worker.run(consumer::Consumer::new(producers, seed));
    }
}
