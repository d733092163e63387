//! `kvffi_events`: what has happened at an exchange.

use std::ffi::{CStr, CString, c_char};

use kvnixl::lease::{ArrivalFailed, EndReason, Freed, PeerId};
use kvnixl::{Event, NotWritten, Notification, PullFailed};
use kvplan::BlockList;

use crate::argument::out_handle;
use crate::boundary::{ffi_body, ffi_value};
use crate::error::{c_text, kvffi_error};
use crate::exchange::{ask, kvffi_exchange, peer_name};
use crate::exchange_peers::ceil_ms;
use crate::failure::Failure;
use crate::handle::{self, Class, Kind};
use crate::nixl_failure::{full_text, status_of};
use crate::options::{Grows, out_struct};
use crate::request::kvffi_block_list;
use crate::status::{
    KVFFI_ERR_CANCELLED, KVFFI_ERR_DEADLINE, KVFFI_ERR_LEASE_ENDED, KVFFI_ERR_NOT_READY, KVFFI_ERR_NOT_WRITTEN,
    KVFFI_ERR_PEER_GONE, KVFFI_ERR_REFUSED, KVFFI_ERR_SYSTEM, KVFFI_ERR_TRANSFER_FAILED, KVFFI_OK, kvffi_status,
};

/// An event that this version of the library has no number for; message has it in words.
pub const KVFFI_EVENT_OTHER: i32 = 0;
/// Producer: source blocks (cookie) of a lease are the engine's again: request, lease, why.
pub const KVFFI_EVENT_FREED: i32 = 1;
/// Producer: a decode worker (peer, incarnation, reservation) wants a request that has a lease: request, lease, and its
/// blocks in lists. Write the parts that are ready with kvffi_exchange_write, and the others as they become so.
pub const KVFFI_EVENT_PUSH: i32 = 2;
/// Producer: the write of a part to a decode worker (peer, incarnation, reservation) has failed: part, status, message. The
/// decode worker is told at once, and again when it has settled.
pub const KVFFI_EVENT_WRITE_FAILED: i32 = 3;
/// Consumer: every byte of a pull is in its blocks (cookie), and every producer has confirmed its lease: pull.
pub const KVFFI_EVENT_PULLED: i32 = 4;
/// Consumer: the bytes of a pull cannot be used: pull, status, message. Its blocks follow.
pub const KVFFI_EVENT_PULL_FAILED: i32 = 5;
/// Consumer: blocks (cookie) of a pull that failed, with any bytes; nothing can land in them any more: pull.
pub const KVFFI_EVENT_RETURNED_PULL: i32 = 6;
/// Consumer: every producer has written everything into the blocks (cookie) of a reservation: reservation.
pub const KVFFI_EVENT_ARRIVED: i32 = 7;
/// Consumer: the bytes of a reservation will not be right: reservation, status, message. Its blocks follow.
pub const KVFFI_EVENT_ARRIVAL_FAILED: i32 = 8;
/// Consumer: blocks (cookie) of a reservation that failed, with any bytes; no producer touches them any more: reservation.
pub const KVFFI_EVENT_RETURNED_RESERVATION: i32 = 9;
/// A peer (peer, incarnation) cannot be reached: fetch its blob again when kvffi_exchange_want says so.
pub const KVFFI_EVENT_PEER_LOST: i32 = 10;
/// Another process (peer, incarnation) has the name of one that was there (old_incarnation).
pub const KVFFI_EVENT_PEER_REPLACED: i32 = 11;
/// A peer (peer, incarnation) has registered its memory anew, or is about to take it away: its blob is of no use any more.
pub const KVFFI_EVENT_PEER_STALE: i32 = 12;
/// A peer (peer, incarnation) was let go: nothing had been done with it for long, or it was asked for.
pub const KVFFI_EVENT_PEER_RELEASED: i32 = 13;
/// No peer that this agent has connected touches its memory any more: it may be deregistered.
pub const KVFFI_EVENT_WITHDRAWN: i32 = 14;
/// A notification that is the engine's own: peer, incarnation, data.
pub const KVFFI_EVENT_NOTIFICATION: i32 = 15;
/// Producer: a reader (peer, incarnation) wants a request no more: request, lease. Its share counts as done;
/// KVFFI_EVENT_FREED follows when nobody else is waited for and all parts are ready, so an engine that still computes them
/// may stop and abort the lease.
pub const KVFFI_EVENT_GIVEN_UP: i32 = 16;

