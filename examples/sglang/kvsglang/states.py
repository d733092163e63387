"""The states that an engine polls."""

from __future__ import annotations

from enum import IntEnum


class Poll(IntEnum):
    """SGLang's five states; numbers are those of its wire."""

    FAILED = 0
    BOOTSTRAPPING = 1
    WAITING_FOR_INPUT = 2
    TRANSFERRING = 3
    SUCCESS = 4

    @property
    def is_final(self) -> bool:
        """Whether it never changes again."""
        return self in (Poll.FAILED, Poll.SUCCESS)
