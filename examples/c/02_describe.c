/*
 * Describes two workers' caches part by part, shows what one of them registers, and explains why a pair of them needs
 * more than one descriptor for a block.
 *
 * Both have two MLA layers of 1,152 bytes a token in blocks of 64 tokens. The prefill worker keeps all pages of a block
 * together (BLHNC): one region of whole rows. The decode worker keeps all blocks of a layer together (LBHNC): a region for
 * each layer, so that a row is read in two pieces.
 *
 * Build and run as examples/c/01_plan.c says.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "kvffi.h"

enum { NUM_LAYERS = 2, NUM_BLOCKS = 10 };
static const uint64_t BLOCK_TOKENS = 64, TOKEN = 1152, PAGE = 64 * 1152;

/* Says what went wrong, frees the error, and tells whether the call succeeded. */
static int succeeded(const char *what, kvffi_status status, kvffi_error *error)
{
    if (status >= 0) {
        return 1;
    }
    fprintf(stderr, "%s: %s: %s\n", what, kvffi_status_name(status), kvffi_error_message(error));
    kvffi_error_free(error);
    return 0;
}

static int add_layer(kvffi_spec_builder *builder, const char *name, uint64_t offset, uint64_t block_stride)
{
    kvffi_error *error = NULL;
    kvffi_layer layer = KVFFI_LAYER_INIT;
    layer.name = name;
    layer.kind = KVFFI_KIND_MLA;
    uint32_t index = 0;
    if (!succeeded("layer", kvffi_spec_builder_add_layer(builder, &layer, &index, &error), error)) {
        return 0;
    }
    const kvffi_axis tokens = {BLOCK_TOKENS, TOKEN};
    kvffi_part part = KVFFI_PART_INIT;
    part.name = "latent";
    part.format = "bf16";
    part.offset = offset;
    part.block_stride = block_stride;
    part.unit_stride = PAGE;
    part.tokens = &tokens;
    part.num_tokens = 1;
    part.content = TOKEN;
    return succeeded("part", kvffi_spec_builder_add_part(builder, index, &part, &error), error);
}

/* Describes a worker: its layers' pages are `layer_distance` bytes apart, its blocks `block_stride`. */
static kvffi_spec *describe(uint64_t base, uint64_t layer_distance, uint64_t block_stride)
{
    kvffi_error *error = NULL;
    kvffi_spec *spec = NULL;
    kvffi_spec_builder *builder = NULL;
    kvffi_worker worker = KVFFI_WORKER_INIT;
    worker.model = "example";
    kvffi_storage storage = KVFFI_STORAGE_INIT;
    storage.base = base;
    storage.len = NUM_LAYERS * NUM_BLOCKS * PAGE;
    kvffi_group group = KVFFI_GROUP_INIT;
    group.block_tokens = BLOCK_TOKENS;
    group.num_blocks = NUM_BLOCKS;

    if (succeeded("builder", kvffi_spec_builder_new(&worker, &builder, &error), error)
        && succeeded("storage", kvffi_spec_builder_add_storage(builder, &storage, NULL, &error), error)
        && succeeded("group", kvffi_spec_builder_add_group(builder, &group, NULL, &error), error)
        && add_layer(builder, "layers.0", 0, block_stride)
        && add_layer(builder, "layers.1", layer_distance, block_stride)) {
        /* Everything that is wrong is in one error, a line each. */
        succeeded("spec", kvffi_spec_builder_build(builder, &spec, &error), error);
    }
    kvffi_spec_builder_free(builder);
    return spec;
}

static int show_regions(const char *who, const kvffi_spec *spec)
{
    kvffi_error *error = NULL;
    kvffi_local_plan *plan = NULL;
    kvffi_region regions[NUM_LAYERS];
    size_t num_regions = 0;
    const int done =
        succeeded("local plan", kvffi_local_plan_new(spec, 0, &plan, &error), error)
        && succeeded("regions", kvffi_local_plan_get_regions(plan, regions, NUM_LAYERS, &num_regions, &error), error);
    for (size_t i = 0; done && i < num_regions; i++) {
        printf("%s: region at %" PRIu64 ": %" PRIu64 " blocks of %" PRIu64 " bytes, %" PRIu64 " apart\n", who,
               regions[i].offset, regions[i].num_blocks, regions[i].block_len, regions[i].block_stride);
    }
    kvffi_local_plan_free(plan);
    return done;
}

static int explain(const kvffi_spec *decode, const kvffi_spec *prefill)
{
    kvffi_error *error = NULL;
    kvffi_pair *pair = NULL;
    kvffi_text *text = NULL;
    const int done = succeeded("pair", kvffi_pair_new(decode, prefill, NULL, &pair, &error), error)
                     && succeeded("explain", kvffi_pair_explain(pair, KVFFI_FORM_TEXT, &text, &error), error);
    printf("%s", kvffi_text_data(text));
    kvffi_text_free(text);
    kvffi_pair_free(pair);
    return done;
}

int main(void)
{
    kvffi_error *error = NULL;
    if (!succeeded("version", kvffi_abi_check(KVFFI_VERSION, &error), error)) {
        return EXIT_FAILURE;
    }
    kvffi_spec *prefill = describe(UINT64_C(0x100000000), PAGE, NUM_LAYERS * PAGE);
    kvffi_spec *decode = describe(UINT64_C(0x200000000), NUM_BLOCKS * PAGE, PAGE);
    const int done = prefill != NULL && decode != NULL && show_regions("prefill", prefill)
                     && show_regions("decode", decode) && explain(decode, prefill);
    kvffi_spec_free(decode);
    kvffi_spec_free(prefill);
    return done ? EXIT_SUCCESS : EXIT_FAILURE;
}
