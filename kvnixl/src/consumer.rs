//! The consumer's side of an exchange: pulls, reservations, heartbeats.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::Instant;

use kvplan::{BlockList, Descriptor, Descriptors, Op, SomeLayers};

use crate::batch::num_bytes;
use crate::covered::Covered;
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::event::{Event, PullFailed, PullId};
use crate::exchange::Exchange;
use crate::lease::{
    LeaseId, Number, Numbers, PeerId, RequestId, ReservationBook, ReservationEvent, ReservationId, append,
};
use crate::link::{Link, Load, Sent};
use crate::message::{Message, NotWritten, Verdict};
use crate::pull::{Part, PartState, Pull};

/// What to read from one producer.
#[derive(Clone, Debug)]
pub struct PullPart {
    /// The producer.
    pub peer: PeerId,
    /// Its request.
    pub request: RequestId,
    /// Its lease.
    pub lease: LeaseId,
    /// What the plan with that peer answered.
    pub descriptors: Vec<Descriptor>,
    /// How many of their bytes are padding, see [`kvplan::Descriptors::padding_bytes`]: counted in
    /// [`Stats`](crate::Stats).
    pub padding_bytes: u64,
    /// Layers that they are for, see [`kvplan::Descriptors::some_layers`]; `None` for all.
    pub layers: Option<Arc<SomeLayers>>,
}

impl PullPart {
    /// What an answer of the plan with that peer asks for.
    #[must_use]
    pub fn of_answer(peer: PeerId, request: RequestId, lease: LeaseId, answer: &Descriptors) -> Self {
        let (descriptors, padding_bytes) = (answer.as_slice().to_vec(), answer.padding_bytes());
        Self { peer, request, lease, descriptors, padding_bytes, layers: answer.some_layers().cloned() }
    }
}

/// A producer that is to write a request, and where it finds the blocks.
#[derive(Clone, Debug)]
pub struct PushSource {
    /// The producer.
    pub peer: PeerId,
    /// Our blocks by group, as the producer's plan wants them on its remote side.
    pub lists: Vec<BlockList>,
}

/// Counts of pulls since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PullStats {
    /// Pulls started.
    pub started: u64,
    /// Pulls that have not ended, those in quarantine included.
    pub live: usize,
    /// Of those, failed and not settled: their blocks are in quarantine.
    pub quarantined: usize,
    /// Ended with every byte confirmed.
    pub pulled: u64,
    /// Failed because a lease had ended.
    pub lease_ended: u64,
    /// Failed because time ran out.
    pub deadline: u64,
    /// Failed because a transfer did.
    pub transfer: u64,
    /// Failed because a producer could not be reached.
    pub unreachable: u64,
    /// No longer wanted.
    pub cancelled: u64,
    /// Failed, and blocks given back.
    pub returned: u64,
    /// Confirmations that nobody waited for: repeated, or late.
    pub stray_confirmations: u64,
}

#[derive(Debug)]
pub(crate) struct Consumer<B> {
    pulls: BTreeMap<PullId, Pull<B>>,
    numbers: Numbers,
    pub(crate) reservations: ReservationBook<B>,
    /// Messages that make writers know of reservations that are in force.
    told: BTreeMap<ReservationId, Vec<(PeerId, Number)>>,
    /// Writers of failed reservations that have been asked what became of them.
    asked: BTreeMap<(ReservationId, PeerId), Number>,
    /// Leases to keep alive though nothing reads them yet.
    kept: BTreeSet<(PeerId, LeaseId)>,
    /// Leases whose producers are to hear that they are wanted no more.
    given_up: BTreeSet<(PeerId, LeaseId)>,
    stats: PullStats,
}

impl<B> Consumer<B> {
    pub(crate) fn new(numbers: Numbers) -> Self {
        Self {
            pulls: BTreeMap::new(),
            reservations: ReservationBook::new(numbers.clone()),
            numbers,
            told: BTreeMap::new(),
            asked: BTreeMap::new(),
            kept: BTreeSet::new(),
            given_up: BTreeSet::new(),
            stats: PullStats::default(),
        }
    }

    pub(crate) fn confirmed(
        &mut self,
        from: &PeerId,
        request: &RequestId,
        lease: LeaseId,
        pull: PullId,
        verdict: Verdict,
        events: &mut Vec<Event<B>>,
    ) {
        let pull = self.pulls.get_mut(&pull);
        let waiting = pull.is_some_and(|pull| pull.confirmed(from, request, lease, verdict, events));
        self.kept.remove(&(from.clone(), lease));
        self.stats.stray_confirmations += u64::from(!waiting);
    }

