"""What an engine hands to senders and receivers: integers of any kind are taken, anything else fails both sides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from harness.both import Both, both
from harness.midway import PROMPTLY, until
from harness.model import Mamba, Model

from kvsglang.errors import ValueKindError, ValueRangeError
from kvsglang.receiver import Receiver
from kvsglang.sender import Sender
from kvsglang.states import Poll

MODEL = Model(layers=(0, 1), mamba=Mamba(layers=(2,)))
RINGS = Model(layers=(0, 1), mla=True, index_bytes=64, rings=(6, 6))
NO_NUMBERS = [
    ("abc", ValueKindError, "bootstrap_room is 'abc'; give an integer"),
    (2.0, ValueKindError, "bootstrap_room is 2.0; give an integer"),
    (np.float64(2), ValueKindError, "bootstrap_room is np.float64(2.0)"),
    (None, ValueKindError, "bootstrap_room is None"),
    (-1, ValueRangeError, "bootstrap_room is -1; it must be from 0"),
    (1 << 64, ValueRangeError, "bootstrap_room is 18446744073709551616"),
]


@pytest.fixture(scope="module")
def engines() -> Iterator[Both]:
    """One of each role for all: they have to survive everything."""
    with both(MODEL) as made:
        yield made


def fail(engines: Both, sender: Sender, receiver: Receiver, says: str) -> None:
    """Both sides are Failed, soon, and say why; no page is held, and the two go on."""
    for request in (sender, receiver):
        assert until(lambda request=request: request.poll() is Poll.FAILED, PROMPTLY)  # type: ignore[misc]
        assert says in request.manager.rooms.reason(request.room)
    assert until(lambda: receiver.is_abort_release_safe() and not engines.decode.held(), PROMPTLY)
    for request in (sender, receiver):
        request.clear()
    assert until(lambda: not engines.prefill.rooms.numbers(), PROMPTLY)


def halves(engines: Both, room: int) -> tuple[Sender, Receiver]:
    receiver = Receiver(engines.decode, engines.address, room)
    receiver.init()
    return Sender(engines.prefill, engines.address, room), receiver


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (([10], 6, [[0]], 8.0), "decode_prefix_len of room 1 is 8.0; give an integer"),
        (([10], 6, [[0]], np.float64(8)), "decode_prefix_len of room 1 is np.float64(8.0)"),
        (([10], 6, [[0]], "8"), "decode_prefix_len of room 1 is '8'"),
        (([10], 6, [[0]], -8), "decode_prefix_len of room 1 is -8; it must be from 0"),
        (([10], 6.0, [[0]], 0), "aux_index of room 1 is 6.0"),
        (([10], "6", [[0]], 0), "aux_index of room 1 is '6'"),
        (([10.0], 6, [[0]], 0), "kv_indices of room 1: float64 with 1 axes"),
        (([[10], [11, 12]], 6, [[0]], 0), "kv_indices of room 1 is [[10], [11, 12]]; give one axis of integers"),
        (([10], 6, [[2.9]], 0), "state_indices[0] of room 1: float64 with 1 axes"),
        (([10], 6, [["2"]], 0), "state_indices[0] of room 1: <U1 with 1 axes"),
        (([10], 6, [2], 0), "state_indices[0] of room 1: int64 with 0 axes"),
        (([10], 6, 2, 0), "state_indices of room 1 is 2; give a list"),
        (([10], 6, "2", 0), "state_indices of room 1 is '2'; give a list"),
    ],
)
def test_what_a_receiver_is_given_that_is_no_integer_fails_both(
    engines: Both, given: tuple[Any, ...], says: str
) -> None:
    sender, receiver = halves(engines, 1)
    sender.init(1, 3)
    receiver.send_metadata(*given)
    fail(engines, sender, receiver, says)


@pytest.mark.parametrize(
    ("announced", "says"),
    [
        ((2.5, 3), "num_kv_indices of room 2 is 2.5; give an integer"),
        (("1", 3), "num_kv_indices of room 2 is '1'"),
        ((None, 3), "num_kv_indices of room 2 is None"),
        ((-1, 3), "num_kv_indices of room 2 is -1; it must be from 0"),
        ((1, 3.0), "aux_index of room 2 is 3.0; give an integer"),
    ],
)
def test_what_a_sender_announces_that_is_no_integer_fails_both(
    engines: Both, announced: tuple[Any, Any], says: str
) -> None:
    sender, receiver = halves(engines, 2)
    receiver.send_metadata([10], 6, [[0]], 0)
    sender.init(*announced)
    fail(engines, sender, receiver, says)


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        (([1.0], [[0]]), "kv_indices of room 3: float64 with 1 axes"),
        (([[1], [2, 3]], [[0]]), "kv_indices of room 3 is [[1], [2, 3]]; give one axis of integers"),
        (([1], [[1.7]]), "state_indices[0] of room 3: float64 with 1 axes"),
        (([1], 5), "state_indices of room 3 is 5; give a list"),
    ],
)
def test_what_a_sender_sends_that_is_no_integer_fails_both(engines: Both, sent: tuple[Any, Any], says: str) -> None:
    sender, receiver = halves(engines, 3)
    sender.init(1, 3)
    receiver.send_metadata([10], 6, [[0]], 0)
    assert until(lambda: sender.poll() is Poll.WAITING_FOR_INPUT, PROMPTLY)
    sender.send(*sent)
    fail(engines, sender, receiver, says)


@pytest.mark.parametrize("rank", [1, 0.5, "0", -1])
def test_a_group_of_data_parallelism_that_is_none_fails_it(engines: Both, rank: Any) -> None:
    sender = Sender(engines.prefill, engines.address, 4)
    receiver = Receiver(engines.decode, engines.address, 4)
    receiver.init(rank)
    fail(engines, sender, receiver, f"prefill_dp_rank is {rank!r}")


def test_a_ring_of_floats_fails_both() -> None:
    with both(RINGS) as engines:
        sender, receiver = halves(engines, 1)
        sender.init(1, 3)
        receiver.send_metadata([10], 6, [[10], [3, 0.5, 1, 0, 0, 6]], 0)
        fail(engines, sender, receiver, "state_indices[1] of room 1[1] is 0.5; give an integer")


@pytest.mark.parametrize(("number", "error", "says"), NO_NUMBERS)
def test_a_room_that_is_no_number_makes_no_request(
    engines: Both, number: Any, error: type[Exception], says: str
) -> None:
    for make, manager in ((Sender, engines.prefill), (Receiver, engines.decode)):
        with pytest.raises(error) as refused:
            make(manager, engines.address, number)  # type: ignore[arg-type]
        assert says in str(refused.value)
        assert manager.rooms.numbers() == []


def test_integers_of_numpy_are_integers() -> None:
    with both(MODEL) as engines:
        sender, receiver = halves(engines, np.uint64(5))  # type: ignore[arg-type]
        sender.init(np.int64(2), np.int32(3))  # type: ignore[arg-type]
        prefix: Any = np.int64(8)
        receiver.send_metadata(np.array([10, 11]), np.int64(6), [np.array([2])], prefix)  # type: ignore[arg-type]
        assert until(lambda: sender.poll() is Poll.WAITING_FOR_INPUT, PROMPTLY)
        assert sender.pop_decode_prefix_len() == 8
        sender.send(np.array([1, 2]), np.array([[4]]))
        for request in (sender, receiver):
            assert until(lambda request=request: request.poll() is Poll.SUCCESS, PROMPTLY)  # type: ignore[misc]


def test_a_prefix_below_nothing_of_another_kind_of_decode_worker_fails_both(
    engines: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As a worker sends it that does not look at what it was given.
    monkeypatch.setattr("kvsglang.decode.integer", lambda _place, value, *_: value)
    sender, receiver = halves(engines, 6)
    sender.init(1, 3)
    receiver.send_metadata([10], 6, [[0]], -8)
    fail(engines, sender, receiver, "decode_prefix_len of room 6 at the decode worker is -8; it must be from 0")
