"""A registration of a decode worker that is not there."""

from __future__ import annotations

from kvsglang.messages import Registration

NOBODY = Registration(
    host="127.0.0.1",
    port=9,
    agent="",
    metadata=b"",
    kv_bases=(),
    aux_bases=(),
    state_bases=(),
    gpu=0,
    tp_size=1,
    tp_rank=0,
    state_rows=(),
    state_channels=(),
    num_pages=1,
    kinds=(),
    kv_rows=(),
    state_layer_ids=(),
    kv_layer_ids=(),
)
