//! The producer's side of an exchange: blocks under leases, writes to decode workers.

use std::ffi::{CString, c_char};

use kvnixl::lease::{LeaseId, PeerId, PushId, ReservationId};
use kvnixl::{Error, Exchange};
use kvplan::Op;

use crate::answer::{kvffi_answer, kvffi_descriptor};
use crate::argument::{array, copy_out, name, out, out_handle};
use crate::boundary::{ffi_body, ffi_value};
use crate::error::kvffi_error;
use crate::exchange::{ask, change, kvffi_exchange, peer_name, request_id};
use crate::failure::Failure;
use crate::handle::{self, Class, Kind};
use crate::status::kvffi_status;
use crate::transfer::descriptors;

/// As a number of readers: not known yet, see kvffi_exchange_set_readers.
pub const KVFFI_READERS_UNKNOWN: u64 = u64::MAX;
/// Longest reason of kvffi_exchange_refuse in bytes; the rest of a longer one is cut off.
pub const KVFFI_MAX_REASON_BYTES: usize = 512;

const _: () = assert!(KVFFI_MAX_REASON_BYTES == kvnixl::MAX_REASON_BYTES);

/// A registration: whose, and which of theirs. Frozen: never grows.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct kvffi_push_id {
    /// Name of the decode worker's agent; ends with a NUL. Where it comes from the library it is valid until the object
    /// that it was taken from is freed.
    pub peer: *const c_char,
    /// Its incarnation.
    pub incarnation: u64,
    /// Its reservation.
    pub reservation: u64,
}

/// Registrations that a part is to be written to. Immutable.
///
/// Freed with kvffi_pushes_free.
#[derive(Debug)]
pub struct kvffi_pushes {
    _opaque: [u8; 0],
}

impl Class for kvffi_pushes {
    type Inner = Vec<(CString, PushId)>;
    const KIND: Kind = Kind::PUSHES;
}

/// # Safety
///
/// `push` is NULL or readable, its name NULL or a text that ends with a NUL.
unsafe fn push_id(push: *const kvffi_push_id, argument: &str) -> Result<PushId, Failure> {
    // SAFETY: by contract.
    let [push] = (unsafe { array(push, 1, argument)? }) else { return Err(Failure::null(argument)) };
    // SAFETY: by contract.
    let reader = PeerId::new(unsafe { name(push.peer, &format!("{argument}->peer"))? }, push.incarnation);
    Ok(PushId { reader, reservation: ReservationId(push.reservation) })
}

/// Holds a request's blocks under a lease until so many readers have completed. Give readers the request, the lease, and
/// this agent's name and incarnation. Readers are agents, told apart by their names: one that reads twice counts once.
///
/// request: the engine's name of the request, 1 to 256 bytes; ends with a NUL.
/// cookie: the engine's number for the blocks; KVFFI_EVENT_FREED gives it back.
/// readers: see kvffi_spec_count_readers; KVFFI_READERS_UNKNOWN until kvffi_exchange_set_readers, and then only expiry and
/// kvffi_exchange_abort free the blocks.
/// num_parts: parts that become ready one by one, see kvffi_exchange_ready; 0 for blocks that are complete. Let a part end
/// where one of this worker's blocks ends: a block that is half computed belongs to the next part.
/// out_lease: the lease. Left alone if the call fails.
///
/// KVFFI_ERR_REQUEST_HELD while the same request has a lease. Threads: one at a time on one exchange, a second call gets
/// KVFFI_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_exchange_hold(
    exchange: *mut kvffi_exchange,
    request: *const c_char,
    cookie: u64,
    readers: u64,
    num_parts: u32,
    out_lease: *mut u64,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (out_lease, request) = unsafe { (out(out_lease, "out_lease")?, request_id(request, "request")?) };
        let readers = (readers != KVFFI_READERS_UNKNOWN).then(|| usize::try_from(readers).unwrap_or(usize::MAX));
        // SAFETY: the crate's contract.
        let lease = unsafe {
            change(exchange, |exchange, now| {
                exchange.hold(request, cookie, readers, num_parts, now).map_err(|(error, _)| Failure::from(error))
            })?
        };
        out_lease.set(lease.0);
        Ok(())
    })
}

