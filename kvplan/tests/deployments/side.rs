//! One deployment of a model: topology, groups, pools, storages, and one spec for each rank.

use kvspec::divisor::gcd;
use kvspec::{
    Axis, CacheSpec, ContextShard, Fingerprint, Group, GroupId, Kind, Layer, MemKind, Part, PoolId, Role, SPEC_VERSION,
    Shard, Sharding, Storage, StorageIndex, TokensPerState, Topology, Usage,
};

use super::dice::Dice;
use super::model::{LayerModel, PartModel};
use super::place::{Ax, Item, arrange};

/// How far deployments reach.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope {
    pub(crate) max_layers: u64,
    pub(crate) max_units: u64,
    pub(crate) max_tp: u64,
    pub(crate) max_pp: u64,
    pub(crate) context_parallel: bool,
}

/// What all ranks of a side have in common.
#[derive(Clone, Debug)]
pub(super) struct Side {
    pub(super) tp: u32,
    pub(super) pp: u32,
    pub(super) dcp: u32,
    pub(super) interleave: Option<u64>,
    pub(super) groups: Vec<GroupChoice>,
    /// For each layer: its group, its stage, and whether other stages keep a copy.
    pub(super) layers: Vec<LayerChoice>,
    pools: Vec<PoolChoice>,
    mem: Vec<MemKind>,
    shared: Vec<bool>,
    explicit: bool,
    woven: bool,
    uneven_capacity: bool,
    padding: Dice,
}

#[derive(Clone, Debug)]
pub(super) struct GroupChoice {
    pub(super) is_state: bool,
    pub(super) pool: usize,
    pub(super) block_tokens: u64,
    pub(super) scratch: bool,
}

#[derive(Clone, Debug)]
pub(super) struct LayerChoice {
    pub(super) group: usize,
    pub(super) stage: u32,
    pub(super) copied: bool,
    /// For each part whether it lies in a storage of its own.
    apart: Vec<bool>,
    /// For each part a first token factor, as a choice among the divisors.
    split: Vec<u64>,
}

#[derive(Clone, Debug)]
struct PoolChoice {
    storage: usize,
    overlay: bool,
    by_layer: bool,
    order: Vec<Ax>,
    /// A group over the rows of the pool that does not move: of their stride, or of another.
    stranger: Option<bool>,
}

fn divisors(n: u64) -> Vec<u64> {
    (1..=n).filter(|d| n.is_multiple_of(*d)).collect()
}

