//! `kvffi_answer`: what a plan answers for a request.

use std::ffi::c_char;
use std::sync::Mutex;

use kvnixl::Exchange;
use kvnixl::lease::PeerId;
use kvplan::{Descriptors, Op, Request};

use crate::argument::{copy_out, out, out_handle, text};
use crate::boundary::{ffi_body, ffi_value};
use crate::error::kvffi_error;
use crate::failure::Failure;
use crate::handle::{self, Class, Kind};
use crate::pair::{Pair, kvffi_pair};
use crate::request::{self, kvffi_request};
use crate::status::kvffi_status;

/// Descriptors and ranges to zero for one request. Reuse it from request to request: then no memory is allocated for
/// descriptors. Takes one call at a time.
///
/// Freed with kvffi_answer_free.
#[derive(Debug)]
pub struct kvffi_answer {
    _opaque: [u8; 0],
}

/// One contiguous piece of a transfer: len bytes at a place on either side, which never crosses a storage. An address is
/// the base of the storage, as the spec lists it, plus the offset. Frozen: never grows.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct kvffi_descriptor {
    /// Storage of the local spec.
    pub local_storage: u32,
    /// Storage of the remote spec.
    pub remote_storage: u32,
    /// Bytes from the base of the local storage.
    pub local_offset: u64,
    /// Bytes from the base of the remote storage.
    pub remote_offset: u64,
    /// Length in bytes, at least 1.
    pub len: u64,
}

/// Bytes of a requested destination block that no source holds: the receiver zeroes them. Frozen: never grows.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct kvffi_zero_range {
    /// Storage of the destination's spec: the local one of a read, the remote one of a write.
    pub storage: u32,
    /// 0.
    pub reserved: u32,
    /// Bytes from the base of the storage.
    pub offset: u64,
    /// Length in bytes, at least 1.
    pub len: u64,
}

/// What an answer adds up to. Frozen: never grows.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct kvffi_answer_totals {
    /// Number of descriptors.
    pub num_descriptors: u64,
    /// Number of ranges to zero.
    pub num_zero_ranges: u64,
    /// Bytes moved, padding included.
    pub bytes: u64,
    /// Bytes moved that no part declares: bridged gaps.
    pub padding_bytes: u64,
}

/// An answer, the request that it is for and the plan that made it.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) descriptors: Descriptors,
    pub(crate) request: Request,
    /// The plan's id; 0 while there is no answer.
    pub(crate) made_by: u64,
}

impl Class for kvffi_answer {
    type Inner = Mutex<Answer>;
    const KIND: Kind = Kind::ANSWER;
}

impl Answer {
    /// Fails if there is no answer.
    pub(crate) fn check_full(&self) -> Result<(), Failure> {
        match self.made_by {
            0 => Err(Failure::invalid("answer is empty; call kvffi_pair_answer first")),
            _ => Ok(()),
        }
    }

    /// Fails if there is no answer, one in another direction, or one of a plan that is not with this peer of an exchange.
    ///
    /// Whether the peer can be used is for the exchange to say.
    pub(crate) fn check_for(&self, exchange: &Exchange<u64>, peer: &PeerId, op: Op) -> Result<(), Failure> {
        self.check_full()?;
        if self.request.op != op {
            let given = self.request.op;
            return Err(Failure::invalid(format!(
                "answer is of a {given}, and a {op} is needed; make the pair with that op"
            )));
        }
        if let Some(peer) = exchange.peer(peer) {
            exchange.agent().check_answer(peer, &self.descriptors)?;
        }
        Ok(())
    }

    fn clear(&mut self) {
        self.descriptors.clear();
        self.made_by = 0;
    }

    /// Overwrites it with what `pair` answers for `request`; empty if that fails.
    ///
    /// # Safety
    ///
    /// `request` is as [`request::read_into`] says.
    pub(crate) unsafe fn fill(
        &mut self,
        pair: Result<&Pair, Failure>,
        request: *const kvffi_request,
    ) -> Result<(), Failure> {
        self.clear();
        // SAFETY: by contract.
        unsafe { request::read_into(request, &mut self.request)? };
        self.work_out(pair?)
    }

    fn work_out(&mut self, pair: &Pair) -> Result<(), Failure> {
        pair.plan.descriptors(&self.request, &mut self.descriptors)?;
        self.made_by = pair.id;
        Ok(())
    }
}

/// Makes an empty answer.
///
/// out_answer: the answer, to be freed with kvffi_answer_free; NULL if the call fails.
///
/// Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_answer_new(
    out_answer: *mut *mut kvffi_answer,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let out_answer = unsafe { out_handle(out_answer, "out_answer")? };
        let empty = Answer { descriptors: Descriptors::new(), request: request::empty(), made_by: 0 };
        out_answer.set(handle::into_handle(Mutex::new(empty)));
        Ok(())
    })
}

/// Works out which bytes a request moves: what this source rank must deliver to this destination rank. Nothing is moved.
///
/// request: borrowed for the call.
/// answer: overwritten; empty if the call fails.
///
/// KVFFI_ERR_REQUEST_REFUSED if the request cannot be answered: unknown groups or blocks, a destination block twice,
/// a destination block of which the source holds nothing, a hole at the source, layers that neither spec lists, or that
/// the pair's options refuse by themselves. Threads: any number at once on one pair; one at a time on one answer, a
/// second call gets KVFFI_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_pair_answer(
    pair: *const kvffi_pair,
    request: *const kvffi_request,
    answer: *mut kvffi_answer,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (answer, pair) = unsafe { (handle::borrow(answer, "answer")?, handle::borrow(pair, "pair")) };
        let mut answer = handle::lock(answer, "answer")?;
        // SAFETY: the crate's contract.
        unsafe { answer.fill(pair, request) }
    })
}

