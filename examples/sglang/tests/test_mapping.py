"""KVArgs to spec: plans made from it move the right bytes, and no others, for every kind of cache and topology."""

from __future__ import annotations

import kvffi
import numpy as np
import pytest
from harness.copy import mapped, push
from harness.expect import Expectation, Moved
from harness.model import Mamba, Model, Worker, build
from harness.settings import Settings

from kvsglang.requests import Move

HERE, THERE = [3, 1, 7, 8], [20, 21, 5, 39]
SLOT, TO_SLOT = [2], [5]
ROW, TO_ROW = [6], [1]

MODELS = {
    "mha": Model(layers=tuple(range(3))),
    "mha without layer ids": Model(layers=tuple(range(3)), layer_ids=False),
    "mla with an indexer": Model(layers=tuple(range(4)), mla=True, index_bytes=132 * 8),
    "mla with a draft": Model(layers=tuple(range(4)), mla=True, draft_layers=1),
    "hybrid with conv blocks": Model(layers=(3, 7), mamba=Mamba(layers=(0, 1, 2, 4, 5, 6))),
    "hybrid with conv rows": Model(layers=(3,), mamba=Mamba(layers=(0, 1), conv_rows=3, conv_bytes=2)),
    "sliding window": Model(layers=(0, 2), window_layers=(1, 3)),
    "sliding window of head-major pages": Model(layers=(0, 2), window_layers=(1, 3), page_order="hnd"),
    "compressed mla, 3 + 2": Model(
        layers=tuple(range(5)), stages=(3, 2), mla=True, ratios=(4, 128, 4, 4, 128), layer_ids=False
    ),
    "draft": Model(layers=tuple(range(3)), draft_layers=1),
    "7 + 8": Model(layers=tuple(range(15)), stages=(7, 8)),
    "7 + 8 without layer ids": Model(layers=tuple(range(15)), stages=(7, 8), layer_ids=False),
    "mla 7 + 8": Model(layers=tuple(range(15)), stages=(7, 8), mla=True),
    "3 + 4 + 4 + 4 with a draft": Model(layers=tuple(range(15)), stages=(3, 4, 4, 4), draft_layers=1),
}
TP = [(1, 1), (1, 2), (2, 1), (2, 2), (1, 4), (4, 2), (2, 8), (8, 4)]


def workers(model: Model, role: str, tp: int, salt: int) -> list[tuple[Worker, Settings]]:
    stages = max(1, len(model.stages)) if role == "prefill" else 1
    places = [Settings(role, 0, rank, tp, stage, stages) for stage in range(stages) for rank in range(tp)]
    return [(build(model, place, salt), place) for place in places]


@pytest.mark.parametrize(("prefill_tp", "decode_tp"), TP)
@pytest.mark.parametrize("name", MODELS)
def test_every_rank_gets_its_bytes_once_and_no_other_byte_changes(name: str, prefill_tp: int, decode_tp: int) -> None:
    model = MODELS[name]
    sources = workers(model, "prefill", prefill_tp, 1)
    moves = [Move("kv", np.array(HERE, np.uint32), np.array(THERE, np.uint32))]
    moves += [Move(key, moves[0].here, moves[0].there) for key in ("dsa", "swa")]
    moves += [
        Move("mamba", np.array(SLOT, np.uint32), np.array(TO_SLOT, np.uint32)),
        Move("aux", np.array(ROW, np.uint32), np.array(TO_ROW, np.uint32)),
    ]
    for worker, place in workers(model, "decode", decode_tp, 2):
        expected = Expectation(worker)
        for component in ("kv", "dsa", "swa"):
            expected.move(Moved(component, HERE, THERE), 1)
        expected.move(Moved("mamba", SLOT, TO_SLOT), 1)
        expected.move(Moved("aux", ROW, TO_ROW), 1)
        target = mapped(model, worker, place)
        for source, where in sources:
            push(mapped(model, source, where), target, moves)
        assert expected.differences(worker.pool.memory) == []


def test_chunks_of_a_request_move_what_the_whole_does() -> None:
    model = MODELS["mha"]
    (source, where), (worker, place) = workers(model, "prefill", 1, 1)[0], workers(model, "decode", 1, 2)[0]
    expected = Expectation(worker)
    expected.move(Moved("kv", HERE, THERE), 1)
    ours, theirs = mapped(model, source, where), mapped(model, worker, place)
    for start, end in ((0, 1), (1, 3), (3, 4), (4, 4)):
        here, there = np.array(HERE[start:end], np.uint32), np.array(THERE[start:end], np.uint32)
        push(ours, theirs, [Move("kv", here, there, start)])
    assert expected.differences(worker.pool.memory) == []


def test_a_stage_sends_its_layers_to_where_the_names_are_not_the_positions() -> None:
    model = MODELS["7 + 8"]
    source, where = workers(model, "prefill", 1, 1)[1]
    worker, place = workers(model, "decode", 1, 2)[0]
    expected = Expectation(worker)
    expected.move(Moved("kv", HERE, THERE, tuple(f"layer {layer}" for layer in range(7, 15))), 1)
    expected.move(Moved("aux", ROW, TO_ROW), 1)
    moves = [
        Move("kv", np.array(HERE, np.uint32), np.array(THERE, np.uint32)),
        Move("aux", np.array(ROW, np.uint32), np.array(TO_ROW, np.uint32)),
    ]
    push(mapped(model, source, where), mapped(model, worker, place), moves)
    assert expected.differences(worker.pool.memory) == []


def test_pages_of_two_orders_meet_head_by_head() -> None:
    ours, theirs = Model(layers=(0,)), Model(layers=(0,), page_order="hnd")
    source, where = workers(ours, "prefill", 1, 1)[0]
    for worker, place in workers(theirs, "decode", 2, 2):
        expected = Expectation(worker)
        expected.move(Moved("kv", HERE, THERE), 1)
        moves = [Move("kv", np.array(HERE, np.uint32), np.array(THERE, np.uint32))]
        push(mapped(ours, source, where), mapped(theirs, worker, place), moves)
        assert expected.differences(worker.pool.memory) == []


def test_pages_in_an_order_of_the_kernel_meet_only_whole() -> None:
    model = Model(layers=(0,), page_order="vectorized_5d")
    source, where = workers(model, "prefill", 1, 1)[0]
    worker, place = workers(model, "decode", 1, 2)[0]
    moves = [Move("kv", np.array(HERE, np.uint32), np.array(THERE, np.uint32))]
    push(mapped(model, source, where), mapped(model, worker, place), moves)
    expected = Expectation(worker)
    expected.move(Moved("kv", HERE, THERE), 1)
    assert expected.differences(worker.pool.memory) == []
    half, place = workers(model, "decode", 2, 2)[0]
    with pytest.raises(kvffi.PairError, match=r"layer\.0"):
        push(mapped(model, source, where), mapped(model, half, place), moves)
