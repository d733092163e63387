"""What a manager is told beside the engine's lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from . import addresses


@dataclass(frozen=True)
class Options:
    """Settings of a manager. Times are in seconds.

    # Errors
    `AddressError` for a `host` or `bootstrap` that is none.
    """

    host: str = "127.0.0.1"
    """Address at which this worker listens."""
    bootstrap: str = ""
    """``host:port`` of the rendezvous: where a prefill worker registers."""
    model: str = ""
    """Name of the model; workers of different models do not meet."""
    engine: str = ""
    """Name of a decode engine, the same on all of its ranks: tells them from another engine's that use a number at the
    same time."""
    device: str | dict[str, int] | None = None
    """Memory of the caches: ``"dram"``, ``{"vram": 0}``, or None for the GPU that KVArgs names."""
    total_layers: int | None = None
    """Layers of the whole target model: needed where an engine gives no layer ids and has pipeline stages."""
    stages: tuple[range, ...] = ()
    """Layers of each pipeline stage of a prefill engine that is not ours; a draft's count on from the model's."""
    layers: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Layers of the whole model that have pages (``"kv"``) or state of a kind: needed with pipeline stages where an
    engine gives neither their ids nor a buffer for every layer. Both engines need them then."""
    ring_slots: int | None = None
    """Slots of a request's ring of `dsa_tail`, of which KVArgs has only the bytes."""
    waiting_timeout: float = 300.0
    """How long a receiver waits for its bytes."""
    bootstrap_timeout: float = 300.0
    """How long a sender waits for the decode workers' pages, and they for a sender. For so long the end of a request of
    which only a part had come is known to the rest."""
    heartbeat: float = 2.0
    """Between two looks at a prefill engine's rendezvous."""
    heartbeat_failures: int = 2
    """Looks that must fail before the engine is taken for lost."""
    close_timeout: float = 5.0
    """How long a decode worker that closes waits until nobody writes into its pages any more."""
    most_peers: int = 4096
    """Decode workers that a prefill worker knows at once; beside so many that may still ask, a new one is refused. Of
    either role, connections that are kept to others: each takes two of the files that the process may have open."""
    backend: str = "UCX"
    """NIXL's."""
    most_bytes: int = 1 << 20
    """A post may copy all of its bytes inside the call: more than so many are posted in pieces."""
    most_posts: int = 16
    """Posts of one transfer that are under way at once: an abort waits for no more than these."""
    most_in_flight: int = 0
    """Bytes of all transfers that have not settled, 0 for the agent's default of 64 GiB. What exceeds it waits; a chunk
    that does so by itself is posted when nothing else is under way."""

    def __post_init__(self) -> None:
        addresses.host("host", self.host)
        if self.bootstrap:
            addresses.endpoint("bootstrap", self.bootstrap)
