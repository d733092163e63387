"""Waiting for an agent's descriptor by several threads.

Clearing a descriptor tells nobody else that it was readable, not even a thread that `poll` is about to wake for it:
`poll` looks again, and sleeps on. So one thread at a time waits on the descriptor, for all; the others wait for it.
Whoever clears the descriptor counts that here, which wakes them all, the first one by a pipe that it waits on as well;
each thread is told once of what others have counted since it was told last. A poll of an exchange does not say whether
it has cleared anything, so each one counts.

A forked child has the pipe too, and locks that may be held for ever. It must not wait, and what it counts is no news.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable

# Seconds; more is for ever.
_LONGEST = 2_000_000.0


class News:
    """What the threads of one agent know of its descriptor."""

    __slots__ = ("_changed", "_counts", "_is_watched", "_lock", "_pipe", "_process", "_told")

    def __init__(self) -> None:
        # Not that of the condition: in its own `__enter__` a signal could part taking the lock from giving it back.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        # How often the descriptor was cleared, and how often an exchange was polled.
        self._counts = (0, 0)
        self._is_watched = False
        # Wakes whoever waits on the descriptor; made when one does.
        self._pipe: tuple[int, int] | None = None
        self._told = threading.local()
        self._process = os.getpid()

    def is_forked(self) -> bool:
        """Whether this is a child of the process that made this."""
        return os.getpid() != self._process

    def cleared(self) -> None:
        """Called by who has cleared the descriptor: that is news for the others."""
        self._count(1, 0)

    def polled(self) -> None:
        """Called by who has polled the exchange: that is news for the others, but not if they wait for the exchange.

        Otherwise two that do nothing but wait and poll would wake each other for ever.
        """
        self._count(0, 1)

    def _count(self, cleared: int, polled: int) -> None:
        if self.is_forked():
            return
        with self._lock:
            before = self._counts
            self._counts = (before[0] + cleared, before[1] + polled)
            if self._counts_told() == before:
                self._told.counts = self._counts
            self._changed.notify_all()
            if self._is_watched and self._pipe is not None:
                # A pipe that is full wakes as well.
                with contextlib.suppress(BlockingIOError):
                    os.write(self._pipe[1], b"\0")

    def _counts_told(self) -> tuple[int, int]:
        counts: tuple[int, int] = self._told.__dict__.get("counts", (0, 0))
        return counts

    def wait(self, fd: int, clear: Callable[[], None], end: float, *, for_exchange: bool = False) -> bool:
        """Waits until there is news for this thread: False at the time `end`. `clear` only clears the descriptor."""
        looked = False
        while True:
            is_news = mine = False
            try:
                with self._lock:
                    told = self._counts_told()
                    if told[0] != self._counts[0] or (told[1] != self._counts[1] and not for_exchange):
                        self._told.counts = self._counts
                        return True
                    left = end - time.monotonic()
                    if looked and left <= 0:
                        return False
                    if self._is_watched:
                        if left <= 0 or not self._changed.wait(None if left > _LONGEST else left):
                            return False
                        continue
                    if self._pipe is None:
                        self._pipe = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
                    pipe = self._pipe[0]
                    # In one statement, which no signal parts; one may come as soon as the lock is given back.
                    mine = self._is_watched = True
                readable = which_readable((fd, pipe), left)
                if pipe in readable:
                    with contextlib.suppress(BlockingIOError):
                        os.read(pipe, 4096)
                if fd in readable:
                    is_news = True
                    clear()
            finally:
                if mine:
                    # Another one takes over, or sees the news.
                    with self._lock:
                        self._is_watched = False
                        self._counts = (self._counts[0] + is_news, self._counts[1])
                        self._changed.notify_all()
            looked = True

    def close(self) -> None:
        """Frees the pipe. Nobody waits any more."""
        pipe, self._pipe = self._pipe, None
        for end in pipe or ():
            os.close(end)


def which_readable(fds: tuple[int, ...], left: float) -> set[int]:
    """Waits until a descriptor is readable, for so many seconds at most: those that are."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return {fd for fd, _ in poll.poll(None if left > _LONGEST else max(left, 0) * 1000)}
