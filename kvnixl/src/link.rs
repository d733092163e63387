//! An exchange's way to its peers: messages, transfers, and what is known of whom.
//!
//! A message is sent in one of three ways, by what its loss would do. [`Link::tell`]: nothing; it is sent when its turn
//! comes again. [`Link::ask`]: somebody waits for the answer, and asks until it is there. [`Link::notice`]: the peer
//! waits for it; it is sent until the peer acknowledges its number. The last two share the [`Outbox`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kvplan::{Descriptor, Op};

use crate::agent::Agent;
use crate::error::{Error, Result};
use crate::lease::{Number, Numbers, Outbox, PeerBook, PeerId, PeerState, RequestId};
use crate::message::Message;
use crate::peer::Peer;
use crate::quarantine::Claim;
use crate::state::TransferState;
use crate::transfer::{Transfer, TransferOptions};

/// Counts of messages since the start. What is too long to be one is in
/// [`Stats::notifications_dropped`](crate::Stats::notifications_dropped).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessageStats {
    /// Handed to the transport.
    pub sent: u64,
    /// Refused by the transport, or for a peer that is not connected.
    pub not_sent: u64,
    /// Of those, sent again, since no answer had come.
    pub repeated: u64,
    /// That wait for an answer: an engine that wants to end polls until there are none, or for as long as it likes.
    pub unanswered: usize,
    /// Read.
    pub received: u64,
    /// Not readable: damaged, or garbage.
    pub malformed: u64,
    /// Of another version of this library, or of a kind that is not known.
    pub unsupported: u64,
    /// From senders that are not agents of this library.
    pub anonymous: u64,
}

/// What is known of a message that was to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The transport took it. No proof that it arrives.
    Yes,
    /// It never left.
    Never,
    /// The transport failed. No proof that it does not arrive.
    Failed,
}

/// A peer that is connected.
#[derive(Debug)]
pub(crate) struct Connected {
    pub(crate) peer: Peer,
    /// Number of the way to it, new each time that it is opened anew.
    way: u64,
    /// The way has failed, and has not been opened anew.
    pub(crate) broken: bool,
    /// Its process has ended, or has said that it does nothing more.
    pub(crate) done: bool,
}

/// What to move with a peer, for whom.
#[derive(Debug)]
pub(crate) struct Load<'a> {
    pub(crate) op: Op,
    pub(crate) request: &'a RequestId,
    pub(crate) descriptors: &'a [Descriptor],
    pub(crate) padding_bytes: u64,
    pub(crate) deadline: Instant,
}

/// A transfer that counts as in flight until it has settled.
#[derive(Debug)]
pub(crate) struct Moving {
    pub(crate) peer: PeerId,
    transfer: Transfer,
    /// The way that it takes.
    way: u64,
    finished: bool,
    settled: bool,
}

impl Moving {
    pub(crate) fn cancel(&self) {
        self.transfer.cancel();
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.settled
    }
}

#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) agent: Arc<Agent>,
    pub(crate) peers: PeerBook,
    pub(crate) connected: BTreeMap<PeerId, Connected>,
    /// Peers that could not be reached since last asked.
    pub(crate) newly_lost: Vec<PeerId>,
    pub(crate) stats: MessageStats,
    num_ways: u64,
    numbers: Numbers,
    outbox: Outbox,
    /// Messages that have arrived and are to be acknowledged.
    arrived: BTreeMap<PeerId, Vec<u64>>,
}

impl Link {
    pub(crate) fn new(agent: Arc<Agent>, peers: PeerBook) -> Self {
        Self {
            numbers: agent.numbers(),
            agent,
            peers,
            connected: BTreeMap::new(),
            newly_lost: Vec::new(),
            stats: MessageStats::default(),
            num_ways: 0,
            outbox: Outbox::default(),
            arrived: BTreeMap::new(),
        }
    }

