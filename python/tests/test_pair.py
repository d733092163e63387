"""Pairs, requests and answers."""

from __future__ import annotations

import array
import contextlib
import copy
import pickle
import threading
import time
from typing import Any

import numpy
import pytest

import kvffi
from conftest import ROOT, mla

ROW = 3 * 64 * 1152


def request(**changes: Any) -> kvffi.Request:
    return kvffi.Request(**{"op": "read", "local": {0: [5, 6, 9]}, "remote": {0: [1, 2, 8]}, **changes})


def test_an_answer_is_a_numpy_array(pair: kvffi.Pair) -> None:
    answer = pair.answer(request())
    descriptors = answer.descriptors()
    assert descriptors.dtype.names == ("local_storage", "remote_storage", "local_offset", "remote_offset", "len")
    assert descriptors["local_offset"].tolist() == [5 * ROW, 9 * ROW]
    assert descriptors["remote_offset"].tolist() == [ROW, 8 * ROW]
    assert descriptors["len"].tolist() == [2 * ROW, ROW]
    assert answer.zero_ranges().shape == (0,)
    totals = answer.totals()
    assert (totals.num_descriptors, totals.bytes, totals.padding_bytes) == (2, 3 * ROW, 0)
    assert [each.len for each in answer.descriptor_structs()] == [2 * ROW, ROW]
    pair.verify(answer)


def test_an_array_of_descriptors_outlives_its_answer(pair: kvffi.Pair) -> None:
    answer = pair.answer(request())
    descriptors = answer.descriptors()
    pair.answer(request(local={0: [1]}, remote={0: [1]}), into=answer)
    answer.close()
    assert descriptors["len"].tolist() == [2 * ROW, ROW]


def test_the_same_request_as_json(pair: kvffi.Pair) -> None:
    text = (ROOT / "examples/specs/request.json").read_text()
    by_json = pair.answer_json(text).descriptors()
    assert (by_json == pair.answer(request()).descriptors()).all()
    with pytest.raises(kvffi.JsonError):
        pair.answer_json({"op": "read", "lokal": []})


def test_bytes_that_no_source_holds_are_ranges_to_zero() -> None:
    decode, prefill = mla(1 << 32), mla(2 << 32)
    small = kvffi.Arrangement(kvffi.Worker("org/model"))
    small.add_pool(kvffi.Pool("blhnc", 64))
    group = small.add_group(16)
    for layer in range(3):
        small.add_layer(f"layers.{layer}", kvffi.Page.mla(), group)
    pair = kvffi.Pair(decode, small.build([3 << 32]))
    answer = pair.answer(request(local={0: [3, 4]}, remote={0: [20, 21, 22, 23, 30]}))
    zero = answer.zero_ranges()
    assert len(answer.descriptors()) == 15
    assert zero["len"].tolist() == [55296] * 3
    assert zero["storage"].tolist() == [0] * 3
    pair.verify(answer)
    assert not kvffi.Pair(decode, prefill).is_empty


@pytest.mark.parametrize(
    "blocks",
    [
        [5, 6, 9],
        (5, 6, 9),
        array.array("I", [5, 6, 9]),
        array.array("q", [5, 6, 9]),
        numpy.array([5, 6, 9], numpy.uint32),
        numpy.array([5, 6, 9]),
        numpy.array([5, 0, 6, 0, 9, 0], numpy.uint32)[::2],
        numpy.array([5, 6, 9], ">u4"),
        [numpy.int64(5), numpy.uint8(6), 9],
        (block for block in [5, 6, 9]),
        memoryview(array.array("I", [5, 6, 9])),
        memoryview(array.array("I", [5, 6, 9])).toreadonly(),
    ],
    ids=lambda blocks: f"{type(blocks).__name__}",
)
def test_blocks_may_be_a_list_or_any_array_of_integers(pair: kvffi.Pair, blocks: Any) -> None:
    answer = pair.answer(request(local=[kvffi.BlockList(0, blocks)]))
    assert answer.descriptors()["local_offset"].tolist() == [5 * ROW, 9 * ROW]


