//! Two deployments of one model, made up from bytes.
//!
//! Layers, parts and their sizes are common to both sides; everything that is the worker's own (ranks, block sizes,
//! kernel blocks, the order of axes, padding at every level, overlays, pools) is drawn for each side. Most cases are
//! valid, since nothing is learnt from a spec that is refused; now and then a number becomes any number.

use arbitrary::{Arbitrary, Result, Unstructured};
use kvplan::{BlockList, Op, PairOptions, Request};
use kvspec::{
    Axis, BlockId, CacheSpec, ContextShard, Fingerprint, Group, GroupId, Kind, Layer, MemKind, Part, PoolId, Role,
    SPEC_VERSION, Shard, Sharding, Storage, StorageIndex, TokensPerState, Topology, Usage, owned_units,
};

use crate::edits::number_near;

/// A pair, as plain data, and a request.
#[derive(Debug)]
pub struct Case {
    /// The worker that plans.
    pub local: CacheSpec,
    /// Its peer.
    pub remote: CacheSpec,
    /// What the plan may do.
    pub options: PairOptions,
    /// What it is asked for.
    pub request: Request,
}

impl Arbitrary<'_> for Case {
    fn arbitrary(bytes: &mut Unstructured<'_>) -> Result<Self> {
        let model = Model::draw(bytes)?;
        let (local, remote) = (model.worker(bytes)?, model.worker(bytes)?);
        let op = if bytes.arbitrary()? { Op::Read } else { Op::Write };
        let max_gap = *bytes.choose(&[0, 0, 1, 16, 4096, u64::MAX, u64::MAX])?;
        let min_run = *bytes.choose(&[0, 0, 0, 0, 2, u64::MAX])?;
        let options = PairOptions { op, max_gap, min_run, require_whole_rows: bytes.ratio(1, 16)? };
        let request =
            Request { op, local: lists(&local, bytes)?, remote: lists(&remote, bytes)?, ..Request::default() };
        let (mut local, mut remote) = (local, remote);
        if bytes.ratio(1, 8)? {
            disturb(&mut local, bytes)?;
        }
        if bytes.ratio(1, 4)? {
            disturb(&mut remote, bytes)?;
        }
        Ok(Self { local, remote, options, request })
    }
}

/// What both sides agree on.
struct Model {
    layers: Vec<LayerShape>,
}

struct LayerShape {
    /// Layers of one class share a group.
    class: u8,
    usage: Usage,
    parts: Vec<PartShape>,
}

struct PartShape {
    content: u64,
    /// Units of the whole model; `None` where every rank holds the same bytes.
    total: Option<u64>,
    /// For state.
    states: u64,
    tokens_per_state: TokensPerState,
}

