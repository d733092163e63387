"""One request on a prefill worker: what was asked for, what is on its way, and who knows how it ended."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Protocol

import kvffi

from .messages import Abort, Room
from .requests import Pages
from .rooms import AnyRoom
from .states import Poll


class Event(Protocol):
    """Something that the engine's device comes to, such as torch's event of CUDA."""

    def query(self) -> bool:
        """Whether it has; does not wait for it."""


@dataclass(frozen=True)
class Chunk:
    """Pages of a request that are ready, from a place in it on; the last one carries state and row."""

    first: int
    kv: Pages
    is_last: bool
    state: tuple[Pages | None, ...] = ()
    after: Event | None = None
    """What its pages are not to be read before: until then somebody writes them."""


class Asked(Enum):
    """What becomes of what a decode worker asks for."""

    TAKEN = auto()
    REPEATED = auto()
    """It came before: that is no news, and to refuse it would speak of what is under way."""
    TWICE = auto()
    """A worker that names no generation took the number for another request while one of its own has it."""
    REFUSED = auto()
    """Another request has the number."""


@dataclass
class PrefillRoom(AnyRoom):
    """One request on this worker."""

    owner: object | None = None
    """The sender, once there is one."""
    num_pages: int | None = None
    aux: int | None = None
    cursor: int = 0
    wanted: dict[str, Room] = field(default_factory=dict)
    """What each decode worker asked for, by agent."""
    refused: set[tuple[str, int]] = field(default_factory=set)
    """Hosts and ports of decode workers to whom this request's number was refused: they have no say over it."""
    chunks: deque[Chunk] = field(default_factory=deque)
    begun: set[str] = field(default_factory=set)
    """Agents to whom the first of the chunks is under way, while it waits for room on the way to others."""
    moving: list[tuple[str, kvffi.Transfer]] = field(default_factory=list)
    """Agents, and what is on its way to them and has not settled."""
    is_held: bool = False
    """Whether the first of `chunks` waits for its event, as it was last looked at."""
    is_starting: bool = False
    """Whether a chunk has been taken and what moves it is not in `moving` yet."""
    num_bytes: int = 0
    """Bytes that were handed to the transport."""
    all_queued: bool = False
    is_stuck: bool = False
    """Whether all that is moving has failed and not settled."""
    told: set[str] = field(default_factory=set)
    """Agents that know how it ended."""
    acknowledge: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Endpoints that are to hear when it is drained, with their agent and the generation that they gave."""

    def is_drained(self, agent: str | None = None) -> bool:
        """Whether nothing of it is written any more, to one decode worker or to any."""
        if self.is_starting:
            return False
        busy = {name for name, _ in self.moving}
        return agent not in busy if agent is not None else not busy

    def member(self, host: str, port: int) -> Room | None:
        """What the decode worker that listens there asked for."""
        return next((wanted for wanted in self.wanted.values() if (wanted.host, wanted.port) == (host, port)), None)

    def ask(self, wanted: Room, *, is_of_another_engine: bool) -> Asked:
        """Notes what a decode worker asks for, and how that goes with what others have."""
        known = self.member(wanted.host, wanted.port) or self.wanted.get(wanted.agent)
        if known is not None:
            if self._is_repeated(known, wanted):
                return Asked.REPEATED
            if wanted.generation or self.state is Poll.SUCCESS:
                return Asked.REFUSED
            self.told.discard(known.agent)
            return Asked.TWICE
        is_one_request = all(other.num_readers == wanted.num_readers for other in self.wanted.values())
        if is_of_another_engine or self.is_complete or not is_one_request:
            self.refused.add((wanted.host, wanted.port))
            return Asked.REFUSED
        self.wanted[wanted.agent] = wanted
        return Asked.TAKEN

    def heeds(self, abort: Abort) -> bool:
        """Whether an abort ends it: who was refused has no say, nor what was said of a request before it."""
        if self.state.is_final or (abort.host, abort.port) in self.refused:
            return False
        member = self.member(abort.host, abort.port)
        return not self.is_complete if member is None else self._is_meant(member, abort)

    def is_part_ended_by(self, abort: Abort) -> bool:
        """Whether who gives it up knows that it has ended, or ends it, and not all of it have come."""
        return self.is_part and (self.heeds(abort) or self.state is Poll.FAILED)

    def answers(self, abort: Abort) -> bool:
        """Whether nothing is written for whoever gave it up; if something is, he hears when that is over."""
        member = self.member(abort.host, abort.port)
        if member is None or not self._is_meant(member, abort) or self.is_drained(member.agent):
            return True
        if abort.generation is not None:
            self.acknowledge[f"tcp://{abort.host}:{abort.port}"] = member.agent, abort.generation
        return False

    def _is_repeated(self, known: Room, wanted: Room) -> bool:
        if known.generation != wanted.generation:
            return False
        # SGLang's name no generation: to ask for the same once more while it goes on is to repeat oneself.
        return bool(wanted.generation) or (not self.state.is_final and known.frames() == wanted.frames())

    @staticmethod
    def _is_meant(member: Room, abort: Abort) -> bool:
        return not member.generation or abort.generation == member.generation

    @property
    def is_part(self) -> bool:
        """Whether its sender or one of its decode workers has not come."""
        return self.owner is None or not self.is_complete

    @property
    def is_complete(self) -> bool:
        """Whether every decode worker of the request has said where."""
        return bool(self.wanted) and len(self.wanted) >= next(iter(self.wanted.values())).num_readers

    def untold(self, ours: Collection[str]) -> list[Room]:
        """Whom to tell now how it ended; `ours` are the agents that read what ours add to SGLang's messages.

        SGLang's decode worker gives pages back when it hears of a failure, so it is told when nothing is written any
        more. Ours is told at once, and keeps them until then.
        """
        if not self.state.is_final:
            return []
        return [
            wanted
            for agent, wanted in self.wanted.items()
            if agent not in self.told and not wanted.is_dummy and (self.is_drained(agent) or agent in ours)
        ]

    @property
    def is_over(self) -> bool:
        """Whether it is cleared, nothing of it is written any more, and everybody knows."""
        all_told = all(agent in self.told or wanted.is_dummy for agent, wanted in self.wanted.items())
        return self.cleared and self.is_drained() and not self.acknowledge and all_told

    def give_up(self) -> None:
        """Drops chunks that nothing has begun to move, and cancels what is under way."""
        self.chunks.clear()
        for _, transfer in self.moving:
            transfer.cancel()

    @property
    def prefix(self) -> int:
        """Tokens that decode has already."""
        return max((wanted.prefix for wanted in self.wanted.values()), default=0)
