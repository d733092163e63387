"""The rendezvous: prefill workers say where they are, decode workers ask. It has the HTTP routes of SGLang."""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from . import addresses
from .bootstrap import MOST_BYTES, MOST_RANKS, PATIENCE, cut_after

KEPT = 60.0
"""Seconds for which a client may keep its connection."""
MOST_CONNECTIONS = 256
"""Connections that are served at once. While more than half of them are there, none is kept for another request."""
NUMBER = re.compile("[0-9]{1,18}")
"""A length, as HTTP has it."""
ONE_GROUP = ("attn_cp_size", "attn_dp_size", "system_dp_size")
"""Sizes of a registration that have to be 1: the workers of several groups would have the same ranks."""

log = logging.getLogger(__name__)


class BootstrapServer:
    """Holds where the prefill workers of one engine are. Closes with `close`.

    # Errors
    `AddressError` for an IPv6 address, or a port that nobody could know; `OSError` if it cannot be listened on.
    """

    def __init__(self, host: str, port: int) -> None:
        addresses.host("host of the rendezvous", host)
        addresses.port("port of the rendezvous", port)
        self._server = _Server((host, port))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(PATIENCE)


class _Server(ThreadingHTTPServer):
    """Serves so many connections at once; others wait until one of them ends."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = MOST_CONNECTIONS

    def __init__(self, address: tuple[str, int]) -> None:
        self.table = _Table()
        self._num_connections = 0
        self._ended = threading.Condition()
        super().__init__(address, _Handler)

    def is_crowded(self) -> bool:
        """Whether so many are served that none is kept."""
        with self._ended:
            return 2 * self._num_connections > MOST_CONNECTIONS

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._ended:
            if not self._ended.wait_for(lambda: self._num_connections < MOST_CONNECTIONS, PATIENCE):
                log.warning("%d clients are served and none has ended: one is turned away", MOST_CONNECTIONS)
                self.shutdown_request(request)
                return
            self._num_connections += 1
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._one_ended()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._one_ended()

    def _one_ended(self) -> None:
        with self._ended:
            self._num_connections -= 1
            self._ended.notify()


class _Handler(BaseHTTPRequestHandler):
    """One connection: some requests, and none that takes long or brings much."""

    protocol_version = "HTTP/1.1"
    server: _Server

    def handle(self) -> None:
        self._end = time.monotonic() + KEPT
        self.connection.settimeout(PATIENCE)
        # A timeout is one for each byte.
        cut = cut_after(KEPT + PATIENCE, self.connection, threading.Event())
        try:
            super().handle()
        finally:
            cut.cancel()

    def do_GET(self) -> None:  # noqa: N802
        self._reply(*self.server.table.get(self.path))

    def do_PUT(self) -> None:  # noqa: N802
        said = self.headers.get("Content-Length")
        if said is None:
            self._reply(411, "give the length of the body", closes=True)
        elif not NUMBER.fullmatch(said):
            self._reply(400, f"Content-Length is {said!r:.40}; give a number of bytes", closes=True)
        elif int(said) > MOST_BYTES:
            self._reply(413, f"the body has {said} bytes; {MOST_BYTES} are taken", closes=True)
        else:
            self.connection.settimeout(PATIENCE)
            self._reply(*self.server.table.put(self.path, self.rfile.read(int(said))))

    def do_POST(self) -> None:  # noqa: N802
        self.do_PUT()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, ARG002
        """Says nothing."""

    def _reply(self, status: int, answer: Any, *, closes: bool = False) -> None:
        data = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain" if isinstance(answer, str) else "application/json")
        self.send_header("Content-Length", str(len(data)))
        if closes or time.monotonic() > self._end or self.server.is_crowded():
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)
        self.connection.settimeout(KEPT)


class _Table:
    """What the workers said; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._engine: dict[str, Any] = {}
        self._ranks: dict[tuple[int, int], dict[str, Any]] = {}

    def get(self, path: str) -> tuple[int, Any]:
        url = urlsplit(path)
        if url.path == "/health":
            return 200, "OK"
        if url.path != "/route":
            return 404, "there is /route and /health"
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        try:
            key = int(query["target_tp_rank"]), int(query["target_pp_rank"])
            group = int(query.get("prefill_dp_rank", 0)), int(query.get("prefill_cp_rank", 0))
        except (KeyError, ValueError):
            return 400, "give target_tp_rank and target_pp_rank"
        with self._lock:
            expected = self._engine.get("attn_tp_size", 0) * self._engine.get("pp_size", 0)
            if not self._ranks or len(self._ranks) < expected:
                return 503, f"{len(self._ranks)} of {expected} prefill workers are registered"
            if key == (-1, -1):
                return 200, self._engine
            rank = self._ranks.get(key) if group == (0, 0) else None
        return (200, rank) if rank else (404, f"there is no rank {key} of group {group}")

    def put(self, path: str, body: bytes) -> tuple[int, Any]:
        try:
            return self._put(urlsplit(path).path, json.loads(body))
        except (KeyError, TypeError, ValueError) as error:
            return 400, f"{type(error).__name__}: {error}"

    def _put(self, path: str, data: dict[str, Any]) -> tuple[int, Any]:
        if path != "/route":
            return 404, "there is /route"
        for size in ONE_GROUP:
            if int(data[size]) != 1:
                return 400, f"{size} is {data[size]}; only 1 is served"
        for rank, size in (("attn_tp_rank", "attn_tp_size"), ("pp_rank", "pp_size")):
            if not 0 <= int(data[rank]) < int(data[size]):
                return 400, f"{rank} is {data[rank]}; give a rank of {data[size]}"
        if (num_ranks := int(data["attn_tp_size"]) * int(data["pp_size"])) > MOST_RANKS:
            return 400, f"the engine has {num_ranks} workers; {MOST_RANKS} are taken"
        with self._lock:
            engine = {
                "attn_tp_size": int(data["attn_tp_size"]),
                "attn_cp_size": int(data["attn_cp_size"]),
                "dp_size": int(data["system_dp_size"]),
                "pp_size": int(data["pp_size"]),
                "page_size": int(data["page_size"]),
                "kv_cache_dtype": data["kv_cache_dtype"],
                "follow_bootstrap_room": True,
            }
            if data.get("kv_layout") is not None:
                engine["kv_layout"] = str(data["kv_layout"])
            if engine != self._engine:
                # An engine of another shape took the place of one that is gone.
                self._engine = engine
                self._ranks.clear()
            key = int(data["attn_tp_rank"]), int(data["pp_rank"])
            self._ranks[key] = {"rank_ip": data["rank_ip"], "rank_port": int(data["rank_port"])}
            if data.get("blob"):
                self._ranks[key]["blob"] = data["blob"]
        return 200, "OK"
