//! Push at the producer: registrations from decode meet prefill requests, in either order.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kvplan::{BlockList, SomeLayers};
use kvspec::LayerIndex;

use super::book::after;
use super::ended::Remembered;
use super::identity::{LeaseId, PeerId, RequestId, ReservationId};
use crate::covered::Covered;
use crate::message::NotWritten;

/// Bounds on what decode workers may leave at a producer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PushOptions {
    /// Most registrations that wait or are being written; one decode worker may have half of them. 65,536 by default.
    pub max_registrations: usize,
    /// Most block ids in all of them, where each list counts as 16 more, which is the memory that it takes; one decode
    /// worker may have half of them. 64 Mi by default. As much again may have arrived in part.
    pub max_blocks: usize,
    /// How long an outcome is remembered, so that a decode worker that missed it is told again. 10 minutes by
    /// default.
    pub remember: Duration,
    /// Most outcomes remembered. 65,536 by default.
    pub max_remembered: usize,
}

impl Default for PushOptions {
    fn default() -> Self {
        Self {
            max_registrations: 1 << 16,
            max_blocks: 1 << 26,
            remember: Duration::from_secs(600),
            max_remembered: 1 << 16,
        }
    }
}

/// A registration: whose, and which of theirs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PushId {
    /// The decode worker.
    pub reader: PeerId,
    /// Its reservation.
    pub reservation: ReservationId,
}

impl fmt::Display for PushId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.reservation, self.reader)
    }
}

/// Where a decode worker wants a request's blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Registration {
    /// Whose it is.
    pub(crate) id: PushId,
    /// The request.
    pub(crate) request: RequestId,
    /// Destination blocks by group.
    pub(crate) lists: Vec<BlockList>,
    /// Until when writing may go on.
    pub(crate) deadline: Instant,
}

impl Registration {
    /// Number of block ids, and what the lists take besides: one without blocks takes room too.
    pub(crate) fn num_ids(&self) -> usize {
        self.lists.iter().map(|list| list.blocks.len() + LIST_WEIGHT).sum()
    }
}

/// What a list takes besides its ids, counted in ids of four bytes.
pub(super) const LIST_WEIGHT: usize = 16;

/// Longest that a registration is kept, whatever its decode worker says.
pub(super) const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// What became of a registration that has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// The request has no lease yet.
    Waits,
    /// The request is here: write its parts as they are ready.
    Met(LeaseId),
    /// It is known.
    Duplicate,
    /// It has ended; the outcome is reported again.
    Ended(Outcome),
    /// There is no room ([`PushOptions`]). It ended as released, which is reported.
    Full,
}

/// How a registration ended, once: the decode worker is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Every part is in place and was good.
    Written,
    /// Not everything was written, for this reason, and nothing lands any more.
    Released(NotWritten),
}

/// A registration that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resolved {
    /// The registration.
    pub(crate) id: PushId,
    /// How.
    pub(crate) outcome: Outcome,
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PushStats {
    /// Registrations accepted.
    pub registered: u64,
    /// Registrations that wait for their request.
    pub waiting: usize,
    /// Registrations that have met their request.
    pub writing: usize,
    /// Registrations that arrived again.
    pub duplicates: u64,
    /// Registrations refused for lack of room.
    pub refused: u64,
    /// Ended with everything written.
    pub written: u64,
    /// Ended without.
    pub released: u64,
    /// Of those, because their deadline passed.
    pub expired: u64,
}

#[derive(Debug)]
struct Push {
    registration: Registration,
    lease: Option<LeaseId>,
    begun: BTreeSet<u32>,
    /// Layers of what has begun.
    covered: Covered,
    landed: BTreeSet<u32>,
    /// Writes that have not settled.
    in_flight: usize,
    /// Nothing more is begun, for this reason: the first one.
    stopping: Option<NotWritten>,
}

