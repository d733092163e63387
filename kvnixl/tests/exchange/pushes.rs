//! Reservations, and the pushes into them.

use std::time::Duration;

use kvnixl::lease::{ArrivalFailed, EndReason, PeerState, RequestId, Wanted};
use kvnixl::{Error, Event, Limits, NotWritten, PullPart, PushSource, WriteRefusal};
use kvplan::{BlockList, Op};
use kvspec::{BlockId, GroupId};

use crate::common;
use crate::common::descriptor;
use crate::side::{LEN, Pair, Side, TTL};
use crate::told::{arrival_failed, arrived, freed, push, request, returned, whole};

#[test]
fn a_push_writes_part_by_part_whichever_side_comes_first() {
    for registration_first in [true, false] {
        let mut pair = Pair::new();
        let now = pair.now;
        let reserve = |pair: &mut Pair| pair.reserve();
        if registration_first {
            reserve(&mut pair);
            pair.poll();
            assert!(pair.prefill.take(push).is_none());
        }
        let lease = pair.hold(2);
        if !registration_first {
            reserve(&mut pair);
        }
        let (id, of, lists) = pair.met();
        assert_eq!((of, &lists), (lease, &pair.source().lists));
        let prefill = &mut pair.prefill.exchange;
        let error = prefill.write(&id, 0, &[descriptor(0, 2048, 1024)], 0, now).unwrap_err();
        assert!(
            matches!(error, Error::WriteRefused { part: 0, why: WriteRefusal::NotReady, .. }),
            "not computed yet: {error}"
        );
        for part in [1_u32, 0] {
            let offset = u64::from(part) * 1024;
            assert_eq!(pair.prefill.exchange.ready(lease, part, now), std::slice::from_ref(&id));
            let descriptors = [descriptor(offset, 2048 + offset, 1024)];
            pair.prefill.exchange.write(&id, part, &descriptors, 0, now).unwrap();
            let again = pair.prefill.exchange.write(&id, part, &descriptors, 0, now);
            assert!(matches!(again, Err(Error::WriteRefused { why: WriteRefusal::Repeated, .. })));
        }
        pair.until("the arrival", |_, decode| decode.take(arrived) == Some("destination"));
        assert!(pair.decode.memory.read(2048, 2048) == common::pattern(1, 0, 2048));
        assert_eq!(pair.prefill.take(freed), Some(EndReason::AllRead));
    }
}

#[test]
fn a_push_whose_lease_ends_is_released_and_not_written() {
    let mut pair = Pair::new();
    let now = pair.now;
    let lease = pair.hold(2);
    pair.reserve();
    let (id, ..) = pair.met();
    pair.prefill.exchange.ready(lease, 0, now);
    pair.network.stall(true);
    pair.prefill.exchange.write(&id, 0, &[descriptor(0, 2048, 1024)], 0, now).unwrap();
    pair.prefill.has_posted();
    pair.prefill.exchange.ready(lease, 1, now);
    pair.prefill.exchange.abort(lease, now);
    let error = pair.prefill.exchange.write(&id, 1, &[descriptor(1024, 3072, 1024)], 0, now).unwrap_err();
    assert!(matches!(error, Error::WriteRefused { why: WriteRefusal::LeaseEnded, .. }), "{error}");
    pair.poll();
    assert_eq!(pair.prefill.take(freed), Some(EndReason::Aborted));
    let error = pair.prefill.exchange.write(&id, 1, &[descriptor(1024, 3072, 1024)], 0, now).unwrap_err();
    assert!(matches!(error, Error::WriteRefused { why: WriteRefusal::LeaseEnded, .. }), "{error}");
    pair.poll();
    let why = pair.decode.take(arrival_failed);
    assert!(matches!(why, Some(ArrivalFailed::NotWritten { why: NotWritten::LeaseEnded, .. })), "{why:?}");
    assert!(pair.decode.told.is_empty(), "a write may still land: {:?}", pair.decode.told);
    pair.network.stall(false);
    pair.until("the release", |_, decode| decode.take(returned) == Some("destination"));
    assert!(pair.decode.take(arrived).is_none());
}

