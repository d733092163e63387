"""Which bytes a case moves, worked out without either library, and the shortest list of them."""

from __future__ import annotations

import numpy
from numpy.typing import NDArray

from .scenarios import (
    CHANNEL_BYTES,
    CONV_CHANNELS,
    HEAD_ROW,
    KV_HEADS,
    SSM_HEAD_BYTES,
    SSM_HEADS,
    Case,
    Layer,
    Setting,
    placed,
)

# Columns: offset at prefill, offset at decode, length.
Ranges = NDArray[numpy.uint64]


def _shares(setting: Setting, layer: Layer) -> list[tuple[int, int, int]]:
    """Of a page: offset in prefill's, offset in decode's, length."""
    source, target = setting.prefill, setting.decode
    if layer.kind in ("mla", "index"):
        return [(0, 0, setting.model.page_bytes(layer, 1))]
    if layer.kind == "attention":
        parts = [(KV_HEADS, setting.model.block_tokens * HEAD_ROW)]
    else:
        parts = [*((channels, CHANNEL_BYTES) for channels in CONV_CHANNELS), (SSM_HEADS, SSM_HEAD_BYTES)]
    shares, from_source, from_target = [], 0, 0
    for units, size in parts:
        there, here = units // source.tp_size, units // target.tp_size
        first = target.tp_rank * here - source.tp_rank * there
        shares.append((from_source + first * size, from_target, here * size))
        from_source += there * size
        from_target += here * size
    return shares


def ranges(case: Case) -> Ranges:
    """Every range of every page, in the order of decode's memory, joined where both sides go on."""
    setting = case.setting
    local, remote = case.block_ids()
    found = []
    sources, _ = placed(setting, setting.prefill)
    targets, _ = placed(setting, setting.decode)
    for source, target in zip(sources, targets):
        group = source.layer.group
        at_source = source.offset + numpy.array(remote[group], dtype=numpy.uint64) * source.block_stride
        at_target = target.offset + numpy.array(local[group], dtype=numpy.uint64) * target.block_stride
        for from_source, from_target, length in _shares(setting, source.layer):
            lengths = numpy.full(len(at_source), length, numpy.uint64)
            found.append(numpy.stack([at_source + from_source, at_target + from_target, lengths], axis=1))
    listed = numpy.concatenate(found)
    listed = listed[numpy.argsort(listed[:, 1])]
    ends = listed[:, :2] + listed[:, 2:]
    starts = numpy.flatnonzero(numpy.append(True, (listed[1:, :2] != ends[:-1]).any(axis=1)))
    joined = listed[starts]
    joined[:, 2] = numpy.add.reduceat(listed[:, 2], starts)
    return numpy.ascontiguousarray(joined)


def cut(whole: Ranges, longest: int) -> Ranges:
    """The same bytes in pieces of at most so many."""
    counts = -(-whole[:, 2].astype(numpy.int64) // longest)
    index = numpy.repeat(numpy.arange(len(whole)), counts)
    within = (numpy.arange(len(index)) - numpy.repeat(numpy.cumsum(counts) - counts, counts)).astype(numpy.uint64)
    pieces = whole[index]
    pieces[:, :2] += (within * numpy.uint64(longest))[:, None]
    pieces[:, 2] = numpy.minimum(pieces[:, 2] - within * numpy.uint64(longest), longest)
    return pieces
