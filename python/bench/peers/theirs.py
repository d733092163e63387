"""One side of vLLM's NIXL connector: its own worker class, unchanged, with caches in host memory.

What it is given stands in for an engine's configuration, and an attention backend that takes any size of block for
kernels. vLLM runs as for its CPU platform, except that the thread is not kept on one core.

With PEERS_CALM in the environment NIXL's progress threads sleep, which vLLM has no setting for: better than it is, on a
machine of few cores.
"""

from __future__ import annotations

import os

os.environ["VLLM_TARGET_DEVICE"] = "cpu"
os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
# The only order of a convolution's state that it transfers.
os.environ["VLLM_SSM_CONV_STATE_LAYOUT"] = "DS"

import sys
import time
import uuid
from types import SimpleNamespace
from typing import Any

import msgspec
import torch
from vllm import __version__ as vllm_version
from vllm.config.kv_transfer import KVTransferConfig
from vllm.distributed import parallel_state
from vllm.distributed.kv_transfer.kv_connector.v1.nixl import base_worker
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.metadata import NixlAgentMetadata, NixlConnectorMetadata
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.pull_worker import NixlPullConnectorWorker
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm.v1.attention.backend import MultipleOf
from vllm.v1.attention.backends.registry import MambaAttentionBackendEnum
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheSpec,
    KVCacheTensor,
    MambaSpec,
    MLAAttentionSpec,
    UniformTypeKVCacheSpecs,
    create_kv_cache_views,
)
from vllm.v1.kv_cache_layout import KVCacheLayout

from . import link
from .calm import CalmAgent
from .scenarios import (
    CONV_CHANNELS,
    CONV_KERNEL,
    HEAD_SIZE,
    INDEX,
    KV_HEADS,
    MLA,
    SSM_HEAD_SIZE,
    SSM_HEADS,
    SSM_STATE,
    Placed,
    Setting,
    Side,
    placed,
)


class _AnyBlock:
    """A backend whose kernels take any size of block."""

    @staticmethod
    def get_name() -> str:
        return "ANY"

    @staticmethod
    def full_cls_name() -> tuple[str, str]:
        return (__name__, "_AnyBlock")

    @staticmethod
    def get_supported_kernel_block_sizes(_spec: object) -> list[MultipleOf]:
        return [MultipleOf(1)]


class _Layer(AttentionLayerBase):
    def get_attn_backend(self) -> Any:
        return _AnyBlock

    def get_kv_cache_spec(self, vllm_config: Any) -> None:
        return None


