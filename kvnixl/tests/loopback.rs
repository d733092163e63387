//! Transfers on the loopback: what holds for every transport.

mod common;

use std::time::Duration;

use common::{PATIENCE, SOON, Worker, descriptor, eventually, plan, plan_of_model};
use kvnixl::{Agent, Error, Limits, LoopbackNetwork, MAX_NOTIFICATION_BYTES, TransferOptions, TransferState};
use kvplan::{AnswerError, BlockList, Descriptors, LocalPlan, Op, PairOptions, PairPlan, Request, Side};
use kvspec::{BlockId, GroupId, MemKind, StorageIndex};

const LEN: usize = 64 << 10;

fn pair() -> (LoopbackNetwork, Worker, Worker) {
    let network = LoopbackNetwork::new();
    let prefill = Worker::loopback("prefill", &network, LEN, 1);
    let decode = Worker::loopback("decode", &network, LEN, 2);
    (network, prefill, decode)
}

/// Limits small enough that everything is cut.
fn tiny() -> Limits {
    let mut limits = Limits::default();
    limits.descriptor_bytes = 100;
    limits.request_bytes = 250;
    limits.request_descriptors = 2;
    limits.outstanding_requests = 4;
    limits
}

#[test]
fn agents_transfers_and_peers_cross_threads() {
    fn shareable<T: Send + Sync>() {}
    shareable::<Agent>();
    shareable::<kvnixl::Transfer>();
    shareable::<kvnixl::Peer>();
    shareable::<Error>();
}

#[test]
fn reads_and_writes_deliver_exactly_the_described_bytes() {
    let (_network, prefill, decode) = pair();
    let peer = decode.agent.connect(&prefill.agent.export().unwrap()).unwrap();
    for limits in [Limits::default(), tiny()] {
        let before = decode.memory.read(0, LEN);
        let descriptors = [descriptor(1000, 3000, 1500), descriptor(5000, 0, 1), descriptor(9000, 60_000, 5536)];
        let options = TransferOptions::default().limits(limits);
        let transfer = decode.agent.start(&peer, Op::Read, &descriptors, options).unwrap();
        transfer.wait(PATIENCE).unwrap();
        let mut expected = before;
        for d in descriptors {
            let [to, from, len] = [d.local_offset, d.remote_offset, d.len].map(|value| usize::try_from(value).unwrap());
            expected[to..to + len].copy_from_slice(&prefill.memory.read(from, len));
        }
        assert!(decode.memory.read(0, LEN) == expected);
        assert_eq!(transfer.stats().bytes, 1500 + 1 + 5536);
        assert!(transfer.stats().elapsed.is_some());
    }
    let transfer = decode.agent.start(&peer, Op::Write, &[descriptor(20_000, 7, 4000)], TransferOptions::default());
    transfer.unwrap().wait(PATIENCE).unwrap();
    assert!(prefill.memory.read(7, 4000) == decode.memory.read(20_000, 4000));
    prefill.assert_holds(4007, LEN - 4007, 1, 4007);
}

#[test]
fn a_descriptor_outside_registered_memory_is_refused_before_anything_is_posted() {
    let (_network, prefill, decode) = pair();
    let peer = decode.agent.connect(&prefill.agent.export().unwrap()).unwrap();
    let len = LEN as u64;
    let good = descriptor(0, 0, 10);
    let mut no_storage = good;
    no_storage.remote_storage = StorageIndex(1);
    for (bad, side) in [
        (descriptor(len - 9, 0, 10), Side::Local),
        (descriptor(u64::MAX - 4, 0, 10), Side::Local),
        (descriptor(0, len - 9, 10), Side::Remote),
        (descriptor(0, u64::MAX - 100, 4096), Side::Remote),
        (descriptor(0, 1, u64::MAX), Side::Local),
        (descriptor(0, 0, 0), Side::Local),
        (no_storage, Side::Remote),
    ] {
        let error = decode.agent.start(&peer, Op::Read, &[good, bad], TransferOptions::default()).unwrap_err();
        assert!(matches!(&error, Error::OutOfRange { index: 1, side: s, .. } if *s == side), "{error}");
    }
    assert_eq!(decode.agent.unsettled(), 0);
    decode.assert_holds(0, LEN, 2, 0);
}

