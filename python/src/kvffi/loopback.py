"""A network within one process, for tests and first contact."""

from __future__ import annotations

from ._handle import Handle, call, make
from ._library import functions
from ._names import Fault, number


class Loopback(Handle):
    """Agents of one process that can reach each other without NIXL: bytes are copied on the host.

    May be closed at any time: agents keep what they need.
    """

    __slots__ = ()

    def __init__(self) -> None:
        library = functions()
        self._owner = make(library.kvffi_loopback_free, library.kvffi_loopback_new)

    def set_faults(self, *faults: Fault) -> None:
        """Makes the network misbehave, or behave again without an argument.

        "stall": requests stay in progress and move nothing, as with a peer that has stopped. "break": they fail with no
        proof that they have settled, as with a peer that was lost. "lose_notifications": those never arrive.
        """
        flags = 0
        for fault in faults:
            flags |= number("LOOPBACK", fault)
        call(functions().kvffi_loopback_set_faults, self._live(), flags)
