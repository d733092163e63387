//! A pull: one request read from one or several producers, until all have confirmed.

use std::mem::ManuallyDrop;
use std::time::Instant;

use crate::event::{Event, PullFailed, PullId};
use crate::lease::{LeaseId, Number, PeerId, RequestId};
use crate::link::{Link, Moving};
use crate::message::{Message, Verdict};
use crate::state::TransferState;

/// What is read from one producer.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) peer: PeerId,
    pub(crate) request: RequestId,
    pub(crate) lease: LeaseId,
    pub(crate) state: PartState,
}

#[derive(Debug)]
pub(crate) enum PartState {
    /// Bytes may land.
    Reading(Moving),
    /// Everything is in place; the producer is to confirm. The number of the question, once it has been asked.
    Completing(Option<Number>),
    /// The producer has confirmed that its lease was good.
    Confirmed,
    /// Failed or not wanted; nothing lands.
    Over,
}

#[derive(Debug)]
pub(crate) struct Pull<B> {
    pub(crate) id: PullId,
    /// Never dropped while bytes may land.
    pub(crate) blocks: ManuallyDrop<B>,
    pub(crate) parts: Vec<Part>,
    pub(crate) deadline: Instant,
    pub(crate) failed: bool,
    /// Questions whose answers are of no interest any more.
    pub(crate) moot: Vec<(PeerId, Number)>,
}

impl<B> Pull<B> {
    /// The bytes cannot be used. The first reason stands.
    pub(crate) fn fail(&mut self, why: PullFailed, events: &mut Vec<Event<B>>) {
        if !std::mem::replace(&mut self.failed, true) {
            tracing::warn!(pull = self.id.0, %why, "pull failed");
            events.push(Event::PullFailed { id: self.id, why });
            for part in &mut self.parts {
                match &part.state {
                    PartState::Reading(moving) => moving.cancel(),
                    PartState::Completing(Some(asked)) => {
                        self.moot.push((part.peer.clone(), *asked));
                        part.state = PartState::Over;
                    }
                    _ => part.state = PartState::Over,
                }
            }
        }
    }

    /// Moves on what can be; `true` when it is over and nothing can land any more.
    pub(crate) fn advance(&mut self, link: &mut Link, now: Instant, events: &mut Vec<Event<B>>) -> bool {
        let mut why = None;
        for part in &mut self.parts {
            let Part { peer, state, .. } = part;
            if let PartState::Reading(moving) = state {
                let reading = link.look(moving, now);
                let settled = moving.is_settled();
                match reading {
                    TransferState::InProgress => {}
                    TransferState::Done if self.failed => *state = PartState::Over,
                    TransferState::Done => *state = PartState::Completing(None),
                    TransferState::Failed { cause, .. } => {
                        why = why.or(Some(PullFailed::Transfer { peer: peer.clone(), source: cause }));
                        if settled {
                            *state = PartState::Over;
                        }
                    }
                }
            }
        }
        for index in 0..self.parts.len() {
            if !self.has_read(index) {
                continue;
            }
            let Some(Part { peer, request, lease, state }) = self.parts.get_mut(index) else { continue };
            if let PartState::Completing(asked) = state {
                if asked.is_none() {
                    let message = Message::Completed { request: request.clone(), lease: *lease, reading: self.id.0 };
                    *asked = Some(link.ask(peer, &message, now).0);
                }
                if !link.can_tell(peer) {
                    why = why.or(Some(PullFailed::Unreachable(peer.clone())));
                }
            }
        }
        if let Some(why) = why {
            self.fail(why, events);
        } else if now >= self.deadline && !self.is_confirmed() {
            let count = |is: fn(&PartState) -> bool| self.parts.iter().filter(|part| is(&part.state)).count();
            let reading = count(|state| matches!(state, PartState::Reading(_)));
            let unconfirmed = count(|state| matches!(state, PartState::Completing(_)));
            self.fail(PullFailed::Deadline { reading, unconfirmed }, events);
        }
        for (peer, asked) in self.moot.drain(..) {
            link.answered(&peer, asked);
        }
        match self.failed {
            true => self.parts.iter().all(|part| matches!(part.state, PartState::Over)),
            false => self.is_confirmed(),
        }
    }

    /// When [`advance`](Self::advance) has something to do though nothing has happened.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        Some(self.deadline).filter(|_| !self.failed)
    }

    /// Whether nothing more is read under the lease of a part: a completion says that of the lease, and several parts
    /// may have the same one.
    fn has_read(&self, index: usize) -> bool {
        let Some(of) = self.parts.get(index) else { return false };
        let reading =
            |part: &Part| part.lease == of.lease && part.peer == of.peer && matches!(part.state, PartState::Reading(_));
        !self.parts.iter().any(reading)
    }

    fn is_confirmed(&self) -> bool {
        self.parts.iter().all(|part| matches!(part.state, PartState::Confirmed))
    }

    /// What a producer says of a lease. Whether this pull was waiting for it.
    pub(crate) fn confirmed(
        &mut self,
        from: &PeerId,
        request: &RequestId,
        lease: LeaseId,
        verdict: Verdict,
        events: &mut Vec<Event<B>>,
    ) -> bool {
        let waiting = |part: &&mut Part| {
            part.peer == *from
                && part.request == *request
                && part.lease == lease
                && matches!(part.state, PartState::Completing(_))
        };
        let Some(part) = self.parts.iter_mut().find(waiting) else { return false };
        if verdict == Verdict::Good {
            if let PartState::Completing(Some(asked)) = part.state {
                self.moot.push((from.clone(), asked));
            }
            part.state = PartState::Confirmed;
        } else {
            self.fail(lease_ended(from, request, lease, verdict), events);
        }
        true
    }

    /// A producer says that a lease has ended. While a completion is under way its confirmation decides.
    pub(crate) fn lease_ended(&mut self, from: &PeerId, lease: LeaseId, events: &mut Vec<Event<B>>) {
        let reading =
            |part: &&Part| part.peer == *from && part.lease == lease && matches!(part.state, PartState::Reading(_));
        if let Some(request) = self.parts.iter().find(reading).map(|part| part.request.clone()) {
            self.fail(lease_ended(from, &request, lease, Verdict::Ended), events);
        }
    }

    /// Leases that are still needed, with their producers.
    pub(crate) fn needed(&self) -> impl Iterator<Item = (&PeerId, LeaseId)> {
        let needed =
            |part: &&Part| !self.failed && matches!(part.state, PartState::Reading(_) | PartState::Completing(_));
        self.parts.iter().filter(needed).map(|part| (&part.peer, part.lease))
    }

    /// The end: hands the blocks out.
    pub(crate) fn end(self, events: &mut Vec<Event<B>>) {
        let (id, blocks) = (self.id, ManuallyDrop::into_inner(self.blocks));
        events.push(match self.failed {
            true => Event::ReturnedPull { id, blocks },
            false => Event::Pulled { id, blocks },
        });
    }
}

fn lease_ended(peer: &PeerId, request: &RequestId, lease: LeaseId, verdict: Verdict) -> PullFailed {
    let (request, peer) = (request.clone(), peer.clone());
    match verdict {
        Verdict::Premature => PullFailed::NotReady { request, lease, peer },
        _ => PullFailed::LeaseEnded { request, lease, peer, verdict },
    }
}
