"""Messages are read back as they were written; what cannot be read is refused with the frame, and harms nobody."""

from __future__ import annotations

import signal
import time
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import zmq
from harness.deployment import Deployment, Request, deployment
from harness.midway import PROMPTLY
from harness.model import Model

from kvsglang.errors import MessageError
from kvsglang.messages import ABORT, GUARD, MOST_REASON, STATUS, Abort, AbortAck, Frames, Registration, Room, Status


def indices(*values: int) -> npt.NDArray[np.int32]:
    return np.array(values, dtype=np.int32)


REGISTRATION = Registration(
    host="127.0.0.1",
    port=4000,
    agent="decode",
    metadata=b"\x00\xff",
    kv_bases=(1 << 63, 2),
    aux_bases=(3,),
    state_bases=((4, 5), ()),
    gpu=1,
    tp_size=4,
    tp_rank=3,
    state_rows=((6, 7), ()),
    state_channels=((8, 0), ()),
    num_pages=9,
    kinds=("VRAM", "DRAM"),
    kv_rows=(10, 11),
    state_layer_ids=((12, 13), ()),
    kv_layer_ids=(14, 14),
    state_lengths=((15, 16), ()),
    mapped={"spec": {}},
)
ROOM = Room(7, "127.0.0.1", 4000, "decode", indices(3, 1), None, 2, (indices(5), indices()), 64, False, 9)


def test_messages_are_read_back_as_they_were_written() -> None:
    assert Registration.parse(REGISTRATION.frames()) == REGISTRATION
    read = Room.parse(ROOM.frames())
    assert read.pages.tolist() == [3, 1]
    assert [rows.tolist() for rows in read.state] == [[5], []]
    assert (read.room, read.aux, read.num_readers, read.prefix, read.generation) == (7, None, 2, 64, 9)
    for message in (Status(7, 0, 3, "why", False, 9), Abort(7, "127.0.0.1", 1, 2, "why"), AbortAck(7, 3, 2)):
        assert type(message).parse(message.frames()) == message


def test_of_a_long_reason_the_beginning_is_read() -> None:
    said = 2 * MOST_REASON * "é"
    for message in (Status(7, 0, 3, said, False, 9), Abort(7, "127.0.0.1", 1, 2, said)):
        read = type(message).parse(message.frames())
        assert read == replace(message, reason=said[:MOST_REASON])


def test_messages_of_sglang_lack_what_ours_add() -> None:
    assert Registration.parse(REGISTRATION.frames()[:25]).mapped is None
    assert Status.parse([STATUS, b"7", b"4", b"0", b""]) == Status(7, 4, 0)
    assert Abort.parse([ABORT, b"7"]) == Abort(7)


@pytest.mark.parametrize(
    ("message", "index", "frame", "says"),
    [
        (REGISTRATION, 3, b"port", "frame 3 is b'port' and no number"),
        (REGISTRATION, 6, b"1234567", "frame 6 has 7 bytes and items of 8"),
        (REGISTRATION, 8, b"\x01", "frame 8 ends inside its header"),
        (REGISTRATION, 8, b"\x01\x00\x00\x00\xff\x00\x00\x00", "frame 8 has 8 bytes and says 263"),
        (REGISTRATION, 22, b"2", "TP rank 3 is no rank '0' of 2 by context"),
        (REGISTRATION, 25, b"{", "frame 25 is no JSON"),
        (REGISTRATION, 25, b"[]", "frame 25 is no JSON object"),
        (ROOM, 5, b"12", "frame 5 has 2 bytes and items of 4"),
        (ROOM, 8, b"\x01\x00\x00\x00\x03\x00\x00\x00abc", "frame 8 has 3 bytes and items of 4"),
        (ROOM, 8, b"\x02\x00\x00\x00\x04\x00\x00\x00", "frame 8 ends inside its header"),
        (ROOM, 7, b"", "frame 7 is b'' and no number"),
        (ROOM, 2, 256 * b"a", "frame 2 has 256 bytes, and a host 255 at most"),
        (REGISTRATION, 2, 256 * b"a", "frame 2 has 256 bytes, and a host 255 at most"),
        (Abort(7, "127.0.0.1", 1, 2), 2, 256 * b"a", "frame 2 has 256 bytes, and a host 255 at most"),
    ],
)
def test_a_frame_that_cannot_be_read_is_named(message: Any, index: int, frame: bytes, says: str) -> None:
    frames: Frames = message.frames()
    frames[index] = frame
    with pytest.raises(MessageError) as refused:
        type(message).parse(frames)
    assert says in str(refused.value)


def test_nonsense_on_the_control_sockets_harms_nobody() -> None:
    random = np.random.default_rng(1)
    with deployment(Model(layers=(0,)), kinds=("ours", "ours")) as engines:
        engines.run(Request(1, [1], [2]))
        context = zmq.Context()
        for worker in (engines.prefill[0], engines.decode[0]):
            socket = context.socket(zmq.PUSH)
            socket.connect(f"tcp://{worker.ask('endpoint')}")
            whole = [
                REGISTRATION.frames(),
                ROOM.frames(),
                Status(1, 0, 0).frames(),
                Abort(9, "127.0.0.1", 1, 1).frames(),
            ]
            for frames in [*whole, [b""], [GUARD], [b"nonsense"], [GUARD, b"x"]]:
                socket.send_multipart(frames)
                for _ in range(40):
                    broken = [bytes(f) for f in frames]
                    broken[random.integers(len(broken))] = random.bytes(int(random.integers(40)))
                    socket.send_multipart(broken[: int(random.integers(1, len(broken) + 1))])
            time.sleep(0.3)
            socket.close(linger=20000)
        context.term()
        engines.run(Request(2, [3], [4]))
        engines.check()


