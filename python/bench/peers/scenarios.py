"""The cases: models, the two sides' layouts, and how many blocks of a request lie how."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Kind = Literal["mla", "index", "attention", "mamba2"]
Layout = Literal["blhnc", "lbhnc"]

# Bytes of a token's row.
MLA, INDEX = 656, 132
# Attention of bf16, K and V of a head and token side by side.
KV_HEADS, HEAD_SIZE = 8, 128
HEAD_ROW = 2 * HEAD_SIZE * 2
# Mamba2 of bf16, a convolution over 4 inputs.
SSM_HEADS, SSM_HEAD_SIZE, SSM_GROUPS, SSM_STATE, CONV_KERNEL = 128, 64, 8, 128, 4
CONV_CHANNELS = (SSM_HEADS * SSM_HEAD_SIZE, SSM_GROUPS * SSM_STATE, SSM_GROUPS * SSM_STATE)
CHANNEL_BYTES = (CONV_KERNEL - 1) * 2
SSM_HEAD_BYTES = SSM_HEAD_SIZE * SSM_STATE * 2


@dataclass(frozen=True)
class Layer:
    """A cache view. Layers of one slot lie over each other: their groups never own a block at the same time."""

    name: str
    kind: Kind
    group: int
    slot: int


@dataclass(frozen=True)
class Model:
    """Its layers; a group whose layers are mamba2 has a block for a request's state, the others one for tokens."""

    name: str
    block_tokens: int
    layers: tuple[Layer, ...]

    @property
    def groups(self) -> tuple[Kind, ...]:
        """The kind of the first layer of each group."""
        kinds: dict[int, Kind] = {}
        for layer in self.layers:
            kinds.setdefault(layer.group, layer.kind)
        return tuple(kinds[group] for group in sorted(kinds))

    def page_bytes(self, layer: Layer, tp_size: int) -> int:
        """Of a block of this layer at a rank."""
        if layer.kind == "attention":
            return KV_HEADS // tp_size * self.block_tokens * HEAD_ROW
        if layer.kind == "mamba2":
            return (sum(CONV_CHANNELS) * CHANNEL_BYTES + SSM_HEADS * SSM_HEAD_BYTES) // tp_size
        return self.block_tokens * (MLA if layer.kind == "mla" else INDEX)


@dataclass(frozen=True)
class Side:
    """One worker."""

    layout: Layout
    tp_size: int = 1
    tp_rank: int = 0


@dataclass(frozen=True)
class Setting:
    """A pair of workers. Many cases share one, and what it costs to set it up."""

    family: str
    model: Model
    prefill: Side
    decode: Side
    num_blocks: int


@dataclass(frozen=True)
class Case:
    """One request."""

    setting: Setting
    blocks: int
    scattered: bool
    quick: bool = False

    @property
    def name(self) -> str:
        """Unique."""
        how = "scattered" if self.scattered else "contiguous"
        return f"{self.setting.family}, {self.setting.model.block_tokens} tokens a block, {self.blocks} blocks {how}"

    def block_ids(self) -> tuple[list[list[int]], list[list[int]]]:
        """Decode's and prefill's blocks of each group. Every group takes from the same pool."""
        sides = []
        for seed in (1, 2):
            pool = list(range(self.setting.num_blocks))
            if self.scattered:
                random.Random(f"{self.name} {seed}").shuffle(pool)
            groups, taken = [], 0
            for kind in self.setting.model.groups:
                count = 1 if kind == "mamba2" else self.blocks
                groups.append(pool[taken : taken + count])
                taken += count
            sides.append(groups)
        return sides[0], sides[1]


@dataclass(frozen=True)
class Placed:
    """Where a layer's pages lie in a side's memory."""

    layer: Layer
    offset: int
    block_stride: int
    page_bytes: int


