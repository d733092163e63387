//! Everything that can go wrong, as one type.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kvplan::{MemoryRange, Side};
use kvspec::{Fingerprint, LayerIndex, MemKind, SpecError, StorageIndex};

use crate::lease::{LeaseId, PeerId, PeerState, PushId, RequestId};
use crate::memory::shown;
use crate::producer::WriteRefusal;

/// Shorthand for this crate's results.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation of this crate did not succeed.
///
/// A message says what was given, what is allowed and what to change.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No usable `libnixl_capi.so`. Loading can be tried again with an explicit path.
    #[error(
        "no usable libnixl_capi.so; install NIXL 1.5.1 or newer (pip install --no-deps 'nixl-cu12>=1.5.1', Python 3.10 or \
         newer) or set KVNIXL_LIBRARY to it; looked at:{tried}"
    )]
    LibraryNotFound {
        /// The places looked at and why each failed, in order.
        tried: Attempts,
    },
    /// Another NIXL was loaded before; a process holds one.
    #[error("NIXL is already loaded from {loaded}; {asked} was asked for, and a process can hold only one")]
    LibraryConflict {
        /// The library in use.
        loaded: PathBuf,
        /// The library asked for.
        asked: PathBuf,
    },
    /// The parent process has made an agent on NIXL, and this one was forked from it.
    #[error(
        "the parent process made an agent on NIXL before it forked this one, and NIXL does not survive a fork; exec \
         first (Python: multiprocessing's spawn or forkserver), or fork before the parent's first agent"
    )]
    Forked,
    /// A NIXL call failed.
    #[error("nixl: {call} failed for {subject}; NIXL's own words are on stderr (NIXL_LOG_LEVEL)")]
    Nixl {
        /// The call.
        call: &'static str,
        /// What it was about.
        subject: String,
        /// NIXL's answer.
        source: nixl_sys::NixlError,
    },
    /// The agent's name cannot be used.
    #[error("agent name {name:?}: {why}; use 1 to 128 printable ASCII characters without @")]
    AgentName {
        /// The name given.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A limit of [`Limits`](crate::Limits) is zero.
    #[error("limit {limit} is 0; use at least 1")]
    ZeroLimit {
        /// Name of the field.
        limit: &'static str,
    },
    /// The operating system gave no random bytes for the incarnation.
    #[error("no random bytes for the agent's incarnation")]
    Random(#[source] getrandom::Error),
    /// The agent's thread could not be started or has died.
    #[error("the agent's posting thread is not running: {why}")]
    NoThread {
        /// What happened to it.
        why: String,
    },
    /// The operating system gave no file descriptor to wait on.
    #[error("no file descriptor to wait on")]
    NoDescriptor(#[source] std::io::Error),
    /// The agent is shutting down.
    #[error("agent {agent} is shutting down")]
    ShutDown {
        /// The agent.
        agent: String,
    },
    /// Device memory was asked for and cannot be used.
    #[error("{mem} memory cannot be used here: {why}")]
    NoDevice {
        /// The memory asked for.
        mem: MemKind,
        /// Why not.
        why: String,
    },

    /// The agent already has memory registered.
    #[error("agent {agent} already has {count} memory ranges registered; deregister them first")]
    AlreadyRegistered {
        /// The agent.
        agent: String,
        /// Ranges that it has.
        count: usize,
    },
    /// The agent has no memory registered.
    #[error("agent {agent} has no memory registered; register it first")]
    NotRegistered {
        /// The agent.
        agent: String,
    },
    /// The agent has an exchange already.
    #[error("agent {agent} has an exchange, which takes all its notifications; poll that one, or end it first")]
    ExchangeExists {
        /// The agent.
        agent: String,
    },
    /// Two memory ranges overlap: NIXL's lookup fails on overlapping registrations.
    #[error("memory ranges {} and {} overlap; register each byte once", shown(first), shown(second))]
    OverlappingRanges {
        /// The range with the lower address.
        first: MemoryRange,
        /// The other one.
        second: MemoryRange,
    },
    /// A memory range is empty, of a storage at address 0, or wraps around the address space.
    #[error(
        "memory range {}: the length must be at least 1, the end must fit the address space, and its storage must not be \
         at address 0",
        shown(range)
    )]
    BadRange {
        /// The range.
        range: MemoryRange,
    },
    /// Host memory is not mapped, or cannot be read and written.
    #[error(
        "memory range {}: its page at {page:#x} is {}; register memory that is mapped, readable and writable",
        shown(range),
        permissions.as_ref().map_or_else(|| "not mapped".to_owned(), |permissions| format!("mapped {permissions}"))
    )]
    NotMapped {
        /// The range.
        range: MemoryRange,
        /// Address of the first such page.
        page: u64,
        /// What may be done with it, as `/proc/self/maps` says it; `None` when it is not mapped.
        permissions: Option<String>,
    },
    /// A storage is registered in too many pieces, as one is that has grown often.
    #[error(
        "storage {storage} of {side} is registered in {pieces} pieces, at most {max} are allowed; deregister it and \
         register it as one"
    )]
    TooManyPieces {
        /// Whose storage.
        side: Side,
        /// The storage.
        storage: StorageIndex,
        /// Its pieces.
        pieces: usize,
        /// The limit.
        max: usize,
    },
    /// A registration is to be replaced by one of another model.
    #[error(
        "{}; peers have connected to the first: use another agent for another model",
        differing(registered, asked, "in what is registered", "in what was given")
    )]
    OtherFingerprint {
        /// What is registered.
        registered: Box<Fingerprint>,
        /// What was given.
        asked: Box<Fingerprint>,
    },
    /// A memory range is not the storage of the spec that it names.
    #[error("memory range {} of {side} is not within storage {storage} of its spec ({what})", shown(range))]
    RangeOutsideStorage {
        /// Whose range.
        side: Side,
        /// The range.
        range: MemoryRange,
        /// The storage it names.
        storage: StorageIndex,
        /// What the spec has there.
        what: String,
    },
    /// Memory cannot be deregistered, a peer let go, or an exchange followed by another, while transfers use it.
    #[error("{what} is used by {transfers} transfers that have not settled; wait for them first")]
    InUse {
        /// The memory, the peer or the exchange.
        what: String,
        /// Transfers not settled.
        transfers: usize,
    },

    /// A descriptor is empty, or reaches outside the registered memory of one side.
    #[error(
        "descriptor {index}{}",
        match len {
            0 => " has a length of 0; leave it out".to_owned(),
            _ => format!(
                ": bytes [{offset}, {offset} + {len}) of {side} lie outside storage {storage}, which has {registered} bytes \
                 registered at offset {start}"
            ),
        }
    )]
    OutOfRange {
        /// Position in the list of descriptors.
        index: usize,
        /// Which side.
        side: Side,
        /// Storage named by the descriptor.
        storage: StorageIndex,
        /// Offset in the storage.
        offset: u64,
        /// Length of the descriptor.
        len: u64,
        /// Offset of the registered range in the storage.
        start: u64,
        /// Bytes of it; 0 when the storage is not registered.
        registered: u64,
    },
    /// A request with the peer has failed, and the connection with it.
    #[error("the way to peer {peer} has failed; open it anew with Agent::reconnect, or connect the peer's new blob")]
    WayFailed {
        /// The peer.
        peer: String,
    },
    /// The peer was replaced by a newer connection, disconnected, or belongs to another agent.
    #[error("peer {peer} is not connected to this agent any more; use what the latest connect returned")]
    PeerGone {
        /// The peer.
        peer: String,
    },
    /// The answer is of a plan that is not between this worker and the peer.
    #[error("the answer cannot be used with peer {peer}")]
    WrongAnswer {
        /// The peer.
        peer: String,
        /// Why.
        source: kvplan::AnswerError,
    },
    /// The blob is of a process that has ended.
    #[error("the process of peer {peer} ({incarnation:016x}) has ended; fetch the blob of the one that took its place")]
    PeerEnded {
        /// The peer.
        peer: String,
        /// Its incarnation.
        incarnation: u64,
    },
    /// The transfer did not end in time. After a wait it goes on and owns its blocks; as the cause of
    /// [`Error::TransferFailed`], that error says whether it has settled.
    #[error("transfer {transfer} with {peer} had not ended after {waited:?}")]
    Deadline {
        /// Number of the transfer at this agent.
        transfer: u64,
        /// The peer.
        peer: String,
        /// How long was waited.
        waited: Duration,
    },
    /// The transfer was cancelled.
    #[error("the transfer was cancelled")]
    Cancelled,
    /// The transfer ended without moving everything.
    #[error("transfer {transfer} with {peer} failed, {}", if *settled { "settled" } else { "not settled: its blocks must not be reused" })]
    TransferFailed {
        /// Number of the transfer at this agent.
        transfer: u64,
        /// The peer.
        peer: String,
        /// Whether nothing can land any more.
        settled: bool,
        /// Why.
        source: Arc<Error>,
    },
    /// Shutting down left transfers behind that did not settle. Their memory must stay mapped for ever.
    #[error(
        "agent {agent} stopped with {transfers} transfers not settled; their memory must never be unmapped or reused"
    )]
    Unsettled {
        /// The agent.
        agent: String,
        /// Transfers not settled.
        transfers: usize,
    },

    /// A notification is too long.
    #[error("a notification of {len} bytes was given; at most {max} are allowed")]
    NotificationTooLong {
        /// Its length.
        len: usize,
        /// The limit.
        max: usize,
    },

    /// A request id cannot be used.
    #[error("a request id of {len} bytes was given; 1 to {max} are allowed")]
    RequestIdLength {
        /// Its length.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// The request's blocks are held already.
    #[error("request {request} has the lease {lease} in force; complete or abort it before holding blocks again")]
    RequestHeld {
        /// The request.
        request: RequestId,
        /// Its lease.
        lease: LeaseId,
    },

    /// A pull that reads some layers of a request, and would be told to the producer as one of the whole request.
    #[error(
        "no part of the pull under {lease} of {peer} is for layer {} of this worker's spec; read all layers in one pull, \
         with a part for each selection", layer.0
    )]
    LayerMissing {
        /// The producer.
        peer: PeerId,
        /// Its lease.
        lease: LeaseId,
        /// The first layer that no part is for.
        layer: LayerIndex,
    },
    /// A part of a request cannot be written now, or never.
    #[error("part {part} cannot be written to {id}: {why}")]
    WriteRefused {
        /// The registration.
        id: PushId,
        /// The part.
        part: u32,
        /// Why.
        why: WriteRefusal,
    },
    /// No transfer may start with a peer.
    #[error("peer {peer} is not ready: {}", not_ready(*state))]
    PeerNotReady {
        /// The peer.
        peer: PeerId,
        /// Where it stands; `None` when it is not known.
        state: Option<PeerState>,
    },
    /// A pull or a reservation names nobody to get anything from: it would end before it began.
    #[error("a {what} without any producer was asked for; name at least one")]
    NoParts {
        /// What was asked for.
        what: &'static str,
    },
    /// Blocks that a peer is to write do not fit what is registered here.
    #[error("the blocks of the reservation do not fit the caches that are registered here")]
    ListsRefused {
        /// Which, and why.
        source: kvplan::RequestError,
    },
    /// As much is in flight as is allowed.
    #[error("{bytes} bytes in {descriptors} descriptors are in flight; try again when some have settled")]
    WouldBlock {
        /// Bytes in flight.
        bytes: u64,
        /// Descriptors in flight.
        descriptors: usize,
    },

    /// A peer's message is of another version.
    #[error("message: version {remote} at the peer and {local} here; run the same version on both sides")]
    MessageVersion {
        /// Our version.
        local: u16,
        /// The peer's.
        remote: u16,
    },
    /// A peer's message is of a kind that this version does not know.
    #[error("message: kind {kind:?} is not known to this version")]
    MessageKind {
        /// The beginning of its name.
        kind: String,
    },
    /// A peer's message is not what this version writes.
    #[error("message: {what} cannot be decoded")]
    MessageMalformed {
        /// Which part of it.
        what: &'static str,
        /// What the decoder says.
        source: Option<rmp_serde::decode::Error>,
    },

    /// A peer's blob is longer than any blob may be.
    #[error("peer blob: {len} bytes, at most {max} are allowed")]
    BlobTooLong {
        /// Its length.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// A peer's blob ends before its fixed part.
    #[error("peer blob: cut off after {len} bytes, the fixed part alone has {min}")]
    BlobTruncated {
        /// Its length.
        len: usize,
        /// Length of the fixed part.
        min: usize,
    },
    /// Not a blob of this library.
    #[error("peer blob: starts with {found:02x?}, not with the magic KVNIXL")]
    BlobMagic {
        /// The first bytes.
        found: [u8; 6],
    },
    /// The peer speaks another wire version.
    #[error("peer blob: wire version {remote} at the peer and {local} here; run the same version on both sides")]
    BlobVersion {
        /// Our version.
        local: u16,
        /// The peer's.
        remote: u16,
    },
    /// The blob was damaged or cut off on its way.
    #[error(
        "peer blob: checksum {computed:#010x} over {len} bytes, {stated:#010x} was stated; it is cut off or damaged"
    )]
    BlobChecksum {
        /// Bytes covered.
        len: usize,
        /// Checksum that the blob states.
        stated: u32,
        /// Checksum of its bytes.
        computed: u32,
    },
    /// The blob's contents are not what this version writes.
    #[error("peer blob: {what} cannot be decoded")]
    BlobMalformed {
        /// Which part of it.
        what: &'static str,
        /// What the decoder says.
        source: Option<rmp_serde::decode::Error>,
    },
    /// Our own description could not be encoded.
    #[error("blob or message cannot be encoded")]
    BlobEncode(#[from] rmp_serde::encode::Error),
    /// The peer holds another model's caches.
    #[error("{}; both sides must run the same model the same way", differing(local, remote, "here", "at the peer"))]
    FingerprintMismatch {
        /// Ours.
        local: Box<Fingerprint>,
        /// The peer's.
        remote: Box<Fingerprint>,
    },
    /// The peer's layout is not a valid spec.
    #[error("peer {peer}: its layout is invalid")]
    PeerLayout {
        /// The peer.
        peer: String,
        /// All findings.
        source: Box<SpecError>,
    },
    /// The blob is the agent's own.
    #[error("agent {agent} cannot connect to itself")]
    OwnBlob {
        /// The agent.
        agent: String,
    },
    /// The same blob was refused a short while ago. It is not read again so soon.
    #[error("the same blob was refused {} s ago; have the peer export another one: {why}", ago.as_secs())]
    BlobRefused {
        /// How long ago.
        ago: Duration,
        /// Why, as far as it is kept.
        why: String,
    },
    /// The blob is of another peer than the one that was asked for.
    #[error("the blob is of {named:?}, and that of {expected:?} was asked for; look where blobs are fetched")]
    UnexpectedPeer {
        /// Whose blob it should be.
        expected: String,
        /// Whose it says it is.
        named: String,
    },
    /// The blob is of another process than the one that is connected under its name, and does not take its place: it
    /// was replaced, or did not start later and the other one is not known to have ended.
    #[error(
        "peer {peer}: the process {current:016x} is connected under this name, and the blob's, {incarnation:016x}, was \
         replaced by it or did not start later; fetch the blob again, or give two workers two names"
    )]
    OlderProcess {
        /// The peer.
        peer: String,
        /// Incarnation in the blob.
        incarnation: u64,
        /// Incarnation connected.
        current: u64,
    },
    /// The blob describes an earlier registration of the same process.
    #[error("peer {peer}: {}", stale_blob(*stale, *current))]
    StaleBlob {
        /// The peer.
        peer: String,
        /// Generation in the blob.
        stale: u64,
        /// Generation connected; 0 if the blob is of a process that was replaced, whose generations say nothing.
        current: u64,
    },
    /// NIXL's metadata in a blob is of another agent than the blob says.
    #[error("peer {peer}: its NIXL metadata names {named:?}")]
    PeerNameMismatch {
        /// The peer by the blob.
        peer: String,
        /// The peer by NIXL's metadata.
        named: String,
    },

    /// The loopback was asked for something it does not do.
    #[error("loopback: {why}")]
    Loopback {
        /// What and why not.
        why: String,
    },
}

