"""What the two engines say to each other over ZMQ: SGLang's frames, and what ours add to them.

    decode to prefill   registration, once for each connection: where the caches lie
                        room, once for each request: which pages to write into
                        ABORT: the request is not wanted any more
    prefill to decode   KV_STATUS: how a request ended
                        ABORT_ACK: nothing of an aborted request is written any more

Frames that SGLang's readers do not know they leave alone, so ours come last.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import MessageError

GUARD = b"NixlMsgGuard"
ABORT = b"ABORT"
ABORT_ACK = b"ABORT_ACK"
STATUS = b"KV_STATUS"
REGISTRATION = b"None"

MOST_REASON = 1000
"""Characters of a reason that are read: it is kept for a while, whoever gives it."""
MOST_HOST = 255
"""Bytes of a host's name or address: more than any has."""

Frames = list[bytes]


@dataclass(frozen=True)
class Registration:
    """Where a decode worker's caches lie, as SGLang's wire has it."""

    host: str
    port: int
    agent: str
    metadata: bytes
    kv_bases: tuple[int, ...]
    aux_bases: tuple[int, ...]
    state_bases: tuple[tuple[int, ...], ...]
    gpu: int
    tp_size: int
    tp_rank: int
    state_rows: tuple[tuple[int, ...], ...]
    """Bytes of a row of each state buffer."""
    state_channels: tuple[tuple[int, ...], ...]
    num_pages: int
    kinds: tuple[str, ...]
    kv_rows: tuple[int, ...]
    """Bytes of a page of each KV buffer."""
    state_layer_ids: tuple[tuple[int, ...], ...]
    kv_layer_ids: tuple[int, ...]
    state_lengths: tuple[tuple[int, ...], ...] = ()
    dcp_size: int = 1
    """Ranks of decode context parallelism; this worker's is its TP rank modulo that."""
    mapped: dict[str, Any] | None = None
    """The worker's spec and groups, if it is one of ours."""

    def frames(self) -> Frames:
        """As it goes over the wire."""
        return [
            GUARD,
            REGISTRATION,
            self.host.encode(),
            _text(self.port),
            self.agent.encode(),
            self.metadata,
            _pack(self.kv_bases, "Q"),
            _pack(self.aux_bases, "Q"),
            _pack_lists(self.state_bases, "Q"),
            _text(self.gpu),
            _text(self.tp_size),
            _text(self.tp_rank),
            _text(self.kv_rows[0] if self.kv_rows else 0),
            _pack_lists(self.state_rows, "I"),
            _pack_lists(self.state_channels, "I"),
            b"",
            b"",
            _text(self.num_pages),
            ",".join(self.kinds).encode(),
            _pack(self.kv_rows, "Q"),
            _pack_lists(self.state_layer_ids, "I"),
            _pack(self.kv_layer_ids, "I"),
            _text(self.dcp_size),
            _text(self.tp_rank % self.dcp_size),
            _pack_lists(self.state_lengths, "Q"),
            b"" if self.mapped is None else json.dumps(self.mapped).encode(),
        ]

    @classmethod
    def parse(cls, frames: Frames) -> Registration:
        """Reads the frames.

        # Errors
        `MessageError` names the frame.
        """
        read = _Reader("registration", frames)
        tp_rank, dcp_size = read.number(11), read.number(22, 1)
        if dcp_size < 1 or read.number(23, 0) != tp_rank % dcp_size:
            raise MessageError(
                "registration", f"TP rank {tp_rank} is no rank {read.text(23)!r} of {dcp_size} by context"
            )
        kv_bases = read.array(6, "Q")
        kinds = read.text(18)
        first_row = read.number(12)
        return cls(
            host=read.host(2),
            port=read.number(3),
            agent=read.text(4),
            metadata=read.frame(5),
            kv_bases=kv_bases,
            aux_bases=read.array(7, "Q"),
            state_bases=read.lists(8, "Q"),
            gpu=read.number(9),
            tp_size=read.number(10),
            tp_rank=tp_rank,
            state_rows=read.lists(13, "I"),
            state_channels=read.lists(14, "I"),
            num_pages=read.number(17, 0),
            kinds=tuple(kinds.split(",")) if kinds else ("VRAM",) * len(kv_bases),
            kv_rows=read.array(19, "Q") or (first_row,) * len(kv_bases),
            state_layer_ids=read.lists(20, "I"),
            kv_layer_ids=read.array(21, "I"),
            state_lengths=read.lists(24, "Q"),
            dcp_size=dcp_size,
            mapped=read.json(25),
        )


