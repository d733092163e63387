/* Prints specs that are arranged from every kind of page, and one that is read from tensors, each as JSON. */
#include <stdint.h>

#include "check.h"

static kvffi_arrangement *arrangement;

/* Adds a layer of a page, and frees the page: the arrangement does not need it any more. */
static void add(const char *name, uint32_t group, int32_t role, uint32_t flags, kvffi_page *page)
{
    kvffi_page_layer layer = KVFFI_PAGE_LAYER_INIT;
    layer.name = name;
    layer.page = page;
    layer.group = group;
    layer.role = role;
    layer.flags = flags;
    OK(kvffi_arrangement_add_layer(arrangement, &layer, &error));
    kvffi_page_free(page);
}

static kvffi_page *mla(int32_t preset, int32_t span)
{
    kvffi_page *page = NULL;
    kvffi_rows rows = KVFFI_ROWS_INIT;
    rows.preset = preset;
    rows.span = span;
    OK(kvffi_page_new_mla(&rows, &page, &error));
    return page;
}

static kvffi_page *compressed(void)
{
    kvffi_page *page = NULL;
    kvffi_rows rows = KVFFI_ROWS_INIT;
    rows.row_bytes = 584;
    rows.format = "own";
    rows.tokens_per_state_num = 4;
    rows.page_align = 576;
    OK(kvffi_page_new_mla(&rows, &page, &error));
    return page;
}

static kvffi_page *indexer(void)
{
    kvffi_page *page = NULL;
    kvffi_rows rows = KVFFI_ROWS_INIT;
    rows.preset = KVFFI_ROWS_FP8;
    OK(kvffi_page_new_indexer(&rows, &page, &error));
    return page;
}

static kvffi_attention gqa(void)
{
    kvffi_attention attention = KVFFI_ATTENTION_INIT;
    attention.num_kv_heads = 8;
    attention.head_size = 128;
    return attention;
}

static void rows_pool(void)
{
    kvffi_pool pool = KVFFI_POOL_INIT;
    pool.layout = KVFFI_LAYOUT_BLHNC;
    pool.mem = KVFFI_MEM_VRAM;
    pool.device = 2;
    pool.num_blocks = 16;
    pool.row_align = 4096;
    OK(kvffi_arrangement_add_pool(arrangement, &pool, &error));
    kvffi_blocks blocks = KVFFI_BLOCKS_INIT;
    blocks.block_tokens = 64;
    blocks.kernel_tokens = 16;
    uint32_t group = 99;
    OK(kvffi_arrangement_add_group(arrangement, &blocks, &group, &error));
    CHECK(group == 0);

    add("mla.fp8", group, KVFFI_ROLE_TARGET, 0, mla(KVFFI_ROWS_FP8, KVFFI_SPAN_FULL));
    add("mla.bf16", group, KVFFI_ROLE_TARGET, 0, mla(KVFFI_ROWS_BF16, KVFFI_SPAN_WINDOW));
    add("indexer", group, KVFFI_ROLE_INDEXER, 0, indexer());
    kvffi_page *page = NULL;
    kvffi_attention attention = gqa();
    OK(kvffi_page_new_attention(&attention, &page, &error));
    add("gqa", group, KVFFI_ROLE_DRAFT, 0, page);
    attention.value_head_size = 64;
    attention.element = KVFFI_ELEMENT_F16;
    attention.packing = KVFFI_PACKING_HALVES;
    attention.span = KVFFI_SPAN_WINDOW;
    attention.format = "half";
    OK(kvffi_page_new_attention(&attention, &page, &error));
    add("window", group, KVFFI_ROLE_SCRATCH, KVFFI_LAYER_STAYS, page);
}

