//! `kvffi_transfer`: bytes that move.

use std::ffi::c_char;
use std::time::Duration;

use kvnixl::{Limits, Transfer, TransferOptions, TransferState};
use kvplan::Descriptor;
use kvspec::StorageIndex;

use crate::agent::{self, kvffi_agent};
use crate::answer::{Answer, kvffi_answer, kvffi_descriptor};
use crate::argument::{array, optional_name, out_handle};
use crate::boundary::{ffi_body, ffi_progress, ffi_value};
use crate::error::kvffi_error;
use crate::failure::Failure;
use crate::handle::{self, Class, Kind};
use crate::limits::{kvffi_limits, read_limits};
use crate::nixl_failure::{full_text, status_of};
use crate::notification::KVFFI_MAX_NOTIFICATION_BYTES;
use crate::options::{self, Grows, out_struct};
use crate::pair::kvffi_pair;
use crate::peer::{Connected, kvffi_peer};
use crate::quarantine::micros;
use crate::request::kvffi_request;
use crate::status::{
    KVFFI_ERR_TRANSFER_FAILED, KVFFI_ERR_TRANSFER_UNSETTLED, KVFFI_IN_PROGRESS, KVFFI_OK, kvffi_status,
};

/// As a timeout: waits for ever.
pub const KVFFI_FOREVER: u64 = u64::MAX;
/// The deadline in milliseconds of what is given none: 10 minutes, as long as heartbeats extend a lease by default.
pub const KVFFI_DEFAULT_DEADLINE_MS: u64 = 600_000;

const _: () = assert!(Duration::from_millis(KVFFI_DEFAULT_DEADLINE_MS).as_secs() == kvnixl::DEFAULT_DEADLINE.as_secs());

/// Bytes that move between this agent and a peer. Its blocks are in use until it has settled, whether the handle lives
/// or not.
///
/// Freed with kvffi_transfer_free, at any time: one that is in progress is cancelled by that.
#[derive(Debug)]
pub struct kvffi_transfer {
    _opaque: [u8; 0],
}

/// What a transfer does besides moving bytes. Starts as KVFFI_TRANSFER_OPTIONS_INIT; 0 is the default of every field.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct kvffi_transfer_options {
    /// Size of this struct.
    pub struct_size: usize,
    /// Sent to the peer after the last byte is in place, and never if the transfer fails. NULL for nothing.
    pub notify: *const u8,
    /// Number of bytes, at most KVFFI_MAX_NOTIFICATION_BYTES; 0 with a notify that is not NULL sends an empty message.
    pub notify_len: usize,
    /// Milliseconds from the start after which the transfer has failed; what was posted by then still owns its blocks
    /// until it settles. 0 for KVFFI_DEFAULT_DEADLINE_MS, KVFFI_FOREVER for none: NIXL has no timeout of its own.
    pub deadline_ms: u64,
    /// The engine's name of what the blocks belong to, for logs and quarantine; ends with a NUL. NULL for none.
    pub request: *const c_char,
    /// How many of the descriptors' bytes are padding, for statistics. 0 with an answer, which knows it.
    pub padding_bytes: u64,
    /// How the transfer is cut; NULL for the agent's limits.
    pub limits: *const kvffi_limits,
}

// SAFETY: `repr(C)`, 56 bytes without padding, `usize` first, integers and raw pointers only.
unsafe impl Grows for kvffi_transfer_options {
    const NAME: &'static str = "kvffi_transfer_options";
    const FIRST_SIZE: usize = 56;
}

/// What a transfer has cost so far. Starts as KVFFI_TRANSFER_STATS_INIT.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct kvffi_transfer_stats {
    /// Size of this struct.
    pub struct_size: usize,
    /// Number of the transfer at its agent, as in logs and in quarantine.
    pub id: u64,
    /// Bytes to move.
    pub bytes: u64,
    /// How many of them are padding.
    pub padding_bytes: u64,
    /// Descriptors, before they were cut.
    pub descriptors: u64,
    /// Requests posted.
    pub requests: u64,
    /// Time spent preparing requests, in microseconds.
    pub prepare_us: u64,
    /// Time spent inside posts, in microseconds.
    pub post_us: u64,
    /// From the start to the outcome, in microseconds; 0 while there is none.
    pub elapsed_us: u64,
    /// The status that stands for the cause of a failure, such as KVFFI_ERR_DEADLINE, KVFFI_ERR_CANCELLED,
    /// KVFFI_ERR_SHUT_DOWN or KVFFI_ERR_TRANSPORT; KVFFI_OK if it has not failed.
    pub cause: kvffi_status,
    /// 1 if nothing can land any more, so that the blocks may be used again; otherwise 0.
    pub is_settled: i32,
}

