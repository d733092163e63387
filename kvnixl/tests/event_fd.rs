//! The descriptor that an event loop waits on: readable when an agent, or the exchange over it, is worth a look.

mod common;

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{PATIENCE, SOON, Worker, descriptor};
use kvnixl::lease::{EndReason, RequestId};
use kvnixl::{Error, Event, Exchange, ExchangeOptions, LoopbackNetwork, TransferOptions};
use kvplan::Op;

const LEN: usize = 16 << 10;
const MILLISECOND: Duration = Duration::from_millis(1);

/// Waits until the descriptor is readable; whether it became so.
fn readable(fd: BorrowedFd<'_>, patience: Duration) -> bool {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one live entry.
    let ready = unsafe { libc::poll(&raw mut poll, 1, i32::try_from(patience.as_millis()).unwrap()) };
    assert!(ready >= 0);
    ready == 1 && poll.revents == libc::POLLIN
}

#[test]
fn it_is_readable_at_first_and_not_again_until_something_happens() {
    let network = LoopbackNetwork::new();
    let worker = Worker::loopback("decode", &network, LEN, 1);
    let fd = worker.agent.event_fd(MILLISECOND).unwrap();
    assert!(readable(fd, PATIENCE));
    worker.agent.clear_events();
    worker.agent.clear_events();
    assert!(!readable(fd, MILLISECOND * 50));
    worker.agent.raise_event();
    assert!(readable(fd, PATIENCE));
    assert_eq!(worker.agent.event_fd(MILLISECOND).unwrap().as_raw_fd(), fd.as_raw_fd(), "there is one");
}

#[test]
fn a_transfer_that_ends_and_one_that_settles_are_told() {
    let network = LoopbackNetwork::new();
    let (ours, theirs) = (Worker::loopback("decode", &network, LEN, 1), Worker::loopback("prefill", &network, LEN, 2));
    let peer = ours.agent.connect(&theirs.agent.export().unwrap()).unwrap();
    let fd = ours.agent.event_fd(MILLISECOND).unwrap();
    ours.agent.clear_events();
    let start = |options| ours.agent.start(&peer, Op::Read, &[descriptor(0, 1024, 1024)], options).unwrap();
    let transfer = start(TransferOptions::default());
    assert!(readable(fd, PATIENCE));
    transfer.wait(PATIENCE).unwrap();

    ours.agent.clear_events();
    network.stall(true);
    let transfer = start(TransferOptions::default().deadline(SOON));
    assert!(readable(fd, PATIENCE), "it has failed");
    assert!(transfer.state().is_finished() && !transfer.state().is_settled());
    ours.agent.clear_events();
    assert!(!readable(fd, MILLISECOND * 50));
    network.stall(false);
    assert!(readable(fd, PATIENCE), "it has settled");
    assert!(transfer.state().is_settled());
}

#[test]
fn notifications_are_told_and_keep_their_order_whoever_took_them_from_the_transport() {
    let network = LoopbackNetwork::new();
    let (ours, theirs) = (Worker::loopback("decode", &network, LEN, 1), Worker::loopback("prefill", &network, LEN, 2));
    let peer = theirs.agent.connect(&ours.agent.export().unwrap()).unwrap();
    // One that was there before anybody asked for the descriptor.
    theirs.agent.notify(&peer, &0_u32.to_le_bytes()).unwrap();
    let fd = ours.agent.event_fd(MILLISECOND).unwrap();
    let mut arrived = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| (1..2000_u32).for_each(|n| theirs.agent.notify(&peer, &n.to_le_bytes()).unwrap()));
        while arrived.len() < 2000 {
            assert!(readable(fd, PATIENCE), "{} have arrived", arrived.len());
            ours.agent.clear_events();
            arrived.extend(ours.agent.notifications().unwrap().into_iter().map(|notification| notification.message));
        }
    });
    assert!(arrived.iter().zip(0_u32..).all(|(message, n)| *message == n.to_le_bytes()));
}

