//! `kvffi_exchange_stats`: everything that an exchange counts.

use crate::boundary::ffi_body;
use crate::error::kvffi_error;
use crate::exchange::{ask, kvffi_exchange};
use crate::options::{Grows, out_struct};
use crate::status::kvffi_status;

/// Counts since the start; what begins with "Now" goes up and down. Starts as KVFFI_EXCHANGE_STATS_INIT.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct kvffi_exchange_stats {
    /// Size of this struct.
    pub struct_size: usize,
    /// Leases given.
    pub lease_held: u64,
    /// Now: leases in force.
    pub lease_live: u64,
    /// Leases ended because all readers completed.
    pub lease_all_read: u64,
    /// Leases ended because the readers that had not completed are gone.
    pub lease_readers_lost: u64,
    /// Leases ended because nobody extended them.
    pub lease_expired: u64,
    /// Leases ended by the producer.
    pub lease_aborted: u64,
    /// Completions that counted.
    pub lease_completions: u64,
    /// Completions of a reader that had been counted.
    pub lease_duplicate_completions: u64,
    /// Completions after the lease had ended.
    pub lease_late_completions: u64,
    /// Completions before all parts were ready.
    pub lease_premature_completions: u64,
    /// Completions for leases that are not known.
    pub lease_unknown_completions: u64,
    /// Leases extended by heartbeats.
    pub lease_extensions: u64,
    /// Leases named by heartbeats that are not in force.
    pub lease_stale_heartbeats: u64,
    /// Registrations accepted.
    pub push_registered: u64,
    /// Now: registrations that wait for their request.
    pub push_waiting: u64,
    /// Now: registrations that have met their request.
    pub push_writing: u64,
    /// Registrations that arrived again.
    pub push_duplicates: u64,
    /// Registrations refused for lack of room.
    pub push_refused: u64,
    /// Registrations ended with everything written.
    pub push_written: u64,
    /// Registrations ended without.
    pub push_released: u64,
    /// Of those, because their deadline passed.
    pub push_expired: u64,
    /// Pulls started.
    pub pull_started: u64,
    /// Now: pulls that have not ended, those in quarantine included.
    pub pull_live: u64,
    /// Now: of those, failed and not settled.
    pub pull_quarantined: u64,
    /// Pulls ended with every byte confirmed.
    pub pull_pulled: u64,
    /// Pulls failed because a lease had ended.
    pub pull_lease_ended: u64,
    /// Pulls failed because time ran out.
    pub pull_deadline: u64,
    /// Pulls failed because a transfer did.
    pub pull_transfer: u64,
    /// Pulls failed because a producer could not be reached.
    pub pull_unreachable: u64,
    /// Pulls no longer wanted.
    pub pull_cancelled: u64,
    /// Pulls failed, and blocks given back.
    pub pull_returned: u64,
    /// Confirmations that nobody waited for.
    pub pull_stray_confirmations: u64,
    /// Reservations made.
    pub reservation_reserved: u64,
    /// Now: reservations in force.
    pub reservation_live: u64,
    /// Now: of those, failed and waiting for a writer that has not answered.
    pub reservation_quarantined: u64,
    /// Reservations ended with everything written.
    pub reservation_arrived: u64,
    /// Reservations failed.
    pub reservation_failed: u64,
    /// Of those, because time ran out.
    pub reservation_expired: u64,
    /// Of those, blocks that could be given back.
    pub reservation_returned: u64,
    /// Words of writers that were heard before.
    pub reservation_duplicates: u64,
    /// Words about reservations that are not held, or of peers that do not write them.
    pub reservation_unknown: u64,
    /// Now: peers that are ready.
    pub peer_ready: u64,
    /// Now: peers that are not.
    pub peer_not_ready: u64,
    /// Fetches asked for.
    pub peer_fetches: u64,
    /// Fetches that failed or were not answered.
    pub peer_failed_fetches: u64,
    /// Peers that failed or left.
    pub peer_lost: u64,
    /// Peers replaced by another process.
    pub peer_replaced: u64,
    /// Old blobs refused.
    pub peer_stale: u64,
    /// Peers let go because nothing was done with them.
    pub peer_idle: u64,
    /// Messages handed to the transport.
    pub message_sent: u64,
    /// Messages refused by the transport, or for a peer that is not connected.
    pub message_not_sent: u64,
    /// Messages read.
    pub message_received: u64,
    /// Messages that cannot be read.
    pub message_malformed: u64,
    /// Messages of another version, or of a kind that is not known.
    pub message_unsupported: u64,
    /// Messages from senders that are not agents of this library.
    pub message_anonymous: u64,
    /// Messages of registrations that did not fit together.
    pub refused_chunks: u64,
    /// Leases that ended because the readers that had not completed have given them up, or were refused.
    pub lease_given_up: u64,
    /// Of the messages sent, those sent again, since no answer had come.
    pub message_repeated: u64,
    /// Now: messages that wait for an answer.
    pub message_unanswered: u64,
}

