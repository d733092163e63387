//! Leases, and the pulls that they are for.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kvnixl::lease::{ArrivalFailed, EndReason, LeaseId, RequestId};
use kvnixl::{
    DEFAULT_DEADLINE, Deadline, Error, Exchange, ExchangeOptions, Limits, LoopbackNetwork, PullFailed, PullPart,
    PushSource, Verdict, WriteRefusal,
};
use kvplan::BlockList;
use kvspec::{BlockId, GroupId};

use crate::common;
use crate::common::{Worker, descriptor};
use crate::side::{LEN, Pair, Side, TTL};
use crate::told::{arrival_failed, freed, pull_failed, pulled, request, returned, whole};

#[test]
fn a_pull_ends_when_the_producer_confirms_and_frees_its_blocks() {
    let mut pair = Pair::new();
    let now = pair.now;
    let lease = pair.hold(0);
    let part = PullPart { padding_bytes: 40, ..pair.part(lease, &whole()) };
    pair.decode.exchange.pull("destination", vec![part], now + TTL, now).unwrap();
    pair.until("the pull", |_, decode| decode.take(pulled) == Some("destination"));
    assert_eq!(pair.decode.agent().stats().padding_bytes, 40);
    assert_eq!(pair.prefill.take(freed), Some(EndReason::AllRead));
    assert!(pair.decode.memory.read(2048, 2048) == common::pattern(1, 1024, 2048));
    assert!(pair.decode.told.is_empty() && pair.prefill.told.is_empty());
    let stats = pair.decode.exchange.stats();
    assert_eq!((stats.pulls.pulled, stats.pulls.live), (1, 0));
}

#[test]
fn a_reader_that_comes_after_the_lease_is_told_though_the_bytes_can_be_read() {
    let mut pair = Pair::new();
    let lease = pair.hold(0);
    pair.now += TTL;
    pair.poll();
    assert_eq!(pair.prefill.take(freed), Some(EndReason::Expired));
    let parts = vec![pair.part(lease, &whole())];
    pair.decode.exchange.pull("destination", parts, pair.now + TTL, pair.now).unwrap();
    let mut why = None;
    pair.until("the failure", |_, decode| {
        why = why.take().or_else(|| decode.take(pull_failed));
        why.is_some() && decode.take(returned) == Some("destination")
    });
    assert!(matches!(why, Some(PullFailed::LeaseEnded { verdict: Verdict::Ended, .. })), "{why:?}");
    assert!(pair.decode.take(pulled).is_none());
    assert_eq!(pair.prefill.exchange.stats().leases.late_completions, 1);
}

#[test]
fn a_lease_of_the_same_request_held_again_is_another_one() {
    let mut pair = Pair::new();
    let now = pair.now;
    let first = pair.prefill.exchange.hold(request(), "first", Some(1), 0, now).unwrap();
    assert!(pair.prefill.exchange.abort(first, now));
    pair.prefill.exchange.hold(request(), "second", Some(1), 0, now).unwrap();
    pair.pull(first);
    pair.until("the failure", |_, decode| decode.take(pull_failed).is_some());
    pair.poll();
    assert_eq!(pair.prefill.take(freed), Some(EndReason::Aborted));
    assert!(pair.prefill.take(freed).is_none(), "the second lease is nobody else's business");
}

#[test]
fn heartbeats_keep_leases_of_requests_that_wait_and_end_with_them() {
    let mut pair = Pair::new();
    let start = pair.now;
    let lease = pair.prefill.exchange.hold(request(), "source", Some(1), 0, start).unwrap();
    pair.decode.exchange.keep(pair.prefill.id.clone(), lease);
    for _ in 0..20 {
        pair.now += Duration::from_secs(5);
        pair.decode.poll(pair.now);
        pair.prefill.poll(pair.now);
    }
    assert!(pair.prefill.exchange.is_good(lease, pair.now) && pair.now > start + TTL);
    pair.decode.exchange.let_go(pair.prefill.id.clone(), lease);
    pair.poll();
    assert_eq!(pair.prefill.take(freed), Some(EndReason::GivenUp), "at once");
}

