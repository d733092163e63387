//! Two exchanges on real NIXL: one in this process, one in a process of its own that is told what to do.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{TryRecvError, channel};
use std::time::{Duration, Instant};

use kvnixl::lease::{LeaseId, LeaseOptions, PeerId, PushId, RequestId, Wanted};
use kvnixl::{Event, Exchange, ExchangeOptions, PullFailed, PullId, PullPart, PushSource};
use kvplan::{BlockList, Descriptor};
use kvspec::{BlockId, GroupId};

use super::process::{self, PeerProcess, bytes, hex, say};
use super::{Memory, PATIENCE, Via, Worker, descriptor};

pub const MIB: usize = 1 << 20;
/// Nothing expires because a machine is loaded: who wants that moves the peer's clock.
pub const TTL: Duration = Duration::from_secs(60);

fn options() -> ExchangeOptions {
    let mut lease = LeaseOptions::default();
    lease.ttl = TTL;
    let mut options = ExchangeOptions::default();
    options.lease = lease;
    options.heartbeat_every = Duration::from_millis(200);
    options
}

pub fn request(name: &str) -> RequestId {
    RequestId::new(name).unwrap()
}

/// The blocks that are reserved, in all tests.
fn reserved() -> Vec<BlockList> {
    vec![BlockList { group: GroupId(0), first: None, blocks: vec![BlockId(7), BlockId(3)] }]
}

/// The peer's side: holds requests as it is told, and writes what is asked for. Part p of a request is block p; a
/// request without parts is as many blocks as the registration has. Ends when its standard input does.
pub fn serve() {
    let Worker { agent, memory } = process::worker();
    let exchange = Exchange::new(Arc::new(agent), options()).unwrap();
    say(&hex(&exchange.agent().export().unwrap()));
    let (met, num_parts, told) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let mut peer = Peer { exchange, memory, met, num_parts, told, ahead: Duration::ZERO };
    let (send, commands) = channel();
    std::thread::spawn(move || std::io::stdin().lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
    loop {
        match commands.try_recv() {
            Ok(line) => say(&peer.obey(&line)),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return,
        }
        peer.poll();
        std::thread::sleep(Duration::from_micros(200));
    }
}

struct Peer {
    exchange: Exchange<()>,
    memory: Memory,
    met: BTreeMap<PushId, (u32, Vec<BlockList>)>,
    num_parts: BTreeMap<LeaseId, u32>,
    /// How many events of each kind there were.
    told: BTreeMap<&'static str, u32>,
    /// How far its clock is moved.
    ahead: Duration,
}

impl Peer {
    fn now(&self) -> Instant {
        Instant::now() + self.ahead
    }

    fn poll(&mut self) {
        let now = self.now();
        for event in self.exchange.poll(now).unwrap() {
            let kind = match event {
                Event::Push { id, lease, lists, .. } => {
                    let parts = self.num_parts[&lease];
                    self.met.insert(id.clone(), (parts, lists));
                    (0..parts.max(1)).for_each(|part| self.write(&id, part, now));
                    "push"
                }
                Event::Withdrawn => "withdrawn",
                Event::Pulled { .. } => "pulled",
                Event::Arrived { .. } => "arrived",
                _ => "other",
            };
            *self.told.entry(kind).or_default() += 1;
        }
    }

    fn obey(&mut self, line: &str) -> String {
        let now = self.now();
        let exchange = &mut self.exchange;
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["connect", blob] => {
                exchange.connect(&bytes(blob), now).unwrap();
                "ok".into()
            }
            ["hold", name, readers, parts] => {
                let parts = parts.parse().unwrap();
                let lease = exchange.hold(request(name), (), Some(readers.parse().unwrap()), parts, now).unwrap();
                self.num_parts.insert(lease, parts);
                lease.0.to_string()
            }
            ["ready", lease, part] => {
                let part = part.parse().unwrap();
                let ids = exchange.ready(LeaseId(lease.parse().unwrap()), part, now);
                ids.iter().for_each(|id| self.write(id, part, now));
                ids.len().to_string()
            }
            ["reserve", name, reader] => {
                let Wanted::Ready(peer) = exchange.want(reader, now) else { panic!("{line}") };
                let source = PushSource { peer, lists: reserved() };
                exchange.reserve(request(name), (), vec![source], now + PATIENCE, now).unwrap();
                "ok".into()
            }
            ["withdraw"] => {
                exchange.withdraw(now);
                "ok".into()
            }
            ["register"] => {
                exchange.agent().deregister().unwrap();
                // SAFETY: the memory outlives the agent.
                unsafe { exchange.agent().register(&super::plan(self.memory.base(), self.memory.len())) }.unwrap();
                exchange.registered(now);
                hex(&exchange.agent().export().unwrap())
            }
            ["outlast"] => {
                self.ahead += TTL;
                "ok".into()
            }
            ["pause"] => {
                say("ok");
                std::thread::sleep(PATIENCE);
                "awake".into()
            }
            ["goodbye"] => {
                exchange.goodbye(now).unwrap();
                "ok".into()
            }
            ["unmap", offset, len] => {
                self.memory.unmap(offset.parse().unwrap(), len.parse().unwrap());
                "ok".into()
            }
            ["stranger", blob, name] => stranger(&bytes(blob), name),
            ["count", what] => self.count(what).to_string(),
            _ => panic!("{line}"),
        }
    }

    fn count(&self, what: &str) -> u64 {
        let leases = self.exchange.stats().leases;
        match what {
            "all_read" => leases.all_read,
            "expired" => leases.expired,
            "late" => leases.late_completions,
            "duplicate" => leases.duplicate_completions,
            "unknown" => leases.unknown_completions,
            "malformed" => self.exchange.stats().messages.malformed,
            told => self.told.get(told).copied().unwrap_or_default().into(),
        }
    }

    /// Writes a part if it is ready and was not written.
    fn write(&mut self, id: &PushId, part: u32, now: Instant) {
        let Some((parts, lists)) = self.met.get(id) else { return };
        let descriptors: Vec<Descriptor> = lists[0]
            .blocks
            .iter()
            .zip(0_u64..)
            .filter(|(_, at)| *parts == 0 || *at == u64::from(part))
            .map(|(block, at)| descriptor(at * 1024, u64::from(block.0) * 1024, 1024))
            .collect();
        // Refused when it is not ready yet.
        let _ = self.exchange.write(id, part, &descriptors, 0, now);
    }
}

