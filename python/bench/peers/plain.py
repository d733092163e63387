"""The functions of plain.c."""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path

from numpy.typing import NDArray

from .ranges import Ranges

FILL = 0xA5
_SOURCE = Path(__file__).with_name("plain.c")


class Plain:
    """Copies, fills and compares what lies in two mapped memories."""

    def __init__(self, folder: Path, source: NDArray, target: NDArray) -> None:
        library = folder / "plain.so"
        command = ["cc", "-O3", "-shared", "-fPIC", "-pthread", str(_SOURCE), "-o", str(library)]
        subprocess.run(command, check=True, timeout=120)
        self._functions = ctypes.CDLL(str(library))
        self._functions.plain_wrong.restype = ctypes.c_uint64
        self._memory = source, target
        self._source, self._target = (ctypes.c_void_p(each.ctypes.data) for each in (source, target))
        self._num_bytes = len(source)
        self.threads = len(os.sched_getaffinity(0))

    def fill_source(self) -> None:
        """With bytes that nothing repeats."""
        self._functions.plain_fill(self._source, ctypes.c_uint64(self._num_bytes // 8))

    def blank_target(self, num_bytes: int) -> None:
        """Overwrites what earlier transfers left."""
        ctypes.memset(self._target, FILL, num_bytes)

    def copy(self, ranges: Ranges, threads: int) -> None:
        """From the source to the target."""
        total = ctypes.c_uint64(int(ranges[:, 2].sum()))
        address = ctypes.c_void_p(ranges.ctypes.data)
        self._functions.plain_copy(self._source, self._target, address, total, ctypes.c_uint(min(threads, 16)))

    def wrong(self, ranges: Ranges, num_bytes: int) -> int:
        """How many of the target's first `num_bytes` are not as they should be after a transfer into a blank."""
        address, count = ctypes.c_void_p(ranges.ctypes.data), ctypes.c_uint64(len(ranges))
        total = ctypes.c_uint64(num_bytes)
        return int(self._functions.plain_wrong(self._source, self._target, address, count, total, FILL))
