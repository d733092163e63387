"""A decode worker's registration: written for a prefill worker of either kind, and read from one of either kind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from . import naming
from .errors import MessageError, PeerError
from .integers import HIGHEST
from .lists import Buffer, Component, Lists, Place
from .mapping import Mapped, component_keys, map_lists
from .messages import Registration
from .naming import Named
from .transport import BLOB

T = TypeVar("T")

ENGINE = "engine"
"""Where a description has the name of the decode engine."""
MOST_ROWS = 1 << 16
"""Rows that a buffer may have whose length the wire does not carry."""


def describe(lists: Lists, mapped: Mapped, blob: str, engine: str = "") -> dict[str, Any]:
    """What our workers tell each other beyond SGLang's frames."""
    return {
        BLOB: blob,
        ENGINE: engine,
        "spec": mapped.spec,
        "groups": mapped.groups,
        "num_rows": mapped.num_rows,
        "elided": mapped.elided,
        "rings": mapped.rings,
        "dcp_size": mapped.dcp_size,
        "page_tokens": lists.page_tokens,
        "dtype": lists.dtype,
    }


def registration(
    lists: Lists, place: Place, agent: str, host: str, port: int, *, metadata: bytes = b"", mapped: Any = None
) -> Registration:
    """What a decode worker tells prefill workers: with `metadata` those that are not ours, with `mapped` ours."""
    states = lists.components
    return Registration(
        host=host,
        port=port,
        agent=agent,
        metadata=metadata,
        kv_bases=tuple(buffer.base for buffer in lists.kv),
        aux_bases=tuple(buffer.base for buffer in lists.aux),
        state_bases=tuple(tuple(buffer.base for buffer in state.buffers) for state in states),
        gpu=0,
        tp_size=place.tp_size,
        tp_rank=place.tp_rank,
        state_rows=tuple(tuple(buffer.row_bytes for buffer in state.buffers) for state in states),
        state_channels=tuple(state.channels for state in states),
        num_pages=min((buffer.num_rows for buffer in lists.kv), default=0),
        kinds=lists.kinds,
        kv_rows=tuple(buffer.row_bytes for buffer in lists.kv),
        state_layer_ids=tuple(state.layer_ids for state in states),
        kv_layer_ids=lists.kv_layer_ids,
        state_lengths=tuple(tuple(buffer.length for buffer in state.buffers) for state in states),
        dcp_size=place.dcp_size,
        mapped=mapped,
    )


