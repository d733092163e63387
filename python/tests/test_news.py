"""Threads that wait for one agent while others clear its descriptor."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator

import pytest

import kvffi
from kvffi._library import functions
from workers import PATIENCE, worker


@pytest.fixture
def exchange() -> Iterator[kvffi.Exchange]:
    """One that does nothing by itself for as long as a test takes."""
    with kvffi.Loopback() as network:
        agent = worker("decode", network, 0).agent
        with kvffi.Exchange(agent, kvffi.ExchangeOptions(heartbeat_every=600)) as exchange:
            yield exchange
        agent.close()


class Watcher:
    """A thread that waits for news, and then looks at what is `latest`."""

    def __init__(self, agent: kvffi.Agent) -> None:
        self.agent = agent
        self.latest = self.seen = 0
        self.has_looked = threading.Condition()
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()

    def watch(self) -> None:
        while self.seen >= 0 and self.agent.wait_for_news(PATIENCE):
            with self.has_looked:
                self.seen = self.latest
                self.has_looked.notify_all()

    def happens(self, what: int, clear: Callable[[], object]) -> bool:
        """Something happens, and this thread clears the descriptor: whether the other has looked at it then."""
        self.latest = what
        self.agent.raise_fd()
        clear()
        return self.sees(what)

    def sees(self, what: int) -> bool:
        with self.has_looked:
            return self.has_looked.wait_for(lambda: self.seen == what, PATIENCE / 4)

    def end(self) -> None:
        self.latest = -1
        self.agent.raise_fd()
        self.thread.join(PATIENCE)


CLEARS: list[Callable[[kvffi.Exchange], object]] = [
    lambda exchange: exchange.poll(),
    lambda exchange: list(exchange.events(0)),
    lambda exchange: exchange.agent.clear_fd(),
    lambda exchange: exchange.agent.wait_for_news(0),
]
IDS = ["poll", "events", "clear_fd", "wait_for_news"]


@pytest.mark.parametrize("clear", CLEARS, ids=IDS)
@pytest.mark.parametrize("num_watchers", [1, 2])
def test_who_clears_the_descriptor_lets_nobody_else_sleep(
    exchange: kvffi.Exchange, clear: Callable[[kvffi.Exchange], object], num_watchers: int
) -> None:
    """One waits on the descriptor, and has not run yet when it is cleared; another one would wait for that one."""
    first, *others = [Watcher(exchange.agent) for _ in range(num_watchers)]
    for number in range(1, 301):
        for other in others:
            other.latest = number
        assert first.happens(number, lambda: clear(exchange))
        assert all(other.sees(number) for other in others)
    for watcher in (first, *others):
        watcher.end()


@pytest.mark.parametrize("clear", CLEARS, ids=IDS)
def test_who_has_cleared_the_descriptor_waits_for_what_comes_next(
    exchange: kvffi.Exchange, clear: Callable[[kvffi.Exchange], object]
) -> None:
    while exchange.agent.wait_for_news(0):
        pass
    for _ in range(3):
        exchange.agent.raise_fd()
        clear(exchange)
        assert not exchange.agent.wait_for_news(0)
    exchange.agent.raise_fd()
    assert exchange.agent.wait_for_news(PATIENCE)


@pytest.mark.parametrize("clear", CLEARS[:3], ids=IDS[:3])
def test_who_clears_the_descriptor_is_told_of_what_others_cleared_before(
    exchange: kvffi.Exchange, clear: Callable[[kvffi.Exchange], object]
) -> None:
    while exchange.agent.wait_for_news(0):
        pass
    other = threading.Thread(target=exchange.agent.clear_fd)
    exchange.agent.raise_fd()
    other.start()
    other.join()
    clear(exchange)
    assert exchange.agent.wait_for_news(0)
    assert not exchange.agent.wait_for_news(0)


def test_threads_that_wait_for_one_exchange_do_not_wake_each_other(
    exchange: kvffi.Exchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    poll, num_polls = functions().kvffi_exchange_poll, 0

    def counted(*arguments: object) -> int:
        nonlocal num_polls
        num_polls += 1
        return poll(*arguments)

    monkeypatch.setattr(functions(), "kvffi_exchange_poll", counted)
    threads = [threading.Thread(target=lambda: list(exchange.events(0.3))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert 3 <= num_polls < 30


def test_an_agent_that_was_waited_for_leaves_no_descriptor_open() -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    with kvffi.Loopback() as network:
        for _ in range(2):
            # The first one for what the process makes once.
            before = count()
            with worker("decode", network, 0).agent as agent:
                agent.wait_for_news(0)
                assert count() > before
        assert count() == before
