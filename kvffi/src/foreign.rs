//! `kvffi_foreign_peer`: peers on NIXL that are not of this library.

use std::ffi::c_char;

use kvnixl::ForeignPeer;

use crate::agent::kvffi_agent;
use crate::argument::{array, name, out_handle};
use crate::boundary::ffi_body;
use crate::bytes::kvffi_bytes;
use crate::error::kvffi_error;
use crate::handle;
use crate::options::{self, Grows};
use crate::peer::kvffi_peer;
use crate::spec::kvffi_spec;
use crate::status::kvffi_status;
use crate::text::kvffi_text;

/// A peer on NIXL that is not of this library: the engine learns of it in a way of its own. Starts as
/// KVFFI_FOREIGN_PEER_INIT.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct kvffi_foreign_peer {
    /// Size of this struct.
    pub struct_size: usize,
    /// Its name as a NIXL agent: 1 to 128 printable ASCII characters without @.
    pub name: *const c_char,
    /// What its NIXL calls its local metadata.
    pub metadata: *const u8,
    /// Number of bytes.
    pub metadata_len: usize,
    /// Where its caches lie. Every storage that a part is in must be registered with its NIXL.
    pub layout: *const kvffi_spec,
    /// Counts what is known of it under this name: a larger number replaces what was connected.
    pub generation: u64,
}

// SAFETY: `repr(C)`, 48 bytes without padding, `usize` first, integers and raw pointers only.
unsafe impl Grows for kvffi_foreign_peer {
    const NAME: &'static str = "kvffi_foreign_peer";
    const FIRST_SIZE: usize = 48;
}

/// Connects a peer that is not of this library. Its incarnation is 0, and nobody sees its process end: see
/// kvffi_peer_declare_gone. Everything else is as with other peers. Some milliseconds.
///
/// peer: not needed any more after the call, nor is its layout.
/// out_peer: the peer, to be freed with kvffi_peer_free; NULL if the call fails, and then nothing has changed.
///
/// KVFFI_ERR_INVALID_ARGUMENT for a name that cannot be used. KVFFI_ERR_PAIR_REFUSED if the peer serves another model.
/// KVFFI_ERR_STALE_BLOB for a smaller generation than the one that is connected. KVFFI_ERR_OUT_OF_RANGE if its layout
/// cannot be memory. KVFFI_ERR_WRONG_ORDER if no memory is registered here. KVFFI_ERR_TRANSPORT and KVFFI_ERR_BLOB for
/// metadata that cannot be used. Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_agent_connect_foreign(
    agent: *const kvffi_agent,
    peer: *const kvffi_foreign_peer,
    out_peer: *mut *mut kvffi_peer,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (out_peer, agent) = unsafe { (out_handle(out_peer, "out_peer")?, handle::borrow(agent, "agent")?) };
        // SAFETY: the crate's contract.
        let peer = unsafe { options::read(peer, "peer")? };
        // SAFETY: the crate's contract.
        let (name, metadata, layout) = unsafe {
            (
                name(peer.name, "peer->name")?,
                array(peer.metadata, peer.metadata_len, "peer->metadata")?,
                handle::borrow(peer.layout, "peer->layout")?,
            )
        };
        let foreign = ForeignPeer { name, metadata, layout, generation: peer.generation };
        out_peer.set(kvffi_peer::new(agent.agent()?.connect_foreign(foreign)?));
        Ok(())
    })
}

/// Hands out an agent's name on NIXL, which peers that are not of this library need.
///
/// out_name: the name, to be freed with kvffi_text_free; NULL if the call fails.
///
/// Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_agent_get_nixl_name(
    agent: *const kvffi_agent,
    out_name: *mut *mut kvffi_text,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (out_name, agent) = unsafe { (out_handle(out_name, "out_name")?, handle::borrow(agent, "agent")?) };
        out_name.set(kvffi_text::new(agent.agent()?.nixl_name()));
        Ok(())
    })
}

/// Hands out NIXL's metadata of an agent, which peers that are not of this library load. Whoever has it can read and
/// write the registered memory. Peers of this library take kvffi_agent_export's blob.
///
/// out_metadata: the metadata, to be freed with kvffi_bytes_free; NULL if the call fails.
///
/// KVFFI_ERR_WRONG_ORDER if no memory is registered. KVFFI_ERR_TRANSPORT. Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_agent_get_nixl_metadata(
    agent: *const kvffi_agent,
    out_metadata: *mut *mut kvffi_bytes,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (out_metadata, agent) =
            unsafe { (out_handle(out_metadata, "out_metadata")?, handle::borrow(agent, "agent")?) };
        out_metadata.set(kvffi_bytes::new(agent.agent()?.nixl_metadata()?));
        Ok(())
    })
}
