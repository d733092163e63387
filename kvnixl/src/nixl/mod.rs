//! The transport on NIXL.

mod endpoint;

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::thread;
use std::time::Duration;

use kvplan::{MemoryRange, Op};
use kvspec::MemKind;

use crate::error::Result;
use crate::fork;
use crate::library::Library;
use crate::memory::is_same_memory;
use crate::transport::{Piece, Transport, TransportRequest};

use endpoint::Endpoint;

/// How NIXL is set up for an agent.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NixlOptions {
    /// `libnixl_capi.so` or its folder; `None` searches, see [`library`](crate::library).
    pub library: Option<PathBuf>,
    /// NIXL plugin that moves the bytes.
    pub backend: String,
    /// Parameters of the plugin, for example `num_threads`. Empty takes the plugin's defaults.
    pub backend_params: BTreeMap<String, String>,
    /// How many threads copy between processes of this host, for transfers of
    /// [`Limits::shared_weight`](crate::Limits::shared_weight) and more; each has an agent of NIXL to itself. `None` for
    /// one for each core that this process may use, at most 4; 0 leaves it to the posting thread. Other hosts and
    /// devices never need them.
    pub copy_threads: Option<usize>,
    /// How long NIXL's progress thread sleeps between two looks, 2 ms by default. NIXL's own default of 0 spins: a whole
    /// core for each idle agent.
    pub progress_delay: Duration,
}

impl Default for NixlOptions {
    fn default() -> Self {
        Self {
            library: None,
            backend: "UCX".to_owned(),
            backend_params: BTreeMap::new(),
            copy_threads: None,
            progress_delay: Duration::from_millis(2),
        }
    }
}

/// Most copy threads by default: memory has no more to give.
const MOST_COPY_THREADS: usize = 4;

/// The agents of NIXL that one agent has: its own, and one for each copy thread.
pub(crate) struct NixlTransport {
    options: NixlOptions,
    own: Endpoint,
    copiers: Vec<OnceLock<Endpoint>>,
    /// What an endpoint that is made later has to know. Held while endpoints learn of it, so that all know the same.
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// Host memory: copy threads move no other.
    ranges: Vec<MemoryRange>,
    /// Metadata by name of the peer.
    peers: BTreeMap<String, Vec<u8>>,
}

impl NixlTransport {
    pub(crate) fn new(name: &str, options: &NixlOptions) -> Result<Self> {
        fork::check_nixl()?;
        Library::load(options.library.as_deref())?;
        let own = Endpoint::new(name, &options.backend, &options.backend_params, Some(options.progress_delay))?;
        let cores = || thread::available_parallelism().map_or(1, NonZero::get);
        let num_copiers = options.copy_threads.unwrap_or_else(|| match cores() {
            // It would only take turns with the posting thread.
            1 => 0,
            cores => cores.min(MOST_COPY_THREADS),
        });
        let copiers = (0..num_copiers).map(|_| OnceLock::new()).collect();
        Ok(Self { options: options.clone(), own, copiers, known: Mutex::default() })
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The endpoints of copy threads that have started.
    fn started(&self) -> impl Iterator<Item = &Endpoint> {
        self.copiers.iter().filter_map(OnceLock::get)
    }

    /// Backend parameters of a copy thread's endpoint. It reaches processes of this host alone: memory is not
    /// registered with network cards once more, unless the user has chosen the transports.
    fn copier_params(&self) -> BTreeMap<String, String> {
        let mut params = self.options.backend_params.clone();
        // A thread that has an agent of NIXL to itself needs no others.
        params.retain(|key, _| !["num_threads", "num_workers", "split_batch_size"].contains(&key.as_str()));
        if self.options.backend == "UCX" && std::env::var_os("UCX_TLS").is_none() {
            params.entry("engine_config".to_owned()).or_insert_with(|| "TLS=^ib".to_owned());
        }
        params
    }
}

fn host_memory(ranges: &[MemoryRange]) -> Vec<MemoryRange> {
    ranges.iter().filter(|range| range.mem == MemKind::Dram).copied().collect()
}

impl Transport for NixlTransport {
    fn name(&self) -> &str {
        self.own.name()
    }

    unsafe fn register(&self, ranges: &[MemoryRange]) -> Result<()> {
        let mut known = self.known();
        // SAFETY: the caller's promise.
        unsafe { self.own.register(ranges)? };
        let host = host_memory(ranges);
        for copier in self.started() {
            // SAFETY: the caller's promise.
            let registered = unsafe { copier.register(&host) };
            registered.inspect_err(|_| {
                self.own.deregister(ranges);
                self.started().for_each(|copier| copier.deregister(&host));
            })?;
        }
        known.ranges.extend(host);
        Ok(())
    }

    fn deregister(&self, ranges: &[MemoryRange]) {
        let mut known = self.known();
        known.ranges.retain(|known| !ranges.iter().any(|range| is_same_memory(range, known)));
        self.own.deregister(ranges);
        self.started().for_each(|copier| copier.deregister(ranges));
    }

    fn metadata(&self) -> Result<Vec<u8>> {
        self.own.metadata()
    }

    fn load_peer(&self, metadata: &[u8]) -> Result<String> {
        let mut known = self.known();
        let name = self.own.load_peer(metadata)?;
        for copier in self.started() {
            copier.load_peer(metadata)?;
        }
        known.peers.insert(name.clone(), metadata.to_vec());
        Ok(name)
    }

    fn forget_peer(&self, peer: &str) -> Result<()> {
        let mut known = self.known();
        known.peers.remove(peer);
        for copier in self.started() {
            if let Err(error) = copier.forget_peer(peer) {
                tracing::debug!(%error, "a copy thread cannot forget a peer");
            }
        }
        self.own.forget_peer(peer)
    }

    fn request(&self, op: Op, peer: &str, pieces: &[Piece]) -> Result<Box<dyn TransportRequest>> {
        self.own.request(op, peer, pieces)
    }

    fn num_copiers(&self) -> usize {
        self.copiers.len()
    }

    fn start_copier(&self, copier: usize) -> Result<()> {
        let name = format!("{}/{copier}", self.name());
        // No progress thread: whoever posts and polls makes progress, and a sleeping thread costs nothing.
        let endpoint = Endpoint::new(&name, &self.options.backend, &self.copier_params(), None)?;
        let known = self.known();
        // SAFETY: it is registered here already, under the same promise.
        unsafe { endpoint.register(&known.ranges)? };
        for metadata in known.peers.values() {
            endpoint.load_peer(metadata)?;
        }
        // Set once, by its thread.
        let _ = self.copiers[copier].set(endpoint);
        Ok(())
    }

    fn tend_copier(&self, copier: usize) {
        if let Some(endpoint) = self.copiers[copier].get()
            && let Err(error) = endpoint.notifications()
        {
            tracing::debug!(%error, "a copy thread cannot make progress");
        }
    }

    fn copier_request(&self, copier: usize, op: Op, peer: &str, pieces: &[Piece]) -> Result<Box<dyn TransportRequest>> {
        self.copiers[copier].get().unwrap_or(&self.own).request(op, peer, pieces)
    }

    fn notify(&self, peer: &str, message: &[u8]) -> Result<()> {
        self.own.notify(peer, message)
    }

    fn notifications(&self) -> Result<Vec<(String, Vec<u8>)>> {
        self.own.notifications()
    }
}

impl fmt::Debug for NixlTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NixlTransport").field("name", &self.name()).field("copy_threads", &self.copiers.len()).finish()
    }
}
