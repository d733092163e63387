"""The prefill worker's manager: learns from senders what is to go, and from decode workers where it goes.

One thread reads the control socket, another moves. A room is one request.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection
from contextlib import suppress
from typing import Any

import kvffi

from . import bootstrap
from .ended import Ended
from .errors import IntegrationError, MessageError, ReadersError, RoomTakenError, TooManyPagesError, why
from .heard import Heard
from .integers import integer
from .lists import Lists, Place, read
from .mapping import AUX, KV, component_keys, map_lists
from .messages import ABORT, GUARD, REGISTRATION, STATUS, Abort, AbortAck, Frames, Registration, Room, Status
from .mover import Mover
from .options import Options
from .partners import Partner, Partners
from .prefill_room import Asked, Chunk, Event, PrefillRoom
from .requests import Pages, distinct, pages, state_lists
from .requests import rows as state_rows
from .rooms import Rooms
from .sockets import ControlSocket
from .states import Poll
from .transport import Transport

log = logging.getLogger(__name__)


class PrefillManager:
    """A prefill worker. `args` is SGLang's KVArgs, or anything with its attributes.

    # Errors
    `IntegrationError` if the lists contradict themselves, `kvffi.Error` if they make no valid spec,
    `ConnectionError` if the rendezvous cannot be reached.
    """

    def __init__(self, args: Any, place: Place, options: Options, *, is_mla: bool = False) -> None:
        self.place, self.options = place, options
        self.lists: Lists = read(args, options, is_mla=is_mla)
        self.mapped = map_lists(self.lists, place, model=options.model)
        self._ended = Ended(options.bootstrap_timeout)
        self.rooms: Rooms[PrefillRoom] = Rooms(self._failed, self._ended.forgotten)
        self._heard = Heard()
        self._keys = component_keys(self.lists.components)
        self._transport = Transport(kvffi.Spec.from_dict(self.mapped.spec), options)
        self._partners = Partners(self.lists, self.mapped, place, options, self._transport, self.rooms.lock)
        self._mover = Mover(self.rooms, self._partners, self._transport, self.mapped, self._keys, self.rank, self._tell)
        self._socket = ControlSocket(options.host, self._handle, self._look, most=options.most_peers)
        self._mover.start()
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
        bootstrap.register(*where, lists.page_tokens, lists.dtype, self._transport.blob(), lists.kv_layout)

    @property
    def endpoint(self) -> str:
        """Where this worker listens: ``host:port``."""
        return f"{self.options.host}:{self._socket.port}"

    @property
    def rank(self) -> int:
        """This worker's number among the prefill workers, as the wire has it."""
        return self.place.tp_rank * self.place.pp_size + self.place.pp_rank

    def peers(self) -> list[str]:
        """Agents of the decode workers that are known."""
        return self._partners.agents()

    def declare_gone(self, endpoint: str) -> list[int]:
        """Settles the writes to a decode worker whose process has provably ended; the rooms that had some.

        `endpoint` is its ``host:port``. A connection that broke is no proof: what was posted may still land.
        """
        with self.rooms.lock:
            gone = self._partners.declare_gone(endpoint)
            rooms = [room for room in self.rooms.all() if gone & set(room.wanted)]
            for room in rooms:
                room.told |= gone & set(room.wanted)
                room.acknowledge = {to: kept for to, kept in room.acknowledge.items() if kept[0] not in gone}
            self._mover.wake()
            return [room.number for room in rooms]

    def close(self) -> None:
        """Ends every request, waits for what was posted, and takes the memory out of NIXL's hands.

        Writes that have failed and not settled are not waited for: the memory stays registered, and has to stay mapped.
        """
        self._mover.close()
        self._socket.close()
        with suppress(kvffi.LeftUnsettled):
            self._transport.close()

    # What senders ask for.

    def open(self, number: int, owner: object) -> PrefillRoom:
        """Begins a request. What is asked for later names it by its room.

        # Errors
        `ValueKindError` or `ValueRangeError` for a number that is none, `RoomTakenError` if it belongs to a request
        that is not over.
        """
        number = integer("bootstrap_room", number)
        with self.rooms.lock:
            room = self.rooms.get(number)
            if room is not None and room.owner is not None:
                holder = "a sender" if not room.cleared else "a request whose writes have not settled"
                raise RoomTakenError(number, holder)
            room = room or self.rooms.add(PrefillRoom(number))
            # One that a decode worker asked for waits for its sender, also to tell it that it failed.
            room.owner, room.cleared = owner, False
            room.wait("no decode worker said where its pages are", self.options.bootstrap_timeout)
            if ended := self._ended.for_sender(number):
                self.rooms.fail(room, ended)
            self._settle_start(room)
            return room

    def announce(self, room: PrefillRoom, num_pages: int, aux: int | None) -> None:
        """Says how many pages will be sent in all, and the request's auxiliary row."""
        with self.rooms.lock:
            if not self.rooms.has(room):
                return
            try:
                room.num_pages = integer(f"num_kv_indices of room {room.number}", num_pages)
                room.aux = None if aux is None else integer(f"aux_index of room {room.number}", aux)
                if room.aux is not None and AUX in self.mapped.num_rows:
                    pages(f"aux_index of room {room.number}", [room.aux], self.mapped.num_rows[AUX])
            except Exception as error:  # noqa: BLE001
                # Whatever the engine gave, its scheduler goes on.
                self._fail(room, why(error))

    def send(self, room: PrefillRoom, kv: Any, state: Any, after: Event | None = None) -> None:
        """Queues pages, to be read after an event. What is wrong with them fails the room, on both sides."""
        with self.rooms.lock:
            if not self.rooms.has(room) or room.state.is_final:
                return
            try:
                self._queue(room, kv, state, after)
            except Exception as error:  # noqa: BLE001
                # Whatever the engine gave, its scheduler goes on.
                self._fail(room, why(error))
            self._mover.wake()

    def prefix(self, room: PrefillRoom) -> int:
        """Tokens of a request that decode has already."""
        with self.rooms.lock:
            return room.prefix

    def num_bytes(self, room: PrefillRoom) -> int:
        """Bytes of a request that were handed to the transport."""
        with self.rooms.lock:
            return room.num_bytes

    def is_drained(self, room: PrefillRoom) -> bool:
        """Whether a request's pages may be used again here: nothing reads them any more."""
        with self.rooms.lock:
            return room.is_drained()

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
        for endpoint in self._partners.register(said, self._busy):
            self._socket.forget(endpoint)

    def _look(self) -> None:
        for endpoint in self._partners.look(self._busy):
            self._socket.forget(endpoint)

    def _busy(self) -> Collection[str]:
        return {agent for room in self.rooms.all() for agent in room.wanted}

    def _want(self, wanted: Room) -> None:
        with self.rooms.lock:
            partner = self._partners.get(wanted.agent)
            room = self.rooms.get(wanted.room) or self._early(wanted)
            is_other = partner is not None and self._partners.is_of_another_engine(partner, room.wanted)
            asked = room.ask(wanted, is_of_another_engine=is_other)
            if asked is Asked.TAKEN:
                self._take(room, wanted, partner)
            elif asked is Asked.TWICE:
                # It hears of the failure once the first request is drained.
                self._fail(room, f"room {wanted.room} was asked for again before it was over")
                self._mover.wake()
        if asked is Asked.REFUSED:
            reason = f"room {wanted.room} is taken by another request; choose another number"
            status = Status(wanted.room, Poll.FAILED, self.rank, reason, generation=wanted.generation)
            self._tell(f"tcp://{wanted.host}:{wanted.port}", status)

    def _early(self, wanted: Room) -> PrefillRoom:
        """A room that a decode worker asks for before a sender does, or after the sender has given up."""
        room = self.rooms.add(PrefillRoom(wanted.room))
        room.wait("no sender came", self.options.bootstrap_timeout)
        if ended := self._ended.for_decode(wanted):
            self.rooms.fail(room, ended)
        return room

    def _take(self, room: PrefillRoom, wanted: Room, partner: Partner | None) -> None:
        if partner is None:
            self._fail(room, self._partners.stranger(wanted.agent))
        elif partner.refusal:
            self._fail(room, partner.refusal)
        else:
            self._check(room, wanted, partner)
        self._settle_start(room)
        self._mover.wake()

    def _check(self, room: PrefillRoom, wanted: Room, partner: Partner) -> None:
        if wanted.is_dummy or partner.mapped is None:
            return
        try:
            integer(f"decode_prefix_len of room {room.number} at the decode worker", wanted.prefix)
            for other in room.wanted.values():
                if not other.is_dummy:
                    same("decode_prefix_len", room.number, other.prefix, wanted.prefix)
                    same("number of pages", room.number, len(other.pages), len(wanted.pages))
            place = f"pages of room {room.number} at the decode worker"
            distinct(place, pages(place, wanted.pages, partner.mapped.num_rows.get(KV, 0)))
        except IntegrationError as error:
            self._fail(room, str(error))

    def _abort(self, abort: Abort) -> None:
        with self.rooms.lock:
            room = self.rooms.get(abort.room)
            reason = abort.reason or "aborted by the decode worker"
            # Whoever asks again has not heard the answer, and whoever was told that it failed asks when it may be
            # forgotten here. By now the number may be another request's.
            is_past = self._heard.is_repeated(abort) or self._ended.is_past(abort, is_taken=room is not None)
            if not is_past and (room is None or room.is_part_ended_by(abort)):
                self._ended.given_up(abort, reason)
            if room is not None and not is_past and room.heeds(abort):
                self._fail(room, reason)
            drained = room is None or room.answers(abort)
        if drained and abort.generation is not None:
            self._tell(f"tcp://{abort.host}:{abort.port}", AbortAck(abort.room, self.rank, abort.generation))

    # Rooms; the lock is held.

    def _queue(self, room: PrefillRoom, kv: Any, state: Any, after: Event | None) -> None:
        given = pages(f"kv_indices of room {room.number}", kv, self.mapped.num_rows.get(KV))
        first = room.cursor
        room.cursor += len(given)
        if room.num_pages is None or room.cursor > room.num_pages or room.all_queued:
            raise TooManyPagesError(room.number, room.num_pages or 0, room.cursor)
        is_last = room.cursor == room.num_pages
        rows: tuple[Pages | None, ...] = ()
        if is_last:
            given_state = state_lists(f"state_indices of room {room.number}", state, self._keys)
            rows = tuple(
                None
                if values is None
                else state_rows(f"state_indices[{i}] of room {room.number}", values, self.mapped, key)
                for i, (key, values) in enumerate(zip(self._keys, given_state, strict=True))
            )
        room.all_queued = is_last
        room.chunks.append(Chunk(first, given, is_last, rows, after))

    def _settle_start(self, room: PrefillRoom) -> None:
        if room.state is Poll.BOOTSTRAPPING and room.owner is not None and room.is_complete:
            room.state, room.patience = Poll.WAITING_FOR_INPUT, math.inf

    def _fail(self, room: PrefillRoom, reason: str) -> None:
        if self.rooms.fail(room, reason):
            self._mover.wake()

    # Whoever does not hold it.

    def _failed(self, room: PrefillRoom) -> None:
        del room
        with self.rooms.lock:
            self._mover.wake()

    def _tell(self, endpoint: str, message: Status | AbortAck) -> None:
        try:
            self._socket.send(endpoint, message.frames())
        except ConnectionError as error:
            log.warning("room %d: %s", message.room, error)


def same(what: str, room: int, one: int, other: int) -> None:
    """Two decode workers of a request have to agree about something.

    # Errors
    `ReadersError` if they do not.
    """
    if one != other:
        raise ReadersError(room, what, one, other)
