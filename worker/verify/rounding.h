/* rounding.h: how far one rank's results move when its roundings differ.
 *
 * P ranks and one do the same arithmetic, but round in other places: sums over tokens are cut
 * elsewhere, partial results are merged in another order. The two results then differ by the
 * model's response to roundings, which is its own: a norm that divides by a small number, or a
 * gradient that is the rest of a difference, multiplies them. So it is measured, with the one rank
 * alone, where no exchange can be at fault.
 *
 * The reference runs several times more, each time with the last bit inverted in another eighth of
 * the elements of its first weights (those of `in`: the embedding). That is 0.35 units in the last
 * place rms of the first layer's input, as two roundings of one number differ (0.41), and enough
 * to make every rounding after it independent of that in the first run. P ranks and one share most
 * of their roundings; at worst they share none, and then they differ as two runs of the reference
 * do:
 *
 *   |g_P - g_1| <= margin max_k |g_k - g_1|     of every tensor, and of the logits
 *
 * The margin allows for chance. In a deep model one direction, that of the first layers' error,
 * may carry all of a tensor's difference, which then is one normal number on both sides: all of m
 * runs lie below 1/r of it with a probability of at most (2 / pi)^(m / 2) (m - 1)!! / r^m. One run
 * and r = 2 refuse one honest proof in three of such a tensor, four runs and r = 10 one in eight
 * thousand.
 *
 * In 16 bits one run and r = 2 are enough: ranks sum in fp32 and share all roundings to 16 bits but
 * those of sums near a tie, where the runs share none. More would hide faults of a few tokens. */
#ifndef SEQD_VERIFY_ROUNDING_H
#define SEQD_VERIFY_ROUNDING_H

#include "worker/model/model.h"

/* The rule for measuring bounds, for weights of a dtype. */
struct rounding_rule {
    int runs;
    double margin;
    double noise; /* factor beside the margin, for a tensor that is all rounding */
    double near;  /* runs measure only if a difference is beyond this part of its bound */
    double apart; /* the loss's error is at least this many deviations of the sum over tokens */
};

struct rounding_rule rounding_rule(enum dtype params);

/* Results of a sample's first run, and the distance of another run from them, over all samples.
 * Zero at first. */
struct rounding {
    double *nll; /* [T] owned */
    float *rows; /* [n_rows + 1, cols] owned: logits, or predictions; the last is spare */
    int64_t n_rows, cols;
    int64_t gap; /* rows 0, gap, 2 gap, ... of a sample */
    double sum, square, one, diff, norm;
    double loss_rel, logits_rel_l2; /* largest values of the runs that have ended */
};

/* Keeps the loss and logits that ref has just made of the sample in its batch. fails: ERR_IO
 * without memory. */
int rounding_keep(struct rounding *c, struct model *ref, struct err *e);
/* Runs the kept sample again, in run `run`. Its gradient is added to ref->grad; the weights are
 * restored. */
int rounding_run(struct rounding *c, struct model *ref, int run, float scale, struct err *e);
/* Ends a run, after its last sample. */
void rounding_end(struct rounding *c, enum dtype params);
void rounding_fini(struct rounding *c);

#endif
