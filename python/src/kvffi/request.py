"""Which blocks to move."""

from __future__ import annotations

import array
import ctypes
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Union

from . import _declarations as c
from ._names import Op, number

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


def block_ids(blocks: Any) -> tuple[int, int, object]:
    """Address and number of block ids, and what keeps them there."""
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


def block_lists(lists: Lists) -> tuple[ctypes.Array[c.BlockList], list[object]]:
    """Lists of one side as C has them, and what keeps their ids there."""
    if isinstance(lists, Mapping):
        lists = [BlockList(group, blocks) for group, blocks in lists.items()]
    keep: list[object] = []
    made = []
    for group, blocks, first in lists:
        address, count, kept = block_ids(blocks)
        keep.append(kept)
        made.append(c.BlockList(group=group, first=first, blocks=address if count else None, num_blocks=count))
    return (c.BlockList * len(made))(*made), keep


class Request:
    """What to move between the two workers of a pair.

    `op` must be the pair's: "read" is from remote to local, "write" from local to remote. `local` and `remote` are the
    blocks of this worker's and of the peer's groups: `{group: ids}`, or a list of `BlockList`.

        Request("read", local={0: [5, 6, 9]}, remote={0: [1, 2, 8]})

    An array of uint32 is borrowed, so what is written to it later changes the request.
    """

    __slots__ = ("_keep", "_struct")

    def __init__(self, op: Op, *, local: Lists, remote: Lists) -> None:
        ours, our_ids = block_lists(local)
        theirs, their_ids = block_lists(remote)
        self._struct = c.Request(
            op=number("OP", op),
            local=ctypes.addressof(ours) if len(ours) else None,
            num_local=len(ours),
            remote=ctypes.addressof(theirs) if len(theirs) else None,
            num_remote=len(theirs),
        )
        self._keep = (ours, our_ids, theirs, their_ids)
