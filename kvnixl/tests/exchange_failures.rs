//! What is done to peers on purpose, between processes on real NIXL: killed at every moment, stopped, cut off, put to
//! sleep; blobs and messages that nobody should send. Each ends in a typed error or a count, every block comes back,
//! and the exchange goes on. `docs/OPERATIONS.md` names these tests, row by row.

mod common;

use std::time::{Duration, Instant};

use common::exchanging::{self, MIB, Side, arrived, count, hold, pull_failed, pulled, request, returned};
use common::process::{PeerProcess, bytes, hex};
use common::{PATIENCE, SOON, Via, descriptor};
use kvnixl::lease::{ArrivalFailed, EndReason, LeaseId, PeerId, PeerState, PushId, Wanted};
use kvnixl::{Error, Event, PullFailed, PullPart};
use kvplan::Descriptor;

const BOTH: [Via; 2] = [Via::Default, Via::Tcp];

#[test]
#[ignore = "other tests run it as a process of its own"]
fn peer_process() {
    exchanging::serve();
}

/// So many rounds of 16 MiB do not end before somebody interrupts them, and are still within what may be in flight.
const ENDLESS: usize = 4000;

/// The same bytes again and again.
fn rounds(len: usize, num: usize) -> Vec<Descriptor> {
    (0..num).map(|_| descriptor(0, 0, len as u64)).collect()
}

/// A pull that works: the way to the peer is open.
fn warm(side: &mut Side, peer: &PeerId, remote: &mut PeerProcess) {
    let lease = hold(remote, "warm", 1, 0);
    side.pull(peer, "warm", lease, 64 << 10, PATIENCE);
    side.expect("a pull", pulled);
}

fn arrival_failed(event: &Event<&'static str>) -> Option<ArrivalFailed> {
    if let Event::ArrivalFailed { why, .. } = event { Some(why.clone()) } else { None }
}

fn freed(event: &Event<&'static str>) -> Option<EndReason> {
    if let Event::Freed(freed) = event { Some(freed.why) } else { None }
}

fn lost(event: &Event<&'static str>) -> Option<PeerId> {
    if let Event::PeerLost(peer) = event { Some(peer.clone()) } else { None }
}

fn push(event: &Event<&'static str>) -> Option<PushId> {
    if let Event::Push { id, .. } = event { Some(id.clone()) } else { None }
}

/// Nothing is under way any more: all blocks are back, the memory can be deregistered, and nothing is written.
fn goes_on(side: &mut Side) {
    side.until("an empty quarantine", |side| side.is_clear());
    let seen = side.memory.read(0, side.memory.len());
    std::thread::sleep(Duration::from_millis(100));
    assert!(seen == side.memory.read(0, side.memory.len()), "something still lands");
    side.exchange.agent().deregister().unwrap();
}

#[test]
fn a_producer_killed_before_a_pull_fails_it_and_its_blocks_come_back() {
    for via in BOTH {
        let mut prefill = PeerProcess::spawn(via, MIB, 1);
        let mut decode = Side::new(via);
        let peer = decode.connect(&mut prefill);
        warm(&mut decode, &peer, &mut prefill);
        let lease = hold(&mut prefill, "r", 1, 0);
        prefill.kill();
        decode.pull(&peer, "r", lease, MIB, PATIENCE);
        let why = decode.expect("the failure", pull_failed);
        assert!(matches!(why, PullFailed::Transfer { .. }), "{why}");
        decode.expect("the blocks", returned);
        assert_eq!(decode.expect("the loss", lost), peer);
        goes_on(&mut decode);
    }
}

#[test]
fn a_producer_killed_during_a_pull_fails_it_and_its_blocks_come_back() {
    for via in BOTH {
        let mut prefill = PeerProcess::spawn(via, 16 * MIB, 1);
        let mut decode = Side::with(via, 16 * MIB);
        let peer = decode.connect(&mut prefill);
        let lease = hold(&mut prefill, "r", 1, 0);
        decode.pull_all(&peer, "r", lease, rounds(16 * MIB, ENDLESS), PATIENCE);
        decode.until("a post", |side| side.exchange.agent().stats().requests > 2);
        prefill.kill();
        let why = decode.expect("the failure", pull_failed);
        assert!(matches!(why, PullFailed::Transfer { .. } | PullFailed::Unreachable(_)), "{why}");
        decode.expect("the blocks", returned);
        goes_on(&mut decode);
    }
}