static void state_pool(void)
{
    kvffi_pool pool = KVFFI_POOL_INIT;
    pool.layout = KVFFI_LAYOUT_LBNHC;
    pool.num_blocks = 4;
    pool.page_align = 64;
    OK(kvffi_arrangement_add_pool(arrangement, &pool, &error));
    kvffi_blocks blocks = KVFFI_BLOCKS_INIT;
    blocks.usage = KVFFI_USAGE_STATE;
    uint32_t group = 99;
    OK(kvffi_arrangement_add_group(arrangement, &blocks, &group, &error));
    CHECK(group == 1);

    kvffi_page *page = NULL;
    OK(kvffi_page_new_mamba1(8192, 16, 4, NULL, &page, &error));
    add("mamba1", group, KVFFI_ROLE_TARGET, 0, page);
    kvffi_state_options options = KVFFI_STATE_OPTIONS_INIT;
    options.conv_element = KVFFI_ELEMENT_F32;
    options.state_element = KVFFI_ELEMENT_F16;
    options.conv_order = KVFFI_CONV_ROWS_FIRST;
    options.flags = KVFFI_STATE_WHOLE_GROUPS;
    OK(kvffi_page_new_mamba2(64, 64, 8, 128, 4, &options, &page, &error));
    add("mamba2", group, KVFFI_ROLE_TARGET, 0, page);
    options.flags = KVFFI_STATE_REPLICATED;
    OK(kvffi_page_new_gated_delta_net(16, 128, 32, 128, 4, &options, &page, &error));
    add("gdn", group, KVFFI_ROLE_TARGET, 0, page);
    OK(kvffi_page_new_ring(32, 512, "bf16", 8, KVFFI_SHARDING_STANDARD, &page, &error));
    add("ring", group, KVFFI_ROLE_TARGET, 0, page);
    OK(kvffi_page_new_opaque(100, "aux", KVFFI_USAGE_STATE, &page, &error));
    add("aux", group, KVFFI_ROLE_TARGET, 0, page);
}

static void layers_pool(void)
{
    kvffi_pool pool = KVFFI_POOL_INIT;
    pool.layout = KVFFI_LAYOUT_LBHNC;
    pool.flags = KVFFI_STORAGE_SHARED;
    pool.num_blocks = 8;
    OK(kvffi_arrangement_add_pool(arrangement, &pool, &error));
    kvffi_blocks blocks = KVFFI_BLOCKS_INIT;
    blocks.block_tokens = 32;
    uint32_t group = 99;
    OK(kvffi_arrangement_add_group(arrangement, &blocks, &group, &error));
    CHECK(group == 2);

    kvffi_page *page = NULL;
    kvffi_attention attention = gqa();
    OK(kvffi_page_new_nvfp4(&attention, &page, &error));
    add("nvfp4", group, KVFFI_ROLE_TARGET, 0, page);
    attention.element = KVFFI_ELEMENT_INT4;
    OK(kvffi_page_new_token_head_quant(&attention, 4, &page, &error));
    add("int4", group, KVFFI_ROLE_TARGET, 0, page);
    attention.element = KVFFI_ELEMENT_FP8_E4M3;
    OK(kvffi_page_new_block_scaled(&attention, KVFFI_ELEMENT_DEFAULT, 1, 16, &page, &error));
    add("scaled", group, KVFFI_ROLE_TARGET, 0, page);
    attention.element = KVFFI_ELEMENT_DEFAULT;
    attention.packing = KVFFI_PACKING_APART;
    attention.span = KVFFI_SPAN_CHUNK;
    OK(kvffi_page_new_attention(&attention, &page, &error));
    add("chunk", group, KVFFI_ROLE_TARGET, 0, page);
    add("compressed", group, KVFFI_ROLE_TARGET, 0, compressed());
    OK(kvffi_page_new_opaque(7, NULL, KVFFI_USAGE_TOKENS, &page, &error));
    add("bytes", group, KVFFI_ROLE_TARGET, 0, page);
}

static void print(kvffi_spec *spec)
{
    kvffi_text *json = NULL;
    OK(kvffi_spec_to_json(spec, &json, &error));
    printf("%s\n----\n", kvffi_text_data(json));
    kvffi_text_free(json);
    kvffi_spec_free(spec);
}

