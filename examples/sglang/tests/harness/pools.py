"""Cache pools in host memory whose every byte says what it is.

A pool is a list of buffers, as SGLang registers them: rows (pages or slots) of equal length, one buffer a layer and
tensor. A buffer knows which cell of the whole model each byte of a row is, for its rank; so what a byte must be after
a transfer follows from the cell and the row it came from, and never from strides, offsets or plans.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Cells = npt.NDArray[np.uint64]

GUARD = 4096
"""Bytes before and after each buffer that nothing may touch."""


@dataclass(frozen=True)
class Tensor:
    """One buffer: `num_rows` rows of `len(cells)` bytes."""

    component: str
    """``"kv"``, ``"aux"``, or a state component such as ``"mamba"``."""
    layer: str
    """Name of the layer in the whole model."""
    name: str
    """Which tensor of the layer: ``"k"``, ``"v"``, ``"latent"``, ``"conv"``, ..."""
    num_rows: int
    cells: Cells
    """For each byte of a row, the cell of the whole model that it belongs to; the same cell, the same value."""


@dataclass
class Pool:
    """Memory of one worker."""

    tensors: list[Tensor]
    memory: list[Bytes] = field(default_factory=list)

    def fill(self, salt: int) -> None:
        """Allocates and fills every buffer; `salt` tells the workers' contents apart."""
        self.memory = []
        for tensor in self.tensors:
            rows = np.arange(tensor.num_rows, dtype=np.uint64)
            buffer = np.full(GUARD + tensor.num_rows * len(tensor.cells) + GUARD, 0xA5, dtype=np.uint8)
            buffer[GUARD:-GUARD] = values(tensor, rows, salt).reshape(-1)
            self.memory.append(buffer)

    def pointer(self, index: int) -> int:
        """Address of row 0 of a buffer."""
        return int(self.memory[index].ctypes.data) + GUARD

    def length(self, index: int) -> int:
        """Bytes of all rows of a buffer."""
        return self.memory[index].size - 2 * GUARD

    def rows(self, index: int) -> Bytes:
        """A buffer as [row, byte]."""
        tensor = self.tensors[index]
        return self.memory[index][GUARD:-GUARD].reshape(tensor.num_rows, len(tensor.cells))


def values(tensor: Tensor, rows: npt.NDArray[np.uint64], salt: int) -> Bytes:
    """What the bytes of some rows are: [row, byte]."""
    seed = np.uint64(_text(f"{tensor.component}/{tensor.layer}/{tensor.name}") ^ (salt * 0x9E37_79B9))
    mixed = tensor.cells[None, :] + rows[:, None] * np.uint64(1 << 40) + seed
    mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0x7FB5_D329_728E_A185)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x81DA_DEF4_BC2D_D44D)
    result: Bytes = (mixed >> np.uint64(56)).astype(np.uint8)
    return result


def _text(text: str) -> int:
    value = 14695981039346656037
    for byte in text.encode():
        value = ((value ^ byte) * 1099511628211) % (1 << 63)
    return value >> 8


def head_cells(
    page_tokens: int, total_heads: int, head_bytes: int, first: int, count: int, *, head_major: bool = False
) -> Cells:
    """A page of [token, head, byte], or [head, token, byte], with heads `first` up to `first + count` of the model."""
    token, head, byte = np.meshgrid(
        np.arange(page_tokens), np.arange(first, first + count), np.arange(head_bytes), indexing="ij"
    )
    whole = ((token * total_heads + head) * head_bytes + byte).astype(np.uint64)
    cells: Cells = (whole.transpose(1, 0, 2) if head_major else whole).reshape(-1)
    return cells


def plain_cells(num_bytes: int) -> Cells:
    """A row that is the same on every rank."""
    return np.arange(num_bytes, dtype=np.uint64)


def channel_cells(blocks: list[int], unit_bytes: int, outer: int, rank: int, size: int) -> Cells:
    """A slot of [outer, channel, byte] whose channels are several blocks, each split over the ranks by itself."""
    total = sum(blocks)
    channels = []
    base = 0
    for block in blocks:
        share = block // size
        channels.append(np.arange(base + rank * share, base + (rank + 1) * share))
        base += block
    row, channel, byte = np.meshgrid(np.arange(outer), np.concatenate(channels), np.arange(unit_bytes), indexing="ij")
    cells: Cells = ((row * total + channel) * unit_bytes + byte).astype(np.uint64).reshape(-1)
    return cells