#[test]
fn a_reader_that_gives_up_frees_the_blocks_at_once_and_is_not_waited_for_among_others() {
    for cancel in [true, false] {
        let mut pair = Pair::new();
        let now = pair.now;
        let alone = pair.hold(0);
        let other = RequestId::new("other").unwrap();
        let shared = pair.prefill.exchange.hold(other.clone(), "shared", Some(2), 0, now).unwrap();
        let parts = vec![
            pair.part(alone, &whole()),
            PullPart { request: other.clone(), ..pair.part(shared, &[descriptor(0, 0, 1024)]) },
        ];
        if cancel {
            pair.network.stall(true);
            let pull = pair.decode.exchange.pull("destination", parts, now + TTL, now).unwrap();
            pair.decode.exchange.let_go(pair.prefill.id.clone(), alone);
            pair.poll();
            assert!(pair.prefill.take(freed).is_none(), "it is being read");
            assert!(pair.decode.exchange.cancel_pull(pull) && !pair.decode.exchange.cancel_pull(pull));
        } else {
            for lease in [alone, shared] {
                pair.decode.exchange.let_go(pair.prefill.id.clone(), lease);
            }
        }
        pair.poll();
        assert_eq!(pair.prefill.take(freed), Some(EndReason::GivenUp));
        assert!(pair.prefill.exchange.is_good(shared, now), "another reader is waited for");
        let gave_up = |event: &kvnixl::Event<_>| match event {
            kvnixl::Event::GivenUp { request, lease, reader } => Some((request.clone(), *lease, reader.clone())),
            _ => None,
        };
        let decode = pair.decode.id.clone();
        let mut told = vec![pair.prefill.take(gave_up).unwrap(), pair.prefill.take(gave_up).unwrap()];
        told.sort_by_key(|(_, lease, _)| *lease != alone);
        assert_eq!(told, [(request(), alone, decode.clone()), (other, shared, decode)]);
        assert_eq!(pair.prefill.exchange.stats().leases.given_up, 1);
    }
}

#[test]
fn a_reader_that_wants_a_lease_again_is_waited_for_again() {
    let mut pair = Pair::new();
    let lease = pair.prefill.exchange.hold(request(), "source", None, 0, pair.now).unwrap();
    pair.decode.exchange.let_go(pair.prefill.id.clone(), lease);
    pair.poll();
    pair.decode.exchange.keep(pair.prefill.id.clone(), lease);
    pair.now += Duration::from_secs(5);
    pair.poll();
    pair.prefill.exchange.set_readers(lease, 1, pair.now);
    assert!(pair.prefill.exchange.is_good(lease, pair.now));
    pair.pull(lease);
    pair.until("the pull", |_, decode| decode.take(pulled) == Some("destination"));
    assert_eq!(pair.prefill.take(freed), Some(EndReason::AllRead));
}

#[test]
fn a_pull_of_what_is_not_ready_is_told_so_and_its_lease_goes_on() {
    let mut pair = Pair::new();
    let now = pair.now;
    let lease = pair.hold(1);
    pair.pull(lease);
    let mut why = None;
    pair.until("the failure", |_, decode| {
        why = why.take().or_else(|| decode.take(pull_failed));
        why.is_some() && decode.take(returned) == Some("destination")
    });
    assert!(matches!(&why, Some(PullFailed::NotReady { lease: of, .. }) if *of == lease), "{why:?}");
    pair.prefill.exchange.ready(lease, 0, now);
    pair.pull(lease);
    pair.until("the pull", |_, decode| decode.take(pulled) == Some("destination"));
}

#[test]
fn what_names_no_producer_is_refused_and_does_not_end_well_by_itself() {
    let mut pair = Pair::new();
    let now = pair.now;
    let (error, blocks) = pair.decode.exchange.pull("nothing", Vec::new(), now + TTL, now).unwrap_err();
    assert!(matches!(error, Error::NoParts { what: "pull" }) && blocks == "nothing", "{error}");
    let (error, blocks) = pair.decode.exchange.reserve(request(), "nothing", Vec::new(), now + TTL, now).unwrap_err();
    assert!(matches!(error, Error::NoParts { what: "reservation" }) && blocks == "nothing", "{error}");
    pair.poll();
    assert!(pair.decode.told.is_empty());
}

