"""The forms of raw NIXL, of which each case takes its fastest."""

from __future__ import annotations

from typing import NamedTuple


class Form(NamedTuple):
    """Threads of the agent and descriptors for each at once, both 0 for NIXL's defaults; longest piece, 0 for any."""

    threads: int
    batch: int
    piece: int

    def __str__(self) -> str:
        pieces = f"pieces of {self.piece >> 10} KiB" if self.piece else "uncut"
        threads = f"{self.threads} threads by {self.batch or 1024}" if self.threads else "one thread"
        return f"{threads}, {pieces}"


FORMS = [
    Form(0, 0, 0),
    Form(0, 0, 1 << 20),
    Form(2, 16, 1 << 18),
    Form(2, 16, 1 << 16),
    Form(4, 0, 0),
    Form(4, 0, 1 << 18),
    Form(4, 16, 1 << 16),
]
