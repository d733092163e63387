/* Two exchanges in one process: pulls, pushes, peers, and what becomes of blocks when something fails. */
#include <poll.h>

#include "workers.h"

enum { MOST_TOLD = 1000 };

struct side {
    unsigned char cache[CACHE_BYTES];
    const char *name;
    kvffi_agent *agent;
    kvffi_exchange *exchange;
    kvffi_peer *peer;
    kvffi_peer_id id;
    struct pollfd news;
    /* What it was told, and how much of that was looked at. */
    kvffi_events *told[MOST_TOLD];
    size_t num_told, batch, index;
};

static struct side prefill, decode;
static kvffi_loopback *network;

static kvffi_exchange *exchange_of(const kvffi_agent *agent)
{
    kvffi_exchange *exchange = NULL;
    kvffi_exchange_options options = KVFFI_EXCHANGE_OPTIONS_INIT;
    options.lease_ttl_ms = 20000;
    options.push_remember_ms = 20000;
    options.max_ended_leases = options.max_ended_registrations = options.max_past_incarnations = 16;
    OK(kvffi_exchange_new(agent, &options, &exchange, &error));
    return exchange;
}

static void begin(struct side *side, const char *name)
{
    side->name = name;
    side->agent = worker_on(network, name, side->cache);
    side->exchange = exchange_of(side->agent);
    kvffi_agent_info info = KVFFI_AGENT_INFO_INIT;
    OK(kvffi_agent_get_info(side->agent, &info, &error));
    side->id.name = name;
    side->id.incarnation = info.incarnation;
    side->news.events = POLLIN;
    OK(kvffi_agent_get_fd(side->agent, 0, &side->news.fd, &error));
}

static kvffi_peer *join(kvffi_exchange *exchange, const kvffi_agent *other)
{
    kvffi_bytes *blob = NULL;
    kvffi_peer *peer = NULL;
    OK(kvffi_agent_export(other, &blob, &error));
    OK(kvffi_exchange_connect(exchange, kvffi_bytes_data(blob), kvffi_bytes_len(blob), &peer, &error));
    kvffi_bytes_free(blob);
    return peer;
}

static void take(struct side *side)
{
    kvffi_events *events = NULL;
    OK(kvffi_exchange_poll(side->exchange, &events, &error));
    if (events != NULL) {
        CHECK(side->num_told < MOST_TOLD);
        side->told[side->num_told++] = events;
    }
}

/* Waits on both descriptors until `side` is told this; what it is told before is dropped. */
static void until(struct side *side, int32_t kind, kvffi_event *event)
{
    event->struct_size = sizeof *event;
    for (;;) {
        for (; side->batch < side->num_told; side->batch++, side->index = 0) {
            while (side->index < kvffi_events_len(side->told[side->batch])) {
                OK(kvffi_events_get(side->told[side->batch], side->index++, event, &error));
                if (event->kind == kind) {
                    return;
                }
            }
        }
        struct pollfd news[] = {prefill.news, decode.news};
        CHECK(poll(news, 2, 60000) > 0);
        take(&prefill);
        take(&decode);
    }
}

static uint64_t hold(const char *request, uint64_t cookie, uint32_t num_parts)
{
    uint64_t lease = 0;
    OK(kvffi_exchange_hold(prefill.exchange, request, cookie, 1, num_parts, &lease, &error));
    return lease;
}

static const kvffi_descriptor BLOCK = {0, 0, BLOCK_STRIDE, BLOCK_STRIDE, BLOCK_BYTES};

static uint64_t pull(const char *request, uint64_t lease, uint64_t cookie, uint64_t deadline_ms)
{
    const kvffi_pull_part part = {"prefill", prefill.id.incarnation, request, lease, NULL, &BLOCK, 1, 0};
    uint64_t id = 0;
    OK(kvffi_exchange_pull(decode.exchange, cookie, &part, 1, deadline_ms, &id, &error));
    return id;
}

