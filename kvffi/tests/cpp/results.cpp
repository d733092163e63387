/* kvffi.hpp without exceptions: a call that fails is a result with an error. */
#define KVFFI_RESULTS
#include <cstdio>

#include "kvffi.hpp"

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            std::fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
            return 1; \
        } \
    } while (0)

int main()
{
    CHECK(kvffi::abi_check());
    auto unreadable = kvffi::Spec::from_json("{");
    CHECK(!unreadable);
    CHECK(unreadable.error().status() == KVFFI_ERR_JSON);

    auto invalid = kvffi::Spec::from_json(
        R"({"version": 2, "fingerprint": {"model": "m"}, "storages": [], "groups": [],
            "layers": [{"name": "l", "group": 0, "kind": "mla", "parts": []}]})");
    CHECK(!invalid && invalid.error().status() == KVFFI_ERR_INVALID_SPEC && invalid.error().findings().size() >= 2);

    auto spec = kvffi::Spec::from_json(
        R"({"version": 1, "fingerprint": {"model": "m"}, "storages": [{"base": 4096, "len": 256, "mem": "dram"}],
            "groups": [{"pool": 0, "block_tokens": 4, "num_blocks": 4}],
            "layers": [{"name": "l", "group": 0, "kind": "mla", "parts": [{"name": "latent", "storage": 0, "offset": 0,
              "block_stride": 64, "sharding": "replicated", "units": {"count": 1, "stride": 32},
              "tokens": [{"count": 4, "stride": 8}], "content": 8}]}]})");
    CHECK(spec);
    auto again = spec->to_json();
    CHECK(again && again->view().find("\"latent\"") != std::string_view::npos);

    auto plan = kvffi::LocalPlan::create(*spec);
    CHECK(plan);
    CHECK(plan->memory_ranges()->size() == 1 && plan->regions()->front().num_blocks == 4);
    auto members = plan->members(0);
    CHECK(members && std::string_view(members->front().part) == "latent");
    CHECK(plan->members(1).error().status() == KVFFI_ERR_INVALID_ARGUMENT);

    auto pair = kvffi::Pair::create(*spec, *spec);
    auto answer = kvffi::Answer::create();
    CHECK(pair && answer);
    CHECK(answer->descriptors()->empty() && answer->zero_ranges()->empty());
    CHECK(pair->verify(*answer).error().status() == KVFFI_ERR_INVALID_ARGUMENT);
    const std::vector<std::uint32_t> blocks = {2};
    const std::vector<kvffi_block_list> lists = {kvffi::block_list(0, blocks)};
    CHECK(pair->answer(kvffi::request(KVFFI_OP_READ, lists, lists), *answer));
    CHECK(pair->verify(*answer));
    CHECK(answer->descriptors()->size() == 1 && answer->totals()->bytes == 32);
    CHECK(pair->explain()->view().find("32 bytes") != std::string_view::npos);

    kvffi_attention attention = KVFFI_ATTENTION_INIT;
    attention.num_kv_heads = 2;
    attention.head_size = 3;
    CHECK(kvffi::Page::nvfp4(attention).error().findings().size() == 1);
    auto page = kvffi::Page::attention(attention);
    kvffi_worker worker = KVFFI_WORKER_INIT;
    worker.model = "m";
    auto arrangement = kvffi::Arrangement::create(worker);
    CHECK(page && arrangement);
    CHECK(arrangement->add(kvffi_blocks(KVFFI_BLOCKS_INIT)).error().status() == KVFFI_ERR_INVALID_ARGUMENT);
    CHECK(arrangement->storage_lens()->empty());
    CHECK(!*pair->is_empty() && *spec->count_readers(std::vector<const kvffi_spec *>{spec->get()}) == 1);
    CHECK(spec->sources(*spec, "l")->size() == 1 && spec->targets(*spec, "none")->empty());
    std::puts("results instead of exceptions");
    return 0;
}
