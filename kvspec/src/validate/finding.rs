//! One thing that is wrong with a spec.

use super::words::{CellOf, Dimension, PartField, TextOf};
use crate::ids::{BlockId, GroupId, LayerIndex, LayerName, PartName, StorageIndex};
use crate::spec::MemKind;
use crate::states::TokensPerState;

/// One thing that is wrong with a spec. Variants come in the order in which the rules are checked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Finding {
    // The spec as a whole.
    /// The spec is of another version.
    #[error("version {given} is not known; this library reads version {known}")]
    Version {
        /// Version of the spec.
        given: u32,
        /// The version that is read.
        known: u32,
    },

    /// A text is longer than any real one.
    #[error("{text} has {len} bytes, and at most {limit} are allowed; shorten it on all workers alike")]
    TextTooLong {
        /// Which text.
        text: TextOf,
        /// Its bytes.
        len: usize,
        /// Bound.
        limit: usize,
    },

    // Topology.
    /// A shard has no ranks.
    #[error("{dimension}.size is 0; it counts the ranks, so it is at least 1")]
    NoRanks {
        /// Kind of parallelism.
        dimension: Dimension,
    },
    /// A dimension has more ranks than any deployment.
    #[error("{dimension} has {size} ranks, and at most {limit} are planned for; check the size")]
    TooManyRanks {
        /// The dimension.
        dimension: Dimension,
        /// Its size.
        size: u32,
        /// Bound.
        limit: u32,
    },
    /// A rank is not among its ranks.
    #[error("{dimension}.rank {rank} is outside its size {size}; ranks count from 0")]
    Rank {
        /// Kind of parallelism.
        dimension: Dimension,
        /// The rank given.
        rank: u32,
        /// Number of ranks.
        size: u32,
    },
    /// Context-parallel groups do not fill the tensor-parallel ranks.
    #[error("dcp.size {dcp_size} does not divide tp.size {tp_size}")]
    DcpSize {
        /// Size of context parallelism.
        dcp_size: u32,
        /// Size of tensor parallelism.
        tp_size: u32,
    },
    /// The context-parallel rank does not follow from the tensor-parallel one.
    #[error("dcp.rank {given} should be {expected}: tp.rank {tp_rank} mod dcp.size {dcp_size}")]
    DcpRank {
        /// The rank given.
        given: u32,
        /// `tp_rank mod dcp_size`.
        expected: u32,
        /// Rank in tensor parallelism.
        tp_rank: u32,
        /// Size of context parallelism.
        dcp_size: u32,
    },
    /// Runs of no tokens.
    #[error("dcp.interleave is 0; give the tokens of a run, or leave it out to deal whole blocks")]
    NoInterleave,
    /// A run of tokens would cross blocks.
    #[error("group {group}: dcp.interleave {interleave} does not divide block_tokens {block_tokens}")]
    Interleave {
        /// The group.
        group: GroupId,
        /// Tokens in a run.
        interleave: u64,
        /// Tokens in a block.
        block_tokens: u64,
    },

    // Storages.
    /// A storage of no bytes.
    #[error("storage {storage}: len is 0; leave out storages that hold nothing")]
    EmptyStorage {
        /// The storage.
        storage: StorageIndex,
    },
    /// A storage ends beyond the address space.
    #[error("storage {storage}: base {base} plus len {len} is beyond 64 bits")]
    StorageEnd {
        /// The storage.
        storage: StorageIndex,
        /// Its base address.
        base: u64,
        /// Its length in bytes.
        len: u64,
    },
    /// All storages together are longer than can be counted.
    #[error("the storages are {total} bytes together, more than {limit}; check their lengths")]
    StoragesTooLong {
        /// Bytes of all storages.
        total: u128,
        /// Bound.
        limit: u64,
    },
    /// Two storages share bytes.
    #[error(
        "{mem}: storage {first} [{first_base}, {first_base}+{first_len}) and storage {second} \
         [{second_base}, {second_base}+{second_len}) overlap; list one allocation once"
    )]
    StoragesOverlap {
        /// The storage that starts first.
        first: StorageIndex,
        /// The other one.
        second: StorageIndex,
        /// Address space of both.
        mem: MemKind,
        /// Base address of the first.
        first_base: u64,
        /// Length of the first in bytes.
        first_len: u64,
        /// Base address of the second.
        second_base: u64,
        /// Length of the second in bytes.
        second_len: u64,
    },

    // Groups.
    /// No layer uses the group.
    #[error("group {group}: no layer uses it; leave it out")]
    EmptyGroup {
        /// The group.
        group: GroupId,
    },
    /// A group whose blocks hold no tokens.
    #[error("group {group}: block_tokens is 0; it is the number of tokens in a block, at least 1")]
    NoBlockTokens {
        /// The group.
        group: GroupId,
    },
    /// A group without blocks.
    #[error("group {group}: num_blocks is 0; it is at least 1")]
    NoBlocks {
        /// The group.
        group: GroupId,
    },
    /// More blocks than block ids.
    #[error(
        "group {group}: num_blocks {num_blocks} is above {limit}; block ids have 32 bits and the last one marks a hole"
    )]
    TooManyBlocks {
        /// The group.
        group: GroupId,
        /// Blocks given.
        num_blocks: u64,
        /// Most blocks that are possible.
        limit: u64,
    },

    // Layers and parts: names, references, counts.
    /// Two layers have one name.
    #[error("layer {layer}: the name is listed twice, as layers[{first}] and layers[{second}]; layers meet by name")]
    LayerTwice {
        /// The name.
        layer: LayerName,
        /// First layer of this name.
        first: LayerIndex,
        /// Second layer of this name.
        second: LayerIndex,
    },
    /// A layer names a group that is not there.
    #[error("layer {layer}: group {group} is not among the {num_groups} groups")]
    NoSuchGroup {
        /// The layer.
        layer: LayerName,
        /// The group it names.
        group: GroupId,
        /// Number of groups.
        num_groups: usize,
    },
    /// A layer without parts.
    #[error("layer {layer}: it has no parts; a layer that stores nothing is left out")]
    NoParts {
        /// The layer.
        layer: LayerName,
    },
    /// Two parts of a layer have one name.
    #[error("layer {layer}: part {part} is listed twice; parts meet by name")]
    PartTwice {
        /// The layer.
        layer: LayerName,
        /// The name.
        part: PartName,
    },
    /// A part names a storage that is not there.
    #[error("layer {layer}: part {part}: storage {storage} is not among the {num_storages} storages")]
    NoSuchStorage {
        /// The layer.
        layer: LayerName,
        /// The part.
        part: PartName,
        /// The storage it names.
        storage: StorageIndex,
        /// Number of storages.
        num_storages: usize,
    },
    /// A number of a part that must be at least 1 is 0.
    #[error("layer {layer}: part {part}: {field} is 0; it is at least 1")]
    Zero {
        /// The layer.
        layer: LayerName,
        /// The part.
        part: PartName,
        /// Which number.
        field: PartField,
    },

    /// A part has more token axes than any layout.
    #[error(
        "layer {layer}: part {part}: tokens has {given} axes, and at most {limit} are allowed; join those of one stride"
    )]
    TooManyAxes {
        /// The layer.
        layer: LayerName,
        /// The part.
        part: PartName,
        /// Axes given.
        given: usize,
        /// Bound.
        limit: usize,
    },

    // Units of a part.
    /// The number of units contradicts the topology.
    #[error(
        "layer {layer}: part {part}: units.count is {given}, but TP rank {tp_rank} of {tp_size} owns {owned} of \
         {total} units; give the rank's own units, or {{\"total\": {total}, \"first\": …}} if the engine shards by \
         a rule of its own"
    )]
    UnitCount {
        /// The layer.
        layer: LayerName,
        /// The part.
        part: PartName,
        /// Units given.
        given: u64,
        /// Units that the standard rule gives this rank.
        owned: u64,
        /// Units of the whole model.
        total: u64,
        /// This worker's rank.
        tp_rank: u32,
        /// Number of ranks.
        tp_size: u32,
    },
    /// An explicit range of units ends beyond the last unit.
    #[error("layer {layer}: part {part}: units {first} to {first}+{count} reach beyond the {total} units of the model")]
    UnitsBeyondTotal {
        /// The layer.
        layer: LayerName,
        /// The part.
        part: PartName,
        /// First unit of this rank.
        first: u64,
        /// Units of this rank.
        count: u64,
        /// Units of the whole model.
        total: u64,
    },
    /// Context parallelism over ranks that hold different units.
    #[error(
        "layer {layer}: part {part}: the {dcp_size} ranks of a DCP group must hold the same units, but {total} units \
         over {tp_size} TP ranks differ among them; use a smaller DCP size, or replicate the part"
    )]
    DcpSplitsUnits {
        /// The layer.
        layer: LayerName,
        /// The part.
        part: PartName,
        /// Units of the whole model.
        total: u64,
        /// Size of tensor parallelism.
        tp_size: u32,
        /// Size of context parallelism.
        dcp_size: u32,
    },
    /// Context parallelism over an explicit range of units.
    #[error(
        "layer {layer}: part {part}: an explicit range of units, from {first}, cannot be combined with DCP size \
         {dcp_size}; explicit ranges of different ranks do not overlap, but ranks of a DCP group hold the same units"
    )]
    DcpExplicitUnits {
        /// The layer.
        layer: LayerName,
        /// The part.
        part: PartName,
        /// First unit of this rank.
        first: u64,
        /// Size of context parallelism.
        dcp_size: u32,
    },

    // States and bounds of a part.
    /// The stored states of a block are not those of its tokens.
    #[error(
        "layer {layer}: part {part}: the token counts make {stored} states a block, but block_tokens {block_tokens} at \
         {tokens_per_state} tokens a state {}",
        match wanted { Some(wanted) => format!("make {wanted}"), None => "are no whole number of states".to_owned() }
    )]
    States {
        /// The layer.
        layer: LayerName,
        /// The part.
        part: PartName,
        /// Product of the counts of `tokens`.
        stored: u64,
        /// Tokens in a block of the layer's group.
        block_tokens: u64,
        /// Tokens a state.
        tokens_per_state: TokensPerState,
        /// States that would be right, if there is such a number.
        wanted: Option<u64>,
    },
    /// The product of the token counts does not fit.
    #[error("layer {layer}: part {part}: the product of the {num_axes} token counts is beyond 64 bits")]
    TooManyStates {
        /// The layer.
        layer: LayerName,
        /// The part.
        part: PartName,
        /// Number of token axes.
        num_axes: usize,
    },
    /// A cell lies outside its storage.
    #[error(
        "layer {layer}: part {part}: over {num_blocks} blocks of group {group} the cells end at byte {}, but storage \
         {storage} has {len}",
        match end { Some(end) => end.to_string(), None => "2^128 or later".to_owned() }
    )]
    OutsideStorage {
        /// The layer.
        layer: LayerName,
        /// The part.
        part: PartName,
        /// The layer's group.
        group: GroupId,
        /// Blocks of the group.
        num_blocks: u64,
        /// Offset behind the last byte of the last cell; `None` if it needs more than 128 bits.
        end: Option<u128>,
        /// The storage.
        storage: StorageIndex,
        /// Its length in bytes.
        len: u64,
    },

    // Cells that share bytes.
    /// Two cells of one part share bytes.
    #[error(
        "layer {layer}: part {part}: two of its cells overlap, {distance} bytes apart with {content} bytes each; \
         check block_stride and the strides of units and tokens"
    )]
    CellsOverlap {
        /// The layer.
        layer: LayerName,
        /// The part.
        part: PartName,
        /// Bytes from the start of one cell to the start of the other.
        distance: u128,
        /// Bytes of a cell.
        content: u64,
    },
    /// Cells of two parts share bytes.
    #[error(
        "{first} and {second} overlap in storage {storage}: a cell of the second begins {} the start of a cell of the \
         first, which has {first_content} bytes; {}",
        place(*distance),
        if first.group == second.group { "parts of one group must not share bytes" } else { "pools must not share bytes" }
    )]
    PartsOverlap {
        /// One part.
        first: CellOf,
        /// The other.
        second: CellOf,
        /// Storage of both.
        storage: StorageIndex,
        /// Start of a cell of the second minus start of the cell of the first that it meets.
        distance: i128,
        /// Bytes of the cell of the first.
        first_content: u64,
    },
    /// Blocks of two groups of one pool share bytes, although their ids differ.
    #[error(
        "block {first_block} of {first} and block {second_block} of {second} share byte {byte} of storage {storage}; an \
         id of a pool belongs to one group at a time, so blocks of different ids must lie apart; give both groups one \
         block_stride and keep the pages of a block within it, or move them apart"
    )]
    BlocksOverlap {
        /// One part.
        first: CellOf,
        /// Its block.
        first_block: BlockId,
        /// The other part.
        second: CellOf,
        /// Its block.
        second_block: BlockId,
        /// Storage of both.
        storage: StorageIndex,
        /// Offset in the storage of the first byte that the two blocks share.
        byte: u64,
    },
    /// It could not be shown within reason that a part's cells do not share bytes.
    #[error(
        "layer {layer}: part {part}: its cells cannot be shown to be disjoint; use strides of which each is a \
         multiple of the next smaller one"
    )]
    Undecided {
        /// The layer.
        layer: LayerName,
        /// The part.
        part: PartName,
    },
    /// It could not be shown within reason that two parts do not share bytes.
    #[error(
        "{first} and {second} cannot be shown to be disjoint in storage {storage}; use strides of which each is a \
         multiple of the next smaller one, or storages apart"
    )]
    PartsUndecided {
        /// One part.
        first: CellOf,
        /// The other.
        second: CellOf,
        /// Storage of both.
        storage: StorageIndex,
    },
    /// The search for overlaps was ended because the geometry is too intricate.
    #[error(
        "storage {storage}: after {steps} steps the search for overlapping cells was ended; use strides of which each \
         is a multiple of the next smaller one, or storages apart"
    )]
    OverlapsUnsearched {
        /// The storage.
        storage: StorageIndex,
        /// Steps that were made.
        steps: u64,
    },
    /// Checking the spec takes more work than it was given.
    #[error(
        "checking {parts} parts takes more than the {steps} steps that are allowed; describe the caches in fewer parts, or \
         use strides of which each is a multiple of the next smaller one"
    )]
    TooMuchWork {
        /// Parts of the spec.
        parts: usize,
        /// Steps that were allowed.
        steps: u64,
    },
    /// More is wrong than is listed.
    #[error("and {more} more")]
    More {
        /// Findings that are not listed.
        more: usize,
    },
    /// The search for overlaps was ended after many.
    #[error("after {listed} findings on overlapping cells the search was ended; there may be more")]
    MoreOverlaps {
        /// How many are listed.
        listed: usize,
    },
}

fn place(distance: i128) -> String {
    match distance {
        0 => "at".to_owned(),
        1.. => format!("{distance} bytes behind"),
        _ => format!("{} bytes before", distance.unsigned_abs()),
    }
}
