"""Against SGLang: our manager behind its base classes on both sides, and on one, the other its own NIXL manager."""

from __future__ import annotations

import time
from typing import Any

import pytest
from harness.deployment import Request, deployment
from harness.loader import MissingEngineError, folder
from harness.model import Mamba, Model
from harness.worker import Chunk

try:
    folder()
except MissingEngineError as error:
    pytest.skip(str(error), allow_module_level=True)

KINDS = {
    "both are ours": ("behind", "behind"),
    "prefill is SGLang's": ("sglang", "behind"),
    "decode is SGLang's": ("behind", "sglang"),
}

CASES: dict[str, tuple[Model, tuple[int, int]]] = {
    "mha with chunks and auxiliary rows": (Model(layers=tuple(range(4))), (1, 1)),
    "mha with mamba, one rank to two": (Model(layers=(3, 7), mamba=Mamba(layers=(0, 1, 2, 4, 5, 6))), (1, 2)),
    "mla with an indexer": (Model(layers=tuple(range(4)), mla=True, index_bytes=132 * 8), (1, 1)),
    "7 + 8 layers": (Model(layers=tuple(range(15)), stages=(7, 8), layer_ids=False), (1, 1)),
    "mha with mamba, two ranks to one": (Model(layers=(3,), mamba=Mamba(layers=(0, 1, 2))), (2, 1)),
    "sliding window, one rank to two": (Model(layers=(0, 2), window_layers=(1, 3)), (1, 2)),
    "mla with an indexer, two ranks to one": (Model(layers=(0, 1), mla=True, index_bytes=132 * 8), (2, 1)),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("side", KINDS)
def test_every_byte_is_right(case: str, side: str) -> None:
    model, tp = CASES[case]
    total: dict[str, Any] = {"total_layers": len(model.layers)} if model.stages else {}
    stages: dict[str, Any] = {"stages": (range(7), range(7, 15))} if model.stages else {}
    name = {"model": "org/model"}
    slots = [(2, 5), (1, 0)] if model.mamba else [None, None]
    with deployment(
        model,
        kinds=KINDS[side],
        tp=tp,
        prefill_options={**total, **name},
        decode_options={**stages, **name},
    ) as engines:
        begin = time.monotonic()
        engines.run(Request(7, [1, 2, 3, 8, 30], [10, 11, 4, 20, 21], chunks=(3, 2), slot=slots[0]))
        engines.run(Request(8, [], [], aux=(1, 2), slot=slots[1], prefix=model.page_tokens * 4))
        engines.check()
        assert time.monotonic() - begin < 10


def test_position_goes_wrong_where_names_do_not() -> None:
    """15 layers against a stage of 7: SGLang's own pairing takes the 8 others for a draft model at the end."""
    model = Model(layers=tuple(range(15)), stages=(7, 8), layer_ids=False)
    request = Request(7, [1, 2], [10, 11])
    options = {"stages": (range(7), range(7, 15))}
    with deployment(model, kinds=("sglang", "sglang"), tp=(1, 2)) as engines:
        engines.run(request)
        wrong = [
            line for e, w in zip(engines.expected, engines.decode, strict=True) for line in e.differences(w.memory())
        ]
        assert any("layer 7 v" in line for line in wrong)
    with deployment(model, kinds=("sglang", "behind"), tp=(1, 2), decode_options=options) as engines:
        engines.run(request)
        engines.check()
    with deployment(model, kinds=("behind", "sglang"), tp=(1, 2), prefill_options={"total_layers": 15}) as engines:
        engines.run(request)
        engines.check()


@pytest.mark.parametrize("side", ["prefill is SGLang's", "decode is SGLang's"])
@pytest.mark.parametrize("aborting", ["prefill", "decode"])
def test_an_abort_reaches_the_other_kind(side: str, aborting: str) -> None:
    model = Model(layers=(0, 1))
    with deployment(model, kinds=KINDS[side]) as engines:
        engines.start(Request(7, [1, 2], [10, 11]))
        prefill, decode = engines.prefill[0], engines.decode[0]
        one, other = (prefill, decode) if aborting == "prefill" else (decode, prefill)
        one.call(7, "abort")
        assert one.poll(7) == "Failed"
        if aborting == "decode" or side == "decode is SGLang's":
            assert other.until(7, ["Failed"], 2) == "Failed"
        if aborting == "decode" and side == "prefill is SGLang's":
            # Held until SGLang's prefill worker has acknowledged.
            assert decode.until_released(7, 2)
        engines.check()


def test_the_death_of_a_decode_worker_of_the_other_kind_settles_when_it_is_declared() -> None:
    with deployment(Model(layers=(0, 1)), kinds=("ours", "sglang")) as engines:
        prefill, decode = engines.prefill[0], engines.decode[0]
        engines.start(Request(7, [1, 2], [10, 11]))
        prefill.send(7, Chunk([1]))
        end = time.monotonic() + 5
        while decode.changed() == 0 and time.monotonic() < end:
            time.sleep(0.01)
        endpoint = f"127.0.0.1:{decode.ask('rank_port')}"
        decode.kill()
        prefill.send(7, Chunk([2]))
        assert prefill.until(7, ["Failed"], 10) == "Failed"
        prefill.sleep(0.5)
        # NIXL's error says nothing about what is on its way.
        assert not prefill.call(7, "is_drained")
        assert prefill.ask("declare_gone", endpoint) == [7]
        prefill.sleep(0.2)
        assert prefill.call(7, "is_drained")
