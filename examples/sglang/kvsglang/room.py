"""One request on a prefill worker, and the decode workers that it may be for."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field

import kvffi

from .mapping import Mapped
from .messages import Room
from .requests import Pages
from .states import Poll


@dataclass(frozen=True)
class Peer:
    """A decode worker that registered: its spec and the plan to it, or why there is none."""

    agent: str
    endpoint: str
    is_ours: bool
    mapped: Mapped | None = None
    pair: kvffi.Pair | None = None
    refusal: str = ""


@dataclass(frozen=True)
class Chunk:
    """Pages of a request that are ready, from a place in it on; the last one carries state and row."""

    first: int
    kv: Pages
    is_last: bool
    state: tuple[Pages | None, ...] = ()


@dataclass
class PrefillRoom:
    """One request on this worker."""

    number: int
    state: Poll = Poll.BOOTSTRAPPING
    reason: str = ""
    owner: object | None = None
    """The sender, once there is one."""
    num_pages: int | None = None
    aux: int | None = None
    cursor: int = 0
    wanted: dict[str, Room] = field(default_factory=dict)
    """What each decode worker asked for, by agent."""
    chunks: deque[Chunk] = field(default_factory=deque)
    moving: list[tuple[str, kvffi.Transfer]] = field(default_factory=list)
    """Agents, and what is on its way to them and has not settled."""
    is_starting: bool = False
    """Whether a chunk has been taken and what moves it is not in `moving` yet."""
    num_bytes: int = 0
    """Bytes that were handed to the transport."""
    all_queued: bool = False
    lost: set[str] = field(default_factory=set)
    """Agents to which a write failed: its bytes may land as long as they live."""
    is_stuck: bool = False
    """Whether all that is moving has failed and not settled."""
    told: set[str] = field(default_factory=set)
    """Agents that know how it ended."""
    acknowledge: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Endpoints that are to hear when it is drained, with their agent and the generation that they gave."""
    cleared: bool = False
    since: float = field(default_factory=time.monotonic)

    def is_drained(self, agent: str | None = None) -> bool:
        """Whether nothing of it is written any more, to one decode worker or to any."""
        if self.is_starting:
            return False
        busy = {name for name, _ in self.moving}
        return agent not in busy if agent is not None else not busy

    @property
    def is_complete(self) -> bool:
        """Whether every decode worker of the request has said where."""
        return bool(self.wanted) and len(self.wanted) >= next(iter(self.wanted.values())).num_readers

    def untold(self, peers: dict[str, Peer]) -> list[Room]:
        """Whom to tell now how it ended.

        SGLang's decode worker gives pages back when it hears of a failure, so it is told when nothing is written any
        more. Ours is told at once, and keeps them until then.
        """
        if not self.state.is_final:
            return []
        return [
            wanted
            for agent, wanted in self.wanted.items()
            if agent not in self.told
            and not wanted.is_dummy
            and (self.is_drained(agent) or (agent in peers and peers[agent].is_ours))
        ]

    @property
    def is_over(self) -> bool:
        """Whether it can be forgotten."""
        all_told = all(agent in self.told or wanted.is_dummy for agent, wanted in self.wanted.items())
        return self.cleared and self.is_drained() and not self.acknowledge and all_told

    @property
    def prefix(self) -> int:
        """Tokens that decode has already."""
        return max((wanted.prefix for wanted in self.wanted.values()), default=0)
