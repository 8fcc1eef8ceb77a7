/* mixture.h: the source of the n-th sample of a weighted mixture.
 *
 * Samples are taken in blocks of MIXTURE_BLOCK. A source has as many places in one block as in
 * another: its share of the weights, rounded by largest remainders (of equal remainders the
 * earlier source's). So weights with three decimals are met exactly. A permutation keyed by (seed,
 * block) deals the places of the block to the sources. The places of a source, numbered through
 * all blocks, are its own samples 0, 1, ...: its order and its passes do not depend on the
 * others. */
#ifndef SEQD_DATA_MIXTURE_H
#define SEQD_DATA_MIXTURE_H

#include <stdint.h>
#include "api/core/err.h"
#include "api/core/limits.h"

#define MIXTURE_BLOCK 1000

struct mixture {
    int n_sources;
    int64_t share[SPEC_SOURCES]; /* samples of each source in a block; the sum is MIXTURE_BLOCK */
};

/* Shares the places of a block among the sources. fails: ERR_INVALID when a weight is not above 0,
 * or so small that its source gets no place in a block. */
int mixture_init(struct mixture *m, const double *weight, int n, struct err *e);
/* Finds the source of sample n, and which of that source's samples it is. */
void mixture_at(const struct mixture *m, int64_t seed, int64_t n, int *source, int64_t *k);

#endif
