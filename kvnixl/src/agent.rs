//! An agent: one worker's end of all transfers.

mod foreign;
#[cfg(test)]
mod panic_tests;
mod peers;
mod refused;
mod registration;
mod reserved;
mod start;

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::time::{Duration, Instant, SystemTime};

use crate::batch::Limits;
use crate::blob::{self, Header};
use crate::error::{Error, Result};
use crate::gate::Gate;
use crate::host::Host;
use crate::lease::{Numbers, after};
use crate::loopback::LoopbackNetwork;
use crate::memory::Registered;
use crate::nixl::{NixlOptions, NixlTransport};
use crate::notify::{self, Notification};
use crate::peer::Peer;
use crate::poster::Poster;
use crate::quarantine::{Ledger, Quarantined};
use crate::stats::Stats;
use crate::transport::Transport;
use crate::wake::Wake;

use peers::Peers;
pub(crate) use peers::Stands;
use refused::Refused;
use registration::Memory;

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
/// | [`Agent::register`], [`Agent::reregister`], [`Agent::deregister`] | the transport: microseconds on host memory, longer with RDMA |
/// | [`Agent::connect`], [`Agent::export`] | the transport, some milliseconds |
/// | [`Agent::start`] | nothing: it checks and queues, linear in the number of descriptors; what is at most [`Limits::inline_weight`] may be copied meanwhile, some 50 µs |
/// | [`Agent::notify`], [`Agent::notifications`] | one request that is being posted, see [`Limits`] |
/// | [`Agent::shutdown`], drop | transfers that have not settled, up to the given time, or a second |
///
/// Dropping an agent cancels what is not posted and waits a second for the rest. If that does not settle, NIXL's
/// side of the agent is left alive for the rest of the process, since its requests may still write.
pub struct Agent {
    name: String,
    incarnation: u64,
    /// When it was made, in nanoseconds since 1970.
    started: u64,
    limits: Limits,
    host: Option<Host>,
    ledger: Arc<Ledger>,
    transport: Option<Arc<dyn Transport>>,
    gate: Arc<Gate>,
    wake: Arc<Wake>,
    memory: RwLock<Memory>,
    /// Held while registrations change.
    change: Mutex<()>,
    peers: Mutex<Peers>,
    refused: Refused,
    poster: Mutex<Poster>,
    unsettled: Arc<AtomicUsize>,
    /// Those that the copy threads may not carry.
    unshared: Arc<AtomicUsize>,
    next_transfer: AtomicU64,
    has_exchange: Arc<AtomicBool>,
    /// Writes of its exchanges that have not settled, also of those that were dropped.
    exchange_writes: Arc<AtomicUsize>,
    /// Of its exchanges, which follow one another.
    numbers: Numbers,
}

/// An agent's place for an exchange. Free again when it is dropped.
#[derive(Debug)]
pub(crate) struct ExchangePlace(Arc<AtomicBool>);

impl Drop for ExchangePlace {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Agent {
    /// An agent on NIXL. The name need not be unique over restarts: an agent also has a random incarnation.
    ///
    /// # Errors
    ///
    /// [`Error::LibraryNotFound`] or [`Error::LibraryConflict`] from loading NIXL; [`Error::AgentName`];
    /// [`Error::ZeroLimit`]; [`Error::Forked`] in a child of a process that made one; [`Error::Nixl`] when NIXL refuses
    /// the agent or its backend.
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

    /// Takes the place of the agent's exchange: it takes all notifications, so there is one. What it says of its writes
    /// a reader takes for all that this agent writes, so those of the one before must have settled.
    pub(crate) fn take_exchange_place(&self) -> Result<ExchangePlace> {
        if self.has_exchange.swap(true, Ordering::AcqRel) {
            return Err(Error::ExchangeExists { agent: self.name.clone() });
        }
        let place = ExchangePlace(self.has_exchange.clone());
        match self.exchange_writes.load(Ordering::Acquire) {
            0 => Ok(place),
            transfers => Err(Error::InUse { what: format!("the exchange that agent {} had", self.name), transfers }),
        }
    }

    pub(crate) fn numbers(&self) -> Numbers {
        self.numbers.clone()
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
            started: since_1970(),
            limits,
            host: Host::of_this_process(),
            ledger: Arc::new(Ledger::new(name)),
            transport: Some(transport),
            gate,
            wake,
            memory: RwLock::default(),
            change: Mutex::default(),
            peers: Mutex::default(),
            refused: Refused::default(),
            poster,
            unsettled: Arc::default(),
            unshared: Arc::default(),
            next_transfer: AtomicU64::new(1),
            has_exchange: Arc::default(),
            exchange_writes: Arc::default(),
            numbers: Numbers::from_incarnation(incarnation),
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
        let copy_threads = u64::try_from(self.poster().copy_threads()).unwrap_or(u64::MAX);
        Stats { limits: self.limits, copy_threads, ..self.ledger.stats(self.unsettled()) }
    }

    /// Transfers that have failed and not settled, with the ranges that may still be written. They leave when they
    /// settle, and only then may their blocks be used again.
    #[must_use]
    pub fn quarantine(&self) -> Vec<Quarantined> {
        self.ledger.list()
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
            generation: memory.generation(),
            started: Some(self.started),
        };
        let ranges: Vec<Registered> = ranges.iter().collect();
        blob::encode(&header, spec, &ranges, self.transport()?.metadata()?, self.host.clone())
    }

    /// Sends a short message to a peer. Messages to one peer arrive in order; there is no confirmation.
    ///
    /// # Errors
    ///
    /// [`Error::NotificationTooLong`]; [`Error::PeerGone`]; [`Error::Nixl`], for example when the peer is known to
    /// be gone. No error is no proof of delivery.
    pub fn notify(&self, peer: &Peer, message: &[u8]) -> Result<()> {
        notify::check_length(message)?;
        self.peers().check(peer)?;
        let _first = self.gate.enter();
        let sent = self.transport()?.notify(&peer.inner.transport_name, message);
        self.ledger.recorder.notified(sent.is_ok());
        sent
    }

    /// As [`Agent::notifications`], for whoever may have them.
    pub(crate) fn take_notifications(&self) -> Result<Vec<Notification>> {
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
        transport.deregister(&self.registered_ranges());
        Ok(())
    }

    fn transport(&self) -> Result<&Arc<dyn Transport>> {
        self.transport.as_ref().ok_or_else(|| Error::ShutDown { agent: self.name.clone() })
    }

    fn poster(&self) -> MutexGuard<'_, Poster> {
        self.poster.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// This host's clock, in nanoseconds.
fn since_1970() -> u64 {
    let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
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
