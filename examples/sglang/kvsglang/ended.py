"""Requests that ended while a part of them was known here: the other parts hear of it when they come.

A request under the same number that begins anew is not meant by that. It is a new one for whoever knows the end.
Nor is what a decode worker still says of a request that had come as a whole: nobody is left to hear it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .lately import Lately
from .messages import MOST_REASON, Abort, Room
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

    def knows(self, host: str, port: int, generation: int) -> bool:
        """Notes that a worker knows; whether that is news."""
        known = self.workers.get((host, port), -1)
        if generation <= known or (known < 0 and len(self.workers) >= MOST_WORKERS):
            return False
        self.workers[host, port] = generation
        return True

    def is_before(self, host: str, port: int, generation: int) -> bool:
        """Whether a worker that knows speaks of a later request."""
        known = self.workers.get((host, port))
        return known is not None and known < generation

    def was_told(self, asked: Room) -> bool:
        """Whether a worker that names no generation knows, and the sender does: what it asks for is a new request."""
        return not asked.generation and self.sender_knows and (asked.host, asked.port) in self.workers


class Ended:
    """The ends, each for so many seconds after the last of those who know heard of it first.

    Whoever asks holds the lock of the rooms.
    """

    def __init__(self, seconds: float) -> None:
        self._ends: Lately[int, _End] = Lately(seconds)
        self._met: Lately[int, dict[tuple[str, int], int]] = Lately(seconds)
        """Of the last request under a number of which both halves had come, the generations of its decode workers."""

    def is_past(self, abort: Abort, *, is_taken: bool) -> bool:
        """Whether an abort is about a request that is dropped, whose sender had come as well as who sends this.

        One without a generation is about whichever request has the number now, if one `is_taken` up.
        """
        known = (self._met.get(abort.room) or {}).get((abort.host, abort.port))
        if abort.generation is None:
            return known is not None and not is_taken
        return known is not None and abort.generation <= known

    def given_up(self, abort: Abort, reason: str) -> None:
        """A decode worker gave up what its sender does not know of, or what no decode worker asked for."""
        self._at_decode(abort.room, abort.host, abort.port, abort.generation or 0, reason)

    def forgotten(self, room: PrefillRoom) -> None:
        """A room is dropped. If it failed before all of it had come, the rest may still come."""
        if room.owner is not None and room.wanted:
            members = list(room.wanted.values())[:MOST_WORKERS]
            self._met.put(room.number, {(each.host, each.port): each.generation for each in members})
        if not room.is_part:
            # Who gave it up before asking has asked since.
            self._ends.drop(room.number)
        elif room.state is Poll.FAILED:
            for asked in room.wanted.values():
                self._at_decode(room.number, asked.host, asked.port, asked.generation, room.reason)
            if room.owner is not None:
                self._at_sender(room.number, room.reason)

    def for_sender(self, number: int) -> str:
        """Why the request of a sender that comes has ended; empty if it has not."""
        end = self._ends.get(number)
        if end is None or end.sender_knows:
            self._ends.drop(number)
            return ""
        return self._at_sender(number, end.reason)

    def for_decode(self, asked: Room) -> str:
        """Why a request that a decode worker asks for has ended; empty if it has not."""
        end = self._ends.get(asked.room)
        if end is None or end.is_before(asked.host, asked.port, asked.generation) or end.was_told(asked):
            self._ends.drop(asked.room)
            return ""
        if end.knows(asked.host, asked.port, asked.generation):
            self._ends.put(asked.room, end)
        return end.reason

    def _at_decode(self, number: int, host: str, port: int, generation: int, reason: str) -> None:
        end = self._ends.get(number)
        if end is None or end.is_before(host, port, generation):
            end = _End(reason[:MOST_REASON], sender_knows=False)
        if end.knows(host, port, generation):
            self._ends.put(number, end)

    def _at_sender(self, number: int, reason: str) -> str:
        end = self._ends.get(number) or _End(reason[:MOST_REASON], sender_knows=False)
        if not end.sender_knows:
            end.sender_knows = True
            self._ends.put(number, end)
        return end.reason
