/* verify.h: compares the results of P ranks with those of one rank, on the user's own model and
 * text.
 *
 * The ranks run one forward and backward over the first verify.max_tokens of the user's data along
 * the path that training takes (packer, shards, ring, reduction). Then rank 0 runs the same tokens
 * by itself. worker/verify builds the batch of rank 0 from tokens and ends of documents. Only the
 * choice of the sample's tokens comes from the packer, so the packer's fragments, position map and
 * masks are checked as well. The comparison covers the number of targets, the loss, the logits
 * (row by row, in chunks) and the gradient of every tensor.
 *
 * The comparison cannot find every fault. The ranks and the reference run the same kernels on the
 * same window. If a kernel is wrong for every number of ranks, the ranks and the reference get
 * equal wrong results. Other tests compare the kernels with float64 (tests/engine/check_kernels.c,
 * test_attention.c, the goldens of test_train.c).
 *
 *   rel-L2 of a tensor   |g_P - g_1| / max(|g_1|, |g| / 1000); g: the whole gradient of one rank
 *
 * The job's bounds (verify.grad_rel_l2, loss_rel) limit each difference. If the job names no
 * bound, the usual bound applies, and it can be widened. In fp32 this is tried if a difference
 * exceeds half of the usual bound; in 16 bits, if it exceeds the whole bound. To widen the bound,
 * the differences that only roundings cause in this model on this data are measured
 * (worker/verify/rounding.h).
 *
 * A rounding can decide between two experts whose router logits are almost equal. Therefore the
 * reference uses the experts that the ranks chose, so that the ranks and the reference compute one
 * function. If the reference by itself would choose other experts, the proof compares the
 * reference's router logits of both choices. These logits must be nearly equal
 * (worker/model/routing.h).
 *
 * All rings (parallel.dp) run the same tokens, and the sums over rings are compared. So a ring
 * that computes something else changes the loss and the gradients by its share. Logits are
 * compared only for the first ring, because rank 0 of that ring has the logits of the reference.
 *
 * If the job learns preferences, the loss is a mean over pairs of answers, and the proof also
 * compares the pairs that the packer describes, the references of their answers, the sums of the
 * answers' losses, and the factors of all rows (worker/verify/pairs.h). The gradients depend on all
 * of them, so the first of these that differs is named if the logits are equal.
 *
 * The same comparison runs before step 1 of a training, with the training's own model
 * (verify.first_step).
 *
 * In a pipeline, pp + 1 samples go through the stages as in training (1F1B). So every slot is
 * used, and a stage that uses the stream or the slot of another sample is noticed. The reference,
 * on rank 0, runs each sample when the last stage has that sample's logits. Gradients are sums
 * over all samples. The gradient of a tensor comes from the stage that has the tensor. The
 * gradient of a tied embedding comes from the first stage.
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
    /* The model of this rank. It must be initialised and set for the length that is compared. Its
     * weights must be loaded, and its plan must include gradients. */
    struct model *model;
    const struct data *data;
    const char *job_dir; /* NULL if no artifacts are written */
    /* Fills all weights of the reference. NULL if no weights are in blocks (model.weights). It is
     * called on rank 0 if the weights are in blocks and no rank has all weights. The weights
     * cannot be gathered from the ranks in this case, because they would be gathered as numbers
     * and then be quantised a second time. `reference` has the whole model and is initialised. */
    int (*weights)(void *arg, struct model *reference, struct err *e);
    void *weights_arg;
    struct progress *progress; /* NULL if it is not reported */
    /* [PURPOSE_N] counts of one pass at the length that is compared; NULL if the plan gives
     * them */
    const struct comm_count *want;
};

struct verify_row { /* one tensor */
    char name[64];
    int stage; /* stage of the pipeline, counted from 0 */
    /* index in the model's order (worker/plan/plan.h), which is the order of the forward pass */
    int index;
    double rel_l2, allowed, cosine, norm_1, norm_p;
    /* rel-L2 that the roundings of a single rank cause; 0 if it was not measured */
    double rounding;
};

/* Counts of the choices of experts, over all rows, samples and layers. They are 0 if the model has
 * no choice of experts. */
struct verify_routes {
    /* rows: number of rows that chose; turned: number of rows for which one rank by itself would
     * have chosen experts other than those of P ranks */
    int64_t rows, turned;
    double gap; /* as in struct routing */
};

/* The parts of a proof that learns preferences. Each is a list of numbers, one for each answer or
 * row of all samples. */
enum verify_pair_part {
    VERIFY_SUMS,       /* nll of the answers */
    VERIFY_REFERENCES, /* log-probabilities of the answers before the training */
    VERIFY_FACTORS,    /* factors of the rows' losses */
    VERIFY_PAIR_PARTS
};

struct verify_answer {
    bool set;
    int64_t document;
    double one, many; /* the number of one rank, and that of the ranks */
};

struct verify_pairs {
    int64_t n_1, n_p; /* number of pairs of all samples; 0 if the job learns no preferences */
    struct {
        double rel_l2, allowed;     /* as in struct verify_row */
        struct verify_answer worst; /* the answer with the largest difference */
    } part[VERIFY_PAIR_PARTS];
    /* The packer describes an answer otherwise than the reference has found it. `one` and `many`
     * are the first answers that differ. If only the number of a sample's answers differs, they
     * are the first answers of that sample. */
    bool misplaced;
    struct data_answer one, many;
};

struct verify { /* complete only on rank 0; tokens, targets and losses are sums over all samples */
    bool equal;
    int n_ranks, n_stages, n_samples;
    int64_t n_tokens, targets_1, targets_p;
    double loss_1, loss_p, loss_rel, allowed_loss_rel;
    double logits_max_abs, logits_rel_l2, allowed_logits_rel_l2;
    struct verify_routes routes;
    double allowed_gap;
    struct verify_pairs pairs;
    /* the model's response to roundings was measured in order to widen the bounds */
    bool controlled;
    int n_rows;
    /* owned; the tensor whose error exceeds its bound by the largest factor comes first */
    struct verify_row *row;
    /* Index of the row nearest to the output among the rows that exceed their bounds. A fault of
     * the backward pass begins at this row. -1 means that no row exceeds its bound. */
    int nearest;
    /* [n_trained] gradient of the ranks, on the device; valid while verify_run runs */
    float *grad;
    /* Tells whether this rank's counts are right or, after the ranks have agreed, whether the
     * counts of all ranks are right. */
    bool ledger_equal;
    /* expected counts of the logits that this rank sends and receives for the comparison */
    struct comm_count gathered;
    struct artifact_done artifact[VERIFY_ARTIFACTS]; /* name is "" if it is not kept */
};

/* Compares the ranks with one rank. If the results are not equal, this is recorded in the verdict
 * and is not an error. Collective. Fails with errors of the data, of the device, of comm and of
 * files. */
int verify_run(const struct verify_args *a, struct verify *out, struct err *e);
void verify_fini(struct verify *v);

/* Returns diff / norm. Returns 0 if both are 0. Returns infinity if only norm is 0, or if diff or
 * norm is not finite. */
double verify_ratio(double diff, double norm);

/* Sets e to ERR_CORRUPT and to a sentence about the differences, which names the worst tensor.
 * Returns -1. */
int verify_sentence(const struct verify *v, struct err *e);

#endif
