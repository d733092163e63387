//! A transfer on its way: what is not posted yet, what is under way, and what failed without proof that it has settled.
//!
//! NIXL answers for a request by its last descriptor: over CMA the error of an earlier one is lost, and the request is
//! "done". The connection has failed then, which NIXL says to whoever uses it next. So a transfer ends with a request
//! that moves nothing, on each route that it took, made before its bytes were posted: a connection that was opened anew
//! meanwhile would answer for the old one. The alternatives cost more or help less: one descriptor a request takes
//! microseconds for each, and a notification needs a reader. What was measured is in `docs/settling.md`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use kvplan::Op;

use crate::batch::{Limits, Pieces, weight};
use crate::error::{Error, Result};
use crate::gate::{Gate, InUse};
use crate::host::Watch;
use crate::quarantine::{Claim, Ledger, Quarantined};
use crate::transfer::Shared;
use crate::transport::{Piece, Progress, RequestFailed, Route, TransportRequest};

/// Time between two looks at requests that may have settled since their peer is gone.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// A transfer, as the posting thread and the copy threads work on it.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) shared: Arc<Shared>,
    /// The engine's name of what the blocks belong to.
    pub(crate) request: Option<String>,
    pub(crate) op: Op,
    /// The peer's name on the transport.
    pub(crate) peer: String,
    pub(crate) incarnation: u64,
    /// The peer's process.
    pub(crate) watch: Arc<Watch>,
    /// Whether the way to the peer has failed. Threads have connections of their own, and what one of them sees closes
    /// the way for all: a caller who opens it anew does so for all.
    has_failed: Arc<AtomicBool>,
    pub(crate) limits: Limits,
    pub(crate) deadline: Option<Instant>,
    /// Whether the copy threads may carry it.
    pub(crate) is_shared: bool,
    work: Mutex<Work>,
}

/// What changes while a transfer is on its way.
#[derive(Debug)]
struct Work {
    pieces: Pieces,
    /// Taken by threads that are posting them now.
    posting: Vec<Request>,
    /// Posted and in progress.
    outstanding: Vec<Posted>,
    /// Failed with no proof that they have settled. Kept: a released request may still write.
    stuck: Vec<Posted>,
    /// Move nothing, one for each route taken: has a connection failed under a request that says that it is done?
    probes: Vec<Probe>,
    notify: Option<Vec<u8>>,
    /// When the transfer failed.
    failed: Option<Instant>,
    /// When the stuck ones were looked at.
    looked: Instant,
    /// Counted down when the transfer settles: the agent's, the peer's, those of exchanges that write.
    in_use: Vec<InUse>,
    /// Room among what is in flight, until it settles.
    claim: Option<Claim>,
    /// The copy threads have it in their queue.
    is_queued: bool,
}

/// A request that moves nothing, and is posted as often as one wants to know.
#[derive(Debug)]
struct Probe {
    copier: Option<usize>,
    request: Box<dyn TransportRequest>,
    /// A request has ended since it was posted last.
    is_due: bool,
    /// It was posted on a connection that was busy, and must not be posted again before it has ended.
    is_busy: bool,
}

impl Probe {
    /// Whether the connection has failed.
    fn ask(&mut self, route: Route<'_>) -> Result<()> {
        self.is_due = false;
        // NIXL hears of a failed connection when it makes progress; a copy thread's makes none by itself.
        if let Some(copier) = self.copier {
            route.transport.tend_copier(copier);
        }
        let asked = match self.is_busy {
            true => self.request.poll().and_then(|progress| match progress {
                Progress::InProgress => Ok(progress),
                Progress::Done => self.request.post(),
            }),
            false => self.request.post(),
        };
        let progress = asked.map_err(|RequestFailed { cause, .. }| cause)?;
        // That is no error either, and nothing lands when it is dropped.
        self.is_busy = progress == Progress::InProgress;
        Ok(())
    }
}

/// The pieces of one request. Clones are the same request.
#[derive(Clone, Debug)]
pub(crate) struct Request(Arc<Vec<Piece>>);

/// A request that a thread has taken to post.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) request: Request,
    /// Nothing is left to take.
    pub(crate) is_last: bool,
}

impl Request {
    /// How long it takes, as bytes that are copied in the same time.
    pub(crate) fn weight(&self) -> u64 {
        weight(self.0.iter().map(|piece| piece.len).sum(), self.0.len())
    }
}