/// Why a lease ended: all readers completed.
pub const KVFFI_WHY_ALL_READ: i32 = 1;
/// Why a lease ended: all readers completed or are gone.
pub const KVFFI_WHY_READERS_LOST: i32 = 2;
/// Why a lease ended: nobody extended it in time.
pub const KVFFI_WHY_EXPIRED: i32 = 3;
/// Why a lease ended: the producer ended it.
pub const KVFFI_WHY_ABORTED: i32 = 4;
/// Why a lease ended: all readers completed, have given it up, were refused, or are gone.
pub const KVFFI_WHY_GIVEN_UP: i32 = 5;

/// What has happened since the last poll, in order. Immutable.
///
/// Freed with kvffi_events_free.
#[derive(Debug)]
pub struct kvffi_events {
    _opaque: [u8; 0],
}

/// Kinds by name.
const NAMES: [(i32, &CStr); 17] = [
    (KVFFI_EVENT_OTHER, c"KVFFI_EVENT_OTHER"),
    (KVFFI_EVENT_FREED, c"KVFFI_EVENT_FREED"),
    (KVFFI_EVENT_PUSH, c"KVFFI_EVENT_PUSH"),
    (KVFFI_EVENT_WRITE_FAILED, c"KVFFI_EVENT_WRITE_FAILED"),
    (KVFFI_EVENT_PULLED, c"KVFFI_EVENT_PULLED"),
    (KVFFI_EVENT_PULL_FAILED, c"KVFFI_EVENT_PULL_FAILED"),
    (KVFFI_EVENT_RETURNED_PULL, c"KVFFI_EVENT_RETURNED_PULL"),
    (KVFFI_EVENT_ARRIVED, c"KVFFI_EVENT_ARRIVED"),
    (KVFFI_EVENT_ARRIVAL_FAILED, c"KVFFI_EVENT_ARRIVAL_FAILED"),
    (KVFFI_EVENT_RETURNED_RESERVATION, c"KVFFI_EVENT_RETURNED_RESERVATION"),
    (KVFFI_EVENT_PEER_LOST, c"KVFFI_EVENT_PEER_LOST"),
    (KVFFI_EVENT_PEER_REPLACED, c"KVFFI_EVENT_PEER_REPLACED"),
    (KVFFI_EVENT_PEER_STALE, c"KVFFI_EVENT_PEER_STALE"),
    (KVFFI_EVENT_PEER_RELEASED, c"KVFFI_EVENT_PEER_RELEASED"),
    (KVFFI_EVENT_WITHDRAWN, c"KVFFI_EVENT_WITHDRAWN"),
    (KVFFI_EVENT_NOTIFICATION, c"KVFFI_EVENT_NOTIFICATION"),
    (KVFFI_EVENT_GIVEN_UP, c"KVFFI_EVENT_GIVEN_UP"),
];

/// The name of a kind of event, such as "KVFFI_EVENT_PULLED"; "unknown event" for a number that this version does not have.
///
/// The text is static. Threads: any number at once.
#[unsafe(no_mangle)]
pub extern "C" fn kvffi_event_name(kind: i32) -> *const c_char {
    ffi_value!(c"unknown event".as_ptr(), {
        let known = NAMES.iter().find(|(number, _)| *number == kind);
        known.map_or(c"unknown event", |(_, name)| name).as_ptr()
    })
}

