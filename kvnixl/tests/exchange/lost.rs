//! Every kind of message is lost once, at whichever end sends it: nobody hears less for it, and nobody waits for a
//! deadline.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kvnixl::lease::{ArrivalFailed, EndReason, RequestId, Wanted};
use kvnixl::{Event, NotWritten, PushSource, Verdict};
use kvplan::BlockList;
use kvspec::{BlockId, GroupId};

use crate::side::{Pair, Side};
use crate::told::{arrival_failed, arrived, freed, pull_failed, pulled, push, request, returned, whole, withdrawn};

/// How far the clock may move until everything has been said again. Deadlines are far beyond it.
const SAID_AGAIN: Duration = Duration::from_secs(6);

/// Which messages of which kind and sender have been lost.
type Lost = Arc<Mutex<Vec<String>>>;

impl Pair {
    /// The first message of a kind from one side is lost; the rest arrives.
    fn lose(&self, sender: &'static str, kind: &'static str) -> Lost {
        let lost = Lost::default();
        let seen = lost.clone();
        self.network.lose_notifications_if(move |from, message| {
            // The kind is a short string behind magic, version and number.
            let length = usize::from(message[14] & 0x1f);
            let mut seen = seen.lock().unwrap();
            let is_it = seen.is_empty() && from.starts_with(sender) && &message[15..15 + length] == kind.as_bytes();
            if is_it {
                seen.push(format!("{kind} of {from}"));
            }
            is_it
        });
        lost
    }

    /// Polls both, and moves the clock a little, until something holds.
    fn soon(&mut self, what: &str, mut holds: impl FnMut(&mut Side, &mut Side) -> bool) {
        let start = self.now;
        loop {
            self.poll();
            if holds(&mut self.prefill, &mut self.decode) {
                return;
            }
            assert!(self.now - start < SAID_AGAIN, "{what}: {:?} {:?}", self.prefill.told, self.decode.told);
            self.now += Duration::from_millis(50);
            std::thread::sleep(Duration::from_micros(500));
        }
    }

    /// Nothing is waited for any more.
    fn ends(&mut self, lost: &Lost) {
        self.soon("an end of it", |prefill, decode| {
            [prefill, decode].iter().all(|side| side.exchange.stats().messages.unanswered == 0)
        });
        assert_eq!(lost.lock().unwrap().len(), 1, "nothing was lost");
        for side in [&self.prefill, &self.decode] {
            let stats = side.exchange.stats();
            assert_eq!((stats.messages.malformed, stats.messages.unsupported), (0, 0));
        }
    }
}

#[test]
fn a_pull_is_confirmed_though_each_of_its_messages_is_lost_once() {
    for (sender, kind) in [("decode", "completed"), ("prefill", "confirmed"), ("decode", "heartbeat")] {
        let mut pair = Pair::new();
        let lease = pair.hold(0);
        let lost = pair.lose(sender, kind);
        pair.decode.exchange.keep(pair.prefill.id.clone(), lease);
        pair.now += Duration::from_secs(5);
        pair.poll();
        pair.pull(lease);
        pair.soon("the pull", |_, decode| decode.take(pulled) == Some("destination"));
        pair.soon("the blocks", |prefill, _| prefill.take(freed) == Some(EndReason::AllRead));
        pair.ends(&lost);
    }
}

#[test]
fn a_reader_hears_that_its_lease_has_ended_though_that_is_lost_once() {
    let mut pair = Pair::new();
    let lease = pair.hold(0);
    pair.network.stall(true);
    pair.pull(lease);
    pair.prefill.exchange.abort(lease, pair.now);
    let lost = pair.lose("prefill", "ended");
    for _ in 0..2 {
        pair.now += Duration::from_secs(5);
        pair.poll();
    }
    let why = pair.decode.take(pull_failed);
    assert!(matches!(why, Some(kvnixl::PullFailed::LeaseEnded { verdict: Verdict::Ended, .. })), "{why:?}");
    pair.network.stall(false);
    pair.soon("the blocks", |_, decode| decode.take(returned).is_some());
    pair.ends(&lost);
}