#[test]
fn the_completion_notification_comes_after_the_last_byte_and_never_on_failure() {
    let (network, prefill, decode) = pair();
    let peer = prefill.agent.connect(&decode.agent.export().unwrap()).unwrap();
    let options = || TransferOptions::default().limits(tiny()).notify(*b"\0done\xff");
    network.stall(true);
    let transfer = prefill.agent.start(&peer, Op::Write, &[descriptor(0, 0, 5000)], options()).unwrap();
    eventually("the first post", || transfer.stats().requests > 0);
    assert!(decode.agent.notifications().unwrap().is_empty());
    network.stall(false);
    transfer.wait(PATIENCE).unwrap();
    let [notification] = &decode.agent.notifications().unwrap()[..] else { panic!("one notification") };
    assert_eq!(notification.message, b"\0done\xff");
    assert_eq!(
        (notification.sender.as_str(), notification.incarnation),
        ("prefill", Some(prefill.agent.incarnation()))
    );
    decode.assert_holds(0, 5000, 1, 0);

    network.break_requests(true);
    let transfer = prefill.agent.start(&peer, Op::Write, &[descriptor(0, 0, 5000)], options()).unwrap();
    assert!(matches!(transfer.wait(PATIENCE), Err(Error::TransferFailed { settled: false, .. })));
    assert!(decode.agent.notifications().unwrap().is_empty());
}

#[test]
fn an_empty_transfer_is_done_and_notifies() {
    let (_network, prefill, decode) = pair();
    let peer = decode.agent.connect(&prefill.agent.export().unwrap()).unwrap();
    let options = TransferOptions::default().notify(*b"x");
    decode.agent.start(&peer, Op::Read, &[], options).unwrap().wait(PATIENCE).unwrap();
    assert_eq!(prefill.agent.notifications().unwrap().len(), 1);
}

#[test]
fn waiting_too_short_is_an_error_and_the_transfer_goes_on() {
    let (network, prefill, decode) = pair();
    let peer = decode.agent.connect(&prefill.agent.export().unwrap()).unwrap();
    network.stall(true);
    let transfer = decode.agent.start(&peer, Op::Read, &[descriptor(0, 0, 100)], TransferOptions::default()).unwrap();
    assert!(matches!(transfer.wait(Duration::from_millis(20)), Err(Error::Deadline { .. })));
    assert!(matches!(transfer.state(), TransferState::InProgress));
    network.stall(false);
    transfer.wait(PATIENCE).unwrap();
    decode.assert_holds(0, 100, 1, 0);
}

#[test]
fn a_transfer_past_its_deadline_has_failed_and_settles_later() {
    let (network, prefill, decode) = pair();
    let peer = decode.agent.connect(&prefill.agent.export().unwrap()).unwrap();
    network.stall(true);
    let options = TransferOptions::default().deadline(SOON);
    let transfer = decode.agent.start(&peer, Op::Read, &[descriptor(0, 0, 100)], options).unwrap();
    let error = transfer.wait(PATIENCE).unwrap_err();
    assert!(
        matches!(&error, Error::TransferFailed { settled: false, source, .. }
        if matches!(**source, Error::Deadline { .. })),
        "{error}"
    );
    assert!(matches!(transfer.wait_settled(Duration::from_millis(20)), Err(Error::Deadline { .. })));
    // Its memory is in use: it can be neither deregistered nor forgotten.
    assert_eq!((decode.agent.unsettled(), peer.unsettled()), (1, 1));
    assert!(matches!(decode.agent.deregister(), Err(Error::InUse { transfers: 1, .. })));
    assert!(matches!(decode.agent.disconnect(&peer), Err(Error::InUse { transfers: 1, .. })));
    network.stall(false);
    transfer.wait_settled(PATIENCE).unwrap();
    assert!(matches!(transfer.state(), TransferState::Failed { settled: true, .. }));
    assert_eq!(decode.agent.unsettled(), 0);
    decode.agent.disconnect(&peer).unwrap();
    decode.agent.deregister().unwrap();
}

