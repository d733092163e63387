"""What was taken from the library, and nobody has seen yet.

Taking is once only: what is taken and then dropped, because a signal came or because whoever iterates stopped, would be
lost. So it waits here until it is handed out, one by one. A signal's handler runs, and raises, where a function is
called: between what belongs together there are only assignments, and what a call could part is put back.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
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
            new = deque(self._waiting)
            new.extend(read(taken) if taken else ())
            self._waiting, self._taken = new, None

    def put_back(self, things: Iterable[_T]) -> None:
        """Takes back what was handed out last."""
        with self._lock:
            before = deque(things)
            before.extend(self._waiting)
            self._waiting = before

    def all(self) -> list[_T]:
        """Hands out everything that waits."""
        things: list[_T] = []
        try:
            with self._lock:
                copied = list(self._waiting)
                empty: deque[_T] = deque()
                things, self._waiting = copied, empty
        except BaseException:
            self.put_back(things)
            raise
        return things

    def each(self) -> Iterator[_T]:
        """Hands out what waits, one by one."""
        while True:
            things: tuple[_T, ...] = ()
            try:
                with self._lock:
                    if not self._waiting:
                        return
                    # No call: a deque takes from its end by this as well.
                    things = (self._waiting[0],)
                    del self._waiting[0]
            except BaseException:
                self.put_back(things)
                raise
            yield things[0]
