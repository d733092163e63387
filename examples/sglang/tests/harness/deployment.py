"""A prefill engine and a decode engine of some processes each, and requests between them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from .expect import Expectation, Moved
from .model import Model
from .ports import free_port
from .settings import Settings
from .worker import Chunk, Remote

PREFILL_SALT = 1
DECODE_SALT = 2


@dataclass(frozen=True)
class Request:
    """One request's rows on both sides."""

    room: int
    source: list[int]
    destination: list[int]
    chunks: tuple[int, ...] = ()
    """Pages in each chunk; empty for one chunk."""
    aux: tuple[int, int] | None = (3, 6)
    slot: tuple[int, int] | None = None
    """State slot of a hybrid model, here and there."""
    prefix: int = 0
    window: int = 0
    """Pages at the end that the window reaches back to; 0 for all."""
    length: int = 0
    """Tokens, of which those that fill no group of five are in a ring."""

    def rows(self, model: Model, component: str) -> tuple[list[int], list[int]]:
        """Rows of one component, here and there."""
        if component == "mamba":
            return ([self.slot[0]], [self.slot[1]]) if self.slot else ([], [])
        if component == "aux":
            return ([self.aux[0]], [self.aux[1]]) if self.aux else ([], [])
        start = -self.window if component == "swa" else 0
        if component == "dsa_tail":
            # In place of the rows that SGLang's numbers describe: the slots, one after the other.
            return self._slots(model, 0), self._slots(model, 1)
        return self.source[start:], self.pages(model)[start:]

    def pages(self, model: Model) -> list[int]:
        """Pages of each decode worker: it has tokens of as many pages of the sequence as tokens are dealt to ranks."""
        return self.destination[: -(-len(self.source) // model.dcp)]

    def state(self, model: Model, side: int) -> list[list[int] | None]:
        """State indices of one side: 0 is prefill, 1 decode."""
        return [
            self._ring(model, side) if component == "dsa_tail" else self.rows(model, component)[side]
            for component in model.components()
        ]

    def _ring(self, model: Model, side: int) -> list[int]:
        """Row, first slot and number of slots, those behind the ring's end, slots of a ring; as SGLang says it."""
        count, slots = self.length % 5, model.rings[side]
        if not count or self.aux is None:
            return []
        first = (self.length - count) % slots
        before = min(count, slots - first)
        return [self.aux[side], first, before, 0, count - before, slots]

    def _slots(self, model: Model, side: int) -> list[int]:
        count, slots = self.length % 5, model.rings[side]
        row = self.aux[side] if self.aux else 0
        return [row * slots + position % slots for position in range(self.length - count, self.length)]

    def pieces(self) -> list[list[int]]:
        """Source pages, chunk by chunk."""
        sizes = self.chunks or (len(self.source),)
        ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
        return [self.source[end - size : end] for end, size in zip(ends, sizes, strict=True)]


def scenario(model: Model) -> list[Request]:
    """What every cache has to survive: chunks, a prompt that is there already, and one of which the half is."""
    slots = [(2, 5), (1, 0), (4, 2)] if model.mamba else [None, None, None]
    present = model.page_tokens * 4
    return [
        Request(7, [1, 2, 3, 8, 30], [10, 11, 4, 20, 21], chunks=(3, 2), slot=slots[0], window=2, length=34),
        # Only state and row travel.
        Request(8, [], [], aux=(1, 2), slot=slots[1], prefix=present, length=40),
        Request(9, [5, 33, 34], [39, 0, 1], chunks=(1, 1, 1), aux=(7, 0), slot=slots[2], prefix=present, length=54),
    ]


@dataclass
class Deployment:
    """Workers of both engines."""

    model: Model
    prefill: list[Remote]
    decode: list[Remote]
    expected: list[Expectation] = field(default_factory=list)

    def start(self, request: Request) -> None:
        """Both halves of a request, up to where pages may be sent."""
        for worker in self.prefill:
            worker.sender(request.room, len(request.source), request.aux[0] if request.aux else None)
        for worker in self.decode:
            worker.receiver(request.room)
        for worker in self.decode:
            aux = request.aux[1] if request.aux else None
            state = request.state(self.model, 1) or None
            worker.receive(request.room, request.pages(self.model), aux, state, request.prefix)
        for worker in self.prefill:
            state = worker.until(request.room, ["WaitingForInput", "Failed"], 20)
            assert state == "WaitingForInput", f"{state}: {worker.reason(request.room)}"

    def send(self, request: Request) -> None:
        """Every chunk from every prefill worker."""
        pieces = request.pieces()
        for worker in self.prefill:
            for index, piece in enumerate(pieces):
                last = index == len(pieces) - 1
                worker.send(request.room, Chunk(piece, (request.state(self.model, 0) or None) if last else None))

    def finish(self, request: Request) -> None:
        """Waits until every worker has succeeded, and notes what must have moved."""
        for worker in [*self.prefill, *self.decode]:
            state = worker.until(request.room, ["Success", "Failed"], 20)
            assert state == "Success", f"{worker.place.role}: {state}: {worker.reason(request.room)}"
        for worker in [*self.prefill, *self.decode]:
            worker.call(request.room, "clear")
        for worker, expected in zip(self.decode, self.expected, strict=True):
            self.note(worker.place, expected, request)

    def note(self, place: Settings, expected: Expectation, request: Request) -> None:
        """What a request that succeeded must have moved to the decode worker of a place."""
        for component in ("kv", "aux", *self.model.components()):
            moved = Moved(component, *request.rows(self.model, component))
            if component == "kv" and place.dcp_size > 1:
                expected.deal(moved, PREFILL_SALT, place.tp_rank % place.dcp_size, place.dcp_size)
            else:
                expected.move(moved, PREFILL_SALT)

    def run(self, request: Request) -> None:
        """A request from beginning to end."""
        self.start(request)
        self.send(request)
        self.finish(request)

    def check(self) -> None:
        """Compares every byte of every decode worker, and that no prefill worker's changed."""
        for worker, expected in zip(self.decode, self.expected, strict=True):
            assert expected.differences(worker.memory()) == []
        for worker in self.prefill:
            assert Expectation(worker.twin).differences(worker.memory()) == []


@contextmanager
def deployment(
    model: Model,
    *,
    kinds: tuple[str, str],
    tp: tuple[int, int] = (1, 1),
    prefill_options: dict[str, Any] | None = None,
    decode_options: dict[str, Any] | None = None,
    decode_model: Model | None = None,
    port: int = 0,
) -> Iterator[Deployment]:
    """Engines of the given kinds, prefill and decode, with `tp` ranks; prefill has the model's pipeline stages."""
    port = port or free_port()
    stages = max(1, len(model.stages))
    theirs = decode_model or model
    ours = {**theirs.options("decode"), **(decode_options or {})}
    with tempfile.TemporaryDirectory() as folder:
        prefill = [
            Remote(
                kinds[0],
                model,
                Settings("prefill", port, t, tp[0], p, stages, folder=folder),
                PREFILL_SALT,
                {**model.options("prefill"), **(prefill_options or {})},
            )
            for p in range(stages)
            for t in range(tp[0])
        ]
        decode = [
            Remote(
                kinds[1],
                theirs,
                Settings("decode", port, t, tp[1], folder=folder, dcp_size=theirs.dcp),
                DECODE_SALT,
                ours,
            )
            for t in range(tp[1])
        ]
        try:
            for worker in [*prefill, *decode]:
                worker.ready()
            yield Deployment(model, prefill, decode, [Expectation(worker.twin) for worker in decode])
        finally:
            for worker in [*decode, *prefill]:
                worker.stop()
