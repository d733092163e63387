"""Where a tensor lies: pointer, shape, strides and device of whatever an engine calls a tensor."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any

from . import _dlpack
from ._names import Mem


@dataclass(frozen=True)
class TensorView:
    """Where a tensor lies. Strides are bytes.

    `TensorView.of` makes one from a torch tensor, a numpy array, an object with DLPack, or a buffer such as a
    `bytearray` or an `mmap`, all of which have to be writable. Where none of these fits, an engine fills it in.
    """

    ptr: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    element_size: int
    mem: Mem = "dram"
    device: int = 0
    # What the memory belongs to; kept as long as the view.
    owner: object = field(default=None, repr=False, compare=False)

    @property
    def num_bytes(self) -> int:
        """Bytes of the elements, without gaps between them."""
        count = self.element_size
        for extent in self.shape:
            count *= extent
        return count

    def __reduce__(self) -> Any:
        raise TypeError("a TensorView is of memory in one place, and cannot be copied or pickled")

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements follow one another without gaps, the last axis fastest."""
        expected = self.element_size
        for extent, stride in zip(reversed(self.shape), reversed(self.strides)):
            if extent > 1 and stride != expected:
                return False
            expected *= extent
        return True

    @classmethod
    def of(cls, tensor: Any) -> TensorView:
        """The place of a tensor; `TypeError` if it does not say where it lies."""
        if isinstance(tensor, cls):
            return tensor
        if all(hasattr(tensor, name) for name in ("data_ptr", "stride", "element_size", "device")):
            return _of_torch(tensor)
        if hasattr(tensor, "__array_interface__"):
            return _of_numpy(tensor)
        if hasattr(tensor, "__dlpack__") and hasattr(tensor, "__dlpack_device__"):
            return _of_dlpack(tensor)
        return _of_buffer(tensor)


def _of_torch(tensor: Any) -> TensorView:
    """Of a torch tensor, or of anything with its methods. Covers types that DLPack and numpy lack."""
    size = int(tensor.element_size())
    mem, device = _torch_device(tensor.device)
    shape = tuple(int(extent) for extent in tensor.shape)
    strides = tuple(int(stride) * size for stride in tensor.stride())
    return TensorView(int(tensor.data_ptr()), shape, strides, size, mem, device, tensor)


def _torch_device(device: Any) -> tuple[Mem, int]:
    if device.type == "cpu":
        return "dram", 0
    if device.type == "cuda":
        if device.index is None:
            raise TypeError("the tensor is on a cuda device without an index")
        return "vram", int(device.index)
    raise TypeError(f"the tensor is on device {device}; cpu and cuda are known")


def _of_numpy(tensor: Any) -> TensorView:
    import numpy

    array = numpy.asarray(tensor)
    if not array.flags.writeable:
        raise TypeError("the array is read-only; peers' bytes are written to a cache")
    if array.dtype.hasobject:
        raise TypeError(f"the array's elements are Python objects ({array.dtype}), not bytes")
    return TensorView(array.ctypes.data, array.shape, array.strides, array.itemsize, owner=array)


def _of_dlpack(tensor: Any) -> TensorView:
    described = _dlpack.describe(tensor)
    size, rest = divmod(described.element_bits, 8)
    if rest:
        raise TypeError(f"an element has {described.element_bits} bits, which are no whole bytes; view it as bytes")
    strides = described.strides
    if strides is None:
        strides = _row_major(described.shape)
    scaled = tuple(stride * size for stride in strides)
    # What the tensor showed may be the capsule's alone.
    owner = (tensor, described.capsule)
    if described.device_type in (_dlpack.CPU, _dlpack.CUDA_HOST):
        return TensorView(described.ptr, described.shape, scaled, size, owner=owner)
    if described.device_type == _dlpack.CUDA:
        return TensorView(described.ptr, described.shape, scaled, size, "vram", described.device, owner)
    raise TypeError(f"the tensor is on DLPack device type {described.device_type}; CPU, CUDA and CUDA host are known")


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = []
    stride = 1
    for extent in reversed(shape):
        strides.append(stride)
        stride *= extent
    return tuple(reversed(strides))


def _of_buffer(buffer: Any) -> TensorView:
    try:
        view = memoryview(buffer)
    except TypeError:
        known = "a torch tensor, a numpy array, an object with DLPack, a buffer or a TensorView"
        raise TypeError(f"{type(buffer).__name__} does not say where its memory lies; give {known}") from None
    if view.readonly or not view.c_contiguous:
        raise TypeError(f"{type(buffer).__name__} is a buffer that is read-only or not contiguous")
    # Holds the buffer where it is.
    pinned = (ctypes.c_char * view.nbytes).from_buffer(view)
    strides = view.strides or _row_major(view.shape or ())
    return TensorView(ctypes.addressof(pinned), tuple(view.shape or ()), tuple(strides), view.itemsize, owner=pinned)
