"""What the tests have in common: the library, and specs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python" / "src"))
if not os.environ.get("KVFFI_LIBRARY"):
    target = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")
    found = [path for path in (target / "debug/deps/libkvffi.so", target / "release/libkvffi.so") if path.exists()]
    if not found:
        raise SystemExit("libkvffi.so is not built: run `cargo build --release --package kvffi`, or set KVFFI_LIBRARY")
    os.environ["KVFFI_LIBRARY"] = str(max(found, key=lambda path: path.stat().st_mtime))

import kvffi  # noqa: E402


def mla(base: int, *, layout: kvffi.Layout = "blhnc", num_blocks: int = 16, model: str = "org/model") -> kvffi.Spec:
    """Three MLA layers in blocks of 64 tokens at an address."""
    arrangement = kvffi.Arrangement(kvffi.Worker(model))
    arrangement.add_pool(kvffi.Pool(layout, num_blocks))
    group = arrangement.add_group(64)
    for layer in range(3):
        arrangement.add_layer(f"layers.{layer}", kvffi.Page.mla(), group)
    return arrangement.build([base + (storage << 32) for storage in range(len(arrangement.storage_lens()))])


@pytest.fixture
def decode() -> kvffi.Spec:
    return mla(0x1_0000_0000)


@pytest.fixture
def prefill() -> kvffi.Spec:
    return mla(0x2_0000_0000)


@pytest.fixture
def pair(decode: kvffi.Spec, prefill: kvffi.Spec) -> kvffi.Pair:
    return kvffi.Pair(decode, prefill)