@dataclass(frozen=True)
class Room:
    """One request's destination: pages, slots and row of one decode worker."""

    room: int
    host: str
    port: int
    agent: str
    pages: npt.NDArray[np.int32]
    aux: int | None
    num_readers: int
    """Decode workers that the prefill worker hears from for this request."""
    state: tuple[npt.NDArray[np.int32], ...]
    """Rows of each state component; of a ring its six numbers."""
    prefix: int
    """Tokens that the decode worker has already."""
    is_dummy: bool
    """Whether nothing is to be written: another prefill rank serves this worker."""
    generation: int = 0
    """Tells this request from an earlier one under its number, in answers of ours."""

    def frames(self) -> Frames:
        """As it goes over the wire."""
        return [
            GUARD,
            _text(self.room),
            self.host.encode(),
            _text(self.port),
            self.agent.encode(),
            b"" if self.is_dummy else self.pages.astype(np.int32).tobytes(),
            _text(-1 if self.aux is None else self.aux),
            _text(self.num_readers),
            b"" if self.is_dummy else _join([rows.astype(np.int32).tobytes() for rows in self.state]),
            _text(self.prefix),
            _text(int(self.is_dummy)),
            _text(self.generation),
        ]

    @classmethod
    def parse(cls, frames: Frames) -> Room:
        """Reads the frames.

        # Errors
        `MessageError` names the frame.
        """
        read = _Reader("room", frames)
        aux = read.number(6, -1)
        return cls(
            room=read.number(1),
            host=read.host(2),
            port=read.number(3),
            agent=read.text(4),
            pages=read.indices(5),
            aux=None if aux < 0 else aux,
            num_readers=read.number(7),
            state=read.index_lists(8),
            prefix=read.number(9, 0),
            is_dummy=bool(read.number(10, 0)),
            generation=read.number(11, 0),
        )


@dataclass(frozen=True)
class Status:
    """How a request ended at one prefill rank, and whether nothing of it is written there any more.

    SGLang's workers say neither `drained` nor `generation`: to them the end is the end of all writes. Who says a
    generation has to say both.
    """

    room: int
    state: int
    rank: int
    reason: str = ""
    drained: bool = True
    generation: int = 0
    """That of the request; 0 from workers that do not know it."""

    def frames(self) -> Frames:
        """As it goes over the wire."""
        body = [_text(self.room), _text(self.state), _text(self.rank), self.reason.encode()]
        return [STATUS, *body, b"1" if self.drained else b"0", _text(self.generation)]

    @classmethod
    def parse(cls, frames: Frames) -> Status:
        """Reads the frames.

        # Errors
        `MessageError` names the frame.
        """
        read = _Reader("status", frames)
        generation = read.number(6, 0)
        drained = bool(read.number(5, 0 if generation else 1))
        return cls(read.number(1), read.number(2), read.number(3), read.reason(4), drained, generation)


@dataclass(frozen=True)
class Abort:
    """A decode worker gives a request up, and asks to hear when nothing is written any more."""

    room: int
    host: str = ""
    port: int = 0
    generation: int | None = None
    reason: str = ""

    def frames(self) -> Frames:
        """As it goes over the wire."""
        frames = [ABORT, _text(self.room), self.host.encode(), _text(self.port)]
        return frames if self.generation is None else [*frames, _text(self.generation), self.reason.encode()]

    @classmethod
    def parse(cls, frames: Frames) -> Abort:
        """Reads the frames.

        # Errors
        `MessageError` names the frame.
        """
        read = _Reader("abort", frames)
        generation = read.number(4, -1)
        port = read.number(3, 0)
        return cls(read.number(1), read.host(2), port, None if generation < 0 else generation, read.reason(5))


