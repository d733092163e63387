/* Whatever is wrong with a call on agents, peers and transfers, it gives a status and a text. */
#define _DEFAULT_SOURCE
#include <sys/mman.h>
#include <unistd.h>

#include "workers.h"

static unsigned char ours[CACHE_BYTES], theirs[CACHE_BYTES];
static kvffi_loopback *network;
static kvffi_agent *decode, *prefill;
static kvffi_peer *peer;
static kvffi_transfer *transfer;
static const kvffi_descriptor BLOCK = {0, 0, 0, 0, BLOCK_BYTES};

/* A handle of one kind where another is expected. */
#define AS(type, handle) ((type *)(void *)(handle))

static void networks(void)
{
    FAILS(KVFFI_ERR_NULL, "out_loopback is NULL", kvffi_loopback_new(NULL, &error));
    FAILS(KVFFI_ERR_NULL, "loopback is NULL", kvffi_loopback_set_faults(NULL, 0, &error));
    FAILS(KVFFI_ERR_WRONG_HANDLE, "loopback is a handle of kvffi_agent",
          kvffi_loopback_set_faults(AS(kvffi_loopback, decode), 0, &error));
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "unknown bits 0xf8", kvffi_loopback_set_faults(network, 255, &error));
    kvffi_loopback_free(NULL);
    kvffi_loopback_free(AS(kvffi_loopback, decode));
}

static void new_agents(void)
{
    kvffi_agent *agent = NULL;
    kvffi_agent_options options = KVFFI_AGENT_OPTIONS_INIT;
    options.loopback = network;
    FAILS(KVFFI_ERR_NULL, "name is NULL", kvffi_agent_new(NULL, &options, &agent, &error));
    FAILS(KVFFI_ERR_NULL, "out_agent is NULL", kvffi_agent_new("a", &options, NULL, &error));
    FAILS(KVFFI_ERR_NOT_UTF8, "name is not UTF-8", kvffi_agent_new("\xff", &options, &agent, &error));
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "it contains @", kvffi_agent_new("a@b", &options, &agent, &error));
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "it is empty", kvffi_agent_new("", &options, &agent, &error));
    options.loopback = AS(kvffi_loopback, decode);
    FAILS(KVFFI_ERR_WRONG_HANDLE, "options->loopback is a handle of kvffi_agent",
          kvffi_agent_new("a", &options, &agent, &error));
    options.loopback = network;
    options.flags = 2;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "unknown bits 0x2", kvffi_agent_new("a", &options, &agent, &error));
    options.flags = KVFFI_AGENT_SPIN;
    options.progress_delay_us = 5;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "set one of the two", kvffi_agent_new("a", &options, &agent, &error));
    options.flags = 0;
    options.reserved = 1;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "options->reserved is 1", kvffi_agent_new("a", &options, &agent, &error));
    options.reserved = 0;
    options.num_backend_params = 1;
    FAILS(KVFFI_ERR_NULL, "options->backend_params (with a length of 1) is NULL",
          kvffi_agent_new("a", &options, &agent, &error));
    options.num_backend_params = SIZE_MAX;
    const kvffi_key_value twice[] = {{"k", "1"}, {"k", "2"}, {"k", NULL}};
    options.backend_params = twice;
    FAILS(KVFFI_ERR_TOO_LARGE, "options->backend_params cannot have", kvffi_agent_new("a", &options, &agent, &error));
    options.num_backend_params = 2;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "the key \"k\" twice", kvffi_agent_new("a", &options, &agent, &error));
    options.backend_params = twice + 2;
    options.num_backend_params = 1;
    FAILS(KVFFI_ERR_NULL, "options->backend_params[0].value is NULL", kvffi_agent_new("a", &options, &agent, &error));
    options.num_backend_params = 0;
    options.struct_size = 7;
    FAILS(KVFFI_ERR_STRUCT_SIZE, "struct_size 7", kvffi_agent_new("a", &options, &agent, &error));
    options.struct_size = sizeof options;
    kvffi_limits limits = KVFFI_LIMITS_INIT;
    limits.struct_size = 0;
    options.limits = &limits;
    FAILS(KVFFI_ERR_STRUCT_SIZE, "options->limits: struct_size 0", kvffi_agent_new("a", &options, &agent, &error));
    CHECK(agent == NULL);

    /* A header that knows more than this library, and one that knows less than any did. */
    struct {
        kvffi_agent_options known;
        uint64_t more;
    } newer = {KVFFI_AGENT_OPTIONS_INIT, 1};
    newer.known.struct_size = sizeof newer;
    newer.known.loopback = network;
    FAILS(KVFFI_ERR_STRUCT_SIZE, "the field at byte 72", kvffi_agent_new("a", &newer.known, &agent, &error));
    newer.more = 0;
    OK(kvffi_agent_new("a", &newer.known, &agent, &error));
    kvffi_agent_free(agent);
    newer.known.struct_size = 64;
    FAILS(KVFFI_ERR_STRUCT_SIZE, "struct_size 64 is no size of kvffi_agent_options, whose first version has 72 bytes",
          kvffi_agent_new("a", &newer.known, &agent, &error));
    kvffi_agent_free(NULL);
    kvffi_agent_free(AS(kvffi_agent, network));
}

