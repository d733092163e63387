"""Where tensors lie: numpy, DLPack, torch by its methods, buffers."""

from __future__ import annotations

import copy
import ctypes
import gc
import mmap
import pickle
import weakref
from dataclasses import dataclass
from typing import Any

import numpy
import pytest

from kvffi import TensorView


def test_of_a_numpy_array_strides_are_bytes() -> None:
    array = numpy.zeros((4, 8, 6), numpy.float32)[:, ::2]
    view = TensorView.of(array)
    assert (view.ptr, view.shape, view.strides) == (array.ctypes.data, (4, 4, 6), (192, 48, 4))
    assert (view.element_size, view.mem, view.device, view.num_bytes) == (4, "dram", 0, 384)


def test_a_view_cannot_be_copied_since_the_memory_would_not_be() -> None:
    view = TensorView.of(numpy.zeros(4))
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied"):
            copied(view)


@pytest.mark.parametrize(
    ("array", "is_contiguous"),
    [
        (numpy.zeros((4, 8)), True),
        (numpy.zeros((4, 8))[:1, :], True),
        (numpy.zeros((4, 8, 1))[:, :, ::-1], True),
        (numpy.zeros(8)[::-1], False),
        (numpy.zeros((4, 8))[:, :4], False),
        (numpy.zeros((4, 8)).T, False),
    ],
)
def test_a_view_says_whether_it_has_gaps(array: Any, is_contiguous: bool) -> None:
    assert TensorView.of(array).is_contiguous == is_contiguous


def read_only() -> Any:
    array = numpy.zeros(4)
    array.flags.writeable = False
    return array


class OnlyDlpack:
    """A tensor that has nothing but DLPack."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("dtype", [numpy.uint8, numpy.float16, numpy.complex128])
def test_of_dlpack_strides_are_bytes(dtype: Any) -> None:
    array = numpy.zeros((4, 8, 6), dtype)[:, ::2]
    assert TensorView.of(OnlyDlpack(array)) == TensorView.of(array)


def test_of_dlpack_memory_that_only_the_capsule_has_lives_as_long_as_the_view() -> None:
    made: list[weakref.ref[Any]] = []

    class Copies(OnlyDlpack):
        def __dlpack__(self, **options: Any) -> Any:
            copy = self.array.copy()
            made.append(weakref.ref(copy))
            return copy.__dlpack__()

    view = TensorView.of(Copies(numpy.zeros((4, 8))))
    copied = made[0]()
    assert copied is not None
    assert view.ptr == copied.ctypes.data
    del copied, view
    gc.collect()
    assert made[0]() is None


class Versioned(OnlyDlpack):
    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(max_version=(1, 0))


def test_of_dlpack_1_0() -> None:
    array = numpy.zeros((4, 8), numpy.float16)
    assert TensorView.of(Versioned(array)) == TensorView.of(array)


def test_reading_a_capsule_leaks_nothing() -> None:
    import sys

    array = numpy.zeros((4, 8), numpy.float16)
    before = sys.getrefcount(array)
    for _ in range(100):
        TensorView.of(OnlyDlpack(array))
        TensorView.of(Versioned(array))
    gc.collect()
    assert sys.getrefcount(array) == before


class _DlTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


class Made:
    """A tensor whose capsule was made by hand."""

    def __init__(self, device_type: int, bits: int, name: bytes = b"dltensor") -> None:
        self.asked: dict[str, Any] = {}
        self.device_type = device_type
        self.name = name
        self.shape = (ctypes.c_int64 * 2)(3, 5)
        self.tensor = _DlTensor(
            data=4096, ndim=2, code=1, bits=bits, lanes=1, shape=ctypes.addressof(self.shape), byte_offset=64
        )
        self.tensor.device[:] = [device_type, 6]

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device_type, 6

    def __dlpack__(self, **options: Any) -> Any:
        self.asked = options
        make = ctypes.pythonapi.PyCapsule_New
        make.restype = ctypes.py_object
        make.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return make(ctypes.addressof(self.tensor), self.name, None)


def test_of_dlpack_on_a_gpu_no_stream_waits() -> None:
    tensor = Made(2, 16)
    view = TensorView.of(tensor)
    assert (view.ptr, view.shape, view.strides, view.mem, view.device) == (4160, (3, 5), (10, 2), "vram", 6)
    assert tensor.asked == {"stream": -1}


def test_of_dlpack_pinned_memory_is_host_memory() -> None:
    assert TensorView.of(Made(3, 8)).mem == "dram"


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        (Made(10, 8), "DLPack device type 10"),
        (Made(1, 4), "4 bits"),
        (Made(1, 8, b"used_dltensor"), "no capsule"),
        (numpy.zeros(3, object), "Python objects"),
        (b"read only", "read-only"),
        (read_only(), "read-only"),
        (memoryview(bytearray(8))[::2], "not contiguous"),
        (3, "int does not say where"),
        (None, "NoneType does not say where"),
    ],
)
def test_what_does_not_say_where_it_lies_is_refused(tensor: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        TensorView.of(tensor)


@dataclass
class Device:
    type: str
    index: int | None


class Torch:
    """What a torch tensor has, of an element type that neither numpy nor DLPack need know."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.shape = (4, 2)

    def data_ptr(self) -> int:
        return 8192

    def stride(self) -> tuple[int, ...]:
        return (16, 1)

    def element_size(self) -> int:
        return 2


def test_of_torch_by_its_methods() -> None:
    view = TensorView.of(Torch(Device("cuda", 3)))
    assert (view.ptr, view.strides, view.mem, view.device) == (8192, (32, 2), "vram", 3)
    assert TensorView.of(Torch(Device("cpu", None))).mem == "dram"


@pytest.mark.parametrize("device", [Device("meta", None), Device("cuda", None)])
def test_of_torch_on_another_device_is_refused(device: Device) -> None:
    with pytest.raises(TypeError, match=device.type):
        TensorView.of(Torch(device))


def test_of_a_buffer_the_buffer_cannot_move() -> None:
    buffer = bytearray(64)
    view = TensorView.of(buffer)
    assert (view.shape, view.strides, view.element_size) == ((64,), (1,), 1)
    with pytest.raises(BufferError):
        buffer.extend(b"more")
    ctypes.memset(view.ptr, 7, 3)
    assert buffer[:4] == b"\7\7\7\0"


def test_of_an_mmap() -> None:
    with mmap.mmap(-1, 4096) as pages:
        view = TensorView.of(pages)
        assert view.num_bytes == 4096
        assert view.ptr % 4096 == 0
        del view


def test_of_a_view_is_the_view() -> None:
    view = TensorView(4096, (2, 3), (3, 1), 1, "vram", 1)
    assert TensorView.of(view) is view
