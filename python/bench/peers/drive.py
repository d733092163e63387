"""The driver: `python -m peers.drive`, from python/bench, in the environment that has vLLM."""

from __future__ import annotations

import argparse
import mmap
import os
import platform
import re
import signal
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy

from . import link
from .forms import FORMS
from .plain import Plain
from .ranges import Ranges, ranges
from .report import report
from .results import Measured, Results
from .scenarios import Case, Setting, cases, placed

ROOT = Path(__file__).resolve().parents[3]
KINDS = ("ours", "vllm", "vllm calm", "ours polled", "raw", "copy")
ROUNDS = 5
# Longer ones are repeated less: the third round changes no median by much.
LONG, LONG_ROUNDS = 1_500_000_000, 3
# Shorter ones are repeated within a round, of which the median counts.
SHORT, REPEATS = 50_000_000, 5


class Pair:
    """Both sides of one kind. They run only inside `awake`."""

    stops = True

    def __init__(
        self, name: str, module: str, python: Path, memories: tuple[int, int], length: int, logs: Path, **env: str
    ) -> None:
        log = f"{name.replace(' ', '-')}-{{}}.log"
        self.prefill, self.decode = (
            link.Child(module, side, python=python, memory=memory, length=length, log=logs / log.format(side), **env)
            for side, memory in zip(("prefill", "decode"), memories)
        )

    @contextmanager
    def awake(self) -> Iterator[None]:
        """They are stopped again at its end."""
        self.prefill.go_on()
        self.decode.go_on()
        try:
            yield
        finally:
            if self.stops:
                self.decode.stop()
                self.prefill.stop()

    def set_up(self, setting: Setting) -> dict[str, float]:
        """Registers both sides and connects decode to prefill; how long decode's part took."""
        with self.awake():
            offered = self.prefill.call("set_up", setting=setting)
            own = self.decode.call("set_up", setting=setting)
            connected = self.decode.call("connect", blob=offered["blob"])
        return {"register": own["register"], "connect": connected}

    def close(self) -> None:
        """Ends both."""
        self.decode.close()
        self.prefill.close()


class Bench:
    """Memory, pairs and results."""

    def __init__(self, length: int, folder: Path, ours_python: Path) -> None:
        self._memories, arrays = [], []
        for name in ("prefill", "decode"):
            shared = os.memfd_create(f"peers-{name}")
            os.ftruncate(shared, length)
            self._memories.append(shared)
            arrays.append(numpy.frombuffer(mmap.mmap(shared, length), numpy.uint8))
        self._plain = Plain(folder, *arrays)
        self._plain.fill_source()
        self._plain.blank_target(length)
        here = Path(sys.executable)
        memories = (self._memories[0], self._memories[1])
        self._pairs = {
            name: Pair(name, module, python, memories, length, folder, **env)
            for name, module, python, env in (
                ("ours", "ours", ours_python, {}),
                ("vllm", "theirs", here, {}),
                ("vllm calm", "theirs", here, {"PEERS_CALM": "1"}),
                ("raw", "raw", here, {}),
            )
        }

    def conditions(self) -> dict[str, Any]:
        """What was measured with what."""
        model = re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
        with self._pairs["vllm"].awake():
            theirs = self._pairs["vllm"].decode.call("version")
        return {
            "processor": model[1] if model else platform.machine(),
            "cores": self._plain.threads,
            "kernel": platform.release(),
            "peer": theirs,
            "nixl": metadata.version("nixl"),
            "date": time.strftime("%Y-%m-%d"),
        }

    def set_up(self, setting: Setting) -> dict[str, float]:
        """All pairs; the times of ours and of vLLM's."""
        times = {name: pair.set_up(setting) for name, pair in self._pairs.items()}
        return {f"{name} {step}": times[name][step] for name in ("ours", "vllm") for step in ("register", "connect")}

    def measure(self, case: Case, rounds: int | None) -> Measured:
        """Every kind in turn, in another order each round."""
        moved = ranges(case)
        total = int(moved[:, 2].sum())
        _, target_len = placed(case.setting, case.setting.decode)
        measured = Measured(
            name=case.name,
            family=case.setting.family,
            block_tokens=case.setting.model.block_tokens,
            blocks=case.blocks,
            scattered=case.scattered,
            num_bytes=total,
            ranges=len(moved),
        )
        with self._pairs["raw"].awake():
            form, threads = self._best_raw(moved), self._best_copy(moved)
        measured.raw_form = str(FORMS[form])
        local, remote = case.block_ids()
        runs = {
            "ours": ("ours", {"local": local, "remote": remote, "polled": False}),
            "ours polled": ("ours", {"local": local, "remote": remote, "polled": True}),
            "vllm": ("vllm", {"local": local, "remote": remote, "polled": True}),
            "vllm calm": ("vllm calm", {"local": local, "remote": remote, "polled": True}),
            "raw": ("raw", {"form": form}),
        }
        for kind, (pair, arguments) in runs.items():
            self._plain.blank_target(target_len)
            with self._pairs[pair].awake():
                self._pairs[pair].decode.call("run", **arguments)
                if pair != "raw":
                    measured.descriptors[kind] = self._pairs[pair].decode.call("descriptors")
            measured.wrong_bytes[kind] = self._plain.wrong(moved, target_len)
        for turn in range(rounds or (LONG_ROUNDS if total > LONG else ROUNDS)):
            for kind in KINDS[turn % len(KINDS) :] + KINDS[: turn % len(KINDS)]:
                if kind == "copy":
                    posted, took = 0.0, self._copy(moved, threads)
                else:
                    posted, took = self._timed(total, *runs[kind])
                measured.times.setdefault(kind, []).append(took)
                measured.posts.setdefault(kind, []).append(posted)
        for pair in self._pairs.values():
            with pair.awake():
                pair.prefill.call("drain")
        return measured

    def _timed(self, total: int, pair: str, arguments: dict[str, Any]) -> tuple[float, float]:
        """Post and whole, after a run to warm up."""
        one = self._pairs[pair]
        with one.awake():
            if total < SHORT:
                one.decode.call("run", **arguments)
            taken = [one.decode.call("run", **arguments) for _ in range(REPEATS if total < SHORT else 1)]
        return statistics.median(each[0] for each in taken), statistics.median(each[1] for each in taken)

    def _copy(self, moved: Ranges, threads: int) -> float:
        repeats = REPEATS if int(moved[:, 2].sum()) < SHORT else 1
        taken = []
        for _ in range(repeats):
            begun = time.perf_counter()
            self._plain.copy(moved, threads)
            taken.append(time.perf_counter() - begun)
        return statistics.median(taken)

    def _best_copy(self, moved: Ranges) -> int:
        """With how many threads a plain copy is fastest."""
        return min((1, self._plain.threads), key=lambda threads: self._copy(moved, threads))

    def _best_raw(self, moved: Ranges) -> int:
        """The fastest form; each is tried twice, and a second time only where it is short."""
        decode = self._pairs["raw"].decode
        times = {}
        for form in decode.call("prepare", ranges=moved):
            first = decode.call("run", form=form)[1]
            times[form] = min([first, *(decode.call("run", form=form)[1] for _ in range(3 if first < 0.05 else 1))])
        return min(times, key=lambda form: times[form])

    def close(self) -> None:
        """Ends every child."""
        for pair in self._pairs.values():
            pair.close()


