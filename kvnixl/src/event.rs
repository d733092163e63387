//! What an exchange tells its engine.

use std::sync::Arc;

use kvplan::BlockList;

use crate::error::Error;
use crate::lease::{ArrivalFailed, Freed, LeaseId, PeerId, PushId, RequestId, ReservationId};
use crate::message::Verdict;
use crate::notify::Notification;

/// Number of a pull at its exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PullId(pub u64);

/// Something that happened since the engine last asked.
///
/// Every pull and every reservation ends once: as `Pulled` or `PullFailed`, as `Arrived` or `ArrivalFailed`. After a
/// failure its blocks follow in `Returned…`, when nothing can be written into them any more; until then they are in
/// quarantine.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<B> {
    /// Producer: source blocks are the engine's again.
    Freed(Freed<B>),
    /// Producer: a decode worker wants a request that has a lease. Write the parts that are ready
    /// ([`Exchange::write`](crate::Exchange::write)), and the others as they become so.
    Push {
        /// The registration.
        id: PushId,
        /// The request.
        request: RequestId,
        /// Its lease.
        lease: LeaseId,
        /// The decode worker's blocks.
        lists: Vec<BlockList>,
    },
    /// Producer: a write has failed. The decode worker is told at once, and again when it has settled.
    WriteFailed {
        /// The registration.
        id: PushId,
        /// The part.
        part: u32,
        /// Why.
        cause: Arc<Error>,
    },
    /// Producer: a reader wants a request no more. Its share counts as done; [`Freed`](Self::Freed) follows when nobody
    /// else is waited for and all parts are ready, so an engine that still computes them may stop and
    /// [abort](crate::Exchange::abort).
    GivenUp {
        /// The request.
        request: RequestId,
        /// Its lease.
        lease: LeaseId,
        /// The reader.
        reader: PeerId,
    },

    /// Consumer: every byte is in place, and every producer has confirmed that its lease was good.
    Pulled {
        /// The pull.
        id: PullId,
        /// The destination blocks.
        blocks: B,
    },
    /// Consumer: the bytes cannot be used.
    PullFailed {
        /// The pull.
        id: PullId,
        /// Why.
        why: PullFailed,
    },
    /// Consumer: destination blocks of a pull that failed; it has settled.
    ReturnedPull {
        /// The pull.
        id: PullId,
        /// The blocks, with any bytes.
        blocks: B,
    },
    /// Consumer: every writer has written everything.
    Arrived {
        /// The reservation.
        id: ReservationId,
        /// The destination blocks.
        blocks: B,
    },
    /// Consumer: the bytes will not be right.
    ArrivalFailed {
        /// The reservation.
        id: ReservationId,
        /// Why.
        why: ArrivalFailed,
    },
    /// Consumer: destination blocks of a reservation that failed; no writer touches them any more.
    ReturnedReservation {
        /// The reservation.
        id: ReservationId,
        /// The blocks, with any bytes.
        blocks: B,
    },

    /// A peer cannot be reached: fetch its blob again when [`Exchange::want`](crate::Exchange::want) says so.
    PeerLost(PeerId),
    /// Another process has a peer's name.
    PeerReplaced {
        /// Who was there.
        old: PeerId,
        /// Who is there now.
        new: PeerId,
    },
    /// A peer has registered its memory anew, or is about to take it away: its blob is of no use any more.
    PeerStale(PeerId),
    /// A peer was let go: nothing had been done with it for long, or it was asked for.
    PeerReleased(PeerId),
    /// No peer that this agent has connected touches its memory any more: it may be deregistered.
    Withdrawn,
    /// A notification that is the engine's own.
    Notification(Notification),
}

/// Why pulled bytes cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PullFailed {
    /// The lease was not good when the last byte had been read.
    #[error("request {request}: the lease {lease} of {peer} {verdict}; the bytes must not be used")]
    LeaseEnded {
        /// The request.
        request: RequestId,
        /// The lease.
        lease: LeaseId,
        /// The producer.
        peer: PeerId,
        /// What the producer says.
        verdict: Verdict,
    },
    /// The producer had not computed all of it. Its lease goes on: pull again when it says that all parts are ready.
    #[error("request {request}: not all parts of the lease {lease} of {peer} are ready; pull again when they are")]
    NotReady {
        /// The request.
        request: RequestId,
        /// The lease.
        lease: LeaseId,
        /// The producer.
        peer: PeerId,
    },
    /// It did not end in time.
    #[error("it did not end in time; {reading} parts were being read and {unconfirmed} not confirmed")]
    Deadline {
        /// Parts whose transfer had not ended.
        reading: usize,
        /// Parts that were read and that the producer had not confirmed.
        unconfirmed: usize,
    },
    /// Bytes could not be read.
    #[error("reading from {peer} failed")]
    Transfer {
        /// The producer.
        peer: PeerId,
        /// Why.
        source: Arc<Error>,
    },
    /// The producer cannot be told or asked.
    #[error("{0} cannot be reached to confirm its lease")]
    Unreachable(PeerId),
    /// The engine no longer wants it.
    #[error("it was cancelled")]
    Cancelled,
}