/// Something that happened. Starts as KVFFI_EVENT_INIT. The comment of its kind says which fields it has; the others are 0.
/// Pointers are valid until the kvffi_events is freed.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct kvffi_event {
    /// Size of this struct.
    pub struct_size: usize,
    /// KVFFI_EVENT_...: ignore what you do not know.
    pub kind: i32,
    /// KVFFI_WHY_...: why a lease ended.
    pub why: i32,
    /// The engine's number for the blocks.
    pub cookie: u64,
    /// The request; ends with a NUL.
    pub request: *const c_char,
    /// The lease.
    pub lease: u64,
    /// The pull.
    pub pull: u64,
    /// The reservation.
    pub reservation: u64,
    /// Name of the peer's agent; ends with a NUL.
    pub peer: *const c_char,
    /// The peer's incarnation; of a notification, 0 if its sender is no agent of this library.
    pub incarnation: u64,
    /// Incarnation of the process that was there before.
    pub old_incarnation: u64,
    /// The part.
    pub part: u32,
    /// The status that stands for a failure.
    pub status: kvffi_status,
    /// A failure in full; ends with a NUL.
    pub message: *const c_char,
    /// A decode worker's blocks by group, as the remote side of a request to write.
    pub lists: *const kvffi_block_list,
    /// Number of lists.
    pub num_lists: usize,
    /// Bytes of a notification; NULL if there are none.
    pub data: *const u8,
    /// Number of bytes.
    pub data_len: usize,
}

// SAFETY: `repr(C)`, 128 bytes without padding, `usize` first, integers and raw pointers only.
unsafe impl Grows for kvffi_event {
    const NAME: &'static str = "kvffi_event";
    const FIRST_SIZE: usize = 128;
}

/// What an event's pointers point to, and the event without them.
#[derive(Debug, Default)]
pub(crate) struct Told {
    kind: i32,
    why: i32,
    cookie: u64,
    request: Option<CString>,
    lease: u64,
    pull: u64,
    reservation: u64,
    peer: Option<CString>,
    incarnation: u64,
    old_incarnation: u64,
    part: u32,
    status: kvffi_status,
    message: Option<CString>,
    /// Group, first, blocks.
    lists: Vec<(u32, u64, Vec<u32>)>,
    data: Vec<u8>,
}

/// An event, and its lists as C sees them.
#[derive(Debug)]
pub(crate) struct Entry {
    told: Told,
    lists: Vec<List>,
}

/// A list whose pointer points into the same [`Entry`], which never changes.
#[repr(transparent)]
#[derive(Debug)]
struct List(kvffi_block_list);

// SAFETY: the pointer leads to memory of the same immutable object, and is read by whoever may read that.
unsafe impl Send for List {}
// SAFETY: as above.
unsafe impl Sync for List {}

impl Class for kvffi_events {
    type Inner = Vec<Entry>;
    const KIND: Kind = Kind::EVENTS;
}

impl Told {
    fn of(kind: i32) -> Self {
        Self { kind, ..Self::default() }
    }

    fn peer(self, peer: &PeerId) -> Self {
        Self { peer: Some(peer_name(peer)), incarnation: peer.incarnation, ..self }
    }

    fn failed(self, status: kvffi_status, message: String) -> Self {
        Self { status, message: Some(c_text(message)), ..self }
    }
}

fn pull_failed(why: &PullFailed) -> kvffi_status {
    match why {
        PullFailed::LeaseEnded { .. } => KVFFI_ERR_LEASE_ENDED,
        PullFailed::NotReady { .. } => KVFFI_ERR_NOT_READY,
        PullFailed::Deadline { .. } => KVFFI_ERR_DEADLINE,
        PullFailed::Transfer { source, .. } => match status_of(source) {
            KVFFI_OK => KVFFI_ERR_TRANSFER_FAILED,
            status => status,
        },
        PullFailed::Unreachable(_) => KVFFI_ERR_PEER_GONE,
        PullFailed::Cancelled => KVFFI_ERR_CANCELLED,
        _ => KVFFI_ERR_SYSTEM,
    }
}

fn arrival_failed(why: &ArrivalFailed) -> kvffi_status {
    match why {
        ArrivalFailed::NotWritten { why: NotWritten::Refused(_), .. } => KVFFI_ERR_REFUSED,
        ArrivalFailed::NotWritten { .. } => KVFFI_ERR_NOT_WRITTEN,
        ArrivalFailed::Lost(_) => KVFFI_ERR_PEER_GONE,
        ArrivalFailed::Deadline => KVFFI_ERR_DEADLINE,
        ArrivalFailed::Cancelled => KVFFI_ERR_CANCELLED,
        _ => KVFFI_ERR_SYSTEM,
    }
}

