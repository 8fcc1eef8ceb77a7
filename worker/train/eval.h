/* eval.h: computes the loss of held-out windows in the middle of a training, in the training's
 * buffers.
 *   loss = sum of nll over all targets of the windows / number of those targets
 * Ring w mod dp computes window w. A ring sums the loss of each window over its ranks, and adds
 * the losses of its windows in order. The sums of the rings are added at the end. An evaluation
 * computes no gradient and allocates no memory. If preferences are learnt, the loss is the mean
 * over pairs of answers (prefer.h), and the targets are the pairs. The references of their answers
 * must have been computed. It changes only the training's activations and the
 * batch, which the next step fills again. In the ledger an evaluation is a separate step, whose
 * counts are compared with plan_eval_comm. For latents the expected counts are computed for the
 * grid of each sample.
 * tested: tests/engine/test_eval.c, test_flow_train.c */
#ifndef SEQD_TRAIN_EVAL_H
#define SEQD_TRAIN_EVAL_H

#include "worker/train/train.h"

struct eval_args {
    struct train_source source; /* gives windows 0, 1, ... */
    int64_t n_windows;          /* at least 1 */
    /* tokens of a window: at most the S of the plan; latents do not use it */
    int64_t seq_len;
    const struct comm_count *want; /* this rank's plan_eval_comm */
    /* called between windows; if it returns true, the evaluation stops; may be NULL */
    bool (*stopped)(void *arg);
    void *arg;
};

struct eval {
    double loss;                      /* NaN without a target */
    int64_t targets, windows;         /* sums over all rings */
    double preference[PREFER_VALUES]; /* with pairs: means over them; otherwise 0 */
    /* Text bytes of the targets, as the source's function `bytes` counts them. If the source does
     * not have this function, this is the number of targets whose id is below 256. If the data is
     * text, each of these ids is one byte. 0 with pairs. */
    int64_t n_bytes;
    /* Tells whether the counts were equal to the plan's on all ranks. The counts of CONTROL are
     * compared in the next step, and the verdict of that step has the result. */
    bool ledger_equal;
};

/* Scores the windows. *out has the same numbers on every rank. Afterwards the model is set for the
 * length for which it was set before. With latents, it is set for the grid of the last sample
 * instead. Collective. Fails with the errors of the data and of comm. Fails with ERR_CORRUPT if a
 * loss is NaN or infinite, and with ERR_ABORTED if the evaluation was stopped. */
int eval_run(struct train *t, const struct eval_args *a, struct eval *out, struct err *e);

double eval_bits_per_byte(const struct eval *v); /* returns NaN if n_bytes is not positive */

#endif
