/* Whatever is wrong with a call, it gives a status and a text. */
#include <stdint.h>

#include "check.h"

static kvffi_spec *spec;
static kvffi_pair *pair;
static kvffi_answer *answer;

/* Handles of another kind, NULL, and what is no handle. */
static void handles(void)
{
    kvffi_pair *out = NULL;
    FAILS(KVFFI_ERR_NULL, "local is NULL", kvffi_pair_new(NULL, spec, NULL, &out, &error));
    FAILS(KVFFI_ERR_NULL, "remote is NULL", kvffi_pair_new(spec, NULL, NULL, &out, &error));
    FAILS(KVFFI_ERR_NULL, "out_pair is NULL", kvffi_pair_new(spec, spec, NULL, NULL, &error));
    CHECK(kvffi_pair_new(NULL, NULL, NULL, NULL, NULL) == KVFFI_ERR_NULL);
    FAILS(KVFFI_ERR_WRONG_HANDLE, "local is a handle of kvffi_pair, expected a handle of kvffi_spec",
          kvffi_pair_new((const kvffi_spec *)(const void *)pair, spec, NULL, &out, &error));
    FAILS(KVFFI_ERR_WRONG_HANDLE, "remote is a handle of kvffi_answer, expected a handle of kvffi_spec",
          kvffi_pair_new(spec, (const kvffi_spec *)(const void *)answer, NULL, &out, &error));

    uint64_t words[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    const uintptr_t inside = ((uintptr_t)words + 15) & ~(uintptr_t)15;
    FAILS(KVFFI_ERR_WRONG_HANDLE, "local is not a handle", kvffi_pair_new((const kvffi_spec *)inside, spec, NULL, &out, &error));
    FAILS(KVFFI_ERR_WRONG_HANDLE, "local is not a handle",
          kvffi_pair_new((const kvffi_spec *)(inside + 1), spec, NULL, &out, &error));

    /* An output handle is NULL after a failure, whatever it was before. */
    out = (kvffi_pair *)(void *)words;
    CHECK(kvffi_pair_new(spec, NULL, NULL, &out, NULL) == KVFFI_ERR_NULL);
    CHECK(out == NULL);

    /* Freeing what is not a handle of the kind, or nothing, does nothing. */
    kvffi_spec_free((kvffi_spec *)(void *)pair);
    kvffi_pair_free((kvffi_pair *)(void *)spec);
    kvffi_answer_free((kvffi_answer *)(void *)spec);
    kvffi_error_free((kvffi_error *)(void *)spec);
    kvffi_spec_free(NULL);
    kvffi_pair_free(NULL);
    kvffi_answer_free(NULL);
    kvffi_error_free(NULL);
    OK(kvffi_pair_new(spec, spec, NULL, &out, &error));
    kvffi_pair_free(out);
}

static void errors(void)
{
    CHECK(kvffi_error_status(NULL) == KVFFI_ERR_NULL);
    CHECK(kvffi_error_status((const kvffi_error *)(const void *)spec) == KVFFI_ERR_WRONG_HANDLE);
    CHECK(strcmp(kvffi_error_message(NULL), "") == 0);
    CHECK(strcmp(kvffi_error_message((const kvffi_error *)(const void *)spec), "") == 0);
    CHECK(kvffi_error_num_findings(NULL) == 0);
    CHECK(kvffi_error_finding(NULL, 0) == NULL);
    CHECK(strcmp(kvffi_status_name(KVFFI_ERR_JSON), "KVFFI_ERR_JSON") == 0);
    CHECK(strcmp(kvffi_status_name(INT32_MIN), "unknown status") == 0);

    /* A success overwrites what the error held. */
    kvffi_error *error = (kvffi_error *)(void *)spec;
    CHECK(kvffi_abi_check(KVFFI_VERSION, &error) == KVFFI_OK);
    CHECK(error == NULL);
    FAILS(KVFFI_ERR_VERSION, "the library 0.", kvffi_abi_check(KVFFI_VERSION + 1, &error));
    FAILS(KVFFI_ERR_VERSION, "header of 255.0.0", kvffi_abi_check(UINT32_C(255) << 16, &error));
    CHECK(kvffi_version() == KVFFI_VERSION);
}

static void specs(void)
{
    kvffi_spec *out = NULL;
    FAILS(KVFFI_ERR_NULL, "json (with a length of 3) is NULL", kvffi_spec_from_json(NULL, 3, &out, &error));
    FAILS(KVFFI_ERR_NULL, "out_spec is NULL", kvffi_spec_from_json("{}", 2, NULL, &error));
    FAILS(KVFFI_ERR_JSON, "EOF", kvffi_spec_from_json(NULL, 0, &out, &error));
    FAILS(KVFFI_ERR_NOT_UTF8, "json is not UTF-8 at byte 1", kvffi_spec_from_json("{\xff", 2, &out, &error));
    FAILS(KVFFI_ERR_TOO_LARGE, "json cannot have", kvffi_spec_from_json("{}", SIZE_MAX, &out, &error));
    FAILS(KVFFI_ERR_JSON, "missing field `version`", kvffi_spec_from_json("{}", 2, &out, &error));
    const char *path = "{\"version\": 1, \"fingerprint\": {\"model\": 3}}";
    FAILS(KVFFI_ERR_JSON, "fingerprint.model: invalid type", kvffi_spec_from_json(path, strlen(path), &out, &error));

    /* Everything that is wrong, one finding each. */
    const char *twice = "{\"version\": 1, \"fingerprint\": {\"model\": \"m\\u0000n\"},"
                        " \"topology\": {\"tp\": {\"rank\": 4, \"size\": 2}},"
                        " \"storages\": [{\"base\": 0, \"len\": 0, \"mem\": \"dram\"}], \"groups\": [], \"layers\": []}";
    kvffi_error *error = NULL;
    CHECK(kvffi_spec_from_json(twice, strlen(twice), &out, &error) == KVFFI_ERR_INVALID_SPEC);
    const size_t num_findings = kvffi_error_num_findings(error);
    CHECK(num_findings >= 2);
    for (size_t i = 0; i < num_findings; i++) {
        CHECK(strlen(kvffi_error_finding(error, i)) > 10);
        CHECK(strstr(kvffi_error_message(error), kvffi_error_finding(error, i)) != NULL);
    }
    CHECK(kvffi_error_finding(error, num_findings) == NULL);
    CHECK(kvffi_error_finding(error, SIZE_MAX) == NULL);
    kvffi_error_free(error);

    /* The length counts, not the NUL. */
    OK(kvffi_spec_from_json(SPEC_OF("m") "{", strlen(SPEC_OF("m")), &out, &error));
    kvffi_spec_free(out);
    FAILS(KVFFI_ERR_JSON, "trailing characters", kvffi_spec_from_json(SPEC_OF("m") "{", strlen(SPEC_OF("m")) + 1, &out, &error));
}

static void options(void)
{
    kvffi_pair *out = NULL;
    kvffi_pair_options options = KVFFI_PAIR_OPTIONS_INIT;
    options.op = 2;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "options->op is 2", kvffi_pair_new(spec, spec, &options, &out, &error));
    options.op = INT32_MIN;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "options->op is -2147483648", kvffi_pair_new(spec, spec, &options, &out, &error));
    options.op = KVFFI_OP_WRITE;
    options.flags = 6;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "unknown bits 0x6", kvffi_pair_new(spec, spec, &options, &out, &error));
    options.flags = 0;

    options.struct_size = 0;
    FAILS(KVFFI_ERR_STRUCT_SIZE, "struct_size 0", kvffi_pair_new(spec, spec, &options, &out, &error));
    options.struct_size = 12;
    FAILS(KVFFI_ERR_STRUCT_SIZE, "struct_size 12", kvffi_pair_new(spec, spec, &options, &out, &error));
    options.struct_size = SIZE_MAX;
    FAILS(KVFFI_ERR_STRUCT_SIZE, "struct_size 18446744073709551615", kvffi_pair_new(spec, spec, &options, &out, &error));

    /* Shorter than the first version, which no header ever had. */
    options.struct_size = sizeof(&options);
    FAILS(KVFFI_ERR_STRUCT_SIZE,
          "options: struct_size 8 is no size of kvffi_pair_options, whose first version has 32 bytes",
          kvffi_pair_new(spec, spec, &options, &out, &error));
    options.struct_size = 24;
    FAILS(KVFFI_ERR_STRUCT_SIZE, "struct_size 24", kvffi_pair_new(spec, spec, &options, &out, &error));
    options.struct_size = sizeof options;
    OK(kvffi_pair_new(spec, spec, &options, &out, &error));
    kvffi_pair_free(out);

    /* From a newer header: unknown fields that are 0 mean nothing, others are refused. */
    struct {
        kvffi_pair_options known;
        uint64_t newer;
    } longer = {KVFFI_PAIR_OPTIONS_INIT, 0};
    longer.known.struct_size = sizeof longer;
    OK(kvffi_pair_new(spec, spec, &longer.known, &out, &error));
    kvffi_pair_free(out);
    longer.newer = 1;
    FAILS(KVFFI_ERR_STRUCT_SIZE, "the field at byte 32 of kvffi_pair_options is set",
          kvffi_pair_new(spec, spec, &longer.known, &out, &error));
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "options is not aligned",
          kvffi_pair_new(spec, spec, (const kvffi_pair_options *)((uintptr_t)&longer + 1), &out, &error));

    /* Refusals: all reasons. */
    kvffi_spec *other = spec_of(SPEC_OF("other"));
    FAILS(KVFFI_ERR_PAIR_REFUSED, "fingerprint field model is \"m\" here and \"other\"",
          kvffi_pair_new(spec, other, NULL, &out, &error));
    kvffi_error *error = NULL;
    CHECK(kvffi_pair_new(spec, other, NULL, &out, &error) == KVFFI_ERR_PAIR_REFUSED);
    CHECK(kvffi_error_num_findings(error) == 1);
    kvffi_error_free(error);
    kvffi_spec_free(other);
}

