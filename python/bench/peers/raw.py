"""One side of NIXL alone, through its Python binding, in the form that is fastest for each case.

Requests are made ahead, from the shortest list of ranges; only post to done is timed. The forms differ in the threads
of the agent, in how many descriptors NIXL gives a thread at once, and in how long the pieces are. Its progress thread
sleeps 1 ms between two looks, as ours does; the binding's own default never sleeps, which is slower on few cores.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy
from nixl._api import nixl_agent_config

from . import link
from .calm import CalmAgent
from .forms import FORMS, Form
from .ranges import Ranges, cut
from .scenarios import Setting, Side, placed

# A longer list is not cut, where cutting would make it longer still.
_MOST_PIECES = 400_000


class Raw:
    """Agents that stay; what is registered changes with the setting."""

    def __init__(self, side: str) -> None:
        self._side = side
        self._mapped = link.memory()
        self._base = numpy.frombuffer(self._mapped, numpy.uint8).ctypes.data
        kinds = {(form.threads, form.batch) for form in FORMS} if side == "decode" else {(0, 0)}
        self._kinds = kinds
        self._agents: dict[tuple[int, int], Any] = {}
        self._requests: dict[int, Any] = {}
        self._ranges: Ranges | None = None

    def set_up(self, setting: Setting) -> dict[str, Any]:
        """Registers the memory."""
        self.end()
        side: Side = setting.prefill if self._side == "prefill" else setting.decode
        _, length = placed(setting, side)
        for kind in sorted(self._kinds):
            threads, batch = kind
            config = nixl_agent_config(num_threads=threads)
            agent = CalmAgent(f"{self._side}-{threads}-{batch}", config, batch=batch)
            agent.register_memory([(self._base, length, 0, "")], "DRAM")
            self._agents[kind] = agent
        first = next(iter(self._agents.values()))
        return {"blob": (first.get_agent_metadata(), self._base), "register": 0.0}

    def connect(self, blob: tuple[bytes, int]) -> float:
        """Loads the peer's metadata."""
        metadata, self._peer_base = blob
        for agent in self._agents.values():
            self._peer = agent.add_remote_agent(metadata)
        return 0.0

    def prepare(self, ranges: Ranges) -> list[int]:
        """Makes the requests of a case; the forms that it has."""
        self._release()
        forms = []
        for index, form in enumerate(FORMS):
            pieces = ranges
            if form.piece:
                if int((ranges[:, 2] // form.piece + 1).sum()) > _MOST_PIECES:
                    continue
                pieces = cut(ranges, form.piece)
                if len(pieces) == len(ranges) and Form(form.threads, form.batch, 0) in FORMS:
                    continue
            agent = self._agents[form.threads, form.batch]
            lists = []
            for column, base in ((1, self._base), (0, self._peer_base)):
                rows = numpy.zeros((len(pieces), 3), numpy.uint64)
                rows[:, 0] = pieces[:, column] + numpy.uint64(base)
                rows[:, 1] = pieces[:, 2]
                lists.append(agent.get_xfer_descs(rows, "DRAM"))
            self._requests[index] = agent.initialize_xfer("READ", *lists, self._peer, b"request 1:1")
            forms.append(index)
        return forms

    def run(self, form: int) -> tuple[float, float]:
        """Seconds until the post has returned, and until the bytes are there."""
        agent = self._agents[FORMS[form].threads, FORMS[form].batch]
        request = self._requests[form]
        begun = time.perf_counter()
        state = agent.transfer(request)
        started = time.perf_counter()
        if state == "PROC":
            link.poll_until(lambda: agent.check_xfer_state(request) != "PROC")
        ended = time.perf_counter()
        if agent.check_xfer_state(request) != "DONE":
            raise RuntimeError("the transfer failed")
        return started - begun, ended - begun

    def drain(self) -> int:
        """Takes the notifications that have arrived."""
        return sum(len(each) for agent in self._agents.values() for each in agent.get_new_notifs().values())

    def _release(self) -> None:
        for request in self._requests.values():
            request.release()
        self._requests.clear()

    def end(self) -> None:
        """Ends the agents."""
        self._release()
        self._agents.clear()


if __name__ == "__main__":
    raw = Raw(sys.argv[1])
    names = ("set_up", "connect", "prepare", "run", "drain", "end")
    link.serve({name: getattr(raw, name) for name in names})
