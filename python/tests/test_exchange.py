"""Exchanges over the loopback: leases, pulls, pushes, and what the engine is told."""

from __future__ import annotations

import gc
import inspect
import signal
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

import kvffi
from kvffi._handle import call
from workers import PATIENCE, Worker, worker


class Side:
    """A worker with an exchange."""

    def __init__(self, worker: Worker, **options: Any) -> None:
        self.worker = worker
        self.exchange = kvffi.Exchange(worker.agent, kvffi.ExchangeOptions(**options))
        self.happened: list[kvffi.Event] = []

    def kinds(self) -> list[kvffi.EventKind]:
        return [event.kind for event in self.happened]


def follow(sides: list[Side], *kinds: kvffi.EventKind) -> list[kvffi.Event]:
    """Polls both sides until events of these kinds have happened; they are taken away."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        for side in sides:
            side.happened += side.exchange.poll()
        found = [next((e for side in sides for e in side.happened if e.kind == kind), None) for kind in kinds]
        if all(found):
            for side in sides:
                side.happened = [event for event in side.happened if event not in found]
            return [event for event in found if event is not None]
        time.sleep(0.002)
    raise AssertionError(f"not {kinds} but {[side.happened for side in sides]}")


@pytest.fixture
def network() -> Iterator[kvffi.Loopback]:
    with kvffi.Loopback() as network:
        yield network
        network.set_faults()


@pytest.fixture
def prefill(network: kvffi.Loopback) -> Side:
    return Side(worker("prefill", network, 7), lease_ttl=5)


@pytest.fixture
def decode(network: kvffi.Loopback) -> Side:
    return Side(worker("decode", network, 0))


@pytest.fixture
def peer(decode: Side, prefill: Side) -> kvffi.Peer:
    """The prefill worker, as decode sees it; both are connected."""
    prefill.exchange.connect(decode.worker.agent.export())
    return decode.exchange.connect(prefill.worker.agent.export())


def part(decode: Side, peer: kvffi.Peer, lease: int, request: str = "request 1") -> kvffi.PullPart:
    pair = kvffi.Pair(decode.worker.spec, peer.layout())
    answer = pair.answer(kvffi.Request("read", local={0: [5, 6, 9]}, remote={0: [1, 2, 8]}))
    return kvffi.PullPart(peer, request, lease, answer)


def test_a_pull_counts_when_its_lease_is_confirmed_and_gives_both_their_blocks_back(
    decode: Side, prefill: Side, peer: kvffi.Peer
) -> None:
    source, destination = ["blocks of prefill"], ["blocks of decode"]
    lease = prefill.exchange.hold("request 1", source)
    pull = decode.exchange.pull(destination, [part(decode, peer, lease)], deadline=PATIENCE)
    pulled, freed = follow([decode, prefill], "pulled", "freed")
    assert pulled.pull == pull
    assert pulled.blocks is destination
    assert freed.blocks is source
    assert (freed.request, freed.lease, freed.why) == ("request 1", lease, "all_read")
    assert decode.worker.cache[:, -1].tolist() == [0, 0, 0, 0, 0, 7, 7, 0, 0, 7, 0, 0, 0, 0, 0, 0]
    assert decode.exchange.stats().pull_pulled == 1
    assert prefill.exchange.stats().lease_all_read == 1


def test_descriptors_may_take_an_answer_s_place(decode: Side, prefill: Side, peer: kvffi.Peer) -> None:
    lease = prefill.exchange.hold("request 1", None)
    answered = part(decode, peer, lease)
    assert isinstance(answered.what, kvffi.Answer)
    told = answered._replace(peer=peer.id, what=answered.what.descriptors())
    decode.exchange.pull(None, [told])
    follow([decode, prefill], "pulled", "freed")


def test_a_pull_under_a_lease_that_has_ended_must_not_be_used(decode: Side, prefill: Side, peer: kvffi.Peer) -> None:
    lease = prefill.exchange.hold("request 1", "source")
    assert prefill.exchange.abort(lease)
    assert not prefill.exchange.abort(lease)
    (freed,) = follow([prefill], "freed")
    assert (freed.blocks, freed.why) == ("source", "aborted")
    decode.exchange.pull("destination", [part(decode, peer, lease)])
    failed, returned = follow([decode, prefill], "pull_failed", "returned_pull")
    assert isinstance(failed.error, kvffi.LeaseEnded)
    assert "request 1" in failed.error.message
    assert failed.blocks is None
    assert returned.blocks == "destination"


def test_a_lease_that_nobody_comes_for_expires(network: kvffi.Loopback) -> None:
    prefill = Side(worker("prefill", network, 7), lease_ttl=0.05)
    prefill.exchange.hold("request 1", "source", readers=3)
    started = time.monotonic()
    (event,) = prefill.exchange.events(timeout=1.0)
    assert (event.kind, event.blocks, event.why) == ("freed", "source", "expired")
    assert time.monotonic() - started >= 1.0


def test_a_request_is_held_once(prefill: Side) -> None:
    lease = prefill.exchange.hold("request 1", "first", readers=None)
    with pytest.raises(kvffi.RequestHeld):
        prefill.exchange.hold("request 1", "second")
    assert prefill.exchange.set_readers(lease, 0)
    (freed,) = follow([prefill], "freed")
    assert freed.blocks == "first"
    assert not prefill.exchange.set_readers(lease, 1)
    assert prefill.exchange._blocks == {}


def test_a_push_writes_the_parts_as_they_become_ready(decode: Side, prefill: Side, peer: kvffi.Peer) -> None:
    source = kvffi.PushSource(peer, {0: [5, 6, 9]})
    reservation = decode.exchange.reserve("request 1", "destination", [source], deadline=PATIENCE)
    lease = prefill.exchange.hold("request 1", "source", num_parts=1)
    (push,) = follow([decode, prefill], "push")
    assert (push.request, push.lease) == ("request 1", lease)
    assert push.peer is not None
    assert [(each.group, list(each.blocks), each.first) for each in push.lists] == [(0, [5, 6, 9], 0)]
    pushed = kvffi.PushId(*push.peer, push.reservation)
    to_decode = prefill.exchange.peer(push.peer)
    pair = kvffi.Pair(prefill.worker.spec, to_decode.layout(), op="write")
    answer = pair.answer(kvffi.Request("write", local={0: [1, 2, 8]}, remote=push.lists))
    with pytest.raises(kvffi.WriteRefused):
        prefill.exchange.write(pushed, answer)
    assert prefill.exchange.ready(lease, 0) == [pushed]
    assert prefill.exchange.ready(lease, 9) == []
    prefill.exchange.write(pushed, answer)
    arrived, freed = follow([decode, prefill], "arrived", "freed")
    assert (arrived.reservation, arrived.blocks, freed.blocks) == (reservation, "destination", "source")
    assert decode.worker.cache[:, 0].tolist() == [0, 0, 0, 0, 0, 7, 7, 0, 0, 7, 0, 0, 0, 0, 0, 0]
    with pytest.raises(kvffi.WriteRefused):
        prefill.exchange.write(pushed, answer.descriptors())


def test_a_pull_that_is_cancelled_keeps_its_blocks_until_it_has_settled(
    decode: Side, prefill: Side, peer: kvffi.Peer, network: kvffi.Loopback
) -> None:
    lease = prefill.exchange.hold("request 1", "source")
    network.set_faults("stall")
    pull = decode.exchange.pull("destination", [part(decode, peer, lease)])
    end = time.monotonic() + PATIENCE
    while not decode.worker.agent.stats().requests and time.monotonic() < end:
        time.sleep(0.001)
    assert decode.exchange.cancel_pull(pull)
    (failed,) = follow([decode], "pull_failed")
    assert failed.error is not None
    assert failed.error.name == "KVFFI_ERR_CANCELLED"
    assert decode.exchange.poll() == []
    assert decode.exchange.stats().pull_quarantined == 1
    network.set_faults()
    (returned,) = follow([decode], "returned_pull")
    assert returned.blocks == "destination"
    assert not decode.exchange.cancel_pull(pull)


class Blocks:
    """Blocks that go back to their engine's pool when nobody refers to them."""

    def __init__(self, *kept: object) -> None:
        self.kept = kept
        self.given_back = given_back = list[str]()
        weakref.finalize(self, given_back.append, "given back")


