/* adapter.h: gives the training of a test adapters. */
#ifndef SEQD_TESTS_ADAPTER_H
#define SEQD_TESTS_ADAPTER_H

#include <string.h>
#include "api/core/job.h"
#include "tests/lib/test.h"
#include "worker/plan/plan.h"
#include "worker/plan/rules.h"

/* Gives the model of a job adapters of rank 3 of all products, and freezes nothing. */
static inline void adapter_shape(struct job_spec *s)
{
    struct err e = {0};
    s->adapter.type = ADAPTER_LORA;
    s->adapter.rank = 3;
    s->adapter.alpha = 5;
    CHECK_MSG(!rules_adapter(s, &e), "%s: %s", e.field, e.text);
}

/* Gives a job adapters of the n products `targets`, or of all products if n is 0. Other fields of
 * the adapter stay. */
static inline void adapter_targets(struct job_spec *s, const char *const *targets, int n)
{
    struct err e = {0};
    s->adapter.type = ADAPTER_LORA;
    s->model.shape.freeze.n_kinds = s->model.shape.adapter.rank = 0;
    for (int i = 0; i < SPEC_TARGETS; i++) s->adapter.targets[i] = 0;
    for (int i = 0; i < n; i++)
        CHECK(!spec_intern(s, targets[i], strlen(targets[i]), &s->adapter.targets[i]));
    CHECK_MSG(!rules_adapter(s, &e) && !rules_freeze(s, &e), "%s: %s", e.field, e.text);
}

#endif
