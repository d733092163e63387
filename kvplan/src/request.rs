//! Which blocks to move: block lists by group and side.

use kvspec::text::Short;
use kvspec::{BlockId, GroupId};
use serde::{Deserialize, Serialize};

use crate::layers::Layers;

/// Direction of a transfer, seen from the worker that plans and posts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Op {
    /// Remote to local: decode pulls.
    #[default]
    Read,
    /// Local to remote: prefill pushes.
    Write,
}

impl std::fmt::Display for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Op::Read => "read",
            Op::Write => "write",
        })
    }
}

impl Op {
    /// What belongs to the destination, then what belongs to the source.
    ///
    /// ```
    /// assert_eq!(kvplan::Op::Write.destination_first("here", "there"), ("there", "here"));
    /// ```
    #[inline]
    #[must_use]
    pub fn destination_first<T>(self, local: T, remote: T) -> (T, T) {
        match self {
            Self::Read => (local, remote),
            Self::Write => (remote, local),
        }
    }

    /// What belongs to this worker, then what belongs to the peer: the way back from
    /// [`destination_first`](Op::destination_first).
    #[inline]
    #[must_use]
    pub fn local_first<T>(self, destination: T, source: T) -> (T, T) {
        match self {
            Self::Read => (destination, source),
            Self::Write => (source, destination),
        }
    }
}

/// Blocks of one group on one side, in the order of the sequence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockList {
    /// Group on that side.
    pub group: GroupId,
    /// List index, in blocks of that group on that side, of `blocks[0]`: a prefix hit starts late. `None` where the
    /// list does not say: see [`Request::align`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<u64>,
    /// Block ids; [`BlockId::HOLE`] where nothing is stored.
    pub blocks: Vec<BlockId>,
}

impl BlockList {
    /// List index of `blocks[0]` where the list says it, and otherwise 0.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.first.unwrap_or(0)
    }
}

/// Where lists begin that do not say so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Align {
    /// At the start of the sequence.
    Head,
    /// So that both lists end with the prompt. One of them is the whole of it, or says where it begins.
    Tail,
}

/// What to move between the two workers of a pair.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Direction; must be the plan's.
    pub op: Op,
    /// Lists of this worker's groups.
    pub local: Vec<BlockList>,
    /// Lists of the peer's groups.
    pub remote: Vec<BlockList>,
    /// Where lists begin that do not say `first`. With `None`, if neither of two lists that meet says it, both begin at
    /// the start of the sequence, and must have as many blocks as some prompt fills on either side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub align: Option<Align>,
    /// Layers to move.
    #[serde(default, skip_serializing_if = "Layers::is_all")]
    pub layers: Layers,
}

impl Request {
    /// Reads the JSON form.
    ///
    /// # Errors
    ///
    /// [`JsonError`] with the path to the field and what was expected.
    pub fn from_json(text: &str) -> Result<Self, JsonError> {
        kvspec::json::read_object(text).map_err(|(path, source)| JsonError { path, source })
    }
}

/// A request that is not in its JSON form.
#[derive(Debug, thiserror::Error)]
#[error("request field {}: {}", Short(path), Short(&source.to_string()))]
pub struct JsonError {
    /// Path to the field, such as `local[0].blocks[3]`.
    pub path: String,
    /// What was found and what was expected.
    pub source: serde_json::Error,
}
