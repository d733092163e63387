"""What was taken from the library, and nobody has seen yet.

Taking is once only: what is taken and then dropped, because a signal came or because whoever iterates stopped, would be
lost. So it waits here until it is handed out, one by one.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from ._handle import Owner

_T = TypeVar("_T")


class Inbox(Generic[_T]):
    """Things of one kind, in order. `free` frees a list of them that the library made."""

    __slots__ = ("_free", "_lock", "_taken", "_waiting")

    def __init__(self, free: Callable[[Any], None]) -> None:
        self._free = free
        # A signal's handler may take, too.
        self._lock = threading.RLock()
        self._taken: Owner | None = None
        self._waiting: deque[_T] = deque()

    def fill(self, take: Callable[[Owner], object], read: Callable[[Owner], list[_T]]) -> None:
        """Takes a list of the library, and reads it.

        `read` changes nothing: if a signal ends it, it is called again for the same list.
        """
        with self._lock:
            # The list belongs to this object before there is one.
            taken = self._taken
            if taken is None:
                taken = self._taken = Owner(self._free)
            if not taken:
                take(taken)
            new = read(taken) if taken else []
            self._taken = None
            self._waiting.extend(new)

    def put_back(self, things: list[_T]) -> None:
        """Takes back what was handed out last."""
        self._waiting.extendleft(reversed(things))

    def all(self) -> list[_T]:
        """Hands out everything that waits."""
        return list(self.each())

    def each(self) -> Iterator[_T]:
        """Hands out what waits, one by one."""
        while True:
            try:
                yield self._waiting.popleft()
            except IndexError:
                return
