"""A plan between this worker and one peer."""

from __future__ import annotations

import ctypes
import json
from typing import Any

from . import _declarations as c
from ._checked import octets
from ._handle import Handle, call, make, take_text
from ._library import functions
from ._names import Op, number
from .answer import Answer
from .request import Request, packed
from .spec import Spec

# As `max_gap`: any gap may be bridged.
GAP_ANY = c.KVFFI_GAP_ANY


class Pair(Handle):
    """A plan for one pair of workers and one direction. Immutable; any number of threads may use one.

    `op`: "read" is from remote to local, "write" from local to remote. `max_gap`: longest gap, in bytes, that may
    travel as padding to save a descriptor; at 0 no byte is written that the destination does not declare. `min_run`:
    shortest run along the token axis, in bytes, that is accepted. `require_whole_rows`: refuse a pair in which a block
    is more than one descriptor.

    `PairError` if the two cannot exchange caches, with every reason as a finding. A pair in which other ranks serve
    everything gives a plan that moves nothing.
    """

    __slots__ = ()

    def __init__(
        self,
        local: Spec,
        remote: Spec,
        *,
        op: Op = "read",
        max_gap: int = 0,
        min_run: int = 0,
        require_whole_rows: bool = False,
    ) -> None:
        options = c.PairOptions(
            op=number("OP", op),
            flags=c.KVFFI_PAIR_REQUIRE_WHOLE_ROWS if require_whole_rows else 0,
            max_gap=max_gap,
            min_run=min_run,
        )
        library = functions()
        arguments = (Spec._handle_of(local, "local"), Spec._handle_of(remote, "remote"), ctypes.byref(options))
        self._owner = make(library.kvffi_pair_free, library.kvffi_pair_new, *arguments)

    @property
    def is_empty(self) -> bool:
        """Whether this pair exchanges nothing, whatever the request: other ranks serve everything."""
        empty = ctypes.c_int32()
        call(functions().kvffi_pair_is_empty, self._live(), ctypes.byref(empty))
        return empty.value != 0

    def answer(self, request: Request, into: Answer | None = None) -> Answer:
        """Works out which bytes a request moves. Nothing is moved.

        `into` is an answer to reuse; without one a new answer is made. `RequestError` if the request cannot be
        answered: unknown groups or blocks, a destination block twice, a hole at the source; `into` is empty then.
        """
        answer = Answer() if into is None else into
        arguments = (self._live(), packed(request), Answer._handle_of(answer, "into"))
        call(functions().kvffi_pair_answer, *arguments)
        return answer

    def answer_json(self, request: str | bytes | dict[str, Any], into: Answer | None = None) -> Answer:
        """Like `answer`, for a request in its JSON form, as a text or as Python objects."""
        if isinstance(request, dict):
            request = json.dumps(request)
        data = request.encode() if isinstance(request, str) else octets(request, "the JSON form")
        answer = Answer() if into is None else into
        call(functions().kvffi_pair_answer_json, self._live(), data, len(data), Answer._handle_of(answer, "into"))
        return answer

    def explain(self) -> str:
        """What a block costs, and for every row that is not one descriptor, why and what would mend it."""
        return take_text(functions().kvffi_pair_explain, self._live(), c.KVFFI_FORM_TEXT)

    def explain_dict(self) -> dict[str, Any]:
        """Like `explain`, as Python objects with a "schema"."""
        explained: dict[str, Any] = json.loads(
            take_text(functions().kvffi_pair_explain, self._live(), c.KVFFI_FORM_JSON)
        )
        return explained

    def verify(self, answer: Answer) -> None:
        """Proves an answer by a second derivation, for tests and for doubt; `ProofError` if it does not hold.

        It costs many times what the answer did.
        """
        call(functions().kvffi_pair_verify, self._live(), Answer._handle_of(answer, "answer"))
