/*
 * An engine of the day of this header that moves bytes: two workers of this process over a loopback, a transfer with a
 * notification each way, a transfer that stalls and is cancelled, a request that is held and pulled under a lease, and one
 * that is written into reserved blocks.
 */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvffi.h"

#define CALL(call) done((call), #call)

enum { NUM_BLOCKS = 4, BLOCK_BYTES = 16 * 1152 };

static kvffi_error *error;

static void done(kvffi_status status, const char *what)
{
    if (status < 0) {
        fprintf(stderr, "%s: %s: %s\n", what, kvffi_status_name(status), kvffi_error_message(error));
        exit(1);
    }
}

struct worker {
    unsigned char *cache;
    kvffi_spec *spec;
    kvffi_agent *agent;
    kvffi_exchange *exchange;
    struct pollfd news;
    kvffi_peer_id id;
};

static void begin(struct worker *worker, const char *name, const kvffi_loopback *network, int fill)
{
    worker->cache = malloc(NUM_BLOCKS * BLOCK_BYTES);
    memset(worker->cache, fill, NUM_BLOCKS * BLOCK_BYTES);
    kvffi_worker who = KVFFI_WORKER_INIT;
    who.model = "org/model";
    kvffi_rows rows = KVFFI_ROWS_INIT;
    rows.preset = KVFFI_ROWS_BF16;
    kvffi_page *page = NULL;
    CALL(kvffi_page_new_mla(&rows, &page, &error));
    kvffi_group group = KVFFI_GROUP_INIT;
    group.block_tokens = 16;
    group.num_blocks = NUM_BLOCKS;
    kvffi_page_layer layer = KVFFI_PAGE_LAYER_INIT;
    layer.name = "layers.0";
    layer.page = page;
    const uint64_t shape[] = {NUM_BLOCKS, 16, 576};
    const int64_t strides[] = {BLOCK_BYTES, 1152, 2};
    kvffi_tensor tensor = KVFFI_TENSOR_INIT;
    tensor.ptr = (uintptr_t)worker->cache;
    tensor.shape = shape;
    tensor.strides = strides;
    tensor.num_axes = 3;
    tensor.axes = "BNC";
    tensor.element_size = 2;
    kvffi_tensors *tensors = NULL;
    CALL(kvffi_tensors_new(&who, &tensors, &error));
    CALL(kvffi_tensors_add_group(tensors, &group, NULL, &error));
    CALL(kvffi_tensors_add_layer(tensors, &layer, NULL, &error));
    CALL(kvffi_tensors_add_tensor(tensors, 0, &tensor, &error));
    CALL(kvffi_tensors_build(tensors, &worker->spec, &error));
    kvffi_tensors_free(tensors);
    kvffi_page_free(page);

    kvffi_limits limits = KVFFI_LIMITS_INIT;
    limits.descriptor_bytes = 4096;
    kvffi_agent_options options = KVFFI_AGENT_OPTIONS_INIT;
    options.loopback = network;
    options.limits = &limits;
    kvffi_local_plan *plan = NULL;
    CALL(kvffi_local_plan_new(worker->spec, 0, &plan, &error));
    CALL(kvffi_agent_new(name, &options, &worker->agent, &error));
    CALL(kvffi_agent_register(worker->agent, plan, &error));
    kvffi_local_plan_free(plan);
    kvffi_agent_info info = KVFFI_AGENT_INFO_INIT;
    CALL(kvffi_agent_get_info(worker->agent, &info, &error));
    worker->id.name = name;
    worker->id.incarnation = info.incarnation;
    worker->news.events = POLLIN;
    CALL(kvffi_agent_get_fd(worker->agent, 0, &worker->news.fd, &error));
}