def for_stage(said: Registration, lists: Lists, layers: range) -> Registration:
    """A registration with the buffers of some layers only; a draft's layers count on from the model's.

    SGLang's prefill pairs buffers by position unless the engine gives layer ids on both sides, and its position is
    wrong where stages are uneven: it takes 15 layers against 7 for a draft model at the end. A stage that is told of
    nothing but its own layers cannot pair wrongly. State of which nobody says to which layers it belongs stays whole.
    """
    named = naming.kv_names(lists)
    above = 1 + max((entry.number for entry in named if not entry.is_draft), default=-1)

    def chosen(entries: list[Named]) -> list[int]:
        return [entry.index for entry in entries if (above if entry.is_draft else 0) + entry.number in layers]

    kv = chosen(named)
    keys = component_keys(lists.components)
    states = [
        chosen(naming.component_names(lists, component, key, Place()))
        if component.layer_ids or component.kind in (*naming.EVERY_LAYER, *lists.layers)
        else list(range(len(component.buffers)))
        for component, key in zip(lists.components, keys, strict=True)
    ]

    def cut(values: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
        return tuple(_take(each, indices) for each, indices in zip(values, states, strict=True))

    return replace(
        said,
        kv_bases=_take(said.kv_bases, kv),
        kinds=_take(said.kinds, kv),
        kv_rows=_take(said.kv_rows, kv),
        kv_layer_ids=_take(said.kv_layer_ids, kv),
        state_bases=cut(said.state_bases),
        state_rows=cut(said.state_rows),
        state_channels=cut(said.state_channels),
        state_layer_ids=cut(said.state_layer_ids),
        state_lengths=cut(said.state_lengths),
    )


def _take(values: tuple[T, ...], indices: list[int]) -> tuple[T, ...]:
    """Some of them, or none of none."""
    return tuple(values[index] for index in indices) if values else ()


def destination(
    said: Registration,
    ours: Lists,
    local: Mapped,
    place: Place,
    *,
    total_layers: int | None = None,
    device: str | dict[str, int] | None = None,
) -> Mapped:
    """A decode worker's spec, as a prefill worker of this place sees it.

    # Errors
    `PeerError` for what both must have alike, `MessageError` for what cannot be read, and those of `map_lists`.
    """
    if said.mapped is not None:
        mapped = _of_ours(said, ours)
    else:
        lists = _lists_of_others(said, ours, place, total_layers, device)
        where = Place(said.tp_rank % said.tp_size, said.tp_size, dcp_size=said.dcp_size)
        model = local.spec["fingerprint"]["model"]
        mapped = map_lists(lists, where, model=model, sends_aux=True)
    if place.dcp_size != 1:
        raise PeerError("context parallelism of this kind on prefill workers", place.dcp_size, mapped.dcp_size)
    if mapped.dcp_size > 1 and ours.is_hybrid and place.tp_size * mapped.dcp_size > said.tp_size:
        # Several prefill workers would have to serve one group that deals tokens, each for its share of the state.
        raise PeerError("TP size of a hybrid with decode context parallelism", place.tp_size, said.tp_size)
    here = {layer["name"] for layer in local.spec["layers"]}
    # Decode may speculate where prefill does not: nothing is sent into its draft. And a layer that one side keeps in
    # another one's memory has nothing to send.
    stay = set(local.elided)
    if place.pp_rank == place.pp_size - 1:
        stay |= {layer["name"] for layer in mapped.spec["layers"] if layer["role"] == "draft"} - here
    return replace(mapped, spec=mapped.without(stay))


def alone(spec: dict[str, Any], rank: int, size: int) -> dict[str, Any]:
    """A spec of a worker that has everything its group has, as the worker `rank` of `size`."""
    return {**spec, "topology": {**spec["topology"], "tp": {"rank": rank, "size": size}}}


def _of_ours(said: Registration, ours: Lists) -> Mapped:
    told = said.mapped or {}
    try:
        page_tokens, dtype = int(told["page_tokens"]), str(told["dtype"])
        elided = tuple(str(layer) for layer in told["elided"])
        rings = {str(key): int(slots) for key, slots in told["rings"].items()}
        mapped = Mapped(dict(told["spec"]), dict(told["groups"]), dict(told["num_rows"]), elided, rings)
        mapped = replace(mapped, dcp_size=int(told["dcp_size"]))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise MessageError("registration", f"the description lacks {error}") from None
    if page_tokens != ours.page_tokens:
        raise PeerError("page_size", ours.page_tokens, page_tokens)
    if dtype != ours.dtype:
        raise PeerError("kv_cache_dtype", ours.dtype, dtype)
    return mapped


def _lists_of_others(
    said: Registration, ours: Lists, place: Place, total_layers: int | None, device: str | dict[str, int] | None
) -> Lists:
    """What a worker that is not ours has; what its wire does not carry is the model's, and ours."""
    default: str | dict[str, int] = {"vram": said.gpu} if device is None else device
    if len(said.aux_bases) != len(ours.aux):
        raise PeerError("number of auxiliary buffers", len(ours.aux), len(said.aux_bases))
    if len(said.state_bases) != len(ours.components):
        raise PeerError("number of state components", len(ours.components), len(said.state_bases))
    if not len(said.kv_bases) == len(said.kv_rows) == len(said.kinds):
        raise MessageError("registration", f"{len(said.kv_bases)} buffers and {len(said.kv_rows)} page lengths")
    everything = sorted({*said.kv_bases, *said.aux_bases, *(base for bases in said.state_bases for base in bases)})
    kv = tuple(
        Buffer(f"kv_data_ptrs[{i}] of the peer", base, said.num_pages * row, row, "dram" if kind == "DRAM" else default)
        for i, (base, row, kind) in enumerate(zip(said.kv_bases, said.kv_rows, said.kinds, strict=True))
    )
    aux = tuple(
        Buffer(f"aux_data_ptrs[{i}] of the peer", base, _length(base, mine.row_bytes, everything), mine.row_bytes)
        for i, (base, mine) in enumerate(zip(said.aux_bases, ours.aux, strict=True))
    )
    components = tuple(_component(said, index, mine, everything, default) for index, mine in enumerate(ours.components))
    num_draft, first = _layers(said, ours, place, total_layers)
    return replace(
        ours,
        kv=kv,
        kv_layer_ids=said.kv_layer_ids,
        aux=aux,
        components=components,
        num_heads=max(1, ours.total_heads // said.tp_size),
        num_draft=num_draft,
        first_layer=first,
        end_layer=None,
        ring_slots=_ring_slots(ours, components),
    )


def _ring_slots(ours: Lists, theirs: Sequence[Component]) -> int | None:
    """Slots of the peer's rings: a slot's bytes are the model's, and what it says is the bytes of a ring."""
    for mine, other in zip(ours.components, theirs, strict=True):
        sizes = [(here.row_bytes, there.row_bytes) for here, there in zip(mine.buffers, other.buffers, strict=False)]
        for here, there in sizes:
            if mine.kind == "dsa_tail" and ours.ring_slots and here and there:
                return there * ours.ring_slots // here
    return ours.ring_slots


def _component(
    said: Registration, index: int, ours: Component, everything: list[int], device: str | dict[str, int]
) -> Component:
    bases = said.state_bases[index]

    def of_each(what: str, lists: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
        # As with an engine's own lists: one that is too short speaks of others than it means.
        if len(lists) not in (0, len(said.state_bases)):
            raise MessageError("registration", f"{len(said.state_bases)} state components and {len(lists)} with {what}")
        values = lists[index] if lists else ()
        if len(values) not in (0, len(bases)):
            raise MessageError("registration", f"state {ours.kind} has {len(bases)} buffers and {len(values)} {what}")
        return values

    rows, lengths = of_each("row lengths", said.state_rows), of_each("lengths", said.state_lengths)
    layer_ids, channels = of_each("layer ids", said.state_layer_ids), of_each("dimensions", said.state_channels)
    if bases and not rows:
        raise MessageError("registration", f"state {ours.kind} has {len(bases)} buffers and no row lengths")
    place = f"state_data_ptrs[{index}]"
    buffers = tuple(
        Buffer(
            f"{place}[{i}] of the peer", base, lengths[i] if lengths else _length(base, row, everything), row, device
        )
        for i, (base, row) in enumerate(zip(bases, rows, strict=True))
    )
    # What the wire does not carry is the model's and the same on both sides, layer by layer.
    by_layer = _first_entries(ours, layer_ids, len(bases))
    return replace(
        ours,
        buffers=buffers,
        layer_ids=layer_ids,
        channels=channels,
        outer=tuple(ours.outer[i] for i in by_layer) if ours.outer else (),
        blocks=tuple(ours.blocks[i] for i in by_layer) if ours.blocks else (),
    )


def _first_entries(ours: Component, layer_ids: tuple[int, ...], count: int) -> list[int]:
    """For each of the peer's buffers, one of ours of the same tensor: all layers' are alike."""
    if not layer_ids:
        return list(range(count)) if count == len(ours.buffers) else [0] * count
    tensors: dict[int, int] = {}
    seen: dict[int, int] = {}
    for index, layer in enumerate(ours.layer_ids):
        tensors.setdefault(seen.get(layer, 0), index)
        seen[layer] = seen.get(layer, 0) + 1
    found, theirs = [], dict[int, int]()
    for layer in layer_ids:
        found.append(tensors.get(theirs.get(layer, 0), 0))
        theirs[layer] = theirs.get(layer, 0) + 1
    return found


def _layers(said: Registration, ours: Lists, place: Place, total_layers: int | None) -> tuple[int, int]:
    """How many buffers at the end are the draft's, and the first layer."""
    count, parts = len(said.kv_bases), 1 if ours.is_mla else 2
    mine = len(ours.kv) - ours.num_draft
    if ours.ratios:
        return ours.num_draft, 0
    if "kv" in ours.layers and not said.kv_layer_ids:
        total_layers = len(ours.layers["kv"])
    if said.kv_layer_ids:
        ids = ours.kv_layer_ids[:mine]
        last = total_layers - 1 if total_layers is not None else max(ids, default=HIGHEST)
        is_last = total_layers is not None or place.pp_rank == place.pp_size - 1
        return (sum(layer > last for layer in said.kv_layer_ids) if is_last else 0), 0
    if total_layers is not None:
        return max(0, count - parts * total_layers), 0
    if place.pp_size == 1:
        return max(0, count - mine), ours.first_layer
    if count == len(ours.kv):
        return ours.num_draft, ours.first_layer
    raise PeerError(
        "number of KV buffers, without layer ids and with pipeline stages",
        f"{len(ours.kv)} of stage {place.pp_rank}",
        count,
    )


def _length(base: int, row: int, everything: Iterable[int]) -> int:
    """Bytes that a buffer of unknown length may have: no more than up to the next one."""
    following = min((other for other in everything if other > base), default=HIGHEST)
    return min(MOST_ROWS, (following - base) // row if row else 0) * row
