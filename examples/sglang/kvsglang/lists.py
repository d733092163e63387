"""The lists that an engine registers, checked: what KVArgs says, in a form that cannot contradict itself.

KVArgs is a bag of parallel lists whose meaning lies in their order and length. Everything is checked here, once; what
follows works on these records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .errors import ListLengthError, PointerError, StateKindError, ValueKindError, ValueRangeError
from .integers import HIGHEST, integer, integers, listed
from .options import Options

STATE_KINDS = (
    "mamba",
    "swa",
    "dsa",
    "swa_ring",
    "request_row",
    "c128_state",
    "qsa_pending",
    "qsa_compressed",
    "minimax_index_k",
    "minimax_dense_kv",
    "block_scale",
    "block_scale_swa",
    "dsa_tail",
)
"""Kinds of state that can be mapped: all of SGLang's."""
MEMORY = ("VRAM", "DRAM")
"""Where KV buffers may be, as SGLang's lists name it."""
ELIDED = ("dsa", "dsa_tail")
"""Kinds of which a layer may have a buffer without memory: one that shares another layer's indexer."""


@dataclass(frozen=True)
class Buffer:
    """Rows of equal length at an address; a row is a page, a slot, or the bytes of a request."""

    place: str
    """Where the engine lists it, such as ``"kv_data_ptrs[3]"``: for errors."""
    base: int
    length: int
    row_bytes: int
    mem: str | dict[str, int] = "dram"
    """As the JSON form of a spec has it."""

    @property
    def is_elided(self) -> bool:
        """Whether there is no such buffer: a layer that shares another one's."""
        return self.length == 0 and self.row_bytes == 0

    @property
    def num_rows(self) -> int:
        """Whole rows."""
        return self.length // self.row_bytes if self.row_bytes else 0

    def check(self, *, may_be_elided: bool = False) -> None:
        """Finds a row or a length that leaves nothing to move: whoever waits for its bytes would not get them.

        # Errors
        `ValueRangeError`.
        """
        if may_be_elided and self.is_elided:
            return
        if self.row_bytes < 1 or self.row_bytes > self.length > 0:
            raise ValueRangeError(self.beside("item_lens"), self.row_bytes, 1, self.length or HIGHEST)
        if self.length < 1:
            raise ValueRangeError(self.beside("data_lens"), self.length, self.row_bytes, HIGHEST)

    def beside(self, name: str) -> str:
        """Where the engine lists something else of it, such as ``"kv_item_lens[3]"``."""
        return self.place.replace("data_ptrs", name)


@dataclass(frozen=True)
class Component:
    """State of one kind: buffers with an index list of their own."""

    kind: str
    buffers: tuple[Buffer, ...]
    layer_ids: tuple[int, ...] = ()
    """Layer of each buffer; empty if the engine does not say."""
    channels: tuple[int, ...] = ()
    """This rank's units on the axis that TP slices, of each buffer; 0 for one that every rank has whole."""
    outer: tuple[int, ...] = ()
    """Rows before that axis, of each buffer."""
    blocks: tuple[tuple[int, ...] | None, ...] = ()
    """Channels of the whole model in each sub-block that TP slices by itself, of each buffer."""


@dataclass(frozen=True)
class Place:
    """Ranks of a worker.

    # Errors
    `ValueKindError` for what is no integer, `ValueRangeError` for a group of none.
    """

    tp_rank: int = 0
    tp_size: int = 1
    pp_rank: int = 0
    pp_size: int = 1
    dcp_size: int = 1
    """Ranks that decode context parallelism deals the tokens of a sequence to, one by one."""

    def __post_init__(self) -> None:
        # Whether a rank is in its group is for the spec, or the rendezvous, to say.
        for name, lowest in (
            ("tp_rank", -HIGHEST),
            ("tp_size", 1),
            ("pp_rank", -HIGHEST),
            ("pp_size", 1),
            ("dcp_size", 1),
        ):
            # As Python's own: what is written down as JSON takes no others.
            object.__setattr__(self, name, integer(name, getattr(self, name), lowest))

    @property
    def dcp_rank(self) -> int:
        """Which of them this is."""
        return self.tp_rank % self.dcp_size


