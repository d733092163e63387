/* Whatever is wrong with a call on an exchange, it gives a status and a text. */
#include "workers.h"

static unsigned char ours[CACHE_BYTES], theirs[CACHE_BYTES];
static kvffi_loopback *network;
static kvffi_agent *decode, *prefill;
static kvffi_exchange *exchange;
static kvffi_peer *peer;
static const kvffi_descriptor BLOCK = {0, 0, 0, 0, BLOCK_BYTES};
static const kvffi_peer_id NOBODY = {"nobody", 1}, NAMELESS = {NULL, 1}, STRANGE = {"\xff", 1};

/* A handle of one kind where another is expected. */
#define AS(type, handle) ((type *)(void *)(handle))

static void new_exchanges(void)
{
    kvffi_exchange *out = NULL;
    kvffi_exchange_options options = KVFFI_EXCHANGE_OPTIONS_INIT;
    FAILS(KVFFI_ERR_NULL, "agent is NULL", kvffi_exchange_new(NULL, &options, &out, &error));
    FAILS(KVFFI_ERR_NULL, "out_exchange is NULL", kvffi_exchange_new(decode, &options, NULL, &error));
    FAILS(KVFFI_ERR_WRONG_HANDLE, "agent is a handle of kvffi_loopback",
          kvffi_exchange_new(AS(kvffi_agent, network), NULL, &out, &error));
    options.lost_readers = 2;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "lost_readers is 2", kvffi_exchange_new(decode, &options, &out, &error));
    options.lost_readers = 0;
    options.reserved = 5;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "options->reserved is 5", kvffi_exchange_new(decode, &options, &out, &error));
    options.reserved = 0;
    options.struct_size = 3;
    FAILS(KVFFI_ERR_STRUCT_SIZE, "struct_size 3", kvffi_exchange_new(decode, &options, &out, &error));
    struct {
        kvffi_exchange_options known;
        uint64_t more;
    } newer = {KVFFI_EXCHANGE_OPTIONS_INIT, 1};
    newer.known.struct_size = sizeof newer;
    FAILS(KVFFI_ERR_STRUCT_SIZE, "the field at byte 128", kvffi_exchange_new(decode, &newer.known, &out, &error));
    /* An older header's options end early: what lies behind is not read. */
    options = (kvffi_exchange_options)KVFFI_EXCHANGE_OPTIONS_INIT;
    memset((unsigned char *)&options + 96, 0xff, sizeof options - 96);
    options.struct_size = 88;
    FAILS(KVFFI_ERR_STRUCT_SIZE, "struct_size 88 is no size of kvffi_exchange_options, whose first version has 96 bytes",
          kvffi_exchange_new(decode, &options, &out, &error));
    options.struct_size = 96;
    FAILS(KVFFI_ERR_IN_USE, "decode has an exchange", kvffi_exchange_new(decode, &options, &out, &error));
    kvffi_agent *other = agent_on(network, "other");
    OK(kvffi_exchange_new(other, &options, &out, &error));
    kvffi_exchange_free(out);
    OK(kvffi_exchange_new(other, NULL, &out, &error));
    kvffi_exchange_free(out);
    kvffi_agent_free(other);
    kvffi_exchange_free(NULL);
    kvffi_exchange_free(AS(kvffi_exchange, decode));
}

