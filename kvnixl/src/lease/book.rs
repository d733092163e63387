//! Leases: how long a producer's blocks are held, and for whom.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use super::ended::Remembered;
use super::identity::{LeaseId, Numbers, PeerId, Reading, RequestId};
use crate::error::{Error, Result};

/// How leases behave.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseOptions {
    /// How long a lease lasts from the moment that all its parts are ready, and from each heartbeat. 30 s by default.
    pub ttl: Duration,
    /// How long heartbeats can extend it altogether: a reader that never ends must not hold blocks for ever.
    /// 10 minutes by default.
    pub max_lifetime: Duration,
    /// How long an ended lease is remembered, so that late and repeated completions get the right answer.
    /// 60 s by default.
    pub remember: Duration,
    /// Most ended leases remembered. 65,536 by default.
    pub max_remembered: usize,
    /// What becomes of the share of a reader that is gone.
    pub lost_readers: LostReaders,
}

impl Default for LeaseOptions {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(30),
            max_lifetime: Duration::from_secs(600),
            remember: Duration::from_secs(60),
            max_remembered: 1 << 16,
            lost_readers: LostReaders::default(),
        }
    }
}

/// What becomes of the share of a reader whose process is gone before it completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LostReaders {
    /// It counts as done: when nobody else is waited for, the blocks are free. Only a reader that has been heard of
    /// (a heartbeat, a registration) can be lost to a lease.
    #[default]
    Release,
    /// The lease waits for another process under that name, until it expires.
    Wait,
}

/// Why a lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// All readers completed.
    AllRead,
    /// All readers completed or are gone.
    ReadersLost,
    /// All readers completed, have given it up, were refused, or are gone.
    GivenUp,
    /// Nobody extended it in time.
    Expired,
    /// The producer ended it.
    Aborted,
}

/// Source blocks that are the engine's again.
#[derive(Debug, PartialEq, Eq)]
pub struct Freed<B> {
    /// The lease that held them.
    pub lease: LeaseId,
    /// Its request.
    pub request: RequestId,
    /// The blocks.
    pub blocks: B,
    /// Why.
    pub why: EndReason,
}

/// What a completion was worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Completion {
    /// The first of this reader, and the lease was good. Others are waited for, or the number is not known yet.
    Counted,
    /// As `Counted`, and it was the last one.
    Freed,
    /// This reader's was counted before. This reading, too, ended when the lease was good.
    Duplicate,
    /// The lease had ended: the bytes that were read may be another request's.
    Late(EndReason),
    /// Not all parts were ready: some bytes that were read were not computed yet.
    Premature,
    /// No such lease, or none that is remembered.
    Unknown,
}

impl Completion {
    /// Whether the reader may use what it read.
    #[must_use]
    pub(crate) fn is_good(self) -> bool {
        matches!(self, Self::Counted | Self::Freed | Self::Duplicate)
    }
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseStats {
    /// Leases given.
    pub held: u64,
    /// Leases that are in force.
    pub live: usize,
    /// Ended because all readers completed.
    pub all_read: u64,
    /// Ended because the readers that had not completed are gone.
    pub readers_lost: u64,
    /// Ended because the readers that had not completed have given them up, or were refused.
    pub given_up: u64,
    /// Ended because nobody extended them.
    pub expired: u64,
    /// Ended by the producer.
    pub aborted: u64,
    /// Completions that counted.
    pub completions: u64,
    /// Completions of a reader that had been counted.
    pub duplicate_completions: u64,
    /// Completions after the lease had ended.
    pub late_completions: u64,
    /// Completions before all parts were ready.
    pub premature_completions: u64,
    /// Completions for leases that are not known.
    pub unknown_completions: u64,
    /// Leases extended by heartbeats.
    pub extensions: u64,
    /// Leases named by heartbeats that are not in force.
    pub stale_heartbeats: u64,
}

#[derive(Debug)]
struct Lease<B> {
    request: RequestId,
    blocks: B,
    /// Number of readers, once known.
    readers: Option<usize>,
    /// Who completed, and which readings.
    done: BTreeSet<(PeerId, Reading)>,
    /// Who is gone without having completed.
    gone: BTreeSet<PeerId>,
    /// Who wants it no more, or is refused.
    given_up: BTreeSet<PeerId>,
    /// Who was heard of.
    known: BTreeSet<PeerId>,
    num_parts: u32,
    ready: BTreeSet<u32>,
    /// When it ends; none before all parts are ready, since the producer itself is writing the blocks.
    deadline: Option<Instant>,
    /// What `deadline` never passes.
    last: Option<Instant>,
}

impl<B> Lease<B> {
    fn has_completed(&self, reader: &PeerId) -> bool {
        self.done_from(reader) == Some(reader)
    }

