"""Whose request has ended before its other half came: that one fails when it comes, and what begins anew does not."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from harness.both import HOST, Both, both
from harness.deployment import Request, deployment
from harness.midway import PROMPTLY, until
from harness.model import Model
from harness.worker import Remote

from kvsglang import ended, lately
from kvsglang.ended import Ended
from kvsglang.lately import Lately
from kvsglang.messages import ABORT, ABORT_ACK, MOST_REASON, STATUS, Abort, Frames, Room
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


@dataclass
class Wire:
    """What both managers say; messages of one kind are held back for a while."""

    holds: bytes = b""
    held: list[Callable[[], None]] = field(default_factory=list)

    def let_go(self) -> None:
        """Sends what was held back, and holds nothing back any more."""
        self.holds = b""
        for send in self.held:
            send()


@pytest.fixture
def wire(said: list[bytes], monkeypatch: pytest.MonkeyPatch) -> Wire:
    made = Wire()
    send = ControlSocket.send

    def slow(self: ControlSocket, endpoint: str, frames: Frames) -> None:
        if frames[0] == made.holds:
            made.held.append(lambda: send(self, endpoint, frames))
        else:
            send(self, endpoint, frames)

    del said
    monkeypatch.setattr(ControlSocket, "send", slow)
    return made


def send_bad_pages(one: Sender) -> None:
    one.send([4000])


@pytest.mark.parametrize("ends", [Sender.abort, send_bad_pages])
@pytest.mark.parametrize("first", ["sender", "receiver", "sender before the abort"])
def test_a_number_is_free_again_although_the_prefill_worker_ended_and_forgot_its_request_first(
    ends: Callable[[Sender], None], first: str, wire: Wire, said: list[bytes]
) -> None:
    with both() as engines:
        wire.holds = ABORT
        one, other = engines.start(7)
        ends(one)
        assert one.poll() is Poll.FAILED
        one.clear()
        assert until(lambda: engines.prefill.rooms.numbers() == [], PROMPTLY)
        assert until(lambda: other.poll() is Poll.FAILED and bool(wire.held), PROMPTLY)
        other.clear()
        if first == "sender before the abort":
            again = sender(engines)
            wire.let_go()
            assert until(lambda: said.count(ABORT) == said.count(ABORT_ACK), PROMPTLY)
            assert again.poll() is Poll.BOOTSTRAPPING
            succeeds(again, receiver(engines))
            return
        wire.let_go()
        assert forgotten(engines, said)
        if first == "sender":
            again = sender(engines)
            succeeds(again, receiver(engines))
        else:
            late = receiver(engines)
            assert until(lambda: engines.prefill.rooms.numbers() == [7], PROMPTLY)
            succeeds(sender(engines), late)


def test_a_number_is_free_again_although_the_decode_worker_did_not_hear_of_the_success(
    wire: Wire, said: list[bytes]
) -> None:
    with both() as engines:
        wire.holds = STATUS
        one, other = engines.start(7)
        one.send([1, 2])
        assert until(lambda: one.poll() is Poll.SUCCESS, PROMPTLY)
        one.clear()
        assert until(lambda: engines.prefill.rooms.numbers() == [], PROMPTLY)
        end(other)
        assert forgotten(engines, said)
        wire.holds = b""
        again = sender(engines)
        succeeds(again, receiver(engines))


def test_a_number_is_free_again_when_one_decode_worker_ended_its_request_and_the_other_had_asked() -> None:
    with deployment(Model(layers=(0,)), kinds=("ours", "ours"), tp=(1, 2)) as engines:
        prefill, (one, other) = engines.prefill[0], engines.decode
        request = Request(0, [1], [2])

        def begins(worker: Remote, number: int) -> None:
            if worker is prefill:
                worker.sender(number, 1, 3)
            else:
                worker.receiver(number)
                worker.receive(number, [2], 6, None, 0)

        orders = (prefill, one, other), (prefill, other, one), (other, one, prefill), (one, other, prefill)
        for number, order in enumerate(orders):
            prefill.sender(number, 1, 3)
            for worker in (one, other):
                worker.receiver(number)
            one.call(number, "abort")
            assert prefill.until(number, ["Failed"], PROMPTLY) == "Failed"
            other.receive(number, [2], 6, None, 0)
            assert other.until(number, ["Failed"], PROMPTLY) == "Failed"
            for worker in (one, other):
                assert worker.until_released(number, PROMPTLY)
            for worker in (one, other, prefill):
                worker.call(number, "clear")
            assert until(lambda: prefill.ask("rooms.numbers") == [], PROMPTLY)
            for worker in order:
                begins(worker, number)
                worker.sleep(0.1)
            assert prefill.until(number, ["WaitingForInput", "Failed"], PROMPTLY) == "WaitingForInput"
            engines.send(replace(request, room=number))
            engines.finish(replace(request, room=number))
        engines.check()


def asked(port: int, generation: int, *, readers: int = 2) -> Room:
    return Room(7, HOST, port, str(port), np.array([1], np.int32), 0, readers, (), 0, False, generation)


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
    wanted = {"1": asked(1, 3, readers=1)}
    kept.forgotten(PrefillRoom(7, Poll.SUCCESS, owner=object()))
    kept.forgotten(PrefillRoom(7, Poll.FAILED, "why", owner=object(), wanted=wanted))
    assert kept.for_decode(asked(1, 3)) == ""
    kept.forgotten(PrefillRoom(7, Poll.FAILED, "why", wanted=wanted))
    assert kept.for_sender(7) == "why"


def test_a_worker_that_comes_when_a_request_has_ended_without_it_hears_of_that() -> None:
    kept = Ended(WAIT)
    of_one = PrefillRoom(7, Poll.FAILED, "why", owner=object(), wanted={"1": asked(1, 3)})
    for told in (kept.for_decode, lambda room: kept.given_up(Abort(7, room.host, room.port, room.generation), "why")):
        kept.forgotten(of_one)
        told(asked(2, 5))
        assert kept.for_sender(7) == ""
        kept.forgotten(of_one)
        assert kept.for_decode(asked(2, 5)) == "why"
        assert kept.for_decode(asked(2, 6)) == ""


@pytest.mark.parametrize("state", [Poll.FAILED, Poll.SUCCESS])
def test_an_abort_of_a_request_that_is_dropped_is_past_and_one_of_a_later_request_is_not(
    state: Poll, later: Callable[[float], None]
) -> None:
    kept = Ended(WAIT)
    room = PrefillRoom(7, state, "why", owner=object(), wanted={"1": asked(1, 3), "2": asked(2, 0)})

    def is_past(port: int, generation: int | None, *, is_taken: bool) -> bool:
        return kept.is_past(Abort(7, HOST, port, generation), is_taken=is_taken)

    assert not is_past(1, 3, is_taken=False)
    kept.forgotten(room)
    for is_taken in (False, True):
        assert is_past(1, 3, is_taken=is_taken)
        assert not is_past(1, 4, is_taken=is_taken)
        assert not is_past(3, 1, is_taken=is_taken)
        # SGLang's, which names no generation.
        assert is_past(2, None, is_taken=is_taken) is not is_taken
    later(WAIT + 1)
    assert not is_past(1, 3, is_taken=False)


def test_a_worker_without_a_generation_hears_of_an_end_until_the_sender_has_heard_too(
    later: Callable[[float], None],
) -> None:
    kept = Ended(WAIT)
    # What it repeats does not make the end last.
    kept.given_up(Abort(7, HOST, 1), "why")
    for _ in range(3):
        assert kept.for_decode(asked(1, 0)) == "why"
        kept.forgotten(PrefillRoom(7, Poll.FAILED, "why", wanted={"1": asked(1, 0)}))
        later(WAIT / 4)
    assert kept.for_sender(7) == "why"
    kept.forgotten(PrefillRoom(7, Poll.FAILED, "why", owner=object()))
    # What it says of the end that it knows is no other end.
    kept.given_up(Abort(7, HOST, 1), "why")
    assert kept.for_decode(asked(2, 0)) == "why"
    assert kept.for_decode(asked(1, 0)) == ""
    assert kept.for_sender(7) == ""
    kept.given_up(Abort(7, HOST, 1), "why")
    for _ in range(3):
        later(WAIT / 4)
        assert kept.for_decode(asked(1, 0)) == "why"
    later(WAIT / 2)
    assert kept.for_decode(asked(1, 0)) == ""


def test_of_a_long_reason_the_beginning_is_kept() -> None:
    kept = Ended(WAIT)
    kept.forgotten(PrefillRoom(7, Poll.FAILED, "why" + 5000 * ".", owner=object()))
    assert kept.for_decode(asked(1, 3)) == "why" + (MOST_REASON - 3) * "."


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
