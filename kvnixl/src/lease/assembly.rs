//! Registrations that arrive in several messages.

use std::collections::BTreeMap;
use std::time::Instant;

use kvplan::BlockList;

use super::identity::{PeerId, RequestId};
use super::push::{PushId, Registration};

/// Most registrations that have arrived in part.
const MAX_PARTIAL: usize = 1024;

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

/// Registrations that have arrived in part: bounded in number and block ids, and forgotten at their deadline.
#[derive(Debug)]
pub(crate) struct Assembly {
    partial: BTreeMap<PushId, (Registration, u32)>,
    num_ids: usize,
    max_ids: usize,
}

impl Assembly {
    pub(crate) fn new(max_ids: usize) -> Self {
        Self { partial: BTreeMap::new(), num_ids: 0, max_ids }
    }

    pub(crate) fn add(&mut self, chunk: Chunk) -> Assembled {
        let Chunk { id, request, lists, deadline, number, last } = chunk;
        let (mut whole, expected) = match self.take(&id) {
            Some(partial) => partial,
            None => (Registration { id, request: request.clone(), lists: Vec::new(), deadline }, 0),
        };
        if whole.request != request {
            return Assembled::Refused;
        }
        if number != expected {
            if expected > 0 {
                self.num_ids += whole.num_ids();
                self.partial.insert(whole.id.clone(), (whole, expected));
            }
            return if number < expected { Assembled::Partial } else { Assembled::Early };
        }
        append(&mut whole.lists, lists);
        if last {
            return Assembled::Whole(whole);
        }
        let num_ids = self.num_ids.checked_add(whole.num_ids()).filter(|&ids| ids <= self.max_ids);
        let (Some(num_ids), Some(next)) = (num_ids, number.checked_add(1)) else { return Assembled::Refused };
        if self.partial.len() >= MAX_PARTIAL {
            return Assembled::Refused;
        }
        self.num_ids = num_ids;
        self.partial.insert(whole.id.clone(), (whole, next));
        Assembled::Partial
    }

    /// Forgets one that is not wanted any more.
    pub(crate) fn take(&mut self, id: &PushId) -> Option<(Registration, u32)> {
        let partial = self.partial.remove(id)?;
        // Counted in when it was kept.
        self.num_ids -= partial.0.num_ids();
        Some(partial)
    }

    pub(crate) fn expire(&mut self, now: Instant) {
        self.forget(|registration| registration.deadline <= now);
    }

    /// Forgets those of a reader whose process has ended: the rest never comes.
    pub(crate) fn reader_gone(&mut self, reader: &PeerId) {
        self.forget(|registration| registration.id.reader == *reader);
    }

    fn forget(&mut self, which: impl Fn(&Registration) -> bool) {
        let which = self.partial.values().filter(|(registration, _)| which(registration));
        let ids: Vec<PushId> = which.map(|(registration, _)| registration.id.clone()).collect();
        for id in ids {
            self.take(&id);
        }
    }
}

/// Appends lists; one that goes on where the last one ended is the same list.
pub(crate) fn append(lists: &mut Vec<BlockList>, more: Vec<BlockList>) {
    for list in more {
        match lists.last_mut() {
            Some(last)
                if last.group == list.group && last.first.checked_add(last.blocks.len() as u64) == Some(list.first) =>
            {
                last.blocks.extend(list.blocks);
            }
            _ => lists.push(list),
        }
    }
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
        let lists = vec![BlockList { group: GroupId(0), first, blocks }];
        Chunk { id: id(), request: RequestId::new("r").unwrap(), lists, deadline, number, last }
    }

    #[test]
    fn chunks_in_order_make_one_registration() {
        let now = Instant::now();
        let mut assembly = Assembly::new(100);
        assert_eq!(assembly.add(chunk(0, false, 4, &[1, 2], now)), Assembled::Partial);
        let Assembled::Whole(whole) = assembly.add(chunk(1, true, 6, &[3], now)) else { panic!("not whole") };
        assert_eq!(whole.lists, [BlockList { group: GroupId(0), first: 4, blocks: [1, 2, 3].map(BlockId).into() }]);
        assert_eq!(assembly.num_ids, 0);
    }

    #[test]
    fn chunks_that_are_lost_or_come_again_are_waited_for_and_no_others() {
        let now = Instant::now();
        let mut assembly = Assembly::new(100);
        assert_eq!(assembly.add(chunk(1, false, 1, &[2], now)), Assembled::Early);
        assert_eq!((assembly.num_ids, assembly.partial.len()), (0, 0), "nothing is kept of it");
        assert_eq!(assembly.add(chunk(0, false, 0, &[1], now)), Assembled::Partial);
        assert_eq!(assembly.add(chunk(2, true, 2, &[3], now)), Assembled::Early);
        assert_eq!(assembly.add(chunk(0, false, 0, &[1], now)), Assembled::Partial, "again");
        assert_eq!(assembly.num_ids, 2);
        assert_eq!(assembly.add(chunk(1, false, 1, &[2], now)), Assembled::Partial);
        let Assembled::Whole(whole) = assembly.add(chunk(2, true, 2, &[3], now)) else { panic!("not whole") };
        assert_eq!(whole.lists, [BlockList { group: GroupId(0), first: 0, blocks: [1, 2, 3].map(BlockId).into() }]);
        assert_eq!((assembly.num_ids, assembly.partial.len()), (0, 0));
    }

    #[test]
    fn chunks_that_do_not_fit_drop_the_registration() {
        let now = Instant::now();
        let mut assembly = Assembly::new(5);
        assert_eq!(assembly.add(chunk(0, false, 0, &[1, 2], now)), Assembled::Partial);
        let other = Chunk { request: RequestId::new("other").unwrap(), ..chunk(1, true, 2, &[3], now) };
        assert_eq!(assembly.add(other), Assembled::Refused);
        assert_eq!(assembly.add(chunk(1, true, 2, &[3], now)), Assembled::Early, "the beginning was dropped");
        assert_eq!(assembly.add(chunk(0, false, 0, &[1, 2, 3, 4, 5, 6], now)), Assembled::Refused, "too many");
        assert_eq!(assembly.add(chunk(0, false, 0, &[1], now)), Assembled::Partial);
        assembly.expire(now + Duration::from_secs(1));
        assert_eq!((assembly.num_ids, assembly.partial.len()), (0, 0));
    }

    #[test]
    fn what_a_reader_left_in_part_goes_with_its_process() {
        let never = Instant::now() + Duration::from_secs(1 << 30);
        let mut assembly = Assembly::new(100);
        assert_eq!(assembly.add(chunk(0, false, 0, &[1, 2], never)), Assembled::Partial);
        assembly.reader_gone(&PeerId::new("decode", 2));
        assert_eq!(assembly.partial.len(), 1, "another process");
        assembly.reader_gone(&id().reader);
        assert_eq!((assembly.num_ids, assembly.partial.len()), (0, 0));
    }
}