    pub(crate) fn ended(&mut self, from: &PeerId, leases: &[LeaseId], events: &mut Vec<Event<B>>) {
        for &lease in leases {
            self.kept.remove(&(from.clone(), lease));
            for pull in self.pulls.values_mut() {
                pull.lease_ended(from, lease, events);
            }
        }
    }

    /// A producer's process has ended, and its leases with it.
    pub(crate) fn producer_gone(&mut self, producer: &PeerId) {
        self.kept.retain(|(kept, _)| kept != producer);
        self.given_up.retain(|(given_up, _)| given_up != producer);
    }

    /// Whether a pull or a reservation waits for this peer's word.
    pub(crate) fn waits_for(&self, peer: &PeerId) -> bool {
        self.reservations.has_pending(peer)
            || self.pulls.values().flat_map(Pull::needed).any(|(needed, _)| needed == peer)
    }

    pub(crate) fn heartbeat(&mut self, link: &mut Link, now: Instant) {
        let mut by_peer: BTreeMap<PeerId, BTreeSet<LeaseId>> = BTreeMap::new();
        let kept = self.kept.iter().map(|(peer, lease)| (peer, *lease));
        for (peer, lease) in self.pulls.values().flat_map(Pull::needed).chain(kept) {
            by_peer.entry(peer.clone()).or_default().insert(lease);
        }
        for (peer, leases) in by_peer {
            let leases: Vec<LeaseId> = leases.into_iter().collect();
            for message in Message::heartbeats(&leases) {
                link.tell(&peer, &message, now);
            }
        }
    }

    pub(crate) fn poll(&mut self, link: &mut Link, now: Instant, events: &mut Vec<Event<B>>) {
        let mut over = Vec::new();
        for pull in self.pulls.values_mut() {
            if pull.advance(link, now, events) {
                over.push(pull.id);
            }
        }
        for id in over {
            if let Some(pull) = self.pulls.remove(&id) {
                pull.end(events);
            }
        }
        for (peer, lease) in std::mem::take(&mut self.given_up) {
            link.notice(&peer, &Message::GivenUp { lease }, now);
        }
        self.reservations.expire(now);
        self.tell_no_more(link);
        self.ask(link, now);
        for event in self.reservations.take_events() {
            events.push(match event {
                ReservationEvent::Arrived { id, blocks } => Event::Arrived { id, blocks },
                ReservationEvent::Failed { id, why } => Event::ArrivalFailed { id, why },
                ReservationEvent::Returned { id, blocks } => Event::ReturnedReservation { id, blocks },
            });
        }
    }

    /// When [`poll`](Self::poll) has something to do though nothing has happened.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.pulls.values().filter_map(Pull::next_deadline).chain(self.reservations.next_deadline()).min()
    }

    /// Counts what the engine is about to be told.
    pub(crate) fn count(&mut self, events: &[Event<B>]) {
        for event in events {
            let count = match event {
                Event::Pulled { .. } => &mut self.stats.pulled,
                Event::ReturnedPull { .. } => &mut self.stats.returned,
                Event::PullFailed { why, .. } => match why {
                    PullFailed::LeaseEnded { .. } | PullFailed::NotReady { .. } => &mut self.stats.lease_ended,
                    PullFailed::Deadline { .. } => &mut self.stats.deadline,
                    PullFailed::Transfer { .. } => &mut self.stats.transfer,
                    PullFailed::Unreachable(_) => &mut self.stats.unreachable,
                    PullFailed::Cancelled => &mut self.stats.cancelled,
                },
                _ => continue,
            };
            *count += 1;
        }
    }

    pub(crate) fn stats(&self) -> PullStats {
        let quarantined = self.pulls.values().filter(|pull| pull.failed).count();
        PullStats { live: self.pulls.len(), quarantined, ..self.stats }
    }

    /// Reservations that have ended or failed are told to no writer any more.
    fn tell_no_more(&mut self, link: &mut Link) {
        let reservations = &self.reservations;
        self.told.retain(|id, messages| {
            let in_force = reservations.is_in_force(*id);
            if !in_force {
                messages.iter().for_each(|(writer, number)| link.answered(writer, *number));
            }
            in_force
        });
    }

    /// Asks writers of failed reservations what became of them, until they say it.
    fn ask(&mut self, link: &mut Link, now: Instant) {
        let pending =
            self.reservations.quarantined().flat_map(|(id, _, writers)| writers.map(move |w| (id, w.clone())));
        let pending: BTreeSet<(ReservationId, PeerId)> = pending.collect();
        self.asked.retain(|key, number| {
            let still = pending.contains(key) && link.connected.contains_key(&key.1);
            if !still {
                link.answered(&key.1, *number);
            }
            still
        });
        for key in pending {
            if !self.asked.contains_key(&key) && link.can_tell(&key.1) {
                let (number, _) = link.ask(&key.1, &Message::Cancel { reservation: key.0 }, now);
                self.asked.insert(key, number);
            }
        }
    }

    /// Whether a pull or the engine keeps a lease.
    fn is_wanted(&self, peer: &PeerId, lease: LeaseId) -> bool {
        self.kept.contains(&(peer.clone(), lease))
            || self.pulls.values().flat_map(Pull::needed).any(|(of, needed)| of == peer && needed == lease)
    }
}

