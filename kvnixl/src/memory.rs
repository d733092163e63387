//! What is registered, and the proof that a descriptor stays inside it.
//!
//! A storage is registered as a whole, and one that has grown in pieces: what there was stays as it is, in use and known
//! to peers, and the rest is registered beside it. A request to NIXL may not span two pieces, so descriptors are cut
//! where they meet, by the pieces of both sides.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kvplan::{Descriptor, MemoryRange, Side};
use kvspec::{MemKind, Storage, StorageIndex};

use crate::error::{Error, Result};
use crate::gate::InUse;
use crate::transport::Piece;

/// Address after the last byte; `None` when the range is empty or wraps.
fn end(range: &MemoryRange) -> Option<u64> {
    if range.len == 0 { None } else { range.base.checked_add(range.len) }
}

/// A range for people.
pub(crate) fn shown(range: &MemoryRange) -> String {
    let MemoryRange { storage, base, len, mem } = range;
    format!("[{base:#x}, +{len}) of storage {storage} ({mem})")
}

/// Memory that is registered in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Registered {
    /// The memory, all of a storage or a part of it.
    pub(crate) range: MemoryRange,
    /// The generation of the agent's registrations that it came with: registered again it is another registration.
    pub(crate) since: u64,
}

impl Registered {
    /// Whether it is the same registration, whatever number its storage has now.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.since == other.since && is_same_memory(&self.range, &other.range)
    }

    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let (a, b) = (&self.range, &other.range);
        let begins_before_end_of = |a: &MemoryRange, b: &MemoryRange| end(b).is_none_or(|end| a.base < end);
        a.mem == b.mem && begins_before_end_of(a, b) && begins_before_end_of(b, a)
    }
}

/// Whether two ranges are the same memory, whatever number their storage has.
pub(crate) fn is_same_memory(a: &MemoryRange, b: &MemoryRange) -> bool {
    (a.mem, a.base, a.len) == (b.mem, b.base, b.len)
}

/// Pieces that one storage may be registered in. What is moved is cut where they meet, so a peer could else have one
/// descriptor cut into any number.
pub(crate) const MAX_PIECES_OF_STORAGE: usize = 64;

/// Registered memory of one side, checked: no piece is empty, wraps, is of a storage at address 0, overlaps another or
/// leaves its storage.
#[derive(Clone, Debug, Default)]
pub(crate) struct RangeTable {
    /// Sorted by storage and offset.
    entries: Vec<Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    registered: Registered,
    /// Offset of the piece in its storage.
    start: u64,
    /// Transfers of this agent that use it and have not settled.
    uses: Arc<AtomicUsize>,
}

impl Entry {
    fn has(&self, offset: u64) -> bool {
        offset.checked_sub(self.start).is_some_and(|skip| skip < self.registered.range.len)
    }

    fn storage(&self) -> StorageIndex {
        self.registered.range.storage
    }
}

/// Where bytes of a storage lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    address: u64,
    mem: MemKind,
    /// Bytes up to the end of the piece, at least 1.
    left: u64,
}

impl RangeTable {
    /// Checks what is registered against itself and against the storages that it names.
    pub(crate) fn new(side: Side, registered: &[Registered], storages: &[Storage]) -> Result<Self> {
        let mut sorted: Vec<MemoryRange> = registered.iter().map(|registered| registered.range).collect();
        sorted.sort_unstable_by_key(|range| (range.mem, range.base));
        for range in &sorted {
            // A tensor that has no memory.
            let is_nowhere = storages.get(range.storage.index()).is_some_and(|storage| storage.base == 0);
            if is_nowhere || end(range).is_none() {
                return Err(Error::BadRange { range: *range });
            }
        }
        for pair in sorted.windows(2) {
            let [first, second] = [pair[0], pair[1]];
            if first.mem == second.mem && end(&first).is_none_or(|end| end > second.base) {
                return Err(Error::OverlappingRanges { first, second });
            }
        }
        let entry = |registered: &Registered| {
            let start = start_in_storage(side, &registered.range, storages)?;
            Ok(Entry { registered: *registered, start, uses: Arc::default() })
        };
        let mut entries = registered.iter().map(entry).collect::<Result<Vec<_>>>()?;
        entries.sort_unstable_by_key(|entry| (entry.storage(), entry.start));
        for pieces in entries.chunk_by(|a, b| a.storage() == b.storage()) {
            if pieces.len() > MAX_PIECES_OF_STORAGE {
                let (storage, pieces) = (pieces[0].storage(), pieces.len());
                return Err(Error::TooManyPieces { side, storage, pieces, max: MAX_PIECES_OF_STORAGE });
            }
        }
        Ok(Self { entries })
    }

