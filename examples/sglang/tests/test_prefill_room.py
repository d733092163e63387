"""When a request is drained, whom a prefill worker tells how it ended, and when it forgets it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kvsglang.messages import Abort, Room
from kvsglang.prefill_room import Asked, PrefillRoom
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


ONE = replace(wanted("ours", readers=2), port=1, generation=3)
OTHER = replace(wanted("others", readers=2), port=2, generation=5)


def ask(request: PrefillRoom, by: Room, *, is_of_another_engine: bool = False) -> Asked:
    return request.ask(by, is_of_another_engine=is_of_another_engine)


def test_a_request_takes_as_many_decode_workers_as_it_has() -> None:
    request = PrefillRoom(7)
    assert [ask(request, by) for by in (ONE, OTHER, replace(ONE, agent="third", port=3))] == [
        Asked.TAKEN,
        Asked.TAKEN,
        Asked.REFUSED,
    ]
    assert list(request.wanted) == ["ours", "others"]
    assert request.refused == {("127.0.0.1", 3)}


@pytest.mark.parametrize(
    ("by", "is_of_another_engine"), [(OTHER, True), (replace(OTHER, num_readers=3), False)], ids=["engine", "readers"]
)
def test_a_number_that_another_request_has_is_refused(by: Room, is_of_another_engine: bool) -> None:
    request = PrefillRoom(7)
    ask(request, ONE)
    assert ask(request, by, is_of_another_engine=is_of_another_engine) is Asked.REFUSED
    assert list(request.wanted) == ["ours"]
    assert request.refused == {("127.0.0.1", 2)}


def test_a_worker_that_names_generations_repeats_itself_or_is_refused() -> None:
    request = PrefillRoom(7)
    ask(request, ONE)
    assert ask(request, replace(ONE, prefix=16)) is Asked.REPEATED
    assert ask(request, replace(ONE, generation=4)) is Asked.REFUSED
    # It has a say over the request that it has asked for before.
    assert request.refused == set()


@pytest.mark.parametrize(
    ("state", "by", "asked"),
    [
        (Poll.TRANSFERRING, {}, Asked.REPEATED),
        (Poll.TRANSFERRING, {"prefix": 16}, Asked.TWICE),
        (Poll.FAILED, {}, Asked.TWICE),
        (Poll.SUCCESS, {}, Asked.REFUSED),
    ],
)
def test_a_worker_that_names_none_may_use_a_number_twice(state: Poll, by: dict[str, Any], asked: Asked) -> None:
    request = PrefillRoom(7)
    nameless = replace(ONE, generation=0)
    ask(request, nameless)
    request.state = state
    request.told.add("ours")
    assert ask(request, replace(nameless, **by)) is asked
    # Of the second one it hears once more how it ended.
    assert ("ours" in request.told) is (asked is not Asked.TWICE)


@pytest.mark.parametrize(
    ("abort", "heeds"),
    [
        (Abort(7, "127.0.0.1", 1, 3), True),
        (Abort(7, "127.0.0.1", 1, 2), False),
        (Abort(7, "127.0.0.1", 1), False),
        (Abort(7, "127.0.0.1", 4, 1), True),
        (Abort(7, "127.0.0.1", 3, 1), False),
    ],
    ids=["its own", "of an earlier request", "without a generation", "before it asked", "was refused"],
)
def test_an_abort_ends_the_request_of_who_has_a_say(abort: Abort, heeds: bool) -> None:
    request = PrefillRoom(7, wanted={"ours": ONE}, refused={("127.0.0.1", 3)})
    assert request.heeds(abort) is heeds
    request.state = Poll.SUCCESS
    assert not request.heeds(abort)


def test_a_stranger_ends_no_request_that_is_complete() -> None:
    request = PrefillRoom(7, wanted={"ours": ONE, "others": OTHER})
    assert not request.heeds(Abort(7, "127.0.0.1", 4, 1))
    assert request.heeds(Abort(7, "127.0.0.1", 2, 5))


def test_who_gives_up_what_is_still_written_hears_when_it_is_not() -> None:
    request = PrefillRoom(7, wanted={"ours": ONE, "others": OTHER}, moving=[("ours", UNDER_WAY)])
    assert request.answers(Abort(7, "127.0.0.1", 2, 5))
    assert request.answers(Abort(7, "127.0.0.1", 1, 2))
    assert not request.answers(Abort(7, "127.0.0.1", 1, 3))
    assert request.acknowledge == {"tcp://127.0.0.1:1": ("ours", 3)}
