//! A NIXL agent without this library.

use std::time::Instant;

use kvnixl::Library;
use nixl_sys::{
    Agent, AgentConfig, MemType, MemoryRegion, NixlDescriptor, NixlError, OptArgs, Params, RegistrationHandle,
    ThreadSync, XferDescList, XferOp, XferRequest, XferStatus,
};

use super::{PATIENCE, Via};

pub struct Bare {
    // Before the agent.
    _registration: RegistrationHandle,
    options: OptArgs,
    pub agent: Agent,
}

#[derive(Debug)]
struct Region(usize, usize);

impl MemoryRegion for Region {
    unsafe fn as_ptr(&self) -> *const u8 {
        std::ptr::with_exposed_provenance(self.0)
    }

    fn size(&self) -> usize {
        self.1
    }
}

impl NixlDescriptor for Region {
    fn mem_type(&self) -> MemType {
        MemType::Dram
    }

    fn device_id(&self) -> u64 {
        0
    }
}

impl Bare {
    /// An agent with `len` bytes at `base` registered; its backend has the parameters that `super::nixl` gives.
    pub fn new(name: &str, via: Via, base: usize, len: usize) -> Self {
        let params: &[(&str, &str)] = if via == Via::Tcp { &[("engine_config", "TLS=tcp")] } else { &[] };
        Self::with(name, params, base, len)
    }

    /// The same, with these parameters of the backend.
    pub fn with(name: &str, params: &[(&str, &str)], base: usize, len: usize) -> Self {
        Library::load(None).unwrap();
        let config = AgentConfig { thread_sync: ThreadSync::Strict, pthr_delay_us: 1000, ..AgentConfig::default() };
        let agent = Agent::new_configured(name, &config).unwrap();
        let params = Params::from(params.iter().copied()).unwrap();
        let backend = agent.create_backend("UCX", &params).unwrap();
        let mut options = OptArgs::new().unwrap();
        options.add_backend(&backend).unwrap();
        let _registration = agent.register_memory(&Region(base, len), Some(&options)).unwrap();
        Self { _registration, options, agent }
    }

    /// A request that moves pieces of (local address, remote address, length).
    pub fn request(
        &self,
        op: XferOp,
        peer: &str,
        pieces: impl IntoIterator<Item = (usize, usize, usize)>,
    ) -> Result<XferRequest, NixlError> {
        let (mut local, mut remote) = (XferDescList::new(MemType::Dram)?, XferDescList::new(MemType::Dram)?);
        for (here, there, len) in pieces {
            local.add_desc(here, len, 0);
            remote.add_desc(there, len, 0);
        }
        self.agent.create_xfer_req(op, &local, &remote, peer, Some(&self.options))
    }

    /// Posts a request.
    pub fn post(&self, request: &XferRequest) -> Result<bool, NixlError> {
        self.agent.post_xfer_req(request, None)
    }

    /// Waits for a request that is in progress.
    pub fn wait(&self, request: &XferRequest) {
        let start = Instant::now();
        while !matches!(self.agent.get_xfer_status(request).unwrap(), XferStatus::Success) {
            assert!(start.elapsed() < PATIENCE * 3);
            std::thread::yield_now();
        }
    }
}
