"""Numbers that an engine gives, taken as they are or refused: no float is cut off, and no text is read as a number.

Whatever has `__index__` is an integer: numpy's are.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from .errors import ValueKindError, ValueRangeError

HIGHEST = (1 << 64) - 1


def integer(place: str, value: Any, lowest: int = 0, highest: int = HIGHEST) -> int:
    """An integer from `lowest` to `highest`, both included.

    # Errors
    `ValueKindError` for what is none, `ValueRangeError` for one outside.
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueKindError(place, value, "an integer") from None
    if not lowest <= number <= highest:
        raise ValueRangeError(place, number, lowest, highest)
    return number


def integers(place: str, values: Any) -> tuple[int, ...]:
    """A list of integers that are not negative; None is an empty one.

    # Errors
    Those of `integer` and `listed`, with the place in the list.
    """
    return tuple(integer(f"{place}[{index}]", value) for index, value in enumerate(listed(place, values)))


def listed(place: str, values: Any) -> Sequence[Any]:
    """A list of anything, such as an array's rows; None is an empty one.

    # Errors
    `ValueKindError` for what is no list.
    """
    if values is None:
        return ()
    if isinstance(values, (str, bytes, dict, set, frozenset)):
        raise ValueKindError(place, values, "a list")
    try:
        return tuple(values)
    except TypeError:
        raise ValueKindError(place, values, "a list") from None