static void peers(void)
{
    kvffi_wanted wanted = KVFFI_WANTED_INIT;
    kvffi_peer *out = NULL;
    size_t count = 0;
    FAILS(KVFFI_ERR_NULL, "exchange is NULL", kvffi_exchange_want(NULL, "a", &wanted, &error));
    FAILS(KVFFI_ERR_NULL, "name is NULL", kvffi_exchange_want(exchange, NULL, &wanted, &error));
    FAILS(KVFFI_ERR_NOT_UTF8, "name is not UTF-8", kvffi_exchange_want(exchange, "\xff", &wanted, &error));
    FAILS(KVFFI_ERR_NULL, "out_wanted is NULL", kvffi_exchange_want(exchange, "a", NULL, &error));
    wanted.struct_size = 0;
    FAILS(KVFFI_ERR_STRUCT_SIZE, "struct_size 0", kvffi_exchange_want(exchange, "a", &wanted, &error));
    FAILS(KVFFI_ERR_NULL, "exchange is NULL", kvffi_exchange_connect(NULL, NULL, 0, &out, &error));
    FAILS(KVFFI_ERR_NULL, "blob (with a length of 4) is NULL", kvffi_exchange_connect(exchange, NULL, 4, &out, &error));
    FAILS(KVFFI_ERR_NULL, "out_peer is NULL", kvffi_exchange_connect(exchange, NULL, 0, NULL, &error));
    FAILS(KVFFI_ERR_BLOB, "cut off", kvffi_exchange_connect(exchange, NULL, 0, &out, &error));
    FAILS(KVFFI_ERR_NULL, "exchange is NULL", kvffi_exchange_connect_named(NULL, "a", NULL, 0, &out, &error));
    FAILS(KVFFI_ERR_NULL, "name is NULL", kvffi_exchange_connect_named(exchange, NULL, NULL, 0, &out, &error));
    FAILS(KVFFI_ERR_BLOB, "cut off", kvffi_exchange_connect_named(exchange, "a", NULL, 0, &out, &error));
    FAILS(KVFFI_ERR_NULL, "exchange is NULL", kvffi_exchange_get_peer(NULL, &NOBODY, &out, &error));
    FAILS(KVFFI_ERR_NULL, "peer (with a length of 1) is NULL", kvffi_exchange_get_peer(exchange, NULL, &out, &error));
    FAILS(KVFFI_ERR_NULL, "peer->name is NULL", kvffi_exchange_get_peer(exchange, &NAMELESS, &out, &error));
    FAILS(KVFFI_ERR_NOT_UTF8, "peer->name is not UTF-8", kvffi_exchange_get_peer(exchange, &STRANGE, &out, &error));
    FAILS(KVFFI_ERR_PEER_GONE, "nobody@", kvffi_exchange_get_peer(exchange, &NOBODY, &out, &error));
    FAILS(KVFFI_ERR_NULL, "exchange is NULL", kvffi_exchange_fetch_failed(NULL, "a", &error));
    FAILS(KVFFI_ERR_NULL, "name is NULL", kvffi_exchange_fetch_failed(exchange, NULL, &error));
    OK(kvffi_exchange_fetch_failed(exchange, "nobody", &error));
    FAILS(KVFFI_ERR_NULL, "exchange is NULL", kvffi_exchange_release_peer(NULL, "a", &error));
    FAILS(KVFFI_ERR_NULL, "name is NULL", kvffi_exchange_release_peer(exchange, NULL, &error));
    OK(kvffi_exchange_release_peer(exchange, "nobody", &error));
    FAILS(KVFFI_ERR_NULL, "exchange is NULL", kvffi_exchange_peer_is_gone(NULL, &NOBODY, &error));
    FAILS(KVFFI_ERR_NULL, "peer (with a length of 1) is NULL", kvffi_exchange_peer_is_gone(exchange, NULL, &error));
    OK(kvffi_exchange_peer_is_gone(exchange, &NOBODY, &error));
    FAILS(KVFFI_ERR_NULL, "exchange is NULL", kvffi_exchange_withdraw(NULL, &error));
    FAILS(KVFFI_ERR_NULL, "exchange is NULL", kvffi_exchange_registered(NULL, &error));
    FAILS(KVFFI_ERR_NULL, "exchange is NULL", kvffi_exchange_goodbye(NULL, &error));
    FAILS(KVFFI_ERR_NULL, "exchange is NULL", kvffi_exchange_count_withdrawing(NULL, &count, &error));
    FAILS(KVFFI_ERR_NULL, "out_num_peers is NULL", kvffi_exchange_count_withdrawing(exchange, NULL, &error));
    FAILS(KVFFI_ERR_WRONG_HANDLE, "exchange is a handle of kvffi_agent",
          kvffi_exchange_withdraw(AS(kvffi_exchange, decode), &error));
}