#[test]
fn a_lease_that_expires_and_a_heartbeat_that_is_due_are_told() {
    let network = LoopbackNetwork::new();
    let Worker { agent, memory } = Worker::loopback("prefill", &network, LEN, 1);
    let agent = Arc::new(agent);
    let mut options = ExchangeOptions::default();
    options.lease.ttl = MILLISECOND * 40;
    options.heartbeat_every = SOON;
    let mut exchange = Exchange::new(agent.clone(), options).unwrap();
    let fd = agent.event_fd(MILLISECOND).unwrap();
    exchange.poll(Instant::now()).unwrap();
    assert!(!readable(fd, Duration::ZERO), "the poll has seen everything");
    exchange.hold(RequestId::new("r").unwrap(), 7, Some(1), 0, Instant::now()).unwrap();
    let freed = loop {
        if let Some(event) = exchange.poll(Instant::now()).unwrap().pop() {
            break event;
        }
        assert!(readable(fd, PATIENCE));
    };
    assert!(matches!(freed, Event::Freed(freed) if freed.why == EndReason::Expired && freed.blocks == 7));
    let due = exchange.next_deadline().unwrap();
    assert!(readable(fd, PATIENCE));
    assert!(Instant::now() >= due, "the heartbeat");
    drop((exchange, agent, memory));
}

#[test]
fn a_deadline_is_told_in_time_however_seldom_notifications_are_asked_for() {
    let network = LoopbackNetwork::new();
    let Worker { agent, memory } = Worker::loopback("prefill", &network, LEN, 1);
    let agent = Arc::new(agent);
    let mut options = ExchangeOptions::default();
    options.lease.ttl = MILLISECOND * 500;
    let mut exchange = Exchange::new(agent.clone(), options).unwrap();
    let fd = agent.event_fd(PATIENCE * 10).unwrap();
    exchange.poll(Instant::now()).unwrap();
    // The agent's thread has gone to sleep.
    std::thread::sleep(MILLISECOND * 20);
    exchange.hold(RequestId::new("r").unwrap(), 7, Some(1), 0, Instant::now()).unwrap();
    exchange.poll(Instant::now()).unwrap();
    let due = exchange.next_deadline().unwrap();
    assert!(readable(fd, PATIENCE), "asleep until notifications are asked for");
    assert!(Instant::now() >= due);
    drop((exchange, agent, memory));
}

#[test]
fn a_poll_that_cannot_take_notifications_is_repeated_soon_and_not_at_once() {
    let network = LoopbackNetwork::new();
    let (ours, theirs) = (Worker::loopback("decode", &network, LEN, 1), Worker::loopback("prefill", &network, LEN, 2));
    let peer = theirs.agent.connect(&ours.agent.export().unwrap()).unwrap();
    let Worker { agent, memory } = ours;
    let agent = Arc::new(agent);
    let mut exchange: Exchange<()> = Exchange::new(agent.clone(), ExchangeOptions::default()).unwrap();
    let fd = agent.event_fd(PATIENCE * 10).unwrap();
    exchange.poll(Instant::now()).unwrap();

    // First of all: the agent's thread asks too, once and when it likes, and would raise for what it gets.
    network.break_notifications(true);
    theirs.agent.notify(&peer, b"hello").unwrap();
    for _ in 0..3 {
        let start = Instant::now();
        assert!(matches!(exchange.poll(start), Err(Error::Loopback { .. })));
        assert!(readable(fd, PATIENCE), "it would sleep until the heartbeat");
        assert!(start.elapsed() >= MILLISECOND * 50, "a busy loop");
    }
    network.break_notifications(false);
    let events = exchange.poll(Instant::now()).unwrap();
    assert!(matches!(&events[..], [Event::Notification(hello)] if hello.message == b"hello"), "{events:?}");
    drop((exchange, agent, memory));
}

#[test]
fn the_end_of_an_agent_wakes_who_waits() {
    let network = LoopbackNetwork::new();
    let worker = Worker::loopback("decode", &network, LEN, 1);
    let fd = worker.agent.event_fd(MILLISECOND).unwrap().try_clone_to_owned().unwrap();
    worker.agent.clear_events();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| readable(std::os::fd::AsFd::as_fd(&fd), PATIENCE));
        worker.agent.shutdown(PATIENCE).unwrap();
        assert!(waiting.join().unwrap());
    });
}