// SAFETY: `repr(C)`, 80 bytes without padding, `usize` first, integers only.
unsafe impl Grows for kvffi_transfer_stats {
    const NAME: &'static str = "kvffi_transfer_stats";
    const FIRST_SIZE: usize = 80;
}

impl Class for kvffi_transfer {
    type Inner = Transfer;
    const KIND: Kind = Kind::TRANSFER;
    const SURVIVES_FORK: bool = false;
}

/// The descriptors of C for the planner.
pub(crate) fn descriptors(descriptors: &[kvffi_descriptor]) -> Vec<Descriptor> {
    let descriptor = |d: &kvffi_descriptor| Descriptor {
        local_storage: StorageIndex(d.local_storage),
        remote_storage: StorageIndex(d.remote_storage),
        local_offset: d.local_offset,
        remote_offset: d.remote_offset,
        len: d.len,
    };
    descriptors.iter().map(descriptor).collect()
}

/// # Safety
///
/// `options` is NULL or as [`options::read`] and its fields say.
unsafe fn read_options(
    options: *const kvffi_transfer_options,
    agent_limits: Limits,
) -> Result<TransferOptions, Failure> {
    let mut known = TransferOptions::default();
    if options.is_null() {
        return Ok(known);
    }
    // SAFETY: by contract.
    let options = unsafe { options::read(options, "options")? };
    if !options.notify.is_null() || options.notify_len > 0 {
        // SAFETY: by contract.
        let message = unsafe { array(options.notify, options.notify_len, "options->notify")? };
        // Before the copy: no length makes it large.
        let (len, max) = (message.len(), KVFFI_MAX_NOTIFICATION_BYTES);
        if len > max {
            return Err(kvnixl::Error::NotificationTooLong { len, max }.into());
        }
        known.notify = Some(message.to_vec());
    }
    known.deadline = match options.deadline_ms {
        0 => known.deadline,
        KVFFI_FOREVER => None,
        ms => Some(Duration::from_millis(ms)),
    };
    // SAFETY: by contract.
    known.request = unsafe { optional_name(options.request, "options->request")? }.map(str::to_owned);
    known.padding_bytes = options.padding_bytes;
    if !options.limits.is_null() {
        // SAFETY: by contract.
        known.limits = Some(unsafe { read_limits(options.limits, agent_limits, "options->limits")? });
    }
    Ok(known)
}

fn start_answer(
    agent: &agent::Handle,
    peer: &Connected,
    answer: &Answer,
    options: TransferOptions,
) -> Result<*mut kvffi_transfer, Failure> {
    if options.padding_bytes > 0 {
        return Err(Failure::invalid("options->padding_bytes is set, but the answer knows its padding; leave it 0"));
    }
    Ok(handle::into_handle(agent.agent()?.start_answer(&peer.peer, &answer.descriptors, options)?))
}

/// Starts to move bytes: from the peer for KVFFI_OP_READ, to it for KVFFI_OP_WRITE. Checks every descriptor and queues;
/// nothing blocks. An empty list is done at once, and notifies.
///
/// descriptors, num_descriptors: what kvffi_answer_get_descriptors gave for a plan with this peer's layout; may be
/// (NULL, 0). kvffi_agent_start_answer saves the copy.
/// options: NULL for the defaults.
/// out_transfer: the transfer, to be freed with kvffi_transfer_free; NULL if the call fails, and then nothing moves.
///
/// KVFFI_ERR_OUT_OF_RANGE names the descriptor that lies outside registered memory. KVFFI_ERR_WOULD_BLOCK if too much is
/// in flight: try again later. KVFFI_ERR_PEER_GONE, KVFFI_ERR_WRONG_ORDER, KVFFI_ERR_SHUT_DOWN. Threads: any number at
/// once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_agent_start(
    agent: *const kvffi_agent,
    peer: *const kvffi_peer,
    op: i32,
    descriptors: *const kvffi_descriptor,
    num_descriptors: usize,
    options: *const kvffi_transfer_options,
    out_transfer: *mut *mut kvffi_transfer,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let out_transfer = unsafe { out_handle(out_transfer, "out_transfer")? };
        // SAFETY: the crate's contract.
        let (agent, peer) = unsafe { (handle::borrow(agent, "agent")?, handle::borrow(peer, "peer")?) };
        let op = crate::pair::op(op, "op")?;
        // SAFETY: the crate's contract.
        let given = unsafe { array(descriptors, num_descriptors, "descriptors")? };
        // SAFETY: the crate's contract.
        let options = unsafe { read_options(options, agent.limits)? };
        let transfer = agent.agent()?.start(&peer.peer, op, &self::descriptors(given), options)?;
        out_transfer.set(handle::into_handle(transfer));
        Ok(())
    })
}

