"""What a decode worker's memory must be after a transfer, byte for byte, from the meaning of the bytes alone."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from .model import Worker
from .pools import Bytes, Pool, values


@dataclass(frozen=True)
class Moved:
    """Rows that must have moved in one component: `source[i]` to `destination[i]`."""

    component: str
    source: list[int]
    destination: list[int]
    only: tuple[str, ...] = ()
    """Names of the layers concerned; empty for all."""


@dataclass
class Expectation:
    """Memory of a decode worker before any transfer, changed as transfers must have changed it."""

    worker: Worker
    memory: list[Bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.memory = [buffer.copy() for buffer in self.worker.pool.memory]

    def move(self, moved: Moved, source_salt: int) -> None:
        """Puts into the destination rows what the same cells of the source rows hold."""
        view = Pool(self.worker.pool.tensors, self.memory)
        for index, tensor in enumerate(self.worker.pool.tensors):
            if tensor.component != moved.component or (moved.only and tensor.layer not in moved.only):
                continue
            rows = view.rows(index)
            rows[moved.destination] = values(tensor, np.array(moved.source, dtype=np.uint64), source_salt)

    def deal(self, moved: Moved, source_salt: int, rank: int, size: int) -> None:
        """Puts into the destination pages the tokens of the source pages that are a rank's: every `size`-th of them."""
        view = Pool(self.worker.pool.tensors, self.memory)
        for index, tensor in enumerate(self.worker.pool.tensors):
            if tensor.component != moved.component or not moved.source:
                continue
            token = -1, len(tensor.cells) // self.worker.lists["page_size"]
            source = values(tensor, np.array(moved.source, dtype=np.uint64), source_salt).reshape(token)
            rows = view.rows(index)
            pages = rows[moved.destination]
            mine = source[rank::size]
            pages.reshape(token)[: len(mine)] = mine
            rows[moved.destination] = pages

    def differences(self, memory: list[Bytes]) -> list[str]:
        """Every buffer that is not as it must be, with the first wrong byte; guard bytes included."""
        found = []
        for tensor, want, got in zip(self.worker.pool.tensors, self.memory, memory, strict=True):
            wrong = np.flatnonzero(want != got)
            if len(wrong):
                first = int(wrong[0])
                found.append(
                    f"{tensor.component} {tensor.layer} {tensor.name}: {len(wrong)} wrong bytes, "
                    f"first at {first}: {got[first]} for {want[first]}"
                )
        return found
