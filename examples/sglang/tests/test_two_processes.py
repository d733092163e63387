"""Our manager on both sides: real processes, real NIXL, no torch and no SGLang."""

from __future__ import annotations

import pytest
from harness.deployment import Request, deployment
from harness.model import Mamba, Model

OURS = ("ours", "ours")

CASES = {
    "mha": (Model(layers=tuple(range(3))), (1, 1)),
    "mha, one rank to two": (Model(layers=tuple(range(3))), (1, 2)),
    "mha, two ranks to one": (Model(layers=tuple(range(3))), (2, 1)),
    "mla with an indexer": (Model(layers=tuple(range(4)), mla=True, index_bytes=132 * 8), (1, 1)),
    "mla with an indexer, two ranks to one": (Model(layers=tuple(range(4)), mla=True, index_bytes=132 * 8), (2, 1)),
    "hybrid, one rank to two": (Model(layers=(3, 7), mamba=Mamba(layers=(0, 1, 2, 4))), (1, 2)),
    "sliding window, two ranks to one": (Model(layers=(0, 2), window_layers=(1, 3)), (2, 1)),
    "7 + 8 layers": (Model(layers=tuple(range(15)), stages=(7, 8), layer_ids=False), (1, 1)),
    "3 + 4 + 4 + 4 layers and a draft": (Model(layers=tuple(range(15)), stages=(3, 4, 4, 4), draft_layers=1), (1, 1)),
}


@pytest.mark.parametrize("name", CASES)
def test_every_byte_is_right_after_chunks_and_a_prefix_hit(name: str) -> None:
    model, tp = CASES[name]
    slots = [(2, 5), (1, 0)] if model.mamba else [None, None]
    with deployment(model, kinds=OURS, tp=tp) as engines:
        engines.run(Request(7, [1, 2, 3, 8, 30], [10, 11, 4, 20, 21], chunks=(3, 2), slot=slots[0]))
        # All of this prompt is there already: only state and row travel.
        engines.run(Request(8, [], [], aux=(1, 2), slot=slots[1], prefix=model.page_tokens * 4))
        engines.check()
