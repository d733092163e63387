"""Models of the tests, and what a worker of one registers: SGLang's KVArgs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .pools import Pool, Tensor, channel_cells, head_cells, plain_cells
from .settings import Settings


@dataclass(frozen=True)
class Mamba:
    """State-space layers: a convolution state of sub-blocks and a temporal state of heads."""

    layers: tuple[int, ...]
    conv_blocks: tuple[int, ...] = (32, 32, 64)
    conv_bytes: int = 6
    conv_rows: int = 1
    """Rows before the channel axis: 1 for [channel, width], the width for [width, channel]."""
    heads: int = 8
    head_bytes: int = 512
    num_slots: int = 6


@dataclass(frozen=True)
class Model:
    """One model's caches, whole: what all ranks together hold."""

    layers: tuple[int, ...]
    """Ids of the layers with a KV cache, over all pipeline stages."""
    stages: tuple[int, ...] = ()
    """Number of those layers in each pipeline stage; empty for one stage."""
    mla: bool = False
    heads: int = 4
    head_bytes: int = 32
    row_bytes: int = 576
    """Bytes of a token of an MLA layer."""
    page_tokens: int = 8
    num_pages: int = 40
    draft_layers: int = 0
    """Layers of a draft model, on the last stage; each has heads even under an MLA target."""
    index_bytes: int = 0
    """Bytes of a page of each MLA layer's indexer; 0 for none."""
    window_layers: tuple[int, ...] = ()
    """Sliding-window layers, with pages of their own."""
    mamba: Mamba | None = None
    aux: tuple[int, ...] = (64, 128)
    num_aux: int = 8
    layer_ids: bool = True
    """Whether the engine says the layer of every buffer, or leaves it to the order."""
    dtype: str = "bfloat16"
    page_order: str = "nhd"
    elided: tuple[int, ...] = ()
    """Layers whose indexer has no memory of its own here."""
    ratios: tuple[int, ...] = ()
    """Compressed MLA: tokens a latent stands for, for each layer; 4 and 128."""

    draft_heads: bool = True
    """Whether the draft has heads under an MLA target; otherwise it has latents and an indexer as well."""
    rings: tuple[int, int] = ()  # type: ignore[assignment]
    """Slots of a request's ring of `dsa_tail`, on prefill and on decode workers; empty for no rings."""
    dcp: int = 1
    """Ranks that decode deals the tokens of a sequence to."""
    told_layers: bool = False
    """Whether workers of ours are told which layers have pages and windows, since the engine gives no ids."""
    rows: tuple[tuple[str, int], ...] = ()
    """Kinds of state whose rows are never cut, and the bytes of a row of each KV layer."""

    def stage(self, place: Settings) -> range:
        """Layers of a worker's pipeline stage, with and without a KV cache."""
        starts = [0, *(self.layers[sum(self.stages[:stage])] for stage in range(1, place.pp_size))]
        mamba = self.mamba.layers if self.mamba else ()
        ends = [*starts[1:], max([*self.layers, *self.window_layers, *mamba]) + 1]
        return range(starts[place.pp_rank], ends[place.pp_rank])

    def slots(self, role: str) -> int:
        """Of a request's ring, on workers of a role."""
        return self.rings[role == "decode"] if self.rings else 0

    def options(self, role: str = "prefill") -> dict[str, Any]:
        """What workers of ours have to be told."""
        told: dict[str, Any] = {"ring_slots": self.slots(role)} if self.rings else {}
        if self.told_layers:
            told["layers"] = {"kv": self.layers, "swa": self.window_layers}
        return told

    def components(self) -> list[str]:
        """Kinds of state, in the order in which they are registered."""
        return [
            *(["dsa"] if self.mla and self.index_bytes else []),
            *(["dsa_tail"] if self.rings else []),
            *(["swa"] if self.window_layers else []),
            *(["mamba"] if self.mamba is not None else []),
            *(kind for kind, _ in self.rows),
        ]