/// Sets the number of readers of a lease whose number was not known, or corrects it. The lease may end by this.
///
/// out_is_held: 1 if the lease was in force, otherwise 0. Left alone if the call fails.
///
/// Threads: one at a time on one exchange, a second call gets KVFFI_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_exchange_set_readers(
    exchange: *mut kvffi_exchange,
    lease: u64,
    readers: u64,
    out_is_held: *mut i32,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let out_is_held = unsafe { out(out_is_held, "out_is_held")? };
        let readers = usize::try_from(readers).unwrap_or(usize::MAX);
        // SAFETY: the crate's contract.
        let held = unsafe { change(exchange, |exchange, now| Ok(exchange.set_readers(LeaseId(lease), readers, now)))? };
        out_is_held.set(i32::from(held));
        Ok(())
    })
}

/// Says that a part of a request is computed, and hands out the registrations to write it to. Later ones come as
/// KVFFI_EVENT_PUSH: write all parts that are ready then.
///
/// part: below the lease's num_parts.
/// out_pushes: the registrations, to be freed with kvffi_pushes_free; NULL if there are none, if the lease has ended or
/// has no such part, or if the call fails.
///
/// Threads: one at a time on one exchange, a second call gets KVFFI_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_exchange_ready(
    exchange: *mut kvffi_exchange,
    lease: u64,
    part: u32,
    out_pushes: *mut *mut kvffi_pushes,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let out_pushes = unsafe { out_handle(out_pushes, "out_pushes")? };
        // SAFETY: the crate's contract.
        let pushes = unsafe { change(exchange, |exchange, now| Ok(exchange.ready(LeaseId(lease), part, now)))? };
        if !pushes.is_empty() {
            let named = pushes.into_iter().map(|push| (peer_name(&push.reader), push)).collect();
            out_pushes.set(handle::into_handle::<kvffi_pushes>(named));
        }
        Ok(())
    })
}

/// Copies registrations into the caller's array.
///
/// array, capacity: the array; may be NULL if capacity is 0. Nothing is written to it if the call fails.
/// out_len: number of registrations; also written with KVFFI_ERR_BUFFER_TOO_SMALL.
///
/// KVFFI_ERR_BUFFER_TOO_SMALL if capacity is below that number. Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_pushes_get(
    pushes: *const kvffi_pushes,
    array: *mut kvffi_push_id,
    capacity: usize,
    out_len: *mut usize,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (out_len, list) = unsafe { (out(out_len, "out_len")?, handle::borrow(pushes, "pushes")?) };
        let values = list.iter().map(|(peer, push)| kvffi_push_id {
            peer: peer.as_ptr(),
            incarnation: push.reader.incarnation,
            reservation: push.reservation.0,
        });
        // SAFETY: the crate's contract.
        unsafe { copy_out(values, array, capacity, &out_len, "array") }
    })
}

/// Frees a list of registrations. NULL does nothing.
///
/// Threads: no other call may use this list, then or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_pushes_free(pushes: *mut kvffi_pushes) {
    ffi_value!((), {
        // SAFETY: the crate's contract.
        unsafe { handle::free(pushes) }
    })
}

/// Refuses a registration, with a reason for the decode worker: nothing is written for it, and the share of its reader counts
/// as done. The lease goes on for its other readers. The decode worker gets KVFFI_EVENT_ARRIVAL_FAILED with
/// KVFFI_ERR_REFUSED.
///
/// push: the registration, as KVFFI_EVENT_PUSH and kvffi_exchange_ready name it.
/// reason: for people; ends with a NUL. At most KVFFI_MAX_REASON_BYTES of it are sent.
/// out_was_open: 1 if there was something to refuse, 0 if it has ended or is not known. Left alone if the call fails.
///
/// Threads: one at a time on one exchange, a second call gets KVFFI_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_exchange_refuse(
    exchange: *mut kvffi_exchange,
    push: *const kvffi_push_id,
    reason: *const c_char,
    out_was_open: *mut i32,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (push, reason) = unsafe { (push_id(push, "push")?, name(reason, "reason")?) };
        // SAFETY: the crate's contract.
        let out_was_open = unsafe { out(out_was_open, "out_was_open")? };
        // SAFETY: the crate's contract.
        let was_open = unsafe { change(exchange, |exchange, now| Ok(exchange.refuse(&push, reason, now)))? };
        out_was_open.set(i32::from(was_open));
        Ok(())
    })
}

