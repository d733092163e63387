//! `kvffi_worker`, `kvffi_storage`, `kvffi_group`: plain structs that specs are built from.

use std::collections::BTreeMap;
use std::ffi::c_char;

use kvspec::{ContextShard, Fingerprint, Group, MemKind, PoolId, Shard, Storage, Topology, Usage};

use crate::argument::{array, name, optional_name};
use crate::failure::Failure;
use crate::options::{self, Grows};

/// Memory of the host. The default.
pub const KVFFI_MEM_DRAM: i32 = 0;
/// Memory of the GPU whose index is given with it.
pub const KVFFI_MEM_VRAM: i32 = 1;

/// Of a storage: several TP ranks map the same physical memory; only TP rank 0 registers and fills it.
pub const KVFFI_STORAGE_SHARED: u32 = 1;

/// A block of a group holds consecutive tokens of a sequence. The default.
pub const KVFFI_USAGE_TOKENS: i32 = 0;
/// A block of a group holds one request's state.
pub const KVFFI_USAGE_STATE: i32 = 1;

/// A key and its value. Frozen: never grows.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct kvffi_key_value {
    /// Ends with a NUL.
    pub key: *const c_char,
    /// Ends with a NUL.
    pub value: *const c_char,
}

/// Which model a worker serves, and its ranks. Starts as KVFFI_WORKER_INIT. A size of 0 means 1.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct kvffi_worker {
    /// Size of this struct.
    pub struct_size: usize,
    /// Model name; peers must have the same. Ends with a NUL.
    pub model: *const c_char,
    /// Model revision; peers must have the same. Ends with a NUL; NULL for none.
    pub revision: *const c_char,
    /// What else peers must have alike, such as the attention backend; may be NULL if num_extra is 0.
    pub extra: *const kvffi_key_value,
    /// Number of extra pairs.
    pub num_extra: usize,
    /// Tensor parallelism: this worker's rank.
    pub tp_rank: u32,
    /// Tensor parallelism: number of ranks.
    pub tp_size: u32,
    /// Pipeline parallelism: this worker's stage.
    pub pp_rank: u32,
    /// Pipeline parallelism: number of stages.
    pub pp_size: u32,
    /// Decode context parallelism: tp_rank mod dcp_size.
    pub dcp_rank: u32,
    /// Decode context parallelism: number of ranks, divides tp_size.
    pub dcp_size: u32,
    /// Decode context parallelism: tokens that are dealt together, divides every block_tokens. 0 deals whole blocks.
    pub dcp_interleave: u64,
}

// SAFETY: `repr(C)`, 72 bytes without padding, `usize` first, integers and raw pointers only.
unsafe impl Grows for kvffi_worker {
    const NAME: &'static str = "kvffi_worker";
    const FIRST_SIZE: usize = 72;
}

/// One allocation. Starts as KVFFI_STORAGE_INIT.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct kvffi_storage {
    /// Size of this struct.
    pub struct_size: usize,
    /// Address of the first byte.
    pub base: u64,
    /// Length in bytes.
    pub len: u64,
    /// KVFFI_MEM_DRAM or KVFFI_MEM_VRAM.
    pub mem: i32,
    /// Index of the GPU; 0 for KVFFI_MEM_DRAM.
    pub device: u32,
    /// Any of KVFFI_STORAGE_SHARED, or'ed.
    pub flags: u32,
    /// 0.
    pub reserved: u32,
}

// SAFETY: `repr(C)`, 40 bytes without padding, `usize` first, integers only.
unsafe impl Grows for kvffi_storage {
    const NAME: &'static str = "kvffi_storage";
    const FIRST_SIZE: usize = 40;
}

/// Layers that share a block table. Starts as KVFFI_GROUP_INIT.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct kvffi_group {
    /// Size of this struct.
    pub struct_size: usize,
    /// Tokens in a block; ignored for KVFFI_USAGE_STATE.
    pub block_tokens: u64,
    /// Number of blocks, at most UINT32_MAX.
    pub num_blocks: u64,
    /// The set of block ids that the group draws from: groups of one pool may overlay each other's bytes,
    /// where their ids are equal.
    pub pool: u32,
    /// KVFFI_USAGE_TOKENS or KVFFI_USAGE_STATE.
    pub usage: i32,
}

// SAFETY: `repr(C)`, 32 bytes without padding, `usize` first, integers only.
unsafe impl Grows for kvffi_group {
    const NAME: &'static str = "kvffi_group";
    const FIRST_SIZE: usize = 32;
}

