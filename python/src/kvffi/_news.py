"""Waiting for an agent's descriptor by several threads.

Clearing a descriptor tells nobody else that it was readable. So one thread at a time waits on the descriptor, for all;
the others wait for it, and each is told once of everything that has happened since it was told last.
"""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable

# Seconds; more is for ever.
_LONGEST = 2_000_000.0


class News:
    """What the threads of one agent know of its descriptor."""

    __slots__ = ("_changed", "_count", "_is_watched", "_told")

    def __init__(self) -> None:
        self._changed = threading.Condition()
        # How often it was readable.
        self._count = 0
        self._is_watched = False
        self._told = threading.local()

    def happened(self) -> None:
        """Somebody has cleared the descriptor."""
        with self._changed:
            self._count += 1
            self._changed.notify_all()

    def wait(self, fd: int, clear: Callable[[], None], end: float) -> bool:
        """Waits until there is news for this thread: False at the time `end`."""
        looked = False
        while True:
            with self._changed:
                if self._told.__dict__.get("count", 0) != self._count:
                    self._told.count = self._count
                    return True
                left = end - time.monotonic()
                if looked and left <= 0:
                    return False
                if self._is_watched:
                    if left <= 0 or not self._changed.wait(None if left > _LONGEST else left):
                        return False
                    continue
                self._is_watched = True
            try:
                if is_readable(fd, left):
                    clear()
            finally:
                # Another one takes over, or sees the news.
                with self._changed:
                    self._is_watched = False
                    self._changed.notify_all()
            looked = True


def is_readable(fd: int, left: float) -> bool:
    """Waits until a descriptor is readable, for so many seconds at most: whether it is."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(None if left > _LONGEST else max(left, 0) * 1000))
