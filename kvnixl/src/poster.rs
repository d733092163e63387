//! The posting thread: one for each agent, the only one that posts and polls requests.
//!
//! A NIXL post may copy everything before it returns, and `nixl-sys` holds a lock meanwhile. So posting has a
//! thread of its own, transfers take turns request by request, and a caller that wants to send or receive a
//! notification goes first (see [`Gate`]).
//!
//! NIXL answers for a request by its last descriptor: over CMA the error of an earlier one is lost, and the request is
//! "done". The connection has failed then, which NIXL says to whoever uses it next. So a transfer ends with a request
//! that moves nothing, made before its bytes were posted, or a connection that was opened anew meanwhile would answer
//! for the old one. The alternatives cost more or help less: one descriptor a request takes microseconds for each, and
//! a notification needs a reader. What was measured is in `docs/settling.md`.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use kvplan::Op;

use crate::batch::{Limits, Pieces};
use crate::error::{Error, Result};
use crate::gate::{Gate, InUse};
use crate::host::Watch;
use crate::inbox::{Inbox, Pause, Refused};
use crate::quarantine::{Claim, Ledger, Quarantined};
use crate::transfer::Shared;
use crate::transport::{Piece, Progress, RequestFailed, Transport, TransportRequest};
use crate::wake::Wake;

/// A transfer, as the thread works on it.
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
    pub(crate) pieces: Pieces,
    pub(crate) limits: Limits,
    pub(crate) notify: Option<Vec<u8>>,
    pub(crate) deadline: Option<Instant>,
    /// Posted and in progress.
    pub(crate) outstanding: Vec<Posted>,
    /// Failed with no proof that they have settled. Kept: a released request may still write.
    pub(crate) stuck: Vec<Posted>,
    /// Moves nothing: whether the connection has failed under a request that says that it is done.
    pub(crate) probe: Option<Box<dyn TransportRequest>>,
    /// When the transfer failed.
    pub(crate) failed: Option<Instant>,
    /// When the stuck ones were looked at.
    pub(crate) looked: Instant,
    /// Counted down when the transfer settles: the agent's, the peer's, those of exchanges that write.
    pub(crate) in_use: Vec<InUse>,
    /// Room among what is in flight, until it settles.
    pub(crate) claim: Option<Claim>,
}

/// A request that NIXL has, and what it moves.
#[derive(Debug)]
pub(crate) struct Posted {
    request: Box<dyn TransportRequest>,
    pieces: Vec<Piece>,
}

/// Time between two looks at requests that may have settled since their peer is gone.
const LOOK: Duration = Duration::from_millis(20);

/// The thread's handle.
#[derive(Debug)]
pub(crate) struct Poster {
    inbox: Arc<Inbox<Job>>,
    thread: Option<JoinHandle<usize>>,
}

impl Poster {
    pub(crate) fn start(name: &str, transport: Arc<dyn Transport>, gate: Arc<Gate>, wake: Arc<Wake>) -> Result<Self> {
        let inbox = Arc::new(Inbox::new());
        let worker = Worker { inbox: inbox.clone(), transport, gate, wake, request: Vec::new() };
        let thread = thread::Builder::new()
            .name(format!("kvnixl-{name}"))
            .spawn(move || worker.run())
            .map_err(|error| Error::NoThread { why: error.to_string() })?;
        Ok(Self { inbox, thread: Some(thread) })
    }

    pub(crate) fn submit(&self, job: Job, agent: &str) -> Result<()> {
        self.inbox.push(job).map_err(|refused| match refused {
            Refused::Closed(why) => Error::NoThread { why: why.to_owned() },
            Refused::Stopping => Error::ShutDown { agent: agent.to_owned() },
        })
    }

    /// Has the thread look around: how long it may sleep has changed.
    pub(crate) fn rouse(&self) {
        self.inbox.rouse();
    }

    /// Posts nothing more, waits for what is in progress until `deadline`, ends the thread and returns how many
    /// transfers have not settled. Their requests are never released.
    pub(crate) fn stop(&mut self, deadline: Instant) -> usize {
        let Some(thread) = self.thread.take() else { return 0 };
        self.inbox.stop(deadline);
        thread.join().unwrap_or(0)
    }
}

struct Worker {
    inbox: Arc<Inbox<Job>>,
    transport: Arc<dyn Transport>,
    gate: Arc<Gate>,
    wake: Arc<Wake>,
    /// Buffer for the request at hand.
    request: Vec<Piece>,
}