def _spec(setting: Setting, side: Side, place: Placed) -> KVCacheSpec:
    tokens, kind = setting.model.block_tokens, place.layer.kind
    if kind == "attention":
        heads = KV_HEADS // side.tp_size
        return FullAttentionSpec(
            block_size=tokens, num_kv_heads=heads, head_size=HEAD_SIZE, dtype=torch.bfloat16, max_tp_shards=KV_HEADS
        )
    if kind == "mamba2":
        conv = (sum(CONV_CHANNELS) // side.tp_size, CONV_KERNEL - 1)
        return MambaSpec(
            block_size=tokens,
            shapes=(conv, (SSM_HEADS // side.tp_size, SSM_HEAD_SIZE, SSM_STATE)),
            dtypes=(torch.bfloat16, torch.bfloat16),
            page_size_padded=place.block_stride,
            mamba_type=MambaAttentionBackendEnum.MAMBA2,
        )
    row = MLA if kind == "mla" else INDEX
    return MLAAttentionSpec(block_size=tokens, num_kv_heads=1, head_size=row, dtype=torch.uint8)


def _caches(setting: Setting, side: Side, memory: Any) -> tuple[KVCacheConfig, dict[str, torch.Tensor]]:
    places, length = placed(setting, side)
    layout = KVCacheLayout[side.layout.upper()]
    specs = {place.layer.name: _spec(setting, side, place) for place in places}
    groups = []
    for group in range(len(setting.model.groups)):
        members = {place.layer.name: specs[place.layer.name] for place in places if place.layer.group == group}
        spec = next(iter(members.values()))
        if len(set(members.values())) > 1:
            spec = UniformTypeKVCacheSpecs(block_size=setting.model.block_tokens, kv_cache_specs=members)
        groups.append(KVCacheGroupSpec(list(members), spec))
    buffer = torch.frombuffer(memory, dtype=torch.int8, count=length)
    tensors, caches = [], {}
    for place in places:
        name = place.layer.name
        tensor = KVCacheTensor(length, [name], place.block_stride, place.block_stride, place.offset)
        tensors.append(tensor)
        (caches[name],) = create_kv_cache_views(buffer, specs[name], setting.num_blocks, layout, tensor)
    return KVCacheConfig(setting.num_blocks, tensors, groups, kv_cache_layout=layout.name), caches


def _config(setting: Setting, side: Side, names: list[str]) -> Any:
    layout = KVCacheLayout[side.layout.upper()]
    use_mla = setting.model.groups[0] == "mla"
    return SimpleNamespace(
        kv_transfer_config=KVTransferConfig(
            kv_connector="NixlConnector", kv_role="kv_both", kv_buffer_device="cpu", engine_id=str(uuid.uuid4())
        ),
        cache_config=SimpleNamespace(
            block_size=setting.model.block_tokens,
            cache_dtype="auto",
            enable_prefix_caching=False,
            get_resolved_kv_cache_layout=lambda: layout,
        ),
        scheduler_config=SimpleNamespace(disable_hybrid_kv_cache_manager=False),
        parallel_config=SimpleNamespace(
            tensor_parallel_size=side.tp_size,
            pipeline_parallel_size=1,
            prefill_context_parallel_size=1,
            decode_context_parallel_size=1,
        ),
        model_config=SimpleNamespace(
            model=setting.model.name,
            dtype=torch.bfloat16,
            use_mla=use_mla,
            enable_sleep_mode=False,
            get_total_num_kv_heads=lambda: 1 if use_mla else KV_HEADS,
            get_head_size=lambda: HEAD_SIZE,
            get_total_num_hidden_layers=lambda: len(names),
        ),
        speculative_config=None,
        compilation_config=SimpleNamespace(static_forward_context={name: _Layer() for name in names}),
    )


class Theirs:
    """A worker of each setting in turn."""

    def __init__(self, side: str) -> None:
        self._side = side
        self._memory = link.memory()
        self._worker: Any = None
        self._count = 0

    def set_up(self, setting: Setting) -> dict[str, Any]:
        """Registers the caches; the handshake for the peer, and how long it took."""
        self.end()
        side = setting.prefill if self._side == "prefill" else setting.decode
        parallel_state._TP = SimpleNamespace(rank_in_group=side.tp_rank, world_size=side.tp_size)
        caches_config, caches = _caches(setting, side, self._memory)
        config = _config(setting, side, list(caches))
        cores = os.sched_getaffinity(0)
        self._worker = NixlPullConnectorWorker(config, config.kv_transfer_config.engine_id, caches_config)
        os.sched_setaffinity(0, cores)
        begun = time.perf_counter()
        self._worker.register_kv_caches(caches)
        took = time.perf_counter() - begun
        payload = self._worker.xfer_handshake_metadata.agent_metadata_bytes
        return {"blob": (payload, side.tp_size, side.tp_rank), "register": took}

    def connect(self, blob: tuple[bytes, int, int]) -> float:
        """How long it takes to connect and to plan."""
        payload, size, rank = blob
        worker = self._worker
        begun = time.perf_counter()
        metadata = msgspec.msgpack.Decoder(NixlAgentMetadata).decode(payload)
        name = worker.add_remote_agent(metadata, rank, size)
        took = time.perf_counter() - begun
        # What the end of a handshake records.
        self._peer, self._peer_size = metadata.engine_id, size
        worker._remote_agents[self._peer] = {(0, rank): name}
        worker._engine_clock_offset[self._peer] = 0.0
        worker._engine_last_active[self._peer] = time.perf_counter()
        worker._track_remote_engine_replacement(self._peer, "127.0.0.1", 1)
        return took

    def run(self, local: list[list[int]], remote: list[list[int]], polled: bool) -> tuple[float, float]:
        """Seconds until the post has returned, and until the bytes are there. It can only be polled."""
        self._count += 1
        request = f"request-{self._count}"
        metadata = NixlConnectorMetadata()
        metadata.add_new_req_to_recv(
            request,
            tuple(local),
            {
                "remote_block_ids": tuple(remote),
                "remote_engine_id": self._peer,
                "remote_request_id": request,
                "remote_host": "127.0.0.1",
                "remote_port": 1,
                "tp_size": self._peer_size,
            },
            awaiting_kvs=True,
        )
        worker, finished = self._worker, set()

        def done() -> bool:
            finished.update(worker.get_finished()[1])
            return request in finished

        begun = time.perf_counter()
        worker.start_load_kv(metadata)
        started = time.perf_counter()
        link.poll_until(done)
        ended = time.perf_counter()
        stats = worker.get_kv_connector_stats()
        if stats is not None and any(count for name, count in stats.data.items() if "failed" in name):
            raise RuntimeError(f"the transfer failed: {stats.data}")
        self._descriptors = 0 if stats is None else sum(stats.data["num_descriptors"])
        return started - begun, ended - begun

    def descriptors(self) -> int:
        """Of the last request, after NIXL has joined what it joins."""
        return int(self._descriptors)

    def drain(self) -> int:
        """Takes the notifications that have arrived."""
        return sum(len(each) for each in self._worker.nixl_wrapper.get_new_notifs().values())

    def end(self) -> None:
        """Ends the worker, if there is one."""
        if self._worker is not None:
            self._worker.shutdown()
        self._worker = None

    def version(self) -> str:
        """Of vLLM, for the conditions."""
        return f"vLLM {vllm_version}, torch {torch.__version__}"


if __name__ == "__main__":
    torch.set_num_threads(1)
    if os.environ.get("PEERS_CALM"):
        base_worker.NixlWrapper = CalmAgent
    theirs = Theirs(sys.argv[1])
    names = ("set_up", "connect", "run", "descriptors", "drain", "end", "version")
    link.serve({name: getattr(theirs, name) for name in names})
