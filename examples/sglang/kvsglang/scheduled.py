"""What senders and receivers have in common, as SGLang's scheduler drives them."""

from __future__ import annotations

from typing import Protocol

from .errors import TransferError
from .states import Poll


class Manager(Protocol):
    """A manager's rooms, whatever its role."""

    def poll(self, number: int) -> Poll:
        """State of a room."""

    def reason(self, number: int) -> str:
        """Why a room failed; empty if it did not."""

    def clear(self, number: int) -> None:
        """Forgets a request; one that is under way is aborted."""


class Scheduled:
    """One request, in a manager's room."""

    manager: Manager
    room: int

    def poll(self) -> Poll:
        """The state now."""
        return self.manager.poll(self.room)

    def clear(self) -> None:
        """Forgets the request; one that is under way is aborted, and its pages stay held until nothing touches them."""
        self.manager.clear(self.room)

    def failure_exception(self) -> None:
        """Raises why the request failed, and forgets it."""
        reason = self.manager.reason(self.room)
        self.clear()
        raise TransferError(self.room, reason or "it did not fail")
