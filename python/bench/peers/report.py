"""A table and a picture of what was measured, and docs/PERFORMANCE.md."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from .picture import draw
from .results import Measured, Results

_BEGIN, _END = "<!-- Written by `make bench-peers ARGS=--keep`. -->", "<!-- End of what it writes. -->"
# How a column of the table is named, and the kinds whose times it divides.
_RATIOS = {
    "vLLM / ours": ("vllm", "ours"),
    "calm / ours": ("vllm calm", "ours"),
    "both polled": ("vllm", "ours polled"),
    "raw / ours": ("raw", "ours"),
    "copy / ours": ("copy", "ours"),
}


def report(results: Results, folder: Path, docs: Path | None) -> None:
    """Prints the table and writes it with the picture to a folder, and into the docs, where they are given."""
    cases = list(results.cases.values())
    if not cases:
        return
    table = "\n".join([*_summary(cases), "", *_families(cases), "", *_table(cases)])
    setups = "\n".join(_setups(results))
    print(f"\n{table}\n\n{setups}")
    (folder / "table.md").write_text(f"{table}\n\n{setups}\n")
    draw(cases, folder / "picture.svg")
    draw(cases, folder / "picture.png")
    if docs is not None:
        shutil.copyfile(folder / "picture.svg", docs / "performance.svg")
        shutil.copyfile(folder / "results.json", docs / "performance.json")
        _keep(docs / "PERFORMANCE.md", "\n\n".join([_conditions(results), table, _PICTURE, setups]))


_PICTURE = "![Time over bytes: ours, vLLM's worker, and the limit of a plain copy](performance.svg)"


def _conditions(results: Results) -> str:
    has = results.conditions
    return (
        f"Measured on {has['date']}: {has['processor']}, {has['cores']} cores, Linux {has['kernel']}; {has['peer']}; "
        f"NIXL {has['nixl']} over UCX's CMA, host memory in pages of 4 KiB. {len(results.cases)} cases, "
        f"{min(len(each.times['ours']) for each in results.cases.values())} to "
        f"{max(len(each.times['ours']) for each in results.cases.values())} rounds each."
    )


def _keep(path: Path, text: str) -> None:
    """Replaces what an earlier run has written there."""
    around = path.read_text()
    before, rest = around.split(_BEGIN)
    after = rest.split(_END)[1]
    path.write_text(f"{before}{_BEGIN}\n\n{text}\n\n{_END}{after}")


def _slower(cases: Iterable[Measured], over: str, under: str) -> list[Measured]:
    return [each for each in cases if each.ratio(over, under)[0] < 1]


def _summary(cases: Sequence[Measured]) -> list[str]:
    ratios = [each.ratio("vllm", "ours")[0] for each in cases]
    slower = _slower(cases, "vllm", "ours")
    worst = min(cases, key=lambda each: each.ratio("vllm", "ours")[0])
    lines = [
        f"vLLM's time over ours: median {statistics.median(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f}. "
        f"**Slower than vLLM's worker in {len(slower)} of {len(cases)}**"
        + (f", most of all in *{worst.name}*." if slower else ".")
        + f" If both are polled alike: in {len(_slower(cases, 'vllm', 'ours polled'))}.",
        f"If vLLM's progress threads slept (*calm*): slower in {len(_slower(cases, 'vllm calm', 'ours'))}, "
        f"median {_median_of(cases, 'vllm calm', 'ours')}.",
    ]
    wrong = [each.name for each in cases if any(each.wrong_bytes.values())]
    lines.append(f"**Wrong bytes in {', '.join(wrong)}.**" if wrong else "Every byte of every kind was right.")
    return lines


def _families(cases: Sequence[Measured]) -> list[str]:
    head = ["family", "cases", "slower than vLLM", *_RATIOS]
    lines = [_row(head), _rule(head, 1)]
    for family in dict.fromkeys(each.family for each in cases):
        members = [each for each in cases if each.family == family]
        medians = [_median_of(members, *kinds) for kinds in _RATIOS.values()]
        lines.append(_row([family, str(len(members)), str(len(_slower(members, "vllm", "ours"))), *medians]))
    medians = [_median_of(cases, *kinds) for kinds in _RATIOS.values()]
    lines.append(_row(["all", str(len(cases)), str(len(_slower(cases, "vllm", "ours"))), *medians]))
    return lines


def _median_of(cases: Iterable[Measured], over: str, under: str) -> str:
    return f"{statistics.median(each.ratio(over, under)[0] for each in cases):.2f}"


def _table(cases: Iterable[Measured]) -> list[str]:
    head = [
        "case",
        "MB",
        "ranges",
        "ours ms",
        "vLLM ms",
        "calm ms",
        "raw ms",
        "copy ms",
        "start ms",
        "vLLM post ms",
        *_RATIOS,
    ]
    lines = [_row(head), _rule(head, 1)]
    for each in cases:
        times = [_ms(each.time(kind)) for kind in ("ours", "vllm", "vllm calm", "raw", "copy")]
        posts = [_ms(statistics.median(each.posts[kind])) for kind in ("ours", "vllm")]
        ratios = [_spread(each.ratio(*kinds)) for kinds in _RATIOS.values()]
        if each.ratio("vllm", "ours")[0] < 1:
            ratios[0] = f"**{ratios[0]}**"
        lines.append(_row([each.name, f"{each.num_bytes / 1e6:.1f}", f"{each.ranges:,}", *times, *posts, *ratios]))
    return lines


def _setups(results: Results) -> list[str]:
    head = ["setting", *next(iter(results.setups.values()))]
    lines = ["Setting up, ms, once:", "", _row(head), _rule(head, 1)]
    for name, times in results.setups.items():
        lines.append(_row([name, *(_ms(each) for each in times.values())]))
    return lines


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.3g}" if seconds < 1 else f"{1000 * seconds:.0f}"


def _spread(ratio: tuple[float, float, float]) -> str:
    median, least, greatest = ratio
    return f"{median:.2f} ({least:.2f} to {greatest:.2f})"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _rule(cells: Sequence[str], texts: int) -> str:
    return _row("---" if index < texts else "---:" for index in range(len(cells)))
