//! Proof that an answer is right, without moving a byte.
//!
//! [`PairPlan::verify`] works out once more, token by token and cell by cell, which destination bytes the request
//! needs and where the source keeps them, from the two specs and the request. Of the planner it uses neither the
//! pairing of layers and parts nor timelines, schedules, strided copies, templates, rows and free bytes. Debug builds
//! run it on every answer.
//!
//! What both ways of getting there share, and what judges that apart from either:
//!
//! | shared | judged by |
//! |---|---|
//! | who serves whom: which units this source owes this destination ([`serve`](crate::serve)) | `tests/src/judge`, which lets any holder serve and wants every byte of a deployment exactly once: `prop_deployments_deliver_every_byte_once_and_touch_nothing_else` |
//! | [`ValidSpec::units_of`](kvspec::ValidSpec::units_of): the units that a rank holds | the same, which has a rule of its own (`first_unit`) |
//! | which lists may be answered at all (`lists`), and where those begin that do not say it (`align`) | `kvplan/tests/refusals.rs`, fault by fault; `align`'s tests, which try every prompt |
//! | the part formula, block lists and holes, as words of the two specs and the request | the same, which copies bytes as well (`tests/src/memory.rs`) |
//!
//! | concept | module |
//! |---|---|
//! | what a request needs | `needed` |
//! | what else is written, and whether it may be | `padding` |
//! | what can be wrong | `error` |

mod error;
mod needed;
mod padding;

use kvspec::{StorageIndex, ValidSpec};

pub use error::{NotFree, VerifyError};

use crate::descriptor::{Descriptor, Descriptors, ZeroRange};
use crate::lists::Seen;
use crate::pair::PairPlan;
use crate::refusal::Side;
use crate::request::Request;
use needed::{Listed, Needed, join, needed, wanted};
use padding::{Owners, Padding};

/// Steps of [`PairPlan::verify`], cells for the most part: some tens of seconds.
const MAX_STEPS: u64 = 1 << 32;
/// Steps that debug builds spend on every answer.
#[cfg(debug_assertions)]
pub(crate) const MAX_DEBUG_STEPS: u64 = 1 << 26;

/// Counts the steps of a proof. Blocks of a peer may claim any number of tokens.
#[derive(Debug)]
struct Steps {
    limit: u64,
    left: u64,
}

impl Steps {
    fn spend(&mut self, steps: u64) -> Result<(), VerifyError> {
        self.left = self.left.checked_sub(steps).ok_or(VerifyError::TooLarge { limit: self.limit })?;
        Ok(())
    }
}

impl PairPlan {
    /// Shows that an answer of this plan is right for its request: every descriptor lies in bounds on both sides, no
    /// destination byte is written twice, every needed byte comes from its place, nothing live is touched, and zero
    /// ranges and padding are as stated.
    ///
    /// # Errors
    ///
    /// [`VerifyError`] with the first thing that is wrong; [`VerifyError::TooLarge`] for requests of billions of
    /// cells.
    pub fn verify(&self, request: &Request, answer: &Descriptors) -> Result<(), VerifyError> {
        self.verify_within(request, answer, MAX_STEPS)
    }

