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

# Environment variable that names the library, or the folder that holds it; it counts before everything else.
LIBRARY_VARIABLE = "KVNIXL_LIBRARY"

_FILE_NAME = "libnixl_capi.so"


def library() -> str | None:
    """The library in an installed wheel; None if there is none, or if the environment names one."""
    return None if os.environ.get(LIBRARY_VARIABLE) else _installed()


@cache
def _installed() -> str | None:
    found: dict[str, str] = {}
    for distribution in metadata.distributions():
        name = re.sub(r"[-_.]+", "_", distribution.metadata["Name"] or "").lower()
        if not name.startswith("nixl"):
            continue
        for file in distribution.files or ():
            path = Path(str(distribution.locate_file(file)))
            if path.name == _FILE_NAME and path.is_file():
                # Of two the one that is imported: the first on the path.
                found.setdefault(name, str(path))
    # One that the program has imported already is the one to share; otherwise the first by name.
    imported = [name for name in sorted(found) if name in sys.modules]
    return found[[*imported, *sorted(found)][0]] if found else None
