//! `kvffi_spec_builder`: a spec from its storages, groups, layers and parts.

use std::ffi::c_char;
use std::sync::Mutex;

use kvspec::{
    Axis, CacheSpec, GroupId, Kind as LayerKind, Layer, Part, Role, SPEC_VERSION, Sharding, StorageIndex,
    TokensPerState,
};

use crate::argument::{array, name, optional_name, out_handle, out_optional};
use crate::boundary::{ffi_body, ffi_value};
use crate::error::kvffi_error;
use crate::failure::Failure;
use crate::handle::{self, Class, Kind};
use crate::options::{self, Grows};
use crate::spec::kvffi_spec;
use crate::status::{KVFFI_ERR_TOO_LARGE, kvffi_status};
use crate::worker::{kvffi_group, kvffi_storage, kvffi_worker, read_group, read_storage, read_worker};

/// Kind of a layer: bytes that the library does not interpret. The default. Kinds are names for people, never compared.
pub const KVFFI_KIND_OPAQUE: i32 = 0;
/// Kind of a layer: full attention, that is MHA, GQA or MQA.
pub const KVFFI_KIND_ATTENTION: i32 = 1;
/// Kind of a layer: attention over a window of the latest tokens.
pub const KVFFI_KIND_SLIDING_WINDOW: i32 = 2;
/// Kind of a layer: attention within chunks of the sequence.
pub const KVFFI_KIND_CHUNKED_LOCAL: i32 = 3;
/// Kind of a layer: multi-head latent attention.
pub const KVFFI_KIND_MLA: i32 = 4;
/// Kind of a layer: multi-head latent attention over a window.
pub const KVFFI_KIND_SLIDING_WINDOW_MLA: i32 = 5;
/// Kind of a layer: index cache of a sparse-attention layer.
pub const KVFFI_KIND_INDEXER: i32 = 6;
/// Kind of a layer: one ring a request.
pub const KVFFI_KIND_CIRCULAR_BUFFER: i32 = 7;
/// Kind of a layer: state-space or linear-attention state.
pub const KVFFI_KIND_SSM: i32 = 8;

/// Role of a layer: the model itself. The default. Roles are names for people, never compared.
pub const KVFFI_ROLE_TARGET: i32 = 0;
/// Role of a layer: the speculative-decoding model.
pub const KVFFI_ROLE_DRAFT: i32 = 1;
/// Role of a layer: an indexer of the target.
pub const KVFFI_ROLE_INDEXER: i32 = 2;
/// Role of a layer: engine-private.
pub const KVFFI_ROLE_SCRATCH: i32 = 3;

/// Of a layer: it does not travel. It still owns its bytes.
pub const KVFFI_LAYER_STAYS: u32 = 1;

/// A part has the same bytes on every TP rank. The default.
pub const KVFFI_SHARDING_REPLICATED: i32 = 0;
/// A part's units are shared out over the TP ranks by the standard rule: rank r of n owns the units from r*total/n to
/// (r+1)*total/n, rounded down; with more ranks than units, the one unit r*total/n.
pub const KVFFI_SHARDING_STANDARD: i32 = 1;
/// A part's units are shared out by a rule of the engine's own: this rank has the units from first_unit on.
pub const KVFFI_SHARDING_EXPLICIT: i32 = 2;

/// count positions, stride bytes apart. Frozen: never grows.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct kvffi_axis {
    /// Number of positions, at least 1.
    pub count: u64,
    /// Bytes from one position to the next.
    pub stride: u64,
}

/// One layer. Starts as KVFFI_LAYER_INIT.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct kvffi_layer {
    /// Size of this struct.
    pub struct_size: usize,
    /// Name, unique in the spec: layers of two workers meet by it. Ends with a NUL.
    pub name: *const c_char,
    /// The group whose block table addresses the layer.
    pub group: u32,
    /// KVFFI_KIND_...
    pub kind: i32,
    /// KVFFI_ROLE_...
    pub role: i32,
    /// Any of KVFFI_LAYER_STAYS, or'ed.
    pub flags: u32,
}

// SAFETY: `repr(C)`, 32 bytes without padding, `usize` first, integers and raw pointers only.
unsafe impl Grows for kvffi_layer {
    const NAME: &'static str = "kvffi_layer";
    const FIRST_SIZE: usize = 32;
}

