"""What is wrong with a request fails it on both sides, promptly, with the reason, and nothing else."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest
from harness.deployment import Deployment, Request, deployment
from harness.midway import PROMPTLY, until
from harness.model import Mamba, Model
from harness.ports import free_port
from harness.settings import Settings
from harness.worker import Chunk, Remote, WorkerError

MODEL = Model(layers=(0, 1), mamba=Mamba(layers=(2,)))


@pytest.fixture(scope="module")
def engines() -> Iterator[Deployment]:
    """One deployment for all: it has to survive everything."""
    with deployment(MODEL, kinds=("ours", "ours")) as both:
        yield both


def both_fail(engines: Deployment, room: int, *says: str) -> None:
    """Both sides are Failed, soon, and both say why; then the room is cleared and its pages are free."""
    for worker in (engines.prefill[0], engines.decode[0]):
        assert worker.until(room, ["Failed", "Success"], PROMPTLY) == "Failed"
        reason = worker.why(room)
        assert all(text in reason for text in says), f"{worker.place.role}: {reason}"
    assert released(engines, room)
    for worker in (engines.prefill[0], engines.decode[0]):
        worker.call(room, "clear")
    # And the two go on: another request of the same engines succeeds.
    engines.run(Request(room + 1000, [4, 5], [6, 7], slot=(1, 1)))
    engines.check()


def released(engines: Deployment, room: int) -> bool:
    """Whether the decode worker's pages are free soon."""
    decode = engines.decode[0]
    return bool(decode.until_released(room, PROMPTLY)) and room not in decode.ask("held")


def test_pages_outside_the_decode_pool_fail_it(engines: Deployment) -> None:
    prefill, decode = engines.prefill[0], engines.decode[0]
    prefill.sender(1, 2, 3)
    decode.receiver(1)
    decode.receive(1, [10, 40], 6, [[0]], None)
    both_fail(engines, 1, "kv_indices of room 1[1]: page 40 is not from 0 to 39")


def test_a_prefix_that_ends_inside_a_page_fails_it(engines: Deployment) -> None:
    prefill, decode = engines.prefill[0], engines.decode[0]
    prefill.sender(13, 1, 3)
    decode.receiver(13)
    decode.receive(13, [10], 6, [[0]], 12)
    both_fail(engines, 13, "decode_prefix_len of room 13: 12 tokens are no whole pages of 8")


@pytest.mark.parametrize("role", ["prefill", "decode"])
@pytest.mark.parametrize(
    ("change", "kind", "says"),
    [
        ({"kv_data_lens": [1]}, "ListLengthError", "kv_data_lens has 1 entries and kv_data_ptrs has 4"),
        ({"aux_data_ptrs": [0, 0]}, "PointerError", "aux_data_ptrs[0] is 0 and its length 512"),
        ({"state_types": ["dreams"]}, "StateKindError", "state_types[0] is 'dreams'"),
    ],
)
def test_lists_that_contradict_themselves_make_no_manager(
    role: str, change: dict[str, Any], kind: str, says: str
) -> None:
    worker = Remote("ours", MODEL, Settings(role, free_port()), 1, {"lists": change})
    with pytest.raises(WorkerError) as refused:
        worker.ready()
    assert refused.value.kind == kind
    assert says in refused.value.text
    worker.stop()


def test_pages_outside_the_prefill_pool_fail_it(engines: Deployment) -> None:
    request = Request(2, [1, 2], [10, 11], slot=(0, 0))
    engines.start(request)
    engines.prefill[0].send(2, Chunk([1, -5]))
    both_fail(engines, 2, "kv_indices of room 2[1]: page -5 is not from 0 to 39")


def test_more_pages_than_announced_fail_it(engines: Deployment) -> None:
    engines.start(Request(3, [1, 2], [10, 11], slot=(0, 0)))
    engines.prefill[0].send(3, Chunk([1, 2, 3]))
    both_fail(engines, 3, "room 3: 3 pages sent and 2 announced")


