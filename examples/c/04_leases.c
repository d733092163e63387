/*
 * Reads blocks under a lease: the prefill worker holds a request's blocks, the decode worker pulls them and uses them only
 * once the lease is confirmed, and then the prefill worker has its blocks back. A second request is held and nobody comes:
 * its lease expires, and who comes late is told not to use what it read. Both workers are in this process, so that one page
 * shows both sides. They talk over NIXL; with an argument, over a loopback. Build and run as examples/c/01_plan.c says.
 */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvffi.h"
enum { BLOCK_BYTES = 1024, NUM_BLOCKS = 4 };
static kvffi_error *error;

/* Says what went wrong, and ends the program. */
static void check(const char *what, kvffi_status status)
{
    if (status < 0) {
        fprintf(stderr, "%s: %s: %s\n", what, kvffi_status_name(status), kvffi_error_message(error));
        exit(1);
    }
}

struct worker {
    unsigned char cache[NUM_BLOCKS * BLOCK_BYTES];
    const char *name;
    kvffi_agent *agent;
    kvffi_exchange *exchange;
    struct pollfd news;
};

static void begin(struct worker *worker, const kvffi_loopback *loopback)
{
    char json[1024];
    snprintf(json, sizeof json,
             "{\"version\": 1, \"fingerprint\": {\"model\": \"org/model\"}, \"storages\": [{\"base\": %" PRIuPTR ","
             " \"len\": 4096, \"mem\": \"dram\"}], \"groups\": [{\"pool\": 0, \"block_tokens\": 16, \"num_blocks\": 4}],"
             " \"layers\": [{\"name\": \"layers.0\", \"group\": 0, \"kind\": \"mla\", \"parts\": [{\"name\": \"latent\","
             " \"storage\": 0, \"offset\": 0, \"block_stride\": 1024, \"sharding\": \"replicated\", \"units\":"
             " {\"count\": 1, \"stride\": 1024}, \"tokens\": [{\"count\": 16, \"stride\": 64}], \"content\": 64}]}]}",
             (uintptr_t)worker->cache);
    kvffi_spec *spec = NULL;
    kvffi_local_plan *plan = NULL;
    kvffi_agent_options agent = KVFFI_AGENT_OPTIONS_INIT;
    agent.loopback = loopback;
    kvffi_exchange_options options = KVFFI_EXCHANGE_OPTIONS_INIT;
    options.lease_ttl_ms = 3000;
    check("spec", kvffi_spec_from_json(json, strlen(json), &spec, &error));
    check("plan", kvffi_local_plan_new(spec, 0, &plan, &error));
    check("agent", kvffi_agent_new(worker->name, &agent, &worker->agent, &error));
    check("register", kvffi_agent_register(worker->agent, plan, &error));
    check("exchange", kvffi_exchange_new(worker->agent, &options, &worker->exchange, &error));
    check("fd", kvffi_agent_get_fd(worker->agent, 0, &worker->news.fd, &error));
    kvffi_local_plan_free(plan);
    kvffi_spec_free(spec);
}

static kvffi_peer *connect_to(struct worker *worker, const struct worker *other)
{
    kvffi_bytes *blob = NULL;
    kvffi_peer *peer = NULL;
    check("export", kvffi_agent_export(other->agent, &blob, &error));
    check("connect", kvffi_exchange_connect(worker->exchange, kvffi_bytes_data(blob), kvffi_bytes_len(blob), &peer, &error));
    kvffi_bytes_free(blob);
    return peer;
}

/* What becomes of blocks; NULL for other events. */
static const char *fate(const kvffi_event *event)
{
    if (event->kind == KVFFI_EVENT_FREED) {
        return event->why == KVFFI_WHY_ALL_READ ? "are free, all have read them" : "are free, nobody came in time";
    }
    return event->kind == KVFFI_EVENT_PULLED          ? "may be used"
           : event->kind == KVFFI_EVENT_RETURNED_PULL ? "come back, not to be used"
                                                      : NULL;
}

/* Takes what has happened at a worker. Returns how often blocks changed hands. */
static int take(const struct worker *worker)
{
    kvffi_events *events = NULL;
    kvffi_event event = KVFFI_EVENT_INIT;
    int num_changes = 0;
    check("poll", kvffi_exchange_poll(worker->exchange, &events, &error));
    for (size_t i = 0; i < kvffi_events_len(events); i++) {
        check("event", kvffi_events_get(events, i, &event, &error));
        if (fate(&event) != NULL) {
            printf("%s: blocks %" PRIu64 " %s\n", worker->name, event.cookie, fate(&event));
            num_changes++;
        } else if (event.status < 0) {
            printf("%s: %s\n", worker->name, kvffi_status_name(event.status));
        }
    }
    kvffi_events_free(events);
    return num_changes;
}

/* Waits until blocks have changed hands so often. */
static void follow(const struct worker *prefill, const struct worker *decode, int num_changes)
{
    while (num_changes > 0) {
        struct pollfd news[] = {prefill->news, decode->news};
        check("wait", poll(news, 2, 10000) > 0 ? KVFFI_OK : KVFFI_ERR_DEADLINE);
        num_changes -= take(prefill) + take(decode);
    }
}

static void pull(struct worker *decode, kvffi_peer *peer, const char *request, uint64_t lease, uint64_t block)
{
    kvffi_peer_info info = KVFFI_PEER_INFO_INIT;
    check("info", kvffi_peer_get_info(peer, &info, &error));
    const kvffi_descriptor descriptor = {0, 0, block * BLOCK_BYTES, block * BLOCK_BYTES, BLOCK_BYTES};
    const kvffi_pull_part part = {info.name, info.incarnation, request, lease, NULL, &descriptor, 1, 0};
    uint64_t id = 0;
    check("pull", kvffi_exchange_pull(decode->exchange, block, &part, 1, 5000, &id, &error));
}

int main(int argc, char *argv[])
{
    static struct worker prefill = {.name = "prefill", .news.events = POLLIN}, decode = {.name = "decode", .news.events = POLLIN};
    kvffi_loopback *loopback = NULL;
    if (argc > 1 && strcmp(argv[1], "loopback") == 0) {
        check("loopback", kvffi_loopback_new(&loopback, &error));
    }
    begin(&prefill, loopback);
    begin(&decode, loopback);
    kvffi_peer *peers[] = {connect_to(&decode, &prefill), connect_to(&prefill, &decode)};
    memset(prefill.cache, 7, sizeof prefill.cache);
    uint64_t lease = 0;
    check("hold", kvffi_exchange_hold(prefill.exchange, "request-1", 1, 1, 0, &lease, &error));
    pull(&decode, peers[0], "request-1", lease, 1);
    follow(&prefill, &decode, 2);
    printf("%s\n", decode.cache[BLOCK_BYTES] == 7 && decode.cache[2 * BLOCK_BYTES] == 0 ? "right bytes" : "wrong bytes");
    check("hold", kvffi_exchange_hold(prefill.exchange, "request-2", 2, 1, 0, &lease, &error));
    follow(&prefill, &decode, 1);
    pull(&decode, peers[0], "request-2", lease, 2);
    follow(&prefill, &decode, 1);
    struct worker *workers[] = {&decode, &prefill};
    for (int i = 0; i < 2; i++) {
        kvffi_peer_free(peers[i]);
        kvffi_exchange_free(workers[i]->exchange);
        kvffi_agent_free(workers[i]->agent);
    }
    kvffi_loopback_free(loopback);
    return 0;
}
