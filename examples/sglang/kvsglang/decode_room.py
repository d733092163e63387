"""One request on a decode worker: which prefill workers may write into its pages, and until when."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import kvffi

from .bootstrap import Rank
from .messages import Status
from .requests import Pages
from .rooms import AnyRoom
from .states import Poll

SETTLED = 2.0
"""Seconds after the end of a writer's process for which what it had sent may still arrive."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds until the writers of a request that failed are told again if they did not answer; each time twice as long."""


@dataclass
class DecodeRoom(AnyRoom):
    """One request on this worker."""

    address: str = ""
    """Of the prefill engine's rendezvous."""
    ranks: list[Rank] = field(default_factory=list)
    asked: dict[int, Rank] = field(default_factory=dict)
    """Those that were told of the request, by their number on the wire."""
    awaited: set[int] = field(default_factory=set)
    """Prefill workers whose success is outstanding."""
    writers: set[int] = field(default_factory=set)
    """Prefill workers that may write into the pages."""
    watched: dict[int, kvffi.Peer] = field(default_factory=dict)
    """Those of ours among them, by rank."""
    gone: dict[int, float] = field(default_factory=dict)
    """Writers whose process has ended, and when that was seen."""
    pages: Pages | None = None
    """What was announced to them."""
    aux: int | None = None
    generation: int = 0
    """Tells it from an earlier one under its number."""
    pause: float = FIRST_PAUSE
    told_again: float | None = None
    """When its writers were last told that it failed; None before it was seen that they had to be."""

    @property
    def is_over(self) -> bool:
        """Whether it is cleared, and nobody writes into its pages any more."""
        return self.cleared and not self.writers

    def asked_writers(self) -> dict[int, Rank]:
        """Prefill workers that may write into the pages, by their number."""
        return {number: self.asked[number] for number in self.writers}

    def is_from_writer(self, status: Status) -> bool:
        """Whether a message tells how this request ended at a prefill worker that was told of it.

        Ours name the request by its generation, SGLang's know none.
        """
        rank = self.asked.get(status.rank)
        if rank is None or status.state not in (Poll.FAILED, Poll.SUCCESS):
            return False
        return status.generation == (self.generation if rank.is_ours else 0)

    def give_up(self) -> None:
        """Nothing: it moves nothing, and who may write may do so until he has answered."""

    def lost(self) -> int | None:
        """A writer that has ended, if it was seen before: what it said last has arrived meanwhile."""
        known = set(self.gone)
        self._see()
        return min(known & self.writers, default=None)

    def bury(self) -> None:
        """Takes those from the writers that have ended, some time after they have."""
        self._see()
        now = time.monotonic()
        self.writers -= {number for number, then in self.gone.items() if now - then > SETTLED}

    def unanswered(self) -> list[Rank]:
        """Writers that are to be told now: a word that was lost with a connection would leave the pages held."""
        now = time.monotonic()
        if self.told_again is None:
            # They have just been told.
            self.told_again = now
        if now - self.told_again < self.pause:
            return []
        self.told_again, self.pause = now, min(2 * self.pause, LONGEST_PAUSE)
        return [rank for number, rank in self.asked_writers().items() if number not in self.gone]

    def _see(self) -> None:
        for number in self.writers:
            peer = self.watched.get(number)
            if peer is not None and peer.info().is_gone:
                self.gone.setdefault(number, time.monotonic())
