//! Offsets and strides of a pool's parts.
//!
//! Everything is built from *bodies*. A body is what a section has for one block and one unit (head-major), or for
//! one block with all units (token-major, and rows-first sections, which count as one unit):
//!
//! ```text
//! head-major   [state 0: part, part][state 1: …]…                 units outside
//! token-major  [state 0: unit 0: part, part][unit 1: …]…[state 1: …]…
//! rows first   [state 0: part 0: unit 0, unit 1 …][part 1: …]…
//! ```
//!
//! With kernel blocks a body is repeated for each kernel block of the block. The layout then stacks bodies:
//!
//! | layout | stacking |
//! |---|---|
//! | LBHNC, LBNHC | slot: block: page; a page is sections: kernel blocks: units: body |
//! | LHBNC | slot: sections: units: block: kernel blocks: body; groups of unlike bodies one behind the other |
//! | BLHNC, BLNHC | row: page of each layer, as above |
//! | BHLNC | row: runs of sections with equal units: units: sections: kernel blocks: body |

use std::collections::HashMap;

use super::{ArrangeError, Blocks, Layout, Member, Pool};
use crate::error::SpecError;
use crate::ids::{LayerName, StorageIndex};
use crate::kinds::{Nesting, PartShape, Section, States, Units};
use crate::sharding::{Sharding, owned_units};
use crate::spec::{Axis, Part, Usage};
use crate::states::TokensPerState;
use crate::topology::{Shard, Topology};

/// Where the sections of a pool's layers lie.
pub(super) struct Placement<'a> {
    pool: &'a Pool,
    tp: Shard,
    /// Length of each buffer.
    lens: Vec<u64>,
    /// By layer and index of its section.
    spots: HashMap<(&'a LayerName, usize), Spot>,
}

/// Where one section lies.
#[derive(Clone, Copy, Debug)]
struct Spot {
    buffer: usize,
    offset: u64,
    block_stride: u64,
    /// From one body to the next of another unit; bodies of all units in one have none.
    unit_stride: u64,
    /// From one kernel block to the next.
    kernel_stride: u64,
}

/// Sizes of one section.
#[derive(Clone, Copy)]
struct Body<'a> {
    layer: &'a LayerName,
    section: &'a Section,
    index: usize,
    /// Bodies that stand beside each other: units where they lie outside, otherwise 1.
    units: u64,
    kernels: u64,
    /// Bytes of one body, without padding.
    len: u64,
}

impl<'a> Placement<'a> {
    pub(super) fn new(pool: &'a Pool, topology: &Topology) -> Result<Self, SpecError> {
        let mut placement = Self { pool, tp: topology.tp, lens: Vec::new(), spots: HashMap::new() };
        let mut bodies = Vec::new();
        for group in &pool.groups {
            let mut layers = Vec::new();
            for member in &group.layers {
                layers.push(placement.bodies(member, group)?);
            }
            bodies.push(layers);
        }
        let mut buffers: Vec<u8> = bodies.iter().flatten().flatten().map(|body| body.section.buffer).collect();
        buffers.sort_unstable();
        buffers.dedup();
        for buffer in buffers {
            placement.buffer(buffer, &bodies)?;
        }
        Ok(placement)
    }

    pub(super) fn buffer_lens(&self) -> &[u64] {
        &self.lens
    }

