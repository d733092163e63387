//! Who and what: peers, requests, leases, reservations.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};

/// Longest request id in bytes.
pub const MAX_REQUEST_ID_BYTES: usize = 256;

/// An engine's name for a request: 1 to [`MAX_REQUEST_ID_BYTES`] bytes. Cheap to clone.
///
/// An engine may use an id again; what a peer may read or write is always said by a [`LeaseId`] or [`ReservationId`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(Arc<str>);

impl RequestId {
    /// A request id.
    ///
    /// # Errors
    ///
    /// [`Error::RequestIdLength`].
    pub fn new(id: impl Into<Arc<str>>) -> Result<Self> {
        let id = id.into();
        match id.len() {
            1..=MAX_REQUEST_ID_BYTES => Ok(Self(id)),
            len => Err(Error::RequestIdLength { len, max: MAX_REQUEST_ID_BYTES }),
        }
    }

    /// The engine's name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One life of an agent: another incarnation under the same name is another process.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId {
    /// The agent's name.
    pub name: Arc<str>,
    /// Its random number.
    pub incarnation: u64,
}

impl PeerId {
    /// The agent of that name and incarnation.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, incarnation: u64) -> Self {
        Self { name: name.into(), incarnation }
    }
}

impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{:016x}", self.name, self.incarnation)
    }
}

/// Generation of the blocks of a request at their producer: never given twice, so that blocks that were freed and
/// held again are something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub u64);

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Destination blocks at a decode worker; the worker never gives a number twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReservationId(pub u64);

impl fmt::Display for ReservationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// One reading of a request by a reader: a completion that is sent again is of the same reading, and one that comes
/// from a second reading is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Reading {
    /// The reader pulled; its number for that.
    Pull(u64),
    /// It was written to; its reservation.
    Push(ReservationId),
}

/// An agent's numbers for leases, reservations and pulls, from a random start: those of a restarted process are not
/// mistaken for its predecessor's, nor those of an exchange for those of the agent's exchange before it.
#[derive(Clone, Debug)]
pub(crate) struct Numbers(Arc<AtomicU64>);

impl Numbers {
    pub(crate) fn from_incarnation(incarnation: u64) -> Self {
        // The low half of the incarnation in the high half; 2^32 numbers before another start may be met.
        Self(Arc::new(AtomicU64::new(incarnation << 32)))
    }

    pub(crate) fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }
}
