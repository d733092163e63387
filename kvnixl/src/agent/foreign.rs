//! Peers that are on NIXL and not of this library.
//!
//! An engine may have to talk to workers whose transfer code is another: they exchange NIXL's own metadata and tell
//! each other where their memory lies in a form of their own. What such a peer says becomes a layout, and from there
//! everything is as with a peer of this library. Rejected: making a blob in the peer's name, whose incarnation and
//! host would be invented.

use kvplan::{Side, memory_ranges};
use kvspec::ValidSpec;

use super::peers::{Introduced, Stands};
use super::{Agent, since_1970};
use crate::blob::MAX_BLOB_BYTES;
use crate::error::{Error, Result};
use crate::memory::{RangeTable, Registered};
use crate::notify;
use crate::peer::Peer;

/// A peer on NIXL that is not of this library.
#[derive(Clone, Copy, Debug)]
pub struct ForeignPeer<'a> {
    /// Its name as a NIXL agent.
    pub name: &'a str,
    /// What its NIXL calls its local metadata.
    pub metadata: &'a [u8],
    /// Where its caches lie. Every storage that a part is in must be registered with its NIXL.
    pub layout: &'a ValidSpec,
    /// Counts what is known of it under this name: a larger number replaces what was connected.
    pub generation: u64,
}

impl Agent {
    /// Connects a peer that is not of this library. Its [`incarnation`](Peer::incarnation) is 0, and nobody sees its
    /// process end: see [`Peer::declare_gone`]. Descriptors are checked against its layout here and against what it
    /// has registered by NIXL, when they are posted.
    ///
    /// # Errors
    ///
    /// [`Error::AgentName`]; [`Error::BlobTooLong`] for the metadata; [`Error::FingerprintMismatch`]; [`Error::StaleBlob`]; [`Error::NotRegistered`];
    /// [`Error::OverlappingRanges`] and the other range errors for a layout that cannot be memory; [`Error::Nixl`] and
    /// [`Error::PeerNameMismatch`] for metadata that cannot be used. Then nothing has changed.
    pub fn connect_foreign(&self, peer: ForeignPeer<'_>) -> Result<Peer> {
        let ForeignPeer { name, metadata, layout, generation } = peer;
        notify::check_name(name)?;
        if metadata.len() > MAX_BLOB_BYTES {
            return Err(Error::BlobTooLong { len: metadata.len(), max: MAX_BLOB_BYTES });
        }
        let fingerprint = self.registered(&self.memory())?.0.fingerprint.clone();
        if layout.fingerprint != fingerprint {
            let (local, remote) = (Box::new(fingerprint), Box::new(layout.fingerprint.clone()));
            return Err(Error::FingerprintMismatch { local, remote });
        }
        let registered: Vec<Registered> =
            memory_ranges(layout).into_iter().map(|range| Registered { range, since: 0 }).collect();
        let ranges = RangeTable::new(Side::Remote, &registered, &layout.storages)?;
        self.introduce(Introduced {
            name: name.to_owned(),
            incarnation: 0,
            generation,
            // The engine's own word: the newest of that name.
            started: Some(since_1970()),
            stands: Stands::Yes,
            transport_name: name.to_owned(),
            metadata: metadata.to_vec(),
            layout: layout.clone(),
            ranges,
            host: None,
        })
    }

    /// This agent's name on NIXL, which peers that are not of this library need.
    #[must_use]
    pub fn nixl_name(&self) -> String {
        notify::transport_name(self.name(), self.incarnation())
    }

    /// NIXL's metadata of this agent, which peers that are not of this library load. [`Agent::export`] has it for the
    /// others.
    ///
    /// # Errors
    ///
    /// [`Error::NotRegistered`], [`Error::Nixl`].
    pub fn nixl_metadata(&self) -> Result<Vec<u8>> {
        self.registered(&self.memory())?;
        self.transport()?.metadata()
    }
}
