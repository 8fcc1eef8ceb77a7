/* mask.h: chooses the tokens that a masked language model must predict (arXiv 1810.04805, 3.1),
 * and the ids that the model gets in place of these tokens. In 80 of 100 cases the model gets the
 * id of the mask token, in 10 cases the id of a random token, and in 10 cases the id of the token
 * itself.
 *
 * These choices depend only on the seed, the set, the sample's index and the position in the
 * sample, so that the same tokens are hidden on any number of ranks. The sample's index is
 * counted over all passes, so that each pass over a text hides other tokens of this text. */
#ifndef SEQD_DATA_MASK_H
#define SEQD_DATA_MASK_H

#include <stdint.h>

struct mask_rule {
    double prob; /* share of tokens that must be predicted; 0 means that no tokens are hidden */
    int64_t seed;
    int set;         /* enum data_set */
    int32_t hidden;  /* id of the mask token, which replaces a hidden token */
    int32_t n_other; /* random tokens are drawn from [0, n_other) */
    int32_t special; /* ids [special, special + n_special), which are ends and padding, are never
                      * hidden */
    int32_t n_special;
};

/* Returns the id that the model gets in place of `id` at position pos of sample n. *target
 * becomes `id` if the model must predict this token. Otherwise *target becomes -1. */
int32_t mask_token(const struct mask_rule *r, int64_t n, int64_t pos, int32_t id, int32_t *target);

#endif
