"""One side of this library: an agent of the Python package."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

import numpy

import kvffi

from . import link
from .scenarios import (
    CHANNEL_BYTES,
    CONV_CHANNELS,
    CONV_KERNEL,
    HEAD_ROW,
    HEAD_SIZE,
    INDEX,
    KV_HEADS,
    MLA,
    SSM_GROUPS,
    SSM_HEAD_SIZE,
    SSM_HEADS,
    SSM_STATE,
    Placed,
    Setting,
    Side,
    placed,
)

_PATIENCE = 120.0
Strided = tuple[tuple[int, ...], tuple[int, ...]]


def _spec(setting: Setting, side: Side, base: int) -> kvffi.Spec:
    model, tp = setting.model, side.tp_size
    places, length = placed(setting, side)
    tensors = kvffi.Tensors(kvffi.Worker(model.name, tp_rank=side.tp_rank, tp_size=tp))
    tensors.add_storage(kvffi.Storage(base, length))
    groups = [
        tensors.add_group(
            kvffi.Group(num_blocks=setting.num_blocks, usage="state")
            if kind == "mamba2"
            else kvffi.Group(num_blocks=setting.num_blocks, block_tokens=model.block_tokens)
        )
        for kind in model.groups
    ]
    pages = {
        "mla": kvffi.Page.mla("fp8"),
        "index": kvffi.Page.indexer("fp8"),
        "attention": kvffi.Page.attention(KV_HEADS, HEAD_SIZE),
        "mamba2": kvffi.Page.mamba2(
            SSM_HEADS, SSM_HEAD_SIZE, SSM_GROUPS, SSM_STATE, CONV_KERNEL, state_element="bf16", conv_element="bf16"
        ),
    }
    for place in places:
        layer = tensors.add_layer(place.layer.name, pages[place.layer.kind], groups[place.layer.group])
        _add(tensors, layer, place, setting, tp, base)
    return tensors.build()


def _add(tensors: kvffi.Tensors, layer: int, place: Placed, setting: Setting, tp: int, base: int) -> None:
    """The tensors that an engine would have there."""
    blocks, tokens = setting.num_blocks, setting.model.block_tokens
    ptr, stride = base + place.offset, place.block_stride
    if place.layer.kind == "attention":
        shape = (blocks, KV_HEADS // tp, tokens, 2, HEAD_SIZE)
        strides = (stride, tokens * HEAD_ROW, HEAD_ROW, HEAD_ROW // 2, 2)
        tensors.add_tensor(layer, kvffi.TensorView(ptr, shape, strides, 2), "BHN2C")
    elif place.layer.kind == "mamba2":
        channels = sum(CONV_CHANNELS) // tp
        conv = kvffi.TensorView(ptr, (blocks, channels, CONV_KERNEL - 1), (stride, CHANNEL_BYTES, 2), 2)
        tensors.add_tensor(layer, conv, "BHC", parts=("conv.x", "conv.b", "conv.c"), side_by_side=True)
        rows = (stride, 2 * SSM_STATE * SSM_HEAD_SIZE, 2 * SSM_STATE, 2)
        shape = (blocks, SSM_HEADS // tp, SSM_HEAD_SIZE, SSM_STATE)
        state = kvffi.TensorView(ptr + channels * CHANNEL_BYTES, shape, rows, 2)
        tensors.add_tensor(layer, state, "BHCC", parts=("ssm",))
    else:
        row = MLA if place.layer.kind == "mla" else INDEX
        tensors.add_tensor(layer, kvffi.TensorView(ptr, (blocks, tokens, row), (stride, row, 1), 1), "BNC")


class Ours:
    """A worker of each setting in turn."""

    def __init__(self, side: str) -> None:
        self._side = side
        self._memory = numpy.frombuffer(link.memory(), numpy.uint8)
        self._agent: kvffi.Agent | None = None
        self._answer = kvffi.Answer()
        self._peer: Any = None
        self._pair: Any = None

    def set_up(self, setting: Setting) -> dict[str, Any]:
        """Describes and registers the caches; the blob for the peer, and how long it took."""
        self.end()
        side = setting.prefill if self._side == "prefill" else setting.decode
        self._agent = kvffi.Agent(self._side)
        begun = time.perf_counter()
        self._spec = _spec(setting, side, self._memory.ctypes.data)
        self._agent.register(self._spec)
        took = time.perf_counter() - begun
        return {"blob": self._agent.export(), "register": took}

    def connect(self, blob: bytes) -> float:
        """How long it takes to connect and to plan."""
        assert self._agent is not None
        begun = time.perf_counter()
        self._peer = self._agent.connect(blob)
        self._pair = kvffi.Pair(self._spec, self._peer.layout())
        return time.perf_counter() - begun

    def run(self, local: list[list[int]], remote: list[list[int]], polled: bool) -> tuple[float, float]:
        """Seconds until the start has returned, and until the bytes are there."""
        assert self._agent is not None
        here, there = dict(enumerate(local)), dict(enumerate(remote))
        begun = time.perf_counter()
        request = kvffi.Request("read", local=here, remote=there)
        transfer = self._agent.start_request(
            self._peer, self._pair, request, into=self._answer, notify=b"request 1:1", deadline=_PATIENCE
        )
        started = time.perf_counter()
        if polled:
            link.poll_until(lambda: transfer.poll() != "in_progress")
        done = transfer.wait(_PATIENCE)
        ended = time.perf_counter()
        if not done:
            raise TimeoutError(f"not done in {_PATIENCE} s")
        return started - begun, ended - begun

    def descriptors(self) -> int:
        """Of the last request, as planned."""
        return self._answer.totals().num_descriptors

    def drain(self) -> int:
        """Takes the notifications that have arrived."""
        assert self._agent is not None
        return len(self._agent.notifications())

    def end(self) -> None:
        """Ends the agent, if there is one."""
        self._peer = self._pair = None
        if self._agent is not None:
            self._agent.close()
        self._agent = None

    def version(self) -> str:
        """Of the library, for the conditions."""
        return str(kvffi.library_path())


if __name__ == "__main__":
    ours = Ours(sys.argv[1])
    names = ("set_up", "connect", "run", "descriptors", "drain", "end", "version")
    link.serve({name: getattr(ours, name) for name in names})
