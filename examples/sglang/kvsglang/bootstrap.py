"""The rendezvous: prefill workers say where they are, decode workers ask. It has the HTTP routes of SGLang."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from . import addresses
from .errors import MessageError
from .lists import Place

PATIENCE = 5.0
"""Seconds until a request is given up, however slowly its answer comes."""
MOST_BYTES = 1 << 20
"""Length of an answer beyond which it is none."""
MOST_RANKS = 1 << 16
"""Prefill workers of an engine."""
UNDERSTOOD: dict[str, Any] = {
    "dsv41_spec_layout": None,
    "enable_dsa_cache_layer_split": False,
    "enable_kv_cache_sharding": False,
    "decode_allocation_policy": "early",
}
"""Settings of a prefill engine that say where its workers have what, or when they want to know where it goes. Nothing
here follows them, so a decode worker takes no others than these."""
ONE_GROUP = ("attn_cp_size", "attn_dp_size", "system_dp_size")
"""Sizes of a registration that have to be 1: the workers of several groups would have the same ranks."""


@dataclass(frozen=True)
class PrefillInfo:
    """What a decode engine learns of a prefill engine."""

    tp_size: int
    pp_size: int
    page_tokens: int | None
    dtype: str | None
    cp_size: int = 1
    """Ranks of context parallelism of its attention."""
    dp_size: int = 1
    """Its groups of data parallelism."""
    kv_layout: str | None = None
    """How the bytes of its pages are laid out, where a cache has several ways."""
    follow_bootstrap_room: bool = True
    """Whether a request's number says which of its groups serves it: SGLang's scheduler looks at it."""
    unserved: tuple[tuple[str, str], ...] = ()
    """Those of `UNDERSTOOD` that are set to something else, and to what."""


@dataclass(frozen=True)
class Rank:
    """Where one prefill worker listens."""

    tp_rank: int
    pp_rank: int
    host: str
    port: int
    blob: str = ""
    """The worker's agent, if it is one of ours."""

    @property
    def is_ours(self) -> bool:
        """Whether it reads what ours add to SGLang's messages."""
        return bool(self.blob)

    @property
    def address(self) -> str:
        """``host:port``."""
        return f"{self.host}:{self.port}"

    @property
    def endpoint(self) -> str:
        """For ZMQ."""
        return f"tcp://{self.address}"


