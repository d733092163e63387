"""What workers say to a rendezvous, and ask of it: where the prefill workers of an engine are."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from . import addresses
from .errors import MessageError
from .lists import Place

PATIENCE = 5.0
"""Seconds until a request is given up, however slowly its answer comes."""
MOST_BYTES = 1 << 20
"""Length of an answer, or of a registration, beyond which it is none."""
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
            done.callback(cut_after(PATIENCE, connection.sock, late).cancel)
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            content = answer.read(MOST_BYTES + 1)
        except (http.client.HTTPException, OSError, ValueError, OverflowError) as error:
            # The connection's own timeout is as long: what it says first is the same.
            if late.is_set() or isinstance(error, TimeoutError):
                raise ConnectionError(f"{address} did not answer in {PATIENCE} s") from error
            raise ConnectionError(f"{address} does not answer: {type(error).__name__}: {error}") from error
    if late.is_set() or len(content) > MOST_BYTES:
        raise ConnectionError(f"{address} did not answer in {PATIENCE} s and {MOST_BYTES} bytes")
    return answer.status, content.decode(errors="replace")


def cut_after(seconds: float, connected: socket.socket, late: threading.Event) -> threading.Timer:
    """Ends a connection some time from now: its own timeout is one for each byte."""

    def cut() -> None:
        late.set()
        with suppress(OSError):
            connected.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, cut)
    timer.daemon = True
    timer.start()
    return timer
