//! The consumer's side of an exchange: pulls, reservations, heartbeats.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::ManuallyDrop;
use std::time::Instant;

use kvplan::{BlockList, Descriptor, Op};

use crate::backoff::Backoff;
use crate::batch::num_bytes;
use crate::error::{Error, Result};
use crate::event::{Event, PullFailed, PullId};
use crate::exchange::Exchange;
use crate::lease::{LeaseId, Numbers, PeerId, RequestId, ReservationBook, ReservationEvent, ReservationId};
use crate::link::{Link, Load, Sent};
use crate::message::{Message, Verdict};
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
    /// When writers of failed reservations are asked again.
    asks: BTreeMap<ReservationId, Backoff>,
    /// Leases to keep alive though nothing reads them yet.
    kept: BTreeSet<(PeerId, LeaseId)>,
    stats: PullStats,
}

impl<B> Consumer<B> {
    pub(crate) fn new(numbers: Numbers) -> Self {
        Self {
            pulls: BTreeMap::new(),
            reservations: ReservationBook::new(numbers.clone()),
            numbers,
            asks: BTreeMap::new(),
            kept: BTreeSet::new(),
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
        self.reservations.expire(now);
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
        let asks = self.asks.values().map(Backoff::next);
        let reservations = self.reservations.next_deadline();
        self.pulls.values().filter_map(Pull::next_deadline).chain(asks).chain(reservations).min()
    }

    /// Counts what the engine is about to be told.
    pub(crate) fn count(&mut self, events: &[Event<B>]) {
        for event in events {
            let count = match event {
                Event::Pulled { .. } => &mut self.stats.pulled,
                Event::ReturnedPull { .. } => &mut self.stats.returned,
                Event::PullFailed { why, .. } => match why {
                    PullFailed::LeaseEnded { .. } => &mut self.stats.lease_ended,
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

    /// Asks writers of failed reservations what became of them, again and again.
    fn ask(&mut self, link: &mut Link, now: Instant) {
        let mut asks = BTreeMap::new();
        let mut due: Vec<(ReservationId, Vec<PeerId>)> = Vec::new();
        for (id, _, writers) in self.reservations.quarantined() {
            let mut backoff = self.asks.get(&id).copied().unwrap_or_else(|| Backoff::of_messages(now));
            if now >= backoff.next() {
                due.push((id, writers.cloned().collect()));
                backoff.asked(now);
            }
            asks.insert(id, backoff);
        }
        self.asks = asks;
        for (reservation, writers) in due {
            for writer in writers {
                if link.can_tell(&writer) {
                    link.tell(&writer, &Message::Cancel { reservation }, now);
                }
            }
        }
    }
}

impl<B> Exchange<B> {
    /// Reads a request from one or several producers into `blocks`. It ends once, see [`Event`]; it is done only when
    /// every producer has confirmed that its lease was still good after the last byte had been read.
    ///
    /// # Errors
    ///
    /// [`Error::PeerNotReady`]; [`Error::WouldBlock`] when too much is in flight: try again later. Gives the blocks
    /// back. What [`Agent::start`](crate::Agent::start) may say comes as an event, since other parts may have been
    /// started.
    pub fn pull(
        &mut self,
        blocks: B,
        parts: Vec<PullPart>,
        deadline: Instant,
        now: Instant,
    ) -> Result<PullId, (Error, B)> {
        // At the end of the range it is too much for any bound, as in `num_bytes`.
        let bytes = parts.iter().fold(0_u64, |bytes, part| bytes.saturating_add(num_bytes(&part.descriptors)));
        let descriptors = parts.iter().map(|part| part.descriptors.len()).sum();
        let ready = parts.iter().try_for_each(|part| self.link.ready(&part.peer).map(drop));
        let mut room = match ready.and_then(|()| self.link.agent.claim(bytes, descriptors)) {
            Ok(room) => room,
            Err(error) => return Err((error, blocks)),
        };
        let consumer = &mut self.consumer;
        // The pull keeps them alive itself, and no longer than it lasts.
        for part in &parts {
            consumer.kept.remove(&(part.peer.clone(), part.lease));
        }
        consumer.stats.started += 1;
        let id = PullId(consumer.numbers.next());
        let mut pull = Pull {
            id,
            blocks: ManuallyDrop::new(blocks),
            parts: Vec::with_capacity(parts.len()),
            deadline,
            failed: false,
        };
        for PullPart { peer, request, lease, descriptors, padding_bytes } in parts {
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

    /// Says that a pull is no longer wanted. Its blocks come back when it has settled. Whether it was in progress.
    pub fn cancel_pull(&mut self, id: PullId) -> bool {
        let Some(pull) = self.consumer.pulls.get_mut(&id) else { return false };
        let running = !pull.failed;
        pull.fail(PullFailed::Cancelled, &mut self.events);
        running
    }

    /// Keeps a lease alive with heartbeats, for a request that waits for its pull. Ends with the lease, with
    /// [`let_go`](Self::let_go), or with a pull under it, which keeps it alive by itself and no longer than it lasts.
    pub fn keep(&mut self, peer: PeerId, lease: LeaseId) {
        let mut needed = self.consumer.pulls.values().flat_map(Pull::needed);
        if !needed.any(|(of, needed)| *of == peer && needed == lease) {
            self.consumer.kept.insert((peer, lease));
        }
    }

    /// Sends no more heartbeats for a lease that [`keep`](Self::keep) was told of.
    pub fn let_go(&mut self, peer: PeerId, lease: LeaseId) {
        self.consumer.kept.remove(&(peer, lease));
    }

    /// Has a request written into `blocks` by one or several producers, each of which writes what
    /// [`kvplan::sources`] says this rank gets from it. It ends once, see [`Event`]. A producer that is named twice gets
    /// both its lists, in one registration.
    ///
    /// # Errors
    ///
    /// [`Error::PeerNotReady`]; gives the blocks back.
    pub fn reserve(
        &mut self,
        request: RequestId,
        blocks: B,
        sources: Vec<PushSource>,
        deadline: Instant,
        now: Instant,
    ) -> Result<ReservationId, (Error, B)> {
        if let Err(error) = sources.iter().try_for_each(|source| self.link.ready(&source.peer).map(drop)) {
            return Err((error, blocks));
        }
        // A registration is all that a producer is to write: of two under one number the second would be a repetition.
        let mut by_peer: BTreeMap<PeerId, Vec<BlockList>> = BTreeMap::new();
        for PushSource { peer, lists } in sources {
            by_peer.entry(peer).or_default().extend(lists);
        }
        let writers = by_peer.keys().cloned();
        let id = self.consumer.reservations.reserve(request.clone(), blocks, writers, deadline);
        let ttl = deadline.saturating_duration_since(now);
        for (peer, lists) in by_peer {
            for (message, chunk) in Message::reserves(&request, id, &lists, ttl).iter().zip(0_u32..) {
                match (self.link.tell(&peer, message, now), chunk) {
                    (Sent::Yes, _) => continue,
                    // It knows of nothing.
                    (Sent::Never, 0) => drop(self.consumer.reservations.released(id, &peer)),
                    _ => self.consumer.reservations.not_told(id, &peer),
                }
                break;
            }
        }
        Ok(id)
    }

    /// Says that a reservation is no longer wanted. Its blocks come back when its writers have answered. Whether it
    /// was held.
    pub fn cancel_reservation(&mut self, id: ReservationId) -> bool {
        self.consumer.reservations.cancel(id)
    }

    /// Reservations that failed and the writers that have not answered: whose blocks are in quarantine, and why.
    pub fn quarantined(&self) -> impl Iterator<Item = (ReservationId, &RequestId, impl Iterator<Item = &PeerId>)> {
        self.consumer.reservations.quarantined()
    }
}
