"""Constants, structs and functions of kvffi.h, for ctypes.

Written by tools/declarations.py. Do not edit it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import (
    c_char_p,
    c_int32,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any

from ._checked import CHECKED, Growing, Struct

# A pointer to anything but a text: None, an address, `byref(...)`, an array or a handle.
Pointer = Any


KVFFI_OK = 0
KVFFI_IN_PROGRESS = 1
KVFFI_ERR_PANIC = (-1)
KVFFI_ERR_NULL = (-2)
KVFFI_ERR_WRONG_HANDLE = (-3)
KVFFI_ERR_STRUCT_SIZE = (-4)
KVFFI_ERR_INVALID_ARGUMENT = (-5)
KVFFI_ERR_NOT_UTF8 = (-6)
KVFFI_ERR_TOO_LARGE = (-7)
KVFFI_ERR_BUFFER_TOO_SMALL = (-8)
KVFFI_ERR_BUSY = (-9)
KVFFI_ERR_VERSION = (-10)
KVFFI_ERR_JSON = (-11)
KVFFI_ERR_INVALID_SPEC = (-12)
KVFFI_ERR_PAIR_REFUSED = (-13)
KVFFI_ERR_REQUEST_REFUSED = (-14)
KVFFI_ERR_ROW_BROKEN = (-15)
KVFFI_ERR_NOT_PROVEN = (-16)
KVFFI_VERSION_MAJOR = 0
KVFFI_VERSION_MINOR = 1
KVFFI_VERSION_PATCH = 0
KVFFI_VERSION = (((KVFFI_VERSION_MAJOR << 16) | (KVFFI_VERSION_MINOR << 8)) | KVFFI_VERSION_PATCH)
KVFFI_MEM_DRAM = 0
KVFFI_MEM_VRAM = 1
KVFFI_STORAGE_SHARED = 1
KVFFI_USAGE_TOKENS = 0
KVFFI_USAGE_STATE = 1
KVFFI_KIND_OPAQUE = 0
KVFFI_KIND_ATTENTION = 1
KVFFI_KIND_SLIDING_WINDOW = 2
KVFFI_KIND_CHUNKED_LOCAL = 3
KVFFI_KIND_MLA = 4
KVFFI_KIND_SLIDING_WINDOW_MLA = 5
KVFFI_KIND_INDEXER = 6
KVFFI_KIND_CIRCULAR_BUFFER = 7
KVFFI_KIND_SSM = 8
KVFFI_ROLE_TARGET = 0
KVFFI_ROLE_DRAFT = 1
KVFFI_ROLE_INDEXER = 2
KVFFI_ROLE_SCRATCH = 3
KVFFI_LAYER_STAYS = 1
KVFFI_SHARDING_REPLICATED = 0
KVFFI_SHARDING_STANDARD = 1
KVFFI_SHARDING_EXPLICIT = 2
KVFFI_ELEMENT_DEFAULT = 0
KVFFI_ELEMENT_F32 = 1
KVFFI_ELEMENT_F16 = 2
KVFFI_ELEMENT_BF16 = 3
KVFFI_ELEMENT_FP8_E4M3 = 4
KVFFI_ELEMENT_FP8_E5M2 = 5
KVFFI_ELEMENT_INT8 = 6
KVFFI_ELEMENT_INT4 = 7
KVFFI_ELEMENT_FP4_E2M1 = 8
KVFFI_SPAN_FULL = 0
KVFFI_SPAN_WINDOW = 1
KVFFI_SPAN_CHUNK = 2
KVFFI_ROWS_OWN = 0
KVFFI_ROWS_BF16 = 1
KVFFI_ROWS_FP8 = 2
KVFFI_PACKING_PACKED = 0
KVFFI_PACKING_HALVES = 1
KVFFI_PACKING_APART = 2
KVFFI_CONV_CHANNELS_FIRST = 0
KVFFI_CONV_ROWS_FIRST = 1
KVFFI_STATE_REPLICATED = 1
KVFFI_STATE_WHOLE_GROUPS = 2
KVFFI_LAYOUT_LBHNC = 1
KVFFI_LAYOUT_LBNHC = 2
KVFFI_LAYOUT_LHBNC = 3
KVFFI_LAYOUT_BLHNC = 4
KVFFI_LAYOUT_BLNHC = 5
KVFFI_LAYOUT_BHLNC = 6
KVFFI_TENSOR_SIDE_BY_SIDE = 1
KVFFI_LOCAL_PLAN_REQUIRE_WHOLE_ROWS = 1
KVFFI_OP_READ = 0
KVFFI_OP_WRITE = 1
KVFFI_PAIR_REQUIRE_WHOLE_ROWS = 1
KVFFI_GAP_ANY = (1 << 64) - 1
KVFFI_FORM_TEXT = 0
KVFFI_FORM_JSON = 1
KVFFI_BLOCK_HOLE = (1 << 32) - 1


class KeyValue(Struct):
    """kvffi_key_value"""

    key: bytes | None
    value: bytes | None
    _fields_ = (
        ("key", c_char_p),
        ("value", c_char_p),
    )


class Worker(Growing):
    """kvffi_worker"""

    struct_size: int
    model: bytes | None
    revision: bytes | None
    extra: Pointer
    num_extra: int
    tp_rank: int
    tp_size: int
    pp_rank: int
    pp_size: int
    dcp_rank: int
    dcp_size: int
    dcp_interleave: int
    _fields_ = (
        ("struct_size", c_size_t),
        ("model", c_char_p),
        ("revision", c_char_p),
        ("extra", c_void_p),
        ("num_extra", c_size_t),
        ("tp_rank", c_uint32),
        ("tp_size", c_uint32),
        ("pp_rank", c_uint32),
        ("pp_size", c_uint32),
        ("dcp_rank", c_uint32),
        ("dcp_size", c_uint32),
        ("dcp_interleave", c_uint64),
    )


class Storage(Growing):
    """kvffi_storage"""

    struct_size: int
    base: int
    len: int
    mem: int
    device: int
    flags: int
    reserved: int
    _fields_ = (
        ("struct_size", c_size_t),
        ("base", c_uint64),
        ("len", c_uint64),
        ("mem", c_int32),
        ("device", c_uint32),
        ("flags", c_uint32),
        ("reserved", c_uint32),
    )


class Group(Growing):
    """kvffi_group"""

    struct_size: int
    block_tokens: int
    num_blocks: int
    pool: int
    usage: int
    _fields_ = (
        ("struct_size", c_size_t),
        ("block_tokens", c_uint64),
        ("num_blocks", c_uint64),
        ("pool", c_uint32),
        ("usage", c_int32),
    )


class Layer(Growing):
    """kvffi_layer"""

    struct_size: int
    name: bytes | None
    group: int
    kind: int
    role: int
    flags: int
    _fields_ = (
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("group", c_uint32),
        ("kind", c_int32),
        ("role", c_int32),
        ("flags", c_uint32),
    )


class Axis(Struct):
    """kvffi_axis"""

    count: int
    stride: int
    _fields_ = (
        ("count", c_uint64),
        ("stride", c_uint64),
    )


class Part(Growing):
    """kvffi_part"""

    struct_size: int
    name: bytes | None
    format: bytes | None
    storage: int
    sharding: int
    offset: int
    block_stride: int
    total_units: int
    first_unit: int
    num_units: int
    unit_stride: int
    tokens: Pointer
    num_tokens: int
    content: int
    tokens_per_state_num: int
    tokens_per_state_den: int
    _fields_ = (
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("format", c_char_p),
        ("storage", c_uint32),
        ("sharding", c_int32),
        ("offset", c_uint64),
        ("block_stride", c_uint64),
        ("total_units", c_uint64),
        ("first_unit", c_uint64),
        ("num_units", c_uint64),
        ("unit_stride", c_uint64),
        ("tokens", c_void_p),
        ("num_tokens", c_size_t),
        ("content", c_uint64),
        ("tokens_per_state_num", c_uint64),
        ("tokens_per_state_den", c_uint64),
    )


class PageLayer(Growing):
    """kvffi_page_layer"""

    struct_size: int
    name: bytes | None
    page: Pointer
    group: int
    role: int
    flags: int
    reserved: int
    _fields_ = (
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("page", c_void_p),
        ("group", c_uint32),
        ("role", c_int32),
        ("flags", c_uint32),
        ("reserved", c_uint32),
    )


class Rows(Growing):
    """kvffi_rows"""

    struct_size: int
    preset: int
    span: int
    row_bytes: int
    format: bytes | None
    tokens_per_state_num: int
    tokens_per_state_den: int
    page_align: int
    _fields_ = (
        ("struct_size", c_size_t),
        ("preset", c_int32),
        ("span", c_int32),
        ("row_bytes", c_uint64),
        ("format", c_char_p),
        ("tokens_per_state_num", c_uint64),
        ("tokens_per_state_den", c_uint64),
        ("page_align", c_uint64),
    )


class Attention(Growing):
    """kvffi_attention"""

    struct_size: int
    num_kv_heads: int
    head_size: int
    value_head_size: int
    element: int
    packing: int
    span: int
    flags: int
    format: bytes | None
    _fields_ = (
        ("struct_size", c_size_t),
        ("num_kv_heads", c_uint64),
        ("head_size", c_uint64),
        ("value_head_size", c_uint64),
        ("element", c_int32),
        ("packing", c_int32),
        ("span", c_int32),
        ("flags", c_uint32),
        ("format", c_char_p),
    )


class StateOptions(Growing):
    """kvffi_state_options"""

    struct_size: int
    conv_element: int
    state_element: int
    conv_order: int
    flags: int
    _fields_ = (
        ("struct_size", c_size_t),
        ("conv_element", c_int32),
        ("state_element", c_int32),
        ("conv_order", c_int32),
        ("flags", c_uint32),
    )


class Pool(Growing):
    """kvffi_pool"""

    struct_size: int
    layout: int
    mem: int
    device: int
    flags: int
    num_blocks: int
    row_align: int
    page_align: int
    _fields_ = (
        ("struct_size", c_size_t),
        ("layout", c_int32),
        ("mem", c_int32),
        ("device", c_uint32),
        ("flags", c_uint32),
        ("num_blocks", c_uint64),
        ("row_align", c_uint64),
        ("page_align", c_uint64),
    )


class Blocks(Growing):
    """kvffi_blocks"""

    struct_size: int
    block_tokens: int
    kernel_tokens: int
    usage: int
    reserved: int
    _fields_ = (
        ("struct_size", c_size_t),
        ("block_tokens", c_uint64),
        ("kernel_tokens", c_uint64),
        ("usage", c_int32),
        ("reserved", c_uint32),
    )


class Tensor(Growing):
    """kvffi_tensor"""

    struct_size: int
    ptr: int
    shape: Pointer
    strides: Pointer
    num_axes: int
    axes: bytes | None
    element_size: int
    parts: Pointer
    num_parts: int
    mem: int
    device: int
    flags: int
    reserved: int
    _fields_ = (
        ("struct_size", c_size_t),
        ("ptr", c_uint64),
        ("shape", c_void_p),
        ("strides", c_void_p),
        ("num_axes", c_size_t),
        ("axes", c_char_p),
        ("element_size", c_uint64),
        ("parts", c_void_p),
        ("num_parts", c_size_t),
        ("mem", c_int32),
        ("device", c_uint32),
        ("flags", c_uint32),
        ("reserved", c_uint32),
    )


class MemoryRange(Struct):
    """kvffi_memory_range"""

    storage: int
    mem: int
    device: int
    reserved: int
    base: int
    len: int
    _fields_ = (
        ("storage", c_uint32),
        ("mem", c_int32),
        ("device", c_uint32),
        ("reserved", c_uint32),
        ("base", c_uint64),
        ("len", c_uint64),
    )


class Region(Struct):
    """kvffi_region"""

    storage: int
    reserved: int
    offset: int
    block_len: int
    block_stride: int
    num_blocks: int
    num_members: int
    _fields_ = (
        ("storage", c_uint32),
        ("reserved", c_uint32),
        ("offset", c_uint64),
        ("block_len", c_uint64),
        ("block_stride", c_uint64),
        ("num_blocks", c_uint64),
        ("num_members", c_uint64),
    )


class Member(Struct):
    """kvffi_member"""

    layer: bytes | None
    part: bytes | None
    group: int
    reserved: int
    offset: int
    len: int
    _fields_ = (
        ("layer", c_char_p),
        ("part", c_char_p),
        ("group", c_uint32),
        ("reserved", c_uint32),
        ("offset", c_uint64),
        ("len", c_uint64),
    )


class Share(Struct):
    """kvffi_share"""

    tp_rank: int
    pp_rank: int
    part: int
    reserved: int
    first_unit: int
    num_units: int
    run_tokens: int
    first_run: int
    every: int
    _fields_ = (
        ("tp_rank", c_uint32),
        ("pp_rank", c_uint32),
        ("part", c_uint32),
        ("reserved", c_uint32),
        ("first_unit", c_uint64),
        ("num_units", c_uint64),
        ("run_tokens", c_uint64),
        ("first_run", c_uint64),
        ("every", c_uint64),
    )


class PairOptions(Growing):
    """kvffi_pair_options"""

    struct_size: int
    op: int
    flags: int
    max_gap: int
    min_run: int
    _fields_ = (
        ("struct_size", c_size_t),
        ("op", c_int32),
        ("flags", c_uint32),
        ("max_gap", c_uint64),
        ("min_run", c_uint64),
    )


class BlockList(Struct):
    """kvffi_block_list"""

    group: int
    reserved: int
    first: int
    blocks: Pointer
    num_blocks: int
    _fields_ = (
        ("group", c_uint32),
        ("reserved", c_uint32),
        ("first", c_uint64),
        ("blocks", c_void_p),
        ("num_blocks", c_size_t),
    )


class Request(Growing):
    """kvffi_request"""

    struct_size: int
    op: int
    flags: int
    local: Pointer
    num_local: int
    remote: Pointer
    num_remote: int
    _fields_ = (
        ("struct_size", c_size_t),
        ("op", c_int32),
        ("flags", c_uint32),
        ("local", c_void_p),
        ("num_local", c_size_t),
        ("remote", c_void_p),
        ("num_remote", c_size_t),
    )


class AnswerTotals(Struct):
    """kvffi_answer_totals"""

    num_descriptors: int
    num_zero_ranges: int
    bytes: int
    padding_bytes: int
    _fields_ = (
        ("num_descriptors", c_uint64),
        ("num_zero_ranges", c_uint64),
        ("bytes", c_uint64),
        ("padding_bytes", c_uint64),
    )


class Descriptor(Struct):
    """kvffi_descriptor"""

    local_storage: int
    remote_storage: int
    local_offset: int
    remote_offset: int
    len: int
    _fields_ = (
        ("local_storage", c_uint32),
        ("remote_storage", c_uint32),
        ("local_offset", c_uint64),
        ("remote_offset", c_uint64),
        ("len", c_uint64),
    )


class ZeroRange(Struct):
    """kvffi_zero_range"""

    storage: int
    reserved: int
    offset: int
    len: int
    _fields_ = (
        ("storage", c_uint32),
        ("reserved", c_uint32),
        ("offset", c_uint64),
        ("len", c_uint64),
    )


# By the name that the header has.
STRUCTS: dict[str, type[Struct]] = {
    "kvffi_key_value": KeyValue,
    "kvffi_worker": Worker,
    "kvffi_storage": Storage,
    "kvffi_group": Group,
    "kvffi_layer": Layer,
    "kvffi_axis": Axis,
    "kvffi_part": Part,
    "kvffi_page_layer": PageLayer,
    "kvffi_rows": Rows,
    "kvffi_attention": Attention,
    "kvffi_state_options": StateOptions,
    "kvffi_pool": Pool,
    "kvffi_blocks": Blocks,
    "kvffi_tensor": Tensor,
    "kvffi_memory_range": MemoryRange,
    "kvffi_region": Region,
    "kvffi_member": Member,
    "kvffi_share": Share,
    "kvffi_pair_options": PairOptions,
    "kvffi_block_list": BlockList,
    "kvffi_request": Request,
    "kvffi_answer_totals": AnswerTotals,
    "kvffi_descriptor": Descriptor,
    "kvffi_zero_range": ZeroRange,
}


class Functions:
    """The functions of a library that is loaded."""

    kvffi_status_name: Callable[[int], bytes | None]
    kvffi_error_status: Callable[[Pointer], int]
    kvffi_error_message: Callable[[Pointer], bytes | None]
    kvffi_error_num_findings: Callable[[Pointer], int]
    kvffi_error_finding: Callable[[Pointer, int], bytes | None]
    kvffi_error_free: Callable[[Pointer], None]
    kvffi_version: Callable[[], int]
    kvffi_version_text: Callable[[], bytes | None]
    kvffi_abi_check: Callable[[int, Pointer], int]
    kvffi_text_data: Callable[[Pointer], bytes | None]
    kvffi_text_len: Callable[[Pointer], int]
    kvffi_text_free: Callable[[Pointer], None]
    kvffi_spec_from_json: Callable[[bytes | None, int, Pointer, Pointer], int]
    kvffi_spec_to_json: Callable[[Pointer, Pointer, Pointer], int]
    kvffi_spec_free: Callable[[Pointer], None]
    kvffi_spec_builder_new: Callable[[Pointer, Pointer, Pointer], int]
    kvffi_spec_builder_add_storage: Callable[[Pointer, Pointer, Pointer, Pointer], int]
    kvffi_spec_builder_add_group: Callable[[Pointer, Pointer, Pointer, Pointer], int]
    kvffi_spec_builder_add_layer: Callable[[Pointer, Pointer, Pointer, Pointer], int]
    kvffi_spec_builder_add_part: Callable[[Pointer, int, Pointer, Pointer], int]
    kvffi_spec_builder_build: Callable[[Pointer, Pointer, Pointer], int]
    kvffi_spec_builder_free: Callable[[Pointer], None]
    kvffi_page_new_mla: Callable[[Pointer, Pointer, Pointer], int]
    kvffi_page_new_indexer: Callable[[Pointer, Pointer, Pointer], int]
    kvffi_page_new_opaque: Callable[[int, bytes | None, int, Pointer, Pointer], int]
    kvffi_page_new_ring: Callable[[int, int, bytes | None, int, int, Pointer, Pointer], int]
    kvffi_page_free: Callable[[Pointer], None]
    kvffi_page_new_attention: Callable[[Pointer, Pointer, Pointer], int]
    kvffi_page_new_token_head_quant: Callable[[Pointer, int, Pointer, Pointer], int]
    kvffi_page_new_block_scaled: Callable[[Pointer, int, int, int, Pointer, Pointer], int]
    kvffi_page_new_nvfp4: Callable[[Pointer, Pointer, Pointer], int]
    kvffi_page_new_mamba1: Callable[[int, int, int, Pointer, Pointer, Pointer], int]
    kvffi_page_new_mamba2: Callable[[int, int, int, int, int, Pointer, Pointer, Pointer], int]
    kvffi_page_new_gated_delta_net: Callable[[int, int, int, int, int, Pointer, Pointer, Pointer], int]
    kvffi_arrangement_new: Callable[[Pointer, Pointer, Pointer], int]
    kvffi_arrangement_add_pool: Callable[[Pointer, Pointer, Pointer], int]
    kvffi_arrangement_add_group: Callable[[Pointer, Pointer, Pointer, Pointer], int]
    kvffi_arrangement_add_layer: Callable[[Pointer, Pointer, Pointer], int]
    kvffi_arrangement_get_storage_lens: Callable[[Pointer, Pointer, int, Pointer, Pointer], int]
    kvffi_arrangement_build: Callable[[Pointer, Pointer, int, Pointer, Pointer], int]
    kvffi_arrangement_free: Callable[[Pointer], None]
    kvffi_tensors_new: Callable[[Pointer, Pointer, Pointer], int]
    kvffi_tensors_add_storage: Callable[[Pointer, Pointer, Pointer], int]
    kvffi_tensors_add_group: Callable[[Pointer, Pointer, Pointer, Pointer], int]
    kvffi_tensors_add_layer: Callable[[Pointer, Pointer, Pointer, Pointer], int]
    kvffi_tensors_add_tensor: Callable[[Pointer, int, Pointer, Pointer], int]
    kvffi_tensors_build: Callable[[Pointer, Pointer, Pointer], int]
    kvffi_tensors_free: Callable[[Pointer], None]
    kvffi_local_plan_new: Callable[[Pointer, int, Pointer, Pointer], int]
    kvffi_local_plan_get_memory_ranges: Callable[[Pointer, Pointer, int, Pointer, Pointer], int]
    kvffi_local_plan_get_regions: Callable[[Pointer, Pointer, int, Pointer, Pointer], int]
    kvffi_local_plan_get_members: Callable[[Pointer, int, Pointer, int, Pointer, Pointer], int]
    kvffi_local_plan_free: Callable[[Pointer], None]
    kvffi_spec_get_sources: Callable[[Pointer, Pointer, bytes | None, Pointer, int, Pointer, Pointer], int]
    kvffi_spec_get_targets: Callable[[Pointer, Pointer, bytes | None, Pointer, int, Pointer, Pointer], int]
    kvffi_spec_count_readers: Callable[[Pointer, Pointer, int, Pointer, Pointer], int]
    kvffi_pair_new: Callable[[Pointer, Pointer, Pointer, Pointer, Pointer], int]
    kvffi_pair_is_empty: Callable[[Pointer, Pointer, Pointer], int]
    kvffi_pair_explain: Callable[[Pointer, int, Pointer, Pointer], int]
    kvffi_pair_free: Callable[[Pointer], None]
    kvffi_answer_new: Callable[[Pointer, Pointer], int]
    kvffi_pair_answer: Callable[[Pointer, Pointer, Pointer, Pointer], int]
    kvffi_pair_answer_json: Callable[[Pointer, bytes | None, int, Pointer, Pointer], int]
    kvffi_answer_get_totals: Callable[[Pointer, Pointer, Pointer], int]
    kvffi_answer_get_descriptors: Callable[[Pointer, Pointer, int, Pointer, Pointer], int]
    kvffi_answer_get_zero_ranges: Callable[[Pointer, Pointer, int, Pointer, Pointer], int]
    kvffi_pair_verify: Callable[[Pointer, Pointer, Pointer], int]
    kvffi_answer_free: Callable[[Pointer], None]

    def __init__(self, library: ctypes.CDLL) -> None:
        """Looks every function up; `AttributeError` names one that the library lacks."""
        for name, result, parameters in SIGNATURES:
            function = library[name]
            function.restype = result
            function.argtypes = [CHECKED.get(parameter, parameter) for parameter in parameters]
            setattr(self, name, function)


# Name, result, parameters.
SIGNATURES: tuple[tuple[str, Any, tuple[Any, ...]], ...] = (
    ("kvffi_status_name", c_char_p, (c_int32,)),
    ("kvffi_error_status", c_int32, (c_void_p,)),
    ("kvffi_error_message", c_char_p, (c_void_p,)),
    ("kvffi_error_num_findings", c_size_t, (c_void_p,)),
    ("kvffi_error_finding", c_char_p, (c_void_p, c_size_t)),
    ("kvffi_error_free", None, (c_void_p,)),
    ("kvffi_version", c_uint32, ()),
    ("kvffi_version_text", c_char_p, ()),
    ("kvffi_abi_check", c_int32, (c_uint32, c_void_p)),
    ("kvffi_text_data", c_char_p, (c_void_p,)),
    ("kvffi_text_len", c_size_t, (c_void_p,)),
    ("kvffi_text_free", None, (c_void_p,)),
    ("kvffi_spec_from_json", c_int32, (c_char_p, c_size_t, c_void_p, c_void_p)),
    ("kvffi_spec_to_json", c_int32, (c_void_p, c_void_p, c_void_p)),
    ("kvffi_spec_free", None, (c_void_p,)),
    ("kvffi_spec_builder_new", c_int32, (c_void_p, c_void_p, c_void_p)),
    ("kvffi_spec_builder_add_storage", c_int32, (c_void_p, c_void_p, c_void_p, c_void_p)),
    ("kvffi_spec_builder_add_group", c_int32, (c_void_p, c_void_p, c_void_p, c_void_p)),
    ("kvffi_spec_builder_add_layer", c_int32, (c_void_p, c_void_p, c_void_p, c_void_p)),
    ("kvffi_spec_builder_add_part", c_int32, (c_void_p, c_uint32, c_void_p, c_void_p)),
    ("kvffi_spec_builder_build", c_int32, (c_void_p, c_void_p, c_void_p)),
    ("kvffi_spec_builder_free", None, (c_void_p,)),
    ("kvffi_page_new_mla", c_int32, (c_void_p, c_void_p, c_void_p)),
    ("kvffi_page_new_indexer", c_int32, (c_void_p, c_void_p, c_void_p)),
    ("kvffi_page_new_opaque", c_int32, (c_uint64, c_char_p, c_int32, c_void_p, c_void_p)),
    ("kvffi_page_new_ring", c_int32, (c_uint64, c_uint64, c_char_p, c_uint64, c_int32, c_void_p, c_void_p)),
    ("kvffi_page_free", None, (c_void_p,)),
    ("kvffi_page_new_attention", c_int32, (c_void_p, c_void_p, c_void_p)),
    ("kvffi_page_new_token_head_quant", c_int32, (c_void_p, c_uint64, c_void_p, c_void_p)),
    ("kvffi_page_new_block_scaled", c_int32, (c_void_p, c_int32, c_uint64, c_uint64, c_void_p, c_void_p)),
    ("kvffi_page_new_nvfp4", c_int32, (c_void_p, c_void_p, c_void_p)),
    ("kvffi_page_new_mamba1", c_int32, (c_uint64, c_uint64, c_uint64, c_void_p, c_void_p, c_void_p)),
    ("kvffi_page_new_mamba2", c_int32, (c_uint64, c_uint64, c_uint64, c_uint64, c_uint64, c_void_p, c_void_p, c_void_p)),
    ("kvffi_page_new_gated_delta_net", c_int32, (c_uint64, c_uint64, c_uint64, c_uint64, c_uint64, c_void_p, c_void_p, c_void_p)),
    ("kvffi_arrangement_new", c_int32, (c_void_p, c_void_p, c_void_p)),
    ("kvffi_arrangement_add_pool", c_int32, (c_void_p, c_void_p, c_void_p)),
    ("kvffi_arrangement_add_group", c_int32, (c_void_p, c_void_p, c_void_p, c_void_p)),
    ("kvffi_arrangement_add_layer", c_int32, (c_void_p, c_void_p, c_void_p)),
    ("kvffi_arrangement_get_storage_lens", c_int32, (c_void_p, c_void_p, c_size_t, c_void_p, c_void_p)),
    ("kvffi_arrangement_build", c_int32, (c_void_p, c_void_p, c_size_t, c_void_p, c_void_p)),
    ("kvffi_arrangement_free", None, (c_void_p,)),
    ("kvffi_tensors_new", c_int32, (c_void_p, c_void_p, c_void_p)),
    ("kvffi_tensors_add_storage", c_int32, (c_void_p, c_void_p, c_void_p)),
    ("kvffi_tensors_add_group", c_int32, (c_void_p, c_void_p, c_void_p, c_void_p)),
    ("kvffi_tensors_add_layer", c_int32, (c_void_p, c_void_p, c_void_p, c_void_p)),
    ("kvffi_tensors_add_tensor", c_int32, (c_void_p, c_uint32, c_void_p, c_void_p)),
    ("kvffi_tensors_build", c_int32, (c_void_p, c_void_p, c_void_p)),
    ("kvffi_tensors_free", None, (c_void_p,)),
    ("kvffi_local_plan_new", c_int32, (c_void_p, c_uint32, c_void_p, c_void_p)),
    ("kvffi_local_plan_get_memory_ranges", c_int32, (c_void_p, c_void_p, c_size_t, c_void_p, c_void_p)),
    ("kvffi_local_plan_get_regions", c_int32, (c_void_p, c_void_p, c_size_t, c_void_p, c_void_p)),
    ("kvffi_local_plan_get_members", c_int32, (c_void_p, c_size_t, c_void_p, c_size_t, c_void_p, c_void_p)),
    ("kvffi_local_plan_free", None, (c_void_p,)),
    ("kvffi_spec_get_sources", c_int32, (c_void_p, c_void_p, c_char_p, c_void_p, c_size_t, c_void_p, c_void_p)),
    ("kvffi_spec_get_targets", c_int32, (c_void_p, c_void_p, c_char_p, c_void_p, c_size_t, c_void_p, c_void_p)),
    ("kvffi_spec_count_readers", c_int32, (c_void_p, c_void_p, c_size_t, c_void_p, c_void_p)),
    ("kvffi_pair_new", c_int32, (c_void_p, c_void_p, c_void_p, c_void_p, c_void_p)),
    ("kvffi_pair_is_empty", c_int32, (c_void_p, c_void_p, c_void_p)),
    ("kvffi_pair_explain", c_int32, (c_void_p, c_int32, c_void_p, c_void_p)),
    ("kvffi_pair_free", None, (c_void_p,)),
    ("kvffi_answer_new", c_int32, (c_void_p, c_void_p)),
    ("kvffi_pair_answer", c_int32, (c_void_p, c_void_p, c_void_p, c_void_p)),
    ("kvffi_pair_answer_json", c_int32, (c_void_p, c_char_p, c_size_t, c_void_p, c_void_p)),
    ("kvffi_answer_get_totals", c_int32, (c_void_p, c_void_p, c_void_p)),
    ("kvffi_answer_get_descriptors", c_int32, (c_void_p, c_void_p, c_size_t, c_void_p, c_void_p)),
    ("kvffi_answer_get_zero_ranges", c_int32, (c_void_p, c_void_p, c_size_t, c_void_p, c_void_p)),
    ("kvffi_pair_verify", c_int32, (c_void_p, c_void_p, c_void_p)),
    ("kvffi_answer_free", None, (c_void_p,)),
)