@pytest.mark.parametrize("cycle", [False, True])
def test_blocks_that_may_be_written_outlive_an_exchange_that_is_dropped(
    decode: Side, prefill: Side, peer: kvffi.Peer, network: kvffi.Loopback, cycle: bool
) -> None:
    lease = prefill.exchange.hold("request 1", "source")
    network.set_faults("stall")
    agent, exchange = decode.worker.agent, decode.exchange
    pulled = Blocks(exchange if cycle else None)
    reserved = Blocks(exchange if cycle else None)
    exchange.pull(pulled, [part(decode, peer, lease)])
    exchange.reserve("request 2", reserved, [kvffi.PushSource(peer, {0: [5]})])
    held = Blocks()
    exchange.hold("request 3", held)
    words = [blocks.given_back for blocks in (pulled, reserved, held)]
    if not cycle:
        exchange.close()
    decode.exchange = None  # type: ignore[assignment]
    del exchange, pulled, reserved, held
    gc.collect()
    assert agent.info().unsettled == 1
    # Nobody writes what is only held.
    assert words == [[], [], [] if cycle else ["given back"]]


def test_blocks_stay_with_a_call_that_a_signal_interrupts(
    decode: Side, prefill: Side, peer: kvffi.Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = prefill.exchange.hold("request 1", "source")
    wanted = part(decode, peer, lease)

    def interrupted(*arguments: Any) -> int:
        call(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("kvffi.exchange.call", interrupted)
        with pytest.raises(KeyboardInterrupt):
            decode.exchange.pull("destination", [wanted])
    (pulled,) = follow([decode, prefill], "pulled")
    assert pulled.blocks == "destination"


@pytest.mark.parametrize("stalled", [False, True])
def test_a_cycle_of_agent_and_exchange_ends_both_and_keeps_memory_that_may_be_written(
    decode: Side, prefill: Side, peer: kvffi.Peer, network: kvffi.Loopback, stalled: bool
) -> None:
    lease = prefill.exchange.hold("request 1", "source")
    wanted = part(decode, peer, lease)
    if stalled:
        network.set_faults("stall")
    for agent_first in (False, True):
        side = Side(worker("another", network, 0))
        alive = weakref.ref(side.worker.cache)
        them: list[object] = [side.worker.agent, side.exchange]
        if agent_first:
            them = [side.exchange, side.worker.agent]
        them.append(them)
        prefill.exchange.connect(side.worker.agent.export())
        producer = side.exchange.connect(prefill.worker.agent.export())
        side.exchange.pull(None, [wanted._replace(peer=producer.id)])
        end = time.monotonic() + PATIENCE
        while not side.worker.agent.stats().requests and time.monotonic() < end:
            time.sleep(0.001)
        if not stalled:
            follow([side, prefill], "pulled")
            lease = prefill.exchange.hold("request 1", "source")
            wanted = wanted._replace(lease=lease)
        del side, them, producer
        gc.collect()
        assert (alive() is not None) == stalled


def test_a_reservation_that_is_cancelled_comes_back(decode: Side, prefill: Side, peer: kvffi.Peer) -> None:
    reservation = decode.exchange.reserve("request 1", "destination", [kvffi.PushSource(peer.id, {0: [5]})])
    assert decode.exchange.cancel_reservation(reservation)
    failed, returned = follow([decode, prefill], "arrival_failed", "returned_reservation")
    assert failed.error is not None
    assert returned.blocks == "destination"
    assert not decode.exchange.cancel_reservation(reservation)


def test_peers_are_wanted_fetched_and_let_go(decode: Side, prefill: Side) -> None:
    assert decode.exchange.want("prefill").what == "fetch"
    assert decode.exchange.want("prefill").what == "wait"
    decode.exchange.fetch_failed("prefill")
    wanted = decode.exchange.want("prefill")
    # Or that time is over already.
    assert (wanted.what == "wait" and wanted.wait > 0) or wanted.what == "fetch"
    peer = decode.exchange.connect(prefill.worker.agent.export())
    assert decode.exchange.want("prefill") == ("ready", peer.id.incarnation, 0)
    decode.exchange.release_peer("prefill")
    (released,) = follow([decode, prefill], "peer_released")
    assert released.peer == peer.id
    with pytest.raises(kvffi.PeerGone):
        decode.exchange.peer(peer.id)


def test_a_blob_of_another_peer_than_the_one_asked_for_changes_nothing(
    network: kvffi.Loopback, decode: Side, prefill: Side, peer: kvffi.Peer
) -> None:
    other = Side(worker("other", network, 1))
    blob = other.worker.agent.export()
    for owner in (decode.exchange, decode.worker.agent):
        with pytest.raises(kvffi.BlobError, match='of "other", and that of "prefill" was asked for'):
            owner.connect(blob, name="prefill")
    assert decode.exchange.want("prefill").incarnation == peer.id.incarnation
    assert decode.exchange.connect(blob, name="other").id.name == "other"
    assert decode.worker.agent.connect(blob, name="other").id.name == "other"


def test_a_peer_that_is_not_connected_is_not_ready(decode: Side, prefill: Side, peer: kvffi.Peer) -> None:
    nobody = kvffi.PeerId("nobody", 1)
    answered = part(decode, peer, 1)
    with pytest.raises(kvffi.PeerNotReady):
        decode.exchange.pull("blocks", [answered._replace(peer=nobody)])
    with pytest.raises(kvffi.PeerNotReady):
        decode.exchange.reserve("request 1", "blocks", [kvffi.PushSource(nobody, {0: [1]})])
    assert decode.exchange._blocks == {}


def test_memory_is_withdrawn_before_it_goes(decode: Side, prefill: Side, peer: kvffi.Peer) -> None:
    prefill.exchange.withdraw()
    follow([decode, prefill], "withdrawn", "peer_stale")
    assert prefill.exchange.count_withdrawing() == 0
    prefill.worker.agent.deregister()
    prefill.worker.agent.register(prefill.worker.spec)
    prefill.exchange.registered()
    prefill.exchange.goodbye()


def test_an_answer_in_the_other_direction_is_refused(decode: Side, prefill: Side, peer: kvffi.Peer) -> None:
    lease = prefill.exchange.hold("request 1", "source")
    wrong = part(decode, peer, lease)
    blocks: dict[str, Any] = {"local": {0: [5]}, "remote": {0: [1]}}
    write = kvffi.Pair(decode.worker.spec, peer.layout(), op="write").answer(kvffi.Request("write", **blocks))
    with pytest.raises(kvffi.ArgumentError, match="is of a write, and a read is needed"):
        decode.exchange.pull("destination", [wrong._replace(what=write)])
    read = kvffi.Pair(decode.worker.spec, peer.layout()).answer(kvffi.Request("read", **blocks))
    with pytest.raises(kvffi.ArgumentError, match="is of a read, and a write is needed"):
        prefill.exchange.write(kvffi.PushId("decode", 1, 1), read)


def test_an_agent_has_one_exchange(decode: Side) -> None:
    with pytest.raises(kvffi.InUse, match="decode has an exchange"):
        kvffi.Exchange(decode.worker.agent)
    decode.exchange.close()
    kvffi.Exchange(decode.worker.agent).close()


def test_who_stops_to_listen_leaves_the_other_events_to_the_next_call(prefill: Side) -> None:
    for number in range(3):
        prefill.exchange.abort(prefill.exchange.hold(f"request {number}", number))
    assert next(prefill.exchange.events(PATIENCE)).blocks == 0
    assert next(prefill.exchange.events(PATIENCE)).blocks == 1
    assert [event.blocks for event in prefill.exchange.poll()] == [2]
    assert prefill.exchange._blocks == {}


def test_a_signal_while_events_are_read_loses_none(prefill: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        prefill.exchange.abort(prefill.exchange.hold(f"request {number}", number))
    calls = 0

    def interrupted(*arguments: Any) -> int:
        nonlocal calls
        done = call(*arguments)
        calls += 1
        if calls in (1, 4):
            # After the poll itself, and while its third event is read.
            raise KeyboardInterrupt
        return done

    monkeypatch.setattr("kvffi.exchange.call", interrupted)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            prefill.exchange.poll()
    assert [event.blocks for event in prefill.exchange.poll()] == [0, 1, 2, 3, 4]
    assert prefill.exchange._blocks == {}


# Python ignores what is raised while an object is freed.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("how", ["poll", "events"])
def test_signals_at_any_time_lose_no_event(prefill: Side, how: str) -> None:
    class Alarm(Exception):
        pass

    def ring(number: int, frame: object) -> None:
        raise Alarm

    seen: list[kvffi.Event] = []

    def take() -> None:
        # No call after the library's: what is handed out is the caller's to lose.
        nonlocal seen
        if how == "poll":
            seen += prefill.exchange.poll()
        else:
            for event in prefill.exchange.events(0):
                seen += [event]

    num_interrupted = 0
    before = signal.signal(signal.SIGALRM, ring)
    try:
        for attempt in range(150):
            for number in range(32):
                prefill.exchange.abort(prefill.exchange.hold(f"request {number}", number))
            seen = []
            try:
                signal.setitimer(signal.ITIMER_REAL, 2e-5 + attempt * 4e-6)
                take()
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Alarm:
                num_interrupted += 1
                take()
            assert [event.blocks for event in seen] == list(range(32))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert num_interrupted > 20
    assert prefill.exchange._blocks == {}


def test_an_exception_that_is_kept_keeps_nothing_open(network: kvffi.Loopback) -> None:
    side = Side(worker("prefill", network, 7))
    side.exchange.hold("request 1", None)
    kept = []
    for use in (
        lambda: side.exchange.hold("request 1", None),
        lambda: side.exchange.connect(b"no blob"),
        lambda: side.exchange.peer(kvffi.PeerId("nobody", 1)),
        lambda: side.exchange.reserve("r", None, [kvffi.PushSource(kvffi.PeerId("nobody", 1), {0: [1]})]),
    ):
        with pytest.raises(kvffi.Error) as error:
            use()
        kept.append(error.value)
    side.exchange.close()
    # InUse, if a traceback had kept the exchange.
    side.worker.agent.close()
    assert len(kept) == 4


def test_notifications_of_the_engine_come_as_events(decode: Side, prefill: Side, peer: kvffi.Peer) -> None:
    decode.worker.agent.notify(peer, b"of the engine")
    (event,) = follow([prefill], "notification")
    assert (event.peer, event.data) == (decode.worker.agent.id, b"of the engine")


def test_events_wait_without_using_the_processor(decode: Side, prefill: Side, peer: kvffi.Peer) -> None:
    follow([decode, prefill])
    timer = threading.Timer(0.1, decode.worker.agent.notify, args=(peer, b"late"))
    timer.start()
    spent = time.thread_time()
    event = next(prefill.exchange.events(PATIENCE), None)
    assert event is not None
    assert event.data == b"late"
    assert time.thread_time() - spent < 0.09
    assert prefill.exchange.timeout() >= 0


def test_two_threads_share_an_exchange_with_a_lock_that_is_free_while_one_waits(
    decode: Side, prefill: Side, peer: kvffi.Peer
) -> None:
    requests = [f"request {number}" for number in range(20)]
    lock, over = threading.Lock(), threading.Event()
    failures: list[Exception] = []

    def watch(side: Side) -> None:
        try:
            while not over.is_set():
                with lock:
                    side.happened += side.exchange.poll()
                # Longer than the test may take: what the other thread's calls start must wake this one.
                side.exchange.wait(2 * PATIENCE)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=watch, args=(side,), daemon=True) for side in (decode, prefill)]
    for thread in threads:
        thread.start()
    for request in requests:
        with lock:
            lease = prefill.exchange.hold(request, request)
            decode.exchange.pull(request, [part(decode, peer, lease, request)])
    end = time.monotonic() + PATIENCE
    while decode.kinds().count("pulled") < len(requests) and not failures and time.monotonic() < end:
        time.sleep(0.002)
    over.set()
    for side in (decode, prefill):
        side.worker.agent.raise_fd()
    for thread in threads:
        thread.join(PATIENCE)
    assert not failures
    assert not any(thread.is_alive() for thread in threads)
    assert {event.blocks for event in decode.happened if event.kind == "pulled"} == set(requests)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda side: side.exchange.hold("", "blocks"),
        lambda side: side.exchange.hold("x" * 257, "blocks"),
        lambda side: side.exchange.hold("a\0b", "blocks"),
        lambda side: side.exchange.hold("a", "blocks", readers=-1),
        lambda side: side.exchange.hold("a", "blocks", num_parts=1 << 32),
        lambda side: side.exchange.want("a\0b"),
        lambda side: side.exchange.connect(b"no blob"),
        lambda side: side.exchange.pull("blocks", [], deadline=-1),
        lambda side: side.exchange.pull("blocks", [], deadline=0),
        lambda side: side.exchange.reserve("a", "blocks", [], deadline=0),
        lambda side: side.exchange.write(kvffi.PushId("nobody", 1, 1), kvffi.Answer(), padding_bytes=1),
        lambda side: side.exchange.write(kvffi.PushId("nobody", 1, 1), b""),
        lambda side: side.exchange.keep(kvffi.PeerId("nobody", -1), 1),
        lambda side: side.exchange.ready(-1, 0),
    ],
)
def test_arguments_that_cannot_be_are_refused_and_keep_no_blocks(decode: Side, wrong: Any) -> None:
    with pytest.raises((ValueError, OverflowError, TypeError)):
        wrong(decode)
    assert decode.exchange._blocks == {}


