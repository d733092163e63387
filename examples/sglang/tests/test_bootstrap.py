"""The rendezvous answers decode workers once every prefill worker is there, and forgets an engine that was replaced."""

from __future__ import annotations

import http.client
from collections.abc import Iterator

import pytest
from harness.deployment import free_port

from kvsglang import bootstrap
from kvsglang.engines import overlap
from kvsglang.lists import Place


@pytest.fixture
def address() -> Iterator[str]:
    port = free_port()
    server = bootstrap.BootstrapServer("127.0.0.1", port)
    yield f"127.0.0.1:{port}"
    server.close()


def register(address: str, place: Place, port: int) -> None:
    bootstrap.register(address, place, "127.0.0.1", port, 16, "bfloat16", "blob")


def test_an_engine_is_known_once_all_its_workers_are(address: str) -> None:
    assert bootstrap.look_up(address) is None
    register(address, Place(0, 2), 4000)
    assert bootstrap.look_up(address) is None
    with pytest.raises(ConnectionError, match="1 of 2 prefill workers are registered"):
        bootstrap.find(address, 0, 0)
    register(address, Place(1, 2), 4001)
    assert bootstrap.look_up(address) == bootstrap.PrefillInfo(2, 1, 16, "bfloat16")
    assert bootstrap.find(address, 1, 0) == bootstrap.Rank(1, 0, "127.0.0.1", 4001, "blob")
    with pytest.raises(ConnectionError, match="no rank"):
        bootstrap.find(address, 2, 0)


def test_an_engine_of_another_shape_takes_the_place_of_the_old_one(address: str) -> None:
    register(address, Place(0, 2), 4000)
    register(address, Place(1, 2), 4001)
    register(address, Place(0, 1), 4002)
    assert bootstrap.look_up(address) == bootstrap.PrefillInfo(1, 1, 16, "bfloat16")
    assert bootstrap.find(address, 0, 0).port == 4002


def test_a_rendezvous_that_is_not_there_is_no_engine() -> None:
    address = f"127.0.0.1:{free_port()}"
    assert bootstrap.look_up(address) is None
    assert not bootstrap.is_alive(address)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/elsewhere", None, 404),
        ("GET", "/route", None, 400),
        ("GET", "/route?target_tp_rank=x&target_pp_rank=0", None, 400),
        ("PUT", "/route", b"{", 400),
        ("PUT", "/route", b"{}", 400),
        ("PUT", "/route", b"[]", 400),
    ],
)
def test_a_bad_question_gets_an_answer(address: str, method: str, path: str, body: bytes | None, status: int) -> None:
    connection = http.client.HTTPConnection(address, timeout=5)
    connection.request(method, path, body)
    assert connection.getresponse().status == status
    connection.close()
    assert bootstrap.is_alive(address)


def test_ranks_meet_whose_shares_do() -> None:
    assert [list(overlap(rank, 4, 2)) for rank in range(4)] == [[0], [0], [1], [1]]
    assert [list(overlap(rank, 2, 4)) for rank in range(2)] == [[0, 1], [2, 3]]
    assert [list(overlap(rank, 2, 3)) for rank in range(2)] == [[0, 1], [1, 2]]
    assert [list(overlap(rank, 3, 2)) for rank in range(3)] == [[0], [0, 1], [1]]
