"""Words in place of the numbers of kvffi.h: "read" for KVFFI_OP_READ, and so on."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

from . import _declarations as c

Op = Literal["read", "write"]
Mem = Literal["dram", "vram"]
Usage = Literal["tokens", "state"]
Role = Literal["target", "draft", "indexer", "scratch"]
Sharding = Literal["replicated", "standard", "explicit"]
Kind = Literal[
    "opaque",
    "attention",
    "sliding_window",
    "chunked_local",
    "mla",
    "sliding_window_mla",
    "indexer",
    "circular_buffer",
    "ssm",
]
Element = Literal["default", "f32", "f16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8", "int4", "fp4_e2m1"]
Span = Literal["full", "window", "chunk"]
Rows = Literal["own", "bf16", "fp8"]
Packing = Literal["packed", "halves", "apart"]
Conv = Literal["channels_first", "rows_first"]
Fault = Literal["stall", "break", "lose_notifications"]
Locality = Literal["unknown", "same_host", "same_host_apart", "other_host"]
Barrier = Literal["user", "pid_namespace", "ipc_namespace", "uts_namespace"]
LogLevel = Literal["error", "warn", "info", "debug", "trace"]
LostReaders = Literal["release", "wait"]
Histogram = Literal["post", "transfer"]
Layout = Literal["lbhnc", "lbnhc", "lhbnc", "blhnc", "blnhc", "bhlnc"]


@cache
def words(prefix: str) -> dict[str, int]:
    """The words that begin with a prefix, such as "OP": {"read": 0, "write": 1}."""
    start = f"KVFFI_{prefix}_"
    return {name[len(start) :].lower(): value for name, value in vars(c).items() if name.startswith(start)}


def number(prefix: str, word: str) -> int:
    """The number of a word; `ValueError` with those that there are if it is none."""
    known = words(prefix)
    if not isinstance(word, str) or word not in known:
        raise ValueError(f"{prefix.lower()} is {word!r}, not one of {', '.join(known)}")
    return known[word]


def word(prefix: str, value: int) -> Any:
    """The word of a number; "unknown" for one of a newer library."""
    return next((name for name, known in words(prefix).items() if known == value), "unknown")


def flagged(prefix: str, flags: int) -> Any:
    """The words of the flags that are set."""
    return tuple(name for name, flag in words(prefix).items() if flags & flag)
