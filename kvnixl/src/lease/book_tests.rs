//! Leases against a naive twin, over every order of a few events and over random ones.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;

const TTL: Duration = Duration::from_secs(10);

fn options(lost_readers: LostReaders) -> LeaseOptions {
    LeaseOptions { ttl: TTL, max_lifetime: 4 * TTL, lost_readers, ..LeaseOptions::default() }
}

fn book() -> LeaseBook<&'static str> {
    LeaseBook::new(options(LostReaders::Release), Numbers::from_incarnation(7))
}

fn request(name: &str) -> RequestId {
    RequestId::new(name).unwrap()
}

fn reader(name: &str, incarnation: u64) -> PeerId {
    PeerId::new(name, incarnation)
}

#[test]
fn blocks_are_free_when_every_reader_has_completed_once() {
    let (mut book, now) = (book(), Instant::now());
    let lease = book.hold(request("r"), "blocks", Some(2), 0, now).unwrap();
    let complete = |book: &mut LeaseBook<_>, name: &str| {
        book.complete(&request("r"), lease, &reader(name, 1), Reading::Pull(1), now)
    };
    assert_eq!(complete(&mut book, "a"), Completion::Counted);
    assert_eq!(complete(&mut book, "a"), Completion::Duplicate);
    assert!(book.take_freed().is_empty());
    assert_eq!(complete(&mut book, "b"), Completion::Freed);
    let freed = book.take_freed();
    assert_eq!(freed, [Freed { lease, request: request("r"), blocks: "blocks", why: EndReason::AllRead }]);
    // Asked again because the answer was lost: still good for those who were counted, for nobody else.
    assert_eq!(complete(&mut book, "a"), Completion::Duplicate);
    assert_eq!(complete(&mut book, "c"), Completion::Late(EndReason::AllRead));
    assert!(book.take_freed().is_empty());
}

#[test]
fn readers_that_invent_names_fill_no_memory_and_shut_out_nobody_by_reading_again() {
    let (mut book, mut now) = (book(), Instant::now());
    let lease = book.hold(request("r"), "blocks", None, 0, now).unwrap();
    let complete = |book: &mut LeaseBook<_>, name: &str, read| {
        book.complete(&request("r"), lease, &reader(name, 1), Reading::Pull(read), now)
    };
    for read in 0..5000 {
        complete(&mut book, "a", read);
    }
    assert_eq!(complete(&mut book, "a", 1), Completion::Duplicate);
    assert_eq!(complete(&mut book, "a", 5000), Completion::Unknown, "more than are remembered");
    assert_eq!(complete(&mut book, "b", 1), Completion::Counted);
    let names: Vec<String> = (0..5000).map(|name| format!("r{name}")).collect();
    let counted = names.iter().filter(|name| complete(&mut book, name, 1).is_good()).count();
    assert!((1..2048).contains(&counted), "{counted}");

    let lease = book.hold(request("s"), "blocks", None, 0, now).unwrap();
    for name in &names {
        now += Duration::from_millis(1);
        book.heartbeat(&reader(name, 1), &[lease], now);
    }
    assert_eq!(book.stats().extensions, 1024);
}

#[test]
fn a_second_reading_by_a_reader_that_completed_is_judged_by_itself() {
    let (mut book, now) = (book(), Instant::now());
    let lease = book.hold(request("r"), "blocks", Some(2), 0, now).unwrap();
    let complete = |book: &mut LeaseBook<_>, name: &str, read| {
        book.complete(&request("r"), lease, &reader(name, 1), Reading::Pull(read), now)
    };
    assert_eq!(complete(&mut book, "a", 1), Completion::Counted);
    assert_eq!(complete(&mut book, "a", 2), Completion::Duplicate);
    assert_eq!(complete(&mut book, "b", 1), Completion::Freed);
    // The blocks may hold another request by now.
    assert_eq!(complete(&mut book, "a", 3), Completion::Late(EndReason::AllRead));
    assert_eq!(complete(&mut book, "a", 2), Completion::Duplicate);
}

