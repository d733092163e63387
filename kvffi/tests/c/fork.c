/* A child process inherits agents that it must not use, and plans that it may. */
#include <sys/wait.h>
#include <unistd.h>

#include "workers.h"

static unsigned char ours[CACHE_BYTES], theirs[CACHE_BYTES];
static const kvffi_descriptor BLOCK = {0, 0, 0, 0, BLOCK_BYTES};

/* After a restart an engine meets blobs of processes that are no more: it is to fetch again, and is told so. */
static void blob_of_the_dead(kvffi_agent *decode)
{
    int ends[2];
    CHECK(pipe(ends) == 0);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        kvffi_loopback *own = NULL;
        kvffi_bytes *blob = NULL;
        OK(kvffi_loopback_new(&own, &error));
        OK(kvffi_agent_export(worker_on(own, "prefill-1", theirs), &blob, &error));
        CHECK(write(ends[1], kvffi_bytes_data(blob), kvffi_bytes_len(blob)) == (ssize_t)kvffi_bytes_len(blob));
        _exit(0);
    }
    static unsigned char blob[1 << 16];
    CHECK(close(ends[1]) == 0);
    ssize_t len = 0, more = 0;
    while ((more = read(ends[0], blob + len, sizeof blob - (size_t)len)) > 0) {
        len += more;
    }
    CHECK(more == 0 && close(ends[0]) == 0);
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    kvffi_peer *peer = NULL;
    FAILS(KVFFI_ERR_STALE_BLOB, "fetch the blob of the one that took its place",
          kvffi_agent_connect(decode, blob, (size_t)len, &peer, &error));
}

int main(void)
{
    kvffi_loopback *network = NULL;
    OK(kvffi_loopback_new(&network, &error));
    kvffi_agent *decode = worker_on(network, "decode", ours), *prefill = worker_on(network, "prefill", theirs);
    kvffi_peer *peer = connect_to(decode, prefill);
    kvffi_transfer *transfer = NULL;
    OK(kvffi_agent_start(decode, peer, KVFFI_OP_READ, &BLOCK, 1, NULL, &transfer, &error));
    OK(kvffi_transfer_wait(transfer, KVFFI_FOREVER, &error));
    kvffi_spec *spec = spec_at("m", ours);
    kvffi_exchange *exchange = NULL;
    kvffi_logs *logs = NULL;
    OK(kvffi_exchange_new(decode, NULL, &exchange, &error));
    OK(kvffi_logs_new(NULL, &logs, &error));

    blob_of_the_dead(decode);

    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        FAILS(KVFFI_ERR_FORKED, "transfer is a kvffi_transfer of the parent process", kvffi_transfer_poll(transfer, &error));
        FAILS(KVFFI_ERR_FORKED, "agent is a kvffi_agent of the parent process", kvffi_agent_deregister(decode, &error));
        FAILS(KVFFI_ERR_FORKED, "peer is a kvffi_peer", kvffi_peer_declare_gone(peer, &error));
        FAILS(KVFFI_ERR_FORKED, "loopback is a kvffi_loopback", kvffi_loopback_set_faults(network, 0, &error));
        kvffi_events *events = NULL;
        kvffi_log_records *records = NULL;
        FAILS(KVFFI_ERR_FORKED, "exchange is a kvffi_exchange", kvffi_exchange_poll(exchange, &events, &error));
        FAILS(KVFFI_ERR_FORKED, "logs is a kvffi_logs", kvffi_logs_take(logs, &records, NULL, &error));
        kvffi_logs *own_logs = NULL;
        OK(kvffi_logs_new(NULL, &own_logs, &error));
        kvffi_logs_free(own_logs);
        /* Freeing them is quick: nobody waits for the threads of another process. */
        kvffi_logs_free(logs);
        kvffi_exchange_free(exchange);
        kvffi_transfer_free(transfer);
        kvffi_peer_free(peer);
        kvffi_agent_free(decode);
        FAILS(KVFFI_ERR_WRONG_HANDLE, "freed", kvffi_agent_deregister(decode, &error));

        /* Plans are plain memory, and what is made anew is the child's own. */
        kvffi_pair *pair = NULL;
        OK(kvffi_pair_new(spec, spec, NULL, &pair, &error));
        kvffi_pair_free(pair);
        kvffi_loopback *own = NULL;
        OK(kvffi_loopback_new(&own, &error));
        kvffi_agent_free(worker_on(own, "decode", ours));
        kvffi_loopback_free(own);
        _exit(0);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);

    kvffi_events *events = NULL;
    OK(kvffi_exchange_poll(exchange, &events, &error));
    kvffi_events_free(events);
    kvffi_exchange_free(exchange);
    kvffi_logs_free(logs);
    OK(kvffi_transfer_poll(transfer, &error));
    kvffi_transfer_free(transfer);
    kvffi_spec_free(spec);
    kvffi_peer_free(peer);
    OK(kvffi_agent_shutdown(prefill, 1000, &error));
    kvffi_agent_free(prefill);
    kvffi_agent_free(decode);
    kvffi_loopback_free(network);
    puts("what was forked is the parent's");
    return 0;
}
