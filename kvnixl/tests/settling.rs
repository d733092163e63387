//! When a transfer that failed has settled, on real NIXL between processes: see `docs/settling.md`.

mod common;

use std::time::{Duration, Instant};

use common::process::{self, PeerProcess};
use common::{PATIENCE, SOON, Via, Worker, descriptor, eventually};
use kvnixl::{Agent, Barrier, Error, Locality, Peer, Transfer, TransferOptions, TransferState};
use kvplan::{Descriptor, Op};

const MIB: usize = 1 << 20;

#[test]
#[ignore = "other tests run it as a process of its own"]
fn peer_process() {
    process::serve();
}

fn whole(len: usize) -> [Descriptor; 1] {
    [descriptor(0, 0, len as u64)]
}

fn pair(via: Via, len: usize) -> (PeerProcess, Worker, Peer) {
    let remote = PeerProcess::spawn(via, len, 1);
    let local = Worker::nixl("decode", via, len, 2);
    let peer = local.agent.connect(&remote.blob).unwrap();
    (remote, local, peer)
}

fn warm(agent: &Agent, peer: &Peer) {
    let read = agent.start(peer, Op::Read, &[descriptor(0, 0, 1024)], TransferOptions::default()).unwrap();
    read.wait(PATIENCE).unwrap();
}

/// Waits until the failed transfer has settled and nothing of it is left.
fn settles(agent: &Agent, transfer: &Transfer) {
    transfer.wait_settled(PATIENCE).unwrap();
    assert!(matches!(transfer.state(), TransferState::Failed { settled: true, .. }), "{transfer:?}");
    eventually("an empty quarantine", || agent.quarantine().is_empty());
    let stats = agent.stats();
    assert_eq!((stats.unsettled, stats.in_flight_bytes, stats.in_flight_descriptors, stats.quarantined), (0, 0, 0, 0));
}

#[test]
fn transfers_with_a_peer_killed_before_or_during_them_settle_and_memory_is_given_back() {
    for via in [Via::Default, Via::Tcp] {
        for op in [Op::Read, Op::Write] {
            let (mut remote, local, peer) = pair(via, 64 * MIB);
            assert_eq!(*peer.locality(), Locality::SameHost);
            warm(&local.agent, &peer);
            // The same bytes again and again, just within what may be in flight: it does not end before the kill.
            let rounds: Vec<Descriptor> = (0..1000).flat_map(|_| whole(64 * MIB)).collect();
            let during = local.agent.start(&peer, op, &rounds, TransferOptions::default()).unwrap();
            eventually("a post", || during.stats().requests > 2);
            assert!(!peer.is_gone());
            remote.kill();
            assert!(peer.is_gone());
            let error = during.wait(PATIENCE).unwrap_err();
            assert!(matches!(error, Error::TransferFailed { .. }), "{via:?} {op:?}: {error}");
            settles(&local.agent, &during);

            let after = local.agent.start(&peer, op, &whole(MIB), TransferOptions::default()).unwrap();
            assert!(after.wait(PATIENCE).is_err());
            settles(&local.agent, &after);
            assert_eq!(local.agent.stats().transfers_failed.transport, 2);
            // What has settled is no longer written.
            let seen = local.memory.read(0, 64 * MIB);
            std::thread::sleep(Duration::from_millis(200));
            assert!(seen == local.memory.read(0, 64 * MIB), "{via:?} {op:?}");
            local.agent.disconnect(&peer).unwrap();
            local.agent.deregister().unwrap();
            let Worker { agent, memory } = local;
            agent.shutdown(PATIENCE).unwrap();
            drop(memory);
        }
    }
}

