"""The prefill engines that a decode worker knows: where their workers are, and whether they still are."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Set

import kvffi

from . import bootstrap, peers
from .bootstrap import PrefillInfo, Rank
from .errors import MessageError, PeerError
from .lists import Lists, Place
from .mapping import Mapped
from .options import Options
from .sockets import ControlSocket
from .transport import Transport

log = logging.getLogger(__name__)

Key = tuple[str, int, int]
"""Address of a rendezvous, TP rank, PP rank."""


class Engines:
    """Those of one decode worker. `lost` is called with workers and the reason, and this class's lock is free then."""

    def __init__(
        self,
        lists: Lists,
        mapped: Mapped,
        place: Place,
        options: Options,
        transport: Transport,
        socket: ControlSocket,
        lost: Callable[[Set[Rank], str], None],
    ) -> None:
        self._lists, self._mapped, self._place, self._options = lists, mapped, place, options
        self._transport, self._socket, self._on_loss = transport, socket, lost
        self._lock = threading.Lock()
        self._engines: dict[str, PrefillInfo] = {}
        self._registered: dict[Key, Rank] = {}
        self._doubtful: set[Key] = set()
        self._watched: dict[Rank, kvffi.Peer] = {}
        self._retired: dict[Rank, kvffi.Peer] = {}
        self._failures: dict[str, int] = {}
        self._nonsense = "", ""

    def ensure(self, address: str) -> bool:
        """Whether the engine behind a rendezvous is complete. Whether it fits, a request finds out: it fails if not."""
        if self.info(address) is not None:
            return True
        try:
            info = bootstrap.look_up(address)
        except MessageError as error:
            log.warning("%s", error)
            self._nonsense = address, str(error)
            return False
        if info is None:
            return False
        with self._lock:
            self._engines[address] = info
        return True

    def info(self, address: str) -> PrefillInfo | None:
        """What is known of the engine behind a rendezvous."""
        with self._lock:
            return self._engines.get(address)

    def known(self) -> dict[str, PrefillInfo]:
        """What is known of each engine, by the address of its rendezvous."""
        with self._lock:
            return dict(self._engines)

    def get(self, address: str) -> PrefillInfo:
        """What is known of the engine behind a rendezvous.

        # Errors
        `ConnectionError` if nothing is, or not any more.
        """
        info = self.info(address)
        if info is None:
            about, nonsense = self._nonsense
            problem = f": {nonsense}" if about == address else ""
            raise ConnectionError(f"the prefill engine behind {address} is not known, or was lost{problem}")
        return info

    def find(self, address: str) -> list[Rank]:
        """The workers that may hold what this one reads.

        # Errors
        `OSError` if the rendezvous cannot be reached, or its engine is not complete; `MessageError` for nonsense.
        """
        self._renew(address)
        return [self._find(address, tp, pp) for tp, pp in self._partners(self.get(address))]

    def register(self, address: str, ranks: list[Rank]) -> None:
        """Tells those of an engine's workers where this one's caches lie that do not know it.

        # Errors
        `OSError` if somebody cannot be reached, `PeerError` if the engine does not fit.
        """
        info = self.get(address)
        self._fit(info)
        for rank in ranks:
            self._register(address, rank, info)

    def watched(self, address: str, rank: Rank) -> kvffi.Peer | None:
        """A worker of ours, of which can be asked whether its process is gone.

        # Errors
        `ConnectionError` if it was lost since it was found: nothing must be asked of it any more.
        """
        with self._lock:
            if self._registered.get((address, rank.tp_rank, rank.pp_rank)) != rank:
                raise ConnectionError(f"the prefill worker at {rank.address} was lost before it was asked")
            return self._watched.get(rank)

    def declare_gone(self, endpoint: str) -> None:
        """Takes the caller's word that the process has ended that listened at ``host:port``."""
        with self._lock:
            gone = {rank for rank in self._registered.values() if rank.address == endpoint}
        self._drop(gone, f"the prefill worker at {endpoint} has ended")

    def name(self, rank: Rank) -> str:
        """This worker's name, as that one knows it."""
        return self._transport.name if rank.is_ours else self._transport.nixl_name()

    def doubt(self, address: str, rank: Rank) -> None:
        """A request failed there: it may not know this worker any more, so the next request registers again."""
        if rank.is_ours:
            with self._lock:
                self._doubtful.add((address, rank.tp_rank, rank.pp_rank))

    def heard(self, address: str, *, is_alive: bool) -> None:
        """Takes note of whether a rendezvous has answered: who does not for some times is lost."""
        failures = 0 if is_alive else self._failures.get(address, 0) + 1
        self._failures[address] = failures
        if failures >= self._options.heartbeat_failures:
            self._lose(address, f"lost the prefill engine behind {address}")
            with self._lock:
                self._engines.pop(address, None)

    def let_go(self, in_use: Collection[kvffi.Peer]) -> None:
        """Lets those go of whom nothing has to be known any more."""
        with self._lock:
            self._retired = {
                rank: peer
                for rank, peer in self._retired.items()
                if peer in in_use or not self._transport.unwatch(peer)
            }

    def _fit(self, info: PrefillInfo) -> None:
        if info.cp_size != 1:
            raise PeerError("context parallelism of prefill attention", 1, info.cp_size)
        if info.dp_size != 1:
            raise PeerError("data parallelism of a prefill engine (dp_size)", 1, info.dp_size)
        for setting, value in info.unserved:
            raise PeerError(setting, bootstrap.UNDERSTOOD[setting], value)
        if info.page_tokens is not None and info.page_tokens != self._lists.page_tokens:
            raise PeerError("page_size", self._lists.page_tokens, info.page_tokens)
        if info.dtype is not None and info.dtype != self._lists.dtype:
            raise PeerError("kv_cache_dtype", self._lists.dtype, info.dtype)
        layout = self._lists.kv_layout
        if info.kv_layout is not None and layout is not None and info.kv_layout != layout:
            raise PeerError("kv_layout", layout, info.kv_layout)

    def _partners(self, info: PrefillInfo) -> list[tuple[int, int]]:
        """TP and PP ranks that may hold what this worker reads: those whose share of the heads meets its own."""
        place = self._place
        stages = range(info.pp_size) if place.pp_size == 1 else (place.pp_rank,)
        return [(tp, pp) for pp in reversed(stages) for tp in overlap(place.tp_rank, place.tp_size, info.tp_size)]

    def _renew(self, address: str) -> None:
        # Asked anew for each request: an engine that was started again may have another shape.
        known, info = self.get(address), bootstrap.look_up(address)
        if info is None:
            raise ConnectionError(f"the prefill engine behind {address} is not complete, or not there")
        if info != known:
            self._lose(address, f"the prefill engine behind {address} was started again in another shape")
            with self._lock:
                self._engines[address] = info

    def _find(self, address: str, tp: int, pp: int) -> Rank:
        # Asked anew for each request: a prefill engine that was started again listens elsewhere.
        rank = bootstrap.find(address, tp, pp)
        with self._lock:
            known = self._registered.get((address, tp, pp))
        if known is not None and known != rank:
            self._lose(address, f"the prefill engine behind {address} was started again")
        return rank

    def _register(self, address: str, rank: Rank, info: PrefillInfo) -> None:
        key = address, rank.tp_rank, rank.pp_rank
        with self._lock:
            if self._registered.get(key) == rank and key not in self._doubtful:
                return
        where = self._lists, self._place, self.name(rank), self._options.host, self._socket.port
        if rank.is_ours:
            peer = self._transport.watch(rank.blob)
            with self._lock:
                self._watched[rank] = peer
                # It was taken for lost, and was not.
                self._retired.pop(rank, None)
            mapped = peers.describe(self._lists, self._mapped, self._transport.blob(), self._options.engine)
            said = peers.registration(*where, mapped=mapped)
        else:
            said = peers.registration(*where, metadata=self._transport.nixl_metadata())
            if info.pp_size > 1 and self._options.stages:
                said = peers.for_stage(said, self._lists, self._options.stages[rank.pp_rank])
        self._socket.send(rank.endpoint, said.frames())
        with self._lock:
            # Whoever is registered goes by being lost, and with him what was asked of him.
            if self._registered.setdefault(key, rank) != rank:
                if rank in self._watched:
                    self._retired[rank] = self._watched.pop(rank)
                raise ConnectionError(f"the prefill engine behind {address} was started again meanwhile")
            self._doubtful.discard(key)

    def _lose(self, address: str, reason: str) -> None:
        with self._lock:
            gone = {rank for key, rank in self._registered.items() if key[0] == address}
            self._failures.pop(address, None)
        self._drop(gone, reason)

    def _drop(self, gone: Set[Rank], reason: str) -> None:
        """Forgets workers. A process that does not answer may still write, so they stay watched."""
        with self._lock:
            self._doubtful = {key for key in self._doubtful if self._registered.get(key) not in gone}
            self._registered = {key: rank for key, rank in self._registered.items() if rank not in gone}
            self._retired |= {rank: peer for rank, peer in self._watched.items() if rank in gone}
            self._watched = {rank: peer for rank, peer in self._watched.items() if rank not in gone}
        self._on_loss(gone, reason)
        for rank in gone:
            self._socket.forget(rank.endpoint)


def overlap(rank: int, size: int, other: int) -> range:
    """Ranks of a group of `other` whose share of a whole meets that of `rank` of `size`."""
    return range(rank * other // size, -(-(rank + 1) * other // size))