@dataclass(frozen=True)
class Lists:
    """What one worker registers.

    # Errors
    `ValueRangeError` for a buffer without rows, where no layer may share another one's.
    """

    kv: tuple[Buffer, ...]
    kv_layer_ids: tuple[int, ...]
    aux: tuple[Buffer, ...]
    components: tuple[Component, ...]
    page_tokens: int
    num_heads: int
    """KV heads of this rank."""
    total_heads: int
    num_draft: int
    """Buffers at the end of `kv` that belong to the draft model."""
    first_layer: int
    """First layer of this worker's pipeline stage."""
    dtype: str
    is_mla: bool
    """Whether the KV buffers hold latents, one buffer a layer, the same on every rank."""
    is_hybrid: bool = False
    """Whether other layers of an MLA model are sharded over TP: then every prefill rank has something to send."""
    ratios: tuple[int, ...] = ()
    """Of compressed MLA: tokens a latent stands for, for each layer of the whole model; 0 for none."""
    end_layer: int | None = None
    """One behind the stage's last layer."""
    kinds: tuple[str, ...] = ()
    """Memory of each KV buffer as SGLang's wire names it: "VRAM" or "DRAM"."""
    page_order: str = "nhd"
    """Axes of a page: "nhd" is token, head, content; "hnd" head, token, content; any other is never cut."""
    extra: dict[str, str] = field(default_factory=dict)
    layers: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Layers of the whole model that have pages ("kv") or state of a kind, where the engine does not say."""
    ring_slots: int | None = None
    """Slots of a request's ring of `dsa_tail`."""

    def __post_init__(self) -> None:
        for buffer in (*self.kv, *self.aux):
            buffer.check()
        for component in self.components:
            for buffer in component.buffers:
                buffer.check(may_be_elided=component.kind in ELIDED)

    @property
    def kv_layout(self) -> str | None:
        """How the bytes of a page are laid out, where a cache has several ways."""
        return self.extra.get("kv_layout")


def read(args: Any, options: Options, *, is_mla: bool) -> Lists:
    """Checks an engine's KVArgs.

    # Errors
    `ListLengthError`, `PointerError`, `ValueKindError`, `ValueRangeError`, `StateKindError`, with the place in KVArgs.
    """
    gpu: str | dict[str, int] = {"vram": integer("gpu_id", _given(args, "gpu_id", 0))}
    default = gpu if options.device is None else options.device
    kv = _buffers("kv", args.kv_data_ptrs, args.kv_data_lens, args.kv_item_lens, default)
    kinds = None
    if getattr(args, "kv_data_mem_kinds", None) is not None:
        kinds = listed("kv_data_mem_kinds", args.kv_data_mem_kinds)
        _same_length("kv_data_mem_kinds", kinds, "kv_data_ptrs", kv)
        for index, kind in enumerate(kinds):
            if kind not in MEMORY:
                raise ValueKindError(f"kv_data_mem_kinds[{index}]", kind, " or ".join(MEMORY))
        kv = tuple(
            Buffer(b.place, b.base, b.length, b.row_bytes, "dram" if kind == "DRAM" else default)
            for b, kind in zip(kv, kinds, strict=True)
        )
    layer_ids = integers("kv_layer_ids", getattr(args, "kv_layer_ids", None))
    if layer_ids:
        _same_length("kv_layer_ids", layer_ids, "kv_data_ptrs", kv)
    num_draft = integer("num_draft_entries", _given(args, "num_draft_entries", 0), 0, len(kv))
    heads = integer("kv_head_num", _given(args, "kv_head_num", 1), 1)
    is_hybrid = bool(getattr(args, "is_hybrid_mla_backend", False))
    end_layer = getattr(args, "prefill_end_layer", None)
    return Lists(
        kv=kv,
        kv_layer_ids=layer_ids,
        aux=_buffers("aux", args.aux_data_ptrs, args.aux_data_lens, args.aux_item_lens, "dram"),
        components=_components(args, default),
        page_tokens=integer("page_size", args.page_size, 1),
        num_heads=heads,
        total_heads=integer("total_kv_head_num", _given(args, "total_kv_head_num", heads), 1),
        num_draft=num_draft,
        first_layer=integer("prefill_start_layer", _given(args, "prefill_start_layer", 0)),
        dtype=str(args.kv_cache_dtype_str),
        is_mla=is_mla or is_hybrid,
        is_hybrid=is_hybrid,
        ratios=integers("mla_compression_ratios", getattr(args, "mla_compression_ratios", None)),
        end_layer=None if end_layer is None else integer("prefill_end_layer", end_layer),
        kinds=("VRAM",) * len(kv) if kinds is None else tuple(map(str, kinds)),
        page_order=str(getattr(args, "swa_kv_cache_layout", None) or "nhd"),
        extra={} if getattr(args, "kv_layout", None) is None else {"kv_layout": str(args.kv_layout)},
        layers=options.layers,
        ring_slots=options.ring_slots,
    )


