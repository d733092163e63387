"""Describe an inference worker's KV caches, plan transfers between two workers, and move them over NIXL.

A Python face of kvffi.h, the C ABI: it adds no logic. Words and rules are those of the header.

    a spec     `Tensors` (the engine has tensors), `Arrangement` (it asks where to put them), `SpecBuilder` (it knows
               every offset), `Spec.from_json`, `Spec.from_dict`
    a plan     `Pair` of two specs; `Pair.explain` says what a block costs, and why
    an answer  `Pair.answer` for lists of blocks, then `Answer.descriptors`, a numpy array

Objects free what they hold when they are closed, at the end of a `with` block, or when nothing refers to them. What
fails raises an `Error` with a status, a text and findings. Every call releases the GIL. numpy is needed only for what
returns its arrays, torch for nothing.
"""

from ._declarations import AnswerTotals, Descriptor, MemoryRange, Region, Share, ZeroRange
from ._library import library_path
from ._names import Conv, Element, Kind, Layout, Mem, Op, Packing, Role, Rows, Sharding, Span, Usage
from .answer import Answer
from .arrangement import Arrangement, Pool
from .builder import Part, SpecBuilder
from .errors import (
    ArgumentError,
    BusyError,
    Error,
    JsonError,
    PairError,
    ProofError,
    RequestError,
    RowError,
    SpecError,
)
from .local_plan import LocalPlan, Member
from .page import Page
from .pair import GAP_ANY, Pair
from .request import HOLE, BlockList, Request
from .spec import Spec, check
from .tensor import TensorView
from .tensors import Tensors
from .worker import Group, Storage, Worker

__all__ = [
    "GAP_ANY",
    "HOLE",
    "Answer",
    "AnswerTotals",
    "ArgumentError",
    "Arrangement",
    "BlockList",
    "BusyError",
    "Conv",
    "Descriptor",
    "Element",
    "Error",
    "Group",
    "JsonError",
    "Kind",
    "Layout",
    "LocalPlan",
    "Mem",
    "Member",
    "MemoryRange",
    "Op",
    "Packing",
    "Page",
    "Pair",
    "PairError",
    "Part",
    "Pool",
    "ProofError",
    "Region",
    "Request",
    "RequestError",
    "Role",
    "RowError",
    "Rows",
    "Sharding",
    "Share",
    "Span",
    "Spec",
    "SpecBuilder",
    "SpecError",
    "Storage",
    "TensorView",
    "Tensors",
    "Usage",
    "Worker",
    "ZeroRange",
    "check",
    "library_path",
    "version",
]


def version() -> str:
    """Version of the library that is loaded, such as "0.1.0"."""
    from ._library import functions

    return (functions().kvffi_version_text() or b"").decode()
