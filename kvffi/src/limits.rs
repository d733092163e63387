//! `kvffi_limits`: how transfers are cut into requests, and how much may be in flight.

use kvnixl::Limits;

use crate::failure::Failure;
use crate::options::{self, Grows, set_bytes, set_count};

/// Bounds on what NIXL is given at once, since nothing else of an agent proceeds while a request is posted. Starts as
/// KVFFI_LIMITS_INIT; 0 is the default of every field: for a transfer, what its agent has.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct kvffi_limits {
    /// Size of this struct.
    pub struct_size: usize,
    /// Longest descriptor in bytes; longer ones are cut. 1 MiB by default.
    pub descriptor_bytes: u64,
    /// Most bytes in a request. 1 MiB by default.
    pub request_bytes: u64,
    /// Most descriptors in a request. 512 by default.
    pub request_descriptors: u64,
    /// Most requests of one transfer that are in progress at once. 16 by default.
    pub outstanding_requests: u64,
    /// Most bytes of all transfers of the agent that have not settled; one that is larger runs alone. 64 GiB by default.
    /// The agent's limit counts, not that of a transfer.
    pub in_flight_bytes: u64,
    /// Most descriptors likewise; each takes 56 bytes of memory until it is posted. 4 Mi by default.
    pub in_flight_descriptors: u64,
}

// SAFETY: `repr(C)`, 56 bytes without padding, `usize` first, integers only.
unsafe impl Grows for kvffi_limits {
    const NAME: &'static str = "kvffi_limits";
    const FIRST_SIZE: usize = 56;
}

/// # Safety
///
/// As for [`options::read`]; NULL, and what is 0, stays as in `known`.
pub(crate) unsafe fn read_limits(
    limits: *const kvffi_limits,
    mut known: Limits,
    argument: &str,
) -> Result<Limits, Failure> {
    if limits.is_null() {
        return Ok(known);
    }
    // SAFETY: by contract.
    let limits = unsafe { options::read(limits, argument)? };
    set_bytes(&mut known.descriptor_bytes, limits.descriptor_bytes);
    set_bytes(&mut known.request_bytes, limits.request_bytes);
    set_count(&mut known.request_descriptors, limits.request_descriptors);
    set_count(&mut known.outstanding_requests, limits.outstanding_requests);
    set_bytes(&mut known.in_flight_bytes, limits.in_flight_bytes);
    set_count(&mut known.in_flight_descriptors, limits.in_flight_descriptors);
    Ok(known)
}
