"""Finding and loading libkvffi.so, once, at the first use."""

from __future__ import annotations

import ctypes
import os
import threading
from pathlib import Path

from ._declarations import KVFFI_VERSION, Functions

# Environment variable that names the library to load in place of the one that the package carries.
LIBRARY_VARIABLE = "KVFFI_LIBRARY"

_loaded: Functions | None = None
_lock = threading.Lock()


def library_path() -> Path:
    """The library that is loaded at the first use."""
    given = os.environ.get(LIBRARY_VARIABLE)
    return Path(given) if given else Path(__file__).with_name("libkvffi.so")


def functions() -> Functions:
    """The functions of the library.

    `ImportError` if there is no library, or one that is not of this package's version.
    """
    if _loaded is not None:
        return _loaded
    with _lock:
        return _load()


def _load() -> Functions:
    global _loaded
    if _loaded is not None:
        return _loaded
    path = library_path()
    try:
        # Every call releases the GIL.
        loaded = Functions(ctypes.CDLL(str(path)))
    except (OSError, AttributeError) as error:
        advice = f"install the wheel, or set {LIBRARY_VARIABLE} to the libkvffi.so of this version"
        raise ImportError(f"{path} cannot be loaded: {error}; {advice}") from error
    if loaded.kvffi_abi_check(KVFFI_VERSION, None) < 0:
        theirs = (loaded.kvffi_version_text() or b"").decode()
        major, minor, patch = KVFFI_VERSION >> 16, KVFFI_VERSION >> 8 & 0xFF, KVFFI_VERSION & 0xFF
        raise ImportError(f"{path} is version {theirs}, which does not fit this package, {major}.{minor}.{patch}")
    _loaded = loaded
    return loaded