    /// A peer is connected, or the way to it has been opened anew.
    pub(crate) fn opened(&mut self, id: &PeerId, peer: Peer, now: Instant) {
        self.num_ways += 1;
        self.connected.insert(id.clone(), Connected { peer, way: self.num_ways, broken: false, done: false });
        self.outbox.resume(id, now);
    }

    /// A peer was let go, or another process has its name: nothing is told to it any more.
    pub(crate) fn closed(&mut self, id: &PeerId) {
        self.connected.remove(id);
        self.outbox.forget(id);
    }

    pub(crate) fn message_stats(&self) -> MessageStats {
        MessageStats { unanswered: self.outbox.len(), ..self.stats }
    }

    /// The peer, if transfers with it may start.
    pub(crate) fn ready(&self, peer: &PeerId) -> Result<&Connected> {
        let state = self.peers.state(peer);
        match self.connected.get(peer) {
            Some(found) if state == Some(PeerState::Ready) => Ok(found),
            _ => Err(Error::PeerNotReady { peer: peer.clone(), state }),
        }
    }

    /// Whether a message may arrive: also with a peer that is draining.
    pub(crate) fn can_tell(&self, peer: &PeerId) -> bool {
        self.connected.contains_key(peer) && self.peers.state(peer) != Some(PeerState::Lost)
    }

    /// Sends a message once.
    pub(crate) fn tell(&mut self, to: &PeerId, message: &Message, now: Instant) -> Sent {
        let encoded = message.encode(0);
        self.send(to, message.kind(), encoded.as_deref(), now)
    }

    /// Asks a peer something, again and again until [`answered`](Self::answered) is told the number.
    pub(crate) fn ask(&mut self, to: &PeerId, message: &Message, now: Instant) -> (Number, Sent) {
        let number = self.numbers.next();
        (number, self.send_until(to, message, number, message.encode(0), now))
    }

    /// Tells a peer something, again and again until it has acknowledged it, or [`answered`](Self::answered) is told
    /// the number.
    pub(crate) fn notice(&mut self, to: &PeerId, message: &Message, now: Instant) -> (Number, Sent) {
        let number = self.numbers.next();
        (number, self.send_until(to, message, number, message.encode(number), now))
    }

    /// What was asked or told need not be sent again.
    pub(crate) fn answered(&mut self, peer: &PeerId, number: Number) {
        self.outbox.answered(peer, number);
    }

    /// A peer has acknowledged messages.
    pub(crate) fn acknowledged(&mut self, by: &PeerId, numbers: &[u64]) {
        for &number in numbers {
            self.outbox.answered(by, number);
        }
    }

    /// A message has arrived that its sender wants acknowledged.
    pub(crate) fn owes(&mut self, to: &PeerId, number: u64) {
        if number != 0 {
            self.arrived.entry(to.clone()).or_default().push(number);
        }
    }

    /// Acknowledges what has arrived. Who cannot be told, for now, sends it again.
    pub(crate) fn acknowledge(&mut self, now: Instant) {
        for (peer, numbers) in std::mem::take(&mut self.arrived) {
            for message in Message::acks(&numbers) {
                if self.can_tell(&peer) {
                    self.tell(&peer, &message, now);
                }
            }
        }
    }

    /// Sends again what has not been answered.
    pub(crate) fn repeat(&mut self, now: Instant) {
        for (peer, number, bytes) in self.outbox.take_due(now) {
            if !self.connected.contains_key(&peer) {
                self.outbox.answered(&peer, number);
            } else if self.can_tell(&peer) {
                self.stats.repeated += 1;
                self.send(&peer, "repeated", Ok(bytes.as_slice()), now);
            }
        }
    }

    /// When [`repeat`](Self::repeat) has something to do.
    pub(crate) fn next_repeat(&self) -> Option<Instant> {
        self.outbox.next()
    }

