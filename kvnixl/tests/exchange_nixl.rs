//! Leases, pulls and pushes between processes on real NIXL; producers that stop, die and come back.
//!
//! The other process is this test program again, running `peer_process` (see `common::exchanging`). What is done to it
//! on purpose is in `exchange_failures.rs`.

mod common;

use common::exchanging::{self, MIB, Side, arrived, count, hold, pull_failed, pulled, returned};
use common::process::PeerProcess;
use common::{PATIENCE, SOON, Via};
use kvnixl::lease::{ArrivalFailed, LeaseId};
use kvnixl::{Event, PullFailed, PullId, Verdict};

#[test]
#[ignore = "other tests run it as a process of its own"]
fn peer_process() {
    exchanging::serve();
}

/// A completion as docs/WIRE.md has it.
fn completed(lease: LeaseId, reading: PullId) -> Vec<u8> {
    let (head, middle) =
        (&b"KVNM\0\x02\0\0\0\0\0\0\0\0\xa9completed\x83\xa7reading\xcf"[..], &b"\xa7request\xa1r\xa5lease\xcf"[..]);
    [head, &reading.0.to_be_bytes(), middle, &lease.0.to_be_bytes()].concat()
}

#[test]
fn a_pull_is_done_when_the_producer_has_confirmed_and_repeated_completions_free_nothing_else() {
    for via in [Via::Default, Via::Tcp] {
        let mut prefill = PeerProcess::spawn(via, MIB, 1);
        let mut decode = Side::new(via);
        let peer = decode.connect(&mut prefill);
        let lease = hold(&mut prefill, "r", 1, 0);
        let other = hold(&mut prefill, "other", 1, 0);
        let pull = decode.pull(&peer, "r", lease, MIB, PATIENCE);
        decode.expect("the pull", pulled);
        assert!(decode.memory.read(0, MIB) == common::pattern(1, 0, MIB), "{via:?}");
        let to = decode.exchange.peer(&peer).unwrap().clone();
        for message in [
            completed(lease, pull),
            completed(lease, pull),
            completed(other, pull),
            b"KVNM\0\x02\0\0\0\0\0\0\0\0\xc1".to_vec(),
        ] {
            decode.exchange.agent().notify(&to, &message).unwrap();
        }
        common::eventually("the messages", || count(&mut prefill, "malformed") == 1);
        let [all_read, duplicate, unknown] = ["all_read", "duplicate", "unknown"].map(|what| count(&mut prefill, what));
        // The pull repeats its own, too, if the confirmation is slow.
        assert!((all_read, unknown) == (1, 1) && duplicate >= 2, "{via:?}: {all_read} {duplicate} {unknown}");
        decode.pull(&peer, "other", other, MIB, PATIENCE);
        decode.expect("the other pull", pulled);
    }
}

#[test]
fn a_late_reader_is_told_though_it_could_read_every_byte() {
    let mut prefill = PeerProcess::spawn(Via::Default, MIB, 1);
    let mut decode = Side::new(Via::Default);
    let peer = decode.connect(&mut prefill);
    let lease = hold(&mut prefill, "r", 1, 0);
    assert_eq!(prefill.ask("outlast"), "ok");
    common::eventually("the expiry", || count(&mut prefill, "expired") == 1);
    decode.pull(&peer, "r", lease, MIB, PATIENCE);
    let why = decode.expect("the failure", pull_failed);
    assert!(matches!(why, PullFailed::LeaseEnded { verdict: Verdict::Ended, .. }), "{why}");
    decode.expect("the blocks", returned);
}

#[test]
fn a_push_arrives_in_either_order_and_part_by_part() {
    for via in [Via::Default, Via::Tcp] {
        let mut prefill = PeerProcess::spawn(via, MIB, 1);
        let mut decode = Side::new(via);
        let peer = decode.connect(&mut prefill);
        for (name, parts, registration_first) in [("a", 0, true), ("b", 0, false), ("c", 2, true), ("d", 2, false)] {
            decode.memory.write(0, &common::pattern(2, 0, MIB));
            if registration_first {
                decode.reserve(&peer, name, PATIENCE);
            }
            let lease = hold(&mut prefill, name, 1, parts);
            if !registration_first {
                decode.reserve(&peer, name, PATIENCE);
            }
            for part in (0..parts).rev() {
                prefill.ask(&format!("ready {} {part}", lease.0));
            }
            decode.expect("the arrival", arrived);
            let mut expected = common::pattern(2, 0, MIB);
            expected[7 * 1024..8 * 1024].copy_from_slice(&common::pattern(1, 0, 1024));
            expected[3 * 1024..4 * 1024].copy_from_slice(&common::pattern(1, 1024, 1024));
            assert!(decode.memory.read(0, MIB) == expected, "{via:?} {name}");
        }
        assert_eq!(count(&mut prefill, "all_read"), 4);
    }
}

#[test]
fn a_producer_that_restarts_is_another_one_and_blocks_come_back_once_the_first_is_seen_to_be_gone() {
    let mut first = PeerProcess::spawn(Via::Default, MIB, 1);
    let mut decode = Side::new(Via::Default);
    let old = decode.connect(&mut first);
    let lease = hold(&mut first, "r", 1, 0);
    decode.reserve(&old, "never", PATIENCE);
    first.kill();
    let mut second = PeerProcess::spawn(Via::Default, MIB, 3);
    let new = decode.connect(&mut second);
    assert_ne!(old, new);
    let lost = |event: &Event<_>| match event {
        Event::ArrivalFailed { why, .. } => Some(why.clone()),
        _ => None,
    };
    assert_eq!(decode.expect("the failure", lost), ArrivalFailed::Lost(old.clone()));
    assert_eq!(decode.exchange.stats().reservations.quarantined, 1);
    // The new process knows nothing of the old one's lease.
    let again = hold(&mut second, "r", 1, 0);
    decode.pull(&new, "r", lease, MIB, PATIENCE);
    let why = decode.expect("the refusal", pull_failed);
    assert!(matches!(why, PullFailed::LeaseEnded { .. }), "{why}");
    decode.pull(&new, "r", again, MIB, PATIENCE);
    decode.expect("the pull", pulled);
    assert!(decode.memory.read(0, MIB) == common::pattern(3, 0, MIB));
    // Those of the refused pull, and those that were to be written: that process is seen to have ended.
    decode.expect("blocks", returned);
    decode.expect("the others", returned);
    assert_eq!(decode.exchange.stats().reservations.quarantined, 0);
}

#[test]
fn blocks_of_a_pull_from_a_stopped_producer_come_back_when_it_goes_on() {
    let mut prefill = PeerProcess::spawn(Via::Tcp, MIB, 1);
    let mut decode = Side::new(Via::Tcp);
    let peer = decode.connect(&mut prefill);
    let warm = hold(&mut prefill, "warm", 1, 0);
    decode.pull(&peer, "warm", warm, MIB, PATIENCE);
    decode.expect("the first pull", pulled);
    let lease = hold(&mut prefill, "r", 1, 0);
    prefill.stop();
    decode.pull(&peer, "r", lease, MIB, SOON);
    let why = decode.expect("the deadline", pull_failed);
    assert!(matches!(why, PullFailed::Deadline { .. } | PullFailed::Transfer { .. }), "{why}");
    assert_eq!(decode.exchange.stats().pulls.quarantined, 1);
    prefill.resume();
    decode.expect("the blocks", returned);
    let lease = hold(&mut prefill, "again", 1, 0);
    decode.pull(&peer, "again", lease, MIB, PATIENCE);
    decode.expect("a pull", pulled);
}
