"""Reads blocks under a lease: they count once the lease is confirmed, and then the producer has its own back.

A second request is held and nobody comes: its lease expires, and who comes late is told not to use what it read. Both
workers are in this process, over a loopback that needs no NIXL.

    make wheel && pip install target/wheel/kvffi-*.whl numpy && python3 examples/python/05_leases.py
"""

from __future__ import annotations

import time

import numpy
from numpy.typing import NDArray

import kvffi


class Worker:
    """An agent and its exchange, over a cache of four blocks."""

    def __init__(self, name: str, network: kvffi.Loopback, byte: int) -> None:
        self.name = name
        self.cache: NDArray[numpy.uint8] = numpy.full((4, 64, 1152), byte, numpy.uint8)
        tensors = kvffi.Tensors(kvffi.Worker("org/model"))
        group = tensors.add_group(kvffi.Group(num_blocks=4, block_tokens=64))
        tensors.add_tensor(tensors.add_layer("layers.0", kvffi.Page.mla("bf16"), group), self.cache, "BNC")
        self.spec = tensors.build()
        self.agent = kvffi.Agent(name, loopback=network)
        self.agent.register(self.spec)
        self.exchange = kvffi.Exchange(self.agent, kvffi.ExchangeOptions(lease_ttl=3))

    def pull(self, peer: kvffi.Peer, request: str, lease: int, block: int) -> None:
        """Reads one block; the block is what comes back with the events."""
        pair = kvffi.Pair(self.spec, peer.layout())
        answer = pair.answer(kvffi.Request("read", local={0: [block]}, remote={0: [block]}))
        self.exchange.pull([block], [kvffi.PullPart(peer, request, lease, answer)], deadline=5)

    def take(self) -> int:
        """Says what has happened; how often blocks changed hands."""
        changes = 0
        for event in self.exchange.poll():
            if event.error is not None:
                print(f"{self.name}: {event.kind}: {event.error.name}")
            if event.blocks is not None:
                print(f"{self.name}: {event.kind}: blocks {event.blocks}", event.why or "")
                changes += 1
        return changes


def follow(workers: list[Worker], changes: int) -> None:
    """Waits until blocks have changed hands so often."""
    end = time.monotonic() + 10
    while changes > 0 and time.monotonic() < end:
        for worker in workers:
            worker.agent.wait_for_news(0.01)
            changes -= worker.take()


with kvffi.Loopback() as network:
    prefill, decode = Worker("prefill", network, 7), Worker("decode", network, 0)
    peer = decode.exchange.connect(prefill.agent.export())
    prefill.exchange.connect(decode.agent.export())

    lease = prefill.exchange.hold("request 1", [1], readers=1)
    decode.pull(peer, "request 1", lease, 1)
    follow([prefill, decode], 2)
    print("first bytes of decode's blocks:", decode.cache[:, 0, 0].tolist())

    lease = prefill.exchange.hold("request 2", [2], readers=1)
    follow([prefill], 1)
    decode.pull(peer, "request 2", lease, 2)
    follow([prefill, decode], 1)

    for worker in (decode, prefill):
        worker.exchange.close()
        worker.agent.close()