#[test]
fn a_write_that_fails_is_told_at_once_and_again_when_nothing_can_land_any_more() {
    let mut pair = Pair::new();
    let now = pair.now;
    pair.hold(0);
    // The transfer's own time runs out, and that of the test stands still.
    let (sources, soon) = (vec![pair.source()], now + Duration::from_secs(1));
    pair.decode.exchange.reserve(request(), "destination", sources, soon, now).unwrap();
    let (id, ..) = pair.met();
    pair.network.stall(true);
    pair.prefill.exchange.write(&id, 0, &whole(), 0, now).unwrap();
    let failed = |event: &Event<_>| matches!(event, Event::WriteFailed { .. }).then_some(());
    pair.until("the failure", |prefill, _| prefill.take(failed).is_some());
    let mut why = None;
    pair.until("its word", |_, decode| {
        why = why.take().or_else(|| decode.take(arrival_failed));
        why.is_some()
    });
    let prefill = pair.prefill.id.clone();
    assert!(
        matches!(&why, Some(ArrivalFailed::NotWritten { writer, why: NotWritten::Transfer(text) })
            if *writer == prefill && !text.is_empty()),
        "{why:?}"
    );
    pair.poll();
    assert!(pair.decode.told.is_empty(), "it may still land: {:?}", pair.decode.told);
    pair.network.stall(false);
    pair.until("the blocks", |_, decode| decode.take(returned) == Some("destination"));
}

#[test]
fn a_registration_is_refused_with_a_reason_and_the_lease_goes_on_for_the_others() {
    let mut pair = Pair::new();
    let now = pair.now;
    let mut other = Side::new("decode-1", &pair.network, 3, Limits::default());
    other.connect(&pair.prefill, now);
    pair.prefill.connect(&other, now);
    let lease = pair.prefill.exchange.hold(request(), "source", Some(2), 0, now).unwrap();
    pair.reserve();
    let sources = vec![pair.source()];
    other.exchange.reserve(request(), "other", sources, now + TTL, now).unwrap();
    let (mut refused, mut taken) = (None, None);
    other.poll(now);
    for _ in 0..2 {
        let (id, ..) = pair.met();
        let of = if id.reader == other.id { &mut taken } else { &mut refused };
        *of = Some(id);
    }
    let (refused, taken) = (refused.unwrap(), taken.unwrap());
    assert!(pair.prefill.exchange.refuse(&refused, "its blocks are of another model", now));
    assert!(!pair.prefill.exchange.refuse(&refused, "again", now), "it has ended");
    let why = |event: &Event<_>| arrival_failed(event);
    pair.poll();
    let reason = NotWritten::Refused("its blocks are of another model".into());
    let expected = ArrivalFailed::NotWritten { writer: pair.prefill.id.clone(), why: reason };
    assert_eq!(pair.decode.take(why), Some(expected));
    assert_eq!(pair.decode.take(returned), Some("destination"));
    assert!(pair.prefill.exchange.is_good(lease, now));
    let error = pair.prefill.exchange.write(&refused, 0, &whole(), 0, now).unwrap_err();
    assert!(matches!(error, Error::WriteRefused { why: WriteRefusal::NotOpen, .. }), "{error}");
    pair.prefill.exchange.write(&taken, 0, &whole(), 0, now).unwrap();
    pair.until("the other's arrival", |_, _| {
        other.poll(now);
        other.take(arrived) == Some("other")
    });
    assert_eq!(pair.prefill.take(freed), Some(EndReason::GivenUp), "the refused one is not waited for");
}

#[test]
fn a_reservation_that_is_cancelled_frees_the_source_blocks_at_once() {
    let mut pair = Pair::new();
    pair.hold(0);
    let id = pair.reserve();
    pair.met();
    assert!(pair.decode.exchange.cancel_reservation(id));
    pair.until("the blocks", |_, decode| decode.take(returned) == Some("destination"));
    pair.poll();
    assert_eq!(pair.prefill.take(freed), Some(EndReason::GivenUp));
}