def test_fewer_pages_at_the_decode_worker_than_sent_fail_it(engines: Deployment) -> None:
    prefill, decode = engines.prefill[0], engines.decode[0]
    prefill.sender(4, 3, 3)
    decode.receiver(4)
    decode.receive(4, [10, 11], 6, [[0]], None)
    assert prefill.until(4, ["WaitingForInput"], PROMPTLY) == "WaitingForInput"
    prefill.send(4, Chunk([1, 2, 3], [[0]]))
    both_fail(engines, 4, "3 pages sent and 2 announced")


@pytest.mark.parametrize(("room", "chunks"), [(20, [[1]]), (21, [[]]), (22, [[1], [2]])])
def test_fewer_pages_sent_than_the_decode_worker_listed_fail_it(
    engines: Deployment, room: int, chunks: list[list[int]]
) -> None:
    prefill, decode = engines.prefill[0], engines.decode[0]
    sent = sum(map(len, chunks))
    before = decode.memory()
    prefill.sender(room, sent, 3)
    decode.receiver(room)
    decode.receive(room, [10, 11, 12], 6, [[0]], None)
    assert prefill.until(room, ["WaitingForInput"], PROMPTLY) == "WaitingForInput"
    for index, chunk in enumerate(chunks):
        prefill.send(room, Chunk(chunk, [[0]] if index == len(chunks) - 1 else None))
    for worker in (prefill, decode):
        assert worker.until(room, ["Failed", "Success"], PROMPTLY) == "Failed"
    # What came in earlier chunks is there; nothing is written with the chunk that is wrong.
    assert decode.until_released(room, PROMPTLY)
    if len(chunks) == 1:
        assert all((a == b).all() for a, b in zip(before, decode.memory(), strict=True))
    engines.expected[0].memory = decode.memory()
    both_fail(engines, room, f"room {room}: {sent} pages sent in all and 3 listed by decode worker")


def test_prefill_ranks_that_send_different_numbers_of_pages_fail_it() -> None:
    with deployment(Model(layers=(0, 1)), kinds=("ours", "ours"), tp=(2, 1)) as engines:
        one, other = engines.prefill
        decode = engines.decode[0]
        one.sender(1, 2, 3)
        other.sender(1, 1, 3)
        decode.receiver(1)
        decode.receive(1, [10, 11], 6, None, None)
        for worker in (one, other):
            assert worker.until(1, ["WaitingForInput"], PROMPTLY) == "WaitingForInput"
        other.send(1, Chunk([1]))
        for worker in (other, decode, one):
            assert worker.until(1, ["Failed", "Success"], PROMPTLY) == "Failed"
            assert "1 pages sent in all and 2 listed" in worker.why(1)


@pytest.mark.parametrize(
    ("two", "says"),
    [
        (([10, 11], 0), "number of pages is 1 at one decode worker and 2 at another"),
        (([10], 8), "decode_prefix_len is 0 at one decode worker and 8 at another"),
    ],
)
def test_decode_ranks_that_disagree_fail_it(two: tuple[list[int], int], says: str) -> None:
    with deployment(Model(layers=(0, 1)), kinds=("ours", "ours"), tp=(1, 2)) as engines:
        prefill, first, second = engines.prefill[0], *engines.decode
        prefill.sender(1, 1, 3)
        for worker in (first, second):
            worker.receiver(1)
        first.receive(1, [10], 6, None, 0)
        assert until(lambda: prefill.num_wanted(1) == 1, PROMPTLY)
        pages, prefix = two
        second.receive(1, pages, 6, None, prefix)
        for worker in (prefill, first, second):
            assert worker.until(1, ["Failed", "Success"], PROMPTLY) == "Failed"
            assert says in worker.why(1)
        for worker in (first, second):
            assert worker.until_released(1, PROMPTLY)
        engines.check()


def test_a_page_that_is_listed_twice_fails_it(engines: Deployment) -> None:
    engines.prefill[0].sender(5, 3, 3)
    engines.decode[0].receiver(5)
    engines.decode[0].receive(5, [10, 11, 10], 6, [[0]], None)
    both_fail(engines, 5, "kv_indices of room 5[2]: page 10 is listed twice")


