/* adapter_train.h: trainings of adapters for tests, and the comparison of a training on some
 * product of axes with one rank. engine.h compares the messages of every rank with the formulas,
 * and the memory that the rank placed with the plan. */
#ifndef SEQD_TESTS_ADAPTER_TRAIN_H
#define SEQD_TESTS_ADAPTER_TRAIN_H

#include "api/core/job.h"
#include "tests/lib/adapter.h"
#include "tests/lib/engine.h"
#include "worker/family/family.h"
#include "worker/hf/hf.h"

static struct job_spec spec; /* off the stack */
static struct synth synth = {.S = 37, .doc_len = 11, .vocab = 61};

enum { STEPS = 3 };

struct way {
    const char *family; /* directory in tests/golden; NULL means a Llama */
    const char *target; /* NULL means all products */
    int P, dp, pp, tp, zero, group, determinism, precision, recompute, tied, offload, zigzag;
    int64_t batch, mlp_chunk, time_chunk, rank;
    int blocks; /* enum weights_id: the storage of the base */
    int saves;  /* bits of enum adapter_saves; these modules have four times the rate */
    double max_norm, drop, noise;
};

static inline void set_spec(struct job_spec *s, const struct way *w)
{
    struct err e = {0};
    engine_spec(s, synth.S);
    engine_on_device(s);
    s->model.shape.n_layers = 4;
    if (w->family) {
        char dir[96];
        snprintf(dir, sizeof dir, "tests/golden/%s", w->family);
        CHECK_MSG(!config_read_dir(dir, &s->model.shape, &e), "%s", e.text);
    }
    if (w->blocks) s->model.shape.ffn_width = 64; /* rows of 64 values are blocks */
    if (w->blocks && (w->family || w->tp > 1)) {
        struct model_shape *m = &s->model.shape;
        m->n_kv_heads = m->n_kv_heads == m->n_heads ? 4 : 2;
        m->width = 64, m->n_heads = 4, m->head_dim = 16;
    }
    s->model.shape.quant = s->model.weights = w->blocks;
    s->model.shape.tied = w->family ? s->model.shape.tied : w->tied;
    s->train.steps = STEPS;
    s->train.global_batch = w->batch ? w->batch : w->dp > 1 ? w->dp : 1;
    s->optim.max_grad_norm = w->max_norm;
    /* eps is as large as the gradients, so that a rounding of a tiny gradient does not decide the
     * sign of the first step. */
    s->optim.eps = 1e-2;
    s->precision.params = w->precision;
    s->parallel.zero = w->zero;
    s->parallel.zero_group = w->group;
    s->determinism = w->determinism ? w->determinism : DET_RUN;
    s->parallel.layout = w->zigzag ? LAYOUT_ZIGZAG : LAYOUT_CONTIGUOUS;
    s->memory.recompute = w->recompute ? w->recompute : RECOMPUTE_NONE;
    s->memory.time_chunk = w->time_chunk;
    s->memory.mlp_chunk_tokens = w->mlp_chunk;
    s->memory.offload = w->offload ? OFFLOAD_ACTIVATIONS : OFFLOAD_NONE;
    s->adapter.rank = w->rank ? w->rank : 3;
    s->adapter.alpha = 5;
    s->adapter.dropout = w->drop;
    s->train.neftune_alpha = w->noise;
    adapter_saves(s, w->saves);
    s->optim.lr_saved = w->saves ? 4 * s->optim.lr : 0;
    adapter_targets(s, &w->target, w->target ? 1 : 0);
}

static float *initial; /* the weights before the first step */

static inline void keep_first(struct train *t, int rank, void *arg)
{
    (void)rank, (void)arg;
    if (t->step == 0) engine_collect(t, SHARDED_WEIGHTS, initial);
}

static inline struct engine_run go(struct job_spec *s, const struct way *w, float *weights)
{
    struct engine_run r = {.P = w->P ? w->P : 1,
                           .dp = w->dp,
                           .pp = w->pp,
                           .tp = w->tp,
                           .steps = STEPS,
                           .initial = weights,
                           .source = {synth_batch, synth_targets, &synth},
                           .before_step = initial ? keep_first : NULL};
    set_spec(s, w);
    engine_go(&r, s);
    return r;
}

static inline void say(const struct way *w, char *out, size_t size)
{
    snprintf(out, size,
             "%s %s P %d dp %d pp %d tp %d zero %d group %d determinism %d precision %d recompute "
             "%d tied %d saves %d offload %d batch %lld chunk %lld time %lld norm %g drop %g "
             "noise %g",
             w->family ? w->family : "llama", w->target ? w->target : "all-linear", w->P, w->dp,
             w->pp, w->tp, w->zero, w->group, w->determinism, w->precision, w->recompute, w->tied,
             w->saves, w->offload, (long long)w->batch, (long long)w->mlp_chunk,
             (long long)w->time_chunk, w->max_norm, w->drop, w->noise);
}

