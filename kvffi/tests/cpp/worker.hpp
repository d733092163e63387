/* What the C++ tests of agents share: checks, and a worker with one layer. */
#ifndef WORKER_HPP
#define WORKER_HPP

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <string>

#include "kvffi.hpp"

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            std::cerr << __FILE__ << ':' << __LINE__ << ": " #condition " does not hold\n"; \
            std::exit(1); \
        } \
    } while (0)

/* The status of the error that a call throws; KVFFI_OK if it throws none. */
template <typename Call> kvffi_status thrown_by(Call call)
{
    try {
        call();
        return KVFFI_OK;
    } catch (const kvffi::Error &error) {
        return error.status();
    }
}

constexpr std::size_t num_blocks = 4, block_bytes = 16 * 1152;

/* An agent with one MLA layer in memory of its own. */
struct Worker {
    Worker(const char *name, const kvffi::Loopback &network, std::uint8_t fill)
        : memory(num_blocks * block_bytes, fill), spec(describe()), agent(open(name, network))
    {
        agent.register_memory(kvffi::LocalPlan::create(spec));
    }

    kvffi::Spec describe() const
    {
        kvffi_worker worker = KVFFI_WORKER_INIT;
        worker.model = "org/model";
        kvffi_rows rows = KVFFI_ROWS_INIT;
        rows.preset = KVFFI_ROWS_BF16;
        kvffi_group group = KVFFI_GROUP_INIT;
        group.block_tokens = 16;
        group.num_blocks = num_blocks;
        const kvffi::Page page = kvffi::Page::mla(rows);
        auto tensors = kvffi::Tensors::create(worker);
        const std::uint32_t layer = tensors.add(kvffi::page_layer("layers.0", page, tensors.add(group)));
        const std::uint64_t shape[] = {num_blocks, 16, 576};
        const std::int64_t strides[] = {block_bytes, 1152, 2};
        tensors.add_tensor(layer, kvffi::tensor(memory.data(), shape, strides, "BNC", 2));
        return tensors.build();
    }

    static kvffi::Agent open(const char *name, const kvffi::Loopback &network)
    {
        kvffi_agent_options options = KVFFI_AGENT_OPTIONS_INIT;
        options.loopback = network.get();
        return kvffi::Agent::create(name, options);
    }

    bool block_is(std::size_t block, std::uint8_t byte) const
    {
        const auto *first = memory.data() + block * block_bytes;
        return std::all_of(first, first + block_bytes, [&](std::uint8_t is) { return is == byte; });
    }

    std::vector<std::uint8_t> memory;
    kvffi::Spec spec;
    kvffi::Agent agent;
};

inline kvffi_descriptor whole_block(std::uint64_t local, std::uint64_t remote)
{
    return {0, 0, local * block_bytes, remote * block_bytes, block_bytes};
}

#endif