#[test]
fn a_reservation_of_blocks_that_are_not_registered_is_refused_where_it_is_made() {
    let mut pair = Pair::new();
    let now = pair.now;
    let list = |group, first, blocks: &[u32]| BlockList {
        group: GroupId(group),
        first: (first > 0).then_some(first),
        blocks: blocks.iter().copied().map(BlockId).collect(),
    };
    for (bad, text) in [
        (vec![list(0, 0, &[3, 99_999])], "block 99999 of group 0 is out of range"),
        (vec![list(9, 0, &[1])], "no group 9"),
        (vec![list(0, 0, &[1, 2, 1])], "listed twice"),
        (vec![list(0, 0, &[1]), list(0, 7, &[2])], "lists group 0 twice"),
        (vec![list(0, u64::MAX, &[1])], "beyond any position"),
    ] {
        let source = PushSource { lists: bad, peer: pair.prefill.id.clone() };
        let (error, blocks) =
            pair.decode.exchange.reserve(request(), "destination", vec![source], now + TTL, now).unwrap_err();
        let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        assert!(matches!(error, Error::ListsRefused { .. }) && source.contains(text), "{error}: {source}");
        assert_eq!(blocks, "destination");
    }
    pair.poll();
    assert_eq!(pair.prefill.exchange.stats().messages.received, 0, "nobody hears of it");
    let sources = vec![PushSource { lists: vec![list(0, 0, &[1, u32::MAX, 2])], peer: pair.prefill.id.clone() }];
    pair.decode.exchange.reserve(request(), "destination", sources, now + TTL, now).unwrap();
}

#[test]
fn an_answer_for_other_blocks_than_those_that_were_reserved_is_not_written() {
    let mut pair = Pair::new();
    let now = pair.now;
    pair.hold(0);
    pair.reserve();
    let (id, _, lists) = pair.met();
    let layout = pair.prefill.exchange.peer(&id.reader).unwrap().layout().clone();
    let local = common::plan(pair.prefill.memory.base(), LEN);
    let options = kvplan::PairOptions { op: Op::Write, ..kvplan::PairOptions::default() };
    let plan = kvplan::PairPlan::new(local.spec(), &layout, &options).unwrap();
    let list = |blocks: &[u32]| {
        vec![BlockList { group: GroupId(0), first: None, blocks: blocks.iter().copied().map(BlockId).collect() }]
    };
    let mut answer = kvplan::Descriptors::new();
    let wrong = kvplan::Request { op: Op::Write, local: list(&[1, 2]), remote: list(&[2, 7]), ..Default::default() };
    plan.descriptors(&wrong, &mut answer).unwrap();
    let before = pair.decode.memory.read(0, LEN);
    let error = pair.prefill.exchange.write_answer(&id, 0, &wrong, &answer, now).unwrap_err();
    assert!(
        error.to_string().contains("block 7 of group 0 at list index 1 was not reserved there, where block 3 was"),
        "{error}"
    );
    let right = kvplan::Request { op: Op::Write, local: list(&[1, 2]), remote: lists, ..Default::default() };
    plan.descriptors(&right, &mut answer).unwrap();
    assert!(pair.decode.memory.read(0, LEN) == before);
    pair.prefill.exchange.write_answer(&id, 0, &right, &answer, now).unwrap();
    pair.until("the arrival", |_, decode| decode.take(arrived) == Some("destination"));
    assert!(pair.decode.memory.read(2048, 2048) == common::pattern(1, 1024, 2048));
}

#[test]
fn a_registration_that_comes_when_a_lease_has_ended_waits_for_the_next() {
    let mut pair = Pair::new();
    let now = pair.now;
    let ended = pair.hold(0);
    pair.reserve();
    // In one poll with the registration, which has arrived.
    pair.prefill.exchange.abort(ended, now);
    pair.poll();
    assert_eq!(pair.prefill.take(freed), Some(EndReason::Aborted));
    let lease = pair.hold(0);
    let (id, of, _) = pair.met();
    assert_eq!(of, lease);
    pair.prefill.exchange.write(&id, 0, &whole(), 0, now).unwrap();
    pair.until("the arrival", |_, decode| decode.take(arrived) == Some("destination"));
}

