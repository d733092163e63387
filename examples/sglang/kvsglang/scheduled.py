"""What senders and receivers have in common, as SGLang's scheduler drives them."""

from __future__ import annotations

from typing import Any, Protocol

from .errors import TransferError
from .rooms import AnyRoom, Rooms
from .states import Poll


class Manager(Protocol):
    """A manager of either role."""

    @property
    def rooms(self) -> Rooms[Any]:
        """Its requests."""


class Scheduled:
    """One request, in a manager's room."""

    name: str
    engine: str
    """What it and its engine are called in errors."""
    manager: Manager
    room: int
    request: AnyRoom
    """The manager's room: when this request is over its number may be another's, of which this object is no part."""

    def poll(self) -> Poll:
        """The state now."""
        return self.manager.rooms.poll(self.room, self.request)

    def clear(self) -> None:
        """Forgets the request; one that is under way is aborted, and its pages stay held until nothing touches them."""
        self.manager.rooms.clear(self.room, f"the {self.name} was cleared while bytes moved", self.request)

    def abort(self) -> None:
        """Gives the request up. Its pages may be used again when nothing touches them: see `held` and `is_drained`."""
        self.manager.rooms.abort(self.room, f"aborted by the {self.engine} engine", self.request)

    def failure_exception(self) -> None:
        """Raises why the request failed, and forgets it."""
        reason = self.manager.rooms.reason(self.room, self.request)
        self.clear()
        raise TransferError(self.room, reason or "it did not fail")
