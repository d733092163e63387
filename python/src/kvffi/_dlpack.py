"""Reading where a tensor lies from its DLPack capsule."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from typing import Any, NamedTuple

# Device types of DLPack.
CPU = 1
CUDA = 2
CUDA_HOST = 3

# Flags of a versioned tensor.
_READ_ONLY = 1
_IS_COPIED = 2


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    )


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", c_uint32),
        ("minor", c_uint32),
        ("manager_ctx", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("tensor", _Tensor),
    )


class Described(NamedTuple):
    """What a capsule says, and the capsule, which the memory may belong to. Strides are elements; None is row-major."""

    ptr: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    element_bits: int
    device_type: int
    device: int
    capsule: object


_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype = ctypes.c_int
_is_valid.argtypes = [ctypes.py_object, ctypes.c_char_p]
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype = c_void_p
_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def describe(tensor: Any) -> Described:
    """Asks a tensor for a capsule and reads it. The capsule is not consumed: the memory is there as long as it."""
    device_type = int(tensor.__dlpack_device__()[0])
    # Only the address is wanted: no stream has to wait.
    capsule = tensor.__dlpack__(stream=-1) if device_type == CUDA else tensor.__dlpack__()
    if _is_valid(capsule, b"dltensor"):
        described = _Tensor.from_address(_pointer(capsule, b"dltensor"))
    elif _is_valid(capsule, b"dltensor_versioned"):
        versioned = _Versioned.from_address(_pointer(capsule, b"dltensor_versioned"))
        if versioned.major != 1:
            raise TypeError(f"DLPack {versioned.major}.{versioned.minor} is not known; 1 is")
        if versioned.flags & _READ_ONLY:
            raise TypeError("the tensor is read-only; peers' bytes are written to a cache")
        if versioned.flags & _IS_COPIED:
            raise TypeError("the tensor shows a copy of itself; bytes that are written there are lost")
        described = versioned.tensor
    else:
        raise TypeError(f"__dlpack__ of {type(tensor).__name__} returns no capsule of a tensor")
    axes = range(described.ndim)
    return Described(
        ptr=(described.data or 0) + described.byte_offset,
        shape=tuple(described.shape[axis] for axis in axes),
        strides=tuple(described.strides[axis] for axis in axes) if described.strides else None,
        element_bits=described.bits * described.lanes,
        device_type=described.device_type,
        device=described.device_id,
        capsule=capsule,
    )
