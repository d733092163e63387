"""Waits for transfers and notifications in an event loop, without a thread: the agent has a file descriptor for it.

make wheel && pip install target/wheel/kvffi-*.whl numpy && pip install --no-deps 'nixl-cu12>=1.5.1'
python3 examples/python/04_asyncio.py
"""

from __future__ import annotations

import asyncio
from types import TracebackType

import numpy
from numpy.typing import NDArray

import kvffi


class Watch:
    """An agent in an event loop."""

    def __init__(self, agent: kvffi.Agent) -> None:
        self.agent = agent
        self.arrived: asyncio.Queue[kvffi.Notification] = asyncio.Queue()
        self.waiting: dict[kvffi.Transfer, asyncio.Future[None]] = {}

    async def __aenter__(self) -> Watch:
        asyncio.get_running_loop().add_reader(self.agent.fd(), self.look)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.get_running_loop().remove_reader(self.agent.fd())

    def look(self) -> None:
        """Something has happened: clears the descriptor first, and then looks at everything."""
        self.agent.clear_fd()
        for notification in self.agent.notifications():
            self.arrived.put_nowait(notification)
        for transfer, future in list(self.waiting.items()):
            if transfer.poll() != "in_progress":
                del self.waiting[transfer]
                error = transfer.error()
                if future.cancelled():
                    continue
                if error is None:
                    future.set_result(None)
                else:
                    future.set_exception(error)

    async def done(self, transfer: kvffi.Transfer) -> None:
        """Waits until a transfer is done, or raises why it failed. A task that is cancelled cancels it."""
        future = self.waiting[transfer] = asyncio.get_running_loop().create_future()
        self.agent.raise_fd()
        try:
            await future
        except asyncio.CancelledError:
            transfer.cancel()
            raise


def worker(name: str, byte: int) -> tuple[kvffi.Agent, kvffi.Spec, NDArray[numpy.uint8]]:
    """An agent with one MLA layer of ten blocks."""
    cache = numpy.full((10, 64, 1152), byte, numpy.uint8)
    tensors = kvffi.Tensors(kvffi.Worker("org/model"))
    group = tensors.add_group(kvffi.Group(num_blocks=10, block_tokens=64))
    tensors.add_tensor(tensors.add_layer("layers.0", kvffi.Page.mla("bf16"), group), cache, "BNC")
    spec = tensors.build()
    agent = kvffi.Agent(name)
    agent.register(spec)
    return agent, spec, cache


async def main() -> None:
    """Ten requests at once: decode pulls a block each, and prefill hears of every one."""
    prefill, _, _ = worker("prefill-0", 7)
    decode, spec, cache = worker("decode-0", 0)
    peer = decode.connect(prefill.export())
    pair = kvffi.Pair(spec, peer.layout())

    async with Watch(decode) as decode_watch, Watch(prefill) as prefill_watch:

        async def pull(block: int) -> None:
            request = kvffi.Request("read", local={0: [block]}, remote={0: [9 - block]})
            transfer = decode.start(peer, pair.answer(request), notify=f"block {block}".encode(), deadline=20)
            await decode_watch.done(transfer)

        await asyncio.gather(*(pull(block) for block in range(10)))
        messages = [await asyncio.wait_for(prefill_watch.arrived.get(), 20) for _ in range(10)]

    print(f"{len({each.message for each in messages})} requests, {numpy.count_nonzero(cache != 7)} bytes wrong")
    decode.close()
    prefill.close()


if __name__ == "__main__":
    asyncio.run(main())
