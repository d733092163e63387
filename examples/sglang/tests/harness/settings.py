"""Which worker of which engine a process is."""

from __future__ import annotations

from dataclasses import dataclass


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
