//! Memory that is about to go: ours, which peers are to let go of, and theirs, which we are.

use std::collections::BTreeMap;
use std::time::Instant;

use super::Exchange;
use crate::event::Event;
use crate::lease::{Number, PeerId};
use crate::link::Sent;
use crate::message::Message;

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
    /// Who has been asked, by the number of the question.
    asked: BTreeMap<PeerId, Number>,
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
        self.end_withdrawal();
        let generation = self.link.agent.generation();
        self.withdrawals.ours = Some(OurMemory { generation, waiting, asked: BTreeMap::new() });
        self.follow_withdrawal(now);
    }

    /// Nobody is asked any more.
    fn end_withdrawal(&mut self) {
        for (peer, number) in self.withdrawals.ours.take().map(|ours| ours.asked).unwrap_or_default() {
            self.link.answered(&peer, number);
        }
    }

    /// Peers that have not answered a withdrawal.
    #[must_use]
    pub fn withdrawal_waits_for(&self) -> &[PeerId] {
        self.withdrawals.ours.as_ref().map_or(&[], |ours| &ours.waiting)
    }

    /// Tells connected peers that this agent has registered memory anew, so that they fetch its blob.
    pub fn registered(&mut self, now: Instant) {
        self.end_withdrawal();
        let generation = self.link.agent.generation();
        self.notice_all(&Message::MemoryRegistered { generation }, now);
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

    /// Asks whom it waits for, and ends when nobody is left.
    pub(super) fn follow_withdrawal(&mut self, now: Instant) {
        let Some(ours) = &mut self.withdrawals.ours else { return };
        let (link, waiting) = (&mut self.link, &ours.waiting);
        ours.asked.retain(|peer, number| {
            let still = waiting.contains(peer);
            if !still {
                link.answered(peer, *number);
            }
            still
        });
        for peer in waiting {
            let question = Message::Withdraw { generation: ours.generation };
            ours.asked.entry(peer.clone()).or_insert_with(|| link.ask(peer, &question, now).0);
        }
        if waiting.is_empty() {
            self.end_withdrawal();
            self.events.push(Event::Withdrawn);
        }
    }
}
