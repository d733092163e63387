//! Registrations that arrive in several messages.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use kvplan::BlockList;

use super::book::after;
use super::identity::{PeerId, RequestId, ReservationId};
use super::push::{LIST_WEIGHT, PushId, Registration};

/// What a registration weighs besides its lists, in block ids: its names, and its places in maps.
const PARTIAL_WEIGHT: usize = 256;

/// Room for one registration of a few messages for each of two readers, however little is allowed.
const LEAST_BOUND: usize = 1 << 16;

/// How long the next message is waited for, whatever the reader says: they are sent one after the other.
const PATIENCE: Duration = Duration::from_secs(60);

/// A message of a registration.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) id: PushId,
    pub(crate) request: RequestId,
    pub(crate) lists: Vec<BlockList>,
    pub(crate) deadline: Instant,
    pub(crate) number: u32,
    pub(crate) last: bool,
}

/// What a chunk led to.
#[derive(Debug, PartialEq)]
pub(crate) enum Assembled {
    /// More is to come.
    Partial,
    /// One before it was lost, and is sent again. This one is not kept, so it must be, too.
    Early,
    /// That was the last one.
    Whole(Registration),
    /// It is of another request than what was there, or there is no room. The registration is dropped.
    Refused,
}

/// Registrations that have arrived in part: each reader's and all of them are bounded by what they weigh, and they are
/// forgotten when no more comes.
///
/// One reader's never refuse another's: who is over the bound of all gives way, and that is the reader who has most.
/// Adding costs what is added, whatever is there: weights are counted as lists grow.
#[derive(Debug)]
pub(crate) struct Assembly {
    partial: BTreeMap<PushId, Partial>,
    due: BTreeSet<(Instant, PushId)>,
    /// What each reader's weigh, and the same by weight.
    of_reader: BTreeMap<PeerId, usize>,
    heaviest: BTreeSet<(usize, PeerId)>,
    weight: usize,
    max_weight: usize,
    /// Those that were forgotten though their readers wait.
    dropped: Vec<PushId>,
}

#[derive(Debug)]
struct Partial {
    whole: Registration,
    /// Number of the message that comes next.
    next: u32,
    weight: usize,
    /// When it is forgotten.
    until: Instant,
}

