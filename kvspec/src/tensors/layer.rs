//! One layer's tensors, checked against its kind.

use super::error::TensorError;
use super::labels::{Axes, Place};
use super::tensor::Tensor;
use crate::family::{Budget, Family, Overlap};
use crate::ids::{GroupId, LayerName, PartName, StorageIndex};
use crate::kinds::{Describe, KindError, Page, PartShape, States, Units};
use crate::sharding::{Sharding, owned_units};
use crate::spec::{Axis, Group, Layer, MemKind, Part, Role};
use crate::states::TokensPerState;
use crate::topology::Shard;

/// A layer and the tensors that hold it.
#[derive(Clone, Debug)]
pub struct LayerTensors {
    name: LayerName,
    group: GroupId,
    role: Role,
    transfer: bool,
    page: Result<Page, KindError>,
    tensors: Vec<Tensor>,
}

/// A part with the memory and the bytes that it lies in.
#[derive(Debug)]
pub(super) struct FoundPart {
    pub(super) layer: LayerName,
    /// Its storage and offset are not known yet.
    pub(super) part: Part,
    pub(super) mem: MemKind,
    pub(super) start: u64,
    pub(super) end: u64,
}

/// What a tensor has to hold of one part.
#[derive(Clone, Copy)]
struct Wanted<'a> {
    shape: &'a PartShape,
    states: &'a States,
}

impl LayerTensors {
    /// A layer of a kind; its block table is the group of this index.
    #[must_use]
    pub fn new(name: impl Into<LayerName>, group: GroupId, kind: impl Describe) -> Self {
        Self {
            name: name.into(),
            group,
            role: Role::Target,
            transfer: true,
            page: kind.describe(),
            tensors: Vec::new(),
        }
    }

    /// What the layer is for; [`Role::Target`] by default.
    #[must_use]
    pub fn role(self, role: Role) -> Self {
        Self { role, ..self }
    }

    /// Keeps the layer from travelling; it still owns its bytes.
    #[must_use]
    pub fn stays(self) -> Self {
        Self { transfer: false, ..self }
    }

    /// Adds a tensor.
    #[must_use]
    pub fn tensor(mut self, tensor: Tensor) -> Self {
        self.tensors.push(tensor);
        self
    }

    pub(super) fn with_parts(&self, parts: Vec<Part>) -> Result<Layer, TensorError> {
        Ok(Layer {
            name: self.name.clone(),
            group: self.group,
            kind: self.page()?.kind,
            role: self.role,
            transfer: self.transfer,
            parts,
        })
    }

    fn page(&self) -> Result<&Page, TensorError> {
        self.page.as_ref().map_err(|source| TensorError::Kind { layer: self.name.clone(), source: source.clone() })
    }

    /// The layer's parts, in the order of its kind.
    pub(super) fn parts(&self, groups: &[Group], tp: Shard) -> Result<Vec<FoundPart>, TensorError> {
        let page = self.page()?;
        let layer = || self.name.clone();
        let Some(group) = groups.get(self.group.index()) else {
            return Err(TensorError::NoSuchGroup { layer: layer(), group: self.group, num_groups: groups.len() });
        };
        if page.usage != group.usage {
            return Err(TensorError::Usage { layer: layer(), kind: page.usage, group: group.usage });
        }
        let all: Vec<Wanted<'_>> = page
            .sections
            .iter()
            .flat_map(|section| section.parts.iter().map(|shape| Wanted { shape, states: &section.states }))
            .collect();
        let named = |part: &PartName| self.tensors.iter().filter(|tensor| tensor.parts.contains(part)).count();
        let mut found = Vec::with_capacity(all.len());
        for tensor in &self.tensors {
            let mut wanted = Vec::new();
            if tensor.parts.is_empty() {
                wanted.extend(all.iter().filter(|wanted| named(&wanted.shape.name) == 0));
            }
            for part in &tensor.parts {
                let Some(one) = all.iter().find(|wanted| wanted.shape.name == *part) else {
                    return Err(TensorError::NoSuchPart { layer: layer(), part: part.clone() });
                };
                wanted.push(one);
            }
            if let Some(first) = wanted.first() {
                let place = Place { layer: &self.name, part: &first.shape.name };
                Split { tensor, place, group, tp }.parts(&wanted, &mut found)?;
            }
        }
        let mut ordered = Vec::with_capacity(all.len());
        for wanted in &all {
            let name = &wanted.shape.name;
            let tensors = found.iter().filter(|found| found.part.name == *name).count();
            match found.iter().position(|found| found.part.name == *name) {
                Some(index) if tensors == 1 => ordered.push(found.swap_remove(index)),
                _ => return Err(TensorError::PartHeld { layer: layer(), part: name.clone(), tensors }),
            }
        }
        Ok(ordered)
    }
}