/// An agent of raw NIXL, under a name that makes it one of ours or not, sends what nobody should.
fn stranger(blob: &[u8], name: &str) -> String {
    use nixl_sys::{Agent, AgentConfig, Params, ThreadSync};
    let config = AgentConfig { thread_sync: ThreadSync::Strict, pthr_delay_us: 1000, ..AgentConfig::default() };
    let agent = Agent::new_configured(name, &config).unwrap();
    let backend = agent.create_backend("UCX", &Params::from(None::<(&str, &str)>).unwrap()).unwrap();
    let to = agent.load_remote_md(process::nixl_metadata(blob)).unwrap();
    let ours = |body: &[u8]| [b"KVNM\0\x02\0\0\0\0\0\0\0\0", body].concat();
    let messages = [
        vec![0xff; 3 * MIB],
        // Ours, and megabytes.
        [ours(b""), vec![0x91; MIB]].concat(),
        // Cut off, nested without end, a list longer than the message, a version and a kind that there are not.
        ours(b"\xa9compl"),
        ours(&[b"\xa9heartbeat\x81\xa6leases"[..].to_vec(), vec![0x91; 4000]].concat()),
        ours(b"\xa9heartbeat\x81\xa6leases\xdd\xff\xff\xff\xff"),
        b"KVNM\0\x63\xa7goodbye\x80".to_vec(),
        ours(b"\xa7abolish\x80"),
        // Well-formed, about what nobody knows.
        ours(&[&b"\xa9completed\x83\xa7reading\x01\xa7request\xa1r\xa5lease\xcf"[..], &7_u64.to_be_bytes()].concat()),
        ours(b"\xa9confirmed\x84\xa7reading\x01\xa7request\xa1r\xa5lease\x01\xa7verdict\xa4good"),
        ours(b"\xa7written\x81\xabreservation\x01"),
        ours(b"\xa8released\x83\xabreservation\x01\xa3why\xa7refused\xa6reason\xa1x"),
        ours(b"\xa6failed\x83\xabreservation\x01\xa3why\xa7refused\xa6reason\xa1x"),
        ours(b"\xa6let_go\x81\xa5lease\x01"),
        ours(b"\xa3ack\x81\xa7numbers\x91\x01"),
        ours(b"\xa5ended\x81\xa6leases\x91\x01"),
        ours(b"\xa7drained\x81\xaageneration\x01"),
        ours(b"\xa7goodbye\x80"),
        // Not ours.
        b"\0\xff garbage".to_vec(),
    ];
    for message in &messages {
        agent.send_notification(&to, message, Some(&backend)).unwrap();
    }
    // What is sent leaves with the agent.
    std::mem::forget((agent, backend));
    messages.len().to_string()
}

