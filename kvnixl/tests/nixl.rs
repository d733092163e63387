//! Transfers on real NIXL: two agents in one process, and processes that are stopped, killed and restarted.
//!
//! The peer process is this test program again, running `peer_process` (see `common::process`).

mod common;

use std::time::{Duration, Instant};

use common::process::{self, PeerProcess};
use common::{PATIENCE, SOON, Via, Worker, descriptor, eventually};
use kvnixl::{Error, TransferOptions, TransferState};
use kvplan::{Descriptor, Op};

const MIB: usize = 1 << 20;

#[test]
#[ignore = "other tests run it as a process of its own"]
fn peer_process() {
    process::serve();
}

/// Descriptors of many sizes, in no order, none overlapping another on either side.
fn scattered(len: usize) -> Vec<Descriptor> {
    let slot = 4096;
    let num = (len / slot) as u64;
    // An odd multiplier permutes a power of two.
    assert!(num.is_power_of_two());
    (0..num).map(|i| descriptor(i * 4096 + i % 7, (i * 5 + 3) % num * 4096 + i % 11, 1 + i * 37 % 4000)).collect()
}

/// What `local` holds after a read of `descriptors`.
fn expected(before: &[u8], remote: &[u8], descriptors: &[Descriptor]) -> Vec<u8> {
    let mut expected = before.to_vec();
    for d in descriptors {
        let [to, from, len] = [d.local_offset, d.remote_offset, d.len].map(|value| usize::try_from(value).unwrap());
        expected[to..to + len].copy_from_slice(&remote[from..from + len]);
    }
    expected
}

#[test]
fn two_agents_of_one_process_read_and_write_each_other() {
    let prefill = Worker::nixl("prefill", Via::Default, 4 * MIB, 1);
    let decode = Worker::nixl("decode", Via::Default, 4 * MIB, 2);
    let peer = decode.agent.connect(&prefill.agent.export().unwrap()).unwrap();
    let descriptors = scattered(4 * MIB);
    let before = decode.memory.read(0, 4 * MIB);
    let transfer = decode.agent.start(&peer, Op::Read, &descriptors, TransferOptions::default()).unwrap();
    transfer.wait(PATIENCE).unwrap();
    let after = expected(&before, &prefill.memory.read(0, 4 * MIB), &descriptors);
    assert!(decode.memory.read(0, 4 * MIB) == after);

    decode.memory.write(0, &common::pattern(3, 0, 4 * MIB));
    let transfer =
        decode.agent.start(&peer, Op::Write, &[descriptor(0, 0, 3 * MIB as u64)], TransferOptions::default()).unwrap();
    transfer.wait(PATIENCE).unwrap();
    prefill.assert_holds(0, 3 * MIB, 3, 0);
    prefill.assert_holds(3 * MIB, MIB, 1, 3 * MIB);
}

#[test]
fn processes_read_write_and_notify_each_other() {
    for via in [Via::Default, Via::Tcp] {
        let mut remote = PeerProcess::spawn(via, 4 * MIB, 1);
        let local = Worker::nixl("decode", via, 4 * MIB, 2);
        let peer = local.agent.connect(&remote.blob).unwrap();
        remote.connect(&local.agent.export().unwrap());

        let descriptors = scattered(4 * MIB);
        let before = local.memory.read(0, 4 * MIB);
        let transfer = local.agent.start(&peer, Op::Read, &descriptors, TransferOptions::default()).unwrap();
        transfer.wait(PATIENCE).unwrap();
        let after = expected(&before, &common::pattern(1, 0, 4 * MIB), &descriptors);
        assert!(local.memory.read(0, 4 * MIB) == after, "{via:?}");

        local.memory.write(0, &common::pattern(3, 0, 4 * MIB));
        let options = TransferOptions::default().notify(*b"\0written\xff");
        let transfer = local.agent.start(&peer, Op::Write, &[descriptor(0, MIB as u64, 2 * MIB as u64)], options);
        // The peer looks as soon as it is told: the bytes must be there.
        let (sender, incarnation, message) = remote.next_notification();
        assert_eq!(message, b"\0written\xff");
        assert_eq!((sender.as_str(), incarnation), ("decode", Some(local.agent.incarnation())));
        assert!(remote.holds(MIB, 2 * MIB, 3, 0), "{via:?}");
        assert!(remote.holds(0, MIB, 1, 0) && remote.holds(3 * MIB, MIB, 1, 3 * MIB), "{via:?}");
        transfer.unwrap().wait(PATIENCE).unwrap();

        remote.notify(b"thanks\0");
        eventually("the peer's notification", || {
            let arrived = local.agent.notifications().unwrap();
            arrived.iter().any(|n| n.message == b"thanks\0" && n.incarnation == Some(peer.incarnation()))
        });
        local.agent.disconnect(&peer).unwrap();
        local.agent.shutdown(PATIENCE).unwrap();
    }
}

