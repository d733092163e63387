//! `kvffi_agent`: one worker's end of all transfers.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use kvnixl::{Agent, Limits, NixlOptions};

use crate::argument::{array, name, optional_name, out_handle};
use crate::boundary::{ffi_body, ffi_value};
use crate::bytes::kvffi_bytes;
use crate::error::{c_text, kvffi_error};
use crate::failure::Failure;
use crate::handle::{self, Class, Kind};
use crate::limits::{kvffi_limits, read_limits};
use crate::local_plan::kvffi_local_plan;
use crate::loopback::kvffi_loopback;
use crate::options::{self, Grows, out_struct};
use crate::process;
use crate::status::{KVFFI_ERR_IN_USE, KVFFI_ERR_SHUT_DOWN, kvffi_status};
use crate::worker::{kvffi_key_value, reserved};

/// Of an agent: NIXL's progress thread never sleeps. A whole core, for the shortest delays.
pub const KVFFI_AGENT_SPIN: u32 = 1;

/// One worker's end of all transfers: registered memory, connected peers, transfers, notifications. It has a thread that
/// posts, and NIXL has threads of its own.
///
/// Freed with kvffi_agent_free.
#[derive(Debug)]
pub struct kvffi_agent {
    _opaque: [u8; 0],
}

/// How an agent is set up. Starts as KVFFI_AGENT_OPTIONS_INIT; 0 is the default of every field.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct kvffi_agent_options {
    /// Size of this struct.
    pub struct_size: usize,
    /// A network within this process; NULL for NIXL. With a loopback only limits counts of the other fields.
    pub loopback: *const kvffi_loopback,
    /// libnixl_capi.so, or the folder that holds it; ends with a NUL. NULL searches: the environment variable
    /// KVNIXL_LIBRARY, the dynamic loader, /opt/nvidia/nvda_nixl, installed NIXL Python wheels.
    pub library: *const c_char,
    /// NIXL's plugin that moves the bytes; ends with a NUL. NULL for "UCX".
    pub backend: *const c_char,
    /// Parameters of the plugin, for example num_threads; may be NULL if num_backend_params is 0.
    pub backend_params: *const kvffi_key_value,
    /// Number of parameters.
    pub num_backend_params: usize,
    /// How long NIXL's progress thread sleeps between two looks, in microseconds. 0 for 2000. See KVFFI_AGENT_SPIN.
    pub progress_delay_us: u64,
    /// Any of KVFFI_AGENT_SPIN, or'ed.
    pub flags: u32,
    /// 0.
    pub reserved: u32,
    /// Bounds; NULL for the defaults.
    pub limits: *const kvffi_limits,
}

// SAFETY: `repr(C)`, 72 bytes without padding, `usize` first, integers and raw pointers only.
unsafe impl Grows for kvffi_agent_options {
    const NAME: &'static str = "kvffi_agent_options";
    const FIRST_SIZE: usize = 72;
}

/// What an agent is called, and what it has under way. Starts as KVFFI_AGENT_INFO_INIT.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct kvffi_agent_info {
    /// Size of this struct.
    pub struct_size: usize,
    /// The agent's name; valid until the agent is freed.
    pub name: *const c_char,
    /// Random number of this agent: another one under the same name is another agent.
    pub incarnation: u64,
    /// Counts registrations: 0 before the first.
    pub generation: u64,
    /// Transfers that have not settled, whether in progress, failed or freed. Their blocks are in use.
    pub unsettled: u64,
}

// SAFETY: `repr(C)`, 40 bytes without padding, `usize` first, integers and raw pointers only.
unsafe impl Grows for kvffi_agent_info {
    const NAME: &'static str = "kvffi_agent_info";
    const FIRST_SIZE: usize = 40;
}

/// An agent until it is shut down, and what outlives that.
#[derive(Debug)]
pub(crate) struct Handle {
    agent: RwLock<Option<Arc<Agent>>>,
    name: CString,
    pub(crate) limits: Limits,
}