/// An exchange in this process, and what it was told.
pub struct Side {
    pub exchange: Exchange<&'static str>,
    pub memory: Memory,
    pub told: Vec<Event<&'static str>>,
}

impl Side {
    pub fn new(via: Via) -> Self {
        Self::with(via, MIB)
    }

    pub fn with(via: Via, len: usize) -> Self {
        let Worker { agent, memory } = Worker::nixl("decode", via, len, 2);
        Self { exchange: Exchange::new(Arc::new(agent), options()).unwrap(), memory, told: Vec::new() }
    }

    pub fn connect(&mut self, peer: &mut PeerProcess) -> PeerId {
        let id = self.exchange.connect(&peer.blob, Instant::now()).unwrap();
        peer.connect(&self.exchange.agent().export().unwrap());
        id
    }

    pub fn poll(&mut self) {
        self.told.extend(self.exchange.poll(Instant::now()).unwrap());
    }

    /// Polls until something holds.
    pub fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
        super::eventually(what, || {
            self.poll();
            holds(self)
        });
    }

    /// The first event that matches, whenever it comes.
    pub fn expect<T>(&mut self, what: &str, matches: impl Fn(&Event<&'static str>) -> Option<T>) -> T {
        let mut found = None;
        self.until(what, |side| {
            if let Some(at) = side.told.iter().position(|event| matches(event).is_some()) {
                found = matches(&side.told.remove(at));
            }
            found.is_some()
        });
        found.unwrap()
    }

    pub fn pull(&mut self, peer: &PeerId, name: &str, lease: LeaseId, len: usize, wait: Duration) -> PullId {
        let descriptors = (0..len as u64 / 4096).map(|i| descriptor(i * 4096, i * 4096, 4096)).collect();
        self.pull_all(peer, name, lease, descriptors, wait)
    }

    pub fn pull_all(
        &mut self,
        peer: &PeerId,
        name: &str,
        lease: LeaseId,
        descriptors: Vec<Descriptor>,
        wait: Duration,
    ) -> PullId {
        let part =
            PullPart { peer: peer.clone(), request: request(name), lease, descriptors, padding_bytes: 0, layers: None };
        let now = Instant::now();
        self.exchange.pull("blocks", vec![part], now + wait, now).unwrap()
    }

    pub fn reserve(&mut self, peer: &PeerId, name: &str, wait: Duration) {
        let source = PushSource { peer: peer.clone(), lists: reserved() };
        let now = Instant::now();
        self.exchange.reserve(request(name), "blocks", vec![source], now + wait, now).unwrap();
    }

    /// Nothing is under way, and nothing is in quarantine.
    pub fn is_clear(&self) -> bool {
        let stats = self.exchange.stats();
        (stats.pulls.live, stats.reservations.live, stats.leases.live) == (0, 0, 0)
            && self.exchange.agent().unsettled() == 0
            && self.exchange.agent().quarantine().is_empty()
    }
}

pub fn hold(peer: &mut PeerProcess, name: &str, readers: u32, parts: u32) -> LeaseId {
    LeaseId(peer.ask(&format!("hold {name} {readers} {parts}")).parse().unwrap())
}

pub fn count(peer: &mut PeerProcess, what: &str) -> u64 {
    peer.ask(&format!("count {what}")).parse().unwrap()
}

pub fn pulled(event: &Event<&'static str>) -> Option<()> {
    matches!(event, Event::Pulled { blocks: "blocks", .. }).then_some(())
}

pub fn pull_failed(event: &Event<&'static str>) -> Option<PullFailed> {
    if let Event::PullFailed { why, .. } = event { Some(why.clone()) } else { None }
}

pub fn arrived(event: &Event<&'static str>) -> Option<()> {
    matches!(event, Event::Arrived { blocks: "blocks", .. }).then_some(())
}

pub fn returned(event: &Event<&'static str>) -> Option<()> {
    let returned = matches!(
        event,
        Event::ReturnedPull { blocks: "blocks", .. } | Event::ReturnedReservation { blocks: "blocks", .. }
    );
    returned.then_some(())
}
