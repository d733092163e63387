"""Which blocks to move."""

from __future__ import annotations

import array
import ctypes
import struct
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Union

from . import _declarations as c
from ._names import Op, number
from ._packed import memory, packer

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy
    from numpy.typing import NDArray

    BlockIds = Union[Sequence[int], NDArray[numpy.integer[Any]]]

# As a block id: nothing is stored there.
HOLE = c.KVFFI_BLOCK_HOLE


class BlockList(NamedTuple):
    """Blocks of one group on one side, in the order of the sequence.

    `blocks` are ids, `HOLE` for a hole: a list, or an array of integers; an array of uint32 is not copied. `first` is
    the list index of the first of them: a prefix hit starts late.
    """

    group: int
    blocks: BlockIds
    first: int = 0


# A side of a request: lists, or ids by group.
Lists = Union[Iterable[BlockList], Mapping[int, "BlockIds"]]


_REQUEST = packer(c.Request)
_BLOCK_LIST = packer(c.BlockList)


def block_ids(blocks: Any) -> tuple[int, int, object]:
    """Address and number of block ids, and what keeps them there."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(blocks, numpy.ndarray):
        # The usual array, the quick way: borrows it, and fails for one that is empty, read-only or has gaps.
        if blocks.ndim == 1 and blocks.dtype.char == "I" and blocks.dtype.isnative:
            try:
                pinned = ctypes.c_char.from_buffer(blocks)
            except (ValueError, TypeError, BufferError):
                return _of_array(blocks)
            return ctypes.addressof(pinned), len(blocks), pinned
        return _of_array(blocks)
    if hasattr(blocks, "__array__"):
        return _of_array(blocks)
    if isinstance(blocks, (bytes, bytearray, memoryview, str)):
        raise TypeError(f"block ids are {type(blocks).__name__}; give integers in a list or an array")
    try:
        ids = array.array("I", blocks)
    except OverflowError:
        wrong = next(block for block in blocks if not 0 <= block <= HOLE)
        raise ValueError(f"block id {wrong} is not from 0 to {HOLE}; {HOLE}, as kvffi.HOLE, is a hole") from None
    address, count = ids.buffer_info()
    return address, count, ids


def _of_array(blocks: Any) -> tuple[int, int, object]:
    import numpy

    ids = numpy.asarray(blocks)
    if ids.ndim != 1:
        raise ValueError(f"block ids have the shape {ids.shape}; give one axis")
    if ids.dtype != numpy.uint32:
        if ids.dtype.kind not in "iu":
            raise TypeError(f"block ids are of type {ids.dtype}; give integers")
        if ids.size and (ids.min() < 0 or ids.max() > HOLE):
            wrong = ids.min() if ids.min() < 0 else ids.max()
            raise ValueError(f"block id {wrong} is not from 0 to {HOLE}; {HOLE}, as kvffi.HOLE, is a hole")
        ids = ids.astype(numpy.uint32)
    ids = numpy.ascontiguousarray(ids)
    return ids.ctypes.data, ids.size, ids


class Request:
    """What to move between the two workers of a pair.

    `op` must be the pair's: "read" is from remote to local, "write" from local to remote. `local` and `remote` are the
    blocks of this worker's and of the peer's groups: `{group: ids}`, or a list of `BlockList`.

        Request("read", local={0: [5, 6, 9]}, remote={0: [1, 2, 8]})

    An array of uint32 is borrowed, so what is written to it later changes the request.
    """

    __slots__ = ("_keep", "_pointer")

    def __init__(self, op: Op, *, local: Lists, remote: Lists) -> None:
        ours, theirs = _listed(local), _listed(remote)
        # The struct, and behind it the lists of both sides.
        buffer, self._pointer, address = memory(_REQUEST.size + _BLOCK_LIST.size * (len(ours) + len(theirs)))
        first_list = address + _REQUEST.size
        first_remote = first_list + _BLOCK_LIST.size * len(ours)
        sides = (first_list, len(ours), first_remote, len(theirs))
        _REQUEST.pack_into(buffer, 0, _REQUEST.size, number("OP", op), 0, *sides)
        place = _REQUEST.size
        keep: list[object] = [buffer]
        for group, blocks, first in (*ours, *theirs):
            ids, count, kept = block_ids(blocks)
            try:
                _BLOCK_LIST.pack_into(buffer, place, group, 0, first, ids, count)
            except struct.error:
                # Says which of the numbers does not fit.
                c.BlockList(group=group, first=first)
                raise
            place += _BLOCK_LIST.size
            keep.append(kept)
        self._keep = keep


def _listed(lists: Lists) -> list[Any]:
    # A dict is a Mapping; asking it first is quicker.
    if isinstance(lists, dict) or isinstance(lists, Mapping):  # noqa: SIM101
        return [(group, blocks, 0) for group, blocks in lists.items()]
    return list(lists)
