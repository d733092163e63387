"""Behind SGLang's own base classes: the four classes that its `get_kv_class` returns for a transfer backend.

They are made when SGLang is there, from its base classes and the managers of this package:

    classes = backend.classes()
    manager = classes.manager(kv_args, DisaggregationMode.PREFILL, server_args, is_mla_backend)
    sender = classes.sender(manager, bootstrap_addr, bootstrap_room)

What a scheduler asks of a manager beyond the base class is answered: nothing of it is needed here (staging, host
destinations, recomputation).
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from .bootstrap import UNDERSTOOD, PrefillInfo, Rank
from .decode import DecodeManager
from .errors import SettingError
from .lists import Place
from .options import Options
from .prefill import PrefillManager
from .receiver import Receiver
from .rendezvous import BootstrapServer
from .sender import Sender
from .states import Poll

ENGINE = "sglang.srt"


@dataclass(frozen=True)
class Classes:
    """What `get_kv_class` returns for MANAGER, SENDER, RECEIVER and BOOTSTRAP_SERVER."""

    manager: Any
    sender: Any
    receiver: Any
    bootstrap_server: Any


def classes(options: Options | None = None) -> Classes:
    """Makes the classes. `options` adds to what SGLang's configuration says.

    # Errors
    `ImportError` if SGLang is not there.
    """
    base = importlib.import_module(f"{ENGINE}.disaggregation.base.conn")
    bodies = {
        "KvffiManager": (_Manager, base.BaseKVManager, {"_options": options or Options()}),
        "KvffiSender": (_Sender, base.BaseKVSender, {"_metric": base.KVTransferMetric}),
        "KvffiReceiver": (_Receiver, base.BaseKVReceiver, {}),
        "KvffiBootstrapServer": (BootstrapServer, base.BaseKVBootstrapServer, {}),
    }
    return Classes(*(type(name, (body, parent), extra) for name, (body, parent, extra) in bodies.items()))


class _Manager:
    """The base class's manager: one of either role.

    # Errors
    `SettingError` for a prefill engine with groups of data or attention context parallelism, or for another setting of
    who has what of a request that is not followed here; `AddressError` for IPv6; and those of the role.
    """

    _options: Options
    # What schedulers look at.
    enable_staging = False
    enable_all_cp_ranks_for_transfer = False
    supports_host_destination = False
    attn_cp_rank = 0
    attn_cp_size = 1
    kv_buffer_tensors: Any = None
    enable_deferred_decode_kv_release = True
    supports_deferred_decode_kv_release = True

    def __init__(
        self, args: Any, disaggregation_mode: Any, server_args: Any, is_mla_backend: bool | None = False
    ) -> None:
        del server_args
        context = importlib.import_module(f"{ENGINE}.runtime_context")
        network = importlib.import_module(f"{ENGINE}.utils.network")
        parallel = context.get_parallel()
        disagg = context.get_disagg()
        is_prefill = disaggregation_mode.value == "prefill"
        _check(parallel, disagg, is_prefill)
        place = Place(
            parallel.attn_tp_rank, parallel.attn_tp_size, args.pp_rank, parallel.pp_size, parallel.attn_dcp_size
        )
        options = replace(self._options, host=network.get_local_ip_auto())
        self.kv_args = args
        self.role: PrefillManager | DecodeManager
        if is_prefill:
            address = _rendezvous(parallel, context.get_serving().host, disagg.disaggregation_bootstrap_port, network)
            self.role = PrefillManager(args, place, replace(options, bootstrap=address), is_mla=bool(is_mla_backend))
        else:
            self.role = DecodeManager(args, place, options, is_mla=bool(is_mla_backend))

    def register_to_bootstrap(self) -> None:
        """The manager of a prefill worker has done so when it stands."""

    def try_ensure_parallel_info(self, bootstrap_addr: str) -> bool:
        """Whether a prefill engine is complete and fits."""
        return self.decode.try_ensure_parallel_info(bootstrap_addr)

    @property
    def prefill_info_table(self) -> Mapping[str, PrefillInfo]:
        """The prefill engines that are known, by the address of their rendezvous.

        A scheduler looks for the group that serves a request. Of an engine with several groups every request is
        refused, so there is nothing to look for.
        """
        return {address: replace(info, dp_size=1) for address, info in self.decode.engines().items()}

    def should_verify_kv_checksum(self, bootstrap_addr: str) -> bool:
        """Pages carry no checksums."""
        del bootstrap_addr
        return False

    def is_abort_release_safe(self, bootstrap_room: int, required_acks: int) -> bool:
        """Whether nobody writes into a request's pages any more."""
        del required_acks
        return self.decode.is_released(bootstrap_room)

    def clear_deferred_abort_state(self, bootstrap_room: int) -> None:
        """There is none beside the room."""

    def teardown(self) -> None:
        """Ends every request and takes the memory out of NIXL's hands."""
        self.role.close()

    close = teardown

    @property
    def prefill(self) -> PrefillManager:
        """This manager in its role; `TypeError` for a decode worker's."""
        if not isinstance(self.role, PrefillManager):
            raise TypeError("this is a decode worker's manager")
        return self.role

    @property
    def decode(self) -> DecodeManager:
        """This manager in its role; `TypeError` for a prefill worker's."""
        if not isinstance(self.role, DecodeManager):
            raise TypeError("this is a prefill worker's manager")
        return self.role


