//! Push at decode: destination blocks are held until no writer can touch them.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::ManuallyDrop;
use std::time::Instant;

use super::identity::{Numbers, PeerId, RequestId, ReservationId};
use crate::message::NotWritten;

/// What a writer's word was worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriterAnswer {
    /// It counted.
    Counted,
    /// It had been heard before.
    Duplicate,
    /// No such reservation is held, or this peer is no writer of it.
    Unknown,
}

/// Why a request's blocks did not arrive.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArrivalFailed {
    /// A writer will not write, or not all.
    #[error("{writer} does not write it: {why}")]
    NotWritten {
        /// The writer.
        writer: PeerId,
        /// What it says.
        why: NotWritten,
    },
    /// A writer could not be told, was replaced by another process, or has ended. Only of the last do the blocks come
    /// back by themselves.
    #[error("writer {0} cannot be reached, was replaced, or has ended")]
    Lost(PeerId),
    /// Not all writers were done in time.
    #[error("it was not written in time")]
    Deadline,
    /// The engine no longer wants it.
    #[error("it was cancelled")]
    Cancelled,
}

/// What happened to a reservation. Of `Arrived` and `Failed` there is one; blocks come once.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReservationEvent<B> {
    /// All writers have written everything.
    Arrived {
        /// Which.
        id: ReservationId,
        /// The blocks, with the request's bytes.
        blocks: B,
    },
    /// The bytes will not be right. The blocks follow as `Returned` when nobody can write them any more.
    Failed {
        /// Which.
        id: ReservationId,
        /// Why.
        why: ArrivalFailed,
    },
    /// Blocks of a reservation that failed; nobody writes them any more.
    Returned {
        /// Which.
        id: ReservationId,
        /// The blocks, with any bytes.
        blocks: B,
    },
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReservationStats {
    /// Reservations made.
    pub reserved: u64,
    /// In force.
    pub live: usize,
    /// Of those, failed and waiting for a writer that has not answered.
    pub quarantined: usize,
    /// Ended with everything written.
    pub arrived: u64,
    /// Failed.
    pub failed: u64,
    /// Of those, because time ran out.
    pub expired: u64,
    /// Of those, blocks that could be given back.
    pub returned: u64,
    /// Words of writers that were heard before.
    pub duplicates: u64,
    /// Words about reservations that are not held, or of peers that do not write them.
    pub unknown: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writer {
    Pending,
    Written,
    /// Wrote not everything, and nothing lands any more.
    Out,
}

#[derive(Debug)]
struct Reservation<B> {
    request: RequestId,
    /// Never dropped while a writer is pending.
    blocks: ManuallyDrop<B>,
    writers: BTreeMap<PeerId, Writer>,
    deadline: Instant,
    failed: bool,
}

/// A decode worker's reservations.
///
/// Blocks leave only when every writer has said that it wrote everything, has said that nothing of it lands any more,
/// or is proven gone ([`writer_gone`](Self::writer_gone)). Until then a reservation that failed is in quarantine,
/// and if the book is dropped, its blocks are forgotten and not dropped.
#[derive(Debug)]
pub(crate) struct ReservationBook<B> {
    numbers: Numbers,
    live: BTreeMap<ReservationId, Reservation<B>>,
    due: BTreeSet<(Instant, ReservationId)>,
    events: Vec<ReservationEvent<B>>,
    stats: ReservationStats,
}

impl<B> ReservationBook<B> {
    /// An empty book that gives its reservations these numbers.
    #[must_use]
    pub(crate) fn new(numbers: Numbers) -> Self {
        Self {
            numbers,
            live: BTreeMap::new(),
            due: BTreeSet::new(),
            events: Vec::new(),
            stats: ReservationStats::default(),
        }
    }

    /// Holds blocks for these writers. Without writers they have arrived at once.
    pub(crate) fn reserve(
        &mut self,
        request: RequestId,
        blocks: B,
        writers: impl IntoIterator<Item = PeerId>,
        deadline: Instant,
    ) -> ReservationId {
        let id = ReservationId(self.numbers.next());
        let writers = writers.into_iter().map(|writer| (writer, Writer::Pending)).collect();
        self.live
            .insert(id, Reservation { request, blocks: ManuallyDrop::new(blocks), writers, deadline, failed: false });
        self.due.insert((deadline, id));
        self.stats.reserved += 1;
        self.conclude(id);
        id
    }

    /// A writer says that all it had to write is in place.
    pub(crate) fn written(&mut self, id: ReservationId, writer: &PeerId) -> WriterAnswer {
        self.answer(id, writer, Writer::Written, None)
    }

    /// A writer could not be told of a reservation, or not of all of it: it may write all the same.
    pub(crate) fn not_told(&mut self, id: ReservationId, writer: &PeerId) {
        self.fail(id, ArrivalFailed::Lost(writer.clone()));
    }

    /// A writer says that it will not write everything, and that something of it may still land.
    pub(crate) fn failing(&mut self, id: ReservationId, writer: &PeerId, why: NotWritten) -> WriterAnswer {
        let state = self.live.get(&id).and_then(|reservation| reservation.writers.get(writer));
        match state {
            Some(Writer::Pending) => {
                self.fail(id, ArrivalFailed::NotWritten { writer: writer.clone(), why });
                WriterAnswer::Counted
            }
            Some(_) => {
                self.stats.duplicates += 1;
                WriterAnswer::Duplicate
            }
            None => {
                self.stats.unknown += 1;
                WriterAnswer::Unknown
            }
        }
    }

    /// A writer says that it did not write everything and that nothing of it lands any more.
    pub(crate) fn released(&mut self, id: ReservationId, writer: &PeerId, why: NotWritten) -> WriterAnswer {
        self.answer(id, writer, Writer::Out, Some(why))
    }

    fn answer(&mut self, id: ReservationId, writer: &PeerId, word: Writer, why: Option<NotWritten>) -> WriterAnswer {
        let Some(state) = self.live.get_mut(&id).and_then(|reservation| reservation.writers.get_mut(writer)) else {
            self.stats.unknown += 1;
            return WriterAnswer::Unknown;
        };
        if *state != Writer::Pending {
            self.stats.duplicates += 1;
            return WriterAnswer::Duplicate;
        }
        *state = word;
        if let Some(why) = why {
            self.fail(id, ArrivalFailed::NotWritten { writer: writer.clone(), why });
        }
        self.conclude(id);
        WriterAnswer::Counted
    }

    /// A writer's process was replaced. What it had to write has failed; the blocks stay, since
    /// this is no proof that nothing of it lands any more.
    pub(crate) fn writer_lost(&mut self, writer: &PeerId) {
        for id in self.pending_of(writer) {
            self.fail(id, ArrivalFailed::Lost(writer.clone()));
        }
    }

    /// It is proven that a writer's process has ended and that nothing of it lands any more.
    pub(crate) fn writer_gone(&mut self, writer: &PeerId) {
        for id in self.pending_of(writer) {
            if let Some(state) = self.live.get_mut(&id).and_then(|reservation| reservation.writers.get_mut(writer)) {
                *state = Writer::Out;
            }
            self.fail(id, ArrivalFailed::Lost(writer.clone()));
            self.conclude(id);
        }
    }

    /// The engine no longer wants it. The blocks come back when the writers have answered. Whether it was held.
    pub(crate) fn cancel(&mut self, id: ReservationId) -> bool {
        let held = self.live.contains_key(&id);
        self.fail(id, ArrivalFailed::Cancelled);
        held
    }

    /// Fails what is due.
    pub(crate) fn expire(&mut self, now: Instant) {
        while let Some(&(deadline, id)) = self.due.first().filter(|(deadline, _)| *deadline <= now) {
            self.due.remove(&(deadline, id));
            if self.live.get(&id).is_some_and(|reservation| !reservation.failed) {
                self.stats.expired += 1;
            }
            self.fail(id, ArrivalFailed::Deadline);
        }
    }

    /// When [`expire`](Self::expire) has something to do next.
    #[must_use]
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.due.first().map(|(deadline, _)| *deadline)
    }

    /// Reservations that failed and the writers that have not answered: whom to ask again, and what is in quarantine.
    pub(crate) fn quarantined(
        &self,
    ) -> impl Iterator<Item = (ReservationId, &RequestId, impl Iterator<Item = &PeerId>)> {
        self.live.iter().filter(|(_, reservation)| reservation.failed).map(|(id, reservation)| {
            let pending = reservation.writers.iter().filter(|(_, state)| **state == Writer::Pending);
            (*id, &reservation.request, pending.map(|(writer, _)| writer))
        })
    }

    /// Whether a reservation waits for this writer.
    #[must_use]
    pub(crate) fn has_pending(&self, writer: &PeerId) -> bool {
        let pending = |reservation: &Reservation<B>| reservation.writers.get(writer) == Some(&Writer::Pending);
        self.live.values().any(pending)
    }

    /// Whether a reservation is held and has not failed.
    #[must_use]
    pub(crate) fn is_in_force(&self, id: ReservationId) -> bool {
        self.live.get(&id).is_some_and(|reservation| !reservation.failed)
    }

    /// Takes what happened since the last call.
    pub(crate) fn take_events(&mut self) -> Vec<ReservationEvent<B>> {
        std::mem::take(&mut self.events)
    }

    /// Counts since the start.
    #[must_use]
    pub(crate) fn stats(&self) -> ReservationStats {
        let quarantined = self.live.values().filter(|reservation| reservation.failed).count();
        ReservationStats { live: self.live.len(), quarantined, ..self.stats }
    }

    fn pending_of(&self, writer: &PeerId) -> Vec<ReservationId> {
        let pending = |reservation: &Reservation<B>| reservation.writers.get(writer) == Some(&Writer::Pending);
        self.live.iter().filter(|(_, reservation)| pending(reservation)).map(|(id, _)| *id).collect()
    }

    fn fail(&mut self, id: ReservationId, why: ArrivalFailed) {
        let Some(reservation) = self.live.get_mut(&id).filter(|reservation| !reservation.failed) else { return };
        reservation.failed = true;
        self.stats.failed += 1;
        tracing::debug!(request = %reservation.request, reservation = %id, %why, "reservation failed");
        self.events.push(ReservationEvent::Failed { id, why });
    }

    /// Gives the blocks up if no writer is pending.
    fn conclude(&mut self, id: ReservationId) {
        let over = |reservation: &Reservation<B>| reservation.writers.values().all(|state| *state != Writer::Pending);
        if !self.live.get(&id).is_some_and(over) {
            return;
        }
        let Some(Reservation { blocks, deadline, failed, .. }) = self.live.remove(&id) else { return };
        self.due.remove(&(deadline, id));
        let blocks = ManuallyDrop::into_inner(blocks);
        if failed {
            self.stats.returned += 1;
            self.events.push(ReservationEvent::Returned { id, blocks });
        } else {
            self.stats.arrived += 1;
            self.events.push(ReservationEvent::Arrived { id, blocks });
        }
    }
}