/// Registrations at a producer.
///
/// Each ends once, as written or released. It is released only when none of its writes can land any more, and
/// never written after it was stopped by its deadline, its lease's end, or the decode worker.
#[derive(Debug)]
pub(crate) struct PushBook {
    options: PushOptions,
    pushes: BTreeMap<PushId, Push>,
    by_request: HashMap<RequestId, BTreeSet<PushId>>,
    by_lease: HashMap<LeaseId, BTreeSet<PushId>>,
    due: BTreeSet<(Instant, PushId)>,
    num_ids: usize,
    /// How many each reader has, and the ids in them.
    of_reader: HashMap<PeerId, (usize, usize)>,
    ended: Remembered<PushId, Outcome>,
    resolved: Vec<Resolved>,
    /// Stopped while something may still land.
    failing: Vec<(PushId, NotWritten)>,
    stats: PushStats,
}

impl PushBook {
    /// An empty book.
    #[must_use]
    pub(crate) fn new(options: PushOptions) -> Self {
        Self {
            ended: Remembered::new(options.remember, options.max_remembered),
            options,
            pushes: BTreeMap::new(),
            by_request: HashMap::new(),
            by_lease: HashMap::new(),
            due: BTreeSet::new(),
            num_ids: 0,
            of_reader: HashMap::new(),
            resolved: Vec::new(),
            failing: Vec::new(),
            stats: PushStats::default(),
        }
    }

    /// A decode worker says where it wants a request, which has this lease in force.
    pub(crate) fn register(&mut self, registration: Registration, lease: Option<LeaseId>, now: Instant) -> Admission {
        let deadline = registration.deadline.min(after(now, LONGEST));
        let registration = Registration { deadline, ..registration };
        let id = registration.id.clone();
        if let Some(outcome) = self.ended.get(&id).cloned() {
            self.stats.duplicates += 1;
            self.resolved.push(Resolved { id, outcome: outcome.clone() });
            return Admission::Ended(outcome);
        }
        if self.pushes.contains_key(&id) {
            self.stats.duplicates += 1;
            return Admission::Duplicate;
        }
        let (ids, PushOptions { max_registrations, max_blocks, .. }) = (registration.num_ids(), &self.options);
        let (theirs, their_ids) = self.of_reader.get(&id.reader).copied().unwrap_or_default();
        // One reader leaves room for others.
        let is_too_much = |num: usize, ids: usize, share: usize| {
            num >= max_registrations.div_ceil(share) || ids > max_blocks.div_ceil(share)
        };
        let num_ids = self.num_ids.saturating_add(ids);
        if is_too_much(self.pushes.len(), num_ids, 1) || is_too_much(theirs, their_ids.saturating_add(ids), 2) {
            self.stats.refused += 1;
            self.conclude(id, Outcome::Released(NotWritten::NoRoom), now);
            return Admission::Full;
        }
        self.num_ids = num_ids;
        self.of_reader.insert(id.reader.clone(), (theirs + 1, their_ids.saturating_add(ids)));
        self.stats.registered += 1;
        match lease {
            Some(lease) => self.by_lease.entry(lease).or_default().insert(id.clone()),
            None => self.by_request.entry(registration.request.clone()).or_default().insert(id.clone()),
        };
        self.due.insert((registration.deadline, id.clone()));
        let push = Push {
            registration,
            lease,
            begun: BTreeSet::new(),
            covered: Covered::default(),
            landed: BTreeSet::new(),
            in_flight: 0,
            stopping: None,
        };
        self.pushes.insert(id, push);
        lease.map_or(Admission::Waits, Admission::Met)
    }

    /// A request has a lease: registrations for it may be written. Returns those that had waited.
    pub(crate) fn offer(&mut self, request: &RequestId, lease: LeaseId) -> Vec<PushId> {
        let met = self.by_request.remove(request).unwrap_or_default();
        for id in &met {
            if let Some(push) = self.pushes.get_mut(id) {
                push.lease = Some(lease);
            }
        }
        self.by_lease.insert(lease, met.clone());
        met.into_iter().collect()
    }

    /// Whether a registration has arrived, be it that it has ended.
    #[must_use]
    pub(crate) fn knows(&self, id: &PushId) -> bool {
        self.pushes.contains_key(id) || self.ended.get(id).is_some()
    }

    /// A registration that has not ended, and its lease if its request is here.
    #[must_use]
    pub(crate) fn get(&self, id: &PushId) -> Option<(&Registration, Option<LeaseId>)> {
        self.pushes.get(id).map(|push| (&push.registration, push.lease))
    }

