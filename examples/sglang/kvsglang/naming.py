"""Which layer and part a buffer is: the names by which two workers meet.

An engine's lists are ordered by tensor and then by layer, start at whatever layer a pipeline stage starts at, and end
with the draft model's. Position says nothing to a peer that has other layers. A name does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .errors import LayerError, ListLengthError
from .lists import Buffer, Component, Lists, Place

EVERY_LAYER = ("dsa", "dsa_tail")
"""Kinds of state that every layer with pages has, also one without memory of its own, and the draft's after them."""


@dataclass(frozen=True)
class Named:
    """A buffer with its names."""

    buffer: Buffer
    layer: str
    part: str
    index: int
    """Its place in the engine's list."""

    @property
    def number(self) -> int:
        """The layer's, in its model."""
        return int(self.layer.rpartition(".")[2])

    @property
    def is_draft(self) -> bool:
        """Whether it is the draft model's."""
        return self.layer.startswith("draft")


def kv_names(lists: Lists) -> list[Named]:
    """Layers and parts of the KV buffers, those of the draft model last.

    # Errors
    `LayerError` if a layer does not have the buffers that its kind has.
    """
    parts: tuple[str, ...] = ("latent",) if lists.is_mla else ("k", "v")
    num_target = len(lists.kv) - lists.num_draft
    target, draft = lists.kv[:num_target], lists.kv[num_target:]
    if lists.ratios:
        return _compressed(lists, target) + _named("draft", draft, range(len(draft)), ("latent",), "draft", num_target)
    ids: Sequence[int] = lists.kv_layer_ids[:num_target]
    if not ids and "kv" in lists.layers:
        ids = _told(lists, "kv", "kv_data_ptrs", len(target))
    elif not ids:
        ids = _by_position("kv_data_ptrs", len(target), parts, lists.first_layer)
    named = _named("kv_layer_ids", target, ids, parts, "layer")
    draft_ids = _ordinals(lists.kv_layer_ids[num_target:])
    if draft_ids and len(draft_ids) == 2 * len(set(draft_ids)):
        # A draft with heads of its own under whatever target.
        parts = ("k", "v")
    draft_ids = draft_ids or _by_position("draft", len(draft), parts, 0)
    return named + _named("draft", draft, draft_ids, parts, "draft", num_target)


def component_names(lists: Lists, component: Component, key: str, place: Place) -> list[Named]:
    """Layers and parts of a state component's buffers.

    # Errors
    `LayerError` if nothing says which layers they are and there are several pipeline stages: position is no name there.
    """
    where, buffers = f"state_layer_ids of {key}", component.buffers
    # Of other kinds a layer has as many as come.
    parts = {
        "swa": ("latent",) if lists.is_mla else ("k", "v"),
        "dsa": ("index",),
        "dsa_tail": ("key", "score"),
    }.get(component.kind, ())
    if component.layer_ids:
        return _named(where, buffers, component.layer_ids, parts, key)
    if component.kind in EVERY_LAYER:
        return _like_kv(lists, buffers, key, parts)
    if component.kind in lists.layers:
        return _named(where, buffers, _told(lists, component.kind, key, len(buffers)), parts, key)
    if place.pp_size > 1 and buffers:
        raise LayerError(
            where,
            f"none given with {place.pp_size} pipeline stages, whose layers differ",
            "give the layer of every buffer, or the option layers",
        )
    # Names of their own: they must not meet those of a peer that knows the layers.
    return _named(where, buffers, _by_position(key, len(buffers), parts or ("state",), 0), parts, f"{key} by position")


def _told(lists: Lists, kind: str, place: str, count: int) -> list[int]:
    """Layers of a stage's buffers, from those of the whole model."""
    end = max(lists.layers[kind], default=0) + 1 if lists.end_layer is None else lists.end_layer
    ids = [layer for layer in lists.layers[kind] if lists.first_layer <= layer < end]
    if count % max(1, len(ids)) or (count and not ids):
        raise ListLengthError(place, count, f"the option layers[{kind!r}] in the stage", len(ids))
    return ids * (count // max(1, len(ids)))


def _like_kv(lists: Lists, buffers: Sequence[Buffer], key: str, parts: Sequence[str]) -> list[Named]:
    """Buffers of every layer that has pages, the draft's last: those are the layers' names."""
    layers = list(dict.fromkeys(entry.number for entry in kv_names(lists) if not entry.is_draft))
    drafts = list(dict.fromkeys(entry.number for entry in kv_names(lists) if entry.is_draft))
    num_target, num_all = len(parts) * len(layers), len(parts) * (len(layers) + len(drafts))
    if len(buffers) not in (num_target, num_all):
        raise ListLengthError(f"{key}, without layer ids,", len(buffers), "what the layers with pages have", num_all)
    where = f"state_layer_ids of {key}"
    named = _named(where, buffers[:num_target], layers * len(parts), parts, key)
    rest = buffers[num_target:]
    return named + (_named(where, rest, drafts * len(parts), parts, f"draft {key}", num_target) if rest else [])


def _compressed(lists: Lists, target: Sequence[Buffer]) -> list[Named]:
    """Compressed MLA lists its buffers by what they hold: latents of 4 tokens, their indexers, latents of 128."""
    end = len(lists.ratios) if lists.end_layer is None else lists.end_layer
    stage = range(lists.first_layer, min(end, len(lists.ratios)))
    few = [layer for layer in stage if lists.ratios[layer] == 4]
    many = [layer for layer in stage if lists.ratios[layer] == 128]
    names = [(layer, "latent") for layer in few] + [(layer, "index") for layer in few]
    names += [(layer, "latent") for layer in many]
    if len(names) != len(target):
        raise ListLengthError("kv_data_ptrs", len(target), "what mla_compression_ratios says of the stage", len(names))
    return [
        Named(buffer, f"layer.{layer}", part, index)
        for index, (buffer, (layer, part)) in enumerate(zip(target, names, strict=True))
    ]


def _by_position(place: str, count: int, parts: Sequence[str], first: int) -> list[int]:
    layers, rest = divmod(count, len(parts))
    if rest:
        raise ListLengthError(place, count, f"a whole number of layers of {len(parts)} buffers", count - rest)
    return [first + layer for _ in parts for layer in range(layers)]


def _ordinals(ids: Sequence[int]) -> list[int]:
    # The draft counts its layers from 0, above whatever the target has.
    order = {layer: ordinal for ordinal, layer in enumerate(dict.fromkeys(ids))}
    return [order[layer] for layer in ids]


def _named(
    place: str, buffers: Sequence[Buffer], ids: Sequence[int], parts: Sequence[str], prefix: str, offset: int = 0
) -> list[Named]:
    seen: dict[int, int] = {}
    named = []
    for index, (buffer, layer) in enumerate(zip(buffers, ids, strict=True)):
        occurrence = seen.get(layer, 0)
        seen[layer] = occurrence + 1
        if parts and occurrence >= len(parts):
            raise LayerError(
                f"{place}[{index}]",
                f"layer {layer} comes {occurrence + 1} times and has {len(parts)} buffers ({', '.join(parts)})",
                "list each buffer of a layer once",
            )
        part = parts[occurrence] if parts else f"state{occurrence}"
        named.append(Named(buffer, f"{prefix}.{layer}", part, offset + index))
    for layer, count in seen.items():
        if parts and count != len(parts):
            raise LayerError(
                place,
                f"layer {layer} comes {count} times and has {len(parts)} buffers ({', '.join(parts)})",
                "list every buffer of a layer",
            )
    return named
