"""NIXL's Python agent with a progress thread that sleeps 1 ms between two looks.

The binding has no argument for that, and its own never sleeps. On few cores that is the slower way: the thread takes
from those that copy.
"""

from __future__ import annotations

from typing import Any

from nixl._api import nixl_agent, nixl_agent_config
from nixl._bindings import nixlAgent, nixlAgentConfig

_DELAY_US = 1000


class CalmAgent(nixl_agent):
    """Takes what `nixl_agent` takes. Only UCX."""

    def __init__(self, name: str, config: nixl_agent_config | None = None, *, batch: int = 0) -> None:
        super().__init__(name, nixl_agent_config(backends=[]))
        inner = nixlAgentConfig()
        inner.useProgThread = True
        inner.pthrDelay = _DELAY_US
        inner.captureTelemetry = config is not None and config.capture_telemetry
        self.agent = nixlAgent(name, inner)
        params: dict[str, Any] = {}
        if config is not None and config.num_threads:
            params["num_threads"] = str(config.num_threads)
        if batch:
            params["split_batch_size"] = str(batch)
        self.create_backend("UCX", params)
