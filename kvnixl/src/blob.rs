//! The blob that a worker hands to its peers: who it is, what caches it has, how NIXL reaches them.
//!
//! `docs/WIRE.md` describes the bytes. A blob comes from the network: nothing in it is trusted, every count is
//! bounded by its length, and decoding never panics.

use std::io::Cursor;

use kvplan::{MemoryRange, Side};
use kvspec::family::Budget;
use kvspec::{CacheSpec, Fingerprint, MemKind, StorageIndex, ValidSpec};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::host::Host;
use crate::memory::{RangeTable, Registered};
use crate::notify::check_name;

/// Version of the bytes; peers of different versions refuse each other.
pub const WIRE_VERSION: u16 = 1;

/// Longest blob that is looked at. A layout of 99 layers takes about 30 kB.
pub const MAX_BLOB_BYTES: usize = 16 << 20;

const MAGIC: [u8; 6] = *b"KVNIXL";
/// Magic, version, checksum.
const FIXED: usize = 12;
/// Deepest nesting of maps and arrays; a layout needs 7.
const MAX_DEPTH: usize = 32;

/// A blob, decoded and checked: the layout is a valid spec, and every range lies in a storage of it.
#[derive(Debug)]
pub(crate) struct Blob {
    pub(crate) header: Header,
    pub(crate) layout: ValidSpec,
    pub(crate) ranges: RangeTable,
    pub(crate) metadata: Vec<u8>,
    /// Where the peer runs, if it said.
    pub(crate) host: Option<Host>,
}

/// First map: enough to know whether the rest is worth reading.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Header {
    pub(crate) fingerprint: Fingerprint,
    /// The agent's name.
    pub(crate) agent: String,
    /// Random for each agent that is created: tells a restarted process from its predecessor.
    pub(crate) incarnation: u64,
    /// Counts the agent's registrations.
    pub(crate) generation: u64,
    /// When the agent was made, in nanoseconds since 1970 by its host's clock. Later than version 1's first blobs, which
    /// lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) started: Option<u64>,
}

impl Header {
    /// Refuses the blob of anybody else.
    pub(crate) fn expect(&self, name: &str) -> Result<()> {
        match self.agent == name {
            true => Ok(()),
            false => Err(Error::UnexpectedPeer { expected: name.to_owned(), named: self.agent.clone() }),
        }
    }
}

/// Second map.
#[derive(Serialize, Deserialize)]
struct Body<Layout> {
    layout: Layout,
    ranges: Vec<Range>,
    #[serde(with = "serde_bytes")]
    nixl: Vec<u8>,
    /// Later than version 1's first blobs, which lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    host: Option<Host>,
}

/// A registered range.
#[derive(Serialize, Deserialize)]
struct Range {
    storage: StorageIndex,
    base: u64,
    len: u64,
    mem: MemKind,
    /// Generation that it came with. Later than version 1's first blobs, which lack it.
    #[serde(default = "first_generation", skip_serializing_if = "is_first_generation")]
    since: u64,
}

fn first_generation() -> u64 {
    1
}

fn is_first_generation(generation: &u64) -> bool {
    *generation == first_generation()
}

/// Writes a blob.
pub(crate) fn encode(
    header: &Header,
    layout: &CacheSpec,
    registered: &[Registered],
    metadata: Vec<u8>,
    host: Option<Host>,
) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&WIRE_VERSION.to_be_bytes());
    bytes.extend_from_slice(&[0; 4]);
    let range = |&Registered { range: MemoryRange { storage, base, len, mem }, since }: &Registered| Range {
        storage,
        base,
        len,
        mem,
        since,
    };
    let ranges = registered.iter().map(range).collect();
    rmp_serde::encode::write_named(&mut bytes, header)?;
    rmp_serde::encode::write_named(&mut bytes, &Body { layout, ranges, nixl: metadata, host })?;
    let checksum = crc32fast::hash(&bytes[FIXED..]);
    bytes[FIXED - 4..FIXED].copy_from_slice(&checksum.to_be_bytes());
    if bytes.len() > MAX_BLOB_BYTES {
        return Err(Error::BlobTooLong { len: bytes.len(), max: MAX_BLOB_BYTES });
    }
    Ok(bytes)
}

/// Reads a blob of a peer that must have our fingerprint, and be one that `admit` admits: what it refuses is read no
/// further.
pub(crate) fn decode<T>(
    bytes: &[u8],
    fingerprint: &Fingerprint,
    admit: impl FnOnce(&Header) -> Result<T>,
) -> Result<(Blob, T)> {
    let len = bytes.len();
    if len > MAX_BLOB_BYTES {
        return Err(Error::BlobTooLong { len, max: MAX_BLOB_BYTES });
    }
    let Some((fixed, rest)) = bytes.split_first_chunk::<FIXED>() else {
        return Err(Error::BlobTruncated { len, min: FIXED });
    };
    let [m0, m1, m2, m3, m4, m5, v0, v1, c0, c1, c2, c3] = *fixed;
    let found = [m0, m1, m2, m3, m4, m5];
    if found != MAGIC {
        return Err(Error::BlobMagic { found });
    }
    let remote = u16::from_be_bytes([v0, v1]);
    if remote != WIRE_VERSION {
        return Err(Error::BlobVersion { local: WIRE_VERSION, remote });
    }
    let (stated, computed) = (u32::from_be_bytes([c0, c1, c2, c3]), crc32fast::hash(rest));
    if stated != computed {
        return Err(Error::BlobChecksum { len: rest.len(), stated, computed });
    }

    let mut cursor = Cursor::new(rest);
    let header: Header = next(&mut cursor, "header")?;
    if header.fingerprint != *fingerprint {
        let (local, remote) = (Box::new(fingerprint.clone()), Box::new(header.fingerprint));
        return Err(Error::FingerprintMismatch { local, remote });
    }
    check_name(&header.agent)?;
    let admitted = admit(&header)?;
    let Body { layout, ranges, nixl, host } = next::<Body<CacheSpec>>(&mut cursor, "body")?;
    if usize::try_from(cursor.position()).ok() != Some(rest.len()) {
        return Err(Error::BlobMalformed { what: "what follows the body", source: None });
    }
    if layout.fingerprint != header.fingerprint {
        return Err(Error::BlobMalformed {
            what: "the layout's fingerprint, which differs from the header's,",
            source: None,
        });
    }
    let invalid = |source| Error::PeerLayout { peer: header.agent.clone(), source: Box::new(source) };
    let mut budget = Budget::CONNECT;
    let layout = layout.validate_within(&mut budget).map_err(invalid)?;
    let registered =
        |Range { storage, base, len, mem, since }| Registered { range: MemoryRange { storage, base, len, mem }, since };
    let ranges: Vec<Registered> = ranges.into_iter().map(registered).collect();
    let ranges = RangeTable::new(Side::Remote, &ranges, &layout.storages)?;
    Ok((Blob { header, layout, ranges, metadata: nixl, host }, admitted))
}

fn next<T: for<'de> Deserialize<'de>>(cursor: &mut Cursor<&[u8]>, what: &'static str) -> Result<T> {
    let mut decoder = rmp_serde::Deserializer::new(cursor);
    decoder.set_max_depth(MAX_DEPTH);
    T::deserialize(&mut decoder).map_err(|source| Error::BlobMalformed { what, source: Some(source) })
}

#[cfg(test)]
#[path = "blob_tests.rs"]
mod tests;
