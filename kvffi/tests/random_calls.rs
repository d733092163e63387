//! A bounded run of what the fuzz target `calls` does without end: random calls with random arguments.

#![allow(unreachable_pub, reason = "the modules are shared with the fuzz target")]
#![allow(missing_debug_implementations, reason = "nobody prints a machine")]

mod calls;

use std::path::Path;
use std::time::{Duration, Instant};

use calls::Outcomes;

/// Sequences of calls; a few seconds.
const SEQUENCES: u64 = 800;

/// Calls that are refused on a loopback.
const ONLY_ON_NIXL: [&str; 1] = ["kvffi_agent_connect_foreign"];

/// Bytes that look random and are the same every time (xorshift).
fn bytes(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    std::iter::repeat_with(next).take(500).flatten().collect()
}

#[test]
fn random_calls_keep_every_promise_and_reach_every_function() {
    let mut outcomes = Outcomes::default();
    let mut slowest = Duration::ZERO;
    for seed in 0..SEQUENCES {
        let start = Instant::now();
        outcomes.add(&calls::run(&bytes(seed)));
        slowest = slowest.max(start.elapsed());
    }
    println!("the slowest sequence took {slowest:?}; calls that succeeded and that failed: {:#?}", outcomes.0);
    assert!(slowest < Duration::from_secs(10), "{slowest:?}");
    let listed =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("symbols.txt")).expect("symbols.txt");
    for name in listed.lines().filter(|line| line.starts_with("kvffi_")) {
        let [succeeded, _] = outcomes.0.get(name).unwrap_or_else(|| panic!("{name} is never called"));
        assert!(*succeeded > 0 || ONLY_ON_NIXL.contains(&name), "{name} never succeeds");
    }
    // Calls that have arguments that can be wrong.
    let failed = outcomes.0.values().filter(|[_, failed]| *failed > 0).count();
    assert!(failed * 3 > outcomes.0.len() * 2, "{failed} of {} functions fail at times", outcomes.0.len());
}
