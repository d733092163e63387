//! Peers on NIXL that are not of this library: here a bare NIXL agent.

mod common;

use common::bare::Bare;
use common::{Memory, PATIENCE, Via, Worker, descriptor, pattern};
use kvnixl::{Error, ForeignPeer, LoopbackNetwork, TransferOptions};
use kvplan::Op;
use nixl_sys::XferOp;

const LEN: usize = 1 << 20;

fn address(value: u64) -> usize {
    usize::try_from(value).unwrap()
}

fn bare(name: &str) -> (Bare, Memory) {
    let memory = Memory::new(LEN, 1);
    (Bare::new(name, Via::Default, address(memory.base()), LEN), memory)
}

#[test]
fn a_bare_nixl_agent_is_read_and_written_and_writes() {
    let ours = Worker::nixl("decode", Via::Default, LEN, 2);
    let (bare, memory) = bare("bare");
    let (metadata, layout) = (bare.agent.get_local_md().unwrap(), common::plan(memory.base(), LEN));
    let foreign = ForeignPeer { name: "bare", metadata: &metadata, layout: layout.spec(), generation: 1 };
    let peer = ours.agent.connect_foreign(foreign).unwrap();
    assert_eq!((peer.name(), peer.incarnation()), ("bare", 0));
    let wait = |op, descriptor| {
        ours.agent.start(&peer, op, &[descriptor], TransferOptions::default()).unwrap().wait(PATIENCE).unwrap();
    };
    wait(Op::Read, descriptor(4096, 8192, 1000));
    ours.assert_holds(4096, 1000, 1, 8192);
    ours.assert_holds(0, 4096, 2, 0);
    wait(Op::Write, descriptor(0, 100, 50));
    assert_eq!(memory.read(100, 50), pattern(2, 0, 50));

    let named = bare.agent.load_remote_md(&ours.agent.nixl_metadata().unwrap()).unwrap();
    assert_eq!(named, ours.agent.nixl_name());
    let piece = (address(memory.base()), address(ours.memory.base()) + 9000, 64);
    let request = bare.request(XferOp::Write, &named, [piece]).unwrap();
    if bare.post(&request).unwrap() {
        bare.wait(&request);
    }
    ours.assert_holds(9000, 64, 1, 0);

    // The same again is the same; what is older is refused.
    let again = ours.agent.connect_foreign(ForeignPeer { generation: 1, ..foreign }).unwrap();
    assert!(ours.agent.start(&again, Op::Read, &[], TransferOptions::default()).is_ok());
    let stale = ours.agent.connect_foreign(ForeignPeer { generation: 0, ..foreign }).unwrap_err();
    assert!(matches!(stale, Error::StaleBlob { stale: 0, current: 1, .. }), "{stale}");

    // The layout claims more than NIXL was given: NIXL says so, before a byte moves.
    let beyond = common::plan(memory.base(), 2 * LEN);
    let foreign = ForeignPeer { layout: beyond.spec(), generation: 2, ..foreign };
    let peer = ours.agent.connect_foreign(foreign).unwrap();
    let outside = descriptor(0, LEN as u64 + 512, 100);
    let transfer = ours.agent.start(&peer, Op::Read, &[outside], TransferOptions::default()).unwrap();
    let error = transfer.wait(PATIENCE).unwrap_err();
    assert!(matches!(&error, Error::TransferFailed { settled: true, .. }), "{error}");
    ours.agent.disconnect(&peer).unwrap();
}

#[test]
fn metadata_in_another_name_and_garbage_connect_nobody() {
    let ours = Worker::nixl("decode", Via::Default, LEN, 2);
    let (bare, memory) = bare("bare-2");
    let (metadata, layout) = (bare.agent.get_local_md().unwrap(), common::plan(memory.base(), LEN));
    let foreign = ForeignPeer { name: "other", metadata: &metadata, layout: layout.spec(), generation: 1 };
    let error = ours.agent.connect_foreign(foreign).unwrap_err();
    assert!(
        matches!(&error, Error::PeerNameMismatch { peer, named } if peer == "other" && named == "bare-2"),
        "{error}"
    );
    for len in [0, 1, metadata.len() / 2] {
        let cut = ForeignPeer { name: "bare-2", metadata: &metadata[..len], ..foreign };
        let error = ours.agent.connect_foreign(cut).unwrap_err();
        assert!(matches!(error, Error::Nixl { .. }), "{error}");
    }
}

#[test]
fn a_foreign_peer_cannot_take_the_name_of_one_of_ours_or_have_another_model() {
    let network = LoopbackNetwork::new();
    let ours = Worker::loopback("decode", &network, LEN, 2);
    let layout = common::plan(0x1000, LEN);
    let foreign =
        ForeignPeer { name: "prefill@0123456789abcdef", metadata: b"x", layout: layout.spec(), generation: 1 };
    let error = ours.agent.connect_foreign(foreign).unwrap_err();
    assert!(matches!(error, Error::AgentName { .. }), "{error}");

    let mut spec = (**layout.spec()).clone();
    spec.fingerprint.model = "another".to_owned();
    let spec = spec.validate().unwrap();
    let error = ours.agent.connect_foreign(ForeignPeer { name: "prefill", layout: &spec, ..foreign }).unwrap_err();
    assert!(matches!(error, Error::FingerprintMismatch { .. }), "{error}");
}
