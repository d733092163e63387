//! `kvffi_tensors`: a spec from the tensors that an engine has.

use std::ffi::c_char;
use std::sync::Mutex;

use kvspec::{Fingerprint, FromTensors, Group, GroupId, LayerTensors, PartName, Storage, Tensor, Topology};

use crate::argument::{array, name, out_handle, out_optional};
use crate::boundary::{ffi_body, ffi_value};
use crate::error::kvffi_error;
use crate::failure::Failure;
use crate::handle::{self, Class, Kind};
use crate::options::{self, Grows};
use crate::page::{kvffi_page_layer, read_page_layer};
use crate::spec::kvffi_spec;
use crate::spec_builder::next_index;
use crate::status::kvffi_status;
use crate::worker::{kvffi_group, kvffi_storage, kvffi_worker, mem, read_group, read_storage, read_worker, reserved};

/// Of a tensor: its parts lie one behind the other on the axis H, as the projections of a convolution state do, and not
/// in the content of a row.
pub const KVFFI_TENSOR_SIDE_BY_SIDE: u32 = 1;

/// A tensor, as data_ptr(), shape and stride() say, with a label for every axis. Starts as KVFFI_TENSOR_INIT.
///
/// Labels: B block; H unit (KV head, SSM head, channel); N token or state in the block, several times if it is split;
/// C content; 2 the tensor's two parts, K then V; 1 an axis of extent 1 that means nothing. Example: "BNC" for an MLA
/// cache of [num_blocks, block_tokens, 576].
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct kvffi_tensor {
    /// Size of this struct.
    pub struct_size: usize,
    /// Address of the first element.
    pub ptr: u64,
    /// Extent of each axis, num_axes of them.
    pub shape: *const u64,
    /// Bytes from one position to the next on each axis, num_axes of them.
    pub strides: *const i64,
    /// Number of axes.
    pub num_axes: usize,
    /// A label for each axis, num_axes of them. Ends with a NUL.
    pub axes: *const c_char,
    /// Bytes of an element.
    pub element_size: u64,
    /// Names of the parts that the tensor holds, in order, each of which ends with a NUL. With num_parts of 0, all parts of
    /// the layer that no other tensor names.
    pub parts: *const *const c_char,
    /// Number of names.
    pub num_parts: usize,
    /// KVFFI_MEM_DRAM or KVFFI_MEM_VRAM.
    pub mem: i32,
    /// Index of the GPU; 0 for KVFFI_MEM_DRAM.
    pub device: u32,
    /// Any of KVFFI_TENSOR_SIDE_BY_SIDE, or'ed.
    pub flags: u32,
    /// 0.
    pub reserved: u32,
}

// SAFETY: `repr(C)`, 88 bytes without padding, `usize` first, integers and raw pointers only.
unsafe impl Grows for kvffi_tensor {
    const NAME: &'static str = "kvffi_tensor";
    const FIRST_SIZE: usize = 88;
}

/// An engine's layers with the tensors that hold them. Takes one call at a time.
///
/// Freed with kvffi_tensors_free.
#[derive(Debug)]
pub struct kvffi_tensors {
    _opaque: [u8; 0],
}

#[derive(Debug)]
pub(crate) struct Tensors {
    fingerprint: Fingerprint,
    topology: Topology,
    storages: Vec<Storage>,
    groups: Vec<Group>,
    layers: Vec<LayerTensors>,
}

impl Class for kvffi_tensors {
    type Inner = Mutex<Tensors>;
    const KIND: Kind = Kind::TENSORS;
}

impl Tensors {
    fn build(&self) -> Result<kvspec::CacheSpec, Failure> {
        let from = FromTensors::new(self.fingerprint.clone(), self.topology);
        let from = self.storages.iter().copied().fold(from, FromTensors::storage);
        let from = self.groups.iter().copied().fold(from, FromTensors::group);
        Ok(self.layers.iter().cloned().fold(from, FromTensors::layer).build()?)
    }
}

/// # Safety
///
/// `tensor` is NULL or as [`options::read`] and its fields say.
unsafe fn read_tensor(tensor: *const kvffi_tensor) -> Result<Tensor, Failure> {
    // SAFETY: by contract.
    let raw = unsafe { options::read(tensor, "tensor")? };
    let unknown = raw.flags & !KVFFI_TENSOR_SIDE_BY_SIDE;
    if unknown != 0 {
        return Err(Failure::invalid(format!("tensor->flags has the unknown bits {unknown:#x}")));
    }
    reserved(raw.reserved, "tensor->reserved")?;
    // SAFETY: by contract.
    let (shape, strides, axes) = unsafe {
        (
            array(raw.shape, raw.num_axes, "tensor->shape")?,
            array(raw.strides, raw.num_axes, "tensor->strides")?,
            name(raw.axes, "tensor->axes")?,
        )
    };
    let mut parts: Vec<PartName> = Vec::new();
    // SAFETY: by contract.
    for (i, part) in unsafe { array(raw.parts, raw.num_parts, "tensor->parts")? }.iter().enumerate() {
        // SAFETY: by contract.
        parts.push(unsafe { name(*part, &format!("tensor->parts[{i}]"))? }.into());
    }
    let tensor = Tensor::new(raw.ptr, shape, strides, raw.element_size, axes)
        .mem(mem(raw.mem, raw.device, "tensor")?)
        .holds(parts);
    Ok(if raw.flags & KVFFI_TENSOR_SIDE_BY_SIDE != 0 { tensor.side_by_side() } else { tensor })
}