#[test]
fn a_request_whose_first_descriptor_fails_is_not_done_though_its_last_succeeds() {
    for via in [Via::Default, Via::Tcp] {
        for op in [Op::Read, Op::Write] {
            let (mut remote, local, peer) = pair(via, MIB);
            warm(&local.agent, &peer);
            // The kernel's copy fails. Who keeps to the contract has that of a sparse file on a full tmpfs.
            remote.unmap(0, 64 << 10);
            let rows = [descriptor(0, 16 << 10, 4096), descriptor(512 << 10, 512 << 10, 4096)];
            for options in [TransferOptions::default(), TransferOptions::default().notify(*b"done")] {
                let transfer = local.agent.start(&peer, op, &rows, options).unwrap();
                let ended = transfer.wait(PATIENCE);
                assert!(matches!(ended, Err(Error::TransferFailed { .. })), "{via:?} {op:?}: {ended:?}");
                if via == Via::Tcp {
                    // Its end is not this agent's to see.
                    break;
                }
                local.agent.reconnect(&peer).unwrap();
            }
        }
    }
}

/// Waits until the copy threads carry what is large.
fn share(local: &Worker, peer: &Peer) {
    let start = Instant::now();
    while local.agent.stats().copy_threads == 0 {
        assert!(start.elapsed() < PATIENCE, "no copy thread is ready");
        let read = local.agent.start(peer, Op::Read, &whole(local.memory.len()), TransferOptions::default()).unwrap();
        read.wait(PATIENCE).unwrap();
    }
}

#[test]
fn a_shared_transfer_of_which_any_piece_fails_is_not_done() {
    let rows: Vec<Descriptor> = (0..512).map(|i| descriptor(i * 8192, i * 8192, 8192)).collect();
    for op in [Op::Read, Op::Write] {
        // In the first request, in the middle of one, at the end of one, and the last of all.
        for bad in [1, 77, 255, 510] {
            let (mut remote, local, peer) = pair(Via::Default, 4 * MIB);
            share(&local, &peer);
            // From before the row's first byte: a copy that is cut short within a row is said to be whole.
            remote.unmap(bad * 8192 - 4096, 16 << 10);
            let transfer = local.agent.start(&peer, op, &rows, TransferOptions::default()).unwrap();
            let ended = transfer.wait(PATIENCE);
            assert!(matches!(ended, Err(Error::TransferFailed { .. })), "{op:?} {bad}: {ended:?}");
            remote.kill();
            settles(&local.agent, &transfer);
            local.agent.shutdown(PATIENCE).unwrap();
        }
    }
}

#[test]
fn a_peer_killed_before_anything_was_exchanged_fails_the_first_transfer_which_settles() {
    for via in [Via::Default, Via::Tcp] {
        let (mut remote, local, peer) = pair(via, MIB);
        remote.kill();
        let options = TransferOptions::default().deadline(PATIENCE);
        let first = local.agent.start(&peer, Op::Read, &whole(MIB), options).unwrap();
        assert!(matches!(first.wait(PATIENCE), Err(Error::TransferFailed { .. })));
        settles(&local.agent, &first);
        local.assert_holds(0, MIB, 2, 0);
        local.agent.shutdown(PATIENCE).unwrap();
    }
}

#[test]
fn a_peer_that_is_stopped_and_then_killed_settles_what_was_quarantined() {
    let (mut remote, local, peer) = pair(Via::Tcp, 32 * MIB);
    warm(&local.agent, &peer);
    remote.stop();
    let options = TransferOptions::default().deadline(SOON).request("req-7");
    let transfer = local.agent.start(&peer, Op::Read, &whole(32 * MIB), options).unwrap();
    let error = transfer.wait(PATIENCE).unwrap_err();
    assert!(matches!(error, Error::TransferFailed { settled: false, .. }), "{error}");
    let [entry] = &local.agent.quarantine()[..] else { panic!("{:?}", local.agent.quarantine()) };
    assert_eq!(
        (entry.transfer, entry.request.as_deref(), entry.peer.as_str()),
        (transfer.id(), Some("req-7"), "prefill")
    );
    assert_eq!((entry.incarnation, entry.op, entry.unproven), (peer.incarnation(), Op::Read, 0));
    assert!(matches!(*entry.cause, Error::Deadline { .. }) && entry.in_progress > 0);
    // Only what was posted may land, and it is listed.
    let base = local.memory.base();
    assert!(entry.bytes() > 0 && entry.bytes() < 32 * MIB as u64);
    assert!(entry.pieces.iter().all(|piece| piece.local >= base && piece.local + piece.len <= base + 32 * MIB as u64));
    let stats = local.agent.stats();
    assert_eq!((stats.quarantined, stats.quarantined_bytes, stats.unsettled), (1, entry.bytes(), 1));
    assert_eq!((stats.in_flight_bytes, stats.transfers_failed.deadline), (entry.bytes(), 1));

    remote.kill();
    settles(&local.agent, &transfer);
    assert_eq!(local.agent.stats().quarantine_left, 1);
    local.agent.shutdown(PATIENCE).unwrap();
}