@pytest.mark.parametrize(
    ("pages", "aux", "says"),
    [
        ([12, 10], 7, "room 51: page 10 is in use by room 50"),
        ([12, 13], 6, "room 51: aux row 6 is in use by room 50"),
    ],
)
def test_what_another_request_may_still_be_written_into_is_refused(pages: list[int], aux: int, says: str) -> None:
    with deployment(MODEL, kinds=("ours", "ours")) as engines:
        prefill, decode = engines.prefill[0], engines.decode[0]
        request = Request(50, [1, 2], [10, 11], slot=(0, 0))
        engines.start(request)
        prefill.sender(51, 2, 3)
        decode.receiver(51)
        decode.receive(51, pages, aux, [[1]], None)
        for worker in (prefill, decode):
            assert worker.until(51, ["Failed", "Success"], PROMPTLY) == "Failed"
            assert says in worker.why(51)
            worker.call(51, "clear")
        engines.send(request)
        engines.finish(request)
        # Then they are free.
        engines.run(Request(52, [3, 4], [12, 10], slot=(1, 1)))
        engines.check()


def test_pages_that_are_held_for_a_request_that_failed_are_refused_to_another() -> None:
    with deployment(MODEL, kinds=("ours", "ours")) as engines:
        prefill, decode = engines.prefill[0], engines.decode[0]
        engines.start(Request(1, [1, 2], [10, 11], slot=(0, 0)))
        decode.receiver(2)
        prefill.signal(signal.SIGSTOP)
        try:
            decode.call(1, "abort")
            assert decode.ask("held") == {1: [10, 11]}
            decode.receive(2, [11], 7, [[1]], None)
            assert decode.poll(2) == "Failed"
            assert "page 11 is in use by room 1" in decode.why(2)
        finally:
            prefill.signal(signal.SIGCONT)
        assert decode.until_released(1, PROMPTLY)


def test_a_state_slot_outside_the_pool_fails_it(engines: Deployment) -> None:
    engines.start(Request(6, [1], [10], slot=(0, 0)))
    engines.prefill[0].send(6, Chunk([1], [[6]]))
    both_fail(engines, 6, "state_indices[0] of room 6[0]: page 6 is not from 0 to 5")


STATE = "state_indices[0] of room {} (mamba) is given by the {} engine and not by the {} engine"
AUX = "aux_index of room {} is given by the {} engine and not by the {} engine"


@pytest.mark.parametrize(
    ("room", "rows", "states", "says"),
    [
        (30, (3, 6), ([[0]], None), STATE.format(30, "prefill", "decode")),
        (31, (3, 6), ([[0]], [[]]), STATE.format(31, "prefill", "decode")),
        (32, (3, 6), (None, [[0]]), STATE.format(32, "decode", "prefill")),
        (33, (3, 6), ([None], [[0]]), STATE.format(33, "decode", "prefill")),
        (34, (3, 6), ([], [[0]]), STATE.format(34, "decode", "prefill")),
        (35, (3, 6), ([[0]], [[0, 1]]), "mamba: 1 pages here and 2 at the peer"),
        (36, (None, 6), ([[0]], [[0]]), AUX.format(36, "decode", "prefill")),
        (37, (3, None), ([[0]], [[0]]), AUX.format(37, "prefill", "decode")),
        (38, (3, 6), ([[0], [1]], [[0]]), "state_indices of room 38: 2 lists and 1 state components"),
        (39, (3, 6), ([[0]], [[0], [4]]), "state_indices of room 39: 2 lists and 1 state components"),
    ],
)
def test_what_one_side_gives_and_the_other_does_not_fails_it(
    engines: Deployment, room: int, rows: tuple[int | None, int | None], states: tuple[Any, Any], says: str
) -> None:
    prefill, decode = engines.prefill[0], engines.decode[0]
    prefill.sender(room, 1, rows[0])
    decode.receiver(room)
    decode.receive(room, [10], rows[1], states[1], None)
    assert prefill.until(room, ["WaitingForInput", "Failed"], PROMPTLY) in ("WaitingForInput", "Failed")
    prefill.send(room, Chunk([1], states[0]))
    both_fail(engines, room, says)


def test_an_auxiliary_row_outside_the_pool_fails_it(engines: Deployment) -> None:
    engines.prefill[0].sender(8, 1, 8)
    engines.decode[0].receiver(8)
    engines.decode[0].receive(8, [10], 6, [[0]], None)
    both_fail(engines, 8, "aux_index of room 8[0]: page 8 is not from 0 to 7")


