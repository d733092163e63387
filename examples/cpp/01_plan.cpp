/*
 * The path of examples/c/01_plan.c in C++17: which bytes do blocks 5, 6 and 9 of a decode worker read from blocks 1, 2 and
 * 8 of a prefill worker? Everything is freed by its destructor, and what fails throws.
 *
 * Build and run, from the root of the repository after `cargo build --release -p kvffi`:
 *
 *     c++ -std=c++17 -Iinclude examples/cpp/01_plan.cpp target/release/libkvffi.a -lpthread -ldl -lm -o plan && ./plan
 */
#include <cstdint>
#include <iostream>
#include <string>

#include "kvffi.hpp"

namespace {

constexpr std::uint64_t num_layers = 2, num_blocks = 10, block_tokens = 64, token_bytes = 1152;
constexpr std::uint64_t page_bytes = block_tokens * token_bytes;
constexpr std::uint64_t row_bytes = num_layers * page_bytes;

/* A worker whose rows of two MLA pages begin at `base`. */
kvffi::Spec worker(std::uint64_t base)
{
    kvffi_worker identity = KVFFI_WORKER_INIT;
    identity.model = "example";
    auto builder = kvffi::SpecBuilder::create(identity);

    kvffi_storage storage = KVFFI_STORAGE_INIT;
    storage.base = base;
    storage.len = num_blocks * row_bytes;
    builder.add(storage);

    kvffi_group group = KVFFI_GROUP_INIT;
    group.block_tokens = block_tokens;
    group.num_blocks = num_blocks;
    builder.add(group);

    for (std::uint64_t i = 0; i < num_layers; i++) {
        const std::string name = "layers." + std::to_string(i);
        kvffi_layer layer = KVFFI_LAYER_INIT;
        layer.name = name.c_str();
        layer.kind = KVFFI_KIND_MLA;
        const std::uint32_t index = builder.add(layer);

        const kvffi_axis tokens = {block_tokens, token_bytes};
        kvffi_part part = KVFFI_PART_INIT;
        part.name = "latent";
        part.offset = i * page_bytes;
        part.block_stride = row_bytes;
        part.unit_stride = page_bytes;
        part.tokens = &tokens;
        part.num_tokens = 1;
        part.content = token_bytes;
        builder.add_part(index, part);
    }
    return builder.build();
}

void plan()
{
    kvffi::abi_check();
    const kvffi::Spec decode = worker(0x100000000);
    const kvffi::Spec prefill = worker(0x200000000);
    const auto pair = kvffi::Pair::create(decode, prefill);

    const std::vector<std::uint32_t> local_blocks = {5, 6, 9}, remote_blocks = {1, 2, 8};
    const std::vector<kvffi_block_list> local = {kvffi::block_list(0, local_blocks)};
    const std::vector<kvffi_block_list> remote = {kvffi::block_list(0, remote_blocks)};
    auto answer = kvffi::Answer::create();
    pair.answer(kvffi::request(KVFFI_OP_READ, local, remote), answer);

    const kvffi_answer_totals totals = answer.totals();
    std::cout << totals.num_descriptors << " descriptors, " << totals.bytes << " bytes\n";
    for (const kvffi_descriptor &d : answer.descriptors()) {
        std::cout << "local storage " << d.local_storage << " + " << d.local_offset << " <- remote storage "
                  << d.remote_storage << " + " << d.remote_offset << ", " << d.len << " bytes\n";
    }
}

} // namespace

int main()
{
    try {
        plan();
        return 0;
    } catch (const kvffi::Error &error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
}