    /// The first from a reader on, by name and incarnation, that completed.
    fn done_from(&self, reader: &PeerId) -> Option<&PeerId> {
        let (done, _) = self.done.range((reader.clone(), Reading::Pull(0))..).next()?;
        Some(done)
    }

    /// Readers, and readings, that are told apart: names are not proven, so there may be any number of them.
    fn most(&self) -> usize {
        self.readers.unwrap_or(0).max(MAX_READINGS)
    }
}

/// Readers and readings of one lease that are remembered, or as many as it has readers: more are nobody's that behaves.
const MAX_READINGS: usize = 1024;

#[derive(Debug)]
struct Ended {
    request: RequestId,
    why: EndReason,
    done: BTreeSet<(PeerId, Reading)>,
}

/// A producer's leases.
///
/// A lease is in force from [`hold`](Self::hold) until all its readers completed, it expires, or it is aborted.
/// Its clock starts when its last part becomes ready. Blocks leave through [`take_freed`](Self::take_freed), once.
#[derive(Debug)]
pub(crate) struct LeaseBook<B> {
    options: LeaseOptions,
    numbers: Numbers,
    live: HashMap<LeaseId, Lease<B>>,
    by_request: HashMap<RequestId, LeaseId>,
    due: BTreeSet<(Instant, LeaseId)>,
    ended: Remembered<LeaseId, Ended>,
    freed: Vec<Freed<B>>,
    stats: LeaseStats,
}

impl<B> LeaseBook<B> {
    /// An empty book that gives its leases these numbers.
    #[must_use]
    pub(crate) fn new(options: LeaseOptions, numbers: Numbers) -> Self {
        Self {
            ended: Remembered::new(options.remember, options.max_remembered),
            options,
            numbers,
            live: HashMap::new(),
            by_request: HashMap::new(),
            due: BTreeSet::new(),
            freed: Vec::new(),
            stats: LeaseStats::default(),
        }
    }

    /// Holds a request's blocks until `readers` different readers have completed. The number may be set later
    /// ([`set_readers`](Self::set_readers)); until then only expiry and abort free the blocks. `num_parts` parts
    /// become [`ready`](Self::ready) one by one; 0 for blocks that are complete.
    ///
    /// # Errors
    ///
    /// [`Error::RequestHeld`] while the same request has a lease; gives the blocks back.
    pub(crate) fn hold(
        &mut self,
        request: RequestId,
        blocks: B,
        readers: Option<usize>,
        num_parts: u32,
        now: Instant,
    ) -> Result<LeaseId, (Error, B)> {
        self.expire(now);
        if let Some(&lease) = self.by_request.get(&request) {
            return Err((Error::RequestHeld { request, lease }, blocks));
        }
        let id = LeaseId(self.numbers.next());
        self.by_request.insert(request.clone(), id);
        let lease = Lease {
            request,
            blocks,
            readers,
            done: BTreeSet::new(),
            gone: BTreeSet::new(),
            given_up: BTreeSet::new(),
            known: BTreeSet::new(),
            num_parts,
            ready: BTreeSet::new(),
            deadline: None,
            last: None,
        };
        self.live.insert(id, lease);
        self.stats.held += 1;
        self.start_clock(id, now);
        self.free_if_read(id, now);
        Ok(id)
    }

    /// Sets the number of readers of a lease whose number was not known, or corrects it. Whether the lease is in
    /// force; it may end by this.
    pub(crate) fn set_readers(&mut self, lease: LeaseId, readers: usize, now: Instant) -> bool {
        self.expire(now);
        let Some(found) = self.live.get_mut(&lease) else { return false };
        found.readers = Some(readers);
        self.free_if_read(lease, now);
        true
    }

    /// Says that a part of the blocks is computed. Whether the lease is in force and has such a part; a part that is
    /// ready already stays so.
    pub(crate) fn ready(&mut self, lease: LeaseId, part: u32, now: Instant) -> bool {
        self.expire(now);
        let Some(found) = self.live.get_mut(&lease) else { return false };
        if part >= found.num_parts {
            return false;
        }
        found.ready.insert(part);
        self.start_clock(lease, now);
        self.free_if_read(lease, now);
        true
    }

    /// The lease of a request, if one is in force.
    #[must_use]
    pub(crate) fn lease_of(&self, request: &RequestId) -> Option<LeaseId> {
        self.by_request.get(request).copied()
    }

