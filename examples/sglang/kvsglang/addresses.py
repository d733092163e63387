"""Addresses of workers and of their rendezvous: an IPv4 address or a name, and a port that is known before."""

from __future__ import annotations

from .errors import AddressError

HIGHEST_PORT = (1 << 16) - 1


def host(place: str, given: str) -> str:
    """A host that workers can listen on and be reached at; `place` says where it was given.

    # Errors
    `AddressError` for an IPv6 address, and for none.
    """
    if not given or ":" in given:
        raise AddressError(place, given, "an IPv4 address or the name of a host; IPv6 is not served")
    return given


def port(place: str, given: int) -> int:
    """A port at which others look for somebody.

    # Errors
    `AddressError` outside 1 to 65535: at 0 one listens where nobody looks.
    """
    if not 1 <= given <= HIGHEST_PORT:
        raise AddressError(place, str(given), f"a port from 1 to {HIGHEST_PORT}")
    return given


def endpoint(place: str, given: str) -> str:
    """``host:port``.

    # Errors
    `AddressError` if it is none.
    """
    name, _, number = given.rpartition(":")
    if not number.isdecimal():
        raise AddressError(place, given, "host:port")
    host(place, name)
    port(place, int(number))
    return given
