"""Structs in one piece of memory with what they point to, for the calls that are made for every request."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

_CODES = {
    ctypes.c_int32: "i",
    ctypes.c_uint32: "I",
    ctypes.c_uint64: "Q",
    ctypes.c_size_t: "Q",
    ctypes.c_void_p: "Q",
    ctypes.c_char_p: "Q",
}


def packer(*kinds: Any) -> struct.Struct:
    """Writes structs of kvffi.h, all their fields in order; pointers are addresses. Refuses numbers that do not fit."""
    packed = struct.Struct("=" + "".join(_CODES[field[1]] for kind in kinds for field in kind._fields_))
    if packed.size != sum(ctypes.sizeof(kind) for kind in kinds):
        raise TypeError(f"there is padding in {', '.join(kind.__name__ for kind in kinds)}")
    return packed


def memory(size: int) -> tuple[bytearray, ctypes.c_char, int]:
    """Zeroed memory to write to, what C takes as a pointer to it and holds it in place, and its address."""
    buffer = bytearray(size)
    pinned = ctypes.c_char.from_buffer(buffer)
    return buffer, pinned, ctypes.addressof(pinned)
