//! Two workers' exchanges under a clock that the test moves.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kvnixl::lease::{LeaseId, PeerId, PushId, ReservationId};
use kvnixl::{Agent, Event, Exchange, ExchangeOptions, Limits, LoopbackNetwork, PullId, PullPart, PushSource};
use kvplan::{BlockList, Descriptor};
use kvspec::{BlockId, GroupId};

use crate::common;
use crate::common::Worker;
use crate::told::{push, request, whole};

pub(crate) const LEN: usize = 16 << 10;
pub(crate) const TTL: Duration = Duration::from_secs(30);

/// One worker's exchange, and what it was told.
pub(crate) struct Side {
    pub(crate) exchange: Exchange<&'static str>,
    pub(crate) memory: common::Memory,
    pub(crate) id: PeerId,
    pub(crate) told: Vec<Event<&'static str>>,
}

impl Side {
    pub(crate) fn new(name: &str, network: &LoopbackNetwork, seed: u64, limits: Limits) -> Self {
        let agent = Agent::loopback(name, network, limits).unwrap();
        let Worker { agent, memory } = Worker::new(agent, LEN, seed);
        let id = PeerId::new(name, agent.incarnation());
        let exchange = Exchange::new(Arc::new(agent), ExchangeOptions::default()).unwrap();
        Self { exchange, memory, id, told: Vec::new() }
    }

    pub(crate) fn agent(&self) -> &Agent {
        self.exchange.agent()
    }

    pub(crate) fn connect(&mut self, other: &Self, now: Instant) {
        assert_eq!(self.exchange.connect(&other.agent().export().unwrap(), now).unwrap(), other.id);
    }

    /// Waits for its first request to the transport.
    pub(crate) fn has_posted(&self) {
        common::eventually("a post", || self.agent().stats().requests > 0);
    }

    pub(crate) fn register_anew(&self) {
        self.agent().deregister().unwrap();
        // SAFETY: the memory outlives the agent.
        unsafe { self.agent().register(&common::plan(self.memory.base(), LEN)) }.unwrap();
    }

    pub(crate) fn poll(&mut self, now: Instant) {
        let events = self.exchange.poll(now).unwrap();
        self.told.extend(events);
    }

    /// The one event that matches, taken out.
    pub(crate) fn take<T>(&mut self, what: impl Fn(&Event<&'static str>) -> Option<T>) -> Option<T> {
        let at = self.told.iter().position(|event| what(event).is_some())?;
        what(&self.told.remove(at))
    }
}

pub(crate) struct Pair {
    pub(crate) network: LoopbackNetwork,
    pub(crate) prefill: Side,
    pub(crate) decode: Side,
    pub(crate) now: Instant,
}

impl Pair {
    pub(crate) fn new() -> Self {
        Self::within(Limits::default())
    }

    pub(crate) fn within(limits: Limits) -> Self {
        let (network, now) = (LoopbackNetwork::new(), Instant::now());
        let mut prefill = Side::new("prefill", &network, 1, limits);
        let mut decode = Side::new("decode", &network, 2, limits);
        prefill.connect(&decode, now);
        decode.connect(&prefill, now);
        let mut pair = Self { network, prefill, decode, now };
        // The first poll sends heartbeats: from here on there are none until the clock moves.
        pair.poll();
        pair
    }

    /// Polls both until something holds; time stands still.
    pub(crate) fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Side, &mut Side) -> bool) {
        let Self { prefill, decode, now, .. } = self;
        common::eventually(what, || {
            prefill.poll(*now);
            decode.poll(*now);
            holds(prefill, decode)
        });
    }

    /// What prefill is told when a registration and its request's lease have met.
    pub(crate) fn met(&mut self) -> (PushId, LeaseId, Vec<BlockList>) {
        let mut met = None;
        self.until("the meeting", |prefill, _| {
            met = met.take().or_else(|| prefill.take(push));
            met.is_some()
        });
        met.unwrap()
    }

    pub(crate) fn poll(&mut self) {
        for _ in 0..3 {
            self.prefill.poll(self.now);
            self.decode.poll(self.now);
        }
    }

    /// Prefill holds the request for one reader.
    pub(crate) fn hold(&mut self, num_parts: u32) -> LeaseId {
        self.prefill.exchange.hold(request(), "source", Some(1), num_parts, self.now).unwrap()
    }

    /// Decode reads the whole request.
    pub(crate) fn pull(&mut self, lease: LeaseId) -> PullId {
        let parts = vec![self.part(lease, &whole())];
        self.decode.exchange.pull("destination", parts, self.now + TTL, self.now).unwrap()
    }

    /// Decode wants the request written.
    pub(crate) fn reserve(&mut self) -> ReservationId {
        let sources = vec![self.source()];
        self.decode.exchange.reserve(request(), "destination", sources, self.now + TTL, self.now).unwrap()
    }

    pub(crate) fn part(&self, lease: LeaseId, descriptors: &[Descriptor]) -> PullPart {
        PullPart {
            peer: self.prefill.id.clone(),
            request: request(),
            lease,
            descriptors: descriptors.to_vec(),
            padding_bytes: 0,
            layers: None,
        }
    }

    pub(crate) fn source(&self) -> PushSource {
        let lists = vec![BlockList { group: GroupId(0), first: None, blocks: vec![BlockId(2), BlockId(3)] }];
        PushSource { peer: self.prefill.id.clone(), lists }
    }
}
