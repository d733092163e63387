//! What is left of transfers when the posting thread panics: a program's own log or metrics code runs in it.

use std::sync::Arc;
use std::time::Duration;

use kvplan::{Descriptor, LocalPlan, MemoryRange, Op};
use kvspec::{CacheSpec, StorageIndex};

use super::Agent;
use crate::batch::Limits;
use crate::error::{Error, Result};
use crate::loopback::{LoopbackNetwork, LoopbackTransport};
use crate::state::TransferState;
use crate::transfer::TransferOptions;
use crate::transport::{Piece, Progress, RequestFailed, Transport, TransportRequest};

const PATIENCE: Duration = Duration::from_secs(20);

/// A transport whose requests are posted, and panic when they are polled.
#[derive(Debug)]
struct Panicking(LoopbackTransport);

#[derive(Debug)]
struct PanickingRequest;

impl TransportRequest for PanickingRequest {
    fn post(&mut self) -> Result<Progress, RequestFailed> {
        Ok(Progress::InProgress)
    }

    fn poll(&mut self) -> Result<Progress, RequestFailed> {
        panic!("on purpose")
    }
}

impl Transport for Panicking {
    fn name(&self) -> &str {
        self.0.name()
    }

    unsafe fn register(&self, ranges: &[MemoryRange]) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.0.register(ranges) }
    }

    fn deregister(&self, ranges: &[MemoryRange]) {
        self.0.deregister(ranges);
    }

    fn metadata(&self) -> Result<Vec<u8>> {
        self.0.metadata()
    }

    fn load_peer(&self, metadata: &[u8]) -> Result<String> {
        self.0.load_peer(metadata)
    }

    fn forget_peer(&self, peer: &str) -> Result<()> {
        self.0.forget_peer(peer)
    }

    fn request(&self, _: Op, _: &str, _: &[Piece]) -> Result<Box<dyn TransportRequest>> {
        Ok(Box::new(PanickingRequest))
    }

    fn notify(&self, peer: &str, message: &[u8]) -> Result<()> {
        self.0.notify(peer, message)
    }

    fn notifications(&self) -> Result<Vec<(String, Vec<u8>)>> {
        self.0.notifications()
    }
}

fn register(agent: &Agent, memory: &mut Vec<u8>) {
    let spec: CacheSpec = serde_json::from_value(serde_json::json!({
        "version": 1, "fingerprint": {"model": "org/model"},
        "storages": [{"base": memory.as_mut_ptr().addr(), "len": memory.len(), "mem": "dram"}],
        "groups": [{"pool": 0, "block_tokens": 1, "num_blocks": 1}],
        "layers": [{"name": "model.layers.0", "group": 0, "kind": "opaque",
            "parts": [{"name": "bytes", "storage": 0, "offset": 0, "block_stride": memory.len(),
                "sharding": "replicated", "units": {"count": 1, "stride": 1}, "content": memory.len()}]}],
    }))
    .unwrap();
    // SAFETY: the memory outlives the agents of this test.
    unsafe { agent.register(&LocalPlan::new(&spec.validate().unwrap())) }.unwrap();
}

#[test]
fn a_transfer_at_hand_when_the_posting_thread_panics_fails_and_keeps_its_memory() {
    let (mut ours, mut theirs) = (vec![0; 64], vec![0; 64]);
    let network = LoopbackNetwork::new();
    let prefill = Agent::loopback("prefill", &network, Limits::default()).unwrap();
    let decode = Agent::new("decode", Limits::default(), |name| Ok(Arc::new(Panicking(network.join(name))))).unwrap();
    register(&decode, &mut ours);
    register(&prefill, &mut theirs);
    let peer = decode.connect(&prefill.export().unwrap()).unwrap();
    let storage = StorageIndex(0);
    let whole =
        Descriptor { local_storage: storage, remote_storage: storage, local_offset: 0, remote_offset: 0, len: 64 };
    let start = || decode.start(&peer, Op::Read, &[whole], TransferOptions::default());

    let transfer = start().unwrap();
    assert!(transfer.wait(PATIENCE).is_err());
    assert!(matches!(transfer.state(), TransferState::Failed { settled: false, .. }));
    assert!(matches!(decode.deregister(), Err(Error::InUse { transfers: 1, .. })));
    assert!(matches!(start(), Err(Error::NoThread { .. })));
    let error = decode.shutdown(PATIENCE).unwrap_err();
    assert!(matches!(error, Error::Unsettled { transfers: 1, .. }), "{error}");
    // As the error says, the memory must stay.
    std::mem::forget(ours);
}