    /// The sections of a layer, sized.
    fn bodies(&self, member: &'a Member, group: &Blocks) -> Result<Vec<Body<'a>>, ArrangeError> {
        let layer = &member.name;
        let page = member.page()?;
        if page.usage != group.usage {
            return Err(ArrangeError::Usage { layer: layer.clone(), kind: page.usage, group: group.usage });
        }
        let (kernels, kernel_tokens) = kernels(layer, group)?;
        let mut bodies = Vec::with_capacity(page.sections.len());
        for (index, section) in page.sections.iter().enumerate() {
            let Some(first) = section.parts.first() else {
                return Err(ArrangeError::EmptySection { layer: layer.clone(), section: index });
            };
            if section.align == 0 || self.pool.page_align == 0 || self.pool.row_align == 0 {
                return Err(ArrangeError::ZeroAlign { layer: layer.clone() });
            }
            let first_units = self.units(first).1;
            let mut states = 1u64;
            for count in state_counts(layer, section, kernel_tokens)? {
                states = size(layer, states.checked_mul(count))?;
            }
            let mut row = 0u64;
            for part in &section.parts {
                let units = self.units(part).1;
                let bytes = match section.nesting {
                    Nesting::RowsFirst => size(layer, part.content.checked_mul(units))?,
                    Nesting::Layout if units == first_units => part.content,
                    Nesting::Layout => {
                        return Err(ArrangeError::UnitsDiffer {
                            layer: layer.clone(),
                            first: first.name.clone(),
                            second: part.name.clone(),
                            first_units,
                            second_units: units,
                        });
                    }
                };
                row = size(layer, row.checked_add(bytes))?;
            }
            let (units, row) = match section.nesting {
                Nesting::RowsFirst => (1, row),
                Nesting::Layout if self.pool.layout.is_token_major() => (1, size(layer, row.checked_mul(first_units))?),
                Nesting::Layout => (first_units, row),
            };
            let len = size(layer, row.checked_mul(states))?;
            bodies.push(Body { layer, section, index, units, kernels, len });
        }
        Ok(bodies)
    }

    /// Places the sections of one buffer; `bodies` are those of each layer of each group.
    fn buffer(&mut self, number: u8, bodies: &[Vec<Vec<Body<'a>>>]) -> Result<(), ArrangeError> {
        let buffer = self.lens.len();
        let groups: Vec<Vec<Vec<Body<'a>>>> = bodies
            .iter()
            .map(|layers| {
                let of_buffer = |layer: &Vec<Body<'a>>| {
                    layer.iter().copied().filter(|body| body.section.buffer == number).collect::<Vec<_>>()
                };
                layers.iter().map(of_buffer).filter(|layer| !layer.is_empty()).collect()
            })
            .collect();
        let len = match self.pool.layout {
            Layout::Lbhnc | Layout::Lbnhc => self.layers_then_blocks(buffer, &groups)?,
            Layout::Lhbnc => self.layers_then_heads(buffer, &groups)?,
            Layout::Blhnc | Layout::Blnhc => self.rows(buffer, &groups, Self::pages)?,
            Layout::Bhlnc => self.rows(buffer, &groups, Self::head_runs)?,
        };
        self.lens.push(len);
        Ok(())
    }

    /// LBHNC, LBNHC: slot i has a page for each block, of the i-th layer of each group.
    fn layers_then_blocks(&mut self, buffer: usize, groups: &[Vec<Vec<Body<'a>>>]) -> Result<u64, ArrangeError> {
        let num_slots = groups.iter().map(Vec::len).max().unwrap_or(0);
        let mut base = 0u64;
        for slot in 0..num_slots {
            let layers: Vec<&[Body<'a>]> =
                groups.iter().filter_map(|group| group.get(slot)).map(Vec::as_slice).collect();
            let mut spots = Vec::new();
            let mut stride = 0;
            for layer in &layers {
                let mut end = base;
                self.pages(buffer, std::slice::from_ref(&layer.to_vec()), &mut end, &mut spots)?;
                stride = stride.max(end - base);
            }
            let name = layers[0][0].layer;
            self.keep(spots, stride);
            base = size(name, stride.checked_mul(self.pool.num_blocks).and_then(|len| len.checked_add(base)))?;
        }
        Ok(base)
    }

    /// LHBNC: slot i has for each section and head a plane, with a body for each block.
    ///
    /// Blocks of different ids must lie apart, so layers of two groups lie over each other only where their planes have
    /// the same block strides; otherwise they lie one behind the other.
    fn layers_then_heads(&mut self, buffer: usize, groups: &[Vec<Vec<Body<'a>>>]) -> Result<u64, ArrangeError> {
        let num_slots = groups.iter().map(Vec::len).max().unwrap_or(0);
        let mut base = 0u64;
        for slot in 0..num_slots {
            // Sections by their planes, the longest layer's first; layers that lie over each other begin alike.
            let mut stacks: Vec<Stack<'_, 'a>> = Vec::new();
            for layer in groups.iter().filter_map(|group| group.get(slot)) {
                let planes = self.planes(layer)?;
                match stacks.iter_mut().find(|stack| over_each_other(&stack.planes, &planes)) {
                    Some(stack) => {
                        stack.layers.push(layer);
                        if num_planes(&planes) > num_planes(&stack.planes) {
                            stack.planes = planes;
                        }
                    }
                    None => stacks.push(Stack { planes, layers: vec![layer] }),
                }
            }
            for stack in stacks {
                let mut stack_end = base;
                for layer in stack.layers {
                    stack_end = stack_end.max(self.planes_at(buffer, base, layer)?);
                }
                base = stack_end;
            }
        }
        Ok(base)
    }

    /// Block stride and number of the planes of each section.
    fn planes(&self, layer: &[Body<'a>]) -> Result<Vec<(u64, u64)>, ArrangeError> {
        let of = |body: &Body<'a>| Ok((self.padded(body, body.len.checked_mul(body.kernels))?, body.units));
        layer.iter().map(of).collect()
    }

    /// Places the planes of a layer from `base` on; where they end.
    fn planes_at(&mut self, buffer: usize, base: u64, layer: &[Body<'a>]) -> Result<u64, ArrangeError> {
        let mut end = base;
        for body in layer {
            let name = body.layer;
            let block_stride = self.padded(body, body.len.checked_mul(body.kernels))?;
            let unit_stride = size(name, block_stride.checked_mul(self.pool.num_blocks))?;
            let spot = Spot { buffer, offset: end, block_stride, unit_stride, kernel_stride: body.len };
            self.spots.insert((name, body.index), spot);
            end = size(name, unit_stride.checked_mul(body.units).and_then(|len| len.checked_add(end)))?;
        }
        Ok(end)
    }

    /// BL\*: every group fills the row from byte 0.
    fn rows(
        &mut self,
        buffer: usize,
        groups: &[Vec<Vec<Body<'a>>>],
        fill: impl Fn(&Self, usize, &[Vec<Body<'a>>], &mut u64, &mut Spots<'a>) -> Result<(), ArrangeError>,
    ) -> Result<u64, ArrangeError> {
        let mut spots = Vec::new();
        let mut row = 0u64;
        for layers in groups {
            let mut end = 0;
            fill(self, buffer, layers, &mut end, &mut spots)?;
            row = row.max(end);
        }
        let too_large = ArrangeError::TooLarge { layer: None, what: "the row, or all rows together," };
        let row = row.checked_next_multiple_of(self.pool.row_align).ok_or_else(|| too_large.clone())?;
        self.keep(spots, row);
        row.checked_mul(self.pool.num_blocks).ok_or(too_large)
    }

    /// The page of each layer: sections, in each kernel blocks, units and bodies.
    fn pages(
        &self,
        buffer: usize,
        layers: &[Vec<Body<'a>>],
        end: &mut u64,
        spots: &mut Spots<'a>,
    ) -> Result<(), ArrangeError> {
        for layer in layers {
            let start = *end;
            // A kernel block is a page of its own, with all sections, as the engine's kernels see it.
            let mut offsets = Vec::with_capacity(layer.len());
            let mut page = 0u64;
            for body in layer {
                offsets.push(page);
                let len =
                    body.len.checked_mul(body.units).and_then(|len| len.checked_next_multiple_of(body.section.align));
                page = size(body.layer, len.and_then(|len| len.checked_add(page)))?;
            }
            let Some(first) = layer.first() else { continue };
            let page = size(first.layer, page.checked_next_multiple_of(self.pool.page_align))?;
            for (body, offset) in layer.iter().zip(offsets) {
                let offset = size(body.layer, start.checked_add(offset))?;
                let spot = Spot { buffer, offset, block_stride: 0, unit_stride: body.len, kernel_stride: page };
                spots.push(((body.layer, body.index), spot));
            }
            *end = size(first.layer, page.checked_mul(first.kernels).and_then(|len| len.checked_add(start)))?;
        }
        Ok(())
    }

    /// BHLNC: sections that follow each other with equal units share the loop over heads.
    fn head_runs(
        &self,
        buffer: usize,
        layers: &[Vec<Body<'a>>],
        end: &mut u64,
        spots: &mut Spots<'a>,
    ) -> Result<(), ArrangeError> {
        let all: Vec<Body<'a>> = layers.iter().flatten().copied().collect();
        for run in all.chunk_by(|a, b| a.units == b.units) {
            let first = spots.len();
            let mut head = 0u64;
            for body in run {
                let offset = size(body.layer, end.checked_add(head))?;
                let spot = Spot { buffer, offset, block_stride: 0, unit_stride: 0, kernel_stride: body.len };
                spots.push(((body.layer, body.index), spot));
                let len = self.padded(body, body.len.checked_mul(body.kernels))?;
                head = size(body.layer, head.checked_add(len))?;
            }
            for (_, spot) in &mut spots[first..] {
                spot.unit_stride = head;
            }
            *end = size(run[0].layer, head.checked_mul(run[0].units).and_then(|len| len.checked_add(*end)))?;
        }
        Ok(())
    }

    /// A body's length, over all kernel blocks, padded to the section's and the pool's alignment.
    fn padded(&self, body: &Body<'_>, len: Option<u64>) -> Result<u64, ArrangeError> {
        let len = len.and_then(|len| len.checked_next_multiple_of(body.section.align));
        size(body.layer, len.and_then(|len| len.checked_next_multiple_of(self.pool.page_align)))
    }

    fn keep(&mut self, spots: Spots<'a>, block_stride: u64) {
        self.spots.extend(spots.into_iter().map(|(key, spot)| (key, Spot { block_stride, ..spot })));
    }

    /// The parts of a placed layer.
    pub(super) fn parts(
        &self,
        member: &Member,
        group: &Blocks,
        storage: &impl Fn(usize) -> Result<StorageIndex, ArrangeError>,
    ) -> Result<Vec<Part>, ArrangeError> {
        let layer = &member.name;
        let (kernels, kernel_tokens) = kernels(layer, group)?;
        let token_major = self.pool.layout.is_token_major();
        let mut parts = Vec::new();
        for (index, section) in member.page()?.sections.iter().enumerate() {
            let Some(&spot) = self.spots.get(&(layer, index)) else { continue };
            let row: u64 = section.parts.iter().map(|part| self.row_bytes(section, part)).sum();
            let mut offset = spot.offset;
            for part in &section.parts {
                let (sharding, count) = self.units(part);
                let (unit_stride, state_stride) = match section.nesting {
                    Nesting::RowsFirst => (part.content, row),
                    Nesting::Layout if token_major => (row, row * count),
                    Nesting::Layout => (spot.unit_stride, row),
                };
                let mut tokens = Vec::new();
                if kernels > 1 {
                    tokens.push(Axis { count: kernels, stride: spot.kernel_stride });
                }
                tokens.extend(axes(&state_counts(layer, section, kernel_tokens)?, state_stride));
                parts.push(Part {
                    name: part.name.clone(),
                    storage: storage(spot.buffer)?,
                    offset,
                    block_stride: spot.block_stride,
                    sharding,
                    units: Axis { count, stride: unit_stride },
                    tokens,
                    content: part.content,
                    tokens_per_state: match section.states {
                        States::PerToken(tokens_per_state) => tokens_per_state.reduced(),
                        States::Fixed(_) => TokensPerState::ONE,
                    },
                    format: part.format.clone(),
                });
                offset = size(layer, offset.checked_add(self.row_bytes(section, part)))?;
            }
        }
        Ok(parts)
    }

    /// Bytes that a part has in a row of its section; sizes were checked when the section was sized.
    fn row_bytes(&self, section: &Section, part: &PartShape) -> u64 {
        match section.nesting {
            Nesting::RowsFirst => part.content * self.units(part).1,
            Nesting::Layout => part.content,
        }
    }

    /// How a part is sharded, and units on this rank.
    fn units(&self, part: &PartShape) -> (Sharding, u64) {
        match part.units {
            Units::Replicated(count) => (Sharding::Replicated, count),
            Units::Sharded(total) => {
                let owned = owned_units(total, self.tp);
                (Sharding::Sharded { total, first: None }, owned.end - owned.start)
            }
        }
    }
}

/// Layers of one slot in LHBNC that lie over each other, and the planes of the longest.
struct Stack<'g, 'a> {
    planes: Vec<(u64, u64)>,
    layers: Vec<&'g Vec<Body<'a>>>,
}

fn num_planes(planes: &[(u64, u64)]) -> u64 {
    planes.iter().fold(0, |sum, &(_, count)| sum.saturating_add(count))
}

/// Whether two layers' planes have the same block strides as far as both go.
fn over_each_other(a: &[(u64, u64)], b: &[(u64, u64)]) -> bool {
    let (mut a, mut b) = (a.iter().copied(), b.iter().copied());
    let (mut left, mut right) = (a.next(), b.next());
    while let (Some((here, m)), Some((there, n))) = (left, right) {
        if here != there {
            return false;
        }
        let both = m.min(n);
        left = if m > both { Some((here, m - both)) } else { a.next() };
        right = if n > both { Some((there, n - both)) } else { b.next() };
    }
    true
}

type Spots<'a> = Vec<((&'a LayerName, usize), Spot)>;

/// Kernel blocks in a block, and tokens in one.
fn kernels(layer: &LayerName, group: &Blocks) -> Result<(u64, u64), ArrangeError> {
    let block_tokens = group.block_tokens;
    match group.kernel_tokens {
        _ if group.usage == Usage::State => Ok((1, 1)),
        None => Ok((1, block_tokens)),
        Some(tokens) if tokens != 0 && block_tokens.is_multiple_of(tokens) => Ok((block_tokens / tokens, tokens)),
        Some(kernel_tokens) => Err(ArrangeError::KernelTokens { layer: layer.clone(), kernel_tokens, block_tokens }),
    }
}

/// Counts of the state axes of a kernel block, outermost first.
fn state_counts(layer: &LayerName, section: &Section, tokens: u64) -> Result<Vec<u64>, ArrangeError> {
    match &section.states {
        States::Fixed(counts) => Ok(counts.clone()),
        States::PerToken(tokens_per_state) => match tokens_per_state.states(tokens) {
            Some(states) => Ok(vec![states]),
            None => Err(ArrangeError::PartialState {
                layer: layer.clone(),
                part: section.parts.first().map_or_else(|| "".into(), |part| part.name.clone()),
                tokens,
                tokens_per_state: *tokens_per_state,
            }),
        },
    }
}

/// Nested axes of these counts, the innermost with this stride.
fn axes(counts: &[u64], innermost: u64) -> Vec<Axis> {
    let mut stride = innermost;
    let mut axes: Vec<Axis> = counts
        .iter()
        .rev()
        .map(|&count| {
            let axis = Axis { count, stride };
            // The section's length, which is at least this, fits; a count of 0 is refused with the spec.
            stride = stride.saturating_mul(count);
            axis
        })
        .collect();
    axes.reverse();
    axes
}

fn size(layer: &LayerName, size: Option<u64>) -> Result<u64, ArrangeError> {
    size.ok_or_else(|| ArrangeError::TooLarge { layer: Some(layer.clone()), what: "its size" })
}
