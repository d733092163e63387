"""Tests against SGLang are skipped where it is not there, and fail where they are required."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from harness.loader import MissingEngineError, RequiredEngineError, folder

HERE = Path(__file__).parent
MODULES = sorted(path.name for path in HERE.glob("test_*.py") if "try:\n    folder()\n" in path.read_text())


@pytest.mark.parametrize(("required", "error"), [("", MissingEngineError), ("1", RequiredEngineError)])
def test_a_package_that_is_not_there_is_an_error_where_it_is_required(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, required: str, error: type[Exception]
) -> None:
    monkeypatch.setenv("KV_SGLANG", str(tmp_path))
    monkeypatch.setenv("KV_SGLANG_REQUIRED", required)
    with pytest.raises(error, match=f"is not in {tmp_path}"):
        folder()


@pytest.mark.parametrize(("required", "status"), [("", 0), ("1", pytest.ExitCode.INTERRUPTED)])
def test_modules_of_tests_against_it_are_skipped_or_fail(tmp_path: Path, required: str, status: int) -> None:
    assert "test_mixed.py" in MODULES
    told = {**os.environ, "KV_SGLANG": str(tmp_path), "KV_SGLANG_REQUIRED": required}
    # What is skipped as a whole has no tests of its own: this one keeps pytest from saying that there were none.
    found = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--collect-only", "test_turns.py", *MODULES],
        cwd=HERE,
        env=told,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert found.returncode == status, found.stdout
    assert found.stdout.count(f"is not in {tmp_path}") >= len(MODULES)
    assert ("KV_SGLANG_REQUIRED is set" in found.stdout) is bool(required)