/// Whether the parts under each lease are for all layers together.
fn all_layers(parts: &[PullPart]) -> Result<()> {
    let mut by_lease: BTreeMap<(&PeerId, LeaseId), Covered> = BTreeMap::new();
    for part in parts {
        by_lease.entry((&part.peer, part.lease)).or_default().add(part.layers.as_ref());
    }
    by_lease.into_iter().try_for_each(|((peer, lease), covered)| match covered.missing() {
        Some(layer) => Err(Error::LayerMissing { peer: peer.clone(), lease, layer }),
        None => Ok(()),
    })
}

impl<B> Exchange<B> {
    /// Reads a request from one or several producers into `blocks`. It ends once, see [`Event`]; it is done only when
    /// every producer has confirmed that its lease was still good after the last byte had been read. After a failure the
    /// leases that were still good are so: pull again, or [`let_go`](Self::let_go).
    ///
    /// A producer is told that everything has been read. So what is read by [layers](kvplan::Layers) is one pull, of as
    /// many parts as there are selections, and is told once.
    ///
    /// # Errors
    ///
    /// [`Error::NoParts`]; [`Error::LayerMissing`] where the parts under a lease leave out a layer of the plan;
    /// [`Error::PeerNotReady`]; [`Error::WouldBlock`] when too much is in flight: try again later. Gives the blocks
    /// back. What [`Agent::start`](crate::Agent::start) may say comes as an event, since other parts may have been
    /// started.
    pub fn pull(
        &mut self,
        blocks: B,
        parts: Vec<PullPart>,
        deadline: impl Into<Deadline>,
        now: Instant,
    ) -> Result<PullId, (Error, B)> {
        let deadline = deadline.into().at(now);
        if parts.is_empty() {
            return Err((Error::NoParts { what: "pull" }, blocks));
        }
        // At the end of the range it is too much for any bound, as in `num_bytes`.
        let bytes = parts.iter().fold(0_u64, |bytes, part| bytes.saturating_add(num_bytes(&part.descriptors)));
        let descriptors = parts.iter().map(|part| part.descriptors.len()).sum();
        if let Err(error) = all_layers(&parts) {
            return Err((error, blocks));
        }
        let ready = parts.iter().try_for_each(|part| self.link.ready(&part.peer).map(drop));
        let mut room = match ready.and_then(|()| self.link.agent.claim(bytes, descriptors)) {
            Ok(room) => room,
            Err(error) => return Err((error, blocks)),
        };
        let consumer = &mut self.consumer;
        // The pull keeps them alive itself, and no longer than it lasts.
        for part in &parts {
            let lease = (part.peer.clone(), part.lease);
            consumer.kept.remove(&lease);
            consumer.given_up.remove(&lease);
        }
        consumer.stats.started += 1;
        let id = PullId(consumer.numbers.next());
        let mut pull = Pull {
            id,
            blocks: ManuallyDrop::new(blocks),
            parts: Vec::with_capacity(parts.len()),
            deadline,
            failed: false,
            moot: Vec::new(),
        };
        for PullPart { peer, request, lease, descriptors, padding_bytes, .. } in parts {
            let load = Load { op: Op::Read, request: &request, descriptors: &descriptors, padding_bytes, deadline };
            match self.link.start(&peer, &load, &mut room, now) {
                Ok(moving) => {
                    pull.parts.push(Part { peer, request, lease, state: PartState::Reading(moving) });
                }
                Err(error) => {
                    // What was started is cancelled, and settles.
                    pull.fail(PullFailed::Transfer { peer, source: error.into() }, &mut self.events);
                    break;
                }
            }
        }
        consumer.pulls.insert(id, pull);
        Ok(id)
    }