#[test]
fn a_completion_at_the_deadline_is_late_though_nobody_looked_before() {
    let (mut book, now) = (book(), Instant::now());
    let lease = book.hold(request("r"), "blocks", Some(1), 0, now).unwrap();
    assert!(book.is_good(lease, now + TTL - Duration::from_nanos(1)) && !book.is_good(lease, now + TTL));
    let late = book.complete(&request("r"), lease, &reader("a", 1), Reading::Pull(1), now + TTL);
    assert_eq!(late, Completion::Late(EndReason::Expired));
    assert_eq!(book.take_freed().len(), 1);
    assert_eq!((book.stats().expired, book.stats().late_completions), (1, 1));
}

#[test]
fn heartbeats_extend_up_to_the_longest_lifetime() {
    let (mut book, start) = (book(), Instant::now());
    let lease = book.hold(request("r"), "blocks", Some(1), 0, start).unwrap();
    let mut now = start;
    while book.heartbeat(&reader("a", 1), &[lease, LeaseId(0)], now) == [LeaseId(0)] {
        now += TTL / 2;
    }
    assert_eq!(now - start, 4 * TTL);
    assert_eq!(book.take_freed()[0].why, EndReason::Expired);
}

#[test]
fn a_completion_for_an_earlier_lease_of_the_same_request_frees_nothing() {
    let (mut book, now) = (book(), Instant::now());
    let first = book.hold(request("r"), "first", Some(1), 0, now).unwrap();
    let (error, blocks) = book.hold(request("r"), "second", Some(1), 0, now).unwrap_err();
    assert!(matches!(error, crate::Error::RequestHeld { lease, .. } if lease == first), "{error}");
    assert!(book.abort(first, now) && !book.abort(first, now));
    let second = book.hold(request("r"), blocks, Some(1), 0, now).unwrap();
    assert_eq!(book.take_freed().len(), 1);
    let a = reader("a", 1);
    assert_eq!(book.complete(&request("r"), first, &a, Reading::Pull(1), now), Completion::Late(EndReason::Aborted));
    assert_eq!(book.complete(&request("other"), second, &a, Reading::Pull(1), now), Completion::Unknown);
    assert_eq!(book.complete(&request("r"), LeaseId(second.0 + 1), &a, Reading::Pull(1), now), Completion::Unknown);
    assert!(book.take_freed().is_empty());
    assert_eq!(book.complete(&request("r"), second, &a, Reading::Pull(1), now), Completion::Freed);
}

#[test]
fn a_lease_from_before_a_restart_is_unknown_afterwards() {
    let now = Instant::now();
    let old = book().hold(request("r"), "old", Some(1), 0, now).unwrap();
    let mut restarted = LeaseBook::new(options(LostReaders::Release), Numbers::from_incarnation(8));
    restarted.hold(request("r"), "new", Some(1), 0, now).unwrap();
    assert_eq!(restarted.complete(&request("r"), old, &reader("a", 1), Reading::Pull(1), now), Completion::Unknown);
    assert!(restarted.take_freed().is_empty());
}

#[test]
fn the_clock_starts_with_the_last_part_and_nothing_completes_before() {
    let (mut book, now) = (book(), Instant::now());
    let lease = book.hold(request("r"), "blocks", Some(1), 2, now).unwrap();
    let a = reader("a", 1);
    assert!(book.ready(lease, 1, now) && !book.ready(lease, 2, now));
    assert!(book.is_ready(lease, 1) && !book.is_ready(lease, 0));
    let much_later = now + 100 * TTL;
    assert_eq!(book.complete(&request("r"), lease, &a, Reading::Pull(1), much_later), Completion::Premature);
    book.heartbeat(&a, &[lease], now);
    book.reader_gone(&a, much_later);
    assert!(book.take_freed().is_empty(), "the producer still writes them");
    assert!(book.ready(lease, 0, much_later));
    assert_eq!(book.take_freed()[0].why, EndReason::ReadersLost);
}

