//! What can be wrong with an answer.

use kvspec::{BlockId, LayerName, PartName, StorageIndex};

use crate::refusal::{RequestError, Side};

/// What is wrong with an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The request must be refused, so that no answer to it is right.
    #[error("no answer is right: {0}")]
    Request(#[from] RequestError),
    /// A descriptor leaves its storage.
    #[error(
        "a descriptor of {len} bytes at {offset} leaves storage {storage} of {side}, which has {storage_len} bytes"
    )]
    OutOfBounds {
        /// Whose storage.
        side: Side,
        /// The storage.
        storage: StorageIndex,
        /// Offset in it.
        offset: u64,
        /// Length of the descriptor.
        len: u64,
        /// Length of the storage, 0 where there is no such storage.
        storage_len: u64,
    },
    /// A destination byte is written twice.
    #[error("byte {offset} of destination storage {storage} is written twice")]
    WrittenTwice {
        /// The storage.
        storage: StorageIndex,
        /// The byte.
        offset: u64,
    },
    /// A destination byte that the request needs is not written, or from a wrong place.
    #[error(
        "destination storage {storage} needs {len} bytes at {offset} from byte {source_offset} of source storage {source_storage}; the plan does not bring them from there"
    )]
    NotDelivered {
        /// The storage.
        storage: StorageIndex,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        len: u64,
        /// Where the source keeps them.
        source_storage: StorageIndex,
        /// Offset there.
        source_offset: u64,
    },
    /// Bytes are written that the request does not need and that may belong to somebody.
    #[error("{len} bytes at {offset} of destination storage {storage} are written and not needed: {why}")]
    Overwritten {
        /// The storage.
        storage: StorageIndex,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        len: u64,
        /// Why they may not be.
        why: NotFree,
    },
    /// The ranges to zero are not those that no source holds.
    #[error("the ranges to zero differ from what no source holds at destination storage {storage}, byte {offset}")]
    WrongZero {
        /// The storage.
        storage: StorageIndex,
        /// First byte that differs.
        offset: u64,
    },
    /// The request is too large to be proved within the steps allowed; nothing is known to be wrong.
    #[error("proving the answer takes more than {limit} steps; verify smaller requests")]
    TooLarge {
        /// Steps allowed.
        limit: u64,
    },
    /// The number of padding bytes is not what is moved beyond need.
    #[error("the answer counts {counted} padding bytes and moves {moved}")]
    WrongPadding {
        /// As counted.
        counted: u64,
        /// As moved.
        moved: u64,
    },
}

/// Why bytes that a request does not need must not be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotFree {
    /// The plan was made with a `max_gap` of 0.
    #[error("max_gap is 0, so no gap may be bridged")]
    NoGapAllowed,
    /// A part has bytes there, and does not merely overlay a block that the request lists.
    #[error("layer {layer}, part {part} keeps bytes of block {block} there")]
    Owned {
        /// The layer.
        layer: LayerName,
        /// The part.
        part: PartName,
        /// The block that the bytes belong to.
        block: BlockId,
    },
}
