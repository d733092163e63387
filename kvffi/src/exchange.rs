//! `kvffi_exchange`: leases, pulls, pushes and peers of one agent.

use std::ffi::{CString, c_char};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use kvnixl::lease::{LostReaders, PeerId, RequestId};
use kvnixl::{Deadline, Exchange, ExchangeOptions};

use crate::agent::kvffi_agent;
use crate::argument::{array, name, out_handle};
use crate::boundary::{ffi_body, ffi_value};
use crate::error::kvffi_error;
use crate::failure::Failure;
use crate::handle::{self, Class, Kind};
use crate::options::{self, Grows, set_count, set_duration};
use crate::status::kvffi_status;

/// What becomes of the share of a reader that is gone: it counts as done. The default.
pub const KVFFI_LOST_READERS_RELEASE: i32 = 0;
/// What becomes of the share of a reader that is gone: the lease waits for another process of that name until it expires.
pub const KVFFI_LOST_READERS_WAIT: i32 = 1;

/// Leases, pulls, pushes and peers of one agent: the only one of that agent, since it takes all its notifications. The
/// engine's blocks are a number of its own, a cookie, that comes back when the blocks are the engine's again. Takes one
/// call at a time; nothing happens between two polls.
///
/// Freed with kvffi_exchange_free.
#[derive(Debug)]
pub struct kvffi_exchange {
    _opaque: [u8; 0],
}

/// How an exchange behaves. Starts as KVFFI_EXCHANGE_OPTIONS_INIT; 0 is the default of every field.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct kvffi_exchange_options {
    /// Size of this struct.
    pub struct_size: usize,
    /// How long a lease lasts from the moment that all its parts are ready, and from each heartbeat. 30 s by default.
    pub lease_ttl_ms: u64,
    /// How long heartbeats can extend it altogether. 10 minutes by default.
    pub lease_max_lifetime_ms: u64,
    /// How long an ended lease is remembered, so that late and repeated completions get the right answer. 60 s by default.
    pub lease_remember_ms: u64,
    /// KVFFI_LOST_READERS_RELEASE or KVFFI_LOST_READERS_WAIT.
    pub lost_readers: i32,
    /// 0.
    pub reserved: u32,
    /// How often leases that are needed are extended; poll some times as often. 5 s by default.
    pub heartbeat_every_ms: u64,
    /// Most registrations of decode workers that wait or are being written; one worker may have half. 65,536 by default.
    pub max_registrations: u64,
    /// Most block ids in all of them, where each list counts as 16 more; one worker may have half. 64 Mi by default.
    pub max_registered_blocks: u64,
    /// First wait before a peer's blob is fetched again; doubles with every failure. 100 ms by default.
    pub first_retry_ms: u64,
    /// Longest such wait. 10 s by default.
    pub max_retry_ms: u64,
    /// A fetch that is not answered for so long has failed. 5 s by default.
    pub fetch_timeout_ms: u64,
    /// A peer that nothing was done with for so long is let go. 10 minutes by default.
    pub peer_idle_ttl_ms: u64,
    /// How long the outcome of a registration is remembered, so that a decode worker that missed it is told again.
    /// 10 minutes by default.
    pub push_remember_ms: u64,
    /// Most ended leases remembered. 65,536 by default.
    pub max_ended_leases: u64,
    /// Most outcomes of registrations remembered. 65,536 by default.
    pub max_ended_registrations: u64,
    /// Most incarnations remembered that were replaced under a name, so that an old blob is known to be old. 64 by
    /// default.
    pub max_past_incarnations: u64,
}

// SAFETY: `repr(C)`, 128 bytes without padding, `usize` first, integers only.
unsafe impl Grows for kvffi_exchange_options {
    const NAME: &'static str = "kvffi_exchange_options";
    const FIRST_SIZE: usize = 96;
}

/// One life of an agent: another incarnation under the same name is another process. Frozen: never grows.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct kvffi_peer_id {
    /// The agent's name; ends with a NUL.
    pub name: *const c_char,
    /// Its random number.
    pub incarnation: u64,
}

impl Class for kvffi_exchange {
    type Inner = Mutex<Exchange<u64>>;
    const KIND: Kind = Kind::EXCHANGE;
    const SURVIVES_FORK: bool = false;
}

