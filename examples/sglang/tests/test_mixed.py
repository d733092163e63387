"""Against SGLang: our manager behind its base classes on both sides, and on one, the other its own NIXL manager."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zmq
from harness.deployment import PREFILL_SALT, Request, deployment, scenario
from harness.expect import Expectation
from harness.loader import MissingEngineError, folder
from harness.midway import HALF, PAGES, PROMPTLY, SLOW, begin, cut, until
from harness.midway import MODEL as HALFWAY
from harness.model import Mamba, Model
from harness.models import COMPRESSED, HYBRID, INDEXED, LAYERS, RINGS, UNEVEN_WINDOW, WINDOW
from harness.settings import Settings
from harness.worker import Chunk, Remote, WorkerError

from kvsglang.messages import Abort, AbortAck

try:
    folder()
except MissingEngineError as error:
    pytest.skip(str(error), allow_module_level=True)

KINDS = {
    "both are ours": ("behind", "behind"),
    "prefill is SGLang's": ("sglang", "behind"),
    "decode is SGLang's": ("behind", "sglang"),
}

DRAFT = Model(layers=tuple(range(3)), draft_layers=1, layer_ids=False)
WITH_STAGES = Model(layers=LAYERS, stages=(7, 8), layer_ids=False)
WITH_STAGES_AND_DRAFT = Model(layers=LAYERS, stages=(3, 4, 4, 4), draft_layers=1, layer_ids=False)

CASES: dict[str, tuple[Model, tuple[int, int]]] = {
    "mha with chunks and auxiliary rows": (Model(layers=tuple(range(4))), (1, 1)),
    "mha with mamba, one rank to two": (HYBRID, (1, 2)),
    "mha with mamba, two ranks to one": (HYBRID, (2, 1)),
    "mla with an indexer": (INDEXED, (1, 1)),
    "mla with an indexer, two ranks to one": (INDEXED, (2, 1)),
    "sliding window": (WINDOW, (1, 1)),
    "sliding window, one rank to two": (WINDOW, (1, 2)),
    "a draft": (DRAFT, (1, 1)),
    "a draft, one rank to two": (DRAFT, (1, 2)),
    "mla with rings of unequal length": (RINGS, (1, 1)),
    "mla with rings and a draft": (replace(RINGS, draft_layers=1, draft_heads=False), (1, 1)),
    "mla with rings, 2 + 2 layers": (replace(RINGS, stages=(2, 2)), (1, 1)),
    "sliding window, 1 + 2 layers without ids": (UNEVEN_WINDOW, (1, 1)),
    "7 + 8 layers": (WITH_STAGES, (1, 1)),
    "7 + 8 layers, one rank to two": (WITH_STAGES, (1, 2)),
    "3 + 4 + 4 + 4 layers and a draft": (WITH_STAGES_AND_DRAFT, (1, 1)),
    "3 + 4 + 4 + 4 layers and a draft, with layer ids": (replace(WITH_STAGES_AND_DRAFT, layer_ids=True), (1, 1)),
    "mamba over 1 + 1 layers": (replace(HYBRID, stages=(1, 1), mamba=Mamba(layers=(0, 1, 2, 8))), (1, 1)),
    "mla of 7 + 8 layers": (Model(layers=LAYERS, stages=(7, 8), mla=True, layer_ids=False), (1, 1)),
    "mla, one rank to two by context": (Model(layers=(0, 1), mla=True, dcp=2), (1, 2)),
    "mla, two ranks to two by context": (Model(layers=(0, 1), mla=True, dcp=2), (2, 2)),
    "compressed mla, 3 + 2 layers": (COMPRESSED, (1, 1)),
}


def settings(model: Model) -> tuple[dict[str, Any], dict[str, Any]]:
    """What SGLang's wire does not carry, for a prefill and for a decode worker of ours."""
    name = {"model": "org/model"}
    if not model.stages or model.layer_ids:
        return name, name
    count = len(model.stages)
    stages = [model.stage(Settings("prefill", 0, pp_rank=stage, pp_size=count)) for stage in range(count)]
    # A draft's layers count on from the model's.
    stages[-1] = range(stages[-1].start, stages[-1].stop + model.draft_layers)
    return {**name, "total_layers": len(model.layers)}, {**name, "stages": tuple(stages)}


IN_TIME = 10.0
"""Seconds that a case may take."""

