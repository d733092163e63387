/* What the C tests share. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvffi.h"

#define CHECK(condition) check((condition), #condition, __FILE__, __LINE__)

static inline void check(int holds, const char *what, const char *file, int line)
{
    if (!holds) {
        fprintf(stderr, "%s:%d: %s does not hold\n", file, line, what);
        exit(1);
    }
}

#define FAILS(expected, needle, call) \
    do { \
        kvffi_error *error = NULL; \
        const kvffi_status status = (call); \
        fails(status, (expected), error, (needle), #call, __FILE__, __LINE__); \
    } while (0)

/* Checks the status and a piece of the text of a call that fails, and frees the error. */
static inline void fails(kvffi_status status, kvffi_status expected, kvffi_error *error, const char *needle,
                         const char *what, const char *file, int line)
{
    if (status != expected || error == NULL || kvffi_error_status(error) != expected
        || strstr(kvffi_error_message(error), needle) == NULL) {
        fprintf(stderr, "%s:%d: %s\n  gives %s: %s\n  and not %s with: %s\n", file, line, what, kvffi_status_name(status),
                kvffi_error_message(error), kvffi_status_name(expected), needle);
        exit(1);
    }
    kvffi_error_free(error);
}

#define OK(call) \
    do { \
        kvffi_error *error = NULL; \
        const kvffi_status status = (call); \
        if (status != KVFFI_OK || error != NULL) { \
            fprintf(stderr, "%s:%d: %s\n  gives %s: %s\n", __FILE__, __LINE__, #call, kvffi_status_name(status), \
                    kvffi_error_message(error)); \
            exit(1); \
        } \
    } while (0)

/* One layer in four blocks of 32 bytes, 64 bytes apart. */
#define SPEC_OF(model) \
    "{\"version\": 1, \"fingerprint\": {\"model\": \"" model "\"}," \
    " \"storages\": [{\"base\": 4096, \"len\": 256, \"mem\": \"dram\"}]," \
    " \"groups\": [{\"pool\": 0, \"block_tokens\": 4, \"num_blocks\": 4}]," \
    " \"layers\": [{\"name\": \"l\", \"group\": 0, \"kind\": \"mla\", \"parts\": [{\"name\": \"latent\", \"storage\": 0," \
    "  \"offset\": 0, \"block_stride\": 64, \"sharding\": \"replicated\", \"units\": {\"count\": 1, \"stride\": 32}," \
    "  \"tokens\": [{\"count\": 4, \"stride\": 8}], \"content\": 8}]}]}"

static inline kvffi_spec *spec_of(const char *json)
{
    kvffi_spec *spec = NULL;
    OK(kvffi_spec_from_json(json, strlen(json), &spec, &error));
    return spec;
}

#endif