#[test]
fn a_producer_killed_after_the_last_byte_and_before_its_word_fails_the_pull() {
    let mut prefill = PeerProcess::spawn(Via::Default, MIB, 1);
    let mut decode = Side::new(Via::Default);
    let peer = decode.connect(&mut prefill);
    warm(&mut decode, &peer, &mut prefill);
    let lease = hold(&mut prefill, "r", 1, 0);
    // Its engine does not poll: bytes move, and nobody confirms.
    assert_eq!(prefill.ask("pause"), "ok");
    let moved = decode.exchange.agent().stats().bytes;
    decode.pull(&peer, "r", lease, MIB, PATIENCE);
    decode.until("the bytes", |side| side.exchange.agent().stats().bytes == moved + MIB as u64);
    assert!(decode.memory.read(0, MIB) == common::pattern(1, 0, MIB));
    prefill.kill();
    let why = decode.expect("the failure", pull_failed);
    assert!(matches!(why, PullFailed::Unreachable(_)), "{why}");
    decode.expect("the blocks", returned);
    goes_on(&mut decode);
}

#[test]
fn reserved_blocks_come_back_when_their_writer_is_killed_before_or_during_its_write() {
    for via in BOTH {
        for part_written in [false, true] {
            let mut prefill = PeerProcess::spawn(via, MIB, 1);
            let mut decode = Side::new(via);
            let peer = decode.connect(&mut prefill);
            let lease = hold(&mut prefill, "r", 1, 2);
            decode.reserve(&peer, "r", PATIENCE);
            common::eventually("the registration", || count(&mut prefill, "push") == 1);
            if part_written {
                prefill.ask(&format!("ready {} 0", lease.0));
                let first = common::pattern(1, 0, 1024);
                decode.until("the first part", |side| side.memory.read(7 * 1024, 1024) == first);
            }
            prefill.kill();
            assert_eq!(decode.expect("the failure", arrival_failed), ArrivalFailed::Lost(peer.clone()), "{via:?}");
            decode.expect("the blocks", returned);
            assert_eq!(decode.exchange.stats().reservations.quarantined, 0);
            goes_on(&mut decode);
        }
    }
}

#[test]
fn a_writer_killed_after_its_write_has_delivered_it() {
    let mut prefill = PeerProcess::spawn(Via::Default, MIB, 1);
    let mut decode = Side::new(Via::Default);
    let peer = decode.connect(&mut prefill);
    decode.reserve(&peer, "r", PATIENCE);
    hold(&mut prefill, "r", 1, 0);
    // Its word is on its way when it dies.
    common::eventually("its write", || count(&mut prefill, "all_read") == 1);
    std::thread::sleep(Duration::from_millis(500));
    prefill.kill();
    decode.expect("the arrival", arrived);
    assert!(decode.memory.read(3 * 1024, 1024) == common::pattern(1, 1024, 1024));
    goes_on(&mut decode);
}

