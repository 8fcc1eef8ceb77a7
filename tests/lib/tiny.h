/* tiny.h: one rank of a tiny model in a test: plan, arena, backend, model, on a struct ranks. */
#ifndef SEQD_TESTS_TINY_H
#define SEQD_TESTS_TINY_H

#include <stdlib.h>
#include "kernels/half.h"
#include "tests/lib/pages.h"
#include "tests/lib/ranks.h"
#include "tests/lib/small.h"
#include "worker/model/model.h"
#include "worker/plan/plan.h"

struct tiny_rank {
    struct plan plan;
    struct model model;
    void *arena;
    struct be *be;
};

/* Larger than at the start of a training: attention that looks somewhere, logits that differ. */
static inline void tiny_scale(struct model *m)
{
    for (int i = 0; i < param_tensors(&m->shape); i++) {
        struct param p;
        param_get(&m->shape, i, &p);
        if (!p.cols) continue;
        float *w = (float *)m->params + p.offset;
        uint16_t *h = (uint16_t *)m->params + p.offset;
        for (int64_t k = 0; k < p.count; k++)
            if (m->dtype == DT_F32)
                w[k] *= 6;
            else
                h[k] = half_round(m->dtype, 6 * half_value(m->dtype, h[k]));
    }
}

/* spec: checked; the plan's segment must be what the ranks were opened with. */
static inline int tiny_open(struct tiny_rank *t, const struct job_spec *spec, struct ranks *g,
                            int rank, struct err *e)
{
    *t = (struct tiny_rank){0};
    if (plan_make(spec, 0, &t->plan, e)) return -1;
    t->arena = engine_pages(t->plan.arena_size);
    struct be_options bo = {.device = "cpu",
                            .n_threads = t->plan.n_threads,
                            .scratch = (char *)t->arena + t->plan.item[PLAN_SCRATCH].offset};
    t->be = be_open(&bo, e);
    if (!t->be) return -1;
    struct comm *c = g && g->P > 1 ? g->comm[rank] : NULL;
    struct model_options mo = {.shape = &spec->model.shape,
                               .plan = &t->plan,
                               .arena = t->arena,
                               .segment = c ? comm_segment(c) : NULL,
                               .be = t->be,
                               .comm = c,
                               .rank = rank,
                               .n_ranks = t->plan.n_ranks};
    if (model_init(&t->model, &mo, e)) return -1;
    model_random(&t->model, spec->seed);
    tiny_scale(&t->model);
    return 0;
}

static inline void tiny_close(struct tiny_rank *t)
{
    be_close(t->be);
    if (t->arena) engine_unpage(t->arena, t->plan.arena_size);
}

#endif
