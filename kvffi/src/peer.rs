//! `kvffi_peer`: a peer that an agent has connected.

use std::ffi::{CString, c_char};

use kvnixl::{Barrier, Locality, Peer};

use crate::agent::kvffi_agent;
use crate::argument::{array, out_handle};
use crate::boundary::{ffi_body, ffi_value};
use crate::error::{c_text, kvffi_error};
use crate::handle::{self, Class, Kind};
use crate::options::{Grows, out_struct};
use crate::spec::kvffi_spec;
use crate::status::kvffi_status;

/// Where a peer is: it did not say.
pub const KVFFI_LOCALITY_UNKNOWN: i32 = 0;
/// Where a peer is: on this host, and the kernel copies.
pub const KVFFI_LOCALITY_SAME_HOST: i32 = 1;
/// Where a peer is: on this host, and something keeps the kernel from copying: expect TCP, several times slower.
pub const KVFFI_LOCALITY_SAME_HOST_APART: i32 = 2;
/// Where a peer is: on another host.
pub const KVFFI_LOCALITY_OTHER_HOST: i32 = 3;

/// What keeps the kernel from copying: different users.
pub const KVFFI_BARRIER_USER: u32 = 1;
/// What keeps the kernel from copying: different PID namespaces.
pub const KVFFI_BARRIER_PID_NAMESPACE: u32 = 2;
/// What keeps the kernel from copying: different IPC namespaces.
pub const KVFFI_BARRIER_IPC_NAMESPACE: u32 = 4;
/// What keeps the kernel from copying: different UTS namespaces.
pub const KVFFI_BARRIER_UTS_NAMESPACE: u32 = 8;

/// A peer that an agent has connected: plan against its layout, then start transfers with it. A newer connection to the
/// same peer replaces this one, and transfers with the old one are refused.
///
/// Freed with kvffi_peer_free, at any time: that lets nothing go, see kvffi_agent_disconnect.
#[derive(Debug)]
pub struct kvffi_peer {
    _opaque: [u8; 0],
}

/// Who a peer is and how it fares. Starts as KVFFI_PEER_INFO_INIT.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct kvffi_peer_info {
    /// Size of this struct.
    pub struct_size: usize,
    /// The peer's name; valid until the peer is freed.
    pub name: *const c_char,
    /// Random number of the peer's agent: another one under the same name is another process.
    pub incarnation: u64,
    /// Counts the peer's registrations.
    pub generation: u64,
    /// Transfers with the peer that have not settled.
    pub unsettled: u64,
    /// KVFFI_LOCALITY_...: where the peer is, as it says.
    pub locality: i32,
    /// Any of KVFFI_BARRIER_..., or'ed, with KVFFI_LOCALITY_SAME_HOST_APART.
    pub barriers: u32,
    /// 1 if it is certain that the peer's process is gone. Seen by itself only for processes of this host and PID
    /// namespace; elsewhere see kvffi_peer_declare_gone.
    pub is_gone: i32,
    /// 0.
    pub reserved: u32,
}

// SAFETY: `repr(C)`, 56 bytes without padding, `usize` first, integers and raw pointers only.
unsafe impl Grows for kvffi_peer_info {
    const NAME: &'static str = "kvffi_peer_info";
    const FIRST_SIZE: usize = 56;
}

/// A peer, and its name with a NUL at its end.
#[derive(Debug)]
pub(crate) struct Connected {
    pub(crate) peer: Peer,
    name: CString,
}

impl Class for kvffi_peer {
    type Inner = Connected;
    const KIND: Kind = Kind::PEER;
    const SURVIVES_FORK: bool = false;
}

impl kvffi_peer {
    pub(crate) fn new(peer: Peer) -> *mut Self {
        let name = c_text(peer.name().to_owned());
        handle::into_handle(Connected { peer, name })
    }
}

fn barrier(barrier: &Barrier) -> u32 {
    match barrier {
        Barrier::User => KVFFI_BARRIER_USER,
        Barrier::PidNamespace => KVFFI_BARRIER_PID_NAMESPACE,
        Barrier::IpcNamespace => KVFFI_BARRIER_IPC_NAMESPACE,
        Barrier::UtsNamespace => KVFFI_BARRIER_UTS_NAMESPACE,
        // A newer kvnixl's own.
        _ => 0,
    }
}

fn locality(locality: &Locality) -> (i32, u32) {
    match locality {
        Locality::SameHost => (KVFFI_LOCALITY_SAME_HOST, 0),
        Locality::SameHostApart(barriers) => {
            (KVFFI_LOCALITY_SAME_HOST_APART, barriers.iter().map(barrier).fold(0, |all, one| all | one))
        }
        Locality::OtherHost => (KVFFI_LOCALITY_OTHER_HOST, 0),
        _ => (KVFFI_LOCALITY_UNKNOWN, 0),
    }
}

