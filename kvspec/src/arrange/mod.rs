//! From kinds to placements: where each page goes, and how many bytes to allocate.
//!
//! For engines that ask where to put things, and for tests and demonstrations. An engine that has its memory
//! already uses [`FromTensors`](crate::FromTensors).
//!
//! A [`Pool`] is one set of block ids over one allocation in one [`Layout`], with as many groups of layers
//! ([`Blocks`]) as draw from it. The groups overlay each other: block-outermost, each fills the row from byte 0;
//! layer-outermost, each group's i-th layer lies in the i-th slot. A row or slot is as long as the longest of them,
//! which is also how a state slot comes to be padded to the attention page. In LHBNC, where heads lie outside blocks,
//! only layers whose heads take equally many bytes a block can overlay each other; others lie one behind the other.
//!
//! ```
//! use kvspec::kinds::{Attention, Element, Mamba2};
//! use kvspec::{Arrange, Blocks, Fingerprint, Layout, Pool, Shard, Topology};
//!
//! let model = Fingerprint { model: "org/hybrid".to_owned(), ..Fingerprint::default() };
//! let topology = Topology { tp: Shard { rank: 1, size: 2 }, ..Topology::default() };
//! let attention = Attention::new(8, 128, Element::BF16);
//! let mamba = Mamba2::new(8, 32, 8, 16, 4);
//! let arranged = Arrange::new(model, topology)
//!     .pool(
//!         Pool::new(Layout::Blhnc, 1000)
//!             .blocks(Blocks::tokens(16).layer("layers.3", attention.clone()).layer("layers.7", attention))
//!             .blocks(Blocks::state().layer("layers.0", mamba)),
//!     )
//!     .build()?;
//!
//! // Two layers of 4 heads, 16 tokens, K and V of 256 bytes; the state overlays them.
//! assert_eq!(arranged.storage_lens(), [1000 * 2 * 4 * 16 * 512]);
//! // Once memory is allocated, the spec gets its addresses.
//! let spec = arranged.at(&[0x7f00_0000_0000])?.validate()?;
//! assert_eq!(spec.layers.len(), 3);
//! # Ok::<(), kvspec::SpecError>(())
//! ```

mod layout;
mod place;

pub use layout::{Layout, UnknownLayout};

use crate::error::SpecError;
use crate::ids::{GroupId, LayerName, PartName, PoolId, StorageIndex};
use crate::kinds::{Describe, KindError, Page};
use crate::spec::{CacheSpec, Fingerprint, Group, MemKind, Role, SPEC_VERSION, Storage, Usage};
use crate::topology::Topology;

/// Places the pages of layers and says how many bytes to allocate. See the [module](self).
#[derive(Clone, Debug)]
pub struct Arrange {
    fingerprint: Fingerprint,
    topology: Topology,
    pools: Vec<Pool>,
}

/// One set of block ids over one allocation. See the [module](self).
#[derive(Clone, Debug)]
pub struct Pool {
    layout: Layout,
    num_blocks: u64,
    mem: MemKind,
    shared: bool,
    row_align: u64,
    page_align: u64,
    groups: Vec<Blocks>,
}

/// A group of layers that share a block table. See the [module](self).
#[derive(Clone, Debug)]
pub struct Blocks {
    usage: Usage,
    block_tokens: u64,
    kernel_tokens: Option<u64>,
    layers: Vec<Member>,
}

#[derive(Clone, Debug)]
struct Member {
    name: LayerName,
    role: Role,
    transfer: bool,
    page: Result<Page, KindError>,
}

/// What [`Arrange::build`] gives.
#[derive(Clone, Debug, PartialEq)]
pub struct Arranged {
    /// The spec. Until [`Arranged::at`], storages have stand-in addresses: they begin at 0 in each kind of memory
    /// and follow each other at multiples of 4096. It is not validated yet.
    pub spec: CacheSpec,
}

impl Arranged {
    /// Bytes to allocate for each storage.
    #[must_use]
    pub fn storage_lens(&self) -> Vec<u64> {
        self.spec.storages.iter().map(|storage| storage.len).collect()
    }

    /// The spec with the storages at their addresses.
    ///
    /// # Errors
    ///
    /// [`ArrangeError::Bases`] if there are not as many addresses as storages.
    pub fn at(mut self, bases: &[u64]) -> Result<CacheSpec, SpecError> {
        if bases.len() != self.spec.storages.len() {
            return Err(ArrangeError::Bases { given: bases.len(), storages: self.spec.storages.len() }.into());
        }
        for (storage, &base) in self.spec.storages.iter_mut().zip(bases) {
            storage.base = base;
        }
        Ok(self.spec)
    }
}