# Without SGLang's manager the rest of the cases is what test_two_processes.py does.
BOTH_OURS = (
    "mha with chunks and auxiliary rows",
    "mha with mamba, one rank to two",
    "mla with an indexer",
    "mla with rings and a draft",
    "mla, one rank to two by context",
    "sliding window, one rank to two",
    "7 + 8 layers",
    "3 + 4 + 4 + 4 layers and a draft",
)


@pytest.mark.parametrize(
    ("side", "case"),
    [(side, case) for side in KINDS for case in (BOTH_OURS if side == "both are ours" else CASES)],
)
def test_every_byte_is_right(side: str, case: str) -> None:
    # What stalls the machine does so once: a case that is slow by itself is slow again.
    assert takes(side, case) < IN_TIME or takes(side, case) < IN_TIME


def takes(side: str, case: str) -> float:
    """Seconds that a case takes from its first process to the end of its last."""
    begin = time.monotonic()
    model, tp = CASES[case]
    prefill, decode = settings(model)
    with deployment(model, kinds=KINDS[side], tp=tp, prefill_options=prefill, decode_options=decode) as engines:
        for request in scenario(model):
            engines.run(request)
        engines.check()
    return time.monotonic() - begin


def test_position_goes_wrong_where_names_do_not() -> None:
    """15 layers against a stage of 7: SGLang's own pairing takes the 8 others for a draft model at the end.

    The same deployment with one side of ours is a case above.
    """
    with deployment(WITH_STAGES, kinds=("sglang", "sglang"), tp=(1, 2)) as engines:
        engines.run(Request(7, [1, 2], [10, 11]))
        wrong = [
            line for e, w in zip(engines.expected, engines.decode, strict=True) for line in e.differences(w.memory())
        ]
        assert any("layer 7 v" in line for line in wrong)


@pytest.mark.parametrize("side", list(KINDS))
def test_pages_of_another_layout_are_refused_and_not_written(side: str) -> None:
    here, there = ({"lists": {"kv_layout": f"layout {name}"}} for name in "AB")
    model = Model(layers=(0, 1))
    with deployment(model, kinds=KINDS[side], prefill_options=here, decode_options=there) as engines:
        prefill, decode = engines.prefill[0], engines.decode[0]
        prefill.sender(7, 2, 3)
        if side == "decode is SGLang's":
            # It does not come to a request.
            with pytest.raises(WorkerError, match="kv_layout=layout A, but decode server has kv_layout=layout B"):
                decode.receiver(7)
        else:
            decode.receiver(7)
            assert decode.poll(7) == "Failed"
            assert "kv_layout is layout B here and layout A at the peer" in decode.reason(7)
            assert prefill.until(7, ["Failed"], PROMPTLY) == "Failed"
        engines.check()


@pytest.mark.parametrize("side", list(KINDS))
def test_pages_of_one_layout_travel_also_where_one_side_does_not_name_it(side: str) -> None:
    named: dict[str, Any] = {"lists": {"kv_layout": "layout A"}}
    for theirs in ({}, named) if side != "both are ours" else (named,):
        with deployment(Model(layers=(0,)), kinds=KINDS[side], prefill_options=named, decode_options=theirs) as engines:
            engines.run(Request(7, [1, 2], [10, 11]))
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
            assert other.until(7, ["Failed"], PROMPTLY) == "Failed"
        if aborting == "decode" and side == "prefill is SGLang's":
            # Held until SGLang's prefill worker has acknowledged.
            assert decode.until_released(7, PROMPTLY)
        engines.check()


@pytest.mark.parametrize("side", ["prefill is SGLang's", "decode is SGLang's"])
def test_pages_of_an_aborted_request_are_free_when_nothing_lands_any_more(side: str) -> None:
    slow: dict[str, Any] = SLOW if side == "decode is SGLang's" else {}
    with deployment(HALFWAY, kinds=KINDS[side], prefill_options=slow) as engines:
        request = begin(engines, 7)
        prefill, decode = engines.prefill[0], engines.decode[0]
        decode.call(7, "abort")
        assert until(lambda: bool(decode.ask("is_abort_release_safe", 7, 1)), PROMPTLY)
        then = decode.digests()
        decode.sleep(0.3)
        assert decode.digests() == then, "bytes landed after the release"
        assert 0 < cut(engines, request) <= 4 * HALF
        assert prefill.until(7, ["Failed"], PROMPTLY) == "Failed"


