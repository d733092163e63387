"""Moves what the planner says: `kvffi.Agent` between workers of ours, NIXL's Python binding where the other is not."""

from __future__ import annotations

import base64
import threading
import uuid
from typing import Protocol

import kvffi

from .errors import MessageError
from .foreign import ForeignTransport
from .mapping import Mapped
from .messages import Registration
from .options import Options

BLOB = "blob"
"""Where our workers' description has the agent's blob."""


class Transfer(Protocol):
    """Bytes on their way to one peer: a `kvffi.Transfer` or its like."""

    def poll(self) -> str:
        """Where it stands: "in_progress", "done", "failed" or "unsettled".

        "failed": nothing lands any more. "unsettled": it failed, and bytes may land.
        """

    def cancel(self) -> None:
        """Says that the bytes are not wanted. What was posted still settles."""

    def error(self) -> object:
        """Why it failed."""


class Transport:
    """One worker's end of all transfers, with its memory registered.

    The binding is only loaded, and memory only registered with it, once a worker that is not ours appears.
    """

    def __init__(self, spec: kvffi.Spec, mapped: Mapped, options: Options) -> None:
        self._mapped, self._options = mapped, options
        self.name = str(uuid.uuid4())
        limits = kvffi.Limits(request_bytes=options.most_bytes, outstanding_requests=options.most_posts)
        self._agent = kvffi.Agent(self.name, nixl=kvffi.NixlOptions(backend=options.backend), limits=limits)
        self._agent.register(spec)
        self._peers: dict[str, kvffi.Peer] = {}
        self._broken: set[str] = set()
        self._foreign: ForeignTransport | None = None
        self._lock = threading.Lock()

    def blob(self) -> str:
        """What workers of ours need to reach this one's memory."""
        return base64.b64encode(self._agent.export()).decode()

    def foreign(self) -> ForeignTransport:
        """This worker as one that is not ours knows it."""
        with self._lock:
            if self._foreign is None:
                self._foreign = ForeignTransport(self._mapped, self._options)
            return self._foreign

    def connect(self, said: Registration) -> None:
        """Makes a decode worker reachable.

        # Errors
        `MessageError` for a description without a blob, `kvffi.Error` for one that cannot be used.
        """
        if said.mapped is None:
            self.foreign().connect(said.metadata)
            return
        self._peers[said.agent] = self.watch(str(said.mapped.get(BLOB, "")))

    def watch(self, blob: str) -> kvffi.Peer:
        """A worker of ours, of which can be asked whether its process is gone.

        # Errors
        `MessageError` for what is no base64, `kvffi.Error` for a blob that cannot be used.
        """
        try:
            data = base64.b64decode(blob, validate=True)
        except ValueError:
            raise MessageError(BLOB, "the agent's blob is no base64") from None
        return self._agent.connect(data)

    def start(self, agent: str, peer: Mapped, answer: kvffi.Answer, request: str) -> Transfer:
        """Begins to write what an answer says."""
        known = self._peers.get(agent)
        if known is None:
            return self.foreign().start(agent, peer, answer)
        if agent in self._broken:
            # NIXL does not mend a connection that has failed; the worker behind it may well live.
            self._broken.discard(agent)
            self._agent.reconnect(known)
        return self._agent.start(known, answer, request=request)

    def failed(self, agent: str) -> None:
        """Notes that a transfer to a worker has failed."""
        if agent in self._peers:
            self._broken.add(agent)

    def declare_gone(self, agent: str) -> None:
        """Takes the caller's word that a worker's process has ended: what failed to reach it has settled.

        Of a worker of ours on the same host the agent sees it by itself.
        """
        known = self._peers.pop(agent, None)
        if known is not None:
            known.declare_gone()
        elif self._foreign is not None:
            self._foreign.declare_gone(agent)

    def close(self) -> None:
        """Takes the memory out of NIXL's hands.

        # Errors
        `kvffi.LeftUnsettled` if something may still land: the memory has to stay mapped.
        """
        if self._foreign is not None:
            self._foreign.close()
        self._agent.close()
