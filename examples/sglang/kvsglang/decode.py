"""The decode worker's manager: tells prefill workers where to write, and hears how it ended.

It moves nothing. Its pages are written by others, so what it must know is when nobody writes any more: a page of a
request that failed is held until every prefill worker that may write has said that it does not.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import kvffi

from . import bootstrap, peers
from .bootstrap import PrefillInfo, Rank
from .errors import IntegrationError, MessageError, PeerError, RoomTakenError
from .lists import Lists, Place, read
from .mapping import KV, component_keys, map_lists
from .messages import ABORT_ACK, STATUS, Abort, AbortAck, Frames, Room, Status
from .options import Options
from .requests import Pages, pages
from .sockets import ControlSocket
from .states import Poll
from .transport import Transport

SETTLED = 2.0
"""Seconds after the end of a writer's process for which what it had sent may still arrive."""

log = logging.getLogger(__name__)


@dataclass
class DecodeRoom:
    """One request on a decode worker."""

    number: int
    address: str
    state: Poll = Poll.BOOTSTRAPPING
    reason: str = ""
    ranks: list[Rank] = field(default_factory=list)
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
    generation: int = 0
    """Tells it from an earlier one under its number."""
    cleared: bool = False
    since: float | None = None


class DecodeManager:
    """A decode worker. `args` is SGLang's KVArgs, or anything with its attributes.

    # Errors
    `IntegrationError` if the lists contradict themselves, `kvffi.Error` if they make no valid spec.
    """

    def __init__(self, args: Any, place: Place, options: Options, *, is_mla: bool = False) -> None:
        self.place, self.options = place, options
        self.lists: Lists = read(args, is_mla=is_mla, device=options.device)
        self.mapped = map_lists(self.lists, place, model=options.model)
        # What makes no valid spec is found here and not at the peer.
        spec = kvffi.Spec.from_dict(self.mapped.spec)
        self._keys = component_keys(self.lists.components)
        self._lock = threading.Lock()
        self._rooms: dict[int, DecodeRoom] = {}
        self._engines: dict[str, PrefillInfo] = {}
        self._registered: dict[tuple[str, int, int], Rank] = {}
        self._watched: dict[Rank, kvffi.Peer] = {}
        self._failures: dict[str, int] = {}
        self._generation = 0
        self._transport = Transport(spec, options)
        self._socket = ControlSocket(options.host, self._handle)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True, name="heartbeat")
        self._thread.start()
        self._socket.start()

    def try_ensure_parallel_info(self, address: str) -> bool:
        """Whether the prefill engine behind a rendezvous is complete and fits.

        # Errors
        `PeerError` if it has another page size or dtype.
        """
        if address in self._engines:
            return True
        info = bootstrap.look_up(address)
        if info is None:
            return False
        with self._lock:
            self._engines[address] = info
        self._fit(info)
        return True

    @property
    def endpoint(self) -> str:
        """Where this worker listens: ``host:port``."""
        return f"{self.options.host}:{self._socket.port}"

    def held(self) -> dict[int, list[int]]:
        """Pages that must not be used again yet, by room: somebody may still write into them."""
        with self._lock:
            return {
                room.number: room.pages.tolist()
                for room in self._rooms.values()
                if room.state is Poll.FAILED and room.writers and room.pages is not None
            }

    def is_released(self, number: int) -> bool:
        """Whether nobody writes into a request's pages any more."""
        with self._lock:
            room = self._rooms.get(number)
            return room is None or not room.writers

    def release_lost(self, address: str) -> list[int]:
        """Gives up the hold on pages of a prefill engine whose processes have provably ended; its rooms.

        A connection that broke is no proof: what was posted may still land. Of workers of ours on the same host the end
        is seen without this.
        """
        with self._lock:
            rooms = [room for room in self._rooms.values() if room.address == address and room.state is Poll.FAILED]
            for room in rooms:
                room.writers.clear()
                self._forget(room)
            return [room.number for room in rooms]

    # What receivers ask for.

    def open(self, number: int, address: str) -> None:
        """Begins a request.

        # Errors
        `RoomTakenError` if the number belongs to a request that is not over, or whose pages are held.
        """
        with self._lock:
            room = self._rooms.get(number)
            if room is not None:
                raise RoomTakenError(number, "a receiver" if not room.cleared else "a request whose pages are held")
            self._generation += 1
            self._rooms[number] = DecodeRoom(number, address, generation=self._generation)

    def connect(self, number: int) -> None:
        """Finds the prefill workers of a request, and registers with those that are new."""
        room = self._rooms[number]
        if room.state.is_final:
            return
        info = self._engines.get(room.address)
        if info is None:
            self._fail(room, f"the prefill engine behind {room.address} is not known, or was lost")
            return
        try:
            room.ranks = [self._rank(room.address, tp, pp) for tp, pp in self._partners(info)]
            self._fit(info)
            for rank in room.ranks:
                self._register(room.address, rank, info)
        except (OSError, IntegrationError) as error:
            self._fail(room, str(error))
            self._abort(room, str(error))
            return
        with self._lock:
            if not room.state.is_final:
                room.state = Poll.WAITING_FOR_INPUT

    def announce(self, number: int, kv: Any, aux: int | None, state: Any, prefix: int | None) -> None:
        """Tells the prefill workers where to write. What is wrong with the pages fails the room, on both sides."""
        room = self._rooms[number]
        if room.state is not Poll.WAITING_FOR_INPUT:
            return
        info = self._engines.get(room.address)
        try:
            if info is None:
                raise ConnectionError(f"the prefill engine behind {room.address} was lost")
            checked = pages(f"kv_indices of room {number}", kv, self.mapped.num_rows.get(KV))
            rows = tuple(
                tuple(pages(f"state_indices[{i}] of room {number}", values, self.mapped.num_rows.get(key)).tolist())
                for i, (key, values) in enumerate(zip(self._keys, state or (), strict=False))
            )
            if aux is not None:
                pages(f"aux_index of room {number}", [aux], self.mapped.num_rows.get("aux", 0))
            self._announce(room, info, checked, aux, rows, prefix or 0)
        except (OSError, IntegrationError) as error:
            self._fail(room, str(error))
            self._abort(room, str(error))

    def poll(self, number: int) -> Poll:
        """State of a room."""
        room = self._rooms.get(number)
        if room is None:
            return Poll.FAILED
        waited = 0.0 if room.since is None else time.monotonic() - room.since
        if not room.state.is_final and waited > self.options.waiting_timeout:
            self.abort(number, f"nothing came in {waited:.1f} s")
        return room.state

    def reason(self, number: int) -> str:
        """Why a room failed; empty if it did not."""
        room = self._rooms.get(number)
        return room.reason if room else "the request was cleared"

    def abort(self, number: int, reason: str) -> None:
        """Ends a request and tells the prefill workers. Its pages are held until they have answered."""
        room = self._rooms.get(number)
        if room is not None and not room.state.is_final:
            self._fail(room, reason)
            self._abort(room, reason)

    def clear(self, number: int) -> None:
        """Forgets a request: at once, or when its pages are released. One that is under way is aborted."""
        room = self._rooms.get(number)
        if room is None:
            return
        if not room.state.is_final:
            self.abort(number, "the receiver was cleared while bytes moved")
        with self._lock:
            room.cleared = True
            self._forget(room)

    def close(self) -> None:
        """Ends every request. The caller keeps the memory until `held` is empty."""
        for number in list(self._rooms):
            self.abort(number, "the decode worker closes")
        self._closed.set()
        self._thread.join()
        self._socket.close()
        with suppress(kvffi.LeftUnsettled):
            self._transport.close()

    # Prefill workers.

    def _fit(self, info: PrefillInfo) -> None:
        if info.page_tokens is not None and info.page_tokens != self.lists.page_tokens:
            raise PeerError("page_size", self.lists.page_tokens, info.page_tokens)
        if info.dtype is not None and info.dtype != self.lists.dtype:
            raise PeerError("kv_cache_dtype", self.lists.dtype, info.dtype)

    def _partners(self, info: PrefillInfo) -> list[tuple[int, int]]:
        """TP and PP ranks that may hold what this worker reads: those whose share of the heads meets its own."""
        stages = range(info.pp_size) if self.place.pp_size == 1 else (self.place.pp_rank,)
        return [
            (tp, pp) for pp in reversed(stages) for tp in overlap(self.place.tp_rank, self.place.tp_size, info.tp_size)
        ]

    def _rank(self, address: str, tp: int, pp: int) -> Rank:
        # Asked anew for each request: a prefill engine that was started again listens elsewhere.
        rank = bootstrap.find(address, tp, pp)
        known = self._registered.get((address, tp, pp))
        if known is not None and known != rank:
            self._lost(address, f"the prefill engine behind {address} was started again", keep=True)
        return rank

    def _register(self, address: str, rank: Rank, info: PrefillInfo) -> None:
        key = address, rank.tp_rank, rank.pp_rank
        if self._registered.get(key) == rank:
            return
        where = self.lists, self.place, self._name(rank), self.options.host, self._socket.port
        if rank.is_ours:
            self._watched[rank] = self._transport.watch(rank.blob)
            mapped = peers.describe(self.lists, self.mapped, self._transport.blob())
            said = peers.registration(*where, mapped=mapped)
        else:
            said = peers.registration(*where, metadata=self._transport.nixl_metadata())
            if info.pp_size > 1 and self.options.stages:
                said = peers.for_stage(said, self.lists, self.options.stages[rank.pp_rank])
        self._socket.send(rank.endpoint, said.frames())
        self._registered[key] = rank

    def _name(self, rank: Rank) -> str:
        return self._transport.name if rank.is_ours else self._transport.nixl_name()

    def _announce(
        self,
        room: DecodeRoom,
        info: PrefillInfo,
        checked: Pages,
        aux: int | None,
        rows: tuple[tuple[int, ...], ...],
        prefix: int,
    ) -> None:
        messages = []
        real: set[int] = set()
        for rank in room.ranks:
            # Of an MLA model every rank has everything: SGLang's prefill must be told which one is to write.
            first = overlap(self.place.tp_rank, self.place.tp_size, info.tp_size)[0]
            is_alike = self.lists.is_mla and not self.lists.is_hybrid
            is_dummy = is_alike and not rank.is_ours and rank.tp_rank != first
            if not is_dummy:
                number = rank.tp_rank * info.pp_size + rank.pp_rank
                real.add(number)
                if rank in self._watched:
                    room.watched[number] = self._watched[rank]
            num_readers = len(overlap(rank.tp_rank, info.tp_size, self.place.tp_size))
            wanted = Room(
                room.number,
                self.options.host,
                self._socket.port,
                self._name(rank),
                checked.astype("int32"),
                aux,
                num_readers,
                rows,
                prefix,
                is_dummy,
                room.generation,
            )
            messages.append((rank.endpoint, wanted.frames()))
        with self._lock:
            if room.state.is_final:
                return
            # Before anything is sent: from here on somebody may write.
            room.pages, room.awaited, room.writers = checked, set(real), set(real)
            room.since, room.state = time.monotonic(), Poll.TRANSFERRING
        for endpoint, frames in messages:
            self._socket.send(endpoint, frames)

    # What the control socket brings.

    def _handle(self, frames: Frames) -> None:
        if frames[0] == STATUS:
            self._status(Status.parse(frames))
        elif frames[0] == ABORT_ACK:
            self._acknowledged(AbortAck.parse(frames))
        else:
            raise MessageError("message", f"unknown tag {frames[0][:20]!r}")

    def _status(self, status: Status) -> None:
        with self._lock:
            room = self._rooms.get(status.room)
            if room is None or status.generation not in (0, room.generation):
                return
            if status.drained:
                room.writers.discard(status.rank)
            if status.state == Poll.SUCCESS:
                room.awaited.discard(status.rank)
                if not room.awaited and room.state is Poll.TRANSFERRING:
                    room.state = Poll.SUCCESS
            failed = status.state == Poll.FAILED and not room.state.is_final
            self._forget(room)
        if failed:
            reason = status.reason or "the prefill worker gave no reason"
            self._fail(room, f"prefill worker {status.rank}: {reason}")
            # The other prefill workers of this request have to stop, too.
            self._abort(room, reason)

    def _acknowledged(self, ack: AbortAck) -> None:
        with self._lock:
            room = self._rooms.get(ack.room)
            if room is not None and ack.generation == room.generation:
                room.writers.discard(ack.rank)
                self._forget(room)

    def _fail(self, room: DecodeRoom, reason: str) -> None:
        with self._lock:
            if not room.state.is_final:
                room.state, room.reason = Poll.FAILED, reason

    def _abort(self, room: DecodeRoom, reason: str) -> None:
        message = Abort(room.number, self.options.host, self._socket.port, room.generation, reason)
        for rank in room.ranks:
            try:
                self._socket.send(rank.endpoint, message.frames())
            except ConnectionError as error:
                log.warning("room %d: %s", room.number, error)

    def _forget(self, room: DecodeRoom) -> None:
        if room.cleared and not room.writers and self._rooms.get(room.number) is room:
            del self._rooms[room.number]

    # The thread that looks after prefill engines.

    def _look(self) -> None:
        while not self._closed.wait(self.options.heartbeat):
            with self._lock:
                for room in list(self._rooms.values()):
                    if room.state is Poll.FAILED and room.writers:
                        self._bury(room)
            for address in list(self._engines):
                self._failures[address] = 0 if bootstrap.is_alive(address) else self._failures.get(address, 0) + 1
                if self._failures[address] >= self.options.heartbeat_failures:
                    self._lost(address, f"lost the prefill engine behind {address}")

    def _bury(self, room: DecodeRoom) -> None:
        """Takes those from the writers that have ended, some time after they have."""
        now = time.monotonic()
        for number in list(room.writers):
            peer = room.watched.get(number)
            if peer is not None and peer.info().is_gone and now - room.gone.setdefault(number, now) > SETTLED:
                room.writers.discard(number)
        self._forget(room)

    def _lost(self, address: str, reason: str, *, keep: bool = False) -> None:
        """Fails the rooms of an engine. Their pages stay held: a process that does not answer may still write."""
        with self._lock:
            if not keep:
                self._engines.pop(address, None)
            gone = [rank for key, rank in self._registered.items() if key[0] == address]
            self._registered = {key: rank for key, rank in self._registered.items() if key[0] != address}
            self._watched = {rank: peer for rank, peer in self._watched.items() if rank not in gone}
            self._failures.pop(address, None)
            for room in self._rooms.values():
                if room.address == address and room.pages is not None and not room.state.is_final:
                    room.state, room.reason = Poll.FAILED, reason
        for rank in gone:
            self._socket.forget(rank.endpoint)


def overlap(rank: int, size: int, other: int) -> range:
    """Ranks of a group of `other` whose share of a whole meets that of `rank` of `size`."""
    return range(rank * other // size, -(-(rank + 1) * other // size))