    fn send_until(
        &mut self,
        to: &PeerId,
        message: &Message,
        number: Number,
        encoded: Result<Vec<u8>>,
        now: Instant,
    ) -> Sent {
        let (Ok(bytes), Some(Connected { done: false, .. })) = (&encoded, self.connected.get(to)) else {
            // Nobody is there who could answer.
            self.stats.not_sent += 1;
            return Sent::Never;
        };
        if !self.outbox.put(to, number, bytes.clone(), now) {
            self.stats.not_sent += 1;
            tracing::warn!(peer = %to, kind = message.kind(), "message not sent: too many wait for this peer's answer");
            return Sent::Never;
        }
        // Behind a broken way it waits until that has been opened anew.
        if !self.can_tell(to) {
            self.outbox.rest(to);
            return Sent::Failed;
        }
        self.send(to, message.kind(), encoded.as_deref(), now)
    }

    fn send(&mut self, to: &PeerId, kind: &'static str, encoded: Result<&[u8], &Error>, now: Instant) -> Sent {
        let sent = match (self.connected.get(to), encoded) {
            (Some(to), Ok(bytes)) => self.agent.notify(&to.peer, bytes),
            (None, _) => Err(Error::PeerGone { peer: to.to_string() }),
            (_, Err(error)) => {
                self.stats.not_sent += 1;
                tracing::warn!(peer = %to, kind, %error, "message cannot be encoded");
                return Sent::Never;
            }
        };
        match sent {
            Ok(()) => {
                self.stats.sent += 1;
                self.peers.used(to, now);
                Sent::Yes
            }
            Err(error) => {
                self.stats.not_sent += 1;
                tracing::debug!(peer = %to, kind, %error, "message not sent");
                if matches!(error, Error::PeerGone { .. }) {
                    return Sent::Never;
                }
                self.lost(to, now);
                Sent::Failed
            }
        }
    }

    /// Something with a peer failed: the way to it is broken.
    pub(crate) fn lost(&mut self, peer: &PeerId, now: Instant) {
        if let Some(connected) = self.connected.get_mut(peer) {
            connected.broken = true;
        }
        self.outbox.rest(peer);
        if self.peers.lost(peer, now) {
            tracing::warn!(%peer, "peer lost");
            self.newly_lost.push(peer.clone());
        }
    }

    /// A peer's process has ended, or has said that it does nothing more.
    pub(crate) fn gone(&mut self, peer: &PeerId, now: Instant) {
        if let Some(connected) = self.connected.get_mut(peer) {
            connected.done = true;
        }
        self.lost(peer, now);
        self.outbox.forget(peer);
    }

    /// Starts a transfer in room that was claimed for it.
    pub(crate) fn start(&mut self, to: &PeerId, load: &Load<'_>, room: &mut Claim, now: Instant) -> Result<Moving> {
        let Load { op, request, descriptors, padding_bytes, deadline } = *load;
        let Connected { peer, way, .. } = self.ready(to)?;
        let way = *way;
        let left = deadline.saturating_duration_since(now).max(Duration::from_millis(1));
        let options = TransferOptions::default().deadline(left).request(request.as_str()).padding_bytes(padding_bytes);
        let transfer = self.agent.start_in(Some(room), peer, op, descriptors, options)?;
        self.peers.started(to, now);
        Ok(Moving { peer: to.clone(), transfer, way, finished: false, settled: false })
    }

    /// Where a transfer stands. The first look at its failure tells whether the way to the peer is broken, the first
    /// look after it has settled counts it out.
    pub(crate) fn look(&mut self, moving: &mut Moving, now: Instant) -> TransferState {
        let state = moving.transfer.state();
        if state.is_finished() && !std::mem::replace(&mut moving.finished, true) {
            let broken = matches!(&state, TransferState::Failed { cause, .. } if matches!(**cause, Error::Nixl { .. } | Error::WayFailed { .. }));
            // What fails since its way was given up says nothing of the present one.
            if broken && self.connected.get(&moving.peer).is_some_and(|connected| connected.way == moving.way) {
                self.lost(&moving.peer, now);
            }
        }
        if state.is_settled() && !std::mem::replace(&mut moving.settled, true) {
            self.peers.settled(&moving.peer, now);
        }
        state
    }
}
