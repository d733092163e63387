/* One agent, many threads: transfers, notifications, statistics, a descriptor to wait on, and an end in between. */
#include <poll.h>
#include <pthread.h>

#include "workers.h"

enum { NUM_THREADS = 4, NUM_ROUNDS = 500 };

static unsigned char ours[CACHE_BYTES], theirs[CACHE_BYTES];
static kvffi_agent *decode, *prefill;
static kvffi_peer *peer, *back;
static int ending;

static int may_have_ended(kvffi_status status)
{
    return status == KVFFI_OK || (ending && status == KVFFI_ERR_SHUT_DOWN);
}

static void *work(void *number)
{
    const size_t block = *(const size_t *)number;
    const kvffi_descriptor descriptor = {0, 0, block * BLOCK_STRIDE, block * BLOCK_STRIDE, BLOCK_BYTES};
    for (int i = 0; i < NUM_ROUNDS; i++) {
        kvffi_transfer *transfer = NULL;
        kvffi_error *error = NULL;
        const kvffi_status status = kvffi_agent_start(decode, peer, KVFFI_OP_READ, &descriptor, 1, NULL, &transfer, &error);
        kvffi_error_free(error);
        CHECK(may_have_ended(status));
        CHECK((transfer != NULL) == (status == KVFFI_OK));
        if (transfer != NULL) {
            const kvffi_status ended = kvffi_transfer_wait(transfer, KVFFI_FOREVER, NULL);
            CHECK(ended == KVFFI_OK || (ending && ended == KVFFI_ERR_TRANSFER_FAILED));
            kvffi_transfer_free(transfer);
        }
        kvffi_agent_stats stats = KVFFI_AGENT_STATS_INIT;
        CHECK(may_have_ended(kvffi_agent_get_stats(decode, &stats, NULL)));
        CHECK(may_have_ended(kvffi_agent_notify(decode, peer, (const uint8_t *)"m", 1, NULL)));
        kvffi_bytes *blob = NULL;
        CHECK(may_have_ended(kvffi_agent_export(decode, &blob, NULL)));
        kvffi_bytes_free(blob);
    }
    return NULL;
}

/* Waits for news and takes them, each once. */
static void *receive(void *out_taken)
{
    struct pollfd news = {-1, POLLIN, 0};
    OK(kvffi_agent_get_fd(prefill, 0, &news.fd, &error));
    size_t *taken = out_taken;
    while (*taken < NUM_THREADS * NUM_ROUNDS) {
        CHECK(poll(&news, 1, 60000) == 1);
        OK(kvffi_agent_clear_fd(prefill, &error));
        kvffi_notifications *arrived = NULL;
        OK(kvffi_agent_take_notifications(prefill, &arrived, &error));
        *taken += kvffi_notifications_len(arrived);
        kvffi_notifications_free(arrived);
    }
    return NULL;
}

static void run(int end_early)
{
    kvffi_loopback *network = NULL;
    OK(kvffi_loopback_new(&network, &error));
    decode = worker_on(network, "decode", ours);
    prefill = worker_on(network, "prefill", theirs);
    peer = connect_to(decode, prefill);
    back = connect_to(prefill, decode);
    ending = end_early;
    pthread_t threads[NUM_THREADS + 1];
    size_t numbers[NUM_THREADS] = {0, 1, 2, 3}, taken = 0;
    for (size_t i = 0; i < NUM_THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, work, &numbers[i]) == 0);
    }
    if (end_early) {
        /* Refused while another call is inside the agent, never half done. */
        kvffi_status status;
        do {
            status = kvffi_agent_shutdown(decode, 60000, NULL);
            CHECK(status == KVFFI_OK || status == KVFFI_ERR_IN_USE);
        } while (status != KVFFI_OK);
    } else {
        CHECK(pthread_create(&threads[NUM_THREADS], NULL, receive, &taken) == 0);
        CHECK(pthread_join(threads[NUM_THREADS], NULL) == 0);
        CHECK(taken == NUM_THREADS * NUM_ROUNDS);
    }
    for (size_t i = 0; i < NUM_THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    kvffi_peer_free(peer);
    kvffi_peer_free(back);
    kvffi_agent_free(decode);
    kvffi_agent_free(prefill);
    kvffi_loopback_free(network);
}

static kvffi_exchange *exchange;

/* Holds and aborts; a call that comes while another is under way is told so and changes nothing. */
static void *hold(void *out_held)
{
    size_t *held = out_held;
    for (int i = 0; i < NUM_ROUNDS; i++) {
        char request[64];
        uint64_t lease = 0;
        kvffi_events *events = NULL;
        snprintf(request, sizeof request, "%p-%d", out_held, i);
        kvffi_error *error = NULL;
        const kvffi_status status = kvffi_exchange_hold(exchange, request, 1, 1, 0, &lease, &error);
        CHECK(status == KVFFI_OK || (status == KVFFI_ERR_BUSY && strstr(kvffi_error_message(error), "another thread")));
        kvffi_error_free(error);
        *held += status == KVFFI_OK;
        const kvffi_status polled = kvffi_exchange_poll(exchange, &events, NULL);
        CHECK(polled == KVFFI_OK || (polled == KVFFI_ERR_BUSY && events == NULL));
        kvffi_events_free(events);
    }
    return NULL;
}

static void share_an_exchange(void)
{
    kvffi_loopback *network = NULL;
    OK(kvffi_loopback_new(&network, &error));
    decode = worker_on(network, "decode", ours);
    OK(kvffi_exchange_new(decode, NULL, &exchange, &error));
    pthread_t threads[NUM_THREADS];
    size_t held[NUM_THREADS] = {0}, sum = 0;
    for (size_t i = 0; i < NUM_THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, hold, &held[i]) == 0);
    }
    for (size_t i = 0; i < NUM_THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
        sum += held[i];
    }
    kvffi_exchange_stats stats = KVFFI_EXCHANGE_STATS_INIT;
    OK(kvffi_exchange_get_stats(exchange, &stats, &error));
    CHECK(stats.lease_held == sum && stats.lease_live == sum && sum > 0);
    kvffi_exchange_free(exchange);
    kvffi_agent_free(decode);
    kvffi_loopback_free(network);
}

int main(void)
{
    run(0);
    run(1);
    share_an_exchange();
    puts("threads share agents");
    return 0;
}