    /// Whether a lease is in force.
    #[must_use]
    pub(crate) fn is_good(&self, lease: LeaseId, now: Instant) -> bool {
        self.live.get(&lease).is_some_and(|lease| lease.deadline.is_none_or(|deadline| now < deadline))
    }

    /// Number of parts of a lease in force; 0 when its blocks were complete from the start.
    #[must_use]
    pub(crate) fn num_parts(&self, lease: LeaseId) -> Option<u32> {
        self.live.get(&lease).map(|lease| lease.num_parts)
    }

    /// Whether a part of a lease in force is computed. Blocks that were complete from the start are part 0.
    #[must_use]
    pub(crate) fn is_ready(&self, lease: LeaseId, part: u32) -> bool {
        let is_ready = |lease: &Lease<B>| lease.ready.contains(&part) || (lease.num_parts == 0 && part == 0);
        self.live.get(&lease).is_some_and(is_ready)
    }

    /// A reader has read everything that it wanted. Its share counts once; what it read is good if this reading
    /// ended, here and now or when it was first told, under a lease that was good.
    pub(crate) fn complete(
        &mut self,
        request: &RequestId,
        lease: LeaseId,
        reader: &PeerId,
        reading: Reading,
        now: Instant,
    ) -> Completion {
        self.expire(now);
        let completion = self.judge(request, lease, (reader.clone(), reading), now);
        let count = match completion {
            Completion::Counted | Completion::Freed => &mut self.stats.completions,
            Completion::Duplicate => &mut self.stats.duplicate_completions,
            Completion::Late(_) => &mut self.stats.late_completions,
            Completion::Premature => &mut self.stats.premature_completions,
            Completion::Unknown => &mut self.stats.unknown_completions,
        };
        *count += 1;
        completion
    }

    fn judge(&mut self, request: &RequestId, id: LeaseId, reading: (PeerId, Reading), now: Instant) -> Completion {
        if let Some(lease) = self.live.get_mut(&id).filter(|lease| lease.request == *request) {
            if lease.deadline.is_none() {
                return Completion::Premature;
            }
            // Another process under a name that completed has read good bytes too, and counts no second time.
            let counted =
                lease.done_from(&PeerId::new(reading.0.name.clone(), 0)).is_some_and(|d| d.name == reading.0.name);
            // Repetitions leave room for readers that have not come.
            let most = if counted { lease.most() } else { lease.most().saturating_mul(2) };
            if lease.done.len() >= most && !lease.done.contains(&reading) {
                return Completion::Unknown;
            }
            lease.done.insert(reading);
            return match (self.free_if_read(id, now), counted) {
                (_, true) => Completion::Duplicate,
                (true, false) => Completion::Freed,
                (false, false) => Completion::Counted,
            };
        }
        match self.ended.get(&id).filter(|lease| lease.request == *request) {
            Some(lease) if lease.done.contains(&reading) => Completion::Duplicate,
            Some(lease) => Completion::Late(lease.why),
            None => Completion::Unknown,
        }
    }

    /// A reader is alive and still wants these leases. Returns those that are not in force, for the reader to know.
    pub(crate) fn heartbeat(&mut self, reader: &PeerId, leases: &[LeaseId], now: Instant) -> Vec<LeaseId> {
        self.expire(now);
        let mut ended = Vec::new();
        for &id in leases {
            let Some(lease) = self.live.get_mut(&id) else {
                self.stats.stale_heartbeats += 1;
                ended.push(id);
                continue;
            };
            if lease.gone.contains(reader) || lease.has_completed(reader) {
                continue;
            }
            // It has changed its mind.
            lease.given_up.remove(reader);
            if !lease.known.contains(reader) {
                if lease.known.len() >= lease.most() {
                    continue;
                }
                lease.known.insert(reader.clone());
            }
            let (Some(deadline), Some(last)) = (lease.deadline, lease.last) else { continue };
            let later = after(now, self.options.ttl).min(last);
            if later > deadline {
                self.due.remove(&(deadline, id));
                self.due.insert((later, id));
                lease.deadline = Some(later);
                self.stats.extensions += 1;
            }
        }
        ended
    }

    /// A reader reads nothing more, or is refused: its share counts as done. The request, if the lease is in force and
    /// waited for this reader.
    pub(crate) fn give_up(&mut self, lease: LeaseId, reader: &PeerId, now: Instant) -> Option<RequestId> {
        self.expire(now);
        let found = self.live.get_mut(&lease)?;
        if found.gone.contains(reader) || found.has_completed(reader) || found.given_up.len() >= found.most() {
            return None;
        }
        if !found.given_up.insert(reader.clone()) {
            return None;
        }
        let request = found.request.clone();
        self.free_if_read(lease, now);
        Some(request)
    }

