//! `kvffi_loopback`: a network within one process, for tests.

use kvnixl::LoopbackNetwork;

use crate::argument::out_handle;
use crate::boundary::{ffi_body, ffi_value};
use crate::error::kvffi_error;
use crate::failure::Failure;
use crate::handle::{self, Class, Kind};
use crate::status::kvffi_status;

/// Of a loopback: requests that are posted stay in progress and move nothing, as with a peer that has stopped.
pub const KVFFI_LOOPBACK_STALL: u32 = 1;
/// Of a loopback: requests fail with no proof that they have settled, as with a peer that was lost.
pub const KVFFI_LOOPBACK_BREAK: u32 = 2;
/// Of a loopback: notifications are taken and never arrive.
pub const KVFFI_LOOPBACK_LOSE_NOTIFICATIONS: u32 = 4;

/// Agents of one process that can reach each other without NIXL, for tests and first contact: bytes are copied on the
/// host.
///
/// Freed with kvffi_loopback_free, at any time: agents keep what they need.
#[derive(Debug)]
pub struct kvffi_loopback {
    _opaque: [u8; 0],
}

impl Class for kvffi_loopback {
    type Inner = LoopbackNetwork;
    const KIND: Kind = Kind::LOOPBACK;
    const SURVIVES_FORK: bool = false;
}

/// Makes a network without agents; kvffi_agent_options takes it.
///
/// out_loopback: the network, to be freed with kvffi_loopback_free; NULL if the call fails.
///
/// Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_loopback_new(
    out_loopback: *mut *mut kvffi_loopback,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let out_loopback = unsafe { out_handle(out_loopback, "out_loopback")? };
        out_loopback.set(handle::into_handle(LoopbackNetwork::new()));
        Ok(())
    })
}

/// Makes a network misbehave, or behave again.
///
/// faults: any of KVFFI_LOOPBACK_STALL, KVFFI_LOOPBACK_BREAK, KVFFI_LOOPBACK_LOSE_NOTIFICATIONS, or'ed; 0 for none.
///
/// Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_loopback_set_faults(
    loopback: *const kvffi_loopback,
    faults: u32,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let network = unsafe { handle::borrow(loopback, "loopback")? };
        let unknown = faults & !(KVFFI_LOOPBACK_STALL | KVFFI_LOOPBACK_BREAK | KVFFI_LOOPBACK_LOSE_NOTIFICATIONS);
        if unknown != 0 {
            return Err(Failure::invalid(format!("faults has the unknown bits {unknown:#x}")));
        }
        network.stall(faults & KVFFI_LOOPBACK_STALL != 0);
        network.break_requests(faults & KVFFI_LOOPBACK_BREAK != 0);
        network.lose_notifications(faults & KVFFI_LOOPBACK_LOSE_NOTIFICATIONS != 0);
        Ok(())
    })
}

/// Frees a network. NULL does nothing. Its agents go on.
///
/// Threads: no other call may use this network, then or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_loopback_free(loopback: *mut kvffi_loopback) {
    ffi_value!((), {
        // SAFETY: the crate's contract.
        unsafe { handle::free(loopback) }
    })
}
