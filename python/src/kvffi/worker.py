"""Which model a worker serves and which rank it is, and what specs are built from."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, field

from . import _declarations as c
from ._checked import text
from ._names import Mem, Usage, number


@dataclass(frozen=True)
class Worker:
    """Which model a worker serves, and its ranks.

    `extra` is what else peers must have alike, such as the attention backend. With decode context parallelism
    `dcp_rank` is `tp_rank` mod `dcp_size`, and `dcp_interleave` the number of tokens that are dealt together; 0 deals
    whole blocks.
    """

    model: str
    revision: str = ""
    extra: Mapping[str, str] = field(default_factory=dict)
    tp_rank: int = 0
    tp_size: int = 1
    pp_rank: int = 0
    pp_size: int = 1
    dcp_rank: int = 0
    dcp_size: int = 1
    dcp_interleave: int = 0

    def _struct(self) -> c.Worker:
        extra = [(text(key, "a key of extra"), text(value, key)) for key, value in self.extra.items()]
        pairs = (c.KeyValue * len(extra))(*(c.KeyValue(key=key, value=value) for key, value in extra))
        for name in ("tp_size", "pp_size", "dcp_size"):
            if getattr(self, name) == 0:
                raise ValueError(f"{name} is 0: it is the number of ranks, at least 1")
        struct = c.Worker(
            model=text(self.model, "model"),
            revision=text(self.revision, "revision"),
            extra=ctypes.addressof(pairs) if len(pairs) else None,
            num_extra=len(pairs),
            tp_rank=self.tp_rank,
            tp_size=self.tp_size,
            pp_rank=self.pp_rank,
            pp_size=self.pp_size,
            dcp_rank=self.dcp_rank,
            dcp_size=self.dcp_size,
            dcp_interleave=self.dcp_interleave,
        )
        struct.keep = pairs
        return struct


@dataclass(frozen=True)
class Storage:
    """One allocation: address and length in bytes, and where it is.

    `shared`: several TP ranks map the same physical memory; only TP rank 0 registers and fills it.
    """

    base: int
    len: int
    mem: Mem = "dram"
    device: int = 0
    shared: bool = False

    def _struct(self) -> c.Storage:
        flags = c.KVFFI_STORAGE_SHARED if self.shared else 0
        return c.Storage(base=self.base, len=self.len, mem=number("MEM", self.mem), device=self.device, flags=flags)


@dataclass(frozen=True)
class Group:
    """Layers that share a block table.

    `pool` is the set of block ids that the group draws from: groups of one pool may overlay each other's bytes.
    `block_tokens` is ignored for blocks that hold one request's state.
    """

    num_blocks: int
    block_tokens: int = 0
    pool: int = 0
    usage: Usage = "tokens"

    def _struct(self) -> c.Group:
        return c.Group(
            block_tokens=self.block_tokens,
            num_blocks=self.num_blocks,
            pool=self.pool,
            usage=number("USAGE", self.usage),
        )
