"""Structs and parameters that refuse numbers which do not fit; ctypes by itself cuts them off."""

from __future__ import annotations

import ctypes
import operator
from typing import Any


class Struct(ctypes.Structure):
    """A struct of kvffi.h."""

    # What the pointers in it point to.
    keep: object

    def __init__(self, **fields: Any) -> None:
        """Sets fields by name; `OverflowError` for a number that does not fit."""
        super().__init__()
        for name, value in fields.items():
            if not hasattr(type(self), name):
                raise TypeError(f"{type(self).__name__} has no field {name}")
            if hasattr(value, "__index__"):
                value = operator.index(value)
            setattr(self, name, value)
            if isinstance(value, int) and (getattr(self, name) or 0) != value:
                field = type(self).__name__
                raise OverflowError(f"{name} is {value}, which does not fit this field of {field}")

    def __repr__(self) -> str:
        names = [field[0] for field in self._fields_ if field[0] not in ("struct_size", "reserved")]
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__name__}({values})"


class Growing(Struct):
    """A struct that begins with its size and may grow at its end."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(struct_size=ctypes.sizeof(type(self)), **fields)


class _Parameter:
    """A ctypes integer as a parameter, with its range."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        bits = 8 * ctypes.sizeof(kind)
        self._low = -(1 << (bits - 1)) if kind(-1).value < 0 else 0
        self._high = self._low + (1 << bits)

    def from_param(self, value: Any) -> Any:
        """What ctypes calls with every argument."""
        number = operator.index(value)
        if not self._low <= number < self._high:
            raise OverflowError(f"{number} is not in the range from {self._low} to {self._high - 1}")
        return self._kind(number)


# ctypes integer: the parameter to use in its place.
CHECKED: dict[Any, Any] = {
    kind: _Parameter(kind)
    for kind in (
        ctypes.c_int8,
        ctypes.c_uint8,
        ctypes.c_int16,
        ctypes.c_uint16,
        ctypes.c_int32,
        ctypes.c_uint32,
        ctypes.c_int64,
        ctypes.c_uint64,
        ctypes.c_size_t,
    )
}


def text(value: str, what: str) -> bytes:
    """A text for C, where a NUL would end it early."""
    if not isinstance(value, str):
        raise TypeError(f"{what} is of type {type(value).__name__}, not str")
    if "\0" in value:
        raise ValueError(f"{what} has a NUL in it: {value!r}")
    return value.encode()
