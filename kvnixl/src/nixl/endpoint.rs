//! An agent of NIXL: memory that it knows, peers that it reaches, requests.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use kvplan::{MemoryRange, Op};
use kvspec::MemKind;
use nixl_sys::{
    AgentConfig, Backend, MemType, MemoryRegion, NixlDescriptor, NixlError, NotificationMap, OptArgs, Params,
    RegistrationHandle, ThreadSync, XferDescList, XferOp, XferRequest, XferStatus,
};

use crate::error::{Error, Result};
use crate::fork;
use crate::memory::{is_same_memory, shown};
use crate::transport::{Piece, Progress, RequestFailed, TransportRequest};

/// An agent of NIXL.
pub(crate) struct Endpoint {
    name: String,
    // Dropped in this order: registrations before the agent that they belong to.
    registrations: Mutex<Vec<(MemoryRange, RegistrationHandle)>>,
    backend: Backend,
    agent: nixl_sys::Agent,
}

impl Endpoint {
    /// An agent with one backend. Without a delay it has no progress thread.
    pub(super) fn new(
        name: &str,
        backend: &str,
        params: &BTreeMap<String, String>,
        progress_delay: Option<Duration>,
    ) -> Result<Self> {
        let config = AgentConfig {
            thread_sync: ThreadSync::Strict,
            enable_prog_thread: progress_delay.is_some(),
            pthr_delay_us: progress_delay.map_or(0, |delay| u64::try_from(delay.as_micros()).unwrap_or(u64::MAX)),
            ..AgentConfig::default()
        };
        let agent = nixl_sys::Agent::new_configured(name, &config).map_err(failed("create_agent", name))?;
        let params = Params::from(params.iter().map(|(key, value)| (key.as_str(), value.as_str())))
            .map_err(failed("create_params", backend))?;
        let backend = agent.create_backend(backend, &params).map_err(failed("create_backend", backend))?;
        fork::nixl_was_started();
        Ok(Self { name: name.to_owned(), registrations: Mutex::default(), backend, agent })
    }

    fn registrations(&self) -> MutexGuard<'_, Vec<(MemoryRange, RegistrationHandle)>> {
        self.registrations.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn options(&self) -> Result<OptArgs> {
        let mut options = OptArgs::new().map_err(failed("create_opt_args", &self.name))?;
        options.add_backend(&self.backend).map_err(failed("opt_args_add_backend", &self.name))?;
        Ok(options)
    }
}

/// Adds call and subject to NIXL's answer.
fn failed(call: &'static str, subject: impl fmt::Display) -> impl FnOnce(NixlError) -> Error {
    move |source| Error::Nixl { call, subject: subject.to_string(), source }
}

/// NIXL does not give out what it has counted.
fn lost(agent: &str, sender: &str, error: &NixlError) {
    tracing::warn!(agent, sender, %error, "dropped a sender's notifications");
}

impl Endpoint {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) unsafe fn register(&self, ranges: &[MemoryRange]) -> Result<()> {
        let mut handles = Vec::with_capacity(ranges.len());
        let options = self.options()?;
        for range in ranges {
            let region = Region::new(range)?;
            // On error the handles made so far deregister themselves.
            let handle = self.agent.register_memory(&region, Some(&options));
            handles.push((*range, handle.map_err(failed("register_mem", shown(range)))?));
        }
        self.registrations().append(&mut handles);
        Ok(())
    }

    pub(super) fn deregister(&self, ranges: &[MemoryRange]) {
        // A handle deregisters when it is dropped.
        self.registrations().retain(|(registered, _)| !ranges.iter().any(|range| is_same_memory(range, registered)));
    }

    pub(super) fn metadata(&self) -> Result<Vec<u8>> {
        self.agent.get_local_md().map_err(failed("get_local_md", &self.name))
    }

    pub(super) fn load_peer(&self, metadata: &[u8]) -> Result<String> {
        let subject = || format!("{} bytes of peer metadata", metadata.len());
        // nixl-sys panics on an agent name that is not UTF-8; no lock is held then.
        match catch_unwind(AssertUnwindSafe(|| self.agent.load_remote_md(metadata))) {
            Ok(loaded) => loaded.map_err(|source| Error::Nixl { call: "load_remote_md", subject: subject(), source }),
            Err(_) => Err(Error::Nixl { call: "load_remote_md", subject: subject(), source: NixlError::InvalidParam }),
        }
    }

    pub(super) fn forget_peer(&self, peer: &str) -> Result<()> {
        self.agent.invalidate_remote_md(peer).map_err(failed("invalidate_remote_md", peer))
    }

    pub(super) fn request(&self, op: Op, peer: &str, pieces: &[Piece]) -> Result<Box<dyn TransportRequest>> {
        let list = |mem| XferDescList::new(mem_type(mem)).map_err(failed("create_xfer_dlist", peer));
        let first = pieces.first().ok_or_else(|| failed("create_xfer_req", peer)(NixlError::InvalidParam))?;
        let (mut local, mut remote) = (list(first.local_mem)?, list(first.remote_mem)?);
        for piece in pieces {
            let len = address(piece.len)?;
            local.add_desc(address(piece.local)?, len, device(piece.local_mem));
            remote.add_desc(address(piece.remote)?, len, device(piece.remote_mem));
        }
        let op = match op {
            Op::Read => XferOp::Read,
            Op::Write => XferOp::Write,
        };
        // Without options: there is one backend, and making them takes as long as a small copy.
        let request = self
            .agent
            .create_xfer_req(op, &local, &remote, peer, None)
            .map_err(failed("create_xfer_req", format_args!("{} descriptors with {peer}", pieces.len())))?;
        Ok(Box::new(NixlRequest { agent: self.agent.clone(), peer: peer.to_owned(), request, final_since: None }))
    }

    pub(super) fn notify(&self, peer: &str, message: &[u8]) -> Result<()> {
        self.agent.send_notification(peer, message, Some(&self.backend)).map_err(failed("gen_notif", peer))
    }

    pub(super) fn notifications(&self) -> Result<Vec<(String, Vec<u8>)>> {
        // A new map each time: NIXL appends to the one given and never clears it.
        let mut map = NotificationMap::new().map_err(failed("create_notif_map", &self.name))?;
        self.agent.get_notifications(&mut map, None).map_err(failed("get_notifs", &self.name))?;
        let mut notifications = Vec::new();
        for sender in map.agents() {
            let Ok(sender) = sender else {
                tracing::warn!(agent = %self.name, "dropped notifications of a sender whose name is not UTF-8");
                continue;
            };
            // NIXL has given them away: an error for one must not lose those of all.
            let num = map.get_notifications_size(sender).inspect_err(|error| lost(&self.name, sender, error));
            for index in 0..num.unwrap_or(0) {
                match map.get_notification_bytes(sender, index) {
                    Ok(message) => notifications.push((sender.to_owned(), message)),
                    Err(error) => lost(&self.name, sender, &error),
                }
            }
        }
        Ok(notifications)
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("name", &self.name).finish_non_exhaustive()
    }
}

