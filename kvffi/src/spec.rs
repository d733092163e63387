//! `kvffi_spec`: what caches one worker has, checked whole.

use std::ffi::c_char;

use kvspec::{CacheSpec, ValidSpec};

use crate::argument::{out_handle, text};
use crate::boundary::{ffi_body, ffi_value};
use crate::error::kvffi_error;
use crate::handle::{self, Class, Kind};
use crate::status::kvffi_status;
use crate::text::kvffi_text;

/// What caches one worker has: storages, groups, layers, parts, topology. Validated and immutable.
///
/// Freed with kvffi_spec_free, at any time: what was made from a spec keeps what it needs.
#[derive(Debug)]
pub struct kvffi_spec {
    _opaque: [u8; 0],
}

impl Class for kvffi_spec {
    type Inner = ValidSpec;
    const KIND: Kind = Kind::SPEC;
}

/// Reads a spec from its JSON form and validates it.
///
/// json, json_len: UTF-8 text of json_len bytes; a NUL at its end is neither needed nor counted.
/// out_spec: the spec, to be freed with kvffi_spec_free; NULL if the call fails.
///
/// KVFFI_ERR_JSON names the field that is wrong. KVFFI_ERR_INVALID_SPEC has everything that is wrong with the spec, one
/// finding each. KVFFI_ERR_NOT_UTF8. Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_spec_from_json(
    json: *const c_char,
    json_len: usize,
    out_spec: *mut *mut kvffi_spec,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (out_spec, json) = unsafe { (out_handle(out_spec, "out_spec")?, text(json, json_len, "json")?) };
        let spec = CacheSpec::from_json(json)?.validate()?;
        out_spec.set(handle::into_handle(spec));
        Ok(())
    })
}

/// Writes a spec in its JSON form, indented; kvffi_spec_from_json reads it back to an equal spec.
///
/// out_json: the text, to be freed with kvffi_text_free; NULL if the call fails.
///
/// Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_spec_to_json(
    spec: *const kvffi_spec,
    out_json: *mut *mut kvffi_text,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (out_json, spec) = unsafe { (out_handle(out_json, "out_json")?, handle::borrow(spec, "spec")?) };
        out_json.set(kvffi_text::new(spec.to_json()?));
        Ok(())
    })
}

/// Frees a spec. NULL does nothing.
///
/// Threads: no other call may use this spec, then or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_spec_free(spec: *mut kvffi_spec) {
    ffi_value!((), {
        // SAFETY: the crate's contract.
        unsafe { handle::free(spec) }
    })
}
