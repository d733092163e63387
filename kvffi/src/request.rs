//! `kvffi_request`: which blocks to move, and of which layers.

use std::ffi::c_char;

use kvplan::{Align, BlockList, Layers, Request};
use kvspec::{BlockId, GroupId};

use crate::argument::{array, name};
use crate::failure::Failure;
use crate::options::{self, Grows};
use crate::pair::op;

/// As a block id: a hole, nothing is stored there.
pub const KVFFI_BLOCK_HOLE: u32 = u32::MAX;

/// As a flag of a request: only the layers that `layers` names. All others stay as they are.
pub const KVFFI_REQUEST_LAYERS: u32 = 1;
/// As a flag of a request: only the layers from_layer up to, not including, to_layer, by their indices in the local spec.
pub const KVFFI_REQUEST_LAYER_RANGE: u32 = 2;

/// As a flag of a request: lists whose first is 0 begin at the start of the sequence, whatever their lengths.
pub const KVFFI_REQUEST_ALIGN_HEAD: u32 = 4;
/// As a flag of a request: lists whose first is 0 end with the prompt. Of two that meet one is the whole prompt, or has a
/// first that is not 0; refused where that does not tell where the other begins.
pub const KVFFI_REQUEST_ALIGN_TAIL: u32 = 8;

const KNOWN_FLAGS: u32 =
    KVFFI_REQUEST_LAYERS | KVFFI_REQUEST_LAYER_RANGE | KVFFI_REQUEST_ALIGN_HEAD | KVFFI_REQUEST_ALIGN_TAIL;

/// Blocks of one group on one side, in the order of the sequence. Frozen: never grows.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct kvffi_block_list {
    /// Group of that side's spec.
    pub group: u32,
    /// 0.
    pub reserved: u32,
    /// List index of the first of the blocks, in blocks of that group on that side: a prefix hit starts late. 0 says
    /// nothing: if both of two lists that meet have 0 they are whole prompts, of as many blocks as one prompt fills on
    /// either side, or the request says how they are aligned.
    pub first: u64,
    /// Block ids, KVFFI_BLOCK_HOLE for a hole; may be NULL if num_blocks is 0.
    pub blocks: *const u32,
    /// Number of blocks.
    pub num_blocks: usize,
}

/// What to move between the two workers of a pair. Starts as KVFFI_REQUEST_INIT.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct kvffi_request {
    /// Size of this struct.
    pub struct_size: usize,
    /// KVFFI_OP_READ or KVFFI_OP_WRITE; must be the plan's.
    pub op: i32,
    /// KVFFI_REQUEST_LAYERS or KVFFI_REQUEST_LAYER_RANGE for some layers, KVFFI_REQUEST_ALIGN_HEAD or
    /// KVFFI_REQUEST_ALIGN_TAIL for lists whose lengths differ; or'ed.
    pub flags: u32,
    /// Lists of this worker's groups, at most one a group; may be NULL if num_local is 0.
    pub local: *const kvffi_block_list,
    /// Number of local lists.
    pub num_local: usize,
    /// Lists of the peer's groups, at most one a group; may be NULL if num_remote is 0.
    pub remote: *const kvffi_block_list,
    /// Number of remote lists.
    pub num_remote: usize,
    /// With KVFFI_REQUEST_LAYERS: names of layers that either spec lists, each of which ends with a NUL; may be NULL if
    /// num_layers is 0.
    pub layers: *const *const c_char,
    /// Number of names; 0 without KVFFI_REQUEST_LAYERS.
    pub num_layers: usize,
    /// With KVFFI_REQUEST_LAYER_RANGE: index of the first layer; 0 without.
    pub from_layer: u32,
    /// Index behind the last layer; 0 without KVFFI_REQUEST_LAYER_RANGE.
    pub to_layer: u32,
}

// SAFETY: `repr(C)`, 72 bytes without padding, `usize` first, integers and raw pointers only.
unsafe impl Grows for kvffi_request {
    const NAME: &'static str = "kvffi_request";
    const FIRST_SIZE: usize = 48;
}

