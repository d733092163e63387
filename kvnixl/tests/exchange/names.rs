//! Blobs that name another peer, or numbers that no peer has.

use std::time::Instant;

use kvnixl::lease::Wanted;
use kvnixl::{Error, Event, Limits, LoopbackNetwork};

use crate::common::Worker;
use crate::common::forged::forged;
use crate::side::{Pair, Side};
use crate::told::pulled;

fn blob(side: &Side) -> Vec<u8> {
    side.agent().export().unwrap()
}

/// Another worker, which is up to something.
fn hostile(network: &LoopbackNetwork) -> Side {
    Side::new("prefill-1", network, 9, Limits::default())
}

#[test]
fn a_blob_fetched_for_one_peer_does_not_take_the_place_of_another() {
    let mut pair = Pair::new();
    let (prefill, now) = (pair.prefill.id.clone(), pair.now);
    let hostile = hostile(&pair.network);
    let decode = &mut pair.decode.exchange;
    for started in [None, Some(0), Some(u64::MAX)] {
        let lies = forged(&blob(&hostile), |header| {
            header.agent = "prefill".into();
            header.started = started;
        });
        let error = decode.connect_named("prefill-1", &lies, now).unwrap_err();
        assert!(
            matches!(&error, Error::UnexpectedPeer { expected, named } if expected == "prefill-1" && named == "prefill"),
            "{error}"
        );
        // The same without a name, if it was looked up.
        assert!(matches!(decode.want("prefill-1", now), Wanted::Fetch | Wanted::Wait(_)));
        assert!(matches!(decode.connect(&lies, now), Err(Error::UnexpectedPeer { .. })));
        assert_eq!(decode.want("prefill", now), Wanted::Ready(prefill.clone()));
    }
    assert_eq!(decode.stats().peers.replaced, 0);
    decode.connect_named("prefill-1", &blob(&hostile), now).unwrap();
    let agent = decode.agent().clone();
    let misnamed = agent.connect_named("prefill", &blob(&hostile)).unwrap_err();
    assert!(matches!(misnamed, Error::UnexpectedPeer { .. }), "{misnamed}");
    // What is new under another name is welcome while something is fetched: nobody loses anything.
    let other = Side::new("prefill-2", &pair.network, 3, Limits::default());
    pair.decode.exchange.want("prefill-3", now);
    pair.decode.connect(&other, now);
    let lease = pair.hold(0);
    pair.pull(lease);
    pair.until("the pull", |_, decode| decode.take(pulled).is_some());
}

#[test]
fn a_process_takes_the_place_of_one_that_lives_only_if_it_started_later() {
    let network = LoopbackNetwork::new();
    let older = Side::new("prefill", &network, 3, Limits::default());
    let now = Instant::now();
    let (mut decode, prefill) =
        (Side::new("decode", &network, 2, Limits::default()), Side::new("prefill", &network, 1, Limits::default()));
    decode.connect(&prefill, now);
    for started in [None, Some(0), Some(1)] {
        let old = forged(&blob(&older), |header| header.started = started);
        let error = decode.exchange.connect(&old, now).unwrap_err();
        assert!(matches!(error, Error::OlderProcess { .. }), "{error}");
    }
    let error = decode.exchange.connect(&blob(&older), now).unwrap_err();
    assert!(error.to_string().contains(&format!("{:016x}", prefill.id.incarnation)), "{error}");
    assert_eq!(decode.exchange.stats().peers.stale, 4);
    assert_eq!(decode.exchange.want("prefill", now), Wanted::Ready(prefill.id.clone()));
    // One that cannot be reached any more makes room.
    network.refuse_notifications(true);
    decode.exchange.goodbye(now).unwrap();
    network.refuse_notifications(false);
    decode.connect(&older, now);
    assert_eq!(decode.exchange.want("prefill", now), Wanted::Ready(older.id.clone()));
}

#[test]
fn a_start_that_is_yet_to_come_keeps_nobody_out() {
    let mut pair = Pair::new();
    let now = pair.now;
    let ahead = forged(&blob(&Side::new("prefill", &pair.network, 3, Limits::default())), |header| {
        header.started = Some(u64::MAX)
    });
    pair.decode.exchange.connect(&ahead, now).unwrap_err();
    let impostor = Side::new("prefill", &pair.network, 3, Limits::default());
    let ahead = forged(&blob(&impostor), |header| header.started = Some(u64::MAX));
    assert_eq!(pair.decode.exchange.connect(&ahead, now).unwrap(), impostor.id);
    let replaced = pair.decode.exchange.connect(&blob(&pair.prefill), now).unwrap_err();
    assert!(matches!(replaced, Error::OlderProcess { .. }), "{replaced}");
    let restarted = Side::new("prefill", &pair.network, 4, Limits::default());
    pair.decode.connect(&restarted, now);
    assert_eq!(pair.decode.exchange.want("prefill", now), Wanted::Ready(restarted.id.clone()));
}

