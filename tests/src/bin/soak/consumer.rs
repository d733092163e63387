//! A decode worker: asks for requests, pulls them or has them pushed, from one producer or two, and checks every byte.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kvnixl::lease::{ArrivalFailed, LeaseId, PeerId, RequestId, ReservationId};
use kvnixl::{Event, PullId, PullPart, PushSource};
use kvplan::Op;

use crate::caches::{Content, Dice};
use crate::worker::{Role, Worker, clock, list, say};

/// Requests under way at once.
const MAX_OPEN: usize = 8;
/// A producer has answered by then.
const ANSWER: Duration = Duration::from_secs(4);
/// A pull or a push has ended by then.
const DEADLINE: Duration = Duration::from_secs(4);

/// Which end of the exchange a request is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum At {
    Pull(PullId),
    Push(ReservationId),
}

/// A request.
struct Job {
    key: u64,
    /// When it began, in milliseconds of [`clock`].
    began: u64,
    /// Who holds which of its blocks: the first, and how many.
    parts: Vec<(PeerId, u64, usize)>,
    /// Whether its failure was told.
    failed: bool,
}

/// A request that its producers have not all computed.
struct Asked {
    job: Job,
    blocks: Vec<u32>,
    until: Instant,
    /// What the producers answered: lease and blocks.
    held: BTreeMap<PeerId, (LeaseId, Vec<u32>)>,
}

/// The role of a decode worker.
pub(crate) struct Consumer {
    producers: Vec<String>,
    dice: Dice,
    asked: BTreeMap<u64, Asked>,
    under_way: BTreeMap<At, Job>,
}

impl Consumer {
    /// A decode worker of these producers.
    pub(crate) fn new(producers: Vec<String>, seed: u64) -> Self {
        Self { producers, dice: Dice(seed), asked: BTreeMap::new(), under_way: BTreeMap::new() }
    }

    fn begin(&mut self, worker: &mut Worker, now: Instant) {
        // Every fourth is spread over two producers.
        let num_producers = if self.dice.roll(4) == 0 { self.producers.len().min(2) } else { 1 };
        let first = usize::try_from(self.dice.roll(self.producers.len() as u64)).expect("small");
        let names = self.producers.iter().cycle().skip(first).take(num_producers);
        let Some(peers) = names.map(|name| worker.ready(name, now)).collect::<Option<Vec<PeerId>>>() else { return };
        let (mut parts, mut num_blocks) = (Vec::new(), 0);
        for peer in peers {
            let num = usize::try_from(1 + self.dice.roll(4)).expect("small");
            parts.push((peer, num_blocks as u64, num));
            num_blocks += num;
        }
        let Some(blocks) = worker.take(num_blocks) else { return };
        for &block in &blocks {
            let content = Content { key: worker.caches.key(), index: 0 };
            worker.caches.fill(block, content);
        }
        let job = Job { key: worker.caches.key(), began: clock(), parts, failed: false };
        if self.dice.roll(2) == 0 { self.ask(worker, job, blocks, now) } else { self.reserve(worker, job, blocks, now) }
    }

    /// Has the request computed, and pulls it when it is.
    fn ask(&mut self, worker: &mut Worker, job: Job, blocks: Vec<u32>, now: Instant) {
        for (peer, first, num) in &job.parts {
            worker.tell(peer, &format!("pull {:x} {first} {num} 0", job.key));
        }
        self.asked.insert(job.key, Asked { job, blocks, until: now + ANSWER, held: BTreeMap::new() });
    }

    /// Has the request computed and written, in one part or two.
    fn reserve(&mut self, worker: &mut Worker, job: Job, blocks: Vec<u32>, now: Instant) {
        let parts = self.dice.roll(2) * 2;
        let tell = |worker: &Worker| {
            for (peer, first, num) in &job.parts {
                worker.tell(peer, &format!("push {:x} {first} {num} {parts}", job.key));
            }
        };
        let mut rest = &blocks[..];
        let mut sources = Vec::new();
        for (peer, first, num) in &job.parts {
            let (mine, others) = rest.split_at(*num);
            sources.push(PushSource { peer: peer.clone(), lists: vec![list(*first, mine)] });
            rest = others;
        }
        let request = request(job.key);
        let reserve_first = self.dice.roll(2) == 0;
        if !reserve_first {
            tell(worker);
        }
        match worker.exchange.reserve(request, blocks, sources, now + DEADLINE, now) {
            Ok(id) => {
                if reserve_first {
                    tell(worker);
                }
                self.under_way.insert(At::Push(id), job);
            }
            Err((error, blocks)) => refused(worker, &job, &error, &blocks),
        }
    }

    /// `have KEY LEASE FIRST BLOCKS`.
    fn held(&mut self, worker: &mut Worker, from: &PeerId, words: &[&str], now: Instant) {
        let [key, lease, first, blocks] = words else { panic!("{words:?}") };
        let key = u64::from_str_radix(key, 16).expect("a number");
        let lease = LeaseId(lease.parse().expect("a number"));
        let Some(asked) = self.asked.get_mut(&key) else { return };
        // Of a process that has taken the place of the one that was asked.
        if !asked.job.parts.iter().any(|(peer, at, _)| peer == from && at.to_string() == *first) {
            return;
        }
        worker.exchange.keep(from.clone(), lease);
        let blocks = blocks.split(',').map(|block| block.parse().expect("a number")).collect();
        asked.held.insert(from.clone(), (lease, blocks));
        if asked.held.len() == asked.job.parts.len()
            && let Some(asked) = self.asked.remove(&key)
        {
            self.pull(worker, asked, now);
        }
    }

