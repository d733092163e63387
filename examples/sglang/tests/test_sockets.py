"""A control socket has as many connections as it is told, and not more."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq
from harness.midway import PROMPTLY, until

from kvsglang import sockets
from kvsglang.messages import Frames
from kvsglang.options import Options
from kvsglang.sockets import SPARE, ControlSocket

HOST = "127.0.0.1"
ZMQS_OWN = 1023
"""Sockets of a context of ZMQ that is told nothing."""


def ignore(_frames: Frames) -> None:
    """Nothing comes."""


def num_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def _many_files() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.usefixtures("_many_files")
def test_there_are_more_connections_than_zmq_allows_by_itself() -> None:
    most = Options().most_peers
    assert most > ZMQS_OWN
    socket = ControlSocket(HOST, ignore, most=most)
    before = num_files()
    try:
        for number in range(ZMQS_OWN + 50):
            # Nobody listens there: what is sent waits for somebody to come.
            socket.send(f"tcp://127.{number // 250}.{number % 250}.1:9", [b"word"])
        assert num_files() - before > ZMQS_OWN
    finally:
        socket.close()


@pytest.mark.usefixtures("_many_files")
def test_of_too_many_connections_those_go_that_were_used_least_lately_and_nothing_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sockets, "LINGER_MS", 10_000)
    context = zmq.Context()
    others = [context.socket(zmq.PULL) for _ in range(300)]
    endpoints = [f"tcp://{HOST}:{other.bind_to_random_port(f'tcp://{HOST}')}" for other in others]
    before = num_files()
    socket = ControlSocket(HOST, ignore, most=4)
    try:
        for word in (b"one", b"two"):
            for endpoint in endpoints:
                socket.send(endpoint, [word])
        for other in others:
            assert {other.recv(zmq.NOBLOCK) if other.poll(PROMPTLY * 1000) else b"" for _ in range(2)} == {
                b"one",
                b"two",
            }
        # Two ends and a queue of each, and what the socket has by itself.
        assert until(lambda: num_files() - before <= 3 * (4 + SPARE) + 20, PROMPTLY)
    finally:
        socket.close()
        context.destroy(linger=0)
