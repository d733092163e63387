"""Imports SGLang's disaggregation modules on a machine without torch and without a GPU.

SGLang's package pulls in torch, triton and most of itself. The modules that move caches need little of that: their
neighbours are replaced here by empty ones with the few names that are looked at, and the accessors that ask a running
engine for its configuration answer from `Settings`. Nothing of SGLang is changed, and every class that a test drives is
the published one.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import logging
import os
import sys
import time
import types
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from .settings import Settings

VERSION = "0.5.23"
"""The release that these replacements fit."""

ENGINE = "sglang.srt"


class MissingEngineError(RuntimeError):
    """The package is not there; the text says how to get it."""


class RequiredEngineError(RuntimeError):
    """The package is not there, and tests against it are not to be skipped."""


def folder() -> Path:
    """Where SGLang's package lies, without importing it.

    # Errors
    `MissingEngineError` if it is not there: tests against it are skipped. With KV_SGLANG_REQUIRED in the environment,
    as CI sets it, `RequiredEngineError`: they fail.
    """
    named = os.environ.get("KV_SGLANG")
    place = Path(named) if named else Path(__file__).parents[4] / ".deps" / "sglang" / "sglang"
    if not (place / "srt" / "disaggregation").is_dir():
        problem = f"sglang {VERSION} is not in {place}; scripts/sglang.sh fetches it"
        if os.environ.get("KV_SGLANG_REQUIRED"):
            raise RequiredEngineError(f"{problem}, and KV_SGLANG_REQUIRED is set")
        raise MissingEngineError(problem)
    return place


def load(settings: Settings) -> types.ModuleType:
    """SGLang's NIXL module, `sglang.srt.disaggregation.nixl.conn`, for a worker of the given place."""
    os.environ["SGLANG_HOST_IP"] = settings.host
    # Its default is a thread that polls without a pause, and eight workers: more than a small machine has cores.
    os.environ.setdefault("SGLANG_DISAGGREGATION_NIXL_BACKEND_PARAMS", '{"num_threads": "1"}')
    os.environ.setdefault("SGLANG_DISAGGREGATION_QUEUE_SIZE", "1")
    # Off by default: a prefill worker says when an aborted request has drained.
    os.environ.setdefault("SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE", "1")
    place = folder()
    _package("sglang", place)
    _package(ENGINE, place / "srt")
    _package(f"{ENGINE}.utils", place / "srt" / "utils", **_helpers())
    for name, attributes in _neighbours(settings).items():
        _module(name, **attributes)
    _host_memory_as_device_memory()
    return importlib.import_module(f"{ENGINE}.disaggregation.nixl.conn")


def _module(name: str, **attributes: Any) -> types.ModuleType:
    module = types.ModuleType(name)
    module.__dict__.update(attributes)
    # `importlib.util.find_spec`, which libraries use to probe for torch, wants one.
    module.__spec__ = importlib.util.spec_from_loader(name, loader=None)
    sys.modules[name] = module
    parent, _, child = name.rpartition(".")
    if parent in sys.modules:
        setattr(sys.modules[parent], child, module)
    return module


def _package(name: str, place: Path, **attributes: Any) -> None:
    module = _module(name, **attributes)
    module.__path__ = [str(place)]


class _Record:
    """Named values: what an accessor of SGLang's configuration returns."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


class _Silent:
    """Takes any call and any attribute: stands for tracing, which is off."""

    tracing_enable = False

    def __getattr__(self, name: str) -> _Silent:
        return self

    def __call__(self, *_args: Any, **_kwargs: Any) -> _Silent:
        return self


class _NoDevice:
    """Stands for torch's device module: there is none to select."""

    def set_device(self, _device: int) -> None:
        """Selects nothing."""


class _Device:
    """Stands for torch's name of a device."""

    def __init__(self, kind: str) -> None:
        self.type = kind


class _StageGroup:
    """Stands for the group of pipeline stages: what one stage broadcasts reaches the others as a file."""

    def __init__(self, settings: Settings) -> None:
        self._rank = settings.pp_rank
        self._file = Path(settings.folder) / "broadcast.json"

    def broadcast_object(self, value: Any, src: int = 0) -> Any:
        """What stage `src` passed; one broadcast in the life of an engine."""
        if self._rank == src:
            part = self._file.with_suffix(".part")
            part.write_text(json.dumps(value))
            part.rename(self._file)
            return value
        end = time.monotonic() + 20
        while not self._file.exists():
            if time.monotonic() > end:
                raise TimeoutError(f"stage {src} broadcast nothing")
            time.sleep(0.01)
        return json.loads(self._file.read_text())


def _unused(*_args: Any, **_kwargs: Any) -> Any:
    raise NotImplementedError("this part of SGLang needs a GPU")


def _decorated(function: Callable[..., Any] | None = None, **_options: Any) -> Any:
    return function if function is not None else lambda inner: inner


def _run(function: Callable[[], Any], *, timeout_s: float, what: str) -> Any:
    del timeout_s, what
    return function()


