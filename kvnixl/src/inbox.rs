//! Work for a thread: handed over, waited for, refused once the thread ends.

use std::time::{Duration, Instant};

use crate::sync::{Condvar, Mutex, MutexGuard};

/// Jobs that the thread has not taken.
#[derive(Debug)]
pub(crate) struct Inbox<J> {
    queue: Mutex<Queue<J>>,
    wake: Condvar,
}

#[derive(Debug)]
struct Queue<J> {
    jobs: Vec<J>,
    /// When to give up on what does not end.
    stop: Option<Instant>,
    /// Why the thread is no more.
    closed: Option<&'static str>,
}

impl<J> Queue<J> {
    fn check(&self) -> Result<(), Refused> {
        match (self.closed, self.stop) {
            (Some(why), _) => Err(Refused::Closed(why)),
            (None, Some(_)) => Err(Refused::Stopping),
            (None, None) => Ok(()),
        }
    }
}

/// Why a job was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The thread is no more.
    Closed(&'static str),
    /// It ends what it has, and takes nothing new.
    Stopping,
}

/// What the thread does when there is no new job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// Goes on.
    No,
    /// Lets others run.
    Yield,
    /// Sleeps, at most so long.
    For(Duration),
    /// Sleeps until somebody wakes it.
    UntilWoken,
}

impl<J> Inbox<J> {
    pub(crate) fn new() -> Self {
        Self { queue: Mutex::new(Queue { jobs: Vec::new(), stop: None, closed: None }), wake: Condvar::new() }
    }

    /// Whether jobs are taken.
    pub(crate) fn check(&self) -> Result<(), Refused> {
        self.lock().check()
    }

    /// Hands a job to the thread.
    pub(crate) fn push(&self, job: J) -> Result<(), Refused> {
        let mut queue = self.lock();
        queue.check()?;
        queue.jobs.push(job);
        drop(queue);
        self.wake.notify_one();
        Ok(())
    }

    /// Has the thread look around: how long it may sleep has changed.
    pub(crate) fn rouse(&self) {
        // With the lock, so that it is either asleep or has not decided yet.
        let queue = self.lock();
        self.wake.notify_one();
        drop(queue);
    }

    /// Tells the thread to end, and until when it may finish what it has.
    pub(crate) fn stop(&self, deadline: Instant) {
        self.lock().stop = Some(deadline);
        self.wake.notify_one();
    }

    /// The thread takes new jobs, and sleeps when there are none and `pause`, which is told whether it is to end, says
    /// so. Says until when it may finish what it has, if it is to end.
    pub(crate) fn take(&self, into: &mut impl Extend<J>, pause: impl FnOnce(bool) -> Pause) -> Option<Instant> {
        let mut queue = self.lock();
        if queue.jobs.is_empty() {
            match pause(queue.stop.is_some()) {
                Pause::No => {}
                Pause::Yield => {
                    drop(queue);
                    std::thread::yield_now();
                    queue = self.lock();
                }
                Pause::For(longest) => {
                    let woken = self.wake.wait_timeout(queue, longest);
                    queue = woken.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
                }
                Pause::UntilWoken => {
                    queue = self.wake.wait(queue).unwrap_or_else(|poisoned| poisoned.into_inner());
                }
            }
        }
        into.extend(queue.jobs.drain(..));
        queue.stop
    }

    /// Whether no job waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().jobs.is_empty()
    }

    /// The thread ends: nothing more is taken. The jobs that it did not take.
    pub(crate) fn close(&self, why: &'static str) -> Vec<J> {
        let mut queue = self.lock();
        queue.closed = Some(why);
        std::mem::take(&mut queue.jobs)
    }

    fn lock(&self) -> MutexGuard<'_, Queue<J>> {
        self.queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
