/* Requests for some layers, and lists that do not say where they begin. */
#include "check.h"

/* Three layers in four blocks of 96 bytes: a row of pages of 32 bytes. */
#define LAYER(name, offset) \
    "{\"name\": \"" name "\", \"group\": 0, \"kind\": \"mla\", \"parts\": [{\"name\": \"latent\", \"storage\": 0," \
    "  \"offset\": " offset ", \"block_stride\": 96, \"sharding\": \"replicated\", \"units\": {\"count\": 1, \"stride\": 32}," \
    "  \"tokens\": [{\"count\": 4, \"stride\": 8}], \"content\": 8}]}"
#define ROWS \
    "{\"version\": 1, \"fingerprint\": {\"model\": \"m\"}, \"storages\": [{\"base\": 4096, \"len\": 384, \"mem\": \"dram\"}]," \
    " \"groups\": [{\"pool\": 0, \"block_tokens\": 4, \"num_blocks\": 4}]," \
    " \"layers\": [" LAYER("a", "0") ", " LAYER("b", "32") ", " LAYER("c", "64") "]}"

static const uint32_t LOCAL[] = {1, 2}, REMOTE[] = {0, 3};
static kvffi_pair *pair;
static kvffi_answer *answer;

static kvffi_request request_of(const kvffi_block_list *local, const kvffi_block_list *remote)
{
    kvffi_request request = KVFFI_REQUEST_INIT;
    request.local = local;
    request.num_local = 1;
    request.remote = remote;
    request.num_remote = 1;
    return request;
}

/* Answers, proves the answer, and says how many descriptors of how many bytes it has. */
static size_t lengths(const kvffi_request *request, uint64_t *out_len)
{
    kvffi_descriptor descriptors[8];
    size_t count = 0;
    OK(kvffi_pair_answer(pair, request, answer, &error));
    OK(kvffi_pair_verify(pair, answer, &error));
    OK(kvffi_answer_get_descriptors(answer, descriptors, 8, &count, &error));
    *out_len = count > 0 ? descriptors[0].len : 0;
    return count;
}

static void some_layers(void)
{
    const kvffi_block_list local = {0, 0, 0, LOCAL, 2}, remote = {0, 0, 0, REMOTE, 2};
    uint64_t len = 0;
    kvffi_request request = request_of(&local, &remote);
    CHECK(lengths(&request, &len) == 2 && len == 96);

    static const char *const NAMES[] = {"c", "b"}, *const UNKNOWN[] = {"a", "d"}, *const NONE[] = {"a", NULL};
    request.flags = KVFFI_REQUEST_LAYERS;
    request.layers = NAMES;
    request.num_layers = 2;
    CHECK(lengths(&request, &len) == 2 && len == 64);
    request.layers = UNKNOWN;
    FAILS(KVFFI_ERR_REQUEST_REFUSED, "neither worker lists layer d", kvffi_pair_answer(pair, &request, answer, &error));
    request.layers = NONE;
    FAILS(KVFFI_ERR_NULL, "request->layers[1] is NULL", kvffi_pair_answer(pair, &request, answer, &error));
    request.num_layers = 0;
    CHECK(lengths(&request, &len) == 0);
    request.flags = 0;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "lacks KVFFI_REQUEST_LAYERS", kvffi_pair_answer(pair, &request, answer, &error));

    request = request_of(&local, &remote);
    request.flags = KVFFI_REQUEST_LAYER_RANGE;
    request.to_layer = 2;
    CHECK(lengths(&request, &len) == 2 && len == 64);
    request.to_layer = 4;
    FAILS(KVFFI_ERR_REQUEST_REFUSED, "layers 0..4 are asked for, and this worker's spec lists 3",
          kvffi_pair_answer(pair, &request, answer, &error));
    request.flags = 0;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "lacks KVFFI_REQUEST_LAYER_RANGE", kvffi_pair_answer(pair, &request, answer, &error));
    request.flags = KVFFI_REQUEST_LAYERS | KVFFI_REQUEST_LAYER_RANGE;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "give one of the two", kvffi_pair_answer(pair, &request, answer, &error));
    request.flags = 64;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "unknown bits 0x40", kvffi_pair_answer(pair, &request, answer, &error));

    /* A program that was compiled before a request could choose asks for all layers. */
    request = request_of(&local, &remote);
    request.struct_size = 48;
    request.to_layer = 1;
    CHECK(lengths(&request, &len) == 2 && len == 96);
}

/* A tail of one block beside a prompt of four. */
static void places(void)
{
    static const uint32_t PROMPT[] = {3, 2, 1, 0};
    kvffi_block_list local = {0, 0, 0, LOCAL, 1}, remote = {0, 0, 0, PROMPT, 4};
    kvffi_request request = request_of(&local, &remote);
    kvffi_descriptor descriptor = {0, 0, 0, 0, 0};
    size_t count = 0;
    uint64_t len = 0;
    FAILS(KVFFI_ERR_REQUEST_REFUSED, "lists 1 blocks and group 0 of the peer 4: not one prompt",
          kvffi_pair_answer(pair, &request, answer, &error));
    request.flags = KVFFI_REQUEST_ALIGN_TAIL;
    CHECK(lengths(&request, &len) == 1);
    OK(kvffi_answer_get_descriptors(answer, &descriptor, 1, &count, &error));
    CHECK(descriptor.remote_offset == 0 && descriptor.local_offset == 96);
    request.flags = KVFFI_REQUEST_ALIGN_HEAD;
    CHECK(lengths(&request, &len) == 1);
    OK(kvffi_answer_get_descriptors(answer, &descriptor, 1, &count, &error));
    CHECK(descriptor.remote_offset == 3 * 96);
    request.flags = KVFFI_REQUEST_ALIGN_HEAD | KVFFI_REQUEST_ALIGN_TAIL;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "give one of the two", kvffi_pair_answer(pair, &request, answer, &error));
    request.flags = 0;
    local.first = 3;
    CHECK(lengths(&request, &len) == 1);
}

int main(void)
{
    kvffi_spec *spec = spec_of(ROWS);
    OK(kvffi_pair_new(spec, spec, NULL, &pair, &error));
    OK(kvffi_answer_new(&answer, &error));
    some_layers();
    places();
    kvffi_answer_free(answer);
    kvffi_pair_free(pair);
    kvffi_spec_free(spec);
    puts("requests say what they move");
    return 0;
}
