/* A spec that is built part by part equals its JSON form, and every field reaches its place. */
#include <stdint.h>

#include "check.h"

static kvffi_spec_builder *begin(void)
{
    static const kvffi_key_value EXTRA[] = {{"attn", "flashmla"}, {"rope", "neox"}};
    kvffi_worker worker = KVFFI_WORKER_INIT;
    worker.model = "org/model";
    worker.revision = "main";
    worker.extra = EXTRA;
    worker.num_extra = 2;
    worker.tp_rank = 3;
    worker.tp_size = 4;
    worker.pp_size = 2;
    worker.dcp_rank = 1;
    worker.dcp_size = 2;
    worker.dcp_interleave = 2;
    kvffi_spec_builder *builder = NULL;
    OK(kvffi_spec_builder_new(&worker, &builder, &error));
    return builder;
}

static const kvffi_axis TOKENS[] = {{2, 64}, {2, 16}};

static kvffi_part latent(void)
{
    kvffi_part part = KVFFI_PART_INIT;
    part.name = "latent";
    part.format = "bf16";
    part.storage = 1;
    part.offset = 8;
    part.block_stride = 128;
    part.unit_stride = 128;
    part.tokens = TOKENS;
    part.num_tokens = 2;
    part.content = 16;
    return part;
}

static kvffi_layer layer_of(const char *name)
{
    kvffi_layer layer = KVFFI_LAYER_INIT;
    layer.name = name;
    layer.kind = KVFFI_KIND_MLA;
    return layer;
}

static void fill(kvffi_spec_builder *builder)
{
    kvffi_storage storage = KVFFI_STORAGE_INIT;
    storage.base = 4096;
    storage.len = 1024;
    uint32_t index = 99;
    OK(kvffi_spec_builder_add_storage(builder, &storage, &index, &error));
    CHECK(index == 0);
    storage.base = 65536;
    storage.mem = KVFFI_MEM_VRAM;
    storage.device = 7;
    storage.flags = KVFFI_STORAGE_SHARED;
    OK(kvffi_spec_builder_add_storage(builder, &storage, &index, &error));
    CHECK(index == 1);

    kvffi_group group = KVFFI_GROUP_INIT;
    group.block_tokens = 4;
    group.num_blocks = 7;
    OK(kvffi_spec_builder_add_group(builder, &group, &index, &error));
    CHECK(index == 0);
    group.pool = 1;
    group.num_blocks = 2;
    group.usage = KVFFI_USAGE_STATE;
    OK(kvffi_spec_builder_add_group(builder, &group, &index, &error));
    CHECK(index == 1);

    kvffi_layer layer = layer_of("layers.0");
    OK(kvffi_spec_builder_add_layer(builder, &layer, &index, &error));
    CHECK(index == 0);
    kvffi_part part = latent();
    OK(kvffi_spec_builder_add_part(builder, index, &part, &error));

    layer = layer_of("layers.1");
    layer.group = 1;
    layer.kind = KVFFI_KIND_SSM;
    layer.role = KVFFI_ROLE_DRAFT;
    layer.flags = KVFFI_LAYER_STAYS;
    OK(kvffi_spec_builder_add_layer(builder, &layer, &index, &error));
    CHECK(index == 1);
    part = latent();
    part.name = "conv.x";
    part.format = NULL;
    part.storage = 0;
    part.offset = 0;
    part.block_stride = 512;
    part.sharding = KVFFI_SHARDING_STANDARD;
    part.total_units = 8;
    part.num_units = 2;
    OK(kvffi_spec_builder_add_part(builder, index, &part, &error));
    part.name = "ssm";
    part.offset = 256;
    part.sharding = KVFFI_SHARDING_EXPLICIT;
    part.first_unit = 6;
    part.tokens = NULL;
    part.num_tokens = 0;
    OK(kvffi_spec_builder_add_part(builder, index, &part, &error));
}

