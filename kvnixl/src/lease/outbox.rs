//! Messages that are sent again until they are answered.
//!
//! A notification has no confirmation, so whatever leaves the other side waiting is kept here until its answer comes: a
//! question until what it asks for is said, everything else until it is acknowledged. One book for all of them: what
//! takes part is a number and some bytes, and who gets them twice has to make nothing of it. A way that is broken costs
//! nothing: its messages rest until it has been opened anew, and go with the process that they are for.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::book::after;
use super::identity::PeerId;
use crate::backoff::Backoff;

/// Most messages that wait for one peer's answer, and their bytes: a peer that answers nothing must not cost more.
const MAX_WAITING: usize = 1 << 16;
const MAX_WAITING_BYTES: usize = 64 << 20;

/// How long after it was sent a message is sent again for the first time.
const FIRST_WAIT: Duration = Duration::from_millis(50);

/// Number of a message that waits for an answer; the exchange never gives it twice.
pub(crate) type Number = u64;

#[derive(Debug)]
struct Waiting {
    bytes: Vec<u8>,
    again: Backoff,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: BTreeMap<Number, Waiting>,
    num_bytes: usize,
    /// The way to the peer is broken.
    resting: bool,
}

/// Messages that have been sent and not answered, by peer.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    queues: BTreeMap<PeerId, Queue>,
    due: BTreeSet<(Instant, PeerId, Number)>,
}

impl Outbox {
    /// Keeps a message that is sent now. `false` when too many wait for this peer: it is not kept.
    pub(crate) fn put(&mut self, to: &PeerId, number: Number, bytes: Vec<u8>, now: Instant) -> bool {
        let queue = self.queues.entry(to.clone()).or_default();
        let num_bytes = queue.num_bytes.saturating_add(bytes.len());
        if queue.waiting.len() >= MAX_WAITING || num_bytes > MAX_WAITING_BYTES {
            return false;
        }
        queue.num_bytes = num_bytes;
        let mut again = Backoff::of_messages(now);
        again.restart(after(now, FIRST_WAIT));
        if !queue.resting {
            self.due.insert((again.next(), to.clone(), number));
        }
        queue.waiting.insert(number, Waiting { bytes, again });
        true
    }

    /// A message has been answered, or its answer is of no interest any more. Whether it was waiting.
    pub(crate) fn answered(&mut self, peer: &PeerId, number: Number) -> bool {
        let Some(queue) = self.queues.get_mut(peer) else { return false };
        let Some(waiting) = queue.waiting.remove(&number) else { return false };
        queue.num_bytes = queue.num_bytes.saturating_sub(waiting.bytes.len());
        self.due.remove(&(waiting.again.next(), peer.clone(), number));
        if queue.waiting.is_empty() && !queue.resting {
            self.queues.remove(peer);
        }
        true
    }

    /// What is to be sent again now, each for one peer in the order in which it was sent first.
    pub(crate) fn take_due(&mut self, now: Instant) -> Vec<(PeerId, Number, Vec<u8>)> {
        let mut due = Vec::new();
        while let Some((at, peer, number)) = self.due.pop_first() {
            if at > now {
                self.due.insert((at, peer, number));
                break;
            }
            if let Some(waiting) = self.queues.get_mut(&peer).and_then(|queue| queue.waiting.get_mut(&number)) {
                waiting.again.asked(now);
                due.push((peer, number, waiting.bytes.clone()));
            }
        }
        due.sort_unstable_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
        for (peer, number, _) in &due {
            if let Some(waiting) = self.queues.get(peer).and_then(|queue| queue.waiting.get(number)) {
                self.due.insert((waiting.again.next(), peer.clone(), *number));
            }
        }
        due
    }

    /// The way to a peer is broken: nothing is sent again until [`resume`](Self::resume).
    pub(crate) fn rest(&mut self, peer: &PeerId) {
        let Some(queue) = self.queues.get_mut(peer) else { return };
        queue.resting = true;
        for (number, waiting) in &queue.waiting {
            self.due.remove(&(waiting.again.next(), peer.clone(), *number));
        }
    }

