"""Time over bytes, of ours and of vLLM's worker, with the limit of a plain copy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("agg")
from matplotlib import pyplot

from .results import Measured

_MARKS = {
    "vllm": ("vLLM's NIXL worker", "o", "#d95f02"),
    "vllm calm": ("the same, if its threads slept", "^", "#fdae61"),
    "ours": ("this library", "s", "#1b6ca8"),
    "raw": ("NIXL alone, its best form", "x", "#555555"),
}
# Families that are drawn together.
_PANELS = {
    "99 MLA and index views in rows": ("MLA rows",),
    "the same in pages, and rows into pages": ("MLA pages", "MLA rows into pages"),
    "GQA": ("GQA TP4 to TP8", "GQA TP4 to TP4"),
    "Mamba hybrids": ("Mamba hybrid TP4 to TP8", "Mamba hybrid TP4 to TP4"),
}


def draw(cases: Sequence[Measured], path: Path) -> None:
    """An SVG or a PNG, as the name says."""
    matplotlib.rcParams["svg.hashsalt"] = "peers"
    figure, axes = pyplot.subplots(2, 2, figsize=(11, 8), sharex=True, sharey=True, layout="constrained")
    for panel, (title, families) in zip(axes.flat, _PANELS.items()):
        members = sorted((each for each in cases if each.family in families), key=lambda each: each.num_bytes)
        for kind, (label, mark, color) in _MARKS.items():
            hollow = {} if mark == "x" else {"facecolors": "none"}
            sizes, times = [each.num_bytes / 1e6 for each in members], [1000 * each.time(kind) for each in members]
            panel.scatter(sizes, times, s=34, marker=mark, color=color, label=label, linewidths=1.3, **hollow)
        limits: dict[float, float] = {}
        for each in members:
            size, time = each.num_bytes / 1e6, 1000 * each.time("copy")
            limits[size] = min(time, limits.get(size, time))
        panel.plot(list(limits), list(limits.values()), color="black", linewidth=1, label="limit: a plain copy")
        panel.set(title=title, xscale="log", yscale="log")
        panel.grid(True, which="major", linewidth=0.4)
    for panel in axes[1]:
        panel.set_xlabel("MB")
    for panel in axes[:, 0]:
        panel.set_ylabel("ms until the bytes are there")
    axes[0, 0].legend()
    # No date: the same numbers make the same file.
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=110)
    pyplot.close(figure)