def test_a_sender_that_is_aborted_before_decode_asks_fails_it(engines: Deployment) -> None:
    engines.prefill[0].sender(9, 1, 3)
    engines.prefill[0].call(9, "abort")
    engines.decode[0].receiver(9)
    engines.decode[0].receive(9, [10], 6, [[0]], None)
    both_fail(engines, 9, "aborted by the prefill engine")


def test_a_receiver_that_is_aborted_before_the_sender_exists_fails_it(engines: Deployment) -> None:
    engines.decode[0].receiver(10)
    engines.decode[0].receive(10, [10], 6, [[0]], None)
    engines.decode[0].call(10, "abort")
    # The prefill worker has heard of it, and there is no sender.
    assert engines.decode[0].until_released(10, PROMPTLY)
    engines.prefill[0].sender(10, 1, 3)
    both_fail(engines, 10, "aborted by the decode engine")


def test_a_second_sender_or_receiver_of_a_room_is_refused_and_the_first_goes_on(engines: Deployment) -> None:
    request = Request(11, [1, 2], [10, 11], slot=(0, 0))
    engines.start(request)
    for worker, make in ((engines.prefill[0], "sender"), (engines.decode[0], "receiver")):
        with pytest.raises(WorkerError) as refused:
            getattr(worker, make)(*((11, 1, 1) if make == "sender" else (11,)))
        assert refused.value.kind == "RoomTakenError"
        assert "room 11 is taken by a" in refused.value.text
    engines.send(request)
    engines.finish(request)
    engines.check()


def test_objects_of_a_request_that_was_cleared_do_nothing_to_the_next_under_its_number(engines: Deployment) -> None:
    engines.run(Request(40, [1, 2], [10, 11], slot=(0, 0)))
    request = Request(40, [3, 4], [12, 13], slot=(1, 1))
    for worker in (engines.prefill[0], engines.decode[0]):
        worker.keep(40, 1040)
    engines.start(request)
    prefill, decode = engines.prefill[0], engines.decode[0]
    prefill.send(1040, Chunk([7, 8], [[2]]))
    prefill.announce(1040, 1, 0)
    decode.receive(1040, [20], 0, [[2]], None)
    for worker in (prefill, decode):
        worker.call(1040, "abort")
        worker.call(1040, "clear")
        assert worker.poll(1040) == "Failed"
        assert "the request was cleared" in worker.reason(1040)
    assert decode.call(1040, "is_abort_release_safe")
    assert prefill.call(1040, "is_drained")
    engines.send(request)
    engines.finish(request)
    engines.check()


def test_a_room_of_another_decode_engine_is_refused_there_and_the_first_goes_on(engines: Deployment) -> None:
    other = Remote("ours", MODEL, Settings("decode", engines.decode[0].place.bootstrap_port), 3).ready()
    try:
        request = Request(12, [1, 2], [12, 13], slot=(0, 0))
        engines.start(request)
        other.receiver(12)
        other.receive(12, [1, 2], 1, [[0]], None)
        assert other.until(12, ["Failed", "Success"], PROMPTLY) == "Failed"
        assert "room 12 is taken by another request" in other.why(12)
        engines.send(request)
        engines.finish(request)
        engines.check()
        assert all((a == b).all() for a, b in zip(other.memory(), other.twin.pool.memory, strict=True))
    finally:
        other.stop()


def test_ranks_of_two_decode_engines_that_use_one_number_are_not_taken_for_one() -> None:
    model = Model(layers=(0, 1))
    with deployment(model, kinds=("ours", "ours"), tp=(1, 2), decode_options={"engine": "one"}) as engines:
        port = engines.decode[0].place.bootstrap_port
        other = [
            Remote("ours", model, Settings("decode", port, rank, 2), 5, {"engine": name}).ready()
            for rank, name in ((1, "another"), (0, "one"))
        ]
        try:
            request = Request(1, [1, 2], [10, 11])
            prefill, first, second = engines.prefill[0], *engines.decode
            prefill.sender(1, 2, 3)
            for worker in (first, *other, second):
                worker.receiver(1)
            first.receive(1, [10, 11], 6, None, None)
            assert until(lambda: prefill.num_wanted(1) == 1, PROMPTLY)
            for worker in other:
                # One of another engine, and one that says that it is the rank that is there.
                worker.receive(1, [20, 21], 6, None, None)
                assert worker.until(1, ["Failed", "Success"], PROMPTLY) == "Failed"
                assert "room 1 is taken by another request" in worker.why(1)
                assert worker.changed() == 0
            second.receive(1, [10, 11], 6, None, None)
            assert prefill.until(1, ["WaitingForInput"], PROMPTLY) == "WaitingForInput"
            engines.send(request)
            engines.finish(request)
            engines.check()
        finally:
            for worker in other:
                worker.stop()


