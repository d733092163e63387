"""Moves three blocks from one process to another over NIXL, and looks at every byte.

    make wheel && pip install target/wheel/kvffi-*.whl numpy && pip install --no-deps 'nixl-cu12>=1.5.1'
    python3 examples/python/03_transfer.py

NIXL is found in the wheel `nixl-cu12` by itself.
"""

import multiprocessing
import sys
from multiprocessing.connection import Connection

import numpy
from numpy.typing import NDArray

import kvffi

NUM_BLOCKS, PATIENCE = 10, 20.0


def describe(cache: NDArray[numpy.uint8]) -> kvffi.Spec:
    """One MLA layer of 1,152 bytes a token, in blocks of 64 tokens."""
    tensors = kvffi.Tensors(kvffi.Worker("org/model"))
    group = tensors.add_group(kvffi.Group(num_blocks=NUM_BLOCKS, block_tokens=64))
    layer = tensors.add_layer("layers.0", kvffi.Page.mla("bf16"), group)
    tensors.add_tensor(layer, cache, "BNC")
    return tensors.build()


def prefilled() -> NDArray[numpy.uint8]:
    """The cache of the prefill worker: a byte says where it is."""
    places = numpy.arange(NUM_BLOCKS * 64 * 1152, dtype=numpy.uint64)
    return (places % 251 + places // (64 * 1152)).astype(numpy.uint8).reshape(NUM_BLOCKS, 64, 1152)


def prefill(channel: Connection) -> None:
    """Offers its cache, and waits until the other has what it wants."""
    with kvffi.Agent("prefill-0") as agent:
        agent.register(describe(prefilled()))
        channel.send_bytes(agent.export())
        arrived = next(agent.listen(PATIENCE), None)
        channel.send(arrived is not None and arrived.message == b"request 1")


def decode(channel: Connection) -> bool:
    """Reads the blocks 1, 2 and 8 there into 5, 6 and 9 here."""
    cache = numpy.zeros((NUM_BLOCKS, 64, 1152), numpy.uint8)
    spec = describe(cache)
    with kvffi.Agent("decode-0") as agent:
        agent.register(spec)
        if not channel.poll(PATIENCE):
            return False
        peer = agent.connect(channel.recv_bytes())
        pair = kvffi.Pair(spec, peer.layout())
        request = kvffi.Request("read", local={0: [5, 6, 9]}, remote={0: [1, 2, 8]})
        transfer = agent.start(peer, pair.answer(request), notify=b"request 1", deadline=PATIENCE)
        transfer.wait()
        stats = transfer.stats()
        print(f"{stats.bytes} bytes in {stats.descriptors} descriptors from {peer.info().name}")
    expected = numpy.zeros_like(cache)
    expected[[5, 6, 9]] = prefilled()[[1, 2, 8]]
    print(f"{numpy.count_nonzero(cache != expected)} bytes wrong of {cache.size}")
    return bool((cache == expected).all()) and channel.poll(PATIENCE) and bool(channel.recv())


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
