//! The producer's side of an exchange: leases, and writes to decode workers.

use std::time::Instant;

use kvplan::{Descriptor, Op};

use crate::batch::num_bytes;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::exchange::{Exchange, ExchangeOptions};
use crate::lease::{
    Admission, Assembled, Assembly, Chunk, Completion, LeaseBook, LeaseId, Numbers, Outcome, PeerId, PushBook, PushId,
    Reading, RequestId, Resolved,
};
use crate::link::{Link, Load, Moving, Sent};
use crate::message::{Message, Verdict};
use crate::state::TransferState;

/// A write of a part that has not settled.
#[derive(Debug)]
struct Write {
    id: PushId,
    part: u32,
    moving: Moving,
    failed: bool,
}

/// Why a part of a request is not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteRefusal {
    /// Never: the registration has ended or is ending, is not known, or its request has no lease.
    #[error("it is not known, ends or has ended, or its request has no lease")]
    NotOpen,
    /// Never: the blocks may be another request's.
    #[error("its lease has ended")]
    LeaseEnded,
    /// Not yet: [`Exchange::ready`] says first that it is computed. Never, for a part that the lease does not have.
    #[error("the part is not ready")]
    NotReady,
    /// It is written once.
    #[error("the part was written before")]
    Repeated,
}

#[derive(Debug)]
pub(crate) struct Producer<B> {
    pub(crate) leases: LeaseBook<B>,
    pub(crate) push: PushBook,
    assembly: Assembly,
    writes: Vec<Write>,
    /// How registrations ended of which the decode workers have not been told.
    untold: Vec<Resolved>,
    max_untold: usize,
    pub(crate) refused_chunks: u64,
}

impl<B> Producer<B> {
    pub(crate) fn new(options: &ExchangeOptions, numbers: Numbers) -> Self {
        Self {
            leases: LeaseBook::new(options.lease.clone(), numbers),
            push: PushBook::new(options.push.clone()),
            assembly: Assembly::new(options.push.max_blocks),
            writes: Vec::new(),
            untold: Vec::new(),
            max_untold: options.push.max_remembered,
            refused_chunks: 0,
        }
    }

    /// A reader's process has ended.
    pub(crate) fn reader_gone(&mut self, reader: &PeerId, now: Instant) {
        self.leases.reader_gone(reader, now);
        self.assembly.reader_gone(reader);
        self.push.reader_gone(reader, now);
        self.untold.retain(|resolved| resolved.id.reader != *reader);
    }

    /// Number of writes that have not settled.
    pub(crate) fn num_writes(&self) -> usize {
        self.writes.len()
    }

    pub(crate) fn completed(
        &mut self,
        link: &mut Link,
        from: &PeerId,
        request: RequestId,
        lease: LeaseId,
        reading: u64,
        now: Instant,
    ) {
        let verdict = match self.leases.complete(&request, lease, from, Reading::Pull(reading), now) {
            completion if completion.is_good() => Verdict::Good,
            Completion::Premature => Verdict::Premature,
            Completion::Late(_) => Verdict::Ended,
            _ => Verdict::Unknown,
        };
        link.tell(from, &Message::Confirmed { request, lease, reading, verdict }, now);
    }

    pub(crate) fn heartbeat(&mut self, link: &mut Link, from: &PeerId, leases: &[LeaseId], now: Instant) {
        let ended = self.leases.heartbeat(from, leases, now);
        if !ended.is_empty() {
            link.tell(from, &Message::Ended { leases: ended }, now);
        }
    }

    pub(crate) fn register(&mut self, chunk: Chunk, now: Instant, events: &mut Vec<Event<B>>) {
        let id = chunk.id.clone();
        let registration = match self.assembly.add(chunk) {
            Assembled::Partial => return,
            Assembled::Whole(registration) => registration,
            Assembled::Refused => {
                self.refused_chunks += 1;
                // Released, and told so: nothing is written for it.
                return self.push.cancel(&id, now);
            }
        };
        self.leases.expire(now);
        let lease = self.leases.lease_of(&registration.request);
        if let Admission::Met(_) = self.push.register(registration, lease, now) {
            self.met(id, now, events);
        }
    }

