"""Where to put caches, for an engine that asks."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from . import _declarations as c
from ._checked import unfit
from ._handle import Handle, call, make, structs
from ._library import functions
from ._names import Layout, Mem, Role, Usage, number
from .page import Page
from .spec import Spec
from .tensor import TensorView
from .tensors import page_layer
from .worker import Worker


@dataclass(frozen=True)
class Pool:
    """One set of block ids over memory of its own.

    `layout` is the order of the axes layer (L), block (B), KV head (H), token (N) and content (C), outermost first:
    with "blhnc" all layers' pages of a block make one row. Rows and pages are padded to multiples of `row_align` and
    `page_align` bytes.
    """

    layout: Layout
    num_blocks: int
    mem: Mem = "dram"
    device: int = 0
    shared: bool = False
    row_align: int = 1
    page_align: int = 1

    def _struct(self) -> c.Pool:
        return c.Pool(
            layout=number("LAYOUT", self.layout),
            mem=number("MEM", self.mem),
            device=self.device,
            flags=c.KVFFI_STORAGE_SHARED if self.shared else 0,
            num_blocks=self.num_blocks,
            row_align=self.row_align,
            page_align=self.page_align,
        )


class Arrangement(Handle):
    """Pools, groups and layers that are to be given places. Takes one call at a time.

    arrangement = kvffi.Arrangement(kvffi.Worker("org/model"))
    arrangement.add_pool(kvffi.Pool("blhnc", num_blocks=16))
    group = arrangement.add_group(block_tokens=64)
    arrangement.add_layer("layers.0", kvffi.Page.mla("bf16"), group)
    memory = [numpy.zeros(length, numpy.uint8) for length in arrangement.storage_lens()]
    spec = arrangement.build(memory)
    """

    __slots__ = ()

    def __init__(self, worker: Worker) -> None:
        library = functions()
        arguments = (library.kvffi_arrangement_new, ctypes.byref(worker._struct()))
        self._owner = make(library.kvffi_arrangement_free, *arguments)

    def add_pool(self, pool: Pool) -> None:
        """Adds a pool; its groups follow with `add_group`."""
        call(functions().kvffi_arrangement_add_pool, self._live(), ctypes.byref(pool._struct()))

    def add_group(self, block_tokens: int = 0, *, kernel_tokens: int = 0, usage: Usage = "tokens") -> int:
        """Adds a group to the pool that was added last; its index, for `add_layer` and for requests.

        `kernel_tokens` splits each block into pages of so many tokens, which is what kernels see; 0 does not split.
        """
        struct = c.Blocks(block_tokens=block_tokens, kernel_tokens=kernel_tokens, usage=number("USAGE", usage))
        index = ctypes.c_uint32()
        arguments = (self._live(), ctypes.byref(struct), ctypes.byref(index))
        call(functions().kvffi_arrangement_add_group, *arguments)
        return index.value

    def add_layer(self, name: str, page: Page, group: int, *, role: Role = "target", transfer: bool = True) -> None:
        """Adds a layer to a group. Layers of two workers meet by name."""
        packed, kept = page_layer(name, page, group, role, transfer)
        call(functions().kvffi_arrangement_add_layer, self._live(), packed)
        # C has borrowed it until here.
        del kept

    def storage_lens(self) -> list[int]:
        """How many bytes to allocate for each storage; `SpecError` if the layers cannot be placed."""
        return [
            length.value for length in structs(_Length, functions().kvffi_arrangement_get_storage_lens, self._live())
        ]

    def build(self, storages: Iterable[Any]) -> Spec:
        """Makes a spec, with the storages where they were allocated.

        `storages`: an address, or whatever `TensorView.of` takes, for each of `storage_lens`; the spec keeps what is
        no address alive. `ValueError` if one has fewer bytes than are needed.
        """
        bases: list[int] = []
        owners: list[object] = []
        views: dict[int, TensorView] = {}
        lens = self.storage_lens()
        for index, storage in enumerate(storages):
            if isinstance(storage, int) and not isinstance(storage, bool):
                bases.append(storage)
                continue
            views[index] = view = TensorView.of(storage)
            if not view.is_contiguous:
                raise ValueError(f"storage {index} has the strides {view.strides}; give memory without gaps")
            if index < len(lens) and view.num_bytes < lens[index]:
                raise ValueError(f"storage {index} has {view.num_bytes} bytes; {lens[index]} are needed")
            bases.append(view.ptr)
            owners.append(view.owner)
        for base in bases:
            if not 0 <= base < 1 << 64:
                raise unfit(f"{base} is no address")
        array = (ctypes.c_uint64 * len(bases))(*bases)
        library = functions()
        arguments = (library.kvffi_arrangement_build, self._live(), array, len(bases))
        spec = Spec._wrap(make(library.kvffi_spec_free, *arguments), tuple(owners))
        for index, storage in enumerate(spec.to_dict()["storages"]):
            given = views.get(index)
            wanted = (storage["mem"], storage.get("device", 0))
            if given is not None and (given.mem, given.device) != wanted:
                place, pool = f"{given.mem} {given.device}", f"{wanted[0]} {wanted[1]}"
                raise ValueError(f"storage {index} is in {place} and its pool in {pool}; say so in Pool")
        return spec


class _Length(ctypes.Structure):
    _fields_ = (("value", ctypes.c_uint64),)
    value: int
