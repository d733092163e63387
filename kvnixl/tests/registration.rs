//! What an agent has registered: memory that has to be there, and that comes and goes. On NIXL and on a loopback.
//!
//! The peer process is this test program again, running `peer_process` (see `common::process`).

mod common;

use common::process::{self, PeerProcess};
use common::{Memory, PATIENCE, Via, Worker, descriptor, eventually, nixl, plan, plan_of_model};
use kvnixl::{Agent, Error, Limits, LoopbackNetwork, Peer, TransferOptions};
use kvplan::{Descriptor, LocalPlan, Op};
use kvspec::{CacheSpec, StorageIndex};

const PAGE: usize = 4096;
const LEN: usize = 16 * PAGE;

/// An agent on a loopback and one on NIXL.
fn agents() -> [Agent; 2] {
    [Agent::loopback("decode", &LoopbackNetwork::new(), Limits::default()).unwrap(), nixl("decode", Via::Default)]
}

#[test]
#[ignore = "other tests run it as a process of its own"]
fn peer_process() {
    process::serve();
}

/// Two agents on a loopback, and two on NIXL.
fn pairs() -> [[Agent; 2]; 2] {
    let network = LoopbackNetwork::new();
    let on_loopback = |name| Agent::loopback(name, &network, Limits::default()).unwrap();
    let on_nixl = |name| nixl(name, Via::Default);
    [["prefill", "decode"].map(on_loopback), ["prefill", "decode"].map(on_nixl)]
}

/// The plan of several storages of 1 KiB blocks, a layer in each.
fn plan_of(storages: &[&Memory]) -> LocalPlan {
    let json = |value: serde_json::Value| value;
    let spec: CacheSpec = serde_json::from_value(serde_json::json!({
        "version": 1, "fingerprint": {"model": "org/model"},
        "storages": storages.iter().map(|memory| json(serde_json::json!(
            {"base": memory.base(), "len": memory.len(), "mem": "dram"}))).collect::<Vec<_>>(),
        "groups": storages.iter().enumerate().map(|(i, memory)| json(serde_json::json!(
            {"pool": i, "block_tokens": 16, "num_blocks": memory.len() / 1024}))).collect::<Vec<_>>(),
        "layers": storages.iter().enumerate().map(|(i, memory)| json(serde_json::json!(
            {"name": format!("at {:#x}", memory.base()), "group": i, "kind": "mla",
            "parts": [{"name": "latent", "storage": i, "offset": 0, "block_stride": 1024,
                "sharding": "replicated", "units": {"count": 1, "stride": 1024},
                "tokens": [{"count": 16, "stride": 64}], "content": 64}]}))).collect::<Vec<_>>(),
    }))
    .unwrap();
    LocalPlan::new(&spec.validate().unwrap())
}

fn register(agent: &Agent, plan: &LocalPlan) {
    // SAFETY: tests unmap nothing that is registered, and look only at settled bytes.
    unsafe { agent.register(plan) }.unwrap();
}

fn reregister(agent: &Agent, plan: &LocalPlan) -> Result<(), Error> {
    // SAFETY: as above.
    unsafe { agent.reregister(plan) }
}

fn read(agent: &Agent, peer: &Peer, descriptor: Descriptor) -> Result<(), Error> {
    agent.start(peer, Op::Read, &[descriptor], TransferOptions::default())?.wait(PATIENCE)
}

fn on_storages(local: u32, remote: u32, len: usize) -> Descriptor {
    let (local_storage, remote_storage) = (StorageIndex(local), StorageIndex(remote));
    Descriptor { local_storage, remote_storage, ..descriptor(0, 0, len as u64) }
}

