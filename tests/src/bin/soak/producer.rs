//! A prefill worker: computes what it is asked for, holds it, and writes it where it is wanted.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kvnixl::lease::{LeaseId, PeerId, PushId, RequestId};
use kvnixl::{Error, Event};
use kvplan::{BlockList, Op};

use crate::caches::Content;
use crate::worker::{Role, Worker, list, say};

/// A request that is held.
struct Held {
    first: u64,
    blocks: Vec<u32>,
    num_parts: u32,
    /// The last part is computed then.
    computed: Option<Instant>,
    /// Where it is wanted.
    pushes: Vec<(PushId, Vec<BlockList>)>,
}

/// The role of a prefill worker.
#[derive(Default)]
pub(crate) struct Producer {
    held: BTreeMap<LeaseId, Held>,
}

impl Producer {
    /// `pull|push KEY FIRST NUM PARTS`: blocks FIRST to FIRST + NUM of the request KEY.
    fn compute(&mut self, worker: &mut Worker, from: &PeerId, words: &[&str], now: Instant) {
        let [how, key, first, num, parts] = words else { panic!("{words:?}") };
        let request = RequestId::new(*key).expect("a short name");
        let key_number = u64::from_str_radix(key, 16).expect("a number");
        let (first, num) = (first.parse::<u64>().expect("a number"), num.parse().expect("a number"));
        let num_parts: u32 = parts.parse().expect("a number");
        let Some(blocks) = worker.take(num) else { return worker.tell(from, &format!("full {key}")) };
        for (&block, index) in blocks.iter().zip(first..) {
            worker.caches.fill(block, Content { key: key_number, index });
        }
        let lease = match worker.exchange.hold(request, blocks.clone(), Some(1), num_parts, now) {
            Ok(lease) => lease,
            Err((error, blocks)) => {
                say(&format!("wrong a request could not be held: {error}"));
                return worker.caches.give_back_used(&blocks);
            }
        };
        let computed = (num_parts > 0).then(|| now + Duration::from_millis(2));
        if num_parts > 0 {
            worker.exchange.ready(lease, 0, now);
        }
        if *how == "pull" {
            let numbers: Vec<String> = blocks.iter().map(ToString::to_string).collect();
            worker.tell(from, &format!("have {key} {} {first} {}", lease.0, numbers.join(",")));
        }
        self.held.insert(lease, Held { first, blocks, num_parts, computed, pushes: Vec::new() });
    }

    fn write(&self, worker: &mut Worker, id: &PushId, lease: LeaseId, part: u32, now: Instant) {
        let Some(held) = self.held.get(&lease) else { return };
        let Some((_, lists)) = held.pushes.iter().find(|(push, _)| push == id) else { return };
        let local = list(held.first, &held.blocks);
        let Some(answer) = worker.plan(&id.reader, Op::Write, local, lists.clone()) else { return };
        let descriptors = match (held.num_parts, answer.as_slice()) {
            (0, all) => all,
            (_, all) if part == 0 => &all[..all.len() / 2],
            (_, all) => &all[all.len() / 2..],
        };
        match worker.exchange.write(id, part, descriptors, answer.padding_bytes(), now) {
            // The registration has ended, or its reader has: it knows.
            Ok(()) | Err(Error::WriteRefused { .. } | Error::PeerNotReady { .. }) => {}
            Err(error) => say(&format!("note a write was refused: {error}")),
        }
    }
}

impl Role for Producer {
    fn event(&mut self, worker: &mut Worker, event: Event<Vec<u32>>, now: Instant) {
        match event {
            Event::Push { id, lease, lists, .. } => {
                let Some(held) = self.held.get_mut(&lease) else { return };
                let ready = if held.computed.is_some() { 1 } else { held.num_parts.max(1) };
                held.pushes.push((id.clone(), lists));
                (0..ready).for_each(|part| self.write(worker, &id, lease, part, now));
            }
            Event::Freed(freed) => {
                self.held.remove(&freed.lease);
                worker.caches.give_back_used(&freed.blocks);
            }
            _ => {}
        }
    }

    fn message(&mut self, worker: &mut Worker, from: &PeerId, words: &[&str], now: Instant) {
        self.compute(worker, from, words, now);
    }

    fn step(&mut self, worker: &mut Worker, now: Instant) {
        let due = |held: &Held| held.computed.is_some_and(|computed| now >= computed);
        let due: Vec<LeaseId> = self.held.iter().filter(|(_, held)| due(held)).map(|(lease, _)| *lease).collect();
        for lease in due {
            if let Some(held) = self.held.get_mut(&lease) {
                held.computed = None;
            }
            for id in worker.exchange.ready(lease, 1, now) {
                self.write(worker, &id, lease, 1, now);
            }
        }
    }

    fn open(&self) -> usize {
        self.held.len()
    }
}
