/* verify.h: compares the results of P ranks with those of one rank, on the user's own model and
 * text.
 *
 * The ranks run one forward and backward over the first verify.max_tokens of the user's data along
 * the path that training takes (packer, shards, ring, reduction). Then rank 0 runs the same tokens
 * by itself. Its batch is built here, directly from tokens and ends of documents; the packer only
 * says which tokens the sample has, so the packer's fragments, position map and masks are checked
 * as well. The comparison covers the number of targets, the loss, the logits (row by row, in
 * chunks) and the gradient of every tensor.
 *
 * The comparison has a limit: both sides run the same kernels on the same window, so a kernel that
 * is wrong for every number of ranks is wrong on both sides. Kernels are compared with float64
 * elsewhere (tests/engine/check_kernels.c, test_attention.c, the goldens of test_train.c).
 *
 *   rel-L2 of a tensor   |g_P - g_1| / max(|g_1|, |g| / 1000); g: the whole gradient of one rank
 *
 * The job's bound (verify.grad_rel_l2, loss_rel) limits each difference. If the job names no bound
 * and a difference exceeds half of the usual bound (or, in 16 bits, the whole bound), then the
 * differences that only roundings cause in this model on this data are measured, and they widen
 * the bound (worker/verify/rounding.h).
 *
 * A rounding can decide between two experts whose router logits are almost equal. Therefore the
 * reference follows the ranks' choice, so that it computes the same function. If the reference
 * would choose differently, the logits of the experts that the ranks chose must be close to those
 * of the reference's choice, by the reference's own logits (worker/model/routing.h).
 *
 * All rings (parallel.dp) run the same tokens, and the sums over rings are compared, so a ring
 * that computes something else changes the loss and the gradients by its share. Only the first
 * ring's logits are compared, because its rank 0 has those of the reference.
 *
 * The same comparison runs before step 1 of a training, with the training's own model
 * (verify.first_step).
 *
 * In a pipeline, pp + 1 samples go through the stages as in training (1F1B), so that every slot is
 * used and the use of another sample's stream or slot is noticed. The reference, on rank 0, runs
 * each sample when the last stage has that sample's logits. Gradients are sums over all samples.
 * Each tensor's comes from the stage that has the tensor, and a tied embedding's from the first
 * stage.
 *
 * The artifacts are verify.json (every tensor, worst first) and, with verify.keep_grads,
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
    /* On every rank: initialised, with weights loaded and gradients planned, and set for the
     * length that is compared. */
    struct model *model;
    const struct data *data;
    const char *job_dir; /* NULL if no artifacts are written */
    /* Fills all weights of the reference if they are in blocks (model.weights) and no rank has all
     * of them, because blocks that were gathered as numbers would be quantised a second time. It
     * is called on rank 0. reference has the whole model and is initialised. NULL if no weights
     * are in blocks. */
    int (*weights)(void *arg, struct model *reference, struct err *e);
    void *weights_arg;
    struct progress *progress; /* NULL if it is not reported */
    /* [PURPOSE_N] counts of one pass at that length; NULL if the plan gives them */
    const struct comm_count *want;
};

struct verify_row { /* one tensor */
    char name[64];
    int stage; /* stage of the pipeline, from 0 on */
    int index; /* in the model's order (worker/plan/plan.h), which is that of the forward pass */
    double rel_l2, allowed, cosine, norm_1, norm_p;
    /* rel-L2 that the roundings of a single rank cause; 0 if it was not measured */
    double rounding;
};

/* Counts of the experts that rows of the ranks choose, over all samples and layers. They are 0 if
 * no row chooses. */
struct verify_routes {
    /* rows, and rows for which one rank by itself would have chosen other experts */
    int64_t rows, turned;
    double gap; /* as in struct routing */
};

struct verify { /* complete only on rank 0; tokens, targets and losses are of all samples */
    bool equal;
    int n_ranks, n_stages, n_samples;
    int64_t n_tokens, targets_1, targets_p;
    double loss_1, loss_p, loss_rel, allowed_loss_rel;
    double logits_max_abs, logits_rel_l2, allowed_logits_rel_l2;
    struct verify_routes routes;
    double allowed_gap;
    /* the model's response to roundings was measured in order to widen the bounds */
    bool controlled;
    int n_rows;
    struct verify_row *row; /* owned; the tensor that exceeds its bound by most comes first */
    /* Index of the row that is nearest to the output among the rows that exceed their bounds,
     * because a fault of backward begins there; -1 if there is none. */
    int nearest;
    float *grad; /* [n_trained] gradient of the ranks on the device, while verify_run runs */
    /* this rank's counts are right; after the ranks have agreed, it means that the counts of all
     * ranks are right */
    bool ledger_equal;
    /* expected counts of the logits that this rank sends and receives for the comparison */
    struct comm_count gathered;
    struct artifact_done artifact[VERIFY_ARTIFACTS]; /* name is "" if it is not kept */
};

/* Compares the ranks with one rank. Inequality is a result, not an error. Collective. Fails with
 * errors of the data, of the device, of comm and of files. */
int verify_run(const struct verify_args *a, struct verify *out, struct err *e);
void verify_fini(struct verify *v);

/* Returns diff / norm. Returns 0 if both are 0, and infinity if only norm is 0 or if one of them
 * is not finite. */
double verify_ratio(double diff, double norm);

/* Writes one sentence about the inequality, which names the worst tensor, into e (ERR_CORRUPT).
 * Returns -1. */
int verify_sentence(const struct verify *v, struct err *e);

#endif
