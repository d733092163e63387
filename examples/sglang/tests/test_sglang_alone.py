"""SGLang's own manager on both sides: the ground that the mixed runs stand on."""

from __future__ import annotations

import socket

import pytest
from harness.expect import Expectation, Moved
from harness.loader import MissingEngineError, folder
from harness.model import Model
from harness.settings import Settings
from harness.worker import Chunk, Remote

try:
    folder()
except MissingEngineError as error:
    pytest.skip(str(error), allow_module_level=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_sglang_alone_moves_chunks_and_auxiliary_rows() -> None:
    model = Model(layers=tuple(range(4)))
    port = free_port()
    prefill = Remote("sglang", model, Settings("prefill", port), salt=1)
    decode = Remote("sglang", model, Settings("decode", port), salt=2)
    try:
        prefill.ready()
        decode.ready()
        decode.receiver(7)
        prefill.sender(7, 5, 3)
        decode.receive(7, [10, 11, 4, 20, 21], 6, None, None)
        assert prefill.until(7, ["WaitingForInput"], 10) == "WaitingForInput"
        prefill.send(7, Chunk([1, 2, 3]))
        prefill.send(7, Chunk([8, 30]))
        assert prefill.until(7, ["Success", "Failed"], 10) == "Success", prefill.reason(7)
        assert decode.until(7, ["Success", "Failed"], 10) == "Success", decode.reason(7)
        expected = Expectation(decode.twin)
        expected.move(Moved("kv", [1, 2, 3, 8, 30], [10, 11, 4, 20, 21]), 1)
        expected.move(Moved("aux", [3], [6]), 1)
        assert expected.differences(decode.memory()) == []
    finally:
        decode.stop()
        prefill.stop()
