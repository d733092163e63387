"""The rendezvous: prefill workers say where they are, decode workers ask. It has the HTTP routes of SGLang."""

from __future__ import annotations

import http.client
import json
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from .errors import PeerError
from .lists import Place

PATIENCE = 5.0
"""Seconds until a request is given up."""


@dataclass(frozen=True)
class PrefillInfo:
    """What a decode engine learns of a prefill engine."""

    tp_size: int
    pp_size: int
    page_tokens: int | None
    dtype: str | None


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
    def endpoint(self) -> str:
        """For ZMQ."""
        return f"tcp://{self.host}:{self.port}"


class BootstrapServer:
    """Holds where the prefill workers of one engine are. Closes with `close`."""

    def __init__(self, host: str, port: int) -> None:
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
        self._dp_ranks: dict[str, int] = {}

    def get(self, path: str) -> tuple[int, Any]:
        url = urlsplit(path)
        if url.path == "/health":
            return 200, "OK"
        if url.path != "/route":
            return 404, "there is /route and /health"
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        try:
            key = int(query["target_tp_rank"]), int(query["target_pp_rank"])
        except (KeyError, ValueError):
            return 400, "give target_tp_rank and target_pp_rank"
        with self._lock:
            expected = self._engine.get("attn_tp_size", 0) * self._engine.get("pp_size", 0)
            if not self._ranks or len(self._ranks) < expected:
                return 503, f"{len(self._ranks)} of {expected} prefill workers are registered"
            if key == (-1, -1):
                return 200, self._engine
            rank = self._ranks.get(key)
        return (200, rank) if rank else (404, f"there is no rank {key}")

    def put(self, path: str, body: bytes) -> tuple[int, Any]:
        try:
            data = json.loads(body)
            return self._put(urlsplit(path).path, data)
        except (KeyError, TypeError, ValueError) as error:
            return 400, f"{type(error).__name__}: {error}"

    def _put(self, path: str, data: dict[str, Any]) -> tuple[int, Any]:
        with self._lock:
            if path == "/register_dp_rank":
                self._dp_ranks[str(int(data["bootstrap_room"]))] = int(data["dp_rank"])
                return 200, "OK"
            if path == "/query_dp_ranks":
                rooms = [str(int(room)) for room in data["bootstrap_rooms"]]
                return 200, {room: self._dp_ranks[room] for room in rooms if room in self._dp_ranks}
            engine = {
                "attn_tp_size": int(data["attn_tp_size"]),
                "attn_cp_size": int(data["attn_cp_size"]),
                "dp_size": int(data["system_dp_size"]),
                "pp_size": int(data["pp_size"]),
                "page_size": int(data["page_size"]),
                "kv_cache_dtype": data["kv_cache_dtype"],
                "follow_bootstrap_room": True,
            }
            if engine != self._engine:
                # An engine of another shape took the place of one that is gone.
                self._engine = engine
                self._ranks.clear()
            key = int(data["attn_tp_rank"]), int(data["pp_rank"])
            self._ranks[key] = {"rank_ip": data["rank_ip"], "rank_port": int(data["rank_port"])}
            if data.get("blob"):
                self._ranks[key]["blob"] = data["blob"]
        return 200, "OK"


def register(address: str, place: Place, host: str, port: int, page_tokens: int, dtype: str, blob: str) -> None:
    """Says where a prefill worker listens, and what its agent is.

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
        "blob": blob,
    }
    status, answer = _ask(address, "PUT", "/route", body)
    if status != 200:
        raise ConnectionError(f"the rendezvous at {address} answered {status}: {answer}")


def look_up(address: str) -> PrefillInfo | None:
    """What engine is behind an address; None while it is not complete, or not there."""
    try:
        status, answer = _ask(address, "GET", _route(-1, -1))
    except OSError:
        return None
    if status != 200:
        return None
    data = json.loads(answer)
    if int(data.get("attn_cp_size", 1)) != 1:
        raise PeerError("context parallelism of prefill attention", 1, data["attn_cp_size"])
    return PrefillInfo(
        int(data["attn_tp_size"]), int(data["pp_size"]), data.get("page_size"), data.get("kv_cache_dtype")
    )


def find(address: str, tp_rank: int, pp_rank: int) -> Rank:
    """Where a rank listens.

    # Errors
    `ConnectionError` if the rendezvous cannot be reached or has no such rank.
    """
    status, answer = _ask(address, "GET", _route(tp_rank, pp_rank))
    if status != 200:
        raise ConnectionError(f"the rendezvous at {address} answered {status}: {answer}")
    data = json.loads(answer)
    return Rank(tp_rank, pp_rank, str(data["rank_ip"]), int(data["rank_port"]), str(data.get("blob", "")))


def is_alive(address: str) -> bool:
    """Whether the rendezvous answers."""
    try:
        return _ask(address, "GET", "/health")[0] == 200
    except OSError:
        return False


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
    connection = http.client.HTTPConnection(address, timeout=PATIENCE)
    try:
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")
    except http.client.HTTPException as error:
        raise ConnectionError(f"{address} speaks no HTTP: {error!r}") from error
    finally:
        connection.close()