#[test]
fn the_number_of_readers_may_be_known_late() {
    let (mut book, now) = (book(), Instant::now());
    let lease = book.hold(request("r"), "blocks", None, 0, now).unwrap();
    for name in ["a", "b"] {
        assert_eq!(book.complete(&request("r"), lease, &reader(name, 1), Reading::Pull(1), now), Completion::Counted);
    }
    assert!(book.take_freed().is_empty());
    assert!(book.set_readers(lease, 2, now));
    assert_eq!(book.take_freed()[0].why, EndReason::AllRead);
    assert!(!book.set_readers(lease, 3, now));
}

#[test]
fn what_is_remembered_is_bounded_in_time_and_number() {
    let mut book = LeaseBook::new(
        LeaseOptions { max_remembered: 1, remember: TTL, ..options(LostReaders::Release) },
        Numbers::from_incarnation(7),
    );
    let now = Instant::now();
    let leases: Vec<LeaseId> = ["x", "y"].map(|name| book.hold(request(name), "", Some(0), 0, now).unwrap()).into();
    let a = reader("a", 1);
    assert_eq!(book.complete(&request("x"), leases[0], &a, Reading::Pull(1), now), Completion::Unknown);
    assert_eq!(
        book.complete(&request("y"), leases[1], &a, Reading::Pull(1), now),
        Completion::Late(EndReason::AllRead)
    );
    assert_eq!(book.complete(&request("y"), leases[1], &a, Reading::Pull(1), now + TTL), Completion::Unknown);
}