def chosen(arguments: argparse.Namespace) -> list[Case]:
    """The cases that were asked for."""
    wanted = [case for case in cases() if case.quick or not arguments.quick]
    if arguments.only:
        wanted = [case for case in wanted if re.search(arguments.only, case.name)]
    if not wanted:
        raise SystemExit("no case has such a name; --list shows them")
    return wanted


def main() -> int:
    """0 if every byte of every kind was right."""
    parser = argparse.ArgumentParser(prog="make bench-peers ARGS=...", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few cases, in about 2 minutes")
    parser.add_argument("--only", metavar="REGEX", help="the cases whose name it is found in")
    parser.add_argument("--add", action="store_true", help="keep what earlier runs have measured of other cases")
    parser.add_argument("--awake", action="store_true", help="let the pairs that are not measured run on, and spin")
    parser.add_argument("--rounds", type=int, help="instead of 5, or 3 for long ones")
    parser.add_argument("--list", action="store_true", help="only list the cases")
    parser.add_argument("--report", action="store_true", help="only report what earlier runs have measured")
    parser.add_argument("--keep", action="store_true", help="write docs/PERFORMANCE.md, its picture and its numbers")
    parser.add_argument("--into", type=Path, default=ROOT / "target/bench-peers", help="folder for results and logs")
    arguments = parser.parse_args()
    if arguments.list:
        print(*(case.name for case in cases()), sep="\n")
        return 0
    arguments.into.mkdir(parents=True, exist_ok=True)
    path = arguments.into / "results.json"
    results = Results.load(path) if arguments.add or arguments.report else Results()
    if not arguments.report:
        _measure(chosen(arguments), results, path, arguments)
    report(results, arguments.into, ROOT / "docs" if arguments.keep else None)
    return 1 if any(any(each.wrong_bytes.values()) for each in results.cases.values()) else 0


def _measure(wanted: list[Case], results: Results, path: Path, arguments: argparse.Namespace) -> None:
    settings = {case.setting for case in wanted}
    length = max(placed(each, side)[1] for each in settings for side in (each.prefill, each.decode))
    Pair.stops = not arguments.awake
    # So that the children are ended.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    ours = Path(os.environ.get("PEERS_PYTHON", ROOT / ".deps/venv/bin/python"))
    bench = Bench(-(-length // mmap.PAGESIZE) * mmap.PAGESIZE, arguments.into, ours)
    try:
        results.conditions = bench.conditions()
        for setting, of_setting in groupby(wanted, key=lambda case: case.setting):
            times = bench.set_up(setting)
            results.setups[f"{setting.family}, {setting.model.block_tokens} tokens a block"] = times
            for case in of_setting:
                measured = bench.measure(case, arguments.rounds)
                results.cases[case.name] = measured
                results.save(path)
                median, least, greatest = measured.ratio("vllm", "ours")
                wrong = "".join(f"; {kind}: {n} bytes wrong" for kind, n in measured.wrong_bytes.items() if n)
                times = ", ".join(f"{kind} {1000 * measured.time(kind):.2f}" for kind in KINDS)
                print(f"{case.name}: {measured.num_bytes / 1e6:.1f} MB; ms: {times}", end="; ")
                print(f"vLLM / ours {median:.2f} ({least:.2f} to {greatest:.2f}){wrong}", flush=True)
    finally:
        bench.close()


if __name__ == "__main__":
    sys.exit(main())