#[test]
fn a_deadline_that_passes_before_anything_is_posted_says_that_it_has_settled_and_nothing_else() {
    let (_network, prefill, decode) = pair();
    let peer = decode.agent.connect(&prefill.agent.export().unwrap()).unwrap();
    let options = TransferOptions::default().deadline(Duration::from_nanos(1));
    let transfer = decode.agent.start(&peer, Op::Read, &[descriptor(0, 0, 100)], options).unwrap();
    let error = transfer.wait(PATIENCE).unwrap_err();
    let Error::TransferFailed { settled: true, source, .. } = &error else { panic!("{error}") };
    assert!(matches!(**source, Error::Deadline { .. }));
    assert!(!source.to_string().contains("in use"), "{source}");
}

#[test]
fn cancelling_posts_nothing_more_and_waits_for_what_was_posted() {
    let (network, prefill, decode) = pair();
    let peer = decode.agent.connect(&prefill.agent.export().unwrap()).unwrap();
    network.stall(true);
    let options = TransferOptions::default().limits(tiny());
    let transfer = decode.agent.start(&peer, Op::Read, &[descriptor(0, 0, 10_000)], options).unwrap();
    let outstanding = tiny().outstanding_requests;
    eventually("a full window", || transfer.stats().requests == outstanding);
    transfer.cancel();
    let error = transfer.wait(PATIENCE).unwrap_err();
    assert!(
        matches!(&error, Error::TransferFailed { settled: false, source, .. }
        if matches!(**source, Error::Cancelled)),
        "{error}"
    );
    network.stall(false);
    transfer.wait_settled(PATIENCE).unwrap();
    assert_eq!(transfer.stats().requests, outstanding);
    // The window was 4 requests of 200 bytes.
    decode.assert_holds(0, 800, 1, 0);
    decode.assert_holds(800, LEN - 800, 2, 800);
}

#[test]
fn a_small_transfer_does_not_wait_for_a_big_one() {
    let (network, prefill, decode) = pair();
    let peer = decode.agent.connect(&prefill.agent.export().unwrap()).unwrap();
    network.stall(true);
    let options = TransferOptions::default().limits(tiny());
    let big = decode.agent.start(&peer, Op::Read, &[descriptor(0, 0, 60_000)], options.clone()).unwrap();
    eventually("a full window", || big.stats().requests == 4);
    let small = decode.agent.start(&peer, Op::Read, &[descriptor(61_000, 61_000, 100)], options).unwrap();
    // Posted although the big one has 296 requests to go.
    eventually("the small one's post", || small.stats().requests == 1);
    assert_eq!(big.stats().requests, 4);
    network.stall(false);
    small.wait(PATIENCE).unwrap();
    big.wait(PATIENCE).unwrap();
    decode.assert_holds(0, 60_000, 1, 0);
}

#[test]
fn a_shutdown_that_may_take_for_ever_waits_until_what_moves_has_settled() {
    let (network, prefill, decode) = pair();
    let peer = decode.agent.connect(&prefill.agent.export().unwrap()).unwrap();
    network.stall(true);
    let transfer = decode.agent.start(&peer, Op::Read, &[descriptor(0, 0, 100)], TransferOptions::default()).unwrap();
    eventually("a post", || transfer.stats().requests == 1);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            network.stall(false);
        });
        let Worker { agent, memory } = decode;
        agent.shutdown(Duration::MAX).unwrap();
        drop(memory);
    });
}

#[test]
fn shutdown_reports_what_has_not_settled() {
    let (network, prefill, decode) = pair();
    let peer = decode.agent.connect(&prefill.agent.export().unwrap()).unwrap();
    network.stall(true);
    let transfer = decode.agent.start(&peer, Op::Read, &[descriptor(0, 0, 100)], TransferOptions::default()).unwrap();
    eventually("a post", || transfer.stats().requests == 1);
    let Worker { agent, memory } = decode;
    let error = agent.shutdown(Duration::from_millis(20)).unwrap_err();
    assert!(matches!(error, Error::Unsettled { transfers: 1, .. }), "{error}");
    assert!(matches!(transfer.state(), TransferState::Failed { settled: false, .. }));
    memory.leak();

    network.stall(false);
    let decode = Worker::loopback("decode", &network, LEN, 2);
    let peer = decode.agent.connect(&prefill.agent.export().unwrap()).unwrap();
    let transfer = decode.agent.start(&peer, Op::Read, &[descriptor(0, 0, 100)], TransferOptions::default()).unwrap();
    transfer.wait(PATIENCE).unwrap();
    decode.agent.shutdown(PATIENCE).unwrap();
}

