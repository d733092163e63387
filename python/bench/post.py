"""What Python adds to posting a request: `Request` and `Agent.start_request` against the same call in C.

And the same in two calls, `Pair.answer` and `Agent.start`.

    make wheel && KVFFI_LIBRARY=target/release/libkvffi.so scripts/python.sh python/bench/post.py

Both do the same with the same objects in the same process, by turns, over the loopback. The time is that of the
thread on its processor: neither blocks, and other work of the machine would only add noise. Still it makes caches cold
and the processor slow; Python's own part, with calls that do nothing, says how much. The C half is post.c.
"""

from __future__ import annotations

import ctypes
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import numpy

import kvffi
from kvffi._library import functions

NUM_DESCRIPTORS = 10_000
ROUNDS = 400
WARM = 3
HERE = Path(__file__).resolve().parent


def worker(name: str, network: kvffi.Loopback) -> tuple[kvffi.Agent, kvffi.Spec]:
    """Blocks of one row of 64 bytes: what is posted counts, not what is moved."""
    arrangement = kvffi.Arrangement(kvffi.Worker("org/model"))
    arrangement.add_pool(kvffi.Pool("blhnc", 2 * NUM_DESCRIPTORS))
    page = kvffi.Page.mla("own", row_bytes=64, format="bytes")
    arrangement.add_layer("layers.0", page, arrangement.add_group(1))
    spec = arrangement.build([numpy.zeros(length, numpy.uint8) for length in arrangement.storage_lens()])
    agent = kvffi.Agent(name, loopback=network)
    agent.register(spec)
    return agent, spec


def compiled(folder: str) -> Any:
    """The function `post` of post.c."""
    library = Path(folder) / "post.so"
    include = HERE.parents[1] / "include"
    command = ["cc", "-O2", "-shared", "-fPIC", "-I", str(include), str(HERE / "post.c"), str(kvffi.library_path())]
    subprocess.run([*command, "-o", str(library)], check=True, timeout=60)
    # Its symbols are those of the library that this process has loaded.
    return ctypes.CDLL(str(library)).post


def main() -> int:
    """Prints medians."""
    network = kvffi.Loopback()
    prefill, _ = worker("prefill", network)
    decode, spec = worker("decode", network)
    peer = decode.connect(prefill.export())
    pair = kvffi.Pair(spec, peer.layout())
    answer = kvffi.Answer()
    # Every other block, so that no two join.
    local = numpy.arange(0, 2 * NUM_DESCRIPTORS, 2, dtype=numpy.uint32)
    remote = local[::-1].copy()
    times: dict[tuple[str, bool], list[float]] = {
        (language, in_one_call): [] for language in ("C", "Python") for in_one_call in (True, False)
    }

    def in_python(blocks: int, in_one_call: bool) -> tuple[float, kvffi.Transfer]:
        ours, theirs = local[:blocks], remote[:blocks]
        begun = time.thread_time_ns()
        request = kvffi.Request("read", local={0: ours}, remote={0: theirs})
        if in_one_call:
            transfer = decode.start_request(
                peer, pair, request, into=answer, notify=b"request 1", deadline=10, request="request 1"
            )
        else:
            pair.answer(request, into=answer)
            transfer = decode.start(peer, answer, notify=b"request 1", deadline=10, request="request 1")
        return (time.thread_time_ns() - begun) / 1000, transfer

    def in_c(blocks: int, in_one_call: bool) -> tuple[float, kvffi.Transfer]:
        transfer = kvffi.Transfer._new(decode._live())
        nanoseconds = ctypes.c_int64()
        owners = [each._live() for each in (pair, decode, peer, answer)]
        ids = [ctypes.c_void_p(each.ctypes.data) for each in (local, remote)]
        outputs = [ctypes.byref(each) for each in (transfer._live(), nanoseconds)]
        status = post(*owners, *ids, ctypes.c_size_t(blocks), int(in_one_call), *outputs)
        if status < 0:
            raise SystemExit(f"the calls in C fail with status {status}")
        return nanoseconds.value / 1000, transfer

    with tempfile.TemporaryDirectory() as folder:
        post = compiled(folder)
        ways = {"C": in_c, "Python": in_python}
        for turn in range(ROUNDS):
            # Who comes second finds the data in the caches.
            for language, in_one_call in list(times) if turn % 2 else reversed(list(times)):
                run = ways[language]
                # The agent's own thread would begin to move bytes at once, and take this one's processor.
                network.set_faults("stall")
                # A small request first: the code is in the caches, as it is in an engine that posts often.
                warm = [run(1, in_one_call)[1] for _ in range(WARM)]
                taken, transfer = run(NUM_DESCRIPTORS, in_one_call)
                network.set_faults()
                for each in (*warm, transfer):
                    each.wait()
                times[language, in_one_call].append(taken)
    if answer.totals().num_descriptors != NUM_DESCRIPTORS:
        print(f"{answer.totals().num_descriptors} descriptors, not {NUM_DESCRIPTORS}", file=sys.stderr)
        return 1
    # Its own part, with calls that do nothing.
    for name in ("kvffi_pair_answer", "kvffi_agent_start_answer", "kvffi_agent_start_request"):
        setattr(functions(), name, lambda *arguments: 0)
    print(f"{NUM_DESCRIPTORS} descriptors, median of {ROUNDS}, µs on the processor")
    for in_one_call in (True, False):
        c, py = (times[language, in_one_call] for language in ("C", "Python"))
        # Turn by turn, since the machine is faster and slower for a while.
        added = statistics.median(slower - faster for slower, faster in zip(py, c))
        alone = statistics.median(in_python(NUM_DESCRIPTORS, in_one_call)[0] for _ in range(20 * ROUNDS))
        calls = "in one call" if in_one_call else "in two calls"
        medians = f"C {statistics.median(c):6.1f}  Python {statistics.median(py):6.1f}  added {added:5.1f}"
        print(f"  {calls:12}  {medians}; with calls that do nothing {alone:5.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
