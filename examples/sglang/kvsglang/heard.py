"""Aborts that have come: the same one once more asks for its answer, and says nothing new."""

from __future__ import annotations

import time

from .messages import Abort

KEPT = 120.0
"""Seconds for which an abort is known after it came last: some times what a decode worker waits for an answer."""


class Heard:
    """What decode workers gave up a while ago. Whoever asks holds the lock of the rooms."""

    def __init__(self) -> None:
        # In the order in which they came last.
        self._then: dict[tuple[str, int, int, int], float] = {}

    def is_repeated(self, abort: Abort) -> bool:
        """Whether it came before. One without a generation says nothing by which it could be known again."""
        if abort.generation is None:
            return False
        now = time.monotonic()
        while self._then and now - self._then[oldest := next(iter(self._then))] > KEPT:
            del self._then[oldest]
        key = abort.host, abort.port, abort.room, abort.generation
        was_there = self._then.pop(key, None) is not None
        self._then[key] = now
        return was_there