static void holds(void)
{
    static char long_name[300];
    memset(long_name, 'x', sizeof long_name - 1);
    uint64_t lease = 0;
    int32_t flag = 0;
    kvffi_pushes *pushes = NULL;
    kvffi_push_id out;
    size_t len = 0;
    FAILS(KVFFI_ERR_NULL, "exchange is NULL", kvffi_exchange_hold(NULL, "r", 1, 1, 0, &lease, &error));
    FAILS(KVFFI_ERR_NULL, "request is NULL", kvffi_exchange_hold(exchange, NULL, 1, 1, 0, &lease, &error));
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "0 bytes was given", kvffi_exchange_hold(exchange, "", 1, 1, 0, &lease, &error));
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "1 to 256", kvffi_exchange_hold(exchange, long_name, 1, 1, 0, &lease, &error));
    FAILS(KVFFI_ERR_NOT_UTF8, "request is not", kvffi_exchange_hold(exchange, "\xff", 1, 1, 0, &lease, &error));
    FAILS(KVFFI_ERR_NULL, "out_lease is NULL", kvffi_exchange_hold(exchange, "r", 1, 1, 0, NULL, &error));
    FAILS(KVFFI_ERR_NULL, "exchange is NULL", kvffi_exchange_set_readers(NULL, 1, 1, &flag, &error));
    FAILS(KVFFI_ERR_NULL, "out_is_held is NULL", kvffi_exchange_set_readers(exchange, 1, 1, NULL, &error));
    FAILS(KVFFI_ERR_NULL, "exchange is NULL", kvffi_exchange_abort(NULL, 1, &flag, &error));
    FAILS(KVFFI_ERR_NULL, "out_is_held is NULL", kvffi_exchange_abort(exchange, 1, NULL, &error));
    FAILS(KVFFI_ERR_NULL, "exchange is NULL", kvffi_exchange_ready(NULL, 1, 1, &pushes, &error));
    FAILS(KVFFI_ERR_NULL, "out_pushes is NULL", kvffi_exchange_ready(exchange, 1, 1, NULL, &error));
    OK(kvffi_exchange_ready(exchange, UINT64_MAX, UINT32_MAX, &pushes, &error));
    CHECK(pushes == NULL);
    FAILS(KVFFI_ERR_NULL, "pushes is NULL", kvffi_pushes_get(NULL, &out, 1, &len, &error));
    kvffi_pushes_free(NULL);
    kvffi_pushes_free(AS(kvffi_pushes, decode));

    const kvffi_push_id unknown = {"nobody", 1, 2}, nameless = {NULL, 1, 2};
    FAILS(KVFFI_ERR_NULL, "exchange is NULL", kvffi_exchange_write(NULL, &unknown, 0, &BLOCK, 1, 0, &error));
    FAILS(KVFFI_ERR_NULL, "push (with a length of 1) is NULL", kvffi_exchange_write(exchange, NULL, 0, &BLOCK, 1, 0, &error));
    FAILS(KVFFI_ERR_NULL, "push->peer is NULL", kvffi_exchange_write(exchange, &nameless, 0, &BLOCK, 1, 0, &error));
    FAILS(KVFFI_ERR_NULL, "descriptors (with a length of 1) is NULL",
          kvffi_exchange_write(exchange, &unknown, 0, NULL, 1, 0, &error));
    FAILS(KVFFI_ERR_WRITE_REFUSED, "it is not known", kvffi_exchange_write(exchange, &unknown, 0, &BLOCK, 1, 0, &error));
    kvffi_answer *answer = NULL;
    OK(kvffi_answer_new(&answer, &error));
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "answer is empty", kvffi_exchange_write_answer(exchange, &unknown, 0, answer, &error));
    FAILS(KVFFI_ERR_NULL, "answer is NULL", kvffi_exchange_write_answer(exchange, &unknown, 0, NULL, &error));
    FAILS(KVFFI_ERR_NULL, "push (with a length of 1) is NULL",
          kvffi_exchange_write_answer(exchange, NULL, 0, answer, &error));
    kvffi_answer_free(answer);
}

