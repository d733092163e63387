"""The table of requests that both roles have: who ends one, who hears of it, and when its number is free."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass

from kvsglang.rooms import AnyRoom, Rooms
from kvsglang.states import Poll


@dataclass
class Held(AnyRoom):
    """A request that is over once nobody holds it."""

    holders: int = 0
    given_up: int = 0

    @property
    def is_over(self) -> bool:
        return self.cleared and self.holders == 0

    def give_up(self) -> None:
        self.given_up += 1


class Table:
    """A table of one request, and what it says."""

    def __init__(self, holders: int = 0) -> None:
        self.failed: list[AnyRoom] = []
        self.forgotten: list[AnyRoom] = []
        self.rooms: Rooms[Held] = Rooms(self.hear, self.forgotten.append)
        self.room = Held(7, holders=holders)
        with self.rooms.lock:
            self.rooms.add(self.room)

    def hear(self, room: AnyRoom) -> None:
        # Whoever hears of it sends messages: the lock must be free.
        with self.rooms.lock:
            self.failed.append(room)


def test_a_request_fails_once_with_the_first_reason() -> None:
    table = Table()
    table.rooms.abort(7, "one")
    table.rooms.abort(7, "two")
    assert table.rooms.poll(7) is Poll.FAILED
    assert table.rooms.reason(7) == "one"
    assert table.failed == [table.room]
    assert table.room.given_up == 1


def test_a_request_that_succeeded_cannot_fail() -> None:
    table = Table()
    table.room.state = Poll.SUCCESS
    table.rooms.abort(7, "late")
    assert table.rooms.poll(7) is Poll.SUCCESS
    table.rooms.clear(7, "late")
    assert table.failed == []
    assert table.rooms.numbers() == []


def test_a_number_is_free_when_its_request_is_cleared_and_over() -> None:
    table = Table(holders=1)
    table.rooms.clear(7, "cleared")
    assert table.failed == [table.room]
    assert table.rooms.numbers() == [7]
    with table.rooms.lock:
        table.room.holders = 0
        table.rooms.forget(table.room)
    assert table.rooms.numbers() == []
    assert table.rooms.poll(7) is Poll.FAILED
    assert table.rooms.reason(7) == "the request was cleared"


def test_whoever_has_to_remember_a_request_hears_when_it_is_dropped() -> None:
    table = Table(holders=1)
    table.rooms.clear(7, "cleared")
    assert table.forgotten == []
    with table.rooms.lock:
        table.room.holders = 0
        table.rooms.forget(table.room)
        table.rooms.forget(table.room)
    assert table.forgotten == [table.room]
    assert table.room.reason == "cleared"


def test_a_request_that_waits_too_long_fails_when_it_is_polled() -> None:
    table = Table()
    table.room.wait("nothing came", 60.0)
    assert table.rooms.poll(7) is Poll.BOOTSTRAPPING
    table.room.since -= 61
    assert table.rooms.poll(7) is Poll.FAILED
    assert re.fullmatch(r"nothing came in \d+\.\d s", table.rooms.reason(7))
    assert table.failed == [table.room]


def test_whoever_comes_first_ends_a_request_and_it_is_told_once() -> None:
    for _ in range(50):
        table = Table()
        table.room.wait("nothing came", 0.0)
        start = threading.Barrier(4)

        def end(by: int, table: Table = table, start: threading.Barrier = start) -> None:
            start.wait()
            if by == 0:
                table.rooms.poll(7)
            elif by == 1:
                table.rooms.abort(7, "abort")
            else:
                table.rooms.clear(7, "clear")

        threads = [threading.Thread(target=end, args=(by,)) for by in (0, 1, 2)]
        for thread in threads:
            thread.start()
        start.wait()
        for thread in threads:
            thread.join()
        assert table.failed == [table.room]
        assert table.room.given_up == 1
        assert table.rooms.numbers() == []
