"""How transfers are cut."""

from __future__ import annotations

from dataclasses import dataclass

from . import _declarations as c


@dataclass(frozen=True)
class Limits:
    """Bounds on what NIXL is given at once; 0 is the default of each, and of a transfer what its agent has.

    Longest descriptor in bytes, longer ones are cut; most bytes and most descriptors in a request; most requests of one
    transfer that are in progress at once; most bytes and most descriptors of all transfers that have not settled.
    """

    descriptor_bytes: int = 0
    request_bytes: int = 0
    request_descriptors: int = 0
    outstanding_requests: int = 0
    in_flight_bytes: int = 0
    in_flight_descriptors: int = 0

    def _struct(self) -> c.Limits:
        return c.Limits(**vars(self))
