"""The control socket of a worker: messages in by a thread, messages out by cached connections."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import zmq

from .errors import IntegrationError
from .messages import Frames

SEND_TIMEOUT_MS = 5000
POLL_MS = 50
LOOK = 1.0
"""Seconds between two calls of `look`."""
SPARE = 64
"""Connections beside those that a worker is to keep."""
LINGER_MS = 300
"""What was sent and is not out when a connection is dropped still goes for so long: it may be what frees pages."""

log = logging.getLogger(__name__)


class ControlSocket:
    """Receives on a port of its own and calls a handler, on a thread of its own. Closes with `close`.

    `look` is called on that thread now and then, whatever comes. Connections are kept to `most` others and to some that
    are told once that they are too many; the one that was used least lately goes for a new one.
    """

    def __init__(
        self, host: str, handle: Callable[[Frames], None], look: Callable[[], None] | None = None, *, most: int
    ) -> None:
        self.host = host
        self._handle, self._look = handle, look
        self._context = zmq.Context()
        sockets = self._context.get(zmq.SOCKET_LIMIT)
        self._context.set(zmq.MAX_SOCKETS, sockets)
        # Half of them are left to those that are being dropped.
        self._most = min(most + SPARE, sockets // 2)
        self._incoming = self._context.socket(zmq.PULL)
        self._incoming.setsockopt(zmq.LINGER, 0)
        self.port = int(self._incoming.bind_to_random_port(f"tcp://{host}"))
        # In the order in which they were used last.
        self._outgoing: dict[str, zmq.Socket[bytes]] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._receive, daemon=True, name="control socket")

    def start(self) -> None:
        """Begins to receive: once the handler may be called."""
        self._thread.start()

    def send(self, endpoint: str, frames: Frames) -> None:
        """Sends to ``tcp://host:port``; messages over one connection arrive in order, or not at all if the end is gone.

        # Errors
        `ConnectionError` if the endpoint takes nothing for some seconds, or is no address.
        """
        with self._lock:
            try:
                socket = self._outgoing.pop(endpoint, None)
                if socket is None:
                    socket = self._connect(endpoint)
                self._outgoing[endpoint] = socket
                socket.send_multipart(frames)
            except (zmq.ZMQError, ValueError) as error:
                self._drop(endpoint)
                raise ConnectionError(f"cannot send to {endpoint}: {error}") from error

    def forget(self, endpoint: str) -> None:
        """Drops the connection to an endpoint that is gone."""
        with self._lock:
            self._drop(endpoint)

    def close(self) -> None:
        """Stops the thread and drops all connections, after a moment for what is on its way."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()
        with self._lock:
            for endpoint in list(self._outgoing):
                self._drop(endpoint)
        self._incoming.close()
        self._context.term()

    def _connect(self, endpoint: str) -> zmq.Socket[bytes]:
        while len(self._outgoing) >= self._most:
            self._drop(next(iter(self._outgoing)))
        socket = self._context.socket(zmq.PUSH)
        try:
            socket.setsockopt(zmq.LINGER, LINGER_MS)
            socket.setsockopt(zmq.SNDTIMEO, SEND_TIMEOUT_MS)
            socket.connect(endpoint)
        except BaseException:
            socket.close()
            raise
        return socket

    def _drop(self, endpoint: str) -> None:
        socket = self._outgoing.pop(endpoint, None)
        if socket is not None:
            socket.close()

    def _receive(self) -> None:
        looked = time.monotonic()
        while not self._closed.is_set():
            if self._incoming.poll(POLL_MS):
                self._take(self._incoming.recv_multipart())
            if self._look is not None and time.monotonic() - looked >= LOOK:
                try:
                    self._look()
                except Exception:
                    log.exception("a look at who is there failed")
                looked = time.monotonic()

    def _take(self, frames: Frames) -> None:
        try:
            self._handle(frames)
        except IntegrationError as error:
            # Anybody can send anything here: what cannot be read changes nothing.
            log.warning("dropped a message: %s", error)
        except Exception:
            log.exception("a message could not be handled")
