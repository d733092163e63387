"""Models that are moved between our managers, and between ours and SGLang's."""

from __future__ import annotations

from dataclasses import replace

from .model import Mamba, Model

LAYERS = tuple(range(15))
HYBRID = Model(layers=(3, 7), mamba=Mamba(layers=(0, 1, 2, 4, 5, 6)))
INDEXED = Model(layers=tuple(range(4)), mla=True, index_bytes=132 * 8)
RINGS = replace(INDEXED, rings=(6, 8), layer_ids=False)
UNEVEN_WINDOW = Model(layers=(0, 2, 4), window_layers=(1, 3, 5, 6), stages=(1, 2), layer_ids=False, told_layers=True)
WINDOW = Model(layers=(0, 2), window_layers=(1, 3))
COMPRESSED = Model(layers=tuple(range(5)), stages=(3, 2), mla=True, ratios=(4, 128, 4, 4, 128), layer_ids=False)
