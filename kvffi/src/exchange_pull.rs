//! The consumer's side of an exchange: pulls, and reservations that producers write into.

use std::ffi::c_char;

use kvnixl::lease::{LeaseId, PeerId, ReservationId};
use kvnixl::{Exchange, PullId, PullPart, PushSource};
use kvplan::Op;

use crate::answer::{kvffi_answer, kvffi_descriptor};
use crate::argument::{array, name, out};
use crate::boundary::ffi_body;
use crate::error::kvffi_error;
use crate::exchange::{ask, change, deadline, kvffi_exchange, kvffi_peer_id, peer_id, request_id};
use crate::failure::Failure;
use crate::handle;
use crate::request::{kvffi_block_list, read_lists};
use crate::status::kvffi_status;
use crate::transfer::descriptors;

/// What to read from one producer. Frozen: never grows.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct kvffi_pull_part {
    /// Name of the producer's agent; ends with a NUL.
    pub peer: *const c_char,
    /// Its incarnation.
    pub incarnation: u64,
    /// Its request; ends with a NUL.
    pub request: *const c_char,
    /// Its lease.
    pub lease: u64,
    /// What the plan with that peer answered; NULL for the descriptors that follow.
    pub answer: *const kvffi_answer,
    /// Descriptors of the plan with that peer, if answer is NULL; may be NULL if num_descriptors is 0.
    pub descriptors: *const kvffi_descriptor,
    /// Number of descriptors; 0 if answer is not NULL.
    pub num_descriptors: usize,
    /// How many of the descriptors' bytes are padding, for statistics; 0 if answer is not NULL, which knows it.
    pub padding_bytes: u64,
}

/// A producer that is to write a request, and where it finds the blocks. Frozen: never grows.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct kvffi_push_source {
    /// Name of the producer's agent; ends with a NUL.
    pub peer: *const c_char,
    /// Its incarnation.
    pub incarnation: u64,
    /// Blocks of this worker by group, as the producer's plan wants them on its remote side; may be NULL if num_lists is 0.
    pub lists: *const kvffi_block_list,
    /// Number of lists.
    pub num_lists: usize,
}

/// # Safety
///
/// The pointers of `part` are as its fields say.
unsafe fn pull_part(exchange: &Exchange<u64>, part: &kvffi_pull_part, argument: &str) -> Result<PullPart, Failure> {
    // SAFETY: by contract.
    let peer = PeerId::new(unsafe { name(part.peer, &format!("{argument}.peer"))? }, part.incarnation);
    // SAFETY: by contract.
    let request = unsafe { request_id(part.request, &format!("{argument}.request"))? };
    // SAFETY: by contract.
    let given = unsafe { array(part.descriptors, part.num_descriptors, &format!("{argument}.descriptors"))? };
    let lease = LeaseId(part.lease);
    if part.answer.is_null() {
        let descriptors = descriptors(given);
        Ok(PullPart { peer, request, lease, descriptors, padding_bytes: part.padding_bytes, layers: None })
    } else if given.is_empty() && part.padding_bytes == 0 {
        let argument = format!("{argument}.answer");
        // SAFETY: by contract.
        let answer = handle::lock(unsafe { handle::borrow(part.answer, &argument)? }, &argument)?;
        answer.check_for(exchange, &peer, Op::Read)?;
        Ok(PullPart::of_answer(peer, request, lease, &answer.descriptors))
    } else {
        Err(Failure::invalid(format!(
            "{argument} has both an answer and descriptors or padding_bytes; give one of the two"
        )))
    }
}

/// Reads a request from one or several producers. It ends once, as KVFFI_EVENT_PULLED or KVFFI_EVENT_PULL_FAILED; it is
/// pulled only when every producer has confirmed that its lease was still good after the last byte had been read. After a
/// failure the blocks come back with KVFFI_EVENT_RETURNED_PULL, when nothing can land in them any more.
///
/// What is read by layers (see kvffi_request) is one pull, with a part for each selection: a producer is told once, that
/// everything has been read.
///
/// cookie: the engine's number for the destination blocks.
/// parts, num_parts: what to read from whom, at least one part.
/// deadline_ms: milliseconds from now until which it must be confirmed; 0 for KVFFI_DEFAULT_DEADLINE_MS, KVFFI_FOREVER for
/// none.
/// out_pull: number of the pull, as events have it. Left alone if the call fails, and then nothing was started.
///
/// KVFFI_ERR_PEER_NOT_READY; KVFFI_ERR_WOULD_BLOCK if too much is in flight: try again later. KVFFI_ERR_INVALID_ARGUMENT
/// for an answer of a write, of a plan that is not with that peer, or if the answers under a lease leave out a layer.
/// What kvffi_agent_start may say comes as an event, since other parts may have been started. Threads: one at a time on
/// one exchange, a second call gets KVFFI_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_exchange_pull(
    exchange: *mut kvffi_exchange,
    cookie: u64,
    parts: *const kvffi_pull_part,
    num_parts: usize,
    deadline_ms: u64,
    out_pull: *mut u64,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (out_pull, given) = unsafe { (out(out_pull, "out_pull")?, array(parts, num_parts, "parts")?) };
        // SAFETY: the crate's contract.
        let pull = unsafe {
            change(exchange, |exchange, now| {
                let part = |(i, part)| pull_part(exchange, part, &format!("parts[{i}]"));
                let parts = given.iter().enumerate().map(part).collect::<Result<_, _>>()?;
                let pull = exchange.pull(cookie, parts, deadline(now, deadline_ms), now);
                pull.map_err(|(error, _)| Failure::from(error))
            })?
        };
        out_pull.set(pull.0);
        Ok(())
    })
}

