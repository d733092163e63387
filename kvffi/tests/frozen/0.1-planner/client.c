/*
 * An engine of the day of this header. It describes caches in all four ways, pairs workers of unequal tensor parallelism,
 * asks for descriptors, and looks at errors by number and by text.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvffi.h"

#define CALL(call) done((call), #call)

static kvffi_error *error;

static void done(kvffi_status status, const char *what)
{
    if (status != KVFFI_OK) {
        fprintf(stderr, "%s: %s: %s\n", what, kvffi_status_name(status), kvffi_error_message(error));
        exit(1);
    }
}

static kvffi_worker rank_of(uint32_t rank, uint32_t size)
{
    kvffi_worker worker = KVFFI_WORKER_INIT;
    worker.model = "org/model";
    worker.tp_rank = rank;
    worker.tp_size = size;
    return worker;
}

/* Two layers of grouped-query attention, 8 KV heads, in rows. */
static kvffi_spec *arranged(uint32_t rank, uint32_t size, uint64_t base)
{
    const kvffi_worker worker = rank_of(rank, size);
    kvffi_attention attention = KVFFI_ATTENTION_INIT;
    attention.num_kv_heads = 8;
    attention.head_size = 128;
    kvffi_page *page = NULL;
    CALL(kvffi_page_new_attention(&attention, &page, &error));

    kvffi_arrangement *arrangement = NULL;
    CALL(kvffi_arrangement_new(&worker, &arrangement, &error));
    kvffi_pool pool = KVFFI_POOL_INIT;
    pool.layout = KVFFI_LAYOUT_BLHNC;
    pool.num_blocks = 16;
    CALL(kvffi_arrangement_add_pool(arrangement, &pool, &error));
    kvffi_blocks blocks = KVFFI_BLOCKS_INIT;
    blocks.block_tokens = 64;
    uint32_t group = UINT32_MAX;
    CALL(kvffi_arrangement_add_group(arrangement, &blocks, &group, &error));
    static const char *const NAMES[] = {"layers.0", "layers.1"};
    for (int i = 0; i < 2; i++) {
        kvffi_page_layer layer = KVFFI_PAGE_LAYER_INIT;
        layer.name = NAMES[i];
        layer.page = page;
        layer.group = group;
        CALL(kvffi_arrangement_add_layer(arrangement, &layer, &error));
    }
    uint64_t len = 0;
    size_t num_storages = 0;
    CALL(kvffi_arrangement_get_storage_lens(arrangement, &len, 1, &num_storages, &error));
    printf("rank %" PRIu32 " of %" PRIu32 ": %zu storage of %" PRIu64 " bytes\n", rank, size, num_storages, len);
    kvffi_spec *spec = NULL;
    CALL(kvffi_arrangement_build(arrangement, &base, 1, &spec, &error));
    kvffi_arrangement_free(arrangement);
    kvffi_page_free(page);
    return spec;
}

