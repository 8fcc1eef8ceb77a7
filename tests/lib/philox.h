/* philox.h: Philox4x32-10 (Salmon et al., SC 2011) and the mask of attention dropout, for tests.
 * Both are written from their definitions. */
#ifndef SEQD_TESTS_PHILOX_H
#define SEQD_TESTS_PHILOX_H

#include <stdint.h>

static inline void philox_words(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4])
{
    uint32_t x[4] = {counter[0], counter[1], counter[2], counter[3]}, k[2] = {key[0], key[1]};
    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)x[0] * 0xD2511F53u, b = (uint64_t)x[2] * 0xCD9E8D57u;
        const uint32_t y[4] = {(uint32_t)(b >> 32) ^ x[1] ^ k[0], (uint32_t)b,
                               (uint32_t)(a >> 32) ^ x[3] ^ k[1], (uint32_t)a};
        for (int i = 0; i < 4; i++) x[i] = y[i];
        k[0] += 0x9E3779B9u;
        k[1] += 0xBB67AE85u;
    }
    for (int i = 0; i < 4; i++) out[i] = x[i];
}

struct philox_at {
    int64_t row, key; /* global */
    int64_t layer, head, sample;
};

/* Returns the factor by which a probability is multiplied. The factor is 0 if the probability is
 * dropped, and 1 / (1 - rate) if it is kept. */
static inline double philox_mask(const uint32_t key[2], const struct philox_at *at, double rate)
{
    uint32_t w[4];
    const uint32_t counter[4] = {(uint32_t)at->row, (uint32_t)(at->key / 4),
                                 (uint32_t)(at->layer << 16 | at->head), (uint32_t)at->sample};
    if (rate <= 0) return 1;
    philox_words(key, counter, w);
    return w[at->key % 4] >= rate * 4294967296.0 ? 1 / (1 - rate) : 0;
}

#endif
