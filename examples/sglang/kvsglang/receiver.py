"""One request on a decode worker, as SGLang's scheduler drives it."""

from __future__ import annotations

from typing import Any

from .decode import DecodeManager
from .decode_room import DecodeRoom
from .errors import IntegrationError
from .integers import integer
from .scheduled import Scheduled


class Receiver(Scheduled):
    """Says where a request's pages go, and polls until they are there.

        Bootstrapping     -> init            -> WaitingForInput
        WaitingForInput   -> send_metadata   -> Transferring
        Transferring      -> every prefill worker has written -> Success
        any               -> a failure on either side, abort  -> Failed

    # Errors
    `ValueKindError` or `ValueRangeError` for a number that is none, `RoomTakenError` if it belongs to a request that is
    not over, or whose pages are held.
    """

    name, engine = "receiver", "decode"
    manager: DecodeManager
    request: DecodeRoom

    def __init__(self, manager: DecodeManager, address: str, room: int) -> None:
        self.manager = manager
        self.request = manager.open(room, address)
        self.room = self.request.number

    def init(self, prefill_dp_rank: int | None = 0) -> None:
        """Finds the prefill workers. An engine whose groups of data parallelism are several is refused."""
        self.manager.connect(self.request)
        try:
            # An engine that is served has group 0 alone.
            integer("prefill_dp_rank", 0 if prefill_dp_rank is None else prefill_dp_rank, 0, 0)
        except IntegrationError as error:
            self.manager.rooms.abort(self.room, str(error), self.request)

    def send_metadata(
        self,
        kv_indices: Any,
        aux_index: int | None = None,
        state_indices: Any = None,
        decode_prefix_len: int | None = None,
    ) -> None:
        """Gives the pages, slots and row to write into. With a prefix hit, pages begin behind it, and may be none.

        Pages that are out of range fail the request, here and at the prefill workers.
        """
        self.manager.announce(self.request, kv_indices, aux_index, state_indices, decode_prefix_len)

    def is_abort_release_safe(self) -> bool:
        """Whether nobody writes into the request's pages any more."""
        return self.manager.is_released(self.room, self.request)
