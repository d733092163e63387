"""What is said over a connection that breaks is lost: pages are free all the same, and whoever closes says so."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
import zmq
from harness.both import HOST, both
from harness.deployment import deployment
from harness.liar import INFO, RANK, liar
from harness.midway import MODEL, PAGES, PROMPTLY, SLOW, begin, cut, until
from harness.ports import free_port

from kvsglang import bootstrap, sockets
from kvsglang.decode_room import DecodeRoom
from kvsglang.heard import KEPT, Heard
from kvsglang.messages import ABORT, ABORT_ACK, STATUS, Abort, AbortAck, Frames
from kvsglang.receiver import Receiver
from kvsglang.sender import Sender
from kvsglang.sockets import ControlSocket
from kvsglang.states import Poll


@dataclass
class Wire:
    """What both managers say, and what of it does not arrive."""

    lost: dict[bytes, int] = field(default_factory=dict)
    """How many messages of a kind are lost from now on."""
    said: list[bytes] = field(default_factory=list)

    def loses(self, frames: Frames) -> bool:
        self.said.append(frames[0])
        left = self.lost.get(frames[0], 0)
        self.lost[frames[0]] = left - 1
        return left > 0


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    made = Wire()
    send = ControlSocket.send

    def lossy(self: ControlSocket, endpoint: str, frames: Frames) -> None:
        if not made.loses(frames):
            send(self, endpoint, frames)

    monkeypatch.setattr(ControlSocket, "send", lossy)
    return made


@contextmanager
def said_once() -> Iterator[None]:
    """Nobody is told again meanwhile that a request failed: that is for words that were lost."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DecodeRoom, "unanswered", lambda _room: [])
        yield


@pytest.mark.parametrize(
    "lost",
    [{ABORT: 1}, {ABORT_ACK: 1, STATUS: 1}, {ABORT: 1, ABORT_ACK: 1, STATUS: 1}],
    ids=["abort", "answer", "both"],
)
def test_pages_are_free_although_a_word_was_lost(wire: Wire, lost: dict[bytes, int]) -> None:
    with both() as engines:
        sender, receiver = engines.start(1)
        wire.lost |= lost
        with said_once():
            receiver.abort()
            assert engines.decode.held() == {1: [1, 2]}
        assert until(lambda: not engines.decode.held(), PROMPTLY)
        assert sender.poll() is Poll.FAILED


def test_pages_are_free_although_the_last_word_about_them_was_lost(wire: Wire) -> None:
    with both(waiting_timeout=0.3) as engines:
        sender, receiver = engines.start(1)
        wire.lost |= {STATUS: 1, ABORT: 1}
        sender.send([1, 2])
        assert until(lambda: sender.poll() is Poll.SUCCESS, PROMPTLY)
        # The prefill worker forgets it.
        sender.clear()
        assert until(lambda: not engines.prefill.rooms.numbers(), PROMPTLY)
        with said_once():
            assert until(lambda: receiver.poll() is Poll.FAILED, PROMPTLY)
            assert engines.decode.held() == {1: [1, 2]}
        assert until(lambda: not engines.decode.held(), PROMPTLY)


def test_a_prefill_worker_that_lives_hears_that_its_engine_is_taken_for_lost(wire: Wire) -> None:
    with both() as engines, said_once():
        sender, receiver = engines.start(1)
        engines.rendezvous.close()
        assert until(lambda: receiver.poll() is Poll.FAILED, PROMPTLY)
        assert until(lambda: sender.poll() is Poll.FAILED, PROMPTLY)
        assert "lost the prefill engine behind" in engines.prefill.rooms.reason(1)
        assert until(lambda: not engines.decode.held(), PROMPTLY)
        assert until(lambda: ABORT_ACK in wire.said, PROMPTLY)


def test_of_two_workers_found_at_one_place_the_second_is_not_taken_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """One request finds an engine, another its successor, and the first registers when the second has."""
    send = ControlSocket.send
    rank = {**RANK, "rank_port": free_port()}
    with both(close_timeout=0.0) as engines, liar(INFO, rank) as address:
        decode = engines.decode
        assert decode.try_ensure_parallel_info(address)
        one, two, three = (Receiver(decode, address, room) for room in (1, 2, 3))

        def interrupted(self: ControlSocket, endpoint: str, frames: Frames) -> None:
            monkeypatch.setattr(ControlSocket, "send", send)
            rank["rank_port"] = free_port()
            two.init(0)
            send(self, endpoint, frames)

        monkeypatch.setattr(ControlSocket, "send", interrupted)
        one.init(0)
        assert (one.poll(), two.poll()) == (Poll.FAILED, Poll.WAITING_FOR_INPUT)
        assert "was started again meanwhile" in decode.rooms.reason(1)
        two.send_metadata([1, 2], None, None, 0)
        assert two.poll() is Poll.TRANSFERRING
        # So the loss of the one that was is seen.
        rank["rank_port"] = free_port()
        three.init(0)
        assert (two.poll(), three.poll()) == (Poll.FAILED, Poll.WAITING_FOR_INPUT)


def test_a_prefill_worker_that_closes_says_so(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "LINGER_MS", 10_000)
    with both(heartbeat=60.0) as engines:
        _, receiver = engines.start(1)
        engines.prefill.close()
        assert until(lambda: receiver.poll() is Poll.FAILED, PROMPTLY)
        assert "the prefill worker closes" in engines.decode.rooms.reason(1)
        assert engines.decode.held() == {}
        assert STATUS in wire.said


