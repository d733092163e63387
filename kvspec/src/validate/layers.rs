//! Groups, layers and parts: names, indices, counts, units, states and bounds.

use std::collections::{HashMap, HashSet};

use super::finding::Finding;
use super::words::PartField;
use crate::bounded::Bounded;
use crate::ids::{GroupId, LayerIndex};
use crate::sharding::{Sharding, owned_units};
use crate::spec::{CacheSpec, Group, Layer, Part, Storage, Usage};
use crate::topology::Shard;

/// Token axes that a part may have. More than 63 of more than one position do not fit into 64 bits of addresses.
const MAX_AXES: usize = 64;

/// A part with which nothing is wrong by itself: every cell lies in its storage.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed<'a> {
    pub(super) layer: &'a Layer,
    pub(super) part: &'a Part,
    pub(super) group: &'a Group,
}

/// Checks groups, layers and parts; the parts whose cells may be looked at for overlaps.
pub(super) fn check<'a>(spec: &'a CacheSpec, topology_holds: bool, findings: &mut Bounded<Finding>) -> Vec<Placed<'a>> {
    check_groups(spec, findings);
    let mut names: HashMap<&str, LayerIndex> = HashMap::with_capacity(spec.layers.len());
    let mut placed = Vec::new();
    for (layer, index) in spec.layers.iter().zip(0..) {
        let index = LayerIndex(index);
        match names.get(layer.name.as_str()) {
            Some(&first) => {
                findings.push(Finding::LayerTwice { layer: layer.name.clone(), first, second: index });
            }
            None => {
                names.insert(layer.name.as_str(), index);
            }
        }
        check_layer(spec, layer, topology_holds, &mut placed, findings);
    }
    placed
}

fn check_groups(spec: &CacheSpec, findings: &mut Bounded<Finding>) {
    let used: HashSet<GroupId> = spec.layers.iter().map(|layer| layer.group).collect();
    for (group, id) in spec.groups.iter().zip(0..) {
        let id = GroupId(id);
        if !used.contains(&id) {
            findings.push(Finding::EmptyGroup { group: id });
        }
        if group.usage == Usage::Tokens && group.block_tokens == 0 {
            findings.push(Finding::NoBlockTokens { group: id });
        }
        let limit = u64::from(u32::MAX);
        if group.num_blocks == 0 {
            findings.push(Finding::NoBlocks { group: id });
        } else if group.num_blocks > limit {
            findings.push(Finding::TooManyBlocks { group: id, num_blocks: group.num_blocks, limit });
        }
    }
}

fn check_layer<'a>(
    spec: &'a CacheSpec,
    layer: &'a Layer,
    topology_holds: bool,
    placed: &mut Vec<Placed<'a>>,
    findings: &mut Bounded<Finding>,
) {
    if layer.parts.is_empty() {
        findings.push(Finding::NoParts { layer: layer.name.clone() });
    }
    let group = spec.groups.get(layer.group.index());
    if group.is_none() {
        let num_groups = spec.groups.len();
        findings.push(Finding::NoSuchGroup { layer: layer.name.clone(), group: layer.group, num_groups });
    }
    check_names(layer, findings);
    for part in &layer.parts {
        let before = findings.len();
        let check = PartCheck { spec, layer, part };
        if part.tokens.len() > MAX_AXES {
            let (layer, part, given) = (layer.name.clone(), part.name.clone(), part.tokens.len());
            findings.push(Finding::TooManyAxes { layer, part, given, limit: MAX_AXES });
            continue;
        }
        let counted = check.counts(findings);
        if topology_holds {
            check.units(group, findings);
        }
        let storage = check.storage(findings);
        if let (true, Some(group)) = (counted, group) {
            check.states(group, findings);
            let in_bounds = storage.is_some_and(|storage| check.bounds(group, storage, findings));
            if in_bounds && findings.len() == before {
                placed.push(Placed { layer, part, group });
            }
        }
    }
}

fn check_names(layer: &Layer, findings: &mut Bounded<Finding>) {
    let mut twice = |part: &Part| {
        findings.push(Finding::PartTwice { layer: layer.name.clone(), part: part.name.clone() });
    };
    // Layers have a handful of parts, so looking back over them is cheaper than a set.
    if layer.parts.len() <= 16 {
        for (index, part) in layer.parts.iter().enumerate() {
            if layer.parts[..index].iter().any(|before| before.name == part.name) {
                twice(part);
            }
        }
    } else {
        let mut names = HashSet::with_capacity(layer.parts.len());
        layer.parts.iter().filter(|part| !names.insert(part.name.as_str())).for_each(&mut twice);
    }
}

struct PartCheck<'a> {
    spec: &'a CacheSpec,
    layer: &'a Layer,
    part: &'a Part,
}