impl Worker {
    fn run(mut self) -> usize {
        let mut jobs = VecDeque::new();
        let result = catch_unwind(AssertUnwindSafe(|| self.work(&mut jobs)));
        let panicked = result.is_err();
        if panicked {
            tracing::error!("the posting thread panicked; this is a bug");
        }
        jobs.extend(self.inbox.close(if panicked { "it panicked; this is a bug" } else { "it was shut down" }));
        for job in jobs.iter_mut().filter(|job| !job.shared.is_finished()) {
            // A panic may have lost a request.
            let settled = !panicked && job.outstanding.is_empty() && job.stuck.is_empty();
            if settled {
                job.release();
            }
            let cause = Arc::new(Error::ShutDown { agent: self.transport.name().to_owned() });
            job.shared.fail(cause, settled);
        }
        jobs.retain(|job| panicked || !job.is_over());
        let left = jobs.len();
        // Never released and never settled: the memory under them stays in use for ever.
        jobs.into_iter().for_each(std::mem::forget);
        self.wake.raise();
        left
    }

    fn work(&mut self, jobs: &mut VecDeque<Job>) {
        let mut idle_rounds = 0_u32;
        let mut last_look = None;
        loop {
            let stop = self.collect(jobs, idle_rounds);
            self.wake.look(&*self.transport, &mut last_look);
            let mut moved = false;
            // One turn for each transfer: what is small does not wait for what is big.
            for _ in 0..jobs.len() {
                // In its place meanwhile: after a panic it must still be known.
                jobs.rotate_left(1);
                let Some(job) = jobs.back_mut() else { break };
                moved |= self.turn(job, stop.is_some());
                if job.is_over() {
                    moved = true;
                    jobs.pop_back();
                }
            }
            idle_rounds = if moved { 0 } else { idle_rounds.saturating_add(1) };
            // What is stuck never moves again: waiting for it is in vain.
            let done = || !jobs.iter().any(Job::needs_care) && self.inbox.is_empty();
            if stop.is_some_and(|deadline| done() || Instant::now() >= deadline) {
                return;
            }
        }
    }

    /// Takes new transfers, and sleeps when there is nothing else to do.
    fn collect(&self, jobs: &mut VecDeque<Job>, idle_rounds: u32) -> Option<Instant> {
        let mut new = Vec::new();
        let stop = self.inbox.take(&mut new, |stopping| {
            let only_failed = jobs.iter().all(|job| job.shared.is_finished());
            let nap = self.wake.nap();
            match idle_rounds {
                // Nothing to look after.
                _ if !jobs.iter().any(Job::needs_care) && !stopping => {
                    // What is stuck settles once its peer is known to be gone.
                    let look = (!jobs.is_empty()).then_some(LOOK);
                    look.into_iter().chain(nap).min().map_or(Pause::UntilWoken, Pause::For)
                }
                0 => Pause::No,
                // The first rounds poll at once: most requests end within microseconds.
                1..=50 if !only_failed => Pause::Yield,
                rounds => {
                    let pause = match rounds {
                        _ if only_failed => Duration::from_millis(5),
                        ..=500 => Duration::from_micros(50),
                        _ => Duration::from_millis(1),
                    };
                    Pause::For(nap.map_or(pause, |nap| nap.min(pause)))
                }
            }
        });
        jobs.extend(new);
        stop
    }

