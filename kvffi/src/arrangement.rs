//! `kvffi_arrangement`: where to put caches, for engines that ask.

use std::sync::Mutex;

use kvspec::{Arrange, Blocks, Fingerprint, Layout, Pool, Topology, Usage};

use crate::argument::{array, copy_out, out, out_handle, out_optional};
use crate::boundary::{ffi_body, ffi_value};
use crate::error::kvffi_error;
use crate::failure::Failure;
use crate::handle::{self, Class, Kind};
use crate::options::{self, Grows};
use crate::page::{kvffi_page_layer, read_page_layer};
use crate::spec::kvffi_spec;
use crate::spec_builder::next_index;
use crate::status::kvffi_status;
use crate::worker::{KVFFI_STORAGE_SHARED, kvffi_worker, mem, read_worker, reserved, usage};

/// Physical order of the axes layer (L), block (B), KV head (H), token (N) and content (C), outermost first.
pub const KVFFI_LAYOUT_LBHNC: i32 = 1;
/// Layer, block, token, head.
pub const KVFFI_LAYOUT_LBNHC: i32 = 2;
/// Layer, head, block, token: each head has memory of its own.
pub const KVFFI_LAYOUT_LHBNC: i32 = 3;
/// Block, layer, head, token: all layers' pages of a block make one row.
pub const KVFFI_LAYOUT_BLHNC: i32 = 4;
/// Block, layer, token, head: rows.
pub const KVFFI_LAYOUT_BLNHC: i32 = 5;
/// Block, head, layer, token: rows in which a head's pages of all layers lie together.
pub const KVFFI_LAYOUT_BHLNC: i32 = 6;

/// One set of block ids over memory of its own. Starts as KVFFI_POOL_INIT.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct kvffi_pool {
    /// Size of this struct.
    pub struct_size: usize,
    /// KVFFI_LAYOUT_...; there is no default.
    pub layout: i32,
    /// KVFFI_MEM_DRAM or KVFFI_MEM_VRAM.
    pub mem: i32,
    /// Index of the GPU; 0 for KVFFI_MEM_DRAM.
    pub device: u32,
    /// Any of KVFFI_STORAGE_SHARED, or'ed.
    pub flags: u32,
    /// Number of blocks.
    pub num_blocks: u64,
    /// Rows are padded to a multiple of so many bytes; 0 means 1.
    pub row_align: u64,
    /// Each layer's page is padded to a multiple of so many bytes; 0 means 1.
    pub page_align: u64,
}

// SAFETY: `repr(C)`, 48 bytes without padding, `usize` first, integers only.
unsafe impl Grows for kvffi_pool {
    const NAME: &'static str = "kvffi_pool";
    const FIRST_SIZE: usize = 48;
}

/// Layers of a pool that share a block table. Starts as KVFFI_BLOCKS_INIT.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct kvffi_blocks {
    /// Size of this struct.
    pub struct_size: usize,
    /// Tokens in a block; ignored for KVFFI_USAGE_STATE.
    pub block_tokens: u64,
    /// Splits each block into pages of so many tokens, which is what kernels see; 0 does not split.
    pub kernel_tokens: u64,
    /// KVFFI_USAGE_TOKENS or KVFFI_USAGE_STATE.
    pub usage: i32,
    /// 0.
    pub reserved: u32,
}

// SAFETY: `repr(C)`, 32 bytes without padding, `usize` first, integers only.
unsafe impl Grows for kvffi_blocks {
    const NAME: &'static str = "kvffi_blocks";
    const FIRST_SIZE: usize = 32;
}

/// Pools, groups and layers that are to be given places. Takes one call at a time.
///
/// Freed with kvffi_arrangement_free.
#[derive(Debug)]
pub struct kvffi_arrangement {
    _opaque: [u8; 0],
}

#[derive(Debug)]
pub(crate) struct Arrangement {
    fingerprint: Fingerprint,
    topology: Topology,
    /// A pool and the number of groups before its own.
    pools: Vec<(Pool, usize)>,
    groups: Vec<Blocks>,
}

impl Class for kvffi_arrangement {
    type Inner = Mutex<Arrangement>;
    const KIND: Kind = Kind::ARRANGEMENT;
}

