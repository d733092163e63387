/* Everything of kvffi.hpp that describes caches: pages of every kind, arranged and as tensors, and who reads from whom. */
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

/* Whether a call throws an error with this status. */
template <typename Call> static bool fails(kvffi_status status, Call call)
{
    try {
        call();
        return false;
    } catch (const kvffi::Error &error) {
        return error.status() == status && std::string(error.what()).find(kvffi_status_name(status)) == 0;
    }
}

static kvffi_worker worker(std::uint32_t rank, std::uint32_t size)
{
    kvffi_worker worker = KVFFI_WORKER_INIT;
    worker.model = "org/model";
    worker.tp_rank = rank;
    worker.tp_size = size;
    return worker;
}

static kvffi::Page attention()
{
    kvffi_attention attention = KVFFI_ATTENTION_INIT;
    attention.num_kv_heads = 8;
    attention.head_size = 128;
    return kvffi::Page::attention(attention);
}

static kvffi::Page rows(std::int32_t preset)
{
    kvffi_rows rows = KVFFI_ROWS_INIT;
    rows.preset = preset;
    return kvffi::Page::mla(rows);
}

/* One layer of every kind; each has to find its place. */
static void every_kind()
{
    kvffi_attention fp8 = KVFFI_ATTENTION_INIT;
    fp8.num_kv_heads = 8;
    fp8.head_size = 128;
    fp8.element = KVFFI_ELEMENT_FP8_E4M3;
    kvffi_attention plain = fp8;
    plain.element = KVFFI_ELEMENT_DEFAULT;
    kvffi_rows fp8_rows = KVFFI_ROWS_INIT;
    fp8_rows.preset = KVFFI_ROWS_FP8;
    kvffi_state_options replicated = KVFFI_STATE_OPTIONS_INIT;
    replicated.flags = KVFFI_STATE_REPLICATED;

    std::vector<kvffi::Page> of_tokens, of_requests;
    of_tokens.push_back(attention());
    of_tokens.push_back(rows(KVFFI_ROWS_BF16));
    of_tokens.push_back(kvffi::Page::indexer(fp8_rows));
    of_tokens.push_back(kvffi::Page::opaque(7, nullptr, KVFFI_USAGE_TOKENS));
    of_tokens.push_back(kvffi::Page::token_head_quant(fp8, 4));
    of_tokens.push_back(kvffi::Page::block_scaled(fp8, KVFFI_ELEMENT_F32, 1, 16));
    of_tokens.push_back(kvffi::Page::nvfp4(plain));
    of_requests.push_back(kvffi::Page::ring(32, 512, "bf16", 8, KVFFI_SHARDING_STANDARD));
    of_requests.push_back(kvffi::Page::mamba1(8192, 16, 4));
    of_requests.push_back(kvffi::Page::mamba2(64, 64, 8, 128, 4));
    of_requests.push_back(kvffi::Page::gated_delta_net(16, 128, 32, 128, 4, replicated));

    auto arrangement = kvffi::Arrangement::create(worker(0, 2));
    kvffi_pool pool = KVFFI_POOL_INIT;
    pool.layout = KVFFI_LAYOUT_LBHNC;
    pool.num_blocks = 4;
    kvffi_blocks tokens = KVFFI_BLOCKS_INIT, requests = KVFFI_BLOCKS_INIT;
    tokens.block_tokens = 64;
    requests.usage = KVFFI_USAGE_STATE;
    arrangement.add(pool);
    const std::uint32_t group = arrangement.add(tokens);
    arrangement.add(pool);
    const std::uint32_t states = arrangement.add(requests);
    std::vector<std::string> names;
    for (std::size_t i = 0; i < of_tokens.size() + of_requests.size(); i++) {
        names.push_back("layers." + std::to_string(i));
    }
    for (std::size_t i = 0; i < of_tokens.size(); i++) {
        arrangement.add(kvffi::page_layer(names[i].c_str(), of_tokens[i], group));
    }
    for (std::size_t i = 0; i < of_requests.size(); i++) {
        arrangement.add(kvffi::page_layer(names[of_tokens.size() + i].c_str(), of_requests[i], states));
    }
    std::vector<std::uint64_t> bases;
    for (const std::uint64_t len : arrangement.storage_lens()) {
        CHECK(len > 0);
        bases.push_back((bases.size() + 1) << 32);
    }
    // Scales lie in buffers of their own.
    CHECK(bases.size() > 2);
    const kvffi::Spec spec = arrangement.build(bases);
    const kvffi::Text json = spec.to_json();
    for (const char *part : {"\"latent\"", "\"index\"", "\"k_scale\"", "\"ring\"", "\"conv.x\"", "\"conv.q\"", "\"aux\""}) {
        CHECK(json.view().find(part) != std::string_view::npos);
    }
    plain.head_size = 3;
    CHECK(fails(KVFFI_ERR_INVALID_SPEC, [&] { kvffi::Page::nvfp4(plain); }));
    CHECK(fails(KVFFI_ERR_INVALID_SPEC, [&] { arrangement.build({}); }));
}

