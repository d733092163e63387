//! `kvffi_error`: what went wrong, in full.

use std::ffi::{CString, c_char};

use crate::boundary::ffi_value;
use crate::failure::Failure;
use crate::handle::{self, Class, Kind};
use crate::status::{KVFFI_ERR_NULL, KVFFI_ERR_WRONG_HANDLE, kvffi_status};

/// What went wrong in one call: its status, the full text, and the findings where several things are wrong.
///
/// Owned by whoever received it through `out_error`; freed with kvffi_error_free.
#[derive(Debug)]
pub struct kvffi_error {
    _opaque: [u8; 0],
}

/// The texts of an error, NUL-terminated.
#[derive(Debug)]
pub(crate) struct Texts {
    status: kvffi_status,
    message: CString,
    findings: Vec<CString>,
}

impl Class for kvffi_error {
    type Inner = Texts;
    const KIND: Kind = Kind::ERROR;
}

impl kvffi_error {
    pub(crate) fn from_failure(failure: Failure) -> *mut Self {
        handle::into_handle(Texts {
            status: failure.status,
            message: c_text(failure.message),
            findings: failure.findings.into_iter().map(c_text).collect(),
        })
    }
}

/// A NUL inside a text, which only a name can contain, would end it early.
pub(crate) fn c_text(text: String) -> CString {
    let text = if text.contains('\0') { text.replace('\0', "\\0") } else { text };
    CString::new(text).unwrap_or_default()
}

/// The status that the failed call returned.
///
/// KVFFI_ERR_NULL if error is NULL, KVFFI_ERR_WRONG_HANDLE if it is no kvffi_error.
/// Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_error_status(error: *const kvffi_error) -> kvffi_status {
    ffi_value!(KVFFI_ERR_WRONG_HANDLE, {
        if error.is_null() {
            return KVFFI_ERR_NULL;
        }
        // SAFETY: the crate's contract.
        unsafe { handle::borrow(error, "error") }.map_or_else(|failure| failure.status, |texts| texts.status)
    })
}

/// The full text: UTF-8, NUL-terminated, possibly of several lines. Never NULL: an empty text if error is NULL or no
/// kvffi_error.
///
/// Valid until the error is freed. Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_error_message(error: *const kvffi_error) -> *const c_char {
    ffi_value!(c"".as_ptr(), {
        // SAFETY: the crate's contract.
        unsafe { handle::borrow(error, "error") }.map_or(c"".as_ptr(), |texts| texts.message.as_ptr())
    })
}

/// Number of findings: at least 1 for KVFFI_ERR_INVALID_SPEC and KVFFI_ERR_PAIR_REFUSED, otherwise 0.
///
/// 0 if error is NULL or no kvffi_error. Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_error_num_findings(error: *const kvffi_error) -> usize {
    ffi_value!(0, {
        // SAFETY: the crate's contract.
        unsafe { handle::borrow(error, "error") }.map_or(0, |texts| texts.findings.len())
    })
}

/// One of the things that are wrong, `0 <= index < kvffi_error_num_findings(error)`: UTF-8, NUL-terminated.
/// NULL if there is no such finding.
///
/// Valid until the error is freed. Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_error_finding(error: *const kvffi_error, index: usize) -> *const c_char {
    ffi_value!(std::ptr::null(), {
        // SAFETY: the crate's contract.
        let finding = unsafe { handle::borrow(error, "error") }.ok().and_then(|texts| texts.findings.get(index));
        finding.map_or(std::ptr::null(), |text| text.as_ptr())
    })
}

/// Frees an error. NULL does nothing.
///
/// Threads: no other call may use this error, then or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_error_free(error: *mut kvffi_error) {
    ffi_value!((), {
        // SAFETY: the crate's contract.
        unsafe { handle::free(error) }
    })
}