impl Class for kvffi_agent {
    type Inner = Handle;
    const KIND: Kind = Kind::AGENT;
    const SURVIVES_FORK: bool = false;
}

impl Handle {
    /// The agent, unless it was shut down.
    pub(crate) fn agent(&self) -> Result<Arc<Agent>, Failure> {
        let agent = self.agent.read().unwrap_or_else(PoisonError::into_inner);
        agent.clone().ok_or_else(|| self.shut_down())
    }

    fn shut_down(&self) -> Failure {
        Failure::new(KVFFI_ERR_SHUT_DOWN, format!("agent {} has been shut down", self.name.to_string_lossy()))
    }

    /// Takes the agent, if nobody else uses it.
    fn take(&self) -> Result<Agent, Failure> {
        let mut slot = self.agent.write().unwrap_or_else(PoisonError::into_inner);
        match slot.take().map(Arc::try_unwrap) {
            Some(Ok(agent)) => Ok(agent),
            Some(Err(shared)) => {
                *slot = Some(shared);
                Err(Failure::new(
                    KVFFI_ERR_IN_USE,
                    format!(
                        "agent {} is used by another call or by an exchange; end the call, free the exchange",
                        self.name.to_string_lossy()
                    ),
                ))
            }
            None => Err(self.shut_down()),
        }
    }
}

/// # Safety
///
/// `options` is NULL or as [`options::read`] and its fields say.
unsafe fn new_agent(agent: &str, options: *const kvffi_agent_options) -> Result<(Agent, Limits), Failure> {
    if options.is_null() {
        return Ok((Agent::nixl(agent, &NixlOptions::default(), Limits::default())?, Limits::default()));
    }
    // SAFETY: by contract.
    let options = unsafe { options::read(options, "options")? };
    let unknown = options.flags & !KVFFI_AGENT_SPIN;
    if unknown != 0 {
        return Err(Failure::invalid(format!("options->flags has the unknown bits {unknown:#x}")));
    }
    reserved(options.reserved, "options->reserved")?;
    // SAFETY: by contract.
    let limits = unsafe { read_limits(options.limits, Limits::default(), "options->limits")? };
    // SAFETY: by contract.
    let nixl = unsafe { nixl_options(&options)? };
    if options.loopback.is_null() {
        return Ok((Agent::nixl(agent, &nixl, limits)?, limits));
    }
    // SAFETY: by contract.
    let network = unsafe { handle::borrow(options.loopback, "options->loopback")? };
    Ok((Agent::loopback(agent, network, limits)?, limits))
}

/// # Safety
///
/// The pointers are as the fields say.
unsafe fn nixl_options(options: &kvffi_agent_options) -> Result<NixlOptions, Failure> {
    let mut nixl = NixlOptions::default();
    // SAFETY: by contract.
    let (library, backend, params) = unsafe {
        (
            optional_name(options.library, "options->library")?,
            optional_name(options.backend, "options->backend")?,
            array(options.backend_params, options.num_backend_params, "options->backend_params")?,
        )
    };
    nixl.library = library.map(PathBuf::from);
    if let Some(backend) = backend {
        nixl.backend = backend.to_owned();
    }
    let mut backend_params = BTreeMap::new();
    for (i, param) in params.iter().enumerate() {
        let (key, value) = (format!("options->backend_params[{i}].key"), format!("options->backend_params[{i}].value"));
        // SAFETY: by contract.
        let (key, value) = unsafe { (name(param.key, &key)?, name(param.value, &value)?) };
        if backend_params.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(Failure::invalid(format!("options->backend_params has the key {key:?} twice")));
        }
    }
    nixl.backend_params = backend_params;
    match (options.flags & KVFFI_AGENT_SPIN != 0, options.progress_delay_us) {
        (true, 0) => nixl.progress_delay = Duration::ZERO,
        (true, delay) => {
            return Err(Failure::invalid(format!(
                "options->progress_delay_us is {delay} with KVFFI_AGENT_SPIN; set one of the two"
            )));
        }
        (false, 0) => {}
        (false, delay) => nixl.progress_delay = Duration::from_micros(delay),
    }
    Ok(nixl)
}

