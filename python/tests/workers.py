"""Workers of one process, with agents on a loopback."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy

import kvffi

# Bytes of a block: three layers of 64 tokens.
ROW = 3 * 64 * 1152
PATIENCE = 20.0


@dataclass
class Worker:
    agent: kvffi.Agent
    spec: kvffi.Spec
    cache: numpy.ndarray[Any, numpy.dtype[numpy.uint8]]


def worker(name: str, network: kvffi.Loopback, byte: int, **options: Any) -> Worker:
    """A worker whose cache is full of a byte."""
    arrangement = kvffi.Arrangement(kvffi.Worker("org/model"))
    arrangement.add_pool(kvffi.Pool("blhnc", 16))
    group = arrangement.add_group(64)
    for layer in range(3):
        arrangement.add_layer(f"layers.{layer}", kvffi.Page.mla(), group)
    (length,) = arrangement.storage_lens()
    cache = numpy.full((16, length // 16), byte, numpy.uint8)
    spec = arrangement.build([cache])
    agent = kvffi.Agent(name, loopback=network, **options)
    agent.register(spec)
    return Worker(agent, spec, cache)