/// Begins a description by tensors.
///
/// worker: model and ranks; borrowed for the call.
/// out_tensors: the description, to be freed with kvffi_tensors_free; NULL if the call fails.
///
/// Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_tensors_new(
    worker: *const kvffi_worker,
    out_tensors: *mut *mut kvffi_tensors,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let out_tensors = unsafe { out_handle(out_tensors, "out_tensors")? };
        // SAFETY: the crate's contract.
        let (fingerprint, topology) = unsafe { read_worker(worker)? };
        let (storages, groups, layers) = (Vec::new(), Vec::new(), Vec::new());
        out_tensors.set(handle::into_handle(Mutex::new(Tensors { fingerprint, topology, storages, groups, layers })));
        Ok(())
    })
}

/// Adds an allocation. With none, allocations are found: tensors of the same memory that overlap or touch are taken for
/// one. Give them where that may join what was allocated apart.
///
/// Threads: one at a time on one description, a second call gets KVFFI_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_tensors_add_storage(
    tensors: *mut kvffi_tensors,
    storage: *const kvffi_storage,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (tensors, storage) = unsafe { (handle::borrow(tensors, "tensors")?, read_storage(storage)?) };
        handle::lock(tensors, "tensors")?.storages.push(storage);
        Ok(())
    })
}

/// Adds a block table.
///
/// out_group: its index, for kvffi_page_layer.group and kvffi_block_list.group; may be NULL.
///
/// Threads: one at a time on one description, a second call gets KVFFI_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_tensors_add_group(
    tensors: *mut kvffi_tensors,
    group: *const kvffi_group,
    out_group: *mut u32,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (out_group, tensors) =
            unsafe { (out_optional(out_group, "out_group")?, handle::borrow(tensors, "tensors")?) };
        // SAFETY: the crate's contract.
        let group = unsafe { read_group(group)? };
        let mut tensors = handle::lock(tensors, "tensors")?;
        let index = next_index(tensors.groups.len(), "groups")?;
        tensors.groups.push(group);
        if let Some(out) = out_group {
            out.set(index);
        }
        Ok(())
    })
}

/// Adds a layer, as yet without tensors.
///
/// out_layer: its index, for kvffi_tensors_add_tensor; may be NULL.
///
/// Threads: one at a time on one description, a second call gets KVFFI_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_tensors_add_layer(
    tensors: *mut kvffi_tensors,
    layer: *const kvffi_page_layer,
    out_layer: *mut u32,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (out_layer, tensors) =
            unsafe { (out_optional(out_layer, "out_layer")?, handle::borrow(tensors, "tensors")?) };
        // SAFETY: the crate's contract.
        let layer = unsafe { read_page_layer(layer)? };
        let mut tensors = handle::lock(tensors, "tensors")?;
        let index = next_index(tensors.layers.len(), "layers")?;
        let added = LayerTensors::new(layer.name, GroupId(layer.group), layer.page).role(layer.role);
        tensors.layers.push(if layer.transfer { added } else { added.stays() });
        if let Some(out) = out_layer {
            out.set(index);
        }
        Ok(())
    })
}

/// Adds a tensor to a layer.
///
/// layer: an index that kvffi_tensors_add_layer returned.
///
/// What the tensor contradicts is found by kvffi_tensors_build. Threads: one at a time on one description, a second call
/// gets KVFFI_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_tensors_add_tensor(
    tensors: *mut kvffi_tensors,
    layer: u32,
    tensor: *const kvffi_tensor,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (tensors, tensor) = unsafe { (handle::borrow(tensors, "tensors")?, read_tensor(tensor)?) };
        let mut tensors = handle::lock(tensors, "tensors")?;
        let num_layers = tensors.layers.len();
        let Some(slot) = usize::try_from(layer).ok().and_then(|layer| tensors.layers.get_mut(layer)) else {
            return Err(Failure::invalid(format!("layer is {layer}, the description has {num_layers} layers")));
        };
        *slot = slot.clone().tensor(tensor);
        Ok(())
    })
}

/// Makes a spec of the tensors and validates it. The description stays as it is.
///
/// out_spec: the spec, to be freed with kvffi_spec_free; NULL if the call fails.
///
/// KVFFI_ERR_INVALID_SPEC if a tensor contradicts the page of its layer, or the spec is not valid. Threads: one at a time
/// on one description, a second call gets KVFFI_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_tensors_build(
    tensors: *const kvffi_tensors,
    out_spec: *mut *mut kvffi_spec,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (out_spec, tensors) = unsafe { (out_handle(out_spec, "out_spec")?, handle::borrow(tensors, "tensors")?) };
        let spec = handle::lock(tensors, "tensors")?.build()?;
        out_spec.set(handle::into_handle(spec.validate()?));
        Ok(())
    })
}

/// Frees a description. NULL does nothing.
///
/// Threads: no other call may use this description, then or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_tensors_free(tensors: *mut kvffi_tensors) {
    ffi_value!((), {
        // SAFETY: the crate's contract.
        unsafe { handle::free(tensors) }
    })
}
