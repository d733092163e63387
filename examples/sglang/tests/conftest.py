"""Makes the harness and the integration importable, in the tests and in the processes that they start."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
# The Python package of this repository, with the library that KVFFI_LIBRARY names: `make sglang` sets it.
for place in (HERE, HERE.parent, HERE.parents[2] / "python" / "src"):
    if str(place) not in sys.path:
        sys.path.insert(0, str(place))
