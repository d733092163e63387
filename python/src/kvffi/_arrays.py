"""Arrays of structs as numpy arrays and back, without a copy. numpy is imported when one is asked for."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Union

from . import _declarations as c

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Descriptors = Union[NDArray[numpy.void], ctypes.Array[c.Descriptor]]


def as_numpy(array: ctypes.Array[Any]) -> NDArray[numpy.void]:
    """A numpy array over the memory of an array of ctypes, with the fields of its struct."""
    import numpy

    dtype = numpy.dtype(array._type_)
    return numpy.frombuffer(memoryview(array), dtype=dtype) if len(array) else numpy.empty(0, dtype=dtype)


def of_descriptors(descriptors: Any) -> tuple[int | None, int, object]:
    """Address and number of descriptors, and what keeps them there."""
    if isinstance(descriptors, ctypes.Array):
        if descriptors._type_ is not c.Descriptor:
            raise TypeError(f"descriptors are an array of {descriptors._type_.__name__}, not of Descriptor")
        return ctypes.addressof(descriptors) if len(descriptors) else None, len(descriptors), descriptors
    import numpy

    array = numpy.asarray(descriptors)
    expected = numpy.dtype(c.Descriptor)
    if array.dtype != expected or array.ndim != 1:
        given = f"of type {array.dtype} and shape {array.shape}"
        raise TypeError(f"descriptors are {given}; one axis of {expected} is needed")
    array = numpy.ascontiguousarray(array)
    return array.ctypes.data if len(array) else None, len(array), array
