/* mixture.h: finds the source of each sample of a weighted mixture.
 *
 * Samples are divided into blocks of MIXTURE_BLOCK. The number of places that a source has in
 * a block is the same for all blocks. This number is the source's share of all weights,
 * rounded by the method of largest remainders. If two remainders are equal, the remainder of
 * the earlier source is treated as larger. For this reason shares with three decimals are
 * exact. A permutation keyed by (seed, block) decides which places of the block belong to
 * which source. The places of a source are counted through all blocks. Place k of a source
 * gets sample k of that source. For this reason the order and the passes of a source do not
 * depend on the other sources. */
#ifndef SEQD_DATA_MIXTURE_H
#define SEQD_DATA_MIXTURE_H

#include <stdint.h>
#include "api/core/err.h"
#include "api/core/limits.h"

#define MIXTURE_BLOCK 1000

struct mixture {
    int n_sources;
    int64_t share[SPEC_SOURCES]; /* samples of each source in a block; their sum is
                                  * MIXTURE_BLOCK */
};

/* Divides the places of a block among the sources. Fails with ERR_INVALID if a weight is not above
 * 0, or if it is so small that its source gets no place in a block. */
int mixture_init(struct mixture *m, const double *weight, int n, struct err *e);
/* Finds the source of sample n. *k gets the index of the sample among the samples of that
 * source. */
void mixture_at(const struct mixture *m, int64_t seed, int64_t n, int *source, int64_t *k);

#endif