impl Arrange {
    /// Nothing yet, for one worker of a model.
    #[must_use]
    pub fn new(fingerprint: Fingerprint, topology: Topology) -> Self {
        Self { fingerprint, topology, pools: Vec::new() }
    }

    /// Adds a pool; pool ids count from 0 in this order.
    #[must_use]
    pub fn pool(mut self, pool: Pool) -> Self {
        self.pools.push(pool);
        self
    }

    /// Places everything.
    ///
    /// # Errors
    ///
    /// [`SpecError::Arrange`]: a kind that describes no page, states that do not fill blocks, or sizes beyond
    /// 64 bits.
    pub fn build(self) -> Result<Arranged, SpecError> {
        let mut spec = CacheSpec {
            version: SPEC_VERSION,
            fingerprint: self.fingerprint,
            topology: self.topology,
            storages: Vec::new(),
            groups: Vec::new(),
            layers: Vec::new(),
        };
        for (pool, id) in self.pools.iter().zip(0..) {
            pool.place(PoolId(id), &mut spec)?;
        }
        Ok(Arranged { spec })
    }
}

impl Pool {
    /// `num_blocks` blocks in a layout.
    #[must_use]
    pub fn new(layout: Layout, num_blocks: u64) -> Self {
        Self { layout, num_blocks, mem: MemKind::Dram, shared: false, row_align: 1, page_align: 1, groups: Vec::new() }
    }

    /// Kind of memory; host memory by default.
    #[must_use]
    pub fn mem(self, mem: MemKind) -> Self {
        Self { mem, ..self }
    }

    /// The TP ranks share this memory, and rank 0 fills it.
    #[must_use]
    pub fn shared(self) -> Self {
        Self { shared: true, ..self }
    }

    /// Pads rows (block-outermost) to a multiple of so many bytes.
    #[must_use]
    pub fn row_align(self, row_align: u64) -> Self {
        Self { row_align, ..self }
    }

    /// Pads each layer's page to a multiple of so many bytes; where heads lie outside layers or blocks, each
    /// head's page.
    #[must_use]
    pub fn page_align(self, page_align: u64) -> Self {
        Self { page_align, ..self }
    }

    /// Adds a group; group ids count from 0 over all pools in this order.
    #[must_use]
    pub fn blocks(mut self, group: Blocks) -> Self {
        self.groups.push(group);
        self
    }

    fn place(&self, pool: PoolId, spec: &mut CacheSpec) -> Result<(), SpecError> {
        let first_group = spec.groups.len();
        for group in &self.groups {
            // State blocks ignore it, but a length of 1 reads better than 0 in a listing.
            let block_tokens = if group.usage == Usage::State { 1 } else { group.block_tokens };
            spec.groups.push(Group { pool, block_tokens, num_blocks: self.num_blocks, usage: group.usage });
        }
        let placement = place::Placement::new(self, &spec.topology)?;
        let first_storage = spec.storages.len();
        for &len in placement.buffer_lens() {
            let base = next_base(&spec.storages, self.mem, len)?;
            spec.storages.push(Storage { base, len, mem: self.mem, shared: self.shared });
        }
        let storage = |buffer: usize| index(first_storage + buffer).map(StorageIndex);
        for (group, id) in self.groups.iter().zip(first_group..) {
            for member in &group.layers {
                let parts = placement.parts(member, group, &storage)?;
                spec.layers.push(crate::spec::Layer {
                    name: member.name.clone(),
                    group: GroupId(index(id)?),
                    kind: member.page()?.kind,
                    role: member.role,
                    transfer: member.transfer,
                    parts,
                });
            }
        }
        Ok(())
    }
}

impl Blocks {
    /// Blocks of `block_tokens` tokens.
    #[must_use]
    pub fn tokens(block_tokens: u64) -> Self {
        Self { usage: Usage::Tokens, block_tokens, kernel_tokens: None, layers: Vec::new() }
    }

    /// Blocks of one request's state.
    #[must_use]
    pub fn state() -> Self {
        Self { usage: Usage::State, ..Self::tokens(1) }
    }

    /// Splits each block into pages of so many tokens, which is what the engine's kernels see.
    #[must_use]
    pub fn kernel_tokens(self, kernel_tokens: u64) -> Self {
        Self { kernel_tokens: Some(kernel_tokens), ..self }
    }

