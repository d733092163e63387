"""Leases, pulls, pushes and peers of one agent."""

from __future__ import annotations

import ctypes
import itertools
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Union

from . import _declarations as c
from ._agent_owner import UserOwner
from ._arrays import of_descriptors
from ._checked import octets, text
from ._handle import Handle, Owner, call, make, structs
from ._inbox import Inbox
from ._library import functions
from ._names import LostReaders, number, word
from ._pinned import Pinned
from ._time import DEFAULT_DEADLINE, deadline_in, end_of, milliseconds
from .agent import Agent
from .answer import Answer
from .errors import Error
from .event import BLOCKS_COME_BACK, Event, read
from .peer import Peer, PeerId
from .request import Lists, block_lists

if TYPE_CHECKING:
    from ._arrays import Descriptors

    What = Union[Answer, Descriptors]

# A peer, as `Exchange.connect` gives it, or its name and incarnation, as events have them.
AnyPeer = Union[Peer, PeerId]


@dataclass(frozen=True)
class ExchangeOptions:
    """How an exchange behaves: seconds and numbers; 0 is the default of each, as kvffi.h says.

    `lost_readers`: what becomes of the share of a reader that is gone: "release" counts it as done, "wait" waits for
    another process of that name until the lease expires.
    """

    lease_ttl: float = 0
    lease_max_lifetime: float = 0
    lease_remember: float = 0
    lost_readers: LostReaders = "release"
    heartbeat_every: float = 0
    max_registrations: int = 0
    max_registered_blocks: int = 0
    first_retry: float = 0
    max_retry: float = 0
    fetch_timeout: float = 0
    peer_idle_ttl: float = 0
    push_remember: float = 0
    max_ended_leases: int = 0
    max_ended_registrations: int = 0
    max_past_incarnations: int = 0

    def _struct(self) -> c.ExchangeOptions:
        return c.ExchangeOptions(
            lease_ttl_ms=milliseconds(self.lease_ttl),
            lease_max_lifetime_ms=milliseconds(self.lease_max_lifetime),
            lease_remember_ms=milliseconds(self.lease_remember),
            lost_readers=number("LOST_READERS", self.lost_readers),
            heartbeat_every_ms=milliseconds(self.heartbeat_every),
            max_registrations=self.max_registrations,
            max_registered_blocks=self.max_registered_blocks,
            first_retry_ms=milliseconds(self.first_retry),
            max_retry_ms=milliseconds(self.max_retry),
            fetch_timeout_ms=milliseconds(self.fetch_timeout),
            peer_idle_ttl_ms=milliseconds(self.peer_idle_ttl),
            push_remember_ms=milliseconds(self.push_remember),
            max_ended_leases=self.max_ended_leases,
            max_ended_registrations=self.max_ended_registrations,
            max_past_incarnations=self.max_past_incarnations,
        )


class Wanted(NamedTuple):
    """What to do to use a peer.

    "ready": use it; `incarnation` is its own. "fetch": fetch its blob now, and `Exchange.connect` it. "wait": ask again
    after `wait` seconds. "draining": it is being let go, or its memory goes; ask again when nothing is under way with
    it.
    """

    what: Literal["ready", "fetch", "wait", "draining"]
    incarnation: int
    wait: float


class PushId(NamedTuple):
    """A registration of a decode worker: whose, and which of theirs.

    The event "push" has it as `PushId(*event.peer, event.reservation)`, and alone has the decode worker's blocks: keep
    its `lists`.
    """

    peer: str
    incarnation: int
    reservation: int

    def _struct(self) -> c.PushId:
        return c.PushId(peer=text(self.peer, "peer"), incarnation=self.incarnation, reservation=self.reservation)


class PullPart(NamedTuple):
    """What to read from one producer: its request and its lease, and what the plan with it answered.

    `padding_bytes`: of descriptors, for statistics; an answer knows its own.
    """

    peer: AnyPeer
    request: str
    lease: int
    what: What
    padding_bytes: int = 0


class PushSource(NamedTuple):
    """A producer that is to write a request, and the blocks of this worker that it is to write, as of a `Request`."""

    peer: AnyPeer
    blocks: Lists


