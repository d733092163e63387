//! Where a worker stands among the workers of its deployment.

use serde::{Deserialize, Serialize};

/// A position in one dimension of parallelism: `rank` of `size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shard {
    /// This worker's rank, `0 ≤ rank < size`.
    pub rank: u32,
    /// Number of ranks, at least 1.
    pub size: u32,
}

impl Default for Shard {
    fn default() -> Self {
        Self { rank: 0, size: 1 }
    }
}

/// Decode context parallelism: a rank holds every `size`-th run of `interleave` tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContextShard {
    /// This worker's rank, `tp.rank mod size`.
    pub rank: u32,
    /// Number of ranks, at least 1; divides the TP size.
    pub size: u32,
    /// Tokens in a run; divides every `block_tokens`. `None` deals whole blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interleave: Option<u64>,
}

impl Default for ContextShard {
    fn default() -> Self {
        Self { rank: 0, size: 1, interleave: None }
    }
}

/// A worker's ranks in tensor, pipeline and decode context parallelism.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// Tensor parallelism.
    #[serde(default)]
    pub tp: Shard,
    /// Pipeline parallelism. Layers meet by name, so stages need no numbering of layers.
    #[serde(default)]
    pub pp: Shard,
    /// Decode context parallelism.
    #[serde(default)]
    pub dcp: ContextShard,
}
