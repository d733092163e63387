"""Which bytes to move."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from . import _declarations as c
from ._arrays import as_numpy
from ._handle import Handle, call, make, structs
from ._library import functions

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray


class Answer(Handle):
    """Descriptors and ranges to zero for one request.

    Reuse it from request to request: then no memory is allocated for descriptors. Takes one call at a time, a second
    one is a `BusyError`.
    """

    __slots__ = ()

    def __init__(self) -> None:
        library = functions()
        self._owner = make(library.kvffi_answer_free, library.kvffi_answer_new)

    def totals(self) -> c.AnswerTotals:
        """Numbers of descriptors and of ranges to zero, bytes moved, and how many of them are padding."""
        totals = c.AnswerTotals()
        call(functions().kvffi_answer_get_totals, self._live(), ctypes.byref(totals))
        return totals

    def descriptors(self) -> NDArray[numpy.void]:
        """The descriptors as a numpy array with the fields of `kvffi_descriptor`.

        `local_storage`, `local_offset`: index of a storage of the local spec and bytes from its base; `remote_storage`
        and `remote_offset` likewise; `len`: bytes. Lane by lane, by local place within a lane, merged.
        """
        return as_numpy(self.descriptor_structs())

    def zero_ranges(self) -> NDArray[numpy.void]:
        """What the receiver zeroes, since no source holds it: a numpy array with `storage`, `offset` and `len`.

        Of a request for a chunk they may name what another chunk fills: take those of the whole request.
        """
        return as_numpy(self.zero_range_structs())

    def descriptor_structs(self) -> ctypes.Array[c.Descriptor]:
        """Like `descriptors`, as an array of ctypes: for programs without numpy."""
        return structs(c.Descriptor, functions().kvffi_answer_get_descriptors, self._live())

    def zero_range_structs(self) -> ctypes.Array[c.ZeroRange]:
        """Like `zero_ranges`, as an array of ctypes: for programs without numpy."""
        return structs(c.ZeroRange, functions().kvffi_answer_get_zero_ranges, self._live())