class Exchange(Handle):
    """Leases, pulls, pushes and peers of one agent, for whole requests: the only one of that agent.

    Nothing happens between two polls: see `events`. `blocks` are what the engine likes them to be, any object; an event
    gives it back when the blocks are the engine's again. Close the exchange before the agent. Blocks of pulls and
    reservations that have not come back by then never do: the object is kept, unused, for the rest of the process.

    It takes one call at a time, `stats` and `timeout` too; a second call by another thread gets `BusyError`, now and
    then, and has changed nothing. So let one thread have it, or have all its callers take a lock, for each call but
    `wait`. `events` waits between its calls: threads that share an exchange use `poll` and `wait` instead.

        while running:
            with lock:
                events = exchange.poll()
            ...
            exchange.wait()
    """

    __slots__ = ("_agent", "_blocks", "_happened", "_news", "_numbers")

    def __init__(self, agent: Agent, options: ExchangeOptions | None = None) -> None:
        struct = options._struct() if options is not None else None
        library = functions()
        Agent._handle_of(agent, "agent")
        used = agent._live()
        owner = UserOwner(library.kvffi_exchange_free, used)
        arguments = (used, ctypes.byref(struct) if struct is not None else None, ctypes.byref(owner))
        call(library.kvffi_exchange_new, *arguments)
        self._owner = owner
        self._agent = agent
        # Those who wait for the agent, whose descriptor each poll clears.
        self._news = used.news
        # Blocks by the number that C has for them. Those that may be written are pinned.
        self._blocks: dict[int, Pinned] = {}
        self._numbers = itertools.count(1)
        self._happened: Inbox[tuple[Event, int]] = Inbox(library.kvffi_events_free)

    @property
    def agent(self) -> Agent:
        """The agent, which keeps working for the engine's own transfers."""
        return self._agent

    def poll(self) -> list[Event]:
        """Moves everything on, and hands out what has happened since the last poll, in order.

        It clears the agent's descriptor: who waits for it looks at transfers of the engine's own after this call.
        """
        self._fill()
        happened: list[tuple[Event, int]] = []
        try:
            happened = self._happened.all()
            return [self._hand_out(*each) for each in happened]
        except BaseException:
            # A signal came.
            self._happened.put_back(happened)
            raise

    def _hand_out(self, event: Event, cookie: int) -> Event:
        """The event's blocks are the engine's again. Another time it does nothing."""
        blocks = self._blocks.pop(cookie, None)
        if blocks is not None:
            blocks.unpin()
        return event

    def _fill(self) -> None:
        library = functions()

        def take(taken: Owner) -> None:
            try:
                call(library.kvffi_exchange_poll, self._live(), ctypes.byref(taken))
            finally:
                self._news.polled()

        def read_all(taken: Owner) -> list[tuple[Event, int]]:
            events = []
            for index in range(library.kvffi_events_len(taken)):
                event = c.Event()
                call(library.kvffi_events_get, taken, index, ctypes.byref(event))
                # 0 is nobody's.
                cookie = event.cookie if event.kind in BLOCKS_COME_BACK else 0
                blocks = self._blocks.get(cookie)
                events.append((read(event, blocks.what if blocks is not None else None), cookie))
            return events

        self._happened.fill(take, read_all)

    def events(self, timeout: float | None = None) -> Iterator[Event]:
        """Events as they happen; ends when nothing has happened for `timeout` seconds.

        Waits on the agent's descriptor, without using the processor and without the GIL. Who stops early leaves the
        others to the next call.
        """
        end = end_of(timeout)
        while True:
            self._fill()
            for each in self._happened.each():
                try:
                    event = self._hand_out(*each)
                except BaseException:
                    self._happened.put_back([each])
                    raise
                yield event
                end = end_of(timeout)
            left = end - time.monotonic()
            if left <= 0:
                return
            self.wait(left)

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until the exchange may have something to do; False if nothing has happened for `timeout` seconds.

        Poll after this call. It needs no lock: any number of threads may wait, and others use the exchange meanwhile.
        What another thread has polled does not end it, since that thread has the events. Who looks at transfers of the
        engine's own uses `Agent.wait_for_news`, which a poll ends. `Agent.raise_fd` ends both.
        """
        self._live()
        return self._agent._wait(timeout, for_exchange=True)

    def timeout(self) -> float:
        """How many seconds to wait for the next poll at most; the agent's descriptor is readable by then."""
        timeout = ctypes.c_uint64()
        call(functions().kvffi_exchange_get_timeout, self._live(), ctypes.byref(timeout))
        return timeout.value / 1000

    def stats(self) -> c.ExchangeStats:
        """A snapshot of everything that is counted."""
        stats = c.ExchangeStats()
        call(functions().kvffi_exchange_get_stats, self._live(), ctypes.byref(stats))
        return stats

    # Peers.

    def want(self, name: str) -> Wanted:
        """What to do to use a peer by this name. "fetch" is said once until the fetch has ended."""
        wanted = c.Wanted()
        call(functions().kvffi_exchange_want, self._live(), text(name, "name"), ctypes.byref(wanted))
        return Wanted(word("WANTED", wanted.what), wanted.incarnation, wanted.wait_ms / 1000)

    def connect(self, blob: bytes | bytearray | memoryview, *, name: str | None = None) -> Peer:
        """Connects a peer from its blob, as `Agent.connect` does; `BlobError` also for one that was replaced.

        Say the `name` that was asked for. Without it, while blobs are fetched that `want` asked for, none that nobody
        asked for takes the place of a peer that is ready.
        """
        data = octets(blob, "blob")
        library = functions()
        free = library.kvffi_peer_free
        # No handle in a local: see `call`.
        if name is None:
            made = make(free, library.kvffi_exchange_connect, self._live(), data, len(data))
        else:
            named = text(name, "name")
            made = make(free, library.kvffi_exchange_connect_named, self._live(), named, data, len(data))
        return Peer._wrap(made, self._agent._live())

    def peer(self, peer: PeerId) -> Peer:
        """A peer that is connected, to plan with; `PeerGone` if it is not."""
        library = functions()
        struct = _peer_id(peer)
        made = make(library.kvffi_peer_free, library.kvffi_exchange_get_peer, self._live(), ctypes.byref(struct))
        return Peer._wrap(made, self._agent._live())

    def fetch_failed(self, name: str) -> None:
        """Says that the blob that `want` asked for cannot be had."""
        call(functions().kvffi_exchange_fetch_failed, self._live(), text(name, "name"))

    def release_peer(self, name: str) -> None:
        """Lets a peer go when nothing is under way with it; the event "peer_released" says when."""
        call(functions().kvffi_exchange_release_peer, self._live(), text(name, "name"))

    def peer_is_gone(self, peer: AnyPeer) -> None:
        """Says that a peer's process has ended and that nothing of it can land any more: its blocks come back.

        Being replaced, or not reachable, is no such proof.
        """
        call(functions().kvffi_exchange_peer_is_gone, self._live(), ctypes.byref(_peer_id(peer)))

    def withdraw(self) -> None:
        """Tells connected peers that this agent's memory is about to go; the event "withdrawn" says when it may."""
        call(functions().kvffi_exchange_withdraw, self._live())

    def count_withdrawing(self) -> int:
        """Counts the peers that have not answered a withdrawal."""
        count = ctypes.c_size_t()
        call(functions().kvffi_exchange_count_withdrawing, self._live(), ctypes.byref(count))
        return count.value

    def registered(self) -> None:
        """Tells connected peers that this agent has registered memory anew, so that they fetch its blob."""
        call(functions().kvffi_exchange_registered, self._live())

    def goodbye(self) -> None:
        """Says goodbye to connected peers that are there; `InUse` while a write has not settled.

        Nothing but `poll` comes after it, as long as `stats().message_unanswered` is not 0 and you like to wait.
        """
        call(functions().kvffi_exchange_goodbye, self._live())

    # The producer's side.

    def hold(self, request: str, blocks: object, *, readers: int | None = 1, num_parts: int = 0) -> int:
        """Holds a request's blocks until so many readers have completed; its lease.

        Give readers the request, the lease, and this agent's name and incarnation. `readers`: agents, told apart by
        their names; one that reads twice counts once. See `Spec.count_readers`;
        None if it is not known yet, see `set_readers`. The event "freed" gives the blocks back. `RequestHeld` if the
        same request has a lease.

        `num_parts`: shares of the request, such as chunks of tokens, that become ready one by one, see `ready`; 0 for
        blocks that are complete. It cannot be changed: if their number is not known take as many as there can be, and
        write the rest with answers that move nothing. The lease cannot expire before its last part is ready: `abort` it
        if that is never. Let a chunk end where one of this worker's blocks ends: a block that is half computed belongs
        to the next chunk, since each is written once.
        """
        lease = ctypes.c_uint64()
        readers = c.KVFFI_READERS_UNKNOWN if readers is None else readers
        cookie = next(self._numbers)
        arguments = (text(request, "request"), cookie, readers, num_parts, ctypes.byref(lease))
        self._keep(cookie, Pinned(blocks), functions().kvffi_exchange_hold, *arguments)
        return lease.value

    def set_readers(self, lease: int, readers: int) -> bool:
        """Sets the number of readers of a lease; whether it was in force."""
        return self._flag(functions().kvffi_exchange_set_readers, lease, readers)

    def ready(self, lease: int, part: int) -> list[PushId]:
        """Says that a part of a request is computed; the registrations to write it to.

        Where to is in the `lists` of each one's event "push". Leave one whose event has not come yet: write all parts
        that are ready then. Empty if the lease has ended.
        """
        library = functions()
        pushes = make(library.kvffi_pushes_free, library.kvffi_exchange_ready, self._live(), lease, part)
        if not pushes:
            return []
        listed = structs(c.PushId, library.kvffi_pushes_get, pushes)
        return [PushId((each.peer or b"").decode(), each.incarnation, each.reservation) for each in listed]

    def write(self, push: PushId, what: What, *, part: int = 0, padding_bytes: int = 0) -> None:
        """Writes a part of a request to a decode worker, which hears of it when every part has been written.

        `what`: of the plan ("write") with that peer for the registration's lists, of which a chunk takes a slice with
        `first`; an answer for no lists moves nothing. Answers for some layers each have to be for all of them together.
        `padding_bytes`: of descriptors, for statistics.

        `WriteRefused` if the registration has ended, if the part is not ready or was written before, or if the answer
        is for a block that was not reserved, which it names (descriptors are not compared); `WouldBlock` and
        `PeerNotReady`: try again later. After any other error the registration has ended, and the decode worker is
        told.
        """
        arguments = (ctypes.byref(_named(PushId, push)._struct()), part)
        library = functions()
        if isinstance(what, Answer):
            if padding_bytes:
                raise ValueError("an answer knows its padding; leave padding_bytes out")
            call(library.kvffi_exchange_write_answer, self._live(), *arguments, what._live())
        else:
            address, count, kept = of_descriptors(what)
            call(library.kvffi_exchange_write, self._live(), *arguments, address, count, padding_bytes)
            del kept

    def refuse(self, push: PushId, reason: str) -> bool:
        """Refuses a registration, with a reason for the decode worker; whether there was something to refuse.

        Nothing is written for it, and the share of its reader counts as done; the lease goes on for the others. At most
        512 bytes of the reason are sent.
        """
        struct = push._struct()
        return self._flag(functions().kvffi_exchange_refuse, ctypes.byref(struct), text(reason, "reason"))

    def abort(self, lease: int) -> bool:
        """Ends a lease at once; whether it was in force. Its blocks come with the next poll."""
        return self._flag(functions().kvffi_exchange_abort, lease)

    # The consumer's side.

    def pull(self, blocks: object, parts: Iterable[PullPart], *, deadline: float | None = DEFAULT_DEADLINE) -> int:
        """Reads a request from one or several producers; the pull's number.

        It ends once, as the event "pulled", when every producer has confirmed that its lease was good after the last
        byte had been read, or as "pull_failed"; then the event "returned_pull" gives the blocks back, when nothing can
        land in them any more. `PeerNotReady`, `WouldBlock`: nothing was started.

        `deadline`: seconds after which it has failed; None for none. After a failure the leases that were still good
        are so: pull again, or `let_go`. One whose error is `NotReady` was read before all parts were ready.
        What is read by layers (`Request`) is one pull, of a part for each selection, under the same lease: a producer
        is told once, that everything has been read.
        """
        within = deadline_in(deadline)
        keep: list[object] = []
        made = [_pull_part(part, keep) for part in parts]
        array = (c.PullPart * len(made))(*made)
        pull = ctypes.c_uint64()
        cookie = next(self._numbers)
        arguments = (cookie, array, len(made), within, ctypes.byref(pull))
        self._keep(cookie, Pinned(blocks, pinned=True), functions().kvffi_exchange_pull, *arguments)
        del keep
        return pull.value

    def cancel_pull(self, pull: int) -> bool:
        """Says that a pull is not wanted any more; whether it was in progress. Its blocks come back settled.

        With the next poll its producers hear that this reader gives up, and wait for it no more.
        """
        return self._flag(functions().kvffi_exchange_cancel_pull, pull)

    def keep(self, peer: AnyPeer, lease: int) -> None:
        """Keeps a producer's lease alive with heartbeats, for a request that waits for its pull.

        Ends with the lease, with `let_go`, with any confirmation of a pull under it, and with the end of the producer's
        process. While a pull under the lease lives, that pull keeps it, and this is not taken up.
        """
        call(functions().kvffi_exchange_keep, self._live(), ctypes.byref(_peer_id(peer)), lease)

    def let_go(self, peer: AnyPeer, lease: int) -> None:
        """Says that a lease is no longer wanted, whether `keep` was told of it or not.

        With the next poll its producer hears that this reader gives up, and waits for it no more. While a pull under
        the lease is in progress it is still wanted: `cancel_pull` that.
        """
        call(functions().kvffi_exchange_let_go, self._live(), ctypes.byref(_peer_id(peer)), lease)

    def reserve(
        self,
        request: str,
        blocks: object,
        sources: Iterable[PushSource],
        *,
        deadline: float | None = DEFAULT_DEADLINE,
    ) -> int:
        """Has a request written into blocks of this worker by one or several producers; the reservation's number.

        It ends once: as the event "arrived", which gives the blocks back, or as "arrival_failed"; then
        "returned_reservation" gives them back, when no producer can write them any more.

        `RequestError` for groups and blocks that are not registered here: nobody has heard of it then. `deadline`:
        seconds after which it has failed; None for none. The event's error is `Refused` if a producer refused it.
        """
        within = deadline_in(deadline)
        name = text(request, "request")
        keep: list[object] = []
        made = [_push_source(source, keep) for source in sources]
        array = (c.PushSource * len(made))(*made)
        reservation = ctypes.c_uint64()
        cookie = next(self._numbers)
        arguments = (name, cookie, array, len(made), within, ctypes.byref(reservation))
        self._keep(cookie, Pinned(blocks, pinned=True), functions().kvffi_exchange_reserve, *arguments)
        del keep
        return reservation.value

    def cancel_reservation(self, reservation: int) -> bool:
        """Says that a reservation is no longer wanted; whether it was held.

        Its blocks come back as "returned_reservation". Producers that hold a lease for it get the event "given_up".
        """
        return self._flag(functions().kvffi_exchange_cancel_reservation, reservation)

    def _keep(self, cookie: int, blocks: Pinned, function: Any, *arguments: Any) -> None:
        """Keeps blocks by their number for a call, and from then on unless the library refuses them."""
        self._blocks[cookie] = blocks
        try:
            call(function, self._live(), *arguments)
        except (Error, ValueError):
            # Nothing else: after a Ctrl-C the library has them.
            del self._blocks[cookie]
            blocks.unpin()
            raise

    def _flag(self, function: Any, *arguments: Any) -> bool:
        flag = ctypes.c_int32()
        call(function, self._live(), *arguments, ctypes.byref(flag))
        return flag.value != 0


