//! Blobs that were refused a short while ago: whoever sends one again and again is not read again and again.

use std::error::Error as _;
use std::fmt::{self, Write as _};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::lease::Remembered;

/// How long a refusal is remembered.
const LASTS: Duration = Duration::from_secs(30);

/// Most refusals remembered: an honest fleet has few.
const MOST: usize = 64;

/// How much of a refusal's text is kept.
const MOST_TEXT: usize = 1024;

/// What was refused for what it says, by its digest. Which peers are connected plays no part in it.
#[derive(Debug)]
pub(super) struct Refused(Mutex<Memory>);

/// When and why.
type Memory = Remembered<[u8; 32], (Instant, String)>;

impl Default for Refused {
    fn default() -> Self {
        Self(Mutex::new(Remembered::new(LASTS, MOST)))
    }
}

impl Refused {
    /// Reads a blob unless it was refused lately; remembers it if it is refused now.
    pub(super) fn read<T>(&self, blob: &[u8], read: impl FnOnce(&[u8]) -> Result<T>) -> Result<T> {
        let now = Instant::now();
        if let Some((since, why)) = self.recall(blob, now) {
            return Err(Error::BlobRefused { ago: now.saturating_duration_since(since), why });
        }
        read(blob).inspect_err(|error| {
            if is_of_the_bytes(error) {
                let mut refused = self.lock();
                let digest = digest(blob);
                // Another thread may have read it meanwhile.
                if refused.get(&digest).is_none() {
                    refused.insert(digest, (now, text(error)), now);
                }
            }
        })
    }

    /// What was refused may be welcome now.
    pub(super) fn clear(&self) {
        *self.lock() = Remembered::new(LASTS, MOST);
    }

    fn recall(&self, blob: &[u8], now: Instant) -> Option<(Instant, String)> {
        {
            let mut refused = self.lock();
            refused.forget(now);
            // The usual case costs no digest.
            if refused.is_empty() {
                return None;
            }
        }
        let digest = digest(blob);
        self.lock().get(&digest).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, Memory> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Of a function for which nobody makes two blobs with one digest.
fn digest(blob: &[u8]) -> [u8; 32] {
    *blake3::hash(blob).as_bytes()
}

/// Whether the same bytes are refused whenever they come, and reading them may have cost something.
fn is_of_the_bytes(error: &Error) -> bool {
    matches!(
        error,
        Error::BlobMalformed { .. }
            | Error::PeerLayout { .. }
            | Error::OverlappingRanges { .. }
            | Error::BadRange { .. }
            | Error::RangeOutsideStorage { .. }
    )
}

/// An error with its causes, as far as there is room.
fn text(error: &Error) -> String {
    let mut text = Text(String::new());
    let mut written = write!(text, "{error}");
    let mut source = error.source();
    while let (Ok(()), Some(cause)) = (written, source) {
        written = write!(text, ": {cause}");
        source = cause.source();
    }
    text.0
}

/// A text that takes no more when it is full.
struct Text(String);

impl fmt::Write for Text {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let room = MOST_TEXT.saturating_sub(self.0.len());
        if more.len() <= room {
            self.0.push_str(more);
            return Ok(());
        }
        let whole = (0..=room).rev().find(|&end| more.is_char_boundary(end)).unwrap_or(0);
        self.0.push_str(&more[..whole]);
        self.0.push('…');
        Err(fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn malformed() -> Error {
        Error::BlobMalformed { what: "body", source: None }
    }

    #[test]
    fn what_was_refused_is_not_read_again_for_a_while() {
        let (refused, mut read) = (Refused::default(), 0);
        let mut refuse = || {
            refused.read(b"bad", |_| {
                read += 1;
                Err::<(), _>(malformed())
            })
        };
        assert!(matches!(refuse(), Err(Error::BlobMalformed { .. })));
        for _ in 0..2 {
            assert!(matches!(refuse(), Err(Error::BlobRefused { why, .. }) if why == malformed().to_string()));
        }
        assert_eq!(read, 1);
        assert!(refused.read(b"good", |_| Ok(())).is_ok());
        refused.clear();
        assert!(refused.read(b"bad", |_| Ok(())).is_ok(), "forgotten");
    }

    #[test]
    fn what_depends_on_the_agent_is_read_again() {
        let refused = Refused::default();
        for _ in 0..2 {
            let result = refused.read(b"own", |_| Err::<(), _>(Error::OwnBlob { agent: "a".into() }));
            assert!(matches!(result, Err(Error::OwnBlob { .. })));
        }
    }

    #[test]
    fn refusals_are_bounded_in_number_and_in_text() {
        let refused = Refused::default();
        for number in 0..10 * MOST {
            let error = Error::PeerNameMismatch { peer: "x".repeat(1 << 16), named: String::new() };
            assert!(text(&error).len() <= MOST_TEXT + 4);
            let _ = refused.read(&number.to_ne_bytes(), |_| Err::<(), _>(malformed()));
        }
        assert_eq!(refused.lock().len(), MOST);
    }
}
