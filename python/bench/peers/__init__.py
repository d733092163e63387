"""The same requests through kvffi, vLLM's NIXL worker, raw NIXL and a plain copy, on one machine.

    make bench-peers              # every case, 20 minutes; ARGS=--quick for a few
    make bench-peers ARGS=--keep  # and writes docs/PERFORMANCE.md

`drive` is the driver. It holds the memory of a prefill and of a decode worker, which all of its children map: `ours`,
`theirs` and `raw` are a pair of processes each, one for either side. Only one pair runs at a time; the others are
stopped, since some of NIXL's threads never sleep. `scenarios` has the cases, and `ranges` works out which bytes each
one moves, with neither library: the driver compares every byte with that.
"""
