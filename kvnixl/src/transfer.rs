//! A transfer as its owner sees it.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::batch::Limits;
use crate::deadline::DEFAULT_DEADLINE;
use crate::error::{Error, Result};
use crate::quarantine::Ledger;
use crate::state::{Standing, TransferState, TransferStats};
use crate::stats::Outcome;
use crate::wake::Wake;

/// What a transfer does besides moving bytes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TransferOptions {
    /// Sent to the peer after the last byte of all requests is in place; never when the transfer fails. At most
    /// [`MAX_NOTIFICATION_BYTES`](crate::MAX_NOTIFICATION_BYTES).
    pub notify: Option<Vec<u8>>,
    /// From the start; after it the transfer has failed, what was not posted is dropped, and what was posted
    /// still owns its blocks until it settles. [`DEFAULT_DEADLINE`] by default. `None` waits for ever: NIXL has no
    /// timeout of its own.
    pub deadline: Option<Duration>,
    /// Overrides the agent's limits.
    pub limits: Option<Limits>,
    /// The engine's name of what the blocks belong to: in log spans and in quarantine.
    pub request: Option<String>,
    /// How many of the bytes are padding, as the plan's report says: for [`Stats`](crate::Stats).
    pub padding_bytes: u64,
}

impl Default for TransferOptions {
    fn default() -> Self {
        Self { notify: None, deadline: Some(DEFAULT_DEADLINE), limits: None, request: None, padding_bytes: 0 }
    }
}

impl TransferOptions {
    /// Sends this to the peer when everything is in place.
    #[must_use]
    pub fn notify(mut self, message: impl Into<Vec<u8>>) -> Self {
        self.notify = Some(message.into());
        self
    }

    /// Fails the transfer after this time.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Lets the transfer wait for ever, for example for a peer that hangs.
    #[must_use]
    pub fn no_deadline(mut self) -> Self {
        self.deadline = None;
        self
    }

    /// Names the engine's request.
    #[must_use]
    pub fn request(mut self, request: impl Into<String>) -> Self {
        self.request = Some(request.into());
        self
    }

    /// Says how many of the bytes are padding.
    #[must_use]
    pub fn padding_bytes(mut self, bytes: u64) -> Self {
        self.padding_bytes = bytes;
        self
    }

    /// Overrides the agent's limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = Some(limits);
        self
    }
}

/// A transfer that was started. Dropping it lets the transfer go on unobserved; its blocks stay in use until
/// it settles, which [`Agent::unsettled`](crate::Agent::unsettled) counts.
///
/// `Send` and `Sync`. Only [`Transfer::wait`] and [`Transfer::wait_settled`] block.
#[derive(Clone)]
#[must_use = "a transfer owns its blocks until it has settled"]
pub struct Transfer {
    pub(crate) shared: Arc<Shared>,
}

impl Transfer {
    /// Number of the transfer at its agent, as in errors and logs.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.shared.id
    }

    /// Where it stands.
    #[must_use]
    pub fn state(&self) -> TransferState {
        self.shared.standing.state()
    }

    /// What it has cost so far.
    #[must_use]
    pub fn stats(&self) -> TransferStats {
        self.shared.standing.stats()
    }

    /// Says that the bytes are no longer wanted. What was not posted is not posted; what was posted still
    /// settles. No effect on a transfer that has finished.
    pub fn cancel(&self) {
        self.shared.standing.cancel();
    }

    /// Waits until every byte is in place, for at most `timeout`.
    ///
    /// # Errors
    ///
    /// [`Error::TransferFailed`], which says whether the transfer has settled; [`Error::Deadline`] when it is
    /// still in progress, and then it goes on.
    pub fn wait(&self, timeout: Duration) -> Result<()> {
        self.finish(timeout, TransferState::is_finished)
    }

    /// Waits until nothing can land any more, for at most `timeout`. `Ok` says settled, not successful: ask
    /// [`Transfer::state`].
    ///
    /// # Errors
    ///
    /// [`Error::Deadline`] when it has not settled.
    pub fn wait_settled(&self, timeout: Duration) -> Result<()> {
        match self.finish(timeout, TransferState::is_settled) {
            Err(Error::TransferFailed { settled: true, .. }) => Ok(()),
            other => other,
        }
    }

    fn finish(&self, timeout: Duration, enough: impl Fn(&TransferState) -> bool) -> Result<()> {
        let Shared { id, peer, standing, .. } = &*self.shared;
        match standing.wait(timeout, &enough) {
            TransferState::Done => Ok(()),
            state @ TransferState::Failed { .. } if enough(&state) => {
                let TransferState::Failed { cause, settled } = state else { return Ok(()) };
                Err(Error::TransferFailed { transfer: *id, peer: peer.clone(), settled, source: cause })
            }
            _ => Err(Error::Deadline { transfer: *id, peer: peer.clone(), waited: timeout }),
        }
    }
}