impl Model {
    fn draw(bytes: &mut Unstructured<'_>) -> Result<Self> {
        let classes: Vec<Usage> = (0..bytes.int_in_range(1..=3)?)
            .map(|_| Ok(if bytes.ratio(1, 5)? { Usage::State } else { Usage::Tokens }))
            .collect::<Result<_>>()?;
        let mut layers = Vec::new();
        for index in 0..bytes.int_in_range(1..=5u8)? {
            // Each class has a layer as far as they reach.
            let class = if usize::from(index) < classes.len() {
                index
            } else {
                u8::try_from(bytes.choose_index(classes.len())?).unwrap_or(0)
            };
            let part = |bytes: &mut Unstructured<'_>| {
                Ok(PartShape {
                    content: *bytes.choose(&[1, 2, 3, 4, 8, 16, 1 << 20])?,
                    total: if bytes.arbitrary()? { Some(bytes.int_in_range(1..=8)?) } else { None },
                    states: bytes.int_in_range(1..=12)?,
                    tokens_per_state: if bytes.ratio(1, 6)? {
                        TokensPerState::new(bytes.int_in_range(1..=4)?, bytes.int_in_range(1..=3)?)
                    } else {
                        TokensPerState::ONE
                    },
                })
            };
            let parts = (0..bytes.int_in_range(1..=3)?).map(|_| part(bytes)).collect::<Result<_>>()?;
            layers.push(LayerShape { class, usage: classes[usize::from(class)], parts });
        }
        layers.truncate(5.max(classes.len()));
        Ok(Self { layers })
    }

    /// One rank's spec.
    fn worker(&self, bytes: &mut Unstructured<'_>) -> Result<CacheSpec> {
        let dcp_size = *bytes.choose(&[1, 1, 1, 2, 3])?;
        let tp_size = dcp_size * bytes.int_in_range(1..=4u32)?;
        let tp = Shard { rank: bytes.int_in_range(0..=tp_size - 1)?, size: tp_size };
        let interleave = if bytes.ratio(1, 4)? { Some(*bytes.choose(&[1, 2, 4])?) } else { None };
        let dcp = ContextShard { rank: tp.rank % dcp_size, size: dcp_size, interleave };

        let num_groups = self.layers.iter().map(|layer| layer.class).max().unwrap_or(0) + 1;
        let one_pool = bytes.arbitrary()?;
        let mut groups = Vec::new();
        for id in 0..num_groups {
            let usage = self.layers.iter().find(|layer| layer.class == id).map_or(Usage::Tokens, |layer| layer.usage);
            groups.push(Group {
                pool: PoolId(if one_pool { 0 } else { u32::from(id) }),
                block_tokens: *bytes.choose(&[4, 8, 12, 16, 24, 48])?,
                num_blocks: if bytes.ratio(1, 16)? { 1 } else { bytes.int_in_range(2..=9)? },
                usage,
            });
        }
        let mut spec = CacheSpec {
            version: SPEC_VERSION,
            fingerprint: Fingerprint::default(),
            topology: Topology { tp, pp: Shard::default(), dcp },
            storages: Vec::new(),
            groups,
            layers: Vec::new(),
        };
        let block_outermost = bytes.arbitrary()?;
        let overlay = one_pool && bytes.arbitrary()?;
        self.place(&mut spec, block_outermost, overlay, bytes)?;
        Ok(spec)
    }

    /// Places layers one after another, in rows or apart.
    fn place(&self, spec: &mut CacheSpec, rows: bool, overlay: bool, bytes: &mut Unstructured<'_>) -> Result<()> {
        let mut order: Vec<usize> = (0..self.layers.len()).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, bytes.choose_index(i + 1)?);
        }
        let storages = if rows { 1 } else { bytes.int_in_range(1..=2u32)? };
        let mut ends = vec![0u64; storages as usize];
        let start = bytes.int_in_range(0..=3u64)? * 8;
        // Where the next page of each group begins in its row.
        let mut cursors = vec![start; spec.groups.len()];
        for &index in &order {
            let shape = &self.layers[index];
            let group = spec.groups[usize::from(shape.class)];
            let mut parts = Vec::new();
            for (at, part) in shape.parts.iter().enumerate() {
                let (mut part, page) = part.page(at, shape.usage, &group, &spec.topology, bytes)?;
                if rows {
                    let cursor = usize::from(if overlay { shape.class } else { 0 });
                    part.offset = cursors[cursor];
                    cursors[cursor] += page + padding(bytes)?;
                } else {
                    let storage = bytes.choose_index(ends.len())?;
                    part.storage = StorageIndex(u32::try_from(storage).unwrap_or(0));
                    part.offset = ends[storage];
                    part.block_stride = page + padding(bytes)?;
                    apart(&mut part, &group, bytes)?;
                    ends[storage] = end_of(&part, &group) + padding(bytes)?;
                }
                parts.push(part);
            }
            spec.layers.push(Layer {
                name: format!("layer.{index}").into(),
                group: GroupId(u32::from(shape.class)),
                kind: Kind::Opaque,
                role: Role::Target,
                transfer: !bytes.ratio(1, 12)?,
                parts,
            });
        }
        if rows {
            let stride = cursors.iter().max().copied().unwrap_or(0) - start + padding(bytes)?;
            spec.layers.iter_mut().flat_map(|layer| &mut layer.parts).for_each(|part| part.block_stride = stride);
            for layer in &spec.layers {
                let group = &spec.groups[layer.group.index()];
                ends[0] = layer.parts.iter().fold(ends[0], |end, part| end.max(end_of(part, group)));
            }
        }
        let mut base = 0x1000;
        for end in ends {
            let len = end.max(1) + padding(bytes)?;
            let mem = if bytes.ratio(1, 4)? { MemKind::Vram(0) } else { MemKind::Dram };
            spec.storages.push(Storage { base, len, mem, shared: bytes.ratio(1, 16)? });
            base += len;
        }
        Ok(())
    }
}

impl PartShape {
    /// The part with its page at offset 0, and the bytes that the page takes.
    fn page(
        &self,
        at: usize,
        usage: Usage,
        group: &Group,
        topology: &Topology,
        bytes: &mut Unstructured<'_>,
    ) -> Result<(Part, u64)> {
        let units = self.total.map_or(1, |total| {
            let owned = owned_units(total, topology.tp);
            owned.end - owned.start
        });
        let states = match usage {
            Usage::State => self.states,
            Usage::Tokens => self.tokens_per_state.states(group.block_tokens).unwrap_or(group.block_tokens),
        };
        let mut factors = Vec::new();
        let mut rest = states;
        while rest > 1 && factors.len() < 3 && bytes.ratio(1, 3)? {
            let divisors: Vec<u64> = (2..=rest).filter(|d| rest.is_multiple_of(*d)).collect();
            let count = *bytes.choose(&divisors)?;
            factors.push(count);
            rest /= count;
        }
        if rest > 1 {
            factors.push(rest);
        }
        // The axes from the innermost out: units stand anywhere among the token factors.
        let units_at = bytes.choose_index(factors.len() + 1)?;
        let mut tokens = vec![Axis { count: 1, stride: 0 }; factors.len()];
        let mut stride = self.content + padding(bytes)?;
        let mut unit_stride = stride;
        for (depth, &count) in factors.iter().enumerate().rev() {
            if depth + 1 == units_at {
                unit_stride = stride;
                stride = stride * units + padding(bytes)?;
            }
            tokens[depth] = Axis { count, stride };
            stride = stride * count + padding(bytes)?;
        }
        if units_at == 0 {
            unit_stride = stride;
            stride = stride * units + padding(bytes)?;
        }
        let sharding = match self.total {
            Some(total) => Sharding::Sharded { total, first: None },
            None => Sharding::Replicated,
        };
        let part = Part {
            name: format!("part.{at}").into(),
            storage: StorageIndex(0),
            offset: 0,
            block_stride: 0,
            sharding,
            units: Axis { count: units, stride: unit_stride },
            tokens,
            content: self.content,
            tokens_per_state: self.tokens_per_state,
            format: String::new(),
        };
        Ok((part, stride))
    }
}

