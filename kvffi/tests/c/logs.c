/* Log records are taken by a call; nothing is kept before it is asked for or beyond what there is room for. */
#include <poll.h>

#include "workers.h"

static unsigned char ours[CACHE_BYTES], theirs[CACHE_BYTES];
static kvffi_loopback *network;

/* Makes two workers and moves a block, which logs. */
static void work(void)
{
    const kvffi_descriptor block = {0, 0, 0, 0, BLOCK_BYTES};
    kvffi_agent *decode = worker_on(network, "decode", ours), *prefill = worker_on(network, "prefill", theirs);
    kvffi_peer *peer = connect_to(decode, prefill);
    kvffi_transfer *transfer = NULL;
    kvffi_transfer_options options = KVFFI_TRANSFER_OPTIONS_INIT;
    options.request = "request-7";
    OK(kvffi_agent_start(decode, peer, KVFFI_OP_READ, &block, 1, &options, &transfer, &error));
    OK(kvffi_transfer_wait(transfer, KVFFI_FOREVER, &error));
    kvffi_transfer_free(transfer);
    kvffi_peer_free(peer);
    kvffi_agent_free(decode);
    kvffi_agent_free(prefill);
}

static kvffi_logs *logs_of(int32_t level, uint64_t capacity)
{
    kvffi_logs *logs = NULL;
    kvffi_log_options options = KVFFI_LOG_OPTIONS_INIT;
    options.level = level;
    options.capacity = capacity;
    OK(kvffi_logs_new(&options, &logs, &error));
    return logs;
}

static int is_readable(const kvffi_logs *logs)
{
    struct pollfd news = {-1, POLLIN, 0};
    OK(kvffi_logs_get_fd(logs, &news.fd, &error));
    return poll(&news, 1, 0) == 1;
}

/* Takes what waits and counts the records that say this. */
static size_t count(const kvffi_logs *logs, const char *what, int32_t least, uint64_t *dropped)
{
    static kvffi_log_record records[1000];
    kvffi_log_records *taken = NULL;
    size_t len = 0, found = 0;
    OK(kvffi_logs_take(logs, &taken, dropped, &error));
    if (taken == NULL) {
        return 0;
    }
    FAILS(KVFFI_ERR_BUFFER_TOO_SMALL, "array has room for 0", kvffi_log_records_get(taken, NULL, 0, &len, &error));
    CHECK(len == kvffi_log_records_len(taken));
    OK(kvffi_log_records_get(taken, records, 1000, &len, &error));
    for (size_t i = 0; i < len; i++) {
        CHECK(records[i].level >= KVFFI_LOG_ERROR && records[i].level <= least);
        CHECK(strncmp(records[i].target, "kv", 2) == 0 && records[i].time_ns > UINT64_C(1700000000000000000));
        found += strstr(records[i].message, what) != NULL;
    }
    kvffi_log_records_free(taken);
    return found;
}

static void bad_calls(void)
{
    kvffi_logs *logs = NULL, *second = NULL;
    kvffi_log_records *taken = NULL;
    kvffi_log_record record;
    kvffi_log_options options = KVFFI_LOG_OPTIONS_INIT;
    size_t len = 0;
    int32_t fd = 0;
    FAILS(KVFFI_ERR_NULL, "out_logs is NULL", kvffi_logs_new(&options, NULL, &error));
    options.level = 6;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "options->level is 6", kvffi_logs_new(&options, &logs, &error));
    options.level = -1;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "options->level is -1", kvffi_logs_new(&options, &logs, &error));
    options.level = 0;
    options.capacity = UINT64_MAX;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "at most 1048576", kvffi_logs_new(&options, &logs, &error));
    options.capacity = 0;
    options.reserved = 1;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "options->reserved is 1", kvffi_logs_new(&options, &logs, &error));
    options.reserved = 0;
    options.struct_size = 5;
    FAILS(KVFFI_ERR_STRUCT_SIZE, "struct_size 5", kvffi_logs_new(&options, &logs, &error));
    OK(kvffi_logs_new(NULL, &logs, &error));
    FAILS(KVFFI_ERR_IN_USE, "has a kvffi_logs already", kvffi_logs_new(NULL, &second, &error));
    FAILS(KVFFI_ERR_NULL, "logs is NULL", kvffi_logs_get_fd(NULL, &fd, &error));
    FAILS(KVFFI_ERR_NULL, "out_fd is NULL", kvffi_logs_get_fd(logs, NULL, &error));
    FAILS(KVFFI_ERR_NULL, "logs is NULL", kvffi_logs_take(NULL, &taken, NULL, &error));
    FAILS(KVFFI_ERR_NULL, "out_records is NULL", kvffi_logs_take(logs, NULL, NULL, &error));
    FAILS(KVFFI_ERR_WRONG_HANDLE, "logs is a handle of kvffi_loopback",
          kvffi_logs_take((kvffi_logs *)(void *)network, &taken, NULL, &error));
    FAILS(KVFFI_ERR_NULL, "records is NULL", kvffi_log_records_get(NULL, &record, 1, &len, &error));
    CHECK(kvffi_log_records_len(NULL) == 0 && kvffi_log_records_len((kvffi_log_records *)(void *)network) == 0);
    kvffi_log_records_free(NULL);
    kvffi_logs_free(logs);
    kvffi_logs_free(NULL);
    kvffi_logs_free((kvffi_logs *)(void *)network);
}

int main(void)
{
    uint64_t dropped = 77;
    OK(kvffi_loopback_new(&network, &error));
    bad_calls();

    work();
    kvffi_logs *logs = logs_of(KVFFI_LOG_INFO, 0);
    CHECK(!is_readable(logs) && count(logs, "", KVFFI_LOG_INFO, &dropped) == 0 && dropped == 0);
    work();
    CHECK(is_readable(logs));
    CHECK(count(logs, "agent created agent=\"decode\"", KVFFI_LOG_INFO, &dropped) == 1 && dropped == 0);
    CHECK(!is_readable(logs) && count(logs, "", KVFFI_LOG_INFO, NULL) == 0);
    kvffi_logs_free(logs);

    /* A transfer's records name its request, which only its span knows. */
    logs = logs_of(KVFFI_LOG_DEBUG, 0);
    work();
    CHECK(count(logs, "request=\"request-7\"", KVFFI_LOG_DEBUG, NULL) >= 2);
    kvffi_logs_free(logs);

    logs = logs_of(KVFFI_LOG_TRACE, 1);
    work();
    CHECK(count(logs, "", KVFFI_LOG_TRACE, &dropped) == 1 && dropped > 0);
    work();
    kvffi_logs_free(logs);

    logs = logs_of(KVFFI_LOG_ERROR, 0);
    work();
    CHECK(!is_readable(logs));
    kvffi_logs_free(logs);
    kvffi_loopback_free(network);
    puts("records are taken");
    return 0;
}
