//! A worker for tests: memory with a pattern, a spec over it, an agent.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]

pub mod bare;
pub mod exchanging;
pub mod forged;
pub mod process;

use std::time::Duration;

use kvnixl::{Agent, Limits, LoopbackNetwork, NixlOptions};
use kvplan::{Descriptor, LocalPlan};
use kvspec::{CacheSpec, StorageIndex};

/// Long enough for a loaded machine; nothing waits for it when all is well.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A deadline that passes, though not before what it is for has begun: also on a busy machine.
pub const SOON: Duration = Duration::from_secs(3);

/// Host memory that transfers may write behind the compiler's back.
#[derive(Debug)]
pub struct Memory {
    base: *mut u8,
    len: usize,
}

// SAFETY: all access goes through raw copies; tests look only at settled bytes.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    pub fn new(len: usize, seed: u64) -> Self {
        let base = Box::leak(vec![0; len].into_boxed_slice()).as_mut_ptr();
        let memory = Self { base, len };
        memory.write(0, &pattern(seed, 0, len));
        memory
    }

    pub fn base(&self) -> u64 {
        u64::try_from(self.base.expose_provenance()).unwrap()
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        assert!(offset + len <= self.len);
        let mut bytes = vec![0; len];
        // SAFETY: inside the allocation.
        unsafe { std::ptr::copy(self.base.add(offset), bytes.as_mut_ptr(), len) };
        bytes
    }

    pub fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.len);
        // SAFETY: inside the allocation.
        unsafe { std::ptr::copy(bytes.as_ptr(), self.base.add(offset), bytes.len()) };
    }

    /// Unmaps the whole pages in a range. Nothing here may touch it again.
    pub fn unmap(&self, offset: usize, len: usize) {
        assert!(offset + len <= self.len);
        let start = (self.base.addr() + offset).next_multiple_of(4096);
        let end = (self.base.addr() + offset + len) & !4095;
        assert!(start < end);
        // SAFETY: whole pages inside an allocation of whole mappings, which the caller gives up.
        assert_eq!(unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(start), end - start) }, 0);
    }

    /// The allocation lives on: something may still write it.
    pub fn leak(self) {
        std::mem::forget(self);
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` as a boxed slice of this length.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(self.base, self.len)) });
    }
}

/// Bytes that differ from place to place and from seed to seed.
pub fn pattern(seed: u64, offset: usize, len: usize) -> Vec<u8> {
    let byte = |at: usize| {
        let word = (at as u64 / 8).wrapping_add(seed << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (word ^ (word >> 29)).to_le_bytes()[at % 8]
    };
    (offset..offset + len).map(byte).collect()
}

/// The plan of one storage of 1 KiB blocks.
pub fn plan(base: u64, len: usize) -> LocalPlan {
    plan_of_model("org/model", base, len)
}

pub fn plan_of_model(model: &str, base: u64, len: usize) -> LocalPlan {
    let spec: CacheSpec = serde_json::from_value(serde_json::json!({
        "version": 1, "fingerprint": {"model": model},
        "storages": [{"base": base, "len": len, "mem": "dram"}],
        "groups": [{"pool": 0, "block_tokens": 16, "num_blocks": len / 1024}],
        "layers": [{"name": "model.layers.0", "group": 0, "kind": "mla",
            "parts": [{"name": "latent", "storage": 0, "offset": 0, "block_stride": 1024,
                "sharding": "replicated", "units": {"count": 1, "stride": 1024},
                "tokens": [{"count": 16, "stride": 64}], "content": 64}]}],
    }))
    .unwrap();
    LocalPlan::new(&spec.validate().unwrap())
}

/// An agent with registered memory. Fields drop in order: the agent first.
#[derive(Debug)]
pub struct Worker {
    pub agent: Agent,
    pub memory: Memory,
}

impl Worker {
    pub fn new(agent: Agent, len: usize, seed: u64) -> Self {
        let memory = Memory::new(len, seed);
        // SAFETY: the memory outlives the agent, and tests look only at settled bytes.
        unsafe { agent.register(&plan(memory.base(), len)) }.unwrap();
        Self { agent, memory }
    }

    pub fn loopback(name: &str, network: &LoopbackNetwork, len: usize, seed: u64) -> Self {
        Self::new(Agent::loopback(name, network, Limits::default()).unwrap(), len, seed)
    }

    /// On real NIXL.
    pub fn nixl(name: &str, transport: Via, len: usize, seed: u64) -> Self {
        Self::new(nixl(name, transport), len, seed)
    }

    /// Asserts that the bytes are the pattern of `seed` at `from`.
    pub fn assert_holds(&self, offset: usize, len: usize, seed: u64, from: usize) {
        assert!(self.memory.read(offset, len) == pattern(seed, from, len), "bytes at {offset} are not {seed}@{from}");
    }
}

/// How NIXL's UCX moves bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// What UCX picks between processes of one host: the kernel copies.
    Default,
    /// Over a socket, as between hosts.
    Tcp,
}

pub fn nixl(name: &str, via: Via) -> Agent {
    only_loopback();
    let mut options = NixlOptions::default();
    if via == Via::Tcp {
        options.backend_params.insert("engine_config".into(), "TLS=tcp".into());
    }
    match Agent::nixl(name, &options, Limits::default()) {
        Ok(agent) => agent,
        Err(error) => panic!("these tests need NIXL, which `make test` provides: {error}"),
    }
}

/// Keeps UCX on the loopback interface.
pub fn only_loopback() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        // SAFETY: before NIXL is loaded; no other C code reads the environment meanwhile.
        unsafe { std::env::set_var("UCX_NET_DEVICES", "lo") };
    });
}

pub fn descriptor(local_offset: u64, remote_offset: u64, len: u64) -> Descriptor {
    let storage = StorageIndex(0);
    Descriptor { local_storage: storage, remote_storage: storage, local_offset, remote_offset, len }
}

/// Waits until `condition` holds.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "{what} did not happen within {PATIENCE:?}");
        std::thread::sleep(Duration::from_micros(200));
    }
}