fn lists_of(lists: Vec<BlockList>) -> Vec<(u32, u64, Vec<u32>)> {
    let list = |list: BlockList| (list.group.0, list.start(), list.blocks.iter().map(|block| block.0).collect());
    lists.into_iter().map(list).collect()
}

fn told(event: Event<u64>) -> Told {
    match event {
        Event::Freed(Freed { lease, request, blocks, why }) => Told {
            cookie: blocks,
            request: Some(c_text(request.as_str().to_owned())),
            lease: lease.0,
            why: match why {
                EndReason::AllRead => KVFFI_WHY_ALL_READ,
                EndReason::ReadersLost => KVFFI_WHY_READERS_LOST,
                EndReason::Expired => KVFFI_WHY_EXPIRED,
                EndReason::Aborted => KVFFI_WHY_ABORTED,
                EndReason::GivenUp => KVFFI_WHY_GIVEN_UP,
            },
            ..Told::of(KVFFI_EVENT_FREED)
        },
        Event::Push { id, request, lease, lists } => Told {
            request: Some(c_text(request.as_str().to_owned())),
            lease: lease.0,
            reservation: id.reservation.0,
            lists: lists_of(lists),
            ..Told::of(KVFFI_EVENT_PUSH).peer(&id.reader)
        },
        Event::WriteFailed { id, part, cause } => {
            Told { reservation: id.reservation.0, part, ..Told::of(KVFFI_EVENT_WRITE_FAILED) }
                .peer(&id.reader)
                .failed(status_of(&cause), full_text(&*cause))
        }
        Event::GivenUp { request, lease, reader } => Told {
            request: Some(c_text(request.as_str().to_owned())),
            lease: lease.0,
            ..Told::of(KVFFI_EVENT_GIVEN_UP).peer(&reader)
        },
        Event::Pulled { id, blocks } => Told { pull: id.0, cookie: blocks, ..Told::of(KVFFI_EVENT_PULLED) },
        Event::PullFailed { id, why } => {
            Told { pull: id.0, ..Told::of(KVFFI_EVENT_PULL_FAILED) }.failed(pull_failed(&why), full_text(&why))
        }
        Event::ReturnedPull { id, blocks } => {
            Told { pull: id.0, cookie: blocks, ..Told::of(KVFFI_EVENT_RETURNED_PULL) }
        }
        Event::Arrived { id, blocks } => Told { reservation: id.0, cookie: blocks, ..Told::of(KVFFI_EVENT_ARRIVED) },
        Event::ArrivalFailed { id, why } => Told { reservation: id.0, ..Told::of(KVFFI_EVENT_ARRIVAL_FAILED) }
            .failed(arrival_failed(&why), full_text(&why)),
        Event::ReturnedReservation { id, blocks } => {
            Told { reservation: id.0, cookie: blocks, ..Told::of(KVFFI_EVENT_RETURNED_RESERVATION) }
        }
        Event::PeerLost(peer) => Told::of(KVFFI_EVENT_PEER_LOST).peer(&peer),
        Event::PeerReplaced { old, new } => {
            Told { old_incarnation: old.incarnation, ..Told::of(KVFFI_EVENT_PEER_REPLACED).peer(&new) }
        }
        Event::PeerStale(peer) => Told::of(KVFFI_EVENT_PEER_STALE).peer(&peer),
        Event::PeerReleased(peer) => Told::of(KVFFI_EVENT_PEER_RELEASED).peer(&peer),
        Event::Withdrawn => Told::of(KVFFI_EVENT_WITHDRAWN),
        Event::Notification(Notification { sender, incarnation, message }) => Told {
            peer: Some(c_text(sender)),
            incarnation: incarnation.unwrap_or(0),
            data: message,
            ..Told::of(KVFFI_EVENT_NOTIFICATION)
        },
        other => Told { message: Some(c_text(format!("{other:?}"))), ..Told::of(KVFFI_EVENT_OTHER) },
    }
}

impl Entry {
    fn new(told: Told) -> Self {
        let list = |(group, first, blocks): &(u32, u64, Vec<u32>)| {
            List(kvffi_block_list {
                group: *group,
                reserved: 0,
                first: *first,
                // The vector's elements stay where they are when the entry moves.
                blocks: blocks.as_ptr(),
                num_blocks: blocks.len(),
            })
        };
        let lists = told.lists.iter().map(list).collect();
        Self { told, lists }
    }