/// Like kvffi_pair_answer, for a request in its JSON form.
///
/// json, json_len: UTF-8 text of json_len bytes.
///
/// KVFFI_ERR_JSON names the field that is wrong. KVFFI_ERR_NOT_UTF8. Otherwise, and for threads, like kvffi_pair_answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_pair_answer_json(
    pair: *const kvffi_pair,
    json: *const c_char,
    json_len: usize,
    answer: *mut kvffi_answer,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (answer, pair) = unsafe { (handle::borrow(answer, "answer")?, handle::borrow(pair, "pair")) };
        let mut answer = handle::lock(answer, "answer")?;
        answer.clear();
        // SAFETY: the crate's contract.
        answer.request = Request::from_json(unsafe { text(json, json_len, "json")? })?;
        answer.work_out(pair?)
    })
}

/// What the answer adds up to.
///
/// out_totals: left alone if the call fails.
///
/// Threads: one at a time on one answer, a second call gets KVFFI_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_answer_get_totals(
    answer: *const kvffi_answer,
    out_totals: *mut kvffi_answer_totals,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (out_totals, answer) = unsafe { (out(out_totals, "out_totals")?, handle::borrow(answer, "answer")?) };
        let answer = handle::lock(answer, "answer")?;
        out_totals.set(kvffi_answer_totals {
            num_descriptors: answer.descriptors.as_slice().len() as u64,
            num_zero_ranges: answer.descriptors.zero().len() as u64,
            bytes: answer.descriptors.num_bytes(),
            padding_bytes: answer.descriptors.padding_bytes(),
        });
        Ok(())
    })
}

/// Copies the answer's descriptors into the caller's array: lane by lane, by local storage and offset within a lane,
/// merged.
///
/// descriptors, capacity: the array; may be NULL if capacity is 0. Nothing is written to it if the call fails.
/// out_len: number of descriptors of the answer; also written with KVFFI_ERR_BUFFER_TOO_SMALL.
///
/// KVFFI_ERR_BUFFER_TOO_SMALL if capacity is below that number. Threads: one at a time on one answer, a second call gets
/// KVFFI_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_answer_get_descriptors(
    answer: *const kvffi_answer,
    descriptors: *mut kvffi_descriptor,
    capacity: usize,
    out_len: *mut usize,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (out_len, answer) = unsafe { (out(out_len, "out_len")?, handle::borrow(answer, "answer")?) };
        let answer = handle::lock(answer, "answer")?;
        let values = answer.descriptors.as_slice().iter().map(|d| kvffi_descriptor {
            local_storage: d.local_storage.0,
            remote_storage: d.remote_storage.0,
            local_offset: d.local_offset,
            remote_offset: d.remote_offset,
            len: d.len,
        });
        // SAFETY: the crate's contract.
        unsafe { copy_out(values, descriptors, capacity, &out_len, "descriptors") }
    })
}

/// Copies the answer's ranges to zero into the caller's array, sorted by storage and offset, merged.
///
/// zero_ranges, capacity: the array; may be NULL if capacity is 0. Nothing is written to it if the call fails.
/// out_len: number of ranges of the answer; also written with KVFFI_ERR_BUFFER_TOO_SMALL.
///
/// KVFFI_ERR_BUFFER_TOO_SMALL if capacity is below that number. Threads: one at a time on one answer, a second call gets
/// KVFFI_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_answer_get_zero_ranges(
    answer: *const kvffi_answer,
    zero_ranges: *mut kvffi_zero_range,
    capacity: usize,
    out_len: *mut usize,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (out_len, answer) = unsafe { (out(out_len, "out_len")?, handle::borrow(answer, "answer")?) };
        let answer = handle::lock(answer, "answer")?;
        let values = answer.descriptors.zero().iter().map(|zero| kvffi_zero_range {
            storage: zero.storage.0,
            reserved: 0,
            offset: zero.offset,
            len: zero.len,
        });
        // SAFETY: the crate's contract.
        unsafe { copy_out(values, zero_ranges, capacity, &out_len, "zero_ranges") }
    })
}

/// Proves an answer: that its descriptors bring exactly the bytes that its request needs, each once and from the right
/// place, and write nothing else but the padding that the plan allows. A second derivation, for tests and for doubt:
/// it costs many times what the answer did.
///
/// answer: an answer of this plan that is not empty.
///
/// KVFFI_ERR_NOT_PROVEN, with the bytes in question. KVFFI_ERR_INVALID_ARGUMENT if the answer is empty or another plan's.
/// Threads: any number at once on one pair; one at a time on one answer, a second call gets KVFFI_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_pair_verify(
    pair: *const kvffi_pair,
    answer: *const kvffi_answer,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (pair, answer) = unsafe { (handle::borrow(pair, "pair")?, handle::borrow(answer, "answer")?) };
        let answer = handle::lock(answer, "answer")?;
        if answer.made_by != pair.id {
            return Err(Failure::invalid("answer was not made by pair; call kvffi_pair_answer first"));
        }
        pair.plan.verify(&answer.request, &answer.descriptors)?;
        Ok(())
    })
}

/// Frees an answer. NULL does nothing.
///
/// Threads: no other call may use this answer, then or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_answer_free(answer: *mut kvffi_answer) {
    ffi_value!((), {
        // SAFETY: the crate's contract.
        unsafe { handle::free(answer) }
    })
}