def test_a_prefill_worker_of_the_other_kind_that_dies_leaves_its_pages_held_and_its_successor_serves() -> None:
    with deployment(HALFWAY, kinds=("sglang", "ours"), decode_options={"heartbeat": 0.2}) as engines:
        request = begin(engines, 7)
        decode = engines.decode[0]
        endpoint = f"127.0.0.1:{engines.prefill[0].ask('rank_port')}"
        engines.prefill[0].kill()
        assert decode.until(7, ["Failed"], PROMPTLY) == "Failed"
        assert "lost the prefill engine" in decode.why(7)
        assert decode.ask("held") == {7: request.destination}
        # Nobody sees its process end: somebody has to say so.
        assert decode.ask("writers") == {7: [endpoint]}
        assert decode.ask("declare_gone", endpoint) == [7]
        assert decode.ask("held") == {}
        decode.call(7, "clear")
        cut(engines, request)
        engines.expected[0].memory = decode.memory()
        engines.prefill = [Remote("sglang", HALFWAY, engines.prefill[0].place, PREFILL_SALT).ready()]
        try:
            engines.run(Request(7, PAGES[:8], PAGES[8:16]))
            engines.check()
        finally:
            engines.prefill[0].stop()


@pytest.mark.parametrize("side", ["prefill is SGLang's", "decode is SGLang's"])
def test_a_worker_of_the_other_kind_that_was_started_again_is_found_anew(side: str) -> None:
    with deployment(Model(layers=(0, 1)), kinds=KINDS[side]) as engines:
        engines.run(Request(7, [1, 2], [10, 11]))
        engines.check()
        again = engines.prefill if side == "prefill is SGLang's" else engines.decode
        again[0].kill()
        again[0] = Remote("sglang", engines.model, again[0].place, again[0].salt).ready()
        if again is engines.decode:
            engines.expected = [Expectation(again[0].twin)]
        engines.run(Request(7, [3, 4], [12, 13]))
        engines.check()


def test_the_death_of_a_decode_worker_of_the_other_kind_settles_when_it_is_declared() -> None:
    with deployment(Model(layers=(0, 1)), kinds=("ours", "sglang")) as engines:
        prefill, decode = engines.prefill[0], engines.decode[0]
        engines.start(Request(7, [1, 2], [10, 11]))
        prefill.send(7, Chunk([1]))
        assert until(lambda: decode.changed() > 0, PROMPTLY)
        endpoint = f"127.0.0.1:{decode.ask('rank_port')}"
        decode.kill()
        prefill.send(7, Chunk([2]))
        assert prefill.until(7, ["Failed"], PROMPTLY) == "Failed"
        prefill.sleep(0.5)
        # NIXL's error says nothing about what is on its way.
        assert not prefill.call(7, "is_drained")
        assert prefill.ask("declare_gone", endpoint) == [7]
        assert until(lambda: bool(prefill.call(7, "is_drained")), PROMPTLY)
        assert len(prefill.ask("peers")) == 1
        assert prefill.ask("declare_gone", endpoint) == []
        prefill.call(7, "clear")
        assert until(lambda: prefill.ask("peers") == [], PROMPTLY)


def test_a_decode_worker_that_was_declared_gone_leaves_nothing_open() -> None:
    with deployment(Model(layers=(0, 1)), kinds=("ours", "sglang")) as engines:
        prefill = engines.prefill[0]
        files = Path(f"/proc/{prefill.process.pid}/fd")
        most = 0
        for room in range(4):
            decode = engines.decode[0]
            engines.run(Request(room, [1, 2], [10, 11]))
            engines.check()
            endpoint = f"127.0.0.1:{decode.ask('rank_port')}"
            decode.kill()
            prefill.ask("declare_gone", endpoint)
            assert until(lambda: prefill.ask("peers") == [], PROMPTLY)
            if room == 0:
                prefill.sleep(0.5)
                most = len(list(files.iterdir()))
            engines.decode[0] = Remote("sglang", engines.model, decode.place, decode.salt).ready()
            engines.expected = [Expectation(engines.decode[0].twin)]
        assert until(lambda: len(list(files.iterdir())) <= most, PROMPTLY)


