"""Where the bytes of a row lie: parts of a spec, in its JSON form (docs/JSON.md)."""

from __future__ import annotations

from typing import Any

from .errors import ConvError, RowLengthError, ValueRangeError
from .lists import Component, Lists, Place
from .naming import Named

Part = dict[str, Any]


def heads(named: Named, storage: int, lists: Lists, place: Place) -> Part:
    """A page of KV heads, split over TP. One in an order of the kernel's own is whole."""
    row, tokens, num_heads = named.buffer.row_bytes, lists.page_tokens, lists.num_heads
    if lists.page_order not in ("nhd", "hnd"):
        return whole(named, storage, f"{lists.dtype} {lists.page_order}", tokens, place)
    if row % (tokens * num_heads):
        unit = f"{tokens} tokens of {num_heads} heads"
        raise RowLengthError(named.buffer.beside("item_lens"), row, unit, tokens * num_heads)
    content = row // (tokens * num_heads)
    is_head_major = lists.page_order == "hnd"
    per_head, per_token = (tokens * content, content) if is_head_major else (content, num_heads * content)
    return {
        **_frame(named, storage, lists.dtype),
        "sharding": {"total": lists.total_heads},
        "units": {"count": num_heads, "stride": per_head},
        "tokens": [{"count": tokens, "stride": per_token}],
        "content": content,
    }


def rows(named: Named, storage: int, lists: Lists) -> Part:
    """A page of rows of tokens that every rank has: MLA's latents."""
    row, tokens = named.buffer.row_bytes, lists.page_tokens
    if row % tokens:
        raise RowLengthError(named.buffer.beside("item_lens"), row, f"{tokens} tokens", tokens)
    return {
        **_frame(named, storage, lists.dtype),
        "sharding": "replicated",
        "units": {"count": 1, "stride": row},
        "tokens": [{"count": tokens, "stride": row // tokens}],
        "content": row // tokens,
    }


def whole(named: Named, storage: int, form: str, tokens: int, share: Place | None) -> Part:
    """A page that is never cut: its inner order is the kernel's own, as an indexer's data with scales behind it.

    `tokens` is how many it stands for. With `share` each rank has a part of its own, and only workers of the same TP
    size meet; without, every rank has the same.
    """
    row = named.buffer.row_bytes
    part = {
        **_frame(named, storage, form),
        "sharding": "replicated" if share is None else {"total": share.tp_size},
        "units": {"count": 1, "stride": row},
        "tokens": [{"count": 1, "stride": row}],
        "content": row,
    }
    if tokens > 1:
        part["tokens_per_state"] = tokens
    return part


def request_row(named: Named, storage: int) -> Part:
    """A row of a request that every rank has: auxiliary bytes."""
    row = named.buffer.row_bytes
    return {
        **_frame(named, storage, "aux"),
        "sharding": "replicated",
        "units": {"count": 1, "stride": row},
        "content": row,
    }


def state(named: Named, storage: int, component: Component, place: Place) -> list[Part]:
    """A slot of a state-space layer: [outer, channel, content], whose channels may be blocks that TP splits apart."""
    row, index = named.buffer.row_bytes, named.index
    channels = component.channels[index] if component.channels else 0
    outer = component.outer[index] if component.outer else 1
    if outer < 1:
        raise ValueRangeError(f"state_slice_outer_counts of {named.buffer.place}", outer, 1, row)
    frame = _frame(named, storage, "state")
    if channels == 0:
        units: Part = {"units": {"count": 1, "stride": row}, "content": row}
        return [{**frame, "sharding": "replicated", **units}]
    if row % (channels * outer):
        raise RowLengthError(
            named.buffer.beside("item_lens"), row, f"{outer} rows of {channels} channels", channels * outer
        )
    content = row // (channels * outer)
    shape: Part = {"content": content, "tokens": [{"count": outer, "stride": channels * content}] if outer > 1 else []}
    blocks = component.blocks[index] if component.blocks else None
    if blocks is None:
        units = {"sharding": {"total": channels * place.tp_size}, "units": {"count": channels, "stride": content}}
        return [{**frame, **shape, **units}]
    if sum(blocks) != channels * place.tp_size or any(block % place.tp_size for block in blocks):
        raise ConvError(f"state_conv_shard_groups of {named.buffer.place}", sum(blocks), channels, place.tp_size)
    found, offset = [], 0
    for ordinal, block in enumerate(blocks):
        share = block // place.tp_size
        units = {"sharding": {"total": block}, "units": {"count": share, "stride": content}}
        found.append({**frame, **shape, **units, "name": f"{named.part}.{ordinal}", "offset": offset})
        offset += share * content
    return found


def _frame(named: Named, storage: int, form: str) -> Part:
    return {
        "name": named.part,
        "storage": storage,
        "offset": 0,
        "block_stride": named.buffer.row_bytes,
        "format": form,
    }