#[test]
fn a_storage_grows_in_place_and_shrinks_while_peers_go_on() {
    for [prefill, decode] in pairs() {
        let (theirs, ours) = (Memory::new(LEN, 1), Memory::new(LEN, 2));
        let through = |pages: usize| plan(theirs.base(), pages * PAGE);
        register(&prefill, &through(8));
        register(&decode, &plan(ours.base(), LEN));
        let first = decode.connect(&prefill.export().unwrap()).unwrap();
        let last_of = |pages: usize| descriptor(((pages - 1) * PAGE) as u64, ((pages - 1) * PAGE) as u64, PAGE as u64);
        read(&decode, &first, last_of(8)).unwrap();
        assert!(matches!(read(&decode, &first, last_of(9)), Err(Error::OutOfRange { .. })));

        reregister(&prefill, &through(16)).unwrap();
        assert_eq!(prefill.generation(), 2);
        // Who has not heard of it goes on.
        read(&decode, &first, last_of(8)).unwrap();
        let grown = decode.connect(&prefill.export().unwrap()).unwrap();
        assert_eq!((grown.generation(), grown.incarnation()), (2, first.incarnation()));
        assert!(matches!(read(&decode, &first, last_of(8)), Err(Error::PeerGone { .. })));
        // One descriptor over what there was and what has come.
        ours.write(0, &common::pattern(3, 0, LEN));
        read(&decode, &grown, descriptor(1024, 1024, LEN as u64 - 2048)).unwrap();
        assert!(ours.read(1024, LEN - 2048) == common::pattern(1, 1024, LEN - 2048));
        assert!(ours.read(0, 1024) == common::pattern(3, 0, 1024));

        // Back to what there was, and to less of it.
        for (generation, pages) in [(3, 8), (4, 4), (5, 8)] {
            reregister(&prefill, &through(pages)).unwrap();
            assert_eq!(prefill.generation(), generation);
            let peer = decode.connect(&prefill.export().unwrap()).unwrap();
            ours.write(0, &common::pattern(generation, 0, LEN));
            read(&decode, &peer, descriptor(0, 0, (pages * PAGE) as u64)).unwrap();
            assert!(ours.read(0, pages * PAGE) == common::pattern(1, 0, pages * PAGE));
            assert!(matches!(read(&decode, &peer, last_of(pages + 1)), Err(Error::OutOfRange { .. })));
        }
        // The initiator's own memory comes in pieces as well.
        reregister(&decode, &plan(ours.base(), PAGE)).unwrap();
        reregister(&decode, &plan(ours.base(), 2 * PAGE)).unwrap();
        let peer = decode.connect(&prefill.export().unwrap()).unwrap();
        ours.write(0, &common::pattern(9, 0, LEN));
        read(&decode, &peer, descriptor(0, 0, 2 * PAGE as u64)).unwrap();
        assert!(ours.read(0, 2 * PAGE) == common::pattern(1, 0, 2 * PAGE));
        for agent in [decode, prefill] {
            agent.shutdown(PATIENCE).unwrap();
        }
    }
}

#[test]
fn storages_come_and_go_one_by_one_and_may_change_their_number() {
    for [prefill, decode] in pairs() {
        let [a, b, c] = [1, 2, 3].map(|seed| Memory::new(LEN, seed));
        let ours = Memory::new(LEN, 9);
        register(&decode, &plan_of(&[&ours]));
        register(&prefill, &plan_of(&[&a]));
        for (storages, seeds) in [
            (&[&a, &b][..], &[1, 2][..]),
            (&[&c, &b, &a], &[3, 2, 1]),
            (&[&b, &c], &[2, 3]),
            (&[&c], &[3]),
            (&[&a], &[1]),
        ] {
            reregister(&prefill, &plan_of(storages)).unwrap();
            let peer = decode.connect(&prefill.export().unwrap()).unwrap();
            assert_eq!(peer.layout().storages.len(), storages.len());
            for (storage, seed) in (0..).zip(seeds) {
                read(&decode, &peer, on_storages(0, storage, LEN)).unwrap();
                assert!(ours.read(0, LEN) == common::pattern(*seed, 0, LEN), "storage {storage} of {seeds:?}");
            }
        }
        for agent in [decode, prefill] {
            agent.shutdown(PATIENCE).unwrap();
        }
    }
}

