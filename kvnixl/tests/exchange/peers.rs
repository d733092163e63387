//! Memory that is withdrawn, and peers that go and come.

use std::time::Duration;

use kvnixl::lease::{PeerState, Wanted};
use kvnixl::{Error, Event, Limits};

use crate::side::{Pair, Side, TTL};
use crate::told::{arrived, request, returned, whole, withdrawn};

#[test]
fn memory_is_withdrawn_when_no_peer_touches_it_and_peers_fetch_the_new_blob() {
    let mut pair = Pair::new();
    let now = pair.now;
    let lease = pair.hold(0);
    pair.network.stall(true);
    pair.pull(lease);
    pair.decode.has_posted();
    pair.prefill.exchange.withdraw(now);
    pair.poll();
    assert_eq!(pair.prefill.exchange.withdrawal_waits_for(), [pair.decode.id.clone()]);
    let (error, _) = pair.decode.exchange.pull("next", vec![pair.part(lease, &whole())], now + TTL, now).unwrap_err();
    assert!(matches!(error, Error::PeerNotReady { state: Some(PeerState::Draining), .. }), "{error}");
    pair.network.stall(false);
    pair.until("the withdrawal", |prefill, _| prefill.take(withdrawn).is_some());
    let old_blob = pair.prefill.agent().export().unwrap();
    pair.prefill.register_anew();
    pair.prefill.exchange.registered(now);
    pair.poll();
    assert!(pair.decode.told.iter().any(|event| matches!(event, Event::PeerStale(_))));
    assert_eq!(pair.decode.exchange.want("prefill", now), Wanted::Fetch);
    let error = pair.decode.exchange.connect(&old_blob, now).unwrap_err();
    assert!(matches!(error, Error::StaleBlob { .. }), "{error}");
    assert!(error.to_string().contains("its memory of generation 1 is taken away"), "{error}");
    assert_eq!(pair.decode.exchange.stats().peers.stale, 1);
    let prefill = &pair.prefill;
    pair.decode.connect(prefill, now);
    assert_eq!(pair.decode.exchange.want("prefill", now), Wanted::Ready(pair.prefill.id.clone()));
}

#[test]
fn that_memory_goes_is_told_once_however_often_the_peer_says_it() {
    let mut pair = Pair::new();
    let lease = pair.hold(0);
    pair.network.stall(true);
    pair.pull(lease);
    pair.decode.has_posted();
    pair.prefill.exchange.withdraw(pair.now);
    for _ in 0..4 {
        pair.poll();
        pair.now += Duration::from_millis(500);
    }
    let num_told = |side: &Side| side.told.iter().filter(|event| matches!(event, Event::PeerStale(_))).count();
    assert_eq!(num_told(&pair.decode), 1);
    pair.network.stall(false);
    pair.until("the withdrawal", |prefill, _| prefill.take(withdrawn).is_some());
    pair.prefill.register_anew();
    pair.prefill.exchange.registered(pair.now);
    pair.poll();
    assert_eq!(num_told(&pair.decode), 2, "that its blob can be fetched is news");
    let prefill = &pair.prefill;
    pair.decode.connect(prefill, pair.now);
    pair.prefill.exchange.registered(pair.now);
    pair.poll();
    assert_eq!(num_told(&pair.decode), 2, "its blob is the new one");
}

#[test]
fn a_withdrawal_does_not_wait_for_processes_that_have_ended() {
    for ended_before in [true, false] {
        let mut pair = Pair::new();
        let (now, decode) = (pair.now, pair.decode.id.clone());
        let declare = |prefill: &mut Side| {
            // SAFETY: the loopback copies only inside a post, and none runs.
            unsafe { prefill.exchange.peer_is_gone(&decode, now) };
        };
        if ended_before {
            declare(&mut pair.prefill);
        }
        pair.prefill.exchange.withdraw(now);
        pair.prefill.poll(now);
        if !ended_before {
            assert!(pair.prefill.take(withdrawn).is_none());
            declare(&mut pair.prefill);
            pair.prefill.poll(now);
        }
        assert!(pair.prefill.take(withdrawn).is_some(), "ended before: {ended_before}");
    }
}

#[test]
fn a_withdrawal_does_not_wait_for_peers_that_have_said_goodbye() {
    let mut pair = Pair::new();
    pair.decode.exchange.goodbye(pair.now).unwrap();
    pair.poll();
    pair.prefill.exchange.withdraw(pair.now);
    pair.poll();
    assert!(pair.prefill.take(withdrawn).is_some());
}

