"""Aborts, crashes and restarts while bytes move: no page is given back before nobody writes into it."""

from __future__ import annotations

import signal

import numpy as np
import pytest
from harness.deployment import Request, deployment
from harness.expect import Expectation
from harness.midway import HALF, MODEL, PAGES, PROMPTLY, SLOW, begin, cut, until
from harness.model import Model
from harness.settings import Settings
from harness.worker import PATIENCE, Chunk, Remote

OURS = ("ours", "ours")


@pytest.mark.parametrize(
    ("side", "call", "reason"),
    [
        ("decode", "abort", "aborted by the decode engine"),
        ("decode", "clear", "the receiver was cleared while bytes moved"),
        ("prefill", "abort", "aborted by the prefill engine"),
        ("prefill", "clear", "the sender was cleared while bytes moved"),
    ],
)
def test_whoever_ends_a_request_ends_it_on_both_sides_and_pages_are_free_once_drained(
    side: str, call: str, reason: str
) -> None:
    with deployment(MODEL, kinds=OURS, prefill_options=SLOW) as engines:
        request = begin(engines, 1)
        one, other = engines.prefill[0], engines.decode[0]
        if side == "decode":
            one, other = other, one
        one.call(1, call)
        if call == "abort":
            assert one.poll(1) == "Failed"
            assert reason in one.why(1)
        assert other.until(1, ["Failed"], PROMPTLY) == "Failed"
        assert reason in other.why(1)
        decode = engines.decode[0]
        assert until(lambda: not decode.ask("held"), PROMPTLY)
        assert decode.call(1, "is_abort_release_safe")
        then = decode.memory()
        decode.sleep(0.3)
        assert all((a == b).all() for a, b in zip(then, decode.memory(), strict=True)), "bytes landed after the release"
        assert 0 < cut(engines, request) <= 4 * HALF
        for worker in (one, other):
            worker.call(1, "clear")
        engines.expected[0].memory = then
        engines.run(Request(2, PAGES[:8], PAGES[8:16]))
        engines.check()


def test_no_byte_lands_after_a_release_whenever_the_abort_comes() -> None:
    with deployment(MODEL, kinds=OURS, prefill_options=SLOW) as engines:
        prefill, decode = engines.prefill[0], engines.decode[0]
        for room in range(40):
            request = Request(room, PAGES[:256], PAGES[256:512])
            engines.start(request)
            engines.send(request)
            decode.sleep(0.0005 * (room % 8))
            decode.call(room, "abort")
            assert decode.until_released(room, PROMPTLY)
            then = decode.digests()
            decode.sleep(0.02)
            assert then == decode.digests(), f"room {room}"
            for worker in (prefill, decode):
                worker.call(room, "clear")
            decode.restore()


def test_pages_of_a_prefill_worker_that_does_not_answer_are_held() -> None:
    with deployment(MODEL, kinds=OURS, prefill_options=SLOW) as engines:
        begin(engines, 1)
        prefill, decode = engines.prefill[0], engines.decode[0]
        prefill.signal(signal.SIGSTOP)
        try:
            decode.call(1, "abort")
            assert decode.poll(1) == "Failed"
            decode.sleep(1.0)
            assert decode.ask("held") == {1: PAGES[::-1]}
            assert not decode.call(1, "is_abort_release_safe")
            decode.call(1, "clear")
            assert decode.ask("held") == {1: PAGES[::-1]}
        finally:
            prefill.signal(signal.SIGCONT)
        assert until(lambda: not decode.ask("held"), PROMPTLY)
        assert prefill.until(1, ["Failed"], PROMPTLY) == "Failed"


@pytest.mark.parametrize("told", [True, False], ids=["and the engine says so", "and the agent sees it"])
def test_a_prefill_worker_that_dies_fails_its_requests_and_its_successor_serves(told: bool) -> None:
    with deployment(MODEL, kinds=OURS, prefill_options=SLOW, decode_options={"heartbeat": 0.2}) as engines:
        request = begin(engines, 1)
        endpoint = engines.prefill[0].ask("endpoint")
        decode = engines.decode[0]
        decode.change("kvsglang.decode_room", "SETTLED", 60.0)
        engines.prefill[0].kill()
        assert decode.until(1, ["Failed"], PROMPTLY) == "Failed"
        assert any(seen in decode.why(1) for seen in ("lost the prefill engine", "prefill worker 0 has ended"))
        # A connection that broke is no proof that nothing lands; that the process has ended is, some time later.
        assert decode.ask("held") == {1: PAGES[::-1]}
        port = decode.place.bootstrap_port
        assert decode.ask("writers") == {1: [endpoint]}
        if told:
            assert decode.ask("declare_gone", endpoint) == [1]
            assert not decode.ask("held")
        else:
            decode.change("kvsglang.decode_room", "SETTLED", 0.5)
            assert until(lambda: not decode.ask("held"), PROMPTLY)
        decode.call(1, "clear")
        cut(engines, request)
        engines.expected[0].memory = decode.memory()
        engines.prefill = [Remote("ours", MODEL, Settings("prefill", port), 1).ready()]
        try:
            engines.run(Request(1, PAGES[:8], PAGES[8:16]))
            engines.check()
        finally:
            engines.prefill[0].stop()