/* One MLA layer, by tensor or offset by offset. */
static kvffi_spec *latent(int by_tensor)
{
    const kvffi_worker worker = rank_of(0, 1);
    const uint64_t base = 0x10000, token = 1152, page_bytes = 64 * token, num_blocks = 4;
    kvffi_group group = KVFFI_GROUP_INIT;
    group.block_tokens = 64;
    group.num_blocks = num_blocks;
    kvffi_spec *spec = NULL;
    if (by_tensor) {
        kvffi_rows rows = KVFFI_ROWS_INIT;
        rows.preset = KVFFI_ROWS_BF16;
        kvffi_page *page = NULL;
        CALL(kvffi_page_new_mla(&rows, &page, &error));
        kvffi_page_layer layer = KVFFI_PAGE_LAYER_INIT;
        layer.name = "layers.0";
        layer.page = page;
        const uint64_t shape[] = {num_blocks, 64, 576};
        const int64_t strides[] = {64 * 1152, 1152, 2};
        kvffi_tensor tensor = KVFFI_TENSOR_INIT;
        tensor.ptr = base;
        tensor.shape = shape;
        tensor.strides = strides;
        tensor.num_axes = 3;
        tensor.axes = "BNC";
        tensor.element_size = 2;
        kvffi_tensors *tensors = NULL;
        CALL(kvffi_tensors_new(&worker, &tensors, &error));
        CALL(kvffi_tensors_add_group(tensors, &group, NULL, &error));
        CALL(kvffi_tensors_add_layer(tensors, &layer, NULL, &error));
        CALL(kvffi_tensors_add_tensor(tensors, 0, &tensor, &error));
        CALL(kvffi_tensors_build(tensors, &spec, &error));
        kvffi_tensors_free(tensors);
        kvffi_page_free(page);
        return spec;
    }
    kvffi_storage storage = KVFFI_STORAGE_INIT;
    storage.base = base;
    storage.len = num_blocks * page_bytes;
    kvffi_layer layer = KVFFI_LAYER_INIT;
    layer.name = "layers.0";
    layer.kind = KVFFI_KIND_MLA;
    const kvffi_axis tokens = {64, token};
    kvffi_part part = KVFFI_PART_INIT;
    part.name = "latent";
    part.format = "bf16";
    part.block_stride = page_bytes;
    part.unit_stride = page_bytes;
    part.tokens = &tokens;
    part.num_tokens = 1;
    part.content = token;
    kvffi_spec_builder *builder = NULL;
    CALL(kvffi_spec_builder_new(&worker, &builder, &error));
    CALL(kvffi_spec_builder_add_storage(builder, &storage, NULL, &error));
    CALL(kvffi_spec_builder_add_group(builder, &group, NULL, &error));
    CALL(kvffi_spec_builder_add_layer(builder, &layer, NULL, &error));
    CALL(kvffi_spec_builder_add_part(builder, 0, &part, &error));
    CALL(kvffi_spec_builder_build(builder, &spec, &error));
    kvffi_spec_builder_free(builder);
    return spec;
}

/* What both describe must fit together, and what is written as JSON must be read again. */
static void show_one_descriptor(const kvffi_spec *local, const kvffi_spec *remote)
{
    kvffi_text *json = NULL;
    CALL(kvffi_spec_to_json(remote, &json, &error));
    kvffi_spec *again = NULL;
    CALL(kvffi_spec_from_json(kvffi_text_data(json), kvffi_text_len(json), &again, &error));
    kvffi_text_free(json);
    kvffi_local_plan *plan = NULL;
    CALL(kvffi_local_plan_new(again, KVFFI_LOCAL_PLAN_REQUIRE_WHOLE_ROWS, &plan, &error));
    kvffi_memory_range range;
    kvffi_region region;
    kvffi_member member;
    size_t len = 0;
    CALL(kvffi_local_plan_get_memory_ranges(plan, &range, 1, &len, &error));
    CALL(kvffi_local_plan_get_regions(plan, &region, 1, &len, &error));
    CALL(kvffi_local_plan_get_members(plan, 0, &member, 1, &len, &error));
    printf("register %" PRIu64 " bytes; %s %s in blocks of %" PRIu64 "\n", range.len, member.layer, member.part,
           region.block_len);
    kvffi_local_plan_free(plan);
    kvffi_pair_options options = KVFFI_PAIR_OPTIONS_INIT;
    options.flags = KVFFI_PAIR_REQUIRE_WHOLE_ROWS;
    options.max_gap = KVFFI_GAP_ANY;
    kvffi_pair *pair = NULL;
    CALL(kvffi_pair_new(local, again, &options, &pair, &error));
    int32_t is_empty = -1;
    CALL(kvffi_pair_is_empty(pair, &is_empty, &error));
    kvffi_text *text = NULL;
    CALL(kvffi_pair_explain(pair, KVFFI_FORM_JSON, &text, &error));
    printf("empty: %" PRId32 ", explained: %d\n", is_empty, strstr(kvffi_text_data(text), "\"schema\"") != NULL);
    kvffi_text_free(text);
    kvffi_pair_free(pair);
    kvffi_spec_free(again);
}