impl Side {
    pub(super) fn draw(dice: &mut Dice, model: &[LayerModel], scope: Scope) -> Side {
        let sizes: Vec<u64> = [1, 2, 4, 3, 8, 6, 16, 12, 5].into_iter().filter(|size| *size <= scope.max_tp).collect();
        let tp = dice.pick(&sizes);
        let pp = 1 + dice.below(scope.max_pp);
        let mut groups: Vec<GroupChoice> = Vec::new();
        let mut keys: Vec<(bool, u64)> = Vec::new();
        let mut layers = Vec::new();
        for layer in model {
            let key = (layer.is_state, dice.below(2));
            let group = keys.iter().position(|known| *known == key).unwrap_or_else(|| {
                keys.push(key);
                let scratch = dice.once_in(4);
                let pool = usize::from(dice.once_in(3));
                groups.push(GroupChoice { is_state: layer.is_state, pool, block_tokens: 1, scratch });
                keys.len() - 1
            });
            layers.push(LayerChoice {
                group,
                stage: u32::try_from(dice.below(pp)).expect("small"),
                copied: dice.once_in(8),
                apart: layer.parts.iter().map(|_| dice.once_in(8)).collect(),
                split: layer.parts.iter().map(|_| dice.below(8)).collect(),
            });
        }
        for (index, group) in groups.iter_mut().enumerate().filter(|(_, group)| !group.is_state) {
            let members = model.iter().zip(&layers).filter(|(_, choice)| choice.group == index);
            let unit = members.flat_map(|(layer, _)| &layer.parts).fold(1, |unit: u64, part| {
                let num = part.tokens_per_state.num;
                unit / gcd(unit, num) * num
            });
            group.block_tokens = unit * (1 + dice.below(6));
        }
        // Stages without layers do not exist.
        let mut used: Vec<u32> = layers.iter().map(|layer| layer.stage).collect();
        used.sort_unstable();
        used.dedup();
        for layer in &mut layers {
            layer.stage =
                u32::try_from(used.iter().position(|stage| *stage == layer.stage).expect("used")).expect("small");
        }
        let num_storages = 1 + dice.below(2);
        let mem = (0..=num_storages).map(|_| if dice.once_in(3) { MemKind::Dram } else { MemKind::Vram(0) }).collect();
        let mut pools: Vec<PoolChoice> = (0..2)
            .map(|_| {
                let mut order = vec![Ax::Layer, Ax::Part, Ax::Unit, Ax::Token(0), Ax::Token(1)];
                dice.shuffle(&mut order);
                PoolChoice {
                    storage: usize::try_from(dice.below(num_storages)).expect("small"),
                    overlay: dice.below(2) == 0,
                    by_layer: dice.below(2) == 1,
                    order,
                    stranger: dice.once_in(5).then(|| dice.below(2) == 1),
                }
            })
            .collect();
        let woven = dice.once_in(4);
        if woven {
            pools[1].storage = pools[0].storage;
            for pool in &mut pools {
                (pool.overlay, pool.by_layer) = (true, false);
            }
        }
        let mut side = Side {
            tp: u32::try_from(tp).expect("small"),
            pp: u32::try_from(used.len()).expect("small"),
            dcp: 1,
            interleave: None,
            groups,
            layers,
            pools,
            mem,
            shared: vec![false; usize::try_from(num_storages).expect("small") + 1],
            explicit: dice.once_in(6),
            woven,
            uneven_capacity: dice.once_in(4),
            padding: dice.clone(),
        };
        let sizes = divisors(tp);
        if scope.context_parallel && !side.explicit {
            let size = dice.pick(&sizes);
            if side.can_deal(model, size) {
                side.dcp = u32::try_from(size).expect("small");
                let together =
                    side.groups.iter().filter(|g| !g.is_state).fold(0, |g, group| gcd(g, group.block_tokens));
                let unit = model.iter().filter(|layer| !layer.is_state).flat_map(|layer| &layer.parts);
                let unit = unit
                    .fold(1, |unit: u64, part| unit / gcd(unit, part.tokens_per_state.num) * part.tokens_per_state.num);
                let mut runs: Vec<u64> =
                    divisors(together).into_iter().filter(|run| run.is_multiple_of(unit)).collect();
                runs.reverse();
                // One run only where every group has the same block size, or runs of a common length.
                if size > 1 && !runs.is_empty() && dice.below(2) == 1 {
                    side.interleave = Some(dice.pick(&runs));
                }
            }
        }
        if side.dcp == 1 {
            let want: Vec<bool> = side.shared.iter().map(|_| dice.once_in(4)).collect();
            for (storage, want) in want.into_iter().enumerate() {
                side.shared[storage] = want && side.only_replicated(model, storage);
            }
        }
        side.padding = dice.clone();
        side
    }

    /// Whether all ranks of every context-parallel group of this size hold the same units.
    fn can_deal(&self, model: &[LayerModel], size: u64) -> bool {
        let tp = u64::from(self.tp);
        model.iter().filter(|layer| !layer.is_state).flat_map(|layer| &layer.parts).all(|part| {
            part.total.is_none_or(|total| {
                let of = |rank: u64| {
                    (rank * total / tp, if tp > total { 1 } else { (rank + 1) * total / tp - rank * total / tp })
                };
                (0..tp).all(|rank| of(rank) == of(rank / size * size))
            })
        })
    }

    fn only_replicated(&self, model: &[LayerModel], storage: usize) -> bool {
        model.iter().zip(&self.layers).all(|(layer, choice)| {
            layer
                .parts
                .iter()
                .zip(&choice.apart)
                .all(|(part, apart)| self.storage_of(choice, *apart) != storage || part.total.is_none())
        })
    }

