"""The managers that a worker can run: ours, ours behind SGLang's classes, and SGLang's own."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .settings import Settings


@dataclass
class Engine:
    """One side's manager, and how its requests are made. Requests have SGLang's methods whatever the kind."""

    manager: Any
    sender: Callable[[int], Any]
    receiver: Callable[[int], Any]
    close: Callable[[], None]


def open_engine(kind: str, place: Settings, lists: dict[str, Any], mla: bool, options: dict[str, Any]) -> Engine:
    """A manager of some kind over the memory that `lists` registers."""
    return {"sglang": _sglang}[kind](place, lists, mla, options)


def _sglang(place: Settings, lists: dict[str, Any], mla: bool, options: dict[str, Any]) -> Engine:
    """SGLang's unmodified NIXL manager."""
    del options
    from .loader import load

    nixl = load(place)
    from sglang.srt.disaggregation.base.conn import KVArgs, StateType
    from sglang.srt.disaggregation.utils import DisaggregationMode

    args = KVArgs()
    for name, value in lists.items():
        setattr(args, name, value)
    args.state_types = [StateType(name) for name in lists["state_types"]]
    address = f"{place.host}:{place.bootstrap_port}"
    server = None
    if place.role == "prefill" and place.pp_rank == 0 and place.tp_rank == 0:
        server = nixl.NixlKVBootstrapServer(place.host, place.bootstrap_port)
    manager = nixl.NixlKVManager(args, DisaggregationMode(place.role), _ServerArgs(), mla)

    def receiver(room: int) -> Any:
        _until(lambda: manager.try_ensure_parallel_info(address))
        request = nixl.NixlKVReceiver(manager, address, room)
        request.init(0)
        return request

    def close() -> None:
        if server is not None:
            server.close()

    return Engine(manager, lambda room: nixl.NixlKVSender(manager, address, room), receiver, close)


class _ServerArgs:
    """The one setting of SGLang's server that its manager reads."""

    enable_pd_role_switch = False


def _until(done: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            raise TimeoutError("the prefill engine did not register in time")
        time.sleep(0.05)
