"""One side is SGLang's own, unmodified NIXL manager, the other is ours."""

from __future__ import annotations

import time
from typing import Any

import pytest
from harness.deployment import Request, deployment
from harness.loader import MissingEngineError, folder
from harness.model import Mamba, Model

try:
    folder()
except MissingEngineError as error:
    pytest.skip(str(error), allow_module_level=True)

KINDS = {"prefill is SGLang's": ("sglang", "ours"), "decode is SGLang's": ("ours", "sglang")}

CASES: dict[str, tuple[Model, tuple[int, int]]] = {
    "mha with chunks and auxiliary rows": (Model(layers=tuple(range(4))), (1, 1)),
    "mha with mamba, one rank to two": (Model(layers=(3, 7), mamba=Mamba(layers=(0, 1, 2, 4, 5, 6))), (1, 2)),
    "mla with an indexer": (Model(layers=tuple(range(4)), mla=True, index_bytes=132 * 8), (1, 1)),
    "7 + 8 layers": (Model(layers=tuple(range(15)), stages=(7, 8), layer_ids=False), (1, 1)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("side", KINDS)
def test_every_byte_is_right(name: str, side: str) -> None:
    model, tp = CASES[name]
    total: dict[str, Any] = {"total_layers": len(model.layers)} if model.stages else {}
    stages: dict[str, Any] = {"stages": (range(7), range(7, 15))} if model.stages else {}
    slots = [(2, 5), (1, 0)] if model.mamba else [None, None]
    begin = time.monotonic()
    with deployment(
        model,
        kinds=KINDS[side],
        tp=tp,
        prefill_options=total if KINDS[side][0] == "ours" else {},
        decode_options=stages if KINDS[side][1] == "ours" else {},
    ) as engines:
        engines.run(Request(7, [1, 2, 3, 8, 30], [10, 11, 4, 20, 21], chunks=(3, 2), slot=slots[0]))
        engines.run(Request(8, [], [], aux=(1, 2), slot=slots[1], prefix=model.page_tokens * 4))
        engines.check()
    assert time.monotonic() - begin < 10
