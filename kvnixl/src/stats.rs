//! Counting what an agent does: a snapshot for those who ask, and the `metrics` facade for those who collect.
//!
//! Both say the same. `docs/METRICS.md` lists names and units.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use metrics::{
    Counter, Gauge, SharedString, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};

use crate::batch::Limits;
use crate::error::Error;
use crate::state::TransferStats;

/// Upper bounds of [`Histogram`]'s buckets in seconds: 10 µs to 60 s, three to a decade.
pub const BUCKET_SECONDS: [f64; 21] = [
    1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0,
    60.0,
];

/// Durations by size.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Histogram {
    /// Values in each bucket: `buckets[i]` counts those above `BUCKET_SECONDS[i - 1]` and up to
    /// `BUCKET_SECONDS[i]`; the last one what is longer than all bounds. Not cumulative.
    pub buckets: [u64; BUCKET_SECONDS.len() + 1],
    /// Sum of all values.
    pub sum: Duration,
}

impl Histogram {
    fn record(&mut self, value: Duration) {
        let seconds = value.as_secs_f64();
        let index = BUCKET_SECONDS.partition_point(|&bound| bound < seconds);
        self.buckets[index] = self.buckets[index].saturating_add(1);
        self.sum = self.sum.saturating_add(value);
    }

    /// Number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, bucket| sum.saturating_add(*bucket))
    }

    /// Smallest bound that at least `fraction` (0 to 1) of the values do not exceed, in seconds; infinite beyond the
    /// last bound, `None` without values.
    #[must_use]
    pub fn quantile(&self, fraction: f64) -> Option<f64> {
        let total = self.count();
        if total == 0 {
            return None;
        }
        let mut seen = 0_u64;
        for (index, bucket) in self.buckets.iter().enumerate() {
            seen = seen.saturating_add(*bucket);
            #[expect(clippy::cast_precision_loss, reason = "a quantile is approximate")]
            if seen > 0 && seen as f64 >= fraction * total as f64 {
                return Some(BUCKET_SECONDS.get(index).copied().unwrap_or(f64::INFINITY));
            }
        }
        Some(f64::INFINITY)
    }
}

/// Failed transfers by their first cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failures {
    /// The deadline passed.
    pub deadline: u64,
    /// The owner cancelled.
    pub cancelled: u64,
    /// The agent was shut down.
    pub shut_down: u64,
    /// The transport refused or lost a request: a dead peer, for example.
    pub transport: u64,
    /// All bytes are in place but the completion notification could not be sent.
    pub notification: u64,
}

impl Failures {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        let Self { deadline, cancelled, shut_down, transport, notification } = *self;
        [deadline, cancelled, shut_down, transport, notification].into_iter().fold(0, u64::saturating_add)
    }
}

/// What an agent has done since it was created, and what it is doing.
///
/// Counts go up only; the fields under *now* go up and down.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// Transfers started.
    pub transfers_started: u64,
    /// Transfers done: every byte in place, notification sent.
    pub transfers_done: u64,
    /// Transfers failed.
    pub transfers_failed: Failures,
    /// Transfers refused since too much was in flight ([`Error::WouldBlock`]).
    pub transfers_refused: u64,
    /// Bytes of transfers that are done.
    pub bytes: u64,
    /// Bytes of those that were padding, as the caller said
    /// ([`TransferOptions::padding_bytes`](crate::TransferOptions::padding_bytes)).
    pub padding_bytes: u64,
    /// Descriptors of transfers that are done, before they were cut.
    pub descriptors: u64,
    /// Requests posted.
    pub requests: u64,
    /// Time inside each post.
    pub post: Histogram,
    /// From start to outcome, of transfers that are done.
    pub transfer: Histogram,
    /// Notifications sent, those of transfers included.
    pub notifications_sent: u64,
    /// Notifications that could not be sent.
    pub notifications_failed: u64,
    /// Notifications that arrived and were handed out.
    pub notifications_received: u64,
    /// Notifications that arrived and were dropped: too long.
    pub notifications_dropped: u64,
    /// Transfers that left quarantine: they failed unsettled, and later settled.
    pub quarantine_left: u64,

    /// The agent's limits: what a transfer goes by that has none of its own.
    pub limits: Limits,
    /// Now: copy threads at work or ready for it, see
    /// [`NixlOptions::copy_threads`](crate::NixlOptions::copy_threads). 0 before the first transfer that they share.
    pub copy_threads: u64,
    /// Now: transfers without an outcome.
    pub in_flight_transfers: u64,
    /// Now: bytes of transfers that have not settled. See [`Limits::in_flight_bytes`](crate::Limits::in_flight_bytes).
    pub in_flight_bytes: u64,
    /// Now: descriptors likewise.
    pub in_flight_descriptors: u64,
    /// Now: transfers that have not settled, failed or not.
    pub unsettled: u64,
    /// Now: transfers that have failed and not settled. See [`Agent::quarantine`](crate::Agent::quarantine).
    pub quarantined: u64,
    /// Now: bytes that may still land for those.
    pub quarantined_bytes: u64,
}