/* Without NIXL there is an error that says where it was looked for. */
static void no_library(void)
{
    kvffi_agent *agent = NULL;
    kvffi_agent_options options = KVFFI_AGENT_OPTIONS_INIT;
    options.library = "/no/such/place/libnixl_capi.so";
    FAILS(KVFFI_ERR_NO_LIBRARY, "/no/such/place/libnixl_capi.so", kvffi_agent_new("a", &options, &agent, &error));
}

static void memory(void)
{
    kvffi_agent *agent = agent_on(network, "empty");
    kvffi_bytes *blob = NULL;
    kvffi_peer *out = NULL;
    FAILS(KVFFI_ERR_WRONG_ORDER, "no memory registered", kvffi_agent_export(agent, &blob, &error));
    FAILS(KVFFI_ERR_WRONG_ORDER, "no memory registered", kvffi_agent_deregister(agent, &error));
    FAILS(KVFFI_ERR_WRONG_ORDER, "no memory registered", kvffi_agent_connect(agent, NULL, 0, &out, &error));
    FAILS(KVFFI_ERR_NULL, "plan is NULL", kvffi_agent_register(agent, NULL, &error));
    FAILS(KVFFI_ERR_NULL, "agent is NULL", kvffi_agent_register(NULL, NULL, &error));
    FAILS(KVFFI_ERR_NULL, "plan is NULL", kvffi_agent_reregister(agent, NULL, &error));
    FAILS(KVFFI_ERR_NULL, "agent is NULL", kvffi_agent_reregister(NULL, NULL, &error));
    FAILS(KVFFI_ERR_WRONG_HANDLE, "plan is a handle of kvffi_agent",
          kvffi_agent_register(agent, AS(kvffi_local_plan, agent), &error));
    kvffi_spec *spec = spec_at("m", ours), *other = spec_at("another model", ours);
    kvffi_local_plan *plan = NULL, *other_plan = NULL;
    OK(kvffi_local_plan_new(spec, 0, &plan, &error));
    OK(kvffi_local_plan_new(other, 0, &other_plan, &error));
    FAILS(KVFFI_ERR_WRONG_ORDER, "no memory registered", kvffi_agent_reregister(agent, plan, &error));
    register_cache(agent, "m", ours);
    FAILS(KVFFI_ERR_PAIR_REFUSED, "use another agent for another model", kvffi_agent_reregister(agent, other_plan, &error));
    kvffi_local_plan_free(other_plan);
    kvffi_spec_free(other);
    FAILS(KVFFI_ERR_WRONG_ORDER, "already has 1 memory ranges", kvffi_agent_register(agent, plan, &error));
    kvffi_local_plan_free(plan);
    kvffi_spec_free(spec);
    FAILS(KVFFI_ERR_NULL, "out_blob is NULL", kvffi_agent_export(agent, NULL, &error));
    FAILS(KVFFI_ERR_NULL, "agent is NULL", kvffi_agent_export(NULL, &blob, &error));
    FAILS(KVFFI_ERR_NULL, "agent is NULL", kvffi_agent_deregister(NULL, &error));
    kvffi_agent_free(agent);
    CHECK(kvffi_bytes_data(NULL) == NULL && kvffi_bytes_len(NULL) == 0);
    CHECK(kvffi_bytes_data(AS(kvffi_bytes, network)) == NULL && kvffi_bytes_len(AS(kvffi_bytes, network)) == 0);
    kvffi_bytes_free(NULL);
    kvffi_bytes_free(AS(kvffi_bytes, network));
}

/* Memory that is not there is refused before a transfer meets it, and the first bad page is said. */
static void unmapped_memory(void)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *cache = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(cache != MAP_FAILED);
    kvffi_agent *agent = agent_on(network, "empty");
    /* Of 256 bytes the last 128 lie on the page behind. */
    kvffi_spec *spec = spec_at("m", cache + page - 128);
    kvffi_local_plan *plan = NULL;
    OK(kvffi_local_plan_new(spec, 0, &plan, &error));
    char bad[64], text[128];
    snprintf(bad, sizeof bad, "of storage 0 (dram): its page at 0x%" PRIxPTR " is", (uintptr_t)(cache + page));
    CHECK(mprotect(cache + page, page, PROT_READ) == 0);
    snprintf(text, sizeof text, "%s mapped r--p", bad);
    FAILS(KVFFI_ERR_OUT_OF_RANGE, text, kvffi_agent_register(agent, plan, &error));
    CHECK(mprotect(cache + page, page, PROT_NONE) == 0);
    snprintf(text, sizeof text, "%s mapped ---p", bad);
    FAILS(KVFFI_ERR_OUT_OF_RANGE, text, kvffi_agent_register(agent, plan, &error));
    CHECK(munmap(cache + page, page) == 0);
    snprintf(text, sizeof text, "%s not mapped", bad);
    FAILS(KVFFI_ERR_OUT_OF_RANGE, text, kvffi_agent_register(agent, plan, &error));
    kvffi_local_plan_free(plan);
    kvffi_spec_free(spec);
    /* Nothing was registered. */
    register_cache(agent, "m", ours);
    kvffi_agent_free(agent);
    CHECK(munmap(cache, page) == 0 && munmap(cache + 2 * page, page) == 0);
}

