//! Leases, pulls and pushes between processes on real NIXL; producers that stop, die and come back.
//!
//! The producer is this test program again, running `peer_process` (see `common::process`).

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{TryRecvError, channel};
use std::time::{Duration, Instant};

use common::process::{self, PeerProcess, bytes, hex, say};
use common::{PATIENCE, Via, Worker, descriptor};
use kvnixl::lease::{LeaseId, LeaseOptions, PeerId, PushId, RequestId, WhyFailed};
use kvnixl::{Event, Exchange, ExchangeOptions, PullFailed, PullPart, PushSource, Verdict};
use kvplan::{BlockList, Descriptor};
use kvspec::{BlockId, GroupId};

const MIB: usize = 1 << 20;
/// Long enough for a loaded machine to send a heartbeat in time.
const TTL: Duration = Duration::from_secs(3);

fn options() -> ExchangeOptions {
    let mut lease = LeaseOptions::default();
    lease.ttl = TTL;
    let mut options = ExchangeOptions::default();
    options.lease = lease;
    options.heartbeat_every = Duration::from_millis(200);
    options
}

fn request(name: &str) -> RequestId {
    RequestId::new(name).unwrap()
}

/// A producer: holds requests as it is told, and writes what is asked for. Part p of a request is block p; a request
/// without parts is as many blocks as the registration has.
#[test]
#[ignore = "other tests run it as a process of its own"]
fn peer_process() {
    let Worker { agent, memory } = process::worker();
    let mut exchange: Exchange<()> = Exchange::new(Arc::new(agent), options());
    say(&hex(&exchange.agent().export().unwrap()));
    let (send, commands) = channel();
    std::thread::spawn(move || std::io::stdin().lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
    let mut met: BTreeMap<PushId, (u32, Vec<BlockList>)> = BTreeMap::new();
    let mut num_parts: BTreeMap<LeaseId, u32> = BTreeMap::new();
    loop {
        let now = Instant::now();
        match commands.try_recv() {
            Ok(line) => say(&obey(&mut exchange, &mut num_parts, &met, &line, now)),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => break,
        }
        for event in exchange.poll(now).unwrap() {
            if let Event::Push { id, lease, lists, .. } = event {
                let parts = num_parts[&lease];
                met.insert(id.clone(), (parts, lists));
                for part in 0..parts.max(1) {
                    write(&mut exchange, &met, &id, part, now);
                }
            }
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    drop(exchange);
    drop(memory);
}

fn obey(
    exchange: &mut Exchange<()>,
    num_parts: &mut BTreeMap<LeaseId, u32>,
    met: &BTreeMap<PushId, (u32, Vec<BlockList>)>,
    line: &str,
    now: Instant,
) -> String {
    match line.split(' ').collect::<Vec<_>>()[..] {
        ["connect", blob] => {
            exchange.connect(&bytes(blob), now).unwrap();
            "ok".into()
        }
        ["hold", name, readers, parts] => {
            let parts = parts.parse().unwrap();
            let lease = exchange.hold(request(name), (), Some(readers.parse().unwrap()), parts, now).unwrap();
            num_parts.insert(lease, parts);
            lease.0.to_string()
        }
        ["ready", lease, part] => {
            let part = part.parse().unwrap();
            let ids = exchange.ready(LeaseId(lease.parse().unwrap()), part, now);
            for id in &ids {
                write(exchange, met, id, part, now);
            }
            ids.len().to_string()
        }
        ["count", what] => {
            let leases = exchange.stats().leases;
            let count = match what {
                "all_read" => leases.all_read,
                "expired" => leases.expired,
                "late" => leases.late_completions,
                "duplicate" => leases.duplicate_completions,
                "unknown" => leases.unknown_completions,
                "malformed" => exchange.stats().messages.malformed,
                _ => panic!("{line}"),
            };
            count.to_string()
        }
        _ => panic!("{line}"),
    }
}

/// Writes a part if it is ready and was not written.
fn write(
    exchange: &mut Exchange<()>,
    met: &BTreeMap<PushId, (u32, Vec<BlockList>)>,
    id: &PushId,
    part: u32,
    now: Instant,
) {
    let Some((parts, lists)) = met.get(id) else { return };
    let descriptors: Vec<Descriptor> = lists[0]
        .blocks
        .iter()
        .zip(0_u64..)
        .filter(|(_, at)| *parts == 0 || *at == u64::from(part))
        .map(|(block, at)| descriptor(at * 1024, u64::from(block.0) * 1024, 1024))
        .collect();
    // Refused when it is not ready yet.
    let _ = exchange.write(id, part, &descriptors, 0, now);
}

/// A consumer in this process, and what it was told.
struct Decode {
    exchange: Exchange<&'static str>,
    memory: common::Memory,
    told: Vec<Event<&'static str>>,
}

impl Decode {
    fn new(via: Via) -> Self {
        let Worker { agent, memory } = Worker::nixl("decode", via, MIB, 2);
        Self { exchange: Exchange::new(Arc::new(agent), options()), memory, told: Vec::new() }
    }

    fn connect(&mut self, peer: &mut PeerProcess) -> PeerId {
        let id = self.exchange.connect(&peer.blob, Instant::now()).unwrap();
        peer.connect(&self.exchange.agent().export().unwrap());
        id
    }

    /// The first event that matches, whenever it comes.
    fn expect<T>(&mut self, what: &str, matches: impl Fn(&Event<&'static str>) -> Option<T>) -> T {
        let mut found = None;
        common::eventually(what, || {
            self.told.extend(self.exchange.poll(Instant::now()).unwrap());
            if let Some(at) = self.told.iter().position(|event| matches(event).is_some()) {
                found = matches(&self.told.remove(at));
            }
            found.is_some()
        });
        found.unwrap()
    }

    fn pull(&mut self, peer: &PeerId, name: &str, lease: LeaseId, len: usize, wait: Duration) {
        let descriptors = (0..len as u64 / 4096).map(|i| descriptor(i * 4096, i * 4096, 4096)).collect();
        let part = PullPart { peer: peer.clone(), request: request(name), lease, descriptors, padding: 0 };
        let now = Instant::now();
        self.exchange.pull("blocks", vec![part], now + wait, now).unwrap();
    }

    fn reserve(&mut self, peer: &PeerId, name: &str, wait: Duration) {
        let blocks = vec![BlockId(7), BlockId(3)];
        let lists = vec![BlockList { group: GroupId(0), first: 0, blocks }];
        let source = PushSource { peer: peer.clone(), lists };
        let now = Instant::now();
        self.exchange.reserve(request(name), "blocks", vec![source], now + wait, now).unwrap();
    }
}

fn hold(peer: &mut PeerProcess, name: &str, readers: u32, parts: u32) -> LeaseId {
    LeaseId(peer.ask(&format!("hold {name} {readers} {parts}")).parse().unwrap())
}

fn count(peer: &mut PeerProcess, what: &str) -> u64 {
    peer.ask(&format!("count {what}")).parse().unwrap()
}

fn pulled(event: &Event<&'static str>) -> Option<()> {
    matches!(event, Event::Pulled { blocks: "blocks", .. }).then_some(())
}

fn pull_failed(event: &Event<&'static str>) -> Option<PullFailed> {
    if let Event::PullFailed { why, .. } = event { Some(why.clone()) } else { None }
}

fn pull_returned(event: &Event<&'static str>) -> Option<()> {
    matches!(event, Event::ReturnedPull { blocks: "blocks", .. }).then_some(())
}

/// A completion as docs/WIRE.md has it.
fn completed(lease: LeaseId) -> Vec<u8> {
    let body = &b"KVNM\0\x01\xa9completed\x83\xa7reading\x01\xa7request\xa1r\xa5lease\xcf"[..];
    [body, &lease.0.to_be_bytes()].concat()
}

#[test]
fn a_pull_is_done_when_the_producer_has_confirmed_and_repeated_completions_free_nothing_else() {
    for via in [Via::Default, Via::Tcp] {
        let mut prefill = PeerProcess::spawn(via, MIB, 1);
        let mut decode = Decode::new(via);
        let peer = decode.connect(&mut prefill);
        let lease = hold(&mut prefill, "r", 1, 0);
        let other = hold(&mut prefill, "other", 1, 0);
        decode.pull(&peer, "r", lease, MIB, PATIENCE);
        decode.expect("the pull", pulled);
        assert!(decode.memory.read(0, MIB) == common::pattern(1, 0, MIB), "{via:?}");
        let to = decode.exchange.peer(&peer).unwrap().clone();
        for message in [completed(lease), completed(lease), completed(other), b"KVNM\0\x01\xc1".to_vec()] {
            decode.exchange.agent().notify(&to, &message).unwrap();
        }
        common::eventually("the messages", || count(&mut prefill, "malformed") == 1);
        let counts = ["all_read", "duplicate", "unknown"].map(|what| count(&mut prefill, what));
        assert_eq!(counts, [1, 2, 1], "{via:?}");
        decode.pull(&peer, "other", other, MIB, PATIENCE);
        decode.expect("the other pull", pulled);
    }
}

#[test]
fn a_late_reader_is_told_though_it_could_read_every_byte() {
    let mut prefill = PeerProcess::spawn(Via::Default, MIB, 1);
    let mut decode = Decode::new(Via::Default);
    let peer = decode.connect(&mut prefill);
    let lease = hold(&mut prefill, "r", 1, 0);
    common::eventually("the expiry", || count(&mut prefill, "expired") == 1);
    decode.pull(&peer, "r", lease, MIB, PATIENCE);
    let why = decode.expect("the failure", pull_failed);
    assert!(matches!(why, PullFailed::LeaseEnded { verdict: Verdict::Ended, .. }), "{why}");
    decode.expect("the blocks", pull_returned);
}

#[test]
fn a_push_arrives_in_either_order_and_part_by_part() {
    for via in [Via::Default, Via::Tcp] {
        let mut prefill = PeerProcess::spawn(via, MIB, 1);
        let mut decode = Decode::new(via);
        let peer = decode.connect(&mut prefill);
        let arrived = |event: &Event<_>| matches!(event, Event::Arrived { blocks: "blocks", .. }).then_some(());
        for (name, parts, registration_first) in [("a", 0, true), ("b", 0, false), ("c", 2, true), ("d", 2, false)] {
            decode.memory.write(0, &common::pattern(2, 0, MIB));
            if registration_first {
                decode.reserve(&peer, name, PATIENCE);
            }
            let lease = hold(&mut prefill, name, 1, parts);
            if !registration_first {
                decode.reserve(&peer, name, PATIENCE);
            }
            for part in (0..parts).rev() {
                prefill.ask(&format!("ready {} {part}", lease.0));
            }
            decode.expect("the arrival", arrived);
            let mut expected = common::pattern(2, 0, MIB);
            expected[7 * 1024..8 * 1024].copy_from_slice(&common::pattern(1, 0, 1024));
            expected[3 * 1024..4 * 1024].copy_from_slice(&common::pattern(1, 1024, 1024));
            assert!(decode.memory.read(0, MIB) == expected, "{via:?} {name}");
        }
        assert_eq!(count(&mut prefill, "all_read"), 4);
    }
}

#[test]
fn a_producer_that_restarts_is_another_one_and_what_it_was_to_write_stays_in_quarantine() {
    let mut first = PeerProcess::spawn(Via::Default, MIB, 1);
    let mut decode = Decode::new(Via::Default);
    let old = decode.connect(&mut first);
    let lease = hold(&mut first, "r", 1, 0);
    decode.reserve(&old, "never", PATIENCE);
    first.kill();
    let mut second = PeerProcess::spawn(Via::Default, MIB, 3);
    let new = decode.connect(&mut second);
    assert_ne!(old, new);
    let lost = |event: &Event<_>| match event {
        Event::ArrivalFailed { why, .. } => Some(why.clone()),
        _ => None,
    };
    assert_eq!(decode.expect("the failure", lost), WhyFailed::Lost(old.clone()));
    assert_eq!(decode.exchange.stats().reservations.quarantined, 1);
    // The new process knows nothing of the old one's lease.
    let again = hold(&mut second, "r", 1, 0);
    decode.pull(&new, "r", lease, MIB, PATIENCE);
    let why = decode.expect("the refusal", pull_failed);
    assert!(matches!(why, PullFailed::LeaseEnded { .. }), "{why}");
    decode.pull(&new, "r", again, MIB, PATIENCE);
    decode.expect("the pull", pulled);
    assert!(decode.memory.read(0, MIB) == common::pattern(3, 0, MIB));
    // Its process is seen to have ended.
    let returned = |event: &Event<_>| matches!(event, Event::ReturnedReservation { .. }).then_some(());
    decode.expect("the blocks", returned);
    assert_eq!(decode.exchange.stats().reservations.quarantined, 0);
}

#[test]
fn blocks_of_a_pull_from_a_stopped_producer_come_back_when_it_goes_on() {
    let mut prefill = PeerProcess::spawn(Via::Tcp, MIB, 1);
    let mut decode = Decode::new(Via::Tcp);
    let peer = decode.connect(&mut prefill);
    let warm = hold(&mut prefill, "warm", 1, 0);
    decode.pull(&peer, "warm", warm, MIB, PATIENCE);
    decode.expect("the first pull", pulled);
    let lease = hold(&mut prefill, "r", 1, 0);
    prefill.stop();
    decode.pull(&peer, "r", lease, MIB, Duration::from_millis(300));
    let why = decode.expect("the deadline", pull_failed);
    assert!(matches!(why, PullFailed::Deadline { .. } | PullFailed::Transfer { .. }), "{why}");
    assert_eq!(decode.exchange.stats().pulls.quarantined, 1);
    prefill.resume();
    decode.expect("the blocks", pull_returned);
    let lease = hold(&mut prefill, "again", 1, 0);
    decode.pull(&peer, "again", lease, MIB, PATIENCE);
    decode.expect("a pull", pulled);
}

#[test]
fn a_producer_that_is_killed_fails_a_pull_and_nothing_hangs() {
    let mut prefill = PeerProcess::spawn(Via::Default, MIB, 1);
    let mut decode = Decode::new(Via::Default);
    let peer = decode.connect(&mut prefill);
    let warm = hold(&mut prefill, "warm", 1, 0);
    decode.pull(&peer, "warm", warm, MIB, PATIENCE);
    decode.expect("the first pull", pulled);
    prefill.kill();
    decode.pull(&peer, "r", LeaseId(1), MIB, PATIENCE / 4);
    let why = decode.expect("the failure", pull_failed);
    assert!(!matches!(why, PullFailed::Cancelled), "{why}");
    // Whether it settles is the transport's to say; until then its blocks are counted.
    let stats = decode.exchange.stats().pulls;
    assert_eq!(stats.quarantined + usize::try_from(stats.returned).unwrap(), 1);
    let Decode { exchange, memory, .. } = decode;
    drop(exchange);
    memory.leak();
}
