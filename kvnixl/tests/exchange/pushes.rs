//! Reservations, and the pushes into them.

use std::time::Duration;

use kvnixl::lease::{ArrivalFailed, EndReason, PeerState, RequestId, Wanted};
use kvnixl::{Error, Event, Limits, PullPart, WriteRefusal};

use crate::common;
use crate::common::descriptor;
use crate::side::{Pair, Side, TTL};
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
    assert!(pair.decode.told.is_empty(), "a write may still land: {:?}", pair.decode.told);
    pair.network.stall(false);
    pair.until("the release", |_, decode| decode.take(returned) == Some("destination"));
    assert!(matches!(pair.decode.take(arrival_failed), Some(ArrivalFailed::Released(_))));
    assert!(pair.decode.take(arrived).is_none());
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
    assert!(matches!(error, Error::StaleBlob { .. }), "{error}");
    let part =
        PullPart { peer: old.clone(), request: request(), lease, descriptors: whole().to_vec(), padding_bytes: 0 };
    let (error, _) = decode.exchange.pull("other", vec![part], now + TTL, now).unwrap_err();
    assert!(matches!(error, Error::PeerNotReady { state: Some(PeerState::Replaced), .. }), "{error}");

    // SAFETY: its agent was dropped.
    unsafe { decode.exchange.peer_is_gone(&old, now) };
    decode.poll(now);
    assert_eq!(decode.take(returned), Some("destination"));
}
