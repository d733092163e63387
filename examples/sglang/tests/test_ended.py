"""Whose request has ended before its other half came: that one fails when it comes, and what begins anew does not."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from harness.both import HOST, Both, both
from harness.midway import PROMPTLY, until

from kvsglang import ended, lately
from kvsglang.ended import Ended
from kvsglang.lately import Lately
from kvsglang.messages import ABORT, ABORT_ACK, Abort, Frames, Room
from kvsglang.options import Options
from kvsglang.prefill_room import PrefillRoom
from kvsglang.receiver import Receiver
from kvsglang.sender import Sender
from kvsglang.sockets import ControlSocket
from kvsglang.states import Poll

WAIT = Options().bootstrap_timeout


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Lets some seconds pass for what was kept."""
    clock = [0.0]
    monkeypatch.setattr(lately, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + clock[0]))

    def passes(seconds: float) -> None:
        clock[0] += seconds

    return passes


@pytest.fixture(autouse=True)
def said(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Kinds of the messages that either of the two has sent."""
    found: list[bytes] = []
    send = ControlSocket.send

    def noted(self: ControlSocket, endpoint: str, frames: Frames) -> None:
        found.append(frames[0])
        send(self, endpoint, frames)

    monkeypatch.setattr(ControlSocket, "send", noted)
    return found


def sender(engines: Both) -> Sender:
    made = Sender(engines.prefill, engines.address, 7)
    made.init(2, None)
    return made


def receiver(engines: Both, pages: list[int] = [1, 2]) -> Receiver:  # noqa: B006
    made = Receiver(engines.decode, engines.address, 7)
    made.init()
    made.send_metadata(pages, None, None, 0)
    return made


def end(request: Sender | Receiver) -> None:
    """Gives it up and forgets it."""
    request.abort()
    request.clear()


def forgotten(engines: Both, said: list[bytes]) -> bool:
    """Whether both know of no request any more, and every abort has been heard."""
    return until(
        lambda: (
            not engines.prefill.rooms.numbers()
            and not engines.decode.rooms.numbers()
            and said.count(ABORT) == said.count(ABORT_ACK)
        ),
        PROMPTLY,
    )


def fails(request: Sender | Receiver, says: str) -> None:
    assert until(lambda: request.poll() is Poll.FAILED, PROMPTLY)
    assert says in request.manager.rooms.reason(7)


def succeeds(one: Sender, other: Receiver) -> None:
    assert until(lambda: one.poll() is Poll.WAITING_FOR_INPUT, PROMPTLY)
    one.send([1, 2])
    assert until(lambda: (one.poll(), other.poll()) == (Poll.SUCCESS, Poll.SUCCESS), PROMPTLY)


def test_a_receiver_that_comes_long_after_its_sender_ended_fails_at_once(
    later: Callable[[float], None], said: list[bytes]
) -> None:
    with both() as engines:
        end(sender(engines))
        assert forgotten(engines, said)
        later(WAIT - 10)
        fails(receiver(engines), "aborted by the prefill engine")
        assert until(lambda: not engines.decode.held(), PROMPTLY)


def test_a_sender_that_comes_long_after_its_receiver_ended_fails_at_once(
    later: Callable[[float], None], said: list[bytes]
) -> None:
    with both() as engines:
        # Once it fails by itself, and is never asked for; once it has asked.
        for pages, says in (([40], "page 40 is not from 0"), ([1, 2], "aborted by the decode engine")):
            end(receiver(engines, pages))
            assert forgotten(engines, said)
            later(WAIT - 10)
            late = sender(engines)
            fails(late, says)
            late.clear()
            assert forgotten(engines, said)


@pytest.mark.parametrize("first", [sender, receiver])
@pytest.mark.parametrize("last", [sender, receiver])
@pytest.mark.parametrize("pages", [[1, 2], [40]])
def test_what_begins_anew_when_both_halves_have_ended_succeeds(
    first: Callable[[Both], Any], last: Callable[[Both], Any], pages: list[int], said: list[bytes]
) -> None:
    with both() as engines:
        for make in (sender, receiver) if first is sender else (receiver, sender):
            end(receiver(engines, pages) if make is receiver else sender(engines))
            assert forgotten(engines, said)
        if last is receiver:
            one = sender(engines)
            succeeds(one, receiver(engines))
        else:
            other = receiver(engines)
            succeeds(sender(engines), other)


def test_a_receiver_that_is_tried_again_before_the_sender_comes_succeeds(said: list[bytes]) -> None:
    with both() as engines:
        for pages in ([40], [1, 2]):
            end(receiver(engines, pages))
            assert forgotten(engines, said)
        again = receiver(engines)
        # Who came before that could be of the request that has ended.
        assert until(lambda: engines.prefill.rooms.numbers() == [7], PROMPTLY)
        succeeds(sender(engines), again)


def test_a_sender_that_is_tried_again_before_the_receiver_comes_succeeds(said: list[bytes]) -> None:
    with both() as engines:
        end(sender(engines))
        assert forgotten(engines, said)
        succeeds(sender(engines), receiver(engines))


def asked(port: int, generation: int) -> Room:
    return Room(7, HOST, port, str(port), np.array([1], np.int32), 0, 2, (), 0, False, generation)


def test_every_worker_of_a_request_hears_of_its_end_and_a_later_request_does_not() -> None:
    kept = Ended(WAIT)
    kept.given_up(Abort(7, HOST, 1, 3), "why")
    assert kept.for_decode(asked(2, 9)) == "why"
    # What was said before it was given up is no new request, nor is what is asked for once more.
    for port, generation in ((1, 2), (1, 3), (2, 9)):
        assert kept.for_decode(asked(port, generation)) == "why"
    assert kept.for_decode(asked(2, 10)) == ""
    assert kept.for_decode(asked(1, 3)) == ""


def test_a_sender_hears_of_an_end_once() -> None:
    kept = Ended(WAIT)
    assert kept.for_sender(7) == ""
    kept.given_up(Abort(7, HOST, 1, 3), "why")
    assert kept.for_sender(7) == "why"
    # Its room is dropped: that is the same end, and who gave it up knows of it.
    kept.forgotten(PrefillRoom(7, Poll.FAILED, "why", owner=object()))
    assert kept.for_decode(asked(2, 1)) == "why"
    assert kept.for_decode(asked(1, 4)) == ""
    kept.given_up(Abort(7, HOST, 1, 5), "why")
    assert kept.for_sender(7) == "why"
    assert kept.for_sender(7) == ""
    assert kept.for_decode(asked(2, 1)) == ""


def test_an_end_of_a_later_request_takes_the_place_of_an_earlier_one() -> None:
    kept = Ended(WAIT)
    kept.given_up(Abort(7, HOST, 1, 3), "one")
    assert kept.for_sender(7) == "one"
    kept.given_up(Abort(7, HOST, 1, 4), "two")
    assert kept.for_sender(7) == "two"


def test_a_request_that_did_not_fail_or_whose_halves_had_both_come_is_not_kept() -> None:
    kept = Ended(WAIT)
    kept.forgotten(PrefillRoom(7, Poll.SUCCESS, owner=object()))
    kept.forgotten(PrefillRoom(7, Poll.FAILED, "why", owner=object(), wanted={"1": asked(1, 3)}))
    assert kept.for_decode(asked(1, 3)) == ""
    kept.forgotten(PrefillRoom(7, Poll.FAILED, "why", wanted={"1": asked(1, 3)}))
    assert kept.for_sender(7) == "why"


def test_an_end_is_forgotten_in_the_end_and_fills_no_memory(
    later: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ended, "MOST_WORKERS", 2)
    kept = Ended(WAIT)
    for port in range(1, 5):
        kept.given_up(Abort(7, HOST, port, 3), "why")
    # Who is not known to know is told.
    assert kept.for_decode(asked(4, 4)) == "why"
    later(WAIT + 1)
    assert kept.for_sender(7) == ""


def test_where_nothing_is_to_be_kept_nothing_is() -> None:
    kept = Lately[int, str](0.0)
    for key in (1, 1, 2):
        kept.put(key, "here")
    time.sleep(0.01)
    assert kept.get(2) is None
    ends = Ended(0.0)
    for _ in range(2):
        ends.given_up(Abort(7, HOST, 1, 3), "why")
        time.sleep(0.01)
        assert ends.for_sender(7) == ""
