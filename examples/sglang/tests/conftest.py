"""Makes the harness and the integration importable, in the tests and in the processes that they start."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
for place in (HERE, HERE.parent):
    if str(place) not in sys.path:
        sys.path.insert(0, str(place))
