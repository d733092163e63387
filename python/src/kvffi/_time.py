"""Seconds, as Python has them, and milliseconds, as kvffi.h has them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from ._checked import unfit
from ._declarations import KVFFI_DEFAULT_DEADLINE_MS, KVFFI_FOREVER

# Seconds until what is given no deadline has failed: as long as heartbeats extend a lease by default. What takes longer
# than any lease lasts cannot succeed any more, and what nobody ends would keep its blocks for ever.
DEFAULT_DEADLINE = KVFFI_DEFAULT_DEADLINE_MS / 1000

# A wait in C is cut into pieces of so many seconds, since signals such as Ctrl-C are handled between calls only.
SLICE = 0.1

# Seconds.
_FOR_EVER = 1e12


def milliseconds(seconds: float | None) -> int:
    """A timeout for C, rounded up; None is for ever."""
    if seconds is None:
        return KVFFI_FOREVER
    if not seconds >= 0:
        raise unfit(f"a time of {seconds} seconds; give 0 or more, or None for ever")
    return math.ceil(seconds * 1000) if seconds < _FOR_EVER else KVFFI_FOREVER


def deadline_in(seconds: float | None) -> int:
    """The milliseconds until a deadline, rounded up: at least 1. None is for none."""
    if seconds is None:
        return KVFFI_FOREVER
    if not seconds > 0:
        raise unfit(f"the deadline is {seconds} seconds; give more than 0, or None for none")
    return math.ceil(seconds * 1000) if seconds < _FOR_EVER else KVFFI_FOREVER


def microseconds(seconds: float) -> int:
    """An interval for C, rounded up."""
    if not 0 <= seconds < 1e9:
        raise unfit(f"an interval of {seconds} seconds; give 0 or more")
    return math.ceil(seconds * 1_000_000)


def end_of(timeout: float | None) -> float:
    """When a timeout from now ends, on the clock of `time.monotonic`."""
    milliseconds(timeout)
    return math.inf if timeout is None or timeout >= _FOR_EVER else time.monotonic() + float(timeout)


def wait(step: Callable[[int], bool], timeout: float | None) -> bool:
    """Repeats `step`, which waits for some milliseconds at most, until it is true or time is out."""
    end = end_of(timeout)
    while True:
        left = max(end - time.monotonic(), 0)
        if step(milliseconds(min(left, SLICE))):
            return True
        if left <= SLICE and time.monotonic() >= end:
            return False