/// How a transfer ended.
pub(crate) enum Outcome<'a> {
    Done(&'a TransferStats),
    /// The bytes are in place, nobody could be told.
    Unannounced,
    Failed(&'a Error),
}

/// Counts into both.
#[derive(Debug)]
pub(crate) struct Recorder {
    agent: SharedString,
    stats: Mutex<Stats>,
    meters: Meters,
}

impl Recorder {
    pub(crate) fn new(agent: &str) -> Self {
        let agent = SharedString::from(Arc::<str>::from(agent));
        let meters = Meters::new(&agent);
        Self { agent, stats: Mutex::default(), meters }
    }

    pub(crate) fn snapshot(&self) -> Stats {
        self.stats().clone()
    }

    fn stats(&self) -> MutexGuard<'_, Stats> {
        self.stats.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(crate) fn started(&self) {
        let mut stats = self.stats();
        add(&mut stats.transfers_started, 1);
        add(&mut stats.in_flight_transfers, 1);
        drop(stats);
        self.meters.started.increment(1);
        self.meters.in_flight_transfers.increment(1.0);
    }

    /// A started transfer that nobody took.
    pub(crate) fn withdrawn(&self) {
        self.ended(&Outcome::Failed(&Error::ShutDown { agent: self.agent.as_ref().to_owned() }));
    }

    pub(crate) fn refused(&self) {
        add(&mut self.stats().transfers_refused, 1);
        self.meters.refused.increment(1);
    }

    pub(crate) fn posted(&self, post: Duration) {
        let mut stats = self.stats();
        add(&mut stats.requests, 1);
        stats.post.record(post);
        drop(stats);
        self.meters.requests.increment(1);
        self.meters.post.record(post);
    }

    pub(crate) fn ended(&self, outcome: &Outcome<'_>) {
        let mut guard = self.stats();
        let stats = &mut *guard;
        stats.in_flight_transfers = stats.in_flight_transfers.saturating_sub(1);
        let failed = match outcome {
            Outcome::Done(done) => {
                let elapsed = done.elapsed.unwrap_or_default();
                let descriptors = u64::try_from(done.descriptors).unwrap_or(u64::MAX);
                add(&mut stats.transfers_done, 1);
                add(&mut stats.bytes, done.bytes);
                add(&mut stats.padding_bytes, done.padding_bytes);
                add(&mut stats.descriptors, descriptors);
                stats.transfer.record(elapsed);
                drop(guard);
                self.meters.done.increment(1);
                self.meters.bytes.increment(done.bytes);
                self.meters.padding_bytes.increment(done.padding_bytes);
                self.meters.descriptors.increment(descriptors);
                self.meters.transfer.record(elapsed);
                None
            }
            Outcome::Unannounced => Some((&mut stats.transfers_failed.notification, "notification")),
            Outcome::Failed(cause) => Some(match cause {
                Error::Deadline { .. } => (&mut stats.transfers_failed.deadline, "deadline"),
                Error::Cancelled => (&mut stats.transfers_failed.cancelled, "cancelled"),
                Error::ShutDown { .. } => (&mut stats.transfers_failed.shut_down, "shut_down"),
                _ => (&mut stats.transfers_failed.transport, "transport"),
            }),
        };
        if let Some((count, cause)) = failed {
            add(count, 1);
            counter!("kvnixl_transfers_failed_total", "agent" => self.agent.clone(), "cause" => cause).increment(1);
        }
        self.meters.in_flight_transfers.decrement(1.0);
    }

    pub(crate) fn left_quarantine(&self) {
        add(&mut self.stats().quarantine_left, 1);
        self.meters.quarantine_left.increment(1);
    }

    pub(crate) fn notified(&self, sent: bool) {
        if sent {
            add(&mut self.stats().notifications_sent, 1);
            self.meters.notifications_sent.increment(1);
        } else {
            add(&mut self.stats().notifications_failed, 1);
            self.meters.notifications_failed.increment(1);
        }
    }

    pub(crate) fn received(&self, kept: usize, dropped: usize) {
        let [kept, dropped] = [kept, dropped].map(|num| u64::try_from(num).unwrap_or(u64::MAX));
        if kept > 0 {
            add(&mut self.stats().notifications_received, kept);
            self.meters.notifications_received.increment(kept);
        }
        if dropped > 0 {
            add(&mut self.stats().notifications_dropped, dropped);
            self.meters.notifications_dropped.increment(dropped);
        }
    }

    /// Bytes and descriptors of transfers that have not settled.
    pub(crate) fn in_flight(&self, bytes: u64, descriptors: u64) {
        set(&self.meters.in_flight_bytes, bytes);
        set(&self.meters.in_flight_descriptors, descriptors);
    }

    pub(crate) fn quarantined(&self, transfers: u64, bytes: u64) {
        set(&self.meters.quarantined_transfers, transfers);
        set(&self.meters.quarantined_bytes, bytes);
    }
}

fn set(gauge: &Gauge, value: u64) {
    #[expect(clippy::cast_precision_loss, reason = "the facade has only floating-point gauges")]
    gauge.set(value as f64);
}

fn add(count: &mut u64, more: u64) {
    *count = count.saturating_add(more);
}

/// An agent's metrics, looked up once: a look-up for each transfer would take longer than a small copy.
macro_rules! meters {
    ($($field:ident: $kind:ident = $name:literal, $unit:ident, $text:literal;)*) => {
        struct Meters { $($field: meters!(@type $kind),)* }

        impl Meters {
            /// Tells the installed recorder what the names mean, and looks up this agent's.
            fn new(agent: &SharedString) -> Self {
                $(meters!(@describe $kind, $name, $unit, $text);)*
                describe_counter!("kvnixl_transfers_failed_total", "transfers failed, by first cause");
                Self { $($field: $kind!($name, "agent" => agent.clone()),)* }
            }
        }
    };
    (@type counter) => { Counter };
    (@type gauge) => { Gauge };
    (@type histogram) => { metrics::Histogram };
    (@describe counter, $name:literal, $unit:ident, $text:literal) => { describe_counter!($name, Unit::$unit, $text) };
    (@describe gauge, $name:literal, $unit:ident, $text:literal) => { describe_gauge!($name, Unit::$unit, $text) };
    (@describe histogram, $name:literal, $unit:ident, $text:literal) => {
        describe_histogram!($name, Unit::$unit, $text)
    };
}

meters! {
    started: counter = "kvnixl_transfers_started_total", Count, "transfers started";
    done: counter = "kvnixl_transfers_done_total", Count, "transfers whose bytes are all in place";
    refused: counter = "kvnixl_transfers_refused_total", Count, "transfers refused since too much was in flight";
    bytes: counter = "kvnixl_bytes_total", Bytes, "bytes of transfers that are done";
    padding_bytes: counter = "kvnixl_padding_bytes_total", Bytes, "bytes of those that were padding";
    descriptors: counter = "kvnixl_descriptors_total", Count, "descriptors of transfers that are done";
    requests: counter = "kvnixl_requests_total", Count, "requests posted";
    post: histogram = "kvnixl_post_seconds", Seconds, "time inside a post";
    transfer: histogram = "kvnixl_transfer_seconds", Seconds, "from start to outcome of transfers that are done";
    notifications_sent: counter = "kvnixl_notifications_sent_total", Count, "notifications sent";
    notifications_failed: counter = "kvnixl_notifications_failed_total", Count, "notifications that could not be sent";
    notifications_received: counter = "kvnixl_notifications_received_total", Count, "notifications handed out";
    notifications_dropped: counter = "kvnixl_notifications_dropped_total", Count, "notifications dropped on arrival";
    quarantine_left: counter = "kvnixl_quarantine_left_total", Count, "quarantined transfers that have settled";
    in_flight_transfers: gauge = "kvnixl_in_flight_transfers", Count, "transfers without an outcome";
    in_flight_bytes: gauge = "kvnixl_in_flight_bytes", Bytes, "bytes of transfers that have not settled";
    in_flight_descriptors: gauge = "kvnixl_in_flight_descriptors", Count, "descriptors of transfers that have not settled";
    quarantined_transfers: gauge = "kvnixl_quarantined_transfers", Count, "transfers that have failed and not settled";
    quarantined_bytes: gauge = "kvnixl_quarantined_bytes", Bytes, "bytes that may still land for those";
}

impl fmt::Debug for Meters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meters").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_fall_into_the_bucket_of_the_bound_that_holds_them() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), None);
        for micros in [10, 11, 1000, 61_000_000] {
            histogram.record(Duration::from_micros(micros));
        }
        assert_eq!(histogram.count(), 4);
        assert_eq!((histogram.buckets[0], histogram.buckets[1], histogram.buckets[6]), (1, 1, 1));
        assert_eq!(histogram.buckets[BUCKET_SECONDS.len()], 1);
        assert_eq!(histogram.quantile(0.5), Some(2e-5));
        assert_eq!(histogram.quantile(1.0), Some(f64::INFINITY));
        assert_eq!(histogram.sum, Duration::from_micros(61_001_021));
    }

    #[test]
    fn bounds_of_buckets_go_up() {
        assert!(BUCKET_SECONDS.is_sorted_by(|a, b| a < b));
    }
}
