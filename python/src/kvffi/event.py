"""What an exchange tells its engine."""

from __future__ import annotations

import array
import ctypes
from dataclasses import dataclass
from typing import Literal

from . import _declarations as c
from . import errors
from ._library import functions
from ._names import word
from .peer import PeerId
from .request import BlockList

EventKind = Literal[
    "other",
    "freed",
    "push",
    "write_failed",
    "pulled",
    "pull_failed",
    "returned_pull",
    "arrived",
    "arrival_failed",
    "returned_reservation",
    "peer_lost",
    "peer_replaced",
    "peer_stale",
    "peer_released",
    "withdrawn",
    "notification",
    "given_up",
]
Why = Literal["all_read", "readers_lost", "expired", "aborted", "given_up"]

# Kinds with which blocks are the engine's again.
BLOCKS_COME_BACK = frozenset(
    (
        c.KVFFI_EVENT_FREED,
        c.KVFFI_EVENT_PULLED,
        c.KVFFI_EVENT_RETURNED_PULL,
        c.KVFFI_EVENT_ARRIVED,
        c.KVFFI_EVENT_RETURNED_RESERVATION,
    )
)


@dataclass(frozen=True)
class Event:
    """Something that happened at an exchange. Its kind says which of the fields it has; ignore kinds you do not know.

    "freed": source `blocks` of a `lease` are the engine's again: `request`, `why`. "push": a decode worker (`peer`,
    `reservation`) wants a `request` that has a `lease`, into its blocks `lists`: write the parts that are ready with
    `Exchange.write`. "write_failed": `peer`, `reservation`, `part`, `error`. "given_up": a reader (`peer`) wants a
    `request` under a `lease` no more; "freed" follows when nobody else is waited for and all parts are ready.

    "pulled": every byte of a `pull` is in its `blocks`, and every lease was good. "pull_failed": `pull`, `error`; its
    blocks follow. "returned_pull": `blocks` of a pull that failed, with any bytes. "arrived", "arrival_failed" and
    "returned_reservation": the same for a `reservation`.

    "peer_lost": a `peer` cannot be reached. "peer_replaced": another process has the name of one that was there
    (`old_incarnation`). "peer_stale": its blob is of no use any more. "peer_released": it was let go. "withdrawn": no
    peer touches this agent's memory any more. "notification": of the engine's own, `peer` and `data`; the incarnation
    is 0 if its sender is no agent of this library.
    """

    kind: EventKind
    blocks: object = None
    request: str | None = None
    lease: int = 0
    pull: int = 0
    reservation: int = 0
    peer: PeerId | None = None
    old_incarnation: int = 0
    part: int = 0
    why: Why | None = None
    error: errors.Error | None = None
    lists: tuple[BlockList, ...] = ()
    data: bytes = b""


def read(event: c.Event, blocks: object) -> Event:
    """An event of C as one of Python, with the blocks that come back."""
    error = None
    message = (event.message or b"").decode()
    if event.status < 0:
        name = (functions().kvffi_status_name(event.status) or b"").decode()
        error = errors.CLASSES.get(event.status, errors.Error)(event.status, name, message)
    return Event(
        kind=word("EVENT", event.kind),
        blocks=blocks,
        request=event.request.decode() if event.request is not None else None,
        lease=event.lease,
        pull=event.pull,
        reservation=event.reservation,
        peer=PeerId(event.peer.decode(), event.incarnation) if event.peer is not None else None,
        old_incarnation=event.old_incarnation,
        part=event.part,
        why=word("WHY", event.why) if event.why else None,
        error=error,
        lists=_lists(event),
        data=ctypes.string_at(event.data, event.data_len) if event.data_len else b"",
    )


def _lists(event: c.Event) -> tuple[BlockList, ...]:
    if not event.num_lists:
        return ()
    listed = (c.BlockList * event.num_lists).from_address(event.lists)
    made = []
    for each in listed:
        ids = array.array("I")
        if each.num_blocks:
            ids.frombytes(ctypes.string_at(each.blocks, each.num_blocks * ids.itemsize))
        made.append(BlockList(each.group, ids, each.first))
    return tuple(made)
