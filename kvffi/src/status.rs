//! `kvffi_status`: what every call that can fail returns.

use std::ffi::{CStr, c_char};

use crate::boundary::ffi_value;

/// What a call returns: 0 is success, a positive number is success that is still in progress, a negative number
/// is an error. Numbers are never given a second meaning; a retired number is never used again.
pub type kvffi_status = i32;

/// Done.
pub const KVFFI_OK: kvffi_status = 0;
/// Not finished yet; ask again.
pub const KVFFI_IN_PROGRESS: kvffi_status = 1;

/// A defect of this library was caught. Please report the text. The objects of the call may be freed, and nothing else.
pub const KVFFI_ERR_PANIC: kvffi_status = -1;
/// A pointer is NULL that must not be.
pub const KVFFI_ERR_NULL: kvffi_status = -2;
/// A handle is of another kind, was freed, or never was a handle.
pub const KVFFI_ERR_WRONG_HANDLE: kvffi_status = -3;
/// `struct_size` is no whole number of words or below the size of the struct's first version, or bytes that this version
/// does not know are set.
pub const KVFFI_ERR_STRUCT_SIZE: kvffi_status = -4;
/// A number is outside its range: an unknown enum value or flag, a reserved field that is not 0, a misaligned pointer.
pub const KVFFI_ERR_INVALID_ARGUMENT: kvffi_status = -5;
/// A text is not UTF-8.
pub const KVFFI_ERR_NOT_UTF8: kvffi_status = -6;
/// A length is larger than any array can be.
pub const KVFFI_ERR_TOO_LARGE: kvffi_status = -7;
/// The caller's array is too small; the length that is needed was written.
pub const KVFFI_ERR_BUFFER_TOO_SMALL: kvffi_status = -8;
/// Another thread is using an object that takes one call at a time.
pub const KVFFI_ERR_BUSY: kvffi_status = -9;
/// The header that the program was compiled with and this library do not fit together.
pub const KVFFI_ERR_VERSION: kvffi_status = -10;
/// A text is not the JSON that was expected; the message has the path of the field.
pub const KVFFI_ERR_JSON: kvffi_status = -11;
/// A spec contradicts itself; the message and the findings say everything that is wrong with it.
pub const KVFFI_ERR_INVALID_SPEC: kvffi_status = -12;
/// The two workers cannot exchange caches; the message and the findings say all reasons.
pub const KVFFI_ERR_PAIR_REFUSED: kvffi_status = -13;
/// A request cannot be answered.
pub const KVFFI_ERR_REQUEST_REFUSED: kvffi_status = -14;
/// Whole rows are required and the caches of one worker do not lie in whole rows.
pub const KVFFI_ERR_ROW_BROKEN: kvffi_status = -15;
/// An answer does not bring exactly the bytes that its request needs: a defect of this library, please report it.
pub const KVFFI_ERR_NOT_PROVEN: kvffi_status = -16;
/// NIXL cannot be loaded, or another one is; the message lists the places looked at.
pub const KVFFI_ERR_NO_LIBRARY: kvffi_status = -17;
/// NIXL, or the loopback, failed or refused something.
pub const KVFFI_ERR_TRANSPORT: kvffi_status = -18;
/// The operating system failed: no thread, no random numbers, no file descriptor.
pub const KVFFI_ERR_SYSTEM: kvffi_status = -19;
/// Memory of a kind that cannot be used here: no GPU, no driver.
pub const KVFFI_ERR_NO_DEVICE: kvffi_status = -20;
/// A call came too early or too late: no memory is registered, or some is already.
pub const KVFFI_ERR_WRONG_ORDER: kvffi_status = -21;
/// Something is still in use: transfers have not settled, or an exchange needs the agent.
pub const KVFFI_ERR_IN_USE: kvffi_status = -22;
/// The agent has been shut down.
pub const KVFFI_ERR_SHUT_DOWN: kvffi_status = -23;
/// Bytes outside of registered memory, or memory ranges that overlap, contradict their spec, or are not mapped readable and
/// writable.
pub const KVFFI_ERR_OUT_OF_RANGE: kvffi_status = -24;
/// The peer was replaced by a newer connection, disconnected, or is another agent's.
pub const KVFFI_ERR_PEER_GONE: kvffi_status = -25;
/// Bytes are not a peer's blob that this version can use.
pub const KVFFI_ERR_BLOB: kvffi_status = -26;
/// The peer's blob is older than what is known of it, or its process has ended, as after a restart: fetch it again.
pub const KVFFI_ERR_STALE_BLOB: kvffi_status = -27;
/// As much is in flight as is allowed; try again when some of it has settled.
pub const KVFFI_ERR_WOULD_BLOCK: kvffi_status = -28;
/// A transfer failed and has settled: nothing can land any more, its blocks may be used again.
pub const KVFFI_ERR_TRANSFER_FAILED: kvffi_status = -29;
/// A transfer failed and has not settled: bytes may still land, its blocks must not be used again.
pub const KVFFI_ERR_TRANSFER_UNSETTLED: kvffi_status = -30;
/// An agent ended with transfers that have not settled: their memory must stay mapped, unused, for ever.
pub const KVFFI_ERR_LEFT_UNSETTLED: kvffi_status = -31;
/// The object was made before a fork, by the parent process; or a child asks for an agent on NIXL, and its parent made one
/// before the fork. Exec first, or fork before the first agent.
pub const KVFFI_ERR_FORKED: kvffi_status = -32;
/// As the cause of a failure: time ran out.
pub const KVFFI_ERR_DEADLINE: kvffi_status = -33;
/// As the cause of a failure: it was cancelled.
pub const KVFFI_ERR_CANCELLED: kvffi_status = -34;
/// The request's blocks are held under a lease already.
pub const KVFFI_ERR_REQUEST_HELD: kvffi_status = -35;
/// A part of a request cannot be written now, or never; the message says why.
pub const KVFFI_ERR_WRITE_REFUSED: kvffi_status = -36;
/// No transfer may start with a peer; kvffi_exchange_want says what to do.
pub const KVFFI_ERR_PEER_NOT_READY: kvffi_status = -37;
/// As the cause of a failure: a lease was not good when the last byte had been read. The bytes must not be used.
pub const KVFFI_ERR_LEASE_ENDED: kvffi_status = -38;
/// As the cause of a failure: a producer will not write everything.
pub const KVFFI_ERR_NOT_WRITTEN: kvffi_status = -39;
/// As the cause of a failure: a request was read before its producer had computed all of it. Its lease goes on: pull again
/// when all parts are ready.
pub const KVFFI_ERR_NOT_READY: kvffi_status = -40;
/// As the cause of a failure: the producer refused the registration; the message has its reason.
pub const KVFFI_ERR_REFUSED: kvffi_status = -41;