/// A request that NIXL has, and what it moves.
#[derive(Debug)]
struct Posted {
    request: Box<dyn TransportRequest>,
    pieces: Request,
}

impl Work {
    /// Nothing is under way or unproven.
    fn has_settled(&self) -> bool {
        self.posting.is_empty() && self.outstanding.is_empty() && self.stuck.is_empty()
    }

    /// Requests that are being posted or in progress.
    fn under_way(&self) -> usize {
        self.posting.len() + self.outstanding.len()
    }

    /// Ends the claim on memory and peer; before the owner learns that the transfer has settled.
    fn release(&mut self) {
        self.in_use.clear();
        self.claim = None;
    }
}

/// What a transfer owns until it settles.
#[derive(Debug)]
pub(crate) struct Holdings {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) notify: Option<Vec<u8>>,
    pub(crate) in_use: Vec<InUse>,
    pub(crate) claim: Claim,
}

/// Who a transfer is with, and in whose name.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) request: Option<String>,
    pub(crate) op: Op,
    pub(crate) peer: String,
    pub(crate) incarnation: u64,
    pub(crate) watch: Arc<Watch>,
    pub(crate) has_failed: Arc<AtomicBool>,
}

impl Job {
    pub(crate) fn new(
        shared: Arc<Shared>,
        subject: Subject,
        limits: Limits,
        deadline: Option<Instant>,
        is_shared: bool,
        holdings: Holdings,
    ) -> Self {
        let Subject { request, op, peer, incarnation, watch, has_failed } = subject;
        let Holdings { pieces, notify, in_use, claim } = holdings;
        let work = Work {
            pieces: Pieces::new(pieces),
            posting: Vec::new(),
            outstanding: Vec::new(),
            stuck: Vec::new(),
            probes: Vec::new(),
            notify,
            failed: None,
            looked: shared.started,
            in_use,
            claim: Some(claim),
            is_queued: false,
        };
        Self {
            shared,
            request,
            op,
            peer,
            incarnation,
            watch,
            has_failed,
            limits,
            deadline,
            is_shared,
            work: Mutex::new(work),
        }
    }

    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn ledger(&self) -> &Ledger {
        &self.shared.ledger
    }

    /// Nothing is posted any more and nothing can land.
    pub(crate) fn is_over(&self) -> bool {
        self.shared.is_finished() && self.work().has_settled()
    }

    /// There is something to post, to poll or to end.
    pub(crate) fn needs_care(&self) -> bool {
        if !self.shared.is_finished() {
            return true;
        }
        let work = self.work();
        work.under_way() > 0 || (!work.stuck.is_empty() && self.watch.is_gone())
    }

    /// NIXL has requests of it that somebody has to poll.
    pub(crate) fn needs_polls(&self) -> bool {
        !self.work().outstanding.is_empty()
    }

    /// Whether it is to be put into the copy threads' queue: something is left for them, and they do not have it there.
    /// Who is told so puts it there.
    pub(crate) fn enter_queue(&self) -> bool {
        let mut work = self.work();
        let enters = !work.is_queued && !work.pieces.is_empty() && work.under_way() < self.limits.outstanding_requests;
        work.is_queued |= enters;
        enters
    }

    /// The copy threads have taken it out of their queue.
    pub(crate) fn leave_queue(&self) {
        self.work().is_queued = false;
    }

    /// Takes the next request, if there is one and it may be posted now. With several threads the last requests are
    /// smaller, so that all threads end at about the same time.
    pub(crate) fn take(&self, num_threads: usize) -> Option<Taken> {
        let mut work = self.work();
        let ended = self.shared.is_finished() || self.shared.standing.is_cancelled();
        if ended || work.pieces.is_empty() || work.under_way() >= self.limits.outstanding_requests {
            return None;
        }
        let mut pieces = Vec::new();
        let share = work.pieces.share(&self.limits, num_threads);
        work.pieces.take(&share, &mut pieces);
        let request = Request(Arc::new(pieces));
        work.posting.push(request.clone());
        Some(Taken { request, is_last: work.pieces.is_empty() })
    }

