"""The rendezvous answers decode workers once every prefill worker is there, and forgets an engine that was replaced."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest
from harness.liar import INFO, RANK, liar
from harness.midway import PROMPTLY, until
from harness.model import Model
from harness.ports import free_port
from harness.settings import Settings
from harness.worker import Remote

from kvsglang import bootstrap, rendezvous
from kvsglang.engines import overlap
from kvsglang.errors import MessageError
from kvsglang.lists import Place


@pytest.fixture
def address() -> Iterator[str]:
    port = free_port()
    server = rendezvous.BootstrapServer("127.0.0.1", port)
    yield f"127.0.0.1:{port}"
    server.close()


def register(address: str, place: Place, port: int) -> None:
    bootstrap.register(address, place, "127.0.0.1", port, 16, "bfloat16", "blob")


def ask(address: str, method: str, path: str, body: bytes | None = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection(address, timeout=PROMPTLY)
    connection.request(method, path, body)
    answer = connection.getresponse()
    content = answer.read().decode()
    connection.close()
    return answer.status, content


def connected(address: str) -> socket.socket:
    host, port = address.split(":")
    return socket.create_connection((host, int(port)), timeout=PROMPTLY)


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
    ("info", "says"),
    [
        (b"<html>hi</html>", "'<html>hi</html>' is no JSON object"),
        (b"[" * 100_000, "is no JSON object"),
        ([1], "is no JSON object"),
        (None, "is no JSON object"),
        ({}, "attn_tp_size: None is no number from 1"),
        ({**INFO, "attn_tp_size": 0}, "attn_tp_size: 0 is no number from 1"),
        ({**INFO, "attn_tp_size": "two"}, "attn_tp_size: 'two' is no number"),
        ({**INFO, "pp_size": -1}, "pp_size: -1 is no number"),
        ({**INFO, "attn_tp_size": 10**9}, "attn_tp_size: 1000000000 is no number"),
        ({**INFO, "attn_tp_size": 60000, "pp_size": 60000}, "more than 65536 workers"),
        ({**INFO, "page_size": "8"}, "page_size: '8' is no number"),
        ({**INFO, "kv_layout": 7}, "kv_layout: 7 is no text"),
        ({**INFO, "follow_bootstrap_room": "yes"}, "follow_bootstrap_room: 'yes' is neither true nor false"),
    ],
)
def test_an_answer_that_describes_no_engine_is_refused_with_what_is_wrong(info: object, says: str) -> None:
    with liar(info) as address, pytest.raises(MessageError) as refused:
        bootstrap.look_up(address)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("rank", "says"),
    [
        (b"nonsense", "is no JSON object"),
        ({"rank_ip": "127.0.0.1"}, "rank_port: None is no number"),
        ({**RANK, "rank_port": 99999}, "rank_port: 99999 is no number from 1 to 65535"),
        ({**RANK, "rank_ip": 7}, "rank_ip: 7 is no text"),
        ({**RANK, "rank_ip": "no such host!"}, "cannot send to tcp://no such host!:9"),
        ({**RANK, "rank_ip": ""}, "rank_ip: '' is neither an IPv4 address nor the name of a host"),
        ({**RANK, "rank_ip": "::1"}, "rank_ip: '::1' is neither an IPv4 address nor the name of a host"),
        ({**RANK, "blob": "%%"}, "the agent's blob is no base64"),
        ({**RANK, "blob": "AAAA"}, "blob"),
    ],
)
def test_a_request_of_a_worker_that_is_none_fails_and_the_decode_worker_goes_on(rank: object, says: str) -> None:
    with liar(INFO, rank) as address:
        place = Settings("decode", int(address.rpartition(":")[2]))
        decode = Remote("ours", Model(layers=(0,)), place, 2).ready()
        try:
            decode.receiver(1)
            assert decode.poll(1) == "Failed"
            assert says in decode.why(1)
            decode.receive(1, [1], 0, None, None)
            decode.call(1, "abort")
            decode.call(1, "clear")
            assert decode.ask("held") == {}
            decode.receiver(1)
            decode.ask("close")
        finally:
            decode.kill()


def test_an_answer_that_drips_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "PATIENCE", 0.3)
    with liar(INFO, drips=True) as address:
        begin = time.monotonic()
        assert not bootstrap.is_alive(address)
        assert bootstrap.look_up(address) is None
        with pytest.raises(ConnectionError, match=r"did not answer in 0\.3 s"):
            bootstrap.find(address, 0, 0)
        # It would drip on for longer, each time.
        assert time.monotonic() - begin < PROMPTLY


@pytest.mark.parametrize(
    "address", ["nonsense", "127.0.0.1:port", "", "http://127.0.0.1:1", "a" * 70 + ".x:80", "x:99999"]
)
def test_what_is_no_address_is_no_engine(address: str) -> None:
    assert bootstrap.look_up(address) is None
    assert not bootstrap.is_alive(address)
    with pytest.raises(ConnectionError):
        bootstrap.find(address, 0, 0)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/elsewhere", None, 404),
        ("GET", "/route", None, 400),
        ("GET", "/route?target_tp_rank=x&target_pp_rank=0", None, 400),
        ("PUT", "/route", b"{", 400),
        ("PUT", "/route", b"{}", 400),
        ("PUT", "/route", b"[]", 400),
        ("POST", "/elsewhere", b"{}", 404),
    ],
)
def test_a_bad_question_gets_an_answer(address: str, method: str, path: str, body: bytes | None, status: int) -> None:
    assert ask(address, method, path, body)[0] == status
    assert bootstrap.is_alive(address)


@pytest.mark.parametrize(
    ("length", "status"),
    [(None, 411), ("-1", 400), ("+1", 400), ("1_0", 400), ("all", 400), ("9" * 5000, 400), (f"{(1 << 20) + 1}", 413)],
)
def test_a_body_without_a_bound_is_refused_and_its_connection_closed(
    address: str, length: str | None, status: int
) -> None:
    with connected(address) as client:
        said = f"Content-Length: {length}\r\n" if length else ""
        client.sendall(f"PUT /route HTTP/1.1\r\n{said}\r\n".encode())
        answer = b"".join(iter(lambda: client.recv(4096), b""))
        assert answer.startswith(f"HTTP/1.1 {status} ".encode())
        assert b"\r\nConnection: close\r\n" in answer


@pytest.mark.parametrize("said", ["", "GET /heal", "PUT /route HTTP/1.1\r\nContent-Length: 100\r\n\r\n{"])
def test_a_client_that_says_nothing_more_is_given_up(address: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "PATIENCE", 0.3)
    with connected(address) as client:
        client.sendall(said.encode())
        # Reset, if what was said came when it was given up already.
        with suppress(ConnectionResetError):
            assert client.recv(1) == b""


def test_a_client_that_drips_is_given_up(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "PATIENCE", 0.3)
    monkeypatch.setattr(rendezvous, "KEPT", 0.3)
    with connected(address) as client, pytest.raises(OSError):  # noqa: PT011
        for _ in range(400):
            client.sendall(b"x")
            time.sleep(0.05)


def test_a_connection_is_kept_for_another_request_while_there_are_few(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rendezvous, "MOST_CONNECTIONS", 4)
    connections = [http.client.HTTPConnection(address, timeout=PROMPTLY) for _ in range(3)]
    for is_kept, connection in zip((True, True, False), connections, strict=True):
        connection.request("GET", "/health")
        answer = connection.getresponse()
        assert answer.read() == b"OK"
        assert answer.will_close is not is_kept
    connections[0].request("GET", "/health")
    assert connections[0].getresponse().read() == b"OK"
    for connection in connections:
        connection.close()


def test_few_connections_are_served_at_once_and_the_others_later(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "PATIENCE", PROMPTLY)
    monkeypatch.setattr(rendezvous, "MOST_CONNECTIONS", 4)
    before = threading.active_count()
    with ExitStack() as done:
        for _ in range(12):
            done.enter_context(connected(address))
        time.sleep(0.2)
        # One that serves and one that ends it, each.
        assert threading.active_count() - before <= 2 * 4
    assert until(lambda: bootstrap.is_alive(address), PROMPTLY)
    # What others left behind may end meanwhile.
    assert until(lambda: threading.active_count() <= before, PROMPTLY)


@pytest.mark.parametrize("size", ["attn_cp_size", "attn_dp_size", "system_dp_size"])
def test_a_worker_of_one_group_of_several_is_not_registered(address: str, size: str) -> None:
    sizes = {"attn_cp_size": 1, "attn_dp_size": 1, "system_dp_size": 1, size: 2}
    status, answer = ask(address, "PUT", "/route", json.dumps(sizes).encode())
    assert (status, answer) == (400, f"{size} is 2; only 1 is served")
    assert bootstrap.look_up(address) is None


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ((2, 2, 0, 1), "attn_tp_rank is 2; give a rank of 2"),
        ((-1, 2, 0, 1), "attn_tp_rank is -1; give a rank of 2"),
        ((0, 1, 3, 2), "pp_rank is 3; give a rank of 2"),
        ((0, 60000, 0, 60000), "3600000000 workers; 65536 are taken"),
    ],
)
def test_a_worker_that_its_engine_cannot_have_is_not_registered(
    address: str, place: tuple[int, int, int, int], says: str
) -> None:
    register(address, Place(0, 2), 4000)
    with pytest.raises(ConnectionError, match=says):
        register(address, Place(*place), 4001)
    register(address, Place(1, 2), 4002)
    assert bootstrap.look_up(address) == bootstrap.PrefillInfo(2, 1, 16, "bfloat16")
    assert [bootstrap.find(address, rank, 0).port for rank in (0, 1)] == [4000, 4002]


def test_a_worker_of_another_group_is_not_there(address: str) -> None:
    register(address, Place(), 4000)
    for group, status in (((0, 0), 200), ((1, 0), 404), ((0, 1), 404)):
        where = f"prefill_dp_rank={group[0]}&prefill_cp_rank={group[1]}&target_tp_rank=0&target_pp_rank=0"
        assert ask(address, "GET", f"/route?{where}")[0] == status


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"kv_layout": "layout A"}, "kv_layout is layout B here and layout A at the peer"),
        ({"attn_cp_size": 2}, "context parallelism of prefill attention is 1 here and 2 at the peer"),
        ({"dp_size": 2}, "(dp_size) is 1 here and 2 at the peer"),
        ({"dp_size": 2, "follow_bootstrap_room": False}, "(dp_size) is 1 here and 2 at the peer"),
        ({"dsv41_spec_layout": {"num_draft_tokens": 4}}, "dsv41_spec_layout is None here and {'num_draft_tokens': 4}"),
        ({"enable_kv_cache_sharding": True}, "enable_kv_cache_sharding is False here and True at the peer"),
        ({"enable_dsa_cache_layer_split": True}, "enable_dsa_cache_layer_split is False here and True at the peer"),
        ({"decode_allocation_policy": "prefill_complete"}, "decode_allocation_policy is early here and prefill_comp"),
    ],
)
def test_an_engine_whose_workers_have_something_else_of_a_request_is_refused(
    change: dict[str, object], says: str
) -> None:
    with liar({**INFO, **change}, RANK) as address:
        place = Settings("decode", int(address.rpartition(":")[2]))
        decode = Remote("ours", Model(layers=(0,)), place, 2, {"lists": {"kv_layout": "layout B"}}).ready()
        try:
            decode.receiver(1)
            assert decode.poll(1) == "Failed"
            assert says in decode.why(1)
        finally:
            decode.stop()


def test_settings_that_are_as_they_are_understood_are_no_reason_to_refuse() -> None:
    layout = {"kv_layout": "layout B", "prefill_http_port": 30000}
    with liar({**INFO, **layout, **bootstrap.UNDERSTOOD}, RANK) as address:
        place = Settings("decode", int(address.rpartition(":")[2]))
        decode = Remote("ours", Model(layers=(0,)), place, 2, {"lists": {"kv_layout": "layout B"}}).ready()
        try:
            decode.receiver(1)
            assert decode.poll(1) == "WaitingForInput"
        finally:
            decode.stop()


def test_ranks_meet_whose_shares_do() -> None:
    assert [list(overlap(rank, 4, 2)) for rank in range(4)] == [[0], [0], [1], [1]]
    assert [list(overlap(rank, 2, 4)) for rank in range(2)] == [[0, 1], [2, 3]]
    assert [list(overlap(rank, 2, 3)) for rank in range(2)] == [[0, 1], [1, 2]]
    assert [list(overlap(rank, 3, 2)) for rank in range(3)] == [[0], [0, 1], [1]]


def test_an_engine_that_was_started_again_in_another_shape_is_asked_in_that_one() -> None:
    info = dict(INFO)
    with liar(info, RANK) as address:
        decode = Remote("ours", Model(layers=(0,)), Settings("decode", int(address.rpartition(":")[2])), 2).ready()
        try:
            for room, tp_size in enumerate((1, 2, 1)):
                info["attn_tp_size"] = tp_size
                decode.receiver(room)
                assert decode.poll(room) == "WaitingForInput"
                asked = decode.call(room, "__getattribute__", "request").ranks
                assert [rank.tp_rank for rank in asked] == list(range(tp_size))
            info["attn_tp_size"] = 0
            decode.receiver(3)
            assert decode.poll(3) == "Failed"
            assert "attn_tp_size: 0 is no number" in decode.why(3)
        finally:
            decode.stop()
