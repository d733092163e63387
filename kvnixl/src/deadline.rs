//! Until when something may take.

use std::time::{Duration, Instant};

use crate::lease::after;

/// The deadline of what is given none: 10 minutes, as long as heartbeats extend a lease by default
/// ([`LeaseOptions::max_lifetime`](crate::lease::LeaseOptions::max_lifetime)). What takes longer than any lease lasts
/// cannot succeed any more, and a request that nobody ends would keep its blocks for ever.
pub const DEFAULT_DEADLINE: Duration = Duration::from_secs(600);

/// When a pull or a reservation has failed at the latest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Deadline {
    /// [`DEFAULT_DEADLINE`] from now.
    #[default]
    Default,
    /// At this time.
    At(Instant),
    /// Never: it may wait for ever for a peer that hangs.
    Never,
}

impl From<Instant> for Deadline {
    fn from(at: Instant) -> Self {
        Self::At(at)
    }
}

impl Deadline {
    pub(crate) fn at(self, now: Instant) -> Instant {
        match self {
            Self::Default => after(now, DEFAULT_DEADLINE),
            Self::At(at) => at,
            Self::Never => after(now, Duration::MAX),
        }
    }
}
