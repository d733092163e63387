"""Structs, parameters and texts that refuse what does not fit; ctypes by itself cuts numbers off."""

from __future__ import annotations

import ctypes
import operator
from typing import Any


def unfit(message: str) -> Exception:
    """What a number raises that does not fit: one class, wherever it is noticed."""
    # It is made of the declarations, which are made of this.
    from .errors import refused_number

    return refused_number(message)


class Struct(ctypes.Structure):
    """A struct of kvffi.h."""

    # What the pointers in it point to.
    keep: object

    def __init__(self, **fields: Any) -> None:
        """Sets fields by name; `NumberError` for a number that does not fit."""
        super().__init__()
        for name, value in fields.items():
            if not hasattr(type(self), name):
                raise TypeError(f"{type(self).__name__} has no field {name}")
            if hasattr(value, "__index__"):
                value = operator.index(value)
            setattr(self, name, value)
            if isinstance(value, int) and (getattr(self, name) or 0) != value:
                field = type(self).__name__
                raise unfit(f"{name} is {value}, which does not fit this field of {field}")

    def __repr__(self) -> str:
        names = [field[0] for field in self._fields_ if field[0] not in ("struct_size", "reserved")]
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__name__}({values})"


class Growing(Struct):
    """A struct that begins with its size and may grow at its end."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(struct_size=ctypes.sizeof(type(self)), **fields)


def _range(kind: Any) -> tuple[int, int]:
    bits = 8 * ctypes.sizeof(kind)
    low = -(1 << (bits - 1)) if kind(-1).value < 0 else 0
    return low, low + (1 << bits) - 1


# ctypes integer: least and greatest value.
RANGES: dict[Any, tuple[int, int]] = {
    kind: _range(kind)
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


def numbers(parameters: tuple[tuple[str, Any], ...]) -> tuple[tuple[int, str, int, int], ...]:
    """The parameters that are integers: place, name, least and greatest value."""
    return tuple((place, name, *RANGES[kind]) for place, (name, kind) in enumerate(parameters) if kind in RANGES)


def check_numbers(function: Any, args: tuple[Any, ...]) -> None:
    """Refuses numbers that do not fit.

    Not where ctypes converts them: there a KeyboardInterrupt would become a refusal, too.
    """
    # Stand-ins of tests have none.
    for place, name, low, high in getattr(function, "numbers", ()):
        if place < len(args):
            try:
                number = operator.index(args[place])
            except TypeError:
                raise TypeError(f"{name} is of type {type(args[place]).__name__}, not int") from None
            if not low <= number <= high:
                raise unfit(f"{name}: {number} is not in the range from {low} to {high}")


def octets(value: Any, what: str) -> bytes:
    """Bytes of a bytes-like object; a number or a text is none."""
    if isinstance(value, bytes):
        return value
    try:
        return bytes(memoryview(value))
    except TypeError:
        raise TypeError(f"{what} is of type {type(value).__name__}, not bytes") from None


def text(value: str, what: str) -> bytes:
    """A text for C, where a NUL would end it early."""
    if not isinstance(value, str):
        raise TypeError(f"{what} is of type {type(value).__name__}, not str")
    if "\0" in value:
        raise ValueError(f"{what} has a NUL in it: {value!r}")
    return value.encode()
