//! The copy threads: they share the transfers that the kernel copies within this host.
//!
//! Such a copy costs a core, so one thread is half of what two cores can do. NIXL's own threads (`num_threads`) share
//! a batch as well, but each has a connection of its own that nothing else can ask whether it has failed, and a post
//! waits for one of them to be free. So each copy thread has an agent of NIXL to itself: it posts, and knows when its
//! bytes are in place. They are made when the first large transfer wants them, and cost nothing while they sleep.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::job::{Job, Request};
use crate::transport::{Route, Transport};

/// How often an idle copy thread reads what its peers' transports say: keep-alives.
const TICK: Duration = Duration::from_secs(1);

/// What the copy threads share with who gives them work.
#[derive(Debug)]
pub(crate) struct Crew {
    queue: Mutex<Queue>,
    work: Condvar,
    /// Threads that can copy.
    ready: AtomicUsize,
    panicked: AtomicBool,
}

/// Each transfer is served request by request, the one first that has been served least since it began: what is small
/// does not wait for what is large, and many share evenly. A new one begins where those stand that are served now, so
/// that nobody stands still for it (start-time fair queueing).
#[derive(Debug, Default)]
struct Queue {
    /// By how much each was served, and by number.
    waiting: BTreeMap<(u64, u64), Arc<Job>>,
    /// How much the one had been served that was served last.
    now: u64,
    stop: bool,
}

impl Queue {
    fn put(&mut self, served: u64, job: Arc<Job>) {
        self.waiting.insert((served, job.shared.id), job);
    }

    /// The next request of the next transfer that has one.
    fn take(&mut self, num_threads: usize) -> Option<(Arc<Job>, Request)> {
        while let Some(((served, _), job)) = self.waiting.pop_first() {
            self.now = served;
            let taken = job.take(num_threads);
            match &taken {
                Some(taken) if !taken.is_last => self.put(served.saturating_add(taken.request.weight()), job.clone()),
                // All is taken, or too much is under way: who ends one of its requests queues it again.
                _ => job.leave_queue(),
            }
            if let Some(taken) = taken {
                return Some((job, taken.request));
            }
        }
        None
    }
}

impl Crew {
    /// Starts the transport's copy threads. `roused` is called when one of them leaves something to look after.
    pub(crate) fn start(
        name: &str,
        transport: &Arc<dyn Transport>,
        roused: impl Fn() + Clone + Send + 'static,
    ) -> Result<(Arc<Self>, Vec<JoinHandle<()>>)> {
        let crew = Arc::new(Self {
            queue: Mutex::default(),
            work: Condvar::new(),
            ready: AtomicUsize::new(0),
            panicked: AtomicBool::new(false),
        });
        let start = |copier| {
            let (crew, transport, roused) = (crew.clone(), transport.clone(), roused.clone());
            let copy = move || {
                let copy = AssertUnwindSafe(|| crew.copy(&*transport, copier, &roused));
                if catch_unwind(copy).is_err() {
                    tracing::error!("a copy thread panicked; this is a bug");
                    crew.panicked.store(true, Ordering::Release);
                    roused();
                }
            };
            let spawned = thread::Builder::new().name(format!("kvcopy{copier}-{name}")).spawn(copy);
            spawned.map_err(|error| Error::NoThread { why: error.to_string() })
        };
        let threads = (0..transport.num_copiers()).map(start).collect::<Result<_>>().inspect_err(|_| crew.stop())?;
        Ok((crew, threads))
    }

    /// How many threads can carry a transfer.
    pub(crate) fn num_ready(&self) -> usize {
        self.ready.load(Ordering::Acquire)
    }

    pub(crate) fn has_panicked(&self) -> bool {
        self.panicked.load(Ordering::Acquire)
    }

    /// Hands over a transfer, unless it is in the queue or has nothing to be posted now.
    pub(crate) fn offer(&self, job: &Arc<Job>) {
        if !job.enter_queue() {
            return;
        }
        let mut queue = self.lock();
        let now = queue.now;
        queue.put(now, job.clone());
        drop(queue);
        self.work.notify_all();
    }

    /// The threads end with the request at hand.
    pub(crate) fn stop(&self) {
        self.lock().stop = true;
        self.work.notify_all();
    }

    /// What a copy thread does.
    fn copy(&self, transport: &dyn Transport, copier: usize, roused: &dyn Fn()) {
        if !self.wait_for_the_first() {
            return;
        }
        if let Err(error) = transport.start_copier(copier) {
            tracing::warn!(agent = transport.name(), copier, %error, "a copy thread cannot start; transfers take longer");
            return;
        }
        self.ready.fetch_add(1, Ordering::AcqRel);
        let route = Route { transport, copier: Some(copier) };
        // Whose request this thread has posted last.
        let mut served: Option<Arc<Job>> = None;
        let mut queue = self.lock();
        while !queue.stop {
            let next = queue.take(self.num_ready());
            if let Some(served) =
                served.take_if(|served| !next.as_ref().is_some_and(|(job, _)| Arc::ptr_eq(job, served)))
            {
                drop(queue);
                served.leave(route);
                queue = self.lock();
                if next.is_none() {
                    continue;
                }
            }
            match next {
                Some((job, request)) => {
                    drop(queue);
                    job.post(request, route, None);
                    self.offer(&job);
                    if job.needs_polls() {
                        roused();
                    }
                    served = Some(job);
                    queue = self.lock();
                }
                None => {
                    let woken = self.work.wait_timeout(queue, TICK).unwrap_or_else(|poisoned| poisoned.into_inner());
                    queue = woken.0;
                    if woken.1.timed_out() {
                        drop(queue);
                        transport.tend_copier(copier);
                        queue = self.lock();
                    }
                }
            }
        }
        self.ready.fetch_sub(1, Ordering::AcqRel);
    }

    /// Waits for work, and leaves it where it is. `false` at the end.
    fn wait_for_the_first(&self) -> bool {
        let queue = self.lock();
        let is_idle = |queue: &mut Queue| !queue.stop && queue.waiting.is_empty();
        !self.work.wait_while(queue, is_idle).unwrap_or_else(|poisoned| poisoned.into_inner()).stop
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
