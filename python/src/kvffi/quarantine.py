"""Transfers that have failed and not settled."""

from __future__ import annotations

from typing import NamedTuple

from . import _declarations as c
from ._handle import Owner, structs
from ._library import functions
from ._names import Op, word


class Quarantined(NamedTuple):
    """A transfer that has failed and not settled: until it leaves quarantine its blocks must not be used again.

    Bytes may land here for "read", at the peer for "write". `request` is what `Agent.start` was told, `cause` the name
    of the status that stands for the failure, `age` seconds. `in_progress`: requests that NIXL says are; `unproven`:
    requests that failed with no proof that they have settled. `ranges`: bytes that may still be written and read.
    """

    transfer: int
    request: str | None
    peer: str
    incarnation: int
    op: Op
    cause: str
    message: str
    age: float
    bytes: int
    in_progress: int
    unproven: int
    ranges: list[c.QuarantinedRange]


def entries(quarantine: Owner) -> list[Quarantined]:
    """The entries of a list, with their ranges."""
    library = functions()
    return [
        Quarantined(
            each.transfer,
            each.request.decode() if each.request is not None else None,
            (each.peer or b"").decode(),
            each.incarnation,
            word("OP", each.op),
            (library.kvffi_status_name(each.cause) or b"").decode(),
            (each.message or b"").decode(),
            each.age_us / 1e6,
            each.bytes,
            each.in_progress,
            each.unproven,
            list(structs(c.QuarantinedRange, library.kvffi_quarantine_get_ranges, quarantine, index)),
        )
        for index, each in enumerate(structs(c.Quarantined, library.kvffi_quarantine_get_entries, quarantine))
    ]