/// Says that a pull is no longer wanted. Its blocks come back when it has settled. With the next poll its producers hear that
/// this reader gives up, and wait for it no more.
///
/// out_was_running: 1 if it was in progress, otherwise 0. Left alone if the call fails.
///
/// Threads: one at a time on one exchange, a second call gets KVFFI_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_exchange_cancel_pull(
    exchange: *mut kvffi_exchange,
    pull: u64,
    out_was_running: *mut i32,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let out_was_running = unsafe { out(out_was_running, "out_was_running")? };
        // SAFETY: the crate's contract.
        let running = unsafe { change(exchange, |exchange, _| Ok(exchange.cancel_pull(PullId(pull))))? };
        out_was_running.set(i32::from(running));
        Ok(())
    })
}

/// Keeps a producer's lease alive with heartbeats, for a request that waits for its pull. Ends with the lease, with
/// kvffi_exchange_let_go, or with a pull under it, which keeps it alive by itself and no longer than it lasts.
///
/// Threads: one at a time on one exchange, a second call gets KVFFI_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_exchange_keep(
    exchange: *mut kvffi_exchange,
    peer: *const kvffi_peer_id,
    lease: u64,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let peer = unsafe { peer_id(peer, "peer")? };
        // SAFETY: the crate's contract.
        unsafe {
            ask(exchange, |exchange, _| {
                exchange.keep(peer, LeaseId(lease));
                Ok(())
            })
        }
    })
}

/// Says that a lease is no longer wanted: there are no more heartbeats for it, and with the next poll its producer hears that
/// this reader gives up, and waits for it no more. While a pull under the lease is in progress it is still wanted: cancel
/// that with kvffi_exchange_cancel_pull.
///
/// Threads: one at a time on one exchange, a second call gets KVFFI_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_exchange_let_go(
    exchange: *mut kvffi_exchange,
    peer: *const kvffi_peer_id,
    lease: u64,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let peer = unsafe { peer_id(peer, "peer")? };
        // SAFETY: the crate's contract.
        unsafe {
            change(exchange, |exchange, _| {
                exchange.let_go(peer, LeaseId(lease));
                Ok(())
            })
        }
    })
}

/// Has a request written into blocks of this worker by one or several producers, each of which writes what
/// kvffi_spec_get_sources says this rank gets from it. It ends once, as KVFFI_EVENT_ARRIVED or KVFFI_EVENT_ARRIVAL_FAILED.
/// After a failure the blocks come back with KVFFI_EVENT_RETURNED_RESERVATION, when no producer can write them any more.
///
/// request: the request, as the producers name it; 1 to 256 bytes, ends with a NUL.
/// cookie: the engine's number for the blocks.
/// sources, num_sources: who writes, and where; at least one source.
/// deadline_ms: milliseconds from now until which it must have been written; 0 for KVFFI_DEFAULT_DEADLINE_MS, KVFFI_FOREVER
/// for none.
/// out_reservation: number of the reservation, as events have it. Left alone if the call fails.
///
/// KVFFI_ERR_PEER_NOT_READY. KVFFI_ERR_REQUEST_REFUSED for groups and blocks that are not registered here; then nobody has
/// heard of it. Threads: one at a time on one exchange, a second call gets KVFFI_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_exchange_reserve(
    exchange: *mut kvffi_exchange,
    request: *const c_char,
    cookie: u64,
    sources: *const kvffi_push_source,
    num_sources: usize,
    deadline_ms: u64,
    out_reservation: *mut u64,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let out_reservation = unsafe { out(out_reservation, "out_reservation")? };
        // SAFETY: the crate's contract.
        let (request, given) = unsafe { (request_id(request, "request")?, array(sources, num_sources, "sources")?) };
        let mut sources = Vec::with_capacity(given.len());
        for (i, source) in given.iter().enumerate() {
            let mut lists = Vec::new();
            // SAFETY: the crate's contract.
            let peer = unsafe {
                read_lists(source.lists, source.num_lists, &format!("sources[{i}].lists"), &mut lists)?;
                PeerId::new(name(source.peer, &format!("sources[{i}].peer"))?, source.incarnation)
            };
            sources.push(PushSource { peer, lists });
        }
        // SAFETY: the crate's contract.
        let reservation = unsafe {
            change(exchange, |exchange, now| {
                let reservation = exchange.reserve(request, cookie, sources, deadline(now, deadline_ms), now);
                reservation.map_err(|(error, _)| Failure::from(error))
            })?
        };
        out_reservation.set(reservation.0);
        Ok(())
    })
}

/// Says that a reservation is no longer wanted. Its blocks come back when its writers have answered, who wait for this reader
/// no more.
///
/// out_is_held: 1 if it was held, otherwise 0. Left alone if the call fails.
///
/// Threads: one at a time on one exchange, a second call gets KVFFI_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_exchange_cancel_reservation(
    exchange: *mut kvffi_exchange,
    reservation: u64,
    out_is_held: *mut i32,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let out_is_held = unsafe { out(out_is_held, "out_is_held")? };
        let id = ReservationId(reservation);
        // SAFETY: the crate's contract.
        let held = unsafe { change(exchange, |exchange, _| Ok(exchange.cancel_reservation(id)))? };
        out_is_held.set(i32::from(held));
        Ok(())
    })
}