static void pulls(void)
{
    uint64_t id = 0;
    int32_t flag = 0;
    kvffi_answer *answer = NULL;
    OK(kvffi_answer_new(&answer, &error));
    kvffi_pull_part part = {"prefill", 1, "r", 1, NULL, &BLOCK, 1, 0};
    FAILS(KVFFI_ERR_NULL, "exchange is NULL", kvffi_exchange_pull(NULL, 1, &part, 1, 1, &id, &error));
    FAILS(KVFFI_ERR_NULL, "parts (with a length of 1) is NULL", kvffi_exchange_pull(exchange, 1, NULL, 1, 1, &id, &error));
    FAILS(KVFFI_ERR_TOO_LARGE, "parts cannot have", kvffi_exchange_pull(exchange, 1, &part, SIZE_MAX / 8, 1, &id, &error));
    FAILS(KVFFI_ERR_NULL, "out_pull is NULL", kvffi_exchange_pull(exchange, 1, &part, 1, 1, NULL, &error));
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "a pull without any producer", kvffi_exchange_pull(exchange, 1, NULL, 0, 1, &id, &error));
    FAILS(KVFFI_ERR_PEER_NOT_READY, "prefill@", kvffi_exchange_pull(exchange, 1, &part, 1, 0, &id, &error));
    FAILS(KVFFI_ERR_PEER_NOT_READY, "prefill@", kvffi_exchange_pull(exchange, 1, &part, 1, 1, &id, &error));
    part.answer = answer;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "parts[0] has both", kvffi_exchange_pull(exchange, 1, &part, 1, 1, &id, &error));
    part.num_descriptors = 0;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "answer is empty", kvffi_exchange_pull(exchange, 1, &part, 1, 1, &id, &error));
    part.answer = AS(kvffi_answer, decode);
    FAILS(KVFFI_ERR_WRONG_HANDLE, "parts[0].answer is a handle of kvffi_agent",
          kvffi_exchange_pull(exchange, 1, &part, 1, 1, &id, &error));
    part.answer = NULL;
    part.num_descriptors = SIZE_MAX;
    FAILS(KVFFI_ERR_TOO_LARGE, "parts[0].descriptors", kvffi_exchange_pull(exchange, 1, &part, 1, 1, &id, &error));
    part.num_descriptors = 1;
    part.request = "";
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "0 bytes", kvffi_exchange_pull(exchange, 1, &part, 1, 1, &id, &error));
    part.request = NULL;
    FAILS(KVFFI_ERR_NULL, "parts[0].request is NULL", kvffi_exchange_pull(exchange, 1, &part, 1, 1, &id, &error));
    part.peer = NULL;
    FAILS(KVFFI_ERR_NULL, "parts[0].peer is NULL", kvffi_exchange_pull(exchange, 1, &part, 1, 1, &id, &error));
    kvffi_answer_free(answer);
    const kvffi_push_id nothing = {"decode", 1, 1};
    FAILS(KVFFI_ERR_NULL, "exchange is NULL", kvffi_exchange_refuse(NULL, &nothing, "no", &flag, &error));
    FAILS(KVFFI_ERR_NULL, "reason is NULL", kvffi_exchange_refuse(exchange, &nothing, NULL, &flag, &error));
    FAILS(KVFFI_ERR_NULL, "out_was_open is NULL", kvffi_exchange_refuse(exchange, &nothing, "no", NULL, &error));
    OK(kvffi_exchange_refuse(exchange, &nothing, "no", &flag, &error));
    CHECK(flag == 0);
    FAILS(KVFFI_ERR_NULL, "exchange is NULL", kvffi_exchange_cancel_pull(NULL, 1, &flag, &error));
    FAILS(KVFFI_ERR_NULL, "out_was_running is NULL", kvffi_exchange_cancel_pull(exchange, 1, NULL, &error));
    OK(kvffi_exchange_cancel_pull(exchange, UINT64_MAX, &flag, &error));
    CHECK(flag == 0);
    FAILS(KVFFI_ERR_NULL, "exchange is NULL", kvffi_exchange_keep(NULL, &NOBODY, 1, &error));
    FAILS(KVFFI_ERR_NULL, "peer (with a length of 1) is NULL", kvffi_exchange_keep(exchange, NULL, 1, &error));
    FAILS(KVFFI_ERR_NULL, "peer->name is NULL", kvffi_exchange_let_go(exchange, &NAMELESS, 1, &error));
    FAILS(KVFFI_ERR_NULL, "exchange is NULL", kvffi_exchange_let_go(NULL, &NOBODY, 1, &error));
    OK(kvffi_exchange_let_go(exchange, &NOBODY, 1, &error));

    const uint32_t blocks[] = {0};
    kvffi_block_list list = {0, 0, 0, blocks, 1};
    kvffi_push_source source = {"prefill", 1, &list, 1};
    FAILS(KVFFI_ERR_NULL, "exchange is NULL", kvffi_exchange_reserve(NULL, "r", 1, &source, 1, 1, &id, &error));
    FAILS(KVFFI_ERR_NULL, "request is NULL", kvffi_exchange_reserve(exchange, NULL, 1, &source, 1, 1, &id, &error));
    FAILS(KVFFI_ERR_NULL, "sources (with a length of 1)", kvffi_exchange_reserve(exchange, "r", 1, NULL, 1, 1, &id, &error));
    FAILS(KVFFI_ERR_NULL, "out_reservation is NULL", kvffi_exchange_reserve(exchange, "r", 1, &source, 1, 1, NULL, &error));
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "a reservation without any producer",
          kvffi_exchange_reserve(exchange, "r", 1, NULL, 0, 0, &id, &error));
    FAILS(KVFFI_ERR_PEER_NOT_READY, "prefill@", kvffi_exchange_reserve(exchange, "r", 1, &source, 1, 1, &id, &error));
    list.reserved = 1;
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "sources[0].lists[0].reserved is 1",
          kvffi_exchange_reserve(exchange, "r", 1, &source, 1, 1, &id, &error));
    list.reserved = 0;
    list.num_blocks = SIZE_MAX;
    FAILS(KVFFI_ERR_TOO_LARGE, "sources[0].lists[0].blocks", kvffi_exchange_reserve(exchange, "r", 1, &source, 1, 1, &id, &error));
    source.num_lists = 0;
    source.peer = NULL;
    FAILS(KVFFI_ERR_NULL, "sources[0].peer is NULL", kvffi_exchange_reserve(exchange, "r", 1, &source, 1, 1, &id, &error));
    FAILS(KVFFI_ERR_NULL, "exchange is NULL", kvffi_exchange_cancel_reservation(NULL, 1, &flag, &error));
    FAILS(KVFFI_ERR_NULL, "out_is_held is NULL", kvffi_exchange_cancel_reservation(exchange, 1, NULL, &error));
    OK(kvffi_exchange_cancel_reservation(exchange, 77, &flag, &error));
    CHECK(flag == 0);
}

