"""What a transfer does besides moving bytes, as C takes it."""

from __future__ import annotations

import ctypes
import math
import struct
from typing import Any

from . import _declarations as c
from ._checked import text
from ._packed import packing
from ._time import milliseconds
from .limits import Limits

_SIZE = ctypes.sizeof(c.TransferOptions)


def transfer_options(
    notify: bytes | None, deadline: float | None, request: str | None, padding_bytes: int, limits: Limits | None
) -> tuple[Any, object]:
    """The options, with their texts behind them, and what else has to live as long."""
    message = b"" if notify is None else notify
    name = b"" if request is None else text(request, "request")
    bounds = limits._struct() if limits is not None else None
    packed = packing(len(message) + len(name) + 1, c.TransferOptions)
    options = packed.memory()
    texts = ctypes.addressof(options) + _SIZE
    try:
        packed.pack_into(
            options,
            0,
            _SIZE,
            0 if notify is None else texts,
            len(message),
            0 if deadline is None else _deadline(deadline),
            0 if request is None else texts + len(message),
            padding_bytes,
            0 if bounds is None else ctypes.addressof(bounds),
            # Zeroed memory ends the name.
            message + name,
        )
    except struct.error:
        # Says which of the numbers does not fit.
        c.TransferOptions(padding_bytes=padding_bytes)
        raise
    return options, bounds


def _deadline(deadline: float) -> int:
    if 0 < deadline < 1e12:
        return math.ceil(deadline * 1000)
    if not deadline > 0:
        raise ValueError(f"the deadline is {deadline} seconds; give more than 0, or None for none")
    return milliseconds(deadline)
