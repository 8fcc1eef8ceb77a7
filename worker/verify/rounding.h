/* rounding.h: measures how far one rank's results move when its roundings differ.
 *
 * P ranks and one rank do the same arithmetic, but they round in different places: sums over
 * tokens are divided elsewhere, and partial results are merged in another order. The two results
 * then differ by the model's response to roundings. This response is a property of the model,
 * because a norm that divides by a small number, or a gradient that is the small difference of
 * large numbers, multiplies the roundings. So this response is measured, on one rank only, where
 * no exchange can be at fault.
 *
 * The reference runs several times more, each time with the last bit inverted in another eighth of
 * the elements of its first weights (those of `in`: the embedding). This changes the first layer's
 * input by 0.35 units in the last place (rms), which is about as much as two roundings of one
 * number differ (0.41), and is enough to make every later rounding independent of the same
 * rounding in the first run. P ranks and one rank share most of their roundings. At worst they
 * share none, and then they differ as two runs of the reference do. So the rule is
 *
 *   |g_P - g_1| <= margin max_k |g_k - g_1|     for every tensor, and for the logits
 *
 * The margin allows for chance. In a deep model, one direction, that of the first layers' error,
 * may carry all of a tensor's difference. The difference on either side of the rule is then a
 * single normally distributed number. The probability that the differences of all m runs are below
 * 1/r of the ranks' difference is at most (2 / pi)^(m / 2) (m - 1)!! / r^m. With one run and r =
 * 2, one in three correct proofs of such a tensor would be refused; with four runs and r = 10, one
 * in eight thousand.
 *
 * In 16 bits, one run and r = 2 are enough, because the ranks sum in fp32 and so share all
 * roundings to 16 bits except those of sums near a tie, while the runs share none. A larger margin
 * would hide faults of a few tokens. */
#ifndef SEQD_VERIFY_ROUNDING_H
#define SEQD_VERIFY_ROUNDING_H

#include "worker/model/model.h"

/* The rule by which bounds are measured, for weights of a dtype. */
struct rounding_rule {
    int runs;
    double margin;
    double noise; /* factor, besides the margin, for a tensor that consists only of rounding */
    /* the reference runs again only if a difference exceeds this share of its bound */
    double near;
    double apart; /* least error of the loss, in deviations of the sum over tokens */
};

struct rounding_rule rounding_rule(enum dtype params);

/* The results of a sample's first run, and how far another run is from them, over all samples.
 * Zero at first. */
struct rounding {
    double *nll; /* [T] owned */
    float *rows; /* [n_rows + 1, cols], owned: logits or predictions; the last row is spare */
    int64_t n_rows, cols;
    /* distance between the kept rows, which are rows 0, gap, 2 gap, ... of a sample */
    int64_t gap;
    double sum, square, one, diff, norm;
    double loss_rel, logits_rel_l2; /* largest values of all runs that have ended */
};

/* Keeps the loss and the logits that ref has just computed for the sample in its batch. Fails with
 * ERR_IO if there is no memory. */
int rounding_keep(struct rounding *c, struct model *ref, struct err *e);
/* Runs the kept sample again, as a part of the run with the index `run`. Adds its gradient to
 * ref->grad, and restores the weights. */
int rounding_run(struct rounding *c, struct model *ref, int run, float scale, struct err *e);
/* Ends a run, after its last sample. */
void rounding_end(struct rounding *c, enum dtype params);
void rounding_fini(struct rounding *c);

#endif
