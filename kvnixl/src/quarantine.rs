//! Transfers that have failed and not settled: bytes may still land for them, so their blocks are nobody's.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use kvplan::Op;

use crate::batch::Limits;
use crate::error::{Error, Result};
use crate::stats::{Recorder, Stats};
use crate::transport::Piece;

/// A transfer that has failed and not settled, as [`Agent::quarantine`](crate::Agent::quarantine) lists it.
///
/// It leaves the list when it settles, and never otherwise: `docs/settling.md` says when that is certain.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Quarantined {
    /// Number of the transfer at its agent.
    pub transfer: u64,
    /// The engine's request, as given in [`TransferOptions::request`](crate::TransferOptions::request).
    pub request: Option<String>,
    /// The peer's name.
    pub peer: String,
    /// The peer's incarnation.
    pub incarnation: u64,
    /// Where bytes may land: [`Op::Read`] here, [`Op::Write`] at the peer.
    pub op: Op,
    /// Why the transfer failed.
    pub cause: Arc<Error>,
    /// Since when.
    pub since: Instant,
    /// Requests that NIXL says are in progress.
    pub in_progress: usize,
    /// Requests that failed with no proof that they have settled.
    pub unproven: usize,
    /// The ranges of those requests: what may still be written, and read. The rest of the transfer has settled.
    pub pieces: Vec<Piece>,
}

impl Quarantined {
    /// Bytes that may still land.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.pieces.iter().fold(0, |sum, piece| sum.saturating_add(piece.len))
    }

    /// How long it has been here.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.since.elapsed()
    }
}

/// What of an agent's transfers has not settled.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) recorder: Recorder,
    quarantined: Mutex<BTreeMap<u64, Quarantined>>,
    bytes: AtomicU64,
    descriptors: AtomicU64,
}

impl Ledger {
    pub(crate) fn new(agent: &str) -> Self {
        Self {
            recorder: Recorder::new(agent),
            quarantined: Mutex::default(),
            bytes: AtomicU64::new(0),
            descriptors: AtomicU64::new(0),
        }
    }

    fn quarantined(&self) -> MutexGuard<'_, BTreeMap<u64, Quarantined>> {
        self.quarantined.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Puts a transfer in, or says what is left of it.
    pub(crate) fn quarantine(&self, entry: Quarantined) {
        let mut quarantined = self.quarantined();
        quarantined.insert(entry.transfer, entry);
        self.gauges(&quarantined);
    }

    /// Takes a transfer out that has settled.
    pub(crate) fn settle(&self, transfer: u64) {
        let mut quarantined = self.quarantined();
        if quarantined.remove(&transfer).is_some() {
            self.recorder.left_quarantine();
            self.gauges(&quarantined);
        }
    }

    pub(crate) fn list(&self) -> Vec<Quarantined> {
        self.quarantined().values().cloned().collect()
    }

    fn gauges(&self, quarantined: &BTreeMap<u64, Quarantined>) {
        let (transfers, bytes) = totals(quarantined);
        self.recorder.quarantined(transfers, bytes);
    }

    pub(crate) fn stats(&self, unsettled: usize) -> Stats {
        let mut stats = self.recorder.snapshot();
        (stats.quarantined, stats.quarantined_bytes) = totals(&self.quarantined());
        stats.in_flight_bytes = self.bytes.load(Ordering::Acquire);
        stats.in_flight_descriptors = self.descriptors.load(Ordering::Acquire);
        stats.unsettled = u64::try_from(unsettled).unwrap_or(u64::MAX);
        stats
    }

    /// Claims room for a transfer. One that alone exceeds the limits may run when nothing else does.
    pub(crate) fn claim(self: &Arc<Self>, limits: &Limits, bytes: u64, descriptors: usize) -> Result<Claim> {
        let descriptors = u64::try_from(descriptors).unwrap_or(u64::MAX);
        let max_descriptors = u64::try_from(limits.in_flight_descriptors).unwrap_or(u64::MAX);
        // The lock makes both counts one.
        let _one_at_a_time = self.quarantined();
        let (other_bytes, other_descriptors) =
            (self.bytes.load(Ordering::Acquire), self.descriptors.load(Ordering::Acquire));
        let fits = |others: u64, more: u64, max: u64| others.checked_add(more).is_some_and(|sum| sum <= max);
        let alone = other_bytes == 0 && other_descriptors == 0;
        let room =
            fits(other_bytes, bytes, limits.in_flight_bytes) && fits(other_descriptors, descriptors, max_descriptors);
        if !alone && !room {
            self.recorder.refused();
            tracing::debug!(bytes, descriptors, other_bytes, other_descriptors, ?limits, "transfer would block");
            let descriptors = usize::try_from(other_descriptors).unwrap_or(usize::MAX);
            return Err(Error::WouldBlock { bytes: other_bytes, descriptors });
        }
        // Cannot wrap: either both were 0, or the sums were checked.
        self.bytes.fetch_add(bytes, Ordering::AcqRel);
        self.descriptors.fetch_add(descriptors, Ordering::AcqRel);
        let claim = Claim { ledger: self.clone(), bytes, descriptors };
        claim.tell();
        Ok(claim)
    }
}

