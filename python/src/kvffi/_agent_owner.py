"""What keeps an agent and the memory that it registered alive."""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from . import _declarations as c
from ._handle import Owner, call
from ._inbox import Inbox
from ._library import functions
from ._news import News
from ._pinned import Pinned
from ._time import end_of, milliseconds
from .errors import Error

_registrations = itertools.count()

# What is in progress may settle for so many seconds, when an agent ends without being told how long.
GRACE = 1.0

# How many seconds pass between two looks at whether everything has settled.
_LOOK = 0.01


class AgentOwner(Owner):
    """Ends an agent before it frees it, and keeps its memory until then: for ever, if something may still land."""

    __slots__ = ("_pinned", "arrived", "fd", "lock", "memory", "news", "registered", "registering", "waits")

    def __init__(self) -> None:
        super().__init__(functions().kvffi_agent_free)
        # What each registration keeps alive, by a number. Goes when the library says that nothing can land any more.
        self.memory: dict[int, object] = {}
        self._pinned = Pinned(self.memory)
        # The numbers of what may be registered now. Held while that changes: one at a time.
        self.registered: frozenset[int] = frozenset()
        self.registering = threading.Lock()
        # A copy of the agent's descriptor: valid also while another thread closes the agent.
        self.fd: int | None = None
        self.lock = threading.Lock()
        self.news = News()
        # Notifications that were taken from the library, and that nobody has seen.
        self.arrived: Inbox[Any] = Inbox(functions().kvffi_notifications_free)
        # Nobody refers to it, but an exchange still uses the agent.
        self.waits = False

    def keep(self, memory: object) -> int:
        """Keeps memory that is about to be registered; a number, to forget it by if it is refused."""
        self._pinned.pin()
        number = next(_registrations)
        self.memory[number] = memory
        return number

    def shut_down(self, timeout: float) -> None:
        """Ends the agent. After a success its memory goes."""
        end = end_of(timeout)
        # In pieces: signals are handled between calls only.
        while self._unsettled() and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _LOOK))
        try:
            call(functions().kvffi_agent_shutdown, self, milliseconds(max(end - time.monotonic(), 0)))
        except Error as error:
            # A signal came when the call before this one had ended the agent.
            if error.status != c.KVFFI_ERR_SHUT_DOWN or self._unsettled():
                raise
        self._pinned.unpin()
        self.memory.clear()

    def _unsettled(self) -> int:
        info = c.AgentInfo()
        functions().kvffi_agent_get_info(self, ctypes.byref(info), None)
        return info.unsettled

    def __del__(self) -> None:
        if self:
            self.end()

    def end(self) -> None:
        """Ends and frees the agent, which nobody refers to any more."""
        status = functions().kvffi_agent_shutdown(self, milliseconds(GRACE), None)
        # Of a cycle, the exchange may be freed after the agent.
        self.waits = status == c.KVFFI_ERR_IN_USE
        if self.waits:
            return
        if status == c.KVFFI_OK:
            self._pinned.unpin()
        super().__del__()
        self.value = None
        self.news.close()
        if self.fd is not None:
            os.close(self.fd)


class UserOwner(Owner):
    """Frees what uses an agent, and ends the agent if that waits for it."""

    __slots__ = ("_agent",)

    def __init__(self, free: Callable[[Any], None], agent: AgentOwner) -> None:
        super().__init__(free)
        self._agent = agent

    def __del__(self) -> None:
        super().__del__()
        if self._agent.waits:
            self._agent.end()
