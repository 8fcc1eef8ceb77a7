/* freeze.h: freezes tensors in the training of a test (train.freeze). */
#ifndef SEQD_TESTS_FREEZE_H
#define SEQD_TESTS_FREEZE_H

#include <string.h>
#include "api/core/job.h"
#include "tests/lib/test.h"
#include "worker/plan/plan.h"
#include "worker/plan/rules.h"

enum { FREEZE_PATTERNS = 6 };

/* Replaces the patterns of the job by `patterns`, which end at the first NULL. */
static inline void freeze_tensors(struct job_spec *s, const char *const *patterns)
{
    struct err e = {0};
    memset(&s->model.shape.freeze, 0, sizeof s->model.shape.freeze);
    for (int i = 0; i < SPEC_FREEZES; i++) s->train.freeze[i] = 0;
    for (int i = 0; i < FREEZE_PATTERNS && patterns[i]; i++)
        CHECK(!spec_intern(s, patterns[i], strlen(patterns[i]), &s->train.freeze[i]));
    CHECK_MSG(!rules_freeze(s, &e), "%s: %s", e.field, e.text);
}

/* Sets *p to tensor i, and tells whether the tensor is frozen. */
static inline bool frozen(const struct model_shape *m, int i, struct param *p)
{
    param_get(m, i, p);
    return !p->trained;
}

#endif
