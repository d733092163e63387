"""Lists of pages, checked, and the request that they make for the planner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import kvffi
import numpy as np
import numpy.typing as npt

from .errors import PageError
from .mapping import Mapped

Pages = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class Move:
    """Rows of one group that go from here to there: `here[i]` to `there[i]`."""

    key: str
    here: Pages
    there: Pages
    first: int = 0
    """Place of the first of them in the request: chunks of a prompt follow one another."""


def pages(place: str, values: Any, num_rows: int | None = None) -> Pages:
    """Page indices as the planner takes them.

    # Errors
    `PageError` for what is no list of integers, or an index that is not from 0 up to `num_rows`.
    """
    indices = np.asarray(values if values is not None else (), dtype=None)
    if indices.size == 0:
        return np.empty(0, dtype=np.uint32)
    if indices.ndim != 1 or indices.dtype.kind not in "iu":
        raise PageError(
            place, f"{indices.dtype} with {indices.ndim} axes is no list of pages; give one axis of integers"
        )
    highest = np.iinfo(np.uint32).max if num_rows is None else num_rows
    wrong = np.flatnonzero((indices < 0) | (indices >= highest))
    if wrong.size:
        at = int(wrong[0])
        raise PageError(f"{place}[{at}]", f"page {indices[at]} is not from 0 to {highest - 1}")
    return indices.astype(np.uint32)


def pages_of_slots(place: str, slots: Sequence[int] | npt.NDArray[Any], page_tokens: int) -> Pages:
    """Pages of the token slots that an allocator gave out: whole pages, but for the last.

    # Errors
    `PageError` if a page does not begin at a multiple of its size or its slots do not follow one another.
    """
    given = np.asarray(slots, dtype=np.int64)
    starts = given[::page_tokens]
    wrong = np.flatnonzero(starts % page_tokens)
    if wrong.size:
        at = int(wrong[0]) * page_tokens
        raise PageError(f"{place}[{at}]", f"slot {given[at]} begins a page and is no multiple of {page_tokens}")
    expected = np.repeat(starts, page_tokens)[: given.size] + np.arange(given.size) % page_tokens
    wrong = np.flatnonzero(given != expected)
    if wrong.size:
        at = int(wrong[0])
        raise PageError(
            f"{place}[{at}]", f"slot {given[at]} follows {given[at - 1]} inside a page; it must be one more"
        )
    return pages(place, starts // page_tokens)


def request(local: Mapped, remote: Mapped, moves: Sequence[Move]) -> kvffi.Request:
    """The planner's request for a push of some rows.

    Groups that a side lacks move nothing with it.

    # Errors
    `PageError` if the two lists of a group differ in length.
    """
    ours, theirs = [], []
    for move in moves:
        if move.here.size != move.there.size:
            raise PageError(
                move.key, f"{move.here.size} pages here and {move.there.size} at the peer; give one for each"
            )
        if move.here.size and move.key in local.groups and move.key in remote.groups:
            ours.append(kvffi.BlockList(local.groups[move.key], move.here, move.first))
            theirs.append(kvffi.BlockList(remote.groups[move.key], move.there, move.first))
    return kvffi.Request("write", local=ours, remote=theirs)
