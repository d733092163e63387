/* Transfers between two workers of one process: done, failed and settled, failed and not settled. */
#include "workers.h"

static unsigned char ours[CACHE_BYTES], theirs[CACHE_BYTES];
static kvffi_loopback *network;
static kvffi_agent *decode, *prefill;
static kvffi_peer *peer;

/* Block 2 here from block 1 there. */
static const kvffi_descriptor BLOCK = {0, 0, 2 * BLOCK_STRIDE, BLOCK_STRIDE, BLOCK_BYTES};

static kvffi_transfer *start(const kvffi_transfer_options *options)
{
    kvffi_transfer *transfer = NULL;
    OK(kvffi_agent_start(decode, peer, KVFFI_OP_READ, &BLOCK, 1, options, &transfer, &error));
    return transfer;
}

/* What takes the place of the memory that an agent has registered. */
static kvffi_status reregister(kvffi_agent *agent, const unsigned char *cache, int num_blocks, kvffi_error **error_out)
{
    kvffi_spec *spec = spec_of_blocks("m", cache, num_blocks);
    kvffi_local_plan *plan = NULL;
    OK(kvffi_local_plan_new(spec, 0, &plan, &error));
    const kvffi_status status = kvffi_agent_reregister(agent, plan, error_out);
    kvffi_local_plan_free(plan);
    kvffi_spec_free(spec);
    return status;
}

/* What was posted owns its blocks; what was not is settled when it is cancelled. */
static void wait_until_posted(const kvffi_transfer *transfer)
{
    kvffi_transfer_stats stats = KVFFI_TRANSFER_STATS_INIT;
    for (int i = 0; i < 60000 && stats.requests == 0; i++) {
        CHECK(kvffi_transfer_wait(transfer, 1, NULL) == KVFFI_IN_PROGRESS);
        OK(kvffi_transfer_get_stats(transfer, &stats, &error));
    }
    CHECK(stats.requests == 1);
}

static uint64_t unsettled(void)
{
    kvffi_agent_info info = KVFFI_AGENT_INFO_INIT;
    OK(kvffi_agent_get_info(decode, &info, &error));
    return info.unsettled;
}

static void wait_until_settled(void)
{
    kvffi_transfer *transfer = start(NULL);
    OK(kvffi_transfer_wait(transfer, KVFFI_FOREVER, &error));
    kvffi_transfer_free(transfer);
    for (int i = 0; i < 10000000 && unsettled() > 0; i++) {
    }
    CHECK(unsettled() == 0);
}

static void done(void)
{
    memset(theirs, 7, sizeof theirs);
    memset(ours, 1, sizeof ours);
    kvffi_transfer_options options = KVFFI_TRANSFER_OPTIONS_INIT;
    options.notify = (const uint8_t *)"done";
    options.notify_len = 4;
    options.request = "request-1";
    options.deadline_ms = 60000;
    kvffi_limits limits = KVFFI_LIMITS_INIT;
    limits.descriptor_bytes = 5;
    limits.request_descriptors = 2;
    options.limits = &limits;
    kvffi_transfer *transfer = start(&options);
    OK(kvffi_transfer_wait(transfer, 60000, &error));
    OK(kvffi_transfer_poll(transfer, &error));
    OK(kvffi_transfer_wait_settled(transfer, 0, &error));
    for (size_t i = 0; i < sizeof ours; i++) {
        CHECK(ours[i] == (i >= 128 && i < 160 ? 7 : 1));
    }
    kvffi_transfer_stats stats = KVFFI_TRANSFER_STATS_INIT;
    OK(kvffi_transfer_get_stats(transfer, &stats, &error));
    CHECK(stats.struct_size == sizeof stats && stats.bytes == BLOCK_BYTES && stats.descriptors == 1);
    CHECK(stats.requests == 4 && stats.cause == KVFFI_OK && stats.is_settled == 1);
    OK(kvffi_transfer_cancel(transfer, &error));
    OK(kvffi_transfer_poll(transfer, &error));
    kvffi_transfer_free(transfer);

    kvffi_notifications *arrived = NULL;
    OK(kvffi_agent_take_notifications(prefill, &arrived, &error));
    CHECK(kvffi_notifications_len(arrived) == 1);
    kvffi_notification notification;
    size_t len = 0;
    FAILS(KVFFI_ERR_BUFFER_TOO_SMALL, "room for 0, 1 are needed",
          kvffi_notifications_get(arrived, NULL, 0, &len, &error));
    CHECK(len == 1);
    OK(kvffi_notifications_get(arrived, &notification, 1, &len, &error));
    CHECK(strcmp(notification.sender, "decode") == 0 && notification.has_incarnation == 1);
    CHECK(notification.message_len == 4 && memcmp(notification.message, "done", 4) == 0);
    kvffi_notifications_free(arrived);
    OK(kvffi_agent_take_notifications(prefill, &arrived, &error));
    CHECK(arrived == NULL && kvffi_notifications_len(NULL) == 0);
    kvffi_notifications_free(NULL);
}