static void transfers(struct worker *decode, struct worker *prefill, kvffi_loopback *network)
{
    kvffi_bytes *blob = NULL;
    kvffi_peer *peer = NULL;
    kvffi_spec *layout = NULL;
    kvffi_pair *pair = NULL;
    kvffi_answer *answer = NULL;
    CALL(kvffi_agent_export(prefill->agent, &blob, &error));
    CALL(kvffi_agent_connect(decode->agent, kvffi_bytes_data(blob), kvffi_bytes_len(blob), &peer, &error));
    kvffi_bytes_free(blob);
    kvffi_peer_info info = KVFFI_PEER_INFO_INIT;
    CALL(kvffi_peer_get_info(peer, &info, &error));
    CALL(kvffi_peer_get_layout(peer, &layout, &error));
    CALL(kvffi_pair_new(decode->spec, layout, NULL, &pair, &error));
    CALL(kvffi_answer_new(&answer, &error));
    static const uint32_t TO[] = {1, 2}, FROM[] = {0, 3};
    const kvffi_block_list local = {0, 0, 0, TO, 2}, remote = {0, 0, 0, FROM, 2};
    kvffi_request request = KVFFI_REQUEST_INIT;
    request.local = &local;
    request.remote = &remote;
    request.num_local = request.num_remote = 1;
    CALL(kvffi_pair_answer(pair, &request, answer, &error));

    kvffi_transfer_options options = KVFFI_TRANSFER_OPTIONS_INIT;
    options.notify = (const uint8_t *)"done";
    options.notify_len = 4;
    options.deadline_ms = 60000;
    kvffi_transfer *transfer = NULL;
    CALL(kvffi_agent_start_answer(decode->agent, peer, answer, &options, &transfer, &error));
    CALL(kvffi_transfer_wait(transfer, KVFFI_FOREVER, &error));
    kvffi_transfer_stats stats = KVFFI_TRANSFER_STATS_INIT;
    CALL(kvffi_transfer_get_stats(transfer, &stats, &error));
    printf("from %s: %" PRIu64 " bytes, %" PRIu64 " descriptors, settled %" PRId32 ", bytes %d %d %d\n", info.name,
           stats.bytes, stats.descriptors, stats.is_settled, decode->cache[BLOCK_BYTES],
           decode->cache[3 * BLOCK_BYTES - 1], decode->cache[3 * BLOCK_BYTES]);
    kvffi_transfer_free(transfer);

    kvffi_notifications *arrived = NULL;
    while (arrived == NULL && poll(&prefill->news, 1, 60000) == 1) {
        CALL(kvffi_agent_clear_fd(prefill->agent, &error));
        CALL(kvffi_agent_take_notifications(prefill->agent, &arrived, &error));
    }
    kvffi_notification notification;
    size_t len = 0;
    CALL(kvffi_notifications_get(arrived, &notification, 1, &len, &error));
    printf("%zu from %s: %.*s\n", len, notification.sender, (int)notification.message_len,
           (const char *)notification.message);
    kvffi_notifications_free(arrived);

    CALL(kvffi_loopback_set_faults(network, KVFFI_LOOPBACK_STALL, &error));
    const kvffi_descriptor block = {0, 0, 0, 0, BLOCK_BYTES};
    CALL(kvffi_agent_start(decode->agent, peer, KVFFI_OP_WRITE, &block, 1, NULL, &transfer, &error));
    for (stats.requests = 0; stats.requests == 0;) {
        CALL(kvffi_transfer_get_stats(transfer, &stats, &error));
    }
    const int in_progress = kvffi_transfer_poll(transfer, NULL) == KVFFI_IN_PROGRESS;
    CALL(kvffi_transfer_cancel(transfer, &error));
    const kvffi_status unsettled = kvffi_transfer_wait(transfer, 60000, NULL);
    kvffi_quarantine *quarantine = NULL;
    kvffi_quarantined entry;
    while (quarantine == NULL) {
        CALL(kvffi_agent_get_quarantine(decode->agent, &quarantine, &error));
    }
    CALL(kvffi_quarantine_get_entries(quarantine, &entry, 1, &len, &error));
    printf("in progress %d, then %s; %zu in quarantine: %s\n", in_progress, kvffi_status_name(unsettled), len,
           kvffi_status_name(entry.cause));
    kvffi_quarantine_free(quarantine);
    CALL(kvffi_loopback_set_faults(network, 0, &error));
    printf("at last %s\n", kvffi_status_name(kvffi_transfer_wait_settled(transfer, 60000, NULL)));
    kvffi_transfer_free(transfer);
    kvffi_agent_stats counts = KVFFI_AGENT_STATS_INIT;
    CALL(kvffi_agent_get_stats(decode->agent, &counts, &error));
    printf("%" PRIu64 " started, %" PRIu64 " done, %" PRIu64 " cancelled, %" PRIu64 " unsettled\n", counts.transfers_started,
           counts.transfers_done, counts.failed_cancelled, counts.unsettled);
    kvffi_answer_free(answer);
    kvffi_pair_free(pair);
    kvffi_spec_free(layout);
    CALL(kvffi_agent_disconnect(decode->agent, peer, &error));
    kvffi_peer_free(peer);
}

