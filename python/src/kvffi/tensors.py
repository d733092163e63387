"""A spec from the tensors that an engine has."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from . import _declarations as c
from ._checked import text, unfit
from ._handle import Handle, Owner, call, make
from ._library import functions
from ._names import Role, number
from ._packed import Packing
from .page import Page
from .spec import Spec
from .tensor import TensorView
from .worker import Group, Storage, Worker


@lru_cache(maxsize=64)
def _extents(num_axes: int) -> struct.Struct:
    """Shape and strides."""
    return struct.Struct(f"={num_axes}Q{num_axes}q")


@lru_cache(maxsize=256)
def _packing(tail: int) -> Packing:
    """A tensor, and behind it its shape, strides and labels."""
    return Packing(tail, c.Tensor)


@lru_cache(maxsize=256)
def _layer_packing(tail: int) -> Packing:
    """A layer, and behind it its name."""
    return Packing(tail, c.PageLayer)


def page_layer(name: str, page: Page, group: int, role: Role, transfer: bool) -> tuple[Any, Owner]:
    """A layer whose parts are those of a page, as C takes it, and what has to live as long."""
    owner = Page._handle_of(page, "page")
    encoded = text(name, "name")
    packed = _layer_packing(len(encoded) + 1)
    memory = packed.memory()
    flags = 0 if transfer else c.KVFFI_LAYER_STAYS
    fields = (ctypes.addressof(memory) + packed.size, owner.value, group, number("ROLE", role), flags, 0)
    try:
        # A zero ends the name.
        packed.pack_into(memory, 0, packed.size, *fields, encoded)
    except struct.error:
        # Says which of the numbers does not fit.
        c.PageLayer(group=group)
        raise
    return memory, owner


class Tensors(Handle):
    """An engine's layers with the tensors that hold them. Takes one call at a time.

    tensors = kvffi.Tensors(kvffi.Worker("org/model"))
    group = tensors.add_group(kvffi.Group(num_blocks=16, block_tokens=64))
    layer = tensors.add_layer("layers.0", kvffi.Page.mla("bf16"), group)
    tensors.add_tensor(layer, cache, "BNC")
    spec = tensors.build()
    """

    __slots__ = ("_owners",)

    def __init__(self, worker: Worker) -> None:
        library = functions()
        arguments = (library.kvffi_tensors_new, ctypes.byref(worker._struct()))
        self._owner = make(library.kvffi_tensors_free, *arguments)
        self._owners: list[object] = []

    def add_storage(self, storage: Storage) -> None:
        """Adds an allocation. With none, tensors of the same memory that overlap or touch are taken for one."""
        call(functions().kvffi_tensors_add_storage, self._live(), ctypes.byref(storage._struct()))

    def add_group(self, group: Group) -> int:
        """Adds a block table; its index, for `add_layer` and for requests."""
        index = ctypes.c_uint32()
        arguments = (self._live(), ctypes.byref(group._struct()), ctypes.byref(index))
        call(functions().kvffi_tensors_add_group, *arguments)
        return index.value

    def add_layer(self, name: str, page: Page, group: int, *, role: Role = "target", transfer: bool = True) -> int:
        """Adds a layer, as yet without tensors; its index, for `add_tensor`. Layers of two workers meet by name.

        A layer that does not `transfer` still owns its bytes.
        """
        packed, kept = page_layer(name, page, group, role, transfer)
        index = ctypes.c_uint32()
        call(functions().kvffi_tensors_add_layer, self._live(), packed, ctypes.byref(index))
        # C has borrowed it until here.
        del kept
        return index.value

    def add_tensor(
        self,
        layer: int,
        tensor: Any,
        axes: str,
        *,
        parts: Sequence[str] = (),
        side_by_side: bool = False,
    ) -> None:
        """Adds a tensor to a layer, which is an index that `add_layer` returned.

        `tensor`: whatever `TensorView.of` takes. `axes`: a label for every axis: B block; H unit (KV head, SSM head,
        channel); N token or state in the block, several times if it is split; C content; 2 the tensor's two parts, K
        then V; 1 an axis that means nothing. `parts`: the parts that it holds, in order; none for all that no other
        tensor names. `side_by_side`: they lie one behind the other on the axis H, as the projections of a convolution
        state do.

        B has the group's `num_blocks` positions. Or k times as many, if N has the k-th part of a block's states: then
        block b is positions k·b to k·b+k-1 of B, one after the other (kernel blocks), and nothing but the extents says
        so. If that is not meant, give the group the tensor's own `num_blocks` and `block_tokens`, or show the pieces of
        a block as an axis N of their own: [2, num_blocks, 32, 576] is "NBNC". Any other extent is an error.

        The spec keeps the tensor alive. What the tensor contradicts is found by `build`.
        """
        view = TensorView.of(tensor)
        num_axes = len(view.shape)
        if len(view.strides) != num_axes or len(axes) != num_axes:
            given = f"{num_axes} extents, {len(view.strides)} strides and the labels {axes!r}"
            raise ValueError(f"the tensor has {given}; give as many of each")
        names = (ctypes.c_char_p * len(parts))(*(text(part, "a part's name") for part in parts))
        described, shape, strides = _extents(num_axes), view.shape, view.strides
        label = text(axes, "axes")
        packed = _packing(described.size + len(label) + 1)
        memory = packed.memory()
        address = ctypes.addressof(memory) + packed.size
        mem = number("MEM", view.mem)
        try:
            tail = described.pack(*shape, *strides) + label
            packed.pack_into(
                memory,
                0,
                packed.size,
                view.ptr,
                address if num_axes else 0,
                address + 8 * num_axes if num_axes else 0,
                num_axes,
                address + described.size,
                view.element_size,
                ctypes.addressof(names) if parts else 0,
                len(parts),
                mem,
                view.device,
                c.KVFFI_TENSOR_SIDE_BY_SIDE if side_by_side else 0,
                0,
                # A zero ends the labels.
                tail,
            )
        except struct.error:
            # Says which of the numbers does not fit.
            _all_fit(shape, 0, "extent")
            _all_fit(strides, -(1 << 63), "stride")
            c.Tensor(ptr=view.ptr, element_size=view.element_size, device=view.device)
            (ctypes.c_int64 * num_axes)(*shape)
            (ctypes.c_int64 * num_axes)(*strides)
            raise
        call(functions().kvffi_tensors_add_tensor, self._live(), layer, memory)
        # C has borrowed them until here.
        del names
        self._owners.append(view.owner)

    def build(self) -> Spec:
        """Makes a spec of the tensors; `SpecError` if one contradicts its page, or with all that is wrong."""
        library = functions()
        owner = make(library.kvffi_spec_free, library.kvffi_tensors_build, self._live())
        return Spec._wrap(owner, tuple(self._owners))


def _all_fit(values: tuple[int, ...], low: int, what: str) -> tuple[int, ...]:
    for value in values:
        if not low <= value < 1 << 63:
            raise unfit(f"{what} {value} is not from {low} to {(1 << 63) - 1}")
    return values
