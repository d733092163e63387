"""Moves bytes inside one process, as a plan says: the planner's answers without any transport."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import kvffi

from kvsglang.lists import Lists, Place, read
from kvsglang.mapping import Mapped, map_lists
from kvsglang.options import Options
from kvsglang.requests import Move, request

from .model import Model, Worker
from .settings import Settings


def lists_of(model: Model, worker: Worker, **changed: Any) -> Lists:
    """A worker's checked lists, after changes to what it registers."""
    return read(
        SimpleNamespace(**{**worker.lists, **changed}), Options(device="dram", **model.options()), is_mla=model.mla
    )


def mapped(model: Model, worker: Worker, place: Settings) -> Mapped:
    """A worker's spec."""
    where = Place(place.tp_rank, place.tp_size, place.pp_rank, place.pp_size)
    return map_lists(lists_of(model, worker), where)


def push(source: Mapped, destination: Mapped, moves: list[Move]) -> int:
    """Plans a push between two workers of this process, proves it, copies, and returns the number of descriptors."""
    pair = kvffi.Pair(kvffi.Spec.from_dict(source.spec), kvffi.Spec.from_dict(destination.spec), op="write")
    answer = pair.answer(request(source, destination, moves))
    pair.verify(answer)
    ours, theirs = source.spec["storages"], destination.spec["storages"]
    descriptors = answer.descriptors()
    for d in descriptors:
        ctypes.memmove(
            theirs[d["remote_storage"]]["base"] + int(d["remote_offset"]),
            ours[d["local_storage"]]["base"] + int(d["local_offset"]),
            int(d["len"]),
        )
    return len(descriptors)