/// The smallest named piece of a layer's page that has one sharding. Starts as KVFFI_PART_INIT.
///
/// The address of (block, unit, token indices, byte) is
///
///     storage base + offset + block*block_stride + unit*unit_stride + sum of token[i]*tokens[i].stride + byte
///
/// with 0 <= byte < content. Units are KV heads, SSM heads or convolution channels.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct kvffi_part {
    /// Size of this struct.
    pub struct_size: usize,
    /// Name, unique in the layer: "latent", "k", "v", "k_scale", "index", ... Ends with a NUL.
    pub name: *const c_char,
    /// What the bytes mean, such as "bf16"; peers must have the same. Ends with a NUL; NULL for none.
    pub format: *const c_char,
    /// The storage that the part lies in.
    pub storage: u32,
    /// KVFFI_SHARDING_...
    pub sharding: i32,
    /// Bytes from the storage's base to block 0, unit 0, token 0.
    pub offset: u64,
    /// Bytes from one block to the next.
    pub block_stride: u64,
    /// Units of the whole model; 0 for KVFFI_SHARDING_REPLICATED.
    pub total_units: u64,
    /// First unit of this rank; 0 unless the sharding is KVFFI_SHARDING_EXPLICIT.
    pub first_unit: u64,
    /// Units that this rank holds; 0 means 1.
    pub num_units: u64,
    /// Bytes from one unit to the next.
    pub unit_stride: u64,
    /// Stored states of a block, outermost factor first; may be NULL if num_tokens is 0, which means one state.
    pub tokens: *const kvffi_axis,
    /// Number of token axes.
    pub num_tokens: usize,
    /// Contiguous bytes of one (block, unit, token) cell, at least 1.
    pub content: u64,
    /// Tokens that one stored state covers, as a fraction: numerator; 0 means 1.
    pub tokens_per_state_num: u64,
    /// Its denominator; 0 means 1.
    pub tokens_per_state_den: u64,
}

// SAFETY: `repr(C)`, 120 bytes without padding, `usize` first, integers and raw pointers only.
unsafe impl Grows for kvffi_part {
    const NAME: &'static str = "kvffi_part";
    const FIRST_SIZE: usize = 120;
}

/// A spec in the making. Takes one call at a time.
///
/// Freed with kvffi_spec_builder_free, also after kvffi_spec_builder_build.
#[derive(Debug)]
pub struct kvffi_spec_builder {
    _opaque: [u8; 0],
}

impl Class for kvffi_spec_builder {
    type Inner = Mutex<CacheSpec>;
    const KIND: Kind = Kind::SPEC_BUILDER;
}

/// What a number from C stands for, or an error that names the values there are.
pub(crate) fn layer_kind(kind: i32) -> Result<LayerKind, Failure> {
    Ok(match kind {
        KVFFI_KIND_OPAQUE => LayerKind::Opaque,
        KVFFI_KIND_ATTENTION => LayerKind::Attention,
        KVFFI_KIND_SLIDING_WINDOW => LayerKind::SlidingWindow,
        KVFFI_KIND_CHUNKED_LOCAL => LayerKind::ChunkedLocal,
        KVFFI_KIND_MLA => LayerKind::Mla,
        KVFFI_KIND_SLIDING_WINDOW_MLA => LayerKind::SlidingWindowMla,
        KVFFI_KIND_INDEXER => LayerKind::Indexer,
        KVFFI_KIND_CIRCULAR_BUFFER => LayerKind::CircularBuffer,
        KVFFI_KIND_SSM => LayerKind::Ssm,
        other => return Err(Failure::invalid(format!("layer->kind is {other}, expected a KVFFI_KIND_ (0 to 8)"))),
    })
}

/// As [`layer_kind`].
pub(crate) fn layer_role(role: i32) -> Result<Role, Failure> {
    Ok(match role {
        KVFFI_ROLE_TARGET => Role::Target,
        KVFFI_ROLE_DRAFT => Role::Draft,
        KVFFI_ROLE_INDEXER => Role::Indexer,
        KVFFI_ROLE_SCRATCH => Role::Scratch,
        other => return Err(Failure::invalid(format!("layer->role is {other}, expected a KVFFI_ROLE_ (0 to 3)"))),
    })
}