static void blobs(void)
{
    kvffi_bytes *blob = NULL;
    kvffi_peer *out = NULL;
    OK(kvffi_agent_export(prefill, &blob, &error));
    const size_t len = kvffi_bytes_len(blob);
    unsigned char *copy = malloc(len);
    memcpy(copy, kvffi_bytes_data(blob), len);
    FAILS(KVFFI_ERR_NULL, "blob (with a length of 5) is NULL", kvffi_agent_connect(decode, NULL, 5, &out, &error));
    FAILS(KVFFI_ERR_TOO_LARGE, "blob cannot have", kvffi_agent_connect(decode, copy, SIZE_MAX, &out, &error));
    FAILS(KVFFI_ERR_NULL, "out_peer is NULL", kvffi_agent_connect(decode, copy, len, NULL, &error));
    FAILS(KVFFI_ERR_NULL, "agent is NULL", kvffi_agent_connect(NULL, copy, len, &out, &error));
    FAILS(KVFFI_ERR_BLOB, "cut off after 0 bytes", kvffi_agent_connect(decode, NULL, 0, &out, &error));
    FAILS(KVFFI_ERR_BLOB, "peer blob", kvffi_agent_connect(decode, copy, len - 1, &out, &error));
    FAILS(KVFFI_ERR_BLOB, "cannot connect to itself", kvffi_agent_connect(prefill, copy, len, &out, &error));
    for (size_t i = 0; i < len; i++) {
        copy[i] ^= 0x20;
        CHECK(kvffi_agent_connect(decode, copy, len, &out, NULL) == KVFFI_ERR_BLOB && out == NULL);
        copy[i] ^= 0x20;
    }
    free(copy);
    kvffi_bytes_free(blob);

    kvffi_agent *other = agent_on(network, "other");
    register_cache(other, "another model", ours);
    OK(kvffi_agent_export(other, &blob, &error));
    kvffi_error *error = NULL;
    CHECK(kvffi_agent_connect(decode, kvffi_bytes_data(blob), kvffi_bytes_len(blob), &out, &error) == KVFFI_ERR_PAIR_REFUSED);
    CHECK(kvffi_error_num_findings(error) == 1 && strstr(kvffi_error_finding(error, 0), "another model") != NULL);
    kvffi_error_free(error);
    kvffi_bytes_free(blob);

    /* A blob of an earlier registration. */
    kvffi_bytes *old = NULL;
    OK(kvffi_agent_deregister(other, &error));
    register_cache(other, "m", ours);
    OK(kvffi_agent_export(other, &old, &error));
    OK(kvffi_agent_deregister(other, &error));
    register_cache(other, "m", ours);
    kvffi_peer_free(connect_to(decode, other));
    FAILS(KVFFI_ERR_STALE_BLOB, "generation 2 is older than 3",
          kvffi_agent_connect(decode, kvffi_bytes_data(old), kvffi_bytes_len(old), &out, &error));
    kvffi_bytes_free(old);

    /* A blob of another peer than the one that was asked for. */
    OK(kvffi_agent_export(other, &blob, &error));
    const uint8_t *bytes = kvffi_bytes_data(blob);
    size_t num_bytes = kvffi_bytes_len(blob);
    FAILS(KVFFI_ERR_BLOB, "the blob is of \"other\", and that of \"prefill\" was asked for",
          kvffi_agent_connect_named(decode, "prefill", bytes, num_bytes, &out, &error));
    FAILS(KVFFI_ERR_NULL, "name is NULL", kvffi_agent_connect_named(decode, NULL, bytes, num_bytes, &out, &error));
    OK(kvffi_agent_connect_named(decode, "other", bytes, num_bytes, &out, &error));
    kvffi_peer_free(out);
    kvffi_bytes_free(blob);
    kvffi_agent_free(other);
}