def test_an_exchange_that_is_closed_is_refused_and_frees_its_agent(decode: Side) -> None:
    with pytest.raises(kvffi.InUse):
        decode.worker.agent.close()
    with decode.exchange:
        decode.exchange.poll()
    with pytest.raises(ValueError, match="Exchange is closed"):
        decode.exchange.poll()
    decode.worker.agent.close()


def test_options_that_cannot_be_are_refused(decode: Side) -> None:
    with pytest.raises(ValueError, match="lost_readers"):
        kvffi.Exchange(decode.worker.agent, kvffi.ExchangeOptions(lost_readers="hope"))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="seconds"):
        kvffi.Exchange(decode.worker.agent, kvffi.ExchangeOptions(lease_ttl=-1))


def test_a_reader_that_gives_up_is_not_waited_for(
    decode: Side, prefill: Side, peer: kvffi.Peer, network: kvffi.Loopback
) -> None:
    # Far below the time of the leases.
    started = time.monotonic()
    cancelled = prefill.exchange.hold("cancelled", "first")
    unwanted = prefill.exchange.hold("let go", "second")
    network.set_faults("stall")
    pull = decode.exchange.pull(None, [part(decode, peer, cancelled, "cancelled")])
    assert decode.exchange.cancel_pull(pull)
    given_up, freed = follow([decode, prefill], "given_up", "freed")
    assert (given_up.request, given_up.lease) == ("cancelled", cancelled)
    assert given_up.peer is not None
    assert given_up.peer.name == "decode"
    assert (freed.blocks, freed.why) == ("first", "given_up")
    decode.exchange.let_go(peer, unwanted)
    (freed,) = follow([decode, prefill], "freed")
    assert (freed.blocks, freed.why) == ("second", "given_up")
    assert time.monotonic() - started < 4
    assert prefill.exchange.stats().lease_given_up == 2


