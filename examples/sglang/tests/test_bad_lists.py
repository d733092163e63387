"""Lists that contradict themselves are refused with their place and both values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import kvffi
import numpy as np
import pytest
from harness.copy import lists_of, mapped
from harness.model import Mamba, Model, Worker, build
from harness.settings import Settings

from kvsglang import errors, peers
from kvsglang.lists import Place
from kvsglang.mapping import map_lists
from kvsglang.messages import Registration
from kvsglang.requests import Move, pages, request, rows

MODEL = Model(layers=(0, 1), mamba=Mamba(layers=(2,)))
MIXED = Model(layers=(0, 1), window_layers=(3,), mamba=Mamba(layers=(2,)))
PLACE = Settings("prefill", 0)
WORKER = build(MODEL, PLACE, 1)


def changed(name: str, change: Callable[[Any], Any]) -> dict[str, Any]:
    return {name: change(WORKER.lists[name])}


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        (
            changed("kv_data_lens", lambda v: v[:-1]),
            errors.ListLengthError,
            "kv_data_lens has 3 entries and kv_data_ptrs has 4",
        ),
        (changed("kv_item_lens", lambda v: [*v, 1]), errors.ListLengthError, "kv_item_lens has 5 entries"),
        (changed("kv_layer_ids", lambda v: v[:3]), errors.ListLengthError, "kv_layer_ids has 3 entries"),
        ({"kv_data_mem_kinds": ["VRAM"]}, errors.ListLengthError, "kv_data_mem_kinds has 1 entries"),
        (changed("aux_item_lens", lambda v: v[:1]), errors.ListLengthError, "aux_item_lens has 1 entries"),
        (
            {"state_data_ptrs": []},
            errors.ListLengthError,
            "state_data_ptrs has 0 entries and state_types has 1",
        ),
        (changed("state_item_lens", lambda v: [v[0][:1]]), errors.ListLengthError, "state_item_lens[0] has 1 entries"),
        (
            {"state_dim_per_tensor": [[1]]},
            errors.ListLengthError,
            "state_dim_per_tensor[0] has 1 entries",
        ),
        ({"kv_data_mem_kinds": ["VRAM"] * 3 + ["dreams"]}, errors.ValueKindError, "kv_data_mem_kinds[3] is 'dreams'"),
        (changed("kv_data_ptrs", lambda v: [0, *v[1:]]), errors.PointerError, "kv_data_ptrs[0] is 0 and its length"),
        (changed("aux_data_ptrs", lambda v: [v[0], 0]), errors.PointerError, "aux_data_ptrs[1] is 0"),
        (changed("kv_data_ptrs", lambda v: [-8, *v[1:]]), errors.ValueRangeError, "kv_data_ptrs[0] is -8"),
        (changed("kv_data_ptrs", lambda v: [(1 << 64) - 8, *v[1:]]), errors.ValueRangeError, "kv_data_lens[0] is"),
        (
            changed("kv_item_lens", lambda v: [1 << 40, *v[1:]]),
            errors.ValueRangeError,
            "kv_item_lens[0] is 1099511627776",
        ),
        ({"state_types": ["dreams"]}, errors.StateKindError, "state_types[0] is 'dreams'; known are mamba"),
        ({"page_size": 0}, errors.ValueRangeError, "page_size is 0"),
        ({"num_draft_entries": 5}, errors.ValueRangeError, "num_draft_entries is 5; it must be from 0 to 4"),
    ],
)
def test_a_list_that_contradicts_another_is_refused(change: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error) as raised:
        lists_of(MODEL, WORKER, **change)
    assert says in str(raised.value)


OPTIONAL = ("state_layer_ids", "state_dim_per_tensor", "state_slice_outer_counts", "state_conv_shard_groups")


@pytest.mark.parametrize("name", OPTIONAL)
@pytest.mark.parametrize("count", [1, 3])
def test_what_is_said_of_some_components_only_is_refused(name: str, count: int) -> None:
    worker = build(MIXED, PLACE, 1)
    given = [*worker.lists[name], []][:count]
    with pytest.raises(errors.ListLengthError) as raised:
        lists_of(MIXED, worker, **{name: given})
    assert f"{name} has {count} entries and state_types has 2" in str(raised.value)


@pytest.mark.parametrize("name", OPTIONAL)
@pytest.mark.parametrize("count", [1, 3])
def test_what_is_said_of_some_buffers_only_is_refused(name: str, count: int) -> None:
    given = [*WORKER.lists[name][0], 1][:count]
    with pytest.raises(errors.ListLengthError) as raised:
        lists_of(MODEL, WORKER, **{name: [given]})
    assert f"{name}[0] has {count} entries and state_data_ptrs[0] has 2" in str(raised.value)


@pytest.mark.parametrize("name", OPTIONAL)
@pytest.mark.parametrize("nothing", [[], None, [[]], [None]])
def test_what_is_said_of_components_may_be_left_out(name: str, nothing: Any) -> None:
    lists_of(MODEL, WORKER, **{name: nothing})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda said: {"state_layer_ids": said.state_layer_ids[:1]}, "2 state components and 1 with layer ids"),
        (lambda said: {"state_channels": said.state_channels[1:]}, "2 state components and 1 with dimensions"),
        (lambda said: {"state_rows": said.state_rows * 2}, "2 state components and 4 with row lengths"),
        (lambda _: {"state_rows": ()}, "state swa has 2 buffers and no row lengths"),
        (lambda _: {"state_lengths": ((1,), (2,))}, "state swa has 2 buffers and 1 lengths"),
        (lambda _: {"state_layer_ids": ((3, 3, 3), (2, 2))}, "state swa has 2 buffers and 3 layer ids"),
    ],
)
def test_a_registration_that_leaves_out_components_or_buffers_is_refused(
    change: Callable[[Registration], dict[str, Any]], says: str
) -> None:
    lists = lists_of(MIXED, build(MIXED, PLACE, 1))
    said = peers.registration(lists, Place(), "decode", "127.0.0.1", 1)
    peers.destination(said, lists, map_lists(lists, Place()), Place())
    with pytest.raises(errors.MessageError) as raised:
        peers.destination(replace(said, **change(said)), lists, map_lists(lists, Place()), Place())
    assert says in str(raised.value)


INDEXED = Model(layers=(0, 1), mla=True, index_bytes=64, rings=(6, 8))


def entry(name: str, component: int | None, value: int, of: dict[str, Any]) -> dict[str, Any]:
    """The lists with another first number in one of them."""
    lists = [value, *of[name][1:]] if component is None else [list(values) for values in of[name]]
    if component is not None:
        lists[component][0] = value
    return {name: lists}


@pytest.mark.parametrize(("model", "component"), [(MODEL, None), (MIXED, 0), (MIXED, 1), (INDEXED, 0), (INDEXED, 1)])
@pytest.mark.parametrize("name", ["kv", "aux", "state"])
def test_a_buffer_of_which_nothing_would_travel_is_refused(model: Model, component: int | None, name: str) -> None:
    if (name == "state") is (component is None):
        return
    worker = build(model, PLACE, 1)
    at = "[0]" if component is None else f"[{component}][0]"
    for what in ("item_lens", "data_lens"):
        with pytest.raises(errors.ValueRangeError) as raised:
            lists_of(model, worker, **entry(f"{name}_{what}", component, 0, worker.lists))
        assert f"{name}_{what}{at} is 0; it must be from" in str(raised.value)


def without_memory(worker: Worker, component: int, *entries: int) -> dict[str, Any]:
    """The lists with some of a component's buffers as SGLang lists a layer that shares another one's."""
    changes: dict[str, Any] = {}
    for name in ("state_data_ptrs", "state_data_lens", "state_item_lens"):
        changes[name] = [list(values) for values in worker.lists[name]]
        for index in entries:
            changes[name][component][index] = 0
    return changes


@pytest.mark.parametrize("component", [0, 1])
def test_only_an_indexer_may_be_without_memory(component: int) -> None:
    worker = build(MIXED, PLACE, 1)
    with pytest.raises(errors.ValueRangeError) as raised:
        lists_of(MIXED, worker, **without_memory(worker, component, 0))
    assert f"state_item_lens[{component}][0] is 0" in str(raised.value)
    worker = build(INDEXED, PLACE, 1)
    lists = lists_of(INDEXED, worker, **without_memory(worker, component, 0, 2 * component))
    assert map_lists(lists, Place()).elided == (("dsa.0",), ("dsa_tail.0",))[component]


def test_a_layer_with_memory_for_a_half_of_its_ring_is_refused() -> None:
    worker = build(INDEXED, PLACE, 1)
    with pytest.raises(errors.LayerError) as raised:
        map_lists(lists_of(INDEXED, worker, **without_memory(worker, 1, 0)), Place())
    assert "layer dsa_tail.0 has a buffer with memory here and another one without" in str(raised.value)


def test_a_registration_with_a_buffer_of_which_nothing_would_travel_is_refused() -> None:
    lists = lists_of(MODEL, WORKER)
    said = peers.registration(lists, Place(), "decode", "127.0.0.1", 1)
    changes: list[tuple[dict[str, Any], str]] = [
        ({"kv_rows": (0, *said.kv_rows[1:])}, "kv_item_lens[0] of the peer is 0"),
        ({"num_pages": 0}, "kv_data_lens[0] of the peer is 0"),
        ({"state_rows": ((0, said.state_rows[0][1]),)}, "state_item_lens[0][0] of the peer is 0"),
    ]
    for change, says in changes:
        with pytest.raises(errors.ValueRangeError) as raised:
            peers.destination(replace(said, **change), lists, map_lists(lists, Place()), Place())
        assert says in str(raised.value)


FLOAT, TEXT = 1024.5, "1024"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"page_size": 8.9}, "page_size is 8.9; give an integer"),
        ({"page_size": np.float64(8)}, "page_size is np.float64(8.0); give an integer"),
        ({"page_size": None}, "page_size is None"),
        ({"kv_head_num": "4"}, "kv_head_num is '4'"),
        ({"total_kv_head_num": 4.0}, "total_kv_head_num is 4.0"),
        ({"gpu_id": 0.5}, "gpu_id is 0.5"),
        ({"num_draft_entries": 0.0}, "num_draft_entries is 0.0"),
        ({"prefill_start_layer": "0"}, "prefill_start_layer is '0'"),
        ({"prefill_end_layer": 2.0}, "prefill_end_layer is 2.0"),
        ({"mla_compression_ratios": [4, 4.0]}, "mla_compression_ratios[1] is 4.0"),
        ({"kv_layer_ids": [0, 1, 0, 1.5]}, "kv_layer_ids[3] is 1.5"),
        ({"kv_layer_ids": 5}, "kv_layer_ids is 5; give a list"),
        ({"kv_layer_ids": "0101"}, "kv_layer_ids is '0101'; give a list"),
        (changed("kv_data_ptrs", lambda v: [float(v[0]), *v[1:]]), "kv_data_ptrs[0] is"),
        (changed("kv_data_ptrs", lambda v: [str(v[0]), *v[1:]]), "kv_data_ptrs[0] is '"),
        (changed("kv_data_ptrs", lambda v: [v[0], None, *v[2:]]), "kv_data_ptrs[1] is None; give an integer"),
        (changed("kv_item_lens", lambda v: [FLOAT, *v[1:]]), "kv_item_lens[0] is 1024.5"),
        (changed("aux_data_lens", lambda v: [TEXT, *v[1:]]), "aux_data_lens[0] is '1024'"),
        ({"aux_data_ptrs": 7}, "aux_data_ptrs is 7; give a list"),
        ({"state_data_ptrs": [7]}, "state_data_ptrs[0] is 7; give a list"),
        ({"state_dim_per_tensor": [[128, 8.5]]}, "state_dim_per_tensor[0][1] is 8.5"),
        ({"state_layer_ids": [[2, "2"]]}, "state_layer_ids[0][1] is '2'"),
        ({"state_slice_outer_counts": [[1.0, 1]]}, "state_slice_outer_counts[0][0] is 1.0"),
        ({"state_conv_shard_groups": [[[32, 32, 64.0], None]]}, "state_conv_shard_groups[0][0][2] is 64.0"),
        ({"state_conv_shard_groups": [[5, None]]}, "state_conv_shard_groups[0][0] is 5; give a list"),
    ],
)
def test_what_is_no_integer_is_refused_and_not_cut_off(change: dict[str, Any], says: str) -> None:
    with pytest.raises(errors.ValueKindError) as raised:
        lists_of(MODEL, WORKER, **change)
    assert says in str(raised.value)


def test_lists_and_numbers_of_numpy_are_lists_and_numbers() -> None:
    names = "kv_data_ptrs", "kv_data_lens", "kv_item_lens", "kv_layer_ids", "aux_data_ptrs", "state_dim_per_tensor"
    change = {name: np.array(WORKER.lists[name]) for name in names}
    page_size = np.int32(WORKER.lists["page_size"])
    assert lists_of(MODEL, WORKER, page_size=page_size, **change) == lists_of(MODEL, WORKER)


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ({"tp_rank": 0.5}, "tp_rank is 0.5; give an integer"),
        ({"pp_rank": np.float64(1)}, "pp_rank is np.float64(1.0)"),
        ({"pp_size": 0}, "pp_size is 0; it must be from 1"),
        ({"dcp_size": "1"}, "dcp_size is '1'"),
    ],
)
def test_ranks_that_are_none_are_refused(place: dict[str, Any], says: str) -> None:
    with pytest.raises((errors.ValueKindError, errors.ValueRangeError)) as raised:
        Place(**place)
    assert says in str(raised.value)
    assert type(Place(tp_size=np.int64(2)).tp_size) is int  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"kv_layer_ids": [0, 1, 0, 2]}, errors.LayerError, "layer 1 comes 1 times and has 2 buffers (k, v)"),
        ({"kv_layer_ids": [0, 0, 0, 1]}, errors.LayerError, "layer 0 comes 3 times"),
        (
            {"page_size": 7},
            errors.RowLengthError,
            "kv_item_lens[0] is 1024 bytes, which is no multiple of 28, 7 tokens",
        ),
        ({"kv_head_num": 3}, errors.RowLengthError, "8 tokens of 3 heads"),
        ({"state_dim_per_tensor": [[127, 8]]}, errors.RowLengthError, "1 rows of 127 channels"),
        (
            {"state_conv_shard_groups": [[[32, 32], None]]},
            errors.ConvError,
            "adds up to 64 channels and 1 ranks with 128",
        ),
    ],
)
def test_a_row_that_does_not_hold_what_it_should_is_refused(
    change: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error) as raised:
        map_lists(lists_of(MODEL, WORKER, **change), Place())
    assert says in str(raised.value)


def test_state_without_layer_ids_is_refused_between_pipeline_stages() -> None:
    with pytest.raises(errors.LayerError, match="none given with 2 pipeline stages"):
        map_lists(lists_of(MODEL, WORKER, state_layer_ids=[[]]), Place(pp_size=2))


def test_state_of_which_nobody_says_the_layers_meets_none_of_which_somebody_does() -> None:
    model = Model(layers=(0, 2), window_layers=(1, 3))
    decode = Settings("decode", 0)
    ours = map_lists(lists_of(model, build(model, PLACE, 1), state_layer_ids=[[]]), Place())
    theirs = mapped(model, build(model, decode, 2), decode)
    with pytest.raises(kvffi.PairError, match="swa by position"):
        kvffi.Pair(kvffi.Spec.from_dict(ours.spec), kvffi.Spec.from_dict(theirs.spec), op="write")


def test_layers_that_are_told_have_to_fit_the_buffers() -> None:
    model = Model(layers=(0, 2), window_layers=(1, 3), layer_ids=False, told_layers=True)
    worker = build(model, PLACE, 1)
    with pytest.raises(errors.ListLengthError, match=r"kv_data_ptrs has 4 entries and the option layers"):
        map_lists(replace(lists_of(model, worker), layers={"kv": (0, 1, 2)}), Place())
    with pytest.raises(errors.ListLengthError, match=r"swa has 4 entries and the option layers.*has 0"):
        map_lists(replace(lists_of(model, worker), layers={"swa": (7,)}), Place())


@pytest.mark.parametrize(
    ("model", "error", "says"),
    [
        (Model(layers=(0,), mla=True, draft_layers=1), errors.LayerError, "2 buffers of a draft with decode context"),
        (Model(layers=(0,)), kvffi.Error, "layer.0"),
        (
            Model(layers=(0,), mla=True, index_bytes=64),
            errors.LayerError,
            "dsa: rows that are not dealt",
        ),
    ],
)
def test_what_cannot_be_dealt_to_ranks_is_refused(model: Model, error: type[Exception], says: str) -> None:
    with pytest.raises(error) as raised:
        kvffi.Spec.from_dict(map_lists(lists_of(model, build(model, PLACE, 1)), Place(1, 2, dcp_size=2)).spec)
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("place", "says"),
    [
        (Place(0, 2, dcp_size=2), "context parallelism of this kind on prefill workers is 2 here"),
        (Place(0, 2), "TP size of a hybrid with decode context parallelism is 2 here and 2 at the peer"),
    ],
)
def test_prefill_workers_that_cannot_deal_tokens_are_refused(place: Place, says: str) -> None:
    model = Model(layers=(0,), mla=True)
    lists = replace(lists_of(model, build(model, PLACE, 1)), is_hybrid=True)
    said = peers.registration(lists, Place(0, 2, dcp_size=2), "decode", "127.0.0.1", 1)
    with pytest.raises(errors.PeerError) as raised:
        peers.destination(said, lists, map_lists(lists, place), place)
    assert says in str(raised.value)


RINGS = Model(layers=(0, 1), mla=True, index_bytes=64, rings=(6, 8))


@pytest.mark.parametrize(
    ("slots", "error", "says"),
    [
        (None, errors.LayerError, "the slots of a ring are not known; give ring_slots"),
        (7, errors.RowLengthError, "is 288 bytes, which is no multiple of 7, slots of a ring"),
    ],
)
def test_rings_need_their_slots(slots: int | None, error: type[Exception], says: str) -> None:
    with pytest.raises(error) as raised:
        map_lists(replace(lists_of(RINGS, build(RINGS, PLACE, 1)), ring_slots=slots), Place())
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ([1, 2, 3], "3 numbers describe no part of a ring; give 6"),
        ([0, 2, 3, 0, 0, 8], "the ring has 8 slots there and 6 are registered"),
        ([0, 4, 3, 0, 0, 6], "3 slots from 4 on are not in a ring of 6"),
        ([0, -1, 1, 0, 0, 6], "1 slots from -1 on are not in a ring"),
        ([8, 0, 1, 0, 0, 6], "page 48 is not from 0 to 47"),
    ],
)
def test_what_is_no_part_of_a_ring_is_refused(values: list[int], says: str) -> None:
    spec = mapped(RINGS, build(RINGS, PLACE, 1), PLACE)
    assert rows("tail", [1, 4, 2, 0, 1, 6], spec, "dsa_tail").tolist() == [10, 11, 6]
    assert rows("tail", [], spec, "dsa_tail").tolist() == []
    with pytest.raises(errors.PageError) as raised:
        rows("tail", values, spec, "dsa_tail")
    assert says in str(raised.value)


def test_overlapping_buffers_make_no_spec() -> None:
    lists = lists_of(MODEL, WORKER, **changed("kv_data_ptrs", lambda v: [v[1] + 16, *v[1:]]))
    with pytest.raises(kvffi.Error, match="overlap"):
        kvffi.Spec.from_dict(map_lists(lists, Place()).spec)


@pytest.mark.parametrize("place", [Place(tp_rank=3, tp_size=2), Place(tp_rank=-1, tp_size=2), Place(pp_rank=-1)])
def test_a_rank_outside_its_group_makes_no_spec(place: Place) -> None:
    model = Model(layers=(0, 1))
    mapped = map_lists(lists_of(model, build(model, PLACE, 1)), place)
    with pytest.raises(kvffi.Error, match="rank"):
        kvffi.Spec.from_dict(mapped.spec)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ([3, 40], "kv[1]: page 40 is not from 0 to 39"),
        ([-1], "kv[0]: page -1"),
        ([1.5], "float64 with 1 axes is no list of pages"),
        ([[1, 2]], "int64 with 2 axes"),
    ],
)
def test_pages_outside_the_pool_are_refused(values: Any, says: str) -> None:
    with pytest.raises(errors.PageError) as raised:
        pages("kv", values, 40)
    assert says in str(raised.value)


def test_lists_of_different_length_are_refused() -> None:
    spec = mapped(MODEL, WORKER, PLACE)
    with pytest.raises(errors.PageError, match="kv: 2 pages here and 1 at the peer"):
        request(spec, spec, [Move("kv", np.array([1, 2], np.uint32), np.array([1], np.uint32))])


def test_a_peer_whose_heads_are_sharded_otherwise_is_refused_with_both_values() -> None:
    decode = Settings("decode", 0)
    ours = kvffi.Spec.from_dict(mapped(MODEL, WORKER, PLACE).spec)
    other = Model(layers=(0, 1), heads=8, head_bytes=16, mamba=MODEL.mamba)
    theirs = kvffi.Spec.from_dict(mapped(other, build(other, decode, 2), decode).spec)
    with pytest.raises(kvffi.PairError) as refused:
        kvffi.Pair(ours, theirs, op="write")
    assert "layer.0" in str(refused.value) and "4" in str(refused.value) and "8" in str(refused.value)