    fn pull(&mut self, worker: &mut Worker, asked: Asked, now: Instant) {
        let Asked { job, blocks, held, .. } = asked;
        let mut parts = Vec::new();
        let mut rest = &blocks[..];
        for (peer, first, num) in &job.parts {
            let (mine, others) = rest.split_at(*num);
            rest = others;
            let (lease, remote) = &held[peer];
            worker.exchange.let_go(peer.clone(), *lease);
            let Some(answer) = worker.plan(peer, Op::Read, list(*first, mine), vec![list(*first, remote)]) else {
                return refused(worker, &job, &"its producer is not connected any more", &blocks);
            };
            let descriptors = answer.as_slice().to_vec();
            let padding_bytes = answer.padding_bytes();
            parts.push(PullPart {
                peer: peer.clone(),
                request: request(job.key),
                lease: *lease,
                descriptors,
                padding_bytes,
                layers: None,
            });
        }
        match worker.exchange.pull(blocks, parts, now + DEADLINE, now) {
            Ok(id) => drop(self.under_way.insert(At::Pull(id), job)),
            Err((error, blocks)) => refused(worker, &job, &error, &blocks),
        }
    }

    fn give_up(&mut self, worker: &mut Worker, key: u64) -> Option<Job> {
        let Asked { job, blocks, held, .. } = self.asked.remove(&key)?;
        held.into_iter().for_each(|(peer, (lease, _))| worker.exchange.let_go(peer, lease));
        worker.caches.give_back_used(&blocks);
        Some(job)
    }

    /// A producer has no room: another time.
    fn no_room(&mut self, worker: &mut Worker, key: u64) {
        if self.give_up(worker, key).is_some() {
            return;
        }
        for (at, job) in &self.under_way {
            if let (At::Push(id), true) = (at, job.key == key) {
                worker.exchange.cancel_reservation(*id);
            }
        }
    }

    fn arrived(&mut self, worker: &mut Worker, at: At, blocks: &[u32]) {
        let Some(job) = self.under_way.remove(&at) else { return say(&format!("wrong {at:?} ended twice")) };
        if job.failed {
            say(&format!("wrong {at:?} failed and arrived"));
        }
        let content = |index| Content { key: job.key, index };
        let mut right = true;
        for (&block, index) in blocks.iter().zip(0..) {
            if !worker.caches.is(block, content(index)) {
                right = false;
                say(&format!("wrong {at:?} of {:?}: block {block} does not hold what was asked for", job.parts));
            }
        }
        worker.transfers += u64::from(right);
        worker.caches.give_back(blocks, content);
    }

    fn failed(&mut self, at: At, why: &dyn std::fmt::Display, at_fault: bool) {
        let Some(job) = self.under_way.get_mut(&at) else { return say(&format!("wrong {at:?} failed after its end")) };
        if std::mem::replace(&mut job.failed, true) {
            say(&format!("wrong {at:?} failed twice"));
        }
        if at_fault {
            tell_failure(job, why);
        }
    }

    fn returned(&mut self, worker: &mut Worker, at: At, blocks: &[u32]) {
        match self.under_way.remove(&at) {
            Some(job) if job.failed => worker.caches.give_back_used(blocks),
            _ => say(&format!("wrong {at:?} was returned and had not failed")),
        }
    }
}

impl Role for Consumer {
    fn event(&mut self, worker: &mut Worker, event: Event<Vec<u32>>, _now: Instant) {
        match event {
            Event::Pulled { id, blocks } => self.arrived(worker, At::Pull(id), &blocks),
            Event::Arrived { id, blocks } => self.arrived(worker, At::Push(id), &blocks),
            Event::PullFailed { id, why } => self.failed(At::Pull(id), &with_causes(&why), true),
            Event::ArrivalFailed { id, why } => self.failed(At::Push(id), &why, why != ArrivalFailed::Cancelled),
            Event::ReturnedPull { id, blocks } => self.returned(worker, At::Pull(id), &blocks),
            Event::ReturnedReservation { id, blocks } => self.returned(worker, At::Push(id), &blocks),
            _ => {}
        }
    }

    fn message(&mut self, worker: &mut Worker, from: &PeerId, words: &[&str], now: Instant) {
        match words {
            ["have", words @ ..] => self.held(worker, from, words, now),
            ["full", key] => self.no_room(worker, u64::from_str_radix(key, 16).expect("a number")),
            _ => panic!("{words:?}"),
        }
    }

    fn step(&mut self, worker: &mut Worker, now: Instant) {
        let late = |asked: &&Asked| now >= asked.until;
        let late: Vec<u64> = self.asked.values().filter(late).map(|asked| asked.job.key).collect();
        for key in late {
            if let Some(job) = self.give_up(worker, key) {
                tell_failure(&job, &"no answer came to what was asked for");
            }
        }
        if !worker.finishing && self.open() < MAX_OPEN {
            self.begin(worker, now);
        }
    }

    fn open(&self) -> usize {
        self.asked.len() + self.under_way.len()
    }
}

fn request(key: u64) -> RequestId {
    RequestId::new(format!("{key:x}")).expect("a short name")
}

/// Nothing was begun.
fn refused(worker: &mut Worker, job: &Job, why: &dyn std::fmt::Display, blocks: &[u32]) {
    worker.caches.give_back_used(blocks);
    tell_failure(job, why);
}

/// The supervisor knows whether it is to blame.
fn tell_failure(job: &Job, why: &dyn std::fmt::Display) {
    let names: Vec<&str> = job.parts.iter().map(|(peer, ..)| &*peer.name).collect();
    say(&format!("failed {} {} {} {why}", job.began, clock(), names.join(",")));
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
