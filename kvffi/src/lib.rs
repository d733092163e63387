//! The C ABI: `include/kvffi.h` is generated from this crate.
//!
//! One file is one C "class". The crate adds no logic: whatever it answers, a Rust user gets from [`kvspec`],
//! [`kvplan`] and [`kvnixl`].
//!
//! | file | what C sees |
//! |---|---|
//! | `version` | `KVFFI_VERSION`, `kvffi_abi_check`, … |
//! | `status` | `kvffi_status` and its numbers |
//! | `error` | `kvffi_error`: what went wrong, as code, text and findings |
//! | `text` | `kvffi_text`: a text that the caller owns |
//! | `spec` | `kvffi_spec`: one worker's caches, validated |
//! | `worker` | `kvffi_worker`, `kvffi_storage`, `kvffi_group`: what specs are built from |
//! | `spec_builder` | `kvffi_spec_builder`: a spec from its parts |
//! | `page`, `page_attention`, `page_state` | `kvffi_page`: what a layer's page holds, by kind |
//! | `arrangement` | `kvffi_arrangement`: where to put caches |
//! | `tensors` | `kvffi_tensors`: a spec from an engine's tensors |
//! | `local_plan` | `kvffi_local_plan`: memory ranges and regions of one worker |
//! | `share` | `kvffi_share`: from whom a rank reads and to whom it writes |
//! | `pair` | `kvffi_pair`: a plan between two workers |
//! | `request` | `kvffi_request`, `kvffi_block_list`: which blocks to move |
//! | `answer` | `kvffi_answer`: descriptors and ranges to zero |
//! | `bytes` | `kvffi_bytes`: bytes that the caller owns |
//! | `limits` | `kvffi_limits`: how transfers are cut, how much may be in flight |
//! | `loopback` | `kvffi_loopback`: agents of one process, for tests |
//! | `agent` | `kvffi_agent`: one worker's end of all transfers |
//! | `peer` | `kvffi_peer`: a peer that an agent has connected |
//! | `foreign` | `kvffi_foreign_peer`: a peer that is not of this library |
//! | `notification` | `kvffi_notifications`: messages that have arrived |
//! | `agent_fd` | a file descriptor to wait on |
//! | `agent_stats` | `kvffi_agent_stats`: what an agent has done |
//! | `quarantine` | `kvffi_quarantine`: what may still land |
//! | `transfer` | `kvffi_transfer`: bytes that move |
//! | `exchange` | `kvffi_exchange`: leases, pulls, pushes and peers of one agent |
//! | `exchange_peers` | its peers: `kvffi_exchange_want`, `_connect`, … |
//! | `exchange_hold` | its producer's side: `kvffi_exchange_hold`, `_ready`, `_write`, … |
//! | `exchange_pull` | its consumer's side: `kvffi_exchange_pull`, `_reserve`, … |
//! | `event` | `kvffi_exchange_poll` and `kvffi_events`: what has happened |
//! | `exchange_stats` | `kvffi_exchange_stats`: what it counts |
//! | `log` | `kvffi_logs`: what the library logs |
//!
//! and what they share: `handle` (tagged opaque handles), `boundary` (panics stop here), `argument` (pointers from C
//! become references or errors), `options` (structs that grow), `nixl_failure`
//! (errors of [`kvnixl`]), `process` (the environment that NIXL needs), `log_collector` (where `tracing` ends).
//!
//! # Safety
//!
//! Every function takes what the header's chapters describe: pointers are NULL or point to as many values as the
//! function says, handles are NULL or came from this library and have not been freed. NULL, a handle of another kind,
//! a misaligned pointer and a length beyond the address space are found and reported; other wild pointers are not.

#![allow(non_camel_case_types, reason = "the types carry the names that C sees")]
#![allow(clippy::missing_safety_doc, reason = "the contract is the crate's Safety section and the header's chapters")]

mod agent;
mod agent_fd;
mod agent_stats;
mod answer;
mod argument;
mod arrangement;
mod boundary;
mod bytes;
mod error;
mod event;
mod exchange;
mod exchange_hold;
mod exchange_peers;
mod exchange_pull;
mod exchange_stats;
mod failure;
mod foreign;
mod handle;
mod limits;
mod local_plan;
mod log;
mod log_collector;
mod loopback;
mod nixl_failure;
mod notification;
mod options;
mod page;
mod page_attention;
mod page_state;
mod pair;
mod peer;
mod process;
mod quarantine;
mod request;
mod share;
mod spec;
mod spec_builder;
mod status;
mod tensors;
mod text;
mod transfer;
mod version;
mod worker;

pub use agent::*;
pub use agent_fd::*;
pub use agent_stats::*;
pub use answer::*;
pub use arrangement::*;
pub use bytes::*;
pub use error::*;
pub use event::*;
pub use exchange::*;
pub use exchange_hold::*;
pub use exchange_peers::*;
pub use exchange_pull::*;
pub use exchange_stats::*;
pub use foreign::*;
pub use limits::*;
pub use local_plan::*;
pub use log::*;
pub use loopback::*;
pub use notification::*;
pub use page::*;
pub use page_attention::*;
pub use page_state::*;
pub use pair::*;
pub use peer::*;
pub use quarantine::*;
pub use request::*;
pub use share::*;
pub use spec::*;
pub use spec_builder::*;
pub use status::*;
pub use tensors::*;
pub use text::*;
pub use transfer::*;
pub use version::*;
pub use worker::*;

// Lengths are exchanged as size_t and addresses as 64 bits.
const _: () = assert!(size_of::<usize>() == size_of::<u64>(), "kvffi is for 64-bit targets");
