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
//!
//! A process with NIXL in it has a thousand mappings, and writing them as text takes the kernel a third of a millisecond.
//! One of version 6.11 or newer is asked for single ones.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::fd::AsRawFd;

use kvplan::MemoryRange;
use kvspec::MemKind;

use crate::error::{Error, Result};

/// Of the thread: the list of a process whose first thread has ended is empty.
const MAPS: &str = "/proc/thread-self/maps";

/// As much of the list as is read at once.
const CHUNK: usize = 64 << 10;

/// Checks that all host memory is mapped, readable and writable: peers read a worker's caches, and write them.
///
/// The ranges do not overlap. Where the kernel's list cannot be read, as without `/proc`, nothing is checked.
pub(crate) fn check(ranges: &[MemoryRange]) -> Result<()> {
    let mut host: Vec<MemoryRange> = ranges.iter().copied().filter(|range| range.mem == MemKind::Dram).collect();
    host.sort_unstable_by_key(|range| range.base);
    let Some(first) = host.first() else { return Ok(()) };
    let found = File::open(MAPS).and_then(|maps| match ask(&maps, first.base) {
        Ok(_) => look(&host, |at| ask(&maps, at)),
        Err(_) => {
            let mut maps = BufReader::with_capacity(CHUNK, maps);
            look(&host, |at| read(&mut maps, at))
        }
    });
    match found {
        Ok(None) => Ok(()),
        Ok(Some(missing)) => Err(missing),
        Err(error) => {
            tracing::warn!(%error, "cannot see what is mapped: memory is registered unchecked");
            Ok(())
        }
    }
}

/// One mapping of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// The next mapping of the text that ends behind an address. Addresses go up from call to call.
fn read(maps: &mut impl BufRead, at: u64) -> io::Result<Option<Mapping>> {
    let mut line = Vec::new();
    loop {
        line.clear();
        if maps.read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        let mapping = Mapping::parse(&line).ok_or_else(|| io::Error::other("a line of another form"))?;
        if mapping.end > at {
            return Ok(Some(mapping));
        }
    }
}

/// What the kernel is asked, and its answer: `struct procmap_query` of `linux/fs.h`.
#[repr(C)]
#[derive(Default)]
struct Query {
    size: u64,
    query_flags: u64,
    query_addr: u64,
    vma_start: u64,
    vma_end: u64,
    vma_flags: u64,
    vma_page_size: u64,
    vma_offset: u64,
    inode: u64,
    dev: [u32; 2],
    vma_name_size: u32,
    build_id_size: u32,
    vma_name_addr: u64,
    build_id_addr: u64,
}

/// `_IOWR('f', 17, struct procmap_query)`.
const PROCMAP_QUERY: u32 = 0xc068_6611;
const _: () = assert!(size_of::<Query>() == 0x68);
/// The mapping that has the address, or the next one.
const COVERING_OR_NEXT: u64 = 0x10;
/// Flags of a mapping, with their letters.
const FLAGS: [(u64, u8); 3] = [(1, b'r'), (2, b'w'), (4, b'x')];
const SHARED: u64 = 8;

/// The next mapping that ends behind an address, from a kernel that can be asked for it.
fn ask(maps: &File, at: u64) -> io::Result<Option<Mapping>> {
    let mut query =
        Query { size: size_of::<Query>() as u64, query_flags: COVERING_OR_NEXT, query_addr: at, ..Query::default() };
    // SAFETY: the kernel reads and writes one live struct of the size that it is told.
    let status = unsafe { libc::ioctl(maps.as_raw_fd(), PROCMAP_QUERY.into(), &raw mut query) };
    if status != 0 {
        let error = io::Error::last_os_error();
        return if error.raw_os_error() == Some(libc::ENOENT) { Ok(None) } else { Err(error) };
    }
    let mut permissions = *b"---p";
    for (letter, (flag, shown)) in permissions.iter_mut().zip(FLAGS) {
        if query.vma_flags & flag != 0 {
            *letter = shown;
        }
    }
    if query.vma_flags & SHARED != 0 {
        permissions[3] = b's';
    }
    Ok(Some(Mapping { start: query.vma_start, end: query.vma_end, permissions }))
}

