//! `kvffi_local_plan`: what one worker registers and advertises.

use std::ffi::{CString, c_char};

use kvplan::LocalPlan;

use crate::argument::{copy_out, out, out_handle};
use crate::boundary::{ffi_body, ffi_value};
use crate::error::{c_text, kvffi_error};
use crate::failure::Failure;
use crate::handle::{self, Class, Kind};
use crate::spec::kvffi_spec;
use crate::status::kvffi_status;
use crate::worker::mem_numbers;

/// Of a local plan: fail unless the layers of every pool lie in one row.
pub const KVFFI_LOCAL_PLAN_REQUIRE_WHOLE_ROWS: u32 = 1;

/// What one worker registers and advertises: memory ranges, and regions with their members. Immutable.
///
/// Freed with kvffi_local_plan_free.
#[derive(Debug)]
pub struct kvffi_local_plan {
    _opaque: [u8; 0],
}

/// A storage that is in use, to be registered once, whatever the number of caches in it. Frozen: never grows.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct kvffi_memory_range {
    /// Storage of the spec.
    pub storage: u32,
    /// KVFFI_MEM_DRAM or KVFFI_MEM_VRAM.
    pub mem: i32,
    /// Index of the GPU; 0 for KVFFI_MEM_DRAM.
    pub device: u32,
    /// 0.
    pub reserved: u32,
    /// Address of the first byte.
    pub base: u64,
    /// Length in bytes.
    pub len: u64,
}

/// Equal byte ranges, one for each block: block b lies at offset + b*block_stride. Frozen: never grows.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct kvffi_region {
    /// Storage of the spec.
    pub storage: u32,
    /// 0.
    pub reserved: u32,
    /// Bytes from the storage's base to block 0.
    pub offset: u64,
    /// Bytes of one block.
    pub block_len: u64,
    /// Bytes from one block to the next.
    pub block_stride: u64,
    /// Number of blocks.
    pub num_blocks: u64,
    /// Number of parts that lie in the region.
    pub num_members: u64,
}

/// A part that lies in a region. Frozen: never grows.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct kvffi_member {
    /// Name of the layer; valid until the plan is freed.
    pub layer: *const c_char,
    /// Name of the part; valid until the plan is freed.
    pub part: *const c_char,
    /// Group of the layer.
    pub group: u32,
    /// 0.
    pub reserved: u32,
    /// Bytes from the start of the region's block to the part.
    pub offset: u64,
    /// Bytes of the part in one block.
    pub len: u64,
}

/// A plan, and the names of its members, by region, with a NUL at their ends.
#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) plan: LocalPlan,
    names: Vec<Vec<(CString, CString)>>,
}

impl Class for kvffi_local_plan {
    type Inner = Local;
    const KIND: Kind = Kind::LOCAL_PLAN;
}

/// Plans what a worker registers and advertises.
///
/// flags: any of KVFFI_LOCAL_PLAN_REQUIRE_WHOLE_ROWS, or'ed.
/// out_plan: the plan, to be freed with kvffi_local_plan_free; NULL if the call fails. It does not need the spec any more.
///
/// KVFFI_ERR_ROW_BROKEN names the first layer that broke a row that was required, and why. Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_local_plan_new(
    spec: *const kvffi_spec,
    flags: u32,
    out_plan: *mut *mut kvffi_local_plan,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (out_plan, spec) = unsafe { (out_handle(out_plan, "out_plan")?, handle::borrow(spec, "spec")?) };
        let plan = match flags {
            0 => LocalPlan::new(spec),
            KVFFI_LOCAL_PLAN_REQUIRE_WHOLE_ROWS => LocalPlan::with_whole_rows(spec)?,
            _ => {
                let unknown = flags & !KVFFI_LOCAL_PLAN_REQUIRE_WHOLE_ROWS;
                return Err(Failure::invalid(format!("flags has the unknown bits {unknown:#x}")));
            }
        };
        let name = |member: &kvplan::Member| {
            (c_text(member.layer.as_str().to_owned()), c_text(member.part.as_str().to_owned()))
        };
        let names = plan.regions().iter().map(|region| region.members.iter().map(name).collect()).collect();
        out_plan.set(handle::into_handle(Local { plan, names }));
        Ok(())
    })
}

