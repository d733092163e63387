"""Describes caches in four ways, and prints what one worker registers.

make wheel && pip install target/wheel/kvffi-*.whl numpy && python3 examples/python/01_describe.py
"""

import numpy

import kvffi

worker = kvffi.Worker("org/model", tp_rank=1, tp_size=2)

# The engine has tensors: pointer, shape and strides are read from them. torch tensors and DLPack do as well.
latents = [numpy.zeros((16, 64, 576), numpy.uint16) for _ in range(2)]
draft = numpy.zeros((16, 4, 64, 2, 128), numpy.uint16)
tensors = kvffi.Tensors(worker)
group = tensors.add_group(kvffi.Group(num_blocks=16, block_tokens=64))
for index, latent in enumerate(latents):
    layer = tensors.add_layer(f"layers.{index}", kvffi.Page.mla("bf16"), group)
    tensors.add_tensor(layer, latent, "BNC")
layer = tensors.add_layer("draft.0", kvffi.Page.attention(num_kv_heads=8, head_size=128), group, role="draft")
tensors.add_tensor(layer, draft, "BHN2C")
apart = tensors.build()
print("from tensors:", [(each.base == draft.ctypes.data, each.len) for each in apart.plan_local().memory_ranges()])

# The engine asks where to put them: rows, in which all layers' pages of a block lie together.
arrangement = kvffi.Arrangement(worker)
arrangement.add_pool(kvffi.Pool("blhnc", num_blocks=16))
group = arrangement.add_group(block_tokens=64)
for index in range(2):
    arrangement.add_layer(f"layers.{index}", kvffi.Page.mla("bf16"), group)
memory = [numpy.zeros(length, numpy.uint8) for length in arrangement.storage_lens()]
rows = arrangement.build(memory)
with rows.plan_local(require_whole_rows=True) as plan:
    (region,) = plan.regions()
    print(f"arranged: {region.num_blocks} rows of {region.block_len} bytes, {[m.layer for m in plan.members(0)]}")

# It knows every offset.
builder = kvffi.SpecBuilder(worker)
storage = builder.add_storage(kvffi.Storage(memory[0].ctypes.data, memory[0].nbytes))
group = builder.add_group(kvffi.Group(num_blocks=16, block_tokens=64))
for index in range(2):
    layer = builder.add_layer(f"layers.{index}", group, kind="mla")
    page = 64 * 1152
    tokens = [(64, 1152)]
    builder.add_part(layer, kvffi.Part("latent", storage, index * page, 2 * page, 1152, tokens, unit_stride=page))
parts = builder.build()
print("by parts:", [(each.base == memory[0].ctypes.data, each.len) for each in parts.plan_local().memory_ranges()])

# Or it has JSON. What is wrong is said at once.
described = rows.to_dict()
described["groups"][0]["num_blocks"] = 17
described["layers"][1]["name"] = "layers.0"
for finding in kvffi.check(described):
    print("wrong:", finding)