static const char JSON[] =
    "{\"version\": 1,"
    " \"fingerprint\": {\"model\": \"org/model\", \"revision\": \"main\", \"extra\": {\"attn\": \"flashmla\", \"rope\": \"neox\"}},"
    " \"topology\": {\"tp\": {\"rank\": 3, \"size\": 4}, \"pp\": {\"rank\": 0, \"size\": 2},"
    "  \"dcp\": {\"rank\": 1, \"size\": 2, \"interleave\": 2}},"
    " \"storages\": [{\"base\": 4096, \"len\": 1024, \"mem\": \"dram\"},"
    "  {\"base\": 65536, \"len\": 1024, \"mem\": {\"vram\": 7}, \"shared\": true}],"
    " \"groups\": [{\"pool\": 0, \"block_tokens\": 4, \"num_blocks\": 7},"
    "  {\"pool\": 1, \"block_tokens\": 4, \"num_blocks\": 2, \"usage\": \"state\"}],"
    " \"layers\": ["
    "  {\"name\": \"layers.0\", \"group\": 0, \"kind\": \"mla\", \"parts\": [{\"name\": \"latent\", \"storage\": 1, \"offset\": 8,"
    "   \"block_stride\": 128, \"sharding\": \"replicated\", \"units\": {\"count\": 1, \"stride\": 128},"
    "   \"tokens\": [{\"count\": 2, \"stride\": 64}, {\"count\": 2, \"stride\": 16}], \"content\": 16, \"format\": \"bf16\"}]},"
    "  {\"name\": \"layers.1\", \"group\": 1, \"kind\": \"ssm\", \"role\": \"draft\", \"transfer\": false, \"parts\": ["
    "   {\"name\": \"conv.x\", \"storage\": 0, \"offset\": 0, \"block_stride\": 512, \"sharding\": {\"total\": 8},"
    "    \"units\": {\"count\": 2, \"stride\": 128}, \"tokens\": [{\"count\": 2, \"stride\": 64}, {\"count\": 2, \"stride\": 16}],"
    "    \"content\": 16},"
    "   {\"name\": \"ssm\", \"storage\": 0, \"offset\": 256, \"block_stride\": 512, \"sharding\": {\"total\": 8, \"first\": 6},"
    "    \"units\": {\"count\": 2, \"stride\": 128}, \"tokens\": [], \"content\": 16}]}"
    "]}";

static void equal_specs(const kvffi_spec *spec)
{
    kvffi_spec *from_json = spec_of(JSON);
    kvffi_text *built = NULL;
    kvffi_text *read = NULL;
    OK(kvffi_spec_to_json(spec, &built, &error));
    OK(kvffi_spec_to_json(from_json, &read, &error));
    CHECK(strcmp(kvffi_text_data(built), kvffi_text_data(read)) == 0);
    CHECK(kvffi_text_len(built) == strlen(kvffi_text_data(built)));
    kvffi_spec *again = NULL;
    OK(kvffi_spec_from_json(kvffi_text_data(built), kvffi_text_len(built), &again, &error));
    kvffi_spec_free(again);
    kvffi_text_free(read);
    kvffi_text_free(built);
    kvffi_spec_free(from_json);
}