struct NixlRequest {
    agent: nixl_sys::Agent,
    peer: String,
    request: XferRequest,
    /// When NIXL first repeated its error after the peer was known to be gone.
    final_since: Option<Instant>,
}

/// How long a request must have been final, its peer gone, before it counts as settled. Nothing was ever seen to land
/// after the error (`docs/settling.md`); this is for what a progress thread has in its hands at that moment.
const LINGER: Duration = Duration::from_millis(50);

/// The same when NIXL has forgotten the peer, and with it the request's own state: only the progress thread still ends
/// what is under way.
const LINGER_FORGOTTEN: Duration = Duration::from_secs(1);

impl NixlRequest {
    fn answer(&self, call: &'static str, source: NixlError, settled: bool) -> RequestFailed {
        RequestFailed { cause: Error::Nixl { call, subject: format!("a request with {}", self.peer), source }, settled }
    }
}

impl TransportRequest for NixlRequest {
    fn post(&mut self) -> Result<Progress, RequestFailed> {
        match self.agent.post_xfer_req(&self.request, None) {
            Ok(true) => Ok(Progress::InProgress),
            Ok(false) => Ok(Progress::Done),
            // These are found before anything is handed to the backend. After any other error some descriptors
            // may be under way.
            Err(source @ (NixlError::NotFound | NixlError::InvalidParam)) => {
                Err(self.answer("post_xfer_req", source, true))
            }
            Err(source) => Err(self.answer("post_xfer_req", source, false)),
        }
    }

    fn poll(&mut self) -> Result<Progress, RequestFailed> {
        match self.agent.get_xfer_status(&self.request) {
            Ok(XferStatus::Success) => Ok(Progress::Done),
            Ok(XferStatus::InProgress) => Ok(Progress::InProgress),
            Err(source) => Err(self.answer("get_xfer_status", source, false)),
        }
    }

    fn settled_without_peer(&mut self) -> bool {
        // Asking also makes UCX progress.
        match self.agent.get_xfer_status(&self.request) {
            Ok(XferStatus::InProgress) => {
                self.final_since = None;
                false
            }
            said => {
                let linger = if matches!(said, Err(NixlError::NotFound)) { LINGER_FORGOTTEN } else { LINGER };
                let now = Instant::now();
                now.duration_since(*self.final_since.get_or_insert(now)) >= linger
            }
        }
    }
}

impl fmt::Debug for NixlRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NixlRequest").field("peer", &self.peer).finish_non_exhaustive()
    }
}

fn mem_type(mem: MemKind) -> MemType {
    match mem {
        MemKind::Dram => MemType::Dram,
        MemKind::Vram(_) => MemType::Vram,
    }
}

fn device(mem: MemKind) -> u64 {
    match mem {
        MemKind::Dram => 0,
        MemKind::Vram(device) => device.into(),
    }
}

/// An address or length as NIXL takes it.
fn address(value: u64) -> Result<usize> {
    usize::try_from(value).map_err(|_| failed("address", format_args!("{value:#x}"))(NixlError::InvalidParam))
}

/// A range, as nixl-sys wants to see memory.
#[derive(Debug)]
struct Region {
    base: usize,
    len: usize,
    mem: MemKind,
}

impl Region {
    fn new(range: &MemoryRange) -> Result<Self> {
        Ok(Self { base: address(range.base)?, len: address(range.len)?, mem: range.mem })
    }
}

impl MemoryRegion for Region {
    unsafe fn as_ptr(&self) -> *const u8 {
        std::ptr::with_exposed_provenance(self.base)
    }

    fn size(&self) -> usize {
        self.len
    }
}

impl NixlDescriptor for Region {
    fn mem_type(&self) -> MemType {
        mem_type(self.mem)
    }

    fn device_id(&self) -> u64 {
        device(self.mem)
    }
}
