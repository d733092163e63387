"""What SGLang's configuration says of an engine's shape is followed, or refused before anything is registered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from harness.deployment import DECODE_SALT, PREFILL_SALT, Deployment, Request, deployment
from harness.expect import Expectation
from harness.liar import INFO, RANK, liar
from harness.loader import MissingEngineError, folder
from harness.midway import PROMPTLY
from harness.model import Model
from harness.ports import free_port
from harness.settings import Settings
from harness.worker import Remote, WorkerError

from kvsglang import bootstrap

try:
    folder()
except MissingEngineError as error:
    pytest.skip(str(error), allow_module_level=True)

MODEL = Model(layers=(0, 1))


@pytest.mark.parametrize(
    ("role", "told", "says"),
    [
        ("prefill", {"attn_dp_size": 2}, "attn_dp_size is 2; only 1 is served"),
        ("prefill", {"dp_size": 2}, "dp_size is 2; only 1 is served"),
        ("prefill", {"attn_cp_size": 2}, "attn_cp_size is 2; only 1 is served"),
        ("decode", {"attn_cp_size": 2}, "attn_cp_size is 2; only 1 is served"),
        ("prefill", {"enable_kv_cache_sharding": True}, "enable_kv_cache_sharding is True; only False is served"),
        ("prefill", {"enable_dsa_cache_layer_split": True}, "enable_dsa_cache_layer_split is True; only False"),
        ("prefill", {"disaggregation_decode_allocation_policy": "prefill_complete"}, "only early is served"),
        ("decode", {"disaggregation_decode_allocation_policy": "prefill_complete"}, "only early is served"),
    ],
)
def test_an_engine_that_is_split_in_ways_that_are_not_followed_gets_no_manager(
    role: str, told: dict[str, Any], says: str
) -> None:
    with pytest.raises(WorkerError) as refused:
        Remote("behind", MODEL, Settings(role, free_port(), told=told), PREFILL_SALT).ready()
    assert refused.value.kind == "SettingError"
    assert says in refused.value.text


def test_a_decode_engine_may_have_groups_of_data_parallelism() -> None:
    told = {"attn_dp_size": 2, "attn_dp_rank": 1}
    Remote("behind", MODEL, Settings("decode", free_port(), told=told), DECODE_SALT).ready().stop()


def test_a_scheduler_looks_for_no_group_of_an_engine_whose_requests_are_refused() -> None:
    with liar({**INFO, "dp_size": 2, "follow_bootstrap_room": False}, RANK) as address:
        decode = Remote("behind", MODEL, Settings("decode", int(address.rpartition(":")[2])), DECODE_SALT).ready()
        try:
            # With two it would ask the manager who knows the group of a request.
            decode.receiver(7)
            assert decode.ask("prefill_info_table")[address].dp_size == 1
            assert decode.poll(7) == "Failed"
            assert "(dp_size) is 1 here and 2 at the peer" in decode.reason(7)
        finally:
            decode.stop()


@pytest.mark.parametrize("decode", ["behind", "sglang"])
def test_a_request_of_a_group_that_is_not_there_fails(decode: str) -> None:
    with deployment(MODEL, kinds=("behind", decode)) as engines:
        reader = engines.decode[0]
        engines.prefill[0].sender(7, 2, 3)
        reader.receiver(7, 1)
        assert reader.poll(7) == "Failed"
        if decode == "behind":
            assert "prefill_dp_rank is 1" in reader.reason(7)
            assert engines.prefill[0].until(7, ["Failed"], PROMPTLY) == "Failed"
        engines.check()


def test_workers_of_all_nodes_register_at_the_first_ones_rendezvous_and_port(tmp_path: Path) -> None:
    model = Model(layers=(0, 1), stages=(1, 1))
    port, elsewhere = free_port(), free_port()
    # Where the second node's own configuration points to nobody listens.
    told = {"dist_init_addr": "127.0.0.1:5000", "nnodes": 2, "host": "127.0.0.9"}
    places = [
        Settings("prefill", number, pp_rank=rank, pp_size=2, folder=str(tmp_path), told=told)
        for rank, number in enumerate((port, elsewhere))
    ]
    prefill = [Remote("behind", model, place, PREFILL_SALT, model.options("prefill")) for place in places]
    decode = Remote("behind", model, Settings("decode", port), DECODE_SALT, model.options("decode"))
    engines = Deployment(model, prefill, [decode], [Expectation(decode.twin)])
    try:
        for worker in [*prefill, decode]:
            worker.ready()
        assert bootstrap.look_up(f"127.0.0.1:{port}") == bootstrap.PrefillInfo(1, 2, model.page_tokens, "bfloat16")
        engines.run(Request(7, [1, 2], [10, 11]))
        engines.check()
    finally:
        for worker in [*prefill, decode]:
            worker.stop()
