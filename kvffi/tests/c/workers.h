/* Two workers on a loopback, for the C tests: blocks of 32 bytes, 64 bytes apart, as in SPEC_OF. */
#ifndef WORKERS_H
#define WORKERS_H

#include <inttypes.h>

#include "check.h"

enum { CACHE_BYTES = 256, BLOCK_BYTES = 32, BLOCK_STRIDE = 64 };

static inline kvffi_spec *spec_of_blocks(const char *model, const unsigned char *cache, int num_blocks)
{
    char json[1024];
    snprintf(json, sizeof json,
             "{\"version\": 1, \"fingerprint\": {\"model\": \"%s\"},"
             " \"storages\": [{\"base\": %" PRIuPTR ", \"len\": %d, \"mem\": \"dram\"}],"
             " \"groups\": [{\"pool\": 0, \"block_tokens\": 4, \"num_blocks\": %d}],"
             " \"layers\": [{\"name\": \"l\", \"group\": 0, \"kind\": \"mla\", \"parts\": [{\"name\": \"latent\","
             "  \"storage\": 0, \"offset\": 0, \"block_stride\": 64, \"sharding\": \"replicated\","
             "  \"units\": {\"count\": 1, \"stride\": 32}, \"tokens\": [{\"count\": 4, \"stride\": 8}], \"content\": 8}]}]}",
             model, (uintptr_t)cache, num_blocks * BLOCK_STRIDE, num_blocks);
    return spec_of(json);
}

static inline kvffi_spec *spec_at(const char *model, const unsigned char *cache)
{
    return spec_of_blocks(model, cache, 4);
}

static inline void register_cache(kvffi_agent *agent, const char *model, const unsigned char *cache)
{
    kvffi_spec *spec = spec_at(model, cache);
    kvffi_local_plan *plan = NULL;
    OK(kvffi_local_plan_new(spec, 0, &plan, &error));
    OK(kvffi_agent_register(agent, plan, &error));
    kvffi_local_plan_free(plan);
    kvffi_spec_free(spec);
}

static inline kvffi_agent *agent_on(const kvffi_loopback *loopback, const char *name)
{
    kvffi_agent_options options = KVFFI_AGENT_OPTIONS_INIT;
    options.loopback = loopback;
    kvffi_agent *agent = NULL;
    OK(kvffi_agent_new(name, &options, &agent, &error));
    return agent;
}

static inline kvffi_agent *worker_on(const kvffi_loopback *loopback, const char *name, const unsigned char *cache)
{
    kvffi_agent *agent = agent_on(loopback, name);
    register_cache(agent, "m", cache);
    return agent;
}

static inline kvffi_peer *connect_to(kvffi_agent *agent, const kvffi_agent *other)
{
    kvffi_bytes *blob = NULL;
    kvffi_peer *peer = NULL;
    OK(kvffi_agent_export(other, &blob, &error));
    OK(kvffi_agent_connect(agent, kvffi_bytes_data(blob), kvffi_bytes_len(blob), &peer, &error));
    kvffi_bytes_free(blob);
    return peer;
}

#endif