    /// The same within a number of steps.
    pub(crate) fn verify_within(&self, request: &Request, answer: &Descriptors, limit: u64) -> Result<(), VerifyError> {
        let mut steps = Steps { limit, left: limit };
        let op = self.options.op;
        self.check_request(request, &mut Seen::default())?;
        in_bounds(&self.local, Side::Local, answer, |d| (d.local_storage, d.local_offset))?;
        in_bounds(&self.remote, Side::Remote, answer, |d| (d.remote_storage, d.remote_offset))?;

        let local = Listed { spec: &self.local, lists: &request.local };
        let remote = Listed { spec: &self.remote, lists: &request.remote };
        let (destination, source) = op.destination_first(local, remote);
        let wanted = wanted(&self.local, &self.remote, &request.layers)?;
        let (needed, zero) = needed(destination, source, (op, request.align), wanted.as_ref(), &mut steps)?;
        same_zero(&zero, answer.zero())?;

        let oriented = |d: &Descriptor| {
            let (local, remote) = ((d.local_storage, d.local_offset), (d.remote_storage, d.remote_offset));
            let ((storage, offset), (source_storage, source_offset)) = op.destination_first(local, remote);
            Needed { storage, offset, source_storage, source_offset, len: d.len }
        };
        let mut written: Vec<Needed> = answer.as_slice().iter().map(oriented).collect();
        written.sort_unstable();
        let twice = written.windows(2).find(|w| w[0].storage == w[1].storage && w[0].offset + w[0].len > w[1].offset);
        if let Some(w) = twice {
            return Err(VerifyError::WrittenTwice { storage: w[1].storage, offset: w[1].offset });
        }
        join(&mut written);
        let padding = compare(&needed, &written)?;
        let moved = padding.iter().map(|p| p.len).sum();
        if moved != answer.padding_bytes() {
            return Err(VerifyError::WrongPadding { counted: answer.padding_bytes(), moved });
        }
        let Some(&Padding { storage, offset, len }) = padding.first() else { return Ok(()) };
        if self.options.max_gap == 0 {
            return Err(VerifyError::Overwritten { storage, offset, len, why: NotFree::NoGapAllowed });
        }
        let owners = Owners::of(destination);
        padding.iter().try_for_each(|&padding| owners.allow(padding, &mut steps))
    }
}

fn in_bounds(
    spec: &ValidSpec,
    side: Side,
    answer: &Descriptors,
    place: impl Fn(&Descriptor) -> (StorageIndex, u64),
) -> Result<(), VerifyError> {
    for d in answer.as_slice() {
        let (storage, offset) = place(d);
        let storage_len = spec.storages.get(storage.index()).map_or(0, |s| s.len);
        if offset.checked_add(d.len).is_none_or(|end| end > storage_len) {
            return Err(VerifyError::OutOfBounds { side, storage, offset, len: d.len, storage_len });
        }
    }
    Ok(())
}

/// Checks that the ranges to zero are those that no source holds.
fn same_zero(expected: &[ZeroRange], given: &[ZeroRange]) -> Result<(), VerifyError> {
    let unlike = expected.iter().zip(given).find(|(a, b)| a != b).map(|(expected, _)| expected);
    // Where one list only continues the other, the first range that it has more.
    let more = || expected.get(given.len()).or(given.get(expected.len()));
    match unlike.or_else(more) {
        Some(&ZeroRange { storage, offset, .. }) => Err(VerifyError::WrongZero { storage, offset }),
        None => Ok(()),
    }
}

/// Checks that everything needed is written from its place; returns what is written beyond it.
fn compare(needed: &[Needed], written: &[Needed]) -> Result<Vec<Padding>, VerifyError> {
    let mut padding = Vec::new();
    let mut rest = needed.iter().copied().peekable();
    let not_delivered = |n: Needed| VerifyError::NotDelivered {
        storage: n.storage,
        offset: n.offset,
        len: n.len,
        source_storage: n.source_storage,
        source_offset: n.source_offset,
    };
    for w in written {
        let (mut at, end) = (w.offset, w.offset + w.len);
        while let Some(&n) = rest.peek().filter(|n| n.storage == w.storage && n.offset < end) {
            let source_offset = w.source_offset + (n.offset.max(w.offset) - w.offset);
            let right = n.source_storage == w.source_storage && n.source_offset == source_offset;
            if n.offset < at || n.offset + n.len > end || !right {
                return Err(not_delivered(n));
            }
            if n.offset > at {
                padding.push(Padding { storage: w.storage, offset: at, len: n.offset - at });
            }
            at = n.offset + n.len;
            rest.next();
        }
        if at < end {
            padding.push(Padding { storage: w.storage, offset: at, len: end - at });
        }
    }
    rest.next().map_or(Ok(padding), |n| Err(not_delivered(n)))
}

#[cfg(test)]
mod tests;