/// Cuts a tensor into parts.
struct Split<'a> {
    tensor: &'a Tensor,
    place: Place<'a>,
    group: &'a Group,
    tp: Shard,
}

impl Split<'_> {
    fn parts(&self, wanted: &[&Wanted<'_>], found: &mut Vec<FoundPart>) -> Result<(), TensorError> {
        let Self { tensor, place, .. } = *self;
        let axes = Axes::new(tensor, place)?;
        self.rows_apart(&axes)?;
        let along_units = tensor.side_by_side && wanted.len() > 1;
        let along_halves = axes.halves.is_some();
        if let Some(halves) = axes.halves {
            place.extent('2', halves.count, 2, "K and V")?;
            place.extent('2', halves.count, count(wanted.len()), "the parts that the tensor holds")?;
        }
        let unit = axes.unit.unwrap_or(Axis { count: 1, stride: 0 });
        let mut units_before = 0u64;
        let mut bytes_before = 0u64;
        for (one, half) in wanted.iter().zip(0u64..) {
            let (sharding, num_units) = self.units(one.shape);
            let moved = if along_halves {
                axes.halves.and_then(|halves| halves.stride.checked_mul(half))
            } else if along_units {
                unit.stride.checked_mul(units_before)
            } else {
                Some(bytes_before)
            };
            let start = moved.and_then(|moved| tensor.ptr.checked_add(moved));
            let start = start.ok_or_else(|| place.too_large(tensor, "the start of its last part"))?;
            units_before = self.sum(units_before, num_units)?;
            bytes_before = self.sum(bytes_before, one.shape.content)?;
            if !along_units {
                let here = Place { part: &one.shape.name, ..place };
                here.extent('H', unit.count, num_units, "units on this rank")?;
            }
            if along_units || along_halves {
                self.content(axes.content, one.shape.content)?;
            }
            let (block, tokens) = self.states(one, &axes)?;
            let part = Part {
                name: one.shape.name.clone(),
                storage: StorageIndex(0),
                offset: 0,
                block_stride: block.stride,
                sharding,
                units: Axis { count: num_units, stride: unit.stride },
                tokens,
                content: one.shape.content,
                tokens_per_state: match one.states {
                    States::PerToken(tokens_per_state) => tokens_per_state.reduced(),
                    States::Fixed(_) => TokensPerState::ONE,
                },
                format: one.shape.format.clone(),
            };
            found.push(self.found(part, start)?);
        }
        if along_units {
            place.extent('H', unit.count, units_before, "units of all parts on this rank")?;
        } else if !along_halves {
            self.content(axes.content, bytes_before)?;
        }
        Ok(())
    }

    /// No two rows of the tensor share bytes. What cannot be decided here is decided, or refused, with the whole
    /// spec.
    fn rows_apart(&self, axes: &Axes) -> Result<(), TensorError> {
        let outer = [Some(axes.block), axes.unit, axes.halves].into_iter().flatten();
        let loops = outer.chain(axes.states.iter().copied()).map(|axis| (axis.count, axis.stride));
        let family = Family::new(0, axes.content, loops);
        if let Overlap::Overlapping { distance } = family.overlap_self(&mut Budget(100_000)) {
            let (layer, part) = self.place.names();
            return Err(TensorError::Overlap { layer, part, distance: distance.unsigned_abs(), content: axes.content });
        }
        Ok(())
    }

    /// The block axis and the state axes of a part: kernel blocks, if there are any, are the outermost states.
    fn states(&self, wanted: &Wanted<'_>, axes: &Axes) -> Result<(Axis, Vec<Axis>), TensorError> {
        let place = Place { part: &wanted.shape.name, ..self.place };
        let stored = axes.states.iter().try_fold(1u64, |product, axis| product.checked_mul(axis.count));
        let stored = stored.ok_or_else(|| place.too_large(self.tensor, "the product of the axes N"))?;
        let num_blocks = self.group.num_blocks;
        let (layer, part) = place.names();
        let per_block = match wanted.states {
            States::Fixed(counts) => counts.iter().try_fold(1u64, |product, &count| product.checked_mul(count)),
            States::PerToken(tokens_per_state) => {
                let tokens = self.group.block_tokens;
                let states = tokens_per_state.states(tokens);
                if states.is_none() {
                    let tokens_per_state = *tokens_per_state;
                    return Err(TensorError::PartialState { layer, part, tokens, tokens_per_state });
                }
                states
            }
        };
        let per_block = per_block.ok_or_else(|| place.too_large(self.tensor, "the states of a block"))?;
        let block = axes.block;
        if num_blocks == 0 || block.count == 0 {
            place.extent('B', block.count, num_blocks.max(1), "blocks, of which there is at least one")?;
        }
        if stored == per_block {
            place.extent('B', block.count, num_blocks, "num_blocks of the group")?;
            return Ok((block, axes.states.clone()));
        }
        if matches!(wanted.states, States::Fixed(_)) {
            place.extent('N', stored, per_block, "states of a block")?;
        }
        if stored == 0 || per_block % stored != 0 {
            return Err(TensorError::NotTiling { layer, part, stored, wanted: per_block });
        }
        let kernels = per_block / stored;
        let too_large = || place.too_large(self.tensor, "the stride of a block of kernel blocks");
        let all = num_blocks.checked_mul(kernels).ok_or_else(too_large)?;
        if block.count == num_blocks {
            // As many positions as blocks: N is short, and no kernel blocks are meant.
            place.extent('N', stored, per_block, "states of a block")?;
        }
        place.extent('B', block.count, all, "num_blocks of the group times the kernel blocks in a block")?;
        let stride = block.stride.checked_mul(kernels).ok_or_else(too_large)?;
        let mut tokens = vec![Axis { count: kernels, stride: block.stride }];
        tokens.extend_from_slice(&axes.states);
        Ok((Axis { count: num_blocks, stride }, tokens))
    }

    /// The part with its extent.
    fn found(&self, part: Part, start: u64) -> Result<FoundPart, TensorError> {
        let place = Place { part: &part.name, ..self.place };
        let family = Family::of_part(&part, self.group.num_blocks);
        let end = family.extent().and_then(|extent| start.checked_add(extent));
        let end = end.ok_or_else(|| place.too_large(self.tensor, "its last cell"))?;
        Ok(FoundPart { layer: self.place.layer.clone(), part, mem: self.tensor.mem, start, end })
    }

    fn content(&self, given: u64, wanted: u64) -> Result<(), TensorError> {
        if given == wanted {
            return Ok(());
        }
        let (layer, part) = self.place.names();
        Err(TensorError::Content { layer, part, given, wanted })
    }

    fn sum(&self, a: u64, b: u64) -> Result<u64, TensorError> {
        a.checked_add(b).ok_or_else(|| self.place.too_large(self.tensor, "its parts together"))
    }

    /// How a part is sharded, and units on this rank.
    fn units(&self, shape: &PartShape) -> (Sharding, u64) {
        match shape.units {
            Units::Replicated(count) => (Sharding::Replicated, count),
            Units::Sharded(total) => {
                let owned = owned_units(total, self.tp);
                (Sharding::Sharded { total, first: None }, owned.end - owned.start)
            }
        }
    }
}

fn count(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}
