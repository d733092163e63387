//! When to ask again: what is asked may get lost, and so may its answer.

use std::time::{Duration, Instant};

use crate::lease::after;

/// First wait before something is asked again; doubles up to [`LONGEST_WAIT`].
const FIRST_WAIT: Duration = Duration::from_millis(50);
/// Longest wait before something is asked again.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Something that is asked again and again, ever more rarely.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    next: Instant,
    wait: Duration,
}

impl Backoff {
    /// To be asked at once.
    pub(crate) fn new(now: Instant) -> Self {
        Self { next: now, wait: FIRST_WAIT }
    }

    /// When to ask.
    pub(crate) fn next(&self) -> Instant {
        self.next
    }

    /// It was asked.
    pub(crate) fn asked(&mut self, now: Instant) {
        self.next = after(now, self.wait);
        self.wait = (self.wait * 2).min(LONGEST_WAIT);
    }
}