#[test]
fn what_is_given_no_deadline_has_one_and_none_has_to_be_asked_for() {
    for (deadline, fails) in [(Deadline::Default, true), (Deadline::Never, false)] {
        let mut pair = Pair::new();
        let lease = pair.hold(0);
        pair.network.stall(true);
        let (parts, sources) = (vec![pair.part(lease, &whole())], vec![pair.source()]);
        let other = RequestId::new("never held").unwrap();
        pair.decode.exchange.pull("pulled", parts, deadline, pair.now).unwrap();
        pair.decode.exchange.reserve(other, "reserved", sources, deadline, pair.now).unwrap();
        pair.now += DEFAULT_DEADLINE - Duration::from_secs(1);
        pair.decode.poll(pair.now);
        assert!(pair.decode.told.is_empty(), "{:?}", pair.decode.told);
        pair.now += Duration::from_secs(1);
        pair.decode.poll(pair.now);
        let why = pair.decode.take(pull_failed);
        assert_eq!(matches!(why, Some(PullFailed::Deadline { .. })), fails, "{why:?}");
        assert_eq!(pair.decode.take(arrival_failed), fails.then_some(ArrivalFailed::Deadline));
    }
}

#[test]
fn a_pull_from_two_producers_ends_once_and_fails_when_one_lease_has_ended() {
    for second_is_good in [true, false] {
        let mut pair = Pair::new();
        let now = pair.now;
        let mut other = Side::new("prefill-1", &pair.network, 3, Limits::default());
        other.connect(&pair.decode, now);
        pair.decode.connect(&other, now);
        let lease = pair.hold(0);
        let second = other.exchange.hold(request(), "other", Some(1), 0, now).unwrap();
        if !second_is_good {
            other.exchange.abort(second, now);
        }
        let parts = vec![
            pair.part(lease, &[descriptor(0, 0, 1024)]),
            PullPart { peer: other.id.clone(), ..pair.part(second, &[descriptor(1024, 0, 1024)]) },
        ];
        pair.decode.exchange.pull("destination", parts, now + TTL, now).unwrap();
        pair.until("the end", |_, decode| {
            other.poll(now);
            decode.told.iter().any(|event| pulled(event).or(returned(event)) == Some("destination"))
        });
        pair.poll();
        let told = &pair.decode.told;
        let ends = told.iter().filter(|event| pulled(event).is_some() || pull_failed(event).is_some()).count();
        assert_eq!(ends, 1, "{told:?}");
        assert_eq!(told.iter().any(|event| pulled(event).is_some()), second_is_good);
        assert!(pair.decode.memory.read(1024, 1024) == common::pattern(3, 0, 1024));
    }
}

#[test]
fn a_lease_that_several_parts_of_a_pull_read_is_completed_when_the_last_has_been_read() {
    let mut pair = Pair::new();
    let now = pair.now;
    let lease = pair.hold(0);
    pair.network.stall(true);
    // The first is done at once, the second not before the network goes on.
    let parts = vec![pair.part(lease, &[]), pair.part(lease, &whole())];
    pair.decode.exchange.pull("destination", parts, now + TTL, now).unwrap();
    pair.decode.has_posted();
    pair.poll();
    assert!(pair.prefill.take(freed).is_none(), "given back while it is being read");
    let next = pair.decode.exchange.next_deadline();
    assert!(next.is_some_and(|next| next > now), "there is nothing to do but wait: {next:?}, now {now:?}");
    pair.network.stall(false);
    pair.until("the end", |_, decode| decode.take(pulled) == Some("destination"));
    assert!(pair.decode.memory.read(2048, 2048) == common::pattern(1, 1024, 2048));
    assert_eq!(pair.prefill.take(freed), Some(EndReason::AllRead));
}

#[test]
fn a_producer_that_is_named_twice_gets_all_the_blocks_in_one_registration() {
    let mut pair = Pair::new();
    let now = pair.now;
    let more = vec![BlockList { group: GroupId(0), first: Some(2), blocks: vec![BlockId(5)] }];
    let sources = vec![pair.source(), PushSource { lists: more, ..pair.source() }];
    pair.decode.exchange.reserve(request(), "destination", sources, now + TTL, now).unwrap();
    pair.hold(0);
    let (id, _, lists) = pair.met();
    let all = [BlockId(2), BlockId(3), BlockId(5)].to_vec();
    assert_eq!(lists, [BlockList { group: GroupId(0), first: None, blocks: all }], "one that goes on is one list");
    let error = pair.prefill.exchange.write(&id, 1, &whole(), 0, now).unwrap_err();
    assert!(
        matches!(error, Error::WriteRefused { part: 1, why: WriteRefusal::NotReady, .. }),
        "it has no parts: {error}"
    );
}

