"""Which worker of which engine a process is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Settings:
    """Place of one worker, and where its engine's rendezvous listens. Ranks count from 0."""

    role: str
    """``"prefill"`` or ``"decode"``."""
    bootstrap_port: int
    """Port of the prefill engine's rendezvous, on loopback."""
    tp_rank: int = 0
    tp_size: int = 1
    pp_rank: int = 0
    pp_size: int = 1
    host: str = "127.0.0.1"
    dcp_size: int = 1
    """Ranks that decode context parallelism deals tokens to."""
    folder: str = ""
    """Where the processes of one engine leave each other a file; needed with several stages."""
    told: Mapping[str, Any] = field(default_factory=dict)
    """What of SGLang's configuration is otherwise than these replacements have it, by name."""
