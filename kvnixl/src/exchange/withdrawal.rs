//! Memory that is about to go: ours, which peers are to let go of, and theirs, which we are.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::Exchange;
use crate::event::Event;
use crate::lease::{PeerId, after};
use crate::link::Sent;
use crate::message::Message;

/// How often peers that do not answer a withdrawal are told again.
const WITHDRAW_AGAIN: Duration = Duration::from_millis(500);

/// Withdrawals that are under way.
#[derive(Debug, Default)]
pub(super) struct Withdrawals {
    ours: Option<OurMemory>,
    /// Peers that want their memory of a generation back.
    theirs: BTreeMap<PeerId, u64>,
}

#[derive(Debug)]
struct OurMemory {
    generation: u64,
    /// Who has not answered.
    waiting: Vec<PeerId>,
    /// When they are told again.
    next: Instant,
}

impl Withdrawals {
    /// A peer wants its memory back.
    pub(super) fn asked(&mut self, peer: PeerId, generation: u64) {
        self.theirs.insert(peer, generation);
    }

    /// A peer touches our memory of this generation no more.
    pub(super) fn answered(&mut self, peer: &PeerId, generation: u64) {
        if self.ours.as_ref().is_some_and(|ours| ours.generation <= generation) {
            self.no_answer_from(peer);
        }
    }

    /// No answer of this peer is waited for.
    pub(super) fn no_answer_from(&mut self, peer: &PeerId) {
        if let Some(ours) = &mut self.ours {
            ours.waiting.retain(|waiting| waiting != peer);
        }
    }

    /// This peer waits for no answer any more; the generation for which it did.
    pub(super) fn no_answer_to(&mut self, peer: &PeerId) -> Option<u64> {
        self.theirs.remove(peer)
    }

    /// Whether this peer's answer is waited for.
    pub(super) fn waits_for(&self, peer: &PeerId) -> bool {
        self.ours.as_ref().is_some_and(|ours| ours.waiting.contains(peer))
    }

    /// When peers are told again.
    pub(super) fn next(&self) -> Option<Instant> {
        self.ours.as_ref().map(|ours| ours.next)
    }
}

impl<B> Exchange<B> {
    /// Tells connected peers that this agent's memory is about to go, and waits until nothing of them touches it:
    /// [`Event::Withdrawn`]. Peers that got the blob and were never connected are not known and not waited for, nor are
    /// those whose process is known to have ended. One that is connected here and has let go of this agent hears nothing
    /// and cannot answer: [`withdrawal_waits_for`](Self::withdrawal_waits_for) names it until it connects again or is
    /// [declared gone](Self::peer_is_gone).
    pub fn withdraw(&mut self, now: Instant) {
        let may_read = self.link.connected.iter().filter(|(_, connected)| !connected.done);
        let waiting = may_read.map(|(id, _)| id.clone()).collect();
        self.withdrawals.ours = Some(OurMemory { generation: self.link.agent.generation(), waiting, next: now });
    }

    /// Peers that have not answered a withdrawal.
    #[must_use]
    pub fn withdrawal_waits_for(&self) -> &[PeerId] {
        self.withdrawals.ours.as_ref().map_or(&[], |ours| &ours.waiting)
    }

    /// Tells connected peers that this agent has registered memory anew, so that they fetch its blob.
    pub fn registered(&mut self, now: Instant) {
        self.withdrawals.ours = None;
        let generation = self.link.agent.generation();
        self.tell_all(&Message::MemoryRegistered { generation }, now);
    }

    /// Tells peers whose memory nothing of ours touches any more.
    pub(super) fn answer_withdrawals(&mut self, now: Instant) {
        let idle = |id: &PeerId| self.peer(id).is_none_or(|peer| peer.unsettled() == 0);
        let theirs = self.withdrawals.theirs.iter().filter(|(id, _)| idle(id));
        let answers: Vec<(PeerId, u64)> = theirs.map(|(id, generation)| (id.clone(), *generation)).collect();
        for (id, generation) in answers {
            if self.link.tell(&id, &Message::Drained { generation }, now) != Sent::Failed {
                self.withdrawals.theirs.remove(&id);
            }
        }
    }

    pub(super) fn follow_withdrawal(&mut self, now: Instant) {
        let Some(ours) = &mut self.withdrawals.ours else { return };
        if ours.waiting.is_empty() {
            self.withdrawals.ours = None;
            self.events.push(Event::Withdrawn);
        } else if now >= ours.next {
            ours.next = after(now, WITHDRAW_AGAIN);
            let (generation, waiting) = (ours.generation, ours.waiting.clone());
            for peer in waiting {
                self.link.tell(&peer, &Message::Withdraw { generation }, now);
            }
        }
    }
}
