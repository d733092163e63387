"""A spec from its parts, for an engine that knows every offset."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

from . import _declarations as c
from ._checked import text
from ._handle import Handle, call, make
from ._library import functions
from ._names import Kind, Role, Sharding, number
from .page import fraction
from .spec import Spec
from .worker import Group, Storage, Worker


@dataclass(frozen=True)
class Part:
    """The smallest named piece of a layer's page that has one sharding.

    The address of (block, unit, token indices, byte) is

        storage base + offset + block*block_stride + unit*unit_stride + sum of token[i]*tokens[i].stride + byte

    with 0 <= byte < content. `tokens` are (count, stride), outermost first. `format` is what the bytes mean, and must
    be the same at a peer. `total_units` and `first_unit` are for sharded parts, as kvffi.h says.
    """

    name: str
    storage: int
    offset: int
    block_stride: int
    content: int
    tokens: Sequence[tuple[int, int]] = ()
    format: str = ""
    sharding: Sharding = "replicated"
    total_units: int = 0
    first_unit: int = 0
    num_units: int = 1
    unit_stride: int = 0
    tokens_per_state: int | tuple[int, int] = 1

    def _struct(self) -> c.Part:
        axes = (c.Axis * len(self.tokens))(*(c.Axis(count=count, stride=stride) for count, stride in self.tokens))
        numerator, denominator = fraction(self.tokens_per_state)
        struct = c.Part(
            name=text(self.name, "name"),
            format=text(self.format, "format"),
            storage=self.storage,
            sharding=number("SHARDING", self.sharding),
            offset=self.offset,
            block_stride=self.block_stride,
            total_units=self.total_units,
            first_unit=self.first_unit,
            num_units=self.num_units,
            unit_stride=self.unit_stride,
            tokens=ctypes.addressof(axes) if len(axes) else None,
            num_tokens=len(axes),
            content=self.content,
            tokens_per_state_num=numerator,
            tokens_per_state_den=denominator,
        )
        struct.keep = axes
        return struct


class SpecBuilder(Handle):
    """A spec in the making. Takes one call at a time."""

    __slots__ = ()

    def __init__(self, worker: Worker) -> None:
        library = functions()
        arguments = (library.kvffi_spec_builder_new, ctypes.byref(worker._struct()))
        self._owner = make(library.kvffi_spec_builder_free, *arguments)

    def add_storage(self, storage: Storage) -> int:
        """Adds an allocation; its index, for `Part.storage`."""
        index = ctypes.c_uint32()
        arguments = (self._live(), ctypes.byref(storage._struct()), ctypes.byref(index))
        call(functions().kvffi_spec_builder_add_storage, *arguments)
        return index.value

    def add_group(self, group: Group) -> int:
        """Adds a block table; its index, for `add_layer` and for requests."""
        index = ctypes.c_uint32()
        arguments = (self._live(), ctypes.byref(group._struct()), ctypes.byref(index))
        call(functions().kvffi_spec_builder_add_group, *arguments)
        return index.value

    def add_layer(
        self, name: str, group: int, *, kind: Kind = "opaque", role: Role = "target", transfer: bool = True
    ) -> int:
        """Adds a layer, as yet without parts; its index, for `add_part`. Layers of two workers meet by name.

        A layer that does not `transfer` still owns its bytes.
        """
        struct = c.Layer(
            name=text(name, "name"),
            group=group,
            kind=number("KIND", kind),
            role=number("ROLE", role),
            flags=0 if transfer else c.KVFFI_LAYER_STAYS,
        )
        index = ctypes.c_uint32()
        arguments = (self._live(), ctypes.byref(struct), ctypes.byref(index))
        call(functions().kvffi_spec_builder_add_layer, *arguments)
        return index.value

    def add_part(self, layer: int, part: Part) -> None:
        """Adds a part to a layer, which is an index that `add_layer` returned."""
        arguments = (self._live(), layer, ctypes.byref(part._struct()))
        call(functions().kvffi_spec_builder_add_part, *arguments)

    def build(self) -> Spec:
        """Validates what was added and makes a spec of it; `SpecError` with everything that is wrong."""
        library = functions()
        return Spec._wrap(make(library.kvffi_spec_free, library.kvffi_spec_builder_build, self._live()))