static void peers(void)
{
    kvffi_spec *spec = NULL;
    kvffi_peer_info info = KVFFI_PEER_INFO_INIT;
    FAILS(KVFFI_ERR_NULL, "peer is NULL", kvffi_peer_get_info(NULL, &info, &error));
    FAILS(KVFFI_ERR_NULL, "out_info is NULL", kvffi_peer_get_info(peer, NULL, &error));
    FAILS(KVFFI_ERR_WRONG_HANDLE, "peer is a handle of kvffi_agent",
          kvffi_peer_get_info(AS(kvffi_peer, decode), &info, &error));
    info.struct_size = 9;
    FAILS(KVFFI_ERR_STRUCT_SIZE, "struct_size 9", kvffi_peer_get_info(peer, &info, &error));
    FAILS(KVFFI_ERR_NULL, "out_spec is NULL", kvffi_peer_get_layout(peer, NULL, &error));
    FAILS(KVFFI_ERR_NULL, "peer is NULL", kvffi_peer_get_layout(NULL, &spec, &error));
    FAILS(KVFFI_ERR_NULL, "peer is NULL", kvffi_peer_declare_gone(NULL, &error));
    FAILS(KVFFI_ERR_NULL, "agent is NULL", kvffi_agent_reconnect(NULL, peer, &error));
    FAILS(KVFFI_ERR_NULL, "peer is NULL", kvffi_agent_reconnect(decode, NULL, &error));
    FAILS(KVFFI_ERR_PEER_GONE, "not connected to this agent", kvffi_agent_reconnect(prefill, peer, &error));
    FAILS(KVFFI_ERR_NULL, "agent is NULL", kvffi_agent_disconnect(NULL, peer, &error));
    FAILS(KVFFI_ERR_NULL, "peer is NULL", kvffi_agent_disconnect(decode, NULL, &error));
    FAILS(KVFFI_ERR_PEER_GONE, "not connected to this agent", kvffi_agent_disconnect(prefill, peer, &error));
    kvffi_peer_free(NULL);
    kvffi_peer_free(AS(kvffi_peer, decode));
    kvffi_agent_info agent = KVFFI_AGENT_INFO_INIT;
    FAILS(KVFFI_ERR_NULL, "agent is NULL", kvffi_agent_get_info(NULL, &agent, &error));
    FAILS(KVFFI_ERR_NULL, "out_info is NULL", kvffi_agent_get_info(decode, NULL, &error));
    agent.struct_size = SIZE_MAX;
    FAILS(KVFFI_ERR_STRUCT_SIZE, "struct_size", kvffi_agent_get_info(decode, &agent, &error));
    /* Of what no header ever had, nothing is written. */
    memset(&agent, 0xee, sizeof agent);
    agent.struct_size = 24;
    FAILS(KVFFI_ERR_STRUCT_SIZE, "out_info: struct_size 24 is no size of kvffi_agent_info, whose first version has 40 bytes",
          kvffi_agent_get_info(decode, &agent, &error));
    CHECK(agent.generation == UINT64_C(0xeeeeeeeeeeeeeeee) && agent.incarnation == agent.generation);
}

/* Without NIXL nobody is foreign: the loopback knows agents of this library only. */
static void foreigners(void)
{
    kvffi_spec *spec = spec_at("m", theirs), *other = spec_at("another", theirs);
    kvffi_peer *out = NULL;
    kvffi_text *name = NULL;
    kvffi_bytes *metadata = NULL, *none = NULL;
    kvffi_foreign_peer foreign = KVFFI_FOREIGN_PEER_INIT;
    OK(kvffi_agent_get_nixl_name(decode, &name, &error));
    OK(kvffi_agent_get_nixl_metadata(prefill, &metadata, &error));
    CHECK(strncmp(kvffi_text_data(name), "decode@", 7) == 0);
    FAILS(KVFFI_ERR_NULL, "peer is NULL", kvffi_agent_connect_foreign(decode, NULL, &out, &error));
    FAILS(KVFFI_ERR_NULL, "peer->name is NULL", kvffi_agent_connect_foreign(decode, &foreign, &out, &error));
    foreign.name = "bare";
    FAILS(KVFFI_ERR_NULL, "peer->layout is NULL", kvffi_agent_connect_foreign(decode, &foreign, &out, &error));
    foreign.layout = AS(kvffi_spec, decode);
    FAILS(KVFFI_ERR_WRONG_HANDLE, "peer->layout is a handle of kvffi_agent",
          kvffi_agent_connect_foreign(decode, &foreign, &out, &error));
    foreign.layout = other;
    FAILS(KVFFI_ERR_PAIR_REFUSED, "another", kvffi_agent_connect_foreign(decode, &foreign, &out, &error));
    foreign.layout = spec;
    foreign.metadata_len = 1;
    FAILS(KVFFI_ERR_NULL, "peer->metadata (with a length of 1) is NULL",
          kvffi_agent_connect_foreign(decode, &foreign, &out, &error));
    foreign.metadata = kvffi_bytes_data(metadata);
    foreign.metadata_len = kvffi_bytes_len(metadata);
    FAILS(KVFFI_ERR_BLOB, "prefill@", kvffi_agent_connect_foreign(decode, &foreign, &out, &error));
    foreign.metadata_len -= 1;
    FAILS(KVFFI_ERR_TRANSPORT, "not in this process", kvffi_agent_connect_foreign(decode, &foreign, &out, &error));
    foreign.name = kvffi_text_data(name);
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "it contains @", kvffi_agent_connect_foreign(decode, &foreign, &out, &error));
    foreign.struct_size = 9;
    FAILS(KVFFI_ERR_STRUCT_SIZE, "peer: struct_size 9", kvffi_agent_connect_foreign(decode, &foreign, &out, &error));
    FAILS(KVFFI_ERR_NULL, "out_peer is NULL", kvffi_agent_connect_foreign(decode, &foreign, NULL, &error));
    FAILS(KVFFI_ERR_NULL, "out_name is NULL", kvffi_agent_get_nixl_name(decode, NULL, &error));
    FAILS(KVFFI_ERR_NULL, "out_metadata is NULL", kvffi_agent_get_nixl_metadata(decode, NULL, &error));
    FAILS(KVFFI_ERR_NULL, "agent is NULL", kvffi_agent_get_nixl_metadata(NULL, &none, &error));
    CHECK(out == NULL && none == NULL);
    kvffi_bytes_free(metadata);
    kvffi_text_free(name);
    kvffi_spec_free(spec);
    kvffi_spec_free(other);
}