static void bad_fields(kvffi_spec_builder *builder)
{
    kvffi_spec_builder *none = NULL;
    kvffi_worker worker = KVFFI_WORKER_INIT;
    FAILS(KVFFI_ERR_NULL, "worker->model is NULL", kvffi_spec_builder_new(&worker, &none, &error));
    worker.model = "\xc3(";
    FAILS(KVFFI_ERR_NOT_UTF8, "worker->model is not UTF-8 at byte 0", kvffi_spec_builder_new(&worker, &none, &error));
    worker.model = "m";
    worker.num_extra = 1;
    FAILS(KVFFI_ERR_NULL, "worker->extra", kvffi_spec_builder_new(&worker, &none, &error));
    static const kvffi_key_value TWICE[] = {{"a", "1"}, {"a", "2"}};
    worker.extra = TWICE;
    worker.num_extra = 2;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "the key \"a\" twice", kvffi_spec_builder_new(&worker, &none, &error));
    static const kvffi_key_value HALF[] = {{"a", NULL}};
    worker.extra = HALF;
    worker.num_extra = 1;
    FAILS(KVFFI_ERR_NULL, "worker->extra[0].value is NULL", kvffi_spec_builder_new(&worker, &none, &error));

    kvffi_storage storage = KVFFI_STORAGE_INIT;
    storage.mem = 2;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "storage->mem is 2", kvffi_spec_builder_add_storage(builder, &storage, NULL, &error));
    storage.mem = KVFFI_MEM_DRAM;
    storage.device = 1;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "storage->device is 1", kvffi_spec_builder_add_storage(builder, &storage, NULL, &error));
    storage.device = 0;
    storage.flags = 2;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "storage->flags", kvffi_spec_builder_add_storage(builder, &storage, NULL, &error));
    storage.flags = 0;
    storage.reserved = 1;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "storage->reserved", kvffi_spec_builder_add_storage(builder, &storage, NULL, &error));
    FAILS(KVFFI_ERR_NULL, "storage is NULL", kvffi_spec_builder_add_storage(builder, NULL, NULL, &error));
    FAILS(KVFFI_ERR_NULL, "builder is NULL", kvffi_spec_builder_add_storage(NULL, &storage, NULL, &error));

    kvffi_group group = KVFFI_GROUP_INIT;
    group.usage = -1;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "group->usage is -1", kvffi_spec_builder_add_group(builder, &group, NULL, &error));

    kvffi_layer layer = KVFFI_LAYER_INIT;
    FAILS(KVFFI_ERR_NULL, "layer->name is NULL", kvffi_spec_builder_add_layer(builder, &layer, NULL, &error));
    layer = layer_of("x");
    layer.kind = 9;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "layer->kind is 9", kvffi_spec_builder_add_layer(builder, &layer, NULL, &error));
    layer = layer_of("x");
    layer.role = 4;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "layer->role is 4", kvffi_spec_builder_add_layer(builder, &layer, NULL, &error));
    layer = layer_of("x");
    layer.flags = 2;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "layer->flags", kvffi_spec_builder_add_layer(builder, &layer, NULL, &error));

    kvffi_part part = latent();
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "layer is 2, the builder has 2 layers",
          kvffi_spec_builder_add_part(builder, 2, &part, &error));
    part.sharding = 3;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "part->sharding is 3", kvffi_spec_builder_add_part(builder, 0, &part, &error));
    part.sharding = KVFFI_SHARDING_REPLICATED;
    part.total_units = 1;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "part->total_units is 1", kvffi_spec_builder_add_part(builder, 0, &part, &error));
    part.sharding = KVFFI_SHARDING_STANDARD;
    part.first_unit = 5;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "part->first_unit is 5", kvffi_spec_builder_add_part(builder, 0, &part, &error));
    part = latent();
    part.tokens = NULL;
    FAILS(KVFFI_ERR_NULL, "part->tokens", kvffi_spec_builder_add_part(builder, 0, &part, &error));
    part.num_tokens = SIZE_MAX;
    part.tokens = TOKENS;
    FAILS(KVFFI_ERR_TOO_LARGE, "part->tokens cannot have", kvffi_spec_builder_add_part(builder, 0, &part, &error));

    kvffi_text *text = NULL;
    FAILS(KVFFI_ERR_WRONG_HANDLE, "spec is a handle of kvffi_spec_builder",
          kvffi_spec_to_json((const kvffi_spec *)(const void *)builder, &text, &error));
    CHECK(text == NULL);
}

/* Validation finds everything, and the builder lives on. */
static void invalid(kvffi_spec_builder *builder)
{
    kvffi_layer layer = layer_of("layers.0");
    layer.group = 5;
    OK(kvffi_spec_builder_add_layer(builder, &layer, NULL, &error));
    kvffi_spec *spec = NULL;
    kvffi_error *error = NULL;
    CHECK(kvffi_spec_builder_build(builder, &spec, &error) == KVFFI_ERR_INVALID_SPEC);
    CHECK(spec == NULL && kvffi_error_num_findings(error) >= 2);
    kvffi_error_free(error);
    OK(kvffi_spec_builder_add_layer(builder, &layer, NULL, &error));
}

