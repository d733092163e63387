//! What a plan answers for a request: byte ranges, ready to be moved.

use std::sync::Arc;

use kvspec::{StorageIndex, ValidSpec};

use crate::layers::SomeLayers;
use crate::refusal::Side;
use crate::request::Op;

/// One contiguous piece of a transfer: `len` bytes at a place on either side.
///
/// Never crosses a storage; the address is the storage's base plus the offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Descriptor {
    /// Storage at the worker that planned.
    pub local_storage: StorageIndex,
    /// Storage at the peer.
    pub remote_storage: StorageIndex,
    /// Bytes from the base of the local storage.
    pub local_offset: u64,
    /// Bytes from the base of the remote storage.
    pub remote_offset: u64,
    /// Length in bytes, at least 1.
    pub len: u64,
}

/// Destination bytes that belong to a requested block and that no source holds: the receiver zeroes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ZeroRange {
    /// Storage at the destination.
    pub storage: StorageIndex,
    /// Bytes from its base.
    pub offset: u64,
    /// Length in bytes, at least 1.
    pub len: u64,
}

/// Why an answer must not be used between two workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// No plan has answered into it, or the last request was refused.
    #[error("the answer is empty; have a plan answer a request first")]
    Empty,
    /// It was planned for the other direction.
    #[error("the answer is of a {op:?}; make the pair for the other direction")]
    Direction {
        /// Its direction.
        op: Op,
    },
    /// It was planned for other caches.
    #[error("the answer was planned for other caches than those of {side}; plan with what is registered on both sides")]
    OtherCaches {
        /// Whose caches are others.
        side: Side,
    },
}

/// Direction, workers and layers that an answer is for.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub(crate) op: Op,
    pub(crate) local: ValidSpec,
    pub(crate) remote: ValidSpec,
    /// `None` for all that the plan moves.
    pub(crate) layers: Option<Arc<SomeLayers>>,
}

/// The answer to a request, and the buffers it was made in: reuse it and nothing is allocated per descriptor.
#[derive(Debug, Default)]
pub struct Descriptors {
    pub(crate) descriptors: Vec<Descriptor>,
    pub(crate) zero: Vec<ZeroRange>,
    pub(crate) padding_bytes: u64,
    /// What the answer is one to; `None` while there is none.
    pub(crate) of: Option<Origin>,
    pub(crate) scratch: crate::answer::Scratch,
}

impl Descriptors {
    /// An empty answer.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Empties the answer and keeps its buffers.
    pub fn clear(&mut self) {
        self.descriptors.clear();
        self.zero.clear();
        self.padding_bytes = 0;
        self.of = None;
    }

    /// The answer's direction, if it may be used between these two workers: they have the caches that it was planned
    /// for, wherever their memory lies. See [`ValidSpec::has_caches_of`].
    ///
    /// # Errors
    ///
    /// [`AnswerError`]: bytes would go to wrong places.
    pub fn op_between(&self, local: &ValidSpec, remote: &ValidSpec) -> Result<Op, AnswerError> {
        let planned = self.of.as_ref().ok_or(AnswerError::Empty)?;
        let other = |side| Err(AnswerError::OtherCaches { side });
        match (local.has_caches_of(&planned.local), remote.has_caches_of(&planned.remote)) {
            (true, true) => Ok(planned.op),
            (false, _) => other(Side::Local),
            (_, false) => other(Side::Remote),
        }
    }

    /// The layers that the answer is for, where its request asked for some of those that the plan moves; `None` for
    /// all, and while there is no answer.
    #[must_use]
    pub fn some_layers(&self) -> Option<&Arc<SomeLayers>> {
        self.of.as_ref()?.layers.as_ref()
    }

    /// Bytes moved, padding included.
    #[must_use]
    pub fn num_bytes(&self) -> u64 {
        self.descriptors.iter().map(|descriptor| descriptor.len).sum()
    }

    /// Descriptors, lane by lane, sorted by local storage and offset within a lane, merged.
    #[must_use]
    pub fn as_slice(&self) -> &[Descriptor] {
        &self.descriptors
    }

    /// Destination ranges to zero, sorted and merged.
    #[must_use]
    pub fn zero(&self) -> &[ZeroRange] {
        &self.zero
    }

    /// Bytes moved that no part declares: bridged gaps.
    #[must_use]
    pub fn padding_bytes(&self) -> u64 {
        self.padding_bytes
    }
}
