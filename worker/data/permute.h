/* permute.h: permutations that need no memory, for the order of samples. */
#ifndef SEQD_DATA_PERMUTE_H
#define SEQD_DATA_PERMUTE_H

#include <stdint.h>

/* Returns the position of i, which lies in [0, n), in the permutation keyed by (seed, pass). It
 * depends neither on the number of ranks nor on earlier calls, so that a resumed job gets the same
 * position. */
int64_t permute(int64_t i, int64_t n, int64_t seed, int64_t pass);

#endif
