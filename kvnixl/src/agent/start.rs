//! How a transfer starts.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use kvplan::{Descriptor, Descriptors, Op};
use kvspec::MemKind;

use super::Agent;
use crate::batch::{num_bytes, weight};
use crate::error::{Error, Result};
use crate::gate::InUse;
use crate::host::Locality;
use crate::job::{Holdings, Job, Subject};
use crate::memory;
use crate::notify;
use crate::peer::Peer;
use crate::quarantine::Claim;
use crate::state::TransferStats;
use crate::transfer::{Shared, Transfer, TransferOptions};
use crate::transport::Route;

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
        in_use.append(&mut ranges.use_for(descriptors));
        if is_of_exchange && op == Op::Write {
            in_use.push(InUse::new(&self.exchange_writes));
        }
        // A copy within this host costs a core; RDMA and devices do that by themselves.
        let weight = weight(bytes, pieces.len());
        let is_shared = weight >= limits.shared_weight
            && *peer.locality() == Locality::SameHost
            && pieces.iter().all(|piece| (piece.local_mem, piece.remote_mem) == (MemKind::Dram, MemKind::Dram));
        if !is_shared {
            in_use.push(InUse::new(&self.unshared));
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
        let subject = Subject {
            request,
            op,
            peer: peer.inner.transport_name.clone(),
            incarnation: peer.incarnation(),
            watch: peer.inner.watch.clone(),
            has_failed: peer.inner.has_failed.clone(),
        };
        // A deadline beyond the clock's range is none.
        let deadline = deadline.and_then(|deadline| shared.started.checked_add(deadline));
        let holdings = Holdings { pieces, notify, in_use, claim };
        let job = Arc::new(Job::new(shared.clone(), subject, limits, deadline, is_shared, holdings));
        // The posting thread is not at it: what the copy threads carry is not in the way.
        let is_inline = weight <= limits.inline_weight && self.unshared.load(Ordering::Acquire) <= 1;
        let submitted = if is_inline && self.post_here(&job)? { Ok(()) } else { self.poster().submit(job, &self.name) };
        if let Err(error) = submitted {
            shared.refuse();
            return Err(error);
        }
        Ok(Transfer { shared })
    }

    /// Posts all of a small transfer in this thread. Whether it is over; else somebody has to look after it.
    fn post_here(&self, job: &Arc<Job>) -> Result<bool> {
        self.poster().check(&self.name).inspect_err(|_| job.shared.refuse())?;
        let route = Route { transport: &**self.transport()?, copier: None };
        let post = || {
            // It may be too late already, or move nothing.
            job.look_after(route, false);
            while let Some(taken) = job.take(1) {
                job.post(taken.request, route, None);
            }
        };
        match catch_unwind(AssertUnwindSafe(post)) {
            Ok(()) => Ok(job.is_over()),
            Err(_) => {
                tracing::error!("a post panicked; this is a bug");
                job.abandon(&self.name, true);
                // Never settled: the memory under it stays in use for ever.
                std::mem::forget(job.clone());
                Err(Error::NoThread { why: "a post panicked; this is a bug".to_owned() })
            }
        }
    }
}
