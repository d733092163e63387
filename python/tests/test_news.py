"""Threads that wait for one agent while others clear its descriptor."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator

import pytest

import kvffi
from kvffi import _news
from kvffi._handle import call
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
        # As the library does it: `Agent.raise_fd` is news by itself.
        call(functions().kvffi_agent_raise_fd, self.agent._live())
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

    def watch() -> None:
        # Two of them may poll at once.
        with contextlib.suppress(kvffi.BusyError):
            list(exchange.events(0.3))

    threads = [threading.Thread(target=watch) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert 3 <= num_polls < 30


def test_threads_that_poll_under_a_lock_and_wait_do_not_wake_each_other(exchange: kvffi.Exchange) -> None:
    lock, returns = threading.Lock(), []
    end = time.monotonic() + 1

    def watch() -> None:
        while (left := end - time.monotonic()) > 0:
            with lock:
                exchange.poll()
            returns.append(exchange.wait(left))

    threads = [threading.Thread(target=watch) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert 2 <= len(returns) < 20


def test_raising_the_descriptor_ends_waits_for_an_exchange_that_another_thread_polls(exchange: kvffi.Exchange) -> None:
    raised = 0
    ended = threading.Condition()
    seen = [0, 0]

    def watch(me: int) -> None:
        while seen[me] >= 0 and exchange.wait(PATIENCE):
            with ended:
                seen[me] = raised
                ended.notify_all()

    def all_have_seen() -> bool:
        return set(seen) == {raised}

    threads = [threading.Thread(target=watch, args=(me,), daemon=True) for me in range(2)]
    for thread in threads:
        thread.start()
    while raised >= 0:
        raised = raised + 1 if raised < 300 else -1
        exchange.agent.raise_fd()
        exchange.poll()
        with ended:
            assert ended.wait_for(all_have_seen, PATIENCE / 4)
    for thread in threads:
        thread.join(PATIENCE)


def test_who_finds_the_pipe_empty_waits_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A forked child has the pipe as well."""
    news, which_readable = _news.News(), _news.which_readable
    fd, other_end = os.pipe()
    is_drained = threading.Event()

    def drained(fds: tuple[int, ...], left: float) -> set[int]:
        readable = which_readable(fds, left)
        if fds[1] in readable:
            os.read(fds[1], 4096)
            is_drained.set()
        return readable

    monkeypatch.setattr(_news, "which_readable", drained)
    returns: list[bool] = []
    wait = lambda: returns.append(news.wait(fd, lambda: None, time.monotonic() + PATIENCE, for_exchange=True))  # noqa: E731
    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    while not is_drained.wait(0.01):
        news.polled()
    os.write(other_end, b"\0")
    thread.join(PATIENCE / 4)
    assert returns == [True]
    news.close()
    os.close(fd)
    os.close(other_end)


def test_a_signal_as_a_wait_begins_leaves_no_one_asleep() -> None:
    class Interrupted:
        """A lock that a signal comes with, each time that it was given back."""

        def __init__(self, lock: threading.RLock) -> None:
            self.lock, self.comes = lock, True

        def __enter__(self) -> None:
            self.lock.acquire()

        def __exit__(self, *what: object) -> None:
            self.lock.release()
            if self.comes:
                self.comes = False
                raise KeyboardInterrupt

    news = _news.News()
    fd, other_end = os.pipe()
    os.write(other_end, b"\0")
    lock = Interrupted(news._lock)
    news._lock = lock  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        news.wait(fd, lambda: None, time.monotonic() + PATIENCE)
    assert not lock.comes
    assert news.wait(fd, lambda: None, time.monotonic() + 0.5)
    news.close()
    os.close(fd)
    os.close(other_end)


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
