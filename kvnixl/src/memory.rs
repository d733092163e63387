//! Memory ranges: what is registered, and the proof that a descriptor stays inside it.

use kvplan::{Descriptor, MemoryRange, Side};
use kvspec::{MemKind, Storage, StorageIndex};

use crate::error::{Error, Result};
use crate::transport::Piece;

/// Address after the last byte; `None` when the range is empty or wraps.
fn end(range: &MemoryRange) -> Option<u64> {
    if range.len == 0 { None } else { range.base.checked_add(range.len) }
}

/// A range for people.
pub(crate) fn shown(range: &MemoryRange) -> String {
    let MemoryRange { storage, base, len, mem } = range;
    format!("[{base:#x}, +{len}) of storage {storage} ({mem:?})")
}

/// Registered ranges of one side, checked: none is empty, wraps, is of a storage at address 0, overlaps another or leaves its storage.
#[derive(Clone, Debug, Default)]
pub(crate) struct RangeTable {
    /// Sorted by storage, each once.
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    range: MemoryRange,
    /// Offset of the range in its storage.
    start: u64,
}

impl RangeTable {
    /// Checks the ranges against each other and against the storages that they name.
    pub(crate) fn new(side: Side, ranges: &[MemoryRange], storages: &[Storage]) -> Result<Self> {
        let mut sorted = ranges.to_vec();
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
        let mut entries = ranges
            .iter()
            .map(|range| Ok(Entry { range: *range, start: start_in_storage(side, range, storages)? }))
            .collect::<Result<Vec<_>>>()?;
        entries.sort_unstable_by_key(|entry| entry.range.storage);
        if let Some(twice) = entries.windows(2).find(|pair| pair[0].range.storage == pair[1].range.storage) {
            let (range, what) = (twice[0].range, "it is listed twice".to_owned());
            return Err(Error::RangeOutsideStorage { side, range, storage: range.storage, what });
        }
        Ok(Self { entries })
    }

    /// Address and memory kind of descriptor bytes, if all of them are registered.
    pub(crate) fn resolve(
        &self,
        side: Side,
        index: usize,
        storage: StorageIndex,
        offset: u64,
        len: u64,
    ) -> Result<(u64, MemKind)> {
        let entry = self.entry(storage);
        let inside = entry.and_then(|Entry { range, start }| {
            let skip = offset.checked_sub(*start)?;
            let within = len >= 1 && skip.checked_add(len)? <= range.len;
            // Cannot overflow: the end of the range does not.
            within.then(|| (range.base + skip, range.mem))
        });
        inside.ok_or_else(|| {
            let (start, registered) = entry.map_or((0, 0), |entry| (entry.start, entry.range.len));
            Error::OutOfRange { index, side, storage, offset, len, start, registered }
        })
    }

    fn entry(&self, storage: StorageIndex) -> Option<&Entry> {
        // As a rule every storage is registered, and its number is its place.
        let at_place = self.entries.get(storage.index()).filter(|entry| entry.range.storage == storage);
        at_place.or_else(|| {
            let at = self.entries.binary_search_by_key(&storage, |entry| entry.range.storage).ok()?;
            self.entries.get(at)
        })
    }

    /// Number of ranges.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The ranges, by storage.
    pub(crate) fn iter(&self) -> impl Iterator<Item = MemoryRange> + '_ {
        self.entries.iter().map(|entry| entry.range)
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
            Some(Storage { base, len, mem, .. }) => format!("[{base:#x}, +{len}) ({mem:?})"),
            None => format!("it has {} storages", storages.len()),
        };
        Error::RangeOutsideStorage { side, range: *range, storage: range.storage, what }
    })
}

/// Where the descriptors lie in memory.
pub(crate) fn pieces(descriptors: &[Descriptor], local: &RangeTable, remote: &RangeTable) -> Result<Vec<Piece>> {
    let mut pieces = Vec::with_capacity(descriptors.len());
    for (index, descriptor) in descriptors.iter().enumerate() {
        let Descriptor { local_storage, remote_storage, local_offset, remote_offset, len } = *descriptor;
        let (local, local_mem) = local.resolve(Side::Local, index, local_storage, local_offset, len)?;
        let (remote, remote_mem) = remote.resolve(Side::Remote, index, remote_storage, remote_offset, len)?;
        pieces.push(Piece { local, remote, len, local_mem, remote_mem });
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn storage(base: u64, len: u64) -> Storage {
        Storage { base, len, mem: MemKind::Dram, shared: false }
    }

    fn range(storage: u32, base: u64, len: u64) -> MemoryRange {
        MemoryRange { storage: StorageIndex(storage), base, len, mem: MemKind::Dram }
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
        let table = RangeTable::new(Side::Remote, &[range(0, 0x1010, 0x20)], &[storage(0x1000, 0x100)]).unwrap();
        let resolve = |storage, offset, len| table.resolve(Side::Remote, 3, StorageIndex(storage), offset, len);
        assert_eq!(resolve(0, 0x10, 0x20).unwrap(), (0x1010, MemKind::Dram));
        assert_eq!(resolve(0, 0x2f, 1).unwrap(), (0x102f, MemKind::Dram));
        for (storage, offset, len) in [
            (0, 0xf, 1),
            (0, 0x10, 0x21),
            (0, 0x30, 1),
            (0, 0x10, 0),
            (1, 0x10, 1),
            (0, u64::MAX, 2),
            (0, 0x20, u64::MAX),
        ] {
            let error = resolve(storage, offset, len).unwrap_err();
            assert!(matches!(error, Error::OutOfRange { index: 3, side: Side::Remote, .. }), "{error}");
        }
    }
}