    fn as_c(&self) -> kvffi_event {
        let Self { told, lists } = self;
        let text = |text: &Option<CString>| text.as_ref().map_or(std::ptr::null(), |text| text.as_ptr());
        kvffi_event {
            struct_size: 0,
            kind: told.kind,
            why: told.why,
            cookie: told.cookie,
            request: text(&told.request),
            lease: told.lease,
            pull: told.pull,
            reservation: told.reservation,
            peer: text(&told.peer),
            incarnation: told.incarnation,
            old_incarnation: told.old_incarnation,
            part: told.part,
            status: told.status,
            message: text(&told.message),
            lists: if lists.is_empty() { std::ptr::null() } else { lists.as_ptr().cast() },
            num_lists: lists.len(),
            data: if told.data.is_empty() { std::ptr::null() } else { told.data.as_ptr() },
            data_len: told.data.len(),
        }
    }
}

// An array of `List` is one of `kvffi_block_list`.
const _: () = assert!(size_of::<List>() == size_of::<kvffi_block_list>());

/// Takes notifications, moves everything on, and hands out what has happened. Call it often, or when the agent's
/// descriptor is readable (kvffi_agent_get_fd): nothing happens between two polls. It clears the descriptor first.
///
/// out_events: what has happened, to be freed with kvffi_events_free; NULL if nothing has, or if the call fails.
///
/// KVFFI_ERR_TRANSPORT if notifications cannot be taken; nothing is lost by it. Threads: one at a time on one exchange, a
/// second call gets KVFFI_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_exchange_poll(
    exchange: *mut kvffi_exchange,
    out_events: *mut *mut kvffi_events,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let out_events = unsafe { out_handle(out_events, "out_events")? };
        // SAFETY: the crate's contract.
        let events = unsafe { ask(exchange, |exchange, now| Ok(exchange.poll(now)?))? };
        if !events.is_empty() {
            let entries = events.into_iter().map(|event| Entry::new(told(event))).collect();
            out_events.set(handle::into_handle::<kvffi_events>(entries));
        }
        Ok(())
    })
}

/// Says how long to wait for the next poll at most, if nothing happens before; 0 before the first poll. An engine that
/// waits on the agent's descriptor need not ask: the descriptor is readable by then.
///
/// out_timeout_ms: milliseconds, rounded up. Left alone if the call fails.
///
/// Threads: one at a time on one exchange, a second call gets KVFFI_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_exchange_get_timeout(
    exchange: *mut kvffi_exchange,
    out_timeout_ms: *mut u64,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let out_timeout_ms = unsafe { crate::argument::out(out_timeout_ms, "out_timeout_ms")? };
        // SAFETY: the crate's contract.
        let (deadline, now) = unsafe { ask(exchange, |exchange, now| Ok((exchange.next_deadline(), now)))? };
        out_timeout_ms.set(deadline.map_or(0, |deadline| ceil_ms(deadline.saturating_duration_since(now))));
        Ok(())
    })
}

/// Number of events; 0 if events is NULL or no kvffi_events.
///
/// Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_events_len(events: *const kvffi_events) -> usize {
    ffi_value!(0, {
        // SAFETY: the crate's contract.
        unsafe { handle::borrow(events, "events") }.map_or(0, Vec::len)
    })
}

/// Copies one event out.
///
/// index: below kvffi_events_len.
/// out_event: starts as KVFFI_EVENT_INIT. Left alone if the call fails.
///
/// Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_events_get(
    events: *const kvffi_events,
    index: usize,
    out_event: *mut kvffi_event,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (out_event, list) = unsafe { (out_struct(out_event, "out_event")?, handle::borrow(events, "events")?) };
        let entry = list
            .get(index)
            .ok_or_else(|| Failure::invalid(format!("index is {index}, there are {} events", list.len())))?;
        out_event.set(&entry.as_c());
        Ok(())
    })
}

/// Frees events. NULL does nothing.
///
/// Threads: no other call may use these events, then or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_events_free(events: *mut kvffi_events) {
    ffi_value!((), {
        // SAFETY: the crate's contract.
        unsafe { handle::free(events) }
    })
}