#[test]
fn memory_is_registered_once_until_it_is_deregistered() {
    let network = LoopbackNetwork::new();
    let worker = Worker::loopback("worker", &network, LEN, 1);
    let base = worker.memory.base();
    // SAFETY: refused.
    let again = unsafe { worker.agent.register(&plan(base, LEN)) };
    assert!(matches!(again, Err(Error::AlreadyRegistered { count: 1, .. })));
    let other = Agent::loopback("other", &network, Limits::default()).unwrap();
    assert!(matches!(other.export(), Err(Error::NotRegistered { .. })));
    // SAFETY: the worker's memory outlives `other`, which is dropped first.
    unsafe { other.register(&plan(base, LEN)) }.unwrap();
    other.deregister().unwrap();
    assert!(matches!(other.deregister(), Err(Error::NotRegistered { .. })));
}

#[test]
fn device_memory_without_a_driver_is_a_typed_error() {
    let spec: kvspec::CacheSpec = serde_json::from_value(serde_json::json!({
        "version": 1, "fingerprint": {"model": "org/model"},
        "storages": [{"base": 4096, "len": 4096, "mem": {"vram": 4000}}],
        "groups": [{"pool": 0, "block_tokens": 1, "num_blocks": 1}],
        "layers": [{"name": "a", "group": 0, "kind": "opaque", "parts": [{"name": "b", "storage": 0, "offset": 0,
            "block_stride": 64, "sharding": "replicated", "units": {"count": 1, "stride": 64}, "content": 64}]}],
    }))
    .unwrap();
    let agent = Agent::loopback("gpu", &LoopbackNetwork::new(), Limits::default()).unwrap();
    // SAFETY: refused: no machine has 4000 devices.
    let error = unsafe { agent.register(&LocalPlan::new(&spec.validate().unwrap())) }.unwrap_err();
    assert!(matches!(error, Error::NoDevice { mem: MemKind::Vram(4000), .. }), "{error}");
}

#[test]
fn a_peer_of_another_model_is_refused() {
    let network = LoopbackNetwork::new();
    let worker = Worker::loopback("worker", &network, LEN, 1);
    let other = Agent::loopback("other", &network, Limits::default()).unwrap();
    let base = worker.memory.base();
    // SAFETY: the worker's memory outlives `other`, which is dropped first.
    unsafe { other.register(&plan_of_model("org/other", base, LEN)) }.unwrap();
    let error = worker.agent.connect(&other.export().unwrap()).unwrap_err();
    assert!(matches!(error, Error::FingerprintMismatch { .. }), "{error}");
    drop(other);
}

#[test]
fn an_answer_moves_its_bytes_and_is_refused_between_other_workers_than_it_was_planned_for() {
    let (network, prefill, decode) = pair();
    let half = Worker::loopback("half", &network, LEN / 2, 3);
    let connect = |worker: &Worker| decode.agent.connect(&worker.agent.export().unwrap()).unwrap();
    let (peer, smaller) = (connect(&prefill), connect(&half));
    let own = plan(decode.memory.base(), LEN);
    let answer = |local: &LocalPlan, layout| {
        let list = |block| vec![BlockList { group: GroupId(0), first: None, blocks: vec![BlockId(block)] }];
        let request = Request { op: Op::Read, local: list(3), remote: list(1), ..Request::default() };
        let mut answer = Descriptors::new();
        let plan = PairPlan::new(local.spec(), layout, &PairOptions::default()).unwrap();
        plan.descriptors(&request, &mut answer).unwrap();
        answer
    };
    let start = |peer: &kvnixl::Peer, answer: &Descriptors| {
        decode.agent.start_answer(peer, answer, TransferOptions::default()).map(|transfer| transfer.wait(PATIENCE))
    };
    let refusal = |peer: &kvnixl::Peer, answer: &Descriptors| match start(peer, answer).unwrap_err() {
        Error::WrongAnswer { source, .. } => source,
        error => panic!("{error}"),
    };
    let planned = answer(&own, peer.layout());
    start(&peer, &planned).unwrap().unwrap();
    assert!(decode.memory.read(3 << 10, 1 << 10) == prefill.memory.read(1 << 10, 1 << 10));
    assert_eq!(refusal(&smaller, &planned), AnswerError::OtherCaches { side: Side::Remote });
    assert_eq!(refusal(&peer, &Descriptors::new()), AnswerError::Empty);

    // Elsewhere in memory the same caches are the same.
    let moved = plan(decode.memory.base() + 4096, LEN);
    start(&peer, &answer(&moved, peer.layout())).unwrap().unwrap();
    let other = plan(decode.memory.base(), LEN / 2);
    assert_eq!(refusal(&peer, &answer(&other, peer.layout())), AnswerError::OtherCaches { side: Side::Local });
}