/// Goes through ranges and mappings together, both in order of address; what is wrong, if anything is.
///
/// `next` is the mapping that has an address or comes behind it.
fn look(ranges: &[MemoryRange], mut next: impl FnMut(u64) -> io::Result<Option<Mapping>>) -> io::Result<Option<Error>> {
    let mut mapping: Option<Mapping> = None;
    for range in ranges {
        // The first byte that no mapping was found for yet.
        let mut at = range.base;
        // Cannot overflow: ranges that wrap were refused.
        let end = range.base.saturating_add(range.len);
        while at < end {
            let here = match mapping.filter(|mapping| mapping.end > at) {
                Some(mapping) => mapping,
                None => match next(at)? {
                    Some(found) => found,
                    None => return Ok(Some(missing(range, at, None))),
                },
            };
            if here.start > at {
                return Ok(Some(missing(range, at, None)));
            }
            if !here.is_usable() {
                return Ok(Some(missing(range, at, Some(&here))));
            }
            mapping = Some(here);
            at = here.end;
        }
    }
    Ok(None)
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

    fn look_in(ranges: &[MemoryRange], mut maps: &[u8]) -> Result<(), Error> {
        look(ranges, |at| read(&mut maps, at)).unwrap().map_or(Ok(()), Err)
    }

    #[test]
    fn mapped_memory_passes_however_it_lies_in_the_mappings() {
        for ranges in [
            &[range(0, 0x1000, 0x3000)][..],
            &[range(0, 0x1000, 1), range(1, 0x1001, 0x10), range(2, 0x2fff, 0x1001)],
            &[range(0, 0x1000, 0x1000), range(1, 0x7fff, 1)],
        ] {
            look_in(ranges, MAPS).unwrap();
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
            let error = look_in(ranges, MAPS).unwrap_err();
            let Error::NotMapped { range, page: found, permissions: seen } = error else { panic!("{error}") };
            assert_eq!((range.storage, found, seen.as_deref()), (StorageIndex(storage), page, permissions));
        }
    }

    #[test]
    fn a_mapping_that_grows_while_it_is_read_is_as_good() {
        let maps = b"00001000-00002000 rw-p 0 00:00 0\n00001000-00004000 rw-p 0 00:00 0\n";
        look_in(&[range(0, 0x1800, 0x2000)], &maps[..]).unwrap();
    }

    #[test]
    fn a_list_in_another_form_is_not_understood() {
        assert!(look(&[range(0, 0x1000, 1)], |at| read(&mut &b"no maps\n"[..], at)).is_err());
    }

    #[test]
    fn a_kernel_that_is_asked_says_what_its_text_says() {
        let maps = File::open(super::MAPS).unwrap();
        if let Err(error) = ask(&maps, 0) {
            println!("skipped: this kernel cannot be asked: {error}");
            return;
        }
        // Of the program itself, which does not change under the test.
        let text = std::fs::read(super::MAPS).unwrap();
        let program = std::env::current_exe().unwrap();
        let mut seen = 0;
        for line in
            text.split(|byte| *byte == b'\n').filter(|line| line.ends_with(program.as_os_str().as_encoded_bytes()))
        {
            let mapping = Mapping::parse(line).unwrap();
            assert_eq!(ask(&maps, mapping.start).unwrap(), Some(mapping));
            assert_eq!(ask(&maps, mapping.end - 1).unwrap(), Some(mapping));
            seen += 1;
        }
        assert!(seen >= 2);
        assert_eq!(ask(&maps, u64::MAX - 4096).unwrap(), None);
    }

    #[test]
    fn device_memory_is_not_looked_at() {
        let device = MemoryRange { mem: MemKind::Vram(0), ..range(0, 0x1000, 0x1000) };
        check(&[device]).unwrap();
        check(&[range(0, 0, 0x1000)]).unwrap_err();
    }
}
