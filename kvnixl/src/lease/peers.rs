//! Peers: whether one may be used, and when its blob is fetched again.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::book::after;
use super::identity::PeerId;
use crate::agent::Stands;
use crate::backoff::Backoff;

/// How peers are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerOptions {
    /// First wait before a blob is fetched again; doubles with every failure. 100 ms by default.
    pub first_retry: Duration,
    /// Longest such wait. 10 s by default.
    pub max_retry: Duration,
    /// A fetch that is not answered for so long has failed. 5 s by default.
    pub fetch_timeout: Duration,
    /// A peer that nothing was done with for so long is let go. 10 minutes by default.
    pub idle_ttl: Duration,
    /// Replaced incarnations remembered for each name, so that an old blob is known to be old. 64 by default.
    pub max_past: usize,
}

impl Default for PeerOptions {
    fn default() -> Self {
        Self {
            first_retry: Duration::from_millis(100),
            max_retry: Duration::from_secs(10),
            fetch_timeout: Duration::from_secs(5),
            idle_ttl: Duration::from_secs(600),
            max_past: 64,
        }
    }
}

/// Where a peer stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerState {
    /// Its blob is to be fetched, for the first time or because the one loaded is stale.
    Connecting,
    /// Transfers may start.
    Ready,
    /// No transfer starts; it is let go, or its memory goes, when those in flight have settled.
    Draining,
    /// It failed or said goodbye. Its blob is fetched again when somebody wants it.
    Lost,
    /// Another incarnation has its name. Kept until its transfers have settled.
    Replaced,
}

/// What somebody who wants a peer is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Use it.
    Ready(PeerId),
    /// Fetch its blob now.
    Fetch,
    /// Ask again at this time: a fetch is under way, or has failed lately.
    Wait(Instant),
    /// It is being let go, or its memory goes; ask again when nothing is under way with it.
    Draining,
}

/// What a blob that was loaded meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Loaded {
    /// The name was not known.
    New,
    /// It is the memory registration that is known.
    Same,
    /// The same process, with its memory registered anew.
    Newer,
    /// Another process, in place of this one, which is lost.
    Replaced(PeerId),
    /// It is of an earlier memory registration than is known. Do not use it.
    Stale,
    /// It is of a process that this one has replaced. Do not use it.
    Past(PeerId),
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerStats {
    /// Peers by name that are ready.
    pub ready: usize,
    /// Peers by name that are not.
    pub not_ready: usize,
    /// Fetches asked for.
    pub fetches: u64,
    /// Fetches that failed or were not answered.
    pub failed_fetches: u64,
    /// Peers that failed or left.
    pub lost: u64,
    /// Peers replaced by another process.
    pub replaced: u64,
    /// Old blobs refused.
    pub stale: u64,
    /// Peers let go because nothing was done with them.
    pub idle: u64,
}

#[derive(Debug)]
struct Entry {
    /// Known once a blob was loaded.
    incarnation: Option<u64>,
    generation: u64,
    /// The least generation that is of use, by the peer's own word.
    told: u64,
    state: PeerState,
    in_flight: usize,
    last_used: Instant,
    /// When to fetch its blob.
    fetch: Backoff,
    /// A fetch has been asked for and not answered; it has failed at this time.
    fetching: Option<Instant>,
    /// Draining for good.
    leaving: bool,
    /// Its process is known to have ended.
    ended: bool,
    past: VecDeque<Past>,
}

/// A process that was replaced.
#[derive(Debug)]
struct Past {
    incarnation: u64,
    /// It is known to have ended. One that is not may have been replaced by mistake.
    ended: bool,
}

/// Peers by name, each with the incarnation that counts.
#[derive(Debug)]
pub(crate) struct PeerBook {
    options: PeerOptions,
    peers: BTreeMap<Arc<str>, Entry>,
    /// Replaced incarnations with transfers in flight.
    replaced: BTreeMap<PeerId, usize>,
    drained: Vec<PeerId>,
    stats: PeerStats,
}

impl PeerBook {
    /// An empty book.
    #[must_use]
    pub(crate) fn new(options: PeerOptions) -> Self {
        Self {
            options,
            peers: BTreeMap::new(),
            replaced: BTreeMap::new(),
            drained: Vec::new(),
            stats: PeerStats::default(),
        }
    }

