"""One request on a prefill worker, as SGLang's scheduler drives it."""

from __future__ import annotations

from typing import Any

from .prefill import PrefillManager
from .prefill_room import Event, PrefillRoom
from .scheduled import Scheduled


class Sender(Scheduled):
    """Is told pages chunk by chunk; the chunk that completes the announced number is the last.

    SGLang sends the part of a prompt that is cached while a forward that came before may still write it. It leaves what
    tells the end of that in `_early_send_wait_event`: the chunk that comes next is not read before.

    # Errors
    `ValueKindError` or `ValueRangeError` for a number that is none, `RoomTakenError` if it belongs to a request that is
    not over.
    """

    name, engine = "sender", "prefill"
    manager: PrefillManager
    request: PrefillRoom

    def __init__(self, manager: PrefillManager, address: str, room: int, has_dp_rank: bool = False) -> None:
        del address, has_dp_rank
        self._early_send_wait_event: Event | None = None
        self.manager = manager
        self.request = manager.open(room, self)
        self.room = self.request.number

    def init(self, num_kv_indices: int, aux_index: int | None = None) -> None:
        """Announces the number of pages, without those that decode has, and the auxiliary row."""
        self.manager.announce(self.request, num_kv_indices, aux_index)

    def pop_decode_prefix_len(self) -> int:
        """Tokens that decode has already: pages begin behind them. Known from WaitingForInput on."""
        return self.manager.prefix(self.request)

    def should_send_kv_chunk(self, num_pages: int, last_chunk: bool) -> bool:
        """Whether `send` is wanted for so many pages: an empty last one carries state and row."""
        return num_pages > 0 or last_chunk

    def send(self, kv_indices: Any, state_indices: Any = None, num_kv_tokens: int | None = None) -> None:
        """Queues the next pages. `state_indices`, one list for each state component, count with the last chunk.

        Pages that are out of range or more than announced fail the request, here and at the decode worker.
        """
        del num_kv_tokens
        after, self._early_send_wait_event = self._early_send_wait_event, None
        self.manager.send(self.request, kv_indices, state_indices, after)

    def is_drained(self) -> bool:
        """Whether nothing reads the request's pages any more."""
        return self.manager.is_drained(self.request)
