/* feed.h: the samples of a training job: the order of each length that its stages have, and the
 * windows of its held-out evaluation, which have eval.seq_len tokens (data.seq_len if it is not
 * given) in every stage, so that its losses can be compared. A diffusion model's samples are of
 * any length: one order serves. */
#ifndef SEQD_RANK_FEED_H
#define SEQD_RANK_FEED_H

#include "worker/data/flow_batch.h"
#include "worker/rank/run.h"
#include "worker/train/train.h"

struct feed {
    struct data_order
        *order[SPEC_STAGES + 1]; /* owned; stage i has i + 1; NULL: length of an earlier stage */
    struct data_order *eval;     /* owned; NULL: no evaluation */
    int64_t n_eval;              /* its samples that eval.max_tokens allows, at least 1 */
    struct flow_source train_latents, eval_latents; /* a diffusion model's: the same orders */
};

/* Opens the orders. Borrows r's data until feed_close, which also closes a feed that failed to
 * open. fails: the data's errors. */
int feed_open(struct feed *f, struct run *r, struct err *e);
void feed_close(struct feed *f);

struct train_source feed_stage(const struct feed *f, const struct job_spec *s, int stage);
struct train_source feed_eval(const struct feed *f, const struct job_spec *s);

/* Counts the sequences of one pass at each stage's length, for a run whose length is given in
 * passes. */
int feed_samples(const struct run *r, int64_t samples[SPEC_STAGES + 1], struct err *e);

#endif