#[test]
fn a_push_arrives_though_each_of_its_messages_is_lost_once() {
    let messages = [("decode", "register"), ("prefill", "written"), ("prefill", "ack"), ("decode", "ack")];
    for (sender, kind) in messages {
        let mut pair = Pair::new();
        let lost = pair.lose(sender, kind);
        pair.hold(0);
        pair.reserve();
        pair.soon("the push", |prefill, decode| {
            if let Some((id, ..)) = prefill.take(push) {
                prefill.exchange.write(&id, 0, &whole(), 0, std::time::Instant::now()).unwrap();
            }
            decode.take(arrived) == Some("destination")
        });
        pair.soon("the blocks", |prefill, _| prefill.take(freed) == Some(EndReason::AllRead));
        pair.ends(&lost);
        let stats = (pair.prefill.exchange.stats(), pair.decode.exchange.stats());
        assert_eq!((stats.0.push.written, stats.1.reservations.arrived), (1, 1), "{kind} of {sender}");
    }
}

#[test]
fn a_long_registration_arrives_whole_though_any_of_its_messages_is_lost() {
    for chunk in 0..4 {
        let mut pair = Pair::new();
        let (now, mut seen) = (pair.now, 0);
        pair.network.lose_notifications_if(move |_, message| {
            let is_register = message[15..].starts_with(b"register");
            seen += usize::from(is_register);
            is_register && seen == chunk + 1
        });
        // More than fit into three messages; the registered spec has fewer blocks, and any number of holes.
        let blocks: Vec<BlockId> = [BlockId(1)].into_iter().chain((1..4000).map(|_| BlockId::HOLE)).collect();
        let lists = vec![BlockList { group: GroupId(0), first: None, blocks }];
        let sources = vec![PushSource { peer: pair.prefill.id.clone(), lists: lists.clone() }];
        let hour = now + Duration::from_secs(3600);
        pair.decode.exchange.reserve(request(), "destination", sources, hour, now).unwrap();
        pair.hold(0);
        let mut met = None;
        pair.soon("the meeting", |prefill, _| {
            met = prefill.take(push);
            met.is_some()
        });
        assert!(met.unwrap().2 == lists, "message {chunk}");
        let stats = pair.prefill.exchange.stats();
        assert_eq!((stats.refused_chunks, stats.push.registered), (0, 1), "message {chunk}");
    }
}

#[test]
fn a_push_that_fails_or_is_refused_is_heard_of_though_each_of_its_messages_is_lost_once() {
    for (sender, kind) in [("prefill", "failed"), ("prefill", "released"), ("decode", "cancel"), ("decode", "ack")] {
        let mut pair = Pair::new();
        let lease = pair.hold(0);
        pair.reserve();
        let (id, ..) = pair.met();
        let lost = pair.lose(sender, kind);
        pair.network.stall(true);
        pair.prefill.exchange.write(&id, 0, &whole(), 0, pair.now).unwrap();
        pair.prefill.has_posted();
        pair.prefill.exchange.abort(lease, pair.now);
        pair.soon("the failure", |_, decode| {
            let why = decode.take(arrival_failed);
            assert!(
                matches!(why, None | Some(ArrivalFailed::NotWritten { why: NotWritten::LeaseEnded, .. })),
                "{why:?}"
            );
            why.is_some()
        });
        pair.network.stall(false);
        pair.soon("the blocks", |_, decode| decode.take(returned) == Some("destination"));
        pair.ends(&lost);

        let other = RequestId::new("refused").unwrap();
        pair.prefill.exchange.hold(other.clone(), "source", Some(1), 0, pair.now).unwrap();
        let lost = pair.lose(sender, if kind == "failed" { "released" } else { kind });
        let (sources, hour) = (vec![pair.source()], pair.now + Duration::from_secs(3600));
        pair.decode.exchange.reserve(other, "destination", sources, hour, pair.now).unwrap();
        let (id, ..) = pair.met();
        if kind == "cancel" {
            pair.decode.exchange.cancel_reservation(kvnixl::lease::ReservationId(id.reservation.0));
        } else {
            pair.prefill.exchange.refuse(&id, "no", pair.now);
        }
        pair.soon("the blocks", |_, decode| decode.take(returned) == Some("destination"));
        pair.soon("the source", |prefill, _| prefill.take(freed) == Some(EndReason::GivenUp));
        pair.ends(&lost);
    }
}

