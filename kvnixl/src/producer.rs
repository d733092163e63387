//! The producer's side of an exchange: leases, and writes to decode workers.

use std::sync::Arc;
use std::time::Instant;

use kvplan::{AnswerError, BlockList, Descriptor, Descriptors, Op, Request, SomeLayers};
use kvspec::{BlockId, GroupId, LayerIndex};

use crate::batch::num_bytes;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::exchange::{Exchange, ExchangeOptions};
use crate::lease::{
    Admission, Assembled, Assembly, Chunk, Completion, LeaseBook, LeaseId, Numbers, Outcome, PeerId, PushBook, PushId,
    Reading, RequestId, Resolved,
};
use crate::link::{Link, Load, Moving};
use crate::message::{Message, NotWritten, Verdict};
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
    /// The answer is for other blocks than the decode worker reserved; they may be another request's.
    #[error("block {block} of group {group} at list index {index} was not reserved there{}; answer for the lists of its registration", shown(*reserved))]
    NotReserved {
        /// The decode worker's group.
        group: GroupId,
        /// List index.
        index: u64,
        /// The block that the answer is for.
        block: BlockId,
        /// The block that was reserved at this index, if any was.
        reserved: Option<BlockId>,
    },
    /// Never: the decode worker would take some layers for the whole request. Layers are those of this worker's spec.
    #[error(
        "every part would be written with it, and none was for layer {} of this worker's spec; write that with one of \
         the parts", layer.0
    )]
    LayerMissing {
        /// The first layer that no part was for.
        layer: LayerIndex,
    },
}

fn shown(reserved: Option<BlockId>) -> String {
    match reserved {
        Some(block) if block.is_hole() => ", where the list has a hole".to_owned(),
        Some(block) => format!(", where block {block} was"),
        None => String::new(),
    }
}

/// Compares what an answer writes with what was reserved: a slice of each list, at its place.
fn check_reserved(reserved: &[BlockList], written: &[BlockList]) -> Result<(), WriteRefusal> {
    for list in written {
        let group = list.group;
        for (&block, skip) in list.blocks.iter().zip(0_u64..) {
            // What is beyond the range is nowhere reserved.
            let index = list.start().saturating_add(skip);
            let at = |reserved: &BlockList| {
                let at = usize::try_from(index.checked_sub(reserved.start())?).ok()?;
                reserved.blocks.get(at).copied()
            };
            let there = reserved.iter().filter(|reserved| reserved.group == group).find_map(at);
            if !block.is_hole() && there != Some(block) {
                return Err(WriteRefusal::NotReserved { group, index, block, reserved: there });
            }
        }
    }
    Ok(())
}

#[derive(Debug)]
pub(crate) struct Producer<B> {
    pub(crate) leases: LeaseBook<B>,
    pub(crate) push: PushBook,
    assembly: Assembly,
    writes: Vec<Write>,
    pub(crate) refused_chunks: u64,
}

impl<B> Producer<B> {
    pub(crate) fn new(options: &ExchangeOptions, numbers: Numbers) -> Self {
        Self {
            leases: LeaseBook::new(options.lease.clone(), numbers),
            push: PushBook::new(options.push.clone()),
            assembly: Assembly::new(options.push.max_blocks),
            writes: Vec::new(),
            refused_chunks: 0,
        }
    }

