//! Forks: what has threads behind it belongs to the process that made it.
//!
//! NIXL is of that kind as a whole. Once a process has made an agent on it, UCX has state in that process that a fork
//! copies and its threads that a fork does not: a child's own agent gets OK from every call, and its transfers never
//! end. That NIXL is loaded and nothing of it was started does no harm, so a parent may load it for all its children.

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};

/// Counts the forks between the first process and this one, from 1.
static GENERATION: AtomicU64 = AtomicU64::new(1);

/// The process that made the first agent on NIXL; 0 while there was none.
static ON_NIXL: AtomicU64 = AtomicU64::new(0);

/// A number that this process and its parent do not share.
///
/// Right after the first call, which every process makes before it has anything that could be inherited.
#[must_use]
pub fn generation() -> u64 {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        // SAFETY: the handler is async-signal-safe: it adds to an atomic. Without it forks are not noticed, which the
        // documentation allows.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
    GENERATION.load(Ordering::Relaxed)
}

extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// Whether this process may make an agent on NIXL.
pub(crate) fn check_nixl() -> Result<()> {
    match ON_NIXL.load(Ordering::Acquire) {
        0 => Ok(()),
        process if process == generation() => Ok(()),
        _ => Err(Error::Forked),
    }
}

/// From now on NIXL is this process's, and not that of its children.
pub(crate) fn nixl_was_started() {
    // The first counts: in a child nobody gets here.
    let _ = ON_NIXL.compare_exchange(0, generation(), Ordering::AcqRel, Ordering::Acquire);
}
