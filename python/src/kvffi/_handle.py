"""Objects of the library as Python objects, and calls that raise.

A call passes the object that owns a handle, not its number, so the handle cannot be freed before the call returns: not
by the garbage collector, and not by another thread that closes it meanwhile.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from . import errors
from ._checked import check_numbers
from ._declarations import KVFFI_ERR_BUFFER_TOO_SMALL, KVFFI_ERR_INVALID_ARGUMENT, KVFFI_OK
from ._library import functions

_Self = TypeVar("_Self", bound="Handle")
_Element = TypeVar("_Element", bound=ctypes.Structure)

# The logger that `Logs.forward` uses.
_log = logging.getLogger("kvffi")

# What an argument of a type that C does not take, or a number that does not fit, raises.
_WRONG_ARGUMENTS = (ctypes.ArgumentError, OverflowError, TypeError)


def call(function: Callable[..., int], *args: Any) -> int:
    """Calls a function whose last parameter is `out_error`; its status, which is not negative."""
    error = ctypes.c_void_p()
    try:
        check_numbers(function, args)
        status = function(*args, ctypes.byref(error))
    except errors.NumberError:
        raise
    except _WRONG_ARGUMENTS as wrong:
        raise _refused(str(wrong)) from None
    if status < 0:
        # Who keeps the exception keeps the frames that it came through: no handle may be in one, or closing frees
        # nothing. This goes for whoever calls, too.
        del args
        raise _exception(status, error)
    return status


def refusal(function: Callable[..., int], *args: Any) -> errors.Error | None:
    """What `call` would raise, without raising it."""
    error = ctypes.c_void_p()
    status = function(*args, ctypes.byref(error))
    return _exception(status, error) if status < 0 else None


def _refused(message: str) -> errors.Error:
    return errors.ArgumentError(KVFFI_ERR_INVALID_ARGUMENT, "KVFFI_ERR_INVALID_ARGUMENT", message)


def _exception(status: int, error: ctypes.c_void_p) -> errors.Error:
    library = functions()
    name = (library.kvffi_status_name(status) or b"").decode()
    message = (library.kvffi_error_message(error) or b"").decode()
    findings = tuple(
        (library.kvffi_error_finding(error, index) or b"").decode()
        for index in range(library.kvffi_error_num_findings(error))
    )
    library.kvffi_error_free(error)
    return errors.CLASSES.get(status, errors.Error)(status, name, message, findings)


class Owner(ctypes.c_void_p):
    """A handle, as C takes it, that is freed when nobody refers to it any more."""

    __slots__ = ("_free",)

    def __init__(self, free: Callable[[Any], None]) -> None:
        """NULL, for a call to set."""
        self._free = free

    def __del__(self) -> None:
        if self:
            self._free(self)


def _add(passing: BaseException, note: str) -> None:
    """Says something beside an exception that is passing: with it, and in the log, as who handles it may not look."""
    # Before Python 3.11 there are no notes.
    if hasattr(passing, "add_note"):
        passing.add_note(note)
    _log.error("%s", note)


class Handle:
    """An object of the library. `close` frees it, and so do leaving a `with` block and the garbage collector.

    If closing at the end of a `with` block fails while an exception passes, that exception passes on. A note of it and
    the logger "kvffi" say so.
    """

    __slots__ = ("__weakref__", "_owner")
    _owner: Owner | None

    @property
    def closed(self) -> bool:
        """Whether the object was closed."""
        return self._owner is None

    def close(self) -> None:
        """Frees the object, after the calls that other threads are making with it. Closing again does nothing."""
        self._owner = None

    def _live(self) -> Owner:
        owner = self._owner
        if owner is None:
            raise ValueError(f"this {type(self).__name__} is closed")
        return owner

    @classmethod
    def _handle_of(cls, value: Any, what: str) -> Owner:
        """The handle of an object that a caller gave; `TypeError` if it is of another class."""
        if not isinstance(value, cls):
            raise TypeError(f"{what} is of type {type(value).__name__}, not {cls.__name__}")
        return value._live()

    def __enter__(self: _Self) -> _Self:
        self._live()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, passing: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except Exception as error:
            if passing is None:
                raise
            # What ended the block matters more, and closing may have failed only because of it.
            _add(passing, f"closing the {type(self).__name__} failed: {error}")

    def __copy__(self) -> None:
        raise TypeError(f"a {type(self).__name__} cannot be copied")

    def __reduce__(self) -> Any:
        raise TypeError(f"a {type(self).__name__} cannot be pickled")


def make(free: Callable[[Any], None], function: Callable[..., int], *args: Any) -> Owner:
    """Calls a function whose last two parameters are an output handle and `out_error`."""
    owner = Owner(free)
    try:
        call(function, *args, ctypes.byref(owner))
        return owner
    finally:
        # See `call`.
        del args, owner


def take_text(function: Callable[..., int], *args: Any) -> str:
    """Calls a function that makes a text, and takes the text over."""
    library = functions()
    text = make(library.kvffi_text_free, function, *args)
    data = library.kvffi_text_data(text)
    return (data or b"").decode()


def take_bytes(function: Callable[..., int], *args: Any) -> bytes:
    """Calls a function that makes bytes, and takes them over."""
    library = functions()
    made = make(library.kvffi_bytes_free, function, *args)
    length = library.kvffi_bytes_len(made)
    return ctypes.string_at(library.kvffi_bytes_data(made), length) if length else b""


def structs(kind: type[_Element], function: Callable[..., int], *args: Any) -> ctypes.Array[_Element]:
    """Calls a function that fills an array: once for its length, once for its elements."""
    try:
        length, array = ctypes.c_size_t(), (kind * 0)()
        while True:
            capacity = len(array)
            error = ctypes.c_void_p()
            check_numbers(function, args)
            given = (array if capacity else None, capacity, ctypes.byref(length), ctypes.byref(error))
            status = function(*args, *given)
            if status == KVFFI_OK and length.value == capacity:
                return array
            # Another thread may have made it shorter or longer meanwhile.
            if status not in (KVFFI_OK, KVFFI_ERR_BUFFER_TOO_SMALL):
                raise _exception(status, error)
            functions().kvffi_error_free(error)
            array = (kind * length.value)()
    except errors.NumberError:
        raise
    except _WRONG_ARGUMENTS as wrong:
        raise _refused(str(wrong)) from None
    finally:
        # See `call`.
        del args