static void requests(void)
{
    static const uint32_t BLOCKS[] = {0, 2, 9};
    kvffi_block_list local = {0, 0, 0, BLOCKS, 2};
    kvffi_block_list remote = {0, 0, 0, BLOCKS, 2};
    kvffi_request request = KVFFI_REQUEST_INIT;
    request.local = &local;
    request.num_local = 1;
    request.remote = &remote;
    request.num_remote = 1;
    OK(kvffi_pair_answer(pair, &request, answer, &error));

    FAILS(KVFFI_ERR_NULL, "pair is NULL", kvffi_pair_answer(NULL, &request, answer, &error));
    FAILS(KVFFI_ERR_NULL, "request is NULL", kvffi_pair_answer(pair, NULL, answer, &error));
    FAILS(KVFFI_ERR_NULL, "answer is NULL", kvffi_pair_answer(pair, &request, NULL, &error));
    FAILS(KVFFI_ERR_WRONG_HANDLE, "pair is a handle of kvffi_spec",
          kvffi_pair_answer((const kvffi_pair *)(const void *)spec, &request, answer, &error));

    request.op = 7;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "request->op is 7", kvffi_pair_answer(pair, &request, answer, &error));
    request.op = KVFFI_OP_WRITE;
    FAILS(KVFFI_ERR_REQUEST_REFUSED, "the plan was made for", kvffi_pair_answer(pair, &request, answer, &error));
    request.op = KVFFI_OP_READ;
    request.flags = 256;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "request->flags", kvffi_pair_answer(pair, &request, answer, &error));
    request.flags = 0;
    request.struct_size = 4;
    FAILS(KVFFI_ERR_STRUCT_SIZE, "struct_size 4", kvffi_pair_answer(pair, &request, answer, &error));
    /* Of a pointer, and whatever would drop a list of blocks: a request for nothing moves nothing and calls it done. */
    for (request.struct_size = sizeof(&request); request.struct_size < 48; request.struct_size += 8) {
        FAILS(KVFFI_ERR_STRUCT_SIZE, "is no size of kvffi_request, whose first version has 48 bytes",
              kvffi_pair_answer(pair, &request, answer, &error));
    }
    request.struct_size = 48;
    OK(kvffi_pair_answer(pair, &request, answer, &error));
    kvffi_answer_totals moved;
    OK(kvffi_answer_get_totals(answer, &moved, &error));
    CHECK(moved.bytes == 2 * 32);
    request.struct_size = sizeof request;

    local.num_blocks = SIZE_MAX;
    FAILS(KVFFI_ERR_TOO_LARGE, "request->local[0].blocks cannot have", kvffi_pair_answer(pair, &request, answer, &error));
    local.num_blocks = 3;
    FAILS(KVFFI_ERR_REQUEST_REFUSED, "block 9 of group 0 is out of range", kvffi_pair_answer(pair, &request, answer, &error));
    local.num_blocks = 2;
    local.reserved = 1;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "request->local[0].reserved is 1", kvffi_pair_answer(pair, &request, answer, &error));
    local.reserved = 0;
    local.group = 1;
    FAILS(KVFFI_ERR_REQUEST_REFUSED, "has no group 1", kvffi_pair_answer(pair, &request, answer, &error));
    local.group = 0;
    local.blocks = NULL;
    FAILS(KVFFI_ERR_NULL, "request->local[0].blocks", kvffi_pair_answer(pair, &request, answer, &error));
    local.num_blocks = 0;
    OK(kvffi_pair_answer(pair, &request, answer, &error));
    request.num_local = SIZE_MAX / 8;
    FAILS(KVFFI_ERR_TOO_LARGE, "request->local cannot have", kvffi_pair_answer(pair, &request, answer, &error));
    request.num_local = 1;
    request.local = NULL;
    FAILS(KVFFI_ERR_NULL, "request->local", kvffi_pair_answer(pair, &request, answer, &error));

    /* A failed call leaves the answer empty. */
    kvffi_answer_totals totals;
    OK(kvffi_answer_get_totals(answer, &totals, &error));
    CHECK(totals.num_descriptors == 0 && totals.bytes == 0);

    const char *json = "{\"op\": \"read\", \"local\": [{\"group\": 0, \"blocks\": [-1]}], \"remote\": []}";
    FAILS(KVFFI_ERR_JSON, "local[0].blocks[0]: invalid value",
          kvffi_pair_answer_json(pair, json, strlen(json), answer, &error));
    FAILS(KVFFI_ERR_NOT_UTF8, "json is not UTF-8", kvffi_pair_answer_json(pair, "\x80", 1, answer, &error));
}