/// Copies the memory ranges into the caller's array, by storage.
///
/// memory_ranges, capacity: the array; may be NULL if capacity is 0. Nothing is written to it if the call fails.
/// out_len: number of ranges; also written with KVFFI_ERR_BUFFER_TOO_SMALL.
///
/// KVFFI_ERR_BUFFER_TOO_SMALL if capacity is below that number. Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_local_plan_get_memory_ranges(
    plan: *const kvffi_local_plan,
    memory_ranges: *mut kvffi_memory_range,
    capacity: usize,
    out_len: *mut usize,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (out_len, local) = unsafe { (out(out_len, "out_len")?, handle::borrow(plan, "plan")?) };
        let values = local.plan.memory_ranges().iter().map(|range| {
            let (mem, device) = mem_numbers(range.mem);
            kvffi_memory_range { storage: range.storage.0, mem, device, reserved: 0, base: range.base, len: range.len }
        });
        // SAFETY: the crate's contract.
        unsafe { copy_out(values, memory_ranges, capacity, &out_len, "memory_ranges") }
    })
}

/// Copies the regions into the caller's array.
///
/// regions, capacity: the array; may be NULL if capacity is 0. Nothing is written to it if the call fails.
/// out_len: number of regions; also written with KVFFI_ERR_BUFFER_TOO_SMALL.
///
/// KVFFI_ERR_BUFFER_TOO_SMALL if capacity is below that number. Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_local_plan_get_regions(
    plan: *const kvffi_local_plan,
    regions: *mut kvffi_region,
    capacity: usize,
    out_len: *mut usize,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (out_len, local) = unsafe { (out(out_len, "out_len")?, handle::borrow(plan, "plan")?) };
        let values = local.plan.regions().iter().map(|region| kvffi_region {
            storage: region.storage.0,
            reserved: 0,
            offset: region.offset,
            block_len: region.block_len,
            block_stride: region.block_stride,
            num_blocks: region.num_blocks,
            num_members: region.members.len() as u64,
        });
        // SAFETY: the crate's contract.
        unsafe { copy_out(values, regions, capacity, &out_len, "regions") }
    })
}

/// Copies the members of one region into the caller's array.
///
/// region: index of the region, below the number of regions.
/// members, capacity: the array; may be NULL if capacity is 0. Nothing is written to it if the call fails.
/// out_len: number of members; also written with KVFFI_ERR_BUFFER_TOO_SMALL.
///
/// KVFFI_ERR_BUFFER_TOO_SMALL if capacity is below that number. Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_local_plan_get_members(
    plan: *const kvffi_local_plan,
    region: usize,
    members: *mut kvffi_member,
    capacity: usize,
    out_len: *mut usize,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (out_len, local) = unsafe { (out(out_len, "out_len")?, handle::borrow(plan, "plan")?) };
        let (Some(found), Some(names)) = (local.plan.regions().get(region), local.names.get(region)) else {
            let num_regions = local.plan.regions().len();
            return Err(Failure::invalid(format!("region is {region}, the plan has {num_regions} regions")));
        };
        let values = found.members.iter().zip(names).map(|(member, (layer, part))| kvffi_member {
            layer: layer.as_ptr(),
            part: part.as_ptr(),
            group: member.group.0,
            reserved: 0,
            offset: member.offset,
            len: member.len,
        });
        // SAFETY: the crate's contract.
        unsafe { copy_out(values, members, capacity, &out_len, "members") }
    })
}

/// Frees a plan. NULL does nothing.
///
/// Threads: no other call may use this plan, then or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_local_plan_free(plan: *mut kvffi_local_plan) {
    ffi_value!((), {
        // SAFETY: the crate's contract.
        unsafe { handle::free(plan) }
    })
}
