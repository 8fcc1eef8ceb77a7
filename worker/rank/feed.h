/* feed.h: opens the samples of a training job: one order for each sequence length that its stages
 * have, and the windows of its held-out evaluation. In every stage the windows have eval.seq_len
 * tokens (data.seq_len if eval.seq_len is not given), so that the losses of all stages can be
 * compared. The samples of a diffusion model may have any length, so one order is enough for
 * them. */
#ifndef SEQD_RANK_FEED_H
#define SEQD_RANK_FEED_H

#include "worker/data/flow_batch.h"
#include "worker/rank/run.h"
#include "worker/train/train.h"

struct feed {
    struct data_order
        *order[SPEC_STAGES + 1]; /* owned; the order of stage i is at i + 1; NULL if an earlier
                                  * stage has the same length */
    struct data_order *eval;     /* owned; NULL if there is no evaluation */
    int64_t n_eval;              /* number of its samples that eval.max_tokens allows; >= 1 */
    struct flow_source train_latents, eval_latents; /* a diffusion model's: the same orders */
};

/* Opens the orders. Borrows r's data until feed_close, which must be called even if this function
 * fails. Fails with the errors of the data. */
int feed_open(struct feed *f, struct run *r, struct err *e);
void feed_close(struct feed *f);

struct train_source feed_stage(const struct feed *f, const struct job_spec *s, int stage);
struct train_source feed_eval(const struct feed *f, const struct job_spec *s);

/* Counts the sequences of one pass over the data at each stage's length, for a run whose length is
 * given in passes. */
int feed_samples(const struct run *r, int64_t samples[SPEC_STAGES + 1], struct err *e);

#endif
