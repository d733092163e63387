"""Our manager on both sides: real processes, real NIXL, no torch and no SGLang."""

from __future__ import annotations

from dataclasses import replace

import pytest
from harness.deployment import PREFILL_SALT, Request, deployment, scenario
from harness.expect import Moved
from harness.midway import PROMPTLY
from harness.model import Mamba, Model
from harness.models import COMPRESSED, HYBRID, INDEXED, LAYERS, RINGS, UNEVEN_WINDOW, WINDOW

OURS = ("ours", "ours")

ROWS = ("swa_ring", "request_row", "c128_state", "qsa_pending", "qsa_compressed", "minimax_index_k", "block_scale")

CASES = {
    "mha": (Model(layers=tuple(range(3))), (1, 1)),
    "mha, one rank to two": (Model(layers=tuple(range(3))), (1, 2)),
    "mha, two ranks to one": (Model(layers=tuple(range(3))), (2, 1)),
    "mha, two ranks to three": (Model(layers=(0,), heads=6), (2, 3)),
    "mha, two ranks to four": (Model(layers=(0,)), (2, 4)),
    "mla with an indexer": (INDEXED, (1, 1)),
    "mla with an indexer, two ranks to one": (INDEXED, (2, 1)),
    "mla with an indexer, 7 + 8 layers": (replace(INDEXED, layers=LAYERS, stages=(7, 8)), (1, 1)),
    "mla with an indexer, 7 + 8 layers without ids": (
        replace(INDEXED, layers=LAYERS, stages=(7, 8), layer_ids=False),
        (1, 1),
    ),
    "mla with rings of unequal length": (RINGS, (1, 1)),
    "mla with rings and a draft, 7 + 8 layers, two ranks to one": (
        replace(RINGS, layers=LAYERS, stages=(7, 8), draft_layers=1, draft_heads=False),
        (2, 1),
    ),
    "mla, one rank to two by context": (Model(layers=(0, 1), mla=True, dcp=2), (1, 2)),
    "mla, two ranks to four by context": (Model(layers=(0, 1), mla=True, dcp=4), (2, 4)),
    "mla, four ranks to two by context": (Model(layers=(0,), mla=True, dcp=2), (4, 2)),
    "compressed mla, 3 + 2 layers": (COMPRESSED, (1, 1)),
    "hybrid, one rank to two": (HYBRID, (1, 2)),
    "hybrid, two ranks to one": (HYBRID, (2, 1)),
    "hybrid with conv rows, 1 + 1 layers": (
        replace(HYBRID, stages=(1, 1), mamba=Mamba(layers=(0, 1, 2, 4), conv_rows=3, conv_bytes=2)),
        (1, 2),
    ),
    "sliding window, one rank to two": (WINDOW, (1, 2)),
    "sliding window, two ranks to one": (WINDOW, (2, 1)),
    "sliding window, 1 + 1 layers": (replace(WINDOW, stages=(1, 1)), (1, 1)),
    "sliding window, 1 + 2 layers without ids": (UNEVEN_WINDOW, (1, 2)),
    "sliding window of mla": (Model(layers=(0, 2), window_layers=(1, 3), mla=True), (1, 2)),
    "rows of every kind": (Model(layers=(0, 1), rows=tuple((kind, 80) for kind in ROWS)), (2, 2)),
    "a draft": (Model(layers=tuple(range(3)), draft_layers=2), (1, 1)),
    "a draft, one rank to two": (Model(layers=tuple(range(3)), draft_layers=1, layer_ids=False), (1, 2)),
    "a draft with heads under mla": (replace(INDEXED, draft_layers=1), (1, 1)),
    "7 + 8 layers": (Model(layers=LAYERS, stages=(7, 8), layer_ids=False), (1, 1)),
    "7 + 8 layers, two ranks to one": (Model(layers=LAYERS, stages=(7, 8), layer_ids=False), (2, 1)),
    "3 + 4 + 4 + 4 layers and a draft": (Model(layers=LAYERS, stages=(3, 4, 4, 4), draft_layers=1), (1, 1)),
    "3 + 4 + 4 + 4 layers and a draft, one rank to two": (
        Model(layers=LAYERS, stages=(3, 4, 4, 4), draft_layers=1, layer_ids=False),
        (1, 2),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_every_byte_is_right_after_chunks_and_prefix_hits(name: str) -> None:
    model, tp = CASES[name]
    with deployment(model, kinds=OURS, tp=tp) as engines:
        for request in scenario(model):
            engines.run(request)
        engines.check()


@pytest.mark.parametrize("elided", [((), (1, 3)), ((2,), ()), ((1, 2), (2, 3))])
def test_a_layer_without_memory_of_its_own_on_one_side_stays_and_the_others_travel(
    elided: tuple[tuple[int, ...], tuple[int, ...]],
) -> None:
    model = Model(layers=tuple(range(4)), mla=True, index_bytes=132 * 8)
    here, there = replace(model, elided=elided[0]), replace(model, elided=elided[1])
    request = Request(7, [1, 2], [10, 11])
    with deployment(here, kinds=OURS, decode_model=there) as engines:
        engines.start(request)
        engines.send(request)
        for worker in (engines.prefill[0], engines.decode[0]):
            assert worker.until(7, ["Success", "Failed"], PROMPTLY) == "Success", worker.reason(7)
        expected = engines.expected[0]
        layers = tuple(f"layer {layer}" for layer in range(4) if layer not in elided[0] + elided[1])
        expected.move(Moved("kv", request.source, request.destination), PREFILL_SALT)
        expected.move(Moved("dsa", request.source, request.destination, layers), PREFILL_SALT)
        expected.move(Moved("aux", [3], [6]), PREFILL_SALT)
        engines.check()


def test_decode_may_have_a_draft_that_prefill_lacks() -> None:
    model = Model(layers=(0, 1))
    with deployment(model, kinds=OURS, decode_model=replace(model, draft_layers=1)) as engines:
        request = Request(7, [1, 2], [10, 11])
        engines.start(request)
        engines.send(request)
        for worker in (engines.prefill[0], engines.decode[0]):
            assert worker.until(7, ["Success", "Failed"], PROMPTLY) == "Success", worker.reason(7)
        expected = engines.expected[0]
        expected.move(Moved("kv", request.source, request.destination, ("layer 0", "layer 1")), PREFILL_SALT)
        expected.move(Moved("aux", [3], [6]), PREFILL_SALT)
        engines.check()
