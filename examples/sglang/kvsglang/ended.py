"""Requests that ended while one half of them was known here: the other half hears of it when it comes.

A request under the same number that begins anew is not meant by that. It is a new one for whoever knows the end.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .lately import Lately
from .messages import Abort, Room
from .prefill_room import PrefillRoom
from .states import Poll

MOST_WORKERS = 4096
"""Decode workers that are known to know of one end: more than an engine has ranks."""


@dataclass
class _End:
    reason: str
    sender_knows: bool
    workers: dict[tuple[str, int], int] = field(default_factory=dict)
    """Decode workers that know, by host and port, and the generation of the request whose end it was to them."""

    def knows(self, host: str, port: int, generation: int) -> None:
        if (host, port) in self.workers or len(self.workers) < MOST_WORKERS:
            self.workers[host, port] = max(generation, self.workers.get((host, port), 0))

    def is_before(self, host: str, port: int, generation: int) -> bool:
        """Whether a worker that knows speaks of a later request."""
        known = self.workers.get((host, port))
        return known is not None and known < generation


class Ended:
    """The ends, each for so many seconds after somebody last heard of it. Whoever asks holds the lock of the rooms."""

    def __init__(self, seconds: float) -> None:
        self._ends: Lately[int, _End] = Lately(seconds)

    def given_up(self, abort: Abort, reason: str) -> None:
        """A decode worker gave up what its sender does not know of, or what no decode worker asked for."""
        self._at_decode(abort.room, abort.host, abort.port, abort.generation or 0, reason)

    def forgotten(self, room: PrefillRoom) -> None:
        """A room is dropped. If it failed before both halves of it had come, the other one may still come."""
        if room.state is not Poll.FAILED or not room.is_half:
            return
        for asked in room.wanted.values():
            self._at_decode(room.number, asked.host, asked.port, asked.generation, room.reason)
        if room.owner is not None:
            end = self._ends.get(room.number) or _End(room.reason, sender_knows=True)
            end.sender_knows = True
            self._ends.put(room.number, end)

    def for_sender(self, number: int) -> str:
        """Why the request of a sender that comes has ended; empty if it has not."""
        end = self._ends.get(number)
        if end is None or end.sender_knows:
            self._ends.drop(number)
            return ""
        end.sender_knows = True
        self._ends.put(number, end)
        return end.reason

    def for_decode(self, asked: Room) -> str:
        """Why a request that a decode worker asks for has ended; empty if it has not."""
        end = self._ends.get(asked.room)
        if end is None or end.is_before(asked.host, asked.port, asked.generation):
            self._ends.drop(asked.room)
            return ""
        end.knows(asked.host, asked.port, asked.generation)
        self._ends.put(asked.room, end)
        return end.reason

    def _at_decode(self, number: int, host: str, port: int, generation: int, reason: str) -> None:
        end = self._ends.get(number)
        if end is None or end.is_before(host, port, generation):
            end = _End(reason, sender_knows=False)
        end.knows(host, port, generation)
        self._ends.put(number, end)
