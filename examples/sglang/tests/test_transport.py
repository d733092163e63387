"""What a worker does with a peer that was lost, with an agent that moves nothing."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

import kvffi
import pytest
from harness.nobody import NOBODY

from kvsglang.options import Options
from kvsglang.transport import Transport

WHAT: ctypes.Array[Any] = (ctypes.c_byte * 1)()
MISSING: Any = None


class Peer:
    """A peer that does nothing."""

    is_gone = False

    def declare_gone(self) -> None:
        self.is_gone = True

    def info(self) -> Peer:
        return self


class Agent:
    """An agent that notes what is asked of it."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.has_way = True

    def register(self, spec: object) -> None:
        """Has no memory to register."""

    def connect_foreign(self, *_said: object) -> Peer:
        return Peer()

    def start(self, peer: Peer, *_what: object, **_options: object) -> str:
        self.asked.append(f"start {peer.is_gone}")
        return "transfer"

    def reconnect(self, _peer: Peer) -> None:
        self.asked.append("reconnect")
        if not self.has_way:
            raise ConnectionError("there is no way")

    def disconnect(self, _peer: Peer) -> None:
        self.asked.append("disconnect")


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> Agent:
    made = Agent()
    monkeypatch.setattr(kvffi, "Agent", lambda *_args, **_options: made)
    return made


def connected() -> Transport:
    ours = Transport(MISSING, Options())
    ours.connect(replace(NOBODY, agent="theirs"), MISSING)
    return ours


def test_a_worker_that_is_declared_gone_is_there_until_it_is_dropped(agent: Agent) -> None:
    ours = connected()
    assert not ours.is_gone("theirs")
    ours.declare_gone("theirs")
    assert ours.is_gone("theirs")
    ours.start("theirs", WHAT, "room 1")
    assert ours.drop("theirs")
    assert agent.asked == ["start True", "disconnect"]


def test_a_way_that_could_not_be_opened_anew_is_tried_again_by_the_next_request(agent: Agent) -> None:
    ours = connected()
    ours.failed("theirs")
    agent.has_way = False
    with pytest.raises(ConnectionError):
        ours.start("theirs", WHAT, "room 1")
    assert ours.is_broken("theirs")
    agent.has_way = True
    for room in (2, 3):
        ours.start("theirs", WHAT, f"room {room}")
    assert agent.asked == ["reconnect", "reconnect", "start False", "start False"]
    assert not ours.is_broken("theirs")
