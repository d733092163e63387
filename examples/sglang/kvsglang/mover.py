"""What moves the chunks of a prefill worker's requests: it plans, posts, looks after that, and says how it ended.

A chunk for which there is no room waits until others have settled, in the order of `turns.py`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator

import kvffi

from .errors import OneSideError, PageCountError, TooManyPagesError, TransferError
from .mapping import AUX, KV, Mapped
from .messages import AbortAck, Room, Status
from .partners import Partners
from .prefill_room import Chunk, PrefillRoom
from .requests import Move, pages, request, rows
from .rooms import Rooms
from .states import Poll
from .transport import Transport
from .turns import Turns

NAP = 0.001
"""Longest wait for the end of a transfer before new chunks are looked at, and for a chunk's event, in seconds."""

log = logging.getLogger(__name__)


class Mover:
    """A thread of its own. Nothing is sent or posted with the rooms' lock held."""

    def __init__(
        self,
        rooms: Rooms[PrefillRoom],
        partners: Partners,
        transport: Transport,
        mapped: Mapped,
        keys: list[str],
        rank: int,
        tell: Callable[[str, Status | AbortAck], None],
    ) -> None:
        self._rooms, self._partners, self._transport = rooms, partners, transport
        self._mapped, self._keys, self._rank, self._tell = mapped, keys, rank, tell
        self._answer = kvffi.Answer()
        self._turns = Turns()
        self._work = threading.Condition(rooms.lock)
        self._closed = False
        self._thread = threading.Thread(target=self._run, daemon=True, name="prefill transfers")

    def start(self) -> None:
        """Begins to move."""
        self._thread.start()

    def wake(self) -> None:
        """Says that there may be work; the lock is held."""
        self._work.notify()

    def close(self) -> None:
        """Ends every request, and waits for what was posted and may still settle."""
        with self._rooms.lock:
            for room in self._rooms.all():
                self._rooms.fail(room, "the prefill worker closes")
            self._closed = True
            self._work.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._rooms.lock:
                rooms = self._tidied()
                if self._closed and not any(room.moving and not room.is_stuck for room in rooms):
                    break
                ours = self._partners.ours()
                if not any(self._has_work(room, ours) for room in rooms):
                    self._work.wait(self._pause(rooms))
            for room in rooms:
                try:
                    self._advance(room)
                except Exception as error:  # noqa: BLE001
                    # One request's trouble is not the others'.
                    log.warning("room %d failed: %s", room.number, error)
                    with self._rooms.lock:
                        self._rooms.fail(room, f"{type(error).__name__}: {error}")
            if any(room.moving for room in rooms):
                self._transport.wait(NAP)
        for room in rooms:
            # Nobody is left to say it later.
            self._conclude(room)

    def _tidied(self) -> list[PrefillRoom]:
        for room in self._rooms.all():
            if room.owner is None:
                if late := room.overdue():
                    self._rooms.fail(room, late)
                # Decode asked, and there is no sender to clear it.
                room.cleared = room.state.is_final
            self._rooms.forget(room)
        return self._rooms.all()

    def _pause(self, rooms: list[PrefillRoom]) -> float:
        """Seconds until rooms without work are looked at. Nobody says when an event has come."""
        if any(room.is_held and room.chunks for room in rooms):
            return NAP
        # What failed and has not settled is looked at now and then.
        return 0.05 if any(room.moving for room in rooms) else 0.5

    def _has_work(self, room: PrefillRoom, ours: set[str]) -> bool:
        ready = bool(room.chunks) and not room.is_held
        moving = bool(room.moving or ready) and room.is_complete and not room.is_stuck
        finished = room.all_queued and not room.chunks and room.is_complete and not room.state.is_final
        drained = any(room.is_drained(agent) for agent, _ in room.acknowledge.values())
        return moving or finished or drained or bool(room.untold(ours))

    def _advance(self, room: PrefillRoom) -> None:
        while (chunk := self._next(room)) is not None and self._post(room, chunk):
            pass
        states = [(agent, transfer, transfer.poll()) for agent, transfer in list(room.moving)]
        with self._rooms.lock:
            for agent, transfer, state in states:
                if state in ("done", "failed"):
                    room.moving.remove((agent, transfer))
                    self._turns.ended()
                if state in ("failed", "unsettled") and not room.state.is_final:
                    self._transport.failed(agent)
                    self._rooms.fail(room, f"a write to {agent} failed: {transfer.error()}")
            room.is_stuck = bool(states) and all(state == "unsettled" for _, _, state in states)
        self._conclude(room)

    def _next(self, room: PrefillRoom) -> Chunk | None:
        with self._rooms.lock:
            if not room.chunks or not room.is_complete or room.state.is_final or not self._turns.may_post(room):
                return None
            after = room.chunks[0].after
        # The device is asked without the lock. Nobody else takes a chunk, but a request that fails drops all of them.
        room.is_held = after is not None and not after.query()
        with self._rooms.lock:
            if room.is_held or room.state.is_final:
                return None
            room.state = Poll.TRANSFERRING
            # From here on it is not drained, whoever asks.
            room.is_starting = True
            return room.chunks.popleft()

    def _post(self, room: PrefillRoom, chunk: Chunk) -> bool:
        """Posts a chunk to every decode worker of its request; false if some of it has to wait for its turn."""
        try:
            for agent, transfer in self._start(room, chunk):
                with self._rooms.lock:
                    room.begun.add(agent)
                    room.moving.append((agent, transfer))
                    if room.state.is_final:
                        transfer.cancel()
        except kvffi.WouldBlock as error:
            with self._rooms.lock:
                if not room.state.is_final:
                    room.chunks.appendleft(chunk)
                others = self._rooms.all()
                can_end = any(other.moving and not other.is_stuck for other in others)
                if not self._turns.refused(room, can_end=can_end):
                    self._rooms.fail(room, f"no room for more: {error}; that has failed and does not settle")
            return False
        finally:
            with self._rooms.lock:
                room.is_starting = False
        room.begun.clear()
        return True

    def _start(self, room: PrefillRoom, chunk: Chunk) -> Iterator[tuple[str, kvffi.Transfer]]:
        with self._rooms.lock:
            readers = [(wanted, self._partners.get(wanted.agent)) for wanted in room.wanted.values()]
        for wanted, partner in readers:
            if wanted.is_dummy or wanted.agent in room.begun:
                continue
            if partner is None or partner.pair is None or partner.mapped is None:
                # Whoever was there when the request began is not any more.
                refusal = (
                    partner.refusal if partner is not None else f"decode worker {wanted.agent} is not known any more"
                )
                raise TransferError(room.number, refusal)
            moves = self._moves(room, chunk, wanted, partner.mapped)
            answer = partner.pair.answer(request(self._mapped, partner.mapped, moves), self._answer)
            totals = answer.totals()
            if totals.num_descriptors:
                what = answer.descriptor_structs() if partner.is_alone else answer
                transfer = self._transport.start(wanted.agent, what, f"room {room.number}")
                room.num_bytes += totals.bytes
                yield wanted.agent, transfer

    def _moves(self, room: PrefillRoom, chunk: Chunk, wanted: Room, peer: Mapped) -> list[Move]:
        # Where decode deals tokens to several ranks, a page there has tokens of so many here.
        spread = peer.dcp_size // self._mapped.dcp_size
        end = chunk.first + len(chunk.kv)
        if end > len(wanted.pages) * spread:
            raise TooManyPagesError(room.number, len(wanted.pages) * spread, end)
        if chunk.is_last and -(-end // spread) != len(wanted.pages):
            raise PageCountError(room.number, end, len(wanted.pages) * spread, wanted.agent)
        there = pages(f"pages of room {room.number}", wanted.pages[chunk.first // spread : -(-end // spread)])
        moves = [Move(KV, chunk.kv, there, chunk.first, spread)]
        if not chunk.is_last:
            return moves
        for index, (key, here) in enumerate(zip(self._keys, chunk.state, strict=True)):
            if not self._both_have(key, peer):
                continue
            place = f"state_indices[{index}] of room {room.number}"
            there = rows(place, wanted.state[index] if index < len(wanted.state) else (), peer, key)
            if here is None and there.size:
                raise OneSideError(f"{place} ({key})", "decode", "prefill")
            if here is not None and here.size and not there.size:
                raise OneSideError(f"{place} ({key})", "prefill", "decode")
            moves.append(Move(key, here if here is not None else there, there))
        if self._both_have(AUX, peer):
            moves += self._aux(room, wanted, peer)
        return moves

    def _both_have(self, key: str, peer: Mapped) -> bool:
        return key in self._mapped.groups and key in peer.groups

    def _aux(self, room: PrefillRoom, wanted: Room, peer: Mapped) -> list[Move]:
        if room.aux is None or wanted.aux is None:
            if room.aux != wanted.aux:
                sides = ("prefill", "decode") if wanted.aux is None else ("decode", "prefill")
                raise OneSideError(f"aux_index of room {room.number}", *sides)
            return []
        return [Move(AUX, pages("aux", [room.aux]), pages("aux", [wanted.aux], peer.num_rows.get(AUX)))]

    def _conclude(self, room: PrefillRoom) -> None:
        with self._rooms.lock:
            if not room.state.is_final and room.is_complete and room.all_queued and not (room.chunks or room.moving):
                room.state = Poll.SUCCESS
            if not room.state.is_final:
                return
            tell = [(wanted, room.is_drained(wanted.agent)) for wanted in room.untold(self._partners.ours())]
            for wanted, drained in tell:
                room.told.add(wanted.agent)
                if not drained:
                    room.acknowledge.setdefault(f"tcp://{wanted.host}:{wanted.port}", (wanted.agent, wanted.generation))
            acknowledge = {to: kept for to, kept in room.acknowledge.items() if room.is_drained(kept[0])}
            room.acknowledge = {to: kept for to, kept in room.acknowledge.items() if to not in acknowledge}
            state, reason = room.state, room.reason
        for wanted, drained in tell:
            status = Status(room.number, state, self._rank, reason, drained, wanted.generation)
            self._tell(f"tcp://{wanted.host}:{wanted.port}", status)
        for endpoint, (_, generation) in acknowledge.items():
            self._tell(endpoint, AbortAck(room.number, self._rank, generation))