class BootstrapServer:
    """Holds where the prefill workers of one engine are. Closes with `close`.

    # Errors
    `AddressError` for an IPv6 address, or a port that nobody could know; `OSError` if it cannot be listened on.
    """

    def __init__(self, host: str, port: int) -> None:
        addresses.host("host of the rendezvous", host)
        addresses.port("port of the rendezvous", port)
        table = _Table()

        class Handler(BaseHTTPRequestHandler):
            """One request."""

            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:  # noqa: N802
                self._reply(*table.get(self.path))

            def do_PUT(self) -> None:  # noqa: N802
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self._reply(*table.put(self.path, body))

            def do_POST(self) -> None:  # noqa: N802
                self.do_PUT()

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, ARG002
                """Says nothing."""

            def _reply(self, status: int, answer: Any) -> None:
                data = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "text/plain" if isinstance(answer, str) else "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        class Server(ThreadingHTTPServer):
            """Does not wait for clients that keep their connection."""

            daemon_threads = True
            block_on_close = False

        self._server = Server((host, port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(PATIENCE)


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


def register(
    address: str,
    place: Place,
    host: str,
    port: int,
    page_tokens: int,
    dtype: str,
    blob: str,
    kv_layout: str | None = None,
) -> None:
    """Says where a prefill worker listens, what its pages are and what its agent is.

    # Errors
    `ConnectionError` if the rendezvous cannot be reached or refuses.
    """
    body = {
        "attn_tp_size": place.tp_size,
        "attn_tp_rank": place.tp_rank,
        "attn_cp_size": 1,
        "attn_cp_rank": 0,
        "attn_dp_size": 1,
        "attn_dp_rank": 0,
        "pp_size": place.pp_size,
        "pp_rank": place.pp_rank,
        "system_dp_size": 1,
        "system_dp_rank": 0,
        "rank_ip": host,
        "rank_port": port,
        "page_size": page_tokens,
        "kv_cache_dtype": dtype,
        "kv_layout": kv_layout,
        "blob": blob,
    }
    status, answer = _ask(address, "PUT", "/route", body)
    if status != 200:
        raise ConnectionError(f"the rendezvous at {address} answered {status}: {answer}")


def look_up(address: str) -> PrefillInfo | None:
    """What engine is behind an address; None while it is not complete, or not there.

    # Errors
    `MessageError` for an answer that describes none.
    """
    try:
        status, answer = _ask(address, "GET", _route(-1, -1))
    except OSError:
        return None
    if status != 200:
        return None
    data = _Answer(address, answer)
    tp_size, pp_size = data.number("attn_tp_size", 1, MOST_RANKS), data.number("pp_size", 1, MOST_RANKS)
    if tp_size * pp_size > MOST_RANKS:
        raise data.wrong("attn_tp_size", f"{tp_size} times {pp_size} stages are more than {MOST_RANKS} workers")
    return PrefillInfo(
        tp_size,
        pp_size,
        data.number("page_size", 1, 1 << 31) if data.has("page_size") else None,
        data.text("kv_cache_dtype") if data.has("kv_cache_dtype") else None,
        data.number("attn_cp_size", 1, MOST_RANKS) if data.has("attn_cp_size") else 1,
        data.number("dp_size", 1, MOST_RANKS) if data.has("dp_size") else 1,
        data.text("kv_layout") if data.has("kv_layout") else None,
        data.flag("follow_bootstrap_room") if data.has("follow_bootstrap_room") else True,
        data.others(UNDERSTOOD),
    )


def find(address: str, tp_rank: int, pp_rank: int) -> Rank:
    """Where a rank listens.

    # Errors
    `OSError` if the rendezvous cannot be reached or has no such rank, `MessageError` for an answer that is none.
    """
    status, answer = _ask(address, "GET", _route(tp_rank, pp_rank))
    if status != 200:
        raise ConnectionError(f"the rendezvous at {address} answered {status}: {answer[:200]}")
    data = _Answer(address, answer)
    blob = data.text("blob") if data.has("blob") else ""
    host = data.text("rank_ip")
    if not host or ":" in host:
        raise data.wrong("rank_ip", f"{host!r:.40} is neither an IPv4 address nor the name of a host")
    return Rank(tp_rank, pp_rank, host, data.number("rank_port", 1, addresses.HIGHEST_PORT), blob)


def is_alive(address: str) -> bool:
    """Whether the rendezvous answers."""
    try:
        return _ask(address, "GET", "/health")[0] == 200
    except OSError:
        return False


class _Answer:
    """A JSON object of a rendezvous."""

    def __init__(self, address: str, answer: str) -> None:
        self._name = f"answer of the rendezvous at {address}"
        try:
            data = json.loads(answer)
        except (ValueError, RecursionError):
            data = None
        if not isinstance(data, dict):
            raise MessageError(self._name, f"{answer[:40]!r} is no JSON object")
        self._data = data

    def has(self, key: str) -> bool:
        return self._data.get(key) is not None

    def number(self, key: str, lowest: int, highest: int) -> int:
        value = self._data.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= highest:
            raise self.wrong(key, f"{value!r:.40} is no number from {lowest} to {highest}")
        return value

    def text(self, key: str) -> str:
        value = self._data.get(key)
        if not isinstance(value, str):
            raise self.wrong(key, f"{value!r:.40} is no text")
        return value

    def flag(self, key: str) -> bool:
        value = self._data.get(key)
        if not isinstance(value, bool):
            raise self.wrong(key, f"{value!r:.40} is neither true nor false")
        return value

    def others(self, understood: dict[str, Any]) -> tuple[tuple[str, str], ...]:
        """What is set to something else than that."""
        return tuple(
            (key, f"{self._data[key]!s:.80}")
            for key, value in understood.items()
            if self.has(key) and self._data[key] != value
        )

    def wrong(self, key: str, problem: str) -> MessageError:
        return MessageError(self._name, f"{key}: {problem}")


def _route(tp_rank: int, pp_rank: int) -> str:
    group = 0 if tp_rank >= 0 else -1
    query = {
        "prefill_dp_rank": group,
        "prefill_cp_rank": group,
        "target_tp_rank": tp_rank,
        "target_pp_rank": pp_rank,
    }
    return "/route?" + urlencode(query)


def _ask(address: str, method: str, path: str, body: Any = None) -> tuple[int, str]:
    late = threading.Event()
    with ExitStack() as done:
        try:
            connection = http.client.HTTPConnection(address, timeout=PATIENCE)
            done.callback(connection.close)
            connection.connect()
            done.callback(_cut_after(PATIENCE, connection.sock, late).cancel)
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            content = answer.read(MOST_BYTES + 1)
        except (http.client.HTTPException, OSError, ValueError, OverflowError) as error:
            if late.is_set():
                raise ConnectionError(f"{address} did not answer in {PATIENCE} s") from error
            raise ConnectionError(f"{address} does not answer: {type(error).__name__}: {error}") from error
    if late.is_set() or len(content) > MOST_BYTES:
        raise ConnectionError(f"{address} did not answer in {PATIENCE} s and {MOST_BYTES} bytes")
    return answer.status, content.decode(errors="replace")


def _cut_after(seconds: float, connected: socket.socket, late: threading.Event) -> threading.Timer:
    """Ends a connection some time from now: its own timeout is one for each byte."""

    def cut() -> None:
        late.set()
        with suppress(OSError):
            connected.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, cut)
    timer.daemon = True
    timer.start()
    return timer
