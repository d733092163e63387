//! Moves KV cache blocks between workers over NIXL.
//!
//! A worker has one [`Agent`]. It registers the memory of its caches, exports a blob, connects peers from theirs,
//! and starts transfers of the descriptors that `kvplan` made for a request.
//!
//! ```
//! use std::time::Duration;
//!
//! use kvnixl::{Agent, Limits, LoopbackNetwork, TransferOptions};
//! use kvplan::{Descriptor, LocalPlan, Op};
//! use kvspec::{CacheSpec, StorageIndex};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Two workers in one process; `Agent::nixl` makes real ones.
//! let network = LoopbackNetwork::new();
//! let worker = |name: &str, cache: *mut u8| -> Result<Agent, Box<dyn std::error::Error>> {
//!     let base = cache.expose_provenance() as u64;
//!     let spec: CacheSpec = serde_json::from_value(serde_json::json!({
//!         "version": 1, "fingerprint": {"model": "org/model"},
//!         "storages": [{"base": base, "len": 4096, "mem": "dram"}],
//!         "groups": [{"pool": 0, "block_tokens": 16, "num_blocks": 4}],
//!         "layers": [{"name": "model.layers.0", "group": 0, "kind": "mla",
//!             "parts": [{"name": "latent", "storage": 0, "offset": 0, "block_stride": 1024,
//!                 "sharding": "replicated", "units": {"count": 1, "stride": 1024},
//!                 "tokens": [{"count": 16, "stride": 64}], "content": 64}]}],
//!     }))?;
//!     let agent = Agent::loopback(name, &network, Limits::default())?;
//!     // SAFETY: the memory is never freed, and nothing else touches it.
//!     unsafe { agent.register(&LocalPlan::new(&spec.validate()?))? };
//!     Ok(agent)
//! };
//! let leak = |byte: u8| Box::leak(vec![byte; 4096].into_boxed_slice()).as_mut_ptr();
//! let (ours, theirs) = (leak(0), leak(7));
//! let prefill = worker("prefill-0", theirs)?;
//! let decode = worker("decode-0", ours)?;
//!
//! let peer = decode.connect(&prefill.export()?)?;
//! let block = Descriptor {
//!     local_storage: StorageIndex(0), remote_storage: StorageIndex(0),
//!     local_offset: 3072, remote_offset: 1024, len: 1024,
//! };
//! let transfer = decode.start(&peer, Op::Read, &[block], TransferOptions::default())?;
//! transfer.wait(Duration::from_secs(10))?;
//! // SAFETY: the transfer has settled.
//! let moved = unsafe { std::slice::from_raw_parts(ours.add(3072), 1024) };
//! assert_eq!(moved, [7; 1024]);
//! # Ok(())
//! # }
//! ```
//!
//! # Map
//!
//! | question | module |
//! |---|---|
//! | where is NIXL found and loaded? | [`library`] |
//! | what does a child that was forked inherit? | [`fork`] |
//! | what does a worker do with memory, peers and transfers? | [`Agent`] in `agent` |
//! | who is connected, and is this the connection that counts? | `agent::peers` |
//! | how does a transfer start? | `agent::start` |
//! | can a peer be of another library? | [`ForeignPeer`] in `agent::foreign` |
//! | what may a descriptor touch? | `memory` |
//! | is memory there that is to be registered? | `mapped` |
//! | how is a transfer cut into requests? | [`Limits`] in `batch` |
//! | who posts and polls, and in which order? | `poster`, `crew`, `gate`, `inbox` |
//! | what is under way for a transfer? | `job` |
//! | how does an event loop wait for all of it? | [`Agent::event_fd`] in `wake` |
//! | when is a transfer failed, and when settled? | [`TransferState`] in `state` |
//! | what may still land after a failure? | [`Quarantined`] in `quarantine`, `docs/settling.md` |
//! | is a peer on this host, and is it alive? | [`Locality`] in `host` |
//! | what is counted? | [`Stats`] in `stats`, `docs/METRICS.md` |
//! | what do peers send each other? | `blob` and `docs/WIRE.md`, `notify` |
//! | who may read or write which blocks until when? | [`lease`] |
//! | how does an engine hold, pull and push requests? | [`Exchange`] in `exchange`, `producer`, `consumer`, `pull` |
//! | has a peer's process ended, and who takes memory away? | `exchange::watch`, `exchange::withdrawal` |
//! | what is the engine told? | [`Event`] in `event` |
//! | what do producers and consumers tell each other? | `message`, `link` |
//! | what moves the bytes? | `transport`: `nixl`, `loopback` |
//!
//! # Not here
//!
//! What to move and where it lies (`kvplan`, `kvspec`), how blobs travel between processes (the engine's own
//! channel), and C (`kvffi`).

mod agent;
mod backoff;
mod batch;
mod blob;
mod consumer;
mod covered;
mod crew;
mod cuda;
mod deadline;
mod error;
mod event;
mod exchange;
pub mod fork;
mod gate;
mod host;
mod inbox;
mod job;
pub mod lease;
pub mod library;
mod link;
mod loopback;
mod mapped;
mod memory;
mod message;
mod nixl;
mod notify;
mod peer;
mod poster;
mod producer;
mod pull;
mod quarantine;
mod state;
mod stats;
mod sync;
mod transfer;
mod transport;
mod wake;

pub use agent::{Agent, ForeignPeer};
pub use batch::Limits;
pub use blob::{MAX_BLOB_BYTES, WIRE_VERSION};
pub use consumer::{PullPart, PullStats, PushSource};
pub use deadline::{DEFAULT_DEADLINE, Deadline};
pub use error::{Attempt, Attempts, Error, Result};
pub use event::{Event, PullFailed, PullId};
pub use exchange::{Exchange, ExchangeOptions, ExchangeStats};
pub use host::{Barrier, Locality};
pub use library::Library;
pub use link::MessageStats;
pub use loopback::LoopbackNetwork;
pub use message::{MAX_REASON_BYTES, MESSAGE_VERSION, NotWritten, Verdict};
pub use nixl::NixlOptions;
pub use notify::{MAX_NOTIFICATION_BYTES, Notification};
pub use peer::Peer;
pub use producer::WriteRefusal;
pub use quarantine::Quarantined;
pub use state::{TransferState, TransferStats};
pub use stats::{BUCKET_SECONDS, Failures, Histogram, Stats};
pub use transfer::{Transfer, TransferOptions};
pub use transport::Piece;