static void from_an_answer(void)
{
    memset(ours, 1, sizeof ours);
    kvffi_spec *local = spec_at("m", ours), *remote = NULL;
    OK(kvffi_peer_get_layout(peer, &remote, &error));
    kvffi_pair *pair = NULL;
    kvffi_answer *answer = NULL;
    OK(kvffi_pair_new(local, remote, NULL, &pair, &error));
    OK(kvffi_answer_new(&answer, &error));
    kvffi_transfer *transfer = NULL;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "answer is empty",
          kvffi_agent_start_answer(decode, peer, answer, NULL, &transfer, &error));
    const uint32_t here[] = {0, 3}, there[] = {1, 2};
    const kvffi_block_list local_list = {0, 0, 0, here, 2}, remote_list = {0, 0, 0, there, 2};
    kvffi_request request = KVFFI_REQUEST_INIT;
    request.local = &local_list;
    request.num_local = 1;
    request.remote = &remote_list;
    request.num_remote = 1;
    OK(kvffi_pair_answer(pair, &request, answer, &error));
    OK(kvffi_agent_start_answer(decode, peer, answer, NULL, &transfer, &error));
    OK(kvffi_transfer_wait(transfer, 60000, &error));
    kvffi_transfer_free(transfer);
    for (size_t i = 0; i < sizeof ours; i++) {
        CHECK(ours[i] == (i < 32 || (i >= 192 && i < 224) ? 7 : 1));
    }

    /* Both calls in one. */
    memset(ours, 1, sizeof ours);
    OK(kvffi_agent_start_request(decode, peer, pair, &request, answer, NULL, &transfer, &error));
    OK(kvffi_transfer_wait(transfer, 60000, &error));
    kvffi_transfer_free(transfer);
    kvffi_answer_totals totals;
    OK(kvffi_answer_get_totals(answer, &totals, &error));
    CHECK(totals.num_descriptors == 2 && totals.bytes == 64);
    kvffi_answer_free(answer);
    kvffi_pair_free(pair);
    kvffi_spec_free(local);
    kvffi_spec_free(remote);
    for (size_t i = 0; i < sizeof ours; i++) {
        CHECK(ours[i] == (i < 32 || (i >= 192 && i < 224) ? 7 : 1));
    }
}

static void nothing_to_move(void)
{
    kvffi_transfer *transfer = NULL;
    kvffi_transfer_options options = KVFFI_TRANSFER_OPTIONS_INIT;
    options.notify = (const uint8_t *)"";
    OK(kvffi_agent_start(decode, peer, KVFFI_OP_WRITE, NULL, 0, &options, &transfer, &error));
    OK(kvffi_transfer_wait(transfer, 60000, &error));
    kvffi_transfer_free(transfer);
    kvffi_notifications *arrived = NULL;
    kvffi_notification notification;
    size_t len = 0;
    OK(kvffi_agent_take_notifications(prefill, &arrived, &error));
    OK(kvffi_notifications_get(arrived, &notification, 1, &len, &error));
    CHECK(len == 1 && notification.message == NULL && notification.message_len == 0);
    kvffi_notifications_free(arrived);
}