static void messages(void)
{
    static unsigned char message[KVFFI_MAX_NOTIFICATION_BYTES + 1];
    kvffi_notifications *arrived = NULL;
    kvffi_notification one;
    size_t len = 0;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "8193 bytes was given; at most 8192",
          kvffi_agent_notify(decode, peer, message, sizeof message, &error));
    FAILS(KVFFI_ERR_NULL, "message (with a length of 1) is NULL", kvffi_agent_notify(decode, peer, NULL, 1, &error));
    FAILS(KVFFI_ERR_NULL, "agent is NULL", kvffi_agent_notify(NULL, peer, message, 1, &error));
    FAILS(KVFFI_ERR_NULL, "peer is NULL", kvffi_agent_notify(decode, NULL, message, 1, &error));
    FAILS(KVFFI_ERR_NULL, "out_notifications is NULL", kvffi_agent_take_notifications(decode, NULL, &error));
    FAILS(KVFFI_ERR_NULL, "agent is NULL", kvffi_agent_take_notifications(NULL, &arrived, &error));
    FAILS(KVFFI_ERR_NULL, "notifications is NULL", kvffi_notifications_get(NULL, &one, 1, &len, &error));
    OK(kvffi_agent_notify(decode, peer, message, sizeof message - 1, &error));
    OK(kvffi_agent_take_notifications(prefill, &arrived, &error));
    FAILS(KVFFI_ERR_NULL, "out_len is NULL", kvffi_notifications_get(arrived, &one, 1, NULL, &error));
    FAILS(KVFFI_ERR_NULL, "array (with a length of 1) is NULL", kvffi_notifications_get(arrived, NULL, 1, &len, &error));
    FAILS(KVFFI_ERR_TOO_LARGE, "array cannot have", kvffi_notifications_get(arrived, &one, SIZE_MAX, &len, &error));
    CHECK(kvffi_notifications_len(AS(kvffi_notifications, decode)) == 0);
    kvffi_notifications_free(AS(kvffi_notifications, decode));
    kvffi_notifications_free(arrived);
}

#define START(op, descriptors, num, options) \
    kvffi_agent_start(decode, peer, (op), (descriptors), (num), (options), &transfer, &error)

#define REQUEST(peer, pair, request, answer) \
    kvffi_agent_start_request(decode, (peer), (pair), (request), (answer), NULL, &transfer, &error)

