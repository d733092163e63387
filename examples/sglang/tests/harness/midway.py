"""Requests that something happens to while their bytes move, and what memory may be afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable

from .deployment import PREFILL_SALT, Deployment, Request
from .expect import Expectation, Moved
from .model import Model
from .pools import Pool
from .worker import Chunk

MODEL = Model(layers=(0, 1), heads=4, head_bytes=16, page_tokens=16, num_pages=1024)
# In posts of a page, one at a time.
SLOW = {"most_bytes": 1024, "most_posts": 1}
PAGES = list(range(1024))
HALF = len(PAGES) // 2
PROMPTLY = 20
"""Seconds within which something comes by itself: far from what it takes, as a busy machine may stall anybody, and
far from the time after which it would be given up."""


def begin(engines: Deployment, room: int) -> Request:
    """Starts a request and returns while its first half is under way; the second has not been sent."""
    request = Request(room, PAGES, PAGES[::-1], chunks=(HALF, HALF))
    engines.start(request)
    engines.prefill[0].send(room, Chunk(PAGES[:HALF]))
    assert until(lambda: engines.decode[0].changed() > 0, PROMPTLY)
    assert engines.prefill[0].poll(room) != "Success"
    return request


def until(done: Callable[[], bool], seconds: float) -> bool:
    """Whether something becomes true within some seconds."""
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def cut(engines: Deployment, request: Request) -> int:
    """Checks that every byte is as it was or as it should become, and returns how many rows have become so.

    A worker that is killed may leave half a row.
    """
    before = Expectation(engines.decode[0].twin)
    after = Expectation(engines.decode[0].twin)
    after.move(Moved("kv", request.source, request.destination), PREFILL_SALT)
    moved = 0
    tensors = engines.decode[0].twin.pool.tensors
    got = Pool(tensors, engines.decode[0].memory())
    for index, tensor in enumerate(tensors):
        old = got.rows(index) == Pool(tensors, before.memory).rows(index)
        new = got.rows(index) == Pool(tensors, after.memory).rows(index)
        assert (old | new).all(), f"{tensor.layer} {tensor.name}"
        moved += int((new.all(axis=1) & ~old.all(axis=1)).sum())
    return moved
