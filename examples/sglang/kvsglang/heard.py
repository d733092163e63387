"""Aborts that have come: the same one once more asks for its answer, and says nothing new."""

from __future__ import annotations

from .lately import Lately
from .messages import Abort

KEPT = 120.0
"""Seconds for which an abort is known after it came last: some times what a decode worker waits for an answer."""


class Heard:
    """What decode workers gave up a while ago. Whoever asks holds the lock of the rooms."""

    def __init__(self) -> None:
        self._lately: Lately[tuple[str, int, int, int], bool] = Lately(KEPT)

    def is_repeated(self, abort: Abort) -> bool:
        """Whether it came before. One without a generation says nothing by which it could be known again."""
        if abort.generation is None:
            return False
        key = abort.host, abort.port, abort.room, abort.generation
        was_there = self._lately.get(key) is not None
        self._lately.put(key, True)
        return was_there