impl<'a> PartCheck<'a> {
    /// Counts of at least 1; whether all are.
    fn counts(&self, findings: &mut Bounded<Finding>) -> bool {
        let Self { layer, part, .. } = *self;
        let before = findings.len();
        let mut zero = |value: u64, field: PartField| {
            if value == 0 {
                findings.push(Finding::Zero { layer: layer.name.clone(), part: part.name.clone(), field });
            }
        };
        zero(part.content, PartField::Content);
        zero(part.units.count, PartField::Units);
        for (index, axis) in part.tokens.iter().enumerate() {
            zero(axis.count, PartField::Tokens(index));
        }
        zero(part.tokens_per_state.num.min(part.tokens_per_state.den), PartField::TokensPerState);
        if let Sharding::Sharded { total, .. } = part.sharding {
            zero(total, PartField::Total);
        }
        findings.len() == before
    }

    /// Units that agree with the topology, and with context parallelism.
    fn units(&self, group: Option<&Group>, findings: &mut Bounded<Finding>) {
        let Self { spec, layer, part } = *self;
        let (tp, dcp) = (spec.topology.tp, spec.topology.dcp);
        let Sharding::Sharded { total, first } = part.sharding else { return };
        if total == 0 || part.units.count == 0 {
            return;
        }
        let name = || (layer.name.clone(), part.name.clone());
        let count = part.units.count;
        let under_dcp = dcp.size > 1 && group.is_some_and(|group| group.usage == Usage::Tokens);
        if let Some(first) = first {
            if first.checked_add(count).is_none_or(|end| end > total) {
                let (layer, part) = name();
                findings.push(Finding::UnitsBeyondTotal { layer, part, first, count, total });
            }
            if under_dcp {
                let (layer, part) = name();
                findings.push(Finding::DcpExplicitUnits { layer, part, first, dcp_size: dcp.size });
            }
            return;
        }
        let owned = owned_units(total, tp);
        let owned = owned.end - owned.start;
        if owned != count {
            let (layer, part) = name();
            let (tp_rank, tp_size) = (tp.rank, tp.size);
            findings.push(Finding::UnitCount { layer, part, given: count, owned, total, tp_rank, tp_size });
        }
        if under_dcp {
            // Units ascend with the rank, so the outer ranks of the DCP group decide.
            let lowest = tp.rank - dcp.rank;
            let highest = lowest + (dcp.size - 1);
            let at = |rank| owned_units(total, Shard { rank, size: tp.size });
            if at(lowest) != at(highest) {
                let (layer, part) = name();
                findings.push(Finding::DcpSplitsUnits { layer, part, total, tp_size: tp.size, dcp_size: dcp.size });
            }
        }
    }

    /// The part's storage.
    fn storage(&self, findings: &mut Bounded<Finding>) -> Option<&'a Storage> {
        let Self { spec, layer, part } = *self;
        let storage = spec.storages.get(part.storage.index());
        if storage.is_none() {
            findings.push(Finding::NoSuchStorage {
                layer: layer.name.clone(),
                part: part.name.clone(),
                storage: part.storage,
                num_storages: spec.storages.len(),
            });
        }
        storage
    }

    /// As many stored states as the tokens of a block make.
    fn states(&self, group: &Group, findings: &mut Bounded<Finding>) {
        let Self { layer, part, .. } = *self;
        let stored = part.tokens.iter().try_fold(1u64, |product, axis| product.checked_mul(axis.count));
        let (layer, part_name) = (&layer.name, &part.name);
        let Some(stored) = stored else {
            let (layer, part) = (layer.clone(), part_name.clone());
            findings.push(Finding::TooManyStates { layer, part, num_axes: self.part.tokens.len() });
            return;
        };
        if group.usage == Usage::State || group.block_tokens == 0 {
            return;
        }
        let wanted = part.tokens_per_state.states(group.block_tokens);
        if wanted != Some(stored) {
            findings.push(Finding::States {
                layer: layer.clone(),
                part: part_name.clone(),
                stored,
                block_tokens: group.block_tokens,
                tokens_per_state: part.tokens_per_state,
                wanted,
            });
        }
    }

    /// Whether every cell lies in the storage.
    fn bounds(&self, group: &Group, storage: &Storage, findings: &mut Bounded<Finding>) -> bool {
        let Self { layer, part, .. } = *self;
        let num_blocks = group.num_blocks;
        if num_blocks == 0 || num_blocks > u64::from(u32::MAX) {
            return false;
        }
        let end = cells_end(part, num_blocks);
        if end.is_some_and(|end| end <= u128::from(storage.len)) {
            return true;
        }
        findings.push(Finding::OutsideStorage {
            layer: layer.name.clone(),
            part: part.name.clone(),
            group: layer.group,
            num_blocks,
            end,
            storage: part.storage,
            len: storage.len,
        });
        false
    }
}

/// Offset behind the last byte of the last cell, for counts of at least 1; `None` if it needs more than 128 bits.
fn cells_end(part: &Part, num_blocks: u64) -> Option<u128> {
    let last = |count: u64, stride: u64| u128::from(count - 1) * u128::from(stride);
    let mut end = u128::from(part.offset) + u128::from(part.content);
    end = end.checked_add(last(num_blocks, part.block_stride))?;
    end = end.checked_add(last(part.units.count, part.units.stride))?;
    for axis in &part.tokens {
        end = end.checked_add(last(axis.count, axis.stride))?;
    }
    Some(end)
}