/// Whether the layer travels.
pub(crate) fn layer_transfer(flags: u32) -> Result<bool, Failure> {
    let unknown = flags & !KVFFI_LAYER_STAYS;
    if unknown != 0 {
        return Err(Failure::invalid(format!("layer->flags has the unknown bits {unknown:#x}")));
    }
    Ok(flags & KVFFI_LAYER_STAYS == 0)
}

/// A fraction whose 0 means 1.
pub(crate) fn tokens_per_state(num: u64, den: u64) -> TokensPerState {
    TokensPerState { num: num.max(1), den: den.max(1) }
}

/// # Safety
///
/// `layer` is NULL or as [`options::read`] and its fields say.
unsafe fn read_layer(layer: *const kvffi_layer) -> Result<Layer, Failure> {
    // SAFETY: by contract.
    let layer = unsafe { options::read(layer, "layer")? };
    Ok(Layer {
        // SAFETY: by contract.
        name: unsafe { name(layer.name, "layer->name")? }.into(),
        group: GroupId(layer.group),
        kind: layer_kind(layer.kind)?,
        role: layer_role(layer.role)?,
        transfer: layer_transfer(layer.flags)?,
        parts: Vec::new(),
    })
}

/// # Safety
///
/// `part` is NULL or as [`options::read`] and its fields say.
unsafe fn read_part(part: *const kvffi_part) -> Result<Part, Failure> {
    // SAFETY: by contract.
    let part = unsafe { options::read(part, "part")? };
    // SAFETY: by contract.
    let (name, format, tokens) = unsafe {
        (
            name(part.name, "part->name")?,
            optional_name(part.format, "part->format")?,
            array(part.tokens, part.num_tokens, "part->tokens")?,
        )
    };
    let zero = |value: u64, field: &str| {
        if value == 0 {
            return Ok(());
        }
        Err(Failure::invalid(format!("part->{field} is {value}, expected 0 with part->sharding {}", part.sharding)))
    };
    let total = part.total_units;
    let sharding = match part.sharding {
        KVFFI_SHARDING_REPLICATED => {
            zero(total, "total_units")?;
            zero(part.first_unit, "first_unit")?;
            Sharding::Replicated
        }
        KVFFI_SHARDING_STANDARD => {
            zero(part.first_unit, "first_unit")?;
            Sharding::Sharded { total, first: None }
        }
        KVFFI_SHARDING_EXPLICIT => Sharding::Sharded { total, first: Some(part.first_unit) },
        other => {
            return Err(Failure::invalid(format!("part->sharding is {other}, expected a KVFFI_SHARDING_ (0 to 2)")));
        }
    };
    Ok(Part {
        name: name.into(),
        storage: StorageIndex(part.storage),
        offset: part.offset,
        block_stride: part.block_stride,
        sharding,
        units: Axis { count: part.num_units.max(1), stride: part.unit_stride },
        tokens: tokens.iter().map(|axis| Axis { count: axis.count, stride: axis.stride }).collect(),
        content: part.content,
        tokens_per_state: tokens_per_state(part.tokens_per_state_num, part.tokens_per_state_den),
        format: format.unwrap_or_default().to_owned(),
    })
}

/// Index of the element that is about to be added.
pub(crate) fn next_index(len: usize, what: &str) -> Result<u32, Failure> {
    let too_many = |_| Failure::new(KVFFI_ERR_TOO_LARGE, format!("a spec has at most {} {what}", u32::MAX));
    u32::try_from(len).map_err(too_many)
}

/// Begins a spec.
///
/// worker: model and ranks; borrowed for the call.
/// out_builder: the builder, to be freed with kvffi_spec_builder_free; NULL if the call fails.
///
/// Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_spec_builder_new(
    worker: *const kvffi_worker,
    out_builder: *mut *mut kvffi_spec_builder,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let out_builder = unsafe { out_handle(out_builder, "out_builder")? };
        // SAFETY: the crate's contract.
        let (fingerprint, topology) = unsafe { read_worker(worker)? };
        let (storages, groups, layers) = (Vec::new(), Vec::new(), Vec::new());
        let spec = CacheSpec { version: SPEC_VERSION, fingerprint, topology, storages, groups, layers };
        out_builder.set(handle::into_handle(Mutex::new(spec)));
        Ok(())
    })
}

