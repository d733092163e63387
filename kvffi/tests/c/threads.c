/* Immutable objects are shared by threads; an answer that is in use says so. */
#include <pthread.h>

#include "check.h"

enum { NUM_THREADS = 4, NUM_ROUNDS = 2000 };

static kvffi_pair *pair;
static kvffi_answer *shared;
static const char REQUEST[] =
    "{\"op\": \"read\", \"local\": [{\"group\": 0, \"blocks\": [0, 2]}], \"remote\": [{\"group\": 0, \"blocks\": [3, 1]}]}";

static void *work(void *unused)
{
    (void)unused;
    kvffi_answer *own = NULL;
    OK(kvffi_answer_new(&own, &error));
    for (int i = 0; i < NUM_ROUNDS; i++) {
        size_t len = 0;
        kvffi_descriptor descriptors[2];
        OK(kvffi_pair_answer_json(pair, REQUEST, sizeof REQUEST - 1, own, &error));
        OK(kvffi_answer_get_descriptors(own, descriptors, 2, &len, &error));
        CHECK(len == 2 && descriptors[1].local_offset == 128 && descriptors[1].remote_offset == 64);

        kvffi_error *error = NULL;
        const kvffi_status status = kvffi_pair_answer_json(pair, REQUEST, sizeof REQUEST - 1, shared, &error);
        CHECK(status == KVFFI_OK || (status == KVFFI_ERR_BUSY && strstr(kvffi_error_message(error), "another thread")));
        kvffi_error_free(error);
    }
    kvffi_answer_free(own);
    return NULL;
}

int main(void)
{
    kvffi_spec *spec = spec_of(SPEC_OF("m"));
    OK(kvffi_pair_new(spec, spec, NULL, &pair, &error));
    OK(kvffi_answer_new(&shared, &error));
    pthread_t threads[NUM_THREADS];
    for (int i = 0; i < NUM_THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, work, NULL) == 0);
    }
    for (int i = 0; i < NUM_THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    OK(kvffi_pair_answer_json(pair, REQUEST, sizeof REQUEST - 1, shared, &error));
    kvffi_answer_free(shared);
    kvffi_pair_free(pair);
    kvffi_spec_free(spec);
    puts("threads share what they may");
    return 0;
}