    /// Posts a request that was taken, and ends the transfer if it was the last.
    pub(crate) fn post(&self, request: Request, route: Route<'_>, gate: Option<&Gate>) {
        let posted = self.prepare_and_post(&request, route, gate);
        let mut work = self.work();
        work.posting.retain(|posting| !Arc::ptr_eq(&posting.0, &request.0));
        match posted {
            // It was given up meanwhile.
            Ok(None) => {}
            Ok(Some((posted, progress))) => {
                self.account(&mut work, Posted { request: posted, pieces: request }, progress)
            }
            Err(cause) => self.give_up(&mut work, cause),
        }
        if work.pieces.is_empty() {
            self.ask(&mut work, route);
        }
        self.advance(&mut work, route);
    }

    /// A copy thread turns to something else, so that its connection will be busy: asks it while it is not.
    pub(crate) fn leave(&self, route: Route<'_>) {
        let mut work = self.work();
        self.ask(&mut work, route);
    }

    /// Asks whether the connection of a route has failed, if a request has ended since it was asked.
    fn ask(&self, work: &mut Work, route: Route<'_>) {
        let due = work.probes.iter_mut().find(|probe| probe.copier == route.copier && probe.is_due);
        if let Some(Err(cause)) = due.map(|probe| probe.ask(route)) {
            self.heard(&cause, false);
            self.give_up(work, cause);
        }
    }

    /// Creates a request and posts it, unless the transfer has failed meanwhile.
    #[expect(clippy::type_complexity, reason = "a request and how its post went")]
    fn prepare_and_post(
        &self,
        request: &Request,
        route: Route<'_>,
        gate: Option<&Gate>,
    ) -> Result<Option<(Box<dyn TransportRequest>, Result<Progress, RequestFailed>)>> {
        if self.has_failed.load(Ordering::Acquire) {
            return Err(Error::WayFailed { peer: self.shared.peer.clone() });
        }
        let start = Instant::now();
        let mut made = route.request(self.op, &self.peer, &request.0)?;
        let probe = self.probe(request, route)?;
        let prepared = Instant::now();
        let posting = match gate {
            Some(gate) if gate.is_wanted() => {
                give_way(gate);
                Instant::now()
            }
            _ => prepared,
        };
        if self.shared.is_finished() {
            return Ok(None);
        }
        let posted = made.post();
        self.shared.count_request(prepared - start, posting.elapsed());
        if let Some(mut probe) = probe {
            probe.is_due = true;
            self.work().probes.push(probe);
        }
        Ok(Some((made, posted)))
    }

    /// Takes the probe of a route, for a request whose last descriptor does not speak for all.
    fn probe(&self, request: &Request, route: Route<'_>) -> Result<Option<Probe>> {
        let [_, .., last] = request.0[..] else { return Ok(None) };
        let mut work = self.work();
        if let Some(index) = work.probes.iter().position(|probe| probe.copier == route.copier) {
            return Ok(Some(work.probes.swap_remove(index)));
        }
        drop(work);
        let request = route.request(self.op, &self.peer, &[Piece { len: 0, ..last }])?;
        Ok(Some(Probe { copier: route.copier, request, is_due: false, is_busy: false }))
    }

    /// Polls what is in progress, and ends the transfer when it is time: done, cancelled, stopping, too late. Says
    /// whether anything changed.
    pub(crate) fn look_after(&self, route: Route<'_>, stopping: bool) -> bool {
        let mut work = self.work();
        let work = &mut *work;
        let before = (work.outstanding.len(), work.stuck.len());
        self.poll(work);
        self.look(work);
        let mut moved = (work.outstanding.len(), work.stuck.len()) != before;
        if self.shared.is_finished() {
            work.pieces.clear();
        } else if let Some(cause) = self.reason_to_end(route, stopping) {
            self.give_up(work, cause);
            moved = true;
        }
        if moved || work.pieces.is_empty() {
            self.advance(work, route);
        }
        moved
    }

    fn reason_to_end(&self, route: Route<'_>, stopping: bool) -> Option<Error> {
        if self.shared.standing.is_cancelled() {
            return Some(Error::Cancelled);
        }
        if stopping {
            return Some(Error::ShutDown { agent: route.transport.name().to_owned() });
        }
        let Shared { id, peer, started, .. } = &*self.shared;
        let is_late = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        is_late.then(|| Error::Deadline { transfer: *id, peer: peer.clone(), waited: started.elapsed() })
    }

    /// Ends it since the thread is no more. Without proof, the memory under it stays in use.
    pub(crate) fn abandon(&self, agent: &str, panicked: bool) {
        let mut work = self.work();
        // A panic may have lost a request.
        let settled = !panicked && work.has_settled();
        if settled {
            work.release();
        }
        self.shared.fail(Arc::new(Error::ShutDown { agent: agent.to_owned() }), settled);
    }

