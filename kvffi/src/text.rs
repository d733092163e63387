//! `kvffi_text`: a text that the caller owns.

use std::ffi::{CString, c_char};

use crate::boundary::ffi_value;
use crate::error::c_text;
use crate::handle::{self, Class, Kind};

/// A text: UTF-8 that ends with a NUL. Immutable.
///
/// Freed with kvffi_text_free.
#[derive(Debug)]
pub struct kvffi_text {
    _opaque: [u8; 0],
}

impl Class for kvffi_text {
    type Inner = CString;
    const KIND: Kind = Kind::TEXT;
}

impl kvffi_text {
    pub(crate) fn new(text: String) -> *mut Self {
        handle::into_handle(c_text(text))
    }
}

/// The text. Never NULL: an empty text if text is NULL or no kvffi_text.
///
/// Valid until the text is freed. Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_text_data(text: *const kvffi_text) -> *const c_char {
    ffi_value!(c"".as_ptr(), {
        // SAFETY: the crate's contract.
        unsafe { handle::borrow(text, "text") }.map_or(c"".as_ptr(), |text| text.as_ptr())
    })
}

/// Number of bytes, without the NUL; 0 if text is NULL or no kvffi_text.
///
/// Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_text_len(text: *const kvffi_text) -> usize {
    ffi_value!(0, {
        // SAFETY: the crate's contract.
        unsafe { handle::borrow(text, "text") }.map_or(0, |text| text.as_bytes().len())
    })
}

/// Frees a text. NULL does nothing.
///
/// Threads: no other call may use this text, then or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_text_free(text: *mut kvffi_text) {
    ffi_value!((), {
        // SAFETY: the crate's contract.
        unsafe { handle::free(text) }
    })
}