    /// Takes over the counts of what both have registered.
    pub(crate) fn counting_as(mut self, other: &Self) -> Self {
        for entry in &mut self.entries {
            if let Some(same) = other.entries.iter().find(|same| same.registered.is_same(&entry.registered)) {
                entry.uses = same.uses.clone();
            }
        }
        self
    }

    /// Which pieces lie within these ranges, by the storages that those name, and which do not.
    pub(crate) fn within(&self, ranges: &[MemoryRange]) -> (Vec<Registered>, Vec<Registered>) {
        let mut sorted = ranges.to_vec();
        sorted.sort_unstable_by_key(|range| (range.mem, range.base));
        let (mut inside, mut outside) = (Vec::new(), Vec::new());
        for registered in self.iter() {
            let Registered { range: MemoryRange { base, len, mem, .. }, since } = registered;
            let behind = sorted.partition_point(|range| (range.mem, range.base) <= (mem, base));
            let around = behind.checked_sub(1).map(|at| sorted[at]).filter(|around| around.mem == mem);
            // Cannot overflow: the ends of ranges were checked.
            match around.filter(|around| base + len <= around.base + around.len) {
                Some(MemoryRange { storage, .. }) => {
                    inside.push(Registered { range: MemoryRange { storage, base, len, mem }, since });
                }
                None => outside.push(registered),
            }
        }
        (inside, outside)
    }

    /// The same without some of it.
    pub(crate) fn without(&self, gone: &[Registered]) -> Self {
        let stays = |entry: &&Entry| !gone.iter().any(|gone| gone.is_same(&entry.registered));
        Self { entries: self.entries.iter().filter(stays).cloned().collect() }
    }

    /// Transfers of this agent that use some of it and have not settled; one that uses several pieces counts for each.
    pub(crate) fn uses_of(&self, some: &[Registered]) -> usize {
        let entries = self.entries.iter().filter(|entry| some.iter().any(|one| one.is_same(&entry.registered)));
        entries.map(|entry| entry.uses.load(Ordering::Acquire)).sum()
    }

    /// Counts a transfer of these descriptors, as long as the values live. Every descriptor was resolved.
    pub(crate) fn use_for(&self, descriptors: &[Descriptor]) -> Vec<InUse> {
        let mut used = vec![false; self.entries.len()];
        let mut last: Option<(StorageIndex, Range<u64>)> = None;
        for Descriptor { local_storage, local_offset, len, .. } in descriptors {
            // As a rule a transfer stays within one piece.
            if let Some((storage, bytes)) = &last
                && storage == local_storage
                && bytes.contains(local_offset)
                && bytes.end - local_offset >= *len
            {
                continue;
            }
            let first = self.entries.partition_point(|entry| {
                (entry.storage(), entry.start.saturating_add(entry.registered.range.len))
                    <= (*local_storage, *local_offset)
            });
            let end = local_offset.saturating_add(*len);
            for (at, entry) in self.entries.iter().enumerate().skip(first) {
                if entry.storage() != *local_storage || entry.start >= end {
                    break;
                }
                used[at] = true;
                last = Some((*local_storage, entry.start..entry.start.saturating_add(entry.registered.range.len)));
            }
        }
        let entries = self.entries.iter().zip(used).filter(|(_, used)| *used);
        entries.map(|(entry, _)| InUse::new(&entry.uses)).collect()
    }

    /// Where a byte of a storage lies, if it is registered.
    fn place(&self, storage: StorageIndex, offset: u64) -> Option<Place> {
        let entry = self.entry(storage, offset)?;
        let MemoryRange { base, len, mem, .. } = entry.registered.range;
        let skip = offset - entry.start;
        // Cannot overflow: the end of the range does not.
        Some(Place { address: base + skip, mem, left: len - skip })
    }

    fn entry(&self, storage: StorageIndex, offset: u64) -> Option<&Entry> {
        // As a rule every storage is registered, in one piece, and its number is its place.
        let has = |entry: &&Entry| entry.storage() == storage && entry.has(offset);
        self.entries.get(storage.index()).filter(has).or_else(|| {
            let behind = self.entries.partition_point(|entry| (entry.storage(), entry.start) <= (storage, offset));
            self.entries.get(behind.checked_sub(1)?).filter(has)
        })
    }

    fn out_of_range(&self, side: Side, index: usize, storage: StorageIndex, offset: u64, len: u64) -> Error {
        let mut pieces = self.entries.iter().filter(|entry| entry.storage() == storage).peekable();
        let start = pieces.peek().map_or(0, |entry| entry.start);
        let registered = pieces.map(|entry| entry.registered.range.len).sum();
        Error::OutOfRange { index, side, storage, offset, len, start, registered }
    }