    /// Somebody wants to use a peer.
    pub(crate) fn want(&mut self, name: &str, now: Instant) -> Wanted {
        let entry = self.peers.entry(Arc::from(name)).or_insert_with(|| Entry::new(&self.options, now));
        match (entry.state, entry.incarnation) {
            (PeerState::Ready, Some(incarnation)) => {
                entry.last_used = now;
                return Wanted::Ready(PeerId::new(name, incarnation));
            }
            (PeerState::Draining, _) => return Wanted::Draining,
            _ => {}
        }
        if entry.fetching.is_some_and(|timeout| now >= timeout) {
            // Never answered.
            self.stats.failed_fetches += 1;
            entry.fail_fetch(now);
        }
        let next = entry.fetching.unwrap_or(entry.fetch.next());
        if now < next {
            return Wanted::Wait(next);
        }
        entry.fetching = Some(after(now, self.options.fetch_timeout));
        self.stats.fetches += 1;
        Wanted::Fetch
    }

    /// A fetch failed, or its blob could not be used.
    pub(crate) fn fetch_failed(&mut self, name: &str, now: Instant) {
        if let Some(entry) = self.peers.get_mut(name).filter(|entry| entry.state != PeerState::Ready) {
            self.stats.failed_fetches += 1;
            entry.fail_fetch(now);
        }
    }

    /// What a blob of this peer and generation would mean.
    ///
    /// Numbers come from blobs, which may lie, so they order blobs only while what they led to works. A peer's own word
    /// counts always: what it has withdrawn is stale. And a process that was replaced is taken again if its successor
    /// cannot be reached, unless it is known to have ended.
    #[must_use]
    pub(crate) fn judge(&self, peer: &PeerId, generation: u64) -> Loaded {
        let Some(entry) = self.peers.get(&peer.name) else { return Loaded::New };
        let Some(incarnation) = entry.incarnation else { return Loaded::New };
        let current = PeerId::new(peer.name.clone(), incarnation);
        if incarnation != peer.incarnation {
            return match entry.past.iter().find(|past| past.incarnation == peer.incarnation) {
                Some(past) if past.ended || entry.state != PeerState::Lost => Loaded::Past(current),
                _ => Loaded::Replaced(current),
            };
        }
        if generation < entry.told {
            Loaded::Stale
        } else if generation == entry.generation {
            Loaded::Same
        } else if generation > entry.generation || entry.is_useless() {
            Loaded::Newer
        } else {
            Loaded::Stale
        }
    }

    /// Whether what is known under a peer's name works: then only what is newer takes its place.
    #[must_use]
    pub(crate) fn stands(&self, peer: &PeerId) -> Stands {
        let gives_way = |entry: &Entry| match entry.incarnation == Some(peer.incarnation) {
            true => entry.is_useless(),
            false => entry.state == PeerState::Lost,
        };
        if self.peers.get(&peer.name).is_some_and(gives_way) { Stands::No } else { Stands::Yes }
    }

    /// Whose blob is awaited, if it is not this peer's and this one is ready: nobody asked for its blob.
    #[must_use]
    pub(crate) fn awaited_instead(&self, name: &str, now: Instant) -> Option<&str> {
        let is_awaited = |entry: &Entry| entry.fetching.is_some_and(|timeout| now < timeout);
        self.peers.get(name).filter(|entry| entry.state == PeerState::Ready && !is_awaited(entry))?;
        self.peers.iter().find(|(_, entry)| is_awaited(entry)).map(|(awaited, _)| &**awaited)
    }

    /// A peer's process has ended.
    pub(crate) fn ended(&mut self, peer: &PeerId) {
        let Some(entry) = self.peers.get_mut(&peer.name) else { return };
        if entry.incarnation == Some(peer.incarnation) {
            entry.ended = true;
        }
        for past in entry.past.iter_mut().filter(|past| past.incarnation == peer.incarnation) {
            past.ended = true;
        }
    }

    /// A blob was refused because it is stale.
    pub(crate) fn refused_stale(&mut self) {
        self.stats.stale += 1;
    }

