"""Moves what the planner says, through one `kvffi.Agent`, to workers of ours and to those that know only NIXL."""

from __future__ import annotations

import base64
import ctypes
import uuid
from typing import Any, Literal

import kvffi

from .errors import MessageError
from .messages import Registration
from .options import Options

BLOB = "blob"
"""Where our workers' description has the agent's blob."""


class Transport:
    """One worker's end of all transfers, with its memory registered."""

    def __init__(self, spec: kvffi.Spec, options: Options) -> None:
        self.name = str(uuid.uuid4())
        limits = kvffi.Limits(
            request_bytes=options.most_bytes,
            outstanding_requests=options.most_posts,
            in_flight_bytes=options.most_in_flight,
        )
        self._agent = kvffi.Agent(self.name, nixl=kvffi.NixlOptions(backend=options.backend), limits=limits)
        self._agent.register(spec)
        self._peers: dict[str, kvffi.Peer] = {}
        self._broken: set[str] = set()

    def blob(self) -> str:
        """What workers of ours need to reach this one's memory."""
        return base64.b64encode(self._agent.export()).decode()

    def nixl_name(self) -> str:
        """This worker's name for those that know only NIXL."""
        return self._agent.nixl_name()

    def nixl_metadata(self) -> bytes:
        """What those need to reach this worker's memory."""
        return self._agent.nixl_metadata()

    def connect(self, said: Registration, layout: kvffi.Spec) -> None:
        """Makes a decode worker reachable, once; `layout` is what it said of its caches.

        # Errors
        `MessageError` for a description without a blob, `kvffi.Error` for one that cannot be used.
        """
        if said.agent in self._peers:
            return
        if said.mapped is None:
            self._peers[said.agent] = self._agent.connect_foreign(said.agent, said.metadata, layout)
        else:
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

    def start(self, agent: str, what: kvffi.Answer | ctypes.Array[Any], request: str) -> kvffi.Transfer:
        """Begins to write what an answer says, or its descriptors. Nothing is done for each of them in Python."""
        peer = self._peers[agent]
        if agent in self._broken:
            # NIXL does not mend a connection that has failed; the worker behind it may well live.
            self._agent.reconnect(peer)
            self._broken.discard(agent)
        op: Literal["write"] | None = None if isinstance(what, kvffi.Answer) else "write"
        return self._agent.start(peer, what, op=op, request=request)

    def wait(self, seconds: float) -> None:
        """Waits until a transfer ends, or for so long; the GIL is free."""
        self._agent.wait_for_news(seconds)

    def failed(self, agent: str) -> None:
        """Notes that a transfer to a worker has failed."""
        if agent in self._peers:
            self._broken.add(agent)

    def is_gone(self, agent: str) -> bool:
        """Whether a worker's process has ended for certain: seen of ours on the same host, and declared of others."""
        peer = self._peers.get(agent)
        return peer is not None and peer.info().is_gone

    def is_broken(self, agent: str) -> bool:
        """Whether the last that was written to a worker failed."""
        return agent in self._broken

    def drop(self, agent: str) -> bool:
        """Lets a worker go; false if something on its way to it has not settled."""
        peer = self._peers.get(agent)
        if peer is None or self.unwatch(peer):
            self._peers.pop(agent, None)
            self._broken.discard(agent)
            return True
        return False

    def unwatch(self, peer: kvffi.Peer) -> bool:
        """Lets a peer go; false if something on its way to it has not settled."""
        try:
            self._agent.disconnect(peer)
        except kvffi.InUse:
            return False
        except kvffi.PeerGone:
            pass
        return True

    def declare_gone(self, agent: str) -> None:
        """Takes the caller's word that a worker's process has ended: what failed to reach it settles.

        It is there until it is dropped. Of a worker of ours on the same host the agent sees it by itself.
        """
        peer = self._peers.get(agent)
        if peer is not None:
            peer.declare_gone()

    def close(self) -> None:
        """Takes the memory out of NIXL's hands.

        # Errors
        `kvffi.LeftUnsettled` if something may still land: the memory has to stay mapped.
        """
        self._agent.close()