static void starts(void)
{
    kvffi_transfer_options options = KVFFI_TRANSFER_OPTIONS_INIT;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "op is 2", START(2, &BLOCK, 1, NULL));
    FAILS(KVFFI_ERR_NULL, "descriptors (with a length of 1) is NULL", START(KVFFI_OP_READ, NULL, 1, NULL));
    FAILS(KVFFI_ERR_TOO_LARGE, "descriptors cannot have", START(KVFFI_OP_READ, &BLOCK, SIZE_MAX / 8, NULL));
    FAILS(KVFFI_ERR_NULL, "agent is NULL", kvffi_agent_start(NULL, peer, 0, &BLOCK, 1, NULL, &transfer, &error));
    FAILS(KVFFI_ERR_NULL, "peer is NULL", kvffi_agent_start(decode, NULL, 0, &BLOCK, 1, NULL, &transfer, &error));
    FAILS(KVFFI_ERR_NULL, "out_transfer is NULL", kvffi_agent_start(decode, peer, 0, &BLOCK, 1, NULL, NULL, &error));
    FAILS(KVFFI_ERR_PEER_GONE, "not connected to this agent",
          kvffi_agent_start(prefill, peer, 0, &BLOCK, 1, NULL, &transfer, &error));

    /* Outside of registered memory, on either side, also where addresses wrap. */
    const kvffi_descriptor bad[] = {
        {1, 0, 0, 0, 32}, {0, 1, 0, 0, 32}, {0, 0, 225, 0, 32}, {0, 0, 0, 225, 32}, {0, 0, UINT64_MAX, 0, 32},
        {0, 0, 0, UINT64_MAX - 31, 32}, {0, 0, 0, 0, UINT64_MAX}, {0, 0, 0, 0, 257}, {0, 0, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const kvffi_descriptor both[] = {BLOCK, bad[i]};
        FAILS(KVFFI_ERR_OUT_OF_RANGE, "descriptor 1", START(KVFFI_OP_READ, both, 2, NULL));
        FAILS(KVFFI_ERR_OUT_OF_RANGE, "descriptor 0", START(KVFFI_OP_WRITE, both + 1, 1, NULL));
    }
    static unsigned char message[KVFFI_MAX_NOTIFICATION_BYTES + 1];
    options.notify = message;
    options.notify_len = sizeof message;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "at most 8192", START(KVFFI_OP_READ, &BLOCK, 1, &options));
    options.notify = NULL;
    FAILS(KVFFI_ERR_NULL, "options->notify (with a length of 8193) is NULL", START(KVFFI_OP_READ, &BLOCK, 1, &options));
    options.notify_len = 0;
    options.request = "\xff";
    FAILS(KVFFI_ERR_NOT_UTF8, "options->request is not UTF-8", START(KVFFI_OP_READ, &BLOCK, 1, &options));
    options.request = NULL;
    options.struct_size = 4;
    FAILS(KVFFI_ERR_STRUCT_SIZE, "struct_size 4", START(KVFFI_OP_READ, &BLOCK, 1, &options));
    CHECK(transfer == NULL);

    kvffi_answer *answer = NULL;
    OK(kvffi_answer_new(&answer, &error));
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "answer is empty",
          kvffi_agent_start_answer(decode, peer, answer, NULL, &transfer, &error));
    FAILS(KVFFI_ERR_NULL, "answer is NULL", kvffi_agent_start_answer(decode, peer, NULL, NULL, &transfer, &error));
    FAILS(KVFFI_ERR_NULL, "agent is NULL", kvffi_agent_start_answer(NULL, peer, answer, NULL, &transfer, &error));
    FAILS(KVFFI_ERR_NULL, "peer is NULL", kvffi_agent_start_answer(decode, NULL, answer, NULL, &transfer, &error));
    FAILS(KVFFI_ERR_NULL, "out_transfer is NULL", kvffi_agent_start_answer(decode, peer, answer, NULL, NULL, &error));

    /* In one call with the planning. */
    kvffi_spec *own = spec_at("m", ours), *layout = NULL;
    kvffi_pair *pair = NULL;
    OK(kvffi_peer_get_layout(peer, &layout, &error));
    OK(kvffi_pair_new(own, layout, NULL, &pair, &error));
    uint32_t here = 0, there = 9;
    const kvffi_block_list here_list = {0, 0, 0, &here, 1}, there_list = {0, 0, 0, &there, 1};
    kvffi_request request = KVFFI_REQUEST_INIT;
    request.local = &here_list;
    request.num_local = 1;
    request.remote = &there_list;
    request.num_remote = 1;
    FAILS(KVFFI_ERR_REQUEST_REFUSED, "block", REQUEST(peer, pair, &request, answer));
    there = 1;
    FAILS(KVFFI_ERR_NULL, "peer is NULL", REQUEST(NULL, pair, &request, answer));
    FAILS(KVFFI_ERR_NULL, "pair is NULL", REQUEST(peer, NULL, &request, answer));
    FAILS(KVFFI_ERR_NULL, "request is NULL", REQUEST(peer, pair, NULL, answer));
    FAILS(KVFFI_ERR_NULL, "answer is NULL", REQUEST(peer, pair, &request, NULL));
    FAILS(KVFFI_ERR_WRONG_HANDLE, "pair is a handle of kvffi_spec",
          REQUEST(peer, AS(kvffi_pair, own), &request, answer));
    FAILS(KVFFI_ERR_STRUCT_SIZE, "struct_size 4",
          kvffi_agent_start_request(decode, peer, pair, &request, answer, &options, &transfer, &error));
    FAILS(KVFFI_ERR_NULL, "out_transfer is NULL",
          kvffi_agent_start_request(decode, peer, pair, &request, answer, NULL, NULL, &error));
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "answer is empty",
          kvffi_agent_start_answer(decode, peer, answer, NULL, &transfer, &error));
    options.struct_size = sizeof options;
    options.padding_bytes = 1;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "the answer knows its padding",
          kvffi_agent_start_request(decode, peer, pair, &request, answer, &options, &transfer, &error));
    CHECK(transfer == NULL);

    /* Of a plan between other caches: its bytes would go to wrong places. */
    kvffi_pair *other_pair = NULL;
    kvffi_spec *fewer = spec_of_blocks("m", ours, 3);
    OK(kvffi_pair_new(fewer, layout, NULL, &other_pair, &error));
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "other caches than those of this worker",
          REQUEST(peer, other_pair, &request, answer));
    kvffi_pair_free(other_pair);
    OK(kvffi_pair_new(own, fewer, NULL, &other_pair, &error));
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "other caches than those of the peer",
          REQUEST(peer, other_pair, &request, answer));
    kvffi_pair_free(other_pair);
    kvffi_spec_free(fewer);
    OK(kvffi_pair_answer(pair, &request, answer, &error));

    /* No more than the limits allow, unless it is alone. */
    kvffi_agent *small = NULL;
    kvffi_limits limits = KVFFI_LIMITS_INIT;
    limits.in_flight_bytes = 40;
    kvffi_agent_options agent_options = KVFFI_AGENT_OPTIONS_INIT;
    agent_options.loopback = network;
    agent_options.limits = &limits;
    OK(kvffi_agent_new("small", &agent_options, &small, &error));
    register_cache(small, "m", ours);
    kvffi_peer *other = connect_to(small, prefill);
    kvffi_transfer *second = NULL;
    OK(kvffi_loopback_set_faults(network, KVFFI_LOOPBACK_STALL, &error));
    OK(kvffi_agent_start(small, other, KVFFI_OP_READ, &BLOCK, 1, NULL, &transfer, &error));
    FAILS(KVFFI_ERR_WOULD_BLOCK, "32 bytes in 1 descriptors are in flight",
          kvffi_agent_start(small, other, KVFFI_OP_READ, &BLOCK, 1, NULL, &second, &error));
    FAILS(KVFFI_ERR_WOULD_BLOCK, "32 bytes in 1 descriptors are in flight",
          kvffi_agent_start_request(small, other, pair, &request, answer, NULL, &second, &error));
    OK(kvffi_loopback_set_faults(network, 0, &error));
    OK(kvffi_transfer_wait(transfer, KVFFI_FOREVER, &error));
    kvffi_transfer_free(transfer);
    /* The answer is there, and need not be worked out again. */
    OK(kvffi_agent_start_answer(small, other, answer, NULL, &transfer, &error));
    OK(kvffi_transfer_wait(transfer, KVFFI_FOREVER, &error));
    kvffi_transfer_free(transfer);
    kvffi_answer_free(answer);
    kvffi_pair_free(pair);
    kvffi_spec_free(layout);
    kvffi_spec_free(own);
    kvffi_peer_free(other);
    kvffi_agent_free(small);
}