#[test]
fn a_reader_killed_before_during_or_after_a_write_frees_the_source_blocks() {
    for via in BOTH {
        for (when, why) in
            [("before", EndReason::ReadersLost), ("during", EndReason::ReadersLost), ("after", EndReason::AllRead)]
        {
            let mut decode = PeerProcess::spawn(via, 16 * MIB, 1);
            let mut prefill = Side::with(via, 16 * MIB);
            prefill.connect(&mut decode);
            assert_eq!(decode.ask("reserve r decode"), "ok");
            let now = Instant::now();
            prefill.exchange.hold(request("r"), "source", Some(1), 0, now).unwrap();
            let id = prefill.expect("the registration", push);
            // More than the reader asked for, to be interrupted in.
            let rounds = if when == "during" { ENDLESS } else { 1 };
            let write = |side: &mut Side| side.exchange.write(&id, 0, &wanted(rounds), 0, Instant::now());
            if when != "before" {
                write(&mut prefill).unwrap();
            }
            match when {
                "during" => prefill.until("a post", |side| side.exchange.agent().stats().requests > 2),
                "after" => assert_eq!(prefill.expect("the end", freed), why),
                _ => {}
            }
            decode.kill();
            if when == "before" {
                // It may be found out by this.
                let _ = write(&mut prefill);
            }
            if when != "after" {
                assert_eq!(prefill.expect("the end", freed), why, "{via:?} {when}");
            }
            goes_on(&mut prefill);
        }
    }
}

fn wanted(num: usize) -> Vec<Descriptor> {
    if num == 1 { vec![descriptor(0, 7 * 1024, 1024), descriptor(1024, 3 * 1024, 1024)] } else { rounds(16 * MIB, num) }
}

