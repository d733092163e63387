"""The decode workers that a prefill worker knows: their specs and the plans to them, and how many there may be."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from itertools import islice

import kvffi

from . import peers
from .errors import TooManyPeersError
from .lists import Lists, Place
from .mapping import Mapped
from .messages import Registration
from .options import Options
from .transport import Transport


@dataclass(frozen=True)
class Partner:
    """A decode worker that registered: its spec and the plan to it, or why there is none."""

    agent: str
    endpoint: str
    is_ours: bool
    tp_rank: int
    tp_size: int
    engine: str
    """Name of its engine; empty if it has none."""
    mapped: Mapped | None = None
    pair: kvffi.Pair | None = None
    refusal: str = ""
    # Planned as if this worker had what its whole group has: the library would refuse the answers as another rank's.
    is_alone: bool = False
    has_ended: bool = False
    """Whether somebody said that its process has ended."""


class Partners:
    """Those of one prefill worker. `lock` is that of its rooms: who looks somebody up holds it.

    Decode workers come and go and do not say so. Those go for which no request is kept and that are gone for certain:
    when somebody looks, and when another one registers. Then those go as well whose place it has taken. If there are
    still `most_peers`, those go for which no request is kept and to which there is no way: they were refused, or the
    last write to them failed. If that is not enough the new one is refused. So nobody goes to whom something may still
    be written, nor anybody in good standing.

    Who registers, looks, and asks for pages does so on one thread: nobody goes for whom a request comes meanwhile.
    """

    def __init__(
        self, lists: Lists, mapped: Mapped, place: Place, options: Options, transport: Transport, lock: threading.Lock
    ) -> None:
        self._lists, self._mapped, self._place, self._options = lists, mapped, place, options
        self._transport, self._lock = transport, lock
        self._known: dict[str, Partner] = {}

    def register(self, said: Registration, busy: Callable[[], Collection[str]]) -> list[str]:
        """Takes a decode worker up, and returns the endpoints at which there is nobody any more.

        `busy` are the agents for which requests are kept; the lock is held when it is called.

        # Errors
        `TooManyPeersError` if there is no room.
        """
        endpoint = f"tcp://{said.host}:{said.port}"
        dropped = self._make_room(said.agent, endpoint, busy)
        partner = self._plan(said, endpoint)
        with self._lock:
            self._known[said.agent] = partner
        return self._left(dropped)

    def look(self, busy: Callable[[], Collection[str]]) -> list[str]:
        """Lets those go that have ended, and returns the endpoints at which there is nobody any more."""
        return self._left([other for other in self._idle(busy) if self._has_ended(other) and self._drop(other)])

    def get(self, agent: str) -> Partner | None:
        """A decode worker; the lock is held."""
        return self._known.get(agent)

    def is_of_another_engine(self, partner: Partner, members: Collection[str]) -> bool:
        """Whether a decode worker cannot be of one engine with the members of a request; the lock is held.

        Ranks of an engine differ, and their engine has one size and one name.
        """
        others = [other for agent in members if agent != partner.agent and (other := self.get(agent)) is not None]
        return any(
            other.tp_rank == partner.tp_rank or (other.tp_size, other.engine) != (partner.tp_size, partner.engine)
            for other in others
        )

    def stranger(self, agent: str) -> str:
        """Why a decode worker that is not known gets nothing; the lock is held."""
        known, most = len(self._known), self._options.most_peers
        if known >= most:
            return str(TooManyPeersError(agent, known, most))
        return f"decode worker {agent} asked for pages before it registered"

    def ours(self) -> set[str]:
        """Agents that read what ours add to SGLang's messages; the lock is held."""
        return {agent for agent, partner in self._known.items() if partner.is_ours}

    def agents(self) -> list[str]:
        """All of them."""
        with self._lock:
            return list(self._known)

    def declare_gone(self, endpoint: str) -> set[str]:
        """Takes the caller's word that the process at an endpoint has ended, and returns its agents; the lock is held.

        They go when somebody looks: what was on its way to them settles first.
        """
        ended = [
            partner
            for partner in self._known.values()
            if partner.endpoint == f"tcp://{endpoint}" and not partner.has_ended
        ]
        for partner in ended:
            self._transport.declare_gone(partner.agent)
            refusal = f"decode worker {partner.agent} was declared gone"
            self._known[partner.agent] = replace(partner, mapped=None, pair=None, refusal=refusal, has_ended=True)
        return {partner.agent for partner in ended}

    def _make_room(self, agent: str, endpoint: str, busy: Callable[[], Collection[str]]) -> list[Partner]:
        idle = [other for other in self._idle(busy) if other.agent != agent]
        with self._lock:
            is_full = agent not in self._known and len(self._known) >= self._options.most_peers
        dropped = [
            other for other in idle if (other.endpoint == endpoint or self._has_ended(other)) and self._drop(other)
        ]
        if is_full and not dropped:
            unreachable = (
                other
                for other in idle
                if (other.refusal or self._transport.is_broken(other.agent)) and self._drop(other)
            )
            dropped = list(islice(unreachable, 1))
            if not dropped:
                raise TooManyPeersError(agent, self._options.most_peers, self._options.most_peers)
        return dropped

    def _idle(self, busy: Callable[[], Collection[str]]) -> list[Partner]:
        with self._lock:
            kept = busy()
            return [partner for agent, partner in self._known.items() if agent not in kept]

    def _has_ended(self, partner: Partner) -> bool:
        return partner.has_ended or self._transport.is_gone(partner.agent)

    def _left(self, dropped: Collection[Partner]) -> list[str]:
        with self._lock:
            taken = {partner.endpoint for partner in self._known.values()}
        return [partner.endpoint for partner in dropped if partner.endpoint not in taken]

    def _drop(self, partner: Partner) -> bool:
        if not self._transport.drop(partner.agent):
            return False
        with self._lock:
            self._known.pop(partner.agent, None)
        return True

    def _plan(self, said: Registration, endpoint: str) -> Partner:
        engine = str((said.mapped or {}).get(peers.ENGINE, ""))
        who = said.agent, endpoint, said.mapped is not None, said.tp_rank, said.tp_size, engine
        try:
            mapped = peers.destination(
                said,
                self._lists,
                self._mapped,
                self._place,
                total_layers=self._options.total_layers,
                device=self._options.device,
            )
            local, remote = self._mapped.without(mapped.elided), mapped.spec
            is_alone = mapped.dcp_size > 1 and not self._lists.is_hybrid
            if is_alone:
                # A decode worker that is dealt tokens asks one prefill worker, and that one serves it alone.
                local = peers.alone(local, 0, 1)
                remote = peers.alone(remote, said.tp_rank % mapped.dcp_size, mapped.dcp_size)
            theirs = kvffi.Spec.from_dict(remote)
            pair = kvffi.Pair(kvffi.Spec.from_dict(local), theirs, op="write")
            self._transport.connect(said, theirs)
        except Exception as error:  # noqa: BLE001
            # Whatever it is, it is this worker's: its requests fail with the reason, and the thread lives on.
            return Partner(*who, refusal=f"{type(error).__name__}: {error}")
        return Partner(*who, mapped, pair, is_alone=is_alone)