/// Makes an agent. Loads NIXL unless it has a loopback; 20 to 200 ms.
///
/// name: 1 to 128 printable ASCII characters without @; ends with a NUL. It need not be unique over restarts: an agent
/// also has a random incarnation.
/// options: NULL for the defaults.
/// out_agent: the agent, to be freed with kvffi_agent_free; NULL if the call fails.
///
/// KVFFI_ERR_NO_LIBRARY lists where NIXL was looked for. KVFFI_ERR_TRANSPORT if NIXL refuses the agent or its plugin.
/// KVFFI_ERR_INVALID_ARGUMENT for a name that cannot be used. KVFFI_ERR_FORKED on NIXL in a child whose parent had made an
/// agent on NIXL before the fork. Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_agent_new(
    name: *const c_char,
    options: *const kvffi_agent_options,
    out_agent: *mut *mut kvffi_agent,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    process::is_linked();
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (out_agent, name) = unsafe { (out_handle(out_agent, "out_agent")?, crate::argument::name(name, "name")?) };
        // SAFETY: the crate's contract.
        let (agent, limits) = unsafe { new_agent(name, options)? };
        let agent = RwLock::new(Some(Arc::new(agent)));
        out_agent.set(handle::into_handle(Handle { agent, name: c_text(name.to_owned()), limits }));
        Ok(())
    })
}

/// Says what an agent is called and what it has under way.
///
/// out_info: starts as KVFFI_AGENT_INFO_INIT. Left alone if the call fails.
///
/// KVFFI_ERR_SHUT_DOWN after kvffi_agent_shutdown. Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_agent_get_info(
    agent: *const kvffi_agent,
    out_info: *mut kvffi_agent_info,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (out_info, handle) = unsafe { (out_struct(out_info, "out_info")?, handle::borrow(agent, "agent")?) };
        let agent = handle.agent()?;
        out_info.set(&kvffi_agent_info {
            struct_size: 0,
            name: handle.name.as_ptr(),
            incarnation: agent.incarnation(),
            generation: agent.generation(),
            unsettled: agent.unsettled() as u64,
        });
        Ok(())
    })
}

/// Registers the memory ranges of a local plan, once: kvffi_agent_reregister changes them, and kvffi_agent_deregister
/// allows another time.
///
/// The memory must stay mapped, with pages that exist or can be made (what lies in a sparse file on a full tmpfs may
/// silently not be moved), and this process and its peers may read and write it through transfers, until
/// kvffi_agent_deregister or kvffi_agent_shutdown has succeeded, or kvffi_agent_reregister has taken it away, and no peer
/// that has connected may still use it: deregistration revokes nothing. After KVFFI_ERR_LEFT_UNSETTLED it must stay mapped
/// for ever.
///
/// Host memory has to be mapped readable and writable, all of it, also where it is only read: the kernel's list of mappings
/// is looked at, and the error names the storage and the first page that is not. Device memory is not looked at.
///
/// plan: not needed any more after the call.
///
/// KVFFI_ERR_WRONG_ORDER if memory is registered already. KVFFI_ERR_NO_DEVICE, KVFFI_ERR_OUT_OF_RANGE,
/// KVFFI_ERR_TRANSPORT; nothing is registered then. Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_agent_register(
    agent: *const kvffi_agent,
    plan: *const kvffi_local_plan,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (agent, plan) = unsafe { (handle::borrow(agent, "agent")?, handle::borrow(plan, "plan")?) };
        // SAFETY: what the declaration asks of the caller.
        unsafe { agent.agent()?.register(&plan.plan)? };
        Ok(())
    })
}