@dataclass
class Worker:
    """One worker's memory, and the lists that it registers."""

    pool: Pool
    lists: dict[str, Any] = field(default_factory=dict)


def build(model: Model, place: Settings, salt: int) -> Worker:
    """Memory of the worker at a place, filled, and its KVArgs as a dictionary of attributes."""
    stage = model.stage(place)
    layers = [layer for layer in model.layers if layer in stage]
    last = place.pp_rank == place.pp_size - 1
    share = max(1, model.heads // place.tp_size)
    first = place.tp_rank * model.heads // place.tp_size
    is_head_major = model.page_order == "hnd"
    heads = head_cells(model.page_tokens, model.heads, model.head_bytes, first, share, head_major=is_head_major)
    tensors: list[Tensor] = []
    ids: list[int] = []

    def add(component: str, layer: str, name: str, rows: int, cells: Any) -> None:
        tensors.append(Tensor(component, layer, name, rows, cells))

    if model.ratios:
        for name, ratio, size in (("latent", 4, 288), ("index", 4, 66), ("latent", 128, 9)):
            for layer in layers:
                if model.ratios[layer] == ratio:
                    add("kv", f"layer {layer}", name, model.num_pages, plain_cells(size))
    elif model.mla:
        for layer in layers:
            add("kv", f"layer {layer}", "latent", model.num_pages, plain_cells(model.page_tokens * model.row_bytes))
            ids.append(layer)
    else:
        for name in ("k", "v"):
            for layer in layers:
                add("kv", f"layer {layer}", name, model.num_pages, heads)
                ids.append(layer)
    num_draft = 0
    if last:
        latent = plain_cells(model.page_tokens * model.row_bytes)
        for name, cells in (("k", heads), ("v", heads)) if model.draft_heads else (("latent", latent),):
            for layer in range(model.draft_layers):
                add("kv", f"draft {layer}", name, model.num_pages, cells)
                ids.append(max(model.layers) + 1 + layer)
                num_draft += 1
    num_kv = len(tensors)
    for index, size in enumerate(model.aux):
        add("aux", f"aux {index}", "row", model.num_aux, plain_cells(size))
    num_aux = len(tensors)
    components: list[dict[str, Any]] = []

    def component(kind: str, layer_ids: list[int], **more: Any) -> None:
        count = len(tensors) - sum(len(c["members"]) for c in components) - num_aux
        members = list(range(len(tensors) - count, len(tensors)))
        components.append({"kind": kind, "members": members, "ids": layer_ids, **more})

    if model.mla and model.index_bytes:
        drafts = range(model.draft_layers if last and not model.draft_heads else 0)
        stages = [[f"layer {layer}" for layer in layers], [f"draft {layer}" for layer in drafts]]
        for name in sum(stages, []):
            add("dsa", name, "index", model.num_pages, plain_cells(model.index_bytes))
        component("dsa", [] if drafts else list(layers))
        if model.rings:
            slots = model.slots(place.role)
            for model_layers in stages:
                for part in ("key", "score"):
                    for name in model_layers:
                        add("dsa_tail", name, part, model.num_aux * slots, plain_cells(48))
            component("dsa_tail", [], slots=slots)
    if model.window_layers:
        windows = [layer for layer in model.window_layers if layer in stage]
        names = ("latent",) if model.mla else ("k", "v")
        for name in names:
            for layer in windows:
                cells = plain_cells(model.page_tokens * model.row_bytes) if model.mla else heads
                add("swa", f"window {layer}", name, model.num_pages, cells)
        component("swa", windows * len(names))
    if model.mamba is not None:
        recurrent = [layer for layer in model.mamba.layers if layer in stage]
        _mamba(model.mamba, recurrent, place, tensors)
        count = len(recurrent)
        conv = sum(model.mamba.conv_blocks) // place.tp_size
        component(
            "mamba",
            recurrent * 2,
            dims=[conv] * count + [model.mamba.heads // place.tp_size] * count,
            groups=[list(model.mamba.conv_blocks)] * count + [None] * count,
            outer=[model.mamba.conv_rows] * count + [1] * count,
        )
    for kind, size in model.rows:
        for layer in layers:
            # Each rank has rows of its own.
            add(kind, f"layer {layer}", "row", model.num_pages, plain_cells(size) + np.uint64(place.tp_rank * size))
        component(kind, layers)
    pool = Pool(tensors)
    pool.fill(salt)
    worker = Worker(pool)
    _lists(model, place, worker, ids, num_kv, num_aux, num_draft, components)
    return worker


def _mamba(mamba: Mamba, layers: list[int], place: Settings, tensors: list[Tensor]) -> None:
    conv = channel_cells(list(mamba.conv_blocks), mamba.conv_bytes, mamba.conv_rows, place.tp_rank, place.tp_size)
    state = channel_cells([mamba.heads], mamba.head_bytes, 1, place.tp_rank, place.tp_size)
    tensors.extend(Tensor("mamba", f"layer {layer}", "conv", mamba.num_slots, conv) for layer in layers)
    tensors.extend(Tensor("mamba", f"layer {layer}", "state", mamba.num_slots, state) for layer in layers)


def _lists(
    model: Model,
    place: Settings,
    worker: Worker,
    ids: list[int],
    num_kv: int,
    num_aux: int,
    num_draft: int,
    components: list[dict[str, Any]],
) -> None:
    pool = worker.pool

    def lists(indices: range | list[int]) -> tuple[list[int], list[int], list[int]]:
        return (
            [pool.pointer(i) for i in indices],
            [pool.length(i) for i in indices],
            [len(pool.tensors[i].cells) for i in indices],
        )

    stage = model.stage(place)
    kv, aux = lists(range(num_kv)), lists(range(num_kv, num_aux))
    states = [lists(c["members"]) for c in components]
    for component, state in zip(components, states, strict=True):
        # A row of SGLang's is a ring of slots.
        state[2][:] = [size * component.get("slots", 1) for size in state[2]]
    for component, state in zip(components, states, strict=True):
        for index, layer in enumerate(component["ids"]):
            if component["kind"] == "dsa" and layer in model.elided:
                for values in state:
                    values[index] = 0
    worker.lists = {
        "engine_rank": place.tp_rank,
        "kv_data_ptrs": kv[0],
        "kv_data_lens": kv[1],
        "kv_item_lens": kv[2],
        "kv_layer_ids": ids if model.layer_ids else [],
        "kv_cache_dtype_str": model.dtype,
        "aux_data_ptrs": aux[0],
        "aux_data_lens": aux[1],
        "aux_item_lens": aux[2],
        "state_types": [c["kind"] for c in components],
        "state_data_ptrs": [s[0] for s in states],
        "state_data_lens": [s[1] for s in states],
        "state_item_lens": [s[2] for s in states],
        "state_layer_ids": [c["ids"] if model.layer_ids else [] for c in components],
        "state_dim_per_tensor": [c.get("dims", []) for c in components],
        "state_slice_outer_counts": [c.get("outer", []) for c in components],
        "state_conv_shard_groups": [c.get("groups", []) for c in components],
        "swa_kv_cache_layout": model.page_order,
        "is_hybrid_mla_backend": False,
        "ib_device": "",
        "gpu_id": 0,
        "kv_head_num": max(1, model.heads // place.tp_size),
        "total_kv_head_num": model.heads,
        "page_size": model.page_tokens,
        "system_dp_rank": 0,
        "rust_http_port": None,
        "pp_rank": place.pp_rank,
        "prefill_start_layer": stage.start,
        "prefill_end_layer": stage.stop,
        "mla_compression_ratios": list(model.ratios) or None,
        "num_draft_entries": num_draft,
    }
