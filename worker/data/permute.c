/* permute.c: permutes [0, n) by a keyed Feistel network. */
#include "worker/data/permute.h"

#include "api/core/assert.h"

/* Mixes the bits of x by the finalizer of splitmix64. Every output bit depends on every input
 * bit. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Permutes by a Feistel network of 8 rounds. The network permutes the numbers of b bits, where
 * b is the smallest even number for which 2^b >= n. It is applied repeatedly, until the result
 * is below n. The average number of applications is less than 4. */
int64_t permute(int64_t i, int64_t n, int64_t seed, int64_t pass)
{
    int half = 1;
    assert(i >= 0 && i < n);
    while ((int64_t)1 << 2 * half < n) half++;
    uint64_t mask = ((uint64_t)1 << half) - 1, x = (uint64_t)i;
    uint64_t key = mix(mix((uint64_t)seed + 0x9e3779b97f4a7c15u) ^ (uint64_t)pass);
    do {
        uint64_t left = x >> half, right = x & mask;
        for (uint64_t round = 0; round < 8; round++) {
            uint64_t f = mix(key ^ mix(right << 8 | round)) & mask;
            uint64_t old = right;
            right = left ^ f;
            left = old;
        }
        x = left << half | right;
    } while (x >= (uint64_t)n);
    return (int64_t)x;
}