static void transfers(void)
{
    kvffi_transfer_stats stats = KVFFI_TRANSFER_STATS_INIT;
    FAILS(KVFFI_ERR_NULL, "transfer is NULL", kvffi_transfer_poll(NULL, &error));
    FAILS(KVFFI_ERR_NULL, "transfer is NULL", kvffi_transfer_wait(NULL, 1, &error));
    FAILS(KVFFI_ERR_NULL, "transfer is NULL", kvffi_transfer_wait_settled(NULL, 1, &error));
    FAILS(KVFFI_ERR_NULL, "transfer is NULL", kvffi_transfer_cancel(NULL, &error));
    FAILS(KVFFI_ERR_NULL, "transfer is NULL", kvffi_transfer_get_stats(NULL, &stats, &error));
    FAILS(KVFFI_ERR_WRONG_HANDLE, "transfer is a handle of kvffi_peer",
          kvffi_transfer_poll(AS(kvffi_transfer, peer), &error));
    OK(kvffi_agent_start(decode, peer, KVFFI_OP_READ, &BLOCK, 1, NULL, &transfer, &error));
    FAILS(KVFFI_ERR_NULL, "out_stats is NULL", kvffi_transfer_get_stats(transfer, NULL, &error));
    stats.struct_size = 12;
    FAILS(KVFFI_ERR_STRUCT_SIZE, "struct_size 12", kvffi_transfer_get_stats(transfer, &stats, &error));
    CHECK(kvffi_transfer_wait(transfer, KVFFI_FOREVER, NULL) == KVFFI_OK);
    kvffi_transfer_free(transfer);
    kvffi_transfer_free(NULL);
    kvffi_transfer_free(AS(kvffi_transfer, peer));
}

