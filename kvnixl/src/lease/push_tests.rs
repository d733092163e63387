//! Registrations and requests that meet in either order, and end once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use kvplan::BlockList;
use kvspec::{BlockId, GroupId};
use proptest::prelude::*;

use super::push::{LONGEST, Registration, Resolved};
use super::*;
use crate::message::NotWritten;

fn request(which: u64) -> RequestId {
    RequestId::new(format!("r{which}")).unwrap()
}

fn id(reservation: u64) -> PushId {
    PushId { reader: PeerId::new("decode", 1), reservation: ReservationId(reservation) }
}

fn registration(reservation: u64, which: u64, deadline: Instant) -> Registration {
    let lists = vec![BlockList { group: GroupId(0), first: None, blocks: vec![BlockId(1), BlockId(2)] }];
    Registration { id: id(reservation), request: request(which), lists, deadline }
}

fn resolved(reservation: u64, outcome: Outcome) -> Resolved {
    Resolved { id: id(reservation), outcome }
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_registration_meets_its_request_in_either_order() {
    let (now, lease) = (Instant::now(), LeaseId(5));
    for registration_first in [true, false] {
        let mut book = PushBook::new(PushOptions::default());
        if registration_first {
            assert_eq!(book.register(registration(1, 0, now + SECOND), None, now), Admission::Waits);
            assert!(!book.begin(&id(1), 0, None, now), "nothing to write yet");
            assert_eq!(book.offer(&request(0), lease), [id(1)]);
        } else {
            assert!(book.offer(&request(0), lease).is_empty());
            assert_eq!(book.register(registration(1, 0, now + SECOND), Some(lease), now), Admission::Met(lease));
        }
        assert_eq!(book.register(registration(1, 0, now + SECOND), None, now), Admission::Duplicate);
        assert_eq!(book.of_lease(lease), [id(1)]);
        // Two parts, as they become ready.
        assert!(book.begin(&id(1), 1, None, now) && !book.begin(&id(1), 1, None, now));
        assert_eq!(book.landed(&id(1), 1, 2, now), None);
        assert!(book.begin(&id(1), 0, None, now));
        assert_eq!(book.landed(&id(1), 0, 2, now), Some(lease));
        book.finish(&id(1), true, now);
        assert_eq!(book.take_resolved(), [resolved(1, Outcome::Written)]);
        // Told again to a decode worker that asks.
        book.refuse(&id(1), NotWritten::Cancelled, now);
        assert_eq!(book.register(registration(1, 0, now + SECOND), None, now), Admission::Ended(Outcome::Written));
        assert_eq!(book.take_resolved(), [resolved(1, Outcome::Written), resolved(1, Outcome::Written)]);
    }
}

#[test]
fn nothing_is_released_while_a_write_may_land() {
    let (now, lease) = (Instant::now(), LeaseId(5));
    let stops: [fn(&mut PushBook, Instant); 5] = [
        |book, now| book.lease_ended(LeaseId(5), now),
        |book, now| book.refuse(&id(1), NotWritten::Cancelled, now),
        |book, now| book.reader_gone(&id(1).reader, now),
        |book, now| book.expire(now + SECOND),
        |book, now| book.stop(&id(1), NotWritten::Transfer("broken".into()), now),
    ];
    let reasons = [
        NotWritten::LeaseEnded,
        NotWritten::Cancelled,
        NotWritten::Cancelled,
        NotWritten::Deadline,
        NotWritten::Transfer("broken".into()),
    ];
    for (stop, why) in stops.into_iter().zip(reasons) {
        let mut book = PushBook::new(PushOptions::default());
        book.register(registration(1, 0, now + SECOND), None, now);
        book.offer(&request(0), lease);
        assert!(book.begin(&id(1), 0, None, now));
        stop(&mut book, now);
        assert!(book.take_resolved().is_empty());
        assert_eq!(book.take_failing(), [(id(1), why.clone())], "that it fails is known at once");
        assert!(!book.begin(&id(1), 1, None, now), "nothing more is begun");
        book.stop(&id(1), NotWritten::Unfit, now);
        book.settled(&id(1), NotWritten::Unfit, now);
        assert_eq!(book.take_resolved(), [resolved(1, Outcome::Released(why))], "the first reason stands");
        assert!(book.take_failing().is_empty(), "said once");
    }
}

#[test]
fn bytes_that_landed_after_the_lease_ended_are_not_written() {
    let (now, lease) = (Instant::now(), LeaseId(5));
    let mut book = PushBook::new(PushOptions::default());
    book.register(registration(1, 0, now + SECOND), None, now);
    book.offer(&request(0), lease);
    assert!(book.begin(&id(1), 0, None, now));
    assert_eq!(book.landed(&id(1), 0, 0, now), Some(lease));
    book.finish(&id(1), false, now);
    assert_eq!(book.take_resolved(), [resolved(1, Outcome::Released(NotWritten::LeaseEnded))]);
}

#[test]
fn a_cancelled_registration_that_arrives_late_is_not_written() {
    let now = Instant::now();
    let mut book = PushBook::new(PushOptions::default());
    book.refuse(&id(1), NotWritten::Cancelled, now);
    book.offer(&request(0), LeaseId(5));
    assert_eq!(
        book.register(registration(1, 0, now + SECOND), Some(LeaseId(5)), now),
        Admission::Ended(Outcome::Released(NotWritten::Cancelled))
    );
    assert!(!book.begin(&id(1), 0, None, now));
}

#[test]
fn registrations_and_their_blocks_are_bounded() {
    let now = Instant::now();
    let mut book = PushBook::new(PushOptions { max_blocks: 40, ..PushOptions::default() });
    assert_eq!(book.register(registration(1, 0, now + SECOND), None, now), Admission::Waits);
    assert_eq!(book.register(registration(2, 0, now + SECOND), None, now), Admission::Full);
    book.expire(now + SECOND);
    let reasons = [(2, NotWritten::NoRoom), (1, NotWritten::Deadline)];
    assert_eq!(book.take_resolved(), reasons.map(|(which, why)| resolved(which, Outcome::Released(why))));
    assert_eq!(book.register(registration(3, 0, now + 3 * SECOND), None, now), Admission::Waits);
    assert_eq!((book.stats().refused, book.stats().expired, book.stats().waiting), (1, 1, 1));
}

#[test]
fn lists_without_blocks_take_room_too() {
    let now = Instant::now();
    let mut book = PushBook::new(PushOptions { max_blocks: 40, ..PushOptions::default() });
    let lists = vec![BlockList { group: GroupId(0), first: None, blocks: Vec::new() }; 2];
    assert_eq!(book.register(Registration { lists, ..registration(1, 0, now + SECOND) }, None, now), Admission::Full);
}

#[test]
fn one_reader_leaves_room_for_others_and_keeps_nothing_for_ever() {
    let now = Instant::now();
    let mut book = PushBook::new(PushOptions { max_registrations: 8, ..PushOptions::default() });
    let never = now + SECOND * (1 << 30);
    let of = |reader: u64, reservation: u64| {
        let id = PushId { reader: PeerId::new("decode", reader), reservation: ReservationId(reservation) };
        Registration { id, ..registration(reservation, 0, never) }
    };
    let accepted = |book: &mut PushBook, reader| {
        (100..120).filter(|&number| book.register(of(reader, number), None, now) == Admission::Waits).count()
    };
    assert_eq!((accepted(&mut book, 77), accepted(&mut book, 78), accepted(&mut book, 79)), (4, 4, 0));
    assert!(book.next_deadline().unwrap() <= now + LONGEST);
    book.expire(now + LONGEST);
    assert_eq!((accepted(&mut book, 79), accepted(&mut book, 80)), (4, 4), "room again");
}

proptest! {
    /// Whatever the order: one outcome each, none with a write in flight, and written only if all parts landed while
    /// nothing had stopped it.
    #[test]
    fn prop_every_registration_ends_once_and_never_under_a_write(
        steps in prop::collection::vec((0_u8..11, 1_u64..5, 0_u32..2, 0_u64..3), 0..300),
    ) {
        const PARTS: u32 = 2;
        let mut now = Instant::now();
        let mut book = PushBook::new(PushOptions::default());
        let mut in_flight: BTreeMap<u64, BTreeSet<u32>> = BTreeMap::new();
        let mut landed: BTreeMap<u64, BTreeSet<u32>> = BTreeMap::new();
        let mut outcomes: BTreeMap<u64, Outcome> = BTreeMap::new();
        let mut leases: BTreeMap<u64, LeaseId> = BTreeMap::new();
        let mut next = 0;
        for (what, reservation, part, wait) in steps {
            let key = id(reservation);
            let which = reservation % 2;
            match what {
                0 | 1 => drop(book.register(registration(reservation, which, now + 4 * SECOND), leases.get(&which).copied(), now)),
                2 => {
                    leases.entry(which).or_insert_with(|| {
                        next += 1;
                        book.offer(&request(which), LeaseId(next));
                        LeaseId(next)
                    });
                }
                3..=5 => {
                    if book.begin(&key, part, None, now) {
                        prop_assert!(!outcomes.contains_key(&reservation));
                        prop_assert!(in_flight.entry(reservation).or_default().insert(part));
                    }
                }
                6 | 7 => {
                    if in_flight.get_mut(&reservation).is_some_and(|parts| parts.remove(&part)) {
                        landed.entry(reservation).or_default().insert(part);
                        if let Some(lease) = book.landed(&key, part, PARTS, now) {
                            book.finish(&key, leases.get(&which) == Some(&lease), now);
                        }
                    }
                }
                8 => {
                    if in_flight.get_mut(&reservation).is_some_and(|parts| parts.remove(&part)) {
                        book.settled(&key, NotWritten::Transfer(String::new()), now);
                    }
                }
                9 => {
                    if let Some(lease) = leases.remove(&which) {
                        book.lease_ended(lease, now);
                    }
                }
                _ => {
                    now += SECOND * u32::try_from(wait).unwrap();
                    book.expire(now);
                    if wait == 0 {
                        book.refuse(&key, NotWritten::Cancelled, now);
                    }
                }
            }
            for Resolved { id, outcome } in book.take_resolved() {
                let reservation = id.reservation.0;
                prop_assert_eq!(outcomes.entry(reservation).or_insert(outcome.clone()), &outcome, "two outcomes");
                prop_assert!(in_flight.get(&reservation).is_none_or(BTreeSet::is_empty), "a write may land");
                if outcome == Outcome::Written {
                    prop_assert_eq!(landed.get(&reservation).map(BTreeSet::len), Some(PARTS as usize));
                }
            }
        }
        let stats = book.stats();
        prop_assert_eq!(stats.written + stats.released, outcomes.len() as u64);
    }
}
