/* verify.h: compares the results of P ranks with those of one rank, on the user's own model and
 * text.
 *
 * The ranks run one forward and backward over the first verify.max_tokens of the user's data
 * along the path that training takes (packer, shards, ring, reduction). Rank 0 then runs the
 * same tokens alone, and its batch is built here, straight from tokens and document ends: the
 * packer only says which tokens the sample has, and its fragments, position map and masks are
 * checked. Compared: the number of targets, the loss, the logits (row by row, in chunks) and
 * the gradient of every tensor.
 *
 * It has a limit: both sides run the same kernels on the same choice of window, so a kernel
 * that is wrong for every number of ranks is wrong on both. Kernels are compared with float64
 * elsewhere (tests/engine/check_kernels.c, test_attention.c, the goldens of test_train.c).
 *
 *   rel-L2 of a tensor   |g_P - g_1| / max(|g_1|, |g| / 1000), g the whole gradient of one rank
 *
 * The job's bound (verify.grad_rel_l2, loss_rel) limits each difference. If the job names none
 * and a difference is beyond half of the usual bound (in 16 bits: beyond the bound), the
 * differences that roundings alone make in this model on this data are measured, and widen it
 * (worker/verify/rounding.h).
 *
 * A rounding decides between two experts whose router logits are almost equal. The reference
 * follows the ranks' choice, and so computes the same function; if the reference would choose
 * otherwise, the ranks' choice must be near its own by its own logits (worker/model/routing.h).
 *
 * All rings (parallel.dp) run the same tokens, and the sums over them are compared: a ring that
 * computes something else moves the loss and the gradients by its share. Only the first ring's
 * logits are compared: its rank 0 has the reference's.
 *
 * The same comparison runs before step 1 of a training, with the training's own model
 * (verify.first_step).
 *
 * In a pipeline pp + 1 samples go through the stages as in training (1F1B), so that every slot is
 * used, and the use of another sample's stream or slot shows. The reference, on rank 0, runs each
 * when the last stage has its logits; gradients are the sums over all, each tensor's from the
 * stage that has it, a tied embedding's from the first.
 *
 * Kept as artifacts: verify.json (every tensor, worst first), and with verify.keep_grads
 * grads-sp1.safetensors and grads-spP.safetensors. */
#ifndef SEQD_VERIFY_VERIFY_H
#define SEQD_VERIFY_VERIFY_H

#include <stdbool.h>
#include "api/core/artifact.h"
#include "worker/data/data.h"
#include "worker/model/model.h"

#define VERIFY_ARTIFACTS 3

struct verify_args {
    const struct job_spec *spec;
    struct model
        *model; /* on every rank: initialised, weights loaded, gradients planned, set for the
                          * length that is compared */
    const struct data *data;
    const char *job_dir; /* NULL: no artifacts */
    /* Fills all weights of the reference, where they lie in blocks (model.weights) and no rank has
     * all of them: blocks that are gathered as numbers would be quantised again. Called on rank 0.
     * reference has the whole model and is initialised. NULL: no weights lie in blocks. */
    int (*weights)(void *arg, struct model *reference, struct err *e);
    void *weights_arg;
    struct progress *progress;     /* NULL: not reported */
    const struct comm_count *want; /* [PURPOSE_N] of one pass at that length; NULL: by the plan */
};

struct verify_row { /* one tensor */
    char name[64];
    int stage; /* stage of a pipeline, from 0 */
    int index; /* in the model's order (worker/plan/plan.h), which is that of forward */
    double rel_l2, allowed, cosine, norm_1, norm_p;
    double rounding; /* rel-L2 that one rank's own roundings make; 0: not measured */
};

/* Counts of the experts that rows of the ranks choose, over all samples and layers; 0 if no row
 * chooses. */
struct verify_routes {
    int64_t rows, turned; /* turned: one rank alone would have chosen other experts */
    double gap;           /* as in struct routing */
};

struct verify { /* complete on rank 0 only; tokens, targets and losses are of all samples */
    bool equal;
    int n_ranks, n_stages, n_samples;
    int64_t n_tokens, targets_1, targets_p;
    double loss_1, loss_p, loss_rel, allowed_loss_rel;
    double logits_max_abs, logits_rel_l2, allowed_logits_rel_l2;
    struct verify_routes routes;
    double allowed_gap;
    bool controlled; /* the model's response to roundings was measured for wider bounds */
    int n_rows;
    struct verify_row *row; /* owned, farthest beyond its bound first */
    int nearest; /* row beyond its bound that is nearest to the output, where a fault of backward
                  * begins; -1: none is */
    float *grad; /* [n_params] the ranks' gradient on the device, while verify_run runs */
    bool ledger_equal;          /* this rank's counts are right; once agreed: all ranks' */
    struct comm_count gathered; /* expected counts of logits that this rank moves for the
                                 * comparison */
    struct artifact_done artifact[VERIFY_ARTIFACTS]; /* name "": not kept */
};

/* Compares the ranks with one rank. Inequality is a result, not an error. Collective. fails: the
 * data's, the device's, comm's and file errors. */
int verify_run(const struct verify_args *a, struct verify *out, struct err *e);
void verify_fini(struct verify *v);

/* Returns diff / norm; 0 if both are 0, infinite if only norm is 0 or one is not finite. */
double verify_ratio(double diff, double norm);

/* Writes one sentence about the inequality, with the worst tensor's name, into e (ERR_CORRUPT).
 * Returns -1. */
int verify_sentence(const struct verify *v, struct err *e);

#endif