#[test]
fn a_producer_hears_that_a_reader_gives_up_though_that_is_lost_once() {
    let mut pair = Pair::new();
    let lease = pair.hold(0);
    let lost = pair.lose("decode", "let_go");
    pair.decode.exchange.let_go(pair.prefill.id.clone(), lease);
    pair.soon("the blocks", |prefill, _| prefill.take(freed) == Some(EndReason::GivenUp));
    pair.ends(&lost);
}

#[test]
fn memory_is_withdrawn_and_registered_anew_though_each_word_of_it_is_lost_once() {
    for prefill_withdraws in [true, false] {
        for (is_of_who_withdraws, kind) in
            [(true, "withdraw"), (false, "drained"), (true, "registered"), (false, "ack")]
        {
            let mut pair = Pair::new();
            let (ours, theirs) = if prefill_withdraws { ("prefill", "decode") } else { ("decode", "prefill") };
            let lost = pair.lose(if is_of_who_withdraws { ours } else { theirs }, kind);
            let now = pair.now;
            who(&mut pair, prefill_withdraws).exchange.withdraw(now);
            pair.soon("the withdrawal", |prefill, decode| {
                (if prefill_withdraws { prefill } else { decode }).take(withdrawn).is_some()
            });
            who(&mut pair, prefill_withdraws).register_anew();
            let now = pair.now;
            who(&mut pair, prefill_withdraws).exchange.registered(now);
            // Once that it goes, and once that its blob can be fetched.
            let mut stale = 0;
            pair.soon("the news", |prefill, decode| {
                let other = if prefill_withdraws { decode } else { prefill };
                let is_stale = |event: &Event<_>| matches!(event, Event::PeerStale(_)).then_some(());
                stale += usize::from(other.take(is_stale).is_some());
                stale == 2
            });
            let now = pair.now;
            assert_eq!(who(&mut pair, !prefill_withdraws).exchange.want(ours, now), Wanted::Fetch);
            pair.ends(&lost);
        }
    }
}

fn who(pair: &mut Pair, is_prefill: bool) -> &mut Side {
    if is_prefill { &mut pair.prefill } else { &mut pair.decode }
}

#[test]
fn a_goodbye_is_heard_though_it_or_its_acknowledgement_is_lost_once() {
    for is_prefill in [true, false] {
        for (is_of_who_ends, kind) in [(true, "goodbye"), (false, "ack")] {
            let mut pair = Pair::new();
            if is_prefill {
                pair.reserve();
                pair.poll();
            } else {
                pair.hold(0);
                pair.reserve();
                pair.met();
                pair.poll();
            }
            let (ours, theirs) = if is_prefill { ("prefill", "decode") } else { ("decode", "prefill") };
            let lost = pair.lose(if is_of_who_ends { ours } else { theirs }, kind);
            let now = pair.now;
            who(&mut pair, is_prefill).exchange.goodbye(now).unwrap();
            pair.soon("the return", |prefill, decode| match is_prefill {
                true => decode.take(returned) == Some("destination"),
                false => prefill.take(freed) == Some(EndReason::ReadersLost),
            });
            let start = pair.now;
            while who(&mut pair, is_prefill).exchange.stats().messages.unanswered > 0 {
                assert!(pair.now - start < SAID_AGAIN);
                pair.now += Duration::from_millis(50);
                pair.poll();
            }
            assert_eq!(lost.lock().unwrap().len(), 1);
        }
    }
}