    /// The way to a peer has been opened anew: everything is sent again at once.
    pub(crate) fn resume(&mut self, peer: &PeerId, now: Instant) {
        let Some(queue) = self.queues.get_mut(peer) else { return };
        queue.resting = false;
        for (number, waiting) in &mut queue.waiting {
            self.due.remove(&(waiting.again.next(), peer.clone(), *number));
            waiting.again.restart(now);
            self.due.insert((now, peer.clone(), *number));
        }
    }

    /// Nobody is there to be told any more.
    pub(crate) fn forget(&mut self, peer: &PeerId) {
        self.rest(peer);
        self.queues.remove(peer);
    }

    /// When [`take_due`](Self::take_due) has something.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.due.first().map(|(at, ..)| *at)
    }

    /// Messages that wait for an answer.
    pub(crate) fn len(&self) -> usize {
        self.queues.values().map(|queue| queue.waiting.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(name: &str) -> PeerId {
        PeerId::new(name, 1)
    }

    fn due(outbox: &mut Outbox, now: Instant) -> Vec<Number> {
        outbox.take_due(now).into_iter().map(|(_, number, _)| number).collect()
    }

    #[test]
    fn a_message_is_sent_again_ever_more_rarely_until_it_is_answered() {
        let start = Instant::now();
        let mut outbox = Outbox::default();
        assert!(outbox.put(&peer("a"), 1, vec![7], start));
        let mut times = Vec::new();
        for ms in 0..5000 {
            let now = start + Duration::from_millis(ms);
            if outbox.next().is_some_and(|next| next <= now) {
                assert_eq!(outbox.take_due(now), [(peer("a"), 1, vec![7])]);
                times.push(ms);
            }
        }
        assert_eq!(times, [50, 100, 200, 400, 800, 1600, 2600, 3600, 4600]);
        assert!(!outbox.answered(&peer("b"), 1) && !outbox.answered(&peer("a"), 2), "somebody else's");
        assert!(outbox.answered(&peer("a"), 1) && !outbox.answered(&peer("a"), 1));
        assert_eq!((outbox.len(), outbox.next()), (0, None));
        assert!(outbox.queues.is_empty() && outbox.due.is_empty());
    }

    #[test]
    fn a_broken_way_costs_nothing_and_what_waited_goes_at_once_when_it_is_open() {
        let now = Instant::now();
        let later = now + Duration::from_secs(60);
        let mut outbox = Outbox::default();
        outbox.put(&peer("a"), 1, vec![1], now);
        outbox.put(&peer("b"), 2, vec![2], now);
        outbox.rest(&peer("a"));
        outbox.put(&peer("a"), 3, vec![3], now);
        assert_eq!(due(&mut outbox, later), [2]);
        outbox.resume(&peer("a"), later);
        assert_eq!(outbox.next(), Some(later));
        assert_eq!(due(&mut outbox, later), [1, 3], "in their order");
        outbox.forget(&peer("a"));
        outbox.forget(&peer("b"));
        assert_eq!((outbox.len(), outbox.next()), (0, None));
    }

    #[test]
    fn what_waits_for_one_peer_is_bounded_in_number_and_in_bytes() {
        let now = Instant::now();
        let mut outbox = Outbox::default();
        let most = u64::try_from(MAX_WAITING).unwrap();
        assert!((0..most).all(|number| outbox.put(&peer("a"), number, Vec::new(), now)));
        assert!(!outbox.put(&peer("a"), most, Vec::new(), now));
        assert!(outbox.put(&peer("b"), most, vec![0; MAX_WAITING_BYTES], now), "another one's");
        assert!(!outbox.put(&peer("b"), most + 1, vec![0], now));
        assert!(outbox.answered(&peer("b"), most) && outbox.put(&peer("b"), most + 1, vec![0], now));
    }
}
