"""A peer that an agent has connected."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

from . import _declarations as c
from ._handle import Handle, Owner, call, make
from ._library import functions
from ._names import Barrier, Locality, flagged, word
from .spec import Spec


class PeerId(NamedTuple):
    """One life of an agent: another incarnation under the same name is another process."""

    name: str
    incarnation: int


class PeerInfo(NamedTuple):
    """Who a peer is and how it fares.

    `incarnation` is a random number of the peer's agent: another one under the same name is another process.
    `generation` counts its registrations. `unsettled`: transfers with it that have not settled. `barriers`: what keeps
    the kernel from copying, with the locality "same_host_apart". `is_gone`: it is certain that its process is gone.
    """

    name: str
    incarnation: int
    generation: int
    unsettled: int
    locality: Locality
    barriers: tuple[Barrier, ...]
    is_gone: bool


class Peer(Handle):
    """A peer that an agent has connected: plan against its layout, then start transfers with it.

    A newer connection to the same peer replaces this one, and transfers with the old one are refused. Closing it lets
    nothing go: see `Agent.disconnect`.
    """

    __slots__ = ("_agent",)
    _agent: Owner

    def __init__(self) -> None:
        raise TypeError("a Peer is made by Agent.connect")

    @classmethod
    def _wrap(cls, owner: Owner, agent: Owner) -> Peer:
        peer = cls.__new__(cls)
        peer._owner = owner
        peer._agent = agent
        return peer

    def info(self) -> PeerInfo:
        """Who the peer is and how it fares."""
        info = c.PeerInfo()
        peer = self._live()
        call(functions().kvffi_peer_get_info, peer, ctypes.byref(info))
        return PeerInfo(
            (info.name or b"").decode(),
            info.incarnation,
            info.generation,
            info.unsettled,
            word("LOCALITY", info.locality),
            flagged("BARRIER", info.barriers),
            info.is_gone != 0,
        )

    @property
    def id(self) -> PeerId:
        """The peer's name and incarnation."""
        info = self.info()
        return PeerId(info.name, info.incarnation)

    def layout(self) -> Spec:
        """What caches the peer has, to plan against."""
        library = functions()
        return Spec._wrap(make(library.kvffi_spec_free, library.kvffi_peer_get_layout, self._live()))

    def declare_gone(self) -> None:
        """Takes the caller's word that the peer's process has ended, so that failed transfers with it settle.

        While the process lives it may write what it was asked to, into memory that is then used for something else.
        """
        call(functions().kvffi_peer_declare_gone, self._live())
