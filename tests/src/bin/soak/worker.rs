//! What producers and consumers have in common: an exchange, caches, and a supervisor to report to.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant, SystemTime};

use kvnixl::lease::{LeaseOptions, PeerId, PushOptions, Wanted};
use kvnixl::{Agent, Event, Exchange, ExchangeOptions, Limits, NixlOptions};
use kvplan::{BlockList, Descriptors, LocalPlan, Op, PairOptions, PairPlan, Request};
use kvspec::{BlockId, GroupId, Layout};

use crate::caches::{Caches, NUM_BLOCKS};

/// Before each line to the supervisor, since UCX prints too.
pub(crate) const MARK: &str = "@@";
/// Time between two reports.
const REPORT: Duration = Duration::from_millis(250);
/// Longer than any worker is stopped for.
const LEASE: Duration = Duration::from_secs(10);

/// What has ended fills this soon: then memory that still grows is lost.
const REMEMBERED: usize = 4096;

/// A worker's role.
pub(crate) trait Role {
    /// Something has happened.
    fn event(&mut self, worker: &mut Worker, event: Event<Vec<u32>>, now: Instant);
    /// A peer's own message.
    fn message(&mut self, worker: &mut Worker, from: &PeerId, words: &[&str], now: Instant);
    /// Does what there is to do.
    fn step(&mut self, worker: &mut Worker, now: Instant);
    /// Requests that have not ended.
    fn open(&self) -> usize;
}

/// One worker.
pub(crate) struct Worker {
    pub(crate) exchange: Exchange<Vec<u32>>,
    pub(crate) caches: Caches,
    /// The supervisor wants no more requests.
    pub(crate) finishing: bool,
    /// Requests whose bytes were all right.
    pub(crate) transfers: u64,
    /// The newest blob of each peer.
    blobs: BTreeMap<String, Vec<u8>>,
    plans: BTreeMap<PeerId, PairPlan>,
}

impl Worker {
    /// Starts a worker and tells the supervisor its blob.
    pub(crate) fn start(name: &str, layout: Layout, tcp: bool) -> Self {
        let mut nixl = NixlOptions::default();
        if tcp {
            nixl.backend_params.insert("engine_config".into(), "TLS=tcp".into());
        }
        let agent = Agent::nixl(name, &nixl, Limits::default()).expect("NIXL is there, as make provides it");
        let caches = Caches::new(layout, agent.incarnation());
        // SAFETY: the memory is leaked; this process looks only at blocks that nothing is under way for.
        unsafe { agent.register(&LocalPlan::new(caches.spec())) }.expect("registered once");
        let mut lease = LeaseOptions::default();
        lease.ttl = LEASE;
        lease.max_remembered = REMEMBERED;
        let mut push = PushOptions::default();
        push.max_remembered = REMEMBERED;
        let mut options = ExchangeOptions::default();
        (options.lease, options.push) = (lease, push);
        options.heartbeat_every = Duration::from_secs(1);
        let worker = Self {
            exchange: Exchange::new(Arc::new(agent), options).unwrap(),
            caches,
            finishing: false,
            transfers: 0,
            blobs: BTreeMap::new(),
            plans: BTreeMap::new(),
        };
        say(&format!("blob {}", hex(&worker.exchange.agent().export().expect("a registered agent exports a blob"))));
        worker
    }