/// Something that happens to a lease with two readers, `a` and `b`.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Happens {
    Complete(&'static str, u64, u64),
    Heartbeat(&'static str, u64),
    Lost(&'static str, u64),
    Abort,
    /// Time passes: more than half a lease, so two in a row end one that is not extended.
    Wait,
    Ready(u32),
}

fn completed(done: &BTreeSet<(&str, u64, u64)>, name: &str, life: u64) -> bool {
    done.iter().any(|(n, l, _)| (*n, *l) == (name, life))
}

/// The twin keeps the history, and works out everything anew from it.
struct Twin {
    start: Instant,
    num_parts: u32,
    policy: LostReaders,
    history: Vec<(Instant, Happens)>,
}

#[derive(Debug, PartialEq)]
struct Verdict {
    ended: Option<EndReason>,
    good: Vec<bool>,
}

impl Twin {
    fn verdict(&self, until: Instant) -> Verdict {
        let mut ready = BTreeSet::new();
        let mut clock = (self.num_parts == 0).then_some((self.start + TTL, self.start + 4 * TTL));
        let (mut done, mut gone, mut known) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let (mut ended, mut good) = (None, Vec::new());
        for &(now, event) in self.history.iter().chain([&(until, Happens::Wait)]) {
            if ended.is_none() && clock.is_some_and(|(deadline, _)| now >= deadline) {
                ended = Some(EndReason::Expired);
            }
            match event {
                Happens::Complete(name, life, read) => {
                    let fine = done.contains(&(name, life, read)) || (ended.is_none() && clock.is_some());
                    if fine {
                        done.insert((name, life, read));
                    }
                    good.push(fine);
                }
                _ if ended.is_some() => {}
                Happens::Heartbeat(name, life) => {
                    let counts = !completed(&done, name, life) && !gone.contains(&(name, life));
                    if counts {
                        known.insert((name, life));
                    }
                    if let Some((deadline, last)) = clock.as_mut().filter(|_| counts) {
                        *deadline = (now + TTL).min(*last).max(*deadline);
                    }
                }
                Happens::Lost(name, life) => {
                    if self.policy == LostReaders::Release
                        && known.contains(&(name, life))
                        && !completed(&done, name, life)
                    {
                        gone.insert((name, life));
                    }
                }
                Happens::Abort => ended = Some(EndReason::Aborted),
                Happens::Wait => {}
                Happens::Ready(part) => {
                    ready.insert(part);
                    if clock.is_none() && ready.len() == self.num_parts as usize {
                        clock = Some((now + TTL, now + 4 * TTL));
                    }
                }
            }
            if ended.is_none() && clock.is_some() {
                let is_done = |name: &str| done.iter().any(|(n, ..)| *n == name);
                let is_gone = |name: &str| gone.iter().any(|(n, _)| *n == name);
                if ["a", "b"].iter().all(|name| is_done(name)) {
                    ended = Some(EndReason::AllRead);
                } else if ["a", "b"].iter().all(|name| is_done(name) || is_gone(name)) {
                    ended = Some(EndReason::ReadersLost);
                }
            }
        }
        Verdict { ended, good }
    }
}

/// Plays events to a book and to the twin, with a second lease that nothing may touch, and compares after each.
fn play(events: &[Happens], num_parts: u32, policy: LostReaders) {
    let start = Instant::now();
    let mut book =
        LeaseBook::new(LeaseOptions { max_lifetime: 4 * TTL, ..options(policy) }, Numbers::from_incarnation(7));
    let other = book.hold(request("other"), "other", Some(9), 1, start).unwrap();
    let lease = book.hold(request("r"), "mine", Some(2), num_parts, start).unwrap();
    let mut twin = Twin { start, num_parts, policy, history: Vec::new() };
    let (mut now, mut good, mut freed) = (start, Vec::new(), Vec::new());
    for &event in events {
        match event {
            Happens::Complete(name, life, read) => {
                good.push(book.complete(&request("r"), lease, &reader(name, life), Reading::Pull(read), now).is_good());
            }
            Happens::Heartbeat(name, life) => {
                book.heartbeat(&reader(name, life), &[lease], now);
            }
            Happens::Lost(name, life) => book.reader_gone(&reader(name, life), now),
            Happens::Abort => {
                book.abort(lease, now);
            }
            Happens::Wait => {
                now += TTL * 6 / 10;
                book.expire(now);
            }
            Happens::Ready(part) => {
                book.ready(lease, part, now);
            }
        }
        twin.history.push((now, event));
        freed.extend(book.take_freed());
        let verdict = twin.verdict(now);
        assert!(freed.len() <= 1, "freed twice: {events:?}");
        assert_eq!(freed.first().map(|freed| freed.why), verdict.ended, "{events:?}");
        assert_eq!(good, verdict.good, "{events:?}");
        assert_eq!(book.is_good(lease, now), verdict.ended.is_none(), "{events:?}");
    }
    assert!(freed.iter().all(|freed| freed.lease == lease && freed.blocks == "mine"));
    assert!(book.is_good(other, now));
    let stats = book.stats();
    assert_eq!(stats.live + freed.len(), 2);
    let completions: u64 = stats.completions
        + stats.duplicate_completions
        + stats.late_completions
        + stats.premature_completions
        + stats.unknown_completions;
    assert_eq!(completions, good.len() as u64);
}

/// Calls `visit` with every order of `events`.
fn each_order(events: &mut Vec<Happens>, at: usize, visit: &mut impl FnMut(&[Happens])) {
    if at == events.len() {
        return visit(events);
    }
    for i in at..events.len() {
        events.swap(at, i);
        each_order(events, at + 1, visit);
        events.swap(at, i);
    }
}

#[test]
fn every_order_of_completion_expiry_heartbeat_and_restart_is_as_the_history_says() {
    use Happens::*;
    let cases: [&[Happens]; 4] = [
        &[
            Complete("a", 1, 1),
            Complete("a", 1, 1),
            Complete("a", 1, 2),
            Complete("b", 1, 1),
            Heartbeat("a", 1),
            Wait,
            Wait,
            Heartbeat("b", 1),
        ],
        &[Complete("a", 1, 1), Complete("a", 2, 1), Complete("b", 1, 1), Heartbeat("a", 1), Lost("a", 1), Wait, Wait],
        &[Complete("a", 1, 1), Complete("b", 1, 1), Heartbeat("b", 1), Lost("b", 1), Complete("b", 2, 1), Abort, Wait],
        &[Ready(0), Ready(1), Complete("a", 1, 1), Complete("b", 1, 1), Heartbeat("b", 1), Lost("b", 1), Wait],
    ];
    let mut orders = 0;
    for (case, events) in cases.iter().enumerate() {
        let num_parts = if case == 3 { 2 } else { 0 };
        for policy in [LostReaders::Release, LostReaders::Wait] {
            each_order(&mut events.to_vec(), 0, &mut |order| {
                orders += 1;
                play(order, num_parts, policy);
            });
        }
    }
    assert_eq!(orders, 2 * (40_320 + 3 * 5040));
}

fn happens() -> impl Strategy<Value = Happens> {
    let name = prop_oneof![Just("a"), Just("b")];
    let who = || (name.clone(), 1_u64..3);
    prop_oneof![
        3 => (who(), 0_u64..2).prop_map(|((name, life), read)| Happens::Complete(name, life, read)),
        3 => who().prop_map(|(name, life)| Happens::Heartbeat(name, life)),
        1 => who().prop_map(|(name, life)| Happens::Lost(name, life)),
        3 => Just(Happens::Wait),
        3 => (0_u32..3).prop_map(Happens::Ready),
        1 => Just(Happens::Abort),
    ]
}

proptest! {
    #[test]
    fn prop_a_lease_is_as_its_history_says(
        events in prop::collection::vec(happens(), 0..24),
        parts in 0_u32..4,
        wait: bool,
    ) {
        let known = |event: &Happens| !matches!(event, Happens::Ready(part) if *part >= parts);
        let events: Vec<Happens> = events.into_iter().filter(known).collect();
        play(&events, parts, if wait { LostReaders::Wait } else { LostReaders::Release });
    }

    #[test]
    fn prop_every_block_is_freed_once_whatever_arrives(
        steps in prop::collection::vec((0_u8..7, 0_u64..6, 0_u8..3, 0_u64..15), 0..200),
    ) {
        let mut now = Instant::now();
        let mut book = LeaseBook::new(options(LostReaders::Release), Numbers::from_incarnation(7));
        let mut held = BTreeMap::new();
        let mut out = BTreeSet::new();
        for (what, which, who, wait) in steps {
            let name = request(&format!("r{}", which % 3));
            let lease = LeaseId((7 << 32) + which + 1);
            let peer = reader(["a", "b", "c"][usize::from(who)], wait % 2);
            match what {
                0 | 1 => {
                    let next = held.len();
                    if let Ok(lease) = book.hold(name, next, Some(usize::from(who)), u32::from(who / 2), now) {
                        held.insert(lease, next);
                    }
                }
                2 => {
                    let good = book.is_good(lease, now);
                    let answer = book.complete(&name, lease, &peer, Reading::Pull(wait), now);
                    prop_assert!(!matches!(answer, Completion::Counted | Completion::Freed) || good);
                }
                3 => drop(book.heartbeat(&peer, &[lease], now)),
                4 => drop(book.abort(lease, now)),
                5 => drop(book.ready(lease, 0, now)),
                _ => {
                    now += Duration::from_secs(wait);
                    book.reader_gone(&peer, now);
                }
            }
            for freed in book.take_freed() {
                prop_assert_eq!(held.get(&freed.lease), Some(&freed.blocks));
                prop_assert!(out.insert(freed.lease), "freed twice");
            }
            prop_assert_eq!(held.len(), out.len() + book.stats().live);
        }
    }
}
