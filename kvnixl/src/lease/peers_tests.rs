//! Peers under a simulated clock.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;

fn peer(incarnation: u64) -> PeerId {
    PeerId::new("prefill", incarnation)
}

#[test]
fn a_blob_that_cannot_be_had_is_fetched_again_with_back_off() {
    let start = Instant::now();
    let mut book = PeerBook::new(PeerOptions::default());
    let (mut now, mut waits) = (start, Vec::new());
    for _ in 0..10 {
        assert_eq!(book.want("prefill", now), Wanted::Fetch);
        assert!(matches!(book.want("prefill", now), Wanted::Wait(_)), "one fetch at a time");
        book.fetch_failed("prefill", now);
        let Wanted::Wait(until) = book.want("prefill", now) else { panic!("fetched at once") };
        waits.push((until - now).as_millis());
        now = until;
    }
    assert_eq!(waits, [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000, 10_000]);
    // Not answered at all is a failure too.
    assert_eq!(book.want("prefill", now), Wanted::Fetch);
    now += PeerOptions::default().fetch_timeout;
    assert!(matches!(book.want("prefill", now), Wanted::Wait(_)));
    assert_eq!(book.loaded(&peer(1), 1, now), Loaded::New);
    assert_eq!(book.want("prefill", now), Wanted::Ready(peer(1)));
    assert_eq!((book.stats().fetches, book.stats().failed_fetches), (11, 11));
}

#[test]
fn a_restarted_peer_replaces_its_predecessor_and_the_old_blob_is_stale() {
    let (mut book, now) = (PeerBook::new(PeerOptions::default()), Instant::now());
    assert_eq!(book.loaded(&peer(1), 1, now), Loaded::New);
    assert!(book.started(&peer(1), now));
    assert_eq!(book.loaded(&peer(2), 1, now), Loaded::Replaced(peer(1)));
    assert_eq!(book.state(&peer(1)), Some(PeerState::Replaced));
    assert!(!book.started(&peer(1), now) && book.started(&peer(2), now));
    assert_eq!(book.loaded(&peer(1), 9, now), Loaded::Past(peer(2)));
    assert_eq!(book.want("prefill", now), Wanted::Ready(peer(2)));
    // What the predecessor has in flight is not the successor's.
    book.settled(&peer(1), now);
    book.remove("prefill");
    assert!(book.take_drained().is_empty());
    book.settled(&peer(2), now);
    assert_eq!(book.take_drained(), [peer(2)]);
    assert_eq!(book.state(&peer(2)), None);
}

#[test]
fn memory_that_goes_is_drained_and_a_newer_registration_is_fetched() {
    let (mut book, now) = (PeerBook::new(PeerOptions::default()), Instant::now());
    book.loaded(&peer(1), 1, now);
    assert!(book.started(&peer(1), now));
    book.withdrawn(&peer(1), 1);
    assert!(!book.started(&peer(1), now) && book.take_drained().is_empty());
    assert_eq!(book.want("prefill", now), Wanted::Draining);
    assert_eq!(book.loaded(&peer(1), 1, now), Loaded::Stale);
    assert_eq!(book.want("prefill", now), Wanted::Draining, "the old blob does not bring the memory back");
    book.settled(&peer(1), now);
    assert_eq!(book.take_drained(), [peer(1)]);
    // It may be back without having been heard.
    assert_eq!(book.want("prefill", now), Wanted::Fetch);
    assert_eq!(book.loaded(&peer(1), 1, now), Loaded::Stale);
    book.told_generation(&peer(1), 2, now);
    assert_eq!(book.want("prefill", now), Wanted::Fetch);
    assert_eq!(book.loaded(&peer(1), 1, now), Loaded::Stale);
    assert_eq!(book.loaded(&peer(1), 2, now), Loaded::Newer);
    assert_eq!(book.loaded(&peer(1), 1, now), Loaded::Stale);
    assert_eq!(book.want("prefill", now), Wanted::Ready(peer(1)));
    // Said again, late.
    book.withdrawn(&peer(1), 1);
    book.told_generation(&peer(1), 2, now);
    assert_eq!(book.want("prefill", now), Wanted::Ready(peer(1)));
}

#[test]
fn a_lost_peer_is_fetched_again_and_an_idle_one_is_let_go() {
    let start = Instant::now();
    let mut book = PeerBook::new(PeerOptions::default());
    book.loaded(&peer(1), 1, start);
    assert!(book.lost(&peer(1), start) && !book.lost(&peer(1), start) && !book.lost(&peer(2), start));
    assert_eq!(book.state(&peer(1)), Some(PeerState::Lost));
    let Wanted::Wait(until) = book.want("prefill", start) else { panic!("at once") };
    assert_eq!(book.want("prefill", until), Wanted::Fetch);
    assert_eq!(book.loaded(&peer(1), 1, until), Loaded::Same);
    assert!(book.started(&peer(1), until));
    let much_later = until + Duration::from_secs(10_000);
    book.expire(|_| false, much_later);
    assert!(book.take_drained().is_empty(), "it is in use");
    book.settled(&peer(1), much_later);
    book.expire(|_| false, much_later);
    assert!(book.take_drained().is_empty());
    book.expire(|_| false, much_later + PeerOptions::default().idle_ttl);
    assert_eq!(book.take_drained(), [peer(1)]);
}

proptest! {
    /// Transfers start only with the one incarnation that is ready, and nothing is let go while one is in flight.
    #[test]
    fn prop_peers_are_let_go_only_when_nothing_is_in_flight(
        steps in prop::collection::vec((0_u8..10, 1_u64..4, 1_u64..4, 0_u64..700), 0..200),
    ) {
        let mut now = Instant::now();
        let mut book = PeerBook::new(PeerOptions::default());
        let mut in_flight = [0_usize; 4];
        for (what, incarnation, generation, wait) in steps {
            let at = usize::try_from(incarnation).unwrap();
            let id = peer(incarnation);
            match what {
                0 => drop(book.loaded(&id, generation, now)),
                1 => drop(book.want("prefill", now)),
                2 | 3 => {
                    let ready = book.want("prefill", now) == Wanted::Ready(id.clone());
                    let started = book.started(&id, now);
                    prop_assert_eq!(started, ready);
                    in_flight[at] += usize::from(started);
                }
                4 if in_flight[at] > 0 => {
                    in_flight[at] -= 1;
                    book.settled(&id, now);
                }
                5 => drop(book.lost(&id, now)),
                6 => drop(book.withdrawn(&id, generation)),
                7 => drop(book.told_generation(&id, generation, now)),
                8 => book.remove("prefill"),
                _ => {
                    now += Duration::from_secs(wait);
                    book.expire(|_| false, now);
                }
            }
            for drained in book.take_drained() {
                prop_assert_eq!(in_flight[usize::try_from(drained.incarnation).unwrap()], 0);
            }
        }
    }
}