    /// A reader's process has ended.
    pub(crate) fn reader_gone(&mut self, reader: &PeerId, now: Instant) {
        self.leases.reader_gone(reader, now);
        self.assembly.reader_gone(reader);
        self.push.reader_gone(reader, now);
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

    /// Whether the chunk need not come again.
    pub(crate) fn register(&mut self, chunk: Chunk, now: Instant, events: &mut Vec<Event<B>>) -> bool {
        let id = chunk.id.clone();
        // The first of several comes again when the others have made it whole.
        if self.push.knows(&id) && !chunk.last {
            return true;
        }
        let added = self.assembly.add(chunk, now);
        self.drop_partial(now);
        let registration = match added {
            Assembled::Partial => return true,
            Assembled::Early => return self.push.knows(&id),
            Assembled::Whole(registration) => registration,
            Assembled::Refused => {
                self.refused_chunks += 1;
                // Released, and told so: nothing is written for it.
                self.push.refuse(&id, NotWritten::Unfit, now);
                return true;
            }
        };
        self.leases.expire(now);
        let lease = self.leases.lease_of(&registration.request);
        if let Admission::Met(_) = self.push.register(registration, lease, now) {
            self.met(id, now, events);
        }
        true
    }

    /// The decode worker takes a registration back, or asks what became of it; it wants the request no more.
    pub(crate) fn cancel(&mut self, id: &PushId, now: Instant, events: &mut Vec<Event<B>>) {
        let lease = self.push.get(id).and_then(|(_, lease)| lease);
        self.stop(id, NotWritten::Cancelled, now);
        if let Some(lease) = lease {
            self.given_up(&id.reader, lease, now, events);
        }
    }

    /// A reader wants nothing more under a lease.
    pub(crate) fn given_up(&mut self, reader: &PeerId, lease: LeaseId, now: Instant, events: &mut Vec<Event<B>>) {
        if let Some(request) = self.leases.give_up(lease, reader, now) {
            events.push(Event::GivenUp { request, lease, reader: reader.clone() });
        }
    }

    /// Nothing more is written for a registration. What is posted is given up as far as it can be.
    fn stop(&mut self, id: &PushId, why: NotWritten, now: Instant) {
        self.assembly.forget(id);
        self.push.refuse(id, why, now);
        for write in self.writes.iter().filter(|write| write.id == *id) {
            write.moving.cancel();
        }
    }

    /// Registrations that arrived in part and made room, or of which no more came: their readers are told.
    fn drop_partial(&mut self, now: Instant) {
        for id in self.assembly.take_dropped() {
            self.refused_chunks += 1;
            self.push.refuse(&id, NotWritten::Unfit, now);
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
        self.drop_partial(now);
        self.push.expire(now);
        for freed in self.leases.take_freed() {
            let stopped = self.push.of_lease(freed.lease);
            self.push.lease_ended(freed.lease, now);
            for write in self.writes.iter().filter(|write| stopped.contains(&write.id)) {
                write.moving.cancel();
            }
            events.push(Event::Freed(freed));
        }
        for (PushId { reader, reservation }, why) in self.push.take_failing() {
            link.notice(&reader, &Message::Failed { reservation, why }, now);
        }
        for Resolved { id: PushId { reader, reservation }, outcome } in self.push.take_resolved() {
            let message = match outcome {
                Outcome::Written => Message::Written { reservation },
                Outcome::Released(why) => Message::Released { reservation, why },
            };
            link.notice(&reader, &message, now);
        }
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
                    let why = NotWritten::Transfer(cause.to_string());
                    if !std::mem::replace(failed, true) {
                        push.stop(id, why.clone(), now);
                        events.push(Event::WriteFailed { id: id.clone(), part: *part, cause });
                    }
                    if settled {
                        push.settled(id, why, now);
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
    /// blocks that are complete. Give readers the request, the lease, and this agent's name. Readers are agents, told
    /// apart by their names: one that reads twice counts once. Let a part end where one of this worker's blocks ends: a
    /// block that is half computed belongs to the next part, since a part is written once.
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

    /// Refuses a registration, with a reason for the decode worker: nothing is written for it, and the share of its
    /// reader counts as done. The lease goes on for its other readers. Whether there was something to refuse.
    ///
    /// The reason is for people; at most [`MAX_REASON_BYTES`](crate::MAX_REASON_BYTES) of it are sent.
    pub fn refuse(&mut self, id: &PushId, reason: impl Into<String>, now: Instant) -> bool {
        let Some((_, lease)) = self.producer.push.get(id) else { return false };
        self.producer.stop(id, NotWritten::Refused(reason.into()), now);
        if let Some(lease) = lease {
            self.producer.leases.give_up(lease, &id.reader, now);
        }
        true
    }

    /// Ends a lease at once; whether it was in force. Its blocks come with the next poll.
    pub fn abort(&mut self, lease: LeaseId, now: Instant) -> bool {
        self.producer.leases.abort(lease, now)
    }

    /// Writes a part of a request to a decode worker: what the plan with that peer has answered for this request, whose
    /// remote lists are slices of the registration's. `part` is 0 for a request without parts. When all parts have landed
    /// and the lease is still good, the decode worker is told. Where answers are for [some layers](kvplan::Layers) each,
    /// those of all parts together have to be for every layer of the plan.
    ///
    /// # Errors
    ///
    /// [`WriteRefusal::NotReserved`], and [`WriteRefusal::LayerMissing`] for the last part while a layer would be in none:
    /// the registration is as it was. [`Error::WrongAnswer`] for an answer of a read, or of a plan that is not with this
    /// peer; those of [`write`](Self::write).
    pub fn write_answer(
        &mut self,
        id: &PushId,
        part: u32,
        request: &Request,
        answer: &Descriptors,
        now: Instant,
    ) -> Result<()> {
        if let Some(peer) = self.peer(&id.reader) {
            let op = self.link.agent.check_answer(peer, answer)?;
            if op != Op::Write {
                let source = AnswerError::Direction { op };
                return Err(Error::WrongAnswer { peer: peer.name().to_owned(), source });
            }
        }
        if let Some((registration, _)) = self.producer.push.get(id) {
            let refused = |why| Error::WriteRefused { id: id.clone(), part, why };
            check_reserved(&registration.lists, &request.remote).map_err(refused)?;
        }
        self.write_layers(id, part, (answer.as_slice(), answer.padding_bytes()), answer.some_layers(), now)
    }

    /// Writes a part of a request to a decode worker, as [`write_answer`](Self::write_answer) does, for an engine that
    /// has only descriptors: nothing compares them with the blocks that were reserved. They are those of the plan with
    /// that peer for the registration's lists, and for this part; `padding_bytes` says how many of their bytes are
    /// padding.
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
        self.write_layers(id, part, (descriptors, padding_bytes), None, now)
    }

    fn write_layers(
        &mut self,
        id: &PushId,
        part: u32,
        (descriptors, padding_bytes): (&[Descriptor], u64),
        layers: Option<&Arc<SomeLayers>>,
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
        if let Some(layer) = push.missing_with(id, leases.num_parts(lease).unwrap_or(1), layers) {
            return Err(refused(WriteRefusal::LayerMissing { layer }));
        }
        self.link.ready(&id.reader)?;
        let mut room = self.link.agent.claim(num_bytes(descriptors), descriptors.len())?;
        if !push.begin(id, part, layers, now) {
            return Err(refused(WriteRefusal::NotOpen));
        }
        let load = Load { op: Op::Write, request: &request, descriptors, padding_bytes, deadline };
        match self.link.start(&id.reader, &load, &mut room, now) {
            Ok(moving) => {
                writes.push(Write { id: id.clone(), part, moving, failed: false });
                Ok(())
            }
            Err(error) => {
                push.settled(id, NotWritten::Transfer(error.to_string()), now);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn list(group: u32, first: u64, blocks: &[u32]) -> BlockList {
        BlockList { group: GroupId(group), first: Some(first), blocks: blocks.iter().copied().map(BlockId).collect() }
    }

    #[test]
    fn an_answer_for_slices_of_what_was_reserved_fits_and_any_other_block_is_named() {
        let reserved = [list(0, 4, &[1, 2, u32::MAX, 3]), list(2, 0, &[9])];
        for good in [
            vec![],
            vec![list(0, 4, &[1, 2])],
            vec![list(0, 5, &[2, u32::MAX, 3])],
            vec![list(0, 4, &[u32::MAX, 2]), list(2, 0, &[9])],
            // Holes are nobody's blocks.
            vec![list(1, 0, &[u32::MAX])],
        ] {
            assert_eq!(check_reserved(&reserved, &good), Ok(()), "{good:?}");
        }
        for (bad, index, block, there) in [
            (list(0, 4, &[7]), 4, 7, Some(1)),
            (list(0, 4, &[2]), 4, 2, Some(1)),
            (list(0, 6, &[5]), 6, 5, Some(u32::MAX)),
            (list(0, 3, &[1]), 3, 1, None),
            (list(0, 7, &[3, 1]), 8, 1, None),
            (list(0, u64::MAX, &[1]), u64::MAX, 1, None),
            (list(1, 0, &[9]), 0, 9, None),
        ] {
            let group = bad.group;
            let (block, reserved_there) = (BlockId(block), there.map(BlockId));
            let why = WriteRefusal::NotReserved { group, index, block, reserved: reserved_there };
            assert_eq!(check_reserved(&reserved, std::slice::from_ref(&bad)), Err(why), "{bad:?}");
        }
    }
}
