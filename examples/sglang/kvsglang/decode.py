"""The decode worker's manager: tells prefill workers where to write, and hears how it ended.

It moves nothing. Its pages are written by others, so what it must know is when nobody writes any more: a page of a
request that failed is held until every prefill worker that may write has said that it does not.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Set
from contextlib import suppress
from dataclasses import replace
from typing import Any

import kvffi
import numpy as np

from . import bootstrap
from .bootstrap import PrefillInfo, Rank
from .decode_room import DecodeRoom
from .engines import Engines, overlap
from .errors import MessageError, PageError, RoomTakenError, why
from .integers import integer
from .lists import Lists, Place, read
from .mapping import AUX, KV, component_keys, map_lists
from .messages import ABORT_ACK, STATUS, Abort, AbortAck, Frames, Room, Status
from .options import Options
from .requests import distinct, numbers, pages, state_lists
from .rooms import Rooms
from .sockets import ControlSocket
from .states import Poll
from .transport import Transport

CLOSING = 0.02
"""Seconds between two looks at whether a worker that closes is done."""

log = logging.getLogger(__name__)


class DecodeManager:
    """A decode worker. `args` is SGLang's KVArgs, or anything with its attributes.

    # Errors
    `IntegrationError` if the lists contradict themselves, `kvffi.Error` if they make no valid spec.
    """

    def __init__(self, args: Any, place: Place, options: Options, *, is_mla: bool = False) -> None:
        self.place, self.options = place, options
        self.lists: Lists = read(args, options, is_mla=is_mla)
        self.mapped = map_lists(self.lists, place, model=options.model)
        # What makes no valid spec is found here and not at the peer.
        spec = kvffi.Spec.from_dict(self.mapped.spec)
        self.rooms: Rooms[DecodeRoom] = Rooms(self._failed)
        self._keys = component_keys(self.lists.components)
        self._generation = 0
        self._transport = Transport(spec, options)
        self._socket = ControlSocket(options.host, self._handle, most=options.most_peers)
        self._engines = Engines(
            self.lists, self.mapped, place, options, self._transport, self._socket, self._engine_lost
        )
        self._closed = threading.Event()
        # Held while the heartbeat changes or says something, not while it waits for an answer.
        self._heart = threading.Lock()
        self._thread = threading.Thread(target=self._look, daemon=True, name="heartbeat")
        self._thread.start()
        self._socket.start()

    def try_ensure_parallel_info(self, address: str) -> bool:
        """Whether the prefill engine behind a rendezvous is complete. If it does not fit, requests fail and say why."""
        return self._engines.ensure(address)

    def engines(self) -> dict[str, PrefillInfo]:
        """The prefill engines that are known, by the address of their rendezvous."""
        return self._engines.known()

    @property
    def endpoint(self) -> str:
        """Where this worker listens: ``host:port``."""
        return f"{self.options.host}:{self._socket.port}"

    def held(self) -> dict[int, list[int]]:
        """Pages that must not be used again yet, by room: somebody may still write into them."""
        with self.rooms.lock:
            return {
                room.number: room.pages.tolist()
                for room in self.rooms.all()
                if room.state is Poll.FAILED and room.writers and room.pages is not None
            }

    def is_released(self, number: int, of: DecodeRoom | None = None) -> bool:
        """Whether nobody writes into a request's pages any more: those of a room, or of the one that has its number."""
        with self.rooms.lock:
            room = of or self.rooms.get(number)
            return room is None or not room.writers

    def writers(self) -> dict[int, list[str]]:
        """Where the prefill workers listen that may still write into held pages: ``host:port``, by room."""
        with self.rooms.lock:
            return {
                room.number: [rank.address for rank in room.asked_writers().values()]
                for room in self.rooms.all()
                if room.state is Poll.FAILED and room.writers
            }

    def declare_gone(self, endpoint: str) -> list[int]:
        """Gives up the hold on what a prefill worker wrote whose process has provably ended; the rooms it wrote into.

        `endpoint` is where that process listened, ``host:port``, as `writers` has it. A connection that broke is no
        proof: what was posted may still land. Nor is that the engine was started again: its rendezvous has the old
        address, and who listens there now is another process. Its requests that are under way fail. Of workers of ours
        on the same host the end is seen without this.
        """
        self._engines.declare_gone(endpoint)
        freed = []
        with self.rooms.lock:
            for room in self.rooms.all():
                gone = {n for n, rank in room.asked_writers().items() if rank.address == endpoint}
                # What was not ended by now was asked of another process, which has come to the same place since.
                if gone and room.state is Poll.FAILED:
                    room.writers -= gone
                    freed.append(room.number)
                    self.rooms.forget(room)
        return freed

    def close(self, patience: float | None = None) -> dict[int, list[int]]:
        """Ends every request, listens until nobody writes into their pages, and stops; what is held still, as `held`.

        It listens for `patience` seconds at most, `close_timeout` of the options if there are none. Who may write then
        may do so for ever, and nobody hears when he has stopped: the memory has to stay mapped.
        """
        if self._closed.is_set():
            return self.held()
        end = time.monotonic() + (self.options.close_timeout if patience is None else patience)
        while True:
            for number in self.rooms.numbers():
                self.rooms.abort(number, "the decode worker closes")
            self._look_after_rooms()
            if not self.held() or time.monotonic() >= end:
                break
            time.sleep(CLOSING)
        with self._heart:
            # The thread ends by itself when the answer that it waits for has come, and changes nothing any more.
            self._closed.set()
        self._socket.close()
        with suppress(kvffi.LeftUnsettled):
            self._transport.close()
        held = self.held()
        for number, writers in self.writers().items():
            log.warning("room %d: %d pages are held: %s may write", number, len(held.get(number, ())), writers)
        return held

    # What receivers ask for.

    def open(self, number: int, address: str) -> DecodeRoom:
        """Begins a request. What is asked for later names it by its room.

        # Errors
        `ValueKindError` or `ValueRangeError` for a number that is none, `RoomTakenError` if it belongs to a request
        that is not over, or whose pages are held.
        """
        number = integer("bootstrap_room", number)
        with self.rooms.lock:
            room = self.rooms.get(number)
            if room is not None:
                raise RoomTakenError(number, "a receiver" if not room.cleared else "a request whose pages are held")
            self._generation += 1
            return self.rooms.add(DecodeRoom(number, address=address, generation=self._generation))

    def connect(self, room: DecodeRoom) -> None:
        """Finds the prefill workers of a request, and registers with those that are new. If it cannot, it fails."""
        if not self._is_in(room, Poll.BOOTSTRAPPING):
            return
        try:
            ranks = self._engines.find(room.address)
            with self.rooms.lock:
                # From here on they hear if it fails.
                room.ranks = ranks
            self._engines.register(room.address, ranks)
        except Exception as error:  # noqa: BLE001
            # The engine asks for this on its scheduler's thread, which goes on whatever a peer or a rendezvous says.
            self.rooms.abort(room.number, why(error), room)
            return
        with self.rooms.lock:
            if not room.state.is_final:
                room.state = Poll.WAITING_FOR_INPUT

    def announce(self, room: DecodeRoom, kv: Any, aux: int | None, state: Any, prefix: int | None) -> None:
        """Tells the prefill workers where to write. What is wrong with the pages fails the room, on both sides."""
        if not self._is_in(room, Poll.WAITING_FOR_INPUT):
            return
        try:
            wanted = self._wanted(room, kv, aux, state, prefix)
            self._announce(room, self._engines.get(room.address), wanted)
        except Exception as error:  # noqa: BLE001
            self.rooms.abort(room.number, why(error), room)

    def _is_in(self, room: DecodeRoom, state: Poll) -> bool:
        with self.rooms.lock:
            return self.rooms.has(room) and room.state is state

    def _wanted(self, room: DecodeRoom, kv: Any, aux: int | None, state: Any, prefix: int | None) -> Room:
        """A request's destination, checked: what is the same for all prefill workers."""
        number = room.number
        tokens = self.lists.page_tokens * self.place.dcp_size
        place = f"decode_prefix_len of room {number}"
        present = integer(place, 0 if prefix is None else prefix)
        if present % tokens:
            raise PageError(place, f"{present} tokens are no whole pages of {tokens}; give what fills its pages")
        checked = pages(f"kv_indices of room {number}", kv, self.mapped.num_rows.get(KV))
        distinct(f"kv_indices of room {number}", checked)
        given = state_lists(f"state_indices of room {number}", state, self._keys)
        rows = tuple(
            numbers(f"state_indices[{i}] of room {number}", values, self.mapped, key)
            for i, (key, values) in enumerate(zip(self._keys, given, strict=True))
        )
        row = None if aux is None else integer(f"aux_index of room {number}", aux)
        if row is not None:
            pages(f"aux_index of room {number}", [row], self.mapped.num_rows.get(AUX, 0))
        return Room(
            number,
            self.options.host,
            self._socket.port,
            agent="",
            pages=checked.astype("int32"),
            aux=row,
            num_readers=0,
            state=rows,
            prefix=present,
            is_dummy=False,
            generation=room.generation,
        )

    def _announce(self, room: DecodeRoom, info: PrefillInfo, wanted: Room) -> None:
        messages, asked = [], {}
        real: set[int] = set()
        for rank in room.ranks:
            # Of an MLA model every rank has everything: SGLang's prefill must be told which one is to write, and ours
            # if tokens are dealt.
            first = overlap(self.place.tp_rank, self.place.tp_size, info.tp_size)[0]
            is_alike = self.lists.is_mla and not self.lists.is_hybrid
            number = self._number(rank, info)
            asked[number] = rank
            is_dummy = is_alike and not (rank.is_ours and self.place.dcp_size == 1) and rank.tp_rank != first
            if not is_dummy:
                real.add(number)
            readers = len(overlap(rank.tp_rank, info.tp_size, self.place.tp_size))
            theirs = replace(wanted, agent=self._engines.name(rank), num_readers=readers, is_dummy=is_dummy)
            messages.append((rank.endpoint, theirs.frames()))
        with self.rooms.lock:
            if room.state.is_final:
                return
            self._refuse_what_is_in_use(wanted)
            # With the lock held: who is lost later finds this request and fails it, with its writers watched.
            watched = {number: self._engines.watched(room.address, rank) for number, rank in asked.items()}
            # Before anything is sent: from here on somebody may write.
            room.pages, room.awaited, room.writers = wanted.pages.astype("uint32"), set(real), set(real)
            room.aux = wanted.aux
            room.asked, room.state = asked, Poll.TRANSFERRING
            room.watched = {n: peer for n, peer in watched.items() if peer is not None and n in real}
            room.wait("nothing came", self.options.waiting_timeout)
        for endpoint, frames in messages:
            with self.rooms.lock:
                if room.state is Poll.FAILED:
                    # Whoever ended it has told them all.
                    return
            self._socket.send(endpoint, frames)

    def _refuse_what_is_in_use(self, wanted: Room) -> None:
        """Finds what somebody may still write into for another request; the lock is held.

        # Errors
        `PageError` names it.
        """
        place = f"room {wanted.room}"
        asked = np.zeros(int(self.mapped.num_rows.get(KV, 0)), dtype=bool)
        asked[wanted.pages] = True
        for other in self.rooms.all():
            if not other.writers or other.pages is None:
                continue
            shared = other.pages[asked[other.pages]]
            if shared.size:
                raise PageError(place, f"page {shared[0]} is in use by room {other.number}, whose writers are not done")
            if wanted.aux is not None and wanted.aux == other.aux:
                raise PageError(
                    place, f"aux row {wanted.aux} is in use by room {other.number}, whose writers are not done"
                )

    def _number(self, rank: Rank, info: PrefillInfo) -> int:
        """A prefill worker's number, as the wire has it."""
        return rank.tp_rank * info.pp_size + rank.pp_rank

    # What the control socket brings.

    def _handle(self, frames: Frames) -> None:
        if frames[0] == STATUS:
            self._status(Status.parse(frames))
        elif frames[0] == ABORT_ACK:
            self._acknowledged(AbortAck.parse(frames))
        else:
            raise MessageError("message", f"unknown tag {frames[0][:20]!r}")

    def _status(self, status: Status) -> None:
        with self.rooms.lock:
            room = self.rooms.get(status.room)
            if room is None or not room.is_from_writer(status):
                return
            if status.drained:
                room.writers.discard(status.rank)
            if status.state == Poll.SUCCESS:
                room.awaited.discard(status.rank)
                if not room.awaited and room.state is Poll.TRANSFERRING:
                    room.state = Poll.SUCCESS
            reason = status.reason or "the prefill worker gave no reason"
            has_failed = status.state == Poll.FAILED
            fails = has_failed and self.rooms.fail(room, f"prefill worker {status.rank}: {reason}")
            rank = room.asked[status.rank]
            self.rooms.forget(room)
        if fails:
            # The other prefill workers of this request have to stop, too.
            self._failed(room)
        if has_failed:
            self._engines.doubt(room.address, rank)

    def _acknowledged(self, ack: AbortAck) -> None:
        with self.rooms.lock:
            room = self.rooms.get(ack.room)
            if room is not None and room.state is Poll.FAILED and ack.generation == room.generation:
                room.writers.discard(ack.rank)
                self.rooms.forget(room)

    def _failed(self, room: DecodeRoom) -> None:
        """Tells the prefill workers of a request that it is not wanted any more."""
        self._tell(room, room.ranks)

    def _tell(self, room: DecodeRoom, ranks: Iterable[Rank]) -> None:
        message = Abort(room.number, self.options.host, self._socket.port, room.generation, room.reason)
        for rank in ranks:
            try:
                self._socket.send(rank.endpoint, message.frames())
            except ConnectionError as error:
                log.warning("room %d: %s", room.number, error)

    # The thread that looks after prefill engines.

    def _look(self) -> None:
        while not self._closed.wait(self.options.heartbeat):
            try:
                self._look_once()
            except Exception:
                log.exception("prefill engines could not be looked after")

    def _look_once(self) -> None:
        with self._heart:
            if self._closed.is_set():
                return
            self._look_after_rooms()
            with self.rooms.lock:
                # With the lock held: whoever is asked meanwhile is not let go.
                self._engines.let_go([peer for room in self.rooms.all() for peer in room.watched.values()])
        for address in self._engines.known():
            is_alive = bootstrap.is_alive(address)
            with self._heart:
                if self._closed.is_set():
                    return
                self._engines.heard(address, is_alive=is_alive)

    def _look_after_rooms(self) -> None:
        widowed, unanswered = [], []
        with self.rooms.lock:
            for room in self.rooms.all():
                if room.state is Poll.TRANSFERRING and (lost := room.lost()) is not None:
                    self.rooms.fail(room, f"prefill worker {lost} has ended and had not written everything")
                    widowed.append(room)
                if room.state is Poll.FAILED and room.writers:
                    room.bury()
                    unanswered.append((room, room.unanswered()))
                    self.rooms.forget(room)
        for room in widowed:
            self._failed(room)
        for room, ranks in unanswered:
            self._tell(room, ranks)

    def _engine_lost(self, gone: Set[Rank], reason: str) -> None:
        """Fails the requests of workers. Their pages stay held: a process that does not answer may still write.

        Also those that have asked for nothing yet: what they asked now nobody would look after.
        """
        with self.rooms.lock:
            rooms = [room for room in self.rooms.all() if not gone.isdisjoint(room.ranks)]
            failed = [room for room in rooms if self.rooms.fail(room, reason)]
        for room in failed:
            # Who lives writes what nobody wants, until he hears of it.
            self._failed(room)
