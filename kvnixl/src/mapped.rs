//! Whether memory that is to be registered is there.
//!
//! A transport takes any address for registered, and the first transfer fails in words that name nobody; over TCP a
//! peer's read of such memory ends this process. So the kernel's list of mappings is looked at before: once for a whole
//! registration, however many storages and bytes that has, and no page is touched. Rejected: asking for each page
//! (`mincore`), which takes as long as the memory is large and says nothing of protection; and touching pages, which
//! would allocate them.
//!
//! The list is by address range, so huge pages are as any others. What it cannot tell is whether a mapped page can be
//! had: of a sparse file on a full tmpfs it says nothing, see `docs/settling.md`. Device memory is not in it.

use std::fs::File;
use std::io::{BufRead, BufReader};

use kvplan::MemoryRange;
use kvspec::MemKind;

use crate::error::{Error, Result};

/// As much of the list as is read at once.
const CHUNK: usize = 64 << 10;

/// Checks that all host memory is mapped, readable and writable: peers read a worker's caches, and write them.
///
/// The ranges do not overlap. Where the kernel's list cannot be read, as without `/proc`, nothing is checked.
pub(crate) fn check(ranges: &[MemoryRange]) -> Result<()> {
    let mut host: Vec<MemoryRange> = ranges.iter().copied().filter(|range| range.mem == MemKind::Dram).collect();
    if host.is_empty() {
        return Ok(());
    }
    host.sort_unstable_by_key(|range| range.base);
    // Of the thread: that of a process whose first thread has ended is empty.
    match File::open("/proc/thread-self/maps") {
        Ok(maps) => look(&host, BufReader::with_capacity(CHUNK, maps)),
        Err(error) => {
            tracing::warn!(%error, "cannot see what is mapped: memory is registered unchecked");
            Ok(())
        }
    }
}

/// One line of the list.
struct Mapping {
    start: u64,
    end: u64,
    /// Such as `rw-p`.
    permissions: [u8; 4],
}

impl Mapping {
    fn parse(line: &[u8]) -> Option<Self> {
        let hex = |digits: &[u8]| u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
        let mut words = line.split(|byte| *byte == b' ');
        let (range, permissions) = (words.next()?, words.next()?);
        let dash = range.iter().position(|byte| *byte == b'-')?;
        let (start, end) = (hex(&range[..dash])?, hex(&range[dash + 1..])?);
        Some(Self { start, end, permissions: permissions.try_into().ok()? })
    }

    fn is_usable(&self) -> bool {
        self.permissions.starts_with(b"rw")
    }
}

/// Goes through ranges and mappings together, both in order of address.
fn look(ranges: &[MemoryRange], mut maps: impl BufRead) -> Result<()> {
    let mut ranges = ranges.iter();
    let Some(mut range) = ranges.next() else { return Ok(()) };
    // The first byte that no mapping was found for yet.
    let mut at = range.base;
    let mut line = Vec::new();
    loop {
        line.clear();
        let mapping = match maps.read_until(b'\n', &mut line) {
            Ok(0) => return Err(missing(range, at, None)),
            Ok(_) => Mapping::parse(&line),
            Err(_) => None,
        };
        let Some(mapping) = mapping else {
            tracing::warn!("cannot understand what is mapped: memory is registered unchecked");
            return Ok(());
        };
        while at < mapping.end {
            if at < mapping.start {
                return Err(missing(range, at, None));
            }
            if !mapping.is_usable() {
                return Err(missing(range, at, Some(&mapping)));
            }
            // Cannot overflow: ranges that wrap were refused.
            let end = range.base.saturating_add(range.len);
            if end > mapping.end {
                at = mapping.end;
                break;
            }
            match ranges.next() {
                Some(next) => range = next,
                None => return Ok(()),
            }
            at = range.base;
        }
    }
}

fn missing(range: &MemoryRange, at: u64, mapping: Option<&Mapping>) -> Error {
    let permissions = mapping.map(|mapping| String::from_utf8_lossy(&mapping.permissions).into_owned());
    Error::NotMapped { range: *range, page: at - at % page_bytes(), permissions }
}

fn page_bytes() -> u64 {
    // SAFETY: no preconditions.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).ok().filter(|bytes| *bytes > 0).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use kvspec::StorageIndex;

    use super::*;

    const MAPS: &[u8] = b"00001000-00003000 rw-p 00000000 00:00 0 \n\
        00003000-00004000 rw-s 00000000 00:01 7 /memfd:a name\n\
        00004000-00005000 r--p 00000000 00:00 0 \n\
        00006000-00007000 ---p 00000000 00:00 0 \n\
        00007000-00008000 rw-p 00000000 00:00 0 [heap]\n";

    fn range(storage: u32, base: u64, len: u64) -> MemoryRange {
        MemoryRange { storage: StorageIndex(storage), base, len, mem: MemKind::Dram }
    }

    #[test]
    fn mapped_memory_passes_however_it_lies_in_the_mappings() {
        for ranges in [
            &[range(0, 0x1000, 0x3000)][..],
            &[range(0, 0x1000, 1), range(1, 0x1001, 0x10), range(2, 0x2fff, 0x1001)],
            &[range(0, 0x1000, 0x1000), range(1, 0x7fff, 1)],
        ] {
            look(ranges, MAPS).unwrap();
        }
    }

    #[test]
    fn the_first_page_that_is_not_there_is_named() {
        for (ranges, storage, page, permissions) in [
            (&[range(0, 0x800, 0x1000)][..], 0, 0, None),
            (&[range(0, 0x1000, 1), range(5, 0x3fff, 2)], 5, 0x4000, Some("r--p")),
            (&[range(1, 0x4800, 0x10)], 1, 0x4000, Some("r--p")),
            (&[range(1, 0x5010, 0x3000)], 1, 0x5000, None),
            (&[range(1, 0x6000, 0x2000)], 1, 0x6000, Some("---p")),
            (&[range(0, 0x7000, 0x1000), range(1, 0x8000, 1)], 1, 0x8000, None),
            (&[range(1, 0x7000, 0x1001)], 1, 0x8000, None),
            (&[range(1, u64::MAX - 1, 1)], 1, u64::MAX - 0xfff, None),
        ] {
            let error = look(ranges, MAPS).unwrap_err();
            let Error::NotMapped { range, page: found, permissions: seen } = error else { panic!("{error}") };
            assert_eq!((range.storage, found, seen.as_deref()), (StorageIndex(storage), page, permissions));
        }
    }

    #[test]
    fn a_mapping_that_grows_while_it_is_read_is_as_good() {
        let maps = b"00001000-00002000 rw-p 0 00:00 0\n00001000-00004000 rw-p 0 00:00 0\n";
        look(&[range(0, 0x1800, 0x2000)], &maps[..]).unwrap();
    }

    #[test]
    fn a_list_in_another_form_checks_nothing() {
        look(&[range(0, 0x1000, 1)], &b"no maps\n"[..]).unwrap();
    }
}