/* Arrays of the caller that are too small, and the sizes that are needed. */
static void buffers(void)
{
    const char *json = "{\"op\": \"read\", \"local\": [{\"group\": 0, \"first\": 0, \"blocks\": [0, 1, 2]}],"
                       " \"remote\": [{\"group\": 0, \"blocks\": [3, 1]}]}";
    /* The source lacks the third block. */
    FAILS(KVFFI_ERR_REQUEST_REFUSED, "does not cover", kvffi_pair_answer_json(pair, json, strlen(json), answer, &error));
    json = "{\"op\": \"read\", \"local\": [{\"group\": 0, \"blocks\": [0, 1]}], \"remote\": [{\"group\": 0, \"blocks\": [3, 1]}]}";
    OK(kvffi_pair_answer_json(pair, json, strlen(json), answer, &error));

    size_t len = 99;
    kvffi_descriptor descriptors[3];
    memset(descriptors, 0xee, sizeof descriptors);
    FAILS(KVFFI_ERR_BUFFER_TOO_SMALL, "descriptors has room for 0, 2 are needed",
          kvffi_answer_get_descriptors(answer, NULL, 0, &len, &error));
    CHECK(len == 2);
    len = 99;
    FAILS(KVFFI_ERR_BUFFER_TOO_SMALL, "room for 1", kvffi_answer_get_descriptors(answer, descriptors, 1, &len, &error));
    CHECK(len == 2 && descriptors[0].len == UINT64_C(0xeeeeeeeeeeeeeeee));
    FAILS(KVFFI_ERR_NULL, "descriptors", kvffi_answer_get_descriptors(answer, NULL, 2, &len, &error));
    FAILS(KVFFI_ERR_NULL, "out_len", kvffi_answer_get_descriptors(answer, descriptors, 2, NULL, &error));
    FAILS(KVFFI_ERR_NULL, "answer is NULL", kvffi_answer_get_descriptors(NULL, descriptors, 2, &len, &error));
    FAILS(KVFFI_ERR_TOO_LARGE, "cannot have",
          kvffi_answer_get_descriptors(answer, descriptors, SIZE_MAX / 8, &len, &error));
    OK(kvffi_answer_get_descriptors(answer, descriptors, 3, &len, &error));
    CHECK(len == 2);
    CHECK(descriptors[0].local_storage == 0 && descriptors[0].local_offset == 0 && descriptors[0].remote_storage == 0);
    CHECK(descriptors[0].remote_offset == 192 && descriptors[0].len == 32);
    CHECK(descriptors[1].local_offset == 64 && descriptors[1].remote_offset == 64 && descriptors[1].len == 32);
    CHECK(descriptors[2].len == UINT64_C(0xeeeeeeeeeeeeeeee));

    OK(kvffi_answer_get_zero_ranges(answer, NULL, 0, &len, &error));
    CHECK(len == 0);
    FAILS(KVFFI_ERR_WRONG_HANDLE, "answer is a handle of kvffi_pair",
          kvffi_answer_get_zero_ranges((const kvffi_answer *)(const void *)pair, NULL, 0, &len, &error));
    FAILS(KVFFI_ERR_NULL, "out_totals", kvffi_answer_get_totals(answer, NULL, &error));
    FAILS(KVFFI_ERR_NULL, "out_answer", kvffi_answer_new(NULL, &error));
}

int main(void)
{
    spec = spec_of(SPEC_OF("m"));
    OK(kvffi_pair_new(spec, spec, NULL, &pair, &error));
    OK(kvffi_answer_new(&answer, &error));
    handles();
    errors();
    specs();
    options();
    requests();
    buffers();
    kvffi_answer_free(answer);
    kvffi_pair_free(pair);
    kvffi_spec_free(spec);
    puts("every bad input was answered");
    return 0;
}
