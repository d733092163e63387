"""SGLang's own manager on both sides: the ground that the mixed runs stand on."""

from __future__ import annotations

import pytest
from harness.deployment import Request, deployment
from harness.loader import MissingEngineError, folder
from harness.model import Model

try:
    folder()
except MissingEngineError as error:
    pytest.skip(str(error), allow_module_level=True)


def test_sglang_alone_moves_chunks_and_auxiliary_rows() -> None:
    with deployment(Model(layers=tuple(range(4))), kinds=("sglang", "sglang")) as engines:
        engines.run(Request(7, [1, 2, 3, 8, 30], [10, 11, 4, 20, 21], chunks=(3, 2)))
        engines.check()
