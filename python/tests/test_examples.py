"""The examples run, and print what they should."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from conftest import ROOT

EXPECTED = {
    "01_describe": [
        "from tensors: [",
        "arranged: 16 rows of 147456 bytes, ['layers.0', 'layers.1']",
        "by parts: [(True, 2359296)]",
        "wrong: ",
    ],
    "02_explain": [
        "[442368 221184]",
        "AnswerTotals(num_descriptors=",
        "3 descriptors a block, 221184 bytes in pieces of 73728",
        "breaks at layer layers.1, part latent",
    ],
    "03_transfer": ["221184 bytes in 2 descriptors from prefill-0", "0 bytes wrong of 737280"],
    "04_asyncio": ["10 requests, 0 bytes wrong"],
    "05_leases": [
        "decode: pulled: blocks [1]",
        "prefill: freed: blocks [1] all_read",
        "first bytes of decode's blocks: [0, 7, 0, 0]",
        "prefill: freed: blocks [2] expired",
        "decode: pull_failed: KVFFI_ERR_LEASE_ENDED",
        "decode: returned_pull: blocks [2]",
    ],
    "06_push": [
        "prefill: part 2: 4 descriptors",
        "decode: request 1: arrived: blocks [7, 8, 2, 0, 5, 6]",
        "prefill: request 1: freed: blocks [3, 9, 10, 11, 0, 14] all_read",
        "prefill: request 2: freed: blocks [3, 9, 10, 11, 0, 14] aborted",
        "decode: request 2: arrival_failed: KVFFI_ERR_NOT_WRITTEN",
        "decode: request 2: returned_reservation: blocks [9, 10, 11, 1, 3, 4]",
        "decode: 0 bytes wrong of 4718592",
    ],
}


def run(name: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python/src")}
    command = [sys.executable, str(ROOT / f"examples/python/{name}.py")]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_runs_and_says_what_it_shows(name: str) -> None:
    done = run(name)
    assert done.returncode == 0, done.stderr
    for line in EXPECTED[name]:
        assert line in done.stdout


def test_every_example_is_run() -> None:
    assert sorted(path.stem for path in (ROOT / "examples/python").glob("*.py")) == sorted(EXPECTED)