// SAFETY: `repr(C)`, 480 bytes without padding, `usize` first, integers only.
unsafe impl Grows for kvffi_exchange_stats {
    const NAME: &'static str = "kvffi_exchange_stats";
    const FIRST_SIZE: usize = 456;
}

/// Takes a snapshot of everything that is counted.
///
/// out_stats: starts as KVFFI_EXCHANGE_STATS_INIT. Left alone if the call fails.
///
/// Threads: one at a time on one exchange, a second call gets KVFFI_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_exchange_get_stats(
    exchange: *mut kvffi_exchange,
    out_stats: *mut kvffi_exchange_stats,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let out_stats = unsafe { out_struct(out_stats, "out_stats")? };
        // SAFETY: the crate's contract.
        let stats = unsafe { ask(exchange, |exchange, _| Ok(exchange.stats()))? };
        out_stats.set(&kvffi_exchange_stats {
            struct_size: 0,
            lease_held: stats.leases.held,
            lease_live: stats.leases.live as u64,
            lease_all_read: stats.leases.all_read,
            lease_readers_lost: stats.leases.readers_lost,
            lease_expired: stats.leases.expired,
            lease_aborted: stats.leases.aborted,
            lease_completions: stats.leases.completions,
            lease_duplicate_completions: stats.leases.duplicate_completions,
            lease_late_completions: stats.leases.late_completions,
            lease_premature_completions: stats.leases.premature_completions,
            lease_unknown_completions: stats.leases.unknown_completions,
            lease_extensions: stats.leases.extensions,
            lease_stale_heartbeats: stats.leases.stale_heartbeats,
            push_registered: stats.push.registered,
            push_waiting: stats.push.waiting as u64,
            push_writing: stats.push.writing as u64,
            push_duplicates: stats.push.duplicates,
            push_refused: stats.push.refused,
            push_written: stats.push.written,
            push_released: stats.push.released,
            push_expired: stats.push.expired,
            pull_started: stats.pulls.started,
            pull_live: stats.pulls.live as u64,
            pull_quarantined: stats.pulls.quarantined as u64,
            pull_pulled: stats.pulls.pulled,
            pull_lease_ended: stats.pulls.lease_ended,
            pull_deadline: stats.pulls.deadline,
            pull_transfer: stats.pulls.transfer,
            pull_unreachable: stats.pulls.unreachable,
            pull_cancelled: stats.pulls.cancelled,
            pull_returned: stats.pulls.returned,
            pull_stray_confirmations: stats.pulls.stray_confirmations,
            reservation_reserved: stats.reservations.reserved,
            reservation_live: stats.reservations.live as u64,
            reservation_quarantined: stats.reservations.quarantined as u64,
            reservation_arrived: stats.reservations.arrived,
            reservation_failed: stats.reservations.failed,
            reservation_expired: stats.reservations.expired,
            reservation_returned: stats.reservations.returned,
            reservation_duplicates: stats.reservations.duplicates,
            reservation_unknown: stats.reservations.unknown,
            peer_ready: stats.peers.ready as u64,
            peer_not_ready: stats.peers.not_ready as u64,
            peer_fetches: stats.peers.fetches,
            peer_failed_fetches: stats.peers.failed_fetches,
            peer_lost: stats.peers.lost,
            peer_replaced: stats.peers.replaced,
            peer_stale: stats.peers.stale,
            peer_idle: stats.peers.idle,
            message_sent: stats.messages.sent,
            message_not_sent: stats.messages.not_sent,
            message_received: stats.messages.received,
            message_malformed: stats.messages.malformed,
            message_unsupported: stats.messages.unsupported,
            message_anonymous: stats.messages.anonymous,
            refused_chunks: stats.refused_chunks,
            lease_given_up: stats.leases.given_up,
            message_repeated: stats.messages.repeated,
            message_unanswered: stats.messages.unanswered as u64,
        });
        Ok(())
    })
}