#[test]
fn blocks_of_a_pull_that_does_not_settle_stay_in_quarantine() {
    let mut pair = Pair::new();
    let lease = pair.hold(0);
    pair.network.stall(true);
    pair.pull(lease);
    // What is not posted is settled at once.
    pair.decode.has_posted();
    pair.now += TTL;
    pair.poll();
    let why = pair.decode.take(pull_failed);
    assert!(matches!(why, Some(PullFailed::Deadline { reading: 1, unconfirmed: 0 })), "{why:?}");
    pair.poll();
    assert!(pair.decode.take(returned).is_none());
    assert_eq!(pair.decode.exchange.stats().pulls.quarantined, 1);
    let quarantine = || pair.decode.agent().quarantine();
    common::eventually("its entry", || quarantine().first().is_some_and(|entry| entry.request.as_deref() == Some("r")));
    pair.network.stall(false);
    pair.until("settlement", |_, decode| decode.take(returned) == Some("destination"));
    assert_eq!(pair.decode.exchange.stats().pulls.quarantined, 0);
}

#[test]
fn a_lease_that_was_kept_ends_in_time_when_its_pull_has_failed() {
    for kept_during_the_pull in [false, true] {
        let mut pair = Pair::new();
        let lease = pair.hold(0);
        pair.decode.exchange.keep(pair.prefill.id.clone(), lease);
        for _ in 0..12 {
            pair.now += Duration::from_secs(5);
            pair.poll();
        }
        assert!(pair.prefill.take(freed).is_none(), "it is kept");
        pair.network.stall(true);
        let (parts, soon) = (vec![pair.part(lease, &whole())], pair.now + Duration::from_secs(1));
        pair.decode.exchange.pull("destination", parts, soon, pair.now).unwrap();
        if kept_during_the_pull {
            pair.decode.exchange.keep(pair.prefill.id.clone(), lease);
        }
        for _ in 0..7 {
            pair.now += Duration::from_secs(5);
            pair.poll();
        }
        assert_eq!(pair.prefill.take(freed), Some(EndReason::Expired), "kept during the pull: {kept_during_the_pull}");
    }
}

#[test]
fn an_exchange_that_is_dropped_forgets_blocks_that_may_be_written() {
    let (network, now) = (LoopbackNetwork::new(), Instant::now());
    let prefill = Worker::loopback("prefill", &network, LEN, 1);
    let Worker { agent, memory } = Worker::loopback("decode", &network, LEN, 2);
    let agent = Arc::new(agent);
    let mut exchange = Exchange::new(agent.clone(), ExchangeOptions::default()).unwrap();
    let peer = exchange.connect(&prefill.agent.export().unwrap(), now).unwrap();
    network.stall(true);
    let blocks = Rc::new(());
    let part = PullPart {
        peer,
        request: request(),
        lease: LeaseId(1),
        descriptors: whole().to_vec(),
        padding_bytes: 0,
        layers: None,
    };
    exchange.pull(blocks.clone(), vec![part], now + TTL, now).unwrap();
    drop(exchange);
    assert_eq!(Rc::strong_count(&blocks), 2, "given back while bytes may land");
    network.stall(false);
    common::eventually("settlement", || agent.unsettled() == 0);
    drop((agent, memory));
}

#[test]
fn what_is_in_flight_is_bounded_and_the_blocks_come_back() {
    let mut limits = Limits::default();
    limits.in_flight_bytes = 3000;
    let mut pair = Pair::within(limits);
    let now = pair.now;
    let lease = pair.hold(0);
    let part = pair.part(lease, &[descriptor(0, 0, 4096)]);
    pair.network.stall(true);
    pair.decode.exchange.pull("alone", vec![part.clone()], now + TTL, now).unwrap();
    let (error, blocks) = pair.decode.exchange.pull("second", vec![part], now + TTL, now).unwrap_err();
    assert!(matches!(error, Error::WouldBlock { bytes: 4096, descriptors: 1 }), "{error}");
    assert_eq!(blocks, "second");
    pair.network.stall(false);
    pair.until("the first", |_, decode| decode.take(pulled) == Some("alone"));
}