/* Decode's rank pulls three blocks, two of which are neighbours on both sides. */
static void show_answer(const kvffi_spec *decode, const kvffi_spec *prefill)
{
    kvffi_pair *pair = NULL;
    kvffi_answer *answer = NULL;
    CALL(kvffi_pair_new(decode, prefill, NULL, &pair, &error));
    CALL(kvffi_answer_new(&answer, &error));
    static const uint32_t LOCAL[] = {3, 4, 8}, REMOTE[] = {1, 2, 9};
    const kvffi_block_list local = {0, 0, 0, LOCAL, 3}, remote = {0, 0, 0, REMOTE, 3};
    kvffi_request request = KVFFI_REQUEST_INIT;
    request.op = KVFFI_OP_READ;
    request.local = &local;
    request.num_local = 1;
    request.remote = &remote;
    request.num_remote = 1;
    CALL(kvffi_pair_answer(pair, &request, answer, &error));
    CALL(kvffi_pair_verify(pair, answer, &error));
    kvffi_answer_totals totals;
    CALL(kvffi_answer_get_totals(answer, &totals, &error));
    printf("%" PRIu64 " descriptors, %" PRIu64 " bytes, %" PRIu64 " of padding\n", totals.num_descriptors, totals.bytes,
           totals.padding_bytes);
    kvffi_descriptor descriptors[16];
    kvffi_zero_range zero_ranges[1];
    size_t len = 0;
    const kvffi_status status = kvffi_answer_get_descriptors(answer, descriptors, 0, &len, NULL);
    printf("an array of 0: %s, %zu are needed\n", kvffi_status_name(status), len);
    CALL(kvffi_answer_get_descriptors(answer, descriptors, 16, &len, &error));
    for (size_t i = 0; i < len && i < 2; i++) {
        printf("%" PRIu32 "+%" PRIu64 " <- %" PRIu32 "+%" PRIu64 ", %" PRIu64 "\n", descriptors[i].local_storage,
               descriptors[i].local_offset, descriptors[i].remote_storage, descriptors[i].remote_offset,
               descriptors[i].len);
    }
    CALL(kvffi_answer_get_zero_ranges(answer, zero_ranges, 1, &len, &error));
    static const char NOTHING[] = "{\"op\": \"read\", \"local\": [], \"remote\": []}";
    CALL(kvffi_pair_answer_json(pair, NOTHING, sizeof NOTHING - 1, answer, &error));
    CALL(kvffi_answer_get_totals(answer, &totals, &error));
    printf("%zu ranges to zero; an empty request: %" PRIu64 " descriptors\n", len, totals.num_descriptors);
    kvffi_answer_free(answer);
    kvffi_pair_free(pair);
}

int main(void)
{
    CALL(kvffi_abi_check(KVFFI_VERSION, &error));
    printf("at least 0.1.0: %d %d\n", kvffi_version() >= KVFFI_VERSION, strncmp(kvffi_version_text(), "0.1.", 4) == 0);

    kvffi_spec *prefill = arranged(0, 1, UINT64_C(0x100000000));
    kvffi_spec *decode = arranged(1, 4, UINT64_C(0x200000000));
    kvffi_share share;
    size_t num_shares = 0, num_readers = 0;
    const kvffi_status size = kvffi_spec_get_sources(decode, prefill, "layers.0", &share, 0, &num_shares, NULL);
    const kvffi_spec *const stages[] = {decode};
    CALL(kvffi_spec_count_readers(prefill, stages, 1, &num_readers, &error));
    printf("%s: %zu shares; %zu readers\n", kvffi_status_name(size), num_shares, num_readers);
    show_answer(decode, prefill);

    kvffi_spec *by_offset = latent(0), *by_tensor = latent(1);
    show_one_descriptor(by_offset, by_tensor);

    kvffi_pair *pair = NULL;
    kvffi_status status = kvffi_pair_new(by_offset, prefill, NULL, &pair, &error);
    printf("%s, %d findings, the first is text: %d\n", kvffi_status_name(status), kvffi_error_num_findings(error) > 0,
           kvffi_error_finding(error, 0) != NULL);
    kvffi_error_free(error);
    kvffi_spec *none = NULL;
    status = kvffi_spec_from_json("{", 1, &none, &error);
    printf("%d %d %d\n", status == KVFFI_ERR_JSON, kvffi_error_status(error) == status, none == NULL && pair == NULL);
    kvffi_error_free(error);

    kvffi_spec_free(by_tensor);
    kvffi_spec_free(by_offset);
    kvffi_spec_free(decode);
    kvffi_spec_free(prefill);
    return 0;
}
