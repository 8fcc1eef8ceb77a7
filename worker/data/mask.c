/* mask.c: draws four random words for each token by Philox. These words determine whether the
 * token is hidden, and which id replaces it. */
#include "worker/data/mask.h"

#include <stdbool.h>
#include "kernels/philox.h"

/* Returns true with the probability `share` for a random word, by comparing the word with a
 * limit. The probability is exact if `share` is a multiple of 2^-32. */
static bool below(uint32_t word, double share)
{
    return (double)word < share * 4294967296.0;
}

int32_t mask_token(const struct mask_rule *r, int64_t n, int64_t pos, int32_t id, int32_t *target)
{
    /* "mask" in the key makes these draws differ from other draws with this seed. */
    const uint32_t key[2] = {(uint32_t)r->seed,
                             (uint32_t)((uint64_t)r->seed >> 32) ^ 0x6d61736bu ^ (uint32_t)r->set};
    const uint32_t counter[4] = {(uint32_t)pos, (uint32_t)((uint64_t)pos >> 32), (uint32_t)n,
                                 (uint32_t)((uint64_t)n >> 32)};
    uint32_t w[4];
    *target = -1;
    if (id >= r->special && id < r->special + r->n_special) return id;
    philox4x32(key, counter, w);
    if (!below(w[0], r->prob)) return id;
    *target = id;
    if (below(w[1], 0.8)) return r->hidden;
    if (below(w[1], 0.9)) return (int32_t)((uint64_t)w[2] * (uint64_t)r->n_other >> 32);
    return id;
}
