//! The seam between transfers and what moves the bytes.
//!
//! [`Agent`](crate::Agent) checks, cuts, orders and follows transfers; a [`Transport`] only registers memory and
//! runs one request at a time. NIXL is the real one; [`LoopbackNetwork`](crate::LoopbackNetwork) copies memory
//! within a process, for tests and first contact.

use std::fmt;

use kvplan::{MemoryRange, Op};
use kvspec::MemKind;

use crate::error::{Error, Result};

/// What moves bytes for an agent.
///
/// Addresses that arrive here were checked against the registered ranges of both sides.
pub(crate) trait Transport: Send + Sync + fmt::Debug {
    /// The agent's name on this transport: unique among all agents that meet.
    fn name(&self) -> &str;

    /// Registers memory. The ranges overlap neither each other nor what is registered.
    ///
    /// # Safety
    ///
    /// The memory must stay mapped until it is deregistered and no request is using it.
    ///
    /// # Errors
    ///
    /// What the transport says; then nothing is registered.
    unsafe fn register(&self, ranges: &[MemoryRange]) -> Result<()>;

    /// Deregisters ranges, as they were registered. No request that uses them is in progress.
    fn deregister(&self, ranges: &[MemoryRange]);

    /// What a peer needs to reach this agent's registered memory.
    ///
    /// # Errors
    ///
    /// What the transport says.
    fn metadata(&self) -> Result<Vec<u8>>;

    /// Makes a peer reachable from its metadata and returns its name. Loading newer metadata of a peer adds to
    /// what is known of it.
    ///
    /// # Errors
    ///
    /// What the transport says; peers loaded before stay usable.
    fn load_peer(&self, metadata: &[u8]) -> Result<String>;

    /// Forgets a peer. No request with it is in progress.
    ///
    /// # Errors
    ///
    /// What the transport says, for example that the peer is not known.
    fn forget_peer(&self, peer: &str) -> Result<()>;

    /// Prepares a request that moves all pieces; nothing is moved yet.
    ///
    /// # Errors
    ///
    /// What the transport says, for example that the peer is not known.
    fn request(&self, op: Op, peer: &str, pieces: &[Piece]) -> Result<Box<dyn TransportRequest>>;

    /// How many threads beside the posting thread may post what the kernel copies: see `crew`.
    fn num_copiers(&self) -> usize {
        0
    }

    /// Makes a copy thread's own way to peers, which knows all that is registered and loaded, now and later. Called
    /// once by each copy thread, before its first request.
    ///
    /// # Errors
    ///
    /// What the transport says; the others go on without that thread.
    fn start_copier(&self, _copier: usize) -> Result<()> {
        Ok(())
    }

    /// Reads what peers' transports say to a copy thread that has nothing else to do.
    fn tend_copier(&self, _copier: usize) {}

    /// As [`Transport::request`], on a copy thread's own way. Host memory on both sides.
    ///
    /// # Errors
    ///
    /// As [`Transport::request`].
    fn copier_request(
        &self,
        _copier: usize,
        op: Op,
        peer: &str,
        pieces: &[Piece],
    ) -> Result<Box<dyn TransportRequest>> {
        self.request(op, peer, pieces)
    }

    /// Sends a notification. May block while a request is being posted.
    ///
    /// # Errors
    ///
    /// What the transport says. No error is no proof of delivery.
    fn notify(&self, peer: &str, message: &[u8]) -> Result<()>;

    /// Takes the notifications that have arrived, as (sender, message), in order for each sender.
    ///
    /// # Errors
    ///
    /// What the transport says.
    fn notifications(&self) -> Result<Vec<(String, Vec<u8>)>>;
}

/// The way that a request takes: the agent's own, or that of a copy thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route<'a> {
    pub(crate) transport: &'a dyn Transport,
    pub(crate) copier: Option<usize>,
}

impl Route<'_> {
    pub(crate) fn request(self, op: Op, peer: &str, pieces: &[Piece]) -> Result<Box<dyn TransportRequest>> {
        match self.copier {
            None => self.transport.request(op, peer, pieces),
            Some(copier) => self.transport.copier_request(copier, op, peer, pieces),
        }
    }
}

/// A request, from preparation until nothing can land any more.
///
/// A request that is in progress must not be dropped, unless it moves nothing: NIXL keeps writing after a release.
pub(crate) trait TransportRequest: Send + fmt::Debug {
    /// Starts it; called once. May copy everything before it returns. One that moves nothing may be started again.
    ///
    /// # Errors
    ///
    /// Why it failed, and whether bytes may still land.
    fn post(&mut self) -> Result<Progress, RequestFailed>;

    /// Looks how far it is. Called after [`TransportRequest::post`] said [`Progress::InProgress`], until something else
    /// is said.
    ///
    /// # Errors
    ///
    /// As [`TransportRequest::post`].
    fn poll(&mut self) -> Result<Progress, RequestFailed>;

    /// Whether a request that failed unsettled has settled by now, given that the peer's process is known to be
    /// gone. Called now and then; `true` ends the request.
    fn settled_without_peer(&mut self) -> bool {
        false
    }
}

/// How far a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Bytes may still be moving.
    InProgress,
    /// Every byte is in place.
    Done,
}

/// Why a request failed.
#[derive(Debug)]
pub(crate) struct RequestFailed {
    /// The cause.
    pub(crate) cause: Error,
    /// Whether it is certain that nothing lands any more.
    pub(crate) settled: bool,
}

/// Bytes to move within one request: the same length on both sides, inside registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Address at this agent.
    pub local: u64,
    /// Address at the peer.
    pub remote: u64,
    /// Length in bytes, at least 1; 0 in a request that moves nothing.
    pub len: u64,
    /// Memory kind at this agent.
    pub local_mem: MemKind,
    /// Memory kind at the peer.
    pub remote_mem: MemKind,
}

impl Piece {
    /// Whether both can be in one request: NIXL takes one memory kind for each side.
    pub(crate) fn mixes_with(&self, other: &Self) -> bool {
        let is_vram = |mem| matches!(mem, MemKind::Vram(_));
        is_vram(self.local_mem) == is_vram(other.local_mem) && is_vram(self.remote_mem) == is_vram(other.remote_mem)
    }
}