def running(engines: Deployment, number: int, agent: str) -> Room:
    """What the decode worker said of a request: its first, to and from page 1."""
    host, port = engines.decode[0].ask("endpoint").split(":")
    return Room(number, host, int(port), agent, np.array([1], np.int32), 6, 1, (), 0, False, 1)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"agent": "who"},
        {"pages": np.array([2], np.int32)},
        {"generation": 0},
        {"generation": 2},
        {"port": 1},
    ],
)
def test_a_message_that_comes_again_while_its_request_goes_on_releases_nothing(change: dict[str, Any]) -> None:
    with deployment(Model(layers=(0,)), kinds=("ours", "ours")) as engines:
        prefill, decode = engines.prefill[0], engines.decode[0]
        request = Request(1, [1], [1])
        engines.start(request)
        agent = prefill.ask("peers")[0]
        tell(prefill.ask("endpoint"), replace(running(engines, 1, agent), **change).frames())
        decode.sleep(0.3)
        if change.get("generation") == 0:
            # As from SGLang's, whose messages have none: the first request fails, and is told so.
            assert decode.until(1, ["Failed"], PROMPTLY) == "Failed"
            assert "asked for again" in decode.why(1)
            return
        assert decode.poll(1) == "Transferring"
        assert not decode.call(1, "is_abort_release_safe")
        engines.send(request)
        engines.finish(request)
        engines.check()


@pytest.mark.parametrize(
    "frames",
    [
        Status(1, 3, 0, generation=1).frames(),
        Status(1, 99, 0, generation=1).frames(),
        Status(1, 4, 0).frames(),
        Status(1, 0, 0, "no generation").frames(),
        Status(1, 4, 5, generation=1).frames(),
        Status(1, 0, 5, "no writer", generation=1).frames(),
        Status(1, 4, 0, generation=1).frames()[:5],
        AbortAck(1, 0, 1).frames(),
    ],
)
def test_pages_come_back_only_on_the_end_of_this_request_from_its_writer(frames: Frames) -> None:
    with deployment(Model(layers=(0,)), kinds=("ours", "ours")) as engines:
        decode = engines.decode[0]
        request = Request(1, [1], [1])
        engines.start(request)
        tell(decode.ask("endpoint"), frames)
        decode.sleep(0.3)
        assert decode.poll(1) == "Transferring"
        assert not decode.call(1, "is_abort_release_safe")
        engines.send(request)
        engines.finish(request)
        engines.check()


def test_a_failure_that_does_not_say_drained_ends_a_request_and_releases_nothing() -> None:
    with deployment(Model(layers=(0,)), kinds=("ours", "ours"), prefill_options={"bootstrap_timeout": 60.0}) as engines:
        prefill, decode = engines.prefill[0], engines.decode[0]
        engines.start(Request(1, [1], [1]))
        prefill.signal(signal.SIGSTOP)
        try:
            silent = Status(1, 0, 0, "why", generation=1).frames()
            silent[5] = b""
            tell(decode.ask("endpoint"), silent)
            assert decode.until(1, ["Failed"], PROMPTLY) == "Failed"
            assert not decode.call(1, "is_abort_release_safe")
            assert decode.ask("held") == {1: [1]}
        finally:
            prefill.signal(signal.SIGCONT)
        # The abort that followed is acknowledged.
        assert decode.until_released(1, PROMPTLY)


def test_a_late_abort_of_an_earlier_request_under_the_same_number_changes_nothing() -> None:
    with deployment(Model(layers=(0,)), kinds=("ours", "ours")) as engines:
        prefill = engines.prefill[0]
        engines.run(Request(1, [1], [2]))
        request = Request(1, [3], [4])
        engines.start(request)
        host, port = engines.decode[0].ask("endpoint").split(":")
        tell(prefill.ask("endpoint"), Abort(1, host, int(port), 1, "late").frames())
        prefill.sleep(0.3)
        assert prefill.poll(1) == "WaitingForInput"
        engines.send(request)
        engines.finish(request)
        engines.check()


def tell(endpoint: str, *messages: Frames) -> None:
    """Sends messages to a worker, as anybody can."""
    context = zmq.Context()
    socket = context.socket(zmq.PUSH)
    socket.connect(f"tcp://{endpoint}")
    for frames in messages:
        socket.send_multipart(frames)
    socket.close(linger=20000)
    context.term()


def test_late_answers_to_an_earlier_request_under_the_same_number_change_nothing() -> None:
    with deployment(Model(layers=(0,)), kinds=("ours", "ours")) as engines:
        decode = engines.decode[0]
        engines.run(Request(1, [1], [2]))
        request = Request(1, [3], [4])
        engines.start(request)
        late = Status(1, 4, 0, generation=1), Status(1, 0, 0, "late", generation=1), AbortAck(1, 0, 1)
        tell(decode.ask("endpoint"), *(answer.frames() for answer in late))
        decode.sleep(0.3)
        assert decode.poll(1) == "Transferring"
        assert not decode.call(1, "is_abort_release_safe")
        engines.send(request)
        engines.finish(request)
        engines.check()
