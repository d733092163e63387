//! `kvffi_notifications`: short messages that have arrived.

use std::ffi::{CString, c_char};

use kvnixl::Notification;

use crate::agent::kvffi_agent;
use crate::argument::{array, copy_out, out, out_handle};
use crate::boundary::{ffi_body, ffi_value};
use crate::error::{c_text, kvffi_error};
use crate::handle::{self, Class, Kind};
use crate::peer::kvffi_peer;
use crate::status::kvffi_status;

/// Longest notification in bytes.
pub const KVFFI_MAX_NOTIFICATION_BYTES: usize = 8192;

const _: () = assert!(KVFFI_MAX_NOTIFICATION_BYTES == kvnixl::MAX_NOTIFICATION_BYTES);

/// Notifications that were taken from an agent. Immutable.
///
/// Freed with kvffi_notifications_free.
#[derive(Debug)]
pub struct kvffi_notifications {
    _opaque: [u8; 0],
}

/// A notification that has arrived. Its pointers are valid until the kvffi_notifications is freed. Frozen: never grows.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct kvffi_notification {
    /// Name of the sending agent. Not authenticated: whoever can reach the agent can claim a name.
    pub sender: *const c_char,
    /// Incarnation of the sending agent.
    pub incarnation: u64,
    /// 1 if the sender is an agent of this library and incarnation is its; otherwise 0.
    pub has_incarnation: i32,
    /// 0.
    pub reserved: u32,
    /// The bytes that were sent; NULL if there are none.
    pub message: *const u8,
    /// Number of bytes.
    pub message_len: usize,
}

impl Class for kvffi_notifications {
    type Inner = Vec<(CString, Notification)>;
    const KIND: Kind = Kind::NOTIFICATIONS;
}

/// Sends a short message to a peer. Messages to one peer arrive in order; there is no confirmation, and no error is no
/// proof of delivery. May wait for one request that is being posted.
///
/// message, message_len: the bytes, at most KVFFI_MAX_NOTIFICATION_BYTES; may be (NULL, 0).
///
/// KVFFI_ERR_INVALID_ARGUMENT for a message that is too long. KVFFI_ERR_PEER_GONE if the peer is not connected.
/// KVFFI_ERR_TRANSPORT, for example if the peer is known to be gone. Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_agent_notify(
    agent: *const kvffi_agent,
    peer: *const kvffi_peer,
    message: *const u8,
    message_len: usize,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (agent, peer) = unsafe { (handle::borrow(agent, "agent")?, handle::borrow(peer, "peer")?) };
        // SAFETY: the crate's contract.
        let message = unsafe { array(message, message_len, "message")? };
        agent.agent()?.notify(&peer.peer, message)?;
        Ok(())
    })
}

/// Takes all notifications that have arrived. Those of one sender are in order. Those of an agent with an
/// exchange are its exchange's, whose events they are.
///
/// out_notifications: what has arrived, to be freed with kvffi_notifications_free; NULL if there is nothing or the call
/// fails.
///
/// KVFFI_ERR_IN_USE while the agent has an exchange. KVFFI_ERR_TRANSPORT. Threads: any number at once; each notification is taken once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_agent_take_notifications(
    agent: *const kvffi_agent,
    out_notifications: *mut *mut kvffi_notifications,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let out_notifications = unsafe { out_handle(out_notifications, "out_notifications")? };
        // SAFETY: the crate's contract.
        let arrived = unsafe { handle::borrow(agent, "agent")? }.agent()?.notifications()?;
        if !arrived.is_empty() {
            let named = arrived.into_iter().map(|arrived| (c_text(arrived.sender.clone()), arrived)).collect();
            out_notifications.set(handle::into_handle::<kvffi_notifications>(named));
        }
        Ok(())
    })
}

/// Number of notifications; 0 if notifications is NULL or no kvffi_notifications.
///
/// Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_notifications_len(notifications: *const kvffi_notifications) -> usize {
    ffi_value!(0, {
        // SAFETY: the crate's contract.
        unsafe { handle::borrow(notifications, "notifications") }.map_or(0, Vec::len)
    })
}

/// Copies the notifications into the caller's array, in the order in which they were taken.
///
/// array, capacity: the array; may be NULL if capacity is 0. Nothing is written to it if the call fails.
/// out_len: number of notifications; also written with KVFFI_ERR_BUFFER_TOO_SMALL.
///
/// KVFFI_ERR_BUFFER_TOO_SMALL if capacity is below that number. Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_notifications_get(
    notifications: *const kvffi_notifications,
    array: *mut kvffi_notification,
    capacity: usize,
    out_len: *mut usize,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let out_len = unsafe { out(out_len, "out_len")? };
        // SAFETY: the crate's contract.
        let arrived = unsafe { handle::borrow(notifications, "notifications")? };
        let values = arrived.iter().map(|(sender, Notification { incarnation, message, .. })| kvffi_notification {
            sender: sender.as_ptr(),
            incarnation: incarnation.unwrap_or(0),
            has_incarnation: i32::from(incarnation.is_some()),
            reserved: 0,
            message: if message.is_empty() { std::ptr::null() } else { message.as_ptr() },
            message_len: message.len(),
        });
        // SAFETY: the crate's contract.
        unsafe { copy_out(values, array, capacity, &out_len, "array") }
    })
}

/// Frees notifications. NULL does nothing.
///
/// Threads: no other call may use these notifications, then or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_notifications_free(notifications: *mut kvffi_notifications) {
    ffi_value!((), {
        // SAFETY: the crate's contract.
        unsafe { handle::free(notifications) }
    })
}
