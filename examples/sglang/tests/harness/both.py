"""A manager of each role in the test's own process: whatever an engine may hand over can be handed over."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from kvsglang.decode import DecodeManager
from kvsglang.lists import Place
from kvsglang.options import Options
from kvsglang.prefill import PrefillManager
from kvsglang.receiver import Receiver
from kvsglang.rendezvous import BootstrapServer
from kvsglang.sender import Sender
from kvsglang.states import Poll

from .midway import PROMPTLY, until
from .model import Model, build
from .ports import free_port
from .settings import Settings

HOST = "127.0.0.1"
PLAIN = Model(layers=(0,))


@dataclass
class Both:
    """A manager of each role in this process."""

    prefill: PrefillManager
    decode: DecodeManager
    rendezvous: BootstrapServer
    address: str

    def start(self, room: int) -> tuple[Sender, Receiver]:
        """Both halves of a request, up to where pages may be sent."""
        sender = Sender(self.prefill, self.address, room)
        sender.init(2, None)
        receiver = Receiver(self.decode, self.address, room)
        receiver.init(0)
        receiver.send_metadata([1, 2], None, None, 0)
        assert until(lambda: sender.poll() is Poll.WAITING_FOR_INPUT, PROMPTLY)
        return sender, receiver


@contextmanager
def both(model: Model = PLAIN, **options: Any) -> Iterator[Both]:
    """`options` are the decode worker's."""
    address = f"{HOST}:{free_port()}"
    # Kept until both are closed: they write into it.
    workers = [build(model, Settings(role, 0), salt) for role, salt in (("prefill", 1), ("decode", 2))]
    lists = [SimpleNamespace(**worker.lists) for worker in workers]
    rendezvous = BootstrapServer(HOST, int(address.rpartition(":")[2]))
    told = [{"device": "dram", **model.options(role)} for role in ("prefill", "decode")]
    prefill = PrefillManager(lists[0], Place(), Options(bootstrap=address, **told[0]), is_mla=model.mla)
    decode = DecodeManager(lists[1], Place(), Options(**{**told[1], "heartbeat": 0.1, **options}), is_mla=model.mla)
    try:
        assert decode.try_ensure_parallel_info(address)
        yield Both(prefill, decode, rendezvous, address)
    finally:
        decode.close()
        prefill.close()
        rendezvous.close()
