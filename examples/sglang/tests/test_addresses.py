"""Addresses that cannot be listened on, or at which nobody would look, are refused where they are given."""

from __future__ import annotations

import socket

import pytest
from harness.ports import free_port

from kvsglang.errors import AddressError
from kvsglang.options import Options
from kvsglang.rendezvous import BootstrapServer


@pytest.mark.parametrize(
    ("host", "port", "says"),
    [
        ("::", 8000, "host of the rendezvous is '::'; give an IPv4 address or the name of a host"),
        ("::1", 8000, "host of the rendezvous is '::1'"),
        ("", 8000, "host of the rendezvous is ''"),
        ("127.0.0.1", 0, "port of the rendezvous is '0'; give a port from 1 to 65535"),
        ("127.0.0.1", 65536, "port of the rendezvous is '65536'"),
    ],
)
def test_a_rendezvous_that_nobody_could_find_does_not_begin(host: str, port: int, says: str) -> None:
    with pytest.raises(AddressError) as refused:
        BootstrapServer(host, port)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"host": "::1"}, "host is '::1'; give an IPv4 address or the name of a host; IPv6 is not served"),
        ({"host": ""}, "host is ''"),
        ({"bootstrap": "127.0.0.1:0"}, "bootstrap is '0'; give a port from 1 to 65535"),
        ({"bootstrap": "127.0.0.1:99999"}, "bootstrap is '99999'"),
        ({"bootstrap": "127.0.0.1"}, "bootstrap is '127.0.0.1'; give host:port"),
        ({"bootstrap": "127.0.0.1:http"}, "bootstrap is '127.0.0.1:http'; give host:port"),
        ({"bootstrap": "[::1]:8000"}, "bootstrap is '[::1]'; give an IPv4 address"),
        ({"bootstrap": ":8000"}, "bootstrap is ''"),
    ],
)
def test_a_manager_is_not_told_to_be_or_look_where_nobody_is(options: dict[str, str], says: str) -> None:
    with pytest.raises(AddressError) as refused:
        Options(**options)  # type: ignore[arg-type]
    assert says in str(refused.value)


def test_names_and_every_ipv4_address_are_addresses() -> None:
    assert Options(host="localhost", bootstrap="a-host.example:65535").bootstrap == "a-host.example:65535"
    BootstrapServer("0.0.0.0", free_port()).close()


def test_a_free_port_is_for_the_server_that_names_it() -> None:
    port = free_port()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 5)
    BootstrapServer("127.0.0.1", port).close()