impl Arrangement {
    fn build(&self) -> Result<kvspec::Arranged, Failure> {
        let mut arrange = Arrange::new(self.fingerprint.clone(), self.topology);
        let ends = self.pools.iter().skip(1).map(|(_, first)| *first).chain([self.groups.len()]);
        for ((pool, first), end) in self.pools.iter().zip(ends) {
            let groups = self.groups.get(*first..end).unwrap_or_default();
            arrange = arrange.pool(groups.iter().cloned().fold(pool.clone(), Pool::blocks));
        }
        Ok(arrange.build()?)
    }
}

fn layout(value: i32) -> Result<Layout, Failure> {
    Ok(match value {
        KVFFI_LAYOUT_LBHNC => Layout::Lbhnc,
        KVFFI_LAYOUT_LBNHC => Layout::Lbnhc,
        KVFFI_LAYOUT_LHBNC => Layout::Lhbnc,
        KVFFI_LAYOUT_BLHNC => Layout::Blhnc,
        KVFFI_LAYOUT_BLNHC => Layout::Blnhc,
        KVFFI_LAYOUT_BHLNC => Layout::Bhlnc,
        other => return Err(Failure::invalid(format!("pool->layout is {other}, expected a KVFFI_LAYOUT_ (1 to 6)"))),
    })
}

/// # Safety
///
/// As for [`options::read`].
unsafe fn read_pool(pool: *const kvffi_pool) -> Result<Pool, Failure> {
    // SAFETY: by contract.
    let raw = unsafe { options::read(pool, "pool")? };
    let unknown = raw.flags & !KVFFI_STORAGE_SHARED;
    if unknown != 0 {
        return Err(Failure::invalid(format!("pool->flags has the unknown bits {unknown:#x}")));
    }
    let pool = Pool::new(layout(raw.layout)?, raw.num_blocks)
        .mem(mem(raw.mem, raw.device, "pool")?)
        .row_align(raw.row_align.max(1))
        .page_align(raw.page_align.max(1));
    Ok(if raw.flags & KVFFI_STORAGE_SHARED != 0 { pool.shared() } else { pool })
}

/// # Safety
///
/// As for [`options::read`].
unsafe fn read_blocks(blocks: *const kvffi_blocks) -> Result<Blocks, Failure> {
    // SAFETY: by contract.
    let raw = unsafe { options::read(blocks, "blocks")? };
    reserved(raw.reserved, "blocks->reserved")?;
    let blocks = match usage(raw.usage, "blocks->usage")? {
        Usage::Tokens => Blocks::tokens(raw.block_tokens),
        Usage::State => Blocks::state(),
    };
    Ok(if raw.kernel_tokens == 0 { blocks } else { blocks.kernel_tokens(raw.kernel_tokens) })
}

/// Begins an arrangement.
///
/// worker: model and ranks; borrowed for the call.
/// out_arrangement: the arrangement, to be freed with kvffi_arrangement_free; NULL if the call fails.
///
/// Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_arrangement_new(
    worker: *const kvffi_worker,
    out_arrangement: *mut *mut kvffi_arrangement,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let out_arrangement = unsafe { out_handle(out_arrangement, "out_arrangement")? };
        // SAFETY: the crate's contract.
        let (fingerprint, topology) = unsafe { read_worker(worker)? };
        let empty = Arrangement { fingerprint, topology, pools: Vec::new(), groups: Vec::new() };
        out_arrangement.set(handle::into_handle(Mutex::new(empty)));
        Ok(())
    })
}

/// Adds a pool; its groups follow with kvffi_arrangement_add_group.
///
/// Threads: one at a time on one arrangement, a second call gets KVFFI_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_arrangement_add_pool(
    arrangement: *mut kvffi_arrangement,
    pool: *const kvffi_pool,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (arrangement, pool) = unsafe { (handle::borrow(arrangement, "arrangement")?, read_pool(pool)?) };
        let mut arrangement = handle::lock(arrangement, "arrangement")?;
        let first_group = arrangement.groups.len();
        arrangement.pools.push((pool, first_group));
        Ok(())
    })
}

