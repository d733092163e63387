//! `kvffi_bytes`: bytes that the caller owns.

use crate::boundary::ffi_value;
use crate::handle::{self, Class, Kind};

/// Bytes of any kind. Immutable.
///
/// Freed with kvffi_bytes_free.
#[derive(Debug)]
pub struct kvffi_bytes {
    _opaque: [u8; 0],
}

impl Class for kvffi_bytes {
    type Inner = Vec<u8>;
    const KIND: Kind = Kind::BYTES;
}

impl kvffi_bytes {
    pub(crate) fn new(bytes: Vec<u8>) -> *mut Self {
        handle::into_handle(bytes)
    }
}

/// The bytes; NULL if there are none, or if bytes is NULL or no kvffi_bytes.
///
/// Valid until the bytes are freed. Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_bytes_data(bytes: *const kvffi_bytes) -> *const u8 {
    ffi_value!(std::ptr::null(), {
        // SAFETY: the crate's contract.
        let bytes = unsafe { handle::borrow(bytes, "bytes") }.ok().filter(|bytes| !bytes.is_empty());
        bytes.map_or(std::ptr::null(), |bytes| bytes.as_ptr())
    })
}

/// Number of bytes; 0 if bytes is NULL or no kvffi_bytes.
///
/// Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_bytes_len(bytes: *const kvffi_bytes) -> usize {
    ffi_value!(0, {
        // SAFETY: the crate's contract.
        unsafe { handle::borrow(bytes, "bytes") }.map_or(0, Vec::len)
    })
}

/// Frees bytes. NULL does nothing.
///
/// Threads: no other call may use these bytes, then or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_bytes_free(bytes: *mut kvffi_bytes) {
    ffi_value!((), {
        // SAFETY: the crate's contract.
        unsafe { handle::free(bytes) }
    })
}