    /// Runs until the supervisor is gone.
    pub(crate) fn run(mut self, mut role: impl Role) {
        let commands = commands();
        let mut next_report = Instant::now();
        loop {
            let now = Instant::now();
            match commands.try_recv() {
                Ok(line) => self.obey(&line),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return,
            }
            self.connect(now);
            let events = self.exchange.poll(now).expect("notifications can be taken");
            let idle = events.is_empty();
            for event in events {
                match event {
                    Event::Notification(notification) => {
                        let text = String::from_utf8(notification.message).expect("peers write text");
                        let incarnation = notification.incarnation.expect("peers are agents");
                        let from = PeerId::new(notification.sender, incarnation);
                        role.message(&mut self, &from, &text.split(' ').collect::<Vec<_>>(), now);
                    }
                    Event::PeerReplaced { old, .. } | Event::PeerReleased(old) => drop(self.plans.remove(&old)),
                    event => role.event(&mut self, event, now),
                }
            }
            role.step(&mut self, now);
            if now >= next_report {
                next_report = now + REPORT;
                self.report(&role);
            }
            if idle {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    }

    fn obey(&mut self, line: &str) {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["blob", name, blob] => drop(self.blobs.insert(name.to_owned(), bytes(blob))),
            ["finish"] => self.finishing = true,
            _ => panic!("no command {line}"),
        }
    }

    /// Connects peers whose blob is known, when it is time to.
    fn connect(&mut self, now: Instant) {
        for (name, blob) in &self.blobs {
            if self.exchange.want(name, now) == Wanted::Fetch && self.exchange.connect(blob, now).is_err() {
                self.exchange.fetch_failed(name, now);
            }
        }
    }

    /// The peer of this name, if transfers with it may start.
    pub(crate) fn ready(&mut self, name: &str, now: Instant) -> Option<PeerId> {
        match self.exchange.want(name, now) {
            Wanted::Ready(peer) => Some(peer),
            _ => None,
        }
    }

    /// Sends a message of our own. It may be lost like any other.
    pub(crate) fn tell(&self, to: &PeerId, message: &str) {
        if let Some(peer) = self.exchange.peer(to) {
            let _ = self.exchange.agent().notify(peer, message.as_bytes());
        }
    }

    /// What to move between our blocks and a peer's.
    pub(crate) fn plan(
        &mut self,
        peer: &PeerId,
        op: Op,
        local: BlockList,
        remote: Vec<BlockList>,
    ) -> Option<Descriptors> {
        if !self.plans.contains_key(peer) {
            let layout = self.exchange.peer(peer)?.layout();
            let options = PairOptions { op, ..PairOptions::default() };
            let plan = PairPlan::new(self.caches.spec(), layout, &options).expect("one model");
            self.plans.insert(peer.clone(), plan);
        }
        let mut answer = Descriptors::new();
        let request = Request { op, local: vec![local], remote, ..Request::default() };
        self.plans.get(peer)?.descriptors(&request, &mut answer).expect("the lists fit");
        Some(answer)
    }

    /// Takes blocks, and reports those that somebody wrote while they were free.
    pub(crate) fn take(&mut self, num: usize) -> Option<Vec<u32>> {
        let (blocks, written) = self.caches.take(num)?;
        if !written.is_empty() {
            say(&format!("wrong blocks {written:?} were written while they were free"));
        }
        Some(blocks)
    }

    fn report(&self, role: &impl Role) {
        let stats = self.exchange.stats();
        let quarantined = stats.pulls.quarantined + stats.reservations.quarantined;
        let quarantined = quarantined + self.exchange.agent().quarantine().len();
        let live = stats.leases.live + stats.push.waiting + stats.push.writing + self.exchange.agent().unsettled();
        let missing = NUM_BLOCKS - self.caches.num_free();
        let line = format!(
            "alive transfers={} open={} missing={missing} quarantined={quarantined} live={live} rss_kib={}",
            self.transfers,
            role.open(),
            rss_kib()
        );
        say(&line);
    }
}

/// A list of a request's blocks.
pub(crate) fn list(first: u64, blocks: &[u32]) -> BlockList {
    BlockList { group: GroupId(0), first: Some(first), blocks: blocks.iter().copied().map(BlockId).collect() }
}

fn commands() -> Receiver<String> {
    let (send, commands) = channel();
    std::thread::spawn(move || std::io::stdin().lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
    commands
}

/// A line to the supervisor. Nobody is left to talk to when it is gone.
pub(crate) fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let written = writeln!(out, "{MARK}{line}").and_then(|()| out.flush());
    if written.is_err() {
        std::process::exit(1);
    }
}

/// Milliseconds that all processes agree on.
pub(crate) fn clock() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("the clock is past 1970");
    u64::try_from(since.as_millis()).expect("for a long time")
}

/// Resident memory of this process.
fn rss_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line for it");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    let digit = |i: usize| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).expect("hexadecimal");
    (0..hex.len() / 2).map(digit).collect()
}
