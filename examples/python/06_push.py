"""Pushes a request from one process to another over NIXL, chunk by chunk as it is computed, and looks at every byte.

Prefill keeps each layer's pages apart, decode all layers' pages of a block together, as one row. A second request is
aborted midway: both sides have their blocks back, decode's once nothing is written into them any more.

    make wheel && pip install target/wheel/kvffi-*.whl numpy && pip install --no-deps 'nixl-cu12>=1.5.1'
    python3 examples/python/06_push.py
"""

from __future__ import annotations

import multiprocessing
import sys
from multiprocessing.connection import Connection

import numpy
from numpy.typing import NDArray

import kvffi

NUM_LAYERS, NUM_BLOCKS, PATIENCE = 4, 16, 20.0
# The blocks of a prompt at prefill, which computes them in three chunks, and at decode.
CHUNKS, SOURCE = [slice(0, 2), slice(2, 5), slice(5, 6)], [3, 9, 10, 11, 0, 14]
DESTINATIONS = {"request 1": [7, 8, 2, 0, 5, 6], "request 2": [9, 10, 11, 1, 3, 4]}


def page(layer: int, position: int) -> NDArray[numpy.uint8]:
    """What a layer stores for one block of the prompt: 64 tokens of 1,152 bytes."""
    return (numpy.arange(64 * 1152) % 251 + 7 * layer + 31 * position).astype(numpy.uint8).reshape(64, 1152)


class Prefill:
    """Computes requests, and writes them to who has reserved blocks for them."""

    def __init__(self, agent: kvffi.Agent, channel: Connection) -> None:
        self.caches = [numpy.zeros((NUM_BLOCKS, 64, 1152), numpy.uint8) for _ in range(NUM_LAYERS)]
        tensors = kvffi.Tensors(kvffi.Worker("org/model"))
        group = tensors.add_group(kvffi.Group(num_blocks=NUM_BLOCKS, block_tokens=64))
        for index, cache in enumerate(self.caches):
            tensors.add_tensor(tensors.add_layer(f"layers.{index}", kvffi.Page.mla("bf16"), group), cache, "BNC")
        spec = tensors.build()
        agent.register(spec)
        self.exchange = kvffi.Exchange(agent)
        channel.send_bytes(agent.export())
        self.pair = kvffi.Pair(spec, self.exchange.connect(channel.recv_bytes()).layout(), op="write")

    def serve(self, request: str, num_chunks: int) -> None:
        """Computes and writes so many chunks of a request; aborts it if there are more."""
        lease = self.exchange.hold(request, SOURCE, num_parts=len(CHUNKS))
        self.compute(0)
        self.exchange.ready(lease, 0)

        # Where decode wants it is said here alone. What is ready by then is written now, the rest once it is ready.
        wanted = {}
        for event in self.exchange.events(PATIENCE):
            if event.kind == "push" and event.peer is not None:
                push = kvffi.PushId(*event.peer, event.reservation)
                wanted[push] = event.lists
                self.write(push, event.lists, 0)
                break
        for part in range(1, num_chunks):
            self.compute(part)
            for push in self.exchange.ready(lease, part):
                self.write(push, wanted[push], part)

        if num_chunks < len(CHUNKS):
            self.exchange.abort(lease)
        freed = next(event for event in self.exchange.events(PATIENCE) if event.kind == "freed")
        print(f"prefill: {freed.request}: {freed.kind}: blocks {freed.blocks} {freed.why}", flush=True)

    def compute(self, part: int) -> None:
        """Fills a chunk of the prompt's blocks."""
        for position in range(NUM_BLOCKS)[CHUNKS[part]]:
            for layer, cache in enumerate(self.caches):
                cache[SOURCE[position]] = page(layer, position)

    def write(self, push: kvffi.PushId, lists: tuple[kvffi.BlockList, ...], part: int) -> None:
        """Writes a chunk: the same slice of both sides' blocks, which `first` gives its place in the prompt."""
        chunk = CHUNKS[part]
        local = [kvffi.BlockList(0, SOURCE[chunk], first=chunk.start)]
        remote = [kvffi.BlockList(each.group, each.blocks[chunk], first=chunk.start) for each in lists]
        answer = self.pair.answer(kvffi.Request("write", local=local, remote=remote))
        self.exchange.write(push, answer, part=part)
        print(f"prefill: part {part}: {answer.totals().num_descriptors} descriptors", flush=True)


def prefill(channel: Connection) -> None:
    """The other process."""
    with kvffi.Agent("prefill-0") as agent:
        worker = Prefill(agent, channel)
        with worker.exchange:
            worker.serve("request 1", len(CHUNKS))
            worker.serve("request 2", 1)
            # Nothing happens between two polls, and decode waits for word of its blocks.
            while not channel.poll():
                agent.wait_for_news(0.05)
                worker.exchange.poll()


def decode(channel: Connection) -> bool:
    """Reserves blocks for a request, and looks at them when they are its own again."""
    arrangement = kvffi.Arrangement(kvffi.Worker("org/model"))
    arrangement.add_pool(kvffi.Pool("blhnc", num_blocks=NUM_BLOCKS))
    group = arrangement.add_group(block_tokens=64)
    for index in range(NUM_LAYERS):
        arrangement.add_layer(f"layers.{index}", kvffi.Page.mla("bf16"), group)
    rows = numpy.zeros((NUM_BLOCKS, NUM_LAYERS, 64, 1152), numpy.uint8)
    expected = numpy.zeros_like(rows)
    for position, block in enumerate(DESTINATIONS["request 1"]):
        expected[block] = [page(layer, position) for layer in range(NUM_LAYERS)]

    wrong = 0
    with kvffi.Agent("decode-0") as agent:
        agent.register(arrangement.build([rows]))
        with kvffi.Exchange(agent) as exchange:
            channel.send_bytes(agent.export())
            peer = exchange.connect(channel.recv_bytes())
            for request, blocks in DESTINATIONS.items():
                exchange.reserve(request, blocks, [kvffi.PushSource(peer, {group: blocks})], deadline=PATIENCE)
                for event in exchange.events(PATIENCE):
                    what = event.error.name if event.error is not None else f"blocks {event.blocks}"
                    print(f"decode: {request}: {event.kind}: {what}", flush=True)
                    if event.kind == "returned_reservation":
                        # With any bytes: the first chunk may have landed.
                        rows[blocks] = 0
                    if event.blocks is not None:
                        break
                wrong += int(numpy.count_nonzero(rows != expected))
            channel.send("done")
    print(f"decode: {wrong} bytes wrong of {rows.size}")
    return wrong == 0


def main() -> int:
    """Starts the prefill worker as another process."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    worker = context.Process(target=prefill, args=(theirs,))
    worker.start()
    right = decode(ours)
    worker.join(PATIENCE)
    return 0 if right and worker.exitcode == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
