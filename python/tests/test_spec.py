"""Specs: four ways in, what is wrong with them, and what is planned from one alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy
import pytest

import kvffi
from conftest import ROOT, mla

SPECS = sorted(path for path in (ROOT / "examples/specs").glob("*.json") if not path.name.startswith("request"))


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_json_is_read_back_to_the_same_spec(path: Any) -> None:
    spec = kvffi.Spec.from_json(path.read_text())
    assert kvffi.Spec.from_json(spec.to_json()).to_json() == spec.to_json()
    assert kvffi.Spec.from_dict(spec.to_dict()).to_json() == spec.to_json()
    assert kvffi.Spec.from_json(path.read_bytes()).to_json() == spec.to_json()


def test_numbers_of_numpy_are_numbers_of_a_spec(decode: kvffi.Spec) -> None:
    described = decode.to_dict()
    described["storages"][0]["base"] = numpy.uint64(described["storages"][0]["base"])
    assert kvffi.Spec.from_dict(described).to_json() == decode.to_json()


def test_everything_that_is_wrong_with_a_spec_is_a_finding(decode: kvffi.Spec) -> None:
    described = decode.to_dict()
    assert kvffi.check(described) == ()
    described["groups"][0]["num_blocks"] = 1000
    described["layers"][1]["name"] = described["layers"][0]["name"]
    with pytest.raises(kvffi.SpecError) as caught:
        kvffi.Spec.from_dict(described)
    assert caught.value.name == "KVFFI_ERR_INVALID_SPEC"
    assert caught.value.status == -12
    assert len(caught.value.findings) >= 2
    assert any("layers.0" in finding for finding in caught.value.findings)
    assert kvffi.check(json.dumps(described)) == caught.value.findings


def test_views_of_one_tensor_whose_ids_share_bytes_are_refused() -> None:
    memory = numpy.zeros(256, numpy.uint8)
    tensors = kvffi.Tensors(kvffi.Worker("m"))
    attention = tensors.add_group(kvffi.Group(num_blocks=4, block_tokens=2))
    state = tensors.add_group(kvffi.Group(num_blocks=4, usage="state"))
    halves = kvffi.Page.attention(2, 4, packing="halves")
    tensors.add_tensor(tensors.add_layer("attn.0", halves, attention), memory.reshape(2, 4, 2, 2, 8), "2BNHC")
    rows = kvffi.Page.opaque(64, format="st", usage="state")
    tensors.add_tensor(tensors.add_layer("mamba.0", rows, state), memory.reshape(4, 64), "BC")
    with pytest.raises(kvffi.SpecError) as caught:
        tensors.build()
    first = caught.value.findings[0]
    assert "block 1 of layer attn.0 part k" in first
    assert "block 0 of layer mamba.0" in first
    assert "share byte 32 of storage 0" in first


@pytest.mark.parametrize("name", ["strides", "shifted"])
def test_two_ids_of_one_pool_that_share_bytes_are_a_finding(name: str) -> None:
    text = (ROOT / f"kvspec/tests/data/pool_{name}.json").read_text()
    (finding,) = kvffi.check(text)
    assert "layer state.0" in finding
    assert "layer swa.0" in finding


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", kvffi.JsonError),
        ("[]", kvffi.JsonError),
        ('{"version": NaN}', kvffi.JsonError),
        ("[" * 100_000, kvffi.JsonError),
        (b"\xff\xfe", kvffi.ArgumentError),
        (b"{}\0{}", kvffi.JsonError),
    ],
)
def test_a_text_that_is_no_spec_is_refused(text: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        kvffi.Spec.from_json(text)


@pytest.mark.parametrize("wrong", [None, object(), 3.5j])
def test_what_is_no_text_is_a_type_error(wrong: Any) -> None:
    with pytest.raises(TypeError):
        kvffi.Spec.from_json(wrong)
    with pytest.raises((TypeError, kvffi.JsonError)):
        kvffi.Spec.from_dict({"version": wrong})


def test_a_spec_by_tensors_equals_one_by_parts() -> None:
    caches = [numpy.zeros((16, 64, 576), numpy.uint16) for _ in range(2)]
    worker = kvffi.Worker("org/model", revision="main", extra={"attn": "flashmla"})
    tensors = kvffi.Tensors(worker)
    group = tensors.add_group(kvffi.Group(num_blocks=16, block_tokens=64))
    builder = kvffi.SpecBuilder(worker)
    builder.add_group(kvffi.Group(num_blocks=16, block_tokens=64))
    # Storages are numbered by address.
    for cache in sorted(caches, key=lambda cache: cache.ctypes.data):
        builder.add_storage(kvffi.Storage(cache.ctypes.data, cache.nbytes))
    for index, cache in enumerate(caches):
        layer = tensors.add_layer(f"layers.{index}", kvffi.Page.mla(), group)
        tensors.add_tensor(layer, cache, "BNC")
        layer = builder.add_layer(f"layers.{index}", group, kind="mla")
        storage = int(cache.ctypes.data > min(each.ctypes.data for each in caches))
        row = {"tokens": [(64, 1152)], "num_units": 1, "unit_stride": 73728}
        format = tensors.build().to_dict()["layers"][0]["parts"][0].get("format", "") if index else "bf16"
        part = kvffi.Part("latent", storage, 0, 73728, 1152, format=format, **row)  # type: ignore[arg-type]
        builder.add_part(layer, part)
    by_tensors, by_parts = tensors.build().to_dict(), builder.build().to_dict()
    for spec in (by_tensors, by_parts):
        for each in spec["layers"]:
            each["parts"][0].pop("format", None)
            each["parts"][0]["units"].pop("stride")
    assert by_tensors["layers"] == by_parts["layers"]
    assert by_tensors["fingerprint"] == {"model": "org/model", "revision": "main", "extra": {"attn": "flashmla"}}


def test_a_spec_by_tensors_keeps_them_alive() -> None:
    import gc
    import weakref

    cache = numpy.zeros((16, 64, 576), numpy.uint16)
    alive = weakref.ref(cache)
    tensors = kvffi.Tensors(kvffi.Worker("org/model"))
    group = tensors.add_group(kvffi.Group(num_blocks=16, block_tokens=64))
    tensors.add_tensor(tensors.add_layer("layers.0", kvffi.Page.mla(), group), cache, "BNC")
    spec = tensors.build()
    tensors.close()
    del cache, tensors
    gc.collect()
    assert alive() is not None
    del spec
    gc.collect()
    assert alive() is None


def test_a_tensor_that_contradicts_its_page_is_named() -> None:
    tensors = kvffi.Tensors(kvffi.Worker("org/model"))
    group = tensors.add_group(kvffi.Group(num_blocks=16, block_tokens=64))
    layer = tensors.add_layer("layers.0", kvffi.Page.mla(), group)
    tensors.add_tensor(layer, numpy.zeros((16, 64, 575), numpy.uint16), "BNC")
    with pytest.raises(kvffi.SpecError, match=r"layers\.0"):
        tensors.build()


def test_labels_must_be_as_many_as_axes() -> None:
    tensors = kvffi.Tensors(kvffi.Worker("org/model"))
    group = tensors.add_group(kvffi.Group(num_blocks=16, block_tokens=64))
    layer = tensors.add_layer("layers.0", kvffi.Page.mla(), group)
    with pytest.raises(ValueError, match="3 extents"):
        tensors.add_tensor(layer, numpy.zeros((16, 64, 576), numpy.uint16), "BN")
    with pytest.raises(kvffi.ArgumentError):
        tensors.add_tensor(99, numpy.zeros((16, 64, 576), numpy.uint16), "BNC")


def test_an_arrangement_says_what_to_allocate() -> None:
    arrangement = kvffi.Arrangement(kvffi.Worker("org/model"))
    arrangement.add_pool(kvffi.Pool("blhnc", 16, row_align=4096))
    group = arrangement.add_group(64)
    arrangement.add_layer("layers.0", kvffi.Page.mla("fp8"), group)
    arrangement.add_pool(kvffi.Pool("blhnc", 4))
    slots = arrangement.add_group(usage="state")
    arrangement.add_layer("layers.1", kvffi.Page.mamba2(8, 64, 1, 128, 4), slots)
    lens = arrangement.storage_lens()
    assert lens[0] == 16 * 45056
    memory = [numpy.zeros(length, numpy.uint8) for length in lens]
    spec = arrangement.build(memory).to_dict()
    assert [storage["base"] for storage in spec["storages"]] == [each.ctypes.data for each in memory]
    with pytest.raises(ValueError, match="are needed"):
        arrangement.build([numpy.zeros(5, numpy.uint8), memory[1]])
    with pytest.raises(kvffi.SpecError):
        arrangement.build([4096])
    with pytest.raises(OverflowError):
        arrangement.build([-1, 4096])
    backwards = numpy.zeros(lens[0], numpy.uint8)[::-1]
    with pytest.raises(ValueError, match="storage 0 has the strides"):
        arrangement.build([backwards, memory[1]])
    elsewhere = kvffi.TensorView(4096, (lens[1],), (1,), 1, "vram", 3)
    with pytest.raises(ValueError, match="storage 1 is in vram 3 and its pool in dram 0"):
        arrangement.build([memory[0], elsewhere])
    with pytest.raises(TypeError, match="bool"):
        arrangement.build([True, memory[1]])


PAGES: dict[str, Callable[[], kvffi.Page]] = {
    "mla": lambda: kvffi.Page.mla("own", row_bytes=584, format="x", tokens_per_state=4, page_align=64),
    "mla window": lambda: kvffi.Page.mla("fp8", span="window"),
    "indexer": lambda: kvffi.Page.indexer(),
    "opaque": lambda: kvffi.Page.opaque(100, format="hidden"),
    "attention": lambda: kvffi.Page.attention(8, 128, value_head_size=64, packing="halves", span="window"),
    "apart": lambda: kvffi.Page.attention(8, 128, packing="apart", element="fp8_e4m3"),
    "token head": lambda: kvffi.Page.token_head_quant(8, 128, 4),
    "block scaled": lambda: kvffi.Page.block_scaled(8, 128, 4, tokens_per_scale=16),
    "nvfp4": lambda: kvffi.Page.nvfp4(8, 128),
}
STATES: dict[str, Callable[[], kvffi.Page]] = {
    "mamba1": lambda: kvffi.Page.mamba1(256, 16, 4),
    "mamba2": lambda: kvffi.Page.mamba2(8, 64, 2, 128, 4, whole_groups=True, conv_order="rows_first"),
    "gdn": lambda: kvffi.Page.gated_delta_net(4, 64, 8, 64, 4, state_element="bf16", replicated=True),
    "ring": lambda: kvffi.Page.ring(128, 512, format="bf16", num_heads=8, sharding="standard"),
    "opaque state": lambda: kvffi.Page.opaque(100, usage="state"),
}


@pytest.mark.parametrize("name", [*PAGES, *STATES])
def test_every_kind_of_page_can_be_arranged(name: str) -> None:
    arrangement = kvffi.Arrangement(kvffi.Worker("org/model"))
    arrangement.add_pool(kvffi.Pool("blhnc", 4))
    tokens = {"usage": "state"} if name in STATES else {"block_tokens": 64, "kernel_tokens": 16}
    group = arrangement.add_group(**tokens)
    arrangement.add_layer("layers.0", {**PAGES, **STATES}[name](), group)
    bases = [(index + 1) << 32 for index in range(len(arrangement.storage_lens()))]
    spec = arrangement.build(bases)
    assert spec.plan_local().memory_ranges()


def test_a_local_plan_has_ranges_regions_and_members(decode: kvffi.Spec) -> None:
    with decode.plan_local(require_whole_rows=True) as plan:
        (memory,) = plan.memory_ranges()
        assert (memory.base, memory.len, memory.mem) == (0x1_0000_0000, 16 * 3 * 73728, 0)
        (region,) = plan.regions()
        assert (region.block_len, region.num_blocks, region.num_members) == (3 * 73728, 16, 3)
        assert plan.members(0)[2] == kvffi.Member("layers.2", "latent", 0, 2 * 73728, 73728)
        with pytest.raises(kvffi.ArgumentError):
            plan.members(1)
        with pytest.raises(kvffi.ArgumentError, match="-1 is not in the range"):
            plan.members(-1)
        for wrong in ("1", 1.5, None):
            with pytest.raises(kvffi.ArgumentError, match=r"region is of type .*, not int"):
                plan.members(wrong)  # type: ignore[arg-type]


def test_whole_rows_can_be_required() -> None:
    with pytest.raises(kvffi.RowError, match=r"layers\."):
        mla(1 << 32, layout="lbhnc").plan_local(require_whole_rows=True)


def attention(tp_rank: int, tp_size: int) -> kvffi.Spec:
    arrangement = kvffi.Arrangement(kvffi.Worker("org/model", tp_rank=tp_rank, tp_size=tp_size))
    arrangement.add_pool(kvffi.Pool("blhnc", 16))
    arrangement.add_layer("layers.0", kvffi.Page.attention(8, 128), arrangement.add_group(16))
    return arrangement.build([1 << 32])


def test_shares_say_whom_a_rank_reads_from_and_how_many_readers_it_has() -> None:
    prefill, decode = attention(0, 2), attention(3, 4)
    sources = decode.sources(prefill, "layers.0")
    assert {(share.tp_rank, share.first_unit, share.num_units) for share in sources} == {(1, 6, 2)}
    targets = prefill.targets(decode, "layers.0")
    assert {share.tp_rank for share in targets} == {0, 1}
    assert prefill.count_readers([decode]) == 2
    assert prefill.count_readers([]) == 0
    assert decode.sources(prefill, "no such layer") == []
    with pytest.raises(ValueError, match="NUL"):
        decode.sources(prefill, "layers.0\0")


@pytest.mark.parametrize(
    "worker",
    [
        {"tp_rank": 4, "tp_size": 4},
        {"dcp_size": 3, "tp_size": 4},
        {"tp_rank": -1},
        {"tp_size": 1 << 32},
        {"tp_size": 0},
        {"model": "a\0b"},
        {"model": "\ud800"},
        {"extra": {"a\0": "b"}},
    ],
)
def test_a_worker_that_cannot_be_is_refused(worker: dict[str, Any]) -> None:
    def arrange() -> kvffi.Spec:
        arrangement = kvffi.Arrangement(kvffi.Worker(**{"model": "org/model", **worker}))
        arrangement.add_pool(kvffi.Pool("blhnc", 4))
        arrangement.add_layer("layers.0", kvffi.Page.mla(), arrangement.add_group(64))
        return arrangement.build([1 << 32])

    with pytest.raises((ValueError, OverflowError)):
        arrange()


def test_calls_in_the_wrong_order_are_refused() -> None:
    arrangement = kvffi.Arrangement(kvffi.Worker("org/model"))
    with pytest.raises(kvffi.ArgumentError):
        arrangement.add_group(64)
    builder = kvffi.SpecBuilder(kvffi.Worker("org/model"))
    with pytest.raises(kvffi.ArgumentError):
        builder.add_part(0, kvffi.Part("latent", 0, 0, 64, 64))


def test_unknown_words_are_named_with_those_that_there_are() -> None:
    with pytest.raises(ValueError, match="layout is 'rows', not one of lbhnc, "):
        kvffi.Arrangement(kvffi.Worker("m")).add_pool(kvffi.Pool("rows", 4))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="usage is None"):
        kvffi.SpecBuilder(kvffi.Worker("m")).add_group(kvffi.Group(4, usage=None))  # type: ignore[arg-type]
