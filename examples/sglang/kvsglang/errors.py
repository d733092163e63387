"""What can be wrong with an engine's lists, indices and peers. Each error has its place and both values."""

from __future__ import annotations

import reprlib


class IntegrationError(Exception):
    """Whatever this integration refuses."""


class ListLengthError(IntegrationError):
    """Two lists that go together have different lengths."""

    def __init__(self, place: str, got: int, other: str, want: int) -> None:
        super().__init__(f"{place} has {got} entries and {other} has {want}; give one for each buffer")
        self.place, self.got, self.other, self.want = place, got, other, want


class PointerError(IntegrationError):
    """A buffer of some length is said to lie at address 0."""

    def __init__(self, place: str, length: int) -> None:
        super().__init__(f"{place} is 0 and its length {length}; give an address")
        self.place, self.length = place, length


class RowLengthError(IntegrationError):
    """The bytes of a row do not fit what the row is said to hold."""

    def __init__(self, place: str, row_bytes: int, unit: str, size: int) -> None:
        super().__init__(f"{place} is {row_bytes} bytes, which is no multiple of {size}, {unit}")
        self.place, self.row_bytes, self.unit, self.size = place, row_bytes, unit, size


class ValueRangeError(IntegrationError):
    """A number is outside its range."""

    def __init__(self, place: str, value: int, lowest: int, highest: int) -> None:
        super().__init__(f"{place} is {value}; it must be from {lowest} to {highest}")
        self.place, self.value, self.lowest, self.highest = place, value, lowest, highest


class ValueKindError(IntegrationError):
    """A value is not of the kind that its place takes."""

    def __init__(self, place: str, value: object, kind: str) -> None:
        super().__init__(f"{place} is {reprlib.repr(value)}; give {kind}")
        self.place, self.value, self.kind = place, value, kind


class StateKindError(IntegrationError):
    """A state component of a kind that cannot be mapped."""

    def __init__(self, place: str, kind: str, known: tuple[str, ...]) -> None:
        super().__init__(f"{place} is {kind!r}; known are {', '.join(known)}")
        self.place, self.kind, self.known = place, kind, known


class LayerError(IntegrationError):
    """Buffers cannot be given to layers by name."""

    def __init__(self, place: str, problem: str, advice: str) -> None:
        super().__init__(f"{place}: {problem}; {advice}")
        self.place, self.problem, self.advice = place, problem, advice


class ConvError(IntegrationError):
    """The sub-blocks of a convolution state do not add up."""

    def __init__(self, place: str, total: int, channels: int, tp_size: int) -> None:
        super().__init__(
            f"{place} adds up to {total} channels and {tp_size} ranks with {channels} each have {channels * tp_size}"
        )
        self.place, self.total, self.channels, self.tp_size = place, total, channels, tp_size


class PageError(IntegrationError):
    """A list of pages that does not fit the pool or the request."""

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(f"{place}: {problem}")
        self.place, self.problem = place, problem


class TooManyPagesError(IntegrationError):
    """A sender was told more pages than it announced."""

    def __init__(self, room: int, announced: int, told: int) -> None:
        super().__init__(f"room {room}: {told} pages sent and {announced} announced")
        self.room, self.announced, self.told = room, announced, told


class PageCountError(IntegrationError):
    """A sender is at its end and has not sent the pages that a decode worker listed."""

    def __init__(self, room: int, sent: int, listed: int, agent: str) -> None:
        super().__init__(f"room {room}: {sent} pages sent in all and {listed} listed by decode worker {agent}")
        self.room, self.sent, self.listed, self.agent = room, sent, listed, agent


class ReadersError(IntegrationError):
    """Decode workers of one request do not ask for the same."""

    def __init__(self, room: int, what: str, one: int, other: int) -> None:
        super().__init__(f"room {room}: {what} is {one} at one decode worker and {other} at another; give all the same")
        self.room, self.what, self.one, self.other = room, what, one, other


class OneSideError(IntegrationError):
    """Something of a request is given on one side and not on the other."""

    def __init__(self, what: str, giver: str, other: str) -> None:
        super().__init__(
            f"{what} is given by the {giver} engine and not by the {other} engine; give it on both or none"
        )
        self.what, self.giver, self.other = what, giver, other


class RoomTakenError(IntegrationError):
    """A second request under the number of one that is not finished."""

    def __init__(self, room: int, holder: str) -> None:
        super().__init__(f"room {room} is taken by {holder}; clear that request first, or choose another number")
        self.room, self.holder = room, holder


class PeerError(IntegrationError):
    """The two engines cannot exchange caches."""

    def __init__(self, what: str, here: object, there: object) -> None:
        super().__init__(f"{what} is {here} here and {there} at the peer; set both engines alike")
        self.what, self.here, self.there = what, here, there


class SettingError(IntegrationError):
    """An engine is set to something that is not served."""

    def __init__(self, setting: str, value: object, only: object) -> None:
        super().__init__(f"{setting} is {value}; only {only} is served, set it to that")
        self.setting, self.value, self.only = setting, value, only


class AddressError(IntegrationError):
    """An address that cannot be listened on or connected to."""

    def __init__(self, place: str, address: str, advice: str) -> None:
        super().__init__(f"{place} is {address!r}; give {advice}")
        self.place, self.address, self.advice = place, address, advice


class TooManyPeersError(IntegrationError):
    """A decode worker for which a prefill worker has no room."""

    def __init__(self, agent: str, known: int, most: int) -> None:
        super().__init__(f"decode worker {agent} is refused: {known} others are known and most_peers is {most}")
        self.agent, self.known, self.most = agent, known, most


class MessageError(IntegrationError):
    """A message of the control socket that cannot be read."""

    def __init__(self, message: str, problem: str) -> None:
        super().__init__(f"{message}: {problem}")
        self.message, self.problem = message, problem


class TransferError(IntegrationError):
    """Why a request failed: what `failure_exception` of a sender or receiver raises."""

    def __init__(self, room: int, reason: str) -> None:
        super().__init__(f"room {room}: {reason}")
        self.room, self.reason = room, reason


def why(error: Exception) -> str:
    """What an error says: that of an integration or a connection as it is, any other with its kind."""
    return str(error) if isinstance(error, (IntegrationError, OSError)) else f"{type(error).__name__}: {error}"
