//! Why two workers cannot exchange caches, and why a request cannot be answered.

use kvspec::bounded::Bounded;
use kvspec::text::Short;
use kvspec::{BlockId, GroupId, LayerName, PartName, PoolId, TokensPerState, Usage};

use serde::Serialize;

use crate::request::Op;

/// Everything that keeps a pair of workers apart.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("the two workers cannot exchange caches:{}", list(.refusals))]
#[non_exhaustive]
pub struct PairError {
    /// At least one refusal, in the order of the local layers; of very many the first, and how many more there are.
    pub refusals: Vec<Refusal>,
}

impl PairError {
    pub(crate) fn of(refusals: Bounded<Refusal>) -> Self {
        Self { refusals: refusals.into_vec(Refusal::more) }
    }
}

impl Refusal {
    pub(crate) fn more(more: usize) -> Self {
        Self::More { more }
    }
}

fn list(refusals: &[Refusal]) -> String {
    refusals.iter().map(|refusal| format!("\n- {refusal}")).collect()
}

/// Which of the two workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The worker that plans.
    Local,
    /// Its peer.
    Remote,
}

impl std::fmt::Display for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Side::Local => "this worker",
            Side::Remote => "the peer",
        })
    }
}

/// One reason why two workers cannot exchange caches.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The fingerprints differ in this field.
    #[error(
        "fingerprint field {} is \"{}\" here and \"{}\" at the peer; both must serve the same model",
        Short(field),
        Short(local),
        Short(remote)
    )]
    Fingerprint {
        /// `model`, `revision` or `extra.<key>`.
        field: String,
        /// Value here.
        local: String,
        /// Value at the peer.
        remote: String,
    },
    /// A layer that travels is not listed by the other side, which has no further pipeline stage.
    #[error(
        "layer {layer} is missing at {missing_at}; list it there, or mark it transfer: false on the side that has it"
    )]
    LayerMissing {
        /// The layer.
        layer: LayerName,
        /// The side that lacks it.
        missing_at: Side,
    },
    /// A layer travels at one side only.
    #[error("layer {layer} has transfer {local} here and {remote} at the peer; mark it alike on both sides")]
    Transfer {
        /// The layer.
        layer: LayerName,
        /// Flag here.
        local: bool,
        /// Flag at the peer.
        remote: bool,
    },
    /// One side counts tokens in the layer's blocks, the other keeps request state in them.
    #[error(
        "layer {layer} lies in a group of {local} here and of {remote} at the peer; put it into a group of the same \
         usage on both sides"
    )]
    Usage {
        /// The layer.
        layer: LayerName,
        /// Usage here.
        local: Usage,
        /// Usage at the peer.
        remote: Usage,
    },
    /// A part of a common layer is not listed by the other side.
    #[error(
        "layer {layer}: part {part} is missing at {missing_at}; list it there, or cut the layer into the same parts on \
         both sides"
    )]
    PartMissing {
        /// The layer.
        layer: LayerName,
        /// The part.
        part: PartName,
        /// The side that lacks it.
        missing_at: Side,
    },
    /// Cells hold different numbers of bytes.
    #[error(
        "layer {layer}: part {part} holds {local} content bytes here and {remote} at the peer; both sides must use the \
         same KV dtype and quantisation"
    )]
    Content {
        /// The layer.
        layer: LayerName,
        /// The part.
        part: PartName,
        /// Bytes here.
        local: u64,
        /// Bytes at the peer.
        remote: u64,
    },
    /// Bytes mean different things.
    #[error(
        "layer {layer}: part {part} has format {local:?} here and {remote:?} at the peer; store the same KV format on \
         both sides, or name it alike"
    )]
    Format {
        /// The layer.
        layer: LayerName,
        /// The part.
        part: PartName,
        /// Format here.
        local: String,
        /// Format at the peer.
        remote: String,
    },
    /// States stand for different numbers of tokens.
    #[error(
        "layer {layer}: part {part} has {local} tokens a state here and {remote} at the peer; use the same compression \
         on both sides"
    )]
    TokensPerState {
        /// The layer.
        layer: LayerName,
        /// The part.
        part: PartName,
        /// Tokens a state here.
        local: TokensPerState,
        /// Tokens a state at the peer.
        remote: TokensPerState,
    },
    /// Replicated against sharded, or different unit totals.
    #[error("layer {layer}: part {part} is {local} here and {remote} at the peer; shard it alike on both sides")]
    Sharding {
        /// The layer.
        layer: LayerName,
        /// The part.
        part: PartName,
        /// Sharding here.
        local: String,
        /// Sharding at the peer.
        remote: String,
    },
    /// A request's state has different numbers of slots.
    #[error(
        "layer {layer}: part {part} keeps {local} states a slot here and {remote} at the peer; give a request's state \
         the same length on both sides"
    )]
    StateSlots {
        /// The layer.
        layer: LayerName,
        /// The part.
        part: PartName,
        /// States here.
        local: u64,
        /// States at the peer.
        remote: u64,
    },
    /// Blocks meet within a state that covers several tokens.
    #[error(
        "layer {layer}: part {part} stores one state for {tokens_per_state} tokens, but blocks of the two sides meet at \
         token {token}, inside a state; choose block sizes and an interleave that are multiples of it"
    )]
    CutInsideState {
        /// The layer.
        layer: LayerName,
        /// The part.
        part: PartName,
        /// Tokens that one state covers.
        tokens_per_state: TokensPerState,
        /// Token of the local block.
        token: u64,
    },
    /// Block sizes, context shards or token factors have too little in common.
    #[error(
        "layer {layer}: blocks of {local} tokens here and {remote} at the peer meet in too many different ways; choose \
         sizes that share a factor"
    )]
    Irregular {
        /// The layer.
        layer: LayerName,
        /// Tokens a block here.
        local: u64,
        /// Tokens a block at the peer.
        remote: u64,
    },
    /// One block would be more pieces than a plan may hold. Layers of later lanes are not looked at.
    #[error(
        "layer {layer}: one block of the lane would be {runs} runs beside the {before} that are planned already, and a \
         plan may hold {limit} for all its layers; use block sizes with a common structure and a head-major layout on both sides"
    )]
    TooManyRuns {
        /// A layer of the lane.
        layer: LayerName,
        /// Runs.
        runs: u64,
        /// Runs and pieces that what was planned before takes.
        before: u64,
        /// Bound.
        limit: u64,
    },
    /// Planning takes more work than it was given.
    #[error(
        "planning takes more than the {steps} steps that are allowed; describe the caches of both sides in fewer parts, and \
         use block sizes with a common structure"
    )]
    TooMuchWork {
        /// Steps that were allowed.
        steps: u64,
    },
    /// More keeps them apart than is listed.
    #[error("and {more} more")]
    More {
        /// Refusals that are not listed.
        more: usize,
    },
    /// Runs along the token axis would be shorter than the caller accepts.
    #[error(
        "layer {layer}: part {part} would move in runs of {run} bytes, below min_run {min_run}; use a head-major layout \
         on both sides, equal sharding, or a lower min_run"
    )]
    ShortRuns {
        /// The layer.
        layer: LayerName,
        /// The part.
        part: PartName,
        /// Bytes of the shortest run.
        run: u64,
        /// The caller's bound.
        min_run: u64,
    },
    /// Whole rows were required and a row falls apart.
    #[error("whole rows are required, but at layer {layer} a block breaks into {descriptors} descriptors: {reason}")]
    RowBroken {
        /// First layer that broke the row.
        layer: LayerName,
        /// Descriptors a block.
        descriptors: u64,
        /// Why, and what would mend it.
        reason: String,
    },
}

