//! Destination blocks come back once, and never while a writer may still write.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::reservation::WriterAnswer;
use super::*;
use crate::message::NotWritten;

fn request() -> RequestId {
    RequestId::new("r").unwrap()
}

fn writer(name: &str) -> PeerId {
    PeerId::new(name, 1)
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn blocks_arrive_when_every_writer_has_written() {
    let now = Instant::now();
    let mut book = ReservationBook::new(Numbers::from_incarnation(7));
    let id = book.reserve(request(), "blocks", [writer("a"), writer("b")], now + SECOND);
    assert_eq!(book.written(id, &writer("a")), WriterAnswer::Counted);
    assert_eq!(book.written(id, &writer("a")), WriterAnswer::Duplicate);
    assert_eq!(book.written(id, &writer("c")), WriterAnswer::Unknown);
    assert_eq!(book.written(id, &PeerId::new("b", 2)), WriterAnswer::Unknown, "another process");
    assert!(book.take_events().is_empty());
    assert_eq!(book.written(id, &writer("b")), WriterAnswer::Counted);
    assert_eq!(book.take_events(), [ReservationEvent::Arrived { id, blocks: "blocks" }]);
    assert_eq!(book.written(id, &writer("b")), WriterAnswer::Unknown);
    assert!(!book.cancel(id));
}

#[test]
fn blocks_that_failed_stay_in_quarantine_until_every_writer_has_answered() {
    let now = Instant::now();
    let mut book = ReservationBook::new(Numbers::from_incarnation(7));
    let id = book.reserve(request(), "blocks", [writer("a"), writer("b"), writer("c")], now + SECOND);
    book.expire(now + SECOND);
    assert_eq!(book.take_events(), [ReservationEvent::Failed { id, why: ArrivalFailed::Deadline }]);
    assert_eq!((book.stats().quarantined, book.stats().expired), (1, 1));
    book.released(id, &writer("a"), NotWritten::LeaseEnded);
    // Lost is no proof.
    book.writer_lost(&writer("b"));
    book.written(id, &writer("c"));
    let pending: Vec<_> = book.quarantined().flat_map(|(_, _, pending)| pending.cloned()).collect();
    assert_eq!(pending, [writer("b")]);
    assert!(book.take_events().is_empty());
    book.writer_gone(&writer("b"));
    assert_eq!(book.take_events(), [ReservationEvent::Returned { id, blocks: "blocks" }]);
    assert_eq!((book.stats().quarantined, book.stats().live), (0, 0));
}

#[test]
fn a_writer_that_fails_is_told_of_at_once_and_waited_for() {
    let now = Instant::now();
    let mut book = ReservationBook::new(Numbers::from_incarnation(7));
    let id = book.reserve(request(), "blocks", [writer("a"), writer("b")], now + SECOND);
    let broken = NotWritten::Transfer("broken".into());
    assert_eq!(book.failing(id, &writer("c"), broken.clone()), WriterAnswer::Unknown);
    assert_eq!(book.failing(id, &writer("a"), broken.clone()), WriterAnswer::Counted);
    let why = ArrivalFailed::NotWritten { writer: writer("a"), why: broken.clone() };
    assert_eq!(book.take_events(), [ReservationEvent::Failed { id, why }]);
    assert_eq!(book.written(id, &writer("b")), WriterAnswer::Counted);
    assert!(book.take_events().is_empty(), "something of the first may still land");
    assert_eq!(book.released(id, &writer("a"), broken.clone()), WriterAnswer::Counted);
    assert_eq!(book.take_events(), [ReservationEvent::Returned { id, blocks: "blocks" }]);
    assert_eq!(book.failing(id, &writer("a"), broken), WriterAnswer::Unknown, "it comes late");
}

#[test]
fn a_book_that_is_dropped_forgets_blocks_that_may_be_written() {
    let blocks = Rc::new(());
    let mut book = ReservationBook::new(Numbers::from_incarnation(7));
    book.reserve(request(), blocks.clone(), [writer("a")], Instant::now());
    drop(book);
    assert_eq!(Rc::strong_count(&blocks), 2, "given back under a writer");
}

proptest! {
    #[test]
    fn prop_blocks_come_back_once_and_only_when_no_writer_is_left(
        steps in prop::collection::vec((0_u8..9, 0_u64..4, 0_u8..3, 0_u64..3), 0..200),
    ) {
        let names = ["a", "b", "c"];
        let mut now = Instant::now();
        let mut book = ReservationBook::new(Numbers::from_incarnation(0));
        let (mut pending, mut outcomes): (BTreeMap<_, BTreeSet<PeerId>>, BTreeMap<_, bool>) = Default::default();
        let mut back = BTreeSet::new();
        for (what, which, who, wait) in steps {
            let id = ReservationId(which + 1);
            let peer = writer(names[usize::from(who)]);
            let mut answered = |id| pending.get_mut(&id).is_some_and(|left| left.remove(&peer));
            match what {
                0 | 1 => {
                    let writers: BTreeSet<_> = names[usize::from(who)..].iter().map(|name| writer(name)).collect();
                    let id = book.reserve(request(), pending.len(), writers.clone(), now + 2 * SECOND);
                    pending.insert(id, writers);
                }
                2..=4 => {
                    let counted = book.written(id, &peer) == WriterAnswer::Counted;
                    prop_assert_eq!(counted, answered(id) && !back.contains(&id));
                }
                5 => {
                    let counted = book.released(id, &peer, NotWritten::LeaseEnded) == WriterAnswer::Counted;
                    prop_assert_eq!(counted, answered(id) && !back.contains(&id));
                }
                6 => {
                    book.cancel(id);
                }
                7 => {
                    book.writer_lost(&peer);
                    if wait == 0 {
                        book.writer_gone(&peer);
                        for left in pending.values_mut() {
                            left.remove(&peer);
                        }
                    }
                }
                _ => {
                    now += SECOND * u32::try_from(wait).unwrap();
                    book.expire(now);
                }
            }
            for event in book.take_events() {
                let (id, good, is_back) = match event {
                    ReservationEvent::Arrived { id, .. } => (id, true, true),
                    ReservationEvent::Failed { id, .. } => (id, false, false),
                    ReservationEvent::Returned { id, .. } => {
                        prop_assert_eq!(outcomes.get(&id), Some(&false), "fails before it returns");
                        prop_assert!(back.insert(id) && pending[&id].is_empty());
                        continue;
                    }
                };
                prop_assert_eq!(outcomes.insert(id, good), None, "two outcomes");
                if is_back {
                    prop_assert!(back.insert(id) && pending[&id].is_empty());
                }
            }
            prop_assert_eq!(pending.len(), back.len() + book.stats().live);
        }
    }
}