#[test]
fn connecting_again_keeps_the_peer_and_a_newer_one_replaces_it() {
    let (network, prefill, decode) = pair();
    let blob = prefill.agent.export().unwrap();
    let first = decode.agent.connect(&blob).unwrap();
    let same = decode.agent.connect(&blob).unwrap();
    let start = |peer| decode.agent.start(peer, Op::Read, &[descriptor(0, 0, 10)], TransferOptions::default());
    start(&first).unwrap().wait(PATIENCE).unwrap();
    start(&same).unwrap().wait(PATIENCE).unwrap();

    // Registered again: the next generation.
    prefill.agent.deregister().unwrap();
    let base = prefill.memory.base();
    // SAFETY: as in `Worker::new`.
    unsafe { prefill.agent.register(&plan(base, LEN)) }.unwrap();
    let second = decode.agent.connect(&prefill.agent.export().unwrap()).unwrap();
    assert_eq!((first.generation(), second.generation()), (1, 2));
    assert!(matches!(start(&first), Err(Error::PeerGone { .. })));
    assert!(matches!(decode.agent.notify(&first, b"x"), Err(Error::PeerGone { .. })));
    assert!(matches!(decode.agent.connect(&blob), Err(Error::StaleBlob { stale: 1, current: 2, .. })));
    start(&second).unwrap().wait(PATIENCE).unwrap();

    // Restarted under the same name.
    drop(prefill);
    let prefill = Worker::loopback("prefill", &network, LEN, 3);
    let third = decode.agent.connect(&prefill.agent.export().unwrap()).unwrap();
    assert_ne!(second.incarnation(), third.incarnation());
    assert!(matches!(start(&second), Err(Error::PeerGone { .. })));
    start(&third).unwrap().wait(PATIENCE).unwrap();
    decode.assert_holds(0, 10, 3, 0);

    let own = decode.agent.connect(&decode.agent.export().unwrap());
    assert!(matches!(own, Err(Error::OwnBlob { .. })));
}

#[test]
fn a_notification_that_is_too_long_is_refused() {
    let (_network, prefill, decode) = pair();
    let peer = decode.agent.connect(&prefill.agent.export().unwrap()).unwrap();
    let long = vec![7; MAX_NOTIFICATION_BYTES + 1];
    assert!(matches!(decode.agent.notify(&peer, &long), Err(Error::NotificationTooLong { .. })));
    let options = TransferOptions::default().notify(long.clone());
    let started = decode.agent.start(&peer, Op::Read, &[], options);
    assert!(matches!(started, Err(Error::NotificationTooLong { .. })));
    decode.agent.notify(&peer, &long[1..]).unwrap();
    decode.agent.notify(&peer, b"").unwrap();
    let lens: Vec<usize> = prefill.agent.notifications().unwrap().iter().map(|n| n.message.len()).collect();
    assert_eq!(lens, [MAX_NOTIFICATION_BYTES, 0]);
}

#[test]
fn names_and_limits_that_cannot_work_are_refused() {
    let network = LoopbackNetwork::new();
    let named = Agent::loopback("a@b", &network, Limits::default());
    assert!(matches!(named, Err(Error::AgentName { .. })));
    let mut limits = Limits::default();
    limits.request_descriptors = 0;
    let limited = Agent::loopback("a", &network, limits);
    assert!(matches!(limited, Err(Error::ZeroLimit { limit: "request_descriptors" })));
}