def test_an_abort_that_comes_again_is_answered_and_says_nothing_to_the_next_request() -> None:
    context = zmq.Context()
    with both() as engines, context, context.socket(zmq.PULL) as answers, context.socket(zmq.PUSH) as words:
        port = answers.bind_to_random_port(f"tcp://{HOST}")
        words.connect(f"tcp://{engines.prefill.endpoint}")

        def answer(generation: int) -> AbortAck:
            words.send_multipart(Abort(7, HOST, port, generation, "not wanted").frames())
            assert answers.poll(PROMPTLY * 1000)
            return AbortAck.parse(answers.recv_multipart())

        assert answer(3) == AbortAck(7, 0, 3)
        sender = Sender(engines.prefill, engines.address, 7)
        assert sender.poll() is Poll.FAILED
        sender.clear()
        assert until(lambda: engines.prefill.rooms.numbers() == [], PROMPTLY)
        # The next one begins anew.
        sender = Sender(engines.prefill, engines.address, 7)
        assert answer(3) == AbortAck(7, 0, 3)
        assert sender.poll() is Poll.BOOTSTRAPPING
        # One that has not come before is about this request.
        assert answer(4) == AbortAck(7, 0, 4)
        assert sender.poll() is Poll.FAILED
        assert engines.prefill.rooms.reason(7) == "not wanted"


def test_an_abort_is_known_again_by_who_sent_it_and_for_which_request(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    heard = Heard()
    first = Abort(7, HOST, 1, 3)
    assert not heard.is_repeated(first)
    assert heard.is_repeated(Abort(7, HOST, 1, 3, "for another reason"))
    for other in (Abort(7, HOST, 2, 3), Abort(7, HOST, 1, 4), Abort(8, HOST, 1, 3), Abort(7, "127.0.0.2", 1, 3)):
        assert not heard.is_repeated(other)
    # It is known for so long after it came last.
    now += KEPT - 1
    assert heard.is_repeated(first)
    now += KEPT - 1
    assert heard.is_repeated(first)
    now += KEPT + 1
    assert not heard.is_repeated(first)
    nameless = Abort(7, HOST, 1)
    assert not heard.is_repeated(nameless)
    assert not heard.is_repeated(nameless)


def test_whoever_sends_aborts_without_end_fills_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvsglang.lately.MOST", 3)
    heard = Heard()
    for room in range(4):
        assert not heard.is_repeated(Abort(room, HOST, 1, 3))
    assert heard.is_repeated(Abort(1, HOST, 1, 3))
    assert not heard.is_repeated(Abort(0, HOST, 1, 3))


def test_what_was_said_before_a_socket_closes_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "LINGER_MS", 10_000)
    context = zmq.Context()
    with context, context.socket(zmq.PULL) as listener:
        port = listener.bind_to_random_port(f"tcp://{HOST}")
        for count in range(20):
            socket = ControlSocket(HOST, lambda _frames: None, most=1)
            socket.send(f"tcp://{HOST}:{port}", [str(count).encode()])
            if count % 2:
                socket.forget(f"tcp://{HOST}:{port}")
            socket.close()
            assert listener.poll(PROMPTLY * 1000), f"message {count} was lost"
            assert listener.recv() == str(count).encode()


def test_a_decode_worker_that_closes_waits_until_nobody_writes() -> None:
    with deployment(MODEL, kinds=("ours", "ours"), prefill_options=SLOW) as engines:
        request = begin(engines, 1)
        prefill, decode = engines.prefill[0], engines.decode[0]
        assert decode.ask("close", PROMPTLY) == {}
        then = decode.digests()
        assert prefill.until(1, ["Failed"], PROMPTLY) == "Failed"
        assert "the decode worker closes" in prefill.why(1)
        decode.sleep(0.3)
        assert decode.digests() == then, "bytes landed after the release"
        cut(engines, request)


def test_a_decode_worker_that_closes_says_which_pages_are_held_still() -> None:
    with deployment(MODEL, kinds=("ours", "ours"), prefill_options=SLOW) as engines:
        begin(engines, 1)
        prefill, decode = engines.prefill[0], engines.decode[0]
        prefill.signal(signal.SIGSTOP)
        try:
            assert decode.ask("close", 0.3) == {1: PAGES[::-1]}
            assert decode.ask("close") == {1: PAGES[::-1]}
        finally:
            prefill.signal(signal.SIGCONT)


def test_a_decode_worker_that_closes_does_not_wait_for_a_rendezvous_and_minds_no_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, answers, answered = threading.Event(), threading.Event(), threading.Event()

    def is_alive(_address: str) -> bool:
        asked.set()
        answers.wait(3 * PROMPTLY)
        answered.set()
        return False

    monkeypatch.setattr(bootstrap, "is_alive", is_alive)
    with both(heartbeat_failures=1) as engines:
        try:
            assert asked.wait(PROMPTLY)
            start = time.monotonic()
            assert engines.decode.close(0.1) == {}
            assert time.monotonic() - start < PROMPTLY
            assert not answered.is_set()
        finally:
            answers.set()
        assert answered.wait(PROMPTLY)
        assert until(lambda: not any(thread.name == "heartbeat" for thread in threading.enumerate()), PROMPTLY)
        # The engine would be lost otherwise.
        assert list(engines.decode.engines()) == [engines.address]
