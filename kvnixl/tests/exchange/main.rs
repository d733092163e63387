//! Leases, pulls, pushes and peers between two exchanges on the loopback, under a clock that the test moves.

#[path = "../common/mod.rs"]
mod common;
mod lost;
mod names;
mod peers;
mod pulls;
mod pushes;
mod side;
mod told;

use std::sync::Arc;

use kvnixl::lease::{LeaseId, RequestId};
use kvnixl::{Agent, Error, Event, Exchange, ExchangeOptions, Limits, LoopbackNetwork};

use side::{Pair, TTL};
use told::{arrived, pull_failed, pulled, push, whole};

#[test]
fn an_agent_has_one_exchange_at_a_time() {
    let agent = Arc::new(Agent::loopback("decode", &LoopbackNetwork::new(), Limits::default()).unwrap());
    let exchange: Exchange<()> = Exchange::new(agent.clone(), ExchangeOptions::default()).unwrap();
    let second = Exchange::<()>::new(agent.clone(), ExchangeOptions::default()).unwrap_err();
    assert!(matches!(second, Error::ExchangeExists { .. }), "{second}");
    drop(exchange);
    Exchange::<()>::new(agent, ExchangeOptions::default()).unwrap();
}

#[test]
fn notifications_of_an_agent_are_its_exchanges_while_it_has_one() {
    let mut pair = Pair::new();
    let lease = pair.hold(0);
    pair.pull(lease);
    pair.until("the pull", |prefill, decode| {
        for side in [&prefill, &decode] {
            let error = side.agent().notifications().unwrap_err();
            assert!(matches!(error, Error::ExchangeExists { .. }), "{error}");
        }
        decode.take(pulled).is_some()
    });
    let agent = pair.prefill.exchange.agent().clone();
    drop(pair.prefill.exchange);
    assert!(agent.notifications().is_ok(), "they are the engine's again");
}

#[test]
fn an_agent_has_no_other_exchange_while_writes_of_its_last_may_land() {
    let mut pair = Pair::new();
    let now = pair.now;
    pair.hold(0);
    pair.reserve();
    let (id, ..) = pair.met();
    pair.network.stall(true);
    pair.prefill.exchange.write(&id, 0, &whole(), 0, now).unwrap();
    pair.prefill.has_posted();
    let Pair { network, prefill, .. } = pair;
    let agent = prefill.exchange.agent().clone();
    drop(prefill.exchange);
    let refused = Exchange::<()>::new(agent.clone(), ExchangeOptions::default()).unwrap_err();
    assert!(matches!(refused, Error::InUse { transfers: 1, .. }), "it could answer for none of them: {refused}");
    network.stall(false);
    common::eventually("an exchange", || Exchange::<()>::new(agent.clone(), ExchangeOptions::default()).is_ok());
}

#[test]
fn nothing_of_an_exchange_is_taken_for_what_the_agents_next_one_has() {
    let mut pair = Pair::new();
    let now = pair.now;
    let held = pair.hold(0);
    let pull = pair.pull(held);
    pair.until("the pull", |_, decode| decode.take(pulled).is_some());
    let held_again = pair.hold(0);
    let reserved = pair.reserve();
    pair.until("the push", |prefill, decode| {
        if let Some((id, ..)) = prefill.take(push) {
            prefill.exchange.write(&id, 0, &whole(), 0, now).unwrap();
        }
        decode.take(arrived).is_some()
    });

    for side in [&mut pair.prefill, &mut pair.decode] {
        let agent = side.exchange.agent().clone();
        let other = Agent::loopback("other", &pair.network, Limits::default()).unwrap();
        side.exchange = Exchange::new(Arc::new(other), ExchangeOptions::default()).unwrap();
        side.exchange = Exchange::new(agent, ExchangeOptions::default()).unwrap();
    }
    pair.prefill.connect(&pair.decode, now);
    pair.decode.connect(&pair.prefill, now);
    let source = pair.source();
    let held_now = pair.hold(1);
    assert!(![held, held_again].contains(&held_now), "a lease of before is good again");
    let part = pair.part(held, &[]);
    let pull_now = pair.decode.exchange.pull("destination", vec![part], now + TTL, now).unwrap();
    assert_ne!(pull, pull_now);
    let other = RequestId::new("another").unwrap();
    let reserved_now = pair.decode.exchange.reserve(other, "destination", vec![source], now + TTL, now).unwrap();
    assert_ne!(reserved, reserved_now);
    pair.poll();
    assert!(pair.decode.take(arrived).is_none(), "nothing was written for it");
}

#[test]
fn garbage_and_an_engines_own_notifications_are_told_apart() {
    let mut pair = Pair::new();
    let peer = pair.decode.exchange.peer(&pair.prefill.id).unwrap().clone();
    for message in [&b"KVNM\0\x02garbage"[..], b"KVNM", b"KVNM\0\x09", b"hello \xff"] {
        pair.decode.agent().notify(&peer, message).unwrap();
    }
    pair.poll();
    let messages = pair.prefill.exchange.stats().messages;
    assert_eq!((messages.malformed, messages.unsupported, messages.received), (2, 1, 0));
    assert!(matches!(&pair.prefill.told[..], [Event::Notification(n)] if n.message == b"hello \xff"));
}

#[test]
fn completions_for_unknown_requests_are_counted_and_free_nothing() {
    let mut pair = Pair::new();
    let now = pair.now;
    let held = pair.hold(0);
    pair.decode.exchange.pull("destination", vec![pair.part(LeaseId(99), &whole())], now + TTL, now).unwrap();
    pair.until("the failure", |_, decode| decode.take(pull_failed).is_some());
    assert_eq!(pair.prefill.exchange.stats().leases.unknown_completions, 1);
    assert!(pair.prefill.exchange.is_good(held, now));
}