/// Starts to move what an answer says, in the direction of its request. Otherwise as kvffi_agent_start, without a copy of
/// the descriptors, and with the answer's padding for statistics.
///
/// answer: an answer of a plan with this peer's layout. It may be used for something else after the call.
///
/// KVFFI_ERR_INVALID_ARGUMENT if the answer holds none, or if its plan is between other caches than what this agent has
/// registered and the peer's layout. Errors as for kvffi_agent_start. Threads: any number at once on one agent and peer; one at a time on one answer, a second call gets KVFFI_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_agent_start_answer(
    agent: *const kvffi_agent,
    peer: *const kvffi_peer,
    answer: *const kvffi_answer,
    options: *const kvffi_transfer_options,
    out_transfer: *mut *mut kvffi_transfer,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let out_transfer = unsafe { out_handle(out_transfer, "out_transfer")? };
        // SAFETY: the crate's contract.
        let (agent, peer) = unsafe { (handle::borrow(agent, "agent")?, handle::borrow(peer, "peer")?) };
        // SAFETY: the crate's contract.
        let answer = handle::lock(unsafe { handle::borrow(answer, "answer")? }, "answer")?;
        answer.check_full()?;
        // SAFETY: the crate's contract.
        let options = unsafe { read_options(options, agent.limits)? };
        out_transfer.set(start_answer(agent, peer, &answer, options)?);
        Ok(())
    })
}

/// Works out which bytes a request moves and starts to move them: kvffi_pair_answer and kvffi_agent_start_answer in one
/// call, for callers to whom calls are dear.
///
/// pair: a plan with this peer's layout.
/// request: borrowed for the call.
/// answer: overwritten; empty if the request cannot be answered. What it says is to be zeroed is left to the caller, as
/// with kvffi_pair_answer. If what fails is the start, as with KVFFI_ERR_WOULD_BLOCK, it holds the answer, and
/// kvffi_agent_start_answer is enough to try again.
///
/// Errors as for those two. Threads: any number at once on one agent, peer and pair; one at a time on one answer, a
/// second call gets KVFFI_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_agent_start_request(
    agent: *const kvffi_agent,
    peer: *const kvffi_peer,
    pair: *const kvffi_pair,
    request: *const kvffi_request,
    answer: *mut kvffi_answer,
    options: *const kvffi_transfer_options,
    out_transfer: *mut *mut kvffi_transfer,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let out_transfer = unsafe { out_handle(out_transfer, "out_transfer")? };
        // SAFETY: the crate's contract.
        let (agent, peer) = unsafe { (handle::borrow(agent, "agent")?, handle::borrow(peer, "peer")?) };
        // SAFETY: the crate's contract.
        let (answer, pair) = unsafe { (handle::borrow(answer, "answer")?, handle::borrow(pair, "pair")) };
        // SAFETY: the crate's contract.
        let options = unsafe { read_options(options, agent.limits)? };
        let mut answer = handle::lock(answer, "answer")?;
        // SAFETY: the crate's contract.
        unsafe { answer.fill(pair, request)? };
        out_transfer.set(start_answer(agent, peer, &answer, options)?);
        Ok(())
    })
}

/// The status of where a transfer stands.
fn standing(transfer: &Transfer) -> Result<kvffi_status, Failure> {
    match transfer.state() {
        TransferState::InProgress => Ok(KVFFI_IN_PROGRESS),
        TransferState::Done => Ok(KVFFI_OK),
        TransferState::Failed { cause, settled } => {
            let (status, whether) = if settled {
                (KVFFI_ERR_TRANSFER_FAILED, "settled")
            } else {
                (KVFFI_ERR_TRANSFER_UNSETTLED, "not settled: its blocks must not be used again")
            };
            let cause = full_text(&*cause);
            Err(Failure::new(status, format!("transfer {} failed, {whether}: {cause}", transfer.id())))
        }
    }
}

