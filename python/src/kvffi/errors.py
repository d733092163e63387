"""What a failed call raises.

Every exception has the status number and its name, the full text, and the findings where several things are wrong:

    try:
        kvffi.Spec.from_dict(spec)
    except kvffi.SpecError as error:
        for finding in error.findings:
            print(finding)
"""

from __future__ import annotations

from . import _declarations as c


class Error(Exception):
    """A call failed.

    `status` is the negative number that kvffi.h lists, `name` its name, `message` the full text, and `findings` what
    is wrong one by one; it is empty where a call fails for one reason.
    """

    def __init__(self, status: int, name: str, message: str, findings: tuple[str, ...] = ()) -> None:
        super().__init__(status, name, message, findings)
        self.status = status
        self.name = name
        self.message = message
        self.findings = findings

    def __str__(self) -> str:
        return f"{self.name}: {self.message}"


class ArgumentError(Error, ValueError):
    """An argument is outside its range: an unknown number or flag, an index that does not exist, a text not UTF-8."""


class NumberError(ArgumentError, OverflowError):
    """A number does not fit, such as a negative one where something is counted."""


class BusyError(Error):
    """Another thread is using an object that takes one call at a time. Nothing was changed; try again.

    It comes only now and then: use such an object in one thread, or under a lock. See `Exchange`.
    """


class JsonError(Error, ValueError):
    """A text is not the JSON that was expected; the message has the path of the field."""


class SpecError(Error, ValueError):
    """A spec contradicts itself; the findings say everything that is wrong with it."""


class PairError(Error):
    """Two workers cannot exchange caches; the findings say all reasons."""


class RequestError(Error, ValueError):
    """A request cannot be answered."""


class RowError(Error):
    """Whole rows are required, and the caches do not lie in whole rows."""


class ProofError(Error):
    """An answer does not bring exactly the bytes that its request needs: a defect of the library."""


class LibraryError(Error):
    """NIXL cannot be loaded, or another one is; the message lists the places looked at."""


class TransportError(Error):
    """NIXL, or the loopback, failed or refused something."""


class DeviceError(Error):
    """Memory of a kind that cannot be used here: no GPU, no driver."""


class OrderError(Error):
    """A call came too early or too late: no memory is registered, or some is already."""


class InUse(Error):
    """Something is still in use: transfers have not settled, or an exchange needs the agent."""


class ShutDown(Error):
    """The agent has been shut down."""


class OutOfRange(Error, ValueError):
    """Bytes outside of registered memory, or memory ranges that overlap, contradict their spec, or cannot be used."""


class PeerGone(Error):
    """The peer was replaced by a newer connection, disconnected, or is another agent's."""


class BlobError(Error, ValueError):
    """Bytes are not a peer's blob that this version can use, or it is older than what is known of the peer."""


class StaleBlob(BlobError):
    """A blob is older than what is known of the peer, or its process has ended, as after a restart: fetch it again."""


class WouldBlock(Error):
    """As much is in flight as is allowed; try again when some of it has settled."""


class TransferError(Error):
    """A transfer failed."""


class TransferFailed(TransferError):
    """A transfer failed and has settled: nothing can land any more, its blocks may be used again."""


class TransferUnsettled(TransferError):
    """A transfer failed and has not settled: bytes may still land, its blocks must not be used again."""


class LeftUnsettled(Error):
    """An agent ended with transfers that have not settled: their memory stays mapped, unused, for ever."""


class RequestHeld(Error):
    """The request's blocks are held under a lease already."""


class WriteRefused(Error):
    """A part of a request cannot be written now, or never; the message says why."""


class PeerNotReady(Error):
    """No transfer may start with a peer; `Exchange.want` says what to do."""


class LeaseEnded(Error):
    """A lease was not good when the last byte had been read: the bytes must not be used."""


class NotReady(Error):
    """A request was read before its producer had computed all of it. Its lease goes on."""


class Refused(Error):
    """A producer refused a registration; the message has its reason."""


class Deadline(Error):
    """As what ended something: time ran out."""


class Cancelled(Error):
    """As what ended something: it was cancelled."""


class NotWritten(Error):
    """As what ended a reservation: a producer will not write everything."""


class Forked(Error):
    """The object was made before a fork, by the parent process; or the parent made an agent on NIXL before the fork.

    NIXL does not survive a fork: start workers with multiprocessing's "spawn" or "forkserver", or before the first
    agent.
    """


def refused_number(message: str) -> NumberError:
    """What a number raises that does not fit, before C sees it."""
    return NumberError(c.KVFFI_ERR_INVALID_ARGUMENT, "KVFFI_ERR_INVALID_ARGUMENT", message)


# What is not listed is an Error.
CLASSES: dict[int, type[Error]] = {
    c.KVFFI_ERR_NULL: ArgumentError,
    c.KVFFI_ERR_INVALID_ARGUMENT: ArgumentError,
    c.KVFFI_ERR_NOT_UTF8: ArgumentError,
    c.KVFFI_ERR_TOO_LARGE: ArgumentError,
    c.KVFFI_ERR_BUSY: BusyError,
    c.KVFFI_ERR_JSON: JsonError,
    c.KVFFI_ERR_INVALID_SPEC: SpecError,
    c.KVFFI_ERR_PAIR_REFUSED: PairError,
    c.KVFFI_ERR_REQUEST_REFUSED: RequestError,
    c.KVFFI_ERR_ROW_BROKEN: RowError,
    c.KVFFI_ERR_NOT_PROVEN: ProofError,
    c.KVFFI_ERR_NO_LIBRARY: LibraryError,
    c.KVFFI_ERR_TRANSPORT: TransportError,
    c.KVFFI_ERR_NO_DEVICE: DeviceError,
    c.KVFFI_ERR_WRONG_ORDER: OrderError,
    c.KVFFI_ERR_IN_USE: InUse,
    c.KVFFI_ERR_SHUT_DOWN: ShutDown,
    c.KVFFI_ERR_OUT_OF_RANGE: OutOfRange,
    c.KVFFI_ERR_PEER_GONE: PeerGone,
    c.KVFFI_ERR_BLOB: BlobError,
    c.KVFFI_ERR_STALE_BLOB: StaleBlob,
    c.KVFFI_ERR_WOULD_BLOCK: WouldBlock,
    c.KVFFI_ERR_TRANSFER_FAILED: TransferFailed,
    c.KVFFI_ERR_TRANSFER_UNSETTLED: TransferUnsettled,
    c.KVFFI_ERR_LEFT_UNSETTLED: LeftUnsettled,
    c.KVFFI_ERR_FORKED: Forked,
    c.KVFFI_ERR_REQUEST_HELD: RequestHeld,
    c.KVFFI_ERR_WRITE_REFUSED: WriteRefused,
    c.KVFFI_ERR_PEER_NOT_READY: PeerNotReady,
    c.KVFFI_ERR_LEASE_ENDED: LeaseEnded,
    c.KVFFI_ERR_NOT_READY: NotReady,
    c.KVFFI_ERR_REFUSED: Refused,
    c.KVFFI_ERR_DEADLINE: Deadline,
    c.KVFFI_ERR_CANCELLED: Cancelled,
    c.KVFFI_ERR_NOT_WRITTEN: NotWritten,
}