#[test]
fn a_peer_that_was_replaced_by_mistake_is_back_once_its_successor_cannot_be_reached() {
    let mut pair = Pair::new();
    let now = pair.now;
    let impostor = Side::new("prefill", &pair.network, 3, Limits::default());
    pair.decode.connect(&impostor, now);
    let replaced = pair.decode.exchange.connect(&blob(&pair.prefill), now).unwrap_err();
    assert!(matches!(replaced, Error::OlderProcess { .. }), "{replaced}");
    pair.network.refuse_notifications(true);
    pair.decode.exchange.goodbye(now).unwrap();
    pair.network.refuse_notifications(false);
    pair.decode.connect(&pair.prefill, now);
    let lease = pair.hold(0);
    pair.pull(lease);
    pair.until("the pull", |_, decode| decode.take(pulled).is_some());
    let replaced = |event: &Event<_>| matches!(event, Event::PeerReplaced { .. }).then_some(());
    assert!(pair.decode.take(replaced).is_some() && pair.decode.take(replaced).is_some());
}

#[test]
fn a_process_that_has_ended_is_never_back() {
    let mut pair = Pair::new();
    let now = pair.now;
    let successor = Side::new("prefill", &pair.network, 3, Limits::default());
    pair.decode.connect(&successor, now);
    // SAFETY: the loopback copies only inside a post, and none runs.
    unsafe { pair.decode.exchange.peer_is_gone(&pair.prefill.id, now) };
    pair.network.refuse_notifications(true);
    pair.decode.exchange.goodbye(now).unwrap();
    pair.network.refuse_notifications(false);
    assert!(pair.decode.exchange.connect(&blob(&pair.prefill), now).is_err());
}

#[test]
fn no_generation_however_large_keeps_later_ones_out() {
    for most in [2, 1000, u64::MAX] {
        let mut pair = Pair::new();
        let now = pair.now;
        let lies = forged(&blob(&pair.prefill), |header| header.generation = most);
        pair.decode.exchange.connect(&lies, now).unwrap();
        // The memory is the same, so all works, and a smaller one is late.
        let lease = pair.hold(0);
        pair.pull(lease);
        pair.until("the pull", |_, decode| decode.take(pulled).is_some());
        assert!(matches!(pair.decode.exchange.connect(&blob(&pair.prefill), now), Err(Error::StaleBlob { .. })));
        // Until the peer's own word is another.
        pair.prefill.exchange.withdraw(now);
        pair.poll();
        assert!(!matches!(pair.decode.exchange.want("prefill", now), Wanted::Ready(_)), "it is withdrawn");
        pair.prefill.register_anew();
        pair.prefill.exchange.registered(now);
        pair.poll();
        pair.decode.connect(&pair.prefill, now);
        assert_eq!(pair.decode.exchange.want("prefill", now), Wanted::Ready(pair.prefill.id.clone()));
        let lease = pair.prefill.exchange.hold(crate::told::request(), "again", Some(1), 0, now).unwrap();
        pair.pull(lease);
        pair.until("the pull", |_, decode| decode.take(pulled).is_some());
    }
}

#[test]
fn a_generation_is_taken_back_when_what_it_led_to_cannot_be_reached() {
    let mut pair = Pair::new();
    let now = pair.now;
    let lies = forged(&blob(&pair.prefill), |header| header.generation = u64::MAX);
    pair.decode.exchange.connect(&lies, now).unwrap();
    pair.network.refuse_notifications(true);
    pair.decode.exchange.goodbye(now).unwrap();
    pair.network.refuse_notifications(false);
    pair.decode.connect(&pair.prefill, now);
    assert_eq!(pair.decode.exchange.peer(&pair.prefill.id).unwrap().generation(), 1);
    let lease = pair.hold(0);
    pair.pull(lease);
    pair.until("the pull", |_, decode| decode.take(pulled).is_some());
}

#[test]
fn a_blob_that_was_refused_is_not_read_again() {
    let network = LoopbackNetwork::new();
    let Worker { agent: prefill, memory: _memory } = Worker::loopback("prefill", &network, 1 << 14, 1);
    let Worker { agent: decode, memory: _ours } = Worker::loopback("decode", &network, 1 << 14, 2);
    let blob = prefill.export().unwrap();
    // Trailing bytes: only who reads it all knows.
    let maps = [&blob[12..], &[0xc0; 1 << 20]].concat();
    let long = [&blob[..8], &crc32fast::hash(&maps).to_be_bytes()[..], &maps].concat();
    assert!(matches!(decode.connect(&long), Err(Error::BlobMalformed { .. })));
    let again = decode.connect(&long).unwrap_err();
    assert!(matches!(&again, Error::BlobRefused { why, .. } if why.contains("what follows the body")), "{again}");
    assert!(decode.connect(&blob).is_ok(), "another blob");
    drop((prefill, decode));
}
