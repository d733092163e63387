//! The posting thread: one for each agent. It posts what the copy threads do not carry, and polls and ends everything.
//!
//! A NIXL post may copy everything before it returns, and `nixl-sys` holds a lock meanwhile. So posting has a
//! thread of its own, transfers take turns request by request, and a caller that wants to send or receive a
//! notification goes first (see [`Gate`]). What is small is posted by the thread that starts it, when nothing else is
//! under way: handing it over and back takes longer than the copy.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::crew::Crew;
use crate::error::{Error, Result};
use crate::gate::Gate;
use crate::inbox::{Inbox, Pause, Refused};
use crate::job::{Job, LOOK};
use crate::transport::{Route, Transport};
use crate::wake::Wake;

/// The threads' handle.
#[derive(Debug)]
pub(crate) struct Poster {
    inbox: Arc<Inbox<Arc<Job>>>,
    crew: Arc<Crew>,
    thread: Option<JoinHandle<usize>>,
    copiers: Vec<JoinHandle<()>>,
}

impl Poster {
    pub(crate) fn start(name: &str, transport: Arc<dyn Transport>, gate: Arc<Gate>, wake: Arc<Wake>) -> Result<Self> {
        let inbox = Arc::new(Inbox::new());
        let roused = {
            let inbox = inbox.clone();
            move || inbox.rouse()
        };
        let (crew, copiers) = Crew::start(name, &transport, roused)?;
        let worker = Worker { inbox: inbox.clone(), crew: crew.clone(), transport, gate, wake };
        let thread = thread::Builder::new()
            .name(format!("kvnixl-{name}"))
            .spawn(move || worker.run())
            .map_err(|error| Error::NoThread { why: error.to_string() })
            .inspect_err(|_| crew.stop())?;
        Ok(Self { inbox, crew, thread: Some(thread), copiers })
    }

    /// Takes a transfer on.
    pub(crate) fn submit(&self, job: Arc<Job>, agent: &str) -> Result<()> {
        if job.is_shared {
            self.check(agent)?;
            // At once: waking one thread to wake another takes longer than many a copy.
            self.crew.offer(&job);
        }
        self.inbox.push(job).map_err(|refused| refusal(refused, agent))
    }

    /// Whether transfers are taken on.
    pub(crate) fn check(&self, agent: &str) -> Result<()> {
        self.inbox.check().map_err(|refused| refusal(refused, agent))
    }

    /// How many copy threads there are by now.
    pub(crate) fn copy_threads(&self) -> usize {
        self.crew.num_ready()
    }

    /// Has the thread look around: how long it may sleep has changed.
    pub(crate) fn rouse(&self) {
        self.inbox.rouse();
    }

    /// Posts nothing more, waits for what is in progress until `deadline`, ends the threads and returns how many
    /// transfers have not settled. Their requests are never released.
    pub(crate) fn stop(&mut self, deadline: Instant) -> usize {
        let Some(thread) = self.thread.take() else { return 0 };
        self.inbox.stop(deadline);
        let left = thread.join().unwrap_or(0);
        self.crew.stop();
        for copier in self.copiers.drain(..) {
            // Its panics were logged.
            let _ = copier.join();
        }
        left
    }
}

fn refusal(refused: Refused, agent: &str) -> Error {
    match refused {
        Refused::Closed(why) => Error::NoThread { why: why.to_owned() },
        Refused::Stopping => Error::ShutDown { agent: agent.to_owned() },
    }
}

struct Worker {
    inbox: Arc<Inbox<Arc<Job>>>,
    crew: Arc<Crew>,
    transport: Arc<dyn Transport>,
    gate: Arc<Gate>,
    wake: Arc<Wake>,
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
        for job in jobs.iter().filter(|job| !job.shared.is_finished()) {
            job.abandon(self.transport.name(), panicked);
        }
        jobs.retain(|job| panicked || !job.is_over());
        let left = jobs.len();
        // Never released and never settled: the memory under them stays in use for ever.
        jobs.into_iter().for_each(std::mem::forget);
        self.wake.raise();
        left
    }

    fn work(&mut self, jobs: &mut VecDeque<Arc<Job>>) {
        let mut idle_rounds = 0_u32;
        let mut last_look = None;
        loop {
            let stop = self.collect(jobs, idle_rounds);
            assert!(!self.crew.has_panicked(), "a copy thread panicked");
            self.wake.look(&*self.transport, &mut last_look);
            let mut moved = false;
            // One turn for each transfer: what is small does not wait for what is big.
            for _ in 0..jobs.len() {
                // In its place meanwhile: after a panic it must still be known.
                jobs.rotate_left(1);
                let Some(job) = jobs.back() else { break };
                moved |= self.turn(job, stop.is_some());
                if job.is_over() {
                    moved = true;
                    jobs.pop_back();
                }
            }
            idle_rounds = if moved { 0 } else { idle_rounds.saturating_add(1) };
            // What is stuck never moves again: waiting for it is in vain.
            let done = || !jobs.iter().any(|job| job.needs_care()) && self.inbox.is_empty();
            if stop.is_some_and(|deadline| done() || Instant::now() >= deadline) {
                return;
            }
        }
    }

    /// Takes new transfers, and sleeps when there is nothing else to do.
    fn collect(&self, jobs: &mut VecDeque<Arc<Job>>, idle_rounds: u32) -> Option<Instant> {
        let mut new = Vec::new();
        let stop = self.inbox.take(&mut new, |stopping| {
            let only_failed = jobs.iter().all(|job| job.shared.is_finished());
            let nap = self.wake.nap();
            let at_most = |pause: Duration| Pause::For(nap.map_or(pause, |nap| nap.min(pause)));
            match idle_rounds {
                // Nothing to look after.
                _ if !jobs.iter().any(|job| job.needs_care()) && !stopping => {
                    // What is stuck settles once its peer is known to be gone.
                    let look = (!jobs.is_empty()).then_some(LOOK);
                    look.into_iter().chain(nap).min().map_or(Pause::UntilWoken, Pause::For)
                }
                0 => Pause::No,
                _ if only_failed => at_most(Duration::from_millis(5)),
                // Whoever carries them ends them: there are only deadlines to watch.
                _ if jobs.iter().all(|job| self.is_carried(job) && !job.needs_polls()) => {
                    at_most(Duration::from_millis(1))
                }
                // The first rounds poll at once: most requests end within microseconds.
                1..=50 => Pause::Yield,
                51..=500 => at_most(Duration::from_micros(50)),
                _ => at_most(Duration::from_millis(1)),
            }
        });
        jobs.extend(new);
        stop
    }

    fn is_carried(&self, job: &Job) -> bool {
        job.is_shared && self.crew.num_ready() > 0
    }

    /// Polls what is in progress and posts at most one request. Says whether anything changed.
    fn turn(&self, job: &Arc<Job>, stopping: bool) -> bool {
        let route = Route { transport: &*self.transport, copier: None };
        let moved = job.look_after(route, stopping);
        if self.is_carried(job) {
            self.crew.offer(job);
            return moved;
        }
        match job.take(1) {
            Some(taken) => {
                job.post(taken.request, route, Some(&self.gate));
                true
            }
            None => moved,
        }
    }
}
