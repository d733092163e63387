/* What the driver does with memory: the plain copy that is the limit, and the comparison of every byte. */
#include <pthread.h>
#include <stdint.h>
#include <string.h>

/* Offset at the source, offset at the target, length. */
typedef struct { uint64_t from, to, len; } range;
typedef struct { const char *source; char *target; const range *ranges; uint64_t first, bytes; } share;

/* Copies the bytes from `first` on, counted over all ranges. */
static void *copy_share(void *raw) {
    const share *one = raw;
    const range *at = one->ranges;
    uint64_t skip = one->first, left = one->bytes;
    while (skip >= at->len && left) skip -= at++->len;
    while (left) {
        uint64_t len = at->len - skip < left ? at->len - skip : left;
        memcpy(one->target + at->to + skip, one->source + at->from + skip, len);
        left -= len;
        skip = 0;
        at++;
    }
    return 0;
}

/* With this thread and others, 16 at most in all. */
void plain_copy(const char *source, char *target, const range *ranges, uint64_t bytes, unsigned threads) {
    pthread_t others[16];
    share shares[16];
    unsigned started = 0;
    for (unsigned i = 0; i < threads; i++) {
        uint64_t first = bytes / threads * i, end = i + 1 == threads ? bytes : bytes / threads * (i + 1);
        shares[i] = (share){source, target, ranges, first, end - first};
    }
    for (unsigned i = 1; i < threads; i++)
        if (pthread_create(&others[started], 0, copy_share, &shares[i]) == 0) started++;
        else copy_share(&shares[i]);
    copy_share(&shares[0]);
    while (started) pthread_join(others[--started], 0);
}

/* Bytes that nothing repeats. */
void plain_fill(uint64_t *words, uint64_t count) {
    uint64_t state = 1;
    for (uint64_t i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        words[i] = state ^ state >> 29;
    }
}

static uint64_t differ(const char *one, const char *other, uint64_t len) {
    uint64_t count = 0;
    if (memcmp(one, other, len) == 0) return 0;
    for (uint64_t i = 0; i < len; i++) count += one[i] != other[i];
    return count;
}

static uint64_t differ_from(const char *bytes, int fill, uint64_t len) {
    uint64_t count = 0;
    for (uint64_t i = 0; i < len; i++) count += bytes[i] != (char)fill;
    return count;
}

/* How many of `total` bytes are wrong: not the source's in a range, not `fill` between ranges, which are in order. */
uint64_t plain_wrong(const char *source, const char *target, const range *ranges, uint64_t count, uint64_t total,
                     int fill) {
    uint64_t wrong = 0, at = 0;
    for (uint64_t i = 0; i < count; i++) {
        wrong += differ_from(target + at, fill, ranges[i].to - at);
        wrong += differ(source + ranges[i].from, target + ranges[i].to, ranges[i].len);
        at = ranges[i].to + ranges[i].len;
    }
    return wrong + differ_from(target + at, fill, total - at);
}
