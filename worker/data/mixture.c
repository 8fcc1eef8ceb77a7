/* mixture.c: computes how many places of a block each source has, and permutes the block to
 * find the source of sample n. */
#include "worker/data/mixture.h"

#include <math.h>
#include "api/core/assert.h"
#include "worker/data/permute.h"

/* Added to the seed of a block's permutation, so that it differs from the permutation of a
 * pass, which uses the seed without a change. */
#define BLOCK_KEY ((int64_t)0x6d69787475726531)

int mixture_init(struct mixture *m, const double *weight, int n, struct err *e)
{
    double sum = 0, rest[SPEC_SOURCES];
    int64_t left = MIXTURE_BLOCK;
    assert(n >= 1 && n <= SPEC_SOURCES);
    *m = (struct mixture){.n_sources = n};
    for (int i = 0; i < n; i++) {
        if (!(weight[i] > 0) || !isfinite(weight[i]))
            return err_set(e, ERR_INVALID, "weight %g of source %d: it must be above 0", weight[i],
                           i);
        sum += weight[i];
    }
    for (int i = 0; i < n; i++) {
        double exact = weight[i] / sum * MIXTURE_BLOCK;
        /* 1e-9 is more than the rounding error. It is added because 0.7 / (0.7 + 0.3) * 1000 must
         * give 700. */
        double whole = floor(exact + 1e-9);
        rest[i] = exact - whole;
        m->share[i] = (int64_t)whole;
        left -= m->share[i];
    }
    for (; left > 0; left--) {
        int best = 0;
        for (int i = 1; i < n; i++)
            if (rest[i] > rest[best]) best = i;
        m->share[best]++;
        rest[best] = -1;
    }
    for (int i = 0; i < n; i++)
        if (m->share[i] < 1)
            return err_set(e, ERR_INVALID,
                           "weight %g of source %d is %.3g of the mixture: less than one sample in "
                           "%d; raise it or leave the source out",
                           weight[i], i, weight[i] / sum, MIXTURE_BLOCK);
    return 0;
}

void mixture_at(const struct mixture *m, int64_t seed, int64_t n, int *source, int64_t *k)
{
    const int64_t block = n / MIXTURE_BLOCK;
    int64_t place = permute(n % MIXTURE_BLOCK, MIXTURE_BLOCK, seed ^ BLOCK_KEY, block);
    int i = 0;
    for (; place >= m->share[i]; i++) place -= m->share[i];
    *source = i;
    *k = block * m->share[i] + place;
}
