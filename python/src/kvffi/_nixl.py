"""Finding NIXL's run time in an installed `nixl` wheel.

kvnixl looks for NIXL by itself, but asks the `python3` of the PATH where packages lie, which need not be the
interpreter that runs. This one knows.
"""

from __future__ import annotations

import os
import re
import sys
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

# Environment variable that names the library, or the folder that holds it; it counts before everything else.
LIBRARY_VARIABLE = "KVNIXL_LIBRARY"

_FILE_NAME = "libnixl_capi.so"

# A library that every wheel with NIXL's run time has, which `nixl` itself and others are not.
_RUN_TIME = "libnixl.so"

# The first wheel that is known to have all that is used.
_WANTED = "'nixl-cu12>=1.5.1'"


class _Wheels(NamedTuple):
    """Paths of the library by the names of wheels, and what is wrong with wheels that lack it."""

    libraries: dict[str, str]
    lacking: list[str]


def library() -> str | None:
    """The library in an installed wheel; None if there is none, or if the environment names one."""
    return None if os.environ.get(LIBRARY_VARIABLE) else _installed()


def lack() -> str | None:
    """Why this interpreter has none, and what to do; None if the environment names one, which alone counts then."""
    if os.environ.get(LIBRARY_VARIABLE):
        return None
    found = "; ".join(_wheels().lacking) or f"{sys.prefix} has no NIXL wheel"
    advice = f"pip install --no-deps {_WANTED}"
    if sys.version_info < (3, 10):
        advice = (
            f"{_WANTED} is not for Python 3.9: take a newer Python, or set {LIBRARY_VARIABLE} to the {_FILE_NAME} of "
            "such a wheel"
        )
    return f"{found} ({advice})"


@cache
def _installed() -> str | None:
    found = _wheels().libraries
    # One that the program has imported already is the one to share; otherwise the first by name.
    imported = [name for name in sorted(found) if name in sys.modules]
    return found[[*imported, *sorted(found)][0]] if found else None


def _wheels() -> _Wheels:
    wheels = _Wheels({}, [])
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"] or ""
        key = re.sub(r"[-_.]+", "_", name).lower()
        if not key.startswith("nixl"):
            continue
        listed = [Path(str(distribution.locate_file(file))) for file in distribution.files or ()]
        libraries = [path for path in listed if path.name == _FILE_NAME]
        if present := [path for path in libraries if path.is_file()]:
            # Of two the one that is imported: the first on the path.
            wheels.libraries.setdefault(key, str(present[0]))
        elif libraries or any(path.name == _RUN_TIME for path in listed):
            why = f"incomplete: its {_FILE_NAME} is missing" if libraries else f"too old: it has no {_FILE_NAME}"
            wheels.lacking.append(f"{name} {distribution.version} in {distribution.locate_file('')} is {why}")
    return wheels