/* The same cache from a tensor and arranged: JSON says whether they are equal. */
static void tensors_equal_an_arrangement()
{
    const std::uint64_t num_blocks = 4, block_tokens = 64, base = 0x10000;
    const kvffi::Page page = rows(KVFFI_ROWS_BF16);
    kvffi_group group = KVFFI_GROUP_INIT;
    group.block_tokens = block_tokens;
    group.num_blocks = num_blocks;
    kvffi_storage storage = KVFFI_STORAGE_INIT;
    storage.base = base;
    storage.len = num_blocks * block_tokens * 1152;
    const std::array<std::uint64_t, 3> shape = {num_blocks, block_tokens, 576};
    const std::int64_t strides[] = {64 * 1152, 1152, 2};

    auto tensors = kvffi::Tensors::create(worker(0, 1));
    tensors.add(storage);
    const std::uint32_t index = tensors.add(group);
    const std::uint32_t layer = tensors.add(kvffi::page_layer("layers.0", page, index));
    tensors.add_tensor(layer, kvffi::tensor(reinterpret_cast<const void *>(base), shape, strides, "BNC", 2));
    const kvffi::Spec from_tensor = tensors.build();

    auto arrangement = kvffi::Arrangement::create(worker(0, 1));
    kvffi_pool pool = KVFFI_POOL_INIT;
    pool.layout = KVFFI_LAYOUT_BLHNC;
    pool.num_blocks = num_blocks;
    kvffi_blocks blocks = KVFFI_BLOCKS_INIT;
    blocks.block_tokens = block_tokens;
    arrangement.add(pool);
    arrangement.add(kvffi::page_layer("layers.0", page, arrangement.add(blocks)));
    CHECK(std::vector<std::uint64_t>(arrangement.storage_lens()) == std::vector<std::uint64_t>{storage.len});
    const kvffi::Spec arranged = arrangement.build(std::vector<std::uint64_t>{base});
    const auto pair = kvffi::Pair::create(from_tensor, arranged);
    CHECK(!pair.is_empty());
    auto answer = kvffi::Answer::create();
    pair.answer_json(R"({"op": "read", "local": [{"group": 0, "blocks": [1, 2]}], "remote": [{"group": 0, "blocks": [2, 3]}]})",
                     answer);
    CHECK(answer.totals().num_descriptors == 1 && answer.totals().bytes == 2 * 64 * 1152);

    auto unfinished = kvffi::Tensors::create(worker(0, 1));
    unfinished.add(group);
    unfinished.add(kvffi::page_layer("layers.0", page));
    CHECK(fails(KVFFI_ERR_INVALID_SPEC, [&] { unfinished.build(); }));
}

/* Eight heads on two ranks meet eight heads on four. */
static void shares_of_unequal_ranks()
{
    const auto rank = [](std::uint32_t tp_rank, std::uint32_t tp_size) {
        auto arrangement = kvffi::Arrangement::create(worker(tp_rank, tp_size));
        kvffi_pool pool = KVFFI_POOL_INIT;
        pool.layout = KVFFI_LAYOUT_BLHNC;
        pool.num_blocks = 2;
        kvffi_blocks blocks = KVFFI_BLOCKS_INIT;
        blocks.block_tokens = 16;
        const kvffi::Page page = attention();
        arrangement.add(pool);
        arrangement.add(kvffi::page_layer("layers.0", page, arrangement.add(blocks)));
        return kvffi::Spec(arrangement.build(std::vector<std::uint64_t>{0x10000}));
    };
    const kvffi::Spec prefill = rank(1, 2), decode = rank(3, 4), other = rank(0, 4);
    for (const kvffi_share &share : decode.sources(prefill, "layers.0")) {
        CHECK(share.tp_rank == 1 && share.first_unit == 6 && share.num_units == 2);
    }
    std::size_t num_targets = 0;
    for (const kvffi_share &share : prefill.targets(decode, "layers.0")) {
        CHECK(share.tp_rank == 2 || share.tp_rank == 3);
        num_targets++;
    }
    CHECK(num_targets == 4);
    const kvffi_spec *const stages[] = {decode.get()};
    CHECK(prefill.count_readers(stages) == 2);
    CHECK(kvffi::Pair::create(other, prefill).is_empty());
}

int main()
{
    kvffi::abi_check();
    every_kind();
    tensors_equal_an_arrangement();
    shares_of_unequal_ranks();
    std::cout << "every kind has its place\n";
}