def test_blocks_that_are_not_registered_are_refused_where_they_are_reserved(
    decode: Side, prefill: Side, peer: kvffi.Peer
) -> None:
    for blocks, text in (({0: [3, 99999]}, "block 99999 of group 0"), ({9: [1]}, "no group 9")):
        with pytest.raises(kvffi.RequestError, match=text):
            decode.exchange.reserve("request 1", "blocks", [kvffi.PushSource(peer, blocks)])
    assert decode.exchange._blocks == {}
    assert decode.exchange.stats().message_sent == 0


def test_a_registration_is_refused_with_a_reason(decode: Side, prefill: Side, peer: kvffi.Peer) -> None:
    decode.exchange.reserve("request 1", "destination", [kvffi.PushSource(peer, {0: [5]})])
    prefill.exchange.hold("request 1", "source")
    (event,) = follow([decode, prefill], "push")
    assert event.peer is not None
    push = kvffi.PushId(*event.peer, event.reservation)
    assert prefill.exchange.refuse(push, "not this one")
    assert not prefill.exchange.refuse(push, "again")
    failed, returned, freed = follow([decode, prefill], "arrival_failed", "returned_reservation", "freed")
    assert isinstance(failed.error, kvffi.Refused)
    assert "not this one" in failed.error.message
    assert (returned.blocks, freed.blocks, freed.why) == ("destination", "source", "given_up")