/// Ends a lease at once, for example because its request was aborted. Its blocks come with the next poll.
///
/// out_is_held: 1 if the lease was in force, otherwise 0. Left alone if the call fails.
///
/// Threads: one at a time on one exchange, a second call gets KVFFI_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_exchange_abort(
    exchange: *mut kvffi_exchange,
    lease: u64,
    out_is_held: *mut i32,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let out_is_held = unsafe { out(out_is_held, "out_is_held")? };
        // SAFETY: the crate's contract.
        let held = unsafe { change(exchange, |exchange, now| Ok(exchange.abort(LeaseId(lease), now)))? };
        out_is_held.set(i32::from(held));
        Ok(())
    })
}

/// Says that something was written; after an error that ends the registration there is something to tell.
fn after_write(exchange: &Exchange<u64>, written: Result<(), Error>) -> Result<(), Failure> {
    match &written {
        Ok(()) | Err(Error::WouldBlock { .. } | Error::PeerNotReady { .. } | Error::WriteRefused { .. }) => {}
        Err(_) => exchange.agent().raise_event(),
    }
    Ok(written?)
}

/// Writes a part of a request to a decode worker. When all parts have landed and the lease is still good, the decode
/// worker is told.
///
/// push: the registration, as KVFFI_EVENT_PUSH and kvffi_exchange_ready name it.
/// part: 0 for a request without parts.
/// descriptors, num_descriptors: those of the plan (KVFFI_OP_WRITE) with that peer for the registration's lists, and for
/// this part's layers.
/// padding_bytes: how many of their bytes are padding, for statistics.
///
/// Nothing compares descriptors with the blocks that were reserved: kvffi_exchange_write_answer does.
/// KVFFI_ERR_WRITE_REFUSED if the registration has ended or is not known, or the part is not ready or was written before.
/// KVFFI_ERR_WOULD_BLOCK if too much is in flight: try again later. KVFFI_ERR_PEER_NOT_READY. After any other error the
/// registration has ended, and the decode worker is told. Threads: one at a time on one exchange, a second call gets
/// KVFFI_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_exchange_write(
    exchange: *mut kvffi_exchange,
    push: *const kvffi_push_id,
    part: u32,
    descriptors: *const kvffi_descriptor,
    num_descriptors: usize,
    padding_bytes: u64,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (push, given) = unsafe { (push_id(push, "push")?, array(descriptors, num_descriptors, "descriptors")?) };
        // SAFETY: the crate's contract.
        unsafe {
            ask(exchange, |exchange, now| {
                let written = exchange.write(&push, part, &self::descriptors(given), padding_bytes, now);
                after_write(exchange, written)
            })
        }
    })
}

/// Writes a part of a request to a decode worker, as kvffi_exchange_write does, from an answer.
///
/// answer: what the plan (KVFFI_OP_WRITE) with that peer answered. It may be used for something else after the call.
///
/// KVFFI_ERR_INVALID_ARGUMENT if the answer holds none, one of a read, or one of a plan that is not with that peer.
/// KVFFI_ERR_WRITE_REFUSED, with the block, if it is for blocks that the registration does not list there; the registration
/// is as it was. So for the last part, if answers are for some layers each and one layer was in none. Errors
/// as for kvffi_exchange_write. Threads: one at a time on one exchange and on one answer, a second call gets
/// KVFFI_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_exchange_write_answer(
    exchange: *mut kvffi_exchange,
    push: *const kvffi_push_id,
    part: u32,
    answer: *const kvffi_answer,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (push, answer) = unsafe { (push_id(push, "push")?, handle::borrow(answer, "answer")?) };
        let answer = handle::lock(answer, "answer")?;
        // SAFETY: the crate's contract.
        unsafe {
            ask(exchange, |exchange, now| {
                answer.check_for(exchange, &push.reader, Op::Write)?;
                let written = exchange.write_answer(&push, part, &answer.request, &answer.descriptors, now);
                after_write(exchange, written)
            })
        }
    })
}
