//! How tensors contradict a kind.

use crate::ids::{GroupId, LayerName, PartName};
use crate::kinds::KindError;
use crate::spec::{MemKind, Usage};
use crate::states::TokensPerState;

/// Why tensors do not describe a layer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorError {
    /// The layer's kind describes no page.
    #[error("layer {layer}: {source}")]
    Kind {
        /// The layer.
        layer: LayerName,
        /// Why.
        source: KindError,
    },
    /// A layer names a group that was not added.
    #[error("layer {layer}: group {group} is not among the {num_groups} groups")]
    NoSuchGroup {
        /// The layer.
        layer: LayerName,
        /// The group it names.
        group: GroupId,
        /// Number of groups.
        num_groups: usize,
    },
    /// A layer of tokens in a group of state, or the other way round.
    #[error("layer {layer}: its kind keeps {kind:?} and its group {group:?}; use a group of its own usage")]
    Usage {
        /// The layer.
        layer: LayerName,
        /// Usage of the layer's kind.
        kind: Usage,
        /// Usage of the group.
        group: Usage,
    },
    /// A tensor names a part that the kind does not have.
    #[error("layer {layer}: a tensor holds part {part}, which its kind does not have")]
    NoSuchPart {
        /// The layer.
        layer: LayerName,
        /// The part.
        part: PartName,
    },
    /// Two tensors hold one part, or none does.
    #[error("layer {layer}: part {part} is held by {tensors} tensors; name each part in one of them")]
    PartHeld {
        /// The layer.
        layer: LayerName,
        /// The part.
        part: PartName,
        /// Tensors that hold it.
        tensors: usize,
    },
    /// Labels, shape and strides of unlike lengths.
    #[error(
        "layer {layer}: part {part}: {labels} labels ({axes:?}), {extents} extents and {strides} strides; give one of each for every axis"
    )]
    Rank {
        /// The layer.
        layer: LayerName,
        /// First part of the tensor.
        part: PartName,
        /// The labels.
        axes: String,
        /// Number of labels.
        labels: usize,
        /// Number of extents.
        extents: usize,
        /// Number of strides.
        strides: usize,
    },
    /// A label that means nothing.
    #[error("layer {layer}: part {part}: label {label:?} in {axes:?} is unknown; known are B, H, N, C, 2 and 1")]
    UnknownLabel {
        /// The layer.
        layer: LayerName,
        /// First part of the tensor.
        part: PartName,
        /// The labels.
        axes: String,
        /// The label.
        label: char,
    },
    /// A label that must be given exactly once.
    #[error("layer {layer}: part {part}: label {label:?} is given {given} times in {axes:?}; wanted {wanted}")]
    LabelCount {
        /// The layer.
        layer: LayerName,
        /// First part of the tensor.
        part: PartName,
        /// The labels.
        axes: String,
        /// The label.
        label: char,
        /// How often it is given.
        given: usize,
        /// How often it may be.
        wanted: &'static str,
    },
    /// An axis whose extent contradicts the kind, the group or the topology.
    #[error("layer {layer}: part {part}: axis {axis:?} has extent {given}, wanted {wanted}: {what}")]
    Extent {
        /// The layer.
        layer: LayerName,
        /// The part.
        part: PartName,
        /// The axis's label.
        axis: char,
        /// Extent given; the product, for a label given several times.
        given: u64,
        /// Extent that would be right.
        wanted: u64,
        /// What the axis counts.
        what: &'static str,
    },
    /// Content that is not the kind's.
    #[error(
        "layer {layer}: part {part}: the content axes hold {given} bytes, wanted {wanted}; check element_size and the kind's element type"
    )]
    Content {
        /// The layer.
        layer: LayerName,
        /// First part of the tensor.
        part: PartName,
        /// Bytes of the content axes.
        given: u64,
        /// Bytes of a cell of all parts in the row.
        wanted: u64,
    },
    /// Content that is not contiguous.
    #[error(
        "layer {layer}: part {part}: a content axis has a stride of {stride} bytes, wanted {wanted}; content is contiguous"
    )]
    ContentStride {
        /// The layer.
        layer: LayerName,
        /// First part of the tensor.
        part: PartName,
        /// Stride given.
        stride: i64,
        /// Stride of contiguous content.
        wanted: u64,
    },
    /// A negative stride.
    #[error(
        "layer {layer}: part {part}: axis {axis:?} has a stride of {stride} bytes over {extent} positions; flip the view, strides are not negative"
    )]
    NegativeStride {
        /// The layer.
        layer: LayerName,
        /// First part of the tensor.
        part: PartName,
        /// The axis's label.
        axis: char,
        /// The stride.
        stride: i64,
        /// Extent of the axis.
        extent: u64,
    },
    /// Two rows of content share bytes.
    #[error(
        "layer {layer}: part {part}: two rows of content begin {distance} bytes apart but have {content} bytes each; the strides overlap"
    )]
    Overlap {
        /// The layer.
        layer: LayerName,
        /// The part.
        part: PartName,
        /// Bytes from one row to the other.
        distance: u128,
        /// Bytes of the content axes.
        content: u64,
    },
    /// Kernel blocks do not tile blocks.
    #[error(
        "layer {layer}: part {part}: {stored} states of a tensor's block do not tile the {wanted} states of a block"
    )]
    NotTiling {
        /// The layer.
        layer: LayerName,
        /// The part.
        part: PartName,
        /// States in one position of the tensor's block axis.
        stored: u64,
        /// States in a block of the group.
        wanted: u64,
    },
    /// Tokens that do not fill states.
    #[error(
        "layer {layer}: part {part}: {tokens} tokens are no whole number of states at {tokens_per_state} tokens each"
    )]
    PartialState {
        /// The layer.
        layer: LayerName,
        /// The part.
        part: PartName,
        /// Tokens in a block.
        tokens: u64,
        /// Tokens a state.
        tokens_per_state: TokensPerState,
    },
    /// A size or an address beyond 64 bits.
    #[error("layer {layer}: part {part}: from address {ptr} the tensor reaches beyond 64 bits; {what}")]
    TooLarge {
        /// The layer.
        layer: LayerName,
        /// The part.
        part: PartName,
        /// Address of the tensor.
        ptr: u64,
        /// Which size.
        what: &'static str,
    },
    /// A part in none of the storages that were given.
    #[error("layer {layer}: part {part}: bytes [{start}, {end}) of {mem} lie in none of the {num_storages} storages")]
    NoStorage {
        /// The layer.
        layer: LayerName,
        /// The part.
        part: PartName,
        /// Address of the first byte.
        start: u64,
        /// Address behind the last byte.
        end: u64,
        /// Memory of the tensor.
        mem: MemKind,
        /// Number of storages.
        num_storages: usize,
    },
}