fn totals(quarantined: &BTreeMap<u64, Quarantined>) -> (u64, u64) {
    let bytes = quarantined.values().fold(0_u64, |sum, entry| sum.saturating_add(entry.bytes()));
    (u64::try_from(quarantined.len()).unwrap_or(u64::MAX), bytes)
}

/// Room that a transfer has, until it is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    ledger: Arc<Ledger>,
    bytes: u64,
    descriptors: u64,
}

impl Claim {
    /// Takes the room of one transfer out of that of several.
    pub(crate) fn take(&mut self, bytes: u64, descriptors: usize) -> Self {
        let descriptors = u64::try_from(descriptors).unwrap_or(u64::MAX).min(self.descriptors);
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.descriptors -= descriptors;
        Self { ledger: self.ledger.clone(), bytes, descriptors }
    }

    /// Gives back all but this.
    pub(crate) fn shrink(&mut self, bytes: u64, descriptors: usize) {
        let descriptors = u64::try_from(descriptors).unwrap_or(u64::MAX).min(self.descriptors);
        let bytes = bytes.min(self.bytes);
        self.ledger.bytes.fetch_sub(self.bytes - bytes, Ordering::AcqRel);
        self.ledger.descriptors.fetch_sub(self.descriptors - descriptors, Ordering::AcqRel);
        (self.bytes, self.descriptors) = (bytes, descriptors);
        self.tell();
    }

    fn tell(&self) {
        let ledger = &self.ledger;
        ledger.recorder.in_flight(ledger.bytes.load(Ordering::Acquire), ledger.descriptors.load(Ordering::Acquire));
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.shrink(0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(bytes: u64, descriptors: usize) -> Limits {
        Limits { in_flight_bytes: bytes, in_flight_descriptors: descriptors, ..Limits::default() }
    }

    #[test]
    fn what_does_not_fit_beside_others_would_block_and_fits_later() {
        let ledger = Arc::new(Ledger::new("decode"));
        let limits = limits(100, 10);
        let first = ledger.claim(&limits, 60, 5).unwrap();
        let mut second = ledger.claim(&limits, 40, 5).unwrap();
        for (bytes, descriptors) in [(1, 0), (0, 1), (u64::MAX, 1)] {
            let refused = ledger.claim(&limits, bytes, descriptors);
            assert!(matches!(refused, Err(Error::WouldBlock { bytes: 100, descriptors: 10 })));
        }
        second.shrink(10, 1);
        assert!(ledger.claim(&limits, 30, 4).is_ok());
        drop((first, second));
        let stats = ledger.stats(0);
        assert_eq!((stats.in_flight_bytes, stats.in_flight_descriptors, stats.transfers_refused), (0, 0, 3));
    }

    #[test]
    fn room_for_several_transfers_is_claimed_at_once_and_given_back_one_by_one() {
        let ledger = Arc::new(Ledger::new("decode"));
        let mut both = ledger.claim(&limits(100, 10), 90, 3).unwrap();
        let first = both.take(60, 2);
        let in_flight = |ledger: &Ledger| {
            let stats = ledger.stats(0);
            (stats.in_flight_bytes, stats.in_flight_descriptors)
        };
        assert_eq!(in_flight(&ledger), (90, 3));
        drop(first);
        assert_eq!(in_flight(&ledger), (30, 1));
        drop(both);
        assert_eq!(in_flight(&ledger), (0, 0));
    }

    #[test]
    fn a_transfer_beyond_the_limits_runs_alone() {
        let ledger = Arc::new(Ledger::new("decode"));
        let huge = ledger.claim(&limits(100, 10), 1000, 1000).unwrap();
        assert!(ledger.claim(&limits(100, 10), 1, 1).is_err());
        drop(huge);
        assert!(ledger.claim(&limits(100, 10), 1, 1).is_ok());
    }
}