/// Copies a request from C into one that is used again and again.
///
/// # Safety
///
/// `request` is NULL or as [`options::read`] and its fields say.
pub(crate) unsafe fn read_into(request: *const kvffi_request, into: &mut Request) -> Result<(), Failure> {
    // SAFETY: by contract.
    let request = unsafe { options::read(request, "request")? };
    into.op = op(request.op, "request->op")?;
    let unknown = request.flags & !KNOWN_FLAGS;
    if unknown != 0 {
        return Err(Failure::invalid(format!("request->flags has the unknown bits {unknown:#x}")));
    }
    into.align = align(request.flags)?;
    // SAFETY: by contract.
    into.layers = unsafe { layers(&request)? };
    // SAFETY: by contract.
    unsafe {
        read_lists(request.local, request.num_local, "request->local", &mut into.local)?;
        read_lists(request.remote, request.num_remote, "request->remote", &mut into.remote)
    }
}

fn align(flags: u32) -> Result<Option<Align>, Failure> {
    match (flags & KVFFI_REQUEST_ALIGN_HEAD != 0, flags & KVFFI_REQUEST_ALIGN_TAIL != 0) {
        (false, false) => Ok(None),
        (true, false) => Ok(Some(Align::Head)),
        (false, true) => Ok(Some(Align::Tail)),
        (true, true) => Err(Failure::invalid(
            "request->flags has both KVFFI_REQUEST_ALIGN_HEAD and KVFFI_REQUEST_ALIGN_TAIL; give one of the two",
        )),
    }
}

/// # Safety
///
/// The names of `request` are as its fields say.
unsafe fn layers(request: &kvffi_request) -> Result<Layers, Failure> {
    let (named, ranged) = (request.flags & KVFFI_REQUEST_LAYERS != 0, request.flags & KVFFI_REQUEST_LAYER_RANGE != 0);
    if named && ranged {
        let both = "request->flags has both KVFFI_REQUEST_LAYERS and KVFFI_REQUEST_LAYER_RANGE; give one of the two";
        return Err(Failure::invalid(both));
    }
    if !named && (request.num_layers != 0 || !request.layers.is_null()) {
        return Err(Failure::invalid("request->layers is set, and request->flags lacks KVFFI_REQUEST_LAYERS"));
    }
    if !ranged && (request.from_layer, request.to_layer) != (0, 0) {
        let lacks = "request->from_layer or to_layer is set, and request->flags lacks KVFFI_REQUEST_LAYER_RANGE";
        return Err(Failure::invalid(lacks));
    }
    if ranged {
        return Ok(Layers::Range(request.from_layer..request.to_layer));
    }
    if !named {
        return Ok(Layers::All);
    }
    // SAFETY: by contract.
    let names = unsafe { array(request.layers, request.num_layers, "request->layers")? };
    // SAFETY: by contract.
    let named =
        |(i, &text): (usize, &*const c_char)| unsafe { name(text, &format!("request->layers[{i}]")) }.map(Into::into);
    names.iter().enumerate().map(named).collect::<Result<_, _>>().map(Layers::Named)
}

/// # Safety
///
/// `lists` is NULL or readable for `len` lists, whose `blocks` are NULL or readable for `num_blocks` ids.
pub(crate) unsafe fn read_lists(
    lists: *const kvffi_block_list,
    len: usize,
    argument: &str,
    into: &mut Vec<BlockList>,
) -> Result<(), Failure> {
    // SAFETY: by contract.
    let lists = unsafe { array(lists, len, argument)? };
    into.truncate(lists.len());
    for (i, list) in lists.iter().enumerate() {
        if list.reserved != 0 {
            return Err(Failure::invalid(format!("{argument}[{i}].reserved is {}, expected 0", list.reserved)));
        }
        // SAFETY: by contract.
        let blocks = unsafe { array(list.blocks, list.num_blocks, &format!("{argument}[{i}].blocks"))? };
        if i == into.len() {
            into.push(BlockList { group: GroupId(0), first: None, blocks: Vec::new() });
        }
        let Some(entry) = into.get_mut(i) else { continue };
        entry.group = GroupId(list.group);
        entry.first = (list.first > 0).then_some(list.first);
        entry.blocks.clear();
        entry.blocks.extend(blocks.iter().map(|&block| BlockId(block)));
    }
    Ok(())
}

/// An empty request.
pub(crate) fn empty() -> Request {
    Request::default()
}
