//! The description of one worker's caches, as plain data.
//!
//! These types are what JSON, MessagePack and engines fill in; nothing in them is trusted. Call
//! [`CacheSpec::validate`](crate::CacheSpec::validate) to turn one into a [`ValidSpec`](crate::ValidSpec),
//! which every planner takes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{GroupId, LayerName, PartName, PoolId, StorageIndex};
use crate::sharding::Sharding;
use crate::states::TokensPerState;
use crate::topology::Topology;

/// The version of the JSON form that this library reads and writes.
pub const SPEC_VERSION: u32 = 1;

/// One worker's caches: where they lie, how they are cut up and which part of the model they hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheSpec {
    /// Version of this form, [`SPEC_VERSION`].
    pub version: u32,
    /// What must be equal for two workers to exchange caches at all.
    pub fingerprint: Fingerprint,
    /// This worker's ranks.
    #[serde(default)]
    pub topology: Topology,
    /// Allocations.
    pub storages: Vec<Storage>,
    /// Block tables; a group's id is its index here.
    pub groups: Vec<Group>,
    /// Layers, in any order.
    pub layers: Vec<Layer>,
}

/// Identity of the model; compared for equality, field by field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fingerprint {
    /// Model name.
    pub model: String,
    /// Model revision.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub revision: String,
    /// Anything else that both sides must agree on, such as the attention backend.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, String>,
}

impl Fingerprint {
    /// The fields in which another one differs, with the value in each; one of `extra` that is missing is empty.
    #[must_use]
    pub fn differences<'a>(&'a self, other: &'a Self) -> Vec<(String, &'a str, &'a str)> {
        let keys: BTreeSet<&String> = self.extra.keys().chain(other.extra.keys()).collect();
        let extra = keys.into_iter().map(|key| {
            let value = |of: &'a Self| of.extra.get(key).map_or("", String::as_str);
            (format!("extra.{key}"), value(self), value(other))
        });
        [
            ("model".to_owned(), self.model.as_str(), other.model.as_str()),
            ("revision".to_owned(), self.revision.as_str(), other.revision.as_str()),
        ]
        .into_iter()
        .chain(extra)
        .filter(|(_, value, other)| value != other)
        .collect()
    }
}

/// One allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Storage {
    /// Address of the first byte.
    pub base: u64,
    /// Length in bytes.
    pub len: u64,
    /// Kind of memory.
    pub mem: MemKind,
    /// Several TP ranks map the same physical memory; only TP rank 0 registers and fills it.
    #[serde(default)]
    pub shared: bool,
}

/// Kind of memory an allocation lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemKind {
    /// Host memory.
    Dram,
    /// Memory of the GPU with this index.
    Vram(u32),
}

impl fmt::Display for MemKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemKind::Dram => f.write_str("dram"),
            MemKind::Vram(device) => write!(f, "vram {device}"),
        }
    }
}

/// Layers that share a block table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// The set of block ids that this group draws from.
    pub pool: PoolId,
    /// Tokens in a block; ignored when `usage` is [`Usage::State`].
    pub block_tokens: u64,
    /// Number of blocks, at most `u32::MAX`.
    pub num_blocks: u64,
    /// What a block holds.
    #[serde(default)]
    pub usage: Usage,
}

/// What a block of a group holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Usage {
    /// `block_tokens` consecutive tokens of a sequence.
    #[default]
    Tokens,
    /// One request's state: SSM state, a ring, an auxiliary row.
    State,
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Usage::Tokens => "tokens",
            Usage::State => "request state",
        })
    }
}

/// One layer's cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layer {
    /// Name; unique in a spec, equal on both sides.
    pub name: LayerName,
    /// Group whose block table addresses this layer.
    pub group: GroupId,
    /// What the layer is; names, never computes.
    pub kind: Kind,
    /// What the layer is for; never compared.
    #[serde(default)]
    pub role: Role,
    /// Whether the layer travels. A layer that does not still owns its bytes.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub transfer: bool,
    /// Pieces of the layer's page.
    pub parts: Vec<Part>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_yes(value: &bool) -> bool {
    *value
}

fn yes() -> bool {
    true
}

/// What a layer is. The parts say everything that planning needs; this is for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Full attention: MHA, GQA or MQA.
    Attention,
    /// Attention over a window of the latest tokens.
    SlidingWindow,
    /// Attention within chunks of the sequence.
    ChunkedLocal,
    /// Multi-head latent attention.
    Mla,
    /// Multi-head latent attention over a window.
    SlidingWindowMla,
    /// Index cache of a sparse-attention layer.
    Indexer,
    /// One ring a request.
    CircularBuffer,
    /// State-space or linear-attention state.
    Ssm,
    /// Bytes that the library does not interpret.
    Opaque,
}

/// What a layer is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The model itself.
    #[default]
    Target,
    /// The speculative-decoding model.
    Draft,
    /// An indexer of the target.
    Indexer,
    /// Engine-private.
    Scratch,
}

/// The smallest named piece of a layer's page that has one sharding.
///
/// The address of (block, unit, token indices, byte) is
/// `storage.base + offset + block·block_stride + unit·units.stride + Σ token_i·tokens[i].stride + byte`
/// with `0 ≤ byte < content`. That is all the geometry there is: every layout is a choice of these numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Name; unique in its layer, equal on both sides.
    pub name: PartName,
    /// Allocation the part lies in.
    pub storage: StorageIndex,
    /// Bytes from the storage's base to block 0, unit 0, token 0.
    pub offset: u64,
    /// Bytes from one block to the next.
    pub block_stride: u64,
    /// How units are split over TP ranks.
    pub sharding: Sharding,
    /// Units (KV heads, SSM heads, convolution channels) that this rank holds.
    pub units: Axis,
    /// Stored states of a block, outermost factor first; empty means one.
    #[serde(default)]
    pub tokens: Vec<Axis>,
    /// Contiguous bytes of one (block, unit, token) cell.
    pub content: u64,
    /// Tokens that one stored state covers.
    #[serde(default, skip_serializing_if = "TokensPerState::is_one")]
    pub tokens_per_state: TokensPerState,
    /// What the bytes mean, such as `bf16`; compared for equality.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub format: String,
}

/// `count` positions, `stride` bytes apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// Number of positions, at least 1.
    pub count: u64,
    /// Bytes from one position to the next.
    pub stride: u64,
}