#[test]
fn a_writer_stopped_past_the_deadline_keeps_reserved_blocks_until_it_goes_on() {
    for via in BOTH {
        let mut prefill = PeerProcess::spawn(via, MIB, 1);
        let mut decode = Side::new(via);
        let peer = decode.connect(&mut prefill);
        warm(&mut decode, &peer, &mut prefill);
        hold(&mut prefill, "r", 1, 2);
        decode.reserve(&peer, "r", SOON);
        common::eventually("the registration", || count(&mut prefill, "push") == 1);
        prefill.stop();
        assert_eq!(decode.expect("the failure", arrival_failed), ArrivalFailed::Deadline);
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(1500) {
            decode.poll();
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(decode.exchange.stats().reservations.quarantined, 1, "a stopped process is not gone");
        prefill.resume();
        decode.expect("the blocks", returned);
        warm(&mut decode, &peer, &mut prefill);
    }
}

#[test]
fn a_reader_that_restarts_under_its_name_reads_what_is_held_for_the_new_one() {
    let mut first = PeerProcess::spawn(Via::Default, MIB, 1);
    let mut prefill = Side::new(Via::Default);
    let old = prefill.connect(&mut first);
    assert_eq!(first.ask("reserve r decode"), "ok");
    prefill.exchange.hold(request("r"), "source", Some(1), 0, Instant::now()).unwrap();
    prefill.expect("the registration", push);
    first.kill();
    let mut second = PeerProcess::spawn(Via::Default, MIB, 3);
    let new = prefill.connect(&mut second);
    assert_ne!(old, new);
    assert_eq!(prefill.expect("the end", freed), EndReason::ReadersLost);
    assert_eq!(second.ask("reserve again decode"), "ok");
    prefill.exchange.hold(request("again"), "source", Some(1), 0, Instant::now()).unwrap();
    let id = prefill.expect("the registration", push);
    assert_eq!(id.reader, new);
    prefill.exchange.write(&id, 0, &wanted(1), 0, Instant::now()).unwrap();
    common::eventually("the arrival", || {
        prefill.poll();
        count(&mut second, "arrived") == 1
    });
    goes_on(&mut prefill);
}

#[test]
fn a_producer_that_lives_behind_a_broken_way_is_reached_anew() {
    let mut prefill = PeerProcess::spawn(Via::Default, 4 * MIB, 1);
    let mut decode = Side::with(Via::Default, 4 * MIB);
    let peer = decode.connect(&mut prefill);
    warm(&mut decode, &peer, &mut prefill);
    // The kernel's copy fails, and with it the endpoint.
    prefill.ask(&format!("unmap {} {MIB}", 3 * MIB));
    let lease = hold(&mut prefill, "r", 1, 0);
    decode.pull_all(&peer, "r", lease, vec![descriptor(0, 2 * MIB as u64, 2 * MIB as u64 - 1)], PATIENCE);
    let why = decode.expect("the failure", pull_failed);
    assert!(matches!(why, PullFailed::Transfer { .. }), "{why}");
    assert_eq!(decode.expect("the loss", lost), peer);
    let descriptors = vec![descriptor(0, 0, 1024)];
    let part =
        PullPart { peer: peer.clone(), request: request("r"), lease, descriptors, padding_bytes: 0, layers: None };
    let now = Instant::now();
    let (error, _) = decode.exchange.pull("other", vec![part], now + PATIENCE, now).unwrap_err();
    assert!(matches!(error, Error::PeerNotReady { state: Some(PeerState::Lost), .. }), "{error}");

    decode.until("another try", |side| side.exchange.want("prefill", Instant::now()) == Wanted::Fetch);
    assert_eq!(decode.exchange.connect(&prefill.blob, Instant::now()).unwrap(), peer);
    let again = hold(&mut prefill, "again", 1, 0);
    decode.memory.write(0, &common::pattern(9, 0, MIB));
    decode.pull(&peer, "again", again, MIB, PATIENCE);
    decode.expect("a pull", pulled);
    assert!(decode.memory.read(0, MIB) == common::pattern(1, 0, MIB));
    // Nothing proves that the first has settled while the process lives.
    assert_eq!(decode.exchange.stats().pulls.quarantined, 1);
    prefill.kill();
    decode.expect("the blocks", returned);
    goes_on(&mut decode);
}

#[test]
fn memory_is_withdrawn_once_a_reader_has_drained_and_registered_anew() {
    for via in BOTH {
        let mut prefill = PeerProcess::spawn(via, 16 * MIB, 1);
        let mut decode = Side::with(via, 16 * MIB);
        let peer = decode.connect(&mut prefill);
        warm(&mut decode, &peer, &mut prefill);
        let lease = hold(&mut prefill, "r", 1, 0);
        decode.pull_all(&peer, "r", lease, rounds(16 * MIB, 32), PATIENCE);
        assert_eq!(prefill.ask("withdraw"), "ok");
        decode
            .until("the word of it", |side| !matches!(side.exchange.want("prefill", Instant::now()), Wanted::Ready(_)));
        if decode.exchange.agent().unsettled() > 0 {
            assert_eq!(count(&mut prefill, "withdrawn"), 0, "memory that is being read was given up");
        }
        decode.expect("the pull", pulled);
        assert!(decode.memory.read(0, 16 * MIB) == common::pattern(1, 0, 16 * MIB));
        common::eventually("the withdrawal", || {
            decode.poll();
            count(&mut prefill, "withdrawn") == 1
        });
        let blob = bytes(&prefill.ask("register"));
        let stale = |event: &Event<_>| matches!(event, Event::PeerStale(_)).then_some(());
        decode.expect("the news", stale);
        decode.until("a fetch", |side| side.exchange.want("prefill", Instant::now()) == Wanted::Fetch);
        let error = decode.exchange.connect(&prefill.blob, Instant::now()).unwrap_err();
        assert!(matches!(error, Error::StaleBlob { .. }), "{error}");
        assert_eq!(decode.exchange.connect(&blob, Instant::now()).unwrap(), peer);
        warm(&mut decode, &peer, &mut prefill);
        goes_on(&mut decode);
    }
}

#[test]
fn a_goodbye_gives_reserved_blocks_back_at_once() {
    let mut prefill = PeerProcess::spawn(Via::Default, MIB, 1);
    let mut decode = Side::new(Via::Default);
    let peer = decode.connect(&mut prefill);
    decode.reserve(&peer, "r", PATIENCE);
    let start = Instant::now();
    assert_eq!(prefill.ask("goodbye"), "ok");
    assert_eq!(decode.expect("the failure", arrival_failed), ArrivalFailed::Lost(peer.clone()));
    decode.expect("the blocks", returned);
    assert_eq!(decode.expect("the loss", lost), peer);
    assert!(start.elapsed() < PATIENCE / 2 && decode.exchange.peer(&peer).is_some_and(|peer| !peer.is_gone()));
}

#[test]
fn a_goodbye_is_not_said_to_peers_that_are_known_to_be_lost_or_have_ended() {
    let mut lost_one = PeerProcess::spawn(Via::Default, MIB, 1);
    let mut decode = Side::new(Via::Default);
    let peer = decode.connect(&mut lost_one);
    warm(&mut decode, &peer, &mut lost_one);
    let lease = hold(&mut lost_one, "r", 1, 0);
    lost_one.kill();
    // One is found out by a pull that fails, of the other its agent alone knows.
    decode.pull(&peer, "r", lease, MIB, PATIENCE);
    assert_eq!(decode.expect("the loss", lost), peer);
    decode.expect("the blocks", returned);
    let mut ended = PeerProcess::spawn(Via::Default, MIB, 3);
    let peer = decode.connect(&mut ended);
    ended.kill();
    common::eventually("its end", || decode.exchange.peer(&peer).is_none_or(kvnixl::Peer::is_gone));
    let before = decode.exchange.stats().messages;
    decode.exchange.goodbye(Instant::now()).unwrap();
    decode.poll();
    let after = decode.exchange.stats().messages;
    assert_eq!((after.sent, after.not_sent, after.unanswered), (before.sent, before.not_sent, 0));
}

#[test]
fn blobs_of_dead_processes_and_of_replaced_ones_are_refused_and_the_living_stays() {
    let mut first = PeerProcess::spawn(Via::Default, MIB, 1);
    let mut never = PeerProcess::spawn(Via::Default, MIB, 2);
    let mut decode = Side::new(Via::Default);
    decode.connect(&mut first);
    first.kill();
    never.kill();
    let mut second = PeerProcess::spawn(Via::Default, MIB, 3);
    let living = decode.connect(&mut second);
    let now = Instant::now();
    let replaced = decode.exchange.connect(&first.blob, now).unwrap_err();
    assert!(matches!(replaced, Error::OlderProcess { .. }), "{replaced}");
    let dead = decode.exchange.connect(&never.blob, now).unwrap_err();
    assert!(matches!(dead, Error::PeerEnded { .. }), "{dead}");
    for garbage in [&[][..], &[0xff; 100], &second.blob[..second.blob.len() / 2]] {
        assert!(decode.exchange.connect(garbage, now).is_err());
    }
    let own = decode.exchange.agent().export().unwrap();
    assert!(matches!(decode.exchange.connect(&own, now), Err(Error::OwnBlob { .. })));
    assert_eq!(decode.exchange.want("prefill", now), Wanted::Ready(living.clone()));
    warm(&mut decode, &living, &mut second);
    assert!(decode.memory.read(0, 1024) == common::pattern(3, 0, 1024));
}

#[test]
fn descriptors_that_wrap_or_leave_what_is_registered_never_reach_nixl() {
    let mut prefill = PeerProcess::spawn(Via::Default, MIB, 1);
    let mut decode = Side::new(Via::Default);
    let peer = decode.connect(&mut prefill);
    warm(&mut decode, &peer, &mut prefill);
    let requests = decode.exchange.agent().stats().requests;
    let end = MIB as u64;
    let bad = [
        descriptor(0, u64::MAX - 100, 4096),
        descriptor(u64::MAX - 100, 0, 4096),
        descriptor(0, 0, u64::MAX),
        descriptor(0, 4096, u64::MAX - 4095),
        descriptor(0, end - 100, 101),
        descriptor(end, 0, 1),
        descriptor(0, 0, 0),
    ];
    for bad in bad {
        let lease = LeaseId(1);
        decode.pull_all(&peer, "r", lease, vec![descriptor(0, 0, 1024), bad], PATIENCE);
        let why = decode.expect("the failure", pull_failed);
        let PullFailed::Transfer { source, .. } = why else { panic!("{why}") };
        assert!(matches!(*source, Error::OutOfRange { index: 1, .. }), "{source}");
        decode.expect("the blocks", returned);
    }
    assert_eq!(decode.exchange.agent().stats().requests, requests);
    warm(&mut decode, &peer, &mut prefill);
    goes_on(&mut decode);
}

#[test]
fn messages_of_megabytes_of_garbage_and_about_nothing_are_counted_and_change_nothing() {
    let mut prefill = PeerProcess::spawn(Via::Default, MIB, 1);
    let mut decode = Side::new(Via::Default);
    let peer = decode.connect(&mut prefill);
    let lease = decode.exchange.hold(request("r"), "held", Some(1), 0, Instant::now()).unwrap();
    let blob = hex(&decode.exchange.agent().export().unwrap());
    let own = |event: &Event<_>| match event {
        Event::Notification(notification) => Some(notification.message.clone()),
        _ => None,
    };
    // One that is an agent of ours, as far as its name says, and one that is not.
    for (name, known) in [("stranger@00000000000000ab", true), ("stranger", false)] {
        let dropped = decode.exchange.agent().stats().notifications_dropped;
        let before = decode.exchange.stats();
        assert_eq!(prefill.ask(&format!("stranger {blob} {name}")), "18");
        assert_eq!(decode.expect("the last of them", own), b"\0\xff garbage");
        let after = decode.exchange.stats();
        let (messages, was) = (after.messages, before.messages);
        assert_eq!(decode.exchange.agent().stats().notifications_dropped - dropped, 2);
        assert_eq!(messages.malformed - was.malformed, 3);
        assert_eq!(messages.unsupported - was.unsupported, 2);
        let well_formed = if known { (10, 0) } else { (0, 10) };
        assert_eq!((messages.received - was.received, messages.anonymous - was.anonymous), well_formed);
        let counts = |stats: &kvnixl::ExchangeStats| {
            [stats.leases.unknown_completions, stats.pulls.stray_confirmations, stats.reservations.unknown]
        };
        let more: Vec<u64> = counts(&after).iter().zip(counts(&before)).map(|(after, before)| after - before).collect();
        assert_eq!(more, if known { [1, 1, 3] } else { [0, 0, 0] });
        // The lease is held, the peer is there.
        assert_eq!((after.leases.live, after.peers.lost), (1, 0));
    }
    decode.exchange.abort(lease, Instant::now());
    decode.expect("the blocks", freed);
    warm(&mut decode, &peer, &mut prefill);
    goes_on(&mut decode);
}

#[test]
fn a_reader_that_is_stopped_holds_up_its_write_and_no_source_blocks() {
    let mut decode = PeerProcess::spawn(Via::Tcp, 16 * MIB, 1);
    let mut prefill = Side::with(Via::Tcp, 16 * MIB);
    let peer = prefill.connect(&mut decode);
    warm(&mut prefill, &peer, &mut decode);
    assert_eq!(decode.ask("reserve r decode"), "ok");
    prefill.exchange.hold(request("r"), "source", Some(1), 0, Instant::now()).unwrap();
    let id = prefill.expect("the registration", push);
    decode.stop();
    prefill.exchange.write(&id, 0, &rounds(16 * MIB, 1), 0, Instant::now()).unwrap();
    // The lease is extended while the write lives; the engine ends it.
    prefill.until("a post", |side| side.exchange.agent().stats().requests > 1);
    let lease = prefill.exchange.lease_of(&request("r")).unwrap();
    assert!(prefill.exchange.abort(lease, Instant::now()));
    assert_eq!(prefill.expect("the source blocks", freed), EndReason::Aborted);
    let failed = |event: &Event<_>| matches!(event, Event::WriteFailed { .. }).then_some(());
    prefill.expect("the failure", failed);
    let [entry] = &prefill.exchange.agent().quarantine()[..] else { panic!("not in quarantine") };
    assert_eq!((entry.request.as_deref(), entry.peer.as_str()), (Some("r"), "prefill"));
    assert_eq!(prefill.exchange.stats().push.writing, 1);
    decode.resume();
    prefill.until("the settlement", |side| side.exchange.stats().push.writing == 0);
    goes_on(&mut prefill);
}
