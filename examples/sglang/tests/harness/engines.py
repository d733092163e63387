"""The managers that a worker can run: ours, ours behind SGLang's classes, and SGLang's own."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from .settings import Settings


@dataclass
class Engine:
    """One side's manager, and how its requests are made. Requests have SGLang's methods whatever the kind."""

    manager: Any
    sender: Callable[[int], Any]
    receiver: Callable[[int, int], Any]
    """By room and group of data parallelism."""
    close: Callable[[], object]


def open_engine(kind: str, place: Settings, lists: dict[str, Any], mla: bool, options: dict[str, Any]) -> Engine:
    """A manager of some kind over the memory that `lists` registers."""
    return {"sglang": _sglang, "ours": _ours, "behind": _behind}[kind](place, lists, mla, options)


def _ours(place: Settings, lists: dict[str, Any], mla: bool, options: dict[str, Any]) -> Engine:
    """Our manager, without SGLang."""
    from kvsglang.decode import DecodeManager
    from kvsglang.lists import Place
    from kvsglang.options import Options
    from kvsglang.prefill import PrefillManager
    from kvsglang.receiver import Receiver
    from kvsglang.rendezvous import BootstrapServer
    from kvsglang.sender import Sender

    args = SimpleNamespace(**lists)
    where = Place(place.tp_rank, place.tp_size, place.pp_rank, place.pp_size, place.dcp_size)
    address = f"{place.host}:{place.bootstrap_port}"
    if place.role == "prefill":
        server = BootstrapServer(place.host, place.bootstrap_port) if place.tp_rank == place.pp_rank == 0 else None
        prefill = _retried(
            lambda: PrefillManager(args, where, Options(bootstrap=address, device="dram", **options), is_mla=mla)
        )

        def close() -> None:
            prefill.close()
            if server is not None:
                server.close()

        return Engine(prefill, lambda room: Sender(prefill, address, room), _none, close)
    decode = DecodeManager(args, where, Options(device="dram", **options), is_mla=mla)

    def receiver(room: int, group: int) -> Receiver:
        # A request of an engine that does not fit fails by itself, on both sides.
        _until(lambda: decode.try_ensure_parallel_info(address))
        request = Receiver(decode, address, room)
        request.init(group)
        return request

    return Engine(decode, _none, receiver, decode.close)


def _none(_room: int, _group: int = 0) -> Any:
    raise NotImplementedError("the other role has these")


def _retried(make: Callable[[], Any], seconds: float = 30.0) -> Any:
    """The rendezvous is the first worker's; the others wait for it, as an engine's launcher does."""
    end = time.monotonic() + seconds
    while True:
        try:
            return make()
        except ConnectionError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def _sglang(place: Settings, lists: dict[str, Any], mla: bool, options: dict[str, Any]) -> Engine:
    """SGLang's unmodified NIXL manager."""
    del options
    nixl, args, mode = _loaded(place, lists)
    address = f"{place.host}:{place.bootstrap_port}"
    server = None
    if place.role == "prefill" and place.pp_rank == 0 and place.tp_rank == 0:
        server = nixl.NixlKVBootstrapServer(place.host, place.bootstrap_port)
    manager = nixl.NixlKVManager(args, mode, _ServerArgs(), mla)

    def receiver(room: int, group: int) -> Any:
        _until(lambda: manager.try_ensure_parallel_info(address))
        request = nixl.NixlKVReceiver(manager, address, room)
        request.init(group)
        return request

    def close() -> None:
        if server is not None:
            server.close()

    return Engine(manager, lambda room: nixl.NixlKVSender(manager, address, room), receiver, close)


def _behind(place: Settings, lists: dict[str, Any], mla: bool, options: dict[str, Any]) -> Engine:
    """Our manager behind SGLang's base classes."""
    _, args, mode = _loaded(place, lists)
    from kvsglang.backend import classes
    from kvsglang.options import Options

    made = classes(Options(device="dram", **options))
    address = f"{place.host}:{place.bootstrap_port}"
    is_first = place.role == "prefill" and place.tp_rank == place.pp_rank == 0
    server = made.bootstrap_server(place.host, place.bootstrap_port) if is_first else None
    manager = _retried(lambda: made.manager(args, mode, _ServerArgs(), mla))

    def receiver(room: int, group: int) -> Any:
        _until(lambda: bool(manager.try_ensure_parallel_info(address)))
        request = made.receiver(manager, address, room)
        request.init(group)
        return request

    def close() -> None:
        manager.teardown()
        if server is not None:
            server.close()

    return Engine(manager, lambda room: made.sender(manager, address, room), receiver, close)


def _loaded(place: Settings, lists: dict[str, Any]) -> tuple[Any, Any, Any]:
    """SGLang's NIXL module, its KVArgs with the lists in it, and the worker's mode."""
    from .loader import load

    nixl = load(place)
    from sglang.srt.disaggregation.base.conn import KVArgs, StateType
    from sglang.srt.disaggregation.utils import DisaggregationMode

    args = KVArgs()
    for name, value in lists.items():
        setattr(args, name, value)
    args.state_types = [StateType(name) for name in lists["state_types"]]
    return nixl, args, DisaggregationMode(place.role)


class _ServerArgs:
    """The one setting of SGLang's server that its manager reads."""

    enable_pd_role_switch = False


def _until(done: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            raise TimeoutError("the prefill engine did not register in time")
        time.sleep(0.05)