/* Polls both until `side` is told this, and prints it. What is asked to be written is, by `writer`. */
static void until(struct worker *side, struct worker *other, int32_t kind, kvffi_exchange *writer)
{
    for (int found = 0; !found;) {
        struct pollfd news[] = {side->news, other->news};
        if (poll(news, 2, 60000) <= 0) {
            fprintf(stderr, "nothing happens\n");
            exit(1);
        }
        kvffi_events *events = NULL, *others = NULL;
        CALL(kvffi_exchange_poll(side->exchange, &events, &error));
        for (size_t i = 0; i < kvffi_events_len(events); i++) {
            kvffi_event event = KVFFI_EVENT_INIT;
            CALL(kvffi_events_get(events, i, &event, &error));
            if (event.kind == kind) {
                found = 1;
                printf("event %" PRId32 ", cookie %" PRIu64 ", why %" PRId32 "\n", event.kind, event.cookie, event.why);
                if (writer != NULL) {
                    const kvffi_push_id push = {event.peer, event.incarnation, event.reservation};
                    const kvffi_descriptor block = {0, 0, 2 * BLOCK_BYTES, event.lists[0].blocks[0] * BLOCK_BYTES, BLOCK_BYTES};
                    CALL(kvffi_exchange_write(writer, &push, 0, &block, 1, 0, &error));
                }
            }
        }
        kvffi_events_free(events);
        CALL(kvffi_exchange_poll(other->exchange, &others, &error));
        kvffi_events_free(others);
    }
}

static kvffi_peer *join(struct worker *worker, const struct worker *other)
{
    kvffi_bytes *blob = NULL;
    kvffi_peer *peer = NULL;
    CALL(kvffi_agent_export(other->agent, &blob, &error));
    CALL(kvffi_exchange_connect(worker->exchange, kvffi_bytes_data(blob), kvffi_bytes_len(blob), &peer, &error));
    kvffi_bytes_free(blob);
    return peer;
}

static void leases(struct worker *decode, struct worker *prefill)
{
    kvffi_exchange_options options = KVFFI_EXCHANGE_OPTIONS_INIT;
    options.lease_ttl_ms = 60000;
    CALL(kvffi_exchange_new(decode->agent, &options, &decode->exchange, &error));
    CALL(kvffi_exchange_new(prefill->agent, &options, &prefill->exchange, &error));
    kvffi_peer *peers[] = {join(decode, prefill), join(prefill, decode)};
    uint64_t lease = 0, number = 0;
    CALL(kvffi_exchange_hold(prefill->exchange, "request-1", 11, 1, 0, &lease, &error));
    const kvffi_descriptor block = {0, 0, 3 * BLOCK_BYTES, 3 * BLOCK_BYTES, BLOCK_BYTES};
    const kvffi_pull_part part = {prefill->id.name, prefill->id.incarnation, "request-1", lease, NULL, &block, 1, 0};
    CALL(kvffi_exchange_pull(decode->exchange, 21, &part, 1, KVFFI_FOREVER, &number, &error));
    until(decode, prefill, KVFFI_EVENT_PULLED, NULL);
    printf("pulled bytes %d %d\n", decode->cache[3 * BLOCK_BYTES], decode->cache[4 * BLOCK_BYTES - 1]);

    static const uint32_t HERE[] = {0};
    const kvffi_block_list list = {0, 0, 0, HERE, 1};
    const kvffi_push_source source = {prefill->id.name, prefill->id.incarnation, &list, 1};
    CALL(kvffi_exchange_reserve(decode->exchange, "request-2", 22, &source, 1, KVFFI_FOREVER, &number, &error));
    CALL(kvffi_exchange_hold(prefill->exchange, "request-2", 12, 1, 0, &lease, &error));
    until(prefill, decode, KVFFI_EVENT_PUSH, prefill->exchange);
    until(decode, prefill, KVFFI_EVENT_ARRIVED, NULL);
    printf("written bytes %d %d\n", decode->cache[0], decode->cache[BLOCK_BYTES - 1]);
    kvffi_exchange_stats stats = KVFFI_EXCHANGE_STATS_INIT;
    CALL(kvffi_exchange_get_stats(decode->exchange, &stats, &error));
    printf("%" PRIu64 " pulled, %" PRIu64 " arrived\n", stats.pull_pulled, stats.reservation_arrived);
    for (int i = 0; i < 2; i++) {
        kvffi_peer_free(peers[i]);
    }
    kvffi_exchange_free(decode->exchange);
    kvffi_exchange_free(prefill->exchange);
}

int main(void)
{
    CALL(kvffi_abi_check(KVFFI_VERSION, &error));
    kvffi_loopback *network = NULL;
    CALL(kvffi_loopback_new(&network, &error));
    struct worker decode = {0}, prefill = {0};
    begin(&decode, "decode-0", network, 1);
    begin(&prefill, "prefill-0", network, 7);
    transfers(&decode, &prefill, network);
    leases(&decode, &prefill);
    struct worker *workers[] = {&decode, &prefill};
    for (int i = 0; i < 2; i++) {
        CALL(kvffi_agent_shutdown(workers[i]->agent, 60000, &error));
        kvffi_agent_free(workers[i]->agent);
        kvffi_spec_free(workers[i]->spec);
        free(workers[i]->cache);
    }
    kvffi_loopback_free(network);
    return 0;
}
