"""What caches one worker has."""

from __future__ import annotations

import ctypes
import json
import operator
from collections.abc import Iterable, Mapping
from typing import Any

from . import _declarations as c
from ._checked import octets, text
from ._handle import Handle, Owner, call, make, structs, take_text
from ._library import functions
from .errors import SpecError
from .local_plan import LocalPlan


def _number(value: Any) -> int:
    """Numbers of numpy as JSON."""
    return operator.index(value)


class Spec(Handle):
    """What caches one worker has: storages, groups, layers, parts, topology. Validated and immutable.

    What was made from a spec does not need it any more. A spec that was built from tensors keeps them alive.
    """

    __slots__ = ("_keep",)
    _keep: tuple[object, ...]

    def __init__(self) -> None:
        raise TypeError("a Spec is made by Spec.from_json, Spec.from_dict, Tensors, Arrangement or SpecBuilder")

    @classmethod
    def _wrap(cls, owner: Owner, keep: tuple[object, ...] = ()) -> Spec:
        spec = cls.__new__(cls)
        spec._owner = owner
        spec._keep = keep
        return spec

    @classmethod
    def from_json(cls, text: str | bytes) -> Spec:
        """Reads the JSON form. `JsonError` names the field that is wrong, `SpecError` everything that is wrong."""
        data = text.encode() if isinstance(text, str) else octets(text, "the JSON form")
        library = functions()
        return cls._wrap(make(library.kvffi_spec_free, library.kvffi_spec_from_json, data, len(data)))

    @classmethod
    def from_dict(cls, spec: Mapping[str, Any]) -> Spec:
        """Reads the JSON form from Python objects; numbers may be those of numpy."""
        return cls.from_json(json.dumps(dict(spec), default=_number))

    def to_json(self) -> str:
        """The JSON form, indented. Two specs are equal if their texts are."""
        return take_text(functions().kvffi_spec_to_json, self._live())

    def to_dict(self) -> dict[str, Any]:
        """The JSON form as Python objects."""
        spec: dict[str, Any] = json.loads(self.to_json())
        return spec

    def plan_local(self, *, require_whole_rows: bool = False) -> LocalPlan:
        """Plans what this worker registers and advertises.

        `require_whole_rows`: `RowError` unless the layers of every pool lie in one row.
        """
        flags = c.KVFFI_LOCAL_PLAN_REQUIRE_WHOLE_ROWS if require_whole_rows else 0
        library = functions()
        owner = make(library.kvffi_local_plan_free, library.kvffi_local_plan_new, self._live(), flags)
        return LocalPlan._wrap(owner, self._keep)

    def sources(self, remote: Spec, layer: str) -> list[c.Share]:
        """Which ranks of the peer's stage this rank reads a layer from, by rank. `remote` is any rank of the stage."""
        name = text(layer, "layer")
        return list(
            structs(c.Share, functions().kvffi_spec_get_sources, self._live(), Spec._handle_of(remote, "remote"), name)
        )

    def targets(self, remote: Spec, layer: str) -> list[c.Share]:
        """Which ranks of the peer's stage this rank writes a layer to, by rank. `remote` is any rank of the stage."""
        name = text(layer, "layer")
        return list(
            structs(c.Share, functions().kvffi_spec_get_targets, self._live(), Spec._handle_of(remote, "remote"), name)
        )

    def count_readers(self, stages: Iterable[Spec]) -> int:
        """Counts the destination ranks that this rank delivers something to, before it may free a request's blocks.

        `stages`: one rank of each pipeline stage of the destination that is known so far, or every rank where units
        are shared out explicitly.
        """
        owners = [Spec._handle_of(stage, "a stage") for stage in stages]
        pointers = (ctypes.c_void_p * len(owners))(*(owner.value for owner in owners))
        count = ctypes.c_size_t()
        call(functions().kvffi_spec_count_readers, self._live(), pointers, len(owners), ctypes.byref(count))
        return count.value


def check(spec: str | bytes | Mapping[str, Any]) -> tuple[str, ...]:
    """Everything that is wrong with a spec in its JSON form; nothing if it is valid."""
    try:
        with Spec.from_json(spec) if isinstance(spec, (str, bytes)) else Spec.from_dict(spec):
            return ()
    except SpecError as error:
        return error.findings
