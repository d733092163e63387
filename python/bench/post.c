/*
 * What python/bench/post.py does for one request, in C: the time of the calls themselves.
 */
#include <time.h>

#include "kvffi.h"

static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* Answers a request and starts its transfer, in one call or in two. Nanoseconds; a negative status if one fails. */
kvffi_status post(const kvffi_pair *pair, const kvffi_agent *agent, const kvffi_peer *peer, kvffi_answer *answer,
                  const uint32_t *local, const uint32_t *remote, size_t num_blocks, int in_one_call,
                  kvffi_transfer **out_transfer, int64_t *out_ns)
{
    static const uint8_t message[] = "request 1";
    kvffi_error *error = NULL;
    const int64_t begun = now();
    const kvffi_block_list locals = {0, 0, 0, local, num_blocks};
    const kvffi_block_list remotes = {0, 0, 0, remote, num_blocks};
    kvffi_request request = KVFFI_REQUEST_INIT;
    request.op = KVFFI_OP_READ;
    request.local = &locals;
    request.num_local = 1;
    request.remote = &remotes;
    request.num_remote = 1;
    kvffi_transfer_options options = KVFFI_TRANSFER_OPTIONS_INIT;
    options.notify = message;
    options.notify_len = sizeof message - 1;
    options.deadline_ms = 10000;
    options.request = "request 1";
    kvffi_status status;
    if (in_one_call) {
        status = kvffi_agent_start_request(agent, peer, pair, &request, answer, &options, out_transfer, &error);
    } else {
        status = kvffi_pair_answer(pair, &request, answer, &error);
        if (status == KVFFI_OK) {
            status = kvffi_agent_start_answer(agent, peer, answer, &options, out_transfer, &error);
        }
    }
    *out_ns = now() - begun;
    kvffi_error_free(error);
    return status;
}