#[test]
fn a_peer_that_lives_keeps_a_failed_transfer_in_quarantine_until_it_is_gone() {
    // Its last pages are unmapped: the kernel's copy fails, and nothing proves what NIXL still has in hand.
    let (mut remote, local, peer) = pair(Via::Default, 4 * MIB);
    warm(&local.agent, &peer);
    remote.unmap(3 * MIB, MIB);
    let transfer = local.agent.start(
        &peer,
        Op::Read,
        &[descriptor(0, 2 * MIB as u64, 2 * MIB as u64 - 1)],
        TransferOptions::default(),
    );
    let transfer = transfer.unwrap();
    let error = transfer.wait(PATIENCE).unwrap_err();
    assert!(matches!(error, Error::TransferFailed { settled: false, .. }), "{error}");
    assert!(transfer.wait_settled(Duration::from_millis(200)).is_err());
    let [entry] = &local.agent.quarantine()[..] else { panic!("{:?}", local.agent.quarantine()) };
    assert_eq!((entry.in_progress, entry.unproven), (0, 1));
    assert!(matches!(local.agent.deregister(), Err(Error::InUse { transfers: 1, .. })));
    assert!(matches!(local.agent.disconnect(&peer), Err(Error::InUse { transfers: 1, .. })));
    // The error has closed the way to the peer. It can be opened anew, and what is quarantined stays so.
    let read = local.agent.start(&peer, Op::Read, &whole(MIB), TransferOptions::default()).unwrap();
    assert!(read.wait(PATIENCE).is_err());
    local.agent.reconnect(&peer).unwrap();
    warm(&local.agent, &peer);
    local.assert_holds(0, 1024, 1, 0);
    assert!(local.agent.quarantine().iter().any(|entry| entry.transfer == transfer.id()));
    remote.kill();
    read.wait_settled(PATIENCE).unwrap();
    settles(&local.agent, &transfer);
    local.agent.disconnect(&peer).unwrap();
    local.agent.shutdown(PATIENCE).unwrap();
}

#[test]
fn shutdown_does_not_wait_for_what_only_the_death_of_a_living_peer_would_settle() {
    let (mut remote, local, peer) = pair(Via::Default, 4 * MIB);
    warm(&local.agent, &peer);
    remote.unmap(3 * MIB, MIB);
    let lost = [descriptor(0, 2 * MIB as u64, 2 * MIB as u64 - 1)];
    let transfer = local.agent.start(&peer, Op::Read, &lost, TransferOptions::default()).unwrap();
    assert!(transfer.wait(PATIENCE).is_err());
    let Worker { agent, memory } = local;
    let start = Instant::now();
    assert!(matches!(agent.shutdown(PATIENCE), Err(Error::Unsettled { transfers: 1, .. })));
    assert!(start.elapsed() < PATIENCE / 2);
    memory.leak();
}

#[test]
fn deregistering_at_the_peer_revokes_nothing() {
    // `docs/settling.md` says so: who deregisters must keep the memory mapped while a peer may use it.
    for via in [Via::Default, Via::Tcp] {
        let (mut remote, local, peer) = pair(via, MIB);
        warm(&local.agent, &peer);
        remote.deregister();
        let read = local.agent.start(&peer, Op::Read, &whole(MIB), TransferOptions::default()).unwrap();
        read.wait(PATIENCE).unwrap();
        local.assert_holds(0, MIB, 1, 0);
    }
}

