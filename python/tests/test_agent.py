"""Agents, peers, transfers and notifications, over the loopback: what is right, and what is not."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import mmap
import multiprocessing
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy
import pytest

import kvffi
from conftest import mla
from workers import PATIENCE, ROW, Worker, worker


@pytest.fixture
def network() -> Iterator[kvffi.Loopback]:
    with kvffi.Loopback() as network:
        yield network
        network.set_faults()


@pytest.fixture
def prefill(network: kvffi.Loopback) -> Worker:
    return worker("prefill", network, 7)


@pytest.fixture
def decode(network: kvffi.Loopback) -> Worker:
    return worker("decode", network, 0)


@pytest.fixture
def peer(decode: Worker, prefill: Worker) -> kvffi.Peer:
    return decode.agent.connect(prefill.agent.export())


def answer(decode: Worker, peer: kvffi.Peer, op: kvffi.Op = "read") -> kvffi.Answer:
    pair = kvffi.Pair(decode.spec, peer.layout(), op=op)
    return pair.answer(kvffi.Request(op, local={0: [5, 6, 9]}, remote={0: [1, 2, 8]}))


def posted(transfer: kvffi.Transfer) -> kvffi.Transfer:
    """Waits until the agent's thread has posted: what was not posted settles at once."""
    end = time.monotonic() + PATIENCE
    while not transfer.stats().requests and time.monotonic() < end:
        time.sleep(0.001)
    return transfer


def test_a_transfer_moves_its_blocks_and_nothing_else(decode: Worker, prefill: Worker, peer: kvffi.Peer) -> None:
    transfer = decode.agent.start(peer, answer(decode, peer), notify=b"request\0one", deadline=PATIENCE, request="one")
    assert transfer.wait(PATIENCE)
    assert transfer.poll() == "done"
    assert transfer.error() is None
    assert transfer.wait_settled(0)
    expected = numpy.zeros_like(decode.cache)
    expected[[5, 6, 9]] = 7
    assert (decode.cache == expected).all()
    (arrived,) = prefill.agent.listen(0.2)
    assert arrived == ("decode", b"request\0one", decode.agent.info().incarnation)
    stats = transfer.stats()
    assert (stats.bytes, stats.descriptors, stats.is_settled, stats.cause) == (3 * ROW, 2, 1, 0)


def test_a_write_goes_the_other_way(decode: Worker, prefill: Worker, peer: kvffi.Peer) -> None:
    decode.cache[:] = 9
    assert decode.agent.start(peer, answer(decode, peer, "write")).wait(PATIENCE)
    assert [int(byte) for byte in prefill.cache[:, -1]] == [7, 9, 9, 7, 7, 7, 7, 7, 9, 7, 7, 7, 7, 7, 7, 7]


def test_a_request_may_be_answered_and_started_in_one_call(decode: Worker, prefill: Worker, peer: kvffi.Peer) -> None:
    pair, into = kvffi.Pair(decode.spec, peer.layout()), kvffi.Answer()
    for blocks, byte in ([5, 6, 9], 7), (numpy.array([0, 2, 4], numpy.uint32), 8):
        prefill.cache[:] = byte
        decode.cache[:] = 0
        request = kvffi.Request("read", local={0: blocks}, remote={0: [1, 2, 8]})
        transfer = decode.agent.start_request(peer, pair, request, into=into, notify=b"done", request="one")
        assert transfer.wait(PATIENCE)
        expected = numpy.zeros_like(decode.cache)
        expected[list(blocks)] = byte
        assert (decode.cache == expected).all()
        assert into.totals().bytes == transfer.stats().bytes == 3 * ROW
    assert [each.message for each in prefill.agent.listen(0.2)] == [b"done", b"done"]
    assert decode.agent.start_request(peer, pair, request).wait(PATIENCE)


def test_a_request_that_cannot_be_answered_starts_nothing(decode: Worker, peer: kvffi.Peer) -> None:
    pair, into = kvffi.Pair(decode.spec, peer.layout()), answer(decode, peer)
    with pytest.raises(kvffi.RequestError):
        decode.agent.start_request(
            peer, pair, kvffi.Request("read", local={0: [99]}, remote={0: [1]}), into=into, notify=b"done"
        )
    assert into.totals().num_descriptors == 0
    pair.close()
    with pytest.raises(ValueError, match="Pair is closed"):
        decode.agent.start_request(peer, pair, kvffi.Request("read", local={}, remote={}))
    assert decode.agent.info().unsettled == 0


