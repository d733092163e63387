//! A connected peer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use kvspec::ValidSpec;

use crate::host::{Locality, Watch};
use crate::memory::{RangeTable, Registered};

/// A peer that an agent has connected: plan against its [`layout`](Peer::layout), then start transfers with it.
///
/// Cheap to clone. A newer connection to the same peer replaces this one; transfers with the old one are refused.
#[derive(Clone, Debug)]
pub struct Peer {
    pub(crate) inner: Arc<PeerInner>,
}

#[derive(Debug)]
pub(crate) struct PeerInner {
    pub(crate) name: String,
    pub(crate) incarnation: u64,
    pub(crate) generation: u64,
    /// When its agent was made, in nanoseconds since 1970, as it says; never later than it was connected.
    pub(crate) started: Option<u64>,
    /// The peer's name on the transport.
    pub(crate) transport_name: String,
    /// What the transport needs to reach it.
    pub(crate) metadata: Vec<u8>,
    pub(crate) layout: ValidSpec,
    pub(crate) ranges: RangeTable,
    /// All that the transport knows of its memory: also what it has taken away, while something was under way.
    pub(crate) loaded: Vec<Registered>,
    /// Transfers with the peer that have not settled.
    pub(crate) unsettled: Arc<AtomicUsize>,
    pub(crate) locality: Locality,
    pub(crate) watch: Arc<Watch>,
    /// Whether the way to it has failed and was not opened anew: a request of any thread has seen that.
    pub(crate) has_failed: Arc<AtomicBool>,
}

impl Peer {
    /// The peer's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Random number of the peer's agent: another one under the same name is another process. 0 for a
    /// [`ForeignPeer`](crate::ForeignPeer).
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.inner.incarnation
    }

    /// Counts the peer's registrations.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.inner.generation
    }

    /// What caches the peer has.
    #[must_use]
    pub fn layout(&self) -> &ValidSpec {
        &self.inner.layout
    }

    /// Where the peer is, as it says: whether the kernel can copy, or something keeps it from doing so.
    #[must_use]
    pub fn locality(&self) -> &Locality {
        &self.inner.locality
    }

    /// Whether it is certain that the peer's process is gone. Seen by itself only for processes of this host and PID
    /// namespace; elsewhere see [`Peer::declare_gone`].
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.inner.watch.is_gone()
    }

    /// Takes the caller's word that the peer's process is gone, so that failed transfers with it settle.
    ///
    /// # Safety
    ///
    /// The process must have ended (its host lost its power, an orchestrator has seen its exit): while it lives, it
    /// may write what it was asked to, into memory that is then used for something else.
    pub unsafe fn declare_gone(&self) {
        tracing::info!(peer = self.name(), incarnation = self.incarnation(), "peer declared gone");
        self.inner.watch.declare_gone();
    }

    /// Transfers with the peer that have not settled.
    #[must_use]
    pub fn unsettled(&self) -> usize {
        self.inner.unsettled.load(Ordering::Acquire)
    }
}
