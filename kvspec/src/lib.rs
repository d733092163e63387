//! What KV caches an inference worker has: where they lie, how they are cut up, and which part of the model they
//! hold.
//!
//! An engine describes the caches of one worker as a [`CacheSpec`]: allocations, groups of layers that share a
//! block table, and for each layer the *parts* of its page. A part is one strided family of equal cells, and that is
//! all the geometry there is: every layout, packing, padding, kernel-block split and overlay is a choice of
//! its numbers. [`CacheSpec::validate`] checks the whole and gives a [`ValidSpec`], which planners take.
//!
//! ```
//! use kvspec::kinds::{Attention, Element, Indexer, Mla};
//! use kvspec::{Arrange, Blocks, CacheSpec, Fingerprint, Layout, Pool, Role, Shard, Topology};
//!
//! // Rank 1 of 4: MLA latents with an indexer, and a GQA draft, all in one row a block.
//! let model = Fingerprint { model: "org/model".to_owned(), ..Fingerprint::default() };
//! let topology = Topology { tp: Shard { rank: 1, size: 4 }, ..Topology::default() };
//! let blocks = Blocks::tokens(64)
//!     .layer("layers.0.attn", Mla::fp8())
//!     .layer_as("layers.0.indexer", Indexer::fp8(), Role::Indexer)
//!     .layer_as("draft.0.attn", Attention::new(8, 128, Element::BF16), Role::Draft);
//! let arranged = Arrange::new(model, topology).pool(Pool::new(Layout::Blhnc, 1000).blocks(blocks)).build()?;
//!
//! // Allocate, say where, and check everything.
//! let row = 64 * 656 + 64 * 132 + 2 * 64 * 512;
//! assert_eq!(arranged.storage_lens(), [1000 * row]);
//! let spec = arranged.at(&[0x7f00_0000_0000])?;
//! let text = spec.to_json()?;
//! let valid = spec.validate()?;
//! assert_eq!(valid.units_of(&valid.layers[2].parts[0]), 2..4);
//!
//! // The same from its JSON form, and what is wrong with a spoilt one.
//! let mut spoilt = CacheSpec::from_json(&text)?;
//! spoilt.layers[1].parts[0].offset -= 4;
//! let error = spoilt.validate().unwrap_err();
//! assert!(error.to_string().contains("layer layers.0.attn part latent (group 0, pool 0) and layer layers.0.indexer"));
//! # Ok::<(), kvspec::SpecError>(())
//! ```
//!
//! # Three ways in
//!
//! - [`FromTensors`]: an engine has its caches; pointers, shapes, strides and axis labels say where.
//! - [`Arrange`]: an engine asks where to put things; kinds and a [`Layout`] give placements and bytes to allocate.
//! - [`CacheSpec::from_json`], or filling in the plain data by hand.
//!
//! # Modules
//!
//! | module | question |
//! |---|---|
//! | [`spec`] | what does a spec say? |
//! | [`ids`], [`topology`], [`sharding`], [`states`] | the words it uses: indices, ranks, owned units, tokens per state |
//! | [`valid`], [`validate`] | is it sound, and what is wrong with it? |
//! | [`family`] | do two strided families share a byte, over billions of blocks? |
//! | [`text`], [`bounded`] | how long are names and lists of findings? |
//! | [`divisor`] | what do two strides or periods have in common? |
//! | [`kinds`] | what does the page of a GQA, MLA, Mamba2, NVFP4 … layer hold? |
//! | [`arrange`] | where do pages go in a layout? |
//! | [`tensors`] | what do an engine's tensors hold? |
//! | [`error`] | what can go wrong? |
//!
//! # What it does not do
//!
//! It moves nothing, plans nothing, allocates nothing and reads no memory; it knows addresses as numbers. It does not
//! know models: an engine says which layers it has. It does not guess a layout from a shape.

#![forbid(unsafe_code)]

pub mod arrange;
pub mod bounded;
pub mod divisor;
pub mod error;
pub mod family;
pub mod ids;
pub mod json;
pub mod kinds;
pub mod sharding;
pub mod spec;
pub mod states;
pub mod tensors;
pub mod text;
pub mod topology;
pub mod valid;
pub mod validate;

pub use arrange::{Arrange, Arranged, Blocks, Layout, Pool};
pub use error::SpecError;
pub use ids::{BlockId, GroupId, LayerIndex, LayerName, PartName, PoolId, StorageIndex};
pub use sharding::{Sharding, owned_units, ranks_of_unit};
pub use spec::{Axis, CacheSpec, Fingerprint, Group, Kind, Layer, MemKind, Part, Role, SPEC_VERSION, Storage, Usage};
pub use states::TokensPerState;
pub use tensors::{FromTensors, LayerTensors, Tensor};
pub use topology::{ContextShard, Shard, Topology};
pub use valid::ValidSpec;
pub use validate::{Finding, Findings};
