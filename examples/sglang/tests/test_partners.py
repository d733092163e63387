"""Decode workers come and go: a prefill worker keeps few of them, and none goes to whom something may be written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import zmq
from harness.deployment import Deployment, Request, deployment
from harness.expect import Expectation
from harness.midway import PROMPTLY, until
from harness.model import Model
from harness.nobody import NOBODY
from harness.settings import Settings
from harness.worker import Chunk, Remote

MODEL = Model(layers=(0, 1), page_tokens=16, num_pages=512)
PAGES = list(range(512))
OURS = ("ours", "ours")
FULL = "1 others are known and most_peers is 1"


def successor(engines: Deployment) -> Remote:
    """Another decode worker, which takes the place of the deployment's from here on."""
    place = Settings("decode", engines.decode[0].place.bootstrap_port)
    engines.decode = [Remote("ours", MODEL, place, 2).ready()]
    engines.expected = [Expectation(engines.decode[0].twin)]
    return engines.decode[0]


@contextmanager
def crowded(most: int, **options: int) -> Iterator[Deployment]:
    with deployment(MODEL, kinds=OURS, prefill_options={"most_peers": most, **options}) as engines:
        try:
            yield engines
        finally:
            engines.decode[0].stop()


def refused(engines: Deployment, room: int, reason: str) -> None:
    """A request of the deployment's decode worker fails on both sides, soon and with the reason, and moves nothing."""
    prefill, decode = engines.prefill[0], engines.decode[0]
    prefill.sender(room, 1, 3)
    decode.receiver(room)
    decode.receive(room, [0], 3, None, None)
    for worker in (prefill, decode):
        assert worker.until(room, ["Failed", "Success"], PROMPTLY) == "Failed"
        assert reason in worker.why(room)
    assert decode.until_released(room, PROMPTLY)
    for worker in (prefill, decode):
        worker.call(room, "clear")
    engines.check()


def test_decode_workers_that_died_make_room_for_others() -> None:
    with crowded(2) as engines:
        for room in range(5):
            engines.run(Request(room, [1, 2], [3, 4]))
            engines.check()
            assert len(engines.prefill[0].ask("peers")) <= 2
            engines.decode[0].kill()
            successor(engines)


def test_one_that_died_goes_also_when_no_other_comes() -> None:
    with crowded(2) as engines:
        prefill = engines.prefill[0]
        engines.run(Request(1, [1, 2], [3, 4]))
        assert len(prefill.ask("peers")) == 1
        engines.decode[0].kill()
        assert until(lambda: prefill.ask("peers") == [], PROMPTLY)


def test_one_too_many_is_refused_until_another_is_gone() -> None:
    with crowded(1) as engines:
        first, expected = engines.decode, engines.expected
        engines.run(Request(1, [1, 2], [3, 4]))
        newcomer = [successor(engines)], engines.expected
        refused(engines, 2, FULL)
        engines.decode, engines.expected = first, expected
        engines.run(Request(3, [5, 6], [7, 8]))
        engines.check()
        first[0].kill()
        engines.decode, engines.expected = newcomer
        engines.run(Request(4, [1, 2], [3, 4]))
        engines.check()


def test_one_that_died_is_kept_while_its_request_is() -> None:
    with crowded(1, most_bytes=1024, most_posts=1) as engines:
        prefill, decode = engines.prefill[0], engines.decode[0]
        engines.start(Request(1, PAGES, PAGES[::-1]))
        prefill.send(1, Chunk(PAGES[:256]))
        assert until(lambda: decode.changed() > 0, PROMPTLY)
        known = prefill.ask("peers")
        decode.kill()
        successor(engines)
        refused(engines, 2, FULL)
        assert prefill.ask("peers") == known
        prefill.call(1, "abort")
        assert until(lambda: bool(prefill.call(1, "is_drained")), PROMPTLY)
        prefill.call(1, "clear")
        engines.run(Request(3, [1, 2], [3, 4]))
        engines.check()
        assert len(prefill.ask("peers")) == 1
        assert prefill.ask("peers") != known


def test_workers_that_could_never_be_written_to_fill_no_table() -> None:
    with crowded(3) as engines:
        prefill = engines.prefill[0]
        context = zmq.Context()
        socket = context.socket(zmq.PUSH)
        socket.connect(f"tcp://{prefill.ask('endpoint')}")
        for number in range(40):
            said = replace(NOBODY, agent=f"nobody {number}")
            socket.send_multipart(said.frames())
        assert until(lambda: "nobody 39" in prefill.ask("peers"), PROMPTLY)
        assert len(prefill.ask("peers")) <= 3
        socket.close(linger=0)
        context.term()
        engines.run(Request(1, [1, 2], [3, 4]))
        engines.check()
        assert len(prefill.ask("peers")) <= 3
