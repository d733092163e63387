"""Which blocks to move."""

from __future__ import annotations

import array
import ctypes
import operator
import struct
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Union

from . import _declarations as c
from ._checked import text, unfit
from ._names import Op, number, words
from ._packed import Packing

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy
    from numpy.typing import NDArray

    BlockIds = Union[Sequence[int], array.array[int], NDArray[numpy.integer[Any]]]

# As a block id: nothing is stored there.
HOLE = c.KVFFI_BLOCK_HOLE


class BlockList(NamedTuple):
    """Blocks of one group on one side, in the order of the sequence.

    `blocks` are ids, `HOLE` for a hole: a list, or an array of integers; an array of uint32 is not copied. `first` is
    the list index of the first of them: a prefix hit starts late. 0 says nothing: see `align` of a `Request`.
    """

    group: int
    blocks: BlockIds
    first: int = 0


# A side of a request: lists, or ids by group.
Lists = Union[Iterable[BlockList], Mapping[int, "BlockIds"]]


# Where lists begin that do not say it.
Align = Literal["head", "tail"]

_OPS = words("OP")
_ALIGN = {"head": c.KVFFI_REQUEST_ALIGN_HEAD, "tail": c.KVFFI_REQUEST_ALIGN_TAIL}
_REQUEST_SIZE = ctypes.sizeof(c.Request)
_BLOCK_LIST_SIZE = ctypes.sizeof(c.BlockList)
_BYTE = ctypes.c_char
_address = ctypes.addressof


def block_ids(blocks: Any) -> tuple[int, int, object]:
    """Address and number of block ids, and what keeps them there."""
    try:
        # Of uint32 on one axis, as numpy and `array` have them. It fails for what is empty, read-only or has gaps, too.
        view = memoryview(blocks)
        if view.format == "I" and view.ndim == 1 and not hasattr(blocks, "mask"):
            pinned = _BYTE.from_buffer(view)
            return _address(pinned), len(view), pinned
    except (TypeError, ValueError, BufferError):
        pass
    if hasattr(blocks, "__array__"):
        return _of_array(blocks)
    if isinstance(blocks, (bytes, bytearray, str)):
        raise TypeError(f"block ids are {type(blocks).__name__}; give integers in a list or an array")
    # An iterator gives its items once.
    listed = list(blocks)
    try:
        ids = array.array("I", listed)
    except OverflowError:
        wrong = next((block for block in map(operator.index, listed) if not 0 <= block <= HOLE), None)
        raise unfit(f"block id {wrong} is not from 0 to {HOLE}; {HOLE}, as kvffi.HOLE, is a hole") from None
    return block_ids(ids) if ids else (0, 0, None)


def _of_array(blocks: Any) -> tuple[int, int, object]:
    import numpy

    ids = numpy.asarray(blocks)
    if ids.ndim != 1:
        raise ValueError(f"block ids have the shape {ids.shape}; give one axis")
    if numpy.ma.isMaskedArray(blocks):
        raise TypeError("block ids are a masked array; give kvffi.HOLE for holes")
    if ids.dtype != numpy.uint32 and not ids.size:
        return 0, 0, None
    if ids.dtype != numpy.uint32:
        if ids.dtype.kind not in "iu":
            raise TypeError(f"block ids are of type {ids.dtype}; give integers")
        if ids.size and (ids.min() < 0 or ids.max() > HOLE):
            wrong = ids.min() if ids.min() < 0 else ids.max()
            raise unfit(f"block id {wrong} is not from 0 to {HOLE}; {HOLE}, as kvffi.HOLE, is a hole")
        ids = ids.astype(numpy.uint32)
    ids = numpy.ascontiguousarray(ids)
    return ids.ctypes.data, ids.size, ids


@lru_cache(maxsize=256)
def _packing(num_lists: int) -> Packing:
    """A request, and behind it its lists."""
    return Packing(0, c.Request, *[c.BlockList] * num_lists)


