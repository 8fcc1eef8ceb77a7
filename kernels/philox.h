/* philox.h: random words as a pure function of a key and a counter (Philox4x32-10, Salmon et al.,
 * "Parallel random numbers: as easy as 1, 2, 3", SC 2011). Dropout, initial weights, noise and
 * sampling use these words, so that their results do not depend on the number of ranks. */
#ifndef SEQD_KERNELS_PHILOX_H
#define SEQD_KERNELS_PHILOX_H

#include <stdint.h>

#ifdef __CUDACC__
#define PHILOX_FN __host__ __device__
#else
#define PHILOX_FN
#endif
#define PHILOX_ROUNDS 10
#define PHILOX_M0     0xD2511F53u
#define PHILOX_M1     0xCD9E8D57u
#define PHILOX_W0     0x9E3779B9u /* added to the words of the key after each round */
#define PHILOX_W1     0xBB67AE85u

static inline PHILOX_FN void philox4x32(const uint32_t key[2], const uint32_t counter[4],
                                        uint32_t out[4])
{
    uint32_t k0 = key[0], k1 = key[1];
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        const uint64_t p0 = (uint64_t)PHILOX_M0 * c0, p1 = (uint64_t)PHILOX_M1 * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        k0 += PHILOX_W0;
        k1 += PHILOX_W1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* Makes the key of a training step's dropout masks from seed and step, as two words of Philox. */
static inline void philox_key(int64_t seed, int64_t step, uint32_t key[2])
{
    const uint32_t from[2] = {(uint32_t)seed, (uint32_t)((uint64_t)seed >> 32)};
    const uint32_t counter[4] = {(uint32_t)step, (uint32_t)((uint64_t)step >> 32), 0x64726f70, 0};
    uint32_t words[4];
    philox4x32(from, counter, words);
    key[0] = words[0];
    key[1] = words[1];
}

#endif