    /// Adds a layer of the target.
    #[must_use]
    pub fn layer(self, name: impl Into<LayerName>, kind: impl Describe) -> Self {
        self.layer_as(name, kind, Role::Target)
    }

    /// Adds a layer with a role, such as a draft's.
    #[must_use]
    pub fn layer_as(self, name: impl Into<LayerName>, kind: impl Describe, role: Role) -> Self {
        self.member(name, &kind, role, true)
    }

    /// Adds a layer that does not travel but owns its bytes.
    #[must_use]
    pub fn layer_that_stays(self, name: impl Into<LayerName>, kind: impl Describe, role: Role) -> Self {
        self.member(name, &kind, role, false)
    }

    fn member(mut self, name: impl Into<LayerName>, kind: &impl Describe, role: Role, transfer: bool) -> Self {
        self.layers.push(Member { name: name.into(), role, transfer, page: kind.describe() });
        self
    }
}

impl Member {
    fn page(&self) -> Result<&Page, ArrangeError> {
        self.page.as_ref().map_err(|source| ArrangeError::Kind { layer: self.name.clone(), source: source.clone() })
    }
}

/// A stand-in address behind the storages of the same memory.
fn next_base(storages: &[Storage], mem: MemKind, len: u64) -> Result<u64, ArrangeError> {
    let end = storages.iter().filter(|storage| storage.mem == mem).map(|storage| storage.base + storage.len).max();
    let base = end.unwrap_or(0).checked_next_multiple_of(4096).filter(|base| base.checked_add(len).is_some());
    base.ok_or(ArrangeError::TooLarge { layer: None, what: "all storages together" })
}

fn index(index: usize) -> Result<u32, ArrangeError> {
    u32::try_from(index).map_err(|_| ArrangeError::TooLarge { layer: None, what: "the number of groups or storages" })
}

/// Why pages cannot be placed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArrangeError {
    /// The layer's kind describes no page.
    #[error("layer {layer}: {source}")]
    Kind {
        /// The layer.
        layer: LayerName,
        /// Why.
        source: KindError,
    },
    /// A layer of tokens in a group of state, or the other way round.
    #[error("layer {layer}: its kind keeps {kind} and its group {group}; add it to a group of its own usage")]
    Usage {
        /// The layer.
        layer: LayerName,
        /// Usage of the layer's kind.
        kind: Usage,
        /// Usage of the group.
        group: Usage,
    },
    /// Kernel blocks that do not fill the block.
    #[error("layer {layer}: kernel_tokens {kernel_tokens} does not divide block_tokens {block_tokens}")]
    KernelTokens {
        /// The group's first layer.
        layer: LayerName,
        /// Tokens of a kernel block.
        kernel_tokens: u64,
        /// Tokens of a block.
        block_tokens: u64,
    },
    /// Tokens that do not fill states.
    #[error(
        "layer {layer}: part {part}: {tokens} tokens are no whole number of states at {tokens_per_state} tokens each"
    )]
    PartialState {
        /// The layer.
        layer: LayerName,
        /// The part.
        part: PartName,
        /// Tokens in a block or kernel block.
        tokens: u64,
        /// Tokens a state.
        tokens_per_state: crate::states::TokensPerState,
    },
    /// Parts of one row with unlike units.
    #[error("layer {layer}: parts {first} and {second} lie in one row but have {first_units} and {second_units} units")]
    UnitsDiffer {
        /// The layer.
        layer: LayerName,
        /// First part of the row.
        first: PartName,
        /// A part with other units.
        second: PartName,
        /// Units of the first on this rank.
        first_units: u64,
        /// Units of the second on this rank.
        second_units: u64,
    },
    /// A section without parts.
    #[error("layer {layer}: section {section} of its page has no parts")]
    EmptySection {
        /// The layer.
        layer: LayerName,
        /// Index of the section.
        section: usize,
    },
    /// An alignment of 0.
    #[error("layer {layer}: an alignment is 0; it is at least 1")]
    ZeroAlign {
        /// The layer.
        layer: LayerName,
    },
    /// A size beyond 64 bits.
    #[error("{}{what} is beyond 64 bits", match layer { Some(layer) => format!("layer {layer}: "), None => String::new() })]
    TooLarge {
        /// The layer, if it is one layer's size.
        layer: Option<LayerName>,
        /// Which size.
        what: &'static str,
    },
    /// Not one address for each storage.
    #[error("{given} addresses were given for {storages} storages")]
    Bases {
        /// Addresses given.
        given: usize,
        /// Storages of the spec.
        storages: usize,
    },
}