/// Connects the peer whose blob this is, whoever that is. The same blob again gives the same peer. A later generation of
/// the same process replaces it, and so does a process that started later, or any other if the one that is connected is
/// known to have ended. Some milliseconds. Who knows whose blob it should be says so: kvffi_agent_connect_named.
///
/// blob, blob_len: what kvffi_agent_export gave the peer.
/// out_peer: the peer, to be freed with kvffi_peer_free; NULL if the call fails, and then nothing has changed.
///
/// KVFFI_ERR_BLOB for what is no blob of this version, for the agent's own, and for bytes that were refused lately.
/// KVFFI_ERR_PAIR_REFUSED if the peer serves another model. KVFFI_ERR_STALE_BLOB also for a process that does not take the
/// place of the one that is connected. KVFFI_ERR_OUT_OF_RANGE if its layout and its memory contradict each other.
/// KVFFI_ERR_WRONG_ORDER if no memory is registered. KVFFI_ERR_TRANSPORT. Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_agent_connect(
    agent: *const kvffi_agent,
    blob: *const u8,
    blob_len: usize,
    out_peer: *mut *mut kvffi_peer,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (out_peer, agent) = unsafe { (out_handle(out_peer, "out_peer")?, handle::borrow(agent, "agent")?) };
        // SAFETY: the crate's contract.
        let blob = unsafe { array(blob, blob_len, "blob")? };
        out_peer.set(kvffi_peer::new(agent.agent()?.connect(blob)?));
        Ok(())
    })
}

/// Connects the peer of this name from its blob, as kvffi_agent_connect does. A blob that names another peer, which may be
/// connected, is refused before it is read any further.
///
/// name: the name of the peer's agent; ends with a NUL.
/// blob, blob_len: what kvffi_agent_export gave the peer.
/// out_peer: the peer, to be freed with kvffi_peer_free; NULL if the call fails, and then nothing has changed.
///
/// Errors as for kvffi_agent_connect; KVFFI_ERR_BLOB also for the blob of another peer. Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_agent_connect_named(
    agent: *const kvffi_agent,
    name: *const c_char,
    blob: *const u8,
    blob_len: usize,
    out_peer: *mut *mut kvffi_peer,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (out_peer, agent) = unsafe { (out_handle(out_peer, "out_peer")?, handle::borrow(agent, "agent")?) };
        // SAFETY: the crate's contract.
        let (name, blob) = unsafe { (crate::argument::name(name, "name")?, array(blob, blob_len, "blob")?) };
        out_peer.set(kvffi_peer::new(agent.agent()?.connect_named(name, blob)?));
        Ok(())
    })
}

/// Opens the way to a peer anew, for example after a network failure: an error of a transfer may have closed it for
/// good, though the peer lives. Transfers in progress with it fail, unsettled.
///
/// KVFFI_ERR_PEER_GONE if it is not connected. KVFFI_ERR_TRANSPORT, and then transfers with it fail. Threads: any number
/// at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_agent_reconnect(
    agent: *const kvffi_agent,
    peer: *const kvffi_peer,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (agent, peer) = unsafe { (handle::borrow(agent, "agent")?, handle::borrow(peer, "peer")?) };
        agent.agent()?.reconnect(&peer.peer)?;
        Ok(())
    })
}

/// Lets a peer go. The handle stays, and is still to be freed.
///
/// KVFFI_ERR_IN_USE while a transfer with it has not settled. KVFFI_ERR_PEER_GONE if it is not connected. Threads: any
/// number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_agent_disconnect(
    agent: *const kvffi_agent,
    peer: *const kvffi_peer,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (agent, peer) = unsafe { (handle::borrow(agent, "agent")?, handle::borrow(peer, "peer")?) };
        agent.agent()?.disconnect(&peer.peer)?;
        Ok(())
    })
}

/// Says who a peer is and how it fares.
///
/// out_info: starts as KVFFI_PEER_INFO_INIT. Left alone if the call fails.
///
/// Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_peer_get_info(
    peer: *const kvffi_peer,
    out_info: *mut kvffi_peer_info,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (out_info, connected) = unsafe { (out_struct(out_info, "out_info")?, handle::borrow(peer, "peer")?) };
        let peer = &connected.peer;
        let (locality, barriers) = locality(peer.locality());
        out_info.set(&kvffi_peer_info {
            struct_size: 0,
            name: connected.name.as_ptr(),
            incarnation: peer.incarnation(),
            generation: peer.generation(),
            unsettled: peer.unsettled() as u64,
            locality,
            barriers,
            is_gone: i32::from(peer.is_gone()),
            reserved: 0,
        });
        Ok(())
    })
}

/// Hands out what caches a peer has, to plan against.
///
/// out_spec: the spec, to be freed with kvffi_spec_free; NULL if the call fails.
///
/// Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_peer_get_layout(
    peer: *const kvffi_peer,
    out_spec: *mut *mut kvffi_spec,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (out_spec, peer) = unsafe { (out_handle(out_spec, "out_spec")?, handle::borrow(peer, "peer")?) };
        out_spec.set(handle::into_handle(peer.peer.layout().clone()));
        Ok(())
    })
}

/// Takes the caller's word that a peer's process has ended (its host lost its power, an orchestrator has seen its exit),
/// so that failed transfers with it settle. While the process lives it may write what it was asked to, into memory that
/// is then used for something else.
///
/// Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_peer_declare_gone(
    peer: *const kvffi_peer,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let peer = unsafe { handle::borrow(peer, "peer")? };
        // SAFETY: what the declaration asks of the caller.
        unsafe { peer.peer.declare_gone() };
        Ok(())
    })
}

/// Frees a peer's handle. NULL does nothing. The peer stays connected.
///
/// Threads: no other call may use this handle, then or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_peer_free(peer: *mut kvffi_peer) {
    ffi_value!((), {
        // SAFETY: the crate's contract.
        unsafe { handle::free(peer) }
    })
}