class Request:
    """What to move between the two workers of a pair.

    `op` must be the pair's: "read" is from remote to local, "write" from local to remote. `local` and `remote` are the
    blocks of this worker's and of the peer's groups: `{group: ids}`, or a list of `BlockList`.

        Request("read", local={0: [5, 6, 9]}, remote={0: [1, 2, 8]})

    An array of uint32 is borrowed, so what is written to it later changes the request.

    `align`: where lists begin whose `first` is 0. With None, two such lists that meet are whole prompts, and have as
    many blocks as one prompt fills on either side; `RequestError` if they do not. "head": at the start of the sequence,
    whatever their lengths. "tail": so that both end with the prompt, of which one of them is the whole.

    `layers`: names of the layers to move, or a `range` of indices in the spec of this worker; None for all. What lies
    together within them moves together, as with all.

        Request("write", local={0: [5]}, remote={0: [1]}, layers=["layers.0", "layers.1"])
        Request("write", local={0: [5]}, remote={0: [1]}, layers=range(0, 2))
    """

    __slots__ = ("_keep", "_memory")

    def __init__(
        self,
        op: Op,
        *,
        local: Lists,
        remote: Lists,
        layers: Iterable[str] | range | None = None,
        align: Align | None = None,
    ) -> None:
        fields: list[Any] = []
        keep: list[object] = []
        num_local = _flatten(local, fields, keep)
        num_remote = _flatten(remote, fields, keep)
        packed = _packing(num_local + num_remote)
        self._memory = memory = packed.memory()
        first_list = ctypes.addressof(memory) + _REQUEST_SIZE
        first_remote = first_list + num_local * _BLOCK_LIST_SIZE
        known = _OPS.get(op)
        if known is None:
            known = number("OP", op)
        sides = (first_list, num_local, first_remote, num_remote)
        flags, *chosen = _ALL_LAYERS if layers is None else _layers(layers, keep)
        if align is not None:
            if align not in _ALIGN:
                raise ValueError(f"align is {align!r}; give 'head' or 'tail'")
            flags |= _ALIGN[align]
        try:
            packed.pack_into(memory, 0, _REQUEST_SIZE, known, flags, *sides, *chosen, *fields)
        except struct.error:
            # Says which of the numbers does not fit.
            for place in range(0, len(fields), 5):
                c.BlockList(group=fields[place], first=fields[place + 2])
            raise
        self._keep = keep

    def __reduce__(self) -> Any:
        raise TypeError("a Request has addresses in it, and cannot be copied or pickled")


def packed(request: Request) -> Any:
    """A request as C has it; `TypeError` if it is of another class."""
    if not isinstance(request, Request):
        raise TypeError(f"the request is of type {type(request).__name__}, not Request")
    return request._memory


# Flags, address and number of names, first index and the one behind the last.
_ALL_LAYERS = (0, 0, 0, 0, 0)


def _layers(layers: Iterable[str] | range, keep: list[object]) -> tuple[int, int, int, int, int]:
    """The fields that choose layers; adds what keeps the names there."""
    if isinstance(layers, range):
        if layers.step != 1 or layers.start < 0 or layers.stop < 0:
            raise ValueError(f"layers are {layers}; give a range of indices with a step of 1")
        return (c.KVFFI_REQUEST_LAYER_RANGE, 0, 0, layers.start, max(layers.start, layers.stop))
    if isinstance(layers, str):
        raise TypeError(f"layers is the text {layers!r}; give names in a list")
    names = [text(name, "layers") for name in layers]
    array = (ctypes.c_char_p * len(names))(*names)
    keep.append(array)
    return (c.KVFFI_REQUEST_LAYERS, ctypes.addressof(array) if names else 0, len(names), 0, 0)


def _flatten(lists: Lists, fields: list[Any], keep: list[object]) -> int:
    """Adds the fields of each list, and what keeps its ids there; the number of lists."""
    before = len(keep)
    if type(lists) is dict:
        # The usual case, the quick way.
        for group, blocks in lists.items():
            address, count, kept = block_ids(blocks)
            fields += (group, 0, 0, address, count)
            keep.append(kept)
    else:
        for group, blocks, first in _listed(lists):
            address, count, kept = block_ids(blocks)
            fields += (group, 0, first, address, count)
            keep.append(kept)
    return len(keep) - before


def block_lists(lists: Lists) -> tuple[ctypes.Array[c.BlockList], list[object]]:
    """Lists of one side as C has them, and what keeps their ids there."""
    keep: list[object] = []
    made = []
    for group, blocks, first in _listed(lists):
        address, count, kept = block_ids(blocks)
        keep.append(kept)
        made.append(c.BlockList(group=group, first=first, blocks=address if count else None, num_blocks=count))
    return (c.BlockList * len(made))(*made), keep


def _listed(lists: Lists) -> list[Any]:
    if isinstance(lists, Mapping):
        return [(group, blocks, 0) for group, blocks in lists.items()]
    return list(lists)