def placed(setting: Setting, side: Side) -> tuple[list[Placed], int]:
    """Every layer's place, and how many bytes the side has."""
    model = setting.model
    slots: dict[int, int] = {}
    for layer in model.layers:
        slots[layer.slot] = max(slots.get(layer.slot, 0), model.page_bytes(layer, side.tp_size))
    row = sum(slots.values())
    starts, start = {}, 0
    for slot in sorted(slots):
        starts[slot] = start
        start += slots[slot]
    places = []
    for layer in model.layers:
        rows = side.layout == "blhnc"
        offset = starts[layer.slot] * (1 if rows else setting.num_blocks)
        stride = row if rows else slots[layer.slot]
        places.append(Placed(layer, offset, stride, model.page_bytes(layer, side.tp_size)))
    return places, row * setting.num_blocks


def _mla99(block_tokens: int) -> Model:
    latents = [Layer(f"model.layers.{i}.self_attn.attn", "mla", 0, i) for i in range(78)]
    indices = [Layer(f"model.layers.{i}.self_attn.indexer.k_cache", "index", 0, 78 + i) for i in range(21)]
    return Model("99 MLA and index views", block_tokens, (*latents, *indices))


def _gqa(block_tokens: int) -> Model:
    layers = tuple(Layer(f"model.layers.{i}.self_attn.attn", "attention", 0, i) for i in range(24))
    return Model("24 layers of GQA, 8 KV heads", block_tokens, layers)


def _hybrid() -> Model:
    """4 layers of attention, and 12 of Mamba2 in three groups; a slot has one of each group."""
    attention = [Layer(f"model.layers.{4 * i}.self_attn.attn", "attention", 0, i) for i in range(4)]
    states = [Layer(f"model.layers.{4 * i + g}.mixer", "mamba2", g, i) for g in (1, 2, 3) for i in range(4)]
    # The fewest tokens, as a multiple of 16, whose page is no smaller than a state.
    return Model("4 GQA and 12 Mamba2 layers", 528, (*attention, *states))


def _settings() -> Iterator[tuple[Setting, tuple[int, ...]]]:
    for tokens, counts in ((64, (16, 64, 256, 512)), (16, (16, 128, 1024)), (8, (6250,))):
        model, room = _mla99(tokens), max(counts) + max(counts) // 16
        ways: tuple[tuple[str, Layout, Layout], ...] = (
            ("MLA rows", "blhnc", "blhnc"),
            ("MLA pages", "lbhnc", "lbhnc"),
            ("MLA rows into pages", "blhnc", "lbhnc"),
        )
        for family, source, target in ways:
            yield Setting(family, model, Side(source), Side(target), room), counts
    for tokens, counts in ((16, (16, 128, 1024, 6250)), (64, (16, 128, 1024))):
        for size, rank in ((8, 1), (4, 0)):
            family, room = f"GQA TP4 to TP{size}", max(counts) + max(counts) // 16
            yield Setting(family, _gqa(tokens), Side("lbhnc", 4), Side("lbhnc", size, rank), room), counts
    for size, rank in ((8, 1), (4, 0)):
        family = f"Mamba hybrid TP4 to TP{size}"
        yield Setting(family, _hybrid(), Side("lbhnc", 4), Side("lbhnc", size, rank), 300), (16, 64, 256)


_QUICK = {
    ("MLA rows", 64, 64, True),
    ("MLA rows", 64, 16, False),
    ("MLA rows", 16, 16, True),
    ("MLA pages", 64, 64, True),
    ("MLA pages", 16, 16, True),
    ("MLA rows into pages", 16, 128, True),
    ("GQA TP4 to TP8", 16, 16, True),
    ("GQA TP4 to TP8", 16, 1024, True),
    ("Mamba hybrid TP4 to TP8", 528, 64, True),
}


def cases() -> list[Case]:
    """All of them; those of one setting follow one another."""
    return [
        Case(setting, count, scattered, (setting.family, setting.model.block_tokens, count, scattered) in _QUICK)
        for setting, counts in _settings()
        for count in counts
        for scattered in (False, True)
    ]
