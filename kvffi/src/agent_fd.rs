//! A file descriptor to wait on, instead of asking again and again.

use std::os::fd::AsRawFd;
use std::time::Duration;

use crate::agent::kvffi_agent;
use crate::argument::out;
use crate::boundary::ffi_body;
use crate::error::kvffi_error;
use crate::handle;
use crate::status::kvffi_status;

/// How often notifications are asked for by default.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Hands out a file descriptor for poll, epoll or an event loop. It is readable when a transfer has ended or settled, when
/// a notification has arrived, when an exchange of this agent has something to do, and when the agent has ended; and once
/// right after this call. Then call kvffi_agent_clear_fd and look at everything; kvffi_exchange_poll does both for what
/// is the exchange's. Only wait for it to be readable: do not read, write or close it.
///
/// NIXL has to be asked for notifications: from the first call on the agent's own thread does that, and keeps them until
/// they are taken: about a hundredth of a core at the default. Without this call nothing is done.
///
/// look_every_us: how often, in microseconds, of the latest call; 0 for 1000.
/// out_fd: the descriptor, the same for every call. Valid until the agent has been shut down or freed. Left alone if the
/// call fails.
///
/// KVFFI_ERR_SYSTEM. Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_agent_get_fd(
    agent: *const kvffi_agent,
    look_every_us: u64,
    out_fd: *mut i32,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (out_fd, agent) = unsafe { (out(out_fd, "out_fd")?, handle::borrow(agent, "agent")?) };
        let look_every = if look_every_us == 0 { LOOK_EVERY } else { Duration::from_micros(look_every_us) };
        out_fd.set(agent.agent()?.event_fd(look_every)?.as_raw_fd());
        Ok(())
    })
}

/// Makes the agent's descriptor unreadable until something happens again. Look at transfers and notifications after this
/// call, not before it: then nothing is missed.
///
/// Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_agent_clear_fd(
    agent: *const kvffi_agent,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        unsafe { handle::borrow(agent, "agent")? }.agent()?.clear_events();
        Ok(())
    })
}

/// Makes the agent's descriptor readable, for example to end another thread's wait. No effect before kvffi_agent_get_fd.
///
/// Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_agent_raise_fd(
    agent: *const kvffi_agent,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        unsafe { handle::borrow(agent, "agent")? }.agent()?.raise_event();
        Ok(())
    })
}
