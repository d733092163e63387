"""The prefill worker's manager: learns where decode workers want their pages, and writes there.

One thread reads the control socket, one plans, posts and looks after what was posted. A room is one request. Whoever
changes a room holds the manager's lock; nothing is sent or posted under it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import kvffi

from . import bootstrap, peers
from .errors import IntegrationError, MessageError, RoomTakenError, TooManyPagesError
from .lists import Lists, Place, read
from .mapping import KV, Mapped, component_keys, map_lists
from .messages import ABORT, GUARD, REGISTRATION, STATUS, Abort, AbortAck, Frames, Registration, Room, Status
from .options import Options
from .requests import Move, Pages, pages, request
from .room import Chunk, Peer, PrefillRoom
from .sockets import ControlSocket
from .states import Poll
from .transport import Transport

NAP = 0.001
"""Longest wait for the end of a transfer before new chunks are looked at, in seconds."""

REMEMBERED = 5.0
"""Seconds for which a room that was aborted before its other half came is remembered."""

log = logging.getLogger(__name__)


class PrefillManager:
    """A prefill worker. `args` is SGLang's KVArgs, or anything with its attributes.

    # Errors
    `IntegrationError` if the lists contradict themselves, `kvffi.Error` if they make no valid spec,
    `ConnectionError` if the rendezvous cannot be reached.
    """

    def __init__(self, args: Any, place: Place, options: Options, *, is_mla: bool = False) -> None:
        self.place, self.options = place, options
        self.lists: Lists = read(args, is_mla=is_mla, device=options.device)
        self.mapped = map_lists(self.lists, place, model=options.model)
        self._spec = kvffi.Spec.from_dict(self.mapped.spec)
        self._keys = component_keys(self.lists.components)
        self._answer = kvffi.Answer()
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._rooms: dict[int, PrefillRoom] = {}
        self._peers: dict[str, Peer] = {}
        self._ended: dict[int, tuple[str, float]] = {}
        self._closed = False
        self._transport = Transport(self._spec, options)
        self._socket = ControlSocket(options.host, self._handle)
        self._thread = threading.Thread(target=self._run, daemon=True, name="prefill transfers")
        self._thread.start()
        self._socket.start()
        if options.bootstrap:
            try:
                self._introduce()
            except BaseException:
                self.close()
                raise

    def _introduce(self) -> None:
        lists, port = self.lists, self._socket.port
        where = self.options.bootstrap, self.place, self.options.host, port
        bootstrap.register(*where, lists.page_tokens, lists.dtype, self._transport.blob())

    @property
    def endpoint(self) -> str:
        """Where this worker listens: ``host:port``."""
        return f"{self.options.host}:{self._socket.port}"

    @property
    def rank(self) -> int:
        """This worker's number among the prefill workers, as the wire has it."""
        return self.place.tp_rank * self.place.pp_size + self.place.pp_rank

    # What senders ask for.

    def open(self, number: int, owner: object) -> None:
        """Begins a request.

        # Errors
        `RoomTakenError` if the number belongs to a request that is not over.
        """
        with self._lock:
            room = self._rooms.get(number)
            if room is not None and room.owner is not None:
                holder = "a sender" if not room.cleared else "a request whose writes have not settled"
                raise RoomTakenError(number, holder)
            if room is None:
                room = self._rooms[number] = PrefillRoom(number)
            room.owner = owner
            room.since = time.monotonic()
            ended = self._ended.pop(number, None)
            if ended is not None and time.monotonic() - ended[1] < REMEMBERED and not room.wanted:
                self._fail(room, ended[0])
            self._settle_start(room)

    def announce(self, number: int, num_pages: int, aux: int | None) -> None:
        """Says how many pages will be sent in all, and the request's auxiliary row."""
        with self._lock:
            room = self._rooms[number]
            if aux is not None and "aux" in self.mapped.num_rows:
                try:
                    pages(f"aux_index of room {number}", [aux], self.mapped.num_rows["aux"])
                except IntegrationError as error:
                    self._fail(room, str(error))
            room.num_pages, room.aux = num_pages, aux

    def send(self, number: int, kv: Any, state: Any) -> None:
        """Queues pages. What is wrong with them fails the room, on both sides."""
        with self._lock:
            room = self._rooms.get(number)
            if room is None or room.state.is_final:
                return
            try:
                self._queue(room, kv, state)
            except IntegrationError as error:
                self._fail(room, str(error))
            self._work.notify()

    def poll(self, number: int) -> Poll:
        """State of a room."""
        with self._lock:
            room = self._rooms.get(number)
            if room is None:
                return Poll.FAILED
            waited = time.monotonic() - room.since
            if room.state is Poll.BOOTSTRAPPING and waited > self.options.bootstrap_timeout:
                self._fail(room, f"no decode worker said where its pages are in {waited:.1f} s")
            return room.state

    def reason(self, number: int) -> str:
        """Why a room failed; empty if it did not."""
        with self._lock:
            room = self._rooms.get(number)
            return room.reason if room else "the request was cleared"

    def prefix(self, number: int) -> int:
        """Tokens of a request that decode has already."""
        with self._lock:
            room = self._rooms.get(number)
            return room.prefix if room else 0

    def num_bytes(self, number: int) -> int:
        """Bytes of a request that were handed to the transport."""
        with self._lock:
            room = self._rooms.get(number)
            return room.num_bytes if room else 0

    def abort(self, number: int, reason: str) -> None:
        """Ends a request. What was posted is waited for; nothing more is."""
        with self._lock:
            room = self._rooms.get(number)
            if room is not None and not room.state.is_final:
                self._fail(room, reason)

    def is_drained(self, number: int) -> bool:
        """Whether a request's pages may be used again here: nothing reads them any more."""
        with self._lock:
            room = self._rooms.get(number)
            return room is None or room.is_drained()

    def clear(self, number: int) -> None:
        """Forgets a request: at once, or when its writes have settled. One that is under way is aborted."""
        with self._lock:
            room = self._rooms.get(number)
            if room is None:
                return
            if not room.state.is_final:
                self._fail(room, "the sender was cleared while bytes moved")
            room.cleared = True
            self._work.notify()

    def declare_gone(self, endpoint: str) -> list[int]:
        """Settles the writes to a decode worker whose process has provably ended; the rooms that had some.

        `endpoint` is its ``host:port``. A connection that broke is no proof: what was posted may still land.
        """
        with self._lock:
            gone = {agent for agent, peer in self._peers.items() if peer.endpoint == f"tcp://{endpoint}"}
            rooms = [room for room in self._rooms.values() if gone & set(room.wanted)]
            for agent in gone:
                self._transport.declare_gone(agent)
            for room in rooms:
                room.told |= gone & set(room.wanted)
                room.acknowledge = {to: kept for to, kept in room.acknowledge.items() if kept[0] not in gone}
            for agent in gone:
                del self._peers[agent]
            self._work.notify()
            return [room.number for room in rooms]

    def close(self) -> None:
        """Ends every request, waits for what was posted, and takes the memory out of NIXL's hands.

        Writes that have failed and not settled are not waited for: the memory stays registered, and has to stay mapped.
        """
        with self._lock:
            for room in self._rooms.values():
                if not room.state.is_final:
                    self._fail(room, "the prefill worker closes")
            self._closed = True
            self._work.notify()
        self._thread.join()
        self._socket.close()
        with suppress(kvffi.LeftUnsettled):
            self._transport.close()

    # What the control socket brings.

    def _handle(self, frames: Frames) -> None:
        if frames[0] == GUARD and len(frames) > 1 and frames[1] == REGISTRATION:
            self._register(Registration.parse(frames))
        elif frames[0] == GUARD:
            self._want(Room.parse(frames))
        elif frames[0] == ABORT:
            self._abort(Abort.parse(frames))
        elif frames[0] != STATUS:
            raise MessageError("message", f"unknown tag {frames[0][:20]!r}")

    def _register(self, said: Registration) -> None:
        endpoint = f"tcp://{said.host}:{said.port}"
        peer = Peer(said.agent, endpoint, said.mapped is not None)
        try:
            mapped = peers.destination(
                said,
                self.lists,
                self.mapped,
                self.place,
                total_layers=self.options.total_layers,
                device=self.options.device,
            )
            ours = kvffi.Spec.from_dict(self.mapped.without(mapped.elided)) if mapped.elided else self._spec
            theirs = kvffi.Spec.from_dict(mapped.spec)
            pair = kvffi.Pair(ours, theirs, op="write")
            if said.agent not in self._peers:
                self._transport.connect(said, theirs)
            peer = Peer(said.agent, endpoint, said.mapped is not None, mapped, pair)
        except Exception as error:  # noqa: BLE001
            # Whatever it is, it is this peer's: its rooms fail with the reason, and the thread lives on.
            peer = Peer(said.agent, endpoint, said.mapped is not None, refusal=f"{type(error).__name__}: {error}")
        with self._lock:
            self._peers[said.agent] = peer

    def _want(self, wanted: Room) -> None:
        with self._lock:
            peer = self._peers.get(wanted.agent)
            room = self._rooms.get(wanted.room)
            ended = self._ended.get(wanted.room)
            if room is None and ended is not None and time.monotonic() - ended[1] < REMEMBERED:
                room = PrefillRoom(wanted.room, Poll.FAILED, ended[0], cleared=True)
                self._rooms[wanted.room] = room
            elif room is None:
                room = self._rooms[wanted.room] = PrefillRoom(wanted.room)
            others = [other.num_readers for other in room.wanted.values()]
            if not room.is_complete and all(number == wanted.num_readers for number in others):
                room.wanted[wanted.agent] = wanted
                if peer is None:
                    self._fail(room, f"decode worker {wanted.agent} asked for pages before it registered")
                elif peer.refusal:
                    self._fail(room, peer.refusal)
                else:
                    self._check(room, wanted, peer)
                self._settle_start(room)
                self._work.notify()
                return
        reason = f"room {wanted.room} is taken by another request; choose another number"
        status = Status(wanted.room, Poll.FAILED, self.rank, reason, generation=wanted.generation)
        self._tell(f"tcp://{wanted.host}:{wanted.port}", status)

    def _check(self, room: PrefillRoom, wanted: Room, peer: Peer) -> None:
        if wanted.is_dummy or peer.mapped is None:
            return
        try:
            pages(f"pages of room {room.number} at the decode worker", wanted.pages, peer.mapped.num_rows.get(KV, 0))
        except IntegrationError as error:
            self._fail(room, str(error))

    def _abort(self, abort: Abort) -> None:
        with self._lock:
            room = self._rooms.get(abort.room)
            reason = abort.reason or "aborted by the decode worker"
            if room is None:
                self._remember(abort.room, reason)
                drained = True
            else:
                # Somebody whose request was refused for its number has no say over the one that has it.
                members = {(wanted.host, wanted.port): agent for agent, wanted in room.wanted.items()}
                agent = members.get((abort.host, abort.port))
                if not room.state.is_final and (agent is not None or not room.is_complete):
                    self._fail(room, reason)
                drained = agent is None or room.is_drained(agent)
                if not drained and agent is not None and abort.generation is not None:
                    room.acknowledge[f"tcp://{abort.host}:{abort.port}"] = agent, abort.generation
        if drained and abort.generation is not None:
            self._tell(f"tcp://{abort.host}:{abort.port}", AbortAck(abort.room, self.rank, abort.generation))

    # Rooms; the lock is held.

    def _queue(self, room: PrefillRoom, kv: Any, state: Any) -> None:
        given = pages(f"kv_indices of room {room.number}", kv, self.mapped.num_rows.get(KV))
        first = room.cursor
        room.cursor += len(given)
        if room.num_pages is None or room.cursor > room.num_pages or room.all_queued:
            raise TooManyPagesError(room.number, room.num_pages or 0, room.cursor)
        is_last = room.cursor == room.num_pages
        rows: tuple[Pages | None, ...] = ()
        if is_last:
            rows = tuple(
                None if values is None else pages(f"state_indices[{i}]", values, self.mapped.num_rows.get(key))
                for i, (key, values) in enumerate(zip(self._keys, state or (), strict=False))
            )
        room.all_queued = is_last
        room.chunks.append(Chunk(first, given, is_last, rows))

    def _settle_start(self, room: PrefillRoom) -> None:
        if room.state is Poll.BOOTSTRAPPING and room.owner is not None and room.is_complete:
            room.state = Poll.WAITING_FOR_INPUT

    def _fail(self, room: PrefillRoom, reason: str) -> None:
        if room.state.is_final:
            return
        room.state, room.reason = Poll.FAILED, reason
        room.chunks.clear()
        for _, transfer in room.moving:
            transfer.cancel()
        self._work.notify()

    def _remember(self, number: int, reason: str) -> None:
        now = time.monotonic()
        self._ended = {room: kept for room, kept in self._ended.items() if now - kept[1] < REMEMBERED}
        self._ended[number] = (reason, now)

    # The thread that moves.

    def _run(self) -> None:
        while True:
            with self._lock:
                for room in [room for room in self._rooms.values() if room.is_over]:
                    del self._rooms[room.number]
                    if room.state is Poll.FAILED and not room.wanted:
                        # Its other half may still come, and is to hear of it.
                        self._remember(room.number, room.reason)
                rooms = list(self._rooms.values())
                if self._closed and not any(room.moving and not room.is_stuck for room in rooms):
                    return
                if not any(self._has_work(room) for room in rooms):
                    # What failed and has not settled is looked at now and then.
                    self._work.wait(0.05 if any(room.moving for room in rooms) else 0.5)
            for room in rooms:
                try:
                    self._advance(room)
                except Exception as error:  # noqa: BLE001
                    # One request's trouble is not the others'.
                    log.warning("room %d failed: %s", room.number, error)
                    with self._lock:
                        self._fail(room, f"{type(error).__name__}: {error}")
            if any(room.moving for room in rooms):
                self._transport.wait(NAP)

    def _has_work(self, room: PrefillRoom) -> bool:
        moving = bool(room.moving or room.chunks) and room.is_complete and not room.is_stuck
        finished = room.all_queued and room.is_complete and not room.state.is_final
        drained = any(room.is_drained(agent) for agent, _ in room.acknowledge.values())
        return moving or finished or drained or bool(room.untold(self._peers))

    def _advance(self, room: PrefillRoom) -> None:
        while (chunk := self._next(room)) is not None:
            try:
                for agent, transfer in self._start(room, chunk):
                    with self._lock:
                        room.moving.append((agent, transfer))
                        if room.state.is_final:
                            transfer.cancel()
            finally:
                with self._lock:
                    room.is_starting = False
        states = [(agent, transfer, transfer.poll()) for agent, transfer in list(room.moving)]
        with self._lock:
            for agent, transfer, state in states:
                if state in ("done", "failed"):
                    room.moving.remove((agent, transfer))
                if state in ("failed", "unsettled") and not room.state.is_final:
                    self._transport.failed(agent)
                    self._fail(room, f"a write to {agent} failed: {transfer.error()}")
            room.is_stuck = bool(states) and all(state == "unsettled" for _, _, state in states)
        self._conclude(room)

    def _next(self, room: PrefillRoom) -> Chunk | None:
        with self._lock:
            if not room.chunks or not room.is_complete or room.state.is_final:
                return None
            room.state = Poll.TRANSFERRING
            # From here on it is not drained, whoever asks.
            room.is_starting = True
            return room.chunks.popleft()

    def _start(self, room: PrefillRoom, chunk: Chunk) -> Iterator[tuple[str, kvffi.Transfer]]:
        for wanted in room.wanted.values():
            peer = self._peers[wanted.agent]
            if wanted.is_dummy or peer.pair is None or peer.mapped is None:
                continue
            moves = self._moves(room, chunk, wanted, peer.mapped)
            answer = peer.pair.answer(request(self.mapped, peer.mapped, moves), self._answer)
            totals = answer.totals()
            if totals.num_descriptors:
                room.num_bytes += totals.bytes
                yield wanted.agent, self._transport.start(wanted.agent, answer, f"room {room.number}")

    def _moves(self, room: PrefillRoom, chunk: Chunk, wanted: Room, peer: Mapped) -> list[Move]:
        end = chunk.first + len(chunk.kv)
        if end > len(wanted.pages):
            raise TooManyPagesError(room.number, len(wanted.pages), end)
        place = f"pages of room {room.number}"
        moves = [Move(KV, chunk.kv, pages(place, wanted.pages[chunk.first : end]), chunk.first)]
        for index, rows in enumerate(chunk.state):
            if rows is not None:
                theirs = wanted.state[index] if index < len(wanted.state) else ()
                key = self._keys[index]
                there = pages(f"state_indices[{index}] of room {room.number}", theirs, peer.num_rows.get(key))
                moves.append(Move(key, rows, there))
        if chunk.is_last and room.aux is not None and wanted.aux is not None:
            moves.append(Move("aux", pages("aux", [room.aux]), pages("aux", [wanted.aux], peer.num_rows.get("aux"))))
        return moves

    def _conclude(self, room: PrefillRoom) -> None:
        with self._lock:
            if not room.state.is_final:
                done = room.all_queued and not (room.chunks or room.moving)
                if done and room.is_complete:
                    room.state = Poll.SUCCESS
            if not room.state.is_final:
                return
            tell = [(wanted, room.is_drained(wanted.agent)) for wanted in room.untold(self._peers)]
            for wanted, drained in tell:
                room.told.add(wanted.agent)
                if not drained:
                    room.acknowledge.setdefault(f"tcp://{wanted.host}:{wanted.port}", (wanted.agent, wanted.generation))
            acknowledge = {to: kept for to, kept in room.acknowledge.items() if room.is_drained(kept[0])}
            room.acknowledge = {to: kept for to, kept in room.acknowledge.items() if to not in acknowledge}
            state, reason = room.state, room.reason
        for wanted, drained in tell:
            status = Status(room.number, state, self.rank, reason, drained, wanted.generation)
            self._tell(f"tcp://{wanted.host}:{wanted.port}", status)
        for endpoint, (_, generation) in acknowledge.items():
            self._tell(endpoint, AbortAck(room.number, self.rank, generation))

    def _tell(self, endpoint: str, message: Status | AbortAck) -> None:
        try:
            self._socket.send(endpoint, message.frames())
        except ConnectionError as error:
            log.warning("room %d: %s", message.room, error)