/// Says where a transfer stands; nothing blocks.
///
/// KVFFI_OK: every byte is in place and the notification has been sent. KVFFI_IN_PROGRESS. KVFFI_ERR_TRANSFER_UNSETTLED:
/// it failed, and bytes may still land. KVFFI_ERR_TRANSFER_FAILED: it failed, and nothing can land any more. A transfer
/// that failed unsettled says so until it settles, which may be never, for example with a peer that has stopped.
/// Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_transfer_poll(
    transfer: *const kvffi_transfer,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_progress!(out_error, {
        // SAFETY: the crate's contract.
        standing(unsafe { handle::borrow(transfer, "transfer")? })
    })
}

/// Waits until a transfer is done or has failed, at most for timeout_ms, and says where it stands as kvffi_transfer_poll
/// does.
///
/// timeout_ms: milliseconds; KVFFI_FOREVER waits for ever.
///
/// KVFFI_IN_PROGRESS if time ran out; the transfer goes on. Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_transfer_wait(
    transfer: *const kvffi_transfer,
    timeout_ms: u64,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_progress!(out_error, {
        // SAFETY: the crate's contract.
        let transfer = unsafe { handle::borrow(transfer, "transfer")? };
        // Whatever comes of it is where the transfer stands.
        let _ = transfer.wait(Duration::from_millis(timeout_ms));
        standing(transfer)
    })
}

/// Waits until nothing of a transfer can land any more, at most for timeout_ms, and says where it stands as
/// kvffi_transfer_poll does.
///
/// timeout_ms: milliseconds; KVFFI_FOREVER waits for ever.
///
/// KVFFI_IN_PROGRESS or KVFFI_ERR_TRANSFER_UNSETTLED if time ran out. Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_transfer_wait_settled(
    transfer: *const kvffi_transfer,
    timeout_ms: u64,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_progress!(out_error, {
        // SAFETY: the crate's contract.
        let transfer = unsafe { handle::borrow(transfer, "transfer")? };
        // As above.
        let _ = transfer.wait_settled(Duration::from_millis(timeout_ms));
        standing(transfer)
    })
}

/// Says that the bytes are no longer wanted. What was not posted is not posted; what was posted still settles. No effect
/// on a transfer that is done or has failed.
///
/// Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_transfer_cancel(
    transfer: *const kvffi_transfer,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        unsafe { handle::borrow(transfer, "transfer")? }.cancel();
        Ok(())
    })
}

/// Says what a transfer has cost so far.
///
/// out_stats: starts as KVFFI_TRANSFER_STATS_INIT. Left alone if the call fails.
///
/// Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_transfer_get_stats(
    transfer: *const kvffi_transfer,
    out_stats: *mut kvffi_transfer_stats,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let out_stats = unsafe { out_struct(out_stats, "out_stats")? };
        // SAFETY: the crate's contract.
        let transfer = unsafe { handle::borrow(transfer, "transfer")? };
        let (stats, state) = (transfer.stats(), transfer.state());
        out_stats.set(&kvffi_transfer_stats {
            struct_size: 0,
            id: transfer.id(),
            bytes: stats.bytes,
            padding_bytes: stats.padding_bytes,
            descriptors: stats.descriptors as u64,
            requests: stats.requests as u64,
            prepare_us: micros(stats.prepare),
            post_us: micros(stats.post),
            elapsed_us: stats.elapsed.map_or(0, micros),
            cause: match &state {
                TransferState::Failed { cause, .. } => status_of(cause),
                _ => KVFFI_OK,
            },
            is_settled: i32::from(state.is_settled()),
        });
        Ok(())
    })
}

/// Frees a transfer's handle. NULL does nothing. A transfer that is in progress is cancelled; until it has settled the
/// agent counts it, and its blocks must not be used again: see kvffi_agent_info and kvffi_agent_get_quarantine.
///
/// Threads: no other call may use this transfer, then or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_transfer_free(transfer: *mut kvffi_transfer) {
    ffi_value!((), {
        // SAFETY: the crate's contract.
        unsafe {
            if let Ok(transfer) = handle::borrow(transfer.cast_const(), "transfer") {
                transfer.cancel();
            }
            handle::free(transfer);
        }
    })
}
