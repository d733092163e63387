//! A file descriptor that says when an agent is worth looking at.
//!
//! NIXL has no descriptor of its own: notifications must be asked for. So the posting thread asks for them, once an
//! engine wants to wait, and keeps what it gets until the engine takes it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::transport::Transport;

/// Most notifications that are kept; the others wait in the transport.
const MOST_KEPT: usize = 1 << 16;

/// Notifications as the transport delivers them: sender and message.
type Arrived = Vec<(String, Vec<u8>)>;

/// An agent's descriptor and what it speaks of. Nothing is done until the descriptor is asked for.
#[derive(Debug, Default)]
pub(crate) struct Wake {
    fd: OnceLock<OwnedFd>,
    /// How often notifications are asked for, in microseconds; 0 before the descriptor is asked for.
    look_every_us: AtomicU64,
    kept: Mutex<Arrived>,
    /// When the engine has something to do by itself.
    deadline: Mutex<Option<Instant>>,
}

impl Wake {
    /// The descriptor. From now on notifications are asked for this often.
    pub(crate) fn fd(&self, look_every: Duration) -> io::Result<BorrowedFd<'_>> {
        let fd = match self.fd.get() {
            Some(fd) => fd,
            None => {
                // SAFETY: no preconditions.
                let made = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
                if made < 0 {
                    return Err(io::Error::last_os_error());
                }
                // SAFETY: just made, owned by nobody else.
                let made = unsafe { OwnedFd::from_raw_fd(made) };
                // If two make one at once, one of them is closed.
                self.fd.get_or_init(|| made)
            }
        };
        let micros = u64::try_from(look_every.as_micros()).unwrap_or(u64::MAX).max(1);
        self.look_every_us.store(micros, Ordering::Release);
        Ok(fd.as_fd())
    }

    /// Makes the descriptor readable.
    pub(crate) fn raise(&self) {
        if let Some(fd) = self.fd.get() {
            let one = 1_u64.to_ne_bytes();
            // SAFETY: eight bytes, which is what an eventfd takes. It fails when the count is full, and then it is
            // readable.
            unsafe { libc::write(fd.as_raw_fd(), one.as_ptr().cast(), one.len()) };
        }
    }

    /// Makes it unreadable until the next raise.
    pub(crate) fn clear(&self) {
        if let Some(fd) = self.fd.get() {
            let mut count = [0_u8; 8];
            // SAFETY: room for eight bytes, which is what an eventfd gives. It fails when it is not readable.
            unsafe { libc::read(fd.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
        }
    }

    /// Raises at this time; another one takes its place. Whether the posting thread must look around: it may be asleep
    /// until later.
    pub(crate) fn at(&self, deadline: Instant) -> bool {
        if self.fd.get().is_none() {
            return false;
        }
        let before = lock(&self.deadline).replace(deadline);
        let every = Duration::from_micros(self.look_every_us.load(Ordering::Acquire));
        before.is_none_or(|before| deadline < before) && deadline.saturating_duration_since(Instant::now()) < every
    }

    /// How long the posting thread may sleep; `None` for as long as it likes.
    pub(crate) fn nap(&self) -> Option<Duration> {
        let every = match self.look_every_us.load(Ordering::Acquire) {
            0 => return None,
            micros => Duration::from_micros(micros),
        };
        let left = lock(&self.deadline).map(|deadline| deadline.saturating_duration_since(Instant::now()));
        Some(left.map_or(every, |left| left.min(every)))
    }

    /// Asks for notifications, if that is wanted and it is time again. `last` is when it was done last.
    pub(crate) fn look(&self, transport: &dyn Transport, last: &mut Option<Instant>) {
        let Some(nap) = self.nap() else { return };
        let now = Instant::now();
        if last.is_some_and(|last| now.saturating_duration_since(last) < nap) {
            return;
        }
        *last = Some(now);
        let mut kept = lock(&self.kept);
        let mut news = false;
        if kept.len() < MOST_KEPT {
            match transport.notifications() {
                Ok(mut arrived) => {
                    news = !arrived.is_empty();
                    kept.append(&mut arrived);
                }
                // Whoever takes them meets it too, and is told.
                Err(error) => tracing::debug!(%error, "cannot ask for notifications"),
            }
        }
        drop(kept);
        let mut deadline = lock(&self.deadline);
        if deadline.is_some_and(|deadline| now >= deadline) {
            *deadline = None;
            news = true;
        }
        if news {
            self.raise();
        }
    }

    /// Takes what was kept and what has arrived since.
    pub(crate) fn take(&self, transport: &dyn Transport) -> Result<Arrived> {
        // Held throughout: what the posting thread has in its hands comes first.
        let mut kept = lock(&self.kept);
        let mut arrived = transport.notifications()?;
        if kept.is_empty() {
            return Ok(arrived);
        }
        kept.append(&mut arrived);
        Ok(std::mem::take(&mut *kept))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