def test_that_an_engine_has_ended_frees_nothing_that_its_successor_writes() -> None:
    """The successor has the rendezvous of the one that died, so what has ended is named by where it listened."""
    with deployment(MODEL, kinds=OURS, decode_options={"heartbeat": 60.0}) as engines:
        decode, place = engines.decode[0], engines.prefill[0].place
        decode.receiver(1)
        decode.receive(1, PAGES[:8], None, None, 0)
        dead = engines.prefill[0].ask("endpoint")
        engines.prefill[0].kill()
        prefill = engines.prefill[0] = Remote("ours", MODEL, place, 1, SLOW).ready()
        request = Request(2, PAGES[8:], PAGES[8:][::-1], chunks=(HALF, HALF - 8), aux=None)
        engines.start(request)
        prefill.send(2, Chunk(request.pieces()[0]))
        assert until(lambda: decode.changed() > 0, PROMPTLY)
        prefill.signal(signal.SIGSTOP)
        try:
            decode.call(2, "abort")
            living = next(name for room, names in decode.ask("writers").items() if room == 2 for name in names)
            assert decode.ask("writers") == {1: [dead], 2: [living]}
            assert decode.ask("declare_gone", dead) == [1]
            assert decode.ask("held") == {2: request.destination}
            assert not decode.call(2, "is_abort_release_safe")
            assert decode.ask("declare_gone", dead) == []
        finally:
            prefill.signal(signal.SIGCONT)
        assert decode.until_released(2, PROMPTLY)
        then = decode.digests()
        decode.sleep(0.3)
        assert decode.digests() == then, "bytes landed after the release"


def test_what_was_found_and_is_lost_is_asked_for_nothing() -> None:
    """A request that has found its prefill worker and not yet said where to write, when that one is started again."""
    with deployment(MODEL, kinds=OURS, decode_options={"heartbeat": 60.0}) as engines:
        decode, place = engines.decode[0], engines.prefill[0].place
        decode.receiver(1)
        assert decode.poll(1) == "WaitingForInput"
        engines.prefill[0].kill()
        engines.prefill[0] = Remote("ours", MODEL, place, 1).ready()
        decode.receiver(2)
        assert decode.poll(2) == "WaitingForInput"
        assert decode.poll(1) == "Failed"
        assert "was started again" in decode.why(1)
        decode.receive(1, PAGES[:8], None, None, 0)
        assert decode.ask("held") == {}
        assert decode.call(1, "is_abort_release_safe")
        decode.call(1, "clear")
        decode.call(2, "abort")
        engines.run(Request(3, PAGES[:8], PAGES[8:16]))
        engines.check()


def test_a_prefill_worker_that_dies_and_has_no_rendezvous_is_missed_by_its_requests() -> None:
    with deployment(Model(layers=(0, 1)), kinds=OURS, tp=(2, 1), decode_options={"heartbeat": 0.2}) as engines:
        decode = engines.decode[0]
        engines.start(Request(1, [1, 2], [10, 11]))
        engines.prefill[0].send(1, Chunk([1, 2]))
        assert engines.prefill[0].until(1, ["Success"], PROMPTLY) == "Success"
        engines.prefill[1].kill()
        assert decode.until(1, ["Failed"], PROMPTLY) == "Failed"
        assert "prefill worker 1 has ended" in decode.why(1)
        assert decode.until_released(1, PROMPTLY)
        # And so does the next one, which cannot know it.
        decode.receiver(2)
        decode.receive(2, [12], 6, None, None)
        assert decode.until(2, ["Failed"], PROMPTLY) == "Failed"
        assert "prefill worker 1 has ended" in decode.why(2)


def test_a_prefill_worker_that_was_started_again_unseen_is_found_anew() -> None:
    with deployment(MODEL, kinds=OURS, decode_options={"heartbeat": 60.0}) as engines:
        engines.run(Request(1, PAGES[:8], PAGES[8:16]))
        engines.prefill[0].kill()
        port = engines.decode[0].place.bootstrap_port
        engines.prefill = [Remote("ours", MODEL, Settings("prefill", port), 1).ready()]
        try:
            engines.run(Request(2, PAGES[:8], PAGES[24:32]))
            engines.check()
        finally:
            engines.prefill[0].stop()


def test_a_decode_worker_that_dies_fails_its_requests_and_its_successor_is_served() -> None:
    with deployment(MODEL, kinds=OURS, prefill_options=SLOW) as engines:
        begin(engines, 1)
        engines.decode[0].kill()
        prefill = engines.prefill[0]
        prefill.send(1, Chunk(PAGES[HALF:]))
        assert prefill.until(1, ["Failed"], PATIENCE) == "Failed"
        assert prefill.why(1)
        # That the process has ended settles what was posted, and the agent sees it.
        assert until(lambda: bool(prefill.call(1, "is_drained")), PROMPTLY)
        prefill.call(1, "clear")
        place = engines.decode[0].place
        engines.decode = [Remote("ours", MODEL, place, 2).ready()]
        engines.expected = [Expectation(engines.decode[0].twin)]
        try:
            engines.run(Request(1, PAGES[:8], PAGES[8:16]))
            engines.check()
        finally:
            engines.decode[0].stop()


def test_the_check_sees_one_wrong_byte() -> None:
    with deployment(Model(layers=(0,)), kinds=OURS) as engines:
        engines.run(Request(1, [1, 2], [3, 4]))
        engines.check()
        row = engines.decode[0].twin.pool.rows(0)[9].copy()
        row[17] ^= np.uint8(1)
        engines.decode[0].overwrite(0, 9, row)
        with pytest.raises(AssertionError):
            engines.check()
