/* feed.h: where the samples of a training job come from: the order of each length that its stages
 * have, and the windows of its held-out evaluation. */
#ifndef SEQD_RANK_FEED_H
#define SEQD_RANK_FEED_H

#include "worker/rank/run.h"
#include "worker/train/train.h"

struct feed {
    struct train_data stage[SPEC_STAGES + 1]; /* of stage i at i + 1; several may share an order */
    struct batch_options options[SPEC_STAGES + 1];
    struct train_data eval;
    int64_t eval_windows; /* 0: no evaluation */
};

/* Borrows r's data until feed_close. fails: the data's errors. */
int feed_open(struct feed *f, struct run *r, struct err *e);
void feed_close(struct feed *f);

struct train_source feed_stage(struct feed *f, int stage);
struct train_source feed_eval(struct feed *f);

/* Sequences of one pass at each stage's length: for lengths given as passes. */
int feed_samples(const struct run *r, int64_t samples[SPEC_STAGES + 1], struct err *e);

#endif