static void local_plans(void)
{
    kvffi_spec *spec = spec_of(SPEC_OF("m"));
    kvffi_local_plan *plan = NULL;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "unknown bits 0x2", kvffi_local_plan_new(spec, 2, &plan, &error));
    FAILS(KVFFI_ERR_NULL, "spec is NULL", kvffi_local_plan_new(NULL, 0, &plan, &error));
    OK(kvffi_local_plan_new(spec, KVFFI_LOCAL_PLAN_REQUIRE_WHOLE_ROWS, &plan, &error));
    kvffi_spec_free(spec);

    kvffi_memory_range range;
    kvffi_region region;
    kvffi_member member;
    size_t len = 99;
    OK(kvffi_local_plan_get_memory_ranges(plan, &range, 1, &len, &error));
    CHECK(len == 1 && range.base == 4096 && range.len == 256 && range.mem == KVFFI_MEM_DRAM && range.storage == 0);
    FAILS(KVFFI_ERR_BUFFER_TOO_SMALL, "regions has room for 0, 1 are needed",
          kvffi_local_plan_get_regions(plan, NULL, 0, &len, &error));
    OK(kvffi_local_plan_get_regions(plan, &region, 1, &len, &error));
    CHECK(len == 1 && region.offset == 0 && region.block_len == 32 && region.block_stride == 64);
    CHECK(region.num_blocks == 4 && region.num_members == 1);
    OK(kvffi_local_plan_get_members(plan, 0, &member, 1, &len, &error));
    CHECK(len == 1 && strcmp(member.layer, "l") == 0 && strcmp(member.part, "latent") == 0 && member.len == 32);
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "region is 1, the plan has 1 regions",
          kvffi_local_plan_get_members(plan, 1, &member, 1, &len, &error));
    kvffi_local_plan_free(plan);
    kvffi_local_plan_free(NULL);
}

static void explanations(void)
{
    kvffi_spec *spec = spec_of(SPEC_OF("m"));
    kvffi_pair *pair = NULL;
    kvffi_pair *other = NULL;
    kvffi_text *text = NULL;
    kvffi_answer *answer = NULL;
    OK(kvffi_pair_new(spec, spec, NULL, &pair, &error));
    OK(kvffi_pair_new(spec, spec, NULL, &other, &error));
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "form is 2", kvffi_pair_explain(pair, 2, &text, &error));
    OK(kvffi_pair_explain(pair, KVFFI_FORM_TEXT, &text, &error));
    CHECK(strstr(kvffi_text_data(text), "32 bytes") != NULL);
    kvffi_text_free(text);
    OK(kvffi_pair_explain(pair, KVFFI_FORM_JSON, &text, &error));
    CHECK(strstr(kvffi_text_data(text), "\"schema\":1") != NULL);
    kvffi_text_free(text);
    CHECK(kvffi_text_len(NULL) == 0 && strcmp(kvffi_text_data(NULL), "") == 0);
    CHECK(strcmp(kvffi_text_data((const kvffi_text *)(const void *)pair), "") == 0);

    OK(kvffi_answer_new(&answer, &error));
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "not made by pair", kvffi_pair_verify(pair, answer, &error));
    const char *json = "{\"op\": \"read\", \"local\": [{\"group\": 0, \"blocks\": [0, 1]}], \"remote\": [{\"group\": 0, \"blocks\": [3, 1]}]}";
    OK(kvffi_pair_answer_json(pair, json, strlen(json), answer, &error));
    OK(kvffi_pair_verify(pair, answer, &error));
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "not made by pair", kvffi_pair_verify(other, answer, &error));
    kvffi_answer_free(answer);
    kvffi_pair_free(other);
    kvffi_pair_free(pair);
    kvffi_spec_free(spec);
}

