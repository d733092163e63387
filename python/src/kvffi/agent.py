"""One worker's end of all transfers."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _declarations as c
from . import _nixl
from ._agent_owner import GRACE, AgentOwner
from ._arrays import of_descriptors
from ._checked import octets, text
from ._handle import Handle, Owner, call, make, structs, take_bytes, take_text
from ._inbox import Inbox
from ._library import functions
from ._names import Histogram, Op, number
from ._start import transfer_options
from ._time import DEFAULT_DEADLINE, end_of, microseconds
from .answer import Answer
from .errors import Error, LibraryError
from .limits import Limits
from .local_plan import LocalPlan
from .loopback import Loopback
from .pair import Pair
from .peer import Peer, PeerId
from .quarantine import Quarantined, entries
from .request import Request, packed
from .spec import Spec
from .transfer import Transfer

if TYPE_CHECKING:
    from ._arrays import Descriptors


@dataclass(frozen=True)
class NixlOptions:
    """How NIXL is set up.

    `library`: libnixl_capi.so, or the folder that holds it. Without one it is looked for: the environment variable
    KVNIXL_LIBRARY, an installed wheel (`nixl-cu12` or `nixl-cu13`, 1.5.1 or newer, which need Python 3.10), then where
    kvffi.h says. `backend`: the plugin that moves the bytes, UCX by default, and its parameters. `progress_delay`: how
    many seconds NIXL's progress thread sleeps between two looks, 0.002 by default; `spin`: it never sleeps, which takes
    a whole core.
    """

    library: str | None = None
    backend: str | None = None
    backend_params: Mapping[str, str] = field(default_factory=dict)
    progress_delay: float = 0
    spin: bool = False


class AgentInfo(NamedTuple):
    """What an agent is called, and what it has under way.

    `incarnation`: random number of this agent. `generation` counts registrations. `unsettled`: transfers that have not
    settled, whether in progress, failed or closed; their blocks are in use.
    """

    name: str
    incarnation: int
    generation: int
    unsettled: int


class Notification(NamedTuple):
    """A short message that has arrived.

    The sender's name is not authenticated. `incarnation` is that of the sending agent, None if it is no agent of this
    library.
    """

    sender: str
    message: bytes
    incarnation: int | None


class Agent(Handle):
    """One worker's end of all transfers: registered memory, connected peers, transfers, notifications.

        with kvffi.Agent("decode-0") as agent:
            agent.register(spec)
            peer = agent.connect(blob)
            pair = kvffi.Pair(spec, peer.layout())
            agent.start(peer, pair.answer(request), notify=b"request 1").wait()

    `name`: 1 to 128 printable ASCII characters without @; it need not be unique over restarts. NIXL is loaded by the
    first agent of a process that has no `loopback`. Any number of threads may use one agent.
    """

    __slots__ = ()
    _owner: AgentOwner | None

    def __init__(
        self,
        name: str,
        *,
        nixl: NixlOptions | None = None,
        loopback: Loopback | None = None,
        limits: Limits | None = None,
    ) -> None:
        if nixl is not None and loopback is not None:
            raise ValueError("an agent has either nixl options or a loopback, not both")
        nixl = nixl if nixl is not None else NixlOptions()
        pairs = (c.KeyValue * len(nixl.backend_params))(
            *(
                c.KeyValue(key=text(key, "a key of backend_params"), value=text(value, key))
                for key, value in nixl.backend_params.items()
            )
        )
        library = None
        if loopback is None:
            library = nixl.library if nixl.library is not None else _nixl.library()
        bounds = limits._struct() if limits is not None else None
        network = Loopback._handle_of(loopback, "loopback") if loopback is not None else None
        options = c.AgentOptions(
            loopback=network.value if network is not None else None,
            library=text(str(library), "library") if library is not None else None,
            backend=text(nixl.backend, "backend") if nixl.backend is not None else None,
            backend_params=ctypes.addressof(pairs) if len(pairs) else None,
            num_backend_params=len(pairs),
            progress_delay_us=microseconds(nixl.progress_delay),
            flags=c.KVFFI_AGENT_SPIN if nixl.spin else 0,
            limits=ctypes.addressof(bounds) if bounds is not None else None,
        )
        owner = AgentOwner()
        try:
            call(functions().kvffi_agent_new, text(name, "name"), ctypes.byref(options), ctypes.byref(owner))
        except LibraryError as error:
            # The library has asked the `python3` of the PATH, which need not be this one.
            if library is None and (lack := _nixl.lack()) is not None:
                raise LibraryError(error.status, error.name, f"{lack}; {error.message}", error.findings) from None
            raise
        self._owner = owner
        # C has borrowed them until here.
        del pairs, bounds, network

    def _live(self) -> AgentOwner:
        owner = self._owner
        if owner is None:
            raise ValueError("this Agent is closed")
        return owner

    def close(self, timeout: float = GRACE) -> None:
        """Ends the agent: what is in progress may settle for `timeout` seconds, then memory is deregistered.

        `LeftUnsettled` if transfers have not settled: the agent has ended too, but its memory stays registered and is
        kept, unused, for the rest of the process. `InUse` if another thread's call or an exchange uses the agent;
        nothing has happened then. Closing again does nothing.

        A `with` block raises them too, unless an exception ends it: that one passes on, with a note of what failed, and
        the logger "kvffi" says it too.
        """
        owner = self._owner
        if owner is None:
            return
        try:
            owner.shut_down(timeout)
            self._owner = None
        except Error as error:
            if error.status in (c.KVFFI_ERR_LEFT_UNSETTLED, c.KVFFI_ERR_SHUT_DOWN, c.KVFFI_ERR_FORKED):
                self._owner = None
            if error.status not in (c.KVFFI_ERR_SHUT_DOWN, c.KVFFI_ERR_FORKED):
                raise
        finally:
            # An exception that is kept must not keep the agent.
            del owner

    def info(self) -> AgentInfo:
        """What the agent is called, and what it has under way."""
        info = c.AgentInfo()
        agent = self._live()
        call(functions().kvffi_agent_get_info, agent, ctypes.byref(info))
        return AgentInfo((info.name or b"").decode(), info.incarnation, info.generation, info.unsettled)

    @property
    def id(self) -> PeerId:
        """The agent's name and incarnation, as its peers know it."""
        info = self.info()
        return PeerId(info.name, info.incarnation)

    def register(self, memory: LocalPlan | Spec) -> None:
        """Registers a worker's memory, once: `reregister` changes it, and `deregister` allows another time.

        This process and its peers may then read and write it through transfers. Host memory has to be mapped readable
        and writable, all of it, also where it is only read; `OutOfRange` names the storage and the first page that is
        not.

        What the spec was built from is kept until the agent is closed, see `let_go`. Memory that the spec has by
        address alone must stay mapped until then, and until no peer that has connected may still use it: deregistration
        revokes nothing.
        """
        self._register(functions().kvffi_agent_register, memory)

    def reregister(self, memory: LocalPlan | Spec) -> None:
        """Puts other memory in the place of what is registered: storages are added and taken away.

        What both have is left alone, with the transfers and peers that use it, and a storage that has grown in place is
        registered for what is new of it. `InUse` while a transfer that has not settled uses memory that is to go.

        Plan again for what starts from now on. Peers learn of it when they connect again, by a new `export`; an
        exchange tells them by `Exchange.registered`. What is taken away is kept as after `deregister`.
        """
        self._register(functions().kvffi_agent_reregister, memory)

    def _register(self, function: Callable[..., int], memory: LocalPlan | Spec) -> None:
        agent = self._live()
        plan = memory.plan_local() if isinstance(memory, Spec) else memory
        if not isinstance(plan, LocalPlan):
            raise TypeError(f"memory is of type {type(plan).__name__}, not LocalPlan or Spec")
        try:
            with agent.registering:
                # Before the call: whatever interrupts it, what is registered is kept.
                registration, before = agent.keep(plan._keep), agent.registered
                agent.registered = before | {registration}
                try:
                    call(function, agent, plan._live())
                except (Error, ValueError):
                    agent.registered = before
                    del agent.memory[registration]
                    raise
                agent.registered = frozenset({registration})
        finally:
            # An exception that is kept must not keep the agent.
            del agent

    def deregister(self) -> None:
        """Deregisters all memory; `InUse` while a transfer has not settled.

        Peers that have connected can still reach it until they are told, so it is kept until the agent is closed, or
        until `let_go`.
        """
        agent = self._live()
        with agent.registering:
            call(functions().kvffi_agent_deregister, agent)
            agent.registered = frozenset()

    def let_go(self) -> None:
        """Keeps memory no longer that was registered and is so no more.

        For when no peer can use it any more: each has connected by a blob without it, or has answered a withdrawal
        (`Exchange.withdraw`), or has ended. A peer that still uses it reads and writes whatever is there then.
        """
        agent = self._live()
        with agent.registering:
            for registration in agent.memory.keys() - agent.registered:
                del agent.memory[registration]

    def export(self) -> bytes:
        """The blob that peers connect to. Send it to them over a channel of the engine's own.

        Whoever has it can read and write the registered memory.
        """
        return take_bytes(functions().kvffi_agent_export, self._live())

    def connect(self, blob: bytes | bytearray | memoryview, *, name: str | None = None) -> Peer:
        """Connects the peer whose blob this is. The same blob again gives the same peer, a newer one replaces it.

        With a `name`, the blob of any other peer is a `BlobError` and changes nothing.
        """
        data = octets(blob, "blob")
        library = functions()
        free = library.kvffi_peer_free
        # No handle in a local: see `call`.
        if name is None:
            made = make(free, library.kvffi_agent_connect, self._live(), data, len(data))
        else:
            named = text(name, "name")
            made = make(free, library.kvffi_agent_connect_named, self._live(), named, data, len(data))
        return Peer._wrap(made, self._live())

    def connect_foreign(self, name: str, metadata: bytes, layout: Spec, *, generation: int = 1) -> Peer:
        """Connects a peer on NIXL that is not of this library, by its NIXL name and metadata and where its caches lie.

        A larger `generation` replaces what was connected under the name. Nobody sees the peer's process end: see
        `Peer.declare_gone`.
        """
        metadata, owner = octets(metadata, "metadata"), Spec._handle_of(layout, "layout")
        foreign = c.ForeignPeer(
            name=text(name, "name"),
            metadata=ctypes.cast(ctypes.c_char_p(metadata), ctypes.c_void_p),
            metadata_len=len(metadata),
            layout=owner.value,
            generation=generation,
        )
        library = functions()
        made = make(library.kvffi_peer_free, library.kvffi_agent_connect_foreign, self._live(), ctypes.byref(foreign))
        # C has borrowed it until here.
        del owner
        return Peer._wrap(made, self._live())

    def nixl_name(self) -> str:
        """The agent's name on NIXL, which peers that are not of this library need."""
        return take_text(functions().kvffi_agent_get_nixl_name, self._live())

    def nixl_metadata(self) -> bytes:
        """NIXL's metadata of this agent, which peers that are not of this library load.

        Whoever has it can read and write the registered memory.
        """
        return take_bytes(functions().kvffi_agent_get_nixl_metadata, self._live())

    def reconnect(self, peer: Peer) -> None:
        """Opens the way to a peer anew, for example after a network failure. Transfers in progress with it fail."""
        call(functions().kvffi_agent_reconnect, self._live(), Peer._handle_of(peer, "peer"))

    def disconnect(self, peer: Peer) -> None:
        """Lets a peer go; `InUse` while a transfer with it has not settled."""
        call(functions().kvffi_agent_disconnect, self._live(), Peer._handle_of(peer, "peer"))

    def start(
        self,
        peer: Peer,
        what: Answer | Descriptors,
        *,
        op: Op | None = None,
        notify: bytes | None = None,
        deadline: float | None = DEFAULT_DEADLINE,
        request: str | None = None,
        padding_bytes: int = 0,
        limits: Limits | None = None,
    ) -> Transfer:
        """Starts to move bytes. Checks every descriptor and queues; nothing blocks.

        `what`: an answer of a plan with this peer's layout, or descriptors as `Answer.descriptors` gives them, with
        their `op`: "read" from the peer, "write" to it. `notify`: sent to the peer after the last byte is in place, and
        never if the transfer fails. `deadline`: seconds after which it has failed; None for none, and NIXL has
        no timeout of its own.
        `request`: the engine's name of what the blocks belong to, for logs and quarantine. `padding_bytes`: for
        statistics; an answer knows its own.

        `OutOfRange` names a descriptor outside registered memory. `WouldBlock` if too much is in flight: try again.
        """
        options, kept = transfer_options(notify, deadline, request, padding_bytes, limits)
        library = functions()
        if isinstance(what, Answer):
            if op is not None:
                raise ValueError("an answer has the direction of its request; leave op out")
            function = library.kvffi_agent_start_answer
            transfer = self._start(function, Peer._handle_of(peer, "peer"), what._live(), options)
        else:
            if op is None:
                raise ValueError("descriptors have no direction; give op")
            address, count, kept_too = of_descriptors(what)
            arguments = (number("OP", op), address, count, options)
            transfer = self._start(library.kvffi_agent_start, Peer._handle_of(peer, "peer"), *arguments)
            del kept_too
        # C has borrowed it until here.
        del kept
        return transfer

    def start_request(
        self,
        peer: Peer,
        pair: Pair,
        what: Request,
        *,
        into: Answer | None = None,
        notify: bytes | None = None,
        deadline: float | None = DEFAULT_DEADLINE,
        request: str | None = None,
        limits: Limits | None = None,
    ) -> Transfer:
        """`Pair.answer` and `start` in one call, which is the quickest way from block ids to a transfer.

            agent.start_request(peer, pair, kvffi.Request("read", local={0: here}, remote={0: there}), into=answer)

        `pair`: a plan with this peer's layout. `into`: an answer to reuse, which then has the descriptors, and what is
        to be zeroed; without one a new answer is made. If the start fails, as with `WouldBlock`, it has them too, and
        `start` is enough to try again.
        """
        answer = Answer() if into is None else into
        options, kept = transfer_options(notify, deadline, request, 0, limits)
        transfer = self._start(
            functions().kvffi_agent_start_request,
            Peer._handle_of(peer, "peer"),
            Pair._handle_of(pair, "pair"),
            packed(what),
            Answer._handle_of(answer, "into"),
            options,
        )
        # C has borrowed it until here.
        del kept
        return transfer

    def _start(self, function: Callable[..., int], *arguments: Any) -> Transfer:
        # Made before the call: after a large request the caches are cold.
        transfer = Transfer._new(self._live())
        try:
            call(function, transfer._agent, *arguments, ctypes.byref(transfer._live()))
            return transfer
        finally:
            # An exception that is kept must not keep what the call was given.
            del transfer, arguments

    def notify(self, peer: Peer, message: bytes) -> None:
        """Sends a short message. Messages to one peer arrive in order; no error is no proof of delivery."""
        data = octets(message, "message")
        call(functions().kvffi_agent_notify, self._live(), Peer._handle_of(peer, "peer"), data, len(data))

    def notifications(self) -> list[Notification]:
        """Takes all notifications that have arrived; `InUse` while the agent has an exchange, whose events they are."""
        return self._take().all()

    def _take(self) -> Inbox[Notification]:
        """Those that nobody has seen, with what has arrived."""
        library = functions()

        def take(taken: Owner) -> None:
            call(library.kvffi_agent_take_notifications, self._live(), ctypes.byref(taken))

        def read(taken: Owner) -> list[Notification]:
            return [
                Notification(
                    (each.sender or b"").decode(),
                    ctypes.string_at(each.message, each.message_len) if each.message_len else b"",
                    each.incarnation if each.has_incarnation else None,
                )
                for each in structs(c.Notification, library.kvffi_notifications_get, taken)
            ]

        arrived: Inbox[Notification] = self._live().arrived
        arrived.fill(take, read)
        return arrived

    def listen(self, timeout: float | None = None) -> Iterator[Notification]:
        """Notifications as they arrive; ends when none has arrived for `timeout` seconds.

        Waits without using the processor, and without the GIL. Who stops early leaves the others to the next call.
        `InUse` while the agent has an exchange, whose events they are.
        """
        end = end_of(timeout)
        while True:
            for notification in self._take().each():
                yield notification
                end = end_of(timeout)
            left = end - time.monotonic()
            if left <= 0 or not self.wait_for_news(left):
                return

    def wait_for_news(self, timeout: float | None = None) -> bool:
        """Waits on the descriptor of `fd`, and clears it; False if nothing has happened for `timeout` seconds.

        Look at transfers and notifications after this call. Each of several threads that wait is told of all news. Each
        poll of the agent's exchange by another thread is news, too, as it clears the descriptor: threads that poll wait
        with `Exchange.wait`, or two of them wake each other for ever.
        """
        return self._wait(timeout)

    def _wait(self, timeout: float | None, *, for_exchange: bool = False) -> bool:
        agent = self._live()
        if agent.news.is_forked():
            # The descriptor would say nothing: this raises `Forked`.
            self.info()
        fd = self.fd() if agent.fd is None else agent.fd
        return agent.news.wait(fd, self._clear, end_of(timeout), for_exchange=for_exchange)

    def fd(self, look_every: float = 0) -> int:
        """A file descriptor for an event loop; only wait for it to be readable.

        It is readable when a transfer has ended or settled, when a notification has arrived, when an exchange has
        something to do, when the agent has ended, and once right after each call of this. Then call `clear_fd` and look
        at everything. `look_every`: how often, in seconds, notifications are asked for; 0.001 by default. It is valid
        as long as this object.

        Let one event loop wait for it, and no thread beside it: `wait_for_news`, `listen`, and an exchange's `poll` and
        `events` clear it, which an event loop does not learn.
        """
        agent = self._live()
        fd = ctypes.c_int32()
        call(functions().kvffi_agent_get_fd, agent, microseconds(look_every), ctypes.byref(fd))
        with agent.lock:
            if agent.fd is None:
                agent.fd = os.dup(fd.value)
            return agent.fd

    def clear_fd(self) -> None:
        """Makes the descriptor unreadable until something happens again. Look at everything after this call."""
        agent = self._live()
        try:
            self._clear()
        finally:
            agent.news.cleared()
            # An exception that is kept must not keep the agent.
            del agent

    def _clear(self) -> None:
        call(functions().kvffi_agent_clear_fd, self._live())

    def raise_fd(self) -> None:
        """Makes the descriptor readable, for example to end the waits of all other threads.

        That is news for them even if another thread's call clears the descriptor before they see it.
        """
        agent = self._live()
        try:
            call(functions().kvffi_agent_raise_fd, agent)
        finally:
            agent.news.cleared()
            # An exception that is kept must not keep the agent.
            del agent

    def stats(self) -> c.AgentStats:
        """What the agent has done since it was made, and what it is doing."""
        stats = c.AgentStats()
        call(functions().kvffi_agent_get_stats, self._live(), ctypes.byref(stats))
        return stats

    def histogram(self, histogram: Histogram) -> list[c.Bucket]:
        """A histogram: "post" of the time inside each post, "transfer" from start to outcome of those that are done."""
        function = functions().kvffi_agent_get_histogram
        return list(structs(c.Bucket, function, self._live(), number("HISTOGRAM", histogram)))

    def quarantine(self) -> list[Quarantined]:
        """The transfers that have failed and not settled. They leave when they settle."""
        library = functions()
        listed = make(library.kvffi_quarantine_free, library.kvffi_agent_get_quarantine, self._live())
        return entries(listed) if listed else []
