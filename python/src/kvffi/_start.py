"""What a transfer does besides moving bytes, as C takes it."""

from __future__ import annotations

import ctypes
import struct
from functools import lru_cache
from typing import Any

from . import _declarations as c
from ._checked import octets, text
from ._packed import Packing
from ._time import deadline_in
from .limits import Limits

_SIZE = ctypes.sizeof(c.TransferOptions)


@lru_cache(maxsize=256)
def _packing(tail: int) -> Packing:
    """The options, and behind them their texts."""
    return Packing(tail, c.TransferOptions)


def transfer_options(
    notify: bytes | None, deadline: float | None, request: str | None, padding_bytes: int, limits: Limits | None
) -> tuple[Any, object]:
    """The options, with their texts behind them, and what else has to live as long."""
    message = b"" if notify is None else octets(notify, "notify")
    texts = message if request is None else message + text(request, "request")
    deadline_ms = deadline_in(deadline)
    bounds = None if limits is None else limits._struct()
    packed = _packing(len(texts) + 1)
    options = packed.memory()
    address = ctypes.addressof(options) + _SIZE
    try:
        packed.pack_into(
            options,
            0,
            _SIZE,
            0 if notify is None else address,
            len(message),
            deadline_ms,
            0 if request is None else address + len(message),
            padding_bytes,
            0 if bounds is None else ctypes.addressof(bounds),
            # A zero ends the name.
            texts,
        )
    except struct.error:
        # Says which of the numbers does not fit.
        c.TransferOptions(padding_bytes=padding_bytes)
        raise
    return options, bounds