def test_a_request_of_a_decode_worker_that_was_declared_gone_fails_for_that() -> None:
    with deployment(Model(layers=(0, 1)), kinds=("ours", "sglang")) as engines:
        prefill, decode = engines.prefill[0], engines.decode[0]
        engines.start(Request(7, [1, 2], [10, 11]))
        endpoint = f"127.0.0.1:{decode.ask('rank_port')}"
        decode.kill()
        assert prefill.ask("declare_gone", endpoint) == [7]
        prefill.send(7, Chunk([1]))
        assert prefill.until(7, ["Failed"], PROMPTLY) == "Failed"
        assert "was declared gone" in prefill.why(7)
        assert prefill.call(7, "is_drained")


def test_an_abort_that_comes_again_is_answered_by_the_other_kind_and_harms_nothing() -> None:
    context = zmq.Context()
    with (
        deployment(Model(layers=(0, 1)), kinds=("sglang", "ours")) as engines,
        context,
        context.socket(zmq.PULL) as answers,
        context.socket(zmq.PUSH) as words,
    ):
        port = answers.bind_to_random_port("tcp://127.0.0.1")
        words.connect(f"tcp://127.0.0.1:{engines.prefill[0].ask('rank_port')}")
        engines.run(Request(7, [1, 2], [10, 11]))
        for _ in range(3):
            words.send_multipart(Abort(7, "127.0.0.1", port, 3, "not wanted").frames())
            assert answers.poll(PROMPTLY * 1000)
            assert AbortAck.parse(answers.recv_multipart()) == AbortAck(7, 0, 3)
        engines.run(Request(7, [3, 4], [12, 13]))
        engines.check()


def test_what_does_not_settle_and_leaves_no_room_fails_others_until_it_is_declared() -> None:
    options = {"most_in_flight": 4096}
    with deployment(Model(layers=(0, 1)), kinds=("ours", "sglang"), prefill_options=options) as engines:
        prefill, decode = engines.prefill[0], engines.decode[0]
        engines.start(Request(7, [1, 2], [10, 11]))
        prefill.send(7, Chunk([1]))
        assert until(lambda: decode.changed() > 0, PROMPTLY)
        endpoint = f"127.0.0.1:{decode.ask('rank_port')}"
        decode.kill()
        prefill.send(7, Chunk([2]))
        assert prefill.until(7, ["Failed"], PROMPTLY) == "Failed"
        decode = engines.decode[0] = Remote("sglang", engines.model, decode.place, decode.salt).ready()
        engines.start(Request(8, [3], [12]))
        prefill.send(8, Chunk([3]))
        for worker in (prefill, decode):
            assert worker.until(8, ["Failed", "Success"], PROMPTLY) == "Failed"
        assert "are in flight" in prefill.why(8)
        assert "has failed and does not settle" in prefill.why(8)
        assert prefill.ask("declare_gone", endpoint) == [7]
        assert until(lambda: bool(prefill.call(7, "is_drained")), PROMPTLY)
        engines.expected = [Expectation(decode.twin)]
        engines.run(Request(9, [3], [12]))
        engines.check()


def test_sglangs_scheduler_finds_on_ours_what_it_reads_beyond_the_base_classes() -> None:
    with deployment(Model(layers=(0,)), kinds=("behind", "behind")) as engines:
        prefill, decode = engines.prefill[0], engines.decode[0]

        def read(name: str) -> Any:
            return decode.call(1, "__getattribute__", name)

        engines.start(Request(1, [1], [2]))
        address = f"127.0.0.1:{decode.place.bootstrap_port}"
        table = decode.ask("prefill_info_table")
        assert list(table) == [address]
        assert (table[address].tp_size, table[address].dp_size) == (1, 1)
        assert not decode.ask("should_verify_kv_checksum", address)
        for worker in (prefill, decode):
            assert (worker.ask("attn_cp_rank"), worker.ask("attn_cp_size")) == (0, 1)
        assert not read("abort_notified")
        assert read("conclude_state") is None
        assert len(read("bootstrap_infos")) == 1
        decode.call(1, "ensure_abort_notified", True)
        assert read("abort_notified")
        assert read("conclude_state") == 0
        assert prefill.until(1, ["Failed"], PROMPTLY) == "Failed"
        assert until(lambda: bool(decode.ask("is_abort_release_safe", 1, 1)), PROMPTLY)
