#include "worker/train/sample.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "api/core/utf8.h"
#include "worker/model/model.h"

/* Uniform in [0, 1) with 53 bits. */
static double uniform(const struct sample_options *o)
{
    uint32_t counter[4] = {(uint32_t)o->position, (uint32_t)((uint64_t)o->position >> 32),
                           (uint32_t)o->request, (uint32_t)((uint64_t)o->request >> 32)};
    uint32_t key[2] = {(uint32_t)o->seed, (uint32_t)((uint64_t)o->seed >> 32)};
    uint32_t r[4];
    philox4x32(key, counter, r);
    return (double)((((uint64_t)r[0] << 32) | r[1]) >> 11) * 0x1p-53;
}

static int32_t greedy(const float *logits, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return (int32_t)best;
}

int32_t sample_token(const float *logits, int64_t n_vocab, const struct sample_options *o)
{
    assert(n_vocab > 0);
    int32_t best = greedy(logits, n_vocab);
    if (o->temperature <= 0) return best;
    /* Inverse of the cumulative distribution, in double and ascending ids: two passes, no array. */
    double top = logits[best], sum = 0, run = 0;
    for (int64_t i = 0; i < n_vocab; i++) sum += exp((logits[i] - top) / o->temperature);
    double want = uniform(o) * sum;
    for (int64_t i = 0; i < n_vocab; i++) {
        run += exp((logits[i] - top) / o->temperature);
        if (run > want) return (int32_t)i;
    }
    return best; /* NaN logits: the caller has checked them */
}

size_t sample_utf8(const unsigned char *bytes, size_t n, char *out)
{
    const char *s = (const char *)bytes, *end = s + n;
    size_t w = 0;
    while (s < end) {
        int len = utf8_len(s, end);
        memcpy(out + w, len ? s : "\xEF\xBF\xBD", len ? (size_t)len : 3);
        w += len ? (size_t)len : 3;
        s += len ? len : 1;
    }
    out[w] = 0;
    return w;
}