    /// Registrations that write from a lease.
    #[must_use]
    pub(crate) fn of_lease(&self, lease: LeaseId) -> Vec<PushId> {
        self.by_lease.get(&lease).into_iter().flatten().cloned().collect()
    }

    /// Whether a decode worker has registrations that have not ended.
    #[must_use]
    pub(crate) fn has_any_of(&self, reader: &PeerId) -> bool {
        let first = PushId { reader: reader.clone(), reservation: ReservationId(0) };
        self.pushes.range(first..).next().is_some_and(|(id, _)| id.reader == *reader)
    }

    /// Whether a part's write has started.
    #[must_use]
    pub(crate) fn has_begun(&self, id: &PushId, part: u32) -> bool {
        self.pushes.get(id).is_some_and(|push| push.begun.contains(&part))
    }

    /// The first layer that would be in no part, if what is written next is for these layers, and the last of
    /// `num_parts` parts.
    #[must_use]
    pub(crate) fn missing_with(
        &self,
        id: &PushId,
        num_parts: u32,
        layers: Option<&Arc<SomeLayers>>,
    ) -> Option<LayerIndex> {
        let push = self.pushes.get(id)?;
        let is_last = push.begun.len() as u64 + 1 >= u64::from(num_parts.max(1));
        let mut covered = is_last.then(|| push.covered.clone())?;
        covered.add(layers);
        covered.missing()
    }

    /// Whether a part's write, of these layers, may start now; if so it counts as in flight until [`landed`](Self::landed) or
    /// [`settled`](Self::settled). A part is begun once.
    pub(crate) fn begin(&mut self, id: &PushId, part: u32, layers: Option<&Arc<SomeLayers>>, now: Instant) -> bool {
        self.expire(now);
        let Some(push) = self.pushes.get_mut(id).filter(|push| push.stopping.is_none() && push.lease.is_some()) else {
            return false;
        };
        let first = push.begun.insert(part);
        push.in_flight += usize::from(first);
        push.covered.add(layers);
        first
    }

    /// Every byte of a part is in place. Says the lease when that was the last of `num_parts` parts: ask whether it
    /// is good, then [`finish`](Self::finish).
    pub(crate) fn landed(&mut self, id: &PushId, part: u32, num_parts: u32, now: Instant) -> Option<LeaseId> {
        let push = self.pushes.get_mut(id).filter(|push| push.begun.contains(&part))?;
        if push.landed.insert(part) {
            push.in_flight = push.in_flight.saturating_sub(1);
        }
        // A request that is complete from the start is one part.
        let all = push.landed.len() as u64 == u64::from(num_parts.max(1));
        let lease = push.lease.filter(|_| all && push.stopping.is_none());
        if let Some(why) = push.stopping.clone() {
            self.stop(id, why, now);
        }
        lease
    }

    /// Nothing of a part that failed can land any more.
    pub(crate) fn settled(&mut self, id: &PushId, why: NotWritten, now: Instant) {
        if let Some(push) = self.pushes.get_mut(id) {
            push.in_flight = push.in_flight.saturating_sub(1);
        }
        self.stop(id, why, now);
    }

    /// Ends a registration whose parts have all landed: written if the lease was good at that time.
    pub(crate) fn finish(&mut self, id: &PushId, good: bool, now: Instant) {
        match self.pushes.get(id) {
            Some(push) if push.in_flight == 0 => {
                let outcome = match &push.stopping {
                    None if good => Outcome::Written,
                    None => Outcome::Released(NotWritten::LeaseEnded),
                    Some(why) => Outcome::Released(why.clone()),
                };
                self.conclude(id.clone(), outcome, now);
            }
            _ => {}
        }
    }

