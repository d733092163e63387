//! How a transfer starts.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use kvplan::{Descriptor, Descriptors, Op};

use super::Agent;
use crate::batch::{Pieces, num_bytes};
use crate::error::{Error, Result};
use crate::gate::InUse;
use crate::memory;
use crate::notify;
use crate::peer::Peer;
use crate::poster::Job;
use crate::quarantine::Claim;
use crate::state::TransferStats;
use crate::transfer::{Shared, Transfer, TransferOptions};

impl Agent {
    /// Starts moving the descriptors of a plan: [`Op::Read`] from the peer, [`Op::Write`] to it. An empty list is
    /// done at once (and notifies).
    ///
    /// Every descriptor is checked against what is registered on both sides before NIXL sees any of them.
    ///
    /// # Errors
    ///
    /// [`OutOfRange`](crate::Error::OutOfRange), [`NotificationTooLong`](crate::Error::NotificationTooLong),
    /// [`ZeroLimit`](crate::Error::ZeroLimit), [`NotRegistered`](crate::Error::NotRegistered),
    /// [`PeerGone`](crate::Error::PeerGone), [`ShutDown`](crate::Error::ShutDown);
    /// [`WouldBlock`](crate::Error::WouldBlock) when too much is in flight, see
    /// [`Limits::in_flight_bytes`](crate::Limits::in_flight_bytes); nothing has been posted then.
    pub fn start(&self, peer: &Peer, op: Op, descriptors: &[Descriptor], options: TransferOptions) -> Result<Transfer> {
        self.start_in(None, peer, op, descriptors, options)
    }

    /// Starts moving what a plan has answered, in the direction of its request. Otherwise as [`Agent::start`]; the
    /// answer says how many bytes are padding.
    ///
    /// # Errors
    ///
    /// [`WrongAnswer`](crate::Error::WrongAnswer) for an answer of a plan that is not between this worker and this
    /// peer: its bytes would go to wrong places. Those of [`Agent::start`].
    pub fn start_answer(&self, peer: &Peer, answer: &Descriptors, options: TransferOptions) -> Result<Transfer> {
        let op = self.check_answer(peer, answer)?;
        let options = TransferOptions { padding_bytes: answer.padding_bytes(), ..options };
        self.start(peer, op, answer.as_slice(), options)
    }

    /// The direction of an answer of a plan between this worker and this peer.
    ///
    /// # Errors
    ///
    /// [`WrongAnswer`](crate::Error::WrongAnswer), [`NotRegistered`](crate::Error::NotRegistered).
    pub fn check_answer(&self, peer: &Peer, answer: &Descriptors) -> Result<Op> {
        let memory = self.memory();
        let (local, _) = self.registered(&memory)?;
        let wrong = |source| Error::WrongAnswer { peer: peer.name().to_owned(), source };
        answer.op_between(local, peer.layout()).map_err(wrong)
    }

    /// Claims room for transfers that are to start together, see [`Agent::start_in`].
    pub(crate) fn claim(&self, bytes: u64, descriptors: usize) -> Result<Claim> {
        self.ledger.claim(&self.limits, bytes, descriptors)
    }

    /// As [`Agent::start`], in room that was claimed before: only exchanges do that.
    pub(crate) fn start_in(
        &self,
        room: Option<&mut Claim>,
        peer: &Peer,
        op: Op,
        descriptors: &[Descriptor],
        options: TransferOptions,
    ) -> Result<Transfer> {
        let TransferOptions { notify, deadline, limits, request, padding_bytes } = options;
        if let Some(message) = &notify {
            notify::check_length(message)?;
        }
        let limits = limits.unwrap_or(self.limits);
        limits.check()?;
        // Held until the transfer is counted: memory is not deregistered meanwhile.
        let memory = self.memory();
        let (_, ranges) = self.registered(&memory)?;
        let pieces = memory::pieces(descriptors, ranges, &peer.inner.ranges)?;
        let bytes = num_bytes(descriptors);
        let is_of_exchange = room.is_some();
        let claim = match room {
            Some(room) => room.take(bytes, pieces.len()),
            None => self.claim(bytes, pieces.len())?,
        };
        let mut in_use = {
            let peers = self.peers();
            peers.check(peer)?;
            vec![InUse::new(&self.unsettled), InUse::new(&peer.inner.unsettled)]
        };
        if is_of_exchange && op == Op::Write {
            in_use.push(InUse::new(&self.exchange_writes));
        }
        let id = self.next_transfer.fetch_add(1, Ordering::Relaxed);
        let span = tracing::debug_span!(
            "transfer",
            agent = %self.name,
            transfer = id,
            request = request.as_deref(),
            peer = peer.name(),
            incarnation = peer.incarnation(),
            ?op,
        );
        span.in_scope(|| tracing::debug!(bytes, descriptors = descriptors.len(), "transfer started"));
        let stats = TransferStats { bytes, padding_bytes, descriptors: descriptors.len(), ..TransferStats::default() };
        let shared =
            Arc::new(Shared::new(id, peer.name().to_owned(), stats, span, self.ledger.clone(), self.wake.clone()));
        let job = Job {
            shared: shared.clone(),
            request,
            op,
            peer: peer.inner.transport_name.clone(),
            incarnation: peer.incarnation(),
            watch: peer.inner.watch.clone(),
            pieces: Pieces::new(pieces),
            limits,
            notify,
            // A deadline beyond the clock's range is none.
            deadline: deadline.and_then(|deadline| shared.started.checked_add(deadline)),
            outstanding: Vec::new(),
            stuck: Vec::new(),
            probe: None,
            failed: None,
            looked: shared.started,
            in_use,
            claim: Some(claim),
        };
        if let Err(error) = self.poster().submit(job, &self.name) {
            shared.refuse();
            return Err(error);
        }
        Ok(Transfer { shared })
    }
}