    pub(crate) fn cancel(&mut self, id: &PushId, now: Instant) {
        self.assembly.take(id);
        self.push.cancel(id, now);
        for write in self.writes.iter().filter(|write| write.id == *id) {
            write.moving.cancel();
        }
    }

    fn met(&mut self, id: PushId, now: Instant, events: &mut Vec<Event<B>>) {
        let Some((registration, Some(lease))) = self.push.get(&id) else { return };
        let (request, lists) = (registration.request.clone(), registration.lists.clone());
        self.leases.heartbeat(&id.reader, &[lease], now);
        events.push(Event::Push { id, request, lease, lists });
    }

    /// Writes are a sign of life of the decode workers that they go to.
    pub(crate) fn extend(&mut self, now: Instant) {
        for write in &self.writes {
            if let Some((_, Some(lease))) = self.push.get(&write.id) {
                self.leases.heartbeat(&write.id.reader, &[lease], now);
            }
        }
    }

    pub(crate) fn poll(&mut self, link: &mut Link, now: Instant, events: &mut Vec<Event<B>>) {
        self.look_at_writes(link, now, events);
        self.leases.expire(now);
        self.assembly.expire(now);
        self.push.expire(now);
        for freed in self.leases.take_freed() {
            let stopped = self.push.of_lease(freed.lease);
            self.push.lease_ended(freed.lease, now);
            for write in self.writes.iter().filter(|write| stopped.contains(&write.id)) {
                write.moving.cancel();
            }
            events.push(Event::Freed(freed));
        }
        self.untold.extend(self.push.take_resolved());
        self.untold.drain(..self.untold.len().saturating_sub(self.max_untold));
        self.untold.retain(|Resolved { id, outcome }| {
            let reservation = id.reservation;
            let message = match outcome {
                Outcome::Written => Message::Written { reservation },
                Outcome::Released => Message::Released { reservation },
            };
            // Where the way is broken, again when it has been opened anew.
            let is_broken = link.connected.contains_key(&id.reader) && !link.can_tell(&id.reader);
            is_broken || link.tell(&id.reader, &message, now) == Sent::Failed
        });
    }

    fn look_at_writes(&mut self, link: &mut Link, now: Instant, events: &mut Vec<Event<B>>) {
        let (push, leases) = (&mut self.push, &mut self.leases);
        self.writes.retain_mut(|write| {
            let Write { id, part, moving, failed } = write;
            match link.look(moving, now) {
                TransferState::InProgress => return true,
                TransferState::Done => {
                    let lease = push.get(id).and_then(|(_, lease)| lease);
                    let num_parts = lease.and_then(|lease| leases.num_parts(lease)).unwrap_or(1);
                    let request = push.get(id).map(|(registration, _)| registration.request.clone());
                    if let (Some(lease), Some(request)) = (push.landed(id, *part, num_parts, now), request) {
                        // Before blocks that this frees are given back: the lease was good until now.
                        let reading = Reading::Push(id.reservation);
                        let good = leases.complete(&request, lease, &id.reader, reading, now).is_good();
                        push.finish(id, good, now);
                    }
                }
                TransferState::Failed { cause, settled } => {
                    if !std::mem::replace(failed, true) {
                        push.stop(id, now);
                        events.push(Event::WriteFailed { id: id.clone(), part: *part, cause });
                    }
                    if settled {
                        push.settled(id, now);
                    }
                }
            }
            !moving.is_settled()
        });
    }
}