#[test]
fn memory_in_use_is_not_taken_away_and_other_memory_is() {
    let network = LoopbackNetwork::new();
    let on_loopback = |name| Agent::loopback(name, &network, Limits::default()).unwrap();
    let [prefill, decode] = ["prefill", "decode"].map(on_loopback);
    let [a, b, c] = [1, 2, 3].map(|seed| Memory::new(LEN, seed));
    let theirs = Memory::new(LEN, 9);
    register(&prefill, &plan_of(&[&theirs]));
    register(&decode, &plan_of(&[&a, &b]));
    let peer = decode.connect(&prefill.export().unwrap()).unwrap();
    network.stall(true);
    let transfer = decode.start(&peer, Op::Read, &[on_storages(1, 0, LEN)], TransferOptions::default()).unwrap();
    let error = reregister(&decode, &plan_of(&[&a, &c])).unwrap_err();
    assert!(matches!(&error, Error::InUse { transfers: 1, .. }), "{error}");
    assert!(error.to_string().contains(&format!("memory range [{:#x}, +{LEN}) of storage 1", b.base())), "{error}");
    assert_eq!(decode.generation(), 1);
    // What is not used goes, what is used stays, by another number.
    reregister(&decode, &plan_of(&[&b, &c])).unwrap();
    assert!(matches!(reregister(&decode, &plan_of(&[&c])), Err(Error::InUse { transfers: 1, .. })));
    assert!(matches!(decode.deregister(), Err(Error::InUse { transfers: 1, .. })));
    network.stall(false);
    transfer.wait(PATIENCE).unwrap();
    assert!(b.read(0, LEN) == common::pattern(9, 0, LEN));
    eventually("the end of the transfer's use", || reregister(&decode, &plan_of(&[&c])).is_ok());
    read(&decode, &peer, on_storages(0, 0, LEN)).unwrap();
}

#[test]
fn a_peer_that_registers_anew_what_is_being_read_is_connected_once_that_has_settled() {
    let network = LoopbackNetwork::new();
    let on_loopback = |name| Agent::loopback(name, &network, Limits::default()).unwrap();
    let [prefill, decode] = ["prefill", "decode"].map(on_loopback);
    let (theirs, ours) = (Memory::new(LEN, 1), Memory::new(LEN, 2));
    register(&prefill, &plan(theirs.base(), LEN));
    register(&decode, &plan(ours.base(), LEN));
    let peer = decode.connect(&prefill.export().unwrap()).unwrap();
    network.stall(true);
    let under_way = decode.start(&peer, Op::Read, &[descriptor(0, 0, 1024)], TransferOptions::default()).unwrap();
    // Its own transfers are none; the reader's it does not know.
    reregister(&prefill, &plan(theirs.base(), LEN / 2)).unwrap();
    let error = decode.connect(&prefill.export().unwrap()).unwrap_err();
    assert!(matches!(&error, Error::InUse { transfers: 1, .. }), "{error}");
    network.stall(false);
    under_way.wait(PATIENCE).unwrap();
    eventually("a connection", || decode.connect(&prefill.export().unwrap()).is_ok());
    assert!(matches!(read(&decode, &peer, descriptor(0, 0, 1024)), Err(Error::PeerGone { .. })));
}

#[test]
fn a_registration_that_is_refused_leaves_what_there_was() {
    for [prefill, decode] in pairs() {
        let (theirs, ours) = (Memory::new(LEN, 1), Memory::new(LEN, 2));
        assert!(matches!(reregister(&decode, &plan(ours.base(), LEN)), Err(Error::NotRegistered { .. })));
        register(&prefill, &plan(theirs.base(), LEN));
        register(&decode, &plan(ours.base(), LEN));
        let peer = decode.connect(&prefill.export().unwrap()).unwrap();
        let error = reregister(&decode, &plan_of_model("org/other", ours.base(), LEN)).unwrap_err();
        assert!(matches!(error, Error::OtherFingerprint { .. }), "{error}");
        let pages = Pages::new();
        pages.unmap(3);
        assert!(matches!(reregister(&decode, &plan(pages.base(), LEN)), Err(Error::NotMapped { .. })));
        assert_eq!(decode.generation(), 1);
        read(&decode, &peer, descriptor(0, 0, LEN as u64)).unwrap();
        assert!(ours.read(0, LEN) == common::pattern(1, 0, LEN));
    }
}

#[test]
fn a_storage_that_has_grown_often_is_to_be_registered_as_one() {
    let agent = Agent::loopback("decode", &LoopbackNetwork::new(), Limits::default()).unwrap();
    let memory = Memory::new(70 * 1024, 1);
    register(&agent, &plan(memory.base(), 1024));
    for blocks in 2..=64 {
        reregister(&agent, &plan(memory.base(), blocks * 1024)).unwrap();
    }
    let error = reregister(&agent, &plan(memory.base(), 65 * 1024)).unwrap_err();
    assert!(matches!(error, Error::TooManyPieces { pieces: 65, max: 64, .. }), "{error}");
    agent.deregister().unwrap();
    register(&agent, &plan(memory.base(), 70 * 1024));
}