    /// Number of pieces.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// What is registered, by storage and offset.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Registered> + '_ {
        self.entries.iter().map(|entry| entry.registered)
    }
}

fn start_in_storage(side: Side, range: &MemoryRange, storages: &[Storage]) -> Result<u64> {
    let storage = storages.get(range.storage.index());
    let start = storage.and_then(|storage| {
        let start = range.base.checked_sub(storage.base)?;
        let within = start.checked_add(range.len)? <= storage.len && range.mem == storage.mem;
        within.then_some(start)
    });
    start.ok_or_else(|| {
        let what = match storage {
            Some(Storage { base, len, mem, .. }) => format!("[{base:#x}, +{len}) ({mem})"),
            None => format!("it has {} storages", storages.len()),
        };
        Error::RangeOutsideStorage { side, range: *range, storage: range.storage, what }
    })
}

/// Where the descriptors lie in memory, cut where pieces of what is registered meet.
pub(crate) fn pieces(descriptors: &[Descriptor], local: &RangeTable, remote: &RangeTable) -> Result<Vec<Piece>> {
    let mut pieces = Vec::with_capacity(descriptors.len());
    for (index, descriptor) in descriptors.iter().enumerate() {
        let Descriptor { local_storage, remote_storage, local_offset, remote_offset, len } = *descriptor;
        if len == 0 {
            return Err(local.out_of_range(Side::Local, index, local_storage, local_offset, len));
        }
        let mut done = 0;
        while done < len {
            // Cannot overflow: the bytes so far were inside of pieces.
            let here = local.place(local_storage, local_offset + done);
            let here = here.ok_or_else(|| local.out_of_range(Side::Local, index, local_storage, local_offset, len))?;
            let there = remote.place(remote_storage, remote_offset + done);
            let there = there.ok_or_else(|| {
                // Where both sides are too short, this one is named.
                let last = local_offset.checked_add(len - 1).and_then(|last| local.place(local_storage, last));
                match last {
                    Some(_) => remote.out_of_range(Side::Remote, index, remote_storage, remote_offset, len),
                    None => local.out_of_range(Side::Local, index, local_storage, local_offset, len),
                }
            })?;
            let len = (len - done).min(here.left).min(there.left);
            pieces.push(Piece {
                local: here.address,
                remote: there.address,
                len,
                local_mem: here.mem,
                remote_mem: there.mem,
            });
            done += len;
        }
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn storage(base: u64, len: u64) -> Storage {
        Storage { base, len, mem: MemKind::Dram, shared: false }
    }

    fn range(storage: u32, base: u64, len: u64) -> Registered {
        Registered { range: MemoryRange { storage: StorageIndex(storage), base, len, mem: MemKind::Dram }, since: 1 }
    }

    fn descriptor(local_offset: u64, remote_offset: u64, len: u64) -> Descriptor {
        let storage = StorageIndex(0);
        Descriptor { local_storage: storage, remote_storage: storage, local_offset, remote_offset, len }
    }

    #[test]
    fn overlapping_ranges_are_refused() {
        let storages = [storage(0x1000, 0x100), storage(0x10ff, 0x100)];
        let error = RangeTable::new(Side::Local, &[range(0, 0x1000, 0x100), range(1, 0x10ff, 0x100)], &storages);
        assert!(matches!(error, Err(Error::OverlappingRanges { .. })));
    }

    #[test]
    fn a_range_that_is_empty_nowhere_wraps_or_leaves_its_storage_is_refused() {
        let storages = [storage(0x1000, 0x100)];
        for bad in [range(0, 0x1000, 0), range(0, u64::MAX, 2)] {
            let error = RangeTable::new(Side::Local, &[bad], &storages);
            assert!(matches!(error, Err(Error::BadRange { .. })), "{bad:?}");
        }
        for bad in [range(0, 0, 0x100), range(0, 0x10, 1)] {
            let error = RangeTable::new(Side::Local, &[bad], &[storage(0, 0x100)]);
            assert!(matches!(error, Err(Error::BadRange { .. })), "at address 0: {bad:?}");
        }
        for bad in [range(0, 0x1000, 0x101), range(0, 0xfff, 1), range(1, 0x1000, 1)] {
            let error = RangeTable::new(Side::Local, &[bad], &storages);
            assert!(matches!(error, Err(Error::RangeOutsideStorage { .. })), "{bad:?}");
        }
    }

    #[test]
    fn descriptor_bytes_resolve_only_inside_their_range() {
        let everything = RangeTable::new(Side::Local, &[range(0, 0x10_0000, 0x1000)], &[storage(0x10_0000, 0x1000)]);
        let everything = everything.unwrap();
        let table = RangeTable::new(Side::Remote, &[range(0, 0x1010, 0x20)], &[storage(0x1000, 0x100)]).unwrap();
        let resolve = |storage, offset, len| {
            let descriptor = Descriptor { remote_storage: StorageIndex(storage), ..descriptor(0, offset, len) };
            pieces(&[descriptor], &everything, &table).map(|pieces| pieces[0].remote)
        };
        assert_eq!(resolve(0, 0x10, 0x20).unwrap(), 0x1010);
        assert_eq!(resolve(0, 0x2f, 1).unwrap(), 0x102f);
        for (storage, offset, len) in [(0, 0xf, 1), (0, 0x10, 0x21), (0, 0x30, 1), (1, 0x10, 1), (0, u64::MAX, 2)] {
            let error = resolve(storage, offset, len).unwrap_err();
            assert!(matches!(error, Error::OutOfRange { index: 0, side: Side::Remote, .. }), "{error}");
        }
        let both = resolve(0, 0x20, u64::MAX).unwrap_err();
        assert!(matches!(both, Error::OutOfRange { index: 0, side: Side::Local, .. }), "{both}");
        let empty = resolve(0, 0x10, 0).unwrap_err();
        assert!(matches!(empty, Error::OutOfRange { index: 0, len: 0, .. }), "{empty}");
        assert_eq!(empty.to_string(), "descriptor 0 has a length of 0; leave it out");
    }

    #[test]
    fn descriptors_are_cut_where_pieces_of_either_side_meet() {
        let storages = [storage(0x1000, 0x100), storage(0x2000, 0x100)];
        let local = [range(1, 0x2000, 0x100), range(0, 0x1000, 0x40), range(0, 0x1040, 0x20), range(0, 0x1080, 0x80)];
        let local = RangeTable::new(Side::Local, &local, &storages).unwrap();
        let remote = [range(0, 0x1000, 0x50), range(0, 0x1050, 0xb0)];
        let remote = RangeTable::new(Side::Remote, &remote, &storages).unwrap();
        let cut = |from, to, len| -> Vec<[u64; 3]> {
            let pieces = pieces(&[descriptor(from, to, len)], &local, &remote).unwrap();
            pieces.iter().map(|piece| [piece.local, piece.remote, piece.len]).collect()
        };
        assert_eq!(cut(0, 0, 0x40), [[0x1000, 0x1000, 0x40]]);
        assert_eq!(cut(0x10, 0x10, 0x50), [[0x1010, 0x1010, 0x30], [0x1040, 0x1040, 0x10], [0x1050, 0x1050, 0x10]]);
        assert_eq!(cut(0x3f, 0x4f, 2), [[0x103f, 0x104f, 1], [0x1040, 0x1050, 1]]);
        // Between the second and the third piece nothing is registered.
        let error = pieces(&[descriptor(0x50, 0, 0x11)], &local, &remote).unwrap_err();
        let Error::OutOfRange { offset: 0x50, len: 0x11, start: 0, registered: 0xe0, .. } = error else {
            panic!("{error}")
        };
        // A transfer uses the pieces that it touches.
        let [first, second, third] = [range(0, 0x1000, 0x40), range(0, 0x1040, 0x20), range(0, 0x1080, 0x80)];
        let uses = || [first, second, third].map(|piece| local.uses_of(&[piece]));
        for (descriptors, expected) in [
            (vec![descriptor(0x3f, 0, 1), descriptor(0, 0, 4)], [1, 0, 0]),
            (vec![descriptor(0x3f, 0, 2), descriptor(0x80, 0, 1)], [1, 1, 1]),
            (vec![descriptor(0x40, 0, 0x20)], [0, 1, 0]),
            (vec![descriptor(0xff, 0, 1), descriptor(0xfe, 0, 1)], [0, 0, 1]),
        ] {
            let used = local.use_for(&descriptors);
            assert_eq!(uses(), expected);
            drop(used);
            assert_eq!(uses(), [0; 3]);
        }
    }

    #[test]
    fn a_storage_has_a_bounded_number_of_pieces() {
        let storages = [storage(0x1000, 0x1000)];
        let pieces = |num: u64| (0..num).map(|i| range(0, 0x1000 + i, 1)).collect::<Vec<_>>();
        RangeTable::new(Side::Remote, &pieces(64), &storages).unwrap();
        let error = RangeTable::new(Side::Remote, &pieces(65), &storages).unwrap_err();
        assert!(matches!(error, Error::TooManyPieces { pieces: 65, max: 64, .. }), "{error}");
    }
}