const NAMES: [(kvffi_status, &CStr); 43] = [
    (KVFFI_OK, c"KVFFI_OK"),
    (KVFFI_IN_PROGRESS, c"KVFFI_IN_PROGRESS"),
    (KVFFI_ERR_PANIC, c"KVFFI_ERR_PANIC"),
    (KVFFI_ERR_NULL, c"KVFFI_ERR_NULL"),
    (KVFFI_ERR_WRONG_HANDLE, c"KVFFI_ERR_WRONG_HANDLE"),
    (KVFFI_ERR_STRUCT_SIZE, c"KVFFI_ERR_STRUCT_SIZE"),
    (KVFFI_ERR_INVALID_ARGUMENT, c"KVFFI_ERR_INVALID_ARGUMENT"),
    (KVFFI_ERR_NOT_UTF8, c"KVFFI_ERR_NOT_UTF8"),
    (KVFFI_ERR_TOO_LARGE, c"KVFFI_ERR_TOO_LARGE"),
    (KVFFI_ERR_BUFFER_TOO_SMALL, c"KVFFI_ERR_BUFFER_TOO_SMALL"),
    (KVFFI_ERR_BUSY, c"KVFFI_ERR_BUSY"),
    (KVFFI_ERR_VERSION, c"KVFFI_ERR_VERSION"),
    (KVFFI_ERR_JSON, c"KVFFI_ERR_JSON"),
    (KVFFI_ERR_INVALID_SPEC, c"KVFFI_ERR_INVALID_SPEC"),
    (KVFFI_ERR_PAIR_REFUSED, c"KVFFI_ERR_PAIR_REFUSED"),
    (KVFFI_ERR_REQUEST_REFUSED, c"KVFFI_ERR_REQUEST_REFUSED"),
    (KVFFI_ERR_ROW_BROKEN, c"KVFFI_ERR_ROW_BROKEN"),
    (KVFFI_ERR_NOT_PROVEN, c"KVFFI_ERR_NOT_PROVEN"),
    (KVFFI_ERR_NO_LIBRARY, c"KVFFI_ERR_NO_LIBRARY"),
    (KVFFI_ERR_TRANSPORT, c"KVFFI_ERR_TRANSPORT"),
    (KVFFI_ERR_SYSTEM, c"KVFFI_ERR_SYSTEM"),
    (KVFFI_ERR_NO_DEVICE, c"KVFFI_ERR_NO_DEVICE"),
    (KVFFI_ERR_WRONG_ORDER, c"KVFFI_ERR_WRONG_ORDER"),
    (KVFFI_ERR_IN_USE, c"KVFFI_ERR_IN_USE"),
    (KVFFI_ERR_SHUT_DOWN, c"KVFFI_ERR_SHUT_DOWN"),
    (KVFFI_ERR_OUT_OF_RANGE, c"KVFFI_ERR_OUT_OF_RANGE"),
    (KVFFI_ERR_PEER_GONE, c"KVFFI_ERR_PEER_GONE"),
    (KVFFI_ERR_BLOB, c"KVFFI_ERR_BLOB"),
    (KVFFI_ERR_STALE_BLOB, c"KVFFI_ERR_STALE_BLOB"),
    (KVFFI_ERR_WOULD_BLOCK, c"KVFFI_ERR_WOULD_BLOCK"),
    (KVFFI_ERR_TRANSFER_FAILED, c"KVFFI_ERR_TRANSFER_FAILED"),
    (KVFFI_ERR_TRANSFER_UNSETTLED, c"KVFFI_ERR_TRANSFER_UNSETTLED"),
    (KVFFI_ERR_LEFT_UNSETTLED, c"KVFFI_ERR_LEFT_UNSETTLED"),
    (KVFFI_ERR_FORKED, c"KVFFI_ERR_FORKED"),
    (KVFFI_ERR_DEADLINE, c"KVFFI_ERR_DEADLINE"),
    (KVFFI_ERR_CANCELLED, c"KVFFI_ERR_CANCELLED"),
    (KVFFI_ERR_REQUEST_HELD, c"KVFFI_ERR_REQUEST_HELD"),
    (KVFFI_ERR_WRITE_REFUSED, c"KVFFI_ERR_WRITE_REFUSED"),
    (KVFFI_ERR_PEER_NOT_READY, c"KVFFI_ERR_PEER_NOT_READY"),
    (KVFFI_ERR_LEASE_ENDED, c"KVFFI_ERR_LEASE_ENDED"),
    (KVFFI_ERR_NOT_WRITTEN, c"KVFFI_ERR_NOT_WRITTEN"),
    (KVFFI_ERR_NOT_READY, c"KVFFI_ERR_NOT_READY"),
    (KVFFI_ERR_REFUSED, c"KVFFI_ERR_REFUSED"),
];

/// The name of a status, such as "KVFFI_ERR_JSON"; "unknown status" for a number that this version does not have.
///
/// The text is static. Threads: any number at once.
#[unsafe(no_mangle)]
pub extern "C" fn kvffi_status_name(status: kvffi_status) -> *const c_char {
    ffi_value!(c"unknown status".as_ptr(), {
        let known = NAMES.iter().find(|(number, _)| *number == status);
        known.map_or(c"unknown status", |(_, name)| name).as_ptr()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_one_name() {
        let mut numbers: Vec<_> = NAMES.iter().map(|(number, _)| *number).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (-41..=1).collect::<Vec<_>>());
    }
}