static void pulls(void)
{
    memset(prefill.cache, 7, sizeof prefill.cache);
    memset(decode.cache, 1, sizeof decode.cache);
    kvffi_event event;
    const uint64_t lease = hold("r1", 11, 0);
    uint64_t again = 0;
    FAILS(KVFFI_ERR_REQUEST_HELD, "request r1 has the lease",
          kvffi_exchange_hold(prefill.exchange, "r1", 12, 1, 0, &again, &error));
    OK(kvffi_exchange_keep(decode.exchange, &prefill.id, lease, &error));
    const uint64_t id = pull("r1", lease, 21, KVFFI_FOREVER);
    until(&prefill, KVFFI_EVENT_FREED, &event);
    CHECK(event.cookie == 11 && event.lease == lease && event.why == KVFFI_WHY_ALL_READ);
    CHECK(strcmp(event.request, "r1") == 0);
    until(&decode, KVFFI_EVENT_PULLED, &event);
    CHECK(event.pull == id && event.cookie == 21 && event.request == NULL && event.status == KVFFI_OK);
    CHECK(decode.cache[64] == 7 && decode.cache[95] == 7 && decode.cache[63] == 1 && decode.cache[96] == 1);

    /* Its lease has ended: the bytes must not be used, and the blocks come back. */
    pull("r1", lease, 22, 60000);
    until(&decode, KVFFI_EVENT_PULL_FAILED, &event);
    CHECK(event.status == KVFFI_ERR_LEASE_ENDED && strstr(event.message, "must not be used") != NULL);
    until(&decode, KVFFI_EVENT_RETURNED_PULL, &event);
    CHECK(event.cookie == 22);

    /* Cancelled while it cannot settle: nothing comes back before it has. */
    const uint64_t held = hold("r2", 12, 0);
    int32_t flag = -1;
    OK(kvffi_loopback_set_faults(network, KVFFI_LOOPBACK_STALL, &error));
    const uint64_t stalled = pull("r2", held, 23, 60000);
    OK(kvffi_exchange_cancel_pull(decode.exchange, stalled, &flag, &error));
    CHECK(flag == 1);
    OK(kvffi_exchange_cancel_pull(decode.exchange, stalled, &flag, &error));
    CHECK(flag == 0);
    until(&decode, KVFFI_EVENT_PULL_FAILED, &event);
    CHECK(event.pull == stalled && event.status == KVFFI_ERR_CANCELLED);
    OK(kvffi_loopback_set_faults(network, 0, &error));
    until(&decode, KVFFI_EVENT_RETURNED_PULL, &event);
    CHECK(event.cookie == 23);
    until(&prefill, KVFFI_EVENT_GIVEN_UP, &event);
    CHECK(event.lease == held && strcmp(event.request, "r2") == 0 && strcmp(event.peer, "decode") == 0);
    until(&prefill, KVFFI_EVENT_FREED, &event);
    CHECK(event.cookie == 12 && event.why == KVFFI_WHY_GIVEN_UP);
    const uint64_t ended = hold("r2", 12, 0);
    OK(kvffi_exchange_abort(prefill.exchange, ended, &flag, &error));
    CHECK(flag == 1);
    until(&prefill, KVFFI_EVENT_FREED, &event);
    CHECK(event.cookie == 12 && event.why == KVFFI_WHY_ABORTED);
    OK(kvffi_exchange_abort(prefill.exchange, ended, &flag, &error));
    CHECK(flag == 0);

    /* Let go without a pull; and read before all of it is computed. */
    const uint64_t unwanted = hold("r5", 15, 0);
    OK(kvffi_exchange_let_go(decode.exchange, &prefill.id, unwanted, &error));
    until(&prefill, KVFFI_EVENT_FREED, &event);
    CHECK(event.cookie == 15 && event.why == KVFFI_WHY_GIVEN_UP);
    const uint64_t early = hold("r6", 16, 1);
    pull("r6", early, 26, KVFFI_FOREVER);
    until(&decode, KVFFI_EVENT_PULL_FAILED, &event);
    CHECK(event.status == KVFFI_ERR_NOT_READY && strstr(event.message, "ready") != NULL);
    until(&decode, KVFFI_EVENT_RETURNED_PULL, &event);
    OK(kvffi_exchange_abort(prefill.exchange, early, &flag, &error));
    until(&prefill, KVFFI_EVENT_FREED, &event);

    /* Notifications are the exchange's. */
    kvffi_notifications *taken = NULL;
    FAILS(KVFFI_ERR_IN_USE, "has an exchange", kvffi_agent_take_notifications(decode.agent, &taken, &error));

    /* The number of readers is known late; nobody is to read. */
    OK(kvffi_exchange_hold(prefill.exchange, "r3", 13, KVFFI_READERS_UNKNOWN, 0, &again, &error));
    OK(kvffi_exchange_set_readers(prefill.exchange, again, 0, &flag, &error));
    CHECK(flag == 1);
    until(&prefill, KVFFI_EVENT_FREED, &event);
    CHECK(event.cookie == 13 && event.why == KVFFI_WHY_ALL_READ);
    OK(kvffi_exchange_set_readers(prefill.exchange, again, 0, &flag, &error));
    CHECK(flag == 0);

    /* The deadline passes while nothing moves: the descriptor says so by itself. */
    const uint64_t slow = hold("r4", 14, 0);
    OK(kvffi_loopback_set_faults(network, KVFFI_LOOPBACK_LOSE_NOTIFICATIONS, &error));
    pull("r4", slow, 24, 100);
    until(&decode, KVFFI_EVENT_PULL_FAILED, &event);
    CHECK(event.status == KVFFI_ERR_DEADLINE);
    OK(kvffi_loopback_set_faults(network, 0, &error));
    OK(kvffi_exchange_abort(prefill.exchange, slow, &flag, &error));
}