#[test]
fn a_stopped_peer_fails_the_transfer_at_the_deadline_and_it_settles_when_the_peer_goes_on() {
    let remote = PeerProcess::spawn(Via::Tcp, 4 * MIB, 1);
    let local = Worker::nixl("decode", Via::Tcp, 4 * MIB, 2);
    let peer = local.agent.connect(&remote.blob).unwrap();
    let warm = local.agent.start(&peer, Op::Read, &[descriptor(0, 0, 1024)], TransferOptions::default()).unwrap();
    warm.wait(PATIENCE).unwrap();

    remote.stop();
    let options = TransferOptions::default().deadline(SOON);
    let start = Instant::now();
    let transfer = local.agent.start(&peer, Op::Read, &[descriptor(0, 0, 4 * MIB as u64)], options).unwrap();
    let error = transfer.wait(PATIENCE).unwrap_err();
    assert!(start.elapsed() >= SOON);
    assert!(
        matches!(&error, Error::TransferFailed { settled: false, source, .. }
        if matches!(**source, Error::Deadline { .. })),
        "{error}"
    );
    // Nothing is handed back while NIXL may write.
    assert!(matches!(transfer.wait_settled(Duration::from_millis(200)), Err(Error::Deadline { .. })));
    assert!(matches!(local.agent.deregister(), Err(Error::InUse { transfers: 1, .. })));

    remote.resume();
    transfer.wait_settled(PATIENCE).unwrap();
    assert!(matches!(transfer.state(), TransferState::Failed { settled: true, .. }));
    let again = local.agent.start(&peer, Op::Read, &[descriptor(0, 0, 4 * MIB as u64)], TransferOptions::default());
    again.unwrap().wait(PATIENCE).unwrap();
    local.assert_holds(0, 4 * MIB, 1, 0);
    local.agent.shutdown(PATIENCE).unwrap();
}

#[test]
fn shutdown_with_a_stopped_peer_ends_in_time_and_keeps_the_memory() {
    let remote = PeerProcess::spawn(Via::Tcp, 4 * MIB, 1);
    let Worker { agent, memory } = Worker::nixl("decode", Via::Tcp, 4 * MIB, 2);
    let peer = agent.connect(&remote.blob).unwrap();
    let warm = agent.start(&peer, Op::Read, &[descriptor(0, 0, 1024)], TransferOptions::default()).unwrap();
    warm.wait(PATIENCE).unwrap();
    remote.stop();
    let whole = [descriptor(0, 0, 4 * MIB as u64)];
    let transfer = agent.start(&peer, Op::Read, &whole, TransferOptions::default()).unwrap();
    eventually("a post", || transfer.stats().requests > 0);
    let start = Instant::now();
    let error = agent.shutdown(Duration::from_millis(200)).unwrap_err();
    assert!(start.elapsed() < PATIENCE / 2);
    assert!(matches!(error, Error::Unsettled { transfers: 1, .. }), "{error}");
    assert!(matches!(transfer.state(), TransferState::Failed { settled: false, .. }));
    // As the error says, the memory must stay: what was requested still arrives.
    remote.resume();
    eventually("the bytes of a request that nobody waits for", || memory.read(0, 1024) == common::pattern(1, 0, 1024));
    memory.leak();
}