impl Assembly {
    /// Bounded by this weight, counted in block ids; each reader's by half of it.
    pub(crate) fn new(max_weight: usize) -> Self {
        Self {
            partial: BTreeMap::new(),
            due: BTreeSet::new(),
            of_reader: BTreeMap::new(),
            heaviest: BTreeSet::new(),
            weight: 0,
            max_weight: max_weight.max(LEAST_BOUND),
            dropped: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, chunk: Chunk, now: Instant) -> Assembled {
        let Chunk { id, request, lists, deadline, number, last } = chunk;
        let partial = self.remove(&id).unwrap_or_else(|| Partial {
            whole: Registration { id, request: request.clone(), lists: Vec::new(), deadline },
            next: 0,
            weight: PARTIAL_WEIGHT,
            until: deadline,
        });
        if partial.whole.request != request {
            return Assembled::Refused;
        }
        let expected = partial.next;
        if number != expected {
            if expected > 0 {
                self.keep(partial);
            }
            return if number < expected { Assembled::Partial } else { Assembled::Early };
        }
        let Partial { mut whole, mut weight, .. } = partial;
        weight = weight.saturating_add(append(&mut whole.lists, lists));
        if last {
            return Assembled::Whole(whole);
        }
        let Some(next) = number.checked_add(1) else { return Assembled::Refused };
        if !self.make_room(&whole.id.reader, weight) {
            return Assembled::Refused;
        }
        let until = after(now, PATIENCE).min(whole.deadline);
        self.keep(Partial { whole, next, weight, until });
        Assembled::Partial
    }

    /// Makes room for a reader: those who have more than it would have give way. Whether there is room.
    fn make_room(&mut self, reader: &PeerId, weight: usize) -> bool {
        let theirs = self.of_reader.get(reader).map_or(0, |theirs| *theirs).saturating_add(weight);
        if theirs > self.max_weight / 2 {
            return false;
        }
        while self.weight.saturating_add(weight) > self.max_weight {
            let Some((most, heaviest)) = self.heaviest.last().cloned() else { return false };
            if most <= theirs || heaviest == *reader {
                return false;
            }
            let Some(id) = self.of(&heaviest).next().cloned() else { return false };
            self.remove(&id);
            self.dropped.push(id);
        }
        true
    }

    fn keep(&mut self, partial: Partial) {
        let id = partial.whole.id.clone();
        self.reweigh(&id.reader, |theirs| theirs.saturating_add(partial.weight));
        self.weight = self.weight.saturating_add(partial.weight);
        self.due.insert((partial.until, id.clone()));
        self.partial.insert(id, partial);
    }

    fn remove(&mut self, id: &PushId) -> Option<Partial> {
        let partial = self.partial.remove(id)?;
        self.reweigh(&id.reader, |theirs| theirs.saturating_sub(partial.weight));
        self.weight = self.weight.saturating_sub(partial.weight);
        self.due.remove(&(partial.until, id.clone()));
        Some(partial)
    }

    fn reweigh(&mut self, reader: &PeerId, change: impl FnOnce(usize) -> usize) {
        let before = self.of_reader.remove(reader).unwrap_or(0);
        self.heaviest.remove(&(before, reader.clone()));
        let now = change(before);
        if now > 0 {
            self.of_reader.insert(reader.clone(), now);
            self.heaviest.insert((now, reader.clone()));
        }
    }

    /// Those of a reader.
    fn of(&self, reader: &PeerId) -> impl Iterator<Item = &PushId> {
        let first = PushId { reader: reader.clone(), reservation: ReservationId(0) };
        self.partial.range(first..).map(|(id, _)| id).take_while(move |id| id.reader == *reader)
    }

    /// Forgets one that is not wanted any more.
    pub(crate) fn forget(&mut self, id: &PushId) {
        self.remove(id);
    }

    /// Those that were forgotten since the last call, though their readers wait to hear what becomes of them.
    pub(crate) fn take_dropped(&mut self) -> Vec<PushId> {
        std::mem::take(&mut self.dropped)
    }

    pub(crate) fn expire(&mut self, now: Instant) {
        while let Some((_, id)) = self.due.first().filter(|(until, _)| *until <= now).cloned() {
            self.remove(&id);
            self.dropped.push(id);
        }
    }

    /// Forgets those of a reader whose process has ended: the rest never comes.
    pub(crate) fn reader_gone(&mut self, reader: &PeerId) {
        let theirs: Vec<PushId> = self.of(reader).cloned().collect();
        for id in theirs {
            self.remove(&id);
        }
    }
}

/// Appends lists; one that goes on where the last one ended is the same list. What that weighs: vectors have room for
/// more than they hold.
pub(crate) fn append(lists: &mut Vec<BlockList>, more: Vec<BlockList>) -> usize {
    let (mut ids, before) = (0_usize, lists.capacity());
    for list in more {
        match lists.last_mut() {
            Some(last)
                if last.group == list.group
                    && last.start().checked_add(last.blocks.len() as u64) == Some(list.start()) =>
            {
                let before = last.blocks.capacity();
                last.blocks.extend(list.blocks);
                ids = ids.saturating_add(last.blocks.capacity() - before);
            }
            _ => {
                ids = ids.saturating_add(list.blocks.capacity());
                lists.push(list);
            }
        }
    }
    ids.saturating_add((lists.capacity() - before).saturating_mul(LIST_WEIGHT))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kvspec::{BlockId, GroupId};

    use super::super::identity::ReservationId;
    use super::*;

    fn id() -> PushId {
        PushId { reader: PeerId::new("decode", 1), reservation: ReservationId(1) }
    }

    fn chunk(number: u32, last: bool, first: u64, blocks: &[u32], deadline: Instant) -> Chunk {
        let blocks = blocks.iter().copied().map(BlockId).collect();
        let lists = vec![BlockList { group: GroupId(0), first: (first > 0).then_some(first), blocks }];
        Chunk { id: id(), request: RequestId::new("r").unwrap(), lists, deadline, number, last }
    }

    /// Nothing is counted that is not there.
    fn is_empty(assembly: &Assembly) -> bool {
        assembly.weight == 0
            && assembly.partial.is_empty()
            && assembly.due.is_empty()
            && assembly.of_reader.is_empty()
            && assembly.heaviest.is_empty()
    }

    /// Of a reader, a message of so many lists that do not join, each of so many blocks.
    fn bulk(reader: u64, reservation: u64, number: u32, lists: u32, blocks: u32, deadline: Instant) -> Chunk {
        let id = PushId { reader: PeerId::new("decode", reader), reservation: ReservationId(reservation) };
        let list = |group| BlockList { group: GroupId(group), first: None, blocks: (0..blocks).map(BlockId).collect() };
        let lists = (0..lists).map(list).collect();
        Chunk { id, request: RequestId::new("r").unwrap(), lists, deadline, number, last: false }
    }

    #[test]
    fn chunks_in_order_make_one_registration() {
        let now = Instant::now();
        let mut assembly = Assembly::new(100);
        assert_eq!(assembly.add(chunk(0, false, 4, &[1, 2], now), now), Assembled::Partial);
        let Assembled::Whole(whole) = assembly.add(chunk(1, true, 6, &[3], now), now) else { panic!("not whole") };
        assert_eq!(
            whole.lists,
            [BlockList { group: GroupId(0), first: Some(4), blocks: [1, 2, 3].map(BlockId).into() }]
        );
        assert!(is_empty(&assembly));
    }

    #[test]
    fn chunks_that_are_lost_or_come_again_are_waited_for_and_no_others() {
        let now = Instant::now();
        let mut assembly = Assembly::new(100);
        assert_eq!(assembly.add(chunk(1, false, 1, &[2], now), now), Assembled::Early);
        assert!(is_empty(&assembly), "nothing is kept of it");
        assert_eq!(assembly.add(chunk(0, false, 0, &[1], now), now), Assembled::Partial);
        let weight = assembly.weight;
        assert_eq!(assembly.add(chunk(2, true, 2, &[3], now), now), Assembled::Early);
        assert_eq!(assembly.add(chunk(0, false, 0, &[1], now), now), Assembled::Partial, "again");
        assert_eq!(assembly.weight, weight);
        assert_eq!(assembly.add(chunk(1, false, 1, &[2], now), now), Assembled::Partial);
        let Assembled::Whole(whole) = assembly.add(chunk(2, true, 2, &[3], now), now) else { panic!("not whole") };
        assert_eq!(whole.lists, [BlockList { group: GroupId(0), first: None, blocks: [1, 2, 3].map(BlockId).into() }]);
        assert!(is_empty(&assembly));
    }

    #[test]
    fn chunks_that_do_not_fit_drop_the_registration() {
        let now = Instant::now();
        let mut assembly = Assembly::new(5);
        assert_eq!(assembly.add(chunk(0, false, 0, &[1, 2], now), now), Assembled::Partial);
        let other = Chunk { request: RequestId::new("other").unwrap(), ..chunk(1, true, 2, &[3], now) };
        assert_eq!(assembly.add(other, now), Assembled::Refused);
        assert_eq!(assembly.add(chunk(1, true, 2, &[3], now), now), Assembled::Early, "the beginning was dropped");
        let many = vec![7; LEAST_BOUND];
        assert_eq!(assembly.add(chunk(0, false, 0, &many, now), now), Assembled::Refused, "too many");
        assert_eq!(assembly.add(chunk(0, false, 0, &[1], now), now), Assembled::Partial);
        assembly.expire(now + Duration::from_secs(1));
        assert!(is_empty(&assembly));
        assert_eq!(assembly.take_dropped(), [id()], "its reader is told");
    }

    #[test]
    fn what_a_reader_left_in_part_goes_with_its_process() {
        let never = Instant::now() + Duration::from_secs(1 << 30);
        let mut assembly = Assembly::new(100);
        assert_eq!(assembly.add(chunk(0, false, 0, &[1, 2], never), Instant::now()), Assembled::Partial);
        assembly.reader_gone(&PeerId::new("decode", 2));
        assert_eq!(assembly.partial.len(), 1, "another process");
        assembly.reader_gone(&id().reader);
        assert!(is_empty(&assembly));
    }

    #[test]
    fn a_reader_cannot_have_what_it_left_in_part_kept_for_long() {
        let now = Instant::now();
        let never = after(now, Duration::from_millis(u64::MAX));
        let mut assembly = Assembly::new(100);
        assert_eq!(assembly.add(chunk(0, false, 0, &[1], never), now), Assembled::Partial);
        let later = now + PATIENCE / 2;
        assert_eq!(assembly.add(chunk(1, false, 1, &[2], never), later), Assembled::Partial);
        assembly.expire(now + PATIENCE);
        assert_eq!(assembly.partial.len(), 1, "more has come");
        assembly.expire(later + PATIENCE);
        assert!(is_empty(&assembly));
    }

    #[test]
    fn one_reader_never_refuses_another() {
        let now = Instant::now();
        let mut assembly = Assembly::new(LEAST_BOUND);
        // As many readers as like to fill all that there is.
        for reader in 1..100 {
            for reservation in 0..1000 {
                assembly.add(bulk(reader, reservation, 0, 1, 1000, now + PATIENCE), now);
                assert!(assembly.weight <= LEAST_BOUND);
            }
        }
        let dropped = assembly.take_dropped().len();
        assert_eq!(assembly.add(bulk(1000, 0, 0, 1, 200, now + PATIENCE), now), Assembled::Partial);
        // Whoever has less than the others is let in, at the cost of who has most.
        assert!(dropped > 0 && assembly.take_dropped().len() <= 1, "{dropped}");
        // Alone a reader has half.
        let mut assembly = Assembly::new(LEAST_BOUND);
        let kept =
            (0..1000).filter(|&r| assembly.add(bulk(1, r, 0, 1, 1000, now + PATIENCE), now) == Assembled::Partial);
        assert!((20..=32).contains(&kept.count()));
        assert!(assembly.take_dropped().is_empty() && assembly.weight <= LEAST_BOUND / 2);
    }

    #[test]
    fn a_long_registration_costs_what_is_added_and_weighs_what_it_takes() {
        let (now, start) = (Instant::now(), Instant::now());
        let mut assembly = Assembly::new(1 << 26);
        // 20 MB on the wire, where a list without blocks takes four bytes: once 34 ms for each message, and 235 MB.
        let (mut number, mut taken) = (0, 0);
        while number < 2500 && assembly.add(bulk(1, 1, number, 2000, 0, now + PATIENCE), now) == Assembled::Partial {
            number += 1;
            taken = assembly.weight;
        }
        let lists = number as usize * 2000;
        assert!(taken * 4 >= lists * size_of::<BlockList>(), "{lists} lists weigh {taken} ids");
        assert!(assembly.max_weight / 2 >= taken);
        let elapsed = start.elapsed();
        assert!(elapsed < Duration::from_secs(20), "{elapsed:?} for {number} messages");
        assert!(number > 500, "{number}");
    }
}
