"""Constants, structs and functions of kvffi.h, for ctypes.

Written by tools/declarations.py. Do not edit it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import (
    c_char_p,
    c_double,
    c_int32,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any

from ._checked import Growing, Struct, numbers

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
KVFFI_ERR_NO_LIBRARY = (-17)
KVFFI_ERR_TRANSPORT = (-18)
KVFFI_ERR_SYSTEM = (-19)
KVFFI_ERR_NO_DEVICE = (-20)
KVFFI_ERR_WRONG_ORDER = (-21)
KVFFI_ERR_IN_USE = (-22)
KVFFI_ERR_SHUT_DOWN = (-23)
KVFFI_ERR_OUT_OF_RANGE = (-24)
KVFFI_ERR_PEER_GONE = (-25)
KVFFI_ERR_BLOB = (-26)
KVFFI_ERR_STALE_BLOB = (-27)
KVFFI_ERR_WOULD_BLOCK = (-28)
KVFFI_ERR_TRANSFER_FAILED = (-29)
KVFFI_ERR_TRANSFER_UNSETTLED = (-30)
KVFFI_ERR_LEFT_UNSETTLED = (-31)
KVFFI_ERR_FORKED = (-32)
KVFFI_ERR_DEADLINE = (-33)
KVFFI_ERR_CANCELLED = (-34)
KVFFI_ERR_REQUEST_HELD = (-35)
KVFFI_ERR_WRITE_REFUSED = (-36)
KVFFI_ERR_PEER_NOT_READY = (-37)
KVFFI_ERR_LEASE_ENDED = (-38)
KVFFI_ERR_NOT_WRITTEN = (-39)
KVFFI_ERR_NOT_READY = (-40)
KVFFI_ERR_REFUSED = (-41)
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
KVFFI_REQUEST_LAYERS = 1
KVFFI_REQUEST_LAYER_RANGE = 2
KVFFI_REQUEST_ALIGN_HEAD = 4
KVFFI_REQUEST_ALIGN_TAIL = 8
KVFFI_LOOPBACK_STALL = 1
KVFFI_LOOPBACK_BREAK = 2
KVFFI_LOOPBACK_LOSE_NOTIFICATIONS = 4
KVFFI_AGENT_SPIN = 1
KVFFI_LOCALITY_UNKNOWN = 0
KVFFI_LOCALITY_SAME_HOST = 1
KVFFI_LOCALITY_SAME_HOST_APART = 2
KVFFI_LOCALITY_OTHER_HOST = 3
KVFFI_BARRIER_USER = 1
KVFFI_BARRIER_PID_NAMESPACE = 2
KVFFI_BARRIER_IPC_NAMESPACE = 4
KVFFI_BARRIER_UTS_NAMESPACE = 8
KVFFI_MAX_NOTIFICATION_BYTES = 8192
KVFFI_FOREVER = (1 << 64) - 1
KVFFI_DEFAULT_DEADLINE_MS = 600000
KVFFI_HISTOGRAM_POST = 0
KVFFI_HISTOGRAM_TRANSFER = 1
KVFFI_LOST_READERS_RELEASE = 0
KVFFI_LOST_READERS_WAIT = 1
KVFFI_WANTED_READY = 0
KVFFI_WANTED_FETCH = 1
KVFFI_WANTED_WAIT = 2
KVFFI_WANTED_DRAINING = 3
KVFFI_READERS_UNKNOWN = (1 << 64) - 1
KVFFI_MAX_REASON_BYTES = 512
KVFFI_EVENT_OTHER = 0
KVFFI_EVENT_FREED = 1
KVFFI_EVENT_PUSH = 2
KVFFI_EVENT_WRITE_FAILED = 3
KVFFI_EVENT_PULLED = 4
KVFFI_EVENT_PULL_FAILED = 5
KVFFI_EVENT_RETURNED_PULL = 6
KVFFI_EVENT_ARRIVED = 7
KVFFI_EVENT_ARRIVAL_FAILED = 8
KVFFI_EVENT_RETURNED_RESERVATION = 9
KVFFI_EVENT_PEER_LOST = 10
KVFFI_EVENT_PEER_REPLACED = 11
KVFFI_EVENT_PEER_STALE = 12
KVFFI_EVENT_PEER_RELEASED = 13
KVFFI_EVENT_WITHDRAWN = 14
KVFFI_EVENT_NOTIFICATION = 15
KVFFI_EVENT_GIVEN_UP = 16
KVFFI_WHY_ALL_READ = 1
KVFFI_WHY_READERS_LOST = 2
KVFFI_WHY_EXPIRED = 3
KVFFI_WHY_ABORTED = 4
KVFFI_WHY_GIVEN_UP = 5
KVFFI_LOG_ERROR = 1
KVFFI_LOG_WARN = 2
KVFFI_LOG_INFO = 3
KVFFI_LOG_DEBUG = 4
KVFFI_LOG_TRACE = 5


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
    layers: Pointer
    num_layers: int
    from_layer: int
    to_layer: int
    _fields_ = (
        ("struct_size", c_size_t),
        ("op", c_int32),
        ("flags", c_uint32),
        ("local", c_void_p),
        ("num_local", c_size_t),
        ("remote", c_void_p),
        ("num_remote", c_size_t),
        ("layers", c_void_p),
        ("num_layers", c_size_t),
        ("from_layer", c_uint32),
        ("to_layer", c_uint32),
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


class Limits(Growing):
    """kvffi_limits"""

    struct_size: int
    descriptor_bytes: int
    request_bytes: int
    request_descriptors: int
    outstanding_requests: int
    in_flight_bytes: int
    in_flight_descriptors: int
    _fields_ = (
        ("struct_size", c_size_t),
        ("descriptor_bytes", c_uint64),
        ("request_bytes", c_uint64),
        ("request_descriptors", c_uint64),
        ("outstanding_requests", c_uint64),
        ("in_flight_bytes", c_uint64),
        ("in_flight_descriptors", c_uint64),
    )


class AgentOptions(Growing):
    """kvffi_agent_options"""

    struct_size: int
    loopback: Pointer
    library: bytes | None
    backend: bytes | None
    backend_params: Pointer
    num_backend_params: int
    progress_delay_us: int
    flags: int
    reserved: int
    limits: Pointer
    _fields_ = (
        ("struct_size", c_size_t),
        ("loopback", c_void_p),
        ("library", c_char_p),
        ("backend", c_char_p),
        ("backend_params", c_void_p),
        ("num_backend_params", c_size_t),
        ("progress_delay_us", c_uint64),
        ("flags", c_uint32),
        ("reserved", c_uint32),
        ("limits", c_void_p),
    )


class AgentInfo(Growing):
    """kvffi_agent_info"""

    struct_size: int
    name: bytes | None
    incarnation: int
    generation: int
    unsettled: int
    _fields_ = (
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("incarnation", c_uint64),
        ("generation", c_uint64),
        ("unsettled", c_uint64),
    )


class PeerInfo(Growing):
    """kvffi_peer_info"""

    struct_size: int
    name: bytes | None
    incarnation: int
    generation: int
    unsettled: int
    locality: int
    barriers: int
    is_gone: int
    reserved: int
    _fields_ = (
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("incarnation", c_uint64),
        ("generation", c_uint64),
        ("unsettled", c_uint64),
        ("locality", c_int32),
        ("barriers", c_uint32),
        ("is_gone", c_int32),
        ("reserved", c_uint32),
    )


class ForeignPeer(Growing):
    """kvffi_foreign_peer"""

    struct_size: int
    name: bytes | None
    metadata: Pointer
    metadata_len: int
    layout: Pointer
    generation: int
    _fields_ = (
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("metadata", c_void_p),
        ("metadata_len", c_size_t),
        ("layout", c_void_p),
        ("generation", c_uint64),
    )


class Notification(Struct):
    """kvffi_notification"""

    sender: bytes | None
    incarnation: int
    has_incarnation: int
    reserved: int
    message: Pointer
    message_len: int
    _fields_ = (
        ("sender", c_char_p),
        ("incarnation", c_uint64),
        ("has_incarnation", c_int32),
        ("reserved", c_uint32),
        ("message", c_void_p),
        ("message_len", c_size_t),
    )


class TransferOptions(Growing):
    """kvffi_transfer_options"""

    struct_size: int
    notify: Pointer
    notify_len: int
    deadline_ms: int
    request: bytes | None
    padding_bytes: int
    limits: Pointer
    _fields_ = (
        ("struct_size", c_size_t),
        ("notify", c_void_p),
        ("notify_len", c_size_t),
        ("deadline_ms", c_uint64),
        ("request", c_char_p),
        ("padding_bytes", c_uint64),
        ("limits", c_void_p),
    )


class TransferStats(Growing):
    """kvffi_transfer_stats"""

    struct_size: int
    id: int
    bytes: int
    padding_bytes: int
    descriptors: int
    requests: int
    prepare_us: int
    post_us: int
    elapsed_us: int
    cause: int
    is_settled: int
    _fields_ = (
        ("struct_size", c_size_t),
        ("id", c_uint64),
        ("bytes", c_uint64),
        ("padding_bytes", c_uint64),
        ("descriptors", c_uint64),
        ("requests", c_uint64),
        ("prepare_us", c_uint64),
        ("post_us", c_uint64),
        ("elapsed_us", c_uint64),
        ("cause", c_int32),
        ("is_settled", c_int32),
    )


class Quarantined(Struct):
    """kvffi_quarantined"""

    transfer: int
    request: bytes | None
    peer: bytes | None
    incarnation: int
    op: int
    cause: int
    message: bytes | None
    age_us: int
    bytes: int
    num_ranges: int
    in_progress: int
    unproven: int
    _fields_ = (
        ("transfer", c_uint64),
        ("request", c_char_p),
        ("peer", c_char_p),
        ("incarnation", c_uint64),
        ("op", c_int32),
        ("cause", c_int32),
        ("message", c_char_p),
        ("age_us", c_uint64),
        ("bytes", c_uint64),
        ("num_ranges", c_uint64),
        ("in_progress", c_uint64),
        ("unproven", c_uint64),
    )


class QuarantinedRange(Struct):
    """kvffi_quarantined_range"""

    local: int
    remote: int
    len: int
    local_mem: int
    local_device: int
    remote_mem: int
    remote_device: int
    _fields_ = (
        ("local", c_uint64),
        ("remote", c_uint64),
        ("len", c_uint64),
        ("local_mem", c_int32),
        ("local_device", c_uint32),
        ("remote_mem", c_int32),
        ("remote_device", c_uint32),
    )


class AgentStats(Growing):
    """kvffi_agent_stats"""

    struct_size: int
    transfers_started: int
    transfers_done: int
    failed_deadline: int
    failed_cancelled: int
    failed_shut_down: int
    failed_transport: int
    failed_notification: int
    transfers_refused: int
    bytes: int
    padding_bytes: int
    descriptors: int
    requests: int
    post_us: int
    transfer_us: int
    notifications_sent: int
    notifications_failed: int
    notifications_received: int
    notifications_dropped: int
    quarantine_left: int
    in_flight_transfers: int
    in_flight_bytes: int
    in_flight_descriptors: int
    unsettled: int
    quarantined: int
    quarantined_bytes: int
    _fields_ = (
        ("struct_size", c_size_t),
        ("transfers_started", c_uint64),
        ("transfers_done", c_uint64),
        ("failed_deadline", c_uint64),
        ("failed_cancelled", c_uint64),
        ("failed_shut_down", c_uint64),
        ("failed_transport", c_uint64),
        ("failed_notification", c_uint64),
        ("transfers_refused", c_uint64),
        ("bytes", c_uint64),
        ("padding_bytes", c_uint64),
        ("descriptors", c_uint64),
        ("requests", c_uint64),
        ("post_us", c_uint64),
        ("transfer_us", c_uint64),
        ("notifications_sent", c_uint64),
        ("notifications_failed", c_uint64),
        ("notifications_received", c_uint64),
        ("notifications_dropped", c_uint64),
        ("quarantine_left", c_uint64),
        ("in_flight_transfers", c_uint64),
        ("in_flight_bytes", c_uint64),
        ("in_flight_descriptors", c_uint64),
        ("unsettled", c_uint64),
        ("quarantined", c_uint64),
        ("quarantined_bytes", c_uint64),
    )


class Bucket(Struct):
    """kvffi_bucket"""

    upper_seconds: float
    count: int
    _fields_ = (
        ("upper_seconds", c_double),
        ("count", c_uint64),
    )


class ExchangeOptions(Growing):
    """kvffi_exchange_options"""

    struct_size: int
    lease_ttl_ms: int
    lease_max_lifetime_ms: int
    lease_remember_ms: int
    lost_readers: int
    reserved: int
    heartbeat_every_ms: int
    max_registrations: int
    max_registered_blocks: int
    first_retry_ms: int
    max_retry_ms: int
    fetch_timeout_ms: int
    peer_idle_ttl_ms: int
    push_remember_ms: int
    max_ended_leases: int
    max_ended_registrations: int
    max_past_incarnations: int
    _fields_ = (
        ("struct_size", c_size_t),
        ("lease_ttl_ms", c_uint64),
        ("lease_max_lifetime_ms", c_uint64),
        ("lease_remember_ms", c_uint64),
        ("lost_readers", c_int32),
        ("reserved", c_uint32),
        ("heartbeat_every_ms", c_uint64),
        ("max_registrations", c_uint64),
        ("max_registered_blocks", c_uint64),
        ("first_retry_ms", c_uint64),
        ("max_retry_ms", c_uint64),
        ("fetch_timeout_ms", c_uint64),
        ("peer_idle_ttl_ms", c_uint64),
        ("push_remember_ms", c_uint64),
        ("max_ended_leases", c_uint64),
        ("max_ended_registrations", c_uint64),
        ("max_past_incarnations", c_uint64),
    )


class PeerId(Struct):
    """kvffi_peer_id"""

    name: bytes | None
    incarnation: int
    _fields_ = (
        ("name", c_char_p),
        ("incarnation", c_uint64),
    )


class Wanted(Growing):
    """kvffi_wanted"""

    struct_size: int
    what: int
    reserved: int
    incarnation: int
    wait_ms: int
    _fields_ = (
        ("struct_size", c_size_t),
        ("what", c_int32),
        ("reserved", c_uint32),
        ("incarnation", c_uint64),
        ("wait_ms", c_uint64),
    )


class PushId(Struct):
    """kvffi_push_id"""

    peer: bytes | None
    incarnation: int
    reservation: int
    _fields_ = (
        ("peer", c_char_p),
        ("incarnation", c_uint64),
        ("reservation", c_uint64),
    )


class PullPart(Struct):
    """kvffi_pull_part"""

    peer: bytes | None
    incarnation: int
    request: bytes | None
    lease: int
    answer: Pointer
    descriptors: Pointer
    num_descriptors: int
    padding_bytes: int
    _fields_ = (
        ("peer", c_char_p),
        ("incarnation", c_uint64),
        ("request", c_char_p),
        ("lease", c_uint64),
        ("answer", c_void_p),
        ("descriptors", c_void_p),
        ("num_descriptors", c_size_t),
        ("padding_bytes", c_uint64),
    )


class PushSource(Struct):
    """kvffi_push_source"""

    peer: bytes | None
    incarnation: int
    lists: Pointer
    num_lists: int
    _fields_ = (
        ("peer", c_char_p),
        ("incarnation", c_uint64),
        ("lists", c_void_p),
        ("num_lists", c_size_t),
    )


class Event(Growing):
    """kvffi_event"""

    struct_size: int
    kind: int
    why: int
    cookie: int
    request: bytes | None
    lease: int
    pull: int
    reservation: int
    peer: bytes | None
    incarnation: int
    old_incarnation: int
    part: int
    status: int
    message: bytes | None
    lists: Pointer
    num_lists: int
    data: Pointer
    data_len: int
    _fields_ = (
        ("struct_size", c_size_t),
        ("kind", c_int32),
        ("why", c_int32),
        ("cookie", c_uint64),
        ("request", c_char_p),
        ("lease", c_uint64),
        ("pull", c_uint64),
        ("reservation", c_uint64),
        ("peer", c_char_p),
        ("incarnation", c_uint64),
        ("old_incarnation", c_uint64),
        ("part", c_uint32),
        ("status", c_int32),
        ("message", c_char_p),
        ("lists", c_void_p),
        ("num_lists", c_size_t),
        ("data", c_void_p),
        ("data_len", c_size_t),
    )


class ExchangeStats(Growing):
    """kvffi_exchange_stats"""

    struct_size: int
    lease_held: int
    lease_live: int
    lease_all_read: int
    lease_readers_lost: int
    lease_expired: int
    lease_aborted: int
    lease_completions: int
    lease_duplicate_completions: int
    lease_late_completions: int
    lease_premature_completions: int
    lease_unknown_completions: int
    lease_extensions: int
    lease_stale_heartbeats: int
    push_registered: int
    push_waiting: int
    push_writing: int
    push_duplicates: int
    push_refused: int
    push_written: int
    push_released: int
    push_expired: int
    pull_started: int
    pull_live: int
    pull_quarantined: int
    pull_pulled: int
    pull_lease_ended: int
    pull_deadline: int
    pull_transfer: int
    pull_unreachable: int
    pull_cancelled: int
    pull_returned: int
    pull_stray_confirmations: int
    reservation_reserved: int
    reservation_live: int
    reservation_quarantined: int
    reservation_arrived: int
    reservation_failed: int
    reservation_expired: int
    reservation_returned: int
    reservation_duplicates: int
    reservation_unknown: int
    peer_ready: int
    peer_not_ready: int
    peer_fetches: int
    peer_failed_fetches: int
    peer_lost: int
    peer_replaced: int
    peer_stale: int
    peer_idle: int
    message_sent: int
    message_not_sent: int
    message_received: int
    message_malformed: int
    message_unsupported: int
    message_anonymous: int
    refused_chunks: int
    lease_given_up: int
    message_repeated: int
    message_unanswered: int
    _fields_ = (
        ("struct_size", c_size_t),
        ("lease_held", c_uint64),
        ("lease_live", c_uint64),
        ("lease_all_read", c_uint64),
        ("lease_readers_lost", c_uint64),
        ("lease_expired", c_uint64),
        ("lease_aborted", c_uint64),
        ("lease_completions", c_uint64),
        ("lease_duplicate_completions", c_uint64),
        ("lease_late_completions", c_uint64),
        ("lease_premature_completions", c_uint64),
        ("lease_unknown_completions", c_uint64),
        ("lease_extensions", c_uint64),
        ("lease_stale_heartbeats", c_uint64),
        ("push_registered", c_uint64),
        ("push_waiting", c_uint64),
        ("push_writing", c_uint64),
        ("push_duplicates", c_uint64),
        ("push_refused", c_uint64),
        ("push_written", c_uint64),
        ("push_released", c_uint64),
        ("push_expired", c_uint64),
        ("pull_started", c_uint64),
        ("pull_live", c_uint64),
        ("pull_quarantined", c_uint64),
        ("pull_pulled", c_uint64),
        ("pull_lease_ended", c_uint64),
        ("pull_deadline", c_uint64),
        ("pull_transfer", c_uint64),
        ("pull_unreachable", c_uint64),
        ("pull_cancelled", c_uint64),
        ("pull_returned", c_uint64),
        ("pull_stray_confirmations", c_uint64),
        ("reservation_reserved", c_uint64),
        ("reservation_live", c_uint64),
        ("reservation_quarantined", c_uint64),
        ("reservation_arrived", c_uint64),
        ("reservation_failed", c_uint64),
        ("reservation_expired", c_uint64),
        ("reservation_returned", c_uint64),
        ("reservation_duplicates", c_uint64),
        ("reservation_unknown", c_uint64),
        ("peer_ready", c_uint64),
        ("peer_not_ready", c_uint64),
        ("peer_fetches", c_uint64),
        ("peer_failed_fetches", c_uint64),
        ("peer_lost", c_uint64),
        ("peer_replaced", c_uint64),
        ("peer_stale", c_uint64),
        ("peer_idle", c_uint64),
        ("message_sent", c_uint64),
        ("message_not_sent", c_uint64),
        ("message_received", c_uint64),
        ("message_malformed", c_uint64),
        ("message_unsupported", c_uint64),
        ("message_anonymous", c_uint64),
        ("refused_chunks", c_uint64),
        ("lease_given_up", c_uint64),
        ("message_repeated", c_uint64),
        ("message_unanswered", c_uint64),
    )


class LogOptions(Growing):
    """kvffi_log_options"""

    struct_size: int
    level: int
    reserved: int
    capacity: int
    _fields_ = (
        ("struct_size", c_size_t),
        ("level", c_int32),
        ("reserved", c_uint32),
        ("capacity", c_uint64),
    )


class LogRecord(Struct):
    """kvffi_log_record"""

    time_ns: int
    level: int
    reserved: int
    target: bytes | None
    message: bytes | None
    _fields_ = (
        ("time_ns", c_uint64),
        ("level", c_int32),
        ("reserved", c_uint32),
        ("target", c_char_p),
        ("message", c_char_p),
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
    "kvffi_limits": Limits,
    "kvffi_agent_options": AgentOptions,
    "kvffi_agent_info": AgentInfo,
    "kvffi_peer_info": PeerInfo,
    "kvffi_foreign_peer": ForeignPeer,
    "kvffi_notification": Notification,
    "kvffi_transfer_options": TransferOptions,
    "kvffi_transfer_stats": TransferStats,
    "kvffi_quarantined": Quarantined,
    "kvffi_quarantined_range": QuarantinedRange,
    "kvffi_agent_stats": AgentStats,
    "kvffi_bucket": Bucket,
    "kvffi_exchange_options": ExchangeOptions,
    "kvffi_peer_id": PeerId,
    "kvffi_wanted": Wanted,
    "kvffi_push_id": PushId,
    "kvffi_pull_part": PullPart,
    "kvffi_push_source": PushSource,
    "kvffi_event": Event,
    "kvffi_exchange_stats": ExchangeStats,
    "kvffi_log_options": LogOptions,
    "kvffi_log_record": LogRecord,
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
    kvffi_bytes_data: Callable[[Pointer], Pointer]
    kvffi_bytes_len: Callable[[Pointer], int]
    kvffi_bytes_free: Callable[[Pointer], None]
    kvffi_loopback_new: Callable[[Pointer, Pointer], int]
    kvffi_loopback_set_faults: Callable[[Pointer, int, Pointer], int]
    kvffi_loopback_free: Callable[[Pointer], None]
    kvffi_agent_new: Callable[[bytes | None, Pointer, Pointer, Pointer], int]
    kvffi_agent_get_info: Callable[[Pointer, Pointer, Pointer], int]
    kvffi_agent_register: Callable[[Pointer, Pointer, Pointer], int]
    kvffi_agent_reregister: Callable[[Pointer, Pointer, Pointer], int]
    kvffi_agent_deregister: Callable[[Pointer, Pointer], int]
    kvffi_agent_export: Callable[[Pointer, Pointer, Pointer], int]
    kvffi_agent_shutdown: Callable[[Pointer, int, Pointer], int]
    kvffi_agent_free: Callable[[Pointer], None]
    kvffi_agent_connect: Callable[[Pointer, Pointer, int, Pointer, Pointer], int]
    kvffi_agent_connect_named: Callable[[Pointer, bytes | None, Pointer, int, Pointer, Pointer], int]
    kvffi_agent_reconnect: Callable[[Pointer, Pointer, Pointer], int]
    kvffi_agent_disconnect: Callable[[Pointer, Pointer, Pointer], int]
    kvffi_peer_get_info: Callable[[Pointer, Pointer, Pointer], int]
    kvffi_peer_get_layout: Callable[[Pointer, Pointer, Pointer], int]
    kvffi_peer_declare_gone: Callable[[Pointer, Pointer], int]
    kvffi_peer_free: Callable[[Pointer], None]
    kvffi_agent_connect_foreign: Callable[[Pointer, Pointer, Pointer, Pointer], int]
    kvffi_agent_get_nixl_name: Callable[[Pointer, Pointer, Pointer], int]
    kvffi_agent_get_nixl_metadata: Callable[[Pointer, Pointer, Pointer], int]
    kvffi_agent_notify: Callable[[Pointer, Pointer, Pointer, int, Pointer], int]
    kvffi_agent_take_notifications: Callable[[Pointer, Pointer, Pointer], int]
    kvffi_notifications_len: Callable[[Pointer], int]
    kvffi_notifications_get: Callable[[Pointer, Pointer, int, Pointer, Pointer], int]
    kvffi_notifications_free: Callable[[Pointer], None]
    kvffi_agent_start: Callable[[Pointer, Pointer, int, Pointer, int, Pointer, Pointer, Pointer], int]
    kvffi_agent_start_answer: Callable[[Pointer, Pointer, Pointer, Pointer, Pointer, Pointer], int]
    kvffi_agent_start_request: Callable[[Pointer, Pointer, Pointer, Pointer, Pointer, Pointer, Pointer, Pointer], int]
    kvffi_transfer_poll: Callable[[Pointer, Pointer], int]
    kvffi_transfer_wait: Callable[[Pointer, int, Pointer], int]
    kvffi_transfer_wait_settled: Callable[[Pointer, int, Pointer], int]
    kvffi_transfer_cancel: Callable[[Pointer, Pointer], int]
    kvffi_transfer_get_stats: Callable[[Pointer, Pointer, Pointer], int]
    kvffi_transfer_free: Callable[[Pointer], None]
    kvffi_agent_get_fd: Callable[[Pointer, int, Pointer, Pointer], int]
    kvffi_agent_clear_fd: Callable[[Pointer, Pointer], int]
    kvffi_agent_raise_fd: Callable[[Pointer, Pointer], int]
    kvffi_agent_get_quarantine: Callable[[Pointer, Pointer, Pointer], int]
    kvffi_quarantine_get_entries: Callable[[Pointer, Pointer, int, Pointer, Pointer], int]
    kvffi_quarantine_get_ranges: Callable[[Pointer, int, Pointer, int, Pointer, Pointer], int]
    kvffi_quarantine_free: Callable[[Pointer], None]
    kvffi_agent_get_stats: Callable[[Pointer, Pointer, Pointer], int]
    kvffi_agent_get_histogram: Callable[[Pointer, int, Pointer, int, Pointer, Pointer], int]
    kvffi_exchange_new: Callable[[Pointer, Pointer, Pointer, Pointer], int]
    kvffi_exchange_free: Callable[[Pointer], None]
    kvffi_exchange_want: Callable[[Pointer, bytes | None, Pointer, Pointer], int]
    kvffi_exchange_connect: Callable[[Pointer, Pointer, int, Pointer, Pointer], int]
    kvffi_exchange_connect_named: Callable[[Pointer, bytes | None, Pointer, int, Pointer, Pointer], int]
    kvffi_exchange_get_peer: Callable[[Pointer, Pointer, Pointer, Pointer], int]
    kvffi_exchange_fetch_failed: Callable[[Pointer, bytes | None, Pointer], int]
    kvffi_exchange_release_peer: Callable[[Pointer, bytes | None, Pointer], int]
    kvffi_exchange_peer_is_gone: Callable[[Pointer, Pointer, Pointer], int]
    kvffi_exchange_withdraw: Callable[[Pointer, Pointer], int]
    kvffi_exchange_count_withdrawing: Callable[[Pointer, Pointer, Pointer], int]
    kvffi_exchange_registered: Callable[[Pointer, Pointer], int]
    kvffi_exchange_goodbye: Callable[[Pointer, Pointer], int]
    kvffi_exchange_hold: Callable[[Pointer, bytes | None, int, int, int, Pointer, Pointer], int]
    kvffi_exchange_set_readers: Callable[[Pointer, int, int, Pointer, Pointer], int]
    kvffi_exchange_ready: Callable[[Pointer, int, int, Pointer, Pointer], int]
    kvffi_pushes_get: Callable[[Pointer, Pointer, int, Pointer, Pointer], int]
    kvffi_pushes_free: Callable[[Pointer], None]
    kvffi_exchange_refuse: Callable[[Pointer, Pointer, bytes | None, Pointer, Pointer], int]
    kvffi_exchange_abort: Callable[[Pointer, int, Pointer, Pointer], int]
    kvffi_exchange_write: Callable[[Pointer, Pointer, int, Pointer, int, int, Pointer], int]
    kvffi_exchange_write_answer: Callable[[Pointer, Pointer, int, Pointer, Pointer], int]
    kvffi_exchange_pull: Callable[[Pointer, int, Pointer, int, int, Pointer, Pointer], int]
    kvffi_exchange_cancel_pull: Callable[[Pointer, int, Pointer, Pointer], int]
    kvffi_exchange_keep: Callable[[Pointer, Pointer, int, Pointer], int]
    kvffi_exchange_let_go: Callable[[Pointer, Pointer, int, Pointer], int]
    kvffi_exchange_reserve: Callable[[Pointer, bytes | None, int, Pointer, int, int, Pointer, Pointer], int]
    kvffi_exchange_cancel_reservation: Callable[[Pointer, int, Pointer, Pointer], int]
    kvffi_event_name: Callable[[int], bytes | None]
    kvffi_exchange_poll: Callable[[Pointer, Pointer, Pointer], int]
    kvffi_exchange_get_timeout: Callable[[Pointer, Pointer, Pointer], int]
    kvffi_events_len: Callable[[Pointer], int]
    kvffi_events_get: Callable[[Pointer, int, Pointer, Pointer], int]
    kvffi_events_free: Callable[[Pointer], None]
    kvffi_exchange_get_stats: Callable[[Pointer, Pointer, Pointer], int]
    kvffi_logs_new: Callable[[Pointer, Pointer, Pointer], int]
    kvffi_logs_get_fd: Callable[[Pointer, Pointer, Pointer], int]
    kvffi_logs_take: Callable[[Pointer, Pointer, Pointer, Pointer], int]
    kvffi_log_records_len: Callable[[Pointer], int]
    kvffi_log_records_get: Callable[[Pointer, Pointer, int, Pointer, Pointer], int]
    kvffi_log_records_free: Callable[[Pointer], None]
    kvffi_logs_free: Callable[[Pointer], None]

    def __init__(self, library: ctypes.CDLL) -> None:
        """Looks every function up; `AttributeError` names one that the library lacks."""
        for name, result, parameters in SIGNATURES:
            function = library[name]
            function.restype = result
            function.argtypes = tuple(kind for _, kind in parameters)
            function.numbers = numbers(parameters)  # type: ignore[attr-defined]
            setattr(self, name, function)


# Name, result, parameters with their names.
SIGNATURES: tuple[tuple[str, Any, tuple[tuple[str, Any], ...]], ...] = (
    ("kvffi_status_name", c_char_p, (("status", c_int32),)),
    ("kvffi_error_status", c_int32, (("error", c_void_p),)),
    ("kvffi_error_message", c_char_p, (("error", c_void_p),)),
    ("kvffi_error_num_findings", c_size_t, (("error", c_void_p),)),
    ("kvffi_error_finding", c_char_p, (("error", c_void_p), ("index", c_size_t))),
    ("kvffi_error_free", None, (("error", c_void_p),)),
    ("kvffi_version", c_uint32, ()),
    ("kvffi_version_text", c_char_p, ()),
    ("kvffi_abi_check", c_int32, (("header_version", c_uint32), ("out_error", c_void_p))),
    ("kvffi_text_data", c_char_p, (("text", c_void_p),)),
    ("kvffi_text_len", c_size_t, (("text", c_void_p),)),
    ("kvffi_text_free", None, (("text", c_void_p),)),
    ("kvffi_spec_from_json", c_int32, (("json", c_char_p), ("json_len", c_size_t), ("out_spec", c_void_p), ("out_error", c_void_p))),
    ("kvffi_spec_to_json", c_int32, (("spec", c_void_p), ("out_json", c_void_p), ("out_error", c_void_p))),
    ("kvffi_spec_free", None, (("spec", c_void_p),)),
    ("kvffi_spec_builder_new", c_int32, (("worker", c_void_p), ("out_builder", c_void_p), ("out_error", c_void_p))),
    ("kvffi_spec_builder_add_storage", c_int32, (("builder", c_void_p), ("storage", c_void_p), ("out_storage", c_void_p), ("out_error", c_void_p))),
    ("kvffi_spec_builder_add_group", c_int32, (("builder", c_void_p), ("group", c_void_p), ("out_group", c_void_p), ("out_error", c_void_p))),
    ("kvffi_spec_builder_add_layer", c_int32, (("builder", c_void_p), ("layer", c_void_p), ("out_layer", c_void_p), ("out_error", c_void_p))),
    ("kvffi_spec_builder_add_part", c_int32, (("builder", c_void_p), ("layer", c_uint32), ("part", c_void_p), ("out_error", c_void_p))),
    ("kvffi_spec_builder_build", c_int32, (("builder", c_void_p), ("out_spec", c_void_p), ("out_error", c_void_p))),
    ("kvffi_spec_builder_free", None, (("builder", c_void_p),)),
    ("kvffi_page_new_mla", c_int32, (("rows", c_void_p), ("out_page", c_void_p), ("out_error", c_void_p))),
    ("kvffi_page_new_indexer", c_int32, (("rows", c_void_p), ("out_page", c_void_p), ("out_error", c_void_p))),
    ("kvffi_page_new_opaque", c_int32, (("bytes", c_uint64), ("format", c_char_p), ("block_usage", c_int32), ("out_page", c_void_p), ("out_error", c_void_p))),
    ("kvffi_page_new_ring", c_int32, (("capacity_tokens", c_uint64), ("row_bytes", c_uint64), ("format", c_char_p), ("num_heads", c_uint64), ("sharding", c_int32), ("out_page", c_void_p), ("out_error", c_void_p))),
    ("kvffi_page_free", None, (("page", c_void_p),)),
    ("kvffi_page_new_attention", c_int32, (("attention", c_void_p), ("out_page", c_void_p), ("out_error", c_void_p))),
    ("kvffi_page_new_token_head_quant", c_int32, (("attention", c_void_p), ("scale_bytes", c_uint64), ("out_page", c_void_p), ("out_error", c_void_p))),
    ("kvffi_page_new_block_scaled", c_int32, (("attention", c_void_p), ("scale_element", c_int32), ("scales_per_head", c_uint64), ("tokens_per_scale", c_uint64), ("out_page", c_void_p), ("out_error", c_void_p))),
    ("kvffi_page_new_nvfp4", c_int32, (("attention", c_void_p), ("out_page", c_void_p), ("out_error", c_void_p))),
    ("kvffi_page_new_mamba1", c_int32, (("intermediate_size", c_uint64), ("state_size", c_uint64), ("conv_kernel", c_uint64), ("options", c_void_p), ("out_page", c_void_p), ("out_error", c_void_p))),
    ("kvffi_page_new_mamba2", c_int32, (("num_heads", c_uint64), ("head_size", c_uint64), ("num_groups", c_uint64), ("state_size", c_uint64), ("conv_kernel", c_uint64), ("options", c_void_p), ("out_page", c_void_p), ("out_error", c_void_p))),
    ("kvffi_page_new_gated_delta_net", c_int32, (("num_key_heads", c_uint64), ("key_size", c_uint64), ("num_value_heads", c_uint64), ("value_size", c_uint64), ("conv_kernel", c_uint64), ("options", c_void_p), ("out_page", c_void_p), ("out_error", c_void_p))),
    ("kvffi_arrangement_new", c_int32, (("worker", c_void_p), ("out_arrangement", c_void_p), ("out_error", c_void_p))),
    ("kvffi_arrangement_add_pool", c_int32, (("arrangement", c_void_p), ("pool", c_void_p), ("out_error", c_void_p))),
    ("kvffi_arrangement_add_group", c_int32, (("arrangement", c_void_p), ("blocks", c_void_p), ("out_group", c_void_p), ("out_error", c_void_p))),
    ("kvffi_arrangement_add_layer", c_int32, (("arrangement", c_void_p), ("layer", c_void_p), ("out_error", c_void_p))),
    ("kvffi_arrangement_get_storage_lens", c_int32, (("arrangement", c_void_p), ("lens", c_void_p), ("capacity", c_size_t), ("out_len", c_void_p), ("out_error", c_void_p))),
    ("kvffi_arrangement_build", c_int32, (("arrangement", c_void_p), ("bases", c_void_p), ("num_bases", c_size_t), ("out_spec", c_void_p), ("out_error", c_void_p))),
    ("kvffi_arrangement_free", None, (("arrangement", c_void_p),)),
    ("kvffi_tensors_new", c_int32, (("worker", c_void_p), ("out_tensors", c_void_p), ("out_error", c_void_p))),
    ("kvffi_tensors_add_storage", c_int32, (("tensors", c_void_p), ("storage", c_void_p), ("out_error", c_void_p))),
    ("kvffi_tensors_add_group", c_int32, (("tensors", c_void_p), ("group", c_void_p), ("out_group", c_void_p), ("out_error", c_void_p))),
    ("kvffi_tensors_add_layer", c_int32, (("tensors", c_void_p), ("layer", c_void_p), ("out_layer", c_void_p), ("out_error", c_void_p))),
    ("kvffi_tensors_add_tensor", c_int32, (("tensors", c_void_p), ("layer", c_uint32), ("tensor", c_void_p), ("out_error", c_void_p))),
    ("kvffi_tensors_build", c_int32, (("tensors", c_void_p), ("out_spec", c_void_p), ("out_error", c_void_p))),
    ("kvffi_tensors_free", None, (("tensors", c_void_p),)),
    ("kvffi_local_plan_new", c_int32, (("spec", c_void_p), ("flags", c_uint32), ("out_plan", c_void_p), ("out_error", c_void_p))),
    ("kvffi_local_plan_get_memory_ranges", c_int32, (("plan", c_void_p), ("memory_ranges", c_void_p), ("capacity", c_size_t), ("out_len", c_void_p), ("out_error", c_void_p))),
    ("kvffi_local_plan_get_regions", c_int32, (("plan", c_void_p), ("regions", c_void_p), ("capacity", c_size_t), ("out_len", c_void_p), ("out_error", c_void_p))),
    ("kvffi_local_plan_get_members", c_int32, (("plan", c_void_p), ("region", c_size_t), ("members", c_void_p), ("capacity", c_size_t), ("out_len", c_void_p), ("out_error", c_void_p))),
    ("kvffi_local_plan_free", None, (("plan", c_void_p),)),
    ("kvffi_spec_get_sources", c_int32, (("local", c_void_p), ("remote", c_void_p), ("layer", c_char_p), ("shares", c_void_p), ("capacity", c_size_t), ("out_len", c_void_p), ("out_error", c_void_p))),
    ("kvffi_spec_get_targets", c_int32, (("local", c_void_p), ("remote", c_void_p), ("layer", c_char_p), ("shares", c_void_p), ("capacity", c_size_t), ("out_len", c_void_p), ("out_error", c_void_p))),
    ("kvffi_spec_count_readers", c_int32, (("source", c_void_p), ("stages", c_void_p), ("num_stages", c_size_t), ("out_num_readers", c_void_p), ("out_error", c_void_p))),
    ("kvffi_pair_new", c_int32, (("local", c_void_p), ("remote", c_void_p), ("options", c_void_p), ("out_pair", c_void_p), ("out_error", c_void_p))),
    ("kvffi_pair_is_empty", c_int32, (("pair", c_void_p), ("out_is_empty", c_void_p), ("out_error", c_void_p))),
    ("kvffi_pair_explain", c_int32, (("pair", c_void_p), ("form", c_int32), ("out_text", c_void_p), ("out_error", c_void_p))),
    ("kvffi_pair_free", None, (("pair", c_void_p),)),
    ("kvffi_answer_new", c_int32, (("out_answer", c_void_p), ("out_error", c_void_p))),
    ("kvffi_pair_answer", c_int32, (("pair", c_void_p), ("request", c_void_p), ("answer", c_void_p), ("out_error", c_void_p))),
    ("kvffi_pair_answer_json", c_int32, (("pair", c_void_p), ("json", c_char_p), ("json_len", c_size_t), ("answer", c_void_p), ("out_error", c_void_p))),
    ("kvffi_answer_get_totals", c_int32, (("answer", c_void_p), ("out_totals", c_void_p), ("out_error", c_void_p))),
    ("kvffi_answer_get_descriptors", c_int32, (("answer", c_void_p), ("descriptors", c_void_p), ("capacity", c_size_t), ("out_len", c_void_p), ("out_error", c_void_p))),
    ("kvffi_answer_get_zero_ranges", c_int32, (("answer", c_void_p), ("zero_ranges", c_void_p), ("capacity", c_size_t), ("out_len", c_void_p), ("out_error", c_void_p))),
    ("kvffi_pair_verify", c_int32, (("pair", c_void_p), ("answer", c_void_p), ("out_error", c_void_p))),
    ("kvffi_answer_free", None, (("answer", c_void_p),)),
    ("kvffi_bytes_data", c_void_p, (("bytes", c_void_p),)),
    ("kvffi_bytes_len", c_size_t, (("bytes", c_void_p),)),
    ("kvffi_bytes_free", None, (("bytes", c_void_p),)),
    ("kvffi_loopback_new", c_int32, (("out_loopback", c_void_p), ("out_error", c_void_p))),
    ("kvffi_loopback_set_faults", c_int32, (("loopback", c_void_p), ("faults", c_uint32), ("out_error", c_void_p))),
    ("kvffi_loopback_free", None, (("loopback", c_void_p),)),
    ("kvffi_agent_new", c_int32, (("name", c_char_p), ("options", c_void_p), ("out_agent", c_void_p), ("out_error", c_void_p))),
    ("kvffi_agent_get_info", c_int32, (("agent", c_void_p), ("out_info", c_void_p), ("out_error", c_void_p))),
    ("kvffi_agent_register", c_int32, (("agent", c_void_p), ("plan", c_void_p), ("out_error", c_void_p))),
    ("kvffi_agent_reregister", c_int32, (("agent", c_void_p), ("plan", c_void_p), ("out_error", c_void_p))),
    ("kvffi_agent_deregister", c_int32, (("agent", c_void_p), ("out_error", c_void_p))),
    ("kvffi_agent_export", c_int32, (("agent", c_void_p), ("out_blob", c_void_p), ("out_error", c_void_p))),
    ("kvffi_agent_shutdown", c_int32, (("agent", c_void_p), ("timeout_ms", c_uint64), ("out_error", c_void_p))),
    ("kvffi_agent_free", None, (("agent", c_void_p),)),
    ("kvffi_agent_connect", c_int32, (("agent", c_void_p), ("blob", c_void_p), ("blob_len", c_size_t), ("out_peer", c_void_p), ("out_error", c_void_p))),
    ("kvffi_agent_connect_named", c_int32, (("agent", c_void_p), ("name", c_char_p), ("blob", c_void_p), ("blob_len", c_size_t), ("out_peer", c_void_p), ("out_error", c_void_p))),
    ("kvffi_agent_reconnect", c_int32, (("agent", c_void_p), ("peer", c_void_p), ("out_error", c_void_p))),
    ("kvffi_agent_disconnect", c_int32, (("agent", c_void_p), ("peer", c_void_p), ("out_error", c_void_p))),
    ("kvffi_peer_get_info", c_int32, (("peer", c_void_p), ("out_info", c_void_p), ("out_error", c_void_p))),
    ("kvffi_peer_get_layout", c_int32, (("peer", c_void_p), ("out_spec", c_void_p), ("out_error", c_void_p))),
    ("kvffi_peer_declare_gone", c_int32, (("peer", c_void_p), ("out_error", c_void_p))),
    ("kvffi_peer_free", None, (("peer", c_void_p),)),
    ("kvffi_agent_connect_foreign", c_int32, (("agent", c_void_p), ("peer", c_void_p), ("out_peer", c_void_p), ("out_error", c_void_p))),
    ("kvffi_agent_get_nixl_name", c_int32, (("agent", c_void_p), ("out_name", c_void_p), ("out_error", c_void_p))),
    ("kvffi_agent_get_nixl_metadata", c_int32, (("agent", c_void_p), ("out_metadata", c_void_p), ("out_error", c_void_p))),
    ("kvffi_agent_notify", c_int32, (("agent", c_void_p), ("peer", c_void_p), ("message", c_void_p), ("message_len", c_size_t), ("out_error", c_void_p))),
    ("kvffi_agent_take_notifications", c_int32, (("agent", c_void_p), ("out_notifications", c_void_p), ("out_error", c_void_p))),
    ("kvffi_notifications_len", c_size_t, (("notifications", c_void_p),)),
    ("kvffi_notifications_get", c_int32, (("notifications", c_void_p), ("array", c_void_p), ("capacity", c_size_t), ("out_len", c_void_p), ("out_error", c_void_p))),
    ("kvffi_notifications_free", None, (("notifications", c_void_p),)),
    ("kvffi_agent_start", c_int32, (("agent", c_void_p), ("peer", c_void_p), ("op", c_int32), ("descriptors", c_void_p), ("num_descriptors", c_size_t), ("options", c_void_p), ("out_transfer", c_void_p), ("out_error", c_void_p))),
    ("kvffi_agent_start_answer", c_int32, (("agent", c_void_p), ("peer", c_void_p), ("answer", c_void_p), ("options", c_void_p), ("out_transfer", c_void_p), ("out_error", c_void_p))),
    ("kvffi_agent_start_request", c_int32, (("agent", c_void_p), ("peer", c_void_p), ("pair", c_void_p), ("request", c_void_p), ("answer", c_void_p), ("options", c_void_p), ("out_transfer", c_void_p), ("out_error", c_void_p))),
    ("kvffi_transfer_poll", c_int32, (("transfer", c_void_p), ("out_error", c_void_p))),
    ("kvffi_transfer_wait", c_int32, (("transfer", c_void_p), ("timeout_ms", c_uint64), ("out_error", c_void_p))),
    ("kvffi_transfer_wait_settled", c_int32, (("transfer", c_void_p), ("timeout_ms", c_uint64), ("out_error", c_void_p))),
    ("kvffi_transfer_cancel", c_int32, (("transfer", c_void_p), ("out_error", c_void_p))),
    ("kvffi_transfer_get_stats", c_int32, (("transfer", c_void_p), ("out_stats", c_void_p), ("out_error", c_void_p))),
    ("kvffi_transfer_free", None, (("transfer", c_void_p),)),
    ("kvffi_agent_get_fd", c_int32, (("agent", c_void_p), ("look_every_us", c_uint64), ("out_fd", c_void_p), ("out_error", c_void_p))),
    ("kvffi_agent_clear_fd", c_int32, (("agent", c_void_p), ("out_error", c_void_p))),
    ("kvffi_agent_raise_fd", c_int32, (("agent", c_void_p), ("out_error", c_void_p))),
    ("kvffi_agent_get_quarantine", c_int32, (("agent", c_void_p), ("out_quarantine", c_void_p), ("out_error", c_void_p))),
    ("kvffi_quarantine_get_entries", c_int32, (("quarantine", c_void_p), ("entries", c_void_p), ("capacity", c_size_t), ("out_len", c_void_p), ("out_error", c_void_p))),
    ("kvffi_quarantine_get_ranges", c_int32, (("quarantine", c_void_p), ("entry", c_size_t), ("ranges", c_void_p), ("capacity", c_size_t), ("out_len", c_void_p), ("out_error", c_void_p))),
    ("kvffi_quarantine_free", None, (("quarantine", c_void_p),)),
    ("kvffi_agent_get_stats", c_int32, (("agent", c_void_p), ("out_stats", c_void_p), ("out_error", c_void_p))),
    ("kvffi_agent_get_histogram", c_int32, (("agent", c_void_p), ("histogram", c_int32), ("buckets", c_void_p), ("capacity", c_size_t), ("out_len", c_void_p), ("out_error", c_void_p))),
    ("kvffi_exchange_new", c_int32, (("agent", c_void_p), ("options", c_void_p), ("out_exchange", c_void_p), ("out_error", c_void_p))),
    ("kvffi_exchange_free", None, (("exchange", c_void_p),)),
    ("kvffi_exchange_want", c_int32, (("exchange", c_void_p), ("name", c_char_p), ("out_wanted", c_void_p), ("out_error", c_void_p))),
    ("kvffi_exchange_connect", c_int32, (("exchange", c_void_p), ("blob", c_void_p), ("blob_len", c_size_t), ("out_peer", c_void_p), ("out_error", c_void_p))),
    ("kvffi_exchange_connect_named", c_int32, (("exchange", c_void_p), ("name", c_char_p), ("blob", c_void_p), ("blob_len", c_size_t), ("out_peer", c_void_p), ("out_error", c_void_p))),
    ("kvffi_exchange_get_peer", c_int32, (("exchange", c_void_p), ("peer", c_void_p), ("out_peer", c_void_p), ("out_error", c_void_p))),
    ("kvffi_exchange_fetch_failed", c_int32, (("exchange", c_void_p), ("name", c_char_p), ("out_error", c_void_p))),
    ("kvffi_exchange_release_peer", c_int32, (("exchange", c_void_p), ("name", c_char_p), ("out_error", c_void_p))),
    ("kvffi_exchange_peer_is_gone", c_int32, (("exchange", c_void_p), ("peer", c_void_p), ("out_error", c_void_p))),
    ("kvffi_exchange_withdraw", c_int32, (("exchange", c_void_p), ("out_error", c_void_p))),
    ("kvffi_exchange_count_withdrawing", c_int32, (("exchange", c_void_p), ("out_num_peers", c_void_p), ("out_error", c_void_p))),
    ("kvffi_exchange_registered", c_int32, (("exchange", c_void_p), ("out_error", c_void_p))),
    ("kvffi_exchange_goodbye", c_int32, (("exchange", c_void_p), ("out_error", c_void_p))),
    ("kvffi_exchange_hold", c_int32, (("exchange", c_void_p), ("request", c_char_p), ("cookie", c_uint64), ("readers", c_uint64), ("num_parts", c_uint32), ("out_lease", c_void_p), ("out_error", c_void_p))),
    ("kvffi_exchange_set_readers", c_int32, (("exchange", c_void_p), ("lease", c_uint64), ("readers", c_uint64), ("out_is_held", c_void_p), ("out_error", c_void_p))),
    ("kvffi_exchange_ready", c_int32, (("exchange", c_void_p), ("lease", c_uint64), ("part", c_uint32), ("out_pushes", c_void_p), ("out_error", c_void_p))),
    ("kvffi_pushes_get", c_int32, (("pushes", c_void_p), ("array", c_void_p), ("capacity", c_size_t), ("out_len", c_void_p), ("out_error", c_void_p))),
    ("kvffi_pushes_free", None, (("pushes", c_void_p),)),
    ("kvffi_exchange_refuse", c_int32, (("exchange", c_void_p), ("push", c_void_p), ("reason", c_char_p), ("out_was_open", c_void_p), ("out_error", c_void_p))),
    ("kvffi_exchange_abort", c_int32, (("exchange", c_void_p), ("lease", c_uint64), ("out_is_held", c_void_p), ("out_error", c_void_p))),
    ("kvffi_exchange_write", c_int32, (("exchange", c_void_p), ("push", c_void_p), ("part", c_uint32), ("descriptors", c_void_p), ("num_descriptors", c_size_t), ("padding_bytes", c_uint64), ("out_error", c_void_p))),
    ("kvffi_exchange_write_answer", c_int32, (("exchange", c_void_p), ("push", c_void_p), ("part", c_uint32), ("answer", c_void_p), ("out_error", c_void_p))),
    ("kvffi_exchange_pull", c_int32, (("exchange", c_void_p), ("cookie", c_uint64), ("parts", c_void_p), ("num_parts", c_size_t), ("deadline_ms", c_uint64), ("out_pull", c_void_p), ("out_error", c_void_p))),
    ("kvffi_exchange_cancel_pull", c_int32, (("exchange", c_void_p), ("pull", c_uint64), ("out_was_running", c_void_p), ("out_error", c_void_p))),
    ("kvffi_exchange_keep", c_int32, (("exchange", c_void_p), ("peer", c_void_p), ("lease", c_uint64), ("out_error", c_void_p))),
    ("kvffi_exchange_let_go", c_int32, (("exchange", c_void_p), ("peer", c_void_p), ("lease", c_uint64), ("out_error", c_void_p))),
    ("kvffi_exchange_reserve", c_int32, (("exchange", c_void_p), ("request", c_char_p), ("cookie", c_uint64), ("sources", c_void_p), ("num_sources", c_size_t), ("deadline_ms", c_uint64), ("out_reservation", c_void_p), ("out_error", c_void_p))),
    ("kvffi_exchange_cancel_reservation", c_int32, (("exchange", c_void_p), ("reservation", c_uint64), ("out_is_held", c_void_p), ("out_error", c_void_p))),
    ("kvffi_event_name", c_char_p, (("kind", c_int32),)),
    ("kvffi_exchange_poll", c_int32, (("exchange", c_void_p), ("out_events", c_void_p), ("out_error", c_void_p))),
    ("kvffi_exchange_get_timeout", c_int32, (("exchange", c_void_p), ("out_timeout_ms", c_void_p), ("out_error", c_void_p))),
    ("kvffi_events_len", c_size_t, (("events", c_void_p),)),
    ("kvffi_events_get", c_int32, (("events", c_void_p), ("index", c_size_t), ("out_event", c_void_p), ("out_error", c_void_p))),
    ("kvffi_events_free", None, (("events", c_void_p),)),
    ("kvffi_exchange_get_stats", c_int32, (("exchange", c_void_p), ("out_stats", c_void_p), ("out_error", c_void_p))),
    ("kvffi_logs_new", c_int32, (("options", c_void_p), ("out_logs", c_void_p), ("out_error", c_void_p))),
    ("kvffi_logs_get_fd", c_int32, (("logs", c_void_p), ("out_fd", c_void_p), ("out_error", c_void_p))),
    ("kvffi_logs_take", c_int32, (("logs", c_void_p), ("out_records", c_void_p), ("out_dropped", c_void_p), ("out_error", c_void_p))),
    ("kvffi_log_records_len", c_size_t, (("records", c_void_p),)),
    ("kvffi_log_records_get", c_int32, (("records", c_void_p), ("array", c_void_p), ("capacity", c_size_t), ("out_len", c_void_p), ("out_error", c_void_p))),
    ("kvffi_log_records_free", None, (("records", c_void_p),)),
    ("kvffi_logs_free", None, (("logs", c_void_p),)),
)