/// # Safety
///
/// `worker` is NULL or as [`options::read`] and its fields say.
pub(crate) unsafe fn read_worker(worker: *const kvffi_worker) -> Result<(Fingerprint, Topology), Failure> {
    // SAFETY: by contract.
    let worker = unsafe { options::read(worker, "worker")? };
    // SAFETY: by contract.
    let (model, revision, pairs) = unsafe {
        (
            name(worker.model, "worker->model")?,
            optional_name(worker.revision, "worker->revision")?,
            array(worker.extra, worker.num_extra, "worker->extra")?,
        )
    };
    let mut extra = BTreeMap::new();
    for (i, pair) in pairs.iter().enumerate() {
        // SAFETY: by contract.
        let (key, value) = unsafe {
            (
                name(pair.key, &format!("worker->extra[{i}].key"))?,
                name(pair.value, &format!("worker->extra[{i}].value"))?,
            )
        };
        if extra.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(Failure::invalid(format!("worker->extra has the key {key:?} twice")));
        }
    }
    let fingerprint = Fingerprint { model: model.to_owned(), revision: revision.unwrap_or_default().to_owned(), extra };
    let shard = |rank, size: u32| Shard { rank, size: size.max(1) };
    let dcp = shard(worker.dcp_rank, worker.dcp_size);
    let interleave = (worker.dcp_interleave != 0).then_some(worker.dcp_interleave);
    let topology = Topology {
        tp: shard(worker.tp_rank, worker.tp_size),
        pp: shard(worker.pp_rank, worker.pp_size),
        dcp: ContextShard { rank: dcp.rank, size: dcp.size, interleave },
    };
    Ok((fingerprint, topology))
}

/// # Safety
///
/// As for [`options::read`].
pub(crate) unsafe fn read_storage(storage: *const kvffi_storage) -> Result<Storage, Failure> {
    // SAFETY: by contract.
    let storage = unsafe { options::read(storage, "storage")? };
    let unknown = storage.flags & !KVFFI_STORAGE_SHARED;
    if unknown != 0 {
        return Err(Failure::invalid(format!("storage->flags has the unknown bits {unknown:#x}")));
    }
    reserved(storage.reserved, "storage->reserved")?;
    Ok(Storage {
        base: storage.base,
        len: storage.len,
        mem: mem(storage.mem, storage.device, "storage")?,
        shared: storage.flags & KVFFI_STORAGE_SHARED != 0,
    })
}

/// # Safety
///
/// As for [`options::read`].
pub(crate) unsafe fn read_group(group: *const kvffi_group) -> Result<Group, Failure> {
    // SAFETY: by contract.
    let group = unsafe { options::read(group, "group")? };
    let usage = usage(group.usage, "group->usage")?;
    Ok(Group { pool: PoolId(group.pool), block_tokens: group.block_tokens, num_blocks: group.num_blocks, usage })
}

/// What a block holds, from a number.
pub(crate) fn usage(value: i32, argument: &str) -> Result<Usage, Failure> {
    match value {
        KVFFI_USAGE_TOKENS => Ok(Usage::Tokens),
        KVFFI_USAGE_STATE => Ok(Usage::State),
        other => Err(Failure::invalid(format!(
            "{argument} is {other}, expected KVFFI_USAGE_TOKENS (0) or KVFFI_USAGE_STATE (1)"
        ))),
    }
}

/// Kind of memory from two numbers.
pub(crate) fn mem(mem: i32, device: u32, argument: &str) -> Result<MemKind, Failure> {
    match (mem, device) {
        (KVFFI_MEM_DRAM, 0) => Ok(MemKind::Dram),
        (KVFFI_MEM_DRAM, device) => {
            Err(Failure::invalid(format!("{argument}->device is {device}, expected 0 for KVFFI_MEM_DRAM")))
        }
        (KVFFI_MEM_VRAM, device) => Ok(MemKind::Vram(device)),
        (other, _) => Err(Failure::invalid(format!(
            "{argument}->mem is {other}, expected KVFFI_MEM_DRAM (0) or KVFFI_MEM_VRAM (1)"
        ))),
    }
}

/// The two numbers of a kind of memory.
pub(crate) fn mem_numbers(mem: MemKind) -> (i32, u32) {
    match mem {
        MemKind::Dram => (KVFFI_MEM_DRAM, 0),
        MemKind::Vram(device) => (KVFFI_MEM_VRAM, device),
    }
}

pub(crate) fn reserved(value: u32, argument: &str) -> Result<(), Failure> {
    if value == 0 { Ok(()) } else { Err(Failure::invalid(format!("{argument} is {value}, expected 0"))) }
}