def test_an_answer_is_refused_between_other_workers_than_it_was_planned_for(
    decode: Worker, prefill: Worker, peer: kvffi.Peer
) -> None:
    other = mla(1 << 40, num_blocks=8)
    request = kvffi.Request("read", local={0: [1]}, remote={0: [2]})
    for pair, whose in (
        (kvffi.Pair(other, peer.layout()), "this worker"),
        (kvffi.Pair(decode.spec, other), "the peer"),
    ):
        with pytest.raises(kvffi.ArgumentError, match=f"other caches than those of {whose}"):
            decode.agent.start_request(peer, pair, request)
        with pytest.raises(kvffi.ArgumentError, match=f"other caches than those of {whose}"):
            decode.agent.start(peer, pair.answer(request))


def test_descriptors_may_be_a_numpy_array_or_an_array_of_ctypes(decode: Worker, peer: kvffi.Peer) -> None:
    answered = answer(decode, peer)
    for descriptors in (answered.descriptors(), answered.descriptors()[::-1], answered.descriptor_structs()):
        decode.cache[:] = 0
        assert decode.agent.start(peer, descriptors, op="read").wait(PATIENCE)
        assert decode.cache[:, 0].tolist() == [0, 0, 0, 0, 0, 7, 7, 0, 0, 7, 0, 0, 0, 0, 0, 0]


