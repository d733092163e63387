"""Makes the harness and the integration importable, in the tests and in the processes that they start."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
# The Python package of this repository, with the library that KVFFI_LIBRARY names: `make sglang` sets it.
PLACES = [str(place) for place in (HERE, HERE.parent, HERE.parents[2] / "python" / "src")]
for place in PLACES:
    if place not in sys.path:
        sys.path.insert(0, place)
# The process that workers are forked from loads their modules; it knows the environment and not this path.
os.environ["PYTHONPATH"] = os.pathsep.join([*PLACES, *filter(None, [os.environ.get("PYTHONPATH")])])


@pytest.fixture(autouse=True)
def _ports() -> Iterator[None]:
    """Gives the ports of a test back when it ends."""
    yield
    from harness import ports

    ports.release()
