/* small.h: the small model of the tests, for one process or for a gang, and the strings in the
 * spec of its job. */
#ifndef SEQD_TESTS_SMALL_H
#define SEQD_TESTS_SMALL_H

#include "api/core/job.h"
#include "tests/lib/test.h"

static const struct model_shape tiny_shape = {.n_layers = 2,
                                              .width = 48,
                                              .n_heads = 6,
                                              .n_kv_heads = 2,
                                              .head_dim = 8,
                                              .ffn_width = 40,
                                              .vocab = 260,
                                              .max_pos = 4096,
                                              .norm_eps = 1e-5,
                                              .rope_theta = 10000};

/* Sets the sizes that the models of several families have alike. `m` has its other fields. */
static inline void small_sizes(struct model_shape *m, int64_t ffn_width)
{
    m->n_layers = 2;
    m->width = 32;
    m->n_heads = 4;
    m->head_dim = 8;
    m->ffn_width = ffn_width;
    m->vocab = 260;
    m->norm_eps = 1e-5;
    m->rope_theta = 10000;
    if (!m->max_pos) m->max_pos = 4096;
}

static inline spec_ref tiny_text(struct job_spec *s, const char *str)
{
    spec_ref ref = 0;
    CHECK(!spec_intern(s, str, strlen(str), &ref));
    return ref;
}

#endif
