/* mask.h: the tokens that a masked language model must predict (1810.04805, 3.1), and the tokens
 * that it sees in their place: the mask in 80 of 100, a random token in 10, the token itself in
 * 10.
 *
 * Both depend only on the seed, the set, the sample's number and the position in the sample: the
 * same tokens are hidden on any number of ranks. The sample's number continues from pass to pass,
 * so that other tokens of a sample are hidden in each pass. */
#ifndef SEQD_DATA_MASK_H
#define SEQD_DATA_MASK_H

#include <stdint.h>

struct mask_rule {
    double prob; /* share of tokens that must be predicted; 0: tokens are not hidden */
    int64_t seed;
    int set;         /* enum data_set */
    int32_t hidden;  /* the id that stands for a hidden token */
    int32_t n_other; /* random tokens are drawn from [0, n_other) */
    int32_t special; /* ids [special, special + n_special) are never hidden: ends, padding */
    int32_t n_special;
};

/* Returns the id that the model sees in place of `id` at position pos of sample n; *target: id if
 * the model must predict it, else -1. */
int32_t mask_token(const struct mask_rule *r, int64_t n, int64_t pos, int32_t id, int32_t *target);

#endif
