"""Lists of pages, checked, and the request that they make for the planner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import kvffi
import numpy as np
import numpy.typing as npt

from .errors import PageError, ValueKindError
from .integers import HIGHEST, integer, integers, listed
from .mapping import Mapped

Pages = npt.NDArray[np.uint32]
MOST = 1 << 31
"""Rows that an index can name: SGLang's wire has 32 bits with a sign."""


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
    `PageError` for what is no list of integers, or an index that is not from 0 up to `num_rows`; `ValueKindError` for
    what is no list at all.
    """
    try:
        indices = np.asarray(values if values is not None else ())
    except (TypeError, ValueError):
        raise ValueKindError(place, values, "one axis of integers") from None
    if indices.size == 0:
        return np.empty(0, dtype=np.uint32)
    if indices.ndim != 1 or indices.dtype.kind not in "iu":
        raise PageError(
            place, f"{indices.dtype} with {indices.ndim} axes is no list of pages; give one axis of integers"
        )
    highest = MOST if num_rows is None else min(num_rows, MOST)
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
    if key not in mapped.rings:
        return checked.astype(np.int32)
    return np.array(integers(place, values), dtype=np.int32)


def state_lists(place: str, given: Any, keys: Sequence[str]) -> list[Any]:
    """A list for each state component, None where the engine gives none.

    # Errors
    `PageError` if there are more lists than components, `ValueKindError` for what is no list of them.
    """
    lists = list(listed(place, given))
    if len(lists) > len(keys):
        raise PageError(place, f"{len(lists)} lists and {len(keys)} state components; give one for each")
    return lists + [None] * (len(keys) - len(lists))


def _ring(place: str, values: Any, slots: int) -> npt.NDArray[np.int64]:
    """Slots of [row, first, count, first, count, slots of a ring]: a run, and what comes after the ring's end."""
    # What is negative is no part of a ring, and is refused as that.
    given = [integer(f"{place}[{at}]", value, -HIGHEST) for at, value in enumerate(listed(place, values))]
    if not given:
        return np.empty(0, dtype=np.int64)
    if len(given) != 6:
        raise PageError(place, f"{len(given)} numbers describe no part of a ring; give 6")
    row, *runs, told = given
    if told != slots:
        raise PageError(place, f"the ring has {told} slots there and {slots} are registered; give ring_slots")
    for first, count in (runs[:2], runs[2:]):
        if first < 0 or count < 0 or first + count > slots:
            raise PageError(place, f"{count} slots from {first} on are not in a ring of {slots}")
    if not 0 <= row < MOST:
        raise PageError(place, f"row {row} is not from 0 to {MOST - 1}")
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
