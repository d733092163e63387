"""Child processes: one for either side of each kind, with the memory mapped and a line to the driver.

A child is `python -m peers.MODULE SIDE`. It serves calls by name until the line closes.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

_LINE, _MEMORY, _LENGTH = "PEERS_LINE", "PEERS_MEMORY", "PEERS_LENGTH"
_PATIENCE = 180.0


def _end_with_parent() -> None:
    """A stopped child would not see that the driver has ended."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


class ChildFailed(Exception):
    """A child has said what went wrong, or has ended."""


class Child:
    """A process that serves one side. Stopped while another kind runs."""

    def __init__(
        self, module: str, side: str, *, python: Path, memory: int, length: int, log: Path, **env: str
    ) -> None:
        ours, theirs = socket.socketpair()
        with theirs, log.open("w") as output:
            self._process = subprocess.Popen(
                [str(python), "-m", f"peers.{module}", side],
                cwd=Path(__file__).resolve().parents[1],
                env=os.environ | env | {_LINE: str(theirs.fileno()), _MEMORY: str(memory), _LENGTH: str(length)},
                pass_fds=(theirs.fileno(), memory),
                preexec_fn=_end_with_parent,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        self._line = Connection(ours.detach())
        self._name, self._log = f"{module} {side}", log

    def call(self, name: str, **arguments: Any) -> Any:
        """What the child's function returns."""
        try:
            self._line.send((name, arguments))
            if not self._line.poll(_PATIENCE):
                raise ChildFailed(f"{self._name} has not answered {name} for {_PATIENCE:.0f} s; see {self._log}")
            good, value = self._line.recv()
        except (EOFError, ConnectionError):
            raise ChildFailed(f"{self._name} has ended in {name}; see {self._log}") from None
        if not good:
            raise ChildFailed(f"{self._name}: {value}")
        return value

    def stop(self) -> None:
        """Takes the processor from it."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Gives it back."""
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Ends it."""
        self.go_on()
        self._line.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def memory() -> mmap.mmap:
    """What the driver has shared, with every page mapped."""
    mapped = mmap.mmap(int(os.environ[_MEMORY]), int(os.environ[_LENGTH]))
    touch(numpy.frombuffer(mapped, numpy.uint8))
    return mapped


def touch(memory: NDArray[numpy.uint8]) -> None:
    """Writes to every page what it holds."""
    pages = memory[:: mmap.PAGESIZE]
    pages |= 0


def serve(functions: dict[str, Callable[..., Any]]) -> None:
    """Answers the driver."""
    with Connection(int(os.environ[_LINE])) as line:
        while True:
            try:
                name, arguments = line.recv()
            except EOFError:
                return
            try:
                answer = (True, functions[name](**arguments))
            except Exception as error:
                traceback.print_exc()
                answer = (False, f"{name}: {type(error).__name__}: {error}")
            sys.stdout.flush()
            line.send(answer)


def poll_until(done: Callable[[], bool]) -> None:
    """As an engine's loop does whose only work this is: at once for a millisecond, then every 50 µs.

    It yields the processor between two looks, since those who copy may need it.
    """
    end_of_haste = time.perf_counter() + 0.001
    while not done():
        if time.perf_counter() < end_of_haste:
            os.sched_yield()
        else:
            time.sleep(50e-6)