def test_an_answer_for_other_blocks_than_the_reserved_is_not_written(
    decode: Side, prefill: Side, peer: kvffi.Peer
) -> None:
    there = prefill.exchange.connect(decode.worker.agent.export())
    pair = kvffi.Pair(prefill.worker.spec, there.layout(), op="write")
    decode.exchange.reserve("request 1", "destination", [kvffi.PushSource(peer, {0: [1, 2]})])
    prefill.exchange.hold("request 1", "source")
    (event,) = follow([decode, prefill], "push")
    assert event.peer is not None
    push = kvffi.PushId(*event.peer, event.reservation)
    wrong = pair.answer(kvffi.Request("write", local={0: [3, 4]}, remote={0: [7, 8]}))
    with pytest.raises(kvffi.WriteRefused, match="block 7 of group 0 at list index 0 was not reserved"):
        prefill.exchange.write(push, wrong)
    prefill.exchange.write(push, pair.answer(kvffi.Request("write", local={0: [3, 4]}, remote=event.lists)))
    follow([decode, prefill], "arrived")
    assert decode.worker.cache[:, -1].tolist()[:9] == [0, 7, 7, 0, 0, 0, 0, 0, 0]


def test_notifications_of_an_agent_are_its_exchange_s(decode: Side, peer: kvffi.Peer) -> None:
    for take in (decode.worker.agent.notifications, lambda: next(decode.worker.agent.listen(timeout=0))):
        with pytest.raises(kvffi.InUse, match="has an exchange"):
            take()