#[test]
fn shutdown_with_transfers_in_flight_settles_them() {
    let remote = PeerProcess::spawn(Via::Tcp, 32 * MIB, 1);
    let local = Worker::nixl("decode", Via::Tcp, 32 * MIB, 2);
    let peer = local.agent.connect(&remote.blob).unwrap();
    let whole = [descriptor(0, 0, 32 * MIB as u64)];
    let transfers: Vec<_> =
        (0..4).map(|_| local.agent.start(&peer, Op::Write, &whole, TransferOptions::default()).unwrap()).collect();
    eventually("a post", || transfers.iter().all(|transfer| transfer.stats().requests > 0));
    let Worker { agent, memory } = local;
    agent.shutdown(PATIENCE).unwrap();
    for transfer in transfers {
        assert!(transfer.state().is_settled(), "{transfer:?}");
    }
    drop(memory);
}

#[test]
fn a_killed_peer_fails_transfers_and_notifications_and_a_restarted_one_connects() {
    for via in [Via::Default, Via::Tcp] {
        let mut first = PeerProcess::spawn(via, MIB, 1);
        let local = Worker::nixl("decode", via, MIB, 2);
        let peer = local.agent.connect(&first.blob).unwrap();
        let read = |peer| {
            let options = TransferOptions::default().deadline(PATIENCE / 2);
            local.agent.start(peer, Op::Read, &[descriptor(0, 0, MIB as u64)], options).unwrap()
        };
        read(&peer).wait(PATIENCE).unwrap();
        first.kill();
        let failed = read(&peer);
        let error = failed.wait(PATIENCE).unwrap_err();
        assert!(matches!(error, Error::TransferFailed { .. }), "{error}");
        eventually("a refused notification", || local.agent.notify(&peer, b"x").is_err());

        let second = PeerProcess::spawn(via, MIB, 3);
        let again = local.agent.connect(&second.blob).unwrap();
        assert_eq!(peer.name(), again.name());
        assert_ne!(peer.incarnation(), again.incarnation());
        read(&again).wait(PATIENCE).unwrap();
        local.assert_holds(0, MIB, 3, 0);
        local.memory.leak();
    }
}

#[test]
fn nixl_metadata_that_is_damaged_is_refused_and_other_peers_stay() {
    let prefill = Worker::nixl("prefill", Via::Default, MIB, 1);
    let decode = Worker::nixl("decode", Via::Default, MIB, 2);
    let other = Worker::nixl("other", Via::Default, MIB, 3);
    let peer = decode.agent.connect(&prefill.agent.export().unwrap()).unwrap();
    let blob = other.agent.export().unwrap();

    for bytes in [&blob[..0], &blob[..11], &blob[..100], &blob[..blob.len() - 1]] {
        let error = decode.agent.connect(bytes).unwrap_err();
        assert!(matches!(error, Error::BlobTruncated { .. } | Error::BlobChecksum { .. }), "{error}");
    }
    // A checksum that fits does not help: NIXL's own words are damaged.
    let reseal = |mut blob: Vec<u8>| {
        let checksum = crc32fast::hash(&blob[12..]);
        blob[8..12].copy_from_slice(&checksum.to_be_bytes());
        blob
    };
    let broken = Worker::nixl("broken", Via::Default, MIB, 4);
    let mut garbage = broken.agent.export().unwrap();
    let metadata = garbage.windows(4).rposition(|window| window == b"nixl").unwrap() + 5;
    garbage[metadata + 3..metadata + 40].fill(0xee);
    let error = decode.agent.connect(&reseal(garbage)).unwrap_err();
    assert!(matches!(error, Error::Nixl { .. } | Error::PeerNameMismatch { .. }), "{error}");

    let transfer = decode.agent.start(&peer, Op::Read, &[descriptor(0, 0, 1000)], TransferOptions::default());
    transfer.unwrap().wait(PATIENCE).unwrap();
    decode.assert_holds(0, 1000, 1, 0);
    let peer = decode.agent.connect(&blob).unwrap();
    let transfer = decode.agent.start(&peer, Op::Read, &[descriptor(0, 0, 1000)], TransferOptions::default());
    transfer.unwrap().wait(PATIENCE).unwrap();
    decode.assert_holds(0, 1000, 3, 0);
}