    /// Says that a pull is no longer wanted. Its blocks come back when it has settled. With the next poll its producers
    /// hear that this reader gives up, and wait for it no more. Whether it was in progress.
    pub fn cancel_pull(&mut self, id: PullId) -> bool {
        let Some(pull) = self.consumer.pulls.get_mut(&id) else { return false };
        let running = !pull.failed;
        let leases: Vec<_> = pull.needed().map(|(peer, lease)| (peer.clone(), lease)).collect();
        pull.fail(PullFailed::Cancelled, &mut self.events);
        for (peer, lease) in leases {
            self.give_up(peer, lease);
        }
        running
    }

    /// Keeps a lease alive with heartbeats, for a request that waits for its pull. Ends with the lease, with
    /// [`let_go`](Self::let_go), or with a pull under it, which keeps it alive by itself and no longer than it lasts.
    pub fn keep(&mut self, peer: PeerId, lease: LeaseId) {
        let mut needed = self.consumer.pulls.values().flat_map(Pull::needed);
        if !needed.any(|(of, needed)| *of == peer && needed == lease) {
            let lease = (peer, lease);
            self.consumer.given_up.remove(&lease);
            self.consumer.kept.insert(lease);
        }
    }

    /// Says that a lease is no longer wanted: there are no more heartbeats for it, and with the next poll its producer
    /// hears that this reader gives up, and waits for it no more. While a pull under the lease is in progress it is still
    /// wanted: [cancel](Self::cancel_pull) that.
    pub fn let_go(&mut self, peer: PeerId, lease: LeaseId) {
        self.consumer.kept.remove(&(peer.clone(), lease));
        self.give_up(peer, lease);
    }

    /// The producer is told with the next poll, unless something else wants the lease.
    fn give_up(&mut self, peer: PeerId, lease: LeaseId) {
        if !self.consumer.is_wanted(&peer, lease) {
            self.consumer.given_up.insert((peer, lease));
        }
    }

    /// Has a request written into `blocks` by one or several producers, each of which writes what
    /// [`kvplan::sources`] says this rank gets from it. It ends once, see [`Event`]. A producer that is named twice gets
    /// both its lists, in one registration.
    ///
    /// # Errors
    ///
    /// [`Error::NoParts`]; [`Error::PeerNotReady`]; [`Error::ListsRefused`] for lists that do not fit what is registered
    /// here. Gives the blocks back, and nobody has heard of them.
    pub fn reserve(
        &mut self,
        request: RequestId,
        blocks: B,
        sources: Vec<PushSource>,
        deadline: impl Into<Deadline>,
        now: Instant,
    ) -> Result<ReservationId, (Error, B)> {
        let deadline = deadline.into().at(now);
        // A registration is all that a producer is to write: of two under one number the second would be a repetition.
        let mut by_peer: BTreeMap<PeerId, Vec<BlockList>> = BTreeMap::new();
        for PushSource { peer, lists } in sources {
            append(by_peer.entry(peer).or_default(), lists);
        }
        let check = |(peer, lists): (&PeerId, &Vec<BlockList>)| {
            self.link.ready(peer)?;
            self.link.agent.check_reserved(lists)
        };
        let checked = match by_peer.is_empty() {
            true => Err(Error::NoParts { what: "reservation" }),
            false => by_peer.iter().try_for_each(check),
        };
        if let Err(error) = checked {
            return Err((error, blocks));
        }
        let writers = by_peer.keys().cloned();
        let id = self.consumer.reservations.reserve(request.clone(), blocks, writers, deadline);
        let ttl = deadline.saturating_duration_since(now);
        let mut told = Vec::new();
        for (peer, lists) in by_peer {
            for (message, chunk) in Message::reserves(&request, id, &lists, ttl).iter().zip(0_u32..) {
                let (number, sent) = self.link.notice(&peer, message, now);
                told.push((peer.clone(), number));
                match (sent, chunk) {
                    (Sent::Yes, _) => continue,
                    // It knows of nothing.
                    (Sent::Never, 0) => _ = self.consumer.reservations.released(id, &peer, NotWritten::Unknown),
                    _ => self.consumer.reservations.not_told(id, &peer),
                }
                break;
            }
        }
        self.consumer.told.insert(id, told);
        Ok(id)
    }

    /// Says that a reservation is no longer wanted. Its blocks come back when its writers have answered, who wait for this
    /// reader no more. Whether it was held.
    pub fn cancel_reservation(&mut self, id: ReservationId) -> bool {
        self.consumer.reservations.cancel(id)
    }

    /// Reservations that failed and the writers that have not answered: whose blocks are in quarantine, and why.
    pub fn quarantined(&self) -> impl Iterator<Item = (ReservationId, &RequestId, impl Iterator<Item = &PeerId>)> {
        self.consumer.reservations.quarantined()
    }
}
