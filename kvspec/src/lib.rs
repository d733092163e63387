//! What KV caches an inference worker has.

pub mod error;
pub mod family;
pub mod ids;
mod json;
pub mod sharding;
pub mod spec;
pub mod states;
pub mod topology;
pub mod valid;
pub mod validate;

pub use error::SpecError;
pub use ids::{BlockId, GroupId, LayerIndex, LayerName, PartName, PoolId, StorageIndex};
pub use sharding::{Sharding, owned_units, ranks_of_unit};
pub use spec::{Axis, CacheSpec, Fingerprint, Group, Kind, Layer, MemKind, Part, Role, SPEC_VERSION, Storage, Usage};
pub use states::TokensPerState;
pub use topology::{ContextShard, Shard, Topology};
pub use valid::ValidSpec;
pub use validate::{Finding, Findings};
