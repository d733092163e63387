//! When to ask again: what is asked may get lost, and so may its answer.

use std::time::{Duration, Instant};

use crate::lease::after;

/// Something that is asked again and again, ever more rarely.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    next: Instant,
    wait: Duration,
    first: Duration,
    longest: Duration,
}

impl Backoff {
    /// To be asked at this time, again after the first wait, and then after twice the wait before it up to the longest.
    pub(crate) fn new(first: Duration, longest: Duration, at: Instant) -> Self {
        let first = first.min(longest);
        Self { next: at, wait: first, first, longest }
    }

    /// A message that its peer answers: to be sent at once, again after 50 ms, and at last every second.
    pub(crate) fn of_messages(now: Instant) -> Self {
        Self::new(Duration::from_millis(50), Duration::from_secs(1), now)
    }

    /// When to ask.
    pub(crate) fn next(&self) -> Instant {
        self.next
    }

    /// To be asked at this time, as if for the first time.
    pub(crate) fn restart(&mut self, at: Instant) {
        (self.next, self.wait) = (at, self.first);
    }

    /// It was asked, or failed.
    pub(crate) fn asked(&mut self, now: Instant) {
        self.next = after(now, self.wait);
        self.wait = self.wait.saturating_mul(2).min(self.longest);
    }
}
