//! Forks: objects with threads behind them belong to the process that made them.

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the forks between the first process and this one, from 1.
static GENERATION: AtomicU64 = AtomicU64::new(1);

/// A number that this process and its parent do not share.
///
/// Right after the first call, which every process makes before it has anything that could be inherited.
pub(crate) fn generation() -> u64 {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        // SAFETY: the handler is async-signal-safe: it adds to an atomic. Without it forks are not noticed, which the
        // header allows.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
    GENERATION.load(Ordering::Relaxed)
}

extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}
