/* held.h: orders of trainings by real seqrank processes that evaluate on held-out data. */
#ifndef SEQD_TESTS_HELD_H
#define SEQD_TESTS_HELD_H

#include <stdio.h>
#include "tests/lib/gang.h"

static inline struct spec_source held_source(struct job_spec *s, const char *dir, const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return (struct spec_source){tiny_text(s, path), tiny_text(s, "text"), DATA_JSONL, 0, -1};
}

/* Makes a training on `sp` ranks. Its data are the files `learnt` and held.jsonl of the folder
 * `dir`, in which the job gets its directory `name`. */
static inline struct order *held_order(const char *dir, const char *prepared_id, const char *learnt,
                                       int sp, const char *name)
{
    struct order *o = order_new(JOB_TRAIN, dir, prepared_id, name);
    struct job_spec *s = &o->spec;
    s->data.seq_len = 64;
    s->data.packing = PACKING_CONCAT;
    s->data.n_train = s->eval.n_data = 1;
    s->data.train[0] = held_source(s, dir, learnt);
    s->eval.data[0] = held_source(s, dir, "held.jsonl");
    s->parallel.sp = sp;
    s->train.global_batch = 2;
    return o;
}

#endif