/* Returns weights in which no element of an adapter is 0, and the model's are those that
 * model_random draws. */
static inline float *weights_of(const struct way *w)
{
    struct way one = *w;
    one.P = one.dp = one.pp = one.tp = one.zero = one.group = one.offload = 0;
    set_spec(&spec, &one);
    const int64_t n = param_count(&spec.model.shape);
    float *x = calloc((size_t)n, sizeof *x);
    initial = calloc((size_t)n, sizeof *initial);
    struct engine_run r = go(&spec, &one, NULL);
    memcpy(x, initial, (size_t)n * sizeof *x);
    free(initial), initial = NULL;
    engine_free(&r);
    for (int i = 0; i < param_tensors(&spec.model.shape); i++) {
        struct param p;
        param_get(&spec.model.shape, i, &p);
        for (int64_t k = 0; p.adapter && k < p.count; k++)
            x[p.offset + k] = (float)((double)synth_hash((uint64_t)(i * 100003 + k)) /
                                          4294967296.0 -
                                      0.5) *
                              0.4f;
    }
    return x;
}

static inline void check_near(const struct engine_run *r, const struct engine_run *one,
                              const char *which)
{
    for (int i = 0; i < STEPS; i++)
        CHECK_MSG(fabs(r->loss[i] - one->loss[i]) <= 1e-5 * one->loss[i] &&
                      fabs(r->norm[i] / one->norm[i] - 1) <= 1e-4,
                  "%s: step %d: loss %.9g, %.9g, norm %.9g, %.9g", which, i, r->loss[i],
                  one->loss[i], r->norm[i], one->norm[i]);
    struct model_shape m = spec.model.shape;
    m.tp = 0;
    for (int i = 0; i < param_tensors(&m); i++) {
        struct param p;
        param_get(&m, i, &p);
        const int64_t n = p.count, at = p.offset;
        const struct {
            const char *name;
            const float *is, *want;
        } of[] = {{"gradient", r->grad, one->grad},
                  {"weights", r->weights, one->weights},
                  {"m", r->adam_m, one->adam_m},
                  {"v", r->adam_v, one->adam_v}};
        if (!adapter_learns(&p))
            CHECK_MSG(!memcmp(r->weights + at, one->weights + at, (size_t)n * 4), "%s: %s changes",
                      which, p.name);
        for (int k = 0; adapter_learns(&p) && k < 4; k++) {
            double length = 0;
            for (int64_t j = 0; j < n; j++)
                length += (double)of[k].want[at + j] * of[k].want[at + j];
            if ((k == 0 && (r->plan.fused || one->plan.fused)) ||
                sqrt(length) < 1e-6 * one->norm[0])
                continue;
            const double d = rel_l2(of[k].is + at, of[k].want + at, n);
            CHECK_MSG(d <= 3e-5, "%s: %s of %s: rel-L2 %.3g", which, of[k].name, p.name, d);
        }
    }
}

static inline void check_same(const struct engine_run *r, const struct engine_run *want,
                              const char *which)
{
    const size_t size = (size_t)want->n * 4;
    CHECK_MSG(!memcmp(r->loss, want->loss, STEPS * sizeof *r->loss), "%s: losses", which);
    CHECK_MSG(!memcmp(r->norm, want->norm, STEPS * sizeof *r->norm), "%s: norms", which);
    CHECK_MSG(!memcmp(r->weights, want->weights, size), "%s: weights", which);
    CHECK_MSG(!memcmp(r->adam_m, want->adam_m, size), "%s: m", which);
}

static inline void check_product(struct way *w)
{
    static struct job_spec plain;
    struct way one = *w;
    char which[400];
    one.P = one.dp = one.pp = one.tp = one.zero = one.group = one.offload = one.zigzag = 0;
    one.determinism = DET_RUN;
    one.time_chunk = 0;
    if (!one.batch) one.batch = w->dp > 1 ? w->dp : 1;
    w->batch = one.batch;
    say(w, which, sizeof which);
    float *x = w->tp > 1 ? NULL : weights_of(w); /* engine.h takes no slices of given weights */
    struct engine_run want = go(&plain, &one, x), r = go(&spec, w, x);
    check_near(&r, &want, which);
    engine_free(&r);
    if (w->determinism == DET_RANKS) {
        struct way few = *w;
        few.P = few.pp = few.zero = few.group = 0;
        engine_free(&want);
        want = go(&plain, &few, x);
        r = go(&spec, w, x);
        check_same(&r, &want, which);
        engine_free(&r);
    }
    engine_free(&want);
    free(x);
}

#endif