/// Why a request cannot be answered; nothing has been moved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The plan was made for the other direction.
    #[error("the request is a {request} and the plan was made for a {plan}; make a plan for this direction")]
    Direction {
        /// Direction of the request.
        request: Op,
        /// Direction of the plan.
        plan: Op,
    },
    /// A layer that neither worker lists.
    #[error("neither worker lists layer {layer}; name layers as the specs do")]
    UnknownLayer {
        /// The layer.
        layer: LayerName,
    },
    /// Indices of layers that the spec does not have.
    #[error("layers {from}..{to} are asked for, and this worker's spec lists {num_layers}")]
    LayerRange {
        /// First index.
        from: u32,
        /// Index behind the last.
        to: u32,
        /// Number of layers.
        num_layers: usize,
    },
    /// The layers that are asked for cannot be planned by themselves with the options of the plan.
    #[error("the layers that are asked for cannot be moved by themselves: {refusal}")]
    Selection {
        /// The first thing that stands against it.
        refusal: Box<Refusal>,
    },
    /// A list names a group that the spec does not have.
    #[error("{side} has no group {group}; its spec lists {num_groups}")]
    UnknownGroup {
        /// Whose list.
        side: Side,
        /// The group.
        group: GroupId,
        /// Number of groups.
        num_groups: usize,
    },
    /// Two lists name the same group.
    #[error("{side} lists group {group} twice; give one list a group")]
    GroupTwice {
        /// Whose list.
        side: Side,
        /// The group.
        group: GroupId,
    },
    /// A block id outside its group.
    #[error("{side}: block {block} of group {group} is out of range, the group has {num_blocks} blocks")]
    BlockOutOfRange {
        /// Whose list.
        side: Side,
        /// The group.
        group: GroupId,
        /// The block.
        block: BlockId,
        /// Number of blocks.
        num_blocks: u64,
    },
    /// A block id twice on the destination, or under two groups of one pool.
    #[error("{side}: block {block} of pool {pool} is listed twice, under group {first} and group {second}")]
    BlockTwice {
        /// Whose list.
        side: Side,
        /// The block.
        block: BlockId,
        /// The pool.
        pool: PoolId,
        /// Group of one listing.
        first: GroupId,
        /// Group of the other.
        second: GroupId,
    },
    /// List indices so large that positions do not fit 64 bits.
    #[error("{side}: group {group} starts at list index {first} with {len} blocks, beyond any position; check `first`")]
    PositionOverflow {
        /// Whose list.
        side: Side,
        /// The group.
        group: GroupId,
        /// List index of the first block.
        first: u64,
        /// Number of blocks.
        len: u64,
    },
    /// Two lists that meet do not say where they begin, and have other numbers of blocks than one prompt fills.
    #[error(
        "group {local_group} of this worker lists {local_len} blocks and group {remote_group} of the peer {remote_len}: \
         not one prompt, and neither list says where it begins; give `first`, or say align: head or tail"
    )]
    Misaligned {
        /// Group here.
        local_group: GroupId,
        /// Its number of blocks.
        local_len: u64,
        /// Group at the peer.
        remote_group: GroupId,
        /// Its number of blocks.
        remote_len: u64,
    },
    /// Lists that are to end together may do so in several ways, or in none.
    #[error(
        "group {local_group} of this worker lists {local_len} blocks and group {remote_group} of the peer {remote_len}: \
         align: tail does not tell where the shorter one begins; give `first`"
    )]
    NoTail {
        /// Group here.
        local_group: GroupId,
        /// Its number of blocks.
        local_len: u64,
        /// Group at the peer.
        remote_group: GroupId,
        /// Its number of blocks.
        remote_len: u64,
    },
    /// A list that meets two others would begin in two places.
    #[error(
        "{side}: group {group} would begin at list index {first} for one group of the other side and at {other} for \
         another; give `first`"
    )]
    TwoPlaces {
        /// Whose list.
        side: Side,
        /// The group.
        group: GroupId,
        /// One place.
        first: u64,
        /// The other.
        other: u64,
    },
    /// The source's lists do not reach what the destination asks.
    #[error(
        "destination group {group}: list entry {index} (block {block}) asks for positions that the source's group \
         {source_group} does not cover (it lists entries {source_first}..{source_end}); ask for fewer blocks or give the source's whole list"
    )]
    NotCovered {
        /// Group at the destination.
        group: GroupId,
        /// List index at the destination.
        index: u64,
        /// The block there.
        block: BlockId,
        /// Group at the source.
        source_group: GroupId,
        /// First list index at the source.
        source_first: u64,
        /// End of the list indices at the source.
        source_end: u64,
    },
    /// The source has a hole where the destination asks for a block.
    #[error(
        "destination group {group}: list entry {index} (block {block}) needs list entry {source_index} of the source's \
         group {source_group}, which is a hole"
    )]
    SourceHole {
        /// Group at the destination.
        group: GroupId,
        /// List index at the destination.
        index: u64,
        /// The block there.
        block: BlockId,
        /// Group at the source.
        source_group: GroupId,
        /// List index of the hole.
        source_index: u64,
    },
}
