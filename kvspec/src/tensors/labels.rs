//! A tensor's axes, sorted by what they are.

use super::error::TensorError;
use super::tensor::Tensor;
use crate::ids::{LayerName, PartName};
use crate::spec::Axis;

/// A tensor's axes by label.
#[derive(Debug)]
pub(super) struct Axes {
    pub(super) block: Axis,
    pub(super) unit: Option<Axis>,
    /// Outermost first, as labelled.
    pub(super) states: Vec<Axis>,
    /// Bytes of the content axes; one element if there are none.
    pub(super) content: u64,
    pub(super) halves: Option<Axis>,
}

/// Where a tensor is, for errors: its layer and first part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    pub(super) layer: &'a LayerName,
    pub(super) part: &'a PartName,
}

impl Place<'_> {
    pub(super) fn names(&self) -> (LayerName, PartName) {
        (self.layer.clone(), self.part.clone())
    }

    pub(super) fn too_large(&self, tensor: &Tensor, what: &'static str) -> TensorError {
        let (layer, part) = self.names();
        TensorError::TooLarge { layer, part, ptr: tensor.ptr, what }
    }

    pub(super) fn extent(&self, axis: char, given: u64, wanted: u64, what: &'static str) -> Result<(), TensorError> {
        if given == wanted {
            return Ok(());
        }
        let (layer, part) = self.names();
        Err(TensorError::Extent { layer, part, axis, given, wanted, what })
    }
}

impl Axes {
    pub(super) fn new(tensor: &Tensor, place: Place<'_>) -> Result<Self, TensorError> {
        let labels: Vec<char> = tensor.axes.chars().collect();
        if labels.len() != tensor.shape.len() || labels.len() != tensor.strides.len() {
            let (layer, part) = place.names();
            return Err(TensorError::Rank {
                layer,
                part,
                axes: tensor.axes.clone(),
                labels: labels.len(),
                extents: tensor.shape.len(),
                strides: tensor.strides.len(),
            });
        }
        let mut blocks = Vec::new();
        let mut units = Vec::new();
        let mut states = Vec::new();
        let mut contents = Vec::new();
        let mut halves = Vec::new();
        for ((&label, &extent), &stride) in labels.iter().zip(&tensor.shape).zip(&tensor.strides) {
            let list = match label {
                'B' => &mut blocks,
                'H' => &mut units,
                'N' => &mut states,
                'C' => &mut contents,
                '2' => &mut halves,
                '1' => {
                    place.extent('1', extent, 1, "an axis that means nothing")?;
                    continue;
                }
                _ => {
                    let (layer, part) = place.names();
                    return Err(TensorError::UnknownLabel { layer, part, axes: tensor.axes.clone(), label });
                }
            };
            // The stride of an axis of one position is never used, and some frameworks put anything there.
            let stride = if extent == 1 { stride.max(0) } else { stride };
            let Ok(stride) = u64::try_from(stride) else {
                let (layer, part) = place.names();
                return Err(TensorError::NegativeStride { layer, part, axis: label, stride, extent });
            };
            list.push(Axis { count: extent, stride });
        }
        let once = |label, axes: &[Axis], wanted, fits: bool| {
            if fits {
                return Ok(axes.first().copied());
            }
            let (layer, part) = place.names();
            let given = axes.len();
            Err(TensorError::LabelCount { layer, part, axes: tensor.axes.clone(), label, given, wanted })
        };
        let block = once('B', &blocks, "exactly one", blocks.len() == 1)?;
        let unit = once('H', &units, "at most one", units.len() <= 1)?;
        let halves = once('2', &halves, "at most one", halves.len() <= 1)?;
        let content = content_bytes(tensor, place, &contents)?;
        // `once` has made sure that there is one.
        let block = block.unwrap_or(Axis { count: 0, stride: 0 });
        Ok(Self { block, unit, states, content, halves })
    }
}

/// Bytes of the content axes, which have to be contiguous.
fn content_bytes(tensor: &Tensor, place: Place<'_>, contents: &[Axis]) -> Result<u64, TensorError> {
    let mut bytes = tensor.element_size;
    for axis in contents.iter().rev() {
        if axis.stride != bytes && axis.count > 1 {
            let (layer, part) = place.names();
            let stride = i64::try_from(axis.stride).unwrap_or(i64::MAX);
            return Err(TensorError::ContentStride { layer, part, stride, wanted: bytes });
        }
        bytes = bytes
            .checked_mul(axis.count)
            .ok_or_else(|| place.too_large(tensor, "the product of the content axes and the element size"))?;
    }
    Ok(bytes)
}