/// # Safety
///
/// As for [`options::read`]; NULL gives the defaults.
unsafe fn exchange_options(options: *const kvffi_exchange_options) -> Result<ExchangeOptions, Failure> {
    let mut known = ExchangeOptions::default();
    if options.is_null() {
        return Ok(known);
    }
    // SAFETY: by contract.
    let options = unsafe { options::read(options, "options")? };
    crate::worker::reserved(options.reserved, "options->reserved")?;
    set_duration(&mut known.lease.ttl, options.lease_ttl_ms);
    set_duration(&mut known.lease.max_lifetime, options.lease_max_lifetime_ms);
    set_duration(&mut known.lease.remember, options.lease_remember_ms);
    known.lease.lost_readers = match options.lost_readers {
        KVFFI_LOST_READERS_RELEASE => LostReaders::Release,
        KVFFI_LOST_READERS_WAIT => LostReaders::Wait,
        other => {
            return Err(Failure::invalid(format!(
                "options->lost_readers is {other}, expected KVFFI_LOST_READERS_RELEASE (0) or _WAIT (1)"
            )));
        }
    };
    set_duration(&mut known.heartbeat_every, options.heartbeat_every_ms);
    set_count(&mut known.push.max_registrations, options.max_registrations);
    set_count(&mut known.push.max_blocks, options.max_registered_blocks);
    set_duration(&mut known.peer.first_retry, options.first_retry_ms);
    set_duration(&mut known.peer.max_retry, options.max_retry_ms);
    set_duration(&mut known.peer.fetch_timeout, options.fetch_timeout_ms);
    set_duration(&mut known.peer.idle_ttl, options.peer_idle_ttl_ms);
    set_duration(&mut known.push.remember, options.push_remember_ms);
    set_count(&mut known.lease.max_remembered, options.max_ended_leases);
    set_count(&mut known.push.max_remembered, options.max_ended_registrations);
    set_count(&mut known.peer.max_past, options.max_past_incarnations);
    Ok(known)
}

/// Makes an exchange over an agent.
///
/// agent: it keeps working for the engine's own transfers; its notifications come as events of the exchange.
/// options: NULL for the defaults.
/// out_exchange: the exchange, to be freed with kvffi_exchange_free; NULL if the call fails.
///
/// KVFFI_ERR_IN_USE while the agent has another exchange, since two would take each other's messages, and then until the
/// writes of that one have settled, for which the next could not answer: that may take somebody's word that a peer has
/// ended (kvffi_peer_declare_gone). KVFFI_ERR_SHUT_DOWN.
/// Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_exchange_new(
    agent: *const kvffi_agent,
    options: *const kvffi_exchange_options,
    out_exchange: *mut *mut kvffi_exchange,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (out_exchange, agent) =
            unsafe { (out_handle(out_exchange, "out_exchange")?, handle::borrow(agent, "agent")?) };
        // SAFETY: the crate's contract.
        let options = unsafe { exchange_options(options)? };
        let exchange = Exchange::new(agent.agent()?, options)?;
        out_exchange.set(handle::into_handle(Mutex::new(exchange)));
        Ok(())
    })
}

/// Frees an exchange. NULL does nothing. Cookies of blocks that it still holds are forgotten, and two kinds of blocks must
/// not be used again yet. Those of pulls: their transfers go on until they have settled, and kvffi_agent_info counts them.
/// Those of reservations: their producers write them, which this agent does not count. Cancel reservations and poll until
/// all their blocks have come back before freeing the exchange, or know that the producers' processes have ended.
///
/// Threads: no other call may use this exchange, then or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_exchange_free(exchange: *mut kvffi_exchange) {
    ffi_value!((), {
        // SAFETY: the crate's contract.
        unsafe { handle::free(exchange) }
    })
}

/// Calls a method of an exchange.
///
/// # Safety
///
/// As for [`handle::borrow`].
pub(crate) unsafe fn ask<R>(
    exchange: *const kvffi_exchange,
    body: impl FnOnce(&mut Exchange<u64>, Instant) -> Result<R, Failure>,
) -> Result<R, Failure> {
    // SAFETY: by contract.
    let mut exchange = handle::lock(unsafe { handle::borrow(exchange, "exchange")? }, "exchange")?;
    body(&mut exchange, Instant::now())
}

/// As [`ask`], for a method after which the exchange may have something to say or to do: whoever waits polls again.
///
/// # Safety
///
/// As for [`handle::borrow`].
pub(crate) unsafe fn change<R>(
    exchange: *const kvffi_exchange,
    body: impl FnOnce(&mut Exchange<u64>, Instant) -> Result<R, Failure>,
) -> Result<R, Failure> {
    // SAFETY: by contract.
    unsafe {
        ask(exchange, |exchange, now| {
            let done = body(exchange, now)?;
            exchange.agent().raise_event();
            Ok(done)
        })
    }
}

/// A deadline from now: 0 is the default, and what lies beyond the clock's range is for ever.
pub(crate) fn deadline(now: Instant, ms: u64) -> Deadline {
    match ms {
        0 => Deadline::Default,
        _ => now.checked_add(Duration::from_millis(ms)).map_or(Deadline::Never, Deadline::At),
    }
}

/// # Safety
///
/// `request` is NULL or ends with a NUL.
pub(crate) unsafe fn request_id(request: *const c_char, argument: &str) -> Result<RequestId, Failure> {
    // SAFETY: by contract.
    Ok(RequestId::new(unsafe { name(request, argument)? })?)
}

/// # Safety
///
/// `peer` is NULL or readable, its name NULL or a text that ends with a NUL.
pub(crate) unsafe fn peer_id(peer: *const kvffi_peer_id, argument: &str) -> Result<PeerId, Failure> {
    // SAFETY: by contract.
    let [peer] = (unsafe { array(peer, 1, argument)? }) else { return Err(Failure::null(argument)) };
    // SAFETY: by contract.
    Ok(PeerId::new(unsafe { name(peer.name, &format!("{argument}->name"))? }, peer.incarnation))
}

/// A peer's name with a NUL at its end.
pub(crate) fn peer_name(peer: &PeerId) -> CString {
    crate::error::c_text(peer.name.to_string())
}