impl<B> Exchange<B> {
    /// Holds a request's blocks under a lease until `readers` different readers have completed, see
    /// [`kvplan::readers`]. The number may be set later ([`set_readers`](Self::set_readers)); until then only expiry
    /// and [`abort`](Self::abort) free the blocks. `num_parts` parts become [`ready`](Self::ready) one by one; 0 for
    /// blocks that are complete. Give readers the request, the lease, and this agent's name. Readers are told apart by
    /// the names of their agents.
    ///
    /// # Errors
    ///
    /// [`Error::RequestHeld`] while the same request has a lease; gives the blocks back.
    pub fn hold(
        &mut self,
        request: RequestId,
        blocks: B,
        readers: Option<usize>,
        num_parts: u32,
        now: Instant,
    ) -> Result<LeaseId, (Error, B)> {
        let lease = self.producer.leases.hold(request.clone(), blocks, readers, num_parts, now)?;
        // One that nobody reads has ended already.
        if self.producer.leases.is_good(lease, now) {
            for id in self.producer.push.offer(&request, lease) {
                self.producer.met(id, now, &mut self.events);
            }
        }
        Ok(lease)
    }

    /// Sets the number of readers of a lease whose number was not known, or corrects it. Whether the lease is in
    /// force; it may end by this.
    pub fn set_readers(&mut self, lease: LeaseId, readers: usize, now: Instant) -> bool {
        self.producer.leases.set_readers(lease, readers, now)
    }

    /// Says that a part of a request is computed, and returns the registrations to write it to.
    pub fn ready(&mut self, lease: LeaseId, part: u32, now: Instant) -> Vec<PushId> {
        match self.producer.leases.ready(lease, part, now) {
            true => self.producer.push.of_lease(lease),
            false => Vec::new(),
        }
    }

    /// Ends a lease at once; whether it was in force. Its blocks come with the next poll.
    pub fn abort(&mut self, lease: LeaseId, now: Instant) -> bool {
        self.producer.leases.abort(lease, now)
    }

    /// Writes a part of a request to a decode worker. `part` is 0 for a request without parts. The descriptors are
    /// those of the plan with that peer for the registration's lists, and for this part's layers; `padding_bytes` says
    /// how many of their bytes are padding. When all parts have landed and the lease is still good, the decode worker is
    /// told.
    ///
    /// # Errors
    ///
    /// [`Error::WriteRefused`], with a [`WriteRefusal`]; [`Error::WouldBlock`] when too much is in flight: try again
    /// later; [`Error::PeerNotReady`]. With what [`Agent::start`](crate::Agent::start) may say, the registration has
    /// ended, and the decode worker is told.
    pub fn write(
        &mut self,
        id: &PushId,
        part: u32,
        descriptors: &[Descriptor],
        padding_bytes: u64,
        now: Instant,
    ) -> Result<()> {
        let Producer { leases, push, writes, .. } = &mut self.producer;
        let refused = |why| Error::WriteRefused { id: id.clone(), part, why };
        let Some((registration, Some(lease))) = push.get(id) else {
            return Err(refused(WriteRefusal::NotOpen));
        };
        let (deadline, request) = (registration.deadline, registration.request.clone());
        if !leases.is_good(lease, now) {
            return Err(refused(WriteRefusal::LeaseEnded));
        }
        if !leases.is_ready(lease, part) {
            return Err(refused(WriteRefusal::NotReady));
        }
        if push.has_begun(id, part) {
            return Err(refused(WriteRefusal::Repeated));
        }
        self.link.ready(&id.reader)?;
        let mut room = self.link.agent.claim(num_bytes(descriptors), descriptors.len())?;
        if !push.begin(id, part, now) {
            return Err(refused(WriteRefusal::NotOpen));
        }
        let load = Load { op: Op::Write, request: &request, descriptors, padding_bytes, deadline };
        match self.link.start(&id.reader, &load, &mut room, now) {
            Ok(moving) => {
                writes.push(Write { id: id.clone(), part, moving, failed: false });
                Ok(())
            }
            Err(error) => {
                push.settled(id, now);
                Err(error)
            }
        }
    }

    /// The lease of a request, if one is in force.
    #[must_use]
    pub fn lease_of(&self, request: &RequestId) -> Option<LeaseId> {
        self.producer.leases.lease_of(request)
    }

    /// Whether a lease is in force.
    #[must_use]
    pub fn is_good(&self, lease: LeaseId, now: Instant) -> bool {
        self.producer.leases.is_good(lease, now)
    }
}