static void pushes(void)
{
    memset(prefill.cache, 9, sizeof prefill.cache);
    memset(decode.cache, 1, sizeof decode.cache);
    kvffi_event event;
    kvffi_pushes *met = NULL;
    const uint32_t here[] = {3, KVFFI_BLOCK_HOLE};
    const kvffi_block_list list = {0, 0, 5, here, 2};
    const kvffi_push_source source = {"prefill", prefill.id.incarnation, &list, 1};
    uint64_t reservation = 0;
    OK(kvffi_exchange_reserve(decode.exchange, "p1", 31, &source, 1, 60000, &reservation, &error));
    const uint64_t lease = hold("p1", 15, 2);
    until(&prefill, KVFFI_EVENT_PUSH, &event);
    CHECK(event.lease == lease && strcmp(event.request, "p1") == 0 && strcmp(event.peer, "decode") == 0);
    CHECK(event.incarnation == decode.id.incarnation && event.reservation == reservation && event.num_lists == 1);
    CHECK(event.lists[0].group == 0 && event.lists[0].first == 5 && event.lists[0].num_blocks == 2);
    CHECK(event.lists[0].blocks[0] == 3 && event.lists[0].blocks[1] == KVFFI_BLOCK_HOLE);
    const kvffi_push_id push = {event.peer, event.incarnation, event.reservation};
    const kvffi_descriptor half[] = {{0, 0, 192, 192, 16}, {0, 0, 208, 208, 16}};

    FAILS(KVFFI_ERR_WRITE_REFUSED, "the part is not ready",
          kvffi_exchange_write(prefill.exchange, &push, 0, half, 1, 0, &error));
    OK(kvffi_exchange_ready(prefill.exchange, lease, 0, &met, &error));
    size_t len = 0;
    kvffi_push_id same;
    OK(kvffi_pushes_get(met, &same, 1, &len, &error));
    CHECK(len == 1 && strcmp(same.peer, "decode") == 0 && same.reservation == reservation);
    OK(kvffi_exchange_write(prefill.exchange, &same, 0, half, 1, 0, &error));
    FAILS(KVFFI_ERR_WRITE_REFUSED, "was written before",
          kvffi_exchange_write(prefill.exchange, &push, 0, half, 1, 0, &error));
    kvffi_pushes_free(met);
    OK(kvffi_exchange_ready(prefill.exchange, lease, 1, &met, &error));
    kvffi_pushes_free(met);
    OK(kvffi_exchange_write(prefill.exchange, &push, 1, half + 1, 1, 0, &error));
    until(&decode, KVFFI_EVENT_ARRIVED, &event);
    CHECK(event.reservation == reservation && event.cookie == 31);
    CHECK(decode.cache[192] == 9 && decode.cache[223] == 9 && decode.cache[191] == 1 && decode.cache[224] == 1);
    OK(kvffi_exchange_ready(prefill.exchange, lease, 1, &met, &error));
    CHECK(met == NULL);

    /* Blocks that are not registered are refused where they are reserved. */
    const uint32_t beyond[] = {3, 999999};
    const kvffi_block_list bad_list = {0, 0, 5, beyond, 2};
    const kvffi_push_source bad = {"prefill", prefill.id.incarnation, &bad_list, 1};
    FAILS(KVFFI_ERR_REQUEST_REFUSED, "block 999999 of group 0 is out of range",
          kvffi_exchange_reserve(decode.exchange, "p3", 33, &bad, 1, 0, &reservation, &error));

    /* One registration is refused, with a reason. */
    int32_t flag = -1;
    OK(kvffi_exchange_reserve(decode.exchange, "p3", 33, &source, 1, 0, &reservation, &error));
    hold("p3", 17, 0);
    until(&prefill, KVFFI_EVENT_PUSH, &event);
    const kvffi_push_id unwanted = {event.peer, event.incarnation, event.reservation};
    OK(kvffi_exchange_refuse(prefill.exchange, &unwanted, "not this one", &flag, &error));
    CHECK(flag == 1);
    until(&decode, KVFFI_EVENT_ARRIVAL_FAILED, &event);
    CHECK(event.reservation == reservation && event.status == KVFFI_ERR_REFUSED);
    CHECK(strstr(event.message, "not this one") != NULL);
    until(&decode, KVFFI_EVENT_RETURNED_RESERVATION, &event);
    CHECK(event.cookie == 33);
    until(&prefill, KVFFI_EVENT_FREED, &event);
    CHECK(event.cookie == 17 && event.why == KVFFI_WHY_GIVEN_UP);

    /* A producer that does not write gives the blocks back. */
    OK(kvffi_exchange_reserve(decode.exchange, "p2", 32, &source, 1, 60000, &reservation, &error));
    OK(kvffi_exchange_cancel_reservation(decode.exchange, reservation, &flag, &error));
    CHECK(flag == 1);
    until(&decode, KVFFI_EVENT_ARRIVAL_FAILED, &event);
    CHECK(event.reservation == reservation && event.status == KVFFI_ERR_CANCELLED);
    until(&decode, KVFFI_EVENT_RETURNED_RESERVATION, &event);
    CHECK(event.reservation == reservation && event.cookie == 32);
    OK(kvffi_exchange_cancel_reservation(decode.exchange, reservation, &flag, &error));
    CHECK(flag == 0);
}

