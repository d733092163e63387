"""Plans transfers: decode reads three blocks from prefill, which keeps its caches in another layout.

make wheel && pip install target/wheel/kvffi-*.whl numpy && python3 examples/python/02_explain.py
"""

import numpy

import kvffi


def worker(layout: kvffi.Layout) -> kvffi.Spec:
    """Three MLA layers of 16 blocks of 64 tokens, in memory of numpy."""
    arrangement = kvffi.Arrangement(kvffi.Worker("org/model"))
    arrangement.add_pool(kvffi.Pool(layout, num_blocks=16))
    group = arrangement.add_group(block_tokens=64)
    for index in range(3):
        arrangement.add_layer(f"layers.{index}", kvffi.Page.mla("bf16"), group)
    return arrangement.build([numpy.zeros(length, numpy.uint8) for length in arrangement.storage_lens()])


# Decode's blocks 5, 6 and 9 from prefill's blocks 1, 2 and 8.
request = kvffi.Request("read", local={0: [5, 6, 9]}, remote={0: numpy.array([1, 2, 8])})

# Rows on both sides: blocks 5 and 6 are neighbours here and there, and become one.
pair = kvffi.Pair(worker("blhnc"), worker("blhnc"), require_whole_rows=True)
answer = pair.answer(request)
print(answer.descriptors()["len"])  # [442368 221184]

# Layers apart on one side: every page is a descriptor, and the plan says why.
pages = kvffi.Pair(worker("lbhnc"), worker("blhnc"))
pages.answer(request, into=answer)
print(answer.totals())
print(pages.explain())
pages.verify(answer)