/* A GQA layer of four heads: the spec of one of so many ranks. */
static kvffi_spec *gqa_rank(uint32_t rank, uint32_t size)
{
    kvffi_worker worker = KVFFI_WORKER_INIT;
    worker.model = "m";
    worker.tp_rank = rank;
    worker.tp_size = size;
    kvffi_spec_builder *builder = NULL;
    OK(kvffi_spec_builder_new(&worker, &builder, &error));
    kvffi_storage storage = KVFFI_STORAGE_INIT;
    storage.base = 4096;
    storage.len = 4096;
    OK(kvffi_spec_builder_add_storage(builder, &storage, NULL, &error));
    kvffi_group group = KVFFI_GROUP_INIT;
    group.block_tokens = 4;
    group.num_blocks = 4;
    OK(kvffi_spec_builder_add_group(builder, &group, NULL, &error));
    kvffi_layer layer = layer_of("l");
    OK(kvffi_spec_builder_add_layer(builder, &layer, NULL, &error));
    const kvffi_axis tokens = {4, 16};
    kvffi_part part = KVFFI_PART_INIT;
    part.name = "latent";
    part.offset = 1024;
    part.block_stride = 64;
    part.tokens = &tokens;
    part.num_tokens = 1;
    part.content = 16;
    OK(kvffi_spec_builder_add_part(builder, 0, &part, &error));
    part.name = "k";
    part.offset = 2048;
    part.block_stride = 256;
    part.unit_stride = 64;
    part.sharding = KVFFI_SHARDING_STANDARD;
    part.total_units = 4;
    part.num_units = size < 4 ? 4 / size : 1;
    OK(kvffi_spec_builder_add_part(builder, 0, &part, &error));
    kvffi_spec *spec = NULL;
    OK(kvffi_spec_builder_build(builder, &spec, &error));
    kvffi_spec_builder_free(builder);
    return spec;
}

/* Decode rank 1 of 2 reads latents and the heads 2 and 3 from two of four prefill ranks. */
static void shares(void)
{
    kvffi_spec *decode = gqa_rank(1, 2);
    kvffi_spec *prefill = gqa_rank(0, 4);
    kvffi_share share[8];
    size_t len = 99;
    FAILS(KVFFI_ERR_BUFFER_TOO_SMALL, "shares has room for 0, 3 are needed",
          kvffi_spec_get_sources(decode, prefill, "l", NULL, 0, &len, &error));
    CHECK(len == 3);
    OK(kvffi_spec_get_sources(decode, prefill, "l", share, 8, &len, &error));
    CHECK(len == 3);
    for (size_t i = 0; i < len; i++) {
        CHECK(share[i].pp_rank == 0 && share[i].every == 1 && share[i].num_units == 1);
        CHECK(share[i].part == 0 ? share[i].tp_rank == 2 : share[i].first_unit == share[i].tp_rank);
        CHECK(share[i].tp_rank == 2 || share[i].tp_rank == 3);
    }
    OK(kvffi_spec_get_targets(prefill, decode, "l", share, 8, &len, &error));
    CHECK(len >= 1 && share[0].tp_rank == 0);
    OK(kvffi_spec_get_targets(prefill, decode, "unknown", share, 8, &len, &error));
    CHECK(len == 0);
    FAILS(KVFFI_ERR_NULL, "layer is NULL", kvffi_spec_get_targets(prefill, decode, NULL, share, 8, &len, &error));

    const kvffi_spec *stages[] = {decode, NULL};
    size_t num_readers = 99;
    OK(kvffi_spec_count_readers(prefill, stages, 1, &num_readers, &error));
    CHECK(num_readers == 1);
    OK(kvffi_spec_count_readers(prefill, NULL, 0, &num_readers, &error));
    CHECK(num_readers == 0);
    FAILS(KVFFI_ERR_NULL, "stages[1] is NULL", kvffi_spec_count_readers(prefill, stages, 2, &num_readers, &error));

    /* Rank 0 of the prefill worker has nothing that rank 1 of the decode worker lacks. */
    kvffi_pair *pair = NULL;
    int32_t is_empty = 99;
    OK(kvffi_pair_new(decode, prefill, NULL, &pair, &error));
    OK(kvffi_pair_is_empty(pair, &is_empty, &error));
    CHECK(is_empty == 1);
    kvffi_pair_free(pair);
    OK(kvffi_pair_new(decode, decode, NULL, &pair, &error));
    OK(kvffi_pair_is_empty(pair, &is_empty, &error));
    CHECK(is_empty == 0);
    kvffi_pair_free(pair);
    kvffi_spec_free(prefill);
    kvffi_spec_free(decode);
}

int main(void)
{
    kvffi_spec_builder *builder = begin();
    fill(builder);
    kvffi_spec *spec = NULL;
    OK(kvffi_spec_builder_build(builder, &spec, &error));
    equal_specs(spec);
    bad_fields(builder);
    invalid(builder);
    kvffi_spec_builder_free(builder);
    kvffi_spec_builder_free(NULL);
    kvffi_spec_free(spec);
    local_plans();
    explanations();
    shares();
    puts("built specs equal their JSON");
    return 0;
}
