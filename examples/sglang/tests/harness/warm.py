"""Loads NIXL and UCX where it is imported: in the process that workers are forked from, so that each of them need not.

Only libraries are loaded. Nothing of them is started, so there is no thread and no device that a fork would lose.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from pathlib import Path

import kvffi

# A backend that no release has: NIXL is found as ever, and then refuses.
with suppress(kvffi.Error):
    kvffi.Agent("warm", nixl=kvffi.NixlOptions(backend="NONE"))

for _line in Path("/proc/self/maps").read_text().splitlines():
    if _line.endswith("/libnixl.so"):
        with suppress(OSError):
            ctypes.CDLL(str(Path(_line.split()[-1]).parent / "plugins" / "libplugin_UCX.so"))
        break