    /// A reader's process is gone, see [`LostReaders`].
    pub(crate) fn reader_gone(&mut self, reader: &PeerId, now: Instant) {
        self.expire(now);
        if self.options.lost_readers == LostReaders::Wait {
            return;
        }
        let mut concerned = Vec::new();
        for (id, lease) in &mut self.live {
            if lease.known.contains(reader) && !lease.has_completed(reader) {
                lease.gone.insert(reader.clone());
                concerned.push(*id);
            }
        }
        concerned.sort_unstable();
        for id in concerned {
            self.free_if_read(id, now);
        }
    }

    /// Ends a lease at once, for example because its request was aborted. Readers that come later are told.
    /// Whether it was in force.
    pub(crate) fn abort(&mut self, lease: LeaseId, now: Instant) -> bool {
        self.expire(now);
        let held = self.live.contains_key(&lease);
        self.end(lease, EndReason::Aborted, now);
        held
    }

    /// Ends what is due. Every call that is given the time does this first, so a completion that comes after the
    /// deadline is late even when nobody looked in between.
    pub(crate) fn expire(&mut self, now: Instant) {
        while let Some(&(_, lease)) = self.due.first().filter(|(deadline, _)| *deadline <= now) {
            self.end(lease, EndReason::Expired, now);
        }
        self.ended.forget(now);
    }

    /// When [`expire`](Self::expire) has something to do next.
    #[must_use]
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.due.first().map(|(deadline, _)| *deadline)
    }

    /// Takes the blocks of leases that ended since the last call.
    pub(crate) fn take_freed(&mut self) -> Vec<Freed<B>> {
        std::mem::take(&mut self.freed)
    }

    /// Counts since the start.
    #[must_use]
    pub(crate) fn stats(&self) -> LeaseStats {
        LeaseStats { live: self.live.len(), ..self.stats }
    }

    fn start_clock(&mut self, id: LeaseId, now: Instant) {
        let Some(lease) = self.live.get_mut(&id) else { return };
        // Parts are below `num_parts` and distinct.
        if lease.deadline.is_none() && lease.ready.len() as u64 == u64::from(lease.num_parts) {
            let last = after(now, self.options.max_lifetime);
            let deadline = after(now, self.options.ttl).min(last);
            (lease.deadline, lease.last) = (Some(deadline), Some(last));
            self.due.insert((deadline, id));
        }
    }

    /// Ends the lease when nobody is waited for. Never while the producer still computes.
    fn free_if_read(&mut self, id: LeaseId, now: Instant) -> bool {
        let Some(lease) = self.live.get(&id) else { return false };
        let (Some(readers), Some(_)) = (lease.readers, lease.deadline) else { return false };
        let done: BTreeSet<&str> = lease.done.iter().map(|(reader, _)| &*reader.name).collect();
        let gone = lease.gone.iter().map(|reader| &*reader.name);
        let done_or_gone: BTreeSet<&str> = done.iter().copied().chain(gone).collect();
        let given_up = lease.given_up.iter().map(|reader| &*reader.name);
        let why = if done.len() >= readers {
            EndReason::AllRead
        } else if done_or_gone.len() >= readers {
            EndReason::ReadersLost
        } else if done_or_gone.iter().copied().chain(given_up).collect::<BTreeSet<_>>().len() >= readers {
            EndReason::GivenUp
        } else {
            return false;
        };
        self.end(id, why, now);
        true
    }

    fn end(&mut self, id: LeaseId, why: EndReason, now: Instant) {
        let Some(Lease { request, blocks, done, deadline, .. }) = self.live.remove(&id) else { return };
        if let Some(deadline) = deadline {
            self.due.remove(&(deadline, id));
        }
        self.by_request.remove(&request);
        let count = match why {
            EndReason::AllRead => &mut self.stats.all_read,
            EndReason::ReadersLost => &mut self.stats.readers_lost,
            EndReason::GivenUp => &mut self.stats.given_up,
            EndReason::Expired => &mut self.stats.expired,
            EndReason::Aborted => &mut self.stats.aborted,
        };
        *count += 1;
        tracing::debug!(%request, lease = %id, ?why, "lease ended");
        self.ended.insert(id, Ended { request: request.clone(), why, done }, now);
        self.freed.push(Freed { lease: id, request, blocks, why });
    }
}

/// A time beyond the clock's range is the farthest that it has.
pub(crate) fn after(now: Instant, wait: Duration) -> Instant {
    now.checked_add(wait).or_else(|| now.checked_add(Duration::from_secs(1 << 30))).unwrap_or(now)
}
