/* feed.h: opens the samples of a training job. There is one order for each sequence length
 * that a stage has, and one order for the windows of the held-out evaluation. In every stage a
 * window of the evaluation has eval.seq_len tokens (data.seq_len if eval.seq_len is not
 * given), so that the losses of all stages can be compared. For a diffusion model one order is
 * enough, because its samples may have any length. */
#ifndef SEQD_RANK_FEED_H
#define SEQD_RANK_FEED_H

#include "worker/data/flow_batch.h"
#include "worker/rank/run.h"
#include "worker/train/train.h"

struct feed {
    struct data_order
        /* Owned. The order of stage i is at index i + 1. It is NULL if an earlier stage has
         * the same sequence length, because stages of equal length share the order of the
         * first of these stages. */
        *order[SPEC_STAGES + 1];
    struct data_order *eval; /* owned; NULL if there is no evaluation */
    /* number of samples of `eval` that eval.max_tokens allows; >= 1 */
    int64_t n_eval;
    struct flow_source train_latents, eval_latents; /* orders of the training and of the
                                                     * evaluation, for a diffusion model */
};

/* Opens the orders of samples (struct data_order) of the training. They use the data of r until
 * feed_close. Call feed_close even if this function fails. Fails as data_order_open does. */
int feed_open(struct feed *f, struct run *r, struct err *e);
void feed_close(struct feed *f);

struct train_source feed_stage(const struct feed *f, const struct job_spec *s, int stage);
struct train_source feed_eval(const struct feed *f, const struct job_spec *s);

/* Counts the sequences of one pass over the data at the length of each stage. These numbers
 * are needed if the length of the run is given in passes. */
int feed_samples(const struct run *r, int64_t samples[SPEC_STAGES + 1], struct err *e);

#endif
