//! Words that findings use to say what they are about.

use std::fmt;

use crate::ids::{GroupId, LayerIndex, LayerName, PartName, PoolId};
use crate::text::Short;

/// A part with everything that says which one it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellOf {
    /// The layer.
    pub layer: LayerName,
    /// The part.
    pub part: PartName,
    /// The layer's group.
    pub group: GroupId,
    /// The group's pool.
    pub pool: PoolId,
}

impl fmt::Display for CellOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { layer, part, group, pool } = self;
        write!(f, "layer {layer} part {part} (group {group}, pool {pool})")
    }
}

/// A kind of parallelism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dimension {
    /// Tensor parallelism.
    Tp,
    /// Pipeline parallelism.
    Pp,
    /// Decode context parallelism.
    Dcp,
}

impl fmt::Display for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tp => "tp",
            Self::Pp => "pp",
            Self::Dcp => "dcp",
        })
    }
}

/// A text of a spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextOf {
    /// The fingerprint's `model`.
    Model,
    /// The fingerprint's `revision`.
    Revision,
    /// A name in the fingerprint's `extra`.
    ExtraName,
    /// The value of this name, which may be shortened, in the fingerprint's `extra`.
    Extra(String),
    /// A layer's name.
    Layer(LayerIndex),
    /// The name of a part, by its index in the layer.
    Part(LayerIndex, usize),
    /// The format of a part, by its index in the layer.
    Format(LayerIndex, usize),
}

impl fmt::Display for TextOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Model => f.write_str("fingerprint.model"),
            Self::Revision => f.write_str("fingerprint.revision"),
            Self::ExtraName => f.write_str("a name in fingerprint.extra"),
            Self::Extra(name) => write!(f, "fingerprint.extra.{}", Short(name)),
            Self::Layer(layer) => write!(f, "layers[{layer}].name"),
            Self::Part(layer, part) => write!(f, "layers[{layer}].parts[{part}].name"),
            Self::Format(layer, part) => write!(f, "layers[{layer}].parts[{part}].format"),
        }
    }
}

/// A number of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartField {
    /// `content`.
    Content,
    /// `units.count`.
    Units,
    /// `tokens[i].count`.
    Tokens(usize),
    /// `sharding.total`.
    Total,
    /// Numerator or denominator of `tokens_per_state`.
    TokensPerState,
}

impl fmt::Display for PartField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Content => f.write_str("content"),
            Self::Units => f.write_str("units.count"),
            Self::Tokens(axis) => write!(f, "tokens[{axis}].count"),
            Self::Total => f.write_str("sharding.total"),
            Self::TokensPerState => f.write_str("tokens_per_state"),
        }
    }
}