static void arranged(const kvffi_worker *worker)
{
    OK(kvffi_arrangement_new(worker, &arrangement, &error));
    kvffi_blocks blocks = KVFFI_BLOCKS_INIT;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "has no pool yet", kvffi_arrangement_add_group(arrangement, &blocks, NULL, &error));
    rows_pool();
    state_pool();
    layers_pool();

    uint64_t lens[64];
    uint64_t bases[64];
    size_t num_storages = 0;
    FAILS(KVFFI_ERR_BUFFER_TOO_SMALL, "lens has room for 1",
          kvffi_arrangement_get_storage_lens(arrangement, lens, 1, &num_storages, &error));
    CHECK(num_storages > 1 && num_storages < 64);
    OK(kvffi_arrangement_get_storage_lens(arrangement, lens, 64, &num_storages, &error));
    uint64_t next = UINT64_C(1) << 32;
    for (size_t i = 0; i < num_storages; i++) {
        bases[i] = next;
        next += lens[i];
    }
    kvffi_spec *spec = NULL;
    FAILS(KVFFI_ERR_INVALID_SPEC, "", kvffi_arrangement_build(arrangement, bases, 1, &spec, &error));
    FAILS(KVFFI_ERR_NULL, "bases", kvffi_arrangement_build(arrangement, NULL, 1, &spec, &error));
    OK(kvffi_arrangement_build(arrangement, bases, num_storages, &spec, &error));
    print(spec);
    kvffi_arrangement_free(arrangement);
    kvffi_arrangement_free(NULL);
}

static void from_tensors(const kvffi_worker *worker)
{
    kvffi_tensors *tensors = NULL;
    OK(kvffi_tensors_new(worker, &tensors, &error));
    kvffi_group group = KVFFI_GROUP_INIT;
    group.block_tokens = 64;
    group.num_blocks = 100;
    OK(kvffi_tensors_add_group(tensors, &group, NULL, &error));

    kvffi_page_layer layer = KVFFI_PAGE_LAYER_INIT;
    kvffi_page *page = mla(KVFFI_ROWS_BF16, KVFFI_SPAN_FULL);
    layer.name = "layers.0";
    layer.page = page;
    uint32_t index = 99;
    OK(kvffi_tensors_add_layer(tensors, &layer, &index, &error));
    CHECK(index == 0);
    kvffi_page_free(page);
    static const uint64_t LATENT[] = {100, 64, 576};
    static const int64_t LATENT_STRIDES[] = {73728, 1152, 2};
    kvffi_tensor tensor = KVFFI_TENSOR_INIT;
    tensor.ptr = 0x100000;
    tensor.shape = LATENT;
    tensor.strides = LATENT_STRIDES;
    tensor.num_axes = 3;
    tensor.axes = "BNC";
    tensor.element_size = 2;
    OK(kvffi_tensors_add_tensor(tensors, index, &tensor, &error));

    /* Two heads of K and V on this rank of four, in tensors of their own. */
    kvffi_attention attention = gqa();
    attention.packing = KVFFI_PACKING_APART;
    OK(kvffi_page_new_attention(&attention, &page, &error));
    layer.name = "draft.0";
    layer.page = page;
    layer.role = KVFFI_ROLE_DRAFT;
    OK(kvffi_tensors_add_layer(tensors, &layer, &index, &error));
    kvffi_page_free(page);
    static const uint64_t K[] = {100, 2, 64, 128};
    static const int64_t K_STRIDES[] = {32768, 16384, 256, 2};
    static const char *const NAMES[] = {"k", "v"};
    tensor.shape = K;
    tensor.strides = K_STRIDES;
    tensor.num_axes = 4;
    tensor.axes = "BHNC";
    tensor.mem = KVFFI_MEM_VRAM;
    tensor.device = 1;
    tensor.num_parts = 1;
    for (size_t i = 0; i < 2; i++) {
        tensor.ptr = UINT64_C(0x40000000) + i * 0x1000000;
        tensor.parts = &NAMES[i];
        OK(kvffi_tensors_add_tensor(tensors, index, &tensor, &error));
    }
    kvffi_spec *spec = NULL;
    OK(kvffi_tensors_build(tensors, &spec, &error));
    print(spec);

    /* What is wrong with a tensor is told when the spec is made; the rest at once. */
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "layer is 2, the description has 2 layers",
          kvffi_tensors_add_tensor(tensors, 2, &tensor, &error));
    tensor.parts = NULL;
    FAILS(KVFFI_ERR_NULL, "tensor->parts", kvffi_tensors_add_tensor(tensors, 0, &tensor, &error));
    tensor.num_parts = 0;
    tensor.axes = NULL;
    FAILS(KVFFI_ERR_NULL, "tensor->axes", kvffi_tensors_add_tensor(tensors, 0, &tensor, &error));
    tensor.axes = "BHNQ";
    tensor.flags = 2;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "tensor->flags", kvffi_tensors_add_tensor(tensors, 0, &tensor, &error));
    tensor.flags = 0;
    layer.name = "layers.1";
    layer.page = NULL;
    FAILS(KVFFI_ERR_NULL, "layer->page is NULL", kvffi_tensors_add_layer(tensors, &layer, &index, &error));
    page = mla(KVFFI_ROWS_BF16, KVFFI_SPAN_FULL);
    layer.page = page;
    OK(kvffi_tensors_add_layer(tensors, &layer, &index, &error));
    kvffi_page_free(page);
    OK(kvffi_tensors_add_tensor(tensors, index, &tensor, &error));
    FAILS(KVFFI_ERR_INVALID_SPEC, "layer layers.1", kvffi_tensors_build(tensors, &spec, &error));
    CHECK(spec == NULL);
    kvffi_tensors_free(tensors);
    kvffi_tensors_free(NULL);
}

