//! Where a transfer stands: what its owner's handle and the posting thread share.

use std::time::{Duration, Instant};

use crate::error::Error;
use crate::sync::{Arc, AtomicBool, Condvar, Mutex, MutexGuard, Ordering};

/// Where a transfer stands.
///
/// *Failed* and *settled* are two things: a transfer that failed may have requests under it that still write.
/// Its blocks must not be reused before it is settled. The order is `InProgress`, then `Done`, or `Failed`
/// unsettled, then `Failed` settled; the last step may never come, for example when a peer has stopped.
#[derive(Clone, Debug)]
pub enum TransferState {
    /// Bytes may be moving.
    InProgress,
    /// Every byte is in place and the notification, if any, has been sent. Settled.
    Done,
    /// Not everything was moved.
    Failed {
        /// The first thing that went wrong.
        cause: Arc<Error>,
        /// Whether it is certain that nothing lands any more.
        settled: bool,
    },
}

impl TransferState {
    /// Whether nothing can land any more, so that the blocks may be reused.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        matches!(self, Self::Done | Self::Failed { settled: true, .. })
    }

    /// Whether the outcome is known.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        !matches!(self, Self::InProgress)
    }
}

/// What a transfer has cost so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransferStats {
    /// Bytes to move.
    pub bytes: u64,
    /// How many of them are padding, as the caller said.
    pub padding_bytes: u64,
    /// Descriptors asked for, before they were cut.
    pub descriptors: usize,
    /// Requests posted.
    pub requests: usize,
    /// Time spent preparing requests.
    pub prepare: Duration,
    /// Time spent inside posts.
    pub post: Duration,
    /// From the start to the outcome.
    pub elapsed: Option<Duration>,
}

/// Where a transfer stands, and who waits to know.
#[derive(Debug)]
pub(crate) struct Standing {
    cancelled: AtomicBool,
    status: Mutex<Status>,
    changed: Condvar,
}

#[derive(Debug)]
struct Status {
    outcome: Option<Result<(), Arc<Error>>>,
    settled: bool,
    stats: TransferStats,
}

impl Status {
    fn state(&self) -> TransferState {
        match &self.outcome {
            None => TransferState::InProgress,
            Some(Ok(())) => TransferState::Done,
            Some(Err(cause)) => TransferState::Failed { cause: cause.clone(), settled: self.settled },
        }
    }
}

impl Standing {
    /// In progress.
    pub(crate) fn new(stats: TransferStats) -> Self {
        Self {
            cancelled: AtomicBool::new(false),
            status: Mutex::new(Status { outcome: None, settled: false, stats }),
            changed: Condvar::new(),
        }
    }

    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    pub(crate) fn state(&self) -> TransferState {
        self.status().state()
    }

    pub(crate) fn stats(&self) -> TransferStats {
        self.status().stats
    }

    pub(crate) fn count(&self, count: impl FnOnce(&mut TransferStats)) {
        count(&mut self.status().stats);
    }

    /// Records the outcome, if there is none yet: the first stands. `true` if it is this one.
    pub(crate) fn end(
        &self,
        settled: bool,
        outcome: impl FnOnce(&mut TransferStats) -> Result<(), Arc<Error>>,
    ) -> bool {
        let mut status = self.status();
        if status.outcome.is_some() {
            return false;
        }
        status.settled = settled;
        status.outcome = Some(outcome(&mut status.stats));
        self.changed.notify_all();
        true
    }

    /// Records that nothing can land any more. Whether that is news.
    pub(crate) fn settle(&self) -> bool {
        let mut status = self.status();
        if status.settled {
            return false;
        }
        status.settled = true;
        self.changed.notify_all();
        true
    }

    /// Waits until it stands as wanted, at most so long; how it stands then.
    pub(crate) fn wait(&self, longest: Duration, wanted: impl Fn(&TransferState) -> bool) -> TransferState {
        let mut status = self.status();
        let state = status.state();
        if wanted(&state) {
            return state;
        }
        let start = Instant::now();
        loop {
            let state = status.state();
            let left = longest.saturating_sub(start.elapsed());
            if wanted(&state) || left.is_zero() {
                return state;
            }
            let woken = self.changed.wait_timeout(status, left);
            status = woken.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
    }

    fn status(&self) -> MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
