"""Arrays of structs as numpy arrays, without a copy. numpy is imported when one is asked for."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray


def as_numpy(array: ctypes.Array[Any]) -> NDArray[numpy.void]:
    """A numpy array over the memory of an array of ctypes, with the fields of its struct."""
    import numpy

    dtype = numpy.dtype(array._type_)
    return numpy.frombuffer(memoryview(array), dtype=dtype) if len(array) else numpy.empty(0, dtype=dtype)
