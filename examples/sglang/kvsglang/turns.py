"""Whose turn it is to post when as much is under way as is allowed: who came first, and the others after him."""

from __future__ import annotations

import time

from .prefill_room import PrefillRoom

PAUSE = 0.01
"""Seconds until it is tried again if nothing has ended: a transfer gives room back as it goes."""
HOPELESS = 5.0
"""Seconds after which nobody waits any more for what has failed and does not settle. What went to a process of ours on
this host settles earlier if that has ended."""


class Turns:
    """Only the mover's thread asks.

    If whatever fits went first, a request that needs more room than others might wait for ever.
    """

    def __init__(self) -> None:
        self._first: PrefillRoom | None = None
        self._again = 0.0
        self._stuck_since: float | None = None

    def may_post(self, room: PrefillRoom) -> bool:
        """Whether a request may post now; the rooms' lock is held."""
        first = self._first
        if first is not None and (first.state.is_final or not first.chunks or first.is_held):
            self._first = None
        if self._first is None:
            return True
        return self._first is room and time.monotonic() >= self._again

    def refused(self, room: PrefillRoom, *, can_end: bool) -> bool:
        """Lets a request wait that was refused for what is under way, and says whether there is hope.

        `can_end`: whether some of what is under way may still end by itself.
        """
        now = time.monotonic()
        if self._first is not room:
            self._first, self._stuck_since = room, None
        self._again = now + PAUSE
        if can_end:
            self._stuck_since = None
        elif self._stuck_since is None:
            self._stuck_since = now
        return self._stuck_since is None or now - self._stuck_since < HOPELESS

    def ended(self) -> None:
        """Something that was under way is not any more."""
        self._again = 0.0