static void in_progress_and_cancelled(void)
{
    OK(kvffi_loopback_set_faults(network, KVFFI_LOOPBACK_STALL, &error));
    kvffi_transfer *transfer = start(NULL);
    kvffi_error *error = (kvffi_error *)(void *)network;
    CHECK(kvffi_transfer_poll(transfer, &error) == KVFFI_IN_PROGRESS && error == NULL);
    CHECK(kvffi_transfer_wait(transfer, 20, &error) == KVFFI_IN_PROGRESS && error == NULL);
    wait_until_posted(transfer);
    CHECK(unsettled() == 1);
    FAILS(KVFFI_ERR_IN_USE, "1 transfers", kvffi_agent_deregister(decode, &error));
    FAILS(KVFFI_ERR_IN_USE, "1 transfers", kvffi_agent_disconnect(decode, peer, &error));

    /* Nor may it change for memory elsewhere; the same memory is no change. */
    static unsigned char elsewhere[CACHE_BYTES];
    kvffi_agent_info before = KVFFI_AGENT_INFO_INIT, after = KVFFI_AGENT_INFO_INIT;
    OK(kvffi_agent_get_info(decode, &before, &error));
    FAILS(KVFFI_ERR_IN_USE, "of storage 0 (dram) of agent decode is used by 1 transfers", reregister(decode, elsewhere, 4, &error));
    OK(reregister(decode, ours, 4, &error));
    OK(kvffi_agent_get_info(decode, &after, &error));
    CHECK(after.generation == before.generation + 1 && after.incarnation == before.incarnation);

    /* What was posted still owns its blocks. */
    OK(kvffi_transfer_cancel(transfer, &error));
    FAILS(KVFFI_ERR_TRANSFER_UNSETTLED, "was cancelled", kvffi_transfer_wait(transfer, 60000, &error));
    FAILS(KVFFI_ERR_TRANSFER_UNSETTLED, "must not be used again", kvffi_transfer_poll(transfer, &error));
    FAILS(KVFFI_ERR_TRANSFER_UNSETTLED, "not settled", kvffi_transfer_wait_settled(transfer, 10, &error));
    OK(kvffi_loopback_set_faults(network, 0, &error));
    FAILS(KVFFI_ERR_TRANSFER_FAILED, "settled: the transfer was cancelled",
          kvffi_transfer_wait_settled(transfer, 60000, &error));
    kvffi_transfer_stats stats = KVFFI_TRANSFER_STATS_INIT;
    OK(kvffi_transfer_get_stats(transfer, &stats, &error));
    CHECK(stats.cause == KVFFI_ERR_CANCELLED && stats.is_settled == 1);
    kvffi_transfer_free(transfer);
}

static void freed_while_in_progress(void)
{
    OK(kvffi_loopback_set_faults(network, KVFFI_LOOPBACK_STALL, &error));
    kvffi_transfer *transfer = start(NULL);
    wait_until_posted(transfer);
    kvffi_transfer_free(transfer);
    CHECK(unsettled() == 1);
    OK(kvffi_loopback_set_faults(network, 0, &error));
    wait_until_settled();
}

static void deadline_and_quarantine(void)
{
    OK(kvffi_loopback_set_faults(network, KVFFI_LOOPBACK_STALL, &error));
    kvffi_transfer_options options = KVFFI_TRANSFER_OPTIONS_INIT;
    options.deadline_ms = 3000;
    options.request = "slow";
    kvffi_transfer *transfer = start(&options);
    wait_until_posted(transfer);
    FAILS(KVFFI_ERR_TRANSFER_UNSETTLED, "not settled", kvffi_transfer_wait(transfer, 60000, &error));
    kvffi_transfer_stats stats = KVFFI_TRANSFER_STATS_INIT;
    OK(kvffi_transfer_get_stats(transfer, &stats, &error));
    CHECK(stats.cause == KVFFI_ERR_DEADLINE && stats.is_settled == 0 && stats.elapsed_us >= 3000000);

    kvffi_quarantine *quarantine = NULL;
    OK(kvffi_agent_get_quarantine(decode, &quarantine, &error));
    size_t len = 0;
    kvffi_quarantined entry;
    FAILS(KVFFI_ERR_BUFFER_TOO_SMALL, "entries has room for 0, 1 are needed",
          kvffi_quarantine_get_entries(quarantine, NULL, 0, &len, &error));
    OK(kvffi_quarantine_get_entries(quarantine, &entry, 1, &len, &error));
    CHECK(len == 1 && strcmp(entry.request, "slow") == 0 && strcmp(entry.peer, "prefill") == 0);
    CHECK(entry.op == KVFFI_OP_READ && entry.cause == KVFFI_ERR_DEADLINE && entry.bytes == BLOCK_BYTES);
    CHECK(entry.transfer == stats.id && entry.num_ranges == 1 && strlen(entry.message) > 10);
    kvffi_quarantined_range range;
    OK(kvffi_quarantine_get_ranges(quarantine, 0, &range, 1, &len, &error));
    CHECK(len == 1 && range.local == (uintptr_t)ours + 128 && range.remote == (uintptr_t)theirs + 64);
    CHECK(range.len == BLOCK_BYTES && range.local_mem == KVFFI_MEM_DRAM && range.remote_mem == KVFFI_MEM_DRAM);
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "entry is 1, the list has 1",
          kvffi_quarantine_get_ranges(quarantine, 1, &range, 1, &len, &error));
    kvffi_quarantine_free(quarantine);

    kvffi_agent_stats agent_stats = KVFFI_AGENT_STATS_INIT;
    OK(kvffi_agent_get_stats(decode, &agent_stats, &error));
    CHECK(agent_stats.quarantined == 1 && agent_stats.quarantined_bytes == BLOCK_BYTES);
    CHECK(agent_stats.failed_deadline == 1 && agent_stats.failed_cancelled == 2);
    kvffi_bucket buckets[64];
    OK(kvffi_agent_get_histogram(decode, KVFFI_HISTOGRAM_TRANSFER, buckets, 64, &len, &error));
    uint64_t count = 0;
    for (size_t i = 0; i < len; i++) {
        CHECK(i == 0 || buckets[i].upper_seconds > buckets[i - 1].upper_seconds);
        count += buckets[i].count;
    }
    CHECK(count == agent_stats.transfers_done);

    OK(kvffi_loopback_set_faults(network, 0, &error));
    FAILS(KVFFI_ERR_TRANSFER_FAILED, "settled", kvffi_transfer_wait_settled(transfer, KVFFI_FOREVER, &error));
    kvffi_transfer_free(transfer);
    OK(kvffi_agent_get_quarantine(decode, &quarantine, &error));
    CHECK(quarantine == NULL);
}

