"""What it takes to describe 99 cache views over one allocation and to register them: `Tensors` and `Agent.register`.

    make wheel && KVFFI_LIBRARY=target/release/libkvffi.so scripts/python.sh python/bench/register.py

The views are those of a model with 78 MLA layers and 21 indexers, in rows of one allocation of 43.8 GB, of which no
page is touched. Once with a page of each kind for all its layers, once with a page for each layer. On NIXL, or on the
loopback where there is none.
"""

from __future__ import annotations

import mmap
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import kvffi

BLOCK_TOKENS = 64
# Name, bytes of a token.
LAYERS = [(f"model.layers.{i}.attn", 1152) for i in range(78)] + [(f"model.layers.{i}.indexer", 132) for i in range(21)]
ROW = BLOCK_TOKENS * sum(size for _, size in LAYERS)
NUM_BLOCKS = 43_800_000_000 // ROW
ROUNDS = 200
WARM = 10


def views(base: int) -> list[kvffi.TensorView]:
    """Where an engine's tensors lie: each one layer's page of every block."""
    made, offset = [], 0
    for _, size in LAYERS:
        shape, strides = (NUM_BLOCKS, BLOCK_TOKENS, size), (ROW, size, 1)
        made.append(kvffi.TensorView(base + offset, shape, strides, 1))
        offset += BLOCK_TOKENS * size
    return made


def describe(tensors: list[kvffi.TensorView], *, pages_of_each: bool) -> kvffi.Spec:
    """A spec of the tensors."""
    described = kvffi.Tensors(kvffi.Worker("org/model"))
    group = described.add_group(kvffi.Group(num_blocks=NUM_BLOCKS, block_tokens=BLOCK_TOKENS))
    pages: dict[int, kvffi.Page] = {}
    for (name, size), view in zip(LAYERS, tensors):
        page = pages.get(size)
        if page is None or pages_of_each:
            page = pages[size] = kvffi.Page.mla("own", row_bytes=size, format="bytes")
        described.add_tensor(described.add_layer(name, page, group), view, "BNC")
    return described.build()


def agent() -> tuple[kvffi.Agent, str]:
    """An agent on what there is."""
    try:
        return kvffi.Agent("bench"), "NIXL"
    except kvffi.LibraryError:
        return kvffi.Agent("bench", loopback=kvffi.Loopback()), "the loopback"


def main() -> int:
    """Prints medians."""
    # Reserved by nobody: only addresses count.
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)
    memory = mmap.mmap(-1, ROW * NUM_BLOCKS, flags=flags)
    whole = kvffi.TensorView.of(memory)
    tensors = views(whole.ptr)
    registering, where = agent()
    print(f"{len(LAYERS)} views over {ROW * NUM_BLOCKS / 1e9:.1f} GB, on {where}: medians of {ROUNDS}, in ms")
    print(f"{'':28}{'spec':>9}{'register':>10}{'both':>9}")
    for what, pages_of_each in (("a page for each kind", False), ("a page for each layer", True)):
        times: list[tuple[float, float]] = []
        for _ in range(WARM + ROUNDS):
            start = time.perf_counter()
            spec = describe(tensors, pages_of_each=pages_of_each)
            described = time.perf_counter()
            registering.register(spec)
            registered = time.perf_counter()
            times.append((described - start, registered - described))
            registering.deregister()
            registering.let_go()
        times = times[WARM:]
        spec_ms, register_ms = (1e3 * statistics.median(column) for column in zip(*times))
        both = 1e3 * statistics.median(sum(row) for row in times)
        print(f"{what:28}{spec_ms:9.3f}{register_ms:10.3f}{both:9.3f}")
    registering.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
