/* rounding.h: how far one rank's results move when its roundings differ.
 *
 * P ranks and one do the same arithmetic, but round in other places: sums over tokens are cut
 * elsewhere, partial results are merged in another order. The two results then differ by what the
 * model makes of roundings, and that is the model's own: a norm that divides by a small number, or
 * a gradient that is the rest of a difference, multiplies them. So it is measured, with the one
 * rank alone, where no exchange can be at fault.
 *
 * The reference runs a second time with the last bit of every eighth element of its first weights
 * (those of `in`: the embedding) inverted. That is 0.35 units in the last place rms of what the
 * first layer reads, as two roundings of one number differ (0.41), and enough to make every
 * rounding after it independent of that in the first run. P ranks and one share most of their
 * roundings; at worst they share none, and then they differ as the two runs of the reference do:
 *
 *   |g_P - g_1| <= ROUNDING_MARGIN |g_2 - g_1|       of every tensor, and of the logits
 *
 * The margin is for what is drawn twice: a tensor of few elements, an expert chosen otherwise. */
#ifndef SEQD_VERIFY_ROUNDING_H
#define SEQD_VERIFY_ROUNDING_H

#include "worker/model/model.h"

#define ROUNDING_MARGIN 2

/* What the first run leaves of a sample, and how far the second is from it, of all samples. Zero at
 * first. */
struct rounding {
    double *nll; /* [T] owned */
    float *rows; /* [n_rows + 1, cols] owned: logits, or predictions; the last is spare */
    int64_t n_rows, cols;
    int64_t gap; /* rows 0, gap, 2 gap, ... of a sample */
    double sum, square, one, diff, norm;
    double loss_rel, logits_rel_l2; /* after rounding_end */
};

/* The sample in ref's batch, of which ref has just made loss and logits, again: added to ref->grad;
 * the weights are as they were. fails: ERR_IO without memory. */
int rounding_run(struct rounding *c, struct model *ref, float scale, struct err *e);
void rounding_end(struct rounding *c);
void rounding_fini(struct rounding *c);

#endif
