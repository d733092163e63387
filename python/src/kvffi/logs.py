"""What the library says of itself."""

from __future__ import annotations

import ctypes
import logging
import time
from collections.abc import Iterator
from typing import NamedTuple

from . import _declarations as c
from ._handle import Handle, Owner, call, structs
from ._inbox import Inbox
from ._library import functions
from ._names import LogLevel, number, word
from ._news import which_readable
from ._time import SLICE, end_of

# As Python's logging has them; it has none for "trace".
_LEVELS = {"error": logging.ERROR, "warn": logging.WARNING, "info": logging.INFO, "debug": logging.DEBUG, "trace": 5}


class LogRecord(NamedTuple):
    """A log record: seconds since 1970, how important, which part of the library, and what happened."""

    time: float
    level: LogLevel
    target: str
    message: str


class Logs(Handle):
    """The library's log records, from when this is made until it is closed: one in a process at a time.

    `level`: the least important records that are kept. `capacity`: most records that wait to be taken, 4096 by default;
    later ones are dropped, and counted in `dropped`. Nothing calls into Python: the engine takes records when it likes.

        with kvffi.Logs("debug") as logs:
            ...
            logs.forward()
    """

    __slots__ = ("_taken", "dropped")

    def __init__(self, level: LogLevel = "info", *, capacity: int = 0) -> None:
        library = functions()
        options = c.LogOptions(level=number("LOG", level), capacity=capacity)
        owner = Owner(library.kvffi_logs_free)
        call(library.kvffi_logs_new, ctypes.byref(options), ctypes.byref(owner))
        self._owner = owner
        self._taken: Inbox[LogRecord] = Inbox(library.kvffi_log_records_free)
        # Records that found no room, so far.
        self.dropped = 0

    def take(self) -> list[LogRecord]:
        """Takes the records that wait, in order."""
        self._fill()
        return self._taken.all()

    def _fill(self) -> None:
        library = functions()

        def take(taken: Owner) -> None:
            dropped = ctypes.c_uint64()
            call(library.kvffi_logs_take, self._live(), ctypes.byref(taken), ctypes.byref(dropped))
            self.dropped += dropped.value

        def read(taken: Owner) -> list[LogRecord]:
            return [
                LogRecord(
                    each.time_ns / 1e9,
                    word("LOG", each.level),
                    (each.target or b"").decode(),
                    (each.message or b"").decode(),
                )
                for each in structs(c.LogRecord, library.kvffi_log_records_get, taken)
            ]

        self._taken.fill(take, read)

    def listen(self, timeout: float | None = None) -> Iterator[LogRecord]:
        """Records as they come; ends when none has come for `timeout` seconds, and when this is closed.

        Waits without the GIL. Who stops early leaves the others to the next call.
        """
        end = end_of(timeout)
        while not self.closed:
            self._fill()
            for record in self._taken.each():
                yield record
                end = end_of(timeout)
            if not self._wait(end):
                return

    def _wait(self, end: float) -> bool:
        """Whether there may be records; in pieces, since another thread may close this."""
        while not self.closed:
            left = end - time.monotonic()
            # Nobody else frees the log, and its descriptor, while this one waits.
            logs = self._live()
            ready = bool(which_readable((self.fd(),), min(left, SLICE)))
            del logs
            if ready or left <= SLICE:
                return ready
        return False

    def fd(self) -> int:
        """A file descriptor that is readable while records wait; valid until this is closed."""
        fd = ctypes.c_int32()
        call(functions().kvffi_logs_get_fd, self._live(), ctypes.byref(fd))
        return fd.value

    def forward(self, name: str = "kvffi") -> int:
        """Hands the records that wait to Python's `logging`, to loggers below `name`; how many there were.

        A record of the part "kvnixl::agent" goes to the logger "kvffi.kvnixl.agent".
        """
        records = self.take()
        for record in records:
            logger = logging.getLogger(".".join((name, *record.target.split("::"))))
            level = _LEVELS.get(record.level, logging.INFO)
            if logger.isEnabledFor(level):
                made = logger.makeRecord(logger.name, level, record.target, 0, record.message, (), None)
                made.created = record.time
                made.msecs = record.time % 1 * 1000
                logger.handle(made)
        return len(records)
