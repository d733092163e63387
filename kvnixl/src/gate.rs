//! What callers and the posting thread count up and down: who goes first, and what is in use.

use crate::sync::{Arc, AtomicUsize, Ordering};

/// Lets callers go before the next post.
#[derive(Debug)]
pub(crate) struct Gate {
    waiting: AtomicUsize,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self { waiting: AtomicUsize::new(0) }
    }

    /// While the guard lives, the thread posts nothing more (for a short while).
    pub(crate) fn enter(&self) -> impl Drop + '_ {
        struct Guard<'a>(&'a Gate);
        impl Drop for Guard<'_> {
            fn drop(&mut self) {
                self.0.waiting.fetch_sub(1, Ordering::AcqRel);
            }
        }
        self.waiting.fetch_add(1, Ordering::AcqRel);
        Guard(self)
    }

    /// Whether a caller wants to go first.
    pub(crate) fn is_wanted(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }
}

/// A count of unsettled transfers that this transfer is part of while the value lives.
#[derive(Debug)]
pub(crate) struct InUse(Arc<AtomicUsize>);

impl InUse {
    pub(crate) fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(count.clone())
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
