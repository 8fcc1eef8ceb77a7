/* eval.h: computes the loss of held-out windows in the middle of a training, in its buffers.
 *
 *   loss = sum of nll over all targets of the windows / number of those targets
 *
 * Window w is forwarded by ring w mod dp; a ring sums each window over its ranks, adds its windows
 * in order, and the rings' sums are added at the end. It computes no gradient and allocates no
 * memory. It changes only the training's activations and the batch, which the next step fills
 * again. It is a step of its own in the ledger, compared with plan_eval_comm; for latents these
 * counts are taken at the grid of each sample. tested: tests/engine/test_eval.c,
 * test_flow_train.c */
#ifndef SEQD_TRAIN_EVAL_H
#define SEQD_TRAIN_EVAL_H

#include "worker/train/train.h"

struct eval_args {
    struct train_source source;    /* windows 0, 1, ... */
    int64_t n_windows;             /* at least 1 */
    int64_t seq_len;               /* tokens of a window, at most the plan's S; unused for
                                    * latents */
    const struct comm_count *want; /* this rank's plan_eval_comm */
    bool (*stopped)(void *arg);    /* asked between windows; NULL: never */
    void *arg;
};

struct eval {
    double loss;              /* NaN without a target */
    int64_t targets, windows; /* sums over all rings */
    int64_t n_bytes;          /* bytes of the targets: as the source says, else the number of
                               * targets below 256, which are bytes if the data is text */
    bool ledger_equal;        /* on all ranks; CONTROL's verdict comes with the next step's */
};

/* Scores the windows; *out has the same numbers on every rank. Leaves the model at the length it
 * had; for latents, at the grid of the last sample. Collective. fails: the data's and comm's
 * errors; ERR_CORRUPT for a loss that is NaN or infinite; ERR_ABORTED when stopped. */
int eval_run(struct train *t, const struct eval_args *a, struct eval *out, struct err *e);

double eval_bits_per_byte(const struct eval *v); /* NaN where n_bytes is not positive */

#endif