def test_a_pull_before_all_is_computed_is_not_ready(decode: Side, prefill: Side, peer: kvffi.Peer) -> None:
    lease = prefill.exchange.hold("request 1", "source", num_parts=1)
    decode.exchange.pull("destination", [part(decode, peer, lease)])
    (failed,) = follow([decode, prefill], "pull_failed")
    assert isinstance(failed.error, kvffi.NotReady)
    assert "Premature" not in failed.error.message


def test_nothing_is_pulled_or_reserved_from_nobody(decode: Side) -> None:
    with pytest.raises(kvffi.ArgumentError, match="without any producer"):
        decode.exchange.pull("blocks", [])
    with pytest.raises(kvffi.ArgumentError, match="without any producer"):
        decode.exchange.reserve("request 1", "blocks", [])


def test_what_is_given_no_deadline_has_one() -> None:
    assert kvffi.DEFAULT_DEADLINE == 600
    for function in (kvffi.Exchange.pull, kvffi.Exchange.reserve, kvffi.Agent.start, kvffi.Agent.start_request):
        assert inspect.signature(function).parameters["deadline"].default == kvffi.DEFAULT_DEADLINE


FIRST, REST = ["layers.0"], ["layers.1", "layers.2"]


def by_layers(pair: kvffi.Pair, op: Any, layers: list[str], blocks: Any) -> kvffi.Answer:
    local, remote = ({0: [5, 6, 9]}, blocks) if op == "read" else ({0: [1, 2, 8]}, blocks)
    return pair.answer(kvffi.Request(op, local=local, remote=remote, layers=layers))


