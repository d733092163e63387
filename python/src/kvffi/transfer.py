"""Bytes that move."""

from __future__ import annotations

import ctypes
from typing import Literal

from . import _declarations as c
from ._handle import Handle, Owner, call, refusal
from ._library import functions
from ._time import wait
from .errors import Error

State = Literal["in_progress", "done", "failed", "unsettled"]

_STATES: dict[int, State] = {
    c.KVFFI_OK: "done",
    c.KVFFI_IN_PROGRESS: "in_progress",
    c.KVFFI_ERR_TRANSFER_FAILED: "failed",
    c.KVFFI_ERR_TRANSFER_UNSETTLED: "unsettled",
}


class Transfer(Handle):
    """Bytes that move between an agent and a peer.

    Its blocks are in use until it has settled, whether the object lives or not. One that is in progress is cancelled
    when the object is closed, at the end of a `with` block, and when nothing refers to it: hold on to it. A wait of
    another thread ends with `ValueError` then.
    """

    __slots__ = ("_agent",)
    _agent: Owner

    def __init__(self) -> None:
        raise TypeError("a Transfer is made by Agent.start")

    @classmethod
    def _new(cls, agent: Owner) -> Transfer:
        """An object for a call to start."""
        transfer = cls.__new__(cls)
        transfer._owner = Owner(functions().kvffi_transfer_free)
        # Before it ends, the memory may not go, which the agent keeps.
        transfer._agent = agent
        return transfer

    def poll(self) -> State:
        """Where it stands; nothing blocks, and a failure raises nothing.

        "done": every byte is in place and the notification has been sent. "in_progress". "unsettled": it failed, and
        bytes may still land. "failed": it failed, and nothing can land any more, so its blocks may be used again. A
        transfer that failed unsettled says so until it settles, which may be never.
        """
        return self._state(functions().kvffi_transfer_poll(self._live(), None))

    def _state(self, status: int) -> State:
        state = _STATES.get(status)
        if state is None:
            call(functions().kvffi_transfer_poll, self._live())
            return self.poll()
        return state

    def error(self) -> Error | None:
        """Why it failed, a `TransferFailed` or a `TransferUnsettled`; None while it has not."""
        return refusal(functions().kvffi_transfer_poll, self._live())

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until it is done: True, or False if `timeout` seconds are over and it goes on.

        `TransferFailed` if it failed and nothing can land any more, `TransferUnsettled` if bytes may still land.
        """
        function = functions().kvffi_transfer_wait

        def step(milliseconds: int) -> bool:
            return call(function, self._live(), milliseconds) == c.KVFFI_OK

        return wait(step, timeout)

    def wait_settled(self, timeout: float | None = None) -> bool:
        """Waits until nothing of it can land any more, so that its blocks may be used again.

        False if `timeout` seconds are over. Says nothing about whether it is done: see `poll`.
        """
        function = functions().kvffi_transfer_wait_settled

        def step(milliseconds: int) -> bool:
            return self._state(function(self._live(), milliseconds, None)) in ("done", "failed")

        return wait(step, timeout)

    def cancel(self) -> None:
        """Says that the bytes are no longer wanted. What was not posted is not; what was posted still settles."""
        call(functions().kvffi_transfer_cancel, self._live())

    def stats(self) -> c.TransferStats:
        """What it has cost so far; `cause` is the status that stands for the cause of a failure, 0 without one."""
        stats = c.TransferStats()
        call(functions().kvffi_transfer_get_stats, self._live(), ctypes.byref(stats))
        return stats