def _given(args: Any, name: str, default: int) -> Any:
    value = getattr(args, name, None)
    return default if value is None else value


def _components(args: Any, device: str | dict[str, int]) -> tuple[Component, ...]:
    types = listed("state_types", getattr(args, "state_types", None))
    kinds = [str(getattr(kind, "value", kind)) for kind in types]
    needed = "state_data_ptrs", "state_data_lens", "state_item_lens"
    optional = "state_layer_ids", "state_dim_per_tensor", "state_slice_outer_counts", "state_conv_shard_groups"
    lists = {name: listed(name, getattr(args, name, None)) for name in (*needed, *optional)}
    for name in needed:
        _same_length(name, lists[name], "state_types", kinds)
    for name in optional:
        # What it says of a component is found by place: one that is too short speaks of others than it means.
        if lists[name]:
            _same_length(name, lists[name], "state_types", kinds)
    components = []
    for index, kind in enumerate(kinds):
        if kind not in STATE_KINDS:
            raise StateKindError(f"state_types[{index}]", kind, STATE_KINDS)
        where = f"[{index}]"
        bases, lengths, rows = (lists[name][index] for name in needed)
        buffers = _buffers("state", bases, lengths, rows, device, where)

        def of_each(name: str, index: int = index, where: str = where, count: int = len(buffers)) -> Sequence[Any]:
            values = listed(name + where, lists[name][index] if lists[name] else None)
            if values and len(values) != count:
                raise ListLengthError(name + where, len(values), f"state_data_ptrs{where}", count)
            return values

        layer_ids, channels, outer, blocks = map(of_each, optional)
        components.append(
            Component(
                kind=kind,
                buffers=buffers,
                layer_ids=integers(f"state_layer_ids{where}", layer_ids),
                channels=integers(f"state_dim_per_tensor{where}", channels),
                outer=integers(f"state_slice_outer_counts{where}", outer),
                blocks=tuple(
                    None if block is None else integers(f"state_conv_shard_groups{where}[{entry}]", block)
                    for entry, block in enumerate(blocks)
                ),
            )
        )
    return tuple(components)


def _buffers(
    name: str, bases: Any, lengths: Any, rows: Any, mem: str | dict[str, int], where: str = ""
) -> tuple[Buffer, ...]:
    bases, lengths, rows = (
        listed(f"{name}_{of}{where}", values)
        for of, values in (("data_ptrs", bases), ("data_lens", lengths), ("item_lens", rows))
    )
    _same_length(f"{name}_data_lens{where}", lengths, f"{name}_data_ptrs{where}", bases)
    _same_length(f"{name}_item_lens{where}", rows, f"{name}_data_ptrs{where}", bases)
    buffers = []
    for index, (base, length, row) in enumerate(zip(bases, lengths, rows, strict=True)):
        at = f"{where}[{index}]"
        place = f"{name}_data_ptrs{at}"
        address = integer(place, base)
        size = integer(f"{name}_data_lens{at}", length)
        row_bytes = integer(f"{name}_item_lens{at}", row)
        if address == 0 and size > 0:
            raise PointerError(place, size)
        if address + size > HIGHEST:
            raise ValueRangeError(f"{name}_data_lens{at}", size, 0, HIGHEST - address)
        buffers.append(Buffer(place, address, size, row_bytes, mem))
    return tuple(buffers)


def _same_length(place: str, got: Sequence[Any], other: str, want: Sequence[Any]) -> None:
    if len(got) != len(want):
        raise ListLengthError(place, len(got), other, len(want))
