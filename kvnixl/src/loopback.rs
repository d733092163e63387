//! A transport that copies memory within one process, for tests and first contact.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use kvplan::{MemoryRange, Op};
use kvspec::MemKind;

use crate::error::{Error, Result};
use crate::memory::{is_same_memory, shown};
use crate::transport::{Piece, Progress, RequestFailed, Transport, TransportRequest};

/// Agents of one process that can reach each other. Cheap to clone: clones are the same network.
///
/// Every copy is checked against what both sides have registered. Device memory is refused.
#[derive(Clone, Debug, Default)]
pub struct LoopbackNetwork {
    inner: Arc<Network>,
}

#[derive(Debug, Default)]
struct Network {
    nodes: Mutex<BTreeMap<String, Node>>,
    stalled: AtomicBool,
    broken: AtomicBool,
    losing: AtomicBool,
    refusing: AtomicBool,
    deaf: AtomicBool,
    filter: Mutex<Filter>,
}

type Loses = dyn FnMut(&str, &[u8]) -> bool + Send;

/// Which notifications are lost, if anybody has said so.
#[derive(Default)]
struct Filter(Option<Box<Loses>>);

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Filter" } else { "None" })
    }
}

#[derive(Debug, Default)]
struct Node {
    ranges: Vec<MemoryRange>,
    mailbox: Vec<(String, Vec<u8>)>,
}

impl Network {
    fn nodes(&self) -> MutexGuard<'_, BTreeMap<String, Node>> {
        self.nodes.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn filter(&self) -> MutexGuard<'_, Filter> {
        self.filter.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn loses(&self, sender: &str, message: &[u8]) -> bool {
        self.losing.load(Ordering::Acquire) || self.filter().0.as_mut().is_some_and(|loses| loses(sender, message))
    }
}

impl LoopbackNetwork {
    /// A network without agents.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// While `true`, requests that are posted stay in progress and move nothing: what a stopped peer looks like.
    pub fn stall(&self, stalled: bool) {
        self.inner.stalled.store(stalled, Ordering::Release);
    }

    /// While `true`, requests fail when they are posted or polled, with no proof that they have settled: what a
    /// lost peer looks like.
    pub fn break_requests(&self, broken: bool) {
        self.inner.broken.store(broken, Ordering::Release);
    }

    /// While `true`, notifications are taken and never arrive.
    pub fn lose_notifications(&self, losing: bool) {
        self.inner.losing.store(losing, Ordering::Release);
    }

    /// From now on, notifications are taken and never arrive if this says so. It is told the sender, as
    /// `name@incarnation`, and the bytes; it must not use the network.
    pub fn lose_notifications_if(&self, loses: impl FnMut(&str, &[u8]) -> bool + Send + 'static) {
        self.inner.filter().0 = Some(Box::new(loses));
    }

    /// While `true`, notifications are refused when they are sent: what a broken way looks like.
    pub fn refuse_notifications(&self, refusing: bool) {
        self.inner.refusing.store(refusing, Ordering::Release);
    }

    /// While `true`, no agent can take notifications: they wait.
    pub fn break_notifications(&self, broken: bool) {
        self.inner.deaf.store(broken, Ordering::Release);
    }

    pub(crate) fn join(&self, name: &str) -> LoopbackTransport {
        self.inner.nodes().insert(name.to_owned(), Node::default());
        LoopbackTransport { name: name.to_owned(), network: self.inner.clone(), peers: Mutex::default() }
    }
}

/// One agent of a loopback network.
#[derive(Debug)]
pub(crate) struct LoopbackTransport {
    name: String,
    network: Arc<Network>,
    peers: Mutex<BTreeSet<String>>,
}

impl LoopbackTransport {
    fn peers(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.peers.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn known(&self, peer: &str) -> Result<()> {
        if self.peers().contains(peer) { Ok(()) } else { Err(refused(format!("peer {peer} is not loaded"))) }
    }
}

fn refused(why: String) -> Error {
    Error::Loopback { why }
}

impl Transport for LoopbackTransport {
    fn name(&self) -> &str {
        &self.name
    }

    /// Not faster, since copies take turns: so that tests go the same ways as with NIXL.
    fn num_copiers(&self) -> usize {
        2
    }

    unsafe fn register(&self, ranges: &[MemoryRange]) -> Result<()> {
        if let Some(range) = ranges.iter().find(|range| range.mem != MemKind::Dram) {
            return Err(refused(format!("memory range {} is not host memory", shown(range))));
        }
        self.network.nodes().entry(self.name.clone()).or_default().ranges.extend_from_slice(ranges);
        Ok(())
    }

    fn deregister(&self, ranges: &[MemoryRange]) {
        if let Some(node) = self.network.nodes().get_mut(&self.name) {
            node.ranges.retain(|registered| !ranges.iter().any(|range| is_same_memory(range, registered)));
        }
    }

    fn metadata(&self) -> Result<Vec<u8>> {
        Ok(self.name.clone().into_bytes())
    }

