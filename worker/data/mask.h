/* mask.h: chooses the tokens that a masked language model must predict (1810.04805, 3.1), and the
 * tokens that the model sees in their place: the mask in 80 of 100 cases, a random token in 10,
 * the token itself in 10.
 *
 * Both depend only on the seed, the set, the sample's number and the position in the sample, so
 * that the same tokens are hidden on any number of ranks. The sample's number is counted over all
 * passes, so that in each pass other tokens of the same text are hidden. */
#ifndef SEQD_DATA_MASK_H
#define SEQD_DATA_MASK_H

#include <stdint.h>

struct mask_rule {
    double prob; /* share of tokens that must be predicted; 0 means that no tokens are hidden */
    int64_t seed;
    int set;         /* enum data_set */
    int32_t hidden;  /* the id that stands for a hidden token */
    int32_t n_other; /* random tokens are drawn from [0, n_other) */
    int32_t special; /* ids [special, special + n_special), which are ends and padding, are never
                      * hidden */
    int32_t n_special;
};

/* Returns the id that the model sees in place of `id` at position pos of sample n. *target becomes
 * id if the model must predict it, otherwise -1. */
int32_t mask_token(const struct mask_rule *r, int64_t n, int64_t pos, int32_t id, int32_t *target);

#endif