static void bad_pages(void)
{
    kvffi_page *page = NULL;
    kvffi_rows rows = KVFFI_ROWS_INIT;
    rows.preset = 3;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "rows->preset is 3", kvffi_page_new_mla(&rows, &page, &error));
    rows.preset = KVFFI_ROWS_FP8;
    rows.row_bytes = 656;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "has its own row_bytes", kvffi_page_new_mla(&rows, &page, &error));
    rows.row_bytes = 0;
    rows.span = KVFFI_SPAN_CHUNK;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "rows->span is 2", kvffi_page_new_mla(&rows, &page, &error));
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "rows->span is 2", kvffi_page_new_indexer(&rows, &page, &error));
    rows.preset = KVFFI_ROWS_BF16;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "an indexer does not have", kvffi_page_new_indexer(&rows, &page, &error));

    kvffi_attention attention = gqa();
    attention.element = 9;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "attention->element is 9", kvffi_page_new_attention(&attention, &page, &error));
    attention.element = KVFFI_ELEMENT_INT4;
    attention.packing = 3;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "attention->packing is 3", kvffi_page_new_attention(&attention, &page, &error));
    attention.packing = 0;
    attention.span = 3;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "attention->span is 3", kvffi_page_new_attention(&attention, &page, &error));
    attention.span = KVFFI_SPAN_WINDOW;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "attention->span is 1", kvffi_page_new_nvfp4(&attention, &page, &error));
    attention.span = KVFFI_SPAN_FULL;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "NVFP4 has its own", kvffi_page_new_nvfp4(&attention, &page, &error));
    attention.head_size = 127;
    FAILS(KVFFI_ERR_INVALID_SPEC, "not a whole number of bytes", kvffi_page_new_attention(&attention, &page, &error));
    attention.format = "f";
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "attention->format is set",
          kvffi_page_new_token_head_quant(&attention, 4, &page, &error));
    attention.flags = 1;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "attention->flags", kvffi_page_new_attention(&attention, &page, &error));

    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "block_usage is 2", kvffi_page_new_opaque(1, "f", 2, &page, &error));
    FAILS(KVFFI_ERR_NULL, "format is NULL", kvffi_page_new_ring(1, 1, NULL, 0, 0, &page, &error));
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "sharding is 2", kvffi_page_new_ring(1, 1, "f", 0, 2, &page, &error));
    kvffi_state_options options = KVFFI_STATE_OPTIONS_INIT;
    options.flags = KVFFI_STATE_WHOLE_GROUPS;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "which this kind does not have",
          kvffi_page_new_mamba1(8, 8, 4, &options, &page, &error));
    options.conv_order = 2;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "conv_order is 2", kvffi_page_new_mamba2(8, 8, 1, 8, 4, &options, &page, &error));
    FAILS(KVFFI_ERR_INVALID_SPEC, "keeps no state", kvffi_page_new_mamba2(8, 8, 1, 8, 1, NULL, &page, &error));
    FAILS(KVFFI_ERR_INVALID_SPEC, "beyond 64 bits",
          kvffi_page_new_gated_delta_net(UINT64_MAX, 128, 1, 1, 4, NULL, &page, &error));
    CHECK(page == NULL);
    kvffi_page_free(NULL);
}

int main(void)
{
    kvffi_worker worker = KVFFI_WORKER_INIT;
    worker.model = "org/model";
    worker.tp_rank = 1;
    worker.tp_size = 4;
    arranged(&worker);
    from_tensors(&worker);
    bad_pages();
    return 0;
}
