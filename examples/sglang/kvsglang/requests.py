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
    """Rows of one group that go from here to there: `here[i]` to `there[i]`, or to where that is with `spread`."""

    key: str
    here: Pages
    there: Pages
    first: int = 0
    """Place of the first of them in the request: chunks of a prompt follow one another."""
    spread: int = 1
    """Rows here that one row there has tokens of: decode context parallelism."""


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


def distinct(place: str, given: Pages) -> None:
    """Pages that are written have to differ, also those of different chunks.

    # Errors
    `PageError` names the first that comes again.
    """
    found, first = np.unique(given, return_index=True)
    if found.size != given.size:
        again = np.delete(np.arange(given.size), first)
        at = int(again[0])
        raise PageError(f"{place}[{at}]", f"page {given[at]} is listed twice; give each once")


def rows(place: str, values: Any, mapped: Mapped, key: str) -> Pages:
    """Rows of a group by the index list that the engine has for it; a ring's six numbers become its slots.

    # Errors
    `PageError` for an index outside the group, or numbers that are no ring's.
    """
    slots = mapped.rings.get(key)
    listed = values if slots is None else _ring(place, values, slots)
    return pages(place, listed, mapped.num_rows.get(key))


def numbers(place: str, values: Any, mapped: Mapped, key: str) -> npt.NDArray[np.int32]:
    """An index list as it goes over the wire, checked as by `rows`: of a ring its six numbers."""
    checked = rows(place, values, mapped, key)
    return checked.astype(np.int32) if key not in mapped.rings else np.array(values, dtype=np.int32)


def state_lists(place: str, given: Any, keys: Sequence[str]) -> list[Any]:
    """A list for each state component, None where the engine gives none.

    # Errors
    `PageError` if there are more lists than components.
    """
    lists = [] if given is None else list(given)
    if len(lists) > len(keys):
        raise PageError(place, f"{len(lists)} lists and {len(keys)} state components; give one for each")
    return lists + [None] * (len(keys) - len(lists))


def _ring(place: str, values: Any, slots: int) -> npt.NDArray[np.int64]:
    """Slots of [row, first, count, first, count, slots of a ring]: a run, and what comes after the ring's end."""
    numbers = [int(number) for number in (values if values is not None else ())]
    if not numbers:
        return np.empty(0, dtype=np.int64)
    if len(numbers) != 6:
        raise PageError(place, f"{len(numbers)} numbers describe no part of a ring; give 6")
    row, *runs, told = numbers
    if told != slots:
        raise PageError(place, f"the ring has {told} slots there and {slots} are registered; give ring_slots")
    for first, count in (runs[:2], runs[2:]):
        if first < 0 or count < 0 or first + count > slots:
            raise PageError(place, f"{count} slots from {first} on are not in a ring of {slots}")
    return row * slots + np.concatenate([np.arange(first, first + count) for first, count in (runs[:2], runs[2:])])


def request(local: Mapped, remote: Mapped, moves: Sequence[Move]) -> kvffi.Request:
    """The planner's request for a push of some rows.

    Groups that a side lacks move nothing with it.

    # Errors
    `PageError` if the two lists of a group differ in length.
    """
    ours, theirs = [], []
    for move in moves:
        first = move.first // move.spread
        if move.there.size != -(-(move.first + move.here.size) // move.spread) - first:
            raise PageError(
                move.key, f"{move.here.size} pages here and {move.there.size} at the peer; give one for each"
            )
        if move.here.size and move.key in local.groups and move.key in remote.groups:
            ours.append(kvffi.BlockList(local.groups[move.key], move.here, move.first))
            theirs.append(kvffi.BlockList(remote.groups[move.key], move.there, first))
    return kvffi.Request("write", local=ours, remote=theirs)
