//! Peers of an exchange: which may be used, whose blob is to be fetched, who is gone.

use std::ffi::c_char;
use std::time::{Duration, Instant};

use kvnixl::lease::{PeerId, Wanted};
use kvnixl::{Exchange, Peer};

use crate::argument::{array, out, out_handle};
use crate::boundary::ffi_body;
use crate::error::kvffi_error;
use crate::exchange::{ask, change, kvffi_exchange, kvffi_peer_id, peer_id};
use crate::failure::Failure;
use crate::options::{Grows, out_struct};
use crate::peer::kvffi_peer;
use crate::status::{KVFFI_ERR_PEER_GONE, kvffi_status};

/// What to do to use a peer: use it.
pub const KVFFI_WANTED_READY: i32 = 0;
/// What to do to use a peer: fetch its blob now, and kvffi_exchange_connect_named it.
pub const KVFFI_WANTED_FETCH: i32 = 1;
/// What to do to use a peer: ask again later; a fetch is under way, or has failed lately.
pub const KVFFI_WANTED_WAIT: i32 = 2;
/// What to do to use a peer: it is being let go, or its memory goes; ask again when nothing is under way with it.
pub const KVFFI_WANTED_DRAINING: i32 = 3;

/// What to do to use a peer. Starts as KVFFI_WANTED_INIT.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct kvffi_wanted {
    /// Size of this struct.
    pub struct_size: usize,
    /// KVFFI_WANTED_...
    pub what: i32,
    /// 0.
    pub reserved: u32,
    /// The peer's incarnation, with KVFFI_WANTED_READY.
    pub incarnation: u64,
    /// When to ask again, in milliseconds from now, with KVFFI_WANTED_WAIT.
    pub wait_ms: u64,
}

// SAFETY: `repr(C)`, 32 bytes without padding, `usize` first, integers only.
unsafe impl Grows for kvffi_wanted {
    const NAME: &'static str = "kvffi_wanted";
    const FIRST_SIZE: usize = 32;
}

/// Milliseconds, rounded up.
pub(crate) fn ceil_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros().div_ceil(1000)).unwrap_or(u64::MAX)
}

/// Says what to do to use a peer by this name. KVFFI_WANTED_FETCH is said once until the fetch has ended.
///
/// name: the name of the peer's agent; ends with a NUL.
/// out_wanted: starts as KVFFI_WANTED_INIT. Left alone if the call fails.
///
/// Threads: one at a time on one exchange, a second call gets KVFFI_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_exchange_want(
    exchange: *mut kvffi_exchange,
    name: *const c_char,
    out_wanted: *mut kvffi_wanted,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let out_wanted = unsafe { out_struct(out_wanted, "out_wanted")? };
        // SAFETY: the crate's contract.
        let name = unsafe { crate::argument::name(name, "name")? };
        // SAFETY: the crate's contract.
        let (wanted, now) = unsafe { ask(exchange, |exchange, now| Ok((exchange.want(name, now), now)))? };
        let (what, incarnation, wait_ms) = match wanted {
            Wanted::Ready(peer) => (KVFFI_WANTED_READY, peer.incarnation, 0),
            Wanted::Fetch => (KVFFI_WANTED_FETCH, 0, 0),
            Wanted::Wait(until) => (KVFFI_WANTED_WAIT, 0, ceil_ms(until.saturating_duration_since(now))),
            Wanted::Draining => (KVFFI_WANTED_DRAINING, 0, 0),
        };
        out_wanted.set(&kvffi_wanted { struct_size: 0, what, reserved: 0, incarnation, wait_ms });
        Ok(())
    })
}

