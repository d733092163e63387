//! Leases, pulls, pushes and peers between two exchanges on the loopback, under a clock that the test moves.

mod common;

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Worker, descriptor};
use kvnixl::lease::{ArrivalFailed, EndReason, LeaseId, PeerId, PeerState, PushId, RequestId, Wanted};
use kvnixl::{
    Agent, Error, Event, Exchange, ExchangeOptions, Limits, LoopbackNetwork, PullFailed, PullPart, PushSource, Verdict,
    WriteRefusal,
};
use kvplan::{BlockList, Descriptor};
use kvspec::{BlockId, GroupId};

const LEN: usize = 16 << 10;
const TTL: Duration = Duration::from_secs(30);

/// One worker's exchange, and what it was told.
struct Side {
    exchange: Exchange<&'static str>,
    memory: common::Memory,
    id: PeerId,
    told: Vec<Event<&'static str>>,
}

impl Side {
    fn new(name: &str, network: &LoopbackNetwork, seed: u64, limits: Limits) -> Self {
        let agent = Agent::loopback(name, network, limits).unwrap();
        let Worker { agent, memory } = Worker::new(agent, LEN, seed);
        let id = PeerId::new(name, agent.incarnation());
        let exchange = Exchange::new(Arc::new(agent), ExchangeOptions::default()).unwrap();
        Self { exchange, memory, id, told: Vec::new() }
    }

    fn agent(&self) -> &Agent {
        self.exchange.agent()
    }

    fn connect(&mut self, other: &Self, now: Instant) {
        assert_eq!(self.exchange.connect(&other.agent().export().unwrap(), now).unwrap(), other.id);
    }

    /// Waits for its first request to the transport.
    fn has_posted(&self) {
        common::eventually("a post", || self.agent().stats().requests > 0);
    }

    fn register_anew(&self) {
        self.agent().deregister().unwrap();
        // SAFETY: the memory outlives the agent.
        unsafe { self.agent().register(&common::plan(self.memory.base(), LEN)) }.unwrap();
    }

    fn poll(&mut self, now: Instant) {
        let events = self.exchange.poll(now).unwrap();
        self.told.extend(events);
    }

    /// The one event that matches, taken out.
    fn take<T>(&mut self, what: impl Fn(&Event<&'static str>) -> Option<T>) -> Option<T> {
        let at = self.told.iter().position(|event| what(event).is_some())?;
        what(&self.told.remove(at))
    }
}

struct Pair {
    network: LoopbackNetwork,
    prefill: Side,
    decode: Side,
    now: Instant,
}

impl Pair {
    fn new() -> Self {
        Self::within(Limits::default())
    }

    fn within(limits: Limits) -> Self {
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
    fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Side, &mut Side) -> bool) {
        let Self { prefill, decode, now, .. } = self;
        common::eventually(what, || {
            prefill.poll(*now);
            decode.poll(*now);
            holds(prefill, decode)
        });
    }

    /// What prefill is told when a registration and its request's lease have met.
    fn met(&mut self) -> (PushId, LeaseId, Vec<BlockList>) {
        let mut met = None;
        self.until("the meeting", |prefill, _| {
            met = met.take().or_else(|| prefill.take(push));
            met.is_some()
        });
        met.unwrap()
    }

    fn poll(&mut self) {
        for _ in 0..3 {
            self.prefill.poll(self.now);
            self.decode.poll(self.now);
        }
    }

    fn part(&self, lease: LeaseId, descriptors: &[Descriptor]) -> PullPart {
        PullPart {
            peer: self.prefill.id.clone(),
            request: request(),
            lease,
            descriptors: descriptors.to_vec(),
            padding_bytes: 0,
        }
    }

    fn source(&self) -> PushSource {
        let lists = vec![BlockList { group: GroupId(0), first: 0, blocks: vec![BlockId(2), BlockId(3)] }];
        PushSource { peer: self.prefill.id.clone(), lists }
    }
}

fn request() -> RequestId {
    RequestId::new("r").unwrap()
}

fn whole() -> [Descriptor; 1] {
    [descriptor(2048, 1024, 2048)]
}