class _Sender(Sender):
    """The base class's sender."""

    _metric: Any

    def __init__(
        self, mgr: _Manager, bootstrap_addr: str, bootstrap_room: int, req_has_disagg_prefill_dp_rank: bool = False
    ) -> None:
        super().__init__(mgr.prefill, bootstrap_addr, bootstrap_room, req_has_disagg_prefill_dp_rank)
        self.kv_mgr, self.bootstrap_room = mgr, bootstrap_room

    def get_transfer_metric(self) -> Any:
        """SGLang's record, as far as it is known."""
        return self._metric(transfer_total_bytes=self.manager.num_bytes(self.request))

    def get_max_transfer_tokens(self) -> int | None:
        """A chunk may be of any length."""
        return None

    def mark_prefill_complete(self) -> None:
        """Pages are sent when they are given."""


class _Receiver(Receiver):
    """The base class's receiver."""

    require_staging = False

    def __init__(self, mgr: _Manager, bootstrap_addr: str, bootstrap_room: int | None = None) -> None:
        if bootstrap_room is None:
            raise ValueError("a receiver needs a bootstrap_room")
        super().__init__(mgr.decode, bootstrap_addr, bootstrap_room)
        self.kv_mgr, self.bootstrap_room = mgr, bootstrap_room

    @property
    def abort_notified(self) -> bool:
        """Whether the prefill workers hear that the request is over: they do of every failure."""
        return self.poll() is Poll.FAILED

    def ensure_abort_notified(self, force_arm: bool = False) -> None:
        """Gives up a request that is under way."""
        del force_arm
        self.abort()

    @property
    def bootstrap_infos(self) -> list[Rank]:
        """The prefill workers of the request."""
        return list(self.request.ranks)

    @property
    def conclude_state(self) -> Poll | None:
        """How the request ended; None if it has not."""
        state = self.poll()
        return state if state.is_final else None

    @property
    def supports_host_destination(self) -> bool:
        """Pages are those that the manager registered."""
        return False

    def send_metadata(
        self,
        kv_indices: Any,
        aux_index: int | None = None,
        state_indices: Any = None,
        decode_prefix_len: int | None = None,
        destination: Any = None,
        device_kv_indices: Any = None,
    ) -> None:
        """Gives the pages, slots and row to write into."""
        if getattr(destination, "value", "device") != "device" or device_kv_indices is not None:
            raise NotImplementedError("host destinations are not supported; give device pages")
        super().send_metadata(kv_indices, aux_index, state_indices, decode_prefix_len)


def _check(parallel: Any, disagg: Any, is_prefill: bool) -> None:
    """Refuses an engine that is split in ways that are not followed here.

    # Errors
    `SettingError`.
    """
    policy = "decode_allocation_policy"
    served = [
        ("attn_cp_size", parallel.attn_cp_size, 1),
        (policy, disagg.disaggregation_decode_allocation_policy, UNDERSTOOD[policy]),
    ]
    if is_prefill:
        served += [(name, getattr(parallel, name), 1) for name in ("attn_dp_size", "dp_size")]
        cuts = ("enable_dsa_cache_layer_split", "enable_kv_cache_sharding")
        served += [(name, getattr(parallel, name), UNDERSTOOD[name]) for name in cuts]
    for name, value, only in served:
        if value != only:
            raise SettingError(name, value, only)


def _rendezvous(parallel: Any, host: str, port: int, network: Any) -> str:
    """Address of the engine's rendezvous. That of several nodes is the first one's, at the port that was free there."""
    if parallel.dist_init_addr:
        host = network.NetworkAddress.parse(parallel.dist_init_addr).resolved().host
        if parallel.nnodes != 1:
            port = parallel.world_group.broadcast_object(port, src=0)
    # A wildcard is no address to connect to.
    return f"{'127.0.0.1' if host == '0.0.0.0' else host}:{port}"