def _helpers() -> dict[str, Any]:
    return {
        "is_npu": lambda: False,
        "create_device_event": _unused,
        "create_device_stream": _unused,
        "device_stream_context": _unused,
    }


def _neighbours(settings: Settings) -> dict[str, dict[str, Any]]:
    kind = type("Kind", (), {})
    return {
        "torch": {
            "Tensor": kind,
            "dtype": kind,
            "device": _Device,
            "get_device_module": lambda _device: _NoDevice(),
        },
        "torch.distributed": {
            "ProcessGroup": kind,
            "ReduceOp": kind,
            "is_available": lambda: False,
            "is_initialized": lambda: False,
        },
        "torch.cuda": {"is_available": lambda: False},
        "triton": {"jit": _decorated},
        "triton.language": {"constexpr": int},
        "sglang.kernels": {},
        "sglang.kernels.ops": {},
        "sglang.kernels.ops.kvcache": {},
        "sglang.kernels.ops.kvcache.pd_dcp_gather": {"copy_mla_rows_into_pack": _unused},
        "sglang.kernels.ops.memory": {},
        "sglang.kernels.ops.memory.ptr_table": {"make_ptr_table": _unused},
        f"{ENGINE}.configs": {},
        f"{ENGINE}.configs.model_config": {
            "get_dsa_mtp_topk_width": _unused,
            "is_deepseek_dsa": lambda _config: False,
        },
        f"{ENGINE}.distributed": {},
        f"{ENGINE}.distributed.communication_tags": {"P2PTag": kind},
        f"{ENGINE}.distributed.parallel_state": {"GroupCoordinator": kind},
        f"{ENGINE}.mem_cache": {},
        f"{ENGINE}.mem_cache.page_interleave": {"get_kv_shard_group": _unused},
        f"{ENGINE}.observability": {},
        f"{ENGINE}.observability.trace": {"TraceNullContext": _Silent, "TraceReqContext": _Silent},
        f"{ENGINE}.server_args": {"ServerArgs": kind},
        f"{ENGINE}.utils.common": {
            "ceil_align": lambda value, step: -(-value // step) * step,
            "run_with_deadline": _run,
        },
        f"{ENGINE}.runtime_context": _accessors(settings),
    }


def _accessors(settings: Settings) -> dict[str, Callable[[], Any]]:
    """The accessors of SGLang's run-time configuration, with answers for one worker of a small engine."""
    answers: dict[str, Any] = {
        "get_device": _Record(device="cpu"),
        "get_disagg": _Record(
            disaggregation_bootstrap_port=settings.bootstrap_port,
            disaggregation_decode_allocation_policy="early",
            disaggregation_transfer_backend="nixl",
        ),
        "get_observability": _Record(enable_trace=False),
        "get_schedule": _Record(chunked_prefill_size=8192, max_prefill_tokens=16384),
        "get_serving": _Record(host=settings.host, port=0),
        "get_spec": _Record(speculative_algorithm=None, speculative_num_draft_tokens=0),
        "get_parallel": _Record(
            dist_init_addr=None,
            nnodes=1,
            dp_size=1,
            num_dp_ranks=1,
            pp_size=settings.pp_size,
            pp_group=_StageGroup(settings),
            world_group=_StageGroup(settings),
            tp_size=settings.tp_size,
            attn_tp_size=settings.tp_size,
            attn_tp_rank=settings.tp_rank,
            attn_cp_size=1,
            attn_cp_rank=0,
            attn_dcp_size=settings.dcp_size,
            attn_dcp_rank=settings.tp_rank % settings.dcp_size,
            attn_dp_size=1,
            attn_dp_rank=0,
            load_balance_method="follow_bootstrap_room",
            enable_cp_tp_group_sharing=False,
            enable_dsa_cache_layer_split=False,
            enable_kv_cache_sharding=False,
        ),
        "linear_attn_tp_size": settings.tp_size,
        "max_prefill_buffer_tokens": 16384,
    }
    for record in answers.values():
        if isinstance(record, _Record):
            vars(record).update({name: value for name, value in settings.told.items() if name in vars(record)})
    return {name: partial(_same, value) for name, value in answers.items()}


def _same(value: Any) -> Any:
    return value


def _host_memory_as_device_memory() -> None:
    """Lets SGLang's manager call host memory device memory, as it calls all state; NIXL must not.

    `warning_once` is a method that SGLang's engine adds to loggers.
    """
    import nixl._api as api

    logging.Logger.warning_once = logging.Logger.warning  # type: ignore[attr-defined]
    published: Any = api.nixl_agent

    class HostAgent(published):  # type: ignore[misc, valid-type, unused-ignore]
        """NIXL's agent, for which every segment is host memory."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.nixl_mems["VRAM"] = self.nixl_mems["DRAM"]

    if not hasattr(published, "_host_only"):
        HostAgent._host_only = True  # noqa: SLF001
        api.nixl_agent = HostAgent