/// Puts the units outside the blocks, in some cases.
fn apart(part: &mut Part, group: &Group, bytes: &mut Unstructured<'_>) -> Result<()> {
    let outermost = part.tokens.first().is_none_or(|axis| axis.stride <= part.units.stride);
    if outermost && bytes.ratio(1, 3)? {
        part.block_stride = part.units.stride;
        part.units.stride = part.block_stride * group.num_blocks + padding(bytes)?;
    }
    Ok(())
}

fn padding(bytes: &mut Unstructured<'_>) -> Result<u64> {
    Ok(if bytes.ratio(1, 4)? { bytes.int_in_range(0..=40)? } else { 0 })
}

fn end_of(part: &Part, group: &Group) -> u64 {
    let states: u64 = part.tokens.iter().map(|axis| (axis.count - 1) * axis.stride).sum();
    part.offset
        + (group.num_blocks - 1) * part.block_stride
        + (part.units.count - 1) * part.units.stride
        + states
        + part.content
}

/// Lists for most groups: some blocks, some holes, most of them right.
fn lists(spec: &CacheSpec, bytes: &mut Unstructured<'_>) -> Result<Vec<BlockList>> {
    let mut lists = Vec::new();
    for (id, group) in spec.groups.iter().enumerate() {
        if bytes.ratio(1, 10)? {
            continue;
        }
        let num_blocks = u32::try_from(group.num_blocks).unwrap_or(0);
        let rotate = bytes.int_in_range(0..=num_blocks.max(1) - 1)?;
        let len = bytes.int_in_range(0..=num_blocks)?;
        let mut blocks: Vec<BlockId> = (0..len).map(|i| BlockId((i + rotate) % num_blocks.max(1))).collect();
        for block in &mut blocks {
            if bytes.ratio(1, 24)? {
                *block = *bytes.choose(&[BlockId::HOLE, BlockId(0), BlockId(u32::MAX - 1)])?;
            }
        }
        let first = if bytes.ratio(1, 3)? { bytes.int_in_range(0..=4)? } else { 0 };
        let first = if bytes.ratio(1, 40)? { number_near(first, bytes)? } else { first };
        lists.push(BlockList { group: GroupId(u32::try_from(id).unwrap_or(0)), first: Some(first), blocks });
    }
    Ok(lists)
}

/// Makes a few numbers of a spec any number.
fn disturb(spec: &mut CacheSpec, bytes: &mut Unstructured<'_>) -> Result<()> {
    for _ in 0..bytes.int_in_range(1..=4u8)? {
        let group = bytes.choose_index(spec.groups.len())?;
        let layer = bytes.choose_index(spec.layers.len())?;
        let at = bytes.choose_index(spec.layers[layer].parts.len())?;
        let part = &mut spec.layers[layer].parts[at];
        let which = bytes.int_in_range(0..=8u8)?;
        let mut change = |value: &mut u64| -> Result<()> {
            *value = number_near(*value, bytes)?;
            Ok(())
        };
        match which {
            0 => change(&mut spec.groups[group].block_tokens)?,
            1 => change(&mut spec.groups[group].num_blocks)?,
            2 => change(&mut part.offset)?,
            3 => change(&mut part.block_stride)?,
            4 => change(&mut part.units.stride)?,
            5 => change(&mut part.units.count)?,
            6 => change(&mut part.content)?,
            7 => part.tokens.iter_mut().try_for_each(|axis| change(&mut axis.stride))?,
            _ => part.tokens.iter_mut().try_for_each(|axis| change(&mut axis.count))?,
        }
        // What grew must still lie in its storage, or the spec is refused before anything is tried.
        for (storage, i) in spec.storages.iter_mut().zip(0..) {
            (storage.base, storage.len) = (i << 62, 1 << 62);
        }
    }
    Ok(())
}
