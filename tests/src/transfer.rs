//! One transfer between two deployments, as data.

use kvplan::request::{BlockList, Op};
use kvspec::CacheSpec;
use serde::Serialize;

use crate::cells::Place;

/// All ranks of both sides and what each lists.
///
/// Serialisable, so that a failing case can be written down.
#[derive(Clone, Debug, Serialize)]
pub struct Transfer {
    /// Who plans: the destination ("read") or the source ("write").
    pub op: Op,
    /// Ranks that hold the bytes, in (pp, tp) order.
    pub sources: Vec<Worker>,
    /// Ranks that want them, in (pp, tp) order.
    pub destinations: Vec<Worker>,
    /// Longest gap that may be bridged.
    pub max_gap: u64,
}

/// One rank: its caches and its block lists of this request.
#[derive(Clone, Debug, Serialize)]
pub struct Worker {
    /// Its caches.
    pub spec: CacheSpec,
    /// Its block lists.
    pub lists: Vec<BlockList>,
}

/// What the plan of one (source, destination) pair answered, without regard to who planned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Copies in the order of the answer.
    pub copies: Vec<Move>,
    /// Destination ranges to zero: start and length.
    pub zero: Vec<(Place, u64)>,
    /// Bytes of bridged gaps, as reported.
    pub padding_bytes: u64,
}

/// `len` bytes from `src` to `dst`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Start at the destination.
    pub dst: Place,
    /// Start at the source.
    pub src: Place,
    /// Bytes.
    pub len: u64,
}
