/*
 * Moves three blocks from one process to another over NIXL, and looks at every byte.
 *
 * The program starts itself again as the prefill worker, which fills a cache and sends its blob over a socket. The decode
 * worker connects, plans, reads blocks 1, 2 and 8 there into 5, 6 and 9 here, and notifies the prefill worker.
 * Build and run as examples/c/01_plan.c says; NIXL is found as kvffi_agent_options says.
 */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kvffi.h"

enum { NUM_BLOCKS = 10, BLOCK_BYTES = 64 * 1152 };
static const uint32_t FROM[] = {1, 2, 8}, TO[] = {5, 6, 9};
static kvffi_error *error;

/* Says what went wrong, and ends the program. */
static void check(const char *what, kvffi_status status)
{
    if (status < 0) {
        fprintf(stderr, "%s: %s: %s\n", what, kvffi_status_name(status), kvffi_error_message(error));
        exit(1);
    }
}

static unsigned char byte_of(size_t block, size_t i)
{
    return (unsigned char)(block * 31 + i % 251);
}

/* One MLA layer of 1,152 bytes a token, in blocks of 64 tokens. */
static kvffi_spec *describe(const unsigned char *cache)
{
    char json[1024];
    snprintf(json, sizeof json,
             "{\"version\": 1, \"fingerprint\": {\"model\": \"org/model\"}, \"storages\": [{\"base\": %" PRIuPTR ","
             " \"len\": %d, \"mem\": \"dram\"}], \"groups\": [{\"pool\": 0, \"block_tokens\": 64, \"num_blocks\": %d}],"
             " \"layers\": [{\"name\": \"layers.0\", \"group\": 0, \"kind\": \"mla\", \"parts\": [{\"name\": \"latent\","
             " \"storage\": 0, \"offset\": 0, \"block_stride\": %d, \"sharding\": \"replicated\", \"units\":"
             " {\"count\": 1, \"stride\": %d}, \"tokens\": [{\"count\": 64, \"stride\": 1152}], \"content\": 1152}]}]}",
             (uintptr_t)cache, NUM_BLOCKS * BLOCK_BYTES, NUM_BLOCKS, BLOCK_BYTES, BLOCK_BYTES);
    kvffi_spec *spec = NULL;
    check("spec", kvffi_spec_from_json(json, strlen(json), &spec, &error));
    return spec;
}

static kvffi_agent *worker(const char *name, const kvffi_spec *spec)
{
    kvffi_agent *agent = NULL;
    kvffi_local_plan *plan = NULL;
    check("agent", kvffi_agent_new(name, NULL, &agent, &error));
    check("local plan", kvffi_local_plan_new(spec, 0, &plan, &error));
    check("register", kvffi_agent_register(agent, plan, &error));
    kvffi_local_plan_free(plan);
    return agent;
}

static int prefill(int channel)
{
    unsigned char *cache = malloc(NUM_BLOCKS * BLOCK_BYTES);
    for (size_t i = 0; i < NUM_BLOCKS * BLOCK_BYTES; i++) {
        cache[i] = byte_of(i / BLOCK_BYTES, i % BLOCK_BYTES);
    }
    kvffi_spec *spec = describe(cache);
    kvffi_agent *agent = worker("prefill-0", spec);
    kvffi_bytes *blob = NULL;
    check("export", kvffi_agent_export(agent, &blob, &error));
    const ssize_t sent = write(channel, kvffi_bytes_data(blob), kvffi_bytes_len(blob));
    shutdown(channel, SHUT_WR);
    kvffi_bytes_free(blob);

    struct pollfd news = {-1, POLLIN, 0};
    check("fd", kvffi_agent_get_fd(agent, 0, &news.fd, &error));
    kvffi_notifications *arrived = NULL;
    while (arrived == NULL && poll(&news, 1, 10000) == 1) {
        check("clear", kvffi_agent_clear_fd(agent, &error));
        check("notifications", kvffi_agent_take_notifications(agent, &arrived, &error));
    }
    const int was_told = kvffi_notifications_len(arrived) == 1;
    kvffi_notifications_free(arrived);
    kvffi_agent_free(agent);
    kvffi_spec_free(spec);
    free(cache);
    return sent > 0 && was_told ? 0 : 1;
}

static int decode(int channel)
{
    unsigned char *cache = calloc(NUM_BLOCKS, BLOCK_BYTES), blob[65536];
    kvffi_spec *spec = describe(cache), *layout = NULL;
    kvffi_agent *agent = worker("decode-0", spec);
    size_t blob_len = 0;
    for (ssize_t n; (n = read(channel, blob + blob_len, sizeof blob - blob_len)) > 0;) {
        blob_len += (size_t)n;
    }
    kvffi_peer *peer = NULL;
    kvffi_pair *pair = NULL;
    kvffi_answer *answer = NULL;
    check("connect", kvffi_agent_connect(agent, blob, blob_len, &peer, &error));
    check("layout", kvffi_peer_get_layout(peer, &layout, &error));
    check("pair", kvffi_pair_new(spec, layout, NULL, &pair, &error));
    check("answer", kvffi_answer_new(&answer, &error));
    const kvffi_block_list local = {0, 0, 0, TO, 3}, remote = {0, 0, 0, FROM, 3};
    const kvffi_request request = {sizeof request, KVFFI_OP_READ, .local = &local, .num_local = 1, .remote = &remote, .num_remote = 1};
    check("request", kvffi_pair_answer(pair, &request, answer, &error));
    kvffi_transfer *transfer = NULL;
    const kvffi_transfer_options options = {sizeof options, (const uint8_t *)"done", 4, 10000, NULL, 0, NULL};
    check("start", kvffi_agent_start_answer(agent, peer, answer, &options, &transfer, &error));
    check("wait", kvffi_transfer_wait(transfer, KVFFI_FOREVER, &error));
    size_t num_wrong = 0;
    for (size_t i = 0; i < 3 * BLOCK_BYTES; i++) {
        const size_t block = i / BLOCK_BYTES, byte = i % BLOCK_BYTES;
        num_wrong += cache[TO[block] * BLOCK_BYTES + byte] != byte_of(FROM[block], byte);
    }
    printf("%d bytes read, %zu wrong\n", 3 * BLOCK_BYTES, num_wrong);
    kvffi_transfer_free(transfer);
    kvffi_answer_free(answer);
    kvffi_pair_free(pair);
    kvffi_spec_free(layout);
    kvffi_peer_free(peer);
    kvffi_agent_free(agent);
    kvffi_spec_free(spec);
    free(cache);
    return num_wrong == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc == 2) {
        return prefill(atoi(argv[1]));
    }
    int channel[2], status = 1;
    char number[16];
    const pid_t child = socketpair(AF_UNIX, SOCK_STREAM, 0, channel) == 0 ? fork() : -1;
    if (child == 0) {
        snprintf(number, sizeof number, "%d", channel[1]);
        execl("/proc/self/exe", argv[0], number, (char *)NULL);
        _exit(127);
    }
    close(channel[1]);
    const int result = decode(channel[0]);
    return waitpid(child, &status, 0) == child && status == 0 ? result : 1;
}
