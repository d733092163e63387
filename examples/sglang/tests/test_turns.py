"""What finds no room on the way waits for its turn, and fails if there is none to come."""

from __future__ import annotations

import time

import numpy as np
import pytest
from harness.deployment import Request, deployment
from harness.midway import MODEL, PAGES, SLOW

from kvsglang.prefill_room import Chunk, PrefillRoom
from kvsglang.states import Poll
from kvsglang.turns import HOPELESS, PAUSE, Turns

CHUNK = 64
# Half of a chunk's bytes for one of the decode workers: chunks find room by themselves, and only so.
LITTLE = 64 << 10


def test_requests_that_find_no_room_wait_and_every_byte_comes() -> None:
    options = {**SLOW, "most_in_flight": LITTLE}
    with deployment(MODEL, kinds=("ours", "ours"), tp=(1, 2), prefill_options=options) as engines:
        here, there = PAGES[: 8 * CHUNK], PAGES[-8 * CHUNK :]
        requests = []
        for room in range(4):
            own = slice(room * 2 * CHUNK, (room + 1) * 2 * CHUNK)
            # Chunks of one page fit beside each other, and come behind those that do not.
            sizes = (CHUNK, 1, CHUNK - 2, 1) if room % 2 else (1, 1, 2 * CHUNK - 2)
            requests.append(Request(room, here[own], there[own], chunks=sizes, aux=(room, room)))
        for request in requests:
            engines.start(request)
        for request in requests:
            engines.send(request)
        for request in requests:
            engines.finish(request)
        engines.check()


def waiting(number: int) -> PrefillRoom:
    room = PrefillRoom(number, Poll.TRANSFERRING)
    room.chunks.append(Chunk(0, np.array([1], np.uint32), True))
    return room


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_who_was_refused_first_posts_before_all_others(clock: list[float]) -> None:
    turns, first, second = Turns(), waiting(1), waiting(2)
    assert turns.may_post(first) and turns.may_post(second)
    assert turns.refused(second, can_end=True)
    # Not at once again, and the other not at all.
    assert not turns.may_post(second) and not turns.may_post(first)
    clock[0] += PAUSE
    assert turns.may_post(second) and not turns.may_post(first)
    assert turns.refused(second, can_end=True)
    assert not turns.may_post(second)
    turns.ended()
    assert turns.may_post(second) and not turns.may_post(first)


def test_a_request_that_is_over_or_has_posted_keeps_nobody_waiting(clock: list[float]) -> None:
    turns, first, second = Turns(), waiting(1), waiting(2)
    turns.refused(first, can_end=True)
    first.state = Poll.FAILED
    assert turns.may_post(second)
    turns.refused(second, can_end=True)
    second.chunks.clear()
    third = waiting(3)
    assert turns.may_post(third)
    turns.refused(third, can_end=True)
    # Its next chunk waits for something else.
    third.is_held = True
    assert turns.may_post(waiting(4))
    assert clock == [1000.0]


def test_nobody_waits_for_what_does_not_settle(clock: list[float]) -> None:
    turns, first = Turns(), waiting(1)
    assert turns.refused(first, can_end=False)
    clock[0] += HOPELESS - 1
    # Something that may end was there meanwhile.
    assert turns.refused(first, can_end=True)
    clock[0] += HOPELESS
    assert turns.refused(first, can_end=False)
    clock[0] += HOPELESS - 1
    assert turns.refused(first, can_end=False)
    clock[0] += 1
    assert not turns.refused(first, can_end=False)
    # Another one has to find out for itself.
    assert turns.refused(waiting(2), can_end=False)
