/*
 * Plans a transfer: which bytes does a decode worker read from a prefill worker for three blocks of tokens?
 *
 * Both workers have two MLA layers of 1,152 bytes a token in blocks of 64 tokens. The prefill worker keeps the layers'
 * pages of a block next to each other (BLHNC), so that a block is one descriptor; the decode worker's blocks 5 and 6 read
 * the neighbours 1 and 2, so that those two blocks are one.
 *
 * Build and run, from the root of the repository after `cargo build --release -p kvffi`:
 *
 *     cc -std=c11 -Iinclude examples/c/01_plan.c target/release/libkvffi.a -lstdc++ -lpthread -ldl -lm -o plan && ./plan
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "kvffi.h"

/* A worker whose caches begin at a base address; the address is all that differs between the two. */
static const char SPEC[] =
    "{\"version\": 1, \"fingerprint\": {\"model\": \"example\"},"
    " \"storages\": [{\"base\": %" PRIu64 ", \"len\": 1474560, \"mem\": \"dram\"}],"
    " \"groups\": [{\"pool\": 0, \"block_tokens\": 64, \"num_blocks\": 10}],"
    " \"layers\": ["
    "  {\"name\": \"layers.0\", \"group\": 0, \"kind\": \"mla\", \"parts\": [{\"name\": \"latent\", \"storage\": 0,"
    "   \"offset\": 0, \"block_stride\": 147456, \"sharding\": \"replicated\", \"units\": {\"count\": 1, \"stride\": 73728},"
    "   \"tokens\": [{\"count\": 64, \"stride\": 1152}], \"content\": 1152}]},"
    "  {\"name\": \"layers.1\", \"group\": 0, \"kind\": \"mla\", \"parts\": [{\"name\": \"latent\", \"storage\": 0,"
    "   \"offset\": 73728, \"block_stride\": 147456, \"sharding\": \"replicated\", \"units\": {\"count\": 1, \"stride\": 73728},"
    "   \"tokens\": [{\"count\": 64, \"stride\": 1152}], \"content\": 1152}]}"
    "]}";

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

static kvffi_spec *worker(uint64_t base)
{
    char json[2048];
    const int len = snprintf(json, sizeof json, SPEC, base);
    if (len < 0 || (size_t)len >= sizeof json) {
        fprintf(stderr, "the spec does not fit\n");
        return NULL;
    }
    kvffi_spec *spec = NULL;
    kvffi_error *error = NULL;
    const kvffi_status status = kvffi_spec_from_json(json, (size_t)len, &spec, &error);
    return succeeded("spec", status, error) ? spec : NULL;
}

/* Prints the answer's descriptors; the array is as large as the totals say. */
static int print_answer(const kvffi_answer *answer)
{
    kvffi_error *error = NULL;
    kvffi_answer_totals totals;
    if (!succeeded("totals", kvffi_answer_get_totals(answer, &totals, &error), error)) {
        return 0;
    }
    printf("%" PRIu64 " descriptors, %" PRIu64 " bytes\n", totals.num_descriptors, totals.bytes);

    size_t len = (size_t)totals.num_descriptors;
    kvffi_descriptor *descriptors = calloc(len > 0 ? len : 1, sizeof *descriptors);
    if (descriptors == NULL) {
        fprintf(stderr, "out of memory\n");
        return 0;
    }
    const kvffi_status status = kvffi_answer_get_descriptors(answer, descriptors, len, &len, &error);
    const int done = succeeded("descriptors", status, error);
    for (size_t i = 0; done && i < len; i++) {
        const kvffi_descriptor *d = &descriptors[i];
        printf("local storage %" PRIu32 " + %" PRIu64 " <- remote storage %" PRIu32 " + %" PRIu64 ", %" PRIu64 " bytes\n",
               d->local_storage, d->local_offset, d->remote_storage, d->remote_offset, d->len);
    }
    free(descriptors);
    return done;
}

/* Asks the plan which bytes blocks 5, 6 and 9 here read from blocks 1, 2 and 8 at the peer. */
static int answer_request(const kvffi_pair *pair)
{
    static const uint32_t LOCAL[] = {5, 6, 9};
    static const uint32_t REMOTE[] = {1, 2, 8};
    const kvffi_block_list local = {0, 0, 0, LOCAL, 3};
    const kvffi_block_list remote = {0, 0, 0, REMOTE, 3};
    kvffi_request request = KVFFI_REQUEST_INIT;
    request.op = KVFFI_OP_READ;
    request.local = &local;
    request.num_local = 1;
    request.remote = &remote;
    request.num_remote = 1;

    kvffi_error *error = NULL;
    kvffi_answer *answer = NULL;
    const int done = succeeded("answer", kvffi_answer_new(&answer, &error), error)
                     && succeeded("request", kvffi_pair_answer(pair, &request, answer, &error), error)
                     && print_answer(answer);
    kvffi_answer_free(answer);
    return done;
}

int main(void)
{
    kvffi_error *error = NULL;
    if (!succeeded("version", kvffi_abi_check(KVFFI_VERSION, &error), error)) {
        return EXIT_FAILURE;
    }
    kvffi_spec *decode = worker(UINT64_C(0x100000000));
    kvffi_spec *prefill = worker(UINT64_C(0x200000000));
    kvffi_pair *pair = NULL;
    kvffi_pair_options options = KVFFI_PAIR_OPTIONS_INIT;
    options.op = KVFFI_OP_READ;
    options.flags = KVFFI_PAIR_REQUIRE_WHOLE_ROWS;

    const int done = decode != NULL && prefill != NULL
                     && succeeded("pair", kvffi_pair_new(decode, prefill, &options, &pair, &error), error)
                     && answer_request(pair);
    kvffi_pair_free(pair);
    kvffi_spec_free(prefill);
    kvffi_spec_free(decode);
    return done ? EXIT_SUCCESS : EXIT_FAILURE;
}
