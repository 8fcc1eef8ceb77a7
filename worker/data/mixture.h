/* mixture.h: the source of the n-th sample of a weighted mixture.
 *
 * Samples are taken in blocks of MIXTURE_BLOCK. A source has the same number of places in each
 * block: its share of the weights, rounded by the method of largest remainders (of equal
 * remainders the earlier source's counts as larger). So shares with three decimals are exact. A
 * permutation keyed by (seed, block) deals the places of the block to the sources. The places of a
 * source, numbered through all blocks, are its own samples 0, 1, ... So its order and its passes
 * do not depend on the other sources. */
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

/* Divides the places of a block among the sources. fails: ERR_INVALID when a weight is not above
 * 0, or so small that its source gets no place in a block. */
int mixture_init(struct mixture *m, const double *weight, int n, struct err *e);
/* Finds the source of sample n, and which of that source's samples it is. */
void mixture_at(const struct mixture *m, int64_t seed, int64_t n, int *source, int64_t *k);

#endif