    /// Completes the transfer or lets it settle, if it is time.
    fn advance(&self, work: &mut Work, route: Route<'_>) {
        if !self.shared.is_finished() && work.pieces.is_empty() && work.under_way() == 0 {
            self.complete(work, route);
        }
        if !self.shared.is_finished() {
            return;
        }
        if work.has_settled() {
            work.release();
            self.ledger().settle(self.shared.id);
            // Last: who is told finds it neither counted nor in quarantine.
            self.shared.settle();
        } else if let Some(cause) = self.shared.cause() {
            self.quarantine(work, cause);
        }
    }

    /// Everything is in place, unless a connection has failed: tells the peer, then the owner.
    fn complete(&self, work: &mut Work, route: Route<'_>) {
        // Those that the copy threads have not asked themselves.
        while let Some(mut probe) = work.probes.pop() {
            if probe.is_due
                && let Err(cause) = probe.ask(route)
            {
                self.heard(&cause, false);
                return self.give_up(work, cause);
            }
        }
        let notified = match work.notify.take() {
            Some(message) => {
                let sent = route.transport.notify(&self.peer, &message);
                self.ledger().recorder.notified(sent.is_ok());
                sent
            }
            None => Ok(()),
        };
        work.release();
        self.shared.complete(notified);
    }

    fn poll(&self, work: &mut Work) {
        let mut index = 0;
        // One by one: when a request fails, the others still count as in progress.
        while let Some(posted) = work.outstanding.get_mut(index) {
            match posted.request.poll() {
                Ok(Progress::InProgress) => index += 1,
                ended => {
                    let posted = work.outstanding.remove(index);
                    self.account(work, posted, ended);
                }
            }
        }
    }

    /// Drops stuck requests that nobody is left to complete.
    fn look(&self, work: &mut Work) {
        if work.stuck.is_empty() || work.looked.elapsed() < LOOK {
            return;
        }
        work.looked = Instant::now();
        if self.watch.is_gone() {
            work.stuck.retain_mut(|posted| !posted.request.settled_without_peer());
        }
    }

    fn account(&self, work: &mut Work, posted: Posted, progress: Result<Progress, RequestFailed>) {
        match progress {
            Ok(Progress::Done) => {}
            Ok(Progress::InProgress) => work.outstanding.push(posted),
            Err(RequestFailed { cause, settled }) => {
                self.heard(&cause, settled);
                if !settled {
                    work.stuck.push(posted);
                }
                self.give_up(work, cause);
            }
        }
    }

    /// An error after the post closes the connection.
    fn heard(&self, cause: &Error, settled: bool) {
        if !settled && matches!(cause, Error::Nixl { .. }) {
            self.has_failed.store(true, Ordering::Release);
        }
    }

    fn give_up(&self, work: &mut Work, cause: Error) {
        work.pieces.clear();
        let settled = work.has_settled();
        let cause = Arc::new(cause);
        if settled {
            work.release();
        } else {
            // Before the owner learns of the failure: then the list is complete.
            self.quarantine(work, self.shared.cause().unwrap_or_else(|| cause.clone()));
        }
        self.shared.fail(cause, settled);
    }

    /// Lists what may still land for a transfer that has failed.
    fn quarantine(&self, work: &mut Work, cause: Arc<Error>) {
        let unsettled = work.outstanding.iter().chain(&work.stuck).map(|posted| &posted.pieces).chain(&work.posting);
        let pieces: Vec<Piece> = unsettled.flat_map(|request| &*request.0).copied().collect();
        let entry = Quarantined {
            transfer: self.shared.id,
            request: self.request.clone(),
            peer: self.shared.peer.clone(),
            incarnation: self.incarnation,
            op: self.op,
            cause,
            since: *work.failed.get_or_insert_with(Instant::now),
            in_progress: work.under_way(),
            unproven: work.stuck.len(),
            pieces,
        };
        if let Some(claim) = &mut work.claim {
            claim.shrink(entry.bytes(), entry.pieces.len());
        }
        self.ledger().quarantine(entry);
    }
}

/// Lets callers go first, for at most a millisecond: they must not starve transfers either.
fn give_way(gate: &Gate) {
    let start = Instant::now();
    while gate.is_wanted() && start.elapsed() < Duration::from_millis(1) {
        thread::yield_now();
    }
}
