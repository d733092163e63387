"""Logs: taken when the engine likes, and handed to Python's own."""

from __future__ import annotations

import gc
import logging
import threading
import time

import pytest

import kvffi
from workers import worker


def test_records_say_when_what_and_where() -> None:
    before = time.time()
    with kvffi.Logs("trace") as logs, kvffi.Loopback() as network:
        worker("prefill", network, 7).agent.close()
        records = logs.take()
    assert records
    assert {record.level for record in records} <= {"error", "warn", "info", "debug", "trace"}
    assert any("prefill" in record.message for record in records)
    assert all(record.target.startswith("kvnixl") for record in records)
    assert all(before - 1 <= record.time <= time.time() + 1 for record in records)
    assert logs.dropped == 0


def test_there_is_one_log_at_a_time() -> None:
    with kvffi.Logs():
        with pytest.raises(kvffi.InUse):
            kvffi.Logs()
    # What earlier tests left would speak when it goes.
    gc.collect()
    with kvffi.Logs() as logs:
        assert logs.take() == []


def test_what_finds_no_room_is_counted() -> None:
    with kvffi.Logs("trace", capacity=1) as logs, kvffi.Loopback() as network:
        for number in range(3):
            worker(f"worker-{number}", network, 7).agent.close()
        assert len(logs.take()) == 1
        assert logs.dropped > 0


def test_records_can_be_waited_for() -> None:
    gc.collect()
    with kvffi.Logs("trace") as logs, kvffi.Loopback() as network:
        timer = threading.Timer(0.05, lambda: worker("late", network, 7).agent.close())
        timer.start()
        assert next(logs.listen(20.0), None) is not None
        timer.join(20.0)
        list(logs.listen(0.01))
        assert logs.take() == []
        assert list(logs.listen(0)) == []


def test_who_stops_to_listen_leaves_the_other_records_to_the_next_call() -> None:
    with kvffi.Logs("trace") as logs, kvffi.Loopback() as network:
        for number in range(3):
            worker(f"worker-{number}", network, 7).agent.close()
        everything = []
        while (record := next(logs.listen(0), None)) is not None:
            everything.append(record.message)
    for number in range(3):
        assert any(f"worker-{number}" in message for message in everything)


def test_closing_logs_ends_who_listens() -> None:
    logs = kvffi.Logs()
    thread = threading.Thread(target=lambda: list(logs.listen()))
    thread.start()
    time.sleep(0.05)
    logs.close()
    thread.join(20.0)
    assert not thread.is_alive()
    kvffi.Logs().close()


def test_records_go_to_python_s_logging(caplog: pytest.LogCaptureFixture) -> None:
    with kvffi.Logs("debug") as logs, kvffi.Loopback() as network, caplog.at_level(logging.DEBUG, "engine"):
        worker("prefill", network, 7).agent.close()
        assert logs.forward("engine") == len(caplog.records) > 0
        assert logs.forward("engine") == 0
    assert all(record.name.startswith("engine.kvnixl") for record in caplog.records)
    assert any("prefill" in record.getMessage() for record in caplog.records)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="log is 'loud'"):
        kvffi.Logs("loud")  # type: ignore[arg-type]
    with pytest.raises(kvffi.ArgumentError):
        kvffi.Logs(capacity=1 << 40)
    with pytest.raises(OverflowError):
        kvffi.Logs(capacity=-1)
    logs = kvffi.Logs()
    logs.close()
    with pytest.raises(ValueError, match="Logs is closed"):
        logs.take()
