"""When a request is drained, whom a prefill worker tells how it ended, and when it forgets it."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvsglang.messages import Room
from kvsglang.prefill_room import PrefillRoom
from kvsglang.states import Poll

OURS = {"ours"}
UNDER_WAY: Any = object()


def wanted(agent: str, *, readers: int = 1, dummy: bool = False) -> Room:
    return Room(7, "127.0.0.1", 1, agent, np.array([1], np.int32), 0, readers, (), 0, dummy)


def room(*agents: str, state: Poll = Poll.FAILED) -> PrefillRoom:
    return PrefillRoom(7, state, wanted={agent: wanted(agent, readers=len(agents)) for agent in agents})


def told(of: PrefillRoom) -> list[str]:
    return [each.agent for each in of.untold(OURS)]


def test_a_request_is_drained_when_nothing_is_on_its_way_or_about_to_be() -> None:
    request = room("ours")
    assert request.is_drained() and request.is_drained("ours")
    request.is_starting = True
    assert not request.is_drained() and not request.is_drained("ours")
    request.is_starting = False
    request.moving.append(("ours", UNDER_WAY))
    assert not request.is_drained() and not request.is_drained("ours")
    assert request.is_drained("theirs")


def test_sglang_hears_of_a_failure_when_it_is_drained_and_ours_at_once() -> None:
    request = room("ours", "theirs")
    request.moving = [("ours", UNDER_WAY), ("theirs", UNDER_WAY)]
    assert told(request) == ["ours"]
    request.moving = [("ours", UNDER_WAY)]
    assert told(request) == ["ours", "theirs"]
    request.told.add("theirs")
    assert told(request) == ["ours"]


def test_nobody_hears_of_a_request_that_goes_on_or_was_not_theirs() -> None:
    assert told(room("ours", state=Poll.TRANSFERRING)) == []
    request = room("ours")
    request.wanted["ours"] = wanted("ours", dummy=True)
    assert told(request) == []


def test_a_request_waits_for_all_of_its_decode_workers() -> None:
    request = PrefillRoom(7)
    assert not request.is_complete
    request.wanted["ours"] = wanted("ours", readers=2)
    assert not request.is_complete
    request.wanted["theirs"] = wanted("theirs", readers=2)
    assert request.is_complete


def test_a_request_is_forgotten_when_it_is_cleared_drained_and_told() -> None:
    request = room("ours")
    request.cleared = True
    assert not request.is_over
    request.told.add("ours")
    assert request.is_over
    request.acknowledge["tcp://127.0.0.1:1"] = "ours", 3
    assert not request.is_over
    request.acknowledge.clear()
    request.moving.append(("ours", UNDER_WAY))
    assert not request.is_over
