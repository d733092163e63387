"""From an engine's lists to a spec: the one place that knows what SGLang's lists mean.

groups   "kv" for the pages, "aux" for the rows of a request, and one for each state component
layers   "layer.3" and "draft.0" in "kv"; "swa.3", "dsa.3", "draft dsa.0", "mamba.3" in a component's; "aux.0"
parts    "k", "v", "latent", "index", "key"; "state0.1" is the second sub-block of a state's first tensor
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

from . import naming, parts
from .errors import LayerError, RowLengthError
from .lists import Buffer, Component, Lists, Place
from .naming import Named

AUX = "aux"
KV = "kv"


@dataclass(frozen=True)
class Mapped:
    """A worker's spec, and how its groups are found in it."""

    spec: dict[str, Any]
    """The JSON form of a spec (docs/JSON.md)."""
    groups: dict[str, int]
    """Index of a group by its key: "kv", "aux", and those of `component_keys`. One that has no buffers is left out."""
    num_rows: dict[str, int]
    """Pages or slots of each group."""
    elided: tuple[str, ...] = ()
    """Layers that the engine lists without memory, since they share another one's: nothing of them travels."""
    rings: dict[str, int] = field(default_factory=dict)
    """Groups whose rows are slots of a ring for each request, and how many slots a ring has."""
    dcp_size: int = 1
    """Pages of a sequence that one page of this worker has tokens of."""

    def without(self, layers: Collection[str]) -> dict[str, Any]:
        """The spec with some layers that stay."""
        kept = [{**layer, "transfer": False} if layer["name"] in layers else layer for layer in self.spec["layers"]]
        return {**self.spec, "layers": kept}


def component_keys(components: tuple[Component, ...]) -> list[str]:
    """A key for each state component: its kind, numbered where a kind comes again."""
    seen: dict[str, int] = {}
    keys = []
    for component in components:
        count = seen.get(component.kind, 0)
        seen[component.kind] = count + 1
        keys.append(component.kind if count == 0 else f"{component.kind}{count}")
    return keys


def map_lists(lists: Lists, place: Place, *, model: str = "", sends_aux: bool | None = None) -> Mapped:
    """Maps a worker's lists.

    `sends_aux`: whether this worker holds the requests' auxiliary rows; by default the last pipeline stage does, which
    samples the first token. A layer is listed by one stage of a deployment.

    # Errors
    `LayerError` for a draft under decode context parallelism, whose pages SGLang does not deal: they are larger ones.
    Whatever contradicts itself is an `IntegrationError`; what contradicts the rules of a spec is found when the spec
    is made.
    """
    if place.dcp_size > 1 and lists.num_draft:
        raise LayerError(
            "num_draft_entries",
            f"{lists.num_draft} buffers of a draft with decode context parallelism of {place.dcp_size}",
            "leave out one of the two",
        )
    build = _Builder(lists, place)
    build.kv()
    for component, key in zip(lists.components, component_keys(lists.components), strict=True):
        build.component(component, key)
    if place.pp_rank == place.pp_size - 1 if sends_aux is None else sends_aux:
        build.aux()
    spec = {
        "version": 1,
        "fingerprint": {"model": model, "extra": lists.extra},
        "topology": {
            "tp": {"rank": place.tp_rank, "size": place.tp_size},
            "pp": {"rank": place.pp_rank, "size": place.pp_size},
            **(
                {"dcp": {"rank": place.dcp_rank, "size": place.dcp_size, "interleave": 1}} if place.dcp_size > 1 else {}
            ),
        },
        "storages": build.storages,
        "groups": build.groups,
        "layers": build.layers,
    }
    return Mapped(spec, build.keys, build.num_rows, tuple(sorted(build.elided)), build.rings, place.dcp_size)


