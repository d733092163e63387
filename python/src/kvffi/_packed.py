"""Structs in one piece of memory with what they point to, for the calls that are made for every request.

Setting a struct of ctypes field by field, with checks, takes microseconds; packing all of them at once does not.
"""

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


class Packing:
    """Structs of kvffi.h, one behind the other, and behind them `tail` bytes that they may point to.

    `memory` makes an object of ctypes that holds them: it is their place, and is passed to C by reference. `pack_into`
    writes all fields in order, and the tail; pointers are addresses. It refuses numbers that do not fit.
    """

    __slots__ = ("memory", "pack_into", "size")

    def __init__(self, tail: int, *kinds: Any) -> None:
        fields = "".join(_CODES[field[1]] for kind in kinds for field in kind._fields_)
        packed = struct.Struct(f"={fields}{tail}s" if tail else f"={fields}")
        # Of the structs alone.
        self.size = sum(ctypes.sizeof(kind) for kind in kinds)
        if packed.size != self.size + tail:
            raise TypeError(f"there is padding in {', '.join(kind.__name__ for kind in kinds)}")
        self.pack_into = packed.pack_into
        self.memory: Any = ctypes.c_char * packed.size
