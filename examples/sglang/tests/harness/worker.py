"""Worker processes: each holds pools, a manager of one kind, and does what the test tells it."""

from __future__ import annotations

import faulthandler
import hashlib
import importlib
import multiprocessing
import os
import signal
import time
import traceback
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from .engines import Engine, open_engine
from .model import Model, Worker, build
from .pools import Bytes
from .settings import Settings

PATIENCE = 30.0
"""Seconds after which a worker that does not answer is taken for hung."""

STATES = ("Failed", "Bootstrapping", "WaitingForInput", "Transferring", "Success")


@dataclass(frozen=True)
class Chunk:
    """One call of a sender's `send`: pages, and with the last chunk the state's rows."""

    pages: list[int]
    state: list[list[int] | None] | None = None


class WorkerError(RuntimeError):
    """What a worker raised: the kind of exception and its text."""

    def __init__(self, kind: str, text: str, trace: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind
        self.text = text
        self.trace = trace


@dataclass
class _Event:
    """Stands for an event of a device."""

    has_come: bool = False
    num_asked: int = 0
    fails: bool = False

    def query(self) -> bool:
        self.num_asked += 1
        if self.fails:
            raise RuntimeError("the device is lost")
        return self.has_come


@dataclass
class _Host:
    """Inside the worker: its memory, its manager, its requests."""

    worker: Worker
    engine: Engine
    page_tokens: int
    requests: dict[int, Any] = field(default_factory=dict)
    events: dict[int, _Event] = field(default_factory=dict)
    original: list[Bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.original = [buffer.copy() for buffer in self.worker.pool.memory]

    def changed(self) -> int:
        """Number of bytes that are not as they were at first."""
        return sum(int((a != b).sum()) for a, b in zip(self.original, self.worker.pool.memory, strict=True))

    def digests(self) -> list[bytes]:
        """Digests of all buffers: equal if nothing has changed."""
        return [hashlib.blake2b(buffer.tobytes(), digest_size=16).digest() for buffer in self.worker.pool.memory]

    def restore(self) -> None:
        """Makes all buffers what they were at first."""
        for buffer, original in zip(self.worker.pool.memory, self.original, strict=True):
            buffer[:] = original

    def sender(self, room: int, num_pages: int, aux: int | None) -> None:
        sender = self.engine.sender(room)
        sender.init(num_pages, aux)
        self.requests[room] = sender

    def announce(self, room: int, num_pages: int, aux: int | None) -> None:
        self.requests[room].init(num_pages, aux)

    def send(self, room: int, chunk: Chunk) -> None:
        self.requests[room].send(
            np.array(chunk.pages, dtype=np.int32), chunk.state, len(chunk.pages) * self.page_tokens
        )

    def hold(self, room: int, fails: bool = False) -> None:
        """Lets the next chunk of a request wait for an event, as SGLang's scheduler does."""
        self.events[room] = event = _Event(fails=fails)
        self.requests[room]._early_send_wait_event = event  # noqa: SLF001

    def come(self, room: int) -> None:
        """Lets that event come."""
        self.events[room].has_come = True

    def num_asked(self, room: int) -> int:
        """How often that event was asked for."""
        return self.events[room].num_asked

    def num_wanted(self, room: int) -> int:
        """How many decode workers have told a prefill worker of ours where a request's pages go."""
        rooms = self.engine.manager.rooms
        with rooms.lock:
            found = rooms.get(room)
            return len(found.wanted) if found is not None else 0

    def receiver(self, room: int, group: int = 0) -> None:
        self.requests[room] = self.engine.receiver(room, group)

    def receive(self, room: int, pages: list[int], aux: int | None, state: Any, prefix: int | None) -> None:
        self.requests[room].send_metadata(np.array(pages, dtype=np.int32), aux, state, prefix)

    def poll(self, room: int) -> str:
        return STATES[int(self.requests[room].poll())]

    def until(self, room: int, states: list[str], seconds: float) -> str:
        """Polls until one of some states is reached, and returns the state it ends in."""
        end = time.monotonic() + seconds
        while (state := self.poll(room)) not in states and time.monotonic() < end:
            time.sleep(0.002)
        return state

    def until_released(self, room: int, seconds: float) -> bool:
        """Whether the request's pages are free within some seconds."""
        end = time.monotonic() + seconds
        while not self.requests[room].is_abort_release_safe():
            if time.monotonic() > end:
                return False
            time.sleep(0.01)
        return True

    def call(self, room: int, method: str, *args: Any) -> Any:
        return getattr(self.requests[room], method)(*args)

    def ask(self, method: str, *args: Any) -> Any:
        found = attrgetter(method)(self.engine.manager)
        return found(*args) if callable(found) else found

    def reason(self, room: int) -> str:
        """What `failure_exception` raises."""
        try:
            self.requests[room].failure_exception()
        except Exception as error:  # noqa: BLE001
            return str(error)
        return ""

    def why(self, room: int) -> str:
        """Why a request of ours failed; it is kept."""
        return str(self.requests[room].manager.rooms.reason(room))

    def change(self, module: str, name: str, value: object) -> None:
        """Gives something of a module another value in this worker."""
        setattr(importlib.import_module(module), name, value)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def keep(self, room: int, under: int) -> None:
        """Keeps the object of a request, under another number in calls from here on: its room may be used again."""
        self.requests[under] = self.requests.pop(room)

    def drop(self, room: int) -> None:
        """Forgets the object of a request, not the request."""
        del self.requests[room]

    def memory(self) -> list[Bytes]:
        return self.worker.pool.memory

    def overwrite(self, index: int, row: int, content: Bytes) -> None:
        self.worker.pool.rows(index)[row] = content


def _main(pipe: Any, kind: str, model: Model, place: Settings, salt: int, options: dict[str, Any]) -> None:
    faulthandler.enable()
    try:
        worker = build(model, place, salt)
        worker.lists.update(options.pop("lists", {}))
        host = _Host(worker, open_engine(kind, place, worker.lists, model.mla, options), model.page_tokens)
        pipe.send(("ok", None))
    except Exception as error:  # noqa: BLE001
        pipe.send(("error", (type(error).__name__, str(error), traceback.format_exc())))
        return
    while True:
        method, args = pipe.recv()
        if method == "stop":
            host.engine.close()
            pipe.send(("ok", None))
            # SGLang's threads never end: waiting for them would hold up the process.
            os._exit(0)
        try:
            pipe.send(("ok", getattr(host, method)(*args)))
        except Exception as error:  # noqa: BLE001
            pipe.send(("error", (type(error).__name__, str(error), traceback.format_exc())))


def _is_stopped(pid: int) -> bool:
    """Whether no thread of a process runs: a busy machine stops them one by one."""
    threads = [(thread / "stat").read_text() for thread in Path(f"/proc/{pid}/task").iterdir()]
    return all(thread.rpartition(")")[2].split()[0] == "T" for thread in threads)


class Remote:
    """A worker process, as the test sees it: every method of the worker's host is a method here."""

    def __init__(
        self, kind: str, model: Model, place: Settings, salt: int, options: dict[str, Any] | None = None
    ) -> None:
        # Workers are forked from a process that has imported the slow modules and nothing that has threads.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["aiohttp.web", "msgspec", "numpy", "requests", "zmq", "harness.warm", __name__])
        self.place, self.salt = place, salt
        self.twin = build(model, place, salt)
        """The same memory here, as it was before any transfer; its addresses mean nothing."""
        self._pipe, theirs = context.Pipe()
        arguments = (theirs, kind, model, place, salt, dict(options or {}))
        self.process = context.Process(target=_main, args=arguments, daemon=True)
        self.process.start()
        theirs.close()

    def ready(self) -> Remote:
        """Waits until the worker's manager stands."""
        self._answer("start", 3 * PATIENCE)
        return self

    def __getattr__(self, method: str) -> Any:
        if method.startswith("_"):
            raise AttributeError(method)

        def ask(*args: Any) -> Any:
            self._pipe.send((method, args))
            return self._answer(method)

        return ask

    def _answer(self, method: str, seconds: float = PATIENCE) -> Any:
        if not self._pipe.poll(seconds):
            raise TimeoutError(f"the {self.place.role} worker did not answer {method} in {seconds} s")
        status, value = self._pipe.recv()
        if status == "error":
            raise WorkerError(*value)
        return value

    def signal(self, number: int) -> None:
        """Sends the process a signal. One that stops it has stopped all of its threads when this returns."""
        pid = self.process.pid or 0
        os.kill(pid, number)
        end = time.monotonic() + PATIENCE
        while number == signal.SIGSTOP and not _is_stopped(pid):
            if time.monotonic() > end:
                raise TimeoutError(f"the {self.place.role} worker did not stop in {PATIENCE} s")
            time.sleep(0.001)

    def kill(self) -> None:
        """Ends the process at once, as a crash would."""
        self.process.kill()
        self.process.join(PATIENCE)

    def stop(self) -> None:
        """Ends the process in order; a worker that does not end is killed."""
        if self.process.is_alive():
            try:
                self._pipe.send(("stop", ()))
                self._answer("stop")
            except (OSError, EOFError, TimeoutError, WorkerError):
                pass
            self.process.join(5)
        if self.process.is_alive():
            self.kill()
        self._pipe.close()
