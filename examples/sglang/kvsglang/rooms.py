"""Requests by number, as managers of both roles keep them: whoever looks at one or changes it holds the lock."""

from __future__ import annotations

import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from .states import Poll


@dataclass
class AnyRoom(ABC):
    """One request on a worker of either role."""

    number: int
    state: Poll = Poll.BOOTSTRAPPING
    reason: str = ""
    """Why it failed."""
    cleared: bool = False
    """Whether the engine has forgotten it."""
    since: float = field(default_factory=time.monotonic)
    patience: float = math.inf
    """Seconds from `since` on that it may stay as it is."""
    lacks: str = ""
    """What has not happened when they are over."""

    @property
    @abstractmethod
    def is_over(self) -> bool:
        """Whether it can be forgotten."""

    @abstractmethod
    def give_up(self) -> None:
        """Drops what has not begun: it has failed."""

    def wait(self, lacks: str, seconds: float) -> None:
        """Lets it fail if so many seconds from now nothing has happened."""
        self.since, self.patience, self.lacks = time.monotonic(), seconds, lacks

    def overdue(self) -> str:
        """What it has waited for too long; empty if it has not."""
        waited = time.monotonic() - self.since
        return f"{self.lacks} in {waited:.1f} s" if waited > self.patience else ""


AnyRoomT = TypeVar("AnyRoomT", bound=AnyRoom)


class Rooms(Generic[AnyRoomT]):
    """The requests of one manager.

    What takes a number takes the lock by itself, and with `of` does nothing if another request has the number by now.
    What takes a room is for those who hold `lock`. `failed` is called with each room that fails by its number, without
    the lock: here messages can be sent. `forgotten` is called with each that is dropped, with the lock held.
    """

    def __init__(
        self, failed: Callable[[AnyRoomT], None], forgotten: Callable[[AnyRoomT], None] = lambda _: None
    ) -> None:
        self.lock = threading.Lock()
        self._rooms: dict[int, AnyRoomT] = {}
        self._failed, self._forgotten = failed, forgotten

    def poll(self, number: int, of: AnyRoomT | None = None) -> Poll:
        """State of a room."""
        with self.lock:
            room = self._meant(number, of)
            if room is None:
                return Poll.FAILED
            late = room.overdue()
            fails = bool(late) and self.fail(room, late)
            state = room.state
        if fails:
            self._failed(room)
        return state

    def reason(self, number: int, of: AnyRoomT | None = None) -> str:
        """Why a room failed; empty if it did not."""
        with self.lock:
            room = self._meant(number, of)
            return room.reason if room is not None else "the request was cleared"

    def abort(self, number: int, reason: str, of: AnyRoomT | None = None) -> None:
        """Ends a request that is under way."""
        with self.lock:
            room = self._meant(number, of)
            fails = room is not None and self.fail(room, reason)
        if room is not None and fails:
            self._failed(room)

    def clear(self, number: int, reason: str, of: AnyRoomT | None = None) -> None:
        """Forgets a request: at once, or when it is over. One that is under way is aborted with a reason."""
        self.abort(number, reason, of)
        with self.lock:
            room = self._meant(number, of)
            if room is not None:
                room.cleared = True
                self.forget(room)

    def numbers(self) -> list[int]:
        """Of all rooms."""
        with self.lock:
            return list(self._rooms)

    # Below, the lock is held.

    def all(self) -> list[AnyRoomT]:
        """Every room."""
        return list(self._rooms.values())

    def get(self, number: int) -> AnyRoomT | None:
        """The room of a number."""
        return self._rooms.get(number)

    def has(self, room: AnyRoomT) -> bool:
        """Whether a room is there, and not another under its number."""
        return self._rooms.get(room.number) is room

    def add(self, room: AnyRoomT) -> AnyRoomT:
        """Takes up a room, and returns it."""
        self._rooms[room.number] = room
        return room

    def fail(self, room: AnyRoomT, reason: str) -> bool:
        """Ends a room that has not ended; whether it had not."""
        if room.state.is_final:
            return False
        room.state, room.reason = Poll.FAILED, reason
        room.give_up()
        return True

    def forget(self, room: AnyRoomT) -> None:
        """Drops a room that is over."""
        if room.is_over and self.has(room):
            del self._rooms[room.number]
            self._forgotten(room)

    def _meant(self, number: int, of: AnyRoomT | None) -> AnyRoomT | None:
        room = self._rooms.get(number)
        return room if of is None or room is of else None
