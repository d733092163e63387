//! An agent: one worker's end of all transfers.

mod foreign;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use kvplan::{Descriptor, LocalPlan, MemoryRange, Op, Side};
use kvspec::ValidSpec;

use crate::batch::{Limits, Pieces, num_bytes};
use crate::blob::{self, Blob, Header};
use crate::cuda;
use crate::error::{Error, Result};
use crate::gate::{Gate, InUse};
use crate::host::{Host, Locality, Watch};
use crate::lease::after;
use crate::loopback::LoopbackNetwork;
use crate::memory::RangeTable;
use crate::nixl::{NixlOptions, NixlTransport};
use crate::notify::{self, Notification};
use crate::peer::{Peer, PeerInner};
use crate::poster::{Job, Poster};
use crate::quarantine::{Claim, Ledger, Quarantined};
use crate::state::TransferStats;
use crate::stats::Stats;
use crate::transfer::{Shared, Transfer, TransferOptions};
use crate::transport::{Piece, Transport};
use crate::wake::Wake;

pub use foreign::ForeignPeer;

/// How long dropping an agent waits for transfers to settle.
const DROP_GRACE: Duration = Duration::from_secs(1);

/// One worker's end of all transfers: registered memory, connected peers, transfers, notifications.
///
/// `Send` and `Sync`; share it in an `Arc`. A process may have several. What may block:
///
/// | call | blocks on |
/// |---|---|
/// | [`Agent::nixl`] | loading NIXL and starting its backend, 20 to 200 ms |
/// | [`Agent::register`], [`Agent::deregister`] | the transport: microseconds on host memory, longer with RDMA |
/// | [`Agent::connect`], [`Agent::export`] | the transport, some milliseconds |
/// | [`Agent::start`] | nothing: it checks and queues, linear in the number of descriptors |
/// | [`Agent::notify`], [`Agent::notifications`] | one request that is being posted, see [`Limits`] |
/// | [`Agent::shutdown`], drop | transfers that have not settled, up to the given time, or a second |
///
/// Dropping an agent cancels what is not posted and waits a second for the rest. If that does not settle, NIXL's
/// side of the agent is left alive for the rest of the process, since its requests may still write.
pub struct Agent {
    name: String,
    incarnation: u64,
    limits: Limits,
    host: Option<Host>,
    ledger: Arc<Ledger>,
    transport: Option<Arc<dyn Transport>>,
    gate: Arc<Gate>,
    wake: Arc<Wake>,
    memory: RwLock<Memory>,
    peers: Mutex<Peers>,
    poster: Mutex<Poster>,
    unsettled: Arc<AtomicUsize>,
    next_transfer: AtomicU64,
}

#[derive(Default)]
struct Peers {
    by_name: HashMap<String, Arc<PeerInner>>,
    /// Replaced with transfers that had not settled: the transport knows them until those have.
    retired: Vec<Arc<PeerInner>>,
}

#[derive(Default)]
struct Memory {
    registered: Option<(ValidSpec, RangeTable)>,
    generation: u64,
}

/// A peer that says who it is and is not reachable yet.
struct Introduced {
    name: String,
    /// 0 if it is not of this library.
    incarnation: u64,
    generation: u64,
    transport_name: String,
    metadata: Vec<u8>,
    layout: ValidSpec,
    ranges: RangeTable,
    host: Option<Host>,
}

impl Agent {
    /// An agent on NIXL. The name need not be unique over restarts: an agent also has a random incarnation.
    ///
    /// # Errors
    ///
    /// [`Error::LibraryNotFound`] or [`Error::LibraryConflict`] from loading NIXL; [`Error::AgentName`];
    /// [`Error::ZeroLimit`]; [`Error::Nixl`] when NIXL refuses the agent or its backend.
    pub fn nixl(name: &str, options: &NixlOptions, limits: Limits) -> Result<Self> {
        Self::new(name, limits, |transport_name| Ok(Arc::new(NixlTransport::new(transport_name, options)?)))
    }

    /// An agent that copies memory within this process.
    ///
    /// # Errors
    ///
    /// [`Error::AgentName`], [`Error::ZeroLimit`].
    pub fn loopback(name: &str, network: &LoopbackNetwork, limits: Limits) -> Result<Self> {
        Self::new(name, limits, |transport_name| Ok(Arc::new(network.join(transport_name))))
    }

