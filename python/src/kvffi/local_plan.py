"""What one worker registers and advertises."""

from __future__ import annotations

from typing import NamedTuple

from . import _declarations as c
from ._handle import Handle, Owner, structs
from ._library import functions


class Member(NamedTuple):
    """A part that lies in a region: offset in the region's block, and bytes of the part in one block."""

    layer: str
    part: str
    group: int
    offset: int
    len: int


class LocalPlan(Handle):
    """What one worker registers and advertises: memory ranges, and regions with their members. Immutable."""

    __slots__ = ("_keep",)
    # What the spec keeps alive.
    _keep: tuple[object, ...]

    def __init__(self) -> None:
        raise TypeError("a LocalPlan is made by Spec.plan_local")

    @classmethod
    def _wrap(cls, owner: Owner, keep: tuple[object, ...] = ()) -> LocalPlan:
        plan = cls.__new__(cls)
        plan._owner = owner
        plan._keep = keep
        return plan

    def memory_ranges(self) -> list[c.MemoryRange]:
        """The storages in use, each to be registered once, whatever the number of caches in it."""
        return list(structs(c.MemoryRange, functions().kvffi_local_plan_get_memory_ranges, self._live()))

    def regions(self) -> list[c.Region]:
        """Equal byte ranges, one for each block: block b lies at `offset + b * block_stride`."""
        return list(structs(c.Region, functions().kvffi_local_plan_get_regions, self._live()))

    def members(self, region: int) -> list[Member]:
        """The parts that lie in a region, which is an index in `regions`."""
        plan = self._live()
        listed = structs(c.Member, functions().kvffi_local_plan_get_members, plan, region)
        return [
            Member((each.layer or b"").decode(), (each.part or b"").decode(), each.group, each.offset, each.len)
            for each in listed
        ]