#[test]
fn what_exceeds_the_agents_bounds_would_block_and_starts_once_others_have_settled() {
    let network = LoopbackNetwork::new();
    let prefill = Worker::loopback("prefill", &network, LEN, 1);
    let mut limits = Limits::default();
    limits.in_flight_bytes = 3000;
    limits.in_flight_descriptors = 3;
    let decode = Worker::new(Agent::loopback("decode", &network, limits).unwrap(), LEN, 2);
    let peer = decode.agent.connect(&prefill.agent.export().unwrap()).unwrap();
    let start = |descriptors: &[_]| decode.agent.start(&peer, Op::Read, descriptors, TransferOptions::default());
    network.stall(true);
    let first = start(&[descriptor(0, 0, 1000), descriptor(1000, 1000, 1000)]).unwrap();
    let refused = start(&[descriptor(2000, 2000, 1001)]).unwrap_err();
    assert!(matches!(refused, Error::WouldBlock { bytes: 2000, descriptors: 2 }), "{refused}");
    let refused = start(&[descriptor(2000, 2000, 1), descriptor(3000, 3000, 1)]).unwrap_err();
    assert!(matches!(refused, Error::WouldBlock { descriptors: 2, .. }), "{refused}");
    let second = start(&[descriptor(2000, 2000, 1000)]).unwrap();
    assert_eq!(decode.agent.stats().in_flight_bytes, 3000);
    // A transfer cannot widen the agent's bounds.
    let options = TransferOptions::default().limits(Limits::default());
    let wider = decode.agent.start(&peer, Op::Read, &[descriptor(0, 0, 1)], options);
    assert!(matches!(wider, Err(Error::WouldBlock { .. })));
    network.stall(false);
    first.wait(PATIENCE).unwrap();
    second.wait(PATIENCE).unwrap();
    let alone = start(&[descriptor(0, 0, 60_000)]).unwrap();
    alone.wait(PATIENCE).unwrap();
    let stats = decode.agent.stats();
    assert_eq!((stats.transfers_started, stats.transfers_done, stats.transfers_refused), (3, 3, 3));
    assert_eq!((stats.in_flight_bytes, stats.in_flight_descriptors), (0, 0));
}

#[test]
fn a_peer_that_was_replaced_and_is_back_is_the_one_with_which_something_is_under_way() {
    let (network, prefill, decode) = pair();
    let old_blob = prefill.agent.export().unwrap();
    let peer = decode.agent.connect(&old_blob).unwrap();
    network.break_requests(true);
    let transfer = decode.agent.start(&peer, Op::Write, &[descriptor(0, 0, 100)], TransferOptions::default()).unwrap();
    assert!(matches!(transfer.wait(PATIENCE), Err(Error::TransferFailed { settled: false, .. })));
    drop(peer);
    let successor = Worker::loopback("prefill", &network, LEN, 3);
    decode.agent.connect(&successor.agent.export().unwrap()).unwrap();
    // It says that it started later: which of two is the one is not for us to know.
    let old_blob = common::forged::forged(&old_blob, |header| header.started = Some(u64::MAX));
    let again = decode.agent.connect(&old_blob).unwrap();
    assert_eq!(again.unsettled(), 1);
    // SAFETY: the loopback copies only inside a post, and none runs.
    unsafe { again.declare_gone() };
    transfer.wait_settled(PATIENCE).unwrap();
    assert_eq!(again.unsettled(), 0);
}

#[test]
fn a_lost_request_is_listed_until_its_peer_is_declared_gone() {
    let (network, prefill, decode) = pair();
    let peer = decode.agent.connect(&prefill.agent.export().unwrap()).unwrap();
    network.break_requests(true);
    let lost = [descriptor(0, 1024, 3000)];
    let options = TransferOptions::default().request("req-1");
    let transfer = decode.agent.start(&peer, Op::Write, &lost, options).unwrap();
    assert!(matches!(transfer.wait(PATIENCE), Err(Error::TransferFailed { settled: false, .. })));
    let [entry] = &decode.agent.quarantine()[..] else { panic!("{:?}", decode.agent.quarantine()) };
    assert_eq!((entry.request.as_deref(), entry.op, entry.unproven), (Some("req-1"), Op::Write, 1));
    let [piece] = entry.pieces[..] else { panic!("{entry:?}") };
    assert_eq!((piece.local, piece.remote, piece.len), (decode.memory.base(), prefill.memory.base() + 1024, 3000));
    assert!(transfer.wait_settled(Duration::from_millis(100)).is_err());
    assert!(!peer.is_gone());
    // SAFETY: the loopback copies only inside a post, and none runs.
    unsafe { peer.declare_gone() };
    transfer.wait_settled(PATIENCE).unwrap();
    eventually("an empty quarantine", || decode.agent.quarantine().is_empty());
    decode.agent.deregister().unwrap();
}
