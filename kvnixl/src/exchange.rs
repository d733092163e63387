//! An exchange: leases, pulls, pushes and peers of one agent, driven by its engine.

mod watch;
mod withdrawal;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::agent::{Agent, ExchangePlace};
use crate::consumer::{Consumer, PullStats};
use crate::error::{Error, Result};
use crate::event::{Event, PullId};
use crate::lease::{
    Chunk, LeaseOptions, LeaseStats, Loaded, PeerBook, PeerId, PeerOptions, PeerStats, PushId, PushOptions, PushStats,
    ReservationStats, Wanted, after,
};
use crate::link::{Connected, Link, MessageStats};
use crate::message::{Envelope, Message};
use crate::notify::Notification;
use crate::peer::Peer;
use crate::producer::Producer;

use watch::Watched;
use withdrawal::Withdrawals;

/// How an exchange behaves.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ExchangeOptions {
    /// Leases given.
    pub lease: LeaseOptions,
    /// Registrations taken.
    pub push: PushOptions,
    /// Peers.
    pub peer: PeerOptions,
    /// How often leases that are needed are extended, in one message for each peer. 5 s by default: several fit into
    /// a lease's time.
    pub heartbeat_every: Duration,
}

impl Default for ExchangeOptions {
    fn default() -> Self {
        Self {
            lease: LeaseOptions::default(),
            push: PushOptions::default(),
            peer: PeerOptions::default(),
            heartbeat_every: Duration::from_secs(5),
        }
    }
}

/// A snapshot of everything that is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExchangeStats {
    /// Leases given.
    pub leases: LeaseStats,
    /// Registrations taken.
    pub push: PushStats,
    /// Pulls.
    pub pulls: PullStats,
    /// Reservations.
    pub reservations: ReservationStats,
    /// Peers.
    pub peers: PeerStats,
    /// Messages.
    pub messages: MessageStats,
    /// Messages of registrations that did not fit together.
    pub refused_chunks: u64,
}

/// Leases, pulls, pushes and peers of one agent.
///
/// The engine calls it from one thread and polls it, often: nothing happens between polls, no callback is ever made,
/// and only the poll takes the agent's notifications. No call blocks longer than those of [`Agent`] that it uses.
/// `B` is the engine's type for the blocks of a request; see [`lease`](crate::lease) for who owns them when.
///
/// Dropped while bytes may still land in destination blocks, it forgets those blocks and does not drop them.
#[derive(Debug)]
pub struct Exchange<B> {
    pub(crate) link: Link,
    pub(crate) producer: Producer<B>,
    pub(crate) consumer: Consumer<B>,
    /// Not handed out yet.
    pub(crate) events: Vec<Event<B>>,
    heartbeat_every: Duration,
    next_heartbeat: Option<Instant>,
    /// Peers to let go as soon as nothing is under way with them.
    releasing: Vec<PeerId>,
    withdrawals: Withdrawals,
    watched: Watched,
    /// Given back after everything else has gone.
    _place: ExchangePlace,
}

/// When notifications that could not be taken are asked for again: not at once, the error may last.
const TAKE_AGAIN: Duration = Duration::from_millis(50);

impl<B> Exchange<B> {
    /// An exchange over an agent; the only one, since it takes all notifications.
    ///
    /// # Errors
    ///
    /// [`Error::ExchangeExists`] until the one that the agent has is dropped; [`Error::InUse`] after that until its
    /// writes have settled, which may take somebody's word that a peer has ended ([`Peer::declare_gone`]).
    pub fn new(agent: Arc<Agent>, options: ExchangeOptions) -> Result<Self> {
        let place = agent.take_exchange_place()?;
        Ok(Self {
            producer: Producer::new(&options, agent.numbers()),
            consumer: Consumer::new(agent.numbers()),
            link: Link::new(agent, PeerBook::new(options.peer)),
            events: Vec::new(),
            heartbeat_every: options.heartbeat_every,
            next_heartbeat: None,
            releasing: Vec::new(),
            withdrawals: Withdrawals::default(),
            watched: Watched::default(),
            _place: place,
        })
    }

    /// The agent.
    #[must_use]
    pub fn agent(&self) -> &Arc<Agent> {
        &self.link.agent
    }

    /// What to do to use a peer by this name: take it, fetch its blob for [`connect`](Self::connect), or wait.
    pub fn want(&mut self, name: &str, now: Instant) -> Wanted {
        self.link.peers.want(name, now)
    }

    /// The blob that [`want`](Self::want) asked for cannot be had.
    pub fn fetch_failed(&mut self, name: &str, now: Instant) {
        self.link.peers.fetch_failed(name, now);
    }