    /// A blob was loaded; the peer is ready unless it is being let go. Nothing changes by one that is stale.
    pub(crate) fn loaded(&mut self, peer: &PeerId, generation: u64, now: Instant) -> Loaded {
        let loaded = self.judge(peer, generation);
        if matches!(loaded, Loaded::Stale | Loaded::Past(_)) {
            return loaded;
        }
        let entry = self.peers.entry(peer.name.clone()).or_insert_with(|| Entry::new(&self.options, now));
        if let Loaded::Replaced(old) = &loaded {
            self.stats.replaced += 1;
            entry.past.retain(|past| past.incarnation != peer.incarnation);
            entry.past.push_back(Past { incarnation: old.incarnation, ended: entry.ended });
            if entry.past.len() > self.options.max_past {
                entry.past.pop_front();
            }
            if entry.in_flight > 0 {
                self.replaced.insert(old.clone(), entry.in_flight);
            }
            (entry.told, entry.leaving, entry.ended) = (0, false, false);
        }
        if entry.incarnation != Some(peer.incarnation) {
            // One that was replaced and forgotten may be back.
            entry.in_flight = self.replaced.remove(peer).unwrap_or(0);
        }
        entry.incarnation = Some(peer.incarnation);
        entry.generation = generation;
        entry.last_used = now;
        entry.fetch_at(now);
        if !entry.leaving {
            entry.state = PeerState::Ready;
        }
        loaded
    }

    /// Where a peer stands; `None` for one that is not known.
    #[must_use]
    pub(crate) fn state(&self, peer: &PeerId) -> Option<PeerState> {
        match self.current(peer) {
            Some(entry) => Some(entry.state),
            None if self.replaced.contains_key(peer) => Some(PeerState::Replaced),
            None => {
                let past = |entry: &Entry| entry.past.iter().any(|past| past.incarnation == peer.incarnation);
                self.peers.get(&peer.name).is_some_and(past).then_some(PeerState::Replaced)
            }
        }
    }

    /// Something was done with a peer that is no transfer: it is not idle.
    pub(crate) fn used(&mut self, peer: &PeerId, now: Instant) {
        if let Some(entry) = self.current_mut(peer) {
            entry.last_used = now;
        }
    }

    /// Counts a transfer with the peer in, if one may start.
    pub(crate) fn started(&mut self, peer: &PeerId, now: Instant) -> bool {
        match self.current_mut(peer) {
            Some(entry) if entry.state == PeerState::Ready => {
                entry.in_flight += 1;
                entry.last_used = now;
                true
            }
            _ => false,
        }
    }

    /// Counts a transfer out that has settled.
    pub(crate) fn settled(&mut self, peer: &PeerId, now: Instant) {
        if let Some(entry) = self.current_mut(peer) {
            entry.in_flight = entry.in_flight.saturating_sub(1);
            entry.last_used = now;
            self.drain(peer);
        } else if let Some(in_flight) = self.replaced.get_mut(peer) {
            *in_flight = in_flight.saturating_sub(1);
            if *in_flight == 0 {
                self.replaced.remove(peer);
            }
        }
    }

    /// Something with the peer failed, or it said goodbye: nothing more is started. Whether that is news.
    pub(crate) fn lost(&mut self, peer: &PeerId, now: Instant) -> bool {
        let first_retry = self.options.first_retry;
        let Some(entry) = self.current_mut(peer) else { return false };
        let is_news = entry.state != PeerState::Lost && !entry.leaving;
        if is_news {
            entry.state = PeerState::Lost;
            entry.fetch_at(after(now, first_retry));
            self.stats.lost += 1;
        }
        is_news
    }

    /// The peer says which memory registration it has: when its blob is of another one, the blob is stale. Whether it
    /// is. What it says late, of an earlier registration, is no news.
    pub(crate) fn told_generation(&mut self, peer: &PeerId, generation: u64, now: Instant) -> bool {
        match self.current_mut(peer) {
            Some(entry) if generation >= entry.told && generation != entry.generation && !entry.leaving => {
                entry.told = generation;
                entry.state = PeerState::Connecting;
                entry.fetch_at(now);
                true
            }
            _ => false,
        }
    }