/// Puts another local plan in the place of the one that is registered: storages are added and taken away, and what both
/// plans have is left alone, with the transfers and peers that use it. A storage that has grown in place is registered for
/// what is new of it.
///
/// Descriptors and answers name storages by the spec that they were planned with: plan again for what starts from now on.
/// Peers learn of it when they connect again, by a new blob, whose generation is higher; an exchange tells them by
/// kvffi_exchange_registered. Until then they use what they know, also of what was taken away: that must stay mapped until
/// no peer that has connected may still use it. Otherwise memory is as for kvffi_agent_register.
///
/// plan: of the fingerprint that is registered; not needed any more after the call.
///
/// KVFFI_ERR_IN_USE while a transfer that has not settled uses memory that the plan has not, or a storage that has shrunk.
/// KVFFI_ERR_WRONG_ORDER if nothing is registered. KVFFI_ERR_PAIR_REFUSED for another fingerprint. KVFFI_ERR_NO_DEVICE,
/// KVFFI_ERR_OUT_OF_RANGE, KVFFI_ERR_TRANSPORT. What was registered is so still if the call fails. Threads: any number at
/// once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_agent_reregister(
    agent: *const kvffi_agent,
    plan: *const kvffi_local_plan,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (agent, plan) = unsafe { (handle::borrow(agent, "agent")?, handle::borrow(plan, "plan")?) };
        // SAFETY: what the declaration asks of the caller.
        unsafe { agent.agent()?.reregister(&plan.plan)? };
        Ok(())
    })
}

/// Deregisters all memory. Peers that have connected can still reach it until they are told: NIXL revokes nothing.
///
/// KVFFI_ERR_IN_USE while a transfer has not settled. KVFFI_ERR_WRONG_ORDER if nothing is registered. Threads: any
/// number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_agent_deregister(
    agent: *const kvffi_agent,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        unsafe { handle::borrow(agent, "agent")? }.agent()?.deregister()?;
        Ok(())
    })
}

/// Writes the blob that peers connect to: who this is, its layout and how to reach its memory. Send it to them over a
/// channel of the engine's own. Whoever has it can read and write the registered memory.
///
/// out_blob: the blob, to be freed with kvffi_bytes_free; NULL if the call fails.
///
/// KVFFI_ERR_WRONG_ORDER if no memory is registered. KVFFI_ERR_TRANSPORT, KVFFI_ERR_BLOB. Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_agent_export(
    agent: *const kvffi_agent,
    out_blob: *mut *mut kvffi_bytes,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (out_blob, agent) = unsafe { (out_handle(out_blob, "out_blob")?, handle::borrow(agent, "agent")?) };
        out_blob.set(kvffi_bytes::new(agent.agent()?.export()?));
        Ok(())
    })
}

/// Ends an agent: nothing more is posted, what is in progress may settle for timeout_ms, then memory is deregistered.
/// Blocks for that long at most. Later calls on the agent get KVFFI_ERR_SHUT_DOWN.
///
/// KVFFI_ERR_LEFT_UNSETTLED if transfers have not settled: then the agent has ended too, but its memory stays registered
/// and must stay mapped, and unused, for the rest of the process. KVFFI_ERR_IN_USE if another call or an exchange uses
/// the agent; nothing has happened then. Threads: any number at once; of several calls one ends it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_agent_shutdown(
    agent: *const kvffi_agent,
    timeout_ms: u64,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let agent = unsafe { handle::borrow(agent, "agent")? }.take()?;
        agent.shutdown(Duration::from_millis(timeout_ms))?;
        Ok(())
    })
}

/// Frees an agent. NULL does nothing. One that was not shut down is: what is in progress may settle for a second. An
/// exchange keeps it alive until the exchange is freed. Only kvffi_agent_shutdown says whether its memory may be unmapped.
///
/// Threads: no other call may use this agent, then or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_agent_free(agent: *mut kvffi_agent) {
    ffi_value!((), {
        // SAFETY: the crate's contract.
        unsafe { handle::free(agent) }
    })
}
