/* tiny.h: opens one rank of a tiny model in a test, with a plan, an arena, a backend and a model.
 * The ranks communicate through a struct ranks. */
#ifndef SEQD_TESTS_TINY_H
#define SEQD_TESTS_TINY_H

#include <stdlib.h>
#include "kernels/half.h"
#include "tests/lib/pages.h"
#include "tests/lib/ranks.h"
#include "tests/lib/small.h"
#include "tests/lib/store.h"
#include "worker/model/model.h"
#include "worker/plan/plan.h"

struct tiny_rank {
    struct plan plan;
    struct model model;
    /* host is memory of the plan's host_size bytes, or NULL if host_size is 0 */
    void *arena, *host;
    struct be *be;
    struct offload *offload;
};

/* Returns the index of a tensor's first element in m->params, or -1 if the tensor belongs to a
 * different stage. */
static inline int64_t tiny_at(const struct model *m, const struct param *p)
{
    const struct zero *z = &m->plan->shards;
    return zero_holds(z, zero_bucket(z, p->offset)) ? zero_local(z, p->offset) : -1;
}

/* Makes the weights larger than they are at the start of a training, so that attention gives keys
 * different weights and the logits are different. */
static inline void tiny_scale(struct model *m)
{
    for (int i = 0; i < param_tensors(&m->shape); i++) {
        struct param p;
        param_get(&m->shape, i, &p);
        const int64_t at = tiny_at(m, &p);
        if (!p.cols || at < 0) continue;
        float *w = (float *)m->params + at;
        uint16_t *h = (uint16_t *)m->params + at;
        for (int64_t k = 0; k < p.count; k++)
            if (m->dtype == DT_F32)
                w[k] *= 6;
            else
                h[k] = half_round(m->dtype, 6 * half_value(m->dtype, h[k]));
    }
}

/* Opens one rank. The spec must have been checked before, and the ranks must have been opened with
 * the size of the plan's segment. */
static inline int tiny_open(struct tiny_rank *t, const struct job_spec *spec, struct ranks *g,
                            int rank, struct err *e)
{
    *t = (struct tiny_rank){0};
    static _Thread_local struct plan of_job;
    if (plan_make(spec, 0, &of_job, e) || plan_of_rank(spec, &of_job, rank, &t->plan, e)) return -1;
    const char *device = spec_text(spec, spec->resources.device);
    struct be_options bo = {.device = *device ? device : "cpu",
                            .n_threads = t->plan.n_threads,
                            .any_order = !t->plan.rank_bits && !t->plan.row_bits,
                            .scratch_later = true};
    t->be = be_open(&bo, e);
    if (!t->be) return -1;
    t->arena = t->be->own_memory ? t->be->ops->alloc(t->be, t->plan.arena_size, e)
                                 : engine_pages(t->plan.arena_size);
    if (!t->arena) return -1;
    if (t->plan.host_size) t->host = engine_pages(t->plan.host_size);
    be_give_scratch(t->be, (char *)t->arena + t->plan.item[PLAN_SCRATCH].offset,
                    t->plan.item[PLAN_SCRATCH].size);
    t->offload = store_open(&t->plan, t->be, t->host);
    struct comm *c = g && g->P > 1 ? g->comm[rank] : NULL;
    struct model_options mo = {.shape = &spec->model.shape,
                               .plan = &t->plan,
                               .arena = t->arena,
                               .host = t->host,
                               .segment = c ? comm_segment(c) : NULL,
                               .be = t->be,
                               .offload = t->offload,
                               .comm = c,
                               .rank = rank,
                               .n_ranks = t->plan.n_ranks};
    if (model_init(&t->model, &mo, e)) return -1;
    model_random(&t->model, spec->seed);
    /* only weights that are plain numbers in the host's memory can be scaled */
    if (!spec->model.shape.quant && !t->be->own_memory) tiny_scale(&t->model);
    return 0;
}

static inline void tiny_close(struct tiny_rank *t)
{
    const bool own = t->be && t->be->own_memory;
    offload_close(t->offload);
    if (own && t->arena) t->be->ops->free(t->be, t->arena, t->plan.arena_size);
    be_close(t->be);
    if (t->arena && !own) engine_unpage(t->arena, t->plan.arena_size);
    if (t->host) engine_unpage(t->host, t->plan.host_size);
}

#endif