def test_a_request_of_one_side_only_fails_in_time() -> None:
    with deployment(MODEL, kinds=("ours", "ours"), prefill_options={"bootstrap_timeout": 0.2}) as engines:
        prefill, decode = engines.prefill[0], engines.decode[0]
        decode.receiver(1)
        decode.receive(1, [10], 6, [[0]], None)
        assert decode.until(1, ["Failed"], PROMPTLY) == "Failed"
        assert "no sender came in " in decode.why(1)
        assert decode.until_released(1, PROMPTLY)
        prefill.sender(2, 1, 3)
        assert prefill.until(2, ["Failed"], PROMPTLY) == "Failed"
        assert "no decode worker said where its pages are in " in prefill.why(2)
        engines.check()


def test_a_request_whose_bytes_do_not_come_fails_in_time_on_both_sides() -> None:
    with deployment(MODEL, kinds=("ours", "ours"), decode_options={"waiting_timeout": 0.2}) as engines:
        engines.start(Request(1, [1], [10], slot=(0, 0)))
        for worker in (engines.decode[0], engines.prefill[0]):
            assert worker.until(1, ["Failed"], PROMPTLY) == "Failed"
            assert "nothing came in " in worker.why(1)
        assert released(engines, 1)
        engines.check()


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (Model(layers=(0, 1), page_tokens=16), ("page_size is 16 here and 8 at the peer",)),
        (Model(layers=(0, 1), dtype="float8_e4m3fn"), ("kv_cache_dtype is float8_e4m3fn here and bfloat16",)),
        (Model(layers=(0, 1), heads=8, head_bytes=16), ("layer.0", "4", "8")),
        (Model(layers=(0, 2)), ("layer.1",)),
        (Model(layers=(0, 1), aux=(64, 256)), ("aux.1", "128", "256")),
    ],
)
def test_a_peer_that_does_not_fit_fails_on_both_sides(model: Model, says: tuple[str, ...]) -> None:
    port = free_port()
    prefill = Remote("ours", Model(layers=(0, 1)), Settings("prefill", port), 1)
    decode = Remote("ours", model, Settings("decode", port), 2)
    try:
        prefill.ready()
        decode.ready()
        prefill.sender(1, 1, 0)
        decode.receiver(1)
        decode.receive(1, [0], 0, None, None)
        for worker in (prefill, decode):
            assert worker.until(1, ["Failed"], PROMPTLY) == "Failed"
            reason = worker.why(1)
            assert all(text in reason for text in says), f"{worker.place.role}: {reason}"
        assert decode.call(1, "is_abort_release_safe")
        assert all((a == b).all() for a, b in zip(decode.memory(), decode.twin.pool.memory, strict=True))
    finally:
        decode.stop()
        prefill.stop()


@pytest.mark.parametrize("names", [("one", "another"), ("one", "")])
def test_a_peer_of_another_model_fails_on_both_sides_and_raises_nothing(names: tuple[str, str]) -> None:
    prefill_options, decode_options = ({"model": name} if name else {} for name in names)
    model = Model(layers=(0,))
    with deployment(
        model, kinds=("ours", "ours"), prefill_options=prefill_options, decode_options=decode_options
    ) as engines:
        prefill, decode = engines.prefill[0], engines.decode[0]
        prefill.sender(1, 1, 0)
        decode.receiver(1)
        decode.receive(1, [0], 0, None, None)
        for worker in (prefill, decode):
            assert worker.until(1, ["Failed"], PROMPTLY) == "Failed"
            assert "one" in worker.why(1)
        assert decode.until_released(1, PROMPTLY)
        engines.check()