    fn load_peer(&self, metadata: &[u8]) -> Result<String> {
        let name = std::str::from_utf8(metadata).map_err(|_| refused("peer metadata is not a name".to_owned()))?;
        if !self.network.nodes().contains_key(name) {
            return Err(refused(format!("peer {name} is not in this process")));
        }
        self.peers().insert(name.to_owned());
        Ok(name.to_owned())
    }

    fn forget_peer(&self, peer: &str) -> Result<()> {
        if self.peers().remove(peer) { Ok(()) } else { Err(refused(format!("peer {peer} is not loaded"))) }
    }

    fn request(&self, op: Op, peer: &str, pieces: &[Piece]) -> Result<Box<dyn TransportRequest>> {
        self.known(peer)?;
        let (name, peer) = (self.name.clone(), peer.to_owned());
        Ok(Box::new(LoopbackRequest { network: self.network.clone(), name, peer, op, pieces: pieces.to_vec() }))
    }

    fn notify(&self, peer: &str, message: &[u8]) -> Result<()> {
        self.known(peer)?;
        if self.network.refusing.load(Ordering::Acquire) {
            return Err(refused(format!("the way to {peer} is broken")));
        }
        let is_lost = self.network.loses(&self.name, message);
        let mut nodes = self.network.nodes();
        let node = nodes.get_mut(peer).ok_or_else(|| refused(format!("peer {peer} is gone")))?;
        if !is_lost {
            node.mailbox.push((self.name.clone(), message.to_vec()));
        }
        Ok(())
    }

    fn notifications(&self) -> Result<Vec<(String, Vec<u8>)>> {
        let mut nodes = self.network.nodes();
        // Under the lock: what is sent after they were broken is not taken by who looked before.
        if self.network.deaf.load(Ordering::Acquire) {
            return Err(refused("notifications are broken".to_owned()));
        }
        Ok(nodes.get_mut(&self.name).map(|node| std::mem::take(&mut node.mailbox)).unwrap_or_default())
    }
}

impl Drop for LoopbackTransport {
    fn drop(&mut self) {
        self.network.nodes().remove(&self.name);
    }
}

#[derive(Debug)]
struct LoopbackRequest {
    network: Arc<Network>,
    name: String,
    peer: String,
    op: Op,
    pieces: Vec<Piece>,
}

impl LoopbackRequest {
    /// Checks every piece, then copies all of them.
    fn copy(&self) -> Result<()> {
        // Held while copying: nobody deregisters meanwhile.
        let nodes = self.network.nodes();
        let ranges = |name: &str| nodes.get(name).map(|node| &node.ranges[..]);
        let local = ranges(&self.name).ok_or_else(|| refused(format!("agent {} is gone", self.name)))?;
        let remote = ranges(&self.peer).ok_or_else(|| refused(format!("peer {} is gone", self.peer)))?;
        for piece in &self.pieces {
            for (name, ranges, address) in [(&self.name, local, piece.local), (&self.peer, remote, piece.remote)] {
                if !ranges.iter().any(|range| contains(range, address, piece.len)) {
                    let why = format!("[{address:#x}, +{}) is not registered at {name}", piece.len);
                    return Err(refused(why));
                }
            }
        }
        for Piece { local, remote, len, .. } in &self.pieces {
            let too_long = |_| refused(format!("{len} bytes do not fit the address space"));
            let (local, remote, len) = (
                usize::try_from(*local).map_err(too_long)?,
                usize::try_from(*remote).map_err(too_long)?,
                usize::try_from(*len).map_err(too_long)?,
            );
            let (from, to) = match self.op {
                Op::Read => (remote, local),
                Op::Write => (local, remote),
            };
            // SAFETY: both ranges are registered, so their owners promised that they are mapped and stay so, and
            // that transfers may write them. `copy` allows overlap.
            unsafe {
                std::ptr::copy(
                    std::ptr::with_exposed_provenance::<u8>(from),
                    std::ptr::with_exposed_provenance_mut::<u8>(to),
                    len,
                );
            }
        }
        Ok(())
    }
}

fn contains(range: &MemoryRange, address: u64, len: u64) -> bool {
    address.checked_sub(range.base).and_then(|skip| skip.checked_add(len)).is_some_and(|end| end <= range.len)
}

impl TransportRequest for LoopbackRequest {
    fn post(&mut self) -> Result<Progress, RequestFailed> {
        if self.network.broken.load(Ordering::Acquire) {
            return Err(RequestFailed { cause: refused("requests are broken".to_owned()), settled: false });
        }
        if self.network.stalled.load(Ordering::Acquire) {
            return Ok(Progress::InProgress);
        }
        self.copy().map_err(|cause| RequestFailed { cause, settled: true })?;
        Ok(Progress::Done)
    }

    fn poll(&mut self) -> Result<Progress, RequestFailed> {
        self.post()
    }

    fn settled_without_peer(&mut self) -> bool {
        // Copies happen only inside `post`.
        true
    }
}