#[test]
fn copy_threads_share_what_is_large_and_every_byte_arrives() {
    let len = 16 << 20;
    let mut remote = PeerProcess::spawn(Via::Default, len, 1);
    let local = Worker::nixl("decode", Via::Default, len, 2);
    let peer = local.agent.connect(&remote.blob).unwrap();
    assert_eq!(local.agent.stats().copy_threads, 0);
    // Rows in another order at the peer; the halves of this worker are written by two transfers at once.
    let rows = |num: u64, from: u64| -> Vec<Descriptor> {
        let len = (len as u64) / num;
        (from..from + num / 2).map(|i| descriptor(i * len, (i * 5 + 3) % num * len, len)).collect()
    };
    let start = Instant::now();
    for num in [2048, 64, 8].into_iter().cycle() {
        local.memory.write(0, &common::pattern(2, 0, len));
        let (first, second) = (rows(num, 0), rows(num, num / 2));
        let transfers =
            [&first, &second].map(|rows| local.agent.start(&peer, Op::Read, rows, TransferOptions::default()).unwrap());
        for transfer in transfers {
            transfer.wait(PATIENCE).unwrap();
        }
        let whole: Vec<Descriptor> = first.into_iter().chain(second).collect();
        let (before, theirs) = (common::pattern(2, 0, len), common::pattern(1, 0, len));
        assert!(local.memory.read(0, len) == expected(&before, &theirs, &whole), "{num} rows");
        // With and without the threads, which need a moment.
        if local.agent.stats().copy_threads > 0 && num == 8 {
            break;
        }
        assert!(start.elapsed() < PATIENCE * 3, "no copy thread is ready");
    }
    let ours = common::pattern(9, 0, len);
    local.memory.write(0, &ours);
    let write: Vec<Descriptor> = (0..256).map(|i| descriptor(i << 16, i << 16, 1 << 16)).collect();
    local.agent.start(&peer, Op::Write, &write, TransferOptions::default()).unwrap().wait(PATIENCE).unwrap();
    assert!(remote.holds(0, len, 9, 0));
    local.agent.shutdown(PATIENCE).unwrap();
}

#[test]
fn notifications_arrive_while_a_big_transfer_runs() {
    let mut remote = PeerProcess::spawn(Via::Default, 256 * MIB, 1);
    let local = Worker::nixl("decode", Via::Default, 256 * MIB, 2);
    let peer = local.agent.connect(&remote.blob).unwrap();
    let whole = [descriptor(0, 0, 256 * MIB as u64)];
    // A busy machine may hold this thread up until the transfer is over: then once more.
    let meanwhile = (0..10).any(|_| {
        let transfer = local.agent.start(&peer, Op::Read, &whole, TransferOptions::default()).unwrap();
        eventually("a post", || transfer.stats().requests > 0);
        local.agent.notify(&peer, b"meanwhile").unwrap();
        let in_progress = matches!(transfer.state(), TransferState::InProgress);
        let (_, _, message) = remote.next_notification();
        assert_eq!(message, b"meanwhile");
        transfer.wait(PATIENCE).unwrap();
        in_progress
    });
    assert!(meanwhile, "a notification waits until the transfer has ended");
    local.assert_holds(0, 256 * MIB, 1, 0);
}