    /// Nothing is written for a registration, whether it has arrived or not: the decode worker no longer wants it, or asks
    /// what became of it, or the producer refuses. The outcome is reported now, again, or when what is in flight has
    /// settled.
    pub(crate) fn refuse(&mut self, id: &PushId, why: NotWritten, now: Instant) {
        match self.ended.get(id).cloned() {
            Some(outcome) => self.resolved.push(Resolved { id: id.clone(), outcome }),
            None if self.pushes.contains_key(id) => self.stop(id, why, now),
            // Remembered, so that one that comes after all is not written.
            None => self.conclude(id.clone(), Outcome::Released(why), now),
        }
    }

    /// A lease has ended: nothing more is written from its blocks.
    pub(crate) fn lease_ended(&mut self, lease: LeaseId, now: Instant) {
        for id in self.by_lease.remove(&lease).unwrap_or_default() {
            self.stop(&id, NotWritten::LeaseEnded, now);
        }
    }

    /// A decode worker's process is gone: nothing more is written to it.
    pub(crate) fn reader_gone(&mut self, reader: &PeerId, now: Instant) {
        let first = PushId { reader: reader.clone(), reservation: ReservationId(0) };
        let from_first = self.pushes.range(first..).map(|(id, _)| id);
        let theirs: Vec<PushId> = from_first.take_while(|id| id.reader == *reader).cloned().collect();
        for id in theirs {
            self.stop(&id, NotWritten::Cancelled, now);
        }
    }

    /// Stops registrations whose deadline has passed.
    pub(crate) fn expire(&mut self, now: Instant) {
        while let Some((deadline, id)) = self.due.first().filter(|(deadline, _)| *deadline <= now).cloned() {
            self.due.remove(&(deadline, id.clone()));
            self.stats.expired += 1;
            self.stop(&id, NotWritten::Deadline, now);
        }
        self.ended.forget(now);
    }

    /// When [`expire`](Self::expire) has something to do next.
    #[must_use]
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.due.first().map(|(deadline, _)| *deadline)
    }

    /// Takes the outcomes to report since the last call.
    pub(crate) fn take_resolved(&mut self) -> Vec<Resolved> {
        std::mem::take(&mut self.resolved)
    }

    /// Takes those that will not be written and have not ended, since something of them may still land.
    pub(crate) fn take_failing(&mut self) -> Vec<(PushId, NotWritten)> {
        std::mem::take(&mut self.failing)
    }

    /// Counts since the start.
    #[must_use]
    pub(crate) fn stats(&self) -> PushStats {
        let writing = self.pushes.values().filter(|push| push.lease.is_some()).count();
        PushStats { writing, waiting: self.pushes.len() - writing, ..self.stats }
    }

    /// Nothing more is written, for example because a part's write has failed. The first reason stands.
    pub(crate) fn stop(&mut self, id: &PushId, why: NotWritten, now: Instant) {
        let Some(push) = self.pushes.get_mut(id) else { return };
        let is_first = push.stopping.is_none();
        let why = push.stopping.get_or_insert(why).clone();
        if push.in_flight == 0 {
            self.conclude(id.clone(), Outcome::Released(why), now);
        } else if is_first {
            self.failing.push((id.clone(), why));
        }
    }

    fn conclude(&mut self, id: PushId, outcome: Outcome, now: Instant) {
        if let Some(Push { registration, lease, .. }) = self.pushes.remove(&id) {
            let ids = registration.num_ids();
            self.num_ids = self.num_ids.saturating_sub(ids);
            if let Some((num, their_ids)) = self.of_reader.get_mut(&id.reader) {
                (*num, *their_ids) = (num.saturating_sub(1), their_ids.saturating_sub(ids));
                if *num == 0 {
                    self.of_reader.remove(&id.reader);
                }
            }
            self.due.remove(&(registration.deadline, id.clone()));
            if let Some(pushes) = lease.and_then(|lease| self.by_lease.get_mut(&lease)) {
                pushes.remove(&id);
            }
            if let Some(pushes) = self.by_request.get_mut(&registration.request) {
                pushes.remove(&id);
                if pushes.is_empty() {
                    self.by_request.remove(&registration.request);
                }
            }
        }
        match outcome {
            Outcome::Written => self.stats.written += 1,
            Outcome::Released(_) => self.stats.released += 1,
        }
        self.ended.insert(id.clone(), outcome.clone(), now);
        self.resolved.push(Resolved { id, outcome });
    }
}
