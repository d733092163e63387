"""Moves what the planner says to workers that are not ours: NIXL, through its own Python binding.

Such workers exchange NIXL's bare metadata and not a `kvffi.Agent`'s blob. The binding takes arrays of (address, length,
device), and a planner's answer is an array: nothing is done for each descriptor in Python.
"""

from __future__ import annotations

import threading
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import kvffi
import numpy as np
import numpy.typing as npt

from .mapping import Mapped
from .options import Options

Ranges = npt.NDArray[np.uint64]

PROGRESS = 0.001
"""Seconds between two looks at the network: a target that never looks completes no first transfer."""


@dataclass(frozen=True)
class Batch:
    """Ranges of one kind of memory on each side, for one post."""

    mem: str
    their_mem: str
    ours: Ranges
    theirs: Ranges


class NixlTransfer:
    """A planner's answer in posts of a bounded size."""

    def __init__(self, transport: ForeignTransport, agent: str, batches: Iterator[Batch]) -> None:
        self._transport, self._agent = transport, agent
        self._batches = deque(batches)
        self._posted: list[Any] = []
        self._is_cancelled = False
        self._error = ""

    def poll(self) -> str:
        """Where it stands; posts what is next."""
        try:
            self._posted = [handle for handle in self._posted if not self._transport.is_done(handle)]
            while self._batches and len(self._posted) < self._transport.most_posts and not self._error:
                self._posted.append(self._transport.write(self._agent, self._batches.popleft()))
        except Exception as error:  # noqa: BLE001
            # An error does not settle a write: on TCP, bytes were seen to land at a living peer after it.
            self._error = self._error or f"{type(error).__name__}: {error}"
            self._batches.clear()
        if self._error:
            return "failed" if self._transport.is_gone(self._agent) else "unsettled"
        if self._posted or self._batches:
            return "in_progress"
        return "failed" if self._is_cancelled else "done"

    def cancel(self) -> None:
        """Posts nothing more."""
        self._is_cancelled = self._is_cancelled or bool(self._batches)
        self._batches.clear()

    def error(self) -> str:
        """Why it failed."""
        return self._error


class ForeignTransport:
    """One worker's NIXL agent, with the worker's storages registered."""

    def __init__(self, mapped: Mapped, options: Options) -> None:
        from nixl._api import nixl_agent, nixl_agent_config, nixl_thread_sync_t

        # Without NIXL's progress thread, which polls without a pause: `Transport` has one that rests.
        config = nixl_agent_config(
            enable_prog_thread=False, backends=[], sync_mode=nixl_thread_sync_t.NIXL_THREAD_SYNC_STRICT
        )
        self.name = str(uuid.uuid4())
        self._agent = nixl_agent(self.name, config)
        self._agent.create_backend(options.backend, {})
        self._most_bytes, self.most_posts = options.most_bytes, options.most_posts
        self._places = _places(mapped)
        self._gone: set[str] = set()
        self._registered = []
        for mem in dict.fromkeys(self._places.kinds):
            members = [
                (int(self._places.bases[i]), int(storage["len"]), int(self._places.devices[i]), "")
                for i, storage in enumerate(mapped.spec["storages"])
                if self._places.kinds[i] == mem
            ]
            self._registered.append(self._agent.register_memory(members, mem))
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._progress, daemon=True, name="nixl progress")
        self._thread.start()

    def metadata(self) -> bytes:
        """What a peer loads to reach this worker's memory."""
        return bytes(self._agent.get_agent_metadata())

    def connect(self, metadata: bytes) -> str:
        """Loads a peer's metadata and returns its name."""
        name = self._agent.add_remote_agent(metadata)
        return name.decode() if isinstance(name, bytes) else str(name)

    def start(self, agent: str, peer: Mapped, answer: kvffi.Answer) -> NixlTransfer:
        """Begins to write what an answer says."""
        return NixlTransfer(self, agent, self._cut(peer, answer.descriptors()))

    def declare_gone(self, agent: str) -> None:
        """Takes the caller's word that a peer's process has ended: what failed to reach it has settled."""
        self._gone.add(agent)

    def is_gone(self, agent: str) -> bool:
        """Whether that was said."""
        return agent in self._gone

    def write(self, agent: str, batch: Batch) -> Any:
        """Posts a batch; the answer is for `is_done`."""
        ours = self._agent.get_xfer_descs(batch.ours, batch.mem)
        theirs = self._agent.get_xfer_descs(batch.theirs, batch.their_mem)
        handle = self._agent.initialize_xfer("WRITE", ours, theirs, agent)
        if self._agent.transfer(handle) == "ERR":
            raise ConnectionError(f"NIXL refused a write of {len(batch.ours)} ranges to {agent}")
        return handle

    def is_done(self, handle: Any) -> bool:
        """Whether a post has ended well.

        # Errors
        `ConnectionError` if it has ended otherwise.
        """
        state = self._agent.check_xfer_state(handle)
        if state == "ERR":
            raise ConnectionError("NIXL reports a failed write")
        return bool(state == "DONE")

    def close(self) -> None:
        """Takes the memory out of NIXL's hands. Nothing may be in flight."""
        self._closed.set()
        self._thread.join()
        for registered in self._registered:
            self._agent.deregister_memory(registered)
        self._registered = []

    def _cut(self, peer: Mapped, descriptors: npt.NDArray[np.void]) -> Iterator[Batch]:
        """Posts of at most `most_bytes` or little more."""
        theirs = _places(peer)
        kinds = sorted({*self._places.kinds, *theirs.kinds})
        ours_at, theirs_at = descriptors["local_storage"], descriptors["remote_storage"]
        numbers = [np.array([kinds.index(kind) for kind in places.kinds]) for places in (self._places, theirs)]
        combined = numbers[0][ours_at] * len(kinds) + numbers[1][theirs_at]
        for combination in np.unique(combined):
            chosen = descriptors[combined == combination]
            here = self._places.ranges(chosen["local_storage"], chosen["local_offset"], chosen["len"])
            there = theirs.ranges(chosen["remote_storage"], chosen["remote_offset"], chosen["len"])
            mem, their_mem = kinds[int(combination) // len(kinds)], kinds[int(combination) % len(kinds)]
            for start, end in _runs(np.cumsum(chosen["len"]) // self._most_bytes):
                yield Batch(mem, their_mem, here[start:end], there[start:end])

    def _progress(self) -> None:
        while not self._closed.wait(PROGRESS):
            self._agent.get_new_notifs()


@dataclass(frozen=True)
class _Places:
    """Storages as arrays."""

    bases: npt.NDArray[np.uint64]
    kinds: list[str]
    devices: npt.NDArray[np.uint64]

    def ranges(self, storages: Any, offsets: Any, lengths: Any) -> Ranges:
        found: Ranges = np.empty((len(storages), 3), dtype=np.uint64)
        found[:, 0] = self.bases[storages] + offsets
        found[:, 1] = lengths
        found[:, 2] = self.devices[storages]
        return found


def _places(mapped: Mapped) -> _Places:
    storages = mapped.spec["storages"]
    return _Places(
        np.array([storage["base"] for storage in storages], dtype=np.uint64),
        ["DRAM" if storage["mem"] == "dram" else "VRAM" for storage in storages],
        np.array([0 if s["mem"] == "dram" else s["mem"]["vram"] for s in storages], dtype=np.uint64),
    )


def _runs(values: Sequence[int] | npt.NDArray[Any]) -> Iterator[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(values)) + 1
    yield from zip([0, *edges.tolist()], [*edges.tolist(), len(values)], strict=True)