/// Adds an allocation.
///
/// out_storage: its index, for kvffi_part.storage; may be NULL.
///
/// Threads: one at a time on one builder, a second call gets KVFFI_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_spec_builder_add_storage(
    builder: *mut kvffi_spec_builder,
    storage: *const kvffi_storage,
    out_storage: *mut u32,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (out_storage, builder) =
            unsafe { (out_optional(out_storage, "out_storage")?, handle::borrow(builder, "builder")?) };
        // SAFETY: the crate's contract.
        let storage = unsafe { read_storage(storage)? };
        let mut spec = handle::lock(builder, "builder")?;
        let index = next_index(spec.storages.len(), "storages")?;
        spec.storages.push(storage);
        if let Some(out) = out_storage {
            out.set(index);
        }
        Ok(())
    })
}

/// Adds a block table.
///
/// out_group: its index, for kvffi_layer.group and kvffi_block_list.group; may be NULL.
///
/// Threads: one at a time on one builder, a second call gets KVFFI_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_spec_builder_add_group(
    builder: *mut kvffi_spec_builder,
    group: *const kvffi_group,
    out_group: *mut u32,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (out_group, builder) =
            unsafe { (out_optional(out_group, "out_group")?, handle::borrow(builder, "builder")?) };
        // SAFETY: the crate's contract.
        let group = unsafe { read_group(group)? };
        let mut spec = handle::lock(builder, "builder")?;
        let index = next_index(spec.groups.len(), "groups")?;
        spec.groups.push(group);
        if let Some(out) = out_group {
            out.set(index);
        }
        Ok(())
    })
}

/// Adds a layer, as yet without parts.
///
/// out_layer: its index, for kvffi_spec_builder_add_part; may be NULL.
///
/// Threads: one at a time on one builder, a second call gets KVFFI_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_spec_builder_add_layer(
    builder: *mut kvffi_spec_builder,
    layer: *const kvffi_layer,
    out_layer: *mut u32,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (out_layer, builder) =
            unsafe { (out_optional(out_layer, "out_layer")?, handle::borrow(builder, "builder")?) };
        // SAFETY: the crate's contract.
        let layer = unsafe { read_layer(layer)? };
        let mut spec = handle::lock(builder, "builder")?;
        let index = next_index(spec.layers.len(), "layers")?;
        spec.layers.push(layer);
        if let Some(out) = out_layer {
            out.set(index);
        }
        Ok(())
    })
}

/// Adds a part to a layer.
///
/// layer: an index that kvffi_spec_builder_add_layer returned.
///
/// Threads: one at a time on one builder, a second call gets KVFFI_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_spec_builder_add_part(
    builder: *mut kvffi_spec_builder,
    layer: u32,
    part: *const kvffi_part,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let builder = unsafe { handle::borrow(builder, "builder")? };
        // SAFETY: the crate's contract.
        let part = unsafe { read_part(part)? };
        let mut spec = handle::lock(builder, "builder")?;
        let num_layers = spec.layers.len();
        let Some(layer) = usize::try_from(layer).ok().and_then(|layer| spec.layers.get_mut(layer)) else {
            return Err(Failure::invalid(format!("layer is {layer}, the builder has {num_layers} layers")));
        };
        layer.parts.push(part);
        Ok(())
    })
}

/// Validates what was added and makes a spec of it. The builder stays as it is.
///
/// out_spec: the spec, to be freed with kvffi_spec_free; NULL if the call fails.
///
/// KVFFI_ERR_INVALID_SPEC has everything that is wrong with the spec, one finding each. Threads: one at a time on one
/// builder, a second call gets KVFFI_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_spec_builder_build(
    builder: *const kvffi_spec_builder,
    out_spec: *mut *mut kvffi_spec,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (out_spec, builder) = unsafe { (out_handle(out_spec, "out_spec")?, handle::borrow(builder, "builder")?) };
        let spec = handle::lock(builder, "builder")?.clone();
        out_spec.set(handle::into_handle(spec.validate()?));
        Ok(())
    })
}

/// Frees a builder. NULL does nothing.
///
/// Threads: no other call may use this builder, then or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_spec_builder_free(builder: *mut kvffi_spec_builder) {
    ffi_value!((), {
        // SAFETY: the crate's contract.
        unsafe { handle::free(builder) }
    })
}