class _Builder:
    def __init__(self, lists: Lists, place: Place) -> None:
        self.lists, self.place = lists, place
        self.storages: list[dict[str, Any]] = []
        self.groups: list[dict[str, Any]] = []
        self.layers: list[dict[str, Any]] = []
        self._by_name: dict[str, dict[str, Any]] = {}
        self.keys: dict[str, int] = {}
        self.num_rows: dict[str, int] = {}
        self.elided: set[str] = set()
        self.rings: dict[str, int] = {}

    def kv(self) -> None:
        """Pages of the attention layers."""
        named = naming.kv_names(self.lists)
        self._group(KV, named, "tokens", self.lists.page_tokens)
        for entry in self._present(named):
            kind, part = self._attention(entry)
            self._part(KV, entry, kind, "target", part)

    def aux(self) -> None:
        """Rows of a request: what travels beside its caches."""
        named = [Named(buffer, f"aux.{index}", "row", index) for index, buffer in enumerate(self.lists.aux)]
        self._group(AUX, named, "state", 1)
        for entry in self._present(named):
            self._part(AUX, entry, "opaque", "target", parts.request_row(entry, self._storage(entry.buffer)))

    def component(self, component: Component, key: str) -> None:
        """State of one kind."""
        map_kind = {
            "mamba": self._mamba,
            "swa": self._window,
            "dsa": self._pages,
            "dsa_tail": self._ring,
        }.get(component.kind, self._rows)
        map_kind(component, key)

    def _mamba(self, component: Component, key: str) -> None:
        named = self._names(component, key)
        self._group(key, named, "state", 1)
        for entry in self._present(named):
            for part in parts.state(entry, self._storage(entry.buffer), component, self.place):
                self._part(key, entry, "ssm", "target", part)

    def _window(self, component: Component, key: str) -> None:
        named = self._names(component, key)
        self._group(key, named, "tokens", self.lists.page_tokens)
        for entry in self._present(named):
            if self.lists.is_mla:
                storage = self._storage(entry.buffer)
                part = parts.whole(entry, storage, self.lists.dtype, self.lists.page_tokens, None)
                self._part(key, entry, "sliding_window_mla", "target", part)
            else:
                self._part(key, entry, "sliding_window", "target", self._attention(entry)[1])

    def _pages(self, component: Component, key: str) -> None:
        named = self._names(component, key)
        self._group(key, named, "tokens", self.lists.page_tokens)
        for entry in self._present(named):
            part = parts.whole(entry, self._storage(entry.buffer), key, self.lists.page_tokens, None)
            self._part(key, entry, "indexer", "indexer", part)

    def _rows(self, component: Component, key: str) -> None:
        # One index, one row: what the rows mean is the kernel's business, and no row is ever cut.
        named = self._names(component, key)
        self._group(key, named, "tokens", 1)
        for entry in self._present(named):
            share = None if self.lists.is_mla else self.place
            part = parts.whole(entry, self._storage(entry.buffer), key, 1, share)
            self._part(key, entry, "opaque", "target", part)

    def _ring(self, component: Component, key: str) -> None:
        # A row is cut into its slots: two workers' rings may differ in length, and the live slots' place in them.
        slots = self.lists.ring_slots
        if not slots:
            raise LayerError(f"state_types of {key}", "the slots of a ring are not known", "give ring_slots")
        for buffer in component.buffers:
            if buffer.row_bytes % slots:
                raise RowLengthError(buffer.place, buffer.row_bytes, "slots of a ring", slots)
        buffers = tuple(replace(buffer, row_bytes=buffer.row_bytes // slots) for buffer in component.buffers)
        named = self._names(replace(component, buffers=buffers), key)
        self._group(key, named, "tokens", 1)
        self.rings[key] = slots
        for entry in self._present(named):
            part = parts.whole(entry, self._storage(entry.buffer), key, 1, None)
            self._part(key, entry, "circular_buffer", "indexer", part)

    def _attention(self, entry: Named) -> tuple[str, parts.Part]:
        storage = self._storage(entry.buffer)
        if entry.part in ("k", "v"):
            return "attention", parts.heads(entry, storage, self.lists, self.place)
        if entry.part == "index":
            return "indexer", parts.whole(entry, storage, "index", self.lists.page_tokens, None)
        if self.lists.ratios:
            return "mla", parts.whole(entry, storage, self.lists.dtype, self.lists.page_tokens, None)
        return "mla", parts.rows(entry, storage, self.lists)

    def _names(self, component: Component, key: str) -> list[Named]:
        return naming.component_names(self.lists, component, key, self.place)

    def _present(self, named: list[Named]) -> list[Named]:
        present = [entry for entry in named if not entry.buffer.is_elided]
        elided = {entry.layer for entry in named if entry.buffer.is_elided}
        for entry in present:
            if entry.layer in elided:
                raise LayerError(
                    entry.buffer.place,
                    f"layer {entry.layer} has a buffer with memory here and another one without",
                    "give memory to both or to none",
                )
        self.elided |= elided
        return present

    def _group(self, key: str, named: list[Named], usage: str, tokens: int) -> None:
        present = self._present(named)
        if not present:
            return
        if usage == "tokens" and key != KV and self.place.dcp_size > 1:
            raise LayerError(
                f"state_types of {key}",
                f"rows that are not dealt token by token, with decode context parallelism of {self.place.dcp_size}",
                "leave out one of the two",
            )
        # Buffers of one list may differ in length; an index must lie in all of them.
        rows = min(entry.buffer.num_rows for entry in present)
        if rows == 0:
            raise LayerError(key, "a buffer is shorter than a row", "give buffers of whole rows")
        self.keys[key] = len(self.groups)
        self.num_rows[key] = rows
        self.groups.append({"pool": len(self.groups), "block_tokens": tokens, "num_blocks": rows, "usage": usage})

    def _storage(self, buffer: Buffer) -> int:
        self.storages.append({"base": buffer.base, "len": buffer.length, "mem": buffer.mem})
        return len(self.storages) - 1

    def _part(self, key: str, entry: Named, kind: str, role: str, part: parts.Part) -> None:
        layer = self._by_name.get(entry.layer)
        if layer is None:
            role = "draft" if entry.is_draft else role
            layer = {"name": entry.layer, "group": self.keys[key], "kind": kind, "role": role, "parts": []}
            self._by_name[entry.layer] = layer
            self.layers.append(layer)
        layer["parts"].append(part)