/* A lost peer: its requests settle when its process is declared gone, and not before. */
/* A pool grows in place and is read where it is new, also in one piece with the old; what goes is not reached. */
static void memory_comes_and_goes(void)
{
    static unsigned char here[2 * CACHE_BYTES], there[2 * CACHE_BYTES];
    memset(there, 7, sizeof there);
    kvffi_agent *reader = worker_on(network, "reader", here), *source = worker_on(network, "source", there);
    kvffi_peer *before = connect_to(reader, source);
    static const kvffi_descriptor LATER = {0, 0, CACHE_BYTES - 64, CACHE_BYTES - 64, 128};
    kvffi_transfer *transfer = NULL;
    FAILS(KVFFI_ERR_OUT_OF_RANGE, "descriptor 0",
          kvffi_agent_start(reader, before, KVFFI_OP_READ, &LATER, 1, NULL, &transfer, &error));
    OK(reregister(source, there, 8, &error));
    OK(reregister(reader, here, 8, &error));
    kvffi_peer *after = connect_to(reader, source);
    kvffi_peer_info info = KVFFI_PEER_INFO_INIT;
    OK(kvffi_peer_get_info(after, &info, &error));
    CHECK(info.generation == 2);
    FAILS(KVFFI_ERR_PEER_GONE, "use what the latest connect returned",
          kvffi_agent_start(reader, before, KVFFI_OP_READ, &BLOCK, 1, NULL, &transfer, &error));
    OK(kvffi_agent_start(reader, after, KVFFI_OP_READ, &LATER, 1, NULL, &transfer, &error));
    OK(kvffi_transfer_wait(transfer, KVFFI_FOREVER, &error));
    kvffi_transfer_free(transfer);
    CHECK(here[CACHE_BYTES - 65] == 0 && here[CACHE_BYTES - 64] == 7 && here[CACHE_BYTES + 63] == 7);
    CHECK(here[CACHE_BYTES + 64] == 0);
    OK(reregister(source, there, 4, &error));
    kvffi_peer_free(after);
    after = connect_to(reader, source);
    FAILS(KVFFI_ERR_OUT_OF_RANGE, "descriptor 0",
          kvffi_agent_start(reader, after, KVFFI_OP_READ, &LATER, 1, NULL, &transfer, &error));
    static const kvffi_descriptor EMPTY = {0, 0, 0, 0, 0};
    FAILS(KVFFI_ERR_OUT_OF_RANGE, "descriptor 0 has a length of 0; leave it out",
          kvffi_agent_start(reader, after, KVFFI_OP_READ, &EMPTY, 1, NULL, &transfer, &error));
    kvffi_peer_free(before);
    kvffi_peer_free(after);
    kvffi_agent_free(reader);
    kvffi_agent_free(source);
}