/// Connects a peer from its blob, as kvffi_agent_connect does. A process that was replaced under its name is not connected
/// again, unless its successor cannot be reached, and a peer that was lost is reached anew. While blobs are fetched that
/// kvffi_exchange_want asked for, none that nobody asked for takes the place of a peer that is ready;
/// kvffi_exchange_connect_named says whose blob it should be, and is to be preferred.
///
/// blob, blob_len: what kvffi_agent_export gave the peer.
/// out_peer: the peer, to plan with, to be freed with kvffi_peer_free; NULL if the call fails.
///
/// Errors as for kvffi_agent_connect; KVFFI_ERR_STALE_BLOB also for blobs of a process that was replaced, and of memory
/// that the peer has taken away. Threads: one at a time on one exchange, a second call gets KVFFI_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_exchange_connect(
    exchange: *mut kvffi_exchange,
    blob: *const u8,
    blob_len: usize,
    out_peer: *mut *mut kvffi_peer,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (out_peer, blob) = unsafe { (out_handle(out_peer, "out_peer")?, array(blob, blob_len, "blob")?) };
        // SAFETY: the crate's contract.
        out_peer.set(unsafe { connect(exchange, |exchange, now| exchange.connect(blob, now))? });
        Ok(())
    })
}

/// Connects the peer of this name from its blob, as kvffi_exchange_connect does. A blob that names another peer is refused,
/// and changes nothing: one that was fetched for one peer must not take the place of another.
///
/// name: the name of the peer's agent; ends with a NUL.
/// blob, blob_len: what kvffi_agent_export gave the peer.
/// out_peer: the peer, to plan with, to be freed with kvffi_peer_free; NULL if the call fails.
///
/// Errors as for kvffi_exchange_connect; KVFFI_ERR_BLOB also for the blob of another peer. Threads: one at a time on one
/// exchange, a second call gets KVFFI_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_exchange_connect_named(
    exchange: *mut kvffi_exchange,
    name: *const c_char,
    blob: *const u8,
    blob_len: usize,
    out_peer: *mut *mut kvffi_peer,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (out_peer, blob) = unsafe { (out_handle(out_peer, "out_peer")?, array(blob, blob_len, "blob")?) };
        // SAFETY: the crate's contract.
        let name = unsafe { crate::argument::name(name, "name")? };
        // SAFETY: the crate's contract.
        out_peer.set(unsafe { connect(exchange, |exchange, now| exchange.connect_named(name, blob, now))? });
        Ok(())
    })
}

/// A new handle of the peer that this connects.
///
/// # Safety
///
/// The crate's contract for `exchange`.
unsafe fn connect(
    exchange: *mut kvffi_exchange,
    connect: impl FnOnce(&mut Exchange<u64>, Instant) -> Result<PeerId, kvnixl::Error>,
) -> Result<*mut kvffi_peer, Failure> {
    // SAFETY: the caller's promise.
    let peer: Peer = unsafe {
        change(exchange, |exchange, now| {
            let id = connect(exchange, now)?;
            let gone = || Failure::new(KVFFI_ERR_PEER_GONE, format!("peer {id} is not connected"));
            exchange.peer(&id).cloned().ok_or_else(gone)
        })?
    };
    Ok(kvffi_peer::new(peer))
}

/// Hands out a peer that is connected, to plan with.
///
/// peer: whom, as events and kvffi_exchange_want name it.
/// out_peer: the peer, to be freed with kvffi_peer_free; NULL if the call fails.
///
/// KVFFI_ERR_PEER_GONE if it is not connected. Threads: one at a time on one exchange, a second call gets KVFFI_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_exchange_get_peer(
    exchange: *mut kvffi_exchange,
    peer: *const kvffi_peer_id,
    out_peer: *mut *mut kvffi_peer,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (out_peer, id) = unsafe { (out_handle(out_peer, "out_peer")?, peer_id(peer, "peer")?) };
        // SAFETY: the crate's contract.
        let found = unsafe { ask(exchange, |exchange, _| Ok(exchange.peer(&id).cloned()))? };
        let gone = || Failure::new(KVFFI_ERR_PEER_GONE, format!("peer {id} is not connected to this exchange"));
        out_peer.set(kvffi_peer::new(found.ok_or_else(gone)?));
        Ok(())
    })
}