    /// Connects a peer from its blob, see [`Agent::connect`]. A process that was replaced under its name is not
    /// connected again, unless its successor cannot be reached, and a peer that was lost is reached anew.
    ///
    /// While blobs are fetched that [`want`](Self::want) asked for, none that nobody asked for takes the place of a peer
    /// that is ready. [`connect_named`](Self::connect_named) says whose blob it should be, and is to be preferred.
    ///
    /// # Errors
    ///
    /// As [`Agent::connect`]; [`Error::UnexpectedPeer`]; [`Error::StaleBlob`] also for blobs of memory that the peer has
    /// taken away, [`Error::OlderProcess`] also for those of a process that was replaced.
    pub fn connect(&mut self, blob: &[u8], now: Instant) -> Result<PeerId> {
        self.connect_as(None, blob, now)
    }

    /// Connects the peer of this name from its blob, as [`connect`](Self::connect) does. A blob that names another peer
    /// is refused, and changes nothing: one that was fetched for one peer must not take the place of another.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    pub fn connect_named(&mut self, name: &str, blob: &[u8], now: Instant) -> Result<PeerId> {
        self.connect_as(Some(name), blob, now)
    }

    fn connect_as(&mut self, name: Option<&str>, blob: &[u8], now: Instant) -> Result<PeerId> {
        let agent = self.link.agent.clone();
        let (peers, connected) = (&self.link.peers, &mut self.link.connected);
        let loading = agent.connect_if(blob, |header| {
            name.map_or(Ok(()), |name| header.expect(name))?;
            let id = PeerId::new(&*header.agent, header.incarnation);
            match peers.judge(&id, header.generation) {
                Loaded::Stale => {
                    let current = connected.get(&id).map_or(0, |connected| connected.peer.generation());
                    return Err(Error::StaleBlob { peer: id.to_string(), stale: header.generation, current });
                }
                Loaded::Past(PeerId { name, incarnation: current }) => {
                    let (peer, incarnation) = (name.to_string(), header.incarnation);
                    return Err(Error::OlderProcess { peer, incarnation, current });
                }
                Loaded::Newer | Loaded::Replaced(_) if name.is_none() => {
                    if let Some(awaited) = peers.awaited_instead(&header.agent, now) {
                        header.expect(awaited)?;
                    }
                }
                Loaded::New | Loaded::Same | Loaded::Newer | Loaded::Replaced(_) => {}
            }
            Ok(peers.stands(&id))
        });
        let peer = loading.inspect_err(|error| {
            if matches!(error, Error::StaleBlob { .. } | Error::OlderProcess { .. }) {
                self.link.peers.refused_stale();
            }
        })?;
        let id = PeerId::new(peer.name(), peer.incarnation());
        // To the agent a peer that was lost is the same, but the way to it may be broken for good.
        let broken = self.link.connected.get(&id).is_some_and(|connected| connected.broken);
        if broken {
            agent.reconnect(&peer)?;
        }
        let loaded = self.link.peers.loaded(&id, peer.generation(), now);
        self.watched.insert(id.clone(), peer.clone());
        if broken || !self.link.connected.contains_key(&id) || loaded == Loaded::Newer {
            self.link.opened(&id, peer, now);
        }
        self.releasing.retain(|releasing| *releasing != id);
        if let Loaded::Replaced(old) = loaded {
            self.link.closed(&old);
            self.asks_no_more(&old, now);
            self.consumer.reservations.writer_lost(&old);
            self.events.push(Event::PeerReplaced { old, new: id.clone() });
        }
        Ok(id)
    }

    /// A connected peer, to plan against its layout.
    #[must_use]
    pub fn peer(&self, peer: &PeerId) -> Option<&Peer> {
        self.link.connected.get(peer).map(|connected| &connected.peer)
    }

    /// Lets a peer go when nothing is under way with it; [`Event::PeerReleased`] says when.
    pub fn release_peer(&mut self, name: &str) {
        self.link.peers.remove(name);
    }

    /// Says goodbye to connected peers: they need not wait for anything of this agent. Those that are lost or have ended
    /// are not told. Nothing but [`poll`](Self::poll) comes after it, for as long as
    /// [`MessageStats::unanswered`] is not 0 and the engine likes to wait; then [`Agent::shutdown`].
    ///
    /// # Errors
    ///
    /// [`Error::InUse`] while a write has not settled.
    pub fn goodbye(&mut self, now: Instant) -> Result<()> {
        match self.producer.num_writes() {
            0 => {
                self.notice_all(&Message::Goodbye, now);
                Ok(())
            }
            transfers => Err(Error::InUse { what: format!("agent {}", self.link.agent.name()), transfers }),
        }
    }

    /// Tells all peers that are there.
    fn notice_all(&mut self, message: &Message, now: Instant) {
        let peers = self
            .link
            .connected
            .iter()
            .filter(|(id, connected)| !connected.done && !connected.peer.is_gone() && self.link.can_tell(id));
        let peers: Vec<PeerId> = peers.map(|(id, _)| id.clone()).collect();
        for peer in peers {
            self.link.notice(&peer, message, now);
        }
    }

    /// Takes notifications, moves everything on, and returns what has happened.
    ///
    /// # Errors
    ///
    /// [`Error::Nixl`] when notifications cannot be taken; nothing is lost by it. [`Agent::event_fd`] becomes readable
    /// again soon.
    pub fn poll(&mut self, now: Instant) -> Result<Vec<Event<B>>> {
        let agent = self.link.agent.clone();
        agent.clear_events();
        let notifications = agent.take_notifications().inspect_err(|_| {
            // The descriptor was cleared, and who waits for it would not ask again.
            agent.raise_event_at(after(now, TAKE_AGAIN));
        })?;
        for notification in notifications {
            self.take(notification, now);
        }
        if self.next_heartbeat.is_none_or(|next| now >= next) {
            self.next_heartbeat = Some(after(now, self.heartbeat_every));
            self.consumer.heartbeat(&mut self.link, now);
            self.producer.extend(now);
        }
        self.producer.poll(&mut self.link, now, &mut self.events);
        self.consumer.poll(&mut self.link, now, &mut self.events);
        self.poll_peers(now);
        self.link.acknowledge(now);
        self.link.repeat(now);
        // What was found out just now is told in the same poll.
        self.events.extend(self.link.newly_lost.drain(..).map(Event::PeerLost));
        let events = std::mem::take(&mut self.events);
        self.consumer.count(&events);
        agent.raise_event_at(self.next_deadline().unwrap_or(now));
        Ok(events)
    }

    /// When there is something to do though nothing has happened: poll by then. `None` for at once, before the first
    /// poll. [`Agent::event_fd`] becomes readable by itself at the time that the latest poll found; after any other
    /// call of this exchange poll again before waiting.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let heartbeat = self.next_heartbeat?;
        let leases = self.producer.leases.next_deadline();
        let pushes = self.producer.push.next_deadline();
        let dates = [leases, pushes, self.consumer.next_deadline(), self.link.next_repeat()];
        let first = dates.into_iter().flatten().min();
        // Something waits, maybe for a process that ends.
        let look = self.watched.next_look().filter(|_| first.is_some());
        first.into_iter().chain(look).chain([heartbeat]).min()
    }

    /// Counts since the start.
    #[must_use]
    pub fn stats(&self) -> ExchangeStats {
        ExchangeStats {
            leases: self.producer.leases.stats(),
            push: self.producer.push.stats(),
            pulls: self.consumer.stats(),
            reservations: self.consumer.reservations.stats(),
            peers: self.link.peers.stats(),
            messages: self.link.message_stats(),
            refused_chunks: self.producer.refused_chunks,
        }
    }

    fn take(&mut self, notification: Notification, now: Instant) {
        let stats = &mut self.link.stats;
        let dropped = |error: Error| {
            tracing::warn!(sender = ?notification.sender, %error, "message dropped");
        };
        let Envelope { number, message } = match Message::decode(&notification.message) {
            Ok(Some(envelope)) => envelope,
            Ok(None) => return self.events.push(Event::Notification(notification)),
            Err(error) => {
                let is_version = matches!(error, Error::MessageVersion { .. });
                *(if is_version { &mut stats.unsupported } else { &mut stats.malformed }) += 1;
                return dropped(error);
            }
        };
        let from = notification.incarnation.map(|incarnation| PeerId::new(notification.sender.as_str(), incarnation));
        let (from, message) = match (from, message) {
            (from, Err(kind)) => {
                stats.unsupported += 1;
                dropped(Error::MessageKind { kind });
                // Or it would come again and again.
                return from.iter().for_each(|from| self.link.owes(from, number));
            }
            (None, _) => {
                stats.anonymous += 1;
                return;
            }
            (Some(from), Ok(message)) => (from, message),
        };
        stats.received += 1;
        self.link.peers.used(&from, now);
        self.handle(&from, message, number, now);
    }

    fn handle(&mut self, from: &PeerId, message: Message, number: u64, now: Instant) {
        let Self { link, producer, consumer, events, .. } = self;
        let mut has_arrived = true;
        match message {
            Message::Completed { request, lease, reading } => {
                producer.completed(link, from, request, lease, reading, now);
            }
            Message::Heartbeat { leases } => producer.heartbeat(link, from, &leases, now),
            Message::Reserve { request, reservation, lists, ttl, chunk: number, last } => {
                let id = PushId { reader: from.clone(), reservation };
                let chunk = Chunk { id, request, lists, deadline: after(now, ttl), number, last };
                has_arrived = producer.register(chunk, now, events);
            }
            Message::Cancel { reservation } => {
                producer.cancel(&PushId { reader: from.clone(), reservation }, now, events);
            }
            Message::GivenUp { lease } => producer.given_up(from, lease, now, events),
            Message::Confirmed { request, lease, reading, verdict } => {
                consumer.confirmed(from, &request, lease, PullId(reading), verdict, events);
            }
            Message::Ended { leases } => consumer.ended(from, &leases, events),
            Message::Written { reservation } => drop(consumer.reservations.written(reservation, from)),
            Message::Failed { reservation, why } => drop(consumer.reservations.failing(reservation, from, why)),
            Message::Released { reservation, why } => drop(consumer.reservations.released(reservation, from, why)),
            Message::Withdraw { generation } => {
                if link.peers.withdrawn(from, generation) {
                    events.push(Event::PeerStale(from.clone()));
                }
                self.withdrawals.asked(from.clone(), generation);
            }
            Message::Drained { generation } => self.withdrawals.answered(from, generation),
            Message::MemoryRegistered { generation } => {
                if link.peers.told_generation(from, generation, now) {
                    events.push(Event::PeerStale(from.clone()));
                }
            }
            Message::Goodbye => return self.said_goodbye(from, number, now),
            Message::Ack { numbers } => link.acknowledged(from, &numbers),
        }
        if has_arrived {
            link.owes(from, number);
        }
    }

    /// A peer ends. Everything of it has settled, as it says.
    fn said_goodbye(&mut self, from: &PeerId, number: u64, now: Instant) {
        // It may have ended since, and need not hear it. A moment later it may not be there to be told.
        if self.link.connected.get(from).is_some_and(|connected| !connected.peer.is_gone()) {
            self.link.tell(from, &Message::Ack { numbers: vec![number] }, now);
        }
        self.proven_gone(from, now);
    }

    /// The order matters: whom the first two find gone or idle is told of, let go and no longer waited for in the same
    /// poll.
    fn poll_peers(&mut self, now: Instant) {
        self.watch(now);
        let Self { link, producer, consumer, withdrawals, .. } = self;
        link.peers.expire(|id| is_needed(id, &link.connected, producer, consumer, withdrawals), now);
        for peer in self.link.peers.take_drained() {
            // What drains because its memory goes is answered below; the others are let go.
            if self.link.peers.state(&peer).is_none() {
                self.releasing.push(peer);
            }
        }
        self.events.extend(self.link.newly_lost.drain(..).map(Event::PeerLost));
        self.let_go_of_peers(now);
        self.answer_withdrawals(now);
        self.follow_withdrawal(now);
    }

    fn let_go_of_peers(&mut self, now: Instant) {
        let Self { link, producer, consumer, events, releasing, withdrawals, .. } = self;
        releasing.retain(|id| {
            if is_needed(id, &link.connected, producer, consumer, withdrawals) {
                return true;
            }
            // Nothing is told any more once it is let go.
            if let Some(generation) = withdrawals.no_answer_to(id) {
                link.tell(id, &Message::Drained { generation }, now);
            }
            let Some(Connected { peer, .. }) = link.connected.get(id) else { return false };
            match link.agent.disconnect(peer) {
                Err(Error::InUse { .. }) => return true,
                Err(error) => tracing::debug!(peer = %id, %error, "peer was not connected"),
                Ok(()) => {}
            }
            link.closed(id);
            events.push(Event::PeerReleased(id.clone()));
            false
        });
    }
}

/// Whether something is under way with a peer, or waits for it.
fn is_needed<B>(
    peer: &PeerId,
    connected: &BTreeMap<PeerId, Connected>,
    producer: &Producer<B>,
    consumer: &Consumer<B>,
    withdrawals: &Withdrawals,
) -> bool {
    connected.get(peer).is_some_and(|connected| connected.peer.unsettled() > 0)
        || consumer.waits_for(peer)
        || withdrawals.waits_for(peer)
        || producer.push.has_any_of(peer)
}