def test_a_pull_by_layers_is_one_pull_and_told_once(decode: Side, prefill: Side, peer: kvffi.Peer) -> None:
    pair = kvffi.Pair(decode.worker.spec, peer.layout())
    lease = prefill.exchange.hold("request 1", "source")
    parts = [
        kvffi.PullPart(peer, "request 1", lease, by_layers(pair, "read", layers, {0: [1, 2, 8]}))
        for layers in (FIRST, REST)
    ]
    with pytest.raises(ValueError, match="layer 1 of this worker's spec"):
        decode.exchange.pull("destination", parts[:1], deadline=PATIENCE)
    with pytest.raises(ValueError, match="layer 0 of this worker's spec"):
        decode.exchange.pull("destination", parts[1:], deadline=PATIENCE)
    decode.exchange.pull("destination", parts, deadline=PATIENCE)
    _, freed = follow([decode, prefill], "pulled", "freed")
    assert freed.why == "all_read"
    assert (decode.worker.cache[[5, 6, 9]] == 7).all()
    assert not decode.worker.cache[[0, 1, 7]].any()


def test_a_push_by_layers_has_arrived_when_every_layer_has(decode: Side, prefill: Side, peer: kvffi.Peer) -> None:
    reader = prefill.exchange.connect(decode.worker.agent.export())
    pair = kvffi.Pair(prefill.worker.spec, reader.layout(), op="write")
    decode.exchange.reserve("request 1", "destination", [kvffi.PushSource(peer, {0: [5, 6, 9]})], deadline=PATIENCE)
    lease = prefill.exchange.hold("request 1", "source", num_parts=2)
    (event,) = follow([decode, prefill], "push")
    assert event.peer is not None
    push = kvffi.PushId(*event.peer, event.reservation)
    for share, layers in enumerate((FIRST, REST)):
        assert prefill.exchange.ready(lease, share) == [push]
        answer = by_layers(pair, "write", layers, event.lists)
        assert len(answer.descriptors()) == 3
        if share == 1:
            with pytest.raises(kvffi.WriteRefused, match="layer 1 of this worker's spec"):
                prefill.exchange.write(push, by_layers(pair, "write", FIRST, event.lists), part=share)
        prefill.exchange.write(push, answer, part=share)
    follow([decode, prefill], "arrived", "freed")
    assert (decode.worker.cache[[5, 6, 9]] == 7).all()
    assert not decode.worker.cache[[0, 1, 7]].any()


def test_some_layers_are_not_a_whole_request(decode: Side, prefill: Side, peer: kvffi.Peer) -> None:
    reader = prefill.exchange.connect(decode.worker.agent.export())
    pair = kvffi.Pair(prefill.worker.spec, reader.layout(), op="write")
    decode.exchange.reserve("request 1", "destination", [kvffi.PushSource(peer, {0: [5, 6, 9]})], deadline=PATIENCE)
    prefill.exchange.hold("request 1", "source")
    (event,) = follow([decode, prefill], "push")
    assert event.peer is not None
    push = kvffi.PushId(*event.peer, event.reservation)
    with pytest.raises(kvffi.WriteRefused, match="none was for layer 1"):
        prefill.exchange.write(push, by_layers(pair, "write", FIRST, event.lists))
    prefill.exchange.write(push, by_layers(pair, "write", FIRST + REST, event.lists))
    follow([decode, prefill], "arrived", "freed")