#[test]
fn a_reader_that_lets_a_producer_go_answers_its_withdrawal_first() {
    let mut pair = Pair::new();
    let now = pair.now;
    let lease = pair.hold(0);
    pair.network.stall(true);
    pair.pull(lease);
    pair.decode.has_posted();
    pair.prefill.exchange.withdraw(now);
    pair.poll();
    pair.decode.exchange.release_peer("prefill");
    pair.poll();
    assert!(pair.prefill.take(withdrawn).is_none(), "it is being read");
    pair.network.stall(false);
    pair.until("the withdrawal", |prefill, _| prefill.take(withdrawn).is_some());
    let released = |event: &Event<_>| matches!(event, Event::PeerReleased(_)).then_some(());
    pair.until("the release", |_, decode| decode.take(released).is_some());
}

#[test]
fn a_peer_whose_memory_went_is_used_again_though_its_word_of_it_was_lost() {
    let mut pair = Pair::new();
    pair.prefill.exchange.withdraw(pair.now);
    pair.until("the withdrawal", |prefill, _| prefill.take(withdrawn).is_some());
    pair.prefill.register_anew();
    pair.network.lose_notifications(true);
    pair.prefill.exchange.registered(pair.now);
    pair.network.lose_notifications(false);
    pair.poll();
    assert_eq!(pair.decode.exchange.want("prefill", pair.now), Wanted::Fetch);
    let prefill = &pair.prefill;
    pair.decode.connect(prefill, pair.now);
    assert_eq!(pair.decode.exchange.want("prefill", pair.now), Wanted::Ready(pair.prefill.id.clone()));
}

#[test]
fn a_peer_that_ends_after_its_memory_went_makes_room_for_its_successor() {
    let mut pair = Pair::new();
    pair.prefill.exchange.withdraw(pair.now);
    pair.until("the withdrawal", |prefill, _| prefill.take(withdrawn).is_some());
    pair.prefill.exchange.goodbye(pair.now).unwrap();
    pair.poll();
    let lost = |event: &Event<_>| matches!(event, Event::PeerLost(_)).then_some(());
    assert!(pair.decode.take(lost).is_some());
    let Pair { network, prefill, mut decode, mut now } = pair;
    drop(prefill);
    let successor = Side::new("prefill", &network, 4, Limits::default());
    now += Duration::from_secs(1);
    assert_eq!(decode.exchange.want("prefill", now), Wanted::Fetch);
    decode.connect(&successor, now);
    assert_eq!(decode.exchange.want("prefill", now), Wanted::Ready(successor.id.clone()));
}

#[test]
fn an_idle_peer_is_let_go_and_one_that_says_goodbye_is_not_waited_for() {
    let mut pair = Pair::new();
    pair.reserve();
    pair.prefill.exchange.goodbye(pair.now).unwrap();
    pair.until("the return", |_, decode| decode.take(returned) == Some("destination"));
    assert!(pair.decode.told.iter().any(|event| matches!(event, Event::PeerLost(_))));
    // The registration ends at its deadline, which is told.
    pair.now += TTL;
    pair.poll();
    pair.now += Duration::from_secs(600);
    pair.poll();
    assert!(pair.decode.told.iter().any(|event| matches!(event, Event::PeerReleased(_))));
    assert_eq!(pair.decode.exchange.want("prefill", pair.now), Wanted::Fetch);
    assert_eq!(pair.decode.exchange.stats().peers.idle, 1);
}

#[test]
fn a_peer_that_a_reservation_waits_for_is_not_idle() {
    let mut pair = Pair::new();
    let (sources, deadline) = (vec![pair.source()], pair.now + Duration::from_secs(3600));
    pair.decode.exchange.reserve(request(), "destination", sources, deadline, pair.now).unwrap();
    pair.poll();
    for _ in 0..2 {
        pair.now += Duration::from_secs(601);
        pair.poll();
    }
    pair.hold(0);
    let (id, ..) = pair.met();
    pair.prefill.exchange.write(&id, 0, &whole(), 0, pair.now).unwrap();
    pair.until("the arrival", |_, decode| decode.take(arrived) == Some("destination"));
    pair.now += Duration::from_secs(601);
    pair.poll();
    assert!(pair.decode.told.iter().any(|event| matches!(event, Event::PeerReleased(_))), "now it is");
}