/// Adds a group to the pool that was added last.
///
/// out_group: its index, for kvffi_page_layer.group and kvffi_block_list.group; may be NULL.
///
/// KVFFI_ERR_INVALID_ARGUMENT if there is no pool yet. Threads: one at a time on one arrangement, a second call gets
/// KVFFI_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_arrangement_add_group(
    arrangement: *mut kvffi_arrangement,
    blocks: *const kvffi_blocks,
    out_group: *mut u32,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (out_group, arrangement) =
            unsafe { (out_optional(out_group, "out_group")?, handle::borrow(arrangement, "arrangement")?) };
        // SAFETY: the crate's contract.
        let blocks = unsafe { read_blocks(blocks)? };
        let mut arrangement = handle::lock(arrangement, "arrangement")?;
        if arrangement.pools.is_empty() {
            return Err(Failure::invalid("arrangement has no pool yet; call kvffi_arrangement_add_pool first"));
        }
        let index = next_index(arrangement.groups.len(), "groups")?;
        arrangement.groups.push(blocks);
        if let Some(out) = out_group {
            out.set(index);
        }
        Ok(())
    })
}

/// Adds a layer to a group.
///
/// layer: its group is an index that kvffi_arrangement_add_group returned.
///
/// Threads: one at a time on one arrangement, a second call gets KVFFI_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_arrangement_add_layer(
    arrangement: *mut kvffi_arrangement,
    layer: *const kvffi_page_layer,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (arrangement, layer) = unsafe { (handle::borrow(arrangement, "arrangement")?, read_page_layer(layer)?) };
        let mut arrangement = handle::lock(arrangement, "arrangement")?;
        let num_groups = arrangement.groups.len();
        let group = usize::try_from(layer.group).ok().and_then(|group| arrangement.groups.get_mut(group));
        let Some(group) = group else {
            let given = layer.group;
            return Err(Failure::invalid(format!("layer->group is {given}, the arrangement has {num_groups} groups")));
        };
        let blocks = std::mem::replace(group, Blocks::state());
        *group = match layer.transfer {
            true => blocks.layer_as(layer.name, layer.page, layer.role),
            false => blocks.layer_that_stays(layer.name, layer.page, layer.role),
        };
        Ok(())
    })
}

/// Says how many bytes to allocate for each storage.
///
/// lens, capacity: the array; may be NULL if capacity is 0. Nothing is written to it if the call fails.
/// out_len: number of storages; also written with KVFFI_ERR_BUFFER_TOO_SMALL.
///
/// KVFFI_ERR_BUFFER_TOO_SMALL if capacity is below that number. KVFFI_ERR_INVALID_SPEC if the layers cannot be placed.
/// Threads: one at a time on one arrangement, a second call gets KVFFI_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_arrangement_get_storage_lens(
    arrangement: *const kvffi_arrangement,
    lens: *mut u64,
    capacity: usize,
    out_len: *mut usize,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (out_len, arrangement) = unsafe { (out(out_len, "out_len")?, handle::borrow(arrangement, "arrangement")?) };
        let storage_lens = handle::lock(arrangement, "arrangement")?.build()?.storage_lens();
        // SAFETY: the crate's contract.
        unsafe { copy_out(storage_lens.into_iter(), lens, capacity, &out_len, "lens") }
    })
}

/// Makes a spec of the arrangement, with the storages at their addresses. The arrangement stays as it is.
///
/// bases, num_bases: address of each storage, as many as kvffi_arrangement_get_storage_lens says.
/// out_spec: the spec, to be freed with kvffi_spec_free; NULL if the call fails.
///
/// KVFFI_ERR_INVALID_SPEC if the layers cannot be placed, the number of addresses is wrong, or the spec is not valid.
/// Threads: one at a time on one arrangement, a second call gets KVFFI_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_arrangement_build(
    arrangement: *const kvffi_arrangement,
    bases: *const u64,
    num_bases: usize,
    out_spec: *mut *mut kvffi_spec,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let out_spec = unsafe { out_handle(out_spec, "out_spec")? };
        // SAFETY: the crate's contract.
        let (arrangement, bases) =
            unsafe { (handle::borrow(arrangement, "arrangement")?, array(bases, num_bases, "bases")?) };
        let spec = handle::lock(arrangement, "arrangement")?.build()?.at(bases)?;
        out_spec.set(handle::into_handle(spec.validate()?));
        Ok(())
    })
}

/// Frees an arrangement. NULL does nothing.
///
/// Threads: no other call may use this arrangement, then or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_arrangement_free(arrangement: *mut kvffi_arrangement) {
    ffi_value!((), {
        // SAFETY: the crate's contract.
        unsafe { handle::free(arrangement) }
    })
}
