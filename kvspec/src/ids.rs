//! Indices and names as types, so that a group cannot be passed where a storage is meant.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::text::Short;

macro_rules! index {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl $name {
            /// The index as a `usize`, for looking up in a slice.
            #[must_use]
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

index! {
    /// Index into [`CacheSpec::storages`](crate::CacheSpec::storages).
    StorageIndex
}
index! {
    /// Index into [`CacheSpec::groups`](crate::CacheSpec::groups); local to one worker.
    GroupId
}
index! {
    /// A set of block ids. A block id of a pool belongs to one group at a time, so groups of the same pool
    /// may overlay each other's bytes: block i of one those of block i of another, and of no other id.
    PoolId
}
index! {
    /// Index into [`CacheSpec::layers`](crate::CacheSpec::layers); local to one worker.
    LayerIndex
}
index! {
    /// The engine's name for one block of one group.
    BlockId
}

impl BlockId {
    /// A hole in a block list: nothing is stored there.
    pub const HOLE: BlockId = BlockId(u32::MAX);

    /// Whether this entry is [`BlockId::HOLE`].
    #[must_use]
    pub fn is_hole(self) -> bool {
        self == Self::HOLE
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        ///
        /// Cheap to clone: errors and reports carry it. Written in short where it is longer than a valid one.
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(name: &str) -> Self {
                Self(name.into())
            }
        }

        impl From<String> for $name {
            fn from(name: String) -> Self {
                Self(name.into())
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0.as_ref().to_owned()
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                Short(&self.0).fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&Short(&self.0).to_string(), f)
            }
        }
    };
}

name! {
    /// A layer's name: layers of two workers meet by it, never by index.
    LayerName
}
name! {
    /// A part's name within its layer: `latent`, `k`, `v`, `k_scale`, `index`, `conv.x`, `ssm`, …
    PartName
}
