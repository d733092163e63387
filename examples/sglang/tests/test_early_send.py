"""A chunk that is sent while its pages may still be written is not read before the event that SGLang gives with it."""

from __future__ import annotations

import time

from harness.deployment import Deployment, Request, deployment
from harness.midway import PROMPTLY, until
from harness.model import Model
from harness.worker import Chunk

from kvsglang.mover import NAP

MODEL = Model(layers=(0, 1))
REQUEST = Request(7, [1, 2, 3], [10, 11, 12], chunks=(2, 1))


def hold(engines: Deployment) -> None:
    """Sends both chunks of the request, of which the first waits; nothing of it moves."""
    prefill, decode = engines.prefill[0], engines.decode[0]
    engines.start(REQUEST)
    begin = time.monotonic()
    prefill.hold(REQUEST.room)
    engines.send(REQUEST)
    assert until(lambda: prefill.num_asked(REQUEST.room) > 20, PROMPTLY)
    # It is looked for again and again, and not without a pause.
    assert prefill.num_asked(REQUEST.room) < 50 + 2 * (time.monotonic() - begin) / NAP
    assert decode.changed() == 0


def test_a_chunk_waits_for_its_event_and_keeps_no_other_request_waiting() -> None:
    with deployment(MODEL, kinds=("ours", "ours")) as engines:
        hold(engines)
        other = Request(8, [4, 5], [20, 21], aux=(1, 2))
        engines.run(other)
        assert engines.prefill[0].poll(7) == "WaitingForInput"
        engines.prefill[0].come(7)
        engines.finish(REQUEST)
        engines.check()


def test_an_event_is_one_chunks_alone() -> None:
    with deployment(MODEL, kinds=("ours", "ours")) as engines:
        prefill, decode = engines.prefill[0], engines.decode[0]
        engines.start(REQUEST)
        prefill.hold(7)
        prefill.send(7, Chunk([1, 2]))
        prefill.come(7)
        assert prefill.until(7, ["Transferring"], PROMPTLY) == "Transferring"
        prefill.sleep(0.1)
        asked = prefill.num_asked(7)
        prefill.send(7, Chunk([3]))
        engines.finish(REQUEST)
        assert prefill.num_asked(7) == asked
        assert decode.changed() > 0
        engines.check()


def test_a_request_that_fails_meanwhile_does_not_wait() -> None:
    with deployment(MODEL, kinds=("ours", "ours")) as engines:
        prefill, decode = engines.prefill[0], engines.decode[0]
        hold(engines)
        decode.call(7, "abort")
        assert prefill.until(7, ["Failed"], PROMPTLY) == "Failed"
        assert prefill.call(7, "is_drained")
        assert decode.until_released(7, PROMPTLY)
        asked = prefill.num_asked(7)
        prefill.come(7)
        prefill.sleep(0.1)
        assert prefill.num_asked(7) <= asked + 1
        engines.check()


def test_an_event_that_cannot_be_asked_for_fails_its_request_alone() -> None:
    with deployment(MODEL, kinds=("ours", "ours")) as engines:
        prefill, decode = engines.prefill[0], engines.decode[0]
        engines.start(REQUEST)
        prefill.hold(7, True)
        engines.send(REQUEST)
        for worker in (prefill, decode):
            assert worker.until(7, ["Failed"], PROMPTLY) == "Failed"
            assert "the device is lost" in worker.reason(7)
        engines.run(Request(8, [4, 5], [20, 21]))
        engines.check()
