"""What a wrong argument raises: one class for numbers, and words that name it as the caller does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import kvffi
from kvffi import _declarations
from workers import Worker, worker


class Parts:
    """What the calls below use."""

    def __init__(self, network: kvffi.Loopback) -> None:
        self.decode, self.prefill = worker("decode", network, 0), worker("prefill", network, 7)
        self.peer = self.decode.agent.connect(self.prefill.agent.export())
        self.pair = kvffi.Pair(self.decode.spec, self.peer.layout())
        self.request = kvffi.Request("read", local={0: [1]}, remote={0: [2]})
        self.exchange = kvffi.Exchange(self.decode.agent)
        self.producer = kvffi.Exchange(self.prefill.agent)


@pytest.fixture
def parts() -> Iterator[Parts]:
    with kvffi.Loopback() as network:
        parts = Parts(network)
        yield parts
        parts.exchange.close()
        parts.producer.close()


NEGATIVE: dict[str, tuple[Callable[[Parts], object], str]] = {
    "readers": (lambda p: p.exchange.hold("r", None, readers=-1), "readers: -1"),
    "num_parts": (lambda p: p.exchange.hold("r", None, num_parts=-1), "num_parts: -1"),
    "lease": (lambda p: p.exchange.abort(-1), "lease: -1"),
    "deadline": (lambda p: p.exchange.pull(None, [], deadline=-1), "deadline is -1"),
    "wait": (lambda p: p.decode.agent.wait_for_news(-1), "-1 seconds"),
    "max_gap": (lambda p: kvffi.Pair(p.decode.spec, p.decode.spec, max_gap=-1), "max_gap is -1"),
    "padding_bytes": (
        lambda p: p.decode.agent.start(p.peer, p.pair.answer(p.request).descriptors(), op="read", padding_bytes=-1),
        "padding_bytes is -1",
    ),
    "block": (lambda p: kvffi.Request("read", local={0: [-1]}, remote={0: [1]}), "block id -1"),
    "group": (lambda p: kvffi.Request("read", local={-1: [1]}, remote={0: [1]}), "group is -1"),
    "first": (lambda p: kvffi.Request("read", local=[kvffi.BlockList(0, [1], -1)], remote=[]), "first is -1"),
    "num_blocks": (lambda p: kvffi.Group(num_blocks=-1, block_tokens=1)._struct(), "num_blocks is -1"),
    "tp_rank": (lambda p: kvffi.Arrangement(kvffi.Worker("m", tp_rank=-1)), "tp_rank is -1"),
    "limit": (lambda p: kvffi.Agent("a", loopback=None, limits=kvffi.Limits(request_bytes=-1)), "request_bytes is -1"),
    "lease_ttl": (lambda p: kvffi.Exchange(p.decode.agent, kvffi.ExchangeOptions(lease_ttl=-1)), "-1 seconds"),
    "max_registrations": (
        lambda p: kvffi.Exchange(p.decode.agent, kvffi.ExchangeOptions(max_registrations=-1)),
        "max_registrations is -1",
    ),
}


@pytest.mark.parametrize("what", NEGATIVE)
def test_negative_numbers_raise_one_exception_that_names_them(parts: Parts, what: str) -> None:
    wrong, text = NEGATIVE[what]
    with pytest.raises(kvffi.NumberError, match=text) as caught:
        wrong(parts)
    assert isinstance(caught.value, (kvffi.ArgumentError, ValueError, OverflowError))
    assert caught.value.name == "KVFFI_ERR_INVALID_ARGUMENT"


WRONG: dict[str, tuple[Callable[[Parts, Any], object], str]] = {
    "local": (lambda p, wrong: kvffi.Pair(wrong, wrong), "local is of type NoneType, not Spec"),
    "remote": (lambda p, wrong: kvffi.Pair(p.decode.spec, wrong), "remote is of type NoneType, not Spec"),
    "agent": (lambda p, wrong: kvffi.Exchange(wrong), "agent is of type NoneType, not Agent"),
    "memory": (lambda p, wrong: p.decode.agent.register(wrong), "memory is of type NoneType, not LocalPlan or Spec"),
    "peer": (lambda p, wrong: p.decode.agent.start(wrong, p.pair.answer(p.request)), "peer is of type NoneType"),
    "pair": (lambda p, wrong: p.decode.agent.start_request(p.peer, wrong, p.request), "pair is of type NoneType"),
    "request": (lambda p, wrong: p.pair.answer(wrong), "the request is of type NoneType, not Request"),
    "answer": (lambda p, wrong: p.pair.verify(wrong), "answer is of type NoneType, not Answer"),
    "stage": (lambda p, wrong: p.decode.spec.count_readers([wrong]), "a stage is of type NoneType, not Spec"),
    "part": (
        lambda p, wrong: p.exchange.pull(None, [wrong]),
        "NoneType is no PullPart, which has peer, request, lease",
    ),
    "source": (lambda p, wrong: p.exchange.reserve("r", None, [wrong]), "NoneType is no PushSource"),
    "push": (lambda p, wrong: p.producer.write(wrong, p.pair.answer(p.request)), "NoneType is no PushId"),
}


@pytest.mark.parametrize("what", WRONG)
def test_an_argument_of_another_class_is_named(parts: Parts, what: str) -> None:
    wrong, text = WRONG[what]
    with pytest.raises(TypeError, match=text):
        wrong(parts, None)


def test_a_number_of_another_type_is_named(parts: Parts) -> None:
    with pytest.raises(kvffi.ArgumentError, match="readers is of type str, not int"):
        parts.exchange.hold("r", None, readers="1")  # type: ignore[arg-type]


def test_a_plain_tuple_is_as_good_as_a_part(parts: Parts) -> None:
    parts.producer.connect(parts.decode.agent.export())
    peer = parts.exchange.connect(parts.prefill.agent.export())
    lease = parts.producer.hold("r", "source")
    pair = kvffi.Pair(parts.decode.spec, peer.layout())
    part: Any = (tuple(peer.id), "r", lease, pair.answer(parts.request))
    assert parts.exchange.pull("destination", [part], deadline=20) > 0
    with pytest.raises(TypeError, match="a tuple of 2 is no PullPart, which has peer, request, lease, what"):
        parts.exchange.pull("destination", [(peer, "r")])  # type: ignore[list-item]


def test_every_status_that_an_engine_tells_apart_has_a_class() -> None:
    classes = kvffi.errors.CLASSES
    assert classes[_declarations.KVFFI_ERR_DEADLINE] is kvffi.Deadline
    assert classes[_declarations.KVFFI_ERR_CANCELLED] is kvffi.Cancelled
    assert classes[_declarations.KVFFI_ERR_NOT_WRITTEN] is kvffi.NotWritten
    assert classes[_declarations.KVFFI_ERR_STALE_BLOB] is kvffi.StaleBlob
    assert issubclass(kvffi.StaleBlob, kvffi.BlobError)


def test_a_pull_that_is_cancelled_says_so_by_its_class(parts: Parts) -> None:
    parts.producer.connect(parts.decode.agent.export())
    peer = parts.exchange.connect(parts.prefill.agent.export())
    lease = parts.producer.hold("r", "source", num_parts=1)
    pair = kvffi.Pair(parts.decode.spec, peer.layout())
    pull = parts.exchange.pull("blocks", [kvffi.PullPart(peer, "r", lease, pair.answer(parts.request))], deadline=20)
    parts.exchange.cancel_pull(pull)
    failed = next(event for event in parts.exchange.events(20) if event.kind == "pull_failed")
    assert isinstance(failed.error, kvffi.Cancelled)


def test_texts_speak_no_rust(parts: Parts) -> None:
    """Of the errors that were seen to."""
    write = kvffi.Request("write", local={0: [1]}, remote={0: [2]})
    with pytest.raises(kvffi.RequestError, match="the request is a write and the plan was made for a read"):
        parts.pair.answer(write)
    with kvffi.Loopback() as network:
        other: Worker = worker("other", network, 1)
        spec = other.spec.to_dict()
        spec["fingerprint"]["revision"] = "two"
        other.agent.deregister()
        other.agent.register(kvffi.Spec.from_dict(spec))
        with pytest.raises(kvffi.PairError, match='fingerprint field revision is "" here and "two" at the peer; both'):
            parts.decode.agent.connect(other.agent.export())