static void peers(void)
{
    kvffi_event event;
    kvffi_wanted wanted = KVFFI_WANTED_INIT;
    kvffi_peer *peer = NULL;
    OK(kvffi_exchange_want(decode.exchange, "prefill", &wanted, &error));
    CHECK(wanted.what == KVFFI_WANTED_READY && wanted.incarnation == prefill.id.incarnation);
    OK(kvffi_exchange_get_peer(decode.exchange, &prefill.id, &peer, &error));
    kvffi_peer_free(peer);
    OK(kvffi_exchange_want(decode.exchange, "other", &wanted, &error));
    CHECK(wanted.what == KVFFI_WANTED_FETCH);
    OK(kvffi_exchange_want(decode.exchange, "other", &wanted, &error));
    CHECK(wanted.what == KVFFI_WANTED_WAIT && wanted.wait_ms > 0 && wanted.wait_ms <= 5000);
    OK(kvffi_exchange_fetch_failed(decode.exchange, "other", &error));
    OK(kvffi_exchange_want(decode.exchange, "other", &wanted, &error));
    /* Or that time is over already. */
    CHECK((wanted.what == KVFFI_WANTED_WAIT && wanted.wait_ms <= 100) || wanted.what == KVFFI_WANTED_FETCH);
    OK(kvffi_exchange_release_peer(decode.exchange, "other", &error));

    /* The engine's own notifications. */
    OK(kvffi_agent_notify(prefill.agent, prefill.peer, (const uint8_t *)"hello", 5, &error));
    until(&decode, KVFFI_EVENT_NOTIFICATION, &event);
    CHECK(strcmp(event.peer, "prefill") == 0 && event.data_len == 5 && memcmp(event.data, "hello", 5) == 0);

    /* Memory that is taken away, and registered anew. */
    size_t waiting = 0;
    OK(kvffi_exchange_withdraw(prefill.exchange, &error));
    OK(kvffi_exchange_count_withdrawing(prefill.exchange, &waiting, &error));
    CHECK(waiting == 1);
    until(&decode, KVFFI_EVENT_PEER_STALE, &event);
    CHECK(strcmp(event.peer, "prefill") == 0);
    until(&prefill, KVFFI_EVENT_WITHDRAWN, &event);
    OK(kvffi_agent_deregister(prefill.agent, &error));
    register_cache(prefill.agent, "m", prefill.cache);
    OK(kvffi_exchange_registered(prefill.exchange, &error));
    until(&decode, KVFFI_EVENT_PEER_STALE, &event);
    const kvffi_pull_part part = {"prefill", prefill.id.incarnation, "r9", 1, NULL, &BLOCK, 1, 0};
    uint64_t id = 0;
    FAILS(KVFFI_ERR_PEER_NOT_READY, "prefill", kvffi_exchange_pull(decode.exchange, 1, &part, 1, 1000, &id, &error));
    kvffi_peer_free(decode.peer);
    decode.peer = join(decode.exchange, prefill.agent);

    /* Another process under the name. */
    kvffi_agent *other = worker_on(network, "prefill", prefill.cache);
    peer = join(decode.exchange, other);
    until(&decode, KVFFI_EVENT_PEER_REPLACED, &event);
    CHECK(event.old_incarnation == prefill.id.incarnation && strcmp(event.peer, "prefill") == 0);
    const kvffi_peer_id replacing = {"prefill", event.incarnation};
    OK(kvffi_exchange_peer_is_gone(decode.exchange, &replacing, &error));
    until(&decode, KVFFI_EVENT_PEER_LOST, &event);
    kvffi_peer_free(peer);
    kvffi_agent_free(other);
}

