"""Describe an inference worker's KV caches, plan transfers between two workers, and move them over NIXL.

A Python face of kvffi.h, the C ABI: it adds no logic. Words and rules are those of the header.

    a spec     `Tensors` (the engine has tensors), `Arrangement` (it asks where to put them), `SpecBuilder` (it knows
               every offset), `Spec.from_json`, `Spec.from_dict`
    a plan     `Pair` of two specs; `Pair.explain` says what a block costs, and why
    an answer  `Pair.answer` for lists of blocks, then `Answer.descriptors`, a numpy array
    an agent   `Agent` registers memory, connects peers by their blobs, starts transfers and sends notifications
    a transfer `Transfer.poll`, `Transfer.wait`
    a request  `Exchange` holds its blocks under a lease, pulls it or has it written, and says when blocks may be used

Objects free what they hold when they are closed, at the end of a `with` block, or when nothing refers to them. What
fails raises an `Error` with a status, a text and findings. Every call releases the GIL. numpy is needed only for what
returns its arrays, torch for nothing.
"""

from ._declarations import (
    AgentStats,
    AnswerTotals,
    Bucket,
    Descriptor,
    ExchangeStats,
    MemoryRange,
    QuarantinedRange,
    Region,
    Share,
    TransferStats,
    ZeroRange,
)
from ._library import library_path
from ._names import (
    Barrier,
    Conv,
    Element,
    Fault,
    Histogram,
    Kind,
    Layout,
    Locality,
    LogLevel,
    Mem,
    Op,
    Packing,
    Role,
    Rows,
    Sharding,
    Span,
    Usage,
)
from ._time import DEFAULT_DEADLINE
from .agent import Agent, AgentInfo, NixlOptions, Notification
from .answer import Answer
from .arrangement import Arrangement, Pool
from .builder import Part, SpecBuilder
from .errors import (
    ArgumentError,
    BlobError,
    BusyError,
    Cancelled,
    Deadline,
    DeviceError,
    Error,
    Forked,
    InUse,
    JsonError,
    LeaseEnded,
    LeftUnsettled,
    LibraryError,
    NotReady,
    NotWritten,
    NumberError,
    OrderError,
    OutOfRange,
    PairError,
    PeerGone,
    PeerNotReady,
    ProofError,
    Refused,
    RequestError,
    RequestHeld,
    RowError,
    ShutDown,
    SpecError,
    StaleBlob,
    TransferError,
    TransferFailed,
    TransferUnsettled,
    TransportError,
    WouldBlock,
    WriteRefused,
)
from .event import Event, EventKind, Why
from .exchange import Exchange, ExchangeOptions, PullPart, PushId, PushSource, Wanted
from .limits import Limits
from .local_plan import LocalPlan, Member
from .logs import LogRecord, Logs
from .loopback import Loopback
from .page import Page
from .pair import GAP_ANY, Pair
from .peer import Peer, PeerId, PeerInfo
from .quarantine import Quarantined
from .request import HOLE, BlockList, Request
from .spec import Spec, check
from .tensor import TensorView
from .tensors import Tensors
from .transfer import State, Transfer
from .worker import Group, Storage, Worker

__all__ = [
    "DEFAULT_DEADLINE",
    "GAP_ANY",
    "HOLE",
    "Agent",
    "AgentInfo",
    "AgentStats",
    "Answer",
    "AnswerTotals",
    "ArgumentError",
    "Arrangement",
    "Barrier",
    "BlobError",
    "BlockList",
    "Bucket",
    "BusyError",
    "Cancelled",
    "Conv",
    "Deadline",
    "Descriptor",
    "DeviceError",
    "Element",
    "Error",
    "Event",
    "EventKind",
    "Exchange",
    "ExchangeOptions",
    "ExchangeStats",
    "Fault",
    "Forked",
    "Group",
    "Histogram",
    "InUse",
    "JsonError",
    "Kind",
    "Layout",
    "LeaseEnded",
    "LeftUnsettled",
    "LibraryError",
    "Limits",
    "LocalPlan",
    "Locality",
    "LogLevel",
    "LogRecord",
    "Logs",
    "Loopback",
    "Mem",
    "Member",
    "MemoryRange",
    "NixlOptions",
    "NotReady",
    "NotWritten",
    "Notification",
    "NumberError",
    "Op",
    "OrderError",
    "OutOfRange",
    "Packing",
    "Page",
    "Pair",
    "PairError",
    "Part",
    "Peer",
    "PeerGone",
    "PeerId",
    "PeerInfo",
    "PeerNotReady",
    "Pool",
    "ProofError",
    "PullPart",
    "PushId",
    "PushSource",
    "Quarantined",
    "QuarantinedRange",
    "Refused",
    "Region",
    "Request",
    "RequestError",
    "RequestHeld",
    "Role",
    "RowError",
    "Rows",
    "Sharding",
    "Share",
    "ShutDown",
    "Span",
    "Spec",
    "SpecBuilder",
    "SpecError",
    "StaleBlob",
    "State",
    "Storage",
    "TensorView",
    "Tensors",
    "Transfer",
    "TransferError",
    "TransferFailed",
    "TransferStats",
    "TransferUnsettled",
    "TransportError",
    "Usage",
    "Wanted",
    "Why",
    "Worker",
    "WouldBlock",
    "WriteRefused",
    "ZeroRange",
    "check",
    "library_path",
    "version",
]


def version() -> str:
    """Version of the library that is loaded, such as "0.1.0"."""
    from ._library import functions

    return (functions().kvffi_version_text() or b"").decode()
