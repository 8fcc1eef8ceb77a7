/* planned.h: makes the plan of a test's job, and adds up its memory on the device. */
#ifndef SEQD_TESTS_PLANNED_H
#define SEQD_TESTS_PLANNED_H

#include "api/core/job.h"
#include "tests/lib/test.h"
#include "worker/plan/plan.h"

/* The sizes of Llama 3 8B, as members of a struct model_shape. */
#define PLANNED_LLAMA_8B                                                                           \
    .n_layers = 32, .width = 4096, .n_heads = 32, .n_kv_heads = 8, .head_dim = 128,                \
    .ffn_width = 14336, .vocab = 128256, .norm_eps = 1e-5, .rope_theta = 500000

/* Makes a plan with a limit in bytes, where 0 means none. Returns p. */
static inline struct plan *planned(const struct job_spec *s, int64_t limit, struct plan *p)
{
    struct err e = {0};
    CHECK_MSG(!plan_make(s, limit, p, &e), "%s: %s", e.field, e.text);
    return p;
}

/* Returns a rank's bytes on the device. */
static inline int64_t planned_size(const struct plan *p)
{
    return p->arena_size + p->segment_size;
}

#endif