    fn new(name: &str, limits: Limits, connect: impl FnOnce(&str) -> Result<Arc<dyn Transport>>) -> Result<Self> {
        notify::check_name(name)?;
        limits.check()?;
        let incarnation = getrandom::u64().map_err(Error::Random)?;
        let transport = connect(&notify::transport_name(name, incarnation))?;
        let gate = Arc::new(Gate::new());
        let wake = Arc::new(Wake::default());
        let poster = Mutex::new(Poster::start(name, transport.clone(), gate.clone(), wake.clone())?);
        tracing::info!(agent = name, incarnation, ?transport, "agent created");
        Ok(Self {
            name: name.to_owned(),
            incarnation,
            limits,
            host: Host::of_this_process(),
            ledger: Arc::new(Ledger::new(name)),
            transport: Some(transport),
            gate,
            wake,
            memory: RwLock::default(),
            peers: Mutex::default(),
            poster,
            unsettled: Arc::default(),
            next_transfer: AtomicU64::new(1),
        })
    }

    /// The agent's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Random number of this agent.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Counts the agent's registrations: 0 before the first.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.memory().generation
    }

    /// Transfers that have not settled, whether they are in progress, failed or no longer wanted. Their blocks are
    /// in use.
    #[must_use]
    pub fn unsettled(&self) -> usize {
        self.unsettled.load(Ordering::Acquire)
    }

    /// What the agent has done and is doing. The same goes to the recorder of the `metrics` facade, if one is
    /// installed: `docs/METRICS.md` of the crate lists the names.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.ledger.stats(self.unsettled())
    }

    /// Transfers that have failed and not settled, with the ranges that may still be written. They leave when they
    /// settle, and only then may their blocks be used again.
    #[must_use]
    pub fn quarantine(&self) -> Vec<Quarantined> {
        self.ledger.list()
    }

    /// Registers a worker's memory ranges, once; [`Agent::deregister`] allows another time.
    ///
    /// # Safety
    ///
    /// Every memory range of the plan must be memory of the kind it names that stays mapped, and that this process and its peers may
    /// read and write through transfers, until [`Agent::deregister`] or [`Agent::shutdown`] has succeeded and no
    /// peer that has connected may still use it: deregistration revokes nothing. When shutdown reports
    /// [`Error::Unsettled`], the memory must stay mapped for ever.
    ///
    /// # Errors
    ///
    /// [`Error::AlreadyRegistered`], [`Error::NoDevice`], [`Error::Nixl`]; nothing is registered then.
    pub unsafe fn register(&self, plan: &LocalPlan) -> Result<()> {
        let (spec, ranges) = (plan.spec(), plan.memory_ranges());
        let mut memory = self.memory_mut();
        if let Some((_, ranges)) = &memory.registered {
            return Err(Error::AlreadyRegistered { agent: self.name.clone(), count: ranges.len() });
        }
        let table = RangeTable::new(Side::Local, ranges, &spec.storages)?;
        for range in ranges {
            cuda::check(range.mem)?;
        }
        // SAFETY: the caller's promise.
        unsafe { self.transport()?.register(ranges)? };
        memory.registered = Some((spec.clone(), table));
        memory.generation += 1;
        Ok(())
    }

    /// Deregisters all memory. Peers that have connected can still reach it until they are told: NIXL revokes
    /// nothing.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`] while a transfer has not settled; [`Error::NotRegistered`].
    pub fn deregister(&self) -> Result<()> {
        let mut memory = self.memory_mut();
        let Some((_, ranges)) = &memory.registered else {
            return Err(Error::NotRegistered { agent: self.name.clone() });
        };
        // Under the write lock no transfer can start.
        match self.unsettled() {
            0 => {}
            transfers => {
                let what = format!("memory of agent {} ({} ranges)", self.name, ranges.len());
                return Err(Error::InUse { what, transfers });
            }
        }
        self.transport()?.deregister();
        memory.registered = None;
        Ok(())
    }

    /// The blob that peers connect to: who this is, its layout and how to reach its memory.
    ///
    /// # Errors
    ///
    /// [`Error::NotRegistered`], [`Error::Nixl`], [`Error::BlobTooLong`].
    pub fn export(&self) -> Result<Vec<u8>> {
        let memory = self.memory();
        let (spec, ranges) = self.registered(&memory)?;
        let header = Header {
            fingerprint: spec.fingerprint.clone(),
            agent: self.name.clone(),
            incarnation: self.incarnation,
            generation: memory.generation,
        };
        let ranges: Vec<MemoryRange> = ranges.iter().collect();
        blob::encode(&header, spec, &ranges, self.transport()?.metadata()?, self.host.clone())
    }

    /// Connects the peer whose blob this is. The same blob again gives the same peer; a newer one, or one of a
    /// restarted peer, replaces it. A failed connect changes nothing.
    ///
    /// # Errors
    ///
    /// The `Blob…` errors for bytes that are not a blob of this version; [`Error::FingerprintMismatch`];
    /// [`Error::PeerLayout`] and the range errors for a layout that does not hold together; [`Error::OwnBlob`];
    /// [`Error::StaleBlob`]; [`Error::PeerEnded`] for a process that is known to be gone; [`Error::NotRegistered`];
    /// [`Error::Nixl`] and [`Error::PeerNameMismatch`] for NIXL metadata that cannot be used.
    pub fn connect(&self, blob: &[u8]) -> Result<Peer> {
        self.connect_if(blob, |_, _, _| Ok(()))
    }

    /// As [`Agent::connect`], unless `check` refuses the peer's name, incarnation and generation.
    pub(crate) fn connect_if(&self, blob: &[u8], check: impl FnOnce(&str, u64, u64) -> Result<()>) -> Result<Peer> {
        let fingerprint = self.registered(&self.memory())?.0.fingerprint.clone();
        let blob = blob::decode(blob, &fingerprint)?;
        let Header { agent: name, incarnation, generation, .. } = blob.header;
        if incarnation == self.incarnation {
            return Err(Error::OwnBlob { agent: self.name.clone() });
        }
        check(&name, incarnation, generation)?;
        let transport_name = notify::transport_name(&name, incarnation);
        let Blob { layout, ranges, metadata, host, .. } = blob;
        self.introduce(Introduced { name, incarnation, generation, transport_name, metadata, layout, ranges, host })
    }

    /// Makes a peer reachable that says who it is.
    fn introduce(&self, new: Introduced) -> Result<Peer> {
        let Introduced { name, incarnation, generation, transport_name, metadata, layout, ranges, host } = new;
        // Held throughout: connecting the same peer twice at once would mix up the two.
        let mut peers = self.peers();
        self.forget_retired(&mut peers);
        let current = peers.by_name.get(&name).filter(|peer| peer.incarnation == incarnation).cloned();
        let watch = match &current {
            Some(current) => current.watch.clone(),
            None => Arc::new(Watch::new(self.host.as_ref(), host.as_ref())),
        };
        if watch.is_gone() {
            return Err(Error::PeerEnded { peer: name, incarnation });
        }
        if let Some(current) = &current {
            if generation < current.generation {
                return Err(Error::StaleBlob { peer: name, stale: generation, current: current.generation });
            }
            if generation == current.generation {
                return Ok(Peer { inner: current.clone() });
            }
        }
        let transport = self.transport()?;
        let named = transport.load_peer(&metadata)?;
        if named != transport_name {
            if !peers.has_named(&named) {
                self.forget(&named);
            }
            return Err(Error::PeerNameMismatch { peer: transport_name, named });
        }
        let locality = Host::locality(self.host.as_ref(), host.as_ref());
        if current.is_none() {
            self.warn_of_barriers(&name, incarnation, &locality);
        }
        let unsettled = current.map(|peer| peer.unsettled.clone()).unwrap_or_default();
        let inner = Arc::new(PeerInner {
            name: name.clone(),
            incarnation,
            generation,
            transport_name,
            metadata,
            layout,
            ranges,
            unsettled,
            locality,
            watch,
        });
        if let Some(old) = peers.by_name.insert(name, inner.clone()).filter(|old| old.incarnation != incarnation) {
            peers.retired.push(old);
            self.forget_retired(&mut peers);
        }
        tracing::info!(agent = %self.name, peer = %inner.name, incarnation, generation, locality = ?inner.locality, "peer connected");
        Ok(Peer { inner })
    }

    /// Opens the way to a peer anew, for example after a network failure: an error of a transfer may have closed it
    /// for good, though the peer lives. Failed transfers with it stay in quarantine; those in progress fail and go
    /// there too.
    ///
    /// # Errors
    ///
    /// [`Error::PeerGone`] when it is not connected; [`Error::Nixl`] when the peer cannot be loaded again, and then
    /// transfers with it fail.
    pub fn reconnect(&self, peer: &Peer) -> Result<()> {
        // Held throughout, as in `connect`.
        let peers = self.peers();
        if !peers.has(peer) {
            return Err(Error::PeerGone { peer: peer.name().to_owned() });
        }
        let transport = self.transport()?;
        self.forget(&peer.inner.transport_name);
        transport.load_peer(&peer.inner.metadata)?;
        tracing::info!(agent = %self.name, peer = peer.name(), incarnation = peer.incarnation(), "peer reconnected");
        Ok(())
    }

    /// Lets a peer go.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`] while a transfer with it has not settled; [`Error::PeerGone`] when it is not connected.
    pub fn disconnect(&self, peer: &Peer) -> Result<()> {
        let mut peers = self.peers();
        let gone = || Err(Error::PeerGone { peer: peer.name().to_owned() });
        match peers.by_name.entry(peer.name().to_owned()) {
            Entry::Occupied(entry) if Arc::ptr_eq(entry.get(), &peer.inner) => match peer.unsettled() {
                0 => {
                    entry.remove();
                    self.forget(&peer.inner.transport_name);
                    Ok(())
                }
                transfers => Err(Error::InUse { what: format!("peer {}", peer.name()), transfers }),
            },
            _ => gone(),
        }
    }

    /// Starts moving the descriptors of a plan: [`Op::Read`] from the peer, [`Op::Write`] to it. An empty list is
    /// done at once (and notifies).
    ///
    /// Every descriptor is checked against what is registered on both sides before NIXL sees any of them.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`], [`Error::NotificationTooLong`], [`Error::ZeroLimit`], [`Error::NotRegistered`],
    /// [`Error::PeerGone`], [`Error::ShutDown`]; [`Error::WouldBlock`] when too much is in flight, see
    /// [`Limits::in_flight_bytes`]; nothing has been posted then.
    pub fn start(&self, peer: &Peer, op: Op, descriptors: &[Descriptor], options: TransferOptions) -> Result<Transfer> {
        self.start_in(None, peer, op, descriptors, options)
    }

    /// Claims room for transfers that are to start together, see [`Agent::start_in`].
    pub(crate) fn claim(&self, bytes: u64, descriptors: usize) -> Result<Claim> {
        self.ledger.claim(&self.limits, bytes, descriptors)
    }

    /// As [`Agent::start`], in room that was claimed before.
    pub(crate) fn start_in(
        &self,
        room: Option<&mut Claim>,
        peer: &Peer,
        op: Op,
        descriptors: &[Descriptor],
        options: TransferOptions,
    ) -> Result<Transfer> {
        let TransferOptions { notify, deadline, limits, request, padding } = options;
        if let Some(message) = &notify {
            notify::check_length(message)?;
        }
        let limits = limits.unwrap_or(self.limits);
        limits.check()?;
        // Held until the transfer is counted: memory is not deregistered meanwhile.
        let memory = self.memory();
        let (_, ranges) = self.registered(&memory)?;
        let pieces = pieces(descriptors, ranges, &peer.inner.ranges)?;
        let bytes = num_bytes(descriptors);
        let claim = match room {
            Some(room) => room.take(bytes, pieces.len()),
            None => self.claim(bytes, pieces.len())?,
        };
        let in_use = {
            if !self.peers().has(peer) {
                return Err(Error::PeerGone { peer: peer.name().to_owned() });
            }
            [InUse::new(&self.unsettled), InUse::new(&peer.inner.unsettled)]
        };
        let id = self.next_transfer.fetch_add(1, Ordering::Relaxed);
        let span = tracing::debug_span!(
            "transfer",
            agent = %self.name,
            transfer = id,
            request = request.as_deref(),
            peer = peer.name(),
            incarnation = peer.incarnation(),
            ?op,
        );
        span.in_scope(|| tracing::debug!(bytes, descriptors = descriptors.len(), "transfer started"));
        let stats = TransferStats { bytes, padding, descriptors: descriptors.len(), ..TransferStats::default() };
        let shared =
            Arc::new(Shared::new(id, peer.name().to_owned(), stats, span, self.ledger.clone(), self.wake.clone()));
        let job = Job {
            shared: shared.clone(),
            request,
            op,
            peer: peer.inner.transport_name.clone(),
            incarnation: peer.incarnation(),
            watch: peer.inner.watch.clone(),
            pieces: Pieces::new(pieces),
            limits,
            notify,
            // A deadline beyond the clock's range is none.
            deadline: deadline.and_then(|deadline| shared.started.checked_add(deadline)),
            outstanding: Vec::new(),
            stuck: Vec::new(),
            failed: None,
            looked: shared.started,
            in_use: Some(in_use),
            claim: Some(claim),
        };
        if let Err(error) = self.poster().submit(job, &self.name) {
            shared.refuse();
            return Err(error);
        }
        Ok(Transfer { shared })
    }

    /// Sends a short message to a peer. Messages to one peer arrive in order; there is no confirmation.
    ///
    /// # Errors
    ///
    /// [`Error::NotificationTooLong`]; [`Error::PeerGone`]; [`Error::Nixl`], for example when the peer is known to
    /// be gone. No error is no proof of delivery.
    pub fn notify(&self, peer: &Peer, message: &[u8]) -> Result<()> {
        notify::check_length(message)?;
        if !self.peers().has(peer) {
            return Err(Error::PeerGone { peer: peer.name().to_owned() });
        }
        let _first = self.gate.enter();
        let sent = self.transport()?.notify(&peer.inner.transport_name, message);
        self.ledger.recorder.notified(sent.is_ok());
        sent
    }

    /// Takes all notifications that have arrived. Those of one sender are in order.
    ///
    /// # Errors
    ///
    /// [`Error::Nixl`].
    pub fn notifications(&self) -> Result<Vec<Notification>> {
        let _first = self.gate.enter();
        let (kept, dropped) = notify::accept(self.wake.take(&**self.transport()?)?);
        self.ledger.recorder.received(kept.len(), dropped);
        Ok(kept)
    }

    /// A file descriptor for `poll`, `epoll` or an event loop: readable when a transfer has ended or settled, when a
    /// notification has arrived, when an [`Exchange`](crate::Exchange) of this agent has something to do, and when the
    /// agent has ended. Then [`clear_events`](Agent::clear_events), and look at everything:
    /// [`Exchange::poll`](crate::Exchange::poll) does both for what is the exchange's.
    ///
    /// NIXL has to be asked for notifications: from the first call on the agent's thread does that every `look_every`,
    /// the latest call's, and keeps them until they are taken. Until then it costs nothing. The descriptor lives as
    /// long as the agent.
    ///
    /// # Errors
    ///
    /// [`Error::NoDescriptor`].
    pub fn event_fd(&self, look_every: Duration) -> Result<BorrowedFd<'_>> {
        let fd = self.wake.fd(look_every).map_err(Error::NoDescriptor)?;
        self.poster().rouse();
        // What came before is worth a look.
        self.wake.raise();
        Ok(fd)
    }

    /// Makes the descriptor unreadable until something happens again. No effect before it was asked for.
    pub fn clear_events(&self) {
        self.wake.clear();
    }

    /// Makes the descriptor readable, for example from another thread to end a wait. No effect before it was asked for.
    pub fn raise_event(&self) {
        self.wake.raise();
    }

    /// Makes the descriptor readable at this time.
    pub(crate) fn raise_event_at(&self, deadline: Instant) {
        if self.wake.at(deadline) {
            self.poster().rouse();
        }
    }

    /// Ends the agent: nothing more is posted, what is in progress may settle for `grace`, then memory is
    /// deregistered.
    ///
    /// # Errors
    ///
    /// [`Error::Unsettled`] when transfers have not settled: then the memory stays registered and must stay mapped
    /// for the rest of the process.
    pub fn shutdown(mut self, grace: Duration) -> Result<()> {
        self.stop(grace)
    }

    /// The order matters: first the thread that uses the transport, then registrations and agent, and neither of
    /// those while a request may write.
    fn stop(&mut self, grace: Duration) -> Result<()> {
        let Some(transport) = self.transport.take() else { return Ok(()) };
        let transfers = self.poster().stop(after(Instant::now(), grace));
        if transfers > 0 {
            tracing::error!(agent = %self.name, transfers, "agent ended with unsettled transfers; its memory stays in use");
            // Requests, registrations and NIXL's agent live on.
            std::mem::forget(transport);
            return Err(Error::Unsettled { agent: self.name.clone(), transfers });
        }
        transport.deregister();
        Ok(())
    }

    fn transport(&self) -> Result<&Arc<dyn Transport>> {
        self.transport.as_ref().ok_or_else(|| Error::ShutDown { agent: self.name.clone() })
    }

    fn warn_of_barriers(&self, peer: &str, incarnation: u64, locality: &Locality) {
        let Locality::SameHostApart(barriers) = locality else { return };
        let causes: Vec<String> = barriers.iter().map(ToString::to_string).collect();
        tracing::warn!(
            agent = %self.name,
            peer,
            incarnation,
            causes = causes.join("; "),
            "peer is on this host, but the kernel cannot copy between the two: UCX takes TCP, several times slower"
        );
    }

    /// Forgets replaced peers that nothing is under way with any more.
    fn forget_retired(&self, peers: &mut Peers) {
        let Peers { by_name, retired } = peers;
        retired.retain(|peer| {
            let under_way = peer.unsettled.load(Ordering::Acquire) > 0;
            // Unless it has come back.
            if !under_way && !by_name.values().any(|current| current.transport_name == peer.transport_name) {
                self.forget(&peer.transport_name);
            }
            under_way
        });
    }

    fn forget(&self, transport_name: &str) {
        if let Err(error) = self.transport().and_then(|transport| transport.forget_peer(transport_name)) {
            tracing::warn!(agent = %self.name, peer = transport_name, %error, "cannot forget a peer");
        }
    }

    fn registered<'a>(&self, memory: &'a Memory) -> Result<&'a (ValidSpec, RangeTable)> {
        memory.registered.as_ref().ok_or_else(|| Error::NotRegistered { agent: self.name.clone() })
    }

    fn memory(&self) -> RwLockReadGuard<'_, Memory> {
        self.memory.read().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn memory_mut(&self) -> RwLockWriteGuard<'_, Memory> {
        self.memory.write().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn peers(&self) -> MutexGuard<'_, Peers> {
        self.peers.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn poster(&self) -> MutexGuard<'_, Poster> {
        self.poster.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // What cannot settle was logged.
        let _ = self.stop(DROP_GRACE);
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent")
            .field("name", &self.name)
            .field("incarnation", &self.incarnation)
            .field("unsettled", &self.unsettled())
            .finish_non_exhaustive()
    }
}

impl Peers {
    /// Whether the transport knows somebody by this name for a reason.
    fn has_named(&self, transport_name: &str) -> bool {
        self.by_name.values().chain(&self.retired).any(|peer| peer.transport_name == transport_name)
    }

    /// Whether this is the connection that counts.
    fn has(&self, peer: &Peer) -> bool {
        self.by_name.get(peer.name()).is_some_and(|current| Arc::ptr_eq(current, &peer.inner))
    }
}

/// Where the descriptors lie in memory.
fn pieces(descriptors: &[Descriptor], local: &RangeTable, remote: &RangeTable) -> Result<Vec<Piece>> {
    let mut pieces = Vec::with_capacity(descriptors.len());
    for (index, descriptor) in descriptors.iter().enumerate() {
        let Descriptor { local_storage, remote_storage, local_offset, remote_offset, len } = *descriptor;
        let (local, local_mem) = local.resolve(Side::Local, index, local_storage, local_offset, len)?;
        let (remote, remote_mem) = remote.resolve(Side::Remote, index, remote_storage, remote_offset, len)?;
        pieces.push(Piece { local, remote, len, local_mem, remote_mem });
    }
    Ok(pieces)
}