static void numbers(void)
{
    kvffi_exchange_stats stats = KVFFI_EXCHANGE_STATS_INIT;
    OK(kvffi_exchange_get_stats(prefill.exchange, &stats, &error));
    CHECK(stats.lease_held == 9 && stats.lease_live == 0 && stats.lease_aborted == 3);
    CHECK(stats.lease_given_up == 3 && stats.push_written == 1);
    OK(kvffi_exchange_get_stats(decode.exchange, &stats, &error));
    CHECK(stats.pull_started == 5 && stats.pull_pulled == 1 && stats.pull_cancelled == 1 && stats.pull_lease_ended == 2);
    CHECK(stats.reservation_reserved == 3 && stats.reservation_arrived == 1 && stats.peer_replaced == 1);
    uint64_t timeout = UINT64_MAX;
    OK(kvffi_exchange_get_timeout(decode.exchange, &timeout, &error));
    CHECK(timeout <= 5000);
}

int main(void)
{
    OK(kvffi_loopback_new(&network, &error));
    begin(&prefill, "prefill");
    begin(&decode, "decode");
    uint64_t timeout = UINT64_MAX;
    OK(kvffi_exchange_get_timeout(decode.exchange, &timeout, &error));
    CHECK(timeout == 0);
    decode.peer = join(decode.exchange, prefill.agent);
    prefill.peer = join(prefill.exchange, decode.agent);
    pulls();
    pushes();
    peers();
    numbers();
    struct side *sides[] = {&prefill, &decode};
    for (size_t i = 0; i < 2; i++) {
        FAILS(KVFFI_ERR_IN_USE, "by an exchange", kvffi_agent_shutdown(sides[i]->agent, 0, &error));
        OK(kvffi_exchange_goodbye(sides[i]->exchange, &error));
        kvffi_exchange_free(sides[i]->exchange);
        kvffi_peer_free(sides[i]->peer);
        OK(kvffi_agent_shutdown(sides[i]->agent, 10000, &error));
        kvffi_agent_free(sides[i]->agent);
        for (size_t k = 0; k < sides[i]->num_told; k++) {
            kvffi_events_free(sides[i]->told[k]);
        }
    }
    kvffi_loopback_free(network);
    puts("blocks change hands as they should");
    return 0;
}