#[test]
fn notifications_of_megabytes_and_of_strangers_are_counted_and_harm_nobody() {
    use nixl_sys::{AgentConfig, Params, ThreadSync};
    let local = Worker::nixl("decode", Via::Default, MIB, 2);
    let blob = local.agent.export().unwrap();
    let config = AgentConfig { thread_sync: ThreadSync::Strict, pthr_delay_us: 1000, ..AgentConfig::default() };
    let stranger = nixl_sys::Agent::new_configured("stranger", &config).unwrap();
    let backend = stranger.create_backend("UCX", &Params::from(None::<(&str, &str)>).unwrap()).unwrap();
    let name = stranger.load_remote_md(process::nixl_metadata(&blob)).unwrap();
    stranger.send_notification(&name, &vec![0xff; 3 * MIB], Some(&backend)).unwrap();
    stranger.send_notification(&name, b"\0\xffgarbage", Some(&backend)).unwrap();
    let mut arrived = Vec::new();
    eventually("the stranger's short message", || {
        arrived.extend(local.agent.notifications().unwrap());
        !arrived.is_empty()
    });
    assert_eq!((arrived[0].sender.as_str(), arrived[0].incarnation), ("stranger", None));
    assert_eq!(arrived[0].message, b"\0\xffgarbage");
    let stats = local.agent.stats();
    assert_eq!((stats.notifications_received, stats.notifications_dropped), (1, 1));
}

#[test]
fn stats_say_what_was_done() {
    let (mut remote, local, peer) = pair(Via::Default, 4 * MIB);
    let descriptors = [descriptor(0, 0, MIB as u64), descriptor(2 * MIB as u64, MIB as u64, 100)];
    let options = TransferOptions::default().padding_bytes(40).notify(*b"done");
    local.agent.start(&peer, Op::Read, &descriptors, options).unwrap().wait(PATIENCE).unwrap();
    assert_eq!(remote.next_notification().2, b"done");
    local.agent.notify(&peer, b"more").unwrap();
    let stats = local.agent.stats();
    assert_eq!((stats.transfers_started, stats.transfers_done, stats.transfers_failed.total()), (1, 1, 0));
    assert_eq!((stats.bytes, stats.padding_bytes, stats.descriptors), (MIB as u64 + 100, 40, 2));
    assert!(stats.requests >= 1 && stats.post.count() == stats.requests && stats.transfer.count() == 1);
    assert!(stats.transfer.sum > Duration::ZERO && stats.transfer.sum < PATIENCE);
    assert_eq!((stats.notifications_sent, stats.in_flight_transfers, stats.unsettled), (2, 0, 0));
}

#[test]
fn a_peer_in_another_pid_namespace_is_flagged_and_only_declared_gone() {
    let apart = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let permitted = std::process::Command::new(apart[0]).args(&apart[1..]).arg("true").status();
    if !permitted.is_ok_and(|status| status.success()) {
        println!("skipped: this user may not make a PID namespace (unshare --pid)");
        return;
    }
    let mut remote = PeerProcess::spawn_under(&apart, Via::Default, 64 * MIB, 1);
    let local = Worker::nixl("decode", Via::Default, 64 * MIB, 2);
    let peer = local.agent.connect(&remote.blob).unwrap();
    assert_eq!(*peer.locality(), Locality::SameHostApart(vec![Barrier::PidNamespace]));
    warm(&local.agent, &peer);
    let rounds: Vec<Descriptor> = (0..1000).flat_map(|_| whole(64 * MIB)).collect();
    let transfer = local.agent.start(&peer, Op::Write, &rounds, TransferOptions::default()).unwrap();
    eventually("a post", || transfer.stats().requests > 2);
    remote.kill();
    let error = transfer.wait(PATIENCE).unwrap_err();
    assert!(matches!(error, Error::TransferFailed { .. }), "{error}");
    // Its number means another process here: nobody can tell.
    assert!(!peer.is_gone());
    assert!(transfer.wait_settled(Duration::from_millis(200)).is_err());
    assert_eq!(local.agent.quarantine().len(), 1);
    // SAFETY: killed above, and its namespace with it; a moment for the kernel to end it.
    unsafe {
        std::thread::sleep(Duration::from_millis(100));
        peer.declare_gone();
    }
    settles(&local.agent, &transfer);
    local.agent.shutdown(PATIENCE).unwrap();
}
