//! From an engine's own tensors: pointer, shape, byte strides, element size and what each axis is.
//!
//! What an engine has is what `tensor.data_ptr()`, `shape`, `stride()` and `element_size()` say. What it must add is
//! a label for every axis, since a shape alone never decides a layout: `[2, 64, 64, 128]` may be K and V or two
//! heads. The kind of the layer ([`kinds`](crate::kinds)) says what the tensor has to hold, and every
//! contradiction is an error that names layer, part and both numbers.
//!
//! | label | axis | extent |
//! |---|---|---|
//! | `B` | block | `num_blocks`, times the kernel blocks in a block |
//! | `H` | unit: KV head, SSM head, channel | units on this rank; of all parts when they are [`Tensor::side_by_side`] |
//! | `N` | token or state in the block; may be given several times, outermost first | product is the states of a block |
//! | `C` | content; may be given several times | bytes of a cell; of all parts in a row |
//! | `2` | the tensor's two parts, K then V | 2 |
//! | `1` | nothing | 1 |
//!
//! An axis that a kind has one position of may be left out. `C` must be contiguous; without `C` a cell is one element.
//!
//! ```
//! use kvspec::kinds::{Attention, Element, KvPacking, Mla};
//! use kvspec::{Fingerprint, FromTensors, Group, GroupId, LayerTensors, MemKind, PoolId, Tensor, Topology, Usage};
//!
//! let group = Group { pool: PoolId(0), block_tokens: 64, num_blocks: 100, usage: Usage::Tokens };
//! // vLLM's MLA cache: [blocks, tokens, 576] of bf16.
//! let latent = Tensor::new(0x10_0000, [100, 64, 576], [73_728, 1152, 2], 2, "BNC");
//! // A draft with K and V outermost: [2, blocks, tokens, heads, 128] of bf16.
//! let shape = [2, 100, 64, 8, 128];
//! let kv = Tensor::new(0x4000_0000, shape, [13_107_200, 131_072, 2048, 256, 2], 2, "2BNHC");
//!
//! let spec = FromTensors::new(Fingerprint { model: "org/model".to_owned(), ..Fingerprint::default() }, Topology::default())
//!     .group(group)
//!     .layer(LayerTensors::new("layers.0", GroupId(0), Mla::bf16()).tensor(latent))
//!     .layer(
//!         LayerTensors::new("draft.0", GroupId(0), Attention::new(8, 128, Element::BF16).packing(KvPacking::Apart))
//!             .tensor(kv.mem(MemKind::Vram(0))),
//!     )
//!     .build()?;
//! let spec = spec.validate()?;
//! assert_eq!(spec.storages.len(), 2);
//! assert_eq!(spec.layers[1].parts[1].offset, 13_107_200);
//! # Ok::<(), kvspec::SpecError>(())
//! ```

mod error;
mod labels;
mod layer;
mod storages;
mod tensor;

pub use error::TensorError;
pub use layer::LayerTensors;
pub use tensor::Tensor;

use crate::error::SpecError;
use crate::spec::{CacheSpec, Fingerprint, Group, SPEC_VERSION, Storage};
use crate::topology::Topology;

/// Describes caches that exist. See the [module](self).
#[derive(Clone, Debug)]
pub struct FromTensors {
    fingerprint: Fingerprint,
    topology: Topology,
    storages: Vec<Storage>,
    groups: Vec<Group>,
    layers: Vec<LayerTensors>,
}

impl FromTensors {
    /// Nothing yet, for one worker of a model.
    #[must_use]
    pub fn new(fingerprint: Fingerprint, topology: Topology) -> Self {
        Self { fingerprint, topology, storages: Vec::new(), groups: Vec::new(), layers: Vec::new() }
    }

    /// Adds an allocation. With none, allocations are found: tensors of the same memory that overlap or touch are
    /// taken for one. Give them where that may join what was allocated apart.
    #[must_use]
    pub fn storage(mut self, storage: Storage) -> Self {
        self.storages.push(storage);
        self
    }

    /// Adds a block table; group ids count from 0 in this order.
    #[must_use]
    pub fn group(mut self, group: Group) -> Self {
        self.groups.push(group);
        self
    }

    /// Adds a layer.
    #[must_use]
    pub fn layer(mut self, layer: LayerTensors) -> Self {
        self.layers.push(layer);
        self
    }

    /// Puts the spec together; it is not validated yet.
    ///
    /// # Errors
    ///
    /// [`SpecError::Tensors`] with the first contradiction.
    pub fn build(self) -> Result<CacheSpec, SpecError> {
        let mut found = Vec::new();
        for layer in &self.layers {
            found.push(layer.parts(&self.groups, self.topology.tp)?);
        }
        let storages = if self.storages.is_empty() { storages::find(found.iter().flatten()) } else { self.storages };
        let mut layers = Vec::with_capacity(found.len());
        for (layer, found) in self.layers.iter().zip(found) {
            let parts: Result<Vec<_>, _> = found.into_iter().map(|part| part.place(&storages)).collect();
            layers.push(layer.with_parts(parts?)?);
        }
        Ok(CacheSpec {
            version: SPEC_VERSION,
            fingerprint: self.fingerprint,
            topology: self.topology,
            storages,
            groups: self.groups,
            layers,
        })
    }
}