def _named(kind: Any, given: Any) -> Any:
    """What a tuple has, by the names of its class; a plain tuple of the same form is as good."""
    if not isinstance(given, kind):
        fields = ", ".join(kind._fields)
        if not isinstance(given, tuple):
            raise TypeError(f"{type(given).__name__} is no {kind.__name__}, which has {fields}")
        try:
            return kind(*given)
        except TypeError:
            raise TypeError(f"a tuple of {len(given)} is no {kind.__name__}, which has {fields}") from None
    return given


def _peer_id(peer: AnyPeer) -> c.PeerId:
    name, incarnation = peer.id if isinstance(peer, Peer) else _named(PeerId, peer)
    return c.PeerId(name=text(name, "a peer's name"), incarnation=incarnation)


def _pull_part(part: PullPart, keep: list[object]) -> c.PullPart:
    part = _named(PullPart, part)
    peer = _peer_id(part.peer)
    answer: Owner | None = None
    address, count = None, 0
    if isinstance(part.what, Answer):
        answer = part.what._live()
    else:
        address, count, kept = of_descriptors(part.what)
        keep.append(kept)
    keep.append(answer)
    return c.PullPart(
        peer=peer.name,
        incarnation=peer.incarnation,
        request=text(part.request, "request"),
        lease=part.lease,
        answer=answer.value if answer is not None else None,
        descriptors=address,
        num_descriptors=count,
        padding_bytes=part.padding_bytes,
    )


def _push_source(source: PushSource, keep: list[object]) -> c.PushSource:
    source = _named(PushSource, source)
    peer = _peer_id(source.peer)
    lists, kept = block_lists(source.blocks)
    keep += [lists, kept]
    return c.PushSource(
        peer=peer.name,
        incarnation=peer.incarnation,
        lists=ctypes.addressof(lists) if len(lists) else None,
        num_lists=len(lists),
    )
