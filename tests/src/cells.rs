//! Cells: the smallest pieces that move, where they lie and which position they stand for.

use kvspec::{CacheSpec, Group, Layer, Part, Sharding, Usage};

/// A place in one of a worker's storages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Storage index.
    pub storage: u32,
    /// Bytes from its base.
    pub offset: u64,
}

/// What a cell holds, whoever holds it: equal keys on two workers mean equal bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key<'a> {
    /// Layer name.
    pub layer: &'a str,
    /// Part name.
    pub part: &'a str,
    /// Unit of the whole model.
    pub unit: u64,
    /// Block of a state group (its slot); 0 for tokens.
    pub slot: u64,
    /// Stored state: of the whole sequence for tokens, of the slot for state.
    pub state: u64,
}

/// One cell of one listed block.
#[derive(Clone, Copy, Debug)]
pub struct Cell<'a> {
    /// What it holds.
    pub key: Key<'a>,
    /// Where it starts.
    pub place: Place,
    /// Its bytes.
    pub len: u64,
    /// Unit counted from the first that this worker holds.
    pub local_unit: u64,
}

/// First unit of the whole model that this worker holds of a part.
#[must_use]
pub fn first_unit(spec: &CacheSpec, part: &Part) -> u64 {
    match part.sharding {
        Sharding::Replicated => 0,
        Sharding::Sharded { first: Some(first), .. } => first,
        Sharding::Sharded { total, first: None } => {
            u64::from(spec.topology.tp.rank) * total / u64::from(spec.topology.tp.size)
        }
    }
}

/// Whether the worker neither reads nor writes the part: it does not travel, or TP rank 0 moves it.
#[must_use]
pub fn is_idle(spec: &CacheSpec, layer: &Layer, part: &Part) -> bool {
    !layer.transfer || (spec.storages[part.storage.index()].shared && spec.topology.tp.rank != 0)
}

/// Stored states in one block of the part.
#[must_use]
pub fn num_states(part: &Part) -> u64 {
    part.tokens.iter().map(|axis| axis.count).product()
}

/// How the ranks of a context-parallel deployment share out stored states of a part: rank r of `size` holds every
/// `size`-th run of `run` states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deal {
    /// This rank.
    pub rank: u64,
    /// Ranks.
    pub size: u64,
    /// States in a run.
    pub run: u64,
}

impl Deal {
    /// The deal of one part; `None` when runs would end inside a stored state.
    #[must_use]
    pub fn of(spec: &CacheSpec, group: &Group, part: &Part) -> Option<Deal> {
        let dcp = spec.topology.dcp;
        if group.usage == Usage::State || dcp.size == 1 {
            return Some(Deal { rank: 0, size: 1, run: 1 });
        }
        let scaled = run_tokens(spec, group) * part.tokens_per_state.den;
        scaled.is_multiple_of(part.tokens_per_state.num).then(|| Deal {
            rank: dcp.rank.into(),
            size: dcp.size.into(),
            run: scaled / part.tokens_per_state.num,
        })
    }

    /// State of the sequence that this rank stores as its `own`-th.
    #[must_use]
    pub fn sequence_state(self, own: u64) -> u64 {
        (own / self.run * self.size + self.rank) * self.run + own % self.run
    }

    /// Whether this rank holds a state of the sequence.
    #[must_use]
    pub fn holds(self, state: u64) -> bool {
        state / self.run % self.size == self.rank
    }

    /// Which of its own states a held state of the sequence is.
    #[must_use]
    pub fn own_state(self, state: u64) -> u64 {
        state / self.run / self.size * self.run + state % self.run
    }
}

/// Tokens in one run of context parallelism.
#[must_use]
pub fn run_tokens(spec: &CacheSpec, group: &Group) -> u64 {
    spec.topology.dcp.interleave.unwrap_or(group.block_tokens)
}

/// Calls `each` with every cell of a part in the block that is entry `entry` of a block list.
pub fn for_each_cell<'a>(
    spec: &'a CacheSpec,
    layer: &'a Layer,
    part: &'a Part,
    entry: u64,
    block: u32,
    mut each: impl FnMut(Cell<'a>),
) {
    let group = &spec.groups[layer.group.index()];
    let Some(deal) = Deal::of(spec, group, part) else { return };
    let states = num_states(part);
    let first = first_unit(spec, part);
    for local_unit in 0..part.units.count {
        for index in 0..states {
            let (slot, state) = match group.usage {
                Usage::Tokens => (0, deal.sequence_state(entry * states + index)),
                Usage::State => (entry, index),
            };
            each(Cell {
                key: Key {
                    layer: layer.name.as_str(),
                    part: part.name.as_str(),
                    unit: first + local_unit,
                    slot,
                    state,
                },
                place: Place {
                    storage: part.storage.0,
                    offset: part.offset
                        + u64::from(block) * part.block_stride
                        + local_unit * part.units.stride
                        + token_offset(part, index),
                },
                len: part.content,
                local_unit,
            });
        }
    }
}

/// Bytes from a unit's first stored state to its `index`-th: the innermost factor runs fastest.
#[must_use]
pub fn token_offset(part: &Part, mut index: u64) -> u64 {
    let mut offset = 0;
    for axis in part.tokens.iter().rev() {
        offset += index % axis.count * axis.stride;
        index /= axis.count;
    }
    offset
}
