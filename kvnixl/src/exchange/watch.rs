//! The processes of peers: whether one has ended, and when nothing of it lands any more.
//!
//! A peer is *lost* when the way to it is broken, which says nothing of its process. It is *gone* when its process has
//! ended: it neither reads nor asks any more. That this is *proven*, and that what it had sent has landed, is a third
//! thing, and only that gives destination blocks back.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::Exchange;
use crate::lease::{PeerId, after};
use crate::peer::Peer;

/// Time between two looks at the processes of peers.
const LOOK: Duration = Duration::from_millis(50);

/// How long a process has been seen to be gone before nothing of it lands any more: what had reached this host when
/// it ended is delivered by a thread of the transport.
const LINGER: Duration = Duration::from_secs(1);

/// Peers whose process may end while something waits for it.
#[derive(Debug, Default)]
pub(super) struct Watched {
    peers: BTreeMap<PeerId, Process>,
    next_look: Option<Instant>,
}

#[derive(Debug)]
struct Process {
    peer: Peer,
    /// When it was first seen to be gone.
    gone_since: Option<Instant>,
}

impl Watched {
    pub(super) fn insert(&mut self, id: PeerId, peer: Peer) {
        self.peers.insert(id, Process { peer, gone_since: None });
    }

    /// When to look again; `None` while there is nobody to look at.
    pub(super) fn next_look(&self) -> Option<Instant> {
        self.next_look.filter(|_| !self.peers.is_empty())
    }

    /// Takes out those that have ended and had the time to land, and drops those that nothing waits for.
    fn look(&mut self, waits_for: impl Fn(&PeerId) -> bool, now: Instant) -> Vec<PeerId> {
        if self.next_look.is_some_and(|next| now < next) {
            return Vec::new();
        }
        self.next_look = Some(after(now, LOOK));
        let mut gone = Vec::new();
        self.peers.retain(|id, Process { peer, gone_since }| {
            if peer.is_gone() && now.saturating_duration_since(*gone_since.get_or_insert(now)) >= LINGER {
                gone.push(id.clone());
                return false;
            }
            peer.unsettled() > 0 || waits_for(id)
        });
        gone
    }
}

impl<B> Exchange<B> {
    /// Says that a peer's process has ended and that nothing of it can land any more, for example because its host's
    /// agent has seen it exit and longer has passed than its last bytes may have been on their way. Blocks that
    /// waited for it come back. The processes of this host and PID namespace are watched, and need no such word.
    ///
    /// # Safety
    ///
    /// As [`Peer::declare_gone`]: while the process lives, it may write into blocks that come back by this. Being
    /// replaced, or not reachable, is no proof that it has ended.
    pub unsafe fn peer_is_gone(&mut self, peer: &PeerId, now: Instant) {
        if let Some(watched) = self.watched.peers.get(peer) {
            // SAFETY: the caller's promise.
            unsafe { watched.peer.declare_gone() };
        }
        self.proven_gone(peer, now);
    }

    /// Looks whether processes have ended that something may wait for.
    pub(super) fn watch(&mut self, now: Instant) {
        let (connected, reservations) = (&self.link.connected, &self.consumer.reservations);
        let waits_for = |id: &PeerId| connected.contains_key(id) || reservations.has_pending(id);
        for id in self.watched.look(waits_for, now) {
            self.proven_gone(&id, now);
        }
    }

    /// A peer's process has ended, and nothing of it lands any more.
    pub(super) fn proven_gone(&mut self, peer: &PeerId, now: Instant) {
        self.asks_no_more(peer, now);
        self.link.gone(peer, now);
        self.link.peers.ended(peer);
        self.consumer.reservations.writer_gone(peer);
    }

    /// A peer's process has ended, or another has its name: it neither reads nor asks any more.
    pub(super) fn asks_no_more(&mut self, peer: &PeerId, now: Instant) {
        self.consumer.producer_gone(peer);
        self.producer.reader_gone(peer, now);
        self.withdrawals.no_answer_from(peer);
        self.withdrawals.no_answer_to(peer);
    }
}