    fn storage_of(&self, choice: &LayerChoice, apart: bool) -> usize {
        if apart { self.mem.len() - 1 } else { self.pools[self.groups[choice.group].pool].storage }
    }

    /// Ranks of all stages.
    pub(super) fn num_ranks(&self) -> u32 {
        self.tp * self.pp
    }

    /// TP rank and stage of a rank in (pp, tp) order.
    pub(super) fn place_of(&self, rank: u32) -> (u32, u32) {
        (rank % self.tp, rank / self.tp)
    }

    /// Layers that a stage lists, and whether they travel from it.
    fn listed(&self, stage: u32) -> impl Iterator<Item = (usize, bool)> + '_ {
        let held = self.layers.iter().enumerate();
        held.filter(move |(_, layer)| layer.stage == stage || layer.copied)
            .map(move |(i, layer)| (i, layer.stage == stage))
    }

    /// Groups that a stage has layers of; a group's id there is its place in this list.
    pub(super) fn groups_of(&self, stage: u32) -> Vec<usize> {
        let has = |group: usize| self.listed(stage).any(|(layer, _)| self.layers[layer].group == group);
        (0..self.groups.len()).filter(|&group| has(group)).collect()
    }

    fn units_of(&self, part: &PartModel, rank: u32) -> (Sharding, u64) {
        let Some(total) = part.total else { return (Sharding::Replicated, part.replicated_units) };
        let (rank, size) = (u64::from(rank), u64::from(self.tp));
        if self.explicit && size <= total {
            // The first rank takes what the others leave: one unit each.
            let (first, count) = if rank == 0 { (0, total - (size - 1)) } else { (total - size + rank, 1) };
            return (Sharding::Sharded { total, first: Some(first) }, count);
        }
        let at = |rank: u64| rank * total / size;
        (Sharding::Sharded { total, first: None }, if size > total { 1 } else { at(rank + 1) - at(rank) })
    }

    /// States of one block of a part, in factors.
    fn tokens_of(&self, part: &PartModel, choice: &LayerChoice, split: u64) -> Vec<u64> {
        let group = &self.groups[choice.group];
        let states = if group.is_state {
            part.inner
        } else {
            group.block_tokens * part.tokens_per_state.den / part.tokens_per_state.num
        };
        if states == 1 && split > 4 {
            return Vec::new();
        }
        let mut factors = divisors(states);
        factors.reverse();
        let outer = factors[usize::try_from(split * factors.len() as u64 / 8).expect("small")];
        if outer == states { vec![states] } else { vec![outer, states / outer] }
    }

    /// The spec of one rank, with `num_blocks` blocks in each pool.
    pub(super) fn spec(&self, model: &[LayerModel], rank: u32, num_blocks: &[u64]) -> CacheSpec {
        let (tp_rank, stage) = self.place_of(rank);
        let mut dice = self.padding.clone();
        let groups = self.groups_of(stage);
        let num_blocks: Vec<u64> =
            num_blocks.iter().map(|n| n + u64::from(self.uneven_capacity && rank % 2 == 1)).collect();
        let mut layers = Vec::new();
        let mut shapes: Vec<Vec<Item>> = Vec::new();
        for (index, transfer) in self.listed(stage) {
            let (layer, choice) = (&model[index], &self.layers[index]);
            layers.push(self.layer(layer, choice, &groups, tp_rank, transfer));
            let last = layers.len() - 1;
            shapes.push(items(last, &layers[last]));
        }
        for (id, &group) in groups.iter().enumerate().filter(|(_, group)| self.groups[**group].scratch) {
            let id = GroupId(u32::try_from(id).expect("small"));
            let mut layer = scratch(format!("scratch{id}.rank{rank}"), id, 1 + dice.below(4));
            if !self.groups[group].is_state {
                layer.parts[0].tokens = vec![Axis { count: self.groups[group].block_tokens, stride: 0 }];
            }
            layers.push(layer);
            let last = layers.len() - 1;
            shapes.push(items(last, &layers[last]));
        }
        let group_list: Vec<Group> = groups
            .iter()
            .map(|&group| {
                let choice = &self.groups[group];
                Group {
                    pool: PoolId(u32::try_from(choice.pool).expect("small")),
                    block_tokens: choice.block_tokens,
                    num_blocks: num_blocks[choice.pool],
                    usage: if choice.is_state { Usage::State } else { Usage::Tokens },
                }
            })
            .collect();
        let mut ends: Vec<u64> = self.mem.iter().map(|_| dice.pad()).collect();
        let (mut starts, mut pool_ends) = (Vec::new(), Vec::new());
        let mut members: Vec<Vec<usize>> = Vec::new();
        for (pool, choice) in self.pools.iter().enumerate() {
            let mut of_groups: Vec<Vec<usize>> = Vec::new();
            for (id, &group) in groups.iter().enumerate() {
                if self.groups[group].pool == pool {
                    let id = GroupId(u32::try_from(id).expect("small"));
                    of_groups.push((0..layers.len()).filter(|&layer| layers[layer].group == id).collect());
                }
            }
            starts.push(ends[choice.storage]);
            if !of_groups.is_empty() {
                self.place_pool(choice, num_blocks[pool], &of_groups, &mut layers, &mut shapes, &mut ends, &mut dice);
            }
            members.push(of_groups.concat());
            pool_ends.push(ends[choice.storage]);
        }
        let woven = self.weave(&members, &starts, &num_blocks, &mut layers, &mut ends);
        let storages = self.mem.iter().zip(&ends).zip(&self.shared).zip(1u64..).map(|(((mem, end), shared), index)| {
            Storage { base: index << 32, len: end + 1 + dice.pad(), mem: *mem, shared: *shared }
        });
        let mut spec = CacheSpec {
            version: SPEC_VERSION,
            fingerprint: Fingerprint { model: "m".into(), ..Fingerprint::default() },
            topology: Topology {
                tp: Shard { rank: tp_rank, size: self.tp },
                pp: Shard { rank: stage, size: self.pp },
                dcp: ContextShard { rank: tp_rank % self.dcp, size: self.dcp, interleave: self.interleave },
            },
            storages: storages.collect(),
            groups: group_list,
            layers,
        };
        for (pool, choice) in self.pools.iter().enumerate() {
            let Some(same_stride) = choice.stranger else { continue };
            let range = if woven { starts[0]..ends[choice.storage] } else { starts[pool]..pool_ends[pool] };
            let mut own = members[pool].iter().flat_map(|&layer| &spec.layers[layer].parts);
            let Some(first) = own.find(|part| part.storage.index() == choice.storage).cloned() else { continue };
            let name = format!("stranger{pool}.rank{rank}");
            let pool = PoolId(u32::try_from(pool).expect("small"));
            let most = num_blocks[pool.0 as usize];
            self.add_stranger(&mut spec, &name, pool, (same_stride, most), &first, range, &mut dice);
        }
        spec
    }

    /// Adds a group to a pool whose blocks lie over its rows, where that is allowed: of their stride with block b over
    /// row b + 1, or of another stride.
    #[allow(clippy::too_many_arguments, reason = "one step of building a spec")]
    fn add_stranger(
        &self,
        spec: &mut CacheSpec,
        name: &str,
        pool: PoolId,
        (same_stride, most): (bool, u64),
        first: &Part,
        range: std::ops::Range<u64>,
        dice: &mut Dice,
    ) {
        let id = GroupId(u32::try_from(spec.groups.len()).expect("small"));
        for attempt in 0..8 {
            let (stride, offset) = if same_stride {
                (first.block_stride, first.offset + first.block_stride + dice.below(first.block_stride))
            } else {
                (1 + dice.below(12), range.start + dice.below((range.end - range.start).div_ceil(2)))
            };
            if offset >= range.end {
                continue;
            }
            let mut layer = scratch(name.to_owned(), id, 1);
            layer.parts[0].storage = first.storage;
            layer.parts[0].offset = offset;
            layer.parts[0].block_stride = stride;
            let fit = ((range.end - offset - 1) / stride + 1).min(most);
            let num_blocks = if attempt < 4 { fit } else { 1 };
            let group = Group { pool, block_tokens: 1, num_blocks, usage: Usage::State };
            spec.layers.push(layer);
            spec.groups.push(group);
            // Its blocks must not meet those of other ids: most often that leaves padding, and the first row.
            if spec.clone().validate().is_ok() {
                return;
            }
            spec.layers.pop();
            spec.groups.pop();
        }
    }

    /// Puts the rows of two pools side by side into one stride, where both have rows in one storage.
    fn weave(
        &self,
        members: &[Vec<usize>],
        starts: &[u64],
        num_blocks: &[u64],
        layers: &mut [Layer],
        ends: &mut [u64],
    ) -> bool {
        let storage = self.pools[0].storage;
        let rows = self.pools.iter().all(|pool| pool.overlay && !pool.by_layer && pool.storage == storage);
        let stride = |pool: usize| {
            let parts = members[pool].iter().flat_map(|&layer| &layers[layer].parts);
            parts.filter(|part| part.storage.index() == storage).map(|part| part.block_stride).next()
        };
        let (Some(first), Some(second)) = (stride(0), stride(1)) else { return false };
        if !rows || !self.woven {
            return false;
        }
        for (pool, shift) in [(0, 0), (1, first)] {
            for &layer in &members[pool] {
                for part in layers[layer].parts.iter_mut().filter(|part| part.storage.index() == storage) {
                    part.offset = part.offset - starts[pool] + starts[0] + shift;
                    part.block_stride = first + second;
                }
            }
        }
        ends[storage] = starts[0] + num_blocks[0].max(num_blocks[1]) * (first + second);
        true
    }

    fn layer(&self, layer: &LayerModel, choice: &LayerChoice, groups: &[usize], tp_rank: u32, transfer: bool) -> Layer {
        let id = groups.iter().position(|group| *group == choice.group).expect("listed");
        let parts = layer.parts.iter().zip(&choice.apart).zip(&choice.split).map(|((part, apart), split)| {
            let (sharding, units) = self.units_of(part, tp_rank);
            let tokens = self.tokens_of(part, choice, *split);
            Part {
                name: part.name.into(),
                storage: StorageIndex(u32::try_from(self.storage_of(choice, *apart)).expect("small")),
                offset: 0,
                block_stride: u64::from(*apart),
                sharding,
                units: Axis { count: units, stride: 0 },
                tokens: tokens.into_iter().map(|count| Axis { count, stride: 0 }).collect(),
                content: part.content,
                tokens_per_state: part.tokens_per_state,
                format: String::new(),
            }
        });
        Layer {
            name: layer.name.as_str().into(),
            group: GroupId(u32::try_from(id).expect("small")),
            kind: layer.kind,
            role: Role::Target,
            transfer,
            parts: parts.collect(),
        }
    }

    #[allow(clippy::too_many_arguments, reason = "one step of building a spec")]
    fn place_pool(
        &self,
        choice: &PoolChoice,
        num_blocks: u64,
        of_groups: &[Vec<usize>],
        layers: &mut [Layer],
        shapes: &mut [Vec<Item>],
        ends: &mut [u64],
        dice: &mut Dice,
    ) {
        let storage = choice.storage;
        for (layer, items) in layers.iter_mut().zip(shapes.iter_mut()) {
            if layer.role == Role::Scratch && of_groups.iter().any(|group| group.contains(&items[0].layer)) {
                layer.parts[0].storage = StorageIndex(u32::try_from(storage).expect("small"));
            }
        }
        let mut apart = Vec::new();
        let mut rows: Vec<Vec<&mut Item>> = of_groups.iter().map(|_| Vec::new()).collect();
        for item in shapes.iter_mut().flatten() {
            let Some(group) = of_groups.iter().position(|group| group.contains(&item.layer)) else { continue };
            if item.block_stride == 1 { apart.push(item) } else { rows[group].push(item) }
        }
        let mut place = |members: &mut [&mut Item], axes: &[Ax], storage: usize, dice: &mut Dice| {
            let size = arrange(axes, members, dice);
            for item in members {
                item.offset += ends[storage];
            }
            ends[storage] += size + dice.pad();
        };
        for item in apart {
            item.block_stride = 0;
            let axes = [Ax::Block(num_blocks), Ax::Unit, Ax::Token(0), Ax::Token(1)];
            place(&mut [item], &axes, self.mem.len() - 1, dice);
        }
        if choice.overlay {
            // Slots of a row that all groups of the pool share: one for everything, or one for each layer.
            let rank_of = |layer: usize| {
                let rank = of_groups.iter().find_map(|group| group.iter().position(|member| *member == layer));
                if choice.by_layer { rank.unwrap_or(0) } else { 0 }
            };
            let slots = of_groups.iter().flatten().map(|layer| rank_of(*layer)).max().map_or(0, |slot| slot + 1);
            for slot in 0..slots {
                let mut sizes = vec![0];
                for row in &mut rows {
                    let mut members: Vec<&mut Item> =
                        row.iter_mut().filter(|item| rank_of(item.layer) == slot).map(|item| &mut **item).collect();
                    if !members.is_empty() {
                        let shift = dice.pad();
                        sizes.push(shift + arrange(&choice.order, &mut members, dice));
                        for item in members {
                            item.offset += shift;
                        }
                    }
                }
                let stride = sizes.into_iter().max().unwrap_or(0) + dice.pad();
                for item in rows.iter_mut().flatten().filter(|item| rank_of(item.layer) == slot) {
                    item.offset += ends[storage];
                    item.block_stride = stride;
                }
                ends[storage] += num_blocks * stride + dice.pad();
            }
        } else {
            for row in rows.iter_mut().filter(|row| !row.is_empty()) {
                // Blocks outside the token factors; layers, parts and units on either side of them.
                let first = choice.order.iter().position(|axis| matches!(axis, Ax::Token(_))).unwrap_or(0) as u64;
                let mut axes = choice.order.clone();
                axes.insert(usize::try_from(dice.below(first + 1)).expect("small"), Ax::Block(num_blocks));
                place(row, &axes, storage, dice);
            }
        }
        for (layer, items) in layers.iter_mut().zip(shapes.iter()) {
            for item in items.iter().filter(|item| of_groups.iter().any(|group| group.contains(&item.layer))) {
                let part = &mut layer.parts[item.part];
                part.offset = item.offset;
                part.block_stride = item.block_stride;
                part.units.stride = item.unit_stride;
                for (axis, stride) in part.tokens.iter_mut().zip(&item.token_strides) {
                    axis.stride = *stride;
                }
            }
        }
    }
}

/// The parts of a layer, to be placed. A `block_stride` of 1 marks a part that lies apart.
fn items(index: usize, layer: &Layer) -> Vec<Item> {
    let parts = layer.parts.iter().enumerate();
    parts
        .map(|(part, shape)| Item {
            layer: index,
            part,
            units: shape.units.count,
            tokens: shape.tokens.iter().map(|axis| axis.count).collect(),
            content: shape.content,
            offset: 0,
            block_stride: shape.block_stride,
            unit_stride: 0,
            token_strides: vec![0; shape.tokens.len()],
        })
        .collect()
}

/// A layer that does not travel.
fn scratch(name: String, group: GroupId, content: u64) -> Layer {
    Layer {
        name: name.into(),
        group,
        kind: Kind::Opaque,
        role: Role::Scratch,
        transfer: false,
        parts: vec![Part {
            name: "bytes".into(),
            storage: StorageIndex(0),
            offset: 0,
            block_stride: 0,
            sharding: Sharding::Replicated,
            units: Axis { count: 1, stride: content },
            tokens: Vec::new(),
            content,
            tokens_per_state: TokensPerState::ONE,
            format: String::new(),
        }],
    }
}