fn pulled(event: &Event<&'static str>) -> Option<&'static str> {
    if let Event::Pulled { blocks, .. } = event { Some(blocks) } else { None }
}

fn pull_failed(event: &Event<&'static str>) -> Option<PullFailed> {
    if let Event::PullFailed { why, .. } = event { Some(why.clone()) } else { None }
}

fn returned(event: &Event<&'static str>) -> Option<&'static str> {
    match event {
        Event::ReturnedPull { blocks, .. } | Event::ReturnedReservation { blocks, .. } => Some(blocks),
        _ => None,
    }
}

fn freed(event: &Event<&'static str>) -> Option<EndReason> {
    if let Event::Freed(freed) = event { Some(freed.why) } else { None }
}

fn arrived(event: &Event<&'static str>) -> Option<&'static str> {
    if let Event::Arrived { blocks, .. } = event { Some(blocks) } else { None }
}

fn arrival_failed(event: &Event<&'static str>) -> Option<ArrivalFailed> {
    if let Event::ArrivalFailed { why, .. } = event { Some(why.clone()) } else { None }
}

fn push(event: &Event<&'static str>) -> Option<(PushId, LeaseId, Vec<BlockList>)> {
    if let Event::Push { id, lease, lists, .. } = event { Some((id.clone(), *lease, lists.clone())) } else { None }
}

#[test]
fn an_agent_has_one_exchange_at_a_time() {
    let agent = Arc::new(Agent::loopback("decode", &LoopbackNetwork::new(), Limits::default()).unwrap());
    let exchange: Exchange<()> = Exchange::new(agent.clone(), ExchangeOptions::default()).unwrap();
    let second = Exchange::<()>::new(agent.clone(), ExchangeOptions::default()).unwrap_err();
    assert!(matches!(second, Error::ExchangeExists { .. }), "{second}");
    drop(exchange);
    Exchange::<()>::new(agent, ExchangeOptions::default()).unwrap();
}

#[test]
fn nothing_of_an_exchange_is_taken_for_what_the_agents_next_one_has() {
    let mut pair = Pair::new();
    let now = pair.now;
    let held = pair.prefill.exchange.hold(request(), "source", Some(1), 0, now).unwrap();
    let pull = pair.decode.exchange.pull("destination", vec![pair.part(held, &whole())], now + TTL, now).unwrap();
    pair.until("the pull", |_, decode| decode.take(pulled).is_some());
    let held_again = pair.prefill.exchange.hold(request(), "source", Some(1), 0, now).unwrap();
    let sources = vec![pair.source()];
    let reserved = pair.decode.exchange.reserve(request(), "destination", sources, now + TTL, now).unwrap();
    pair.until("the push", |prefill, decode| {
        if let Some((id, ..)) = prefill.take(push) {
            prefill.exchange.write(&id, 0, &whole(), 0, now).unwrap();
        }
        decode.take(arrived).is_some()
    });

    for side in [&mut pair.prefill, &mut pair.decode] {
        let agent = side.exchange.agent().clone();
        let other = Agent::loopback("other", &pair.network, Limits::default()).unwrap();
        side.exchange = Exchange::new(Arc::new(other), ExchangeOptions::default()).unwrap();
        side.exchange = Exchange::new(agent, ExchangeOptions::default()).unwrap();
    }
    pair.prefill.connect(&pair.decode, now);
    pair.decode.connect(&pair.prefill, now);
    let source = pair.source();
    let held_now = pair.prefill.exchange.hold(request(), "source", Some(1), 1, now).unwrap();
    assert!(![held, held_again].contains(&held_now), "a lease of before is good again");
    let part = pair.part(held, &[]);
    let pull_now = pair.decode.exchange.pull("destination", vec![part], now + TTL, now).unwrap();
    assert_ne!(pull, pull_now);
    let other = RequestId::new("another").unwrap();
    let reserved_now = pair.decode.exchange.reserve(other, "destination", vec![source], now + TTL, now).unwrap();
    assert_ne!(reserved, reserved_now);
    pair.poll();
    assert!(pair.decode.take(arrived).is_none(), "nothing was written for it");
}

#[test]
fn a_pull_ends_when_the_producer_confirms_and_frees_its_blocks() {
    let mut pair = Pair::new();
    let now = pair.now;
    let lease = pair.prefill.exchange.hold(request(), "source", Some(1), 0, now).unwrap();
    let part = PullPart { padding_bytes: 40, ..pair.part(lease, &whole()) };
    pair.decode.exchange.pull("destination", vec![part], now + TTL, now).unwrap();
    pair.until("the pull", |_, decode| decode.take(pulled) == Some("destination"));
    assert_eq!(pair.decode.agent().stats().padding_bytes, 40);
    assert_eq!(pair.prefill.take(freed), Some(EndReason::AllRead));
    assert!(pair.decode.memory.read(2048, 2048) == common::pattern(1, 1024, 2048));
    assert!(pair.decode.told.is_empty() && pair.prefill.told.is_empty());
    let stats = pair.decode.exchange.stats();
    assert_eq!((stats.pulls.pulled, stats.pulls.live), (1, 0));
}

#[test]
fn a_reader_that_comes_after_the_lease_is_told_though_the_bytes_can_be_read() {
    let mut pair = Pair::new();
    let lease = pair.prefill.exchange.hold(request(), "source", Some(1), 0, pair.now).unwrap();
    pair.now += TTL;
    pair.poll();
    assert_eq!(pair.prefill.take(freed), Some(EndReason::Expired));
    let parts = vec![pair.part(lease, &whole())];
    pair.decode.exchange.pull("destination", parts, pair.now + TTL, pair.now).unwrap();
    let mut why = None;
    pair.until("the failure", |_, decode| {
        why = why.take().or_else(|| decode.take(pull_failed));
        why.is_some() && decode.take(returned) == Some("destination")
    });
    assert!(matches!(why, Some(PullFailed::LeaseEnded { verdict: Verdict::Ended, .. })), "{why:?}");
    assert!(pair.decode.take(pulled).is_none());
    assert_eq!(pair.prefill.exchange.stats().leases.late_completions, 1);
}

#[test]
fn a_lease_of_the_same_request_held_again_is_another_one() {
    let mut pair = Pair::new();
    let now = pair.now;
    let first = pair.prefill.exchange.hold(request(), "first", Some(1), 0, now).unwrap();
    assert!(pair.prefill.exchange.abort(first, now));
    pair.prefill.exchange.hold(request(), "second", Some(1), 0, now).unwrap();
    pair.decode.exchange.pull("destination", vec![pair.part(first, &whole())], now + TTL, now).unwrap();
    pair.until("the failure", |_, decode| decode.take(pull_failed).is_some());
    pair.poll();
    assert_eq!(pair.prefill.take(freed), Some(EndReason::Aborted));
    assert!(pair.prefill.take(freed).is_none(), "the second lease is nobody else's business");
}

#[test]
fn heartbeats_keep_leases_of_requests_that_wait_and_end_with_them() {
    let mut pair = Pair::new();
    let start = pair.now;
    let lease = pair.prefill.exchange.hold(request(), "source", Some(1), 0, start).unwrap();
    pair.decode.exchange.keep(pair.prefill.id.clone(), lease);
    for _ in 0..20 {
        pair.now += Duration::from_secs(5);
        pair.decode.poll(pair.now);
        pair.prefill.poll(pair.now);
    }
    assert!(pair.prefill.exchange.is_good(lease, pair.now) && pair.now > start + TTL);
    pair.decode.exchange.let_go(pair.prefill.id.clone(), lease);
    pair.now += TTL;
    pair.poll();
    assert_eq!(pair.prefill.take(freed), Some(EndReason::Expired));
}

#[test]
fn a_pull_from_two_producers_ends_once_and_fails_when_one_lease_has_ended() {
    for second_is_good in [true, false] {
        let mut pair = Pair::new();
        let now = pair.now;
        let mut other = Side::new("prefill-1", &pair.network, 3, Limits::default());
        other.connect(&pair.decode, now);
        pair.decode.connect(&other, now);
        let lease = pair.prefill.exchange.hold(request(), "source", Some(1), 0, now).unwrap();
        let second = other.exchange.hold(request(), "other", Some(1), 0, now).unwrap();
        if !second_is_good {
            other.exchange.abort(second, now);
        }
        let parts = vec![
            pair.part(lease, &[descriptor(0, 0, 1024)]),
            PullPart { peer: other.id.clone(), ..pair.part(second, &[descriptor(1024, 0, 1024)]) },
        ];
        pair.decode.exchange.pull("destination", parts, now + TTL, now).unwrap();
        pair.until("the end", |_, decode| {
            other.poll(now);
            decode.told.iter().any(|event| pulled(event).or(returned(event)) == Some("destination"))
        });
        pair.poll();
        let told = &pair.decode.told;
        let ends = told.iter().filter(|event| pulled(event).is_some() || pull_failed(event).is_some()).count();
        assert_eq!(ends, 1, "{told:?}");
        assert_eq!(told.iter().any(|event| pulled(event).is_some()), second_is_good);
        assert!(pair.decode.memory.read(1024, 1024) == common::pattern(3, 0, 1024));
    }
}

#[test]
fn a_lease_that_several_parts_of_a_pull_read_is_completed_when_the_last_has_been_read() {
    let mut pair = Pair::new();
    let now = pair.now;
    let lease = pair.prefill.exchange.hold(request(), "source", Some(1), 0, now).unwrap();
    pair.network.stall(true);
    // The first is done at once, the second not before the network goes on.
    let parts = vec![pair.part(lease, &[]), pair.part(lease, &whole())];
    pair.decode.exchange.pull("destination", parts, now + TTL, now).unwrap();
    pair.decode.has_posted();
    pair.poll();
    assert!(pair.prefill.take(freed).is_none(), "given back while it is being read");
    let next = pair.decode.exchange.next_deadline();
    assert!(next.is_some_and(|next| next > now), "there is nothing to do but wait: {next:?}, now {now:?}");
    pair.network.stall(false);
    pair.until("the end", |_, decode| decode.take(pulled) == Some("destination"));
    assert!(pair.decode.memory.read(2048, 2048) == common::pattern(1, 1024, 2048));
    assert_eq!(pair.prefill.take(freed), Some(EndReason::AllRead));
}

#[test]
fn a_producer_that_is_named_twice_gets_all_the_blocks_in_one_registration() {
    let mut pair = Pair::new();
    let now = pair.now;
    let more = vec![BlockList { group: GroupId(1), first: 0, blocks: vec![BlockId(5)] }];
    let sources = vec![pair.source(), PushSource { lists: more.clone(), ..pair.source() }];
    pair.decode.exchange.reserve(request(), "destination", sources, now + TTL, now).unwrap();
    pair.prefill.exchange.hold(request(), "source", Some(1), 0, now).unwrap();
    let (id, _, lists) = pair.met();
    assert_eq!(lists, [pair.source().lists, more].concat());
    let error = pair.prefill.exchange.write(&id, 1, &whole(), 0, now).unwrap_err();
    assert!(
        matches!(error, Error::WriteRefused { part: 1, why: WriteRefusal::NotReady, .. }),
        "it has no parts: {error}"
    );
}

#[test]
fn blocks_of_a_pull_that_does_not_settle_stay_in_quarantine() {
    let mut pair = Pair::new();
    let lease = pair.prefill.exchange.hold(request(), "source", Some(1), 0, pair.now).unwrap();
    pair.network.stall(true);
    pair.decode.exchange.pull("destination", vec![pair.part(lease, &whole())], pair.now + TTL, pair.now).unwrap();
    // What is not posted is settled at once.
    pair.decode.has_posted();
    pair.now += TTL;
    pair.poll();
    let why = pair.decode.take(pull_failed);
    assert!(matches!(why, Some(PullFailed::Deadline { reading: 1, unconfirmed: 0 })), "{why:?}");
    pair.poll();
    assert!(pair.decode.take(returned).is_none());
    assert_eq!(pair.decode.exchange.stats().pulls.quarantined, 1);
    let quarantine = || pair.decode.agent().quarantine();
    common::eventually("its entry", || quarantine().first().is_some_and(|entry| entry.request.as_deref() == Some("r")));
    pair.network.stall(false);
    pair.until("settlement", |_, decode| decode.take(returned) == Some("destination"));
    assert_eq!(pair.decode.exchange.stats().pulls.quarantined, 0);
}

#[test]
fn an_exchange_that_is_dropped_forgets_blocks_that_may_be_written() {
    let (network, now) = (LoopbackNetwork::new(), Instant::now());
    let prefill = Worker::loopback("prefill", &network, LEN, 1);
    let Worker { agent, memory } = Worker::loopback("decode", &network, LEN, 2);
    let agent = Arc::new(agent);
    let mut exchange = Exchange::new(agent.clone(), ExchangeOptions::default()).unwrap();
    let peer = exchange.connect(&prefill.agent.export().unwrap(), now).unwrap();
    network.stall(true);
    let blocks = Rc::new(());
    let part =
        PullPart { peer, request: request(), lease: LeaseId(1), descriptors: whole().to_vec(), padding_bytes: 0 };
    exchange.pull(blocks.clone(), vec![part], now + TTL, now).unwrap();
    drop(exchange);
    assert_eq!(Rc::strong_count(&blocks), 2, "given back while bytes may land");
    network.stall(false);
    common::eventually("settlement", || agent.unsettled() == 0);
    drop((agent, memory));
}

#[test]
fn what_is_in_flight_is_bounded_and_the_blocks_come_back() {
    let mut limits = Limits::default();
    limits.in_flight_bytes = 3000;
    let mut pair = Pair::within(limits);
    let now = pair.now;
    let lease = pair.prefill.exchange.hold(request(), "source", Some(1), 0, now).unwrap();
    let part = pair.part(lease, &[descriptor(0, 0, 4096)]);
    pair.network.stall(true);
    pair.decode.exchange.pull("alone", vec![part.clone()], now + TTL, now).unwrap();
    let (error, blocks) = pair.decode.exchange.pull("second", vec![part], now + TTL, now).unwrap_err();
    assert!(matches!(error, Error::WouldBlock { bytes: 4096, descriptors: 1 }), "{error}");
    assert_eq!(blocks, "second");
    pair.network.stall(false);
    pair.until("the first", |_, decode| decode.take(pulled) == Some("alone"));
}

#[test]
fn a_push_writes_part_by_part_whichever_side_comes_first() {
    for registration_first in [true, false] {
        let mut pair = Pair::new();
        let now = pair.now;
        let reserve = |pair: &mut Pair| {
            let sources = vec![pair.source()];
            pair.decode.exchange.reserve(request(), "destination", sources, now + TTL, now).unwrap()
        };
        if registration_first {
            reserve(&mut pair);
            pair.poll();
            assert!(pair.prefill.take(push).is_none());
        }
        let lease = pair.prefill.exchange.hold(request(), "source", Some(1), 2, now).unwrap();
        if !registration_first {
            reserve(&mut pair);
        }
        let (id, of, lists) = pair.met();
        assert_eq!((of, &lists), (lease, &pair.source().lists));
        let prefill = &mut pair.prefill.exchange;
        let error = prefill.write(&id, 0, &[descriptor(0, 2048, 1024)], 0, now).unwrap_err();
        assert!(
            matches!(error, Error::WriteRefused { part: 0, why: WriteRefusal::NotReady, .. }),
            "not computed yet: {error}"
        );
        for part in [1_u32, 0] {
            let offset = u64::from(part) * 1024;
            assert_eq!(pair.prefill.exchange.ready(lease, part, now), std::slice::from_ref(&id));
            let descriptors = [descriptor(offset, 2048 + offset, 1024)];
            pair.prefill.exchange.write(&id, part, &descriptors, 0, now).unwrap();
            let again = pair.prefill.exchange.write(&id, part, &descriptors, 0, now);
            assert!(matches!(again, Err(Error::WriteRefused { why: WriteRefusal::Repeated, .. })));
        }
        pair.until("the arrival", |_, decode| decode.take(arrived) == Some("destination"));
        assert!(pair.decode.memory.read(2048, 2048) == common::pattern(1, 0, 2048));
        assert_eq!(pair.prefill.take(freed), Some(EndReason::AllRead));
    }
}

#[test]
fn a_push_whose_lease_ends_is_released_and_not_written() {
    let mut pair = Pair::new();
    let now = pair.now;
    let lease = pair.prefill.exchange.hold(request(), "source", Some(1), 2, now).unwrap();
    let sources = vec![pair.source()];
    pair.decode.exchange.reserve(request(), "destination", sources, now + TTL, now).unwrap();
    let (id, ..) = pair.met();
    pair.prefill.exchange.ready(lease, 0, now);
    pair.network.stall(true);
    pair.prefill.exchange.write(&id, 0, &[descriptor(0, 2048, 1024)], 0, now).unwrap();
    pair.prefill.has_posted();
    pair.prefill.exchange.ready(lease, 1, now);
    pair.prefill.exchange.abort(lease, now);
    let error = pair.prefill.exchange.write(&id, 1, &[descriptor(1024, 3072, 1024)], 0, now).unwrap_err();
    assert!(matches!(error, Error::WriteRefused { why: WriteRefusal::LeaseEnded, .. }), "{error}");
    pair.poll();
    assert_eq!(pair.prefill.take(freed), Some(EndReason::Aborted));
    let error = pair.prefill.exchange.write(&id, 1, &[descriptor(1024, 3072, 1024)], 0, now).unwrap_err();
    assert!(matches!(error, Error::WriteRefused { why: WriteRefusal::LeaseEnded, .. }), "{error}");
    pair.poll();
    assert!(pair.decode.told.is_empty(), "a write may still land: {:?}", pair.decode.told);
    pair.network.stall(false);
    pair.until("the release", |_, decode| decode.take(returned) == Some("destination"));
    assert!(matches!(pair.decode.take(arrival_failed), Some(ArrivalFailed::Released(_))));
    assert!(pair.decode.take(arrived).is_none());
}

#[test]
fn the_end_of_a_push_is_told_when_the_way_has_been_opened_anew() {
    let mut pair = Pair::new();
    let now = pair.now;
    pair.prefill.exchange.hold(request(), "source", Some(1), 0, now).unwrap();
    let sources = vec![pair.source()];
    pair.decode.exchange.reserve(request(), "destination", sources, now + TTL, now).unwrap();
    let (id, ..) = pair.met();
    pair.network.refuse_notifications(true);
    pair.prefill.exchange.write(&id, 0, &whole(), 0, now).unwrap();
    let lost = |event: &Event<_>| matches!(event, Event::PeerLost(_)).then_some(());
    pair.until("the loss", |prefill, _| prefill.take(lost).is_some());
    assert_eq!(pair.prefill.take(freed), Some(EndReason::AllRead));
    pair.network.refuse_notifications(false);
    pair.poll();
    assert!(pair.decode.told.is_empty(), "the way is still the broken one");
    pair.now += Duration::from_secs(1);
    assert_eq!(pair.prefill.exchange.want("decode", pair.now), Wanted::Fetch);
    pair.prefill.connect(&pair.decode, pair.now);
    pair.until("the arrival", |_, decode| decode.take(arrived) == Some("destination"));
}

#[test]
fn a_writer_that_cannot_be_told_fails_one_reservation_and_not_those_that_it_knows() {
    let mut pair = Pair::new();
    let now = pair.now;
    let sources = vec![pair.source()];
    pair.decode.exchange.reserve(request(), "known", sources, now + TTL, now).unwrap();
    pair.poll();
    pair.network.refuse_notifications(true);
    let (other, sources) = (RequestId::new("another").unwrap(), vec![pair.source()]);
    let untold = pair.decode.exchange.reserve(other, "untold", sources, now + TTL, now).unwrap();
    pair.network.refuse_notifications(false);
    pair.poll();
    let failed = |event: &Event<_>| if let Event::ArrivalFailed { id, .. } = event { Some(*id) } else { None };
    assert_eq!(pair.decode.take(failed), Some(untold));
    assert_eq!(pair.decode.take(failed), None);
}

#[test]
fn a_reservation_that_nobody_writes_comes_back_after_its_deadline() {
    let mut pair = Pair::new();
    let sources = vec![pair.source()];
    pair.decode.exchange.reserve(request(), "destination", sources, pair.now + TTL, pair.now).unwrap();
    pair.poll();
    pair.now += TTL;
    pair.until("the return", |_, decode| decode.take(returned) == Some("destination"));
    assert!(pair.decode.take(arrival_failed).is_some());
    assert_eq!(pair.prefill.exchange.stats().push.waiting, 0);
}

#[test]
fn blocks_of_a_writer_that_was_replaced_stay_until_it_is_proven_gone() {
    let mut pair = Pair::new();
    let now = pair.now;
    let lease = pair.prefill.exchange.hold(request(), "source", Some(1), 1, now).unwrap();
    let sources = vec![pair.source()];
    let reservation = pair.decode.exchange.reserve(request(), "destination", sources, now + TTL, now).unwrap();
    pair.poll();
    let old = pair.prefill.id.clone();
    let Pair { network, prefill, mut decode, .. } = pair;
    let old_blob = prefill.agent().export().unwrap();
    drop(prefill);
    let restarted = Side::new("prefill", &network, 4, Limits::default());
    decode.connect(&restarted, now);
    decode.poll(now);
    assert!(decode.told.iter().any(|event| matches!(event, Event::PeerReplaced { old: o, .. } if *o == old)));
    assert!(matches!(decode.take(arrival_failed), Some(ArrivalFailed::Lost(who)) if who == old));
    decode.poll(now);
    assert!(decode.take(returned).is_none());
    let quarantined: Vec<_> = decode.exchange.quarantined().map(|(id, ..)| id).collect();
    assert_eq!(quarantined, [reservation]);
    // The old process cannot be connected again, and its lease is nothing to the new one.
    let error = decode.exchange.connect(&old_blob, now).unwrap_err();
    assert!(matches!(error, Error::StaleBlob { .. }), "{error}");
    let part =
        PullPart { peer: old.clone(), request: request(), lease, descriptors: whole().to_vec(), padding_bytes: 0 };
    let (error, _) = decode.exchange.pull("other", vec![part], now + TTL, now).unwrap_err();
    assert!(matches!(error, Error::PeerNotReady { state: Some(PeerState::Replaced), .. }), "{error}");

    // SAFETY: its agent was dropped.
    unsafe { decode.exchange.peer_is_gone(&old, now) };
    decode.poll(now);
    assert_eq!(decode.take(returned), Some("destination"));
}

#[test]
fn memory_is_withdrawn_when_no_peer_touches_it_and_peers_fetch_the_new_blob() {
    let mut pair = Pair::new();
    let now = pair.now;
    let lease = pair.prefill.exchange.hold(request(), "source", Some(1), 0, now).unwrap();
    pair.network.stall(true);
    pair.decode.exchange.pull("destination", vec![pair.part(lease, &whole())], now + TTL, now).unwrap();
    pair.decode.has_posted();
    pair.prefill.exchange.withdraw(now);
    pair.poll();
    assert_eq!(pair.prefill.exchange.withdrawal_waits_for(), [pair.decode.id.clone()]);
    let (error, _) = pair.decode.exchange.pull("next", vec![pair.part(lease, &whole())], now + TTL, now).unwrap_err();
    assert!(matches!(error, Error::PeerNotReady { state: Some(PeerState::Draining), .. }), "{error}");
    pair.network.stall(false);
    pair.until("the withdrawal", |prefill, _| prefill.take(withdrawn).is_some());
    let old_blob = pair.prefill.agent().export().unwrap();
    pair.prefill.register_anew();
    pair.prefill.exchange.registered(now);
    pair.poll();
    assert!(pair.decode.told.iter().any(|event| matches!(event, Event::PeerStale(_))));
    assert_eq!(pair.decode.exchange.want("prefill", now), Wanted::Fetch);
    assert!(matches!(pair.decode.exchange.connect(&old_blob, now), Err(Error::StaleBlob { .. })));
    let prefill = &pair.prefill;
    pair.decode.connect(prefill, now);
    assert_eq!(pair.decode.exchange.want("prefill", now), Wanted::Ready(pair.prefill.id.clone()));
}

fn withdrawn(event: &Event<&'static str>) -> Option<()> {
    matches!(event, Event::Withdrawn).then_some(())
}

#[test]
fn a_withdrawal_does_not_wait_for_processes_that_have_ended() {
    for ended_before in [true, false] {
        let mut pair = Pair::new();
        let (now, decode) = (pair.now, pair.decode.id.clone());
        let declare = |prefill: &mut Side| {
            // SAFETY: the loopback copies only inside a post, and none runs.
            unsafe { prefill.exchange.peer_is_gone(&decode, now) };
        };
        if ended_before {
            declare(&mut pair.prefill);
        }
        pair.prefill.exchange.withdraw(now);
        pair.prefill.poll(now);
        if !ended_before {
            assert!(pair.prefill.take(withdrawn).is_none());
            declare(&mut pair.prefill);
            pair.prefill.poll(now);
        }
        assert!(pair.prefill.take(withdrawn).is_some(), "ended before: {ended_before}");
    }
}

#[test]
fn a_withdrawal_does_not_wait_for_peers_that_have_said_goodbye() {
    let mut pair = Pair::new();
    pair.decode.exchange.goodbye(pair.now).unwrap();
    pair.poll();
    pair.prefill.exchange.withdraw(pair.now);
    pair.poll();
    assert!(pair.prefill.take(withdrawn).is_some());
}

#[test]
fn a_reader_that_lets_a_producer_go_answers_its_withdrawal_first() {
    let mut pair = Pair::new();
    let now = pair.now;
    let lease = pair.prefill.exchange.hold(request(), "source", Some(1), 0, now).unwrap();
    pair.network.stall(true);
    pair.decode.exchange.pull("destination", vec![pair.part(lease, &whole())], now + TTL, now).unwrap();
    pair.decode.has_posted();
    pair.prefill.exchange.withdraw(now);
    pair.poll();
    pair.decode.exchange.release_peer("prefill");
    pair.poll();
    assert!(pair.prefill.take(withdrawn).is_none(), "it is being read");
    pair.network.stall(false);
    pair.until("the withdrawal", |prefill, _| prefill.take(withdrawn).is_some());
    let released = |event: &Event<_>| matches!(event, Event::PeerReleased(_)).then_some(());
    pair.until("the release", |_, decode| decode.take(released).is_some());
}

#[test]
fn a_peer_whose_memory_went_is_used_again_though_its_word_of_it_was_lost() {
    let mut pair = Pair::new();
    pair.prefill.exchange.withdraw(pair.now);
    pair.until("the withdrawal", |prefill, _| prefill.take(withdrawn).is_some());
    pair.prefill.register_anew();
    pair.network.lose_notifications(true);
    pair.prefill.exchange.registered(pair.now);
    pair.network.lose_notifications(false);
    pair.poll();
    assert_eq!(pair.decode.exchange.want("prefill", pair.now), Wanted::Fetch);
    let prefill = &pair.prefill;
    pair.decode.connect(prefill, pair.now);
    assert_eq!(pair.decode.exchange.want("prefill", pair.now), Wanted::Ready(pair.prefill.id.clone()));
}

#[test]
fn a_peer_that_ends_after_its_memory_went_makes_room_for_its_successor() {
    let mut pair = Pair::new();
    pair.prefill.exchange.withdraw(pair.now);
    pair.until("the withdrawal", |prefill, _| prefill.take(withdrawn).is_some());
    pair.prefill.exchange.goodbye(pair.now).unwrap();
    pair.poll();
    let lost = |event: &Event<_>| matches!(event, Event::PeerLost(_)).then_some(());
    assert!(pair.decode.take(lost).is_some());
    let Pair { network, prefill, mut decode, mut now } = pair;
    drop(prefill);
    let successor = Side::new("prefill", &network, 4, Limits::default());
    now += Duration::from_secs(1);
    assert_eq!(decode.exchange.want("prefill", now), Wanted::Fetch);
    decode.connect(&successor, now);
    assert_eq!(decode.exchange.want("prefill", now), Wanted::Ready(successor.id.clone()));
}

#[test]
fn an_idle_peer_is_let_go_and_one_that_says_goodbye_is_not_waited_for() {
    let mut pair = Pair::new();
    let sources = vec![pair.source()];
    pair.decode.exchange.reserve(request(), "destination", sources, pair.now + TTL, pair.now).unwrap();
    pair.prefill.exchange.goodbye(pair.now).unwrap();
    pair.until("the return", |_, decode| decode.take(returned) == Some("destination"));
    assert!(pair.decode.told.iter().any(|event| matches!(event, Event::PeerLost(_))));
    // The registration ends at its deadline, which is told.
    pair.now += TTL;
    pair.poll();
    pair.now += Duration::from_secs(600);
    pair.poll();
    assert!(pair.decode.told.iter().any(|event| matches!(event, Event::PeerReleased(_))));
    assert_eq!(pair.decode.exchange.want("prefill", pair.now), Wanted::Fetch);
    assert_eq!(pair.decode.exchange.stats().peers.idle, 1);
}

#[test]
fn garbage_and_an_engines_own_notifications_are_told_apart() {
    let mut pair = Pair::new();
    let peer = pair.decode.exchange.peer(&pair.prefill.id).unwrap().clone();
    for message in [&b"KVNM\0\x01garbage"[..], b"KVNM", b"KVNM\0\x09", b"hello \xff"] {
        pair.decode.agent().notify(&peer, message).unwrap();
    }
    pair.poll();
    let messages = pair.prefill.exchange.stats().messages;
    assert_eq!((messages.malformed, messages.unsupported, messages.received), (2, 1, 0));
    assert!(matches!(&pair.prefill.told[..], [Event::Notification(n)] if n.message == b"hello \xff"));
}

#[test]
fn completions_for_unknown_requests_are_counted_and_free_nothing() {
    let mut pair = Pair::new();
    let now = pair.now;
    let held = pair.prefill.exchange.hold(request(), "source", Some(1), 0, now).unwrap();
    pair.decode.exchange.pull("destination", vec![pair.part(LeaseId(99), &whole())], now + TTL, now).unwrap();
    pair.until("the failure", |_, decode| decode.take(pull_failed).is_some());
    assert_eq!(pair.prefill.exchange.stats().leases.unknown_completions, 1);
    assert!(pair.prefill.exchange.is_good(held, now));
}