class Index:
    """A number by its `__index__` alone."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __index__(self) -> int:
        return self.number


def test_no_blocks_are_none_whatever_they_would_be() -> None:
    nothing: list[Any] = [[], (), numpy.array([]), array.array("I"), iter([])]
    for none in nothing:
        request(local={0: none}, remote={0: none})


@pytest.mark.parametrize(
    ("blocks", "error"),
    [
        ([-1], ValueError),
        ([1 << 32], ValueError),
        (numpy.array([-1]), ValueError),
        (numpy.array([1 << 32]), ValueError),
        (numpy.array([1.0]), TypeError),
        (numpy.array([[1]], numpy.uint32), ValueError),
        (iter([1, -1]), ValueError),
        (iter([Index(-1)]), ValueError),
        (numpy.ma.masked_array([1, 2], [False, True], numpy.uint32), TypeError),
        ([1.5], TypeError),
        (["1"], TypeError),
        ("1", TypeError),
        (b"\1\0\0\0", TypeError),
        (None, TypeError),
        (7, TypeError),
    ],
)
def test_blocks_that_are_no_ids_are_refused(blocks: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        request(local={0: blocks})


@pytest.mark.parametrize(
    "changes",
    [
        {"local": {0: [5, 6, 16]}},
        {"local": {1: [5, 6, 9]}},
        {"local": {0: [5, 5, 9]}},
        {"remote": {0: [1, kvffi.HOLE, 8]}},
        {"remote": {0: []}},
        {"op": "write"},
        {"local": [kvffi.BlockList(0, [5]), kvffi.BlockList(0, [6])]},
        {"local": [kvffi.BlockList(0, [5], first=(1 << 64) - 1)]},
    ],
    ids=str,
)
def test_a_request_that_cannot_be_answered_is_refused_and_leaves_the_answer_empty(
    pair: kvffi.Pair, changes: dict[str, Any]
) -> None:
    answer = pair.answer(request())
    with pytest.raises((kvffi.RequestError, kvffi.ArgumentError)):
        pair.answer(request(**changes), into=answer)
    assert len(answer.descriptors()) in (0, 2)


@pytest.mark.parametrize("group", [-1, 1 << 32])
def test_a_group_that_is_no_index_is_refused(group: int) -> None:
    with pytest.raises(OverflowError):
        request(local={group: [1]})


def test_holes_and_late_starts_are_taken(pair: kvffi.Pair) -> None:
    local = [kvffi.BlockList(0, [5, kvffi.HOLE], first=1)]
    answer = pair.answer(request(local=local, remote={0: [1, 2, 3]}))
    assert answer.descriptors()["remote_offset"].tolist() == [2 * ROW]


def test_a_pair_that_cannot_exchange_caches_has_every_reason(decode: kvffi.Spec) -> None:
    with pytest.raises(kvffi.PairError) as caught:
        kvffi.Pair(decode, mla(1 << 33, model="org/other"))
    assert caught.value.findings
    assert "org/other" in str(caught.value)


def test_a_pair_that_is_explained_says_why_rows_break(decode: kvffi.Spec) -> None:
    pages = mla(1 << 40, layout="lbhnc")
    pair = kvffi.Pair(decode, pages)
    assert "3 descriptors a block" in pair.explain()
    assert pair.explain_dict()["lanes"][0]["breaks"]
    with pytest.raises(kvffi.Error):
        kvffi.Pair(decode, pages, require_whole_rows=True)


def test_a_write_and_its_options(decode: kvffi.Spec, prefill: kvffi.Spec) -> None:
    pair = kvffi.Pair(prefill, decode, op="write", max_gap=kvffi.GAP_ANY, min_run=64, require_whole_rows=True)
    assert len(pair.answer(request(op="write")).descriptors()) == 2
    with pytest.raises(OverflowError):
        kvffi.Pair(prefill, decode, max_gap=-1)


def test_an_answer_of_another_pair_is_not_proven(pair: kvffi.Pair, decode: kvffi.Spec, prefill: kvffi.Spec) -> None:
    answer = pair.answer(request())
    with pytest.raises(kvffi.ArgumentError):
        kvffi.Pair(decode, prefill).verify(answer)
    with pytest.raises(kvffi.ArgumentError):
        pair.verify(kvffi.Answer())


def test_threads_share_a_pair_and_get_the_same_answers(pair: kvffi.Pair) -> None:
    blocks = numpy.arange(16, dtype=numpy.uint32)
    expected = pair.answer(request(local={0: blocks}, remote={0: blocks})).descriptors()
    wrong: list[object] = []

    def work() -> None:
        answer = kvffi.Answer()
        for _ in range(200):
            pair.answer(request(local={0: blocks}, remote={0: blocks}), into=answer)
            if not (answer.descriptors() == expected).all():
                wrong.append(answer)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []


def test_threads_on_one_answer_are_busy_or_right(pair: kvffi.Pair) -> None:
    answer = kvffi.Answer()
    outcomes: list[str] = []

    def work() -> None:
        for _ in range(500):
            try:
                pair.answer(request(), into=answer)
                outcomes.append("right")
            except kvffi.BusyError:
                outcomes.append("busy")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(outcomes) == 2000
    assert outcomes.count("right") > 0


def test_a_request_cannot_be_copied_since_it_has_addresses_in_it() -> None:
    request = kvffi.Request("read", local={0: [1]}, remote={0: [1]})
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied"):
            copied(request)


def test_descriptors_are_whole_while_another_thread_answers_into_the_same_answer(pair: kvffi.Pair) -> None:
    """The length may change between the question for it and the copy."""
    answer, stop = pair.answer(kvffi.Request("read", local={0: [1]}, remote={0: [1]})), threading.Event()
    requests = [kvffi.Request("read", local={0: ids}, remote={0: ids}) for ids in ([1], list(range(0, 16, 2)))]

    def change() -> None:
        while not stop.is_set():
            for request in requests:
                with contextlib.suppress(kvffi.BusyError):
                    pair.answer(request, into=answer)

    thread = threading.Thread(target=change)
    thread.start()
    lens = set()
    end = time.monotonic() + 1
    while time.monotonic() < end:
        with contextlib.suppress(kvffi.BusyError):
            descriptors = answer.descriptors()
            assert (descriptors["len"] > 0).all()
            lens.add(len(descriptors))
    stop.set()
    thread.join()
    assert len(lens) > 1


def test_an_array_that_a_request_borrows_cannot_be_resized() -> None:
    ids = array.array("I", [5, 6, 9])
    borrowed = request(local={0: ids})
    with pytest.raises(BufferError):
        ids.append(1)
    del borrowed
    ids.append(1)


@pytest.mark.parametrize("layers", [["layers.0", "layers.1"], ("layers.1", "layers.0"), range(2)], ids=str)
def test_some_layers_move_together_as_far_as_they_lie_together(pair: kvffi.Pair, layers: Any) -> None:
    answer = pair.answer(request(layers=layers))
    descriptors = answer.descriptors()
    assert descriptors["local_offset"].tolist() == [5 * ROW, 6 * ROW, 9 * ROW]
    assert descriptors["len"].tolist() == [2 * 64 * 1152] * 3
    pair.verify(answer)
    every = pair.answer(request(layers=[f"layers.{layer}" for layer in range(3)]))
    assert (every.descriptors() == pair.answer(request()).descriptors()).all()
    assert len(pair.answer(request(layers=[])).descriptors()) == 0
    assert len(pair.answer(request(layers=range(1, 1))).descriptors()) == 0


def test_layers_as_json(pair: kvffi.Pair) -> None:
    asked: dict[str, Any] = {
        "op": "read",
        "local": [{"group": 0, "blocks": [5]}],
        "remote": [{"group": 0, "blocks": [1]}],
    }
    for layers in (["layers.1"], {"from": 1, "to": 2}):
        assert pair.answer_json({**asked, "layers": layers}).descriptors()["len"].tolist() == [64 * 1152]
    for wrong in ("layers.1", [1], {"from": 1}, {"from": -1, "to": 2}):
        with pytest.raises(kvffi.JsonError, match="layers"):
            pair.answer_json({**asked, "layers": wrong})


@pytest.mark.parametrize(
    ("layers", "error"),
    [
        (["layers.9"], kvffi.RequestError),
        (range(4), kvffi.RequestError),
        (range(0, 3, 2), ValueError),
        (range(-1, 2), ValueError),
        ("layers.0", TypeError),
        ([0], TypeError),
        (["a\0b"], ValueError),
    ],
)
def test_layers_that_cannot_be_are_refused(pair: kvffi.Pair, layers: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        pair.answer(request(layers=layers))


def test_lists_of_other_lengths_say_where_they_begin(pair: kvffi.Pair) -> None:
    tail: dict[str, Any] = {"local": {0: [5]}, "remote": {0: [1, 2, 8]}}
    with pytest.raises(kvffi.RequestError, match="not one prompt"):
        pair.answer(request(**tail))
    for said, source in (
        ({"align": "tail"}, 8),
        ({"align": "head"}, 1),
        ({"local": [kvffi.BlockList(0, [5], first=1)]}, 2),
    ):
        answer = pair.answer(request(**{**tail, **said}))
        assert answer.descriptors()["remote_offset"].tolist() == [source * ROW]
        pair.verify(answer)
    with pytest.raises(ValueError, match="align is 'middle'"):
        request(align="middle")
