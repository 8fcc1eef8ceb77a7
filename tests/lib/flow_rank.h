/* flow_rank.h: a rank of the engine that samples a diffusion model of tests/golden in the same way
 * as a job. Its memory is filled with NaN, so that reading a value before it is written is
 * found. */
#ifndef SEQD_TESTS_FLOW_RANK_H
#define SEQD_TESTS_FLOW_RANK_H

#include <stdlib.h>
#include "api/core/job.h"
#include "tests/lib/ranks.h"
#include "worker/family/shape.h"
#include "worker/hf/hf.h"
#include "worker/infer/flow_sample.h"

struct flow_rank {
    struct plan plan;
    struct model m;
    struct be *be;
    void *arena;
};

/* Fills in a generate job of the model tests/golden/NAME. The job's latents have at most the sizes
 * in `most`. */
static inline void flow_rank_spec(struct job_spec *s, const char *name, int P,
                                  const int64_t most[3])
{
    char dir[64];
    struct err e = {0};
    spec_defaults(s);
    shape_defaults(&s->model.shape);
    s->kind = JOB_GENERATE;
    snprintf(dir, sizeof dir, "tests/golden/%s", name);
    CHECK_MSG(!config_read_dir(dir, &s->model.shape, &e), "%s", e.text);
    s->data.frames = most[0];
    s->data.height = most[1];
    s->data.width = most[2];
    s->parallel.sp = s->resources.ranks = P;
}

static inline int flow_rank_open(struct flow_rank *s, const struct job_spec *spec, const char *name,
                                 struct ranks *g, int rank, struct err *e)
{
    char dir[64];
    *s = (struct flow_rank){0};
    if (plan_make(spec, 0, &s->plan, e)) return -1;
    if (posix_memalign(&s->arena, 4096, (size_t)s->plan.arena_size)) abort();
    memset(s->arena, 0xff, (size_t)s->plan.arena_size);
    if (g) memset(comm_segment(g->comm[rank]), 0xff, (size_t)s->plan.segment_size);
    s->be = be_open(
        &(struct be_options){.device = "cpu",
                             .n_threads = s->plan.n_threads,
                             .scratch = (char *)s->arena + s->plan.item[PLAN_SCRATCH].offset},
        e);
    const struct model_options o = {.shape = &spec->model.shape,
                                    .plan = &s->plan,
                                    .arena = s->arena,
                                    .segment = g ? comm_segment(g->comm[rank]) : NULL,
                                    .be = s->be,
                                    .comm = g ? g->comm[rank] : NULL,
                                    .rank = rank,
                                    .n_ranks = s->plan.n_ranks};
    snprintf(dir, sizeof dir, "tests/golden/%s", name);
    if (!s->be || model_init(&s->m, &o, e)) return -1;
    return hf_load(dir, &spec->model.shape, s->m.dtype, s->m.params, e);
}

static inline void flow_rank_close(struct flow_rank *s)
{
    be_close(s->be);
    free(s->arena);
}

/* Runs body(g, rank, arg) on as many ranks as the spec has. If there is only one rank, g is
 * NULL. */
static inline void flow_rank_run(const struct job_spec *spec,
                                 void (*body)(struct ranks *, int, void *), void *arg)
{
    struct ranks g;
    struct err e = {0};
    struct plan *p = calloc(1, sizeof *p);
    CHECK_MSG(!plan_make(spec, 0, p, &e), "%s: %s", e.field, e.text);
    if (spec->parallel.sp == 1) {
        body(NULL, 0, arg);
    } else {
        ranks_open(&g, spec->parallel.sp, p->segment_size,
                   &(struct comm_options){.delay_max_us = 20, .delay_seed = 3});
        ranks_run(&g, body, arg);
        ranks_check(&g);
        ranks_close(&g);
    }
    free(p);
}

#endif