/// Why a blob is stale.
fn stale_blob(stale: u64, current: u64) -> String {
    match current {
        0 => "another process has taken its name; fetch the blob of that one".to_owned(),
        _ if stale < current => {
            format!("generation {stale} is older than {current}, which is connected; fetch its blob again")
        }
        _ => format!("its memory of generation {stale} is taken away; fetch its blob when it has registered again"),
    }
}

/// What is wrong with a peer that is not ready, and what to do.
fn not_ready(state: Option<PeerState>) -> &'static str {
    match state {
        None => "it is not connected; connect it first",
        Some(PeerState::Connecting) => "its memory is registered anew; fetch its blob and connect it",
        Some(PeerState::Draining) => "it is being let go, or its memory goes; wait until nothing is under way with it",
        Some(PeerState::Lost) => "it cannot be reached; fetch its blob and connect it again",
        Some(PeerState::Replaced) => "another process has its name; use that one",
        Some(PeerState::Ready) => "it is connected elsewhere; connect it here",
    }
}

/// Bytes of a value that are shown. A peer's may have any length.
const MAX_SHOWN: usize = 100;

/// In what two fingerprints differ: the first field with both values, and how many more there are.
fn differing(one: &Fingerprint, other: &Fingerprint, here: &str, there: &str) -> String {
    let shown = |value: &str| match value.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{:?}...", &value[..end]),
        None => format!("{value:?}"),
    };
    let differences = one.differences(other);
    let Some((field, value, other)) = differences.first() else { return "the fingerprints are equal".to_owned() };
    let more = match differences.len() {
        1 => String::new(),
        number => format!(" (and {} more fields differ)", number - 1),
    };
    format!(
        "fingerprint field {} is {} {here} and {} {there}{more}",
        shown(field).trim_matches('"'),
        shown(value),
        shown(other)
    )
}

/// The places where NIXL was looked for, and why each was not used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attempts(pub Vec<Attempt>);

/// One place where NIXL was looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Path, or the name given to the dynamic loader.
    pub place: String,
    /// Why it was not used.
    pub why: String,
}

impl fmt::Display for Attempts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Attempt { place, why } in &self.0 {
            write!(f, "\n  {place}: {why}")?;
        }
        Ok(())
    }
}
