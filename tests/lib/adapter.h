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

/* Makes a job with adapters train whole modules. `saves` has bits of enum adapter_saves. Call it
 * before adapter_targets. */
static inline void adapter_saves(struct job_spec *s, int saves)
{
    static const enum adapter_saves bits[] = {ADAPTER_SAVES_EMBEDDING, ADAPTER_SAVES_HEAD};
    char name[PARAM_MODULE_SIZE];
    int n = 0;
    for (int i = 0; i < SPEC_SAVED; i++) s->adapter.modules_to_save[i] = 0;
    for (int i = 0; i < 2; i++) {
        if (!(saves & (int)bits[i])) continue;
        CHECK(param_module(&s->model.shape, bits[i], name));
        const char *last = strrchr(name, '.') ? strrchr(name, '.') + 1 : name;
        CHECK(!spec_intern(s, last, strlen(last), &s->adapter.modules_to_save[n++]));
    }
}

/* Tells whether a training of adapters changes the tensor. */
static inline bool adapter_learns(const struct param *p)
{
    return p->adapter || p->saved;
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