/// On a path where transfers take their time.
#[test]
fn a_pool_grows_while_a_process_is_read_and_is_read() {
    let remote = PeerProcess::spawn(Via::Tcp, LEN, 1);
    let agent = nixl("decode", Via::Tcp);
    let memory = Memory::new(2 * LEN, 2);
    register(&agent, &plan(memory.base(), LEN));
    let local = Worker { agent, memory };
    let peer = local.agent.connect(&remote.blob).unwrap();
    read(&local.agent, &peer, descriptor(0, 0, 1024)).unwrap();
    remote.stop();
    let whole = [descriptor(0, 0, LEN as u64)];
    let transfer = local.agent.start(&peer, Op::Read, &whole, TransferOptions::default()).unwrap();
    eventually("a post", || transfer.stats().requests > 0);
    reregister(&local.agent, &plan(local.memory.base(), 2 * LEN)).unwrap();
    assert!(matches!(
        reregister(&local.agent, &plan(local.memory.base() + LEN as u64, LEN)),
        Err(Error::InUse { transfers: 1, .. })
    ));
    remote.resume();
    transfer.wait(PATIENCE).unwrap();
    read(&local.agent, &peer, descriptor(LEN as u64 - 512, 0, 1024)).unwrap();
    local.assert_holds(0, LEN - 512, 1, 0);
    local.assert_holds(LEN - 512, 1024, 1, 0);
    local.agent.shutdown(PATIENCE).unwrap();
}

/// Pages of its own mapping.
struct Pages(*mut libc::c_void);

impl Pages {
    fn new() -> Self {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), LEN, protection, flags, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED);
        Self(base)
    }

    fn base(&self) -> u64 {
        self.0.expose_provenance() as u64
    }

    /// Changes what may be done with one page.
    fn protect(&self, page: usize, protection: libc::c_int) {
        // SAFETY: a page of this mapping, which nobody touches.
        assert_eq!(unsafe { libc::mprotect(self.0.byte_add(page * PAGE), PAGE, protection) }, 0);
    }

    fn unmap(&self, page: usize) {
        // SAFETY: as above.
        assert_eq!(unsafe { libc::munmap(self.0.byte_add(page * PAGE), PAGE) }, 0);
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: nothing is registered there any more, or the process is about to end.
        unsafe { libc::munmap(self.0, LEN) };
    }
}

#[test]
fn memory_that_is_not_mapped_readable_and_writable_is_refused_by_its_first_bad_page() {
    for agent in agents() {
        let pages = Pages::new();
        let refused = |page: usize, expected: Option<&str>| {
            // SAFETY: nothing is transferred.
            let error = unsafe { agent.register(&plan(pages.base(), LEN)) }.unwrap_err();
            let Error::NotMapped { range, page: found, permissions } = &error else { panic!("{error}") };
            assert_eq!((range.base, *found), (pages.base(), pages.base() + (page * PAGE) as u64));
            assert_eq!(permissions.as_deref(), expected);
            let text = format!("of storage 0 (dram): its page at {found:#x} is");
            assert!(error.to_string().contains(&text), "{error}");
            assert_eq!(agent.generation(), 0, "nothing was registered");
        };
        pages.unmap(15);
        refused(15, None);
        pages.protect(8, libc::PROT_NONE);
        refused(8, Some("---p"));
        pages.protect(5, libc::PROT_READ);
        refused(5, Some("r--p"));
        pages.protect(4, libc::PROT_WRITE);
        refused(4, Some("-w-p"));
        // What is left is as good as any.
        // SAFETY: nothing is transferred.
        unsafe { agent.register(&plan(pages.base(), 4 * PAGE)) }.unwrap();
        agent.deregister().unwrap();
    }
}

#[test]
fn memory_that_spans_mappings_is_registered() {
    for agent in agents() {
        let pages = Pages::new();
        // Splits the mapping in two, which a range may span.
        // SAFETY: anonymous memory that nobody touches.
        let advised = unsafe { libc::madvise(pages.0.byte_add(8 * PAGE), PAGE, libc::MADV_DONTFORK) };
        assert_eq!(advised, 0);
        // SAFETY: nothing is transferred.
        unsafe { agent.register(&plan(pages.base(), LEN)) }.unwrap();
        agent.deregister().unwrap();
    }
}

#[test]
fn memory_that_ends_inside_a_page_is_registered() {
    for agent in agents() {
        let memory = Memory::new(LEN + 1024, 1);
        // SAFETY: nothing is transferred.
        unsafe { agent.register(&plan(memory.base() + 512, LEN)) }.unwrap();
        agent.deregister().unwrap();
    }
}
