"""Python objects that must not go while C, or NIXL, may still use what they stand for."""

from __future__ import annotations

import ctypes

_keep = ctypes.pythonapi.Py_IncRef
_keep.argtypes = [ctypes.py_object]
_keep.restype = None
_let_go = ctypes.pythonapi.Py_DecRef
_let_go.argtypes = [ctypes.py_object]
_let_go.restype = None


class Pinned:
    """An object that may be kept alive whatever becomes of who refers to it.

    By a reference that is nobody's, so that a cycle with it in it is no garbage either: the garbage collector runs the
    finalizers of a cycle in any order. It outlives the interpreter.
    """

    __slots__ = ("_pinned", "what")

    def __init__(self, what: object, *, pinned: bool = False) -> None:
        self.what = what
        self._pinned = False
        if pinned:
            self.pin()

    def pin(self) -> None:
        """Keeps it from now on."""
        if not self._pinned:
            self._pinned = True
            _keep(self.what)

    def unpin(self) -> None:
        """Keeps it no longer."""
        if self._pinned:
            self._pinned = False
            _let_go(self.what)