def test_no_descriptors_are_done_at_once_and_notify(decode: Worker, prefill: Worker, peer: kvffi.Peer) -> None:
    none = answer(decode, peer).descriptors()[:0]
    assert decode.agent.start(peer, none, op="read", notify=b"").wait(PATIENCE)
    assert [each.message for each in prefill.agent.listen(0.2)] == [b""]


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"op": "read"}, ValueError),
        ({"deadline": 0}, ValueError),
        ({"deadline": float("nan")}, ValueError),
        ({"request": "a\0b"}, ValueError),
        ({"notify": bytes(8193)}, kvffi.ArgumentError),
        ({"padding_bytes": -1}, OverflowError),
    ],
    ids=str,
)
def test_options_that_cannot_be_are_refused(
    decode: Worker, peer: kvffi.Peer, wrong: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        decode.agent.start(peer, answer(decode, peer), **wrong)
    assert decode.agent.info().unsettled == 0


@pytest.mark.parametrize("wrong", [numpy.zeros(3), numpy.zeros((2, 2), numpy.uint64), [1, 2], b"abc", None])
def test_what_is_no_descriptors_is_refused(decode: Worker, peer: kvffi.Peer, wrong: Any) -> None:
    with pytest.raises(TypeError):
        decode.agent.start(peer, wrong, op="read")


@pytest.mark.parametrize("field", ["local_offset", "remote_offset", "len", "local_storage", "remote_storage"])
def test_a_descriptor_outside_of_registered_memory_is_named(decode: Worker, peer: kvffi.Peer, field: str) -> None:
    descriptors = answer(decode, peer).descriptors().copy()
    descriptors[1][field] = numpy.iinfo(descriptors.dtype[field]).max
    with pytest.raises(kvffi.OutOfRange):
        decode.agent.start(peer, descriptors, op="read")
    assert (decode.cache == 0).all()


def test_a_transfer_that_fails_unsettled_says_so_until_it_settles(
    decode: Worker, peer: kvffi.Peer, network: kvffi.Loopback
) -> None:
    network.set_faults("stall")
    transfer = posted(decode.agent.start(peer, answer(decode, peer), deadline=3, request="stalled"))
    with pytest.raises(kvffi.TransferUnsettled) as caught:
        transfer.wait(PATIENCE)
    assert caught.value.name == "KVFFI_ERR_TRANSFER_UNSETTLED"
    assert transfer.poll() == "unsettled"
    assert not transfer.wait_settled(0.05)
    assert isinstance(transfer.error(), kvffi.TransferUnsettled)
    (entry,) = decode.agent.quarantine()
    assert (entry.request, entry.peer, entry.op, entry.cause) == ("stalled", "prefill", "read", "KVFFI_ERR_DEADLINE")
    assert sum(each.len for each in entry.ranges) == entry.bytes == 3 * ROW
    assert entry.age > 0
    assert decode.agent.stats().quarantined == 1
    with pytest.raises(kvffi.InUse):
        decode.agent.disconnect(peer)
    network.set_faults()
    assert transfer.wait_settled(PATIENCE)
    assert transfer.poll() == "failed"
    assert isinstance(transfer.error(), kvffi.TransferFailed)
    assert decode.agent.quarantine() == []


def test_a_cancelled_transfer_fails(decode: Worker, peer: kvffi.Peer, network: kvffi.Loopback) -> None:
    network.set_faults("stall")
    transfer = decode.agent.start(peer, answer(decode, peer))
    assert not transfer.wait(0.01)
    assert transfer.poll() == "in_progress"
    transfer.cancel()
    with pytest.raises(kvffi.TransferError, match="cancel"):
        transfer.wait(PATIENCE)
    network.set_faults()
    assert transfer.wait_settled(PATIENCE)
    assert decode.agent.stats().failed_cancelled == 1


def test_a_transfer_that_is_dropped_is_cancelled_and_counted_until_it_settles(
    decode: Worker, peer: kvffi.Peer, network: kvffi.Loopback
) -> None:
    network.set_faults("stall")
    posted(decode.agent.start(peer, answer(decode, peer), request="dropped"))
    gc.collect()
    assert decode.agent.info().unsettled == 1
    network.set_faults()
    end = time.monotonic() + PATIENCE
    while decode.agent.info().unsettled and time.monotonic() < end:
        decode.agent.wait_for_news(0.1)
    assert decode.agent.info().unsettled == 0


def test_memory_lives_as_long_as_bytes_may_land_in_it(network: kvffi.Loopback, prefill: Worker) -> None:
    decode = worker("decode", network, 0)
    alive = weakref.ref(decode.cache)
    peer = decode.agent.connect(prefill.agent.export())
    network.set_faults("stall")
    transfer = posted(decode.agent.start(peer, answer(decode, peer)))
    with pytest.raises(kvffi.LeftUnsettled):
        decode.agent.close(0.05)
    assert decode.agent.closed
    del decode, peer, transfer
    gc.collect()
    assert alive() is not None


def test_leaving_a_with_block_by_an_exception_hides_neither_it_nor_what_is_unsettled(
    network: kvffi.Loopback, prefill: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    decode = worker("decode", network, 0)
    alive = weakref.ref(decode.cache)
    peer = decode.agent.connect(prefill.agent.export())
    network.set_faults("stall")
    transfer = posted(decode.agent.start(peer, answer(decode, peer)))
    with pytest.raises(ValueError, match="the engine's own") as raised, decode.agent:
        raise ValueError("the engine's own")
    assert decode.agent.closed
    # Who handles the exception may not look at its notes, which there are from Python 3.11 on.
    for told in (getattr(raised.value, "__notes__", caplog.messages), caplog.messages):
        assert "closing the Agent failed: KVFFI_ERR_LEFT_UNSETTLED" in "\n".join(told)
    del decode, peer, transfer
    gc.collect()
    assert alive() is not None


def test_leaving_a_with_block_without_an_exception_raises_what_is_unsettled(
    network: kvffi.Loopback, prefill: Worker
) -> None:
    decode = worker("decode", network, 0)
    peer = decode.agent.connect(prefill.agent.export())
    network.set_faults("stall")
    transfer = posted(decode.agent.start(peer, answer(decode, peer)))
    with pytest.raises(kvffi.LeftUnsettled), decode.agent:
        pass
    assert decode.agent.closed
    del transfer


@pytest.mark.parametrize("passing", [SystemExit, GeneratorExit, KeyboardInterrupt])
def test_what_is_unsettled_is_logged_where_nobody_prints_what_ends_the_block(
    network: kvffi.Loopback, prefill: Worker, caplog: pytest.LogCaptureFixture, passing: type[BaseException]
) -> None:
    decode = worker("decode", network, 0)
    peer = decode.agent.connect(prefill.agent.export())
    network.set_faults("stall")
    transfer = posted(decode.agent.start(peer, answer(decode, peer)))
    with pytest.raises(passing), decode.agent:
        raise passing
    assert "closing the Agent failed: KVFFI_ERR_LEFT_UNSETTLED" in caplog.text
    del transfer


def test_an_exception_passes_an_agent_that_something_still_uses(network: kvffi.Loopback) -> None:
    decode = worker("decode", network, 0)
    exchange = kvffi.Exchange(decode.agent)
    with pytest.raises(KeyError, match="the engine's own"), decode.agent:
        raise KeyError("the engine's own")
    assert not decode.agent.closed
    exchange.close()
    decode.agent.close()


def arranged(num_blocks: int, cache: Any) -> kvffi.Spec:
    """One layer in blocks of 64 tokens, from the beginning of a cache."""
    arrangement = kvffi.Arrangement(kvffi.Worker("org/model"))
    arrangement.add_pool(kvffi.Pool("blhnc", num_blocks))
    arrangement.add_layer("layers.0", kvffi.Page.mla(), arrangement.add_group(64))
    (length,) = arrangement.storage_lens()
    return arrangement.build([cache[:length]])


def one(remote_offset: int, length: int) -> Any:
    """One descriptor that reads into the beginning of the first storage."""
    dtype = numpy.dtype(kvffi._declarations.Descriptor)
    return numpy.array([(0, 0, 0, remote_offset, length)], dtype)


def test_a_pool_grows_and_shrinks_while_peers_go_on(network: kvffi.Loopback) -> None:
    page = 64 * 1152
    ours, theirs = numpy.zeros(16 * page, numpy.uint8), numpy.full(16 * page, 7, numpy.uint8)
    with kvffi.Agent("decode", loopback=network) as decode, kvffi.Agent("prefill", loopback=network) as prefill:
        with pytest.raises(kvffi.OrderError, match="no memory registered"):
            prefill.reregister(arranged(4, theirs))
        prefill.register(arranged(4, theirs))
        decode.register(arranged(16, ours))
        first = decode.connect(prefill.export())
        prefill.reregister(arranged(16, theirs))
        # Who has not heard of it goes on with what there was.
        decode.start(first, one(3 * page, page), op="read").wait(PATIENCE)
        with pytest.raises(kvffi.OutOfRange):
            decode.start(first, one(4 * page, page), op="read")
        grown = decode.connect(prefill.export())
        assert (grown.info().generation, grown.id) == (2, first.id)
        with pytest.raises(kvffi.PeerGone):
            decode.start(first, one(0, page), op="read")
        decode.start(grown, one(0, 16 * page), op="read").wait(PATIENCE)
        assert (ours == 7).all()
        prefill.reregister(arranged(2, theirs))
        shrunk = decode.connect(prefill.export())
        with pytest.raises(kvffi.OutOfRange):
            decode.start(shrunk, one(2 * page, page), op="read")
        # In use it may grow, and may not go.
        network.set_faults("stall")
        transfer = posted(decode.start(shrunk, one(0, page), op="read"))
        decode.reregister(arranged(16, ours))
        with pytest.raises(kvffi.InUse, match="storage 0"):
            decode.reregister(arranged(8, ours))
        network.set_faults()
        transfer.wait(PATIENCE)


def test_memory_that_was_taken_away_is_kept_until_it_is_let_go(network: kvffi.Loopback) -> None:
    page = 64 * 1152
    with kvffi.Agent("decode", loopback=network) as agent:
        caches = [numpy.zeros(4 * page, numpy.uint8) for _ in range(3)]
        alive = [weakref.ref(cache) for cache in caches]
        specs = [arranged(4, cache) for cache in caches]
        agent.register(specs[0])
        agent.reregister(specs[1])
        del caches, specs[:]
        gc.collect()
        assert [ref() is not None for ref in alive] == [True, True, False]
        agent.let_go()
        gc.collect()
        assert [ref() is not None for ref in alive] == [False, True, False]
        agent.deregister()
        agent.let_go()
        gc.collect()
        assert [ref() is not None for ref in alive] == [False, False, False]


def test_memory_of_an_agent_that_is_garbage_lives_as_long_as_bytes_may_land_in_it(
    network: kvffi.Loopback, prefill: Worker
) -> None:
    class Pool:
        """A tensor that is its own engine."""

        def __init__(self, array: Any) -> None:
            self.__array_interface__ = array.__array_interface__
            self.array = array

        def __del__(self) -> None:
            freed.append("freed")

    freed: list[str] = []
    decode = worker("decode", network, 0)
    pool = Pool(decode.cache)
    decode.agent.deregister()
    spec = decode.spec
    spec._keep = (pool,)
    decode.agent.register(spec)
    pool.decode = decode  # type: ignore[attr-defined]
    peer = decode.agent.connect(prefill.agent.export())
    network.set_faults("stall")
    transfer = posted(decode.agent.start(peer, answer(decode, peer)))
    del decode, pool, spec, peer, transfer
    gc.collect()
    assert freed == []


def test_a_wait_may_be_as_long_as_anybody_likes(decode: Worker) -> None:
    timeouts: list[Any] = [1e7, 1e300, 10**400, float("inf"), Fraction(7, 2)]
    for timeout in timeouts:
        decode.agent.raise_fd()
        assert decode.agent.wait_for_news(timeout)


def test_memory_goes_with_its_agent(network: kvffi.Loopback) -> None:
    decode = worker("decode", network, 0)
    alive = weakref.ref(decode.cache)
    agent = decode.agent
    del decode
    gc.collect()
    assert alive() is not None
    del agent
    gc.collect()
    assert alive() is None


def test_memory_goes_when_the_agent_is_closed_whoever_has_a_peer_of_it(decode: Worker, peer: kvffi.Peer) -> None:
    agent, alive = decode.agent, weakref.ref(decode.cache)
    decode.cache = decode.spec = None  # type: ignore[assignment]
    gc.collect()
    assert alive() is not None
    agent.close()
    gc.collect()
    assert alive() is None
    assert peer.closed is False


def test_closing_a_transfer_ends_the_wait_of_another_thread(
    decode: Worker, peer: kvffi.Peer, network: kvffi.Loopback
) -> None:
    network.set_faults("stall")
    transfer = decode.agent.start(peer, answer(decode, peer))
    ended: list[type[BaseException]] = []

    def wait() -> None:
        try:
            transfer.wait()
        except (ValueError, kvffi.Error) as error:
            ended.append(type(error))

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.05)
    transfer.close()
    thread.join(PATIENCE)
    assert ended == [ValueError]


def test_an_agent_that_is_closed_is_refused(decode: Worker, peer: kvffi.Peer) -> None:
    answered = answer(decode, peer)
    decode.agent.close()
    decode.agent.close()
    for use in (
        decode.agent.info,
        decode.agent.export,
        decode.agent.notifications,
        lambda: decode.agent.start(peer, answered),
        lambda: decode.agent.register(decode.spec),
        lambda: decode.agent.notify(peer, b""),
        decode.agent.stats,
        decode.agent.fd,
    ):
        with pytest.raises(ValueError, match="Agent is closed"):
            use()


def test_an_agent_is_not_closed_under_another_thread_s_call(decode: Worker) -> None:

    def listen() -> None:
        with contextlib.suppress(ValueError, kvffi.ShutDown):
            list(decode.agent.listen(0.5))

    waiting = threading.Thread(target=listen)
    waiting.start()
    end = time.monotonic() + PATIENCE
    while not decode.agent.closed and time.monotonic() < end:
        try:
            decode.agent.close()
        except kvffi.InUse:
            time.sleep(0.001)
    waiting.join(PATIENCE)
    assert decode.agent.closed
    assert not waiting.is_alive()


def test_calls_in_the_wrong_order_are_refused(network: kvffi.Loopback, prefill: Worker) -> None:
    with kvffi.Agent("bare", loopback=network) as bare:
        with pytest.raises(kvffi.OrderError):
            bare.export()
        with pytest.raises(kvffi.OrderError):
            bare.connect(prefill.agent.export())
        with pytest.raises(kvffi.OrderError):
            bare.deregister()
    with pytest.raises(kvffi.OrderError):
        prefill.agent.register(prefill.spec)
    prefill.agent.deregister()
    prefill.agent.register(prefill.spec.plan_local())


CHANGES = [lambda blob: b"", lambda blob: blob[:-1], lambda blob: bytes(100), lambda blob: blob + b"x"]


@pytest.mark.parametrize("change", CHANGES)
def test_bytes_that_are_no_blob_are_refused(decode: Worker, prefill: Worker, change: Any) -> None:
    with pytest.raises(kvffi.BlobError):
        decode.agent.connect(change(prefill.agent.export()))


def test_an_agent_does_not_connect_to_itself_or_to_another_model(decode: Worker, network: kvffi.Loopback) -> None:
    with pytest.raises(kvffi.BlobError):
        decode.agent.connect(decode.agent.export())
    with kvffi.Agent("other", loopback=network) as other:
        memory = numpy.zeros(16 * ROW, numpy.uint8)
        other.register(mla(memory.ctypes.data, model="org/other"))
        with pytest.raises(kvffi.PairError):
            decode.agent.connect(other.export())


def test_a_peer_that_was_let_go_is_refused(decode: Worker, peer: kvffi.Peer) -> None:
    info = peer.info()
    assert (info.name, info.unsettled, info.is_gone, info.locality) == ("prefill", 0, False, "same_host")
    answered = answer(decode, peer)
    decode.agent.disconnect(peer)
    with pytest.raises(kvffi.PeerGone):
        decode.agent.start(peer, answered)
    with pytest.raises(kvffi.PeerGone):
        decode.agent.notify(peer, b"late")
    with pytest.raises(kvffi.PeerGone):
        decode.agent.reconnect(peer)


@pytest.mark.parametrize("name", ["", "a@b", "ü", "x" * 129, "a\0b"])
def test_a_name_that_cannot_be_is_refused(network: kvffi.Loopback, name: str) -> None:
    with pytest.raises(ValueError, match="name"):
        kvffi.Agent(name, loopback=network)


def test_too_much_in_flight_would_block(network: kvffi.Loopback, prefill: Worker) -> None:
    decode = worker("decode", network, 0, limits=kvffi.Limits(in_flight_bytes=ROW, request_descriptors=1))
    peer = decode.agent.connect(prefill.agent.export())
    network.set_faults("stall")
    first = decode.agent.start(peer, answer(decode, peer))
    with pytest.raises(kvffi.WouldBlock):
        decode.agent.start(peer, answer(decode, peer))
    pair, into = kvffi.Pair(decode.spec, peer.layout()), kvffi.Answer()
    with pytest.raises(kvffi.WouldBlock):
        decode.agent.start_request(peer, pair, kvffi.Request("read", local={0: [1]}, remote={0: [2]}), into=into)
    assert decode.agent.stats().transfers_refused == 2
    network.set_faults()
    assert first.wait(PATIENCE)
    # The answer is there, and need not be worked out again.
    assert decode.agent.start(peer, into).wait(PATIENCE)
    assert decode.cache[:, 0].tolist() == [0, 7, 0, 0, 0, 7, 7, 0, 0, 7, 0, 0, 0, 0, 0, 0]
    with pytest.raises(OverflowError):
        worker("x", network, 0, limits=kvffi.Limits(request_bytes=-1))


def test_notifications_arrive_in_order_and_end_a_wait(decode: Worker, prefill: Worker, peer: kvffi.Peer) -> None:
    def send() -> None:
        for number in range(50):
            decode.agent.notify(peer, str(number).encode())

    sender = threading.Thread(target=send)
    sender.start()
    arrived = [int(each.message) for _, each in zip(range(50), prefill.agent.listen(PATIENCE))]
    sender.join(PATIENCE)
    assert arrived == list(range(50))
    assert prefill.agent.notifications() == []


def test_who_stops_to_listen_leaves_the_others_to_the_next_call(
    decode: Worker, prefill: Worker, peer: kvffi.Peer
) -> None:
    for number in range(4):
        decode.agent.notify(peer, str(number).encode())
    while prefill.agent.info().unsettled:
        time.sleep(0.001)
    listening = prefill.agent.listen(PATIENCE)
    assert next(listening).message == b"0"
    del listening
    assert next(prefill.agent.listen(PATIENCE)).message == b"1"
    assert [each.message for each in prefill.agent.listen(0.2)] == [b"2", b"3"]
    assert prefill.agent.notifications() == []


def test_threads_that_wait_on_one_agent_are_each_told_of_all_news(
    decode: Worker, prefill: Worker, peer: kvffi.Peer
) -> None:
    """One thread's clearing of the descriptor must not let another sleep."""
    num_messages, heard, stop = 200, threading.Semaphore(0), threading.Event()

    def listen() -> None:
        for _, _ in zip(range(num_messages), prefill.agent.listen(PATIENCE)):
            heard.release()

    def look() -> None:
        while not stop.is_set():
            prefill.agent.wait_for_news(0.5)

    threads = [threading.Thread(target=work, daemon=True) for work in (listen, look, look)]
    for thread in threads:
        thread.start()
    started = time.monotonic()
    for _ in range(num_messages):
        decode.agent.notify(peer, b"now")
        assert heard.acquire(timeout=PATIENCE)
    taken = time.monotonic() - started
    stop.set()
    for thread in threads:
        thread.join(PATIENCE)
    # A wake-up that is stolen costs half a second at least.
    assert taken < num_messages * 0.1


def test_news_are_cleared_only_when_they_are_told(decode: Worker) -> None:
    while decode.agent.wait_for_news(0):
        pass
    for _ in range(300):
        thread = threading.Thread(target=decode.agent.raise_fd)
        thread.start()
        end = time.monotonic() + PATIENCE
        # Each call may end just when the descriptor is raised.
        while not decode.agent.wait_for_news(0):
            assert time.monotonic() < end
        thread.join()
        while decode.agent.wait_for_news(0):
            pass


def test_an_exception_that_is_kept_keeps_nothing_open(network: kvffi.Loopback, prefill: Worker) -> None:
    decode = worker("decode", network, 0)
    peer = decode.agent.connect(prefill.agent.export())
    kept: list[BaseException] = []
    wrong = answer(decode, peer).descriptors().copy()
    wrong["len"] = 1 << 40

    def fails(use: Callable[[], object]) -> None:
        with pytest.raises(kvffi.Error) as error:
            use()
        kept.append(error.value)

    fails(lambda: decode.agent.start(peer, wrong, op="read"))
    fails(lambda: decode.agent.start(peer, kvffi.Answer()))
    fails(lambda: decode.agent.connect(b"no blob"))
    fails(lambda: decode.agent.register(decode.spec))
    decode.agent.close()
    # Nobody has the agent any more: neither another thread's call nor one that failed.
    assert decode.agent.closed
    assert len(kept) == 4


def test_a_transfer_is_cancelled_at_the_end_of_its_block_though_an_exception_is_kept(
    decode: Worker, peer: kvffi.Peer, network: kvffi.Loopback
) -> None:
    network.set_faults("stall")
    with pytest.raises(ValueError, match="seconds") as kept:
        with posted(decode.agent.start(peer, answer(decode, peer))) as transfer:
            transfer.wait(-1)
    end = time.monotonic() + PATIENCE
    while not decode.agent.stats().failed_cancelled and time.monotonic() < end:
        time.sleep(0.001)
    assert decode.agent.stats().failed_cancelled == 1
    assert kept.value is not None


def test_another_thread_s_wait_can_be_ended(decode: Worker) -> None:
    decode.agent.wait_for_news(0)
    started = time.monotonic()
    timer = threading.Timer(0.05, decode.agent.raise_fd)
    timer.start()
    assert decode.agent.wait_for_news(PATIENCE)
    assert time.monotonic() - started < PATIENCE / 2
    assert not decode.agent.wait_for_news(0)


def test_waiting_releases_the_gil(decode: Worker, peer: kvffi.Peer, network: kvffi.Loopback) -> None:
    network.set_faults("stall")
    transfer = decode.agent.start(peer, answer(decode, peer))
    waiting = threading.Thread(target=transfer.wait, args=(1.0,))
    waiting.start()
    counted = 0
    while waiting.is_alive():
        counted += 1
    waiting.join()
    network.set_faults()
    # A thread that held the GIL while it waits would let this one count a few times.
    assert counted > 10_000


@pytest.mark.parametrize("timeout", [-1, float("nan")])
def test_a_timeout_that_cannot_be_is_refused(decode: Worker, peer: kvffi.Peer, timeout: float) -> None:
    transfer = decode.agent.start(peer, answer(decode, peer))
    with pytest.raises(ValueError, match="seconds"):
        transfer.wait(timeout)
    with pytest.raises(ValueError, match="seconds"):
        decode.agent.wait_for_news(timeout)


def test_nixl_options_and_a_loopback_exclude_each_other(network: kvffi.Loopback) -> None:
    with pytest.raises(ValueError, match="either"):
        kvffi.Agent("a", nixl=kvffi.NixlOptions(), loopback=network)


def test_a_nixl_that_cannot_be_loaded_is_an_error_that_names_it(tmp_path: Any) -> None:
    with pytest.raises(kvffi.LibraryError, match="no-such-nixl"):
        kvffi.Agent("a", nixl=kvffi.NixlOptions(library=str(tmp_path / "no-such-nixl")))


def _use_in_child(use: Callable[[kvffi.Agent], object], agent: kvffi.Agent, results: Any) -> None:
    try:
        results.send(f"it gave {use(agent)}")
    except kvffi.Forked as error:
        results.send(error.name)
    os._exit(0)


@pytest.mark.parametrize(
    "use",
    [
        lambda agent: agent.info(),
        lambda agent: agent.wait_for_news(0.1),
        lambda agent: list(agent.listen(0.1)),
        lambda agent: agent.clear_fd(),
    ],
    ids=["info", "wait_for_news", "listen", "clear_fd"],
)
def test_an_agent_of_the_parent_is_refused_in_a_fork(decode: Worker, use: Callable[[kvffi.Agent], object]) -> None:
    while decode.agent.wait_for_news(0):
        pass
    context = multiprocessing.get_context("fork")
    results, end = context.Pipe(duplex=False)
    child = context.Process(target=_use_in_child, args=(use, decode.agent, end))
    child.start()
    try:
        assert results.poll(PATIENCE)
        assert results.recv() == "KVFFI_ERR_FORKED"
    finally:
        child.join(PATIENCE)


@pytest.mark.parametrize(("protection", "found"), [(mmap.PROT_READ, "mapped r--"), (0, "mapped ---")])
def test_memory_that_cannot_be_written_is_refused_at_registration(
    network: kvffi.Loopback, protection: int, found: str
) -> None:
    arrangement = kvffi.Arrangement(kvffi.Worker("org/model"))
    arrangement.add_pool(kvffi.Pool("blhnc", 16))
    arrangement.add_layer("layers.0", kvffi.Page.mla(), arrangement.add_group(64))
    (length,) = arrangement.storage_lens()
    memory = mmap.mmap(-1, length)
    cache = numpy.frombuffer(memory, numpy.uint8)
    spec = arrangement.build([cache])
    second = cache.ctypes.data + mmap.PAGESIZE
    protect = ctypes.CDLL(None).mprotect
    protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    assert protect(second, mmap.PAGESIZE, protection) == 0
    with kvffi.Agent("a", loopback=network) as agent:
        with pytest.raises(kvffi.OutOfRange, match=f"storage 0 .*its page at {second:#x} is {found}"):
            agent.register(spec)
        assert protect(second, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE) == 0
        agent.register(spec)


def test_a_histogram_counts_every_transfer(decode: Worker, peer: kvffi.Peer) -> None:
    for _ in range(3):
        decode.agent.start(peer, answer(decode, peer)).wait(PATIENCE)
    assert sum(bucket.count for bucket in decode.agent.histogram("transfer")) == 3
    assert decode.agent.histogram("post")[-1].upper_seconds == float("inf")


def test_a_signal_ends_a_wait(decode: Worker, peer: kvffi.Peer, network: kvffi.Loopback) -> None:
    class Alarm(Exception):
        pass

    def ring(number: int, frame: object) -> None:
        raise Alarm

    network.set_faults("stall")
    transfer = decode.agent.start(peer, answer(decode, peer))
    before = signal.signal(signal.SIGALRM, ring)
    started = time.monotonic()
    try:
        for wait in (transfer.wait, transfer.wait_settled, decode.agent.wait_for_news, decode.agent.close):
            while decode.agent.wait_for_news(0):
                pass
            with pytest.raises(Alarm):  # noqa: PT012
                signal.setitimer(signal.ITIMER_REAL, 0.05)
                wait(PATIENCE)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - started < PATIENCE / 2
    network.set_faults()
    assert transfer.wait(PATIENCE)


def test_ctrl_c_stays_what_it_is(decode: Worker, peer: kvffi.Peer) -> None:
    """Where ctypes converts an argument in Python, it would become a refusal, which programs handle."""
    transfer = decode.agent.start(peer, answer(decode, peer))
    assert transfer.wait(PATIENCE)

    class Alarm(Exception):
        pass

    def ring(number: int, frame: object) -> None:
        raise Alarm

    before = signal.signal(signal.SIGALRM, ring)
    try:
        for number in range(1000):
            with pytest.raises(Alarm):  # noqa: PT012
                signal.setitimer(signal.ITIMER_REAL, 1e-5 + number * 1e-6)
                while True:
                    transfer.wait(0)
                    decode.agent.fd(0.001)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("wrong", ["text", 5, None, [1, 2]])
def test_what_is_no_bytes_is_refused(decode: Worker, peer: kvffi.Peer, wrong: Any) -> None:
    unset: Any = object()
    for use in (
        lambda: decode.agent.notify(peer, wrong),
        lambda: decode.agent.connect(wrong),
        lambda: decode.agent.start(peer, answer(decode, peer), notify=wrong if wrong is not None else unset),
    ):
        with pytest.raises(TypeError, match="not bytes"):
            use()
    for right in (bytearray(b"yes"), memoryview(b"yes"), numpy.frombuffer(b"yes", numpy.uint8)):
        decode.agent.notify(peer, right)  # type: ignore[arg-type]


def test_a_foreign_peer_must_be_who_its_metadata_says_and_serve_this_model(decode: Worker, prefill: Worker) -> None:
    metadata = prefill.agent.nixl_metadata()
    assert prefill.agent.nixl_name().startswith("prefill@")
    with pytest.raises(kvffi.Error, match="prefill@"):
        decode.agent.connect_foreign("prefill", metadata, prefill.spec)
    with pytest.raises(kvffi.Error, match="another/model"):
        decode.agent.connect_foreign("prefill", metadata, mla(0x1000, model="another/model"))
    with pytest.raises(kvffi.Error, match="contains @"):
        decode.agent.connect_foreign(prefill.agent.nixl_name(), metadata, prefill.spec)
    spec = mla(0x1000)
    spec.close()
    with pytest.raises(ValueError, match="closed"):
        decode.agent.connect_foreign("prefill", metadata, spec)
