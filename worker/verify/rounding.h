/* rounding.h: measures by how much the results of one rank change if its roundings change.
 *
 * P ranks and one rank do the same arithmetic, but they round in different places: sums over
 * tokens are divided into different parts, and the partial results are added in a different order.
 * The results of P ranks and of one rank then differ by the model's response to roundings. The
 * response is a property of the model. For example, a norm that divides by a small number
 * multiplies the roundings, and so does a gradient that is the small difference of large numbers.
 * The response is measured on one rank only, because a single rank has no exchange that can be
 * wrong.
 *
 * The reference runs several more times. Each run inverts the last bit in about one eighth of the
 * elements of its first weights, and chooses these elements differently (the weights of section
 * `in`: the embedding). This changes the first layer's input by 0.35 units in the last place
 * (rms). Two roundings of one number differ by about as much (0.41). The change is enough to make
 * every later rounding independent of the corresponding rounding in the first run. P ranks and one
 * rank share most of their roundings. At worst they share none, and their results then differ by
 * as much as those of two runs of the reference. So the rule is
 *
 *   |g_P - g_1| <= margin max_k |g_k - g_1|     for every tensor, and for the logits
 *
 * The margin allows for chance. In a deep model, all of a tensor's difference may come from the
 * error of the first layers, and so have one direction. Each difference in the rule is then a
 * single normally distributed number. Let m be the number of runs and r the margin. The
 * probability that the ranks' difference exceeds r times the difference of every run is at most (2
 * / pi)^(m / 2) (m - 1)!! / r^m. With one run and r = 2, one in three correct proofs of a tensor
 * whose difference has one direction would be refused. With four runs and r = 10, one in eight
 * thousand would be refused.
 *
 * In 16 bits, one run and r = 2 are enough. The ranks sum in fp32, so they share all roundings to
 * 16 bits except the roundings of sums near a tie, whereas the runs share no rounding. A larger
 * margin would hide faults of a few tokens. */
#ifndef SEQD_VERIFY_ROUNDING_H
#define SEQD_VERIFY_ROUNDING_H

#include "worker/model/model.h"

/* The rule by which bounds are measured. It depends on the dtype of the weights. */
struct rounding_rule {
    int runs;
    double margin;
    double noise; /* a further factor of the margin, for a tensor that consists only of rounding */
    /* the reference runs again only if a difference exceeds this share of its bound */
    double near;
    /* The error of the loss counts as at least this number of standard deviations of the sum over
     * tokens. */
    double apart;
};

struct rounding_rule rounding_rule(enum dtype params);

/* The results of a sample's first run, and the differences between these results and the results
 * of a later run, summed over all samples. All zeros at first. */
struct pairs_one;
struct rounding {
    struct pairs_one *pairs; /* NULL if the job learns no preferences */
    double *nll;             /* [T] owned */
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
/* Runs the kept sample again in the run with index `run`. Adds the gradient to ref->grad, and
 * restores the weights afterwards. */
int rounding_run(struct rounding *c, struct model *ref, int run, float scale, struct err *e);
/* Ends a run. Call it after the last sample of the run. */
void rounding_end(struct rounding *c, enum dtype params);
void rounding_fini(struct rounding *c);

#endif
