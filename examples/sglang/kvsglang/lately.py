"""What happened a while ago, and no longer than that: who comes and goes without end fills no memory."""

from __future__ import annotations

import time
from collections.abc import Hashable
from typing import Generic, TypeVar

MOST = 1 << 16
"""Things that are kept at most: whoever brings more within the time makes the oldest go before it is over."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Lately(Generic[K, V]):
    """Values that are kept for some seconds after they were put last. Not thread-safe."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        # In the order in which they were put last.
        self._kept: dict[K, tuple[V, float]] = {}

    def put(self, key: K, value: V) -> None:
        """Keeps a value, in the place of the one that is there."""
        self._kept.pop(key, None)
        self._kept[key] = value, time.monotonic()
        while self._kept and (self._is_past(oldest := next(iter(self._kept))) or len(self._kept) > MOST):
            del self._kept[oldest]

    def get(self, key: K) -> V | None:
        """What is kept, if it is."""
        return None if key not in self._kept or self._is_past(key) else self._kept[key][0]

    def drop(self, key: K) -> None:
        """Keeps it no longer."""
        self._kept.pop(key, None)

    def _is_past(self, key: K) -> bool:
        return time.monotonic() - self._kept[key][1] > self._seconds
