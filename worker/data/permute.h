/* permute.h: permutes the order of samples without a table in memory. */
#ifndef SEQD_DATA_PERMUTE_H
#define SEQD_DATA_PERMUTE_H

#include <stdint.h>

/* Returns the position of i in the permutation of [0, n) that is keyed by (seed, pass). The
 * result depends neither on the number of ranks nor on earlier calls, so a resumed job gets
 * the order of the interrupted job. */
int64_t permute(int64_t i, int64_t n, int64_t seed, int64_t pass);

#endif
