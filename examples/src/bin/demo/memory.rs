//! Memory that a peer reads and writes behind the compiler's back.

use std::alloc::{Layout, alloc_zeroed};

use crate::error::Error;

/// One allocation that lives as long as the process: whatever a transfer may still do, the memory is there.
#[derive(Debug)]
pub(crate) struct Memory {
    base: *mut u8,
    len: usize,
}

impl Memory {
    /// Allocates zeroed memory on a page boundary. Nothing is touched yet.
    pub(crate) fn new(len: u64) -> Result<Self, Error> {
        let refuse = || Error::Memory { len };
        let size = usize::try_from(len).ok().filter(|&size| size > 0).ok_or_else(refuse)?;
        let layout = Layout::from_size_align(size, 4096).map_err(|_| refuse())?;
        // SAFETY: the size is not zero.
        let base = unsafe { alloc_zeroed(layout) };
        if base.is_null() { Err(refuse()) } else { Ok(Self { base, len: size }) }
    }

    /// Address of the first byte.
    pub(crate) fn base(&self) -> u64 {
        self.base.expose_provenance() as u64
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len as u64
    }

    /// Copies `into.len()` bytes at `offset` out of the memory.
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) {
        let offset = self.check(offset, into.len());
        // SAFETY: inside the allocation, and a reference cannot overlap it, since none is ever made to it.
        unsafe { self.base.add(offset).copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) };
    }

    /// Copies `bytes` to `offset`.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) {
        let offset = self.check(offset, bytes.len());
        // SAFETY: as above.
        unsafe { self.base.add(offset).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// Copies `len` bytes at `from` in another memory to `to` in this one.
    pub(crate) fn copy_from(&self, to: u64, other: &Memory, from: u64, len: u64) {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let (to, from) = (self.check(to, len), other.check(from, len));
        // SAFETY: both inside their allocations, which differ.
        unsafe { other.base.add(from).copy_to_nonoverlapping(self.base.add(to), len) };
    }

    /// The demo's own arithmetic is at fault when this does not hold.
    fn check(&self, offset: u64, len: usize) -> usize {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = offset.checked_add(len);
        assert!(end.is_some_and(|end| end <= self.len), "{len} bytes at {offset} are outside {} bytes", self.len);
        offset
    }
}
