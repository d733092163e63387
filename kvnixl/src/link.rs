//! An exchange's way to its peers: messages, transfers, and what is known of whom.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kvplan::{Descriptor, Op};

use crate::agent::Agent;
use crate::error::{Error, Result};
use crate::lease::{PeerBook, PeerId, PeerState};
use crate::message::Message;
use crate::peer::Peer;
use crate::transfer::{Transfer, TransferOptions, TransferState};

/// Counts of messages since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessageStats {
    /// Handed to the transport.
    pub sent: u64,
    /// Refused by the transport, or for a peer that is not connected.
    pub not_sent: u64,
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

/// Bounds on what transfers of an exchange are under way at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) bytes: u64,
    pub(crate) descriptors: usize,
}

/// A transfer that counts as in flight until it has settled.
#[derive(Debug)]
pub(crate) struct Moving {
    pub(crate) peer: PeerId,
    transfer: Transfer,
    bytes: u64,
    descriptors: usize,
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
    pub(crate) connected: BTreeMap<PeerId, Peer>,
    /// Peers that could not be reached since last asked.
    pub(crate) lost: Vec<PeerId>,
    pub(crate) stats: MessageStats,
    bounds: Bounds,
    in_flight: Bounds,
}

impl Link {
    pub(crate) fn new(agent: Arc<Agent>, peers: PeerBook, bounds: Bounds) -> Self {
        Self {
            agent,
            peers,
            connected: BTreeMap::new(),
            lost: Vec::new(),
            stats: MessageStats::default(),
            bounds,
            in_flight: Bounds { bytes: 0, descriptors: 0 },
        }
    }

    pub(crate) fn in_flight(&self) -> Bounds {
        self.in_flight
    }

    /// The peer, if transfers with it may start.
    pub(crate) fn ready(&self, peer: &PeerId) -> Result<&Peer> {
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

    /// Sends a message.
    pub(crate) fn tell(&mut self, to: &PeerId, message: &Message, now: Instant) -> Sent {
        let sent = match (self.connected.get(to), message.encode()) {
            (Some(peer), Ok(bytes)) => self.agent.notify(peer, &bytes),
            (None, _) => Err(Error::PeerGone { peer: to.to_string() }),
            (_, Err(error)) => Err(error),
        };
        match sent {
            Ok(()) => {
                self.stats.sent += 1;
                self.peers.used(to, now);
                Sent::Yes
            }
            Err(error) => {
                self.stats.not_sent += 1;
                tracing::debug!(peer = %to, kind = message.kind(), %error, "message not sent");
                if matches!(error, Error::PeerGone { .. } | Error::NotificationTooLong { .. }) {
                    return Sent::Never;
                }
                self.lose(to, now);
                Sent::Failed
            }
        }
    }

    /// Something with a peer failed.
    pub(crate) fn lose(&mut self, peer: &PeerId, now: Instant) {
        if self.peers.lost(peer, now) {
            tracing::warn!(%peer, "peer lost");
            self.lost.push(peer.clone());
        }
    }

    /// Whether so much more may be in flight. A transfer that is bigger than the bounds goes alone.
    pub(crate) fn admit(&self, bytes: u64, descriptors: usize) -> Result<()> {
        let (now, most) = (self.in_flight, self.bounds);
        let fits = now.bytes.saturating_add(bytes) <= most.bytes
            && now.descriptors.saturating_add(descriptors) <= most.descriptors;
        if fits || (now.bytes == 0 && now.descriptors == 0) {
            return Ok(());
        }
        Err(Error::WouldBlock { bytes: now.bytes, descriptors: now.descriptors })
    }

    pub(crate) fn start(
        &mut self,
        to: &PeerId,
        op: Op,
        descriptors: &[Descriptor],
        deadline: Instant,
        now: Instant,
    ) -> Result<Moving> {
        let peer = self.ready(to)?;
        let left = deadline.saturating_duration_since(now).max(Duration::from_millis(1));
        let transfer = self.agent.start(peer, op, descriptors, TransferOptions::default().deadline(left))?;
        self.peers.started(to, now);
        let bytes = sum(descriptors);
        self.in_flight.bytes = self.in_flight.bytes.saturating_add(bytes);
        self.in_flight.descriptors = self.in_flight.descriptors.saturating_add(descriptors.len());
        Ok(Moving { peer: to.clone(), transfer, bytes, descriptors: descriptors.len(), settled: false })
    }

    /// Where a transfer stands; counts it out when it has settled.
    pub(crate) fn look(&mut self, moving: &mut Moving, now: Instant) -> TransferState {
        let state = moving.transfer.state();
        if state.is_settled() && !moving.settled {
            moving.settled = true;
            self.in_flight.bytes = self.in_flight.bytes.saturating_sub(moving.bytes);
            self.in_flight.descriptors = self.in_flight.descriptors.saturating_sub(moving.descriptors);
            self.peers.settled(&moving.peer, now);
        }
        state
    }
}

pub(crate) fn sum(descriptors: &[Descriptor]) -> u64 {
    descriptors.iter().fold(0, |sum, descriptor| sum.saturating_add(descriptor.len))
}