impl fmt::Debug for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { id, peer, .. } = &*self.shared;
        f.debug_struct("Transfer").field("id", id).field("peer", peer).field("state", &self.state()).finish()
    }
}

/// What the owner's handle and the posting thread share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) id: u64,
    pub(crate) peer: String,
    pub(crate) started: Instant,
    /// Names transfer, request and peer in everything that is logged about it.
    pub(crate) span: tracing::Span,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) standing: Standing,
    wake: Arc<Wake>,
}

impl Shared {
    pub(crate) fn new(
        id: u64,
        peer: String,
        stats: TransferStats,
        span: tracing::Span,
        ledger: Arc<Ledger>,
        wake: Arc<Wake>,
    ) -> Self {
        ledger.recorder.started();
        Self { id, peer, started: Instant::now(), span, ledger, standing: Standing::new(stats), wake }
    }

    pub(crate) fn count_request(&self, prepare: Duration, post: Duration) {
        self.standing.count(|stats| {
            stats.requests += 1;
            stats.prepare += prepare;
            stats.post += post;
        });
        self.ledger.recorder.posted(post);
    }

    /// Records that every byte is in place and what became of the notification.
    pub(crate) fn complete(&self, notified: Result<(), Error>) {
        let _entered = self.span.enter();
        let ended = self.standing.end(true, |stats| {
            stats.elapsed = Some(self.started.elapsed());
            match &notified {
                Ok(()) => {
                    tracing::debug!(requests = stats.requests, elapsed = ?stats.elapsed, "transfer done");
                    self.ledger.recorder.ended(&Outcome::Done(stats));
                }
                Err(error) => {
                    tracing::warn!(%error, "transfer done, but its notification could not be sent");
                    self.ledger.recorder.ended(&Outcome::Unannounced);
                }
            }
            notified.map_err(Arc::new)
        });
        self.told(ended);
    }

    /// Records why not everything was moved; the first cause stands.
    pub(crate) fn fail(&self, cause: Arc<Error>, settled: bool) {
        let _entered = self.span.enter();
        let ended = self.standing.end(settled, |stats| {
            stats.elapsed = Some(self.started.elapsed());
            tracing::warn!(settled, error = %cause, "transfer failed");
            self.ledger.recorder.ended(&Outcome::Failed(&cause));
            Err(cause)
        });
        self.told(ended);
    }

    /// Records that nothing can land any more.
    pub(crate) fn settle(&self) {
        let settled = self.standing.settle();
        if settled {
            self.span.in_scope(|| tracing::info!(after = ?self.started.elapsed(), "transfer settled"));
        }
        self.told(settled);
    }

    /// Wakes those who wait for anything at all.
    fn told(&self, news: bool) {
        if news {
            self.wake.raise();
        }
    }

    /// Takes it back: it was never begun.
    pub(crate) fn refuse(&self) {
        self.ledger.recorder.withdrawn();
    }

    /// Why it failed.
    pub(crate) fn cause(&self) -> Option<Arc<Error>> {
        match self.standing.state() {
            TransferState::Failed { cause, .. } => Some(cause),
            _ => None,
        }
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.standing.state().is_finished()
    }
}