/// Says that the blob that kvffi_exchange_want asked for cannot be had.
///
/// name: the name of the peer's agent; ends with a NUL.
///
/// Threads: one at a time on one exchange, a second call gets KVFFI_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_exchange_fetch_failed(
    exchange: *mut kvffi_exchange,
    name: *const c_char,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let name = unsafe { crate::argument::name(name, "name")? };
        // SAFETY: the crate's contract.
        unsafe {
            ask(exchange, |exchange, now| {
                exchange.fetch_failed(name, now);
                Ok(())
            })
        }
    })
}

/// Lets a peer go when nothing is under way with it; KVFFI_EVENT_PEER_RELEASED says when.
///
/// name: the name of the peer's agent; ends with a NUL. One that is not known does nothing.
///
/// Threads: one at a time on one exchange, a second call gets KVFFI_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_exchange_release_peer(
    exchange: *mut kvffi_exchange,
    name: *const c_char,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let name = unsafe { crate::argument::name(name, "name")? };
        // SAFETY: the crate's contract.
        unsafe {
            change(exchange, |exchange, _| {
                exchange.release_peer(name);
                Ok(())
            })
        }
    })
}

/// Says that a peer's process has ended and that nothing of it can land any more, for example because an orchestrator has
/// seen its exit and longer has passed than its last bytes may have been on their way. Blocks that waited for it come back:
/// while the process lives, it may write into them. Being replaced, or not reachable, is no such proof. Processes of this
/// host and PID namespace are watched, and need no such word.
///
/// Threads: one at a time on one exchange, a second call gets KVFFI_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_exchange_peer_is_gone(
    exchange: *mut kvffi_exchange,
    peer: *const kvffi_peer_id,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let peer = unsafe { peer_id(peer, "peer")? };
        // SAFETY: the crate's contract.
        unsafe {
            change(exchange, |exchange, now| {
                // SAFETY: what the declaration asks of the caller.
                exchange.peer_is_gone(&peer, now);
                Ok(())
            })
        }
    })
}

/// Tells connected peers that this agent's memory is about to go, and waits until nothing of them touches it:
/// KVFFI_EVENT_WITHDRAWN. Peers that got the blob and were never connected are not known and not waited for.
///
/// Threads: one at a time on one exchange, a second call gets KVFFI_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_exchange_withdraw(
    exchange: *mut kvffi_exchange,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        unsafe {
            change(exchange, |exchange, now| {
                exchange.withdraw(now);
                Ok(())
            })
        }
    })
}

/// Counts the peers that have not answered a withdrawal.
///
/// out_num_peers: left alone if the call fails.
///
/// Threads: one at a time on one exchange, a second call gets KVFFI_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_exchange_count_withdrawing(
    exchange: *mut kvffi_exchange,
    out_num_peers: *mut usize,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let out_num_peers = unsafe { out(out_num_peers, "out_num_peers")? };
        // SAFETY: the crate's contract.
        out_num_peers.set(unsafe { ask(exchange, |exchange, _| Ok(exchange.withdrawal_waits_for().len()))? });
        Ok(())
    })
}

/// Tells connected peers that this agent has registered memory anew, so that they fetch its blob.
///
/// Threads: one at a time on one exchange, a second call gets KVFFI_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_exchange_registered(
    exchange: *mut kvffi_exchange,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        unsafe {
            ask(exchange, |exchange, now| {
                exchange.registered(now);
                Ok(())
            })
        }
    })
}

/// Says goodbye to connected peers: they need not wait for anything of this agent. The last call before
/// kvffi_exchange_free and kvffi_agent_shutdown.
///
/// KVFFI_ERR_IN_USE while a write has not settled. Threads: one at a time on one exchange, a second call gets
/// KVFFI_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_exchange_goodbye(
    exchange: *mut kvffi_exchange,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        unsafe { ask(exchange, |exchange, now| Ok(exchange.goodbye(now)?)) }
    })
}