static void events(void)
{
    kvffi_events *out = NULL;
    kvffi_event event = KVFFI_EVENT_INIT;
    kvffi_exchange_stats stats = KVFFI_EXCHANGE_STATS_INIT;
    uint64_t timeout = 0, lease = 0;
    FAILS(KVFFI_ERR_NULL, "exchange is NULL", kvffi_exchange_poll(NULL, &out, &error));
    FAILS(KVFFI_ERR_NULL, "out_events is NULL", kvffi_exchange_poll(exchange, NULL, &error));
    FAILS(KVFFI_ERR_NULL, "exchange is NULL", kvffi_exchange_get_timeout(NULL, &timeout, &error));
    FAILS(KVFFI_ERR_NULL, "out_timeout_ms is NULL", kvffi_exchange_get_timeout(exchange, NULL, &error));
    FAILS(KVFFI_ERR_NULL, "exchange is NULL", kvffi_exchange_get_stats(NULL, &stats, &error));
    FAILS(KVFFI_ERR_NULL, "out_stats is NULL", kvffi_exchange_get_stats(exchange, NULL, &error));
    stats.struct_size = 1;
    FAILS(KVFFI_ERR_STRUCT_SIZE, "struct_size 1", kvffi_exchange_get_stats(exchange, &stats, &error));
    FAILS(KVFFI_ERR_NULL, "events is NULL", kvffi_events_get(NULL, 0, &event, &error));
    CHECK(strcmp(kvffi_event_name(KVFFI_EVENT_FREED), "KVFFI_EVENT_FREED") == 0);
    CHECK(strcmp(kvffi_event_name(INT32_MIN), "unknown event") == 0);
    CHECK(kvffi_events_len(NULL) == 0 && kvffi_events_len(AS(kvffi_events, decode)) == 0);
    kvffi_events_free(NULL);
    kvffi_events_free(AS(kvffi_events, decode));

    OK(kvffi_exchange_hold(exchange, "r", 5, 0, 0, &lease, &error));
    OK(kvffi_exchange_poll(exchange, &out, &error));
    CHECK(kvffi_events_len(out) == 1);
    FAILS(KVFFI_ERR_NULL, "out_event is NULL", kvffi_events_get(out, 0, NULL, &error));
    FAILS(KVFFI_ERR_INVALID_ARGUMENT, "index is 1, there are 1", kvffi_events_get(out, 1, &event, &error));
    FAILS(KVFFI_ERR_WRONG_HANDLE, "events is a handle of kvffi_agent",
          kvffi_events_get(AS(kvffi_events, decode), 0, &event, &error));
    event.struct_size = 20;
    FAILS(KVFFI_ERR_STRUCT_SIZE, "struct_size 20", kvffi_events_get(out, 0, &event, &error));
    event.struct_size = 24;
    FAILS(KVFFI_ERR_STRUCT_SIZE, "struct_size 24 is no size of kvffi_event, whose first version has 128 bytes",
          kvffi_events_get(out, 0, &event, &error));
    /* A newer header's event has fields that stay 0. */
    struct {
        kvffi_event known;
        uint64_t more;
    } sized;
    memset(&sized, 0xee, sizeof sized);
    sized.known.struct_size = sizeof sized;
    OK(kvffi_events_get(out, 0, &sized.known, &error));
    CHECK(sized.known.kind == KVFFI_EVENT_FREED && sized.known.cookie == 5 && sized.known.lease == lease && sized.more == 0);
    kvffi_events_free(out);
    OK(kvffi_exchange_poll(exchange, &out, &error));
    CHECK(out == NULL);
}

int main(void)
{
    OK(kvffi_loopback_new(&network, &error));
    decode = worker_on(network, "decode", ours);
    prefill = worker_on(network, "prefill", theirs);
    peer = connect_to(decode, prefill);
    OK(kvffi_exchange_new(decode, NULL, &exchange, &error));
    new_exchanges();
    peers();
    holds();
    pulls();
    events();

    /* The exchange keeps its agent alive. */
    kvffi_agent_free(decode);
    kvffi_events *out = NULL;
    OK(kvffi_exchange_poll(exchange, &out, &error));
    kvffi_exchange_free(exchange);
    FAILS(KVFFI_ERR_SHUT_DOWN, "shut down", (kvffi_agent_shutdown(prefill, 0, NULL), kvffi_exchange_new(prefill, NULL, &exchange, &error)));
    kvffi_peer_free(peer);
    kvffi_agent_free(prefill);
    kvffi_loopback_free(network);
    puts("every bad call on exchanges was answered");
    return 0;
}