static void numbers(void)
{
    kvffi_agent_stats stats = KVFFI_AGENT_STATS_INIT;
    kvffi_bucket buckets[2];
    kvffi_quarantine *quarantine = NULL;
    kvffi_quarantined entry;
    kvffi_quarantined_range range;
    size_t len = 0;
    int32_t fd = 77;
    FAILS(KVFFI_ERR_NULL, "agent is NULL", kvffi_agent_get_stats(NULL, &stats, &error));
    FAILS(KVFFI_ERR_NULL, "out_stats is NULL", kvffi_agent_get_stats(decode, NULL, &error));
    stats.struct_size = 5000;
    FAILS(KVFFI_ERR_STRUCT_SIZE, "struct_size 5000", kvffi_agent_get_stats(decode, &stats, &error));
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "histogram is 2", kvffi_agent_get_histogram(decode, 2, buckets, 2, &len, &error));
    FAILS(KVFFI_ERR_BUFFER_TOO_SMALL, "buckets has room for 2", kvffi_agent_get_histogram(decode, 0, buckets, 2, &len, &error));
    CHECK(len > 2);
    FAILS(KVFFI_ERR_NULL, "out_len is NULL", kvffi_agent_get_histogram(decode, 0, buckets, 2, NULL, &error));
    FAILS(KVFFI_ERR_NULL, "agent is NULL", kvffi_agent_get_histogram(NULL, 0, buckets, 2, &len, &error));
    FAILS(KVFFI_ERR_NULL, "agent is NULL", kvffi_agent_get_quarantine(NULL, &quarantine, &error));
    FAILS(KVFFI_ERR_NULL, "out_quarantine is NULL", kvffi_agent_get_quarantine(decode, NULL, &error));
    OK(kvffi_agent_get_quarantine(decode, &quarantine, &error));
    CHECK(quarantine == NULL);
    FAILS(KVFFI_ERR_NULL, "quarantine is NULL", kvffi_quarantine_get_entries(NULL, &entry, 1, &len, &error));
    FAILS(KVFFI_ERR_NULL, "quarantine is NULL", kvffi_quarantine_get_ranges(NULL, 0, &range, 1, &len, &error));
    FAILS(KVFFI_ERR_WRONG_HANDLE, "quarantine is a handle of kvffi_peer",
          kvffi_quarantine_get_entries(AS(kvffi_quarantine, peer), &entry, 1, &len, &error));
    kvffi_quarantine_free(NULL);
    kvffi_quarantine_free(AS(kvffi_quarantine, peer));
    FAILS(KVFFI_ERR_NULL, "agent is NULL", kvffi_agent_get_fd(NULL, 0, &fd, &error));
    FAILS(KVFFI_ERR_NULL, "out_fd is NULL", kvffi_agent_get_fd(decode, 0, NULL, &error));
    FAILS(KVFFI_ERR_NULL, "agent is NULL", kvffi_agent_clear_fd(NULL, &error));
    FAILS(KVFFI_ERR_NULL, "agent is NULL", kvffi_agent_raise_fd(NULL, &error));
    OK(kvffi_agent_clear_fd(decode, &error));
    OK(kvffi_agent_raise_fd(decode, &error));
    CHECK(fd == 77);
}

/* After the end every call says so, and none touches what is gone. */
static void after_the_end(void)
{
    FAILS(KVFFI_ERR_NULL, "agent is NULL", kvffi_agent_shutdown(NULL, 0, &error));
    OK(kvffi_agent_shutdown(decode, UINT64_MAX, &error));
    kvffi_agent_info info = KVFFI_AGENT_INFO_INIT;
    kvffi_agent_stats stats = KVFFI_AGENT_STATS_INIT;
    kvffi_bytes *blob = NULL;
    kvffi_peer *out = NULL;
    kvffi_notifications *arrived = NULL;
    kvffi_quarantine *quarantine = NULL;
    int32_t fd = 0;
    FAILS(KVFFI_ERR_SHUT_DOWN, "shut down", kvffi_agent_get_info(decode, &info, &error));
    FAILS(KVFFI_ERR_SHUT_DOWN, "shut down", kvffi_agent_get_stats(decode, &stats, &error));
    FAILS(KVFFI_ERR_SHUT_DOWN, "shut down", kvffi_agent_export(decode, &blob, &error));
    FAILS(KVFFI_ERR_SHUT_DOWN, "shut down", kvffi_agent_connect(decode, NULL, 0, &out, &error));
    FAILS(KVFFI_ERR_SHUT_DOWN, "shut down", kvffi_agent_reconnect(decode, peer, &error));
    FAILS(KVFFI_ERR_SHUT_DOWN, "shut down", kvffi_agent_disconnect(decode, peer, &error));
    FAILS(KVFFI_ERR_SHUT_DOWN, "shut down", kvffi_agent_notify(decode, peer, NULL, 0, &error));
    FAILS(KVFFI_ERR_SHUT_DOWN, "shut down", kvffi_agent_take_notifications(decode, &arrived, &error));
    FAILS(KVFFI_ERR_SHUT_DOWN, "shut down", kvffi_agent_get_quarantine(decode, &quarantine, &error));
    FAILS(KVFFI_ERR_SHUT_DOWN, "shut down", kvffi_agent_get_fd(decode, 0, &fd, &error));
    FAILS(KVFFI_ERR_SHUT_DOWN, "shut down", START(KVFFI_OP_READ, &BLOCK, 1, NULL));
    FAILS(KVFFI_ERR_SHUT_DOWN, "shut down", kvffi_agent_shutdown(decode, 0, &error));
}

int main(void)
{
    OK(kvffi_loopback_new(&network, &error));
    decode = worker_on(network, "decode", ours);
    prefill = worker_on(network, "prefill", theirs);
    peer = connect_to(decode, prefill);
    networks();
    new_agents();
    no_library();
    memory();
    unmapped_memory();
    blobs();
    peers();
    foreigners();
    messages();
    starts();
    transfers();
    numbers();
    after_the_end();
    kvffi_peer_free(peer);
    kvffi_agent_free(decode);
    kvffi_agent_free(prefill);
    kvffi_loopback_free(network);
    puts("every bad call on agents was answered");
    return 0;
}