static void unsettled_until_the_peer_is_gone(void)
{
    OK(kvffi_loopback_set_faults(network, KVFFI_LOOPBACK_BREAK, &error));
    kvffi_transfer *transfer = start(NULL);
    FAILS(KVFFI_ERR_TRANSFER_UNSETTLED, "requests are broken", kvffi_transfer_wait(transfer, 60000, &error));
    OK(kvffi_loopback_set_faults(network, 0, &error));
    FAILS(KVFFI_ERR_TRANSFER_UNSETTLED, "not settled", kvffi_transfer_wait_settled(transfer, 50, &error));
    OK(kvffi_agent_reconnect(decode, peer, &error));
    OK(kvffi_peer_declare_gone(peer, &error));
    FAILS(KVFFI_ERR_TRANSFER_FAILED, "settled", kvffi_transfer_wait_settled(transfer, 60000, &error));
    kvffi_peer_info info = KVFFI_PEER_INFO_INIT;
    OK(kvffi_peer_get_info(peer, &info, &error));
    CHECK(info.is_gone == 1 && info.unsettled == 0);
    kvffi_transfer_free(transfer);
}

static void identities(void)
{
    kvffi_agent_info agent = KVFFI_AGENT_INFO_INIT;
    kvffi_peer_info info = KVFFI_PEER_INFO_INIT;
    OK(kvffi_agent_get_info(prefill, &agent, &error));
    OK(kvffi_peer_get_info(peer, &info, &error));
    CHECK(strcmp(agent.name, "prefill") == 0 && strcmp(info.name, "prefill") == 0);
    CHECK(agent.incarnation == info.incarnation && agent.generation == 1 && info.generation == 1);
    CHECK(info.locality == KVFFI_LOCALITY_SAME_HOST && info.barriers == 0 && info.is_gone == 0);
    kvffi_peer *same = connect_to(decode, prefill);
    OK(kvffi_agent_notify(decode, same, NULL, 0, &error));
    kvffi_peer_free(same);
    kvffi_notifications *arrived = NULL;
    OK(kvffi_agent_take_notifications(prefill, &arrived, &error));
    CHECK(kvffi_notifications_len(arrived) == 1);
    kvffi_notifications_free(arrived);
}

/* What is left over when everything is shut down. */
static void ends(void)
{
    OK(kvffi_agent_disconnect(decode, peer, &error));
    kvffi_transfer *transfer = NULL;
    FAILS(KVFFI_ERR_PEER_GONE, "not connected",
          kvffi_agent_start(decode, peer, KVFFI_OP_READ, &BLOCK, 1, NULL, &transfer, &error));
    FAILS(KVFFI_ERR_PEER_GONE, "not connected", kvffi_agent_notify(decode, peer, NULL, 0, &error));
    FAILS(KVFFI_ERR_PEER_GONE, "not connected", kvffi_agent_reconnect(decode, peer, &error));
    FAILS(KVFFI_ERR_PEER_GONE, "not connected", kvffi_agent_disconnect(decode, peer, &error));
    kvffi_peer_free(peer);
    OK(kvffi_agent_deregister(decode, &error));
    OK(kvffi_agent_shutdown(decode, 0, &error));
    FAILS(KVFFI_ERR_SHUT_DOWN, "agent decode has been shut down", kvffi_agent_shutdown(decode, 0, &error));
    FAILS(KVFFI_ERR_SHUT_DOWN, "shut down", kvffi_agent_deregister(decode, &error));

    /* A transfer outlives its agent and says what became of it. */
    kvffi_agent *again = worker_on(network, "decode", ours);
    peer = connect_to(prefill, again);
    OK(kvffi_loopback_set_faults(network, KVFFI_LOOPBACK_STALL, &error));
    OK(kvffi_agent_start(prefill, peer, KVFFI_OP_WRITE, &BLOCK, 1, NULL, &transfer, &error));
    OK(kvffi_loopback_set_faults(network, 0, &error));
    OK(kvffi_agent_shutdown(prefill, 60000, &error));
    const kvffi_status status = kvffi_transfer_wait(transfer, KVFFI_FOREVER, NULL);
    CHECK(status == KVFFI_OK || status == KVFFI_ERR_TRANSFER_FAILED);
    kvffi_transfer_free(transfer);
    kvffi_peer_free(peer);
    kvffi_agent_free(again);
    kvffi_agent_free(prefill);
    kvffi_agent_free(decode);
}

int main(void)
{
    OK(kvffi_loopback_new(&network, &error));
    decode = worker_on(network, "decode", ours);
    prefill = worker_on(network, "prefill", theirs);
    peer = connect_to(decode, prefill);
    identities();
    done();
    from_an_answer();
    nothing_to_move();
    memory_comes_and_goes();
    in_progress_and_cancelled();
    freed_while_in_progress();
    deadline_and_quarantine();
    unsettled_until_the_peer_is_gone();
    ends();
    kvffi_loopback_free(network);
    puts("transfers end as they should");
    return 0;
}
