"""Ports of loopback that workers are told to listen on.

A port that was only looked at is free for anybody: while a worker starts, the kernel may give it to a connection of its
neighbour. So a socket is bound to it that never listens. The kernel then gives the port to nobody by itself, and a
server, which names it and sets SO_REUSEADDR as servers do, listens there all the same.
"""

from __future__ import annotations

import socket

_held: list[socket.socket] = []


def free_port() -> int:
    """A port that nobody listens on and nobody is given, until `release`."""
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    _held.append(holder)
    return int(holder.getsockname()[1])


def release() -> None:
    """Gives all ports back. Those that are listened on stay their listeners'."""
    while _held:
        _held.pop().close()