#[test]
fn the_end_of_a_push_is_told_when_the_way_has_been_opened_anew() {
    let mut pair = Pair::new();
    let now = pair.now;
    pair.hold(0);
    pair.reserve();
    let (id, ..) = pair.met();
    pair.network.refuse_notifications(true);
    pair.prefill.exchange.write(&id, 0, &whole(), 0, now).unwrap();
    let lost = |event: &Event<_>| matches!(event, Event::PeerLost(_)).then_some(());
    pair.until("the loss", |prefill, _| prefill.take(lost).is_some());
    assert_eq!(pair.prefill.take(freed), Some(EndReason::AllRead));
    pair.network.refuse_notifications(false);
    pair.poll();
    assert!(pair.decode.told.is_empty(), "the way is still the broken one");
    pair.now += Duration::from_secs(1);
    assert_eq!(pair.prefill.exchange.want("decode", pair.now), Wanted::Fetch);
    pair.prefill.connect(&pair.decode, pair.now);
    pair.until("the arrival", |_, decode| decode.take(arrived) == Some("destination"));
}

#[test]
fn a_writer_that_cannot_be_told_fails_one_reservation_and_not_those_that_it_knows() {
    let mut pair = Pair::new();
    let now = pair.now;
    let sources = vec![pair.source()];
    pair.decode.exchange.reserve(request(), "known", sources, now + TTL, now).unwrap();
    pair.poll();
    pair.network.refuse_notifications(true);
    let (other, sources) = (RequestId::new("another").unwrap(), vec![pair.source()]);
    let untold = pair.decode.exchange.reserve(other, "untold", sources, now + TTL, now).unwrap();
    pair.network.refuse_notifications(false);
    pair.poll();
    let failed = |event: &Event<_>| if let Event::ArrivalFailed { id, .. } = event { Some(*id) } else { None };
    assert_eq!(pair.decode.take(failed), Some(untold));
    assert_eq!(pair.decode.take(failed), None);
}

#[test]
fn a_reservation_that_nobody_writes_comes_back_after_its_deadline() {
    let mut pair = Pair::new();
    pair.reserve();
    pair.poll();
    pair.now += TTL;
    pair.until("the return", |_, decode| decode.take(returned) == Some("destination"));
    assert!(pair.decode.take(arrival_failed).is_some());
    assert_eq!(pair.prefill.exchange.stats().push.waiting, 0);
}

#[test]
fn blocks_of_a_writer_that_was_replaced_stay_until_it_is_proven_gone() {
    let mut pair = Pair::new();
    let now = pair.now;
    let lease = pair.hold(1);
    let reservation = pair.reserve();
    pair.poll();
    let old = pair.prefill.id.clone();
    let Pair { network, prefill, mut decode, .. } = pair;
    let old_blob = prefill.agent().export().unwrap();
    drop(prefill);
    let restarted = Side::new("prefill", &network, 4, Limits::default());
    decode.connect(&restarted, now);
    decode.poll(now);
    assert!(decode.told.iter().any(|event| matches!(event, Event::PeerReplaced { old: o, .. } if *o == old)));
    assert!(matches!(decode.take(arrival_failed), Some(ArrivalFailed::Lost(who)) if who == old));
    decode.poll(now);
    assert!(decode.take(returned).is_none());
    let quarantined: Vec<_> = decode.exchange.quarantined().map(|(id, ..)| id).collect();
    assert_eq!(quarantined, [reservation]);
    // The old process cannot be connected again, and its lease is nothing to the new one.
    let error = decode.exchange.connect(&old_blob, now).unwrap_err();
    assert!(matches!(error, Error::OlderProcess { .. }), "{error}");
    let part = PullPart {
        peer: old.clone(),
        request: request(),
        lease,
        descriptors: whole().to_vec(),
        padding_bytes: 0,
        layers: None,
    };
    let (error, _) = decode.exchange.pull("other", vec![part], now + TTL, now).unwrap_err();
    assert!(matches!(error, Error::PeerNotReady { state: Some(PeerState::Replaced), .. }), "{error}");

    // SAFETY: its agent was dropped.
    unsafe { decode.exchange.peer_is_gone(&old, now) };
    decode.poll(now);
    assert_eq!(decode.take(returned), Some("destination"));
}
