//! One tensor as an engine has it.

use crate::ids::PartName;
use crate::spec::MemKind;

/// A tensor: where it begins, its shape and strides, and what its axes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Address of the first element.
    pub ptr: u64,
    /// Extent of each axis.
    pub shape: Vec<u64>,
    /// Bytes from one position to the next on each axis.
    pub strides: Vec<i64>,
    /// Bytes of an element.
    pub element_size: u64,
    /// A label for each axis; see the [module](super).
    pub axes: String,
    /// Memory it lies in.
    pub mem: MemKind,
    /// Parts it holds; empty for all of the layer's parts that no other tensor names.
    pub parts: Vec<PartName>,
    /// Whether its parts share the axis `H` out between them and not the axis `C`.
    pub side_by_side: bool,
}

impl Tensor {
    /// A tensor in host memory. Strides are in bytes.
    #[must_use]
    pub fn new(
        ptr: u64,
        shape: impl Into<Vec<u64>>,
        strides: impl Into<Vec<i64>>,
        element_size: u64,
        axes: impl Into<String>,
    ) -> Self {
        Self {
            ptr,
            shape: shape.into(),
            strides: strides.into(),
            element_size,
            axes: axes.into(),
            mem: MemKind::Dram,
            parts: Vec::new(),
            side_by_side: false,
        }
    }

    /// Memory it lies in.
    #[must_use]
    pub fn mem(self, mem: MemKind) -> Self {
        Self { mem, ..self }
    }

    /// Names the parts it holds, in order, where the layer has several tensors.
    #[must_use]
    pub fn holds<N: Into<PartName>>(self, parts: impl IntoIterator<Item = N>) -> Self {
        Self { parts: parts.into_iter().map(Into::into).collect(), ..self }
    }

    /// Its parts lie one behind the other on the axis `H`, as the projections of a convolution state do, and not in
    /// the content of a row.
    #[must_use]
    pub fn side_by_side(self) -> Self {
        Self { side_by_side: true, ..self }
    }
}
