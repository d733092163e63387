//! `kvffi_quarantine`: transfers that have failed and not settled.

use std::ffi::{CString, c_char};
use std::time::Duration;

use kvnixl::Quarantined;
use kvplan::Op;

use crate::agent::kvffi_agent;
use crate::argument::{copy_out, out, out_handle};
use crate::boundary::{ffi_body, ffi_value};
use crate::error::{c_text, kvffi_error};
use crate::failure::Failure;
use crate::handle::{self, Class, Kind};
use crate::nixl_failure::{full_text, status_of};
use crate::pair::{KVFFI_OP_READ, KVFFI_OP_WRITE};
use crate::status::kvffi_status;
use crate::worker::mem_numbers;

/// A list of transfers that have failed and not settled, as it was when it was asked for. Immutable.
///
/// Freed with kvffi_quarantine_free.
#[derive(Debug)]
pub struct kvffi_quarantine {
    _opaque: [u8; 0],
}

/// A transfer that has failed and not settled. Its pointers are valid until the kvffi_quarantine is freed. Frozen: never
/// grows.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct kvffi_quarantined {
    /// Number of the transfer at its agent.
    pub transfer: u64,
    /// The engine's request, as given with the transfer's options; NULL if none was.
    pub request: *const c_char,
    /// The peer's name.
    pub peer: *const c_char,
    /// The peer's incarnation.
    pub incarnation: u64,
    /// Where bytes may land: here for KVFFI_OP_READ, at the peer for KVFFI_OP_WRITE.
    pub op: i32,
    /// The status that stands for the cause of the failure.
    pub cause: kvffi_status,
    /// The cause in full.
    pub message: *const c_char,
    /// How long it has been here, in microseconds.
    pub age_us: u64,
    /// Bytes that may still land.
    pub bytes: u64,
    /// Number of ranges, see kvffi_quarantine_get_ranges.
    pub num_ranges: u64,
    /// Requests that NIXL says are in progress.
    pub in_progress: u64,
    /// Requests that failed with no proof that they have settled.
    pub unproven: u64,
}

/// Bytes that may still be written, and read. Frozen: never grows.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct kvffi_quarantined_range {
    /// Address at this agent.
    pub local: u64,
    /// Address at the peer.
    pub remote: u64,
    /// Length in bytes.
    pub len: u64,
    /// KVFFI_MEM_DRAM or KVFFI_MEM_VRAM: memory at this agent.
    pub local_mem: i32,
    /// Index of the GPU at this agent.
    pub local_device: u32,
    /// KVFFI_MEM_DRAM or KVFFI_MEM_VRAM: memory at the peer.
    pub remote_mem: i32,
    /// Index of the GPU at the peer.
    pub remote_device: u32,
}

/// An entry, and its texts with a NUL at their ends.
#[derive(Debug)]
pub(crate) struct Entry {
    entry: Quarantined,
    request: Option<CString>,
    peer: CString,
    message: CString,
}

impl Class for kvffi_quarantine {
    type Inner = Vec<Entry>;
    const KIND: Kind = Kind::QUARANTINE;
}

/// The number that stands for a direction.
pub(crate) fn op_number(op: Op) -> i32 {
    match op {
        Op::Read => KVFFI_OP_READ,
        Op::Write => KVFFI_OP_WRITE,
    }
}

/// Microseconds, as far as they fit.
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Lists the agent's transfers that have failed and not settled. They leave when they settle, and only then may their
/// blocks be used again.
///
/// out_quarantine: the list, to be freed with kvffi_quarantine_free; NULL if it is empty or the call fails.
///
/// Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_agent_get_quarantine(
    agent: *const kvffi_agent,
    out_quarantine: *mut *mut kvffi_quarantine,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let out_quarantine = unsafe { out_handle(out_quarantine, "out_quarantine")? };
        // SAFETY: the crate's contract.
        let entries = unsafe { handle::borrow(agent, "agent")? }.agent()?.quarantine();
        if !entries.is_empty() {
            let named = |entry: Quarantined| Entry {
                request: entry.request.clone().map(c_text),
                peer: c_text(entry.peer.clone()),
                message: c_text(full_text(&*entry.cause)),
                entry,
            };
            out_quarantine.set(handle::into_handle::<kvffi_quarantine>(entries.into_iter().map(named).collect()));
        }
        Ok(())
    })
}

/// Copies the list into the caller's array, by transfer.
///
/// entries, capacity: the array; may be NULL if capacity is 0. Nothing is written to it if the call fails.
/// out_len: number of entries; also written with KVFFI_ERR_BUFFER_TOO_SMALL.
///
/// KVFFI_ERR_BUFFER_TOO_SMALL if capacity is below that number. Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_quarantine_get_entries(
    quarantine: *const kvffi_quarantine,
    entries: *mut kvffi_quarantined,
    capacity: usize,
    out_len: *mut usize,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (out_len, list) = unsafe { (out(out_len, "out_len")?, handle::borrow(quarantine, "quarantine")?) };
        let values = list.iter().map(|Entry { entry, request, peer, message }| kvffi_quarantined {
            transfer: entry.transfer,
            request: request.as_ref().map_or(std::ptr::null(), |request| request.as_ptr()),
            peer: peer.as_ptr(),
            incarnation: entry.incarnation,
            op: op_number(entry.op),
            cause: status_of(&entry.cause),
            message: message.as_ptr(),
            age_us: micros(entry.age()),
            bytes: entry.bytes(),
            num_ranges: entry.pieces.len() as u64,
            in_progress: entry.in_progress as u64,
            unproven: entry.unproven as u64,
        });
        // SAFETY: the crate's contract.
        unsafe { copy_out(values, entries, capacity, &out_len, "entries") }
    })
}

/// Copies the ranges of one entry into the caller's array: what of the transfer may still land. The rest has settled.
///
/// entry: index in the list.
/// ranges, capacity: the array; may be NULL if capacity is 0. Nothing is written to it if the call fails.
/// out_len: number of ranges; also written with KVFFI_ERR_BUFFER_TOO_SMALL.
///
/// KVFFI_ERR_BUFFER_TOO_SMALL if capacity is below that number. Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_quarantine_get_ranges(
    quarantine: *const kvffi_quarantine,
    entry: usize,
    ranges: *mut kvffi_quarantined_range,
    capacity: usize,
    out_len: *mut usize,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (out_len, list) = unsafe { (out(out_len, "out_len")?, handle::borrow(quarantine, "quarantine")?) };
        let found = list
            .get(entry)
            .ok_or_else(|| Failure::invalid(format!("entry is {entry}, the list has {} entries", list.len())))?;
        let values = found.entry.pieces.iter().map(|piece| {
            let (local_mem, local_device) = mem_numbers(piece.local_mem);
            let (remote_mem, remote_device) = mem_numbers(piece.remote_mem);
            let (local, remote, len) = (piece.local, piece.remote, piece.len);
            kvffi_quarantined_range { local, remote, len, local_mem, local_device, remote_mem, remote_device }
        });
        // SAFETY: the crate's contract.
        unsafe { copy_out(values, ranges, capacity, &out_len, "ranges") }
    })
}

/// Frees a list. NULL does nothing, and nothing leaves quarantine by it.
///
/// Threads: no other call may use this list, then or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_quarantine_free(quarantine: *mut kvffi_quarantine) {
    ffi_value!((), {
        // SAFETY: the crate's contract.
        unsafe { handle::free(quarantine) }
    })
}
