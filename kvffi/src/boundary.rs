//! Where Rust ends: every function body runs inside one of three macros, so that no panic reaches C.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::kvffi_error;
use crate::failure::Failure;
use crate::status::{KVFFI_ERR_PANIC, KVFFI_OK, kvffi_status};

/// The body of a function that returns a status: `Ok(())` is [`KVFFI_OK`], a [`Failure`] goes to `out_error`.
macro_rules! ffi_body {
    ($out_error:ident, $body:block) => {
        crate::boundary::status($out_error, || -> Result<(), crate::failure::Failure> { $body })
    };
}

/// The body of a function that may also return a success that is not [`KVFFI_OK`].
macro_rules! ffi_progress {
    ($out_error:ident, $body:block) => {
        crate::boundary::progress($out_error, || -> Result<crate::status::kvffi_status, crate::failure::Failure> {
            $body
        })
    };
}

/// The body of a function that cannot fail; `fallback` is what it returns if it panics after all.
macro_rules! ffi_value {
    ($fallback:expr, $body:block) => {
        crate::boundary::value(|| $body).unwrap_or($fallback)
    };
}

pub(crate) use {ffi_body, ffi_progress, ffi_value};

/// Runs a body and turns what it returns, or its panic, into a status and an error object.
pub(crate) fn status(out_error: *mut *mut kvffi_error, body: impl FnOnce() -> Result<(), Failure>) -> kvffi_status {
    progress(out_error, || body().map(|()| KVFFI_OK))
}

/// As [`status`], for a body that says which success it is.
pub(crate) fn progress(
    out_error: *mut *mut kvffi_error,
    body: impl FnOnce() -> Result<kvffi_status, Failure>,
) -> kvffi_status {
    let writable = !out_error.is_null() && out_error.is_aligned();
    if writable {
        // SAFETY: by contract a non-NULL `out_error` points to writable space for a pointer; it is aligned.
        unsafe { out_error.write(std::ptr::null_mut()) };
    }
    // The objects behind a handle are immutable or behind a lock that notices panics.
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(status)) => return status,
        Ok(Err(failure)) => failure,
        Err(payload) => {
            let text = panic_text(payload);
            Failure::new(KVFFI_ERR_PANIC, format!("a defect of kvffi, please report it: {text}"))
        }
    };
    let status = failure.status;
    if writable && let Some(error) = value(|| kvffi_error::from_failure(failure)) {
        // SAFETY: as above.
        unsafe { out_error.write(error) };
    }
    status
}

/// Runs a body; `None` if it panics.
pub(crate) fn value<T>(body: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(value) => Some(value),
        Err(payload) => {
            panic_text(payload);
            None
        }
    }
}

/// The text of a panic. The payload is never dropped: its destructor could panic in turn.
fn panic_text(payload: Box<dyn Any + Send>) -> String {
    let text = match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        _ => "a panic without text".to_owned(),
    };
    std::mem::forget(payload);
    text
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;
    use crate::error::{kvffi_error_free, kvffi_error_message, kvffi_error_status};

    #[test]
    fn a_panic_becomes_a_status_and_a_text() {
        let mut error = std::ptr::null_mut();
        let status = status(&raw mut error, || panic!("block {} went missing", 7));
        assert_eq!(status, KVFFI_ERR_PANIC);
        // SAFETY: `error` was handed out above and is freed once.
        unsafe {
            assert_eq!(kvffi_error_status(error), KVFFI_ERR_PANIC);
            let text = CStr::from_ptr(kvffi_error_message(error)).to_str().unwrap();
            assert_eq!(text, "a defect of kvffi, please report it: block 7 went missing");
            kvffi_error_free(error);
        }
    }

    #[test]
    fn a_panic_without_a_place_for_the_error_still_becomes_a_status() {
        assert_eq!(status(std::ptr::null_mut(), || panic!("lost")), KVFFI_ERR_PANIC);
    }

    #[test]
    fn a_payload_that_panics_when_dropped_does_not_cross() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("in the destructor of a payload");
            }
        }
        assert_eq!(value(|| std::panic::panic_any(Bomb)), None::<()>);
    }
}