    /// Polls what is in progress and posts at most one request. Says whether anything changed.
    fn turn(&mut self, job: &mut Job, stopping: bool) -> bool {
        let before = (job.outstanding.len(), job.stuck.len());
        job.poll();
        job.look();
        let mut moved = (job.outstanding.len(), job.stuck.len()) != before;
        let finished = job.shared.is_finished();
        if finished {
            job.pieces.clear();
        } else if job.shared.standing.is_cancelled() {
            job.give_up(Error::Cancelled);
        } else if stopping {
            job.give_up(Error::ShutDown { agent: self.transport.name().to_owned() });
        } else if job.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            let Shared { id, peer, started, .. } = &*job.shared;
            job.give_up(Error::Deadline { transfer: *id, peer: peer.clone(), waited: started.elapsed() });
        } else if !job.pieces.is_empty() && job.outstanding.len() < job.limits.outstanding_requests {
            self.post(job);
            moved = true;
        }
        if !job.shared.is_finished() && job.pieces.is_empty() && job.outstanding.is_empty() {
            self.complete(job);
        }
        if job.is_over() {
            job.release();
            job.ledger().settle(job.shared.id);
            // Last: who is told finds it neither counted nor in quarantine.
            job.shared.settle();
        } else if moved && let Some(cause) = job.shared.cause() {
            job.quarantine(cause);
        }
        moved
    }

    /// Lets callers go first, for at most a millisecond: they must not starve transfers either.
    fn give_way(&self) {
        if !self.gate.is_wanted() {
            return;
        }
        let start = Instant::now();
        while self.gate.is_wanted() && start.elapsed() < Duration::from_millis(1) {
            thread::yield_now();
        }
    }

    fn post(&mut self, job: &mut Job) {
        let start = Instant::now();
        job.pieces.take(&job.limits, &mut self.request);
        let mut request = match self.transport.request(job.op, &job.peer, &self.request) {
            Ok(request) => request,
            Err(cause) => return job.give_up(cause),
        };
        if let [_, .., last] = self.request[..]
            && job.probe.is_none()
        {
            match self.transport.request(job.op, &job.peer, &[Piece { len: 0, ..last }]) {
                Ok(probe) => job.probe = Some(probe),
                Err(cause) => return job.give_up(cause),
            }
        }
        let prepare = start.elapsed();
        self.give_way();
        let start = Instant::now();
        let posted = request.post();
        job.shared.count_request(prepare, start.elapsed());
        if matches!(posted, Ok(Progress::Done)) {
            return;
        }
        let pieces = std::mem::take(&mut self.request);
        job.account(Posted { request, pieces }, posted);
    }

    /// Everything is in place, unless the connection has failed: tells the peer, then the owner.
    fn complete(&self, job: &mut Job) {
        // On a busy connection it is in progress: that is no error either, and nothing lands when it is let go.
        if let Some(Err(RequestFailed { cause, .. })) = job.probe.take().map(|mut probe| probe.post()) {
            return job.give_up(cause);
        }
        let notified = match job.notify.take() {
            Some(message) => {
                let sent = self.transport.notify(&job.peer, &message);
                job.ledger().recorder.notified(sent.is_ok());
                sent
            }
            None => Ok(()),
        };
        job.release();
        job.shared.complete(notified);
    }
}

impl Job {
    /// There is something to post, to poll or to end.
    fn needs_care(&self) -> bool {
        !self.shared.is_finished() || !self.outstanding.is_empty() || (!self.stuck.is_empty() && self.watch.is_gone())
    }

    fn ledger(&self) -> &Ledger {
        &self.shared.ledger
    }

    /// Nothing is posted any more and nothing can land.
    fn is_over(&self) -> bool {
        self.shared.is_finished() && self.outstanding.is_empty() && self.stuck.is_empty()
    }

    fn poll(&mut self) {
        let mut index = 0;
        // One by one: when a request fails, the others still count as in progress.
        while let Some(posted) = self.outstanding.get_mut(index) {
            match posted.request.poll() {
                Ok(Progress::InProgress) => index += 1,
                ended => {
                    let posted = self.outstanding.remove(index);
                    self.account(posted, ended);
                }
            }
        }
    }

    /// Lets go of stuck requests that nobody is left to complete.
    fn look(&mut self) {
        if self.stuck.is_empty() || self.looked.elapsed() < LOOK {
            return;
        }
        self.looked = Instant::now();
        if self.watch.is_gone() {
            self.stuck.retain_mut(|posted| !posted.request.settled_without_peer());
        }
    }

    fn account(&mut self, posted: Posted, progress: Result<Progress, RequestFailed>) {
        match progress {
            Ok(Progress::Done) => {}
            Ok(Progress::InProgress) => self.outstanding.push(posted),
            Err(RequestFailed { cause, settled }) => {
                if !settled {
                    self.stuck.push(posted);
                }
                self.give_up(cause);
            }
        }
    }

    fn give_up(&mut self, cause: Error) {
        self.pieces.clear();
        let settled = self.outstanding.is_empty() && self.stuck.is_empty();
        let cause = Arc::new(cause);
        if settled {
            self.release();
        } else {
            // Before the owner learns of the failure: then the list is complete.
            self.quarantine(self.shared.cause().unwrap_or_else(|| cause.clone()));
        }
        self.shared.fail(cause, settled);
    }

    /// Lists what may still land for a transfer that has failed.
    fn quarantine(&mut self, cause: Arc<Error>) {
        let unsettled = self.outstanding.iter().chain(&self.stuck);
        let pieces: Vec<Piece> = unsettled.flat_map(|posted| &posted.pieces).copied().collect();
        let entry = Quarantined {
            transfer: self.shared.id,
            request: self.request.clone(),
            peer: self.shared.peer.clone(),
            incarnation: self.incarnation,
            op: self.op,
            cause,
            since: *self.failed.get_or_insert_with(Instant::now),
            in_progress: self.outstanding.len(),
            unproven: self.stuck.len(),
            pieces,
        };
        if let Some(claim) = &mut self.claim {
            claim.shrink(entry.bytes(), entry.pieces.len());
        }
        self.ledger().quarantine(entry);
    }

    /// Ends the claim on memory and peer; before the owner learns that the transfer has settled.
    fn release(&mut self) {
        self.in_use.clear();
        self.claim = None;
    }
}