@dataclass(frozen=True)
class AbortAck:
    """Nothing of an aborted request is written by one prefill rank any more."""

    room: int
    rank: int
    generation: int

    def frames(self) -> Frames:
        """As it goes over the wire."""
        return [ABORT_ACK, _text(self.room), _text(self.rank), _text(self.generation)]

    @classmethod
    def parse(cls, frames: Frames) -> AbortAck:
        """Reads the frames.

        # Errors
        `MessageError` names the frame.
        """
        read = _Reader("abort acknowledgement", frames)
        return cls(read.number(1), read.number(2), read.number(3, 0))


class _Reader:
    """Frames of one message; one that is missing is empty."""

    def __init__(self, name: str, frames: Frames) -> None:
        self._name, self._frames = name, frames

    def frame(self, index: int) -> bytes:
        return self._frames[index] if index < len(self._frames) else b""

    def text(self, index: int) -> str:
        return self.frame(index).decode(errors="replace")

    def number(self, index: int, default: int | None = None) -> int:
        frame = self.frame(index)
        if not frame and default is not None:
            return default
        try:
            return int(frame.decode())
        except ValueError:
            raise MessageError(self._name, f"frame {index} is {frame[:20]!r} and no number") from None

    def reason(self, index: int) -> str:
        return self.text(index)[:MOST_REASON]

    def host(self, index: int) -> str:
        if len(self.frame(index)) > MOST_HOST:
            raise MessageError(
                self._name, f"frame {index} has {len(self.frame(index))} bytes, and a host {MOST_HOST} at most"
            )
        return self.text(index)

    def array(self, index: int, kind: str) -> tuple[int, ...]:
        return self._unpack(index, self.frame(index), kind)

    def indices(self, index: int) -> npt.NDArray[np.int32]:
        return self._view(index, self.frame(index))

    def lists(self, index: int, kind: str) -> tuple[tuple[int, ...], ...]:
        return tuple(self._unpack(index, piece, kind) for piece in self._pieces(index))

    def index_lists(self, index: int) -> tuple[npt.NDArray[np.int32], ...]:
        return tuple(self._view(index, piece) for piece in self._pieces(index))

    def _pieces(self, index: int) -> list[bytes]:
        frame = self.frame(index)
        if not frame:
            return []
        try:
            (count,) = struct.unpack_from("<I", frame)
            sizes = struct.unpack_from(f"<{count}I", frame, 4)
        except struct.error:
            raise MessageError(self._name, f"frame {index} ends inside its header") from None
        start, pieces = 4 + 4 * count, []
        if start + sum(sizes) != len(frame):
            raise MessageError(self._name, f"frame {index} has {len(frame)} bytes and says {start + sum(sizes)}")
        for size in sizes:
            pieces.append(frame[start : start + size])
            start += size
        return pieces

    def json(self, index: int) -> dict[str, Any] | None:
        frame = self.frame(index)
        if not frame:
            return None
        try:
            value = json.loads(frame)
        except ValueError as error:
            raise MessageError(self._name, f"frame {index} is no JSON: {error}") from None
        if not isinstance(value, dict):
            raise MessageError(self._name, f"frame {index} is no JSON object")
        return value

    def _unpack(self, index: int, data: bytes, kind: str) -> tuple[int, ...]:
        return struct.unpack(f"<{self._count(index, data, struct.calcsize(f'<{kind}'))}{kind}", data)

    def _view(self, index: int, data: bytes) -> npt.NDArray[np.int32]:
        # Every request has some of these, of thousands of pages: nothing is done with each by itself.
        return np.frombuffer(data, dtype="<i4", count=self._count(index, data, 4))

    def _count(self, index: int, data: bytes, width: int) -> int:
        if len(data) % width:
            raise MessageError(self._name, f"frame {index} has {len(data)} bytes and items of {width}")
        return len(data) // width


def _text(value: int) -> bytes:
    return str(value).encode()


def _pack(values: Sequence[int], kind: str) -> bytes:
    return struct.pack(f"<{len(values)}{kind}", *values)


def _pack_lists(lists: Sequence[Sequence[int]], kind: str) -> bytes:
    return _join([_pack(values, kind) for values in lists])


def _join(packed: Sequence[bytes]) -> bytes:
    if not packed:
        return b""
    return struct.pack(f"<{len(packed) + 1}I", len(packed), *map(len, packed)) + b"".join(packed)