    /// The peer is about to take its memory of this generation away: nothing is started until it has registered
    /// again. When what is in flight has settled, [`take_drained`](Self::take_drained) names it, and its next blob is
    /// wanted: that it has registered may be said when nobody hears it. Whether that is news.
    pub(crate) fn withdrawn(&mut self, peer: &PeerId, generation: u64) -> bool {
        // Its blob may have given another number: the peer's word counts.
        let is_news = |entry: &&mut Entry| generation >= entry.told;
        let Some(entry) = self.current_mut(peer).filter(is_news) else { return false };
        entry.told = generation.saturating_add(1);
        entry.state = PeerState::Draining;
        self.drain(peer);
        true
    }

    /// Lets a peer go when what is in flight has settled. `take_drained` names it then, and it is forgotten.
    pub(crate) fn remove(&mut self, name: &str) {
        let Some(entry) = self.peers.get_mut(name) else { return };
        let Some(incarnation) = entry.incarnation else {
            self.peers.remove(name);
            return;
        };
        entry.state = PeerState::Draining;
        entry.leaving = true;
        self.drain(&PeerId::new(name, incarnation));
    }

    /// Lets go of peers that nothing was done with for long, and that nothing waits for.
    pub(crate) fn expire(&mut self, is_needed: impl Fn(&PeerId) -> bool, now: Instant) {
        let ttl = self.options.idle_ttl;
        let mut idle = Vec::new();
        for (name, entry) in &mut self.peers {
            let withdrawn = entry.told > entry.generation && entry.state != PeerState::Lost;
            if entry.in_flight > 0
                || entry.leaving
                // Its old blob must not be taken for a new peer's.
                || withdrawn
                || now.saturating_duration_since(entry.last_used) < ttl
            {
                continue;
            }
            if entry.incarnation.is_some_and(|incarnation| is_needed(&PeerId::new(name.clone(), incarnation))) {
                // Not asked again at once.
                entry.last_used = now;
            } else {
                idle.push(name.clone());
            }
        }
        for name in idle {
            self.stats.idle += 1;
            self.remove(&name);
        }
    }

    /// Peers that were draining and have nothing in flight any more, since the last call.
    pub(crate) fn take_drained(&mut self) -> Vec<PeerId> {
        std::mem::take(&mut self.drained)
    }

    /// Counts since the start.
    #[must_use]
    pub(crate) fn stats(&self) -> PeerStats {
        let ready = self.peers.values().filter(|entry| entry.state == PeerState::Ready).count();
        PeerStats { ready, not_ready: self.peers.len() - ready, ..self.stats }
    }

    fn current(&self, peer: &PeerId) -> Option<&Entry> {
        self.peers.get(&peer.name).filter(|entry| entry.incarnation == Some(peer.incarnation))
    }

    fn current_mut(&mut self, peer: &PeerId) -> Option<&mut Entry> {
        self.peers.get_mut(&peer.name).filter(|entry| entry.incarnation == Some(peer.incarnation))
    }

    fn drain(&mut self, peer: &PeerId) {
        let Some(entry) = self.current_mut(peer) else { return };
        if entry.state != PeerState::Draining || entry.in_flight > 0 {
            return;
        }
        if entry.leaving {
            self.peers.remove(&peer.name);
        } else {
            entry.state = PeerState::Connecting;
        }
        self.drained.push(peer.clone());
    }
}

impl Entry {
    fn new(options: &PeerOptions, now: Instant) -> Self {
        Self {
            incarnation: None,
            generation: 0,
            told: 0,
            state: PeerState::Connecting,
            in_flight: 0,
            last_used: now,
            fetch: Backoff::new(options.first_retry, options.max_retry, now),
            fetching: None,
            leaving: false,
            ended: false,
            past: VecDeque::new(),
        }
    }

    /// Whether its blob led to nothing that works: it is lost, or says that it has other memory.
    fn is_useless(&self) -> bool {
        matches!(self.state, PeerState::Lost | PeerState::Connecting)
    }

    /// To be fetched at this time, whatever has failed before.
    fn fetch_at(&mut self, at: Instant) {
        self.fetch.restart(at);
        self.fetching = None;
    }

    fn fail_fetch(&mut self, now: Instant) {
        self.fetch.asked(now);
        self.fetching = None;
    }
}
