//! `kvffi_agent_stats`: what an agent has done and is doing.

use kvnixl::BUCKET_SECONDS;

use crate::agent::kvffi_agent;
use crate::argument::{copy_out, out};
use crate::boundary::ffi_body;
use crate::error::kvffi_error;
use crate::failure::Failure;
use crate::handle;
use crate::options::{Grows, out_struct};
use crate::quarantine::micros;
use crate::status::kvffi_status;

/// A histogram: time inside each post.
pub const KVFFI_HISTOGRAM_POST: i32 = 0;
/// A histogram: from start to outcome, of transfers that are done.
pub const KVFFI_HISTOGRAM_TRANSFER: i32 = 1;

/// What an agent has done since it was made, and what it is doing. Starts as KVFFI_AGENT_STATS_INIT.
///
/// Counts go up only; the fields from in_flight_transfers on are of now, and go up and down.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct kvffi_agent_stats {
    /// Size of this struct.
    pub struct_size: usize,
    /// Transfers started.
    pub transfers_started: u64,
    /// Transfers done: every byte in place, notification sent.
    pub transfers_done: u64,
    /// Transfers failed: the deadline passed.
    pub failed_deadline: u64,
    /// Transfers failed: cancelled, or freed while in progress.
    pub failed_cancelled: u64,
    /// Transfers failed: the agent was shut down.
    pub failed_shut_down: u64,
    /// Transfers failed: the transport refused or lost a request.
    pub failed_transport: u64,
    /// Transfers failed: all bytes are in place, but the notification could not be sent.
    pub failed_notification: u64,
    /// Transfers refused with KVFFI_ERR_WOULD_BLOCK.
    pub transfers_refused: u64,
    /// Bytes of transfers that are done.
    pub bytes: u64,
    /// Bytes of those that were padding, as the caller said.
    pub padding_bytes: u64,
    /// Descriptors of transfers that are done, before they were cut.
    pub descriptors: u64,
    /// Requests posted.
    pub requests: u64,
    /// Time inside posts, in microseconds.
    pub post_us: u64,
    /// From start to outcome, of transfers that are done, in microseconds.
    pub transfer_us: u64,
    /// Notifications sent, those of transfers included.
    pub notifications_sent: u64,
    /// Notifications that could not be sent.
    pub notifications_failed: u64,
    /// Notifications that arrived and were taken.
    pub notifications_received: u64,
    /// Notifications that arrived and were dropped: too long.
    pub notifications_dropped: u64,
    /// Transfers that failed unsettled and later settled.
    pub quarantine_left: u64,
    /// Now: transfers without an outcome.
    pub in_flight_transfers: u64,
    /// Now: bytes of transfers that have not settled.
    pub in_flight_bytes: u64,
    /// Now: descriptors likewise.
    pub in_flight_descriptors: u64,
    /// Now: transfers that have not settled, failed or not.
    pub unsettled: u64,
    /// Now: transfers that have failed and not settled, see kvffi_agent_get_quarantine.
    pub quarantined: u64,
    /// Now: bytes that may still land for those.
    pub quarantined_bytes: u64,
}

// SAFETY: `repr(C)`, 208 bytes without padding, `usize` first, integers only.
unsafe impl Grows for kvffi_agent_stats {
    const NAME: &'static str = "kvffi_agent_stats";
    const FIRST_SIZE: usize = 208;
}

/// Durations of one size. Frozen: never grows.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct kvffi_bucket {
    /// Longest duration that counts here, in seconds; the bucket before has the shorter ones. Infinity for the last.
    pub upper_seconds: f64,
    /// Number of durations. Not cumulative.
    pub count: u64,
}

/// Takes a snapshot of what an agent has done and is doing.
///
/// out_stats: starts as KVFFI_AGENT_STATS_INIT. Left alone if the call fails.
///
/// Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_agent_get_stats(
    agent: *const kvffi_agent,
    out_stats: *mut kvffi_agent_stats,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (out_stats, agent) = unsafe { (out_struct(out_stats, "out_stats")?, handle::borrow(agent, "agent")?) };
        let stats = agent.agent()?.stats();
        out_stats.set(&kvffi_agent_stats {
            struct_size: 0,
            transfers_started: stats.transfers_started,
            transfers_done: stats.transfers_done,
            failed_deadline: stats.transfers_failed.deadline,
            failed_cancelled: stats.transfers_failed.cancelled,
            failed_shut_down: stats.transfers_failed.shut_down,
            failed_transport: stats.transfers_failed.transport,
            failed_notification: stats.transfers_failed.notification,
            transfers_refused: stats.transfers_refused,
            bytes: stats.bytes,
            padding_bytes: stats.padding_bytes,
            descriptors: stats.descriptors,
            requests: stats.requests,
            post_us: micros(stats.post.sum),
            transfer_us: micros(stats.transfer.sum),
            notifications_sent: stats.notifications_sent,
            notifications_failed: stats.notifications_failed,
            notifications_received: stats.notifications_received,
            notifications_dropped: stats.notifications_dropped,
            quarantine_left: stats.quarantine_left,
            in_flight_transfers: stats.in_flight_transfers,
            in_flight_bytes: stats.in_flight_bytes,
            in_flight_descriptors: stats.in_flight_descriptors,
            unsettled: stats.unsettled,
            quarantined: stats.quarantined,
            quarantined_bytes: stats.quarantined_bytes,
        });
        Ok(())
    })
}

/// Copies a histogram of an agent into the caller's array, by duration.
///
/// histogram: KVFFI_HISTOGRAM_POST or KVFFI_HISTOGRAM_TRANSFER.
/// buckets, capacity: the array; may be NULL if capacity is 0. Nothing is written to it if the call fails.
/// out_len: number of buckets; also written with KVFFI_ERR_BUFFER_TOO_SMALL.
///
/// KVFFI_ERR_BUFFER_TOO_SMALL if capacity is below that number. Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_agent_get_histogram(
    agent: *const kvffi_agent,
    histogram: i32,
    buckets: *mut kvffi_bucket,
    capacity: usize,
    out_len: *mut usize,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (out_len, agent) = unsafe { (out(out_len, "out_len")?, handle::borrow(agent, "agent")?) };
        let stats = agent.agent()?.stats();
        let histogram = match histogram {
            KVFFI_HISTOGRAM_POST => stats.post,
            KVFFI_HISTOGRAM_TRANSFER => stats.transfer,
            other => {
                return Err(Failure::invalid(format!(
                    "histogram is {other}, expected KVFFI_HISTOGRAM_POST (0) or KVFFI_HISTOGRAM_TRANSFER (1)"
                )));
            }
        };
        let values = histogram.buckets.iter().enumerate().map(|(i, &count)| kvffi_bucket {
            upper_seconds: BUCKET_SECONDS.get(i).copied().unwrap_or(f64::INFINITY),
            count,
        });
        // SAFETY: the crate's contract.
        unsafe { copy_out(values, buckets, capacity, &out_len, "buckets") }
    })
}
