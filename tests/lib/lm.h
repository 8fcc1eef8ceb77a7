/* lm.h: runs language models of every family by their programs, on any number of ranks and on any
 * device (engine_device). It compares the logits, the loss, every gradient, and tokens that are
 * decoded one by one with golden results of PyTorch in float64 (tests/golden/make_lm_golden.py).
 *
 * The project requires a relative L2 error of at most 1e-5 in fp32. In these models, which have
 * sums of at most 300 terms and 2 or 3 layers, the error that fp32 itself causes is about 1e-6. */
#ifndef SEQD_TESTS_LM_H
#define SEQD_TESTS_LM_H

#include <math.h>
#include <stdlib.h>
#include "api/core/job.h"
#include "api/core/mem.h"
#include "tests/lib/engine.h"
#include "tests/lib/goldens.h"
#include "worker/hf/hf.h"
#include "worker/model/model.h"
#include "worker/hf/safetensors.h"

#define LM_WANTED 1e-5

struct lm_golden {
    const char *name;
    char dir[96];
    struct model_shape m;
    struct st_file *file;
    int64_t n, S, V;
    int32_t *ids, *targets, *pos, *lo, *hi;
    float *logits, *grad;
    double loss;
    int64_t n_targets;
};

static inline int32_t *lm_ints(const struct lm_golden *g, const char *name)
{
    const struct st_tensor *t = st_find(g->file, name);
    CHECK_MSG(t && t->dtype == ST_I32, "%s has no %s", g->name, name);
    int32_t *x = malloc((size_t)(g->n * g->S) * 4);
    memcpy(x, st_data(g->file, t), (size_t)(g->n * g->S) * 4);
    return x;
}

static inline void lm_open(struct lm_golden *g, const char *name)
{
    char path[128];
    struct err e = {0};
    memset(g, 0, sizeof *g);
    g->name = name;
    snprintf(g->dir, sizeof g->dir, "tests/golden/%s", name);
    snprintf(path, sizeof path, "%s/golden.safetensors", g->dir);
    CHECK_MSG(!config_read_dir(g->dir, &g->m, &e), "%s", e.text);
    g->file = st_open(path, &e);
    if (!g->file) {
        printf("%s\n", e.text);
        abort();
    }
    const struct st_tensor *logits = st_find(g->file, "logits"), *loss = st_find(g->file, "loss");
    g->n = logits->dims[0];
    g->S = logits->dims[1];
    g->V = logits->dims[2];
    g->ids = lm_ints(g, "ids");
    g->targets = lm_ints(g, "targets");
    g->pos = lm_ints(g, "pos");
    g->lo = lm_ints(g, "lo");
    g->hi = lm_ints(g, "hi");
    g->logits = malloc((size_t)logits->count * 4);
    CHECK(!st_read_f32(g->file, logits, g->logits, &e));
    memcpy(&g->loss, st_data(g->file, loss), 8);
    g->grad = calloc((size_t)param_count(&g->m), 4);
    CHECK_MSG(!hf_read_flat(g->file, &g->m, "grad:", g->grad, &e), "%s: %s", name, e.text);
    for (int64_t i = 0; i < g->n * g->S; i++) g->n_targets += g->targets[i] >= 0;
}

static inline void lm_close(struct lm_golden *g)
{
    void *all[] = {g->ids, g->targets, g->pos, g->lo, g->hi, g->logits, g->grad};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    st_close(g->file);
}

static inline void lm_fill(const struct lm_golden *g, int64_t n, const struct shard *sh,
                           struct batch *b)
{
    for (int64_t i = 0; i < sh->T; i++) {
        const int64_t at = shard_pos(sh, i), k = n * g->S + at;
        const bool pad = at >= sh->S;
        b->ids[i] = pad ? 0 : g->ids[k];
        b->targets[i] = pad ? -1 : g->targets[k];
        b->pos[i] = pad ? 0 : g->pos[k];
        b->lo[i] = pad ? 0 : g->lo[k];
        b->hi[i] = pad ? 0 : g->hi[k];
    }
    b->n_tokens = g->S;
}

/* ---- one run --------------------------------------------------------------------------------- */

struct lm_run {
    const struct lm_golden *g;
    struct job_spec spec;
    struct engine_memory mem[JOB_MAX_RANKS]; /* the memory of each rank during the run */
    /* results for all ranks together */
    float *logits, *grad;
    double loss;
    enum strategy_id strategy;
};

/* Returns the loss scale, by which gradients are multiplied. Families whose ranks compute one
 * after another (in_turn) divide queries and keys by their lengths. Their gradients are divided by
 * the same lengths, so the gradient of a short row is large. The scale of these families is
 * therefore smaller, to keep gradients within the range of fp16. */
static inline float lm_scale(const struct lm_run *r)
{
    if (r->spec.precision.params != PRECISION_FP16) return 1;
    return family_row(&r->g->m)->in_turn ? 0x1p10f : 0x1p16f;
}

struct lm_seat {
    struct plan plan;
    struct model m;
    struct be *be;
};

/* Fills all of the rank's memory with NaN, except the scratch of the kernels. */
static inline void lm_poison(const struct lm_seat *s, const struct engine_memory *mem,
                             struct ranks *g, int rank)
{
    const struct plan_item *own = &s->plan.item[PLAN_SCRATCH];
    engine_poison(s->be, mem->arena, own->offset);
    engine_poison(s->be, mem->arena + own->offset + own->size,
                  s->plan.arena_size - own->offset - own->size);
    if (g) engine_poison(s->be, comm_segment(g->comm[rank]), s->plan.segment_size);
    if (mem->host) memset(mem->host, 0xff, (size_t)s->plan.host_size);
}

static inline void lm_weights(struct lm_seat *s, const struct lm_golden *g)
{
    const int64_t size = s->plan.n_params * dtype_size(s->m.dtype);
    struct err e = {0};
    void *w = malloc((size_t)size);
    if (!w) abort();
    CHECK_MSG(!hf_load(g->dir, &g->m, s->m.dtype, w, &e), "%s", e.text);
    engine_write(s->be, s->m.params, w, size);
    free(w);
}

/* Checks that the model's buffers end at the place where the plan puts the buffers of the
 * reference (JOB_VERIFY). */
static inline void lm_placed(const struct lm_seat *s)
{
    const struct plan *p = &s->plan;
    if (!p->reference_offset) return;
    CHECK_MSG(mem_round(s->m.arena_end, PLAN_PAGE) == p->reference_offset &&
                  mem_round(s->m.segment_end, PLAN_PAGE) == p->segment_size &&
                  mem_round(s->m.host_end, PLAN_PAGE) == p->reference_host_offset,
              "placed %lld, %lld, %lld; planned %lld, %lld, %lld", (long long)s->m.arena_end,
              (long long)s->m.segment_end, (long long)s->m.host_end, (long long)p->reference_offset,
              (long long)p->segment_size, (long long)p->reference_host_offset);
}

static inline void lm_seat_open(struct lm_seat *s, struct lm_run *r, struct ranks *g, int rank)
{
    struct err e = {0};
    CHECK_MSG(!plan_make(&r->spec, 0, &s->plan, &e), "%s: %s", r->g->name, e.text);
    const struct engine_memory *mem = &r->mem[rank];
    s->be = mem->be;
    lm_poison(s, mem, g, rank);
    const struct model_options o = {.shape = &r->g->m,
                                    .plan = &s->plan,
                                    .arena = mem->arena,
                                    .host = mem->host,
                                    .offload = mem->offload,
                                    .segment = g ? comm_segment(g->comm[rank]) : NULL,
                                    .be = s->be,
                                    .comm = g ? g->comm[rank] : NULL,
                                    .rank = rank,
                                    .n_ranks = s->plan.n_ranks};
    CHECK_MSG(!model_init(&s->m, &o, &e), "%s: %s", r->g->name, e.text);
    lm_placed(s);
    lm_weights(s, r->g);
    if (s->m.grad) s->be->ops->fill(s->be, s->m.grad, s->plan.n_grad, 0);
    if (s->m.batch.types) memset(s->m.batch.types, 0, (size_t)s->plan.T * 4);
}

static inline void lm_keep_logits(struct lm_run *r, struct lm_seat *s, int64_t n)
{
    const struct shard *sh = &s->m.sp.shard;
    for (int64_t i = 0; i < sh->T; i++) {
        const int64_t at = shard_pos(sh, i);
        const struct tensor t = model_logits(&s->m, i, 1);
        if (at < r->g->S)
            engine_read(s->be, r->logits + (n * r->g->S + at) * r->g->V, t.data, r->g->V * 4);
    }
}

/* Computes the gradients of one sample on all ranks. Under determinism "ranks" they replace the
 * gradients of the previous sample. In other modes they are added to the gradients of the previous
 * sample. */
static inline int lm_sample(struct lm_run *r, struct lm_seat *s, int64_t n, double *nll,
                            struct err *e)
{
    const bool replaces = s->plan.rank_bits;
    lm_fill(r->g, n, &s->m.sp.shard, &s->m.batch);
    if (model_forward(&s->m, &s->m.batch, e)) return -1;
    lm_keep_logits(r, s, n);
    if (model_nll(&s->m, &s->m.batch, nll, e)) return -1;
    CHECK(*nll >= 0);
    if (model_grad(&s->m, &s->m.batch, lm_scale(r) / (float)r->g->n_targets, nll, e)) return -1;
    if (!replaces && n + 1 < r->g->n) return 0;
    if (model_reduce_grad(&s->m, e)) return -1;
    if (s->m.rank) return 0;
    float *grad = malloc((size_t)s->plan.n_params * sizeof *grad);
    if (!grad) abort();
    engine_read(s->be, grad, s->m.grad, s->plan.n_params * (int64_t)sizeof *grad);
    for (int64_t i = 0; i < s->plan.n_params; i++) r->grad[i] += grad[i] / lm_scale(r);
    free(grad);
    return 0;
}

static inline void lm_body(struct ranks *g, int rank, void *arg)
{
    struct lm_run *r = arg;
    struct err e = {0};
    struct lm_seat *s = calloc(1, sizeof *s);
    double loss = 0, nll;
    int bad = 0;
    lm_seat_open(s, r, g, rank);
    for (int64_t n = 0; n < r->g->n && !bad; n++) {
        bad = lm_sample(r, s, n, &nll, &e) ||
              (g && comm_sum_f64(g->comm[rank], PURPOSE_LOSS, &nll, 1, s->m.bounce, &e));
        loss += nll;
    }
    CHECK_MSG(!bad, "%s on %d: %s", r->g->name, s->plan.n_ranks, e.text);
    if (bad && g) ranks_fail(g, rank, &e);
    if (rank == 0) r->loss = loss / (double)r->g->n_targets;
    free(s);
}

static inline void lm_go(struct lm_run *r, const struct lm_golden *g, int P)
{
    struct plan *p = calloc(1, sizeof *p);
    struct err e = {0};
    r->g = g;
    r->spec.kind = JOB_VERIFY;
    r->spec.model.shape = g->m;
    r->spec.data.seq_len = g->S;
    r->spec.train.global_batch = 1;
    r->spec.memory.loss_chunk_tokens = 5;
    r->spec.resources.threads = 1;
    r->spec.parallel.sp = P;
    r->spec.text_used = 1;
    engine_on_device(&r->spec);
    r->logits = calloc((size_t)(g->n * g->S * g->V), 4);
    r->grad = calloc((size_t)param_count(&g->m), 4);
    const bool made = !plan_make(&r->spec, 0, p, &e);
    CHECK_MSG(made, "%s on %d ranks: %s", g->name, P, e.text);
    r->strategy = p->strategy;
    if (made)
        engine_ranks(&r->spec, p, NULL, &(struct comm_options){.delay_max_us = 50}, r->mem, lm_body,
                     r);
    free(p);
}

static inline void lm_free(struct lm_run *r)
{
    free(r->logits);
    free(r->grad);
}

/* ---- comparing ------------------------------------------------------------------------------- */

static inline double lm_rel_l2(const float *got, const float *want, int64_t n)
{
    double d = 0, w = 0;
    for (int64_t i = 0; i < n; i++) {
        d += ((double)got[i] - (double)want[i]) * ((double)got[i] - (double)want[i]);
        w += (double)want[i] * (double)want[i];
    }
    return w > 0 ? sqrt(d / w) : d > 0 ? INFINITY : sqrt(d);
}

static inline double lm_norm(const float *x, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += (double)x[i] * (double)x[i];
    return sqrt(s);
}

static inline void lm_check(const struct lm_run *r, const char *what)
{
    const struct lm_golden *g = r->g;
    const double logits = lm_rel_l2(r->logits, g->logits, g->n * g->S * g->V);
    CHECK_MSG(logits <= LM_WANTED, "%s, %s: logits off by %g", g->name, what, logits);
    CHECK_MSG(fabs(r->loss - g->loss) <= LM_WANTED * fabs(g->loss), "%s, %s: loss %.9g, not %.9g",
              g->name, what, r->loss, g->loss);
    const double all = lm_norm(g->grad, param_count(&g->m));
    for (int i = 0; i < param_tensors(&g->m); i++) {
        struct param p;
        param_get(&g->m, i, &p);
        /* The bias of keys shifts all scores of a row by the same amount. Its gradient is
         * therefore 0, except for rounding errors. */
        if (lm_norm(g->grad + p.offset, p.count) < 1e-12 * all) {
            CHECK_MSG(lm_norm(r->grad + p.offset, p.count) <= 1e-6 * all,
                      "%s, %s: gradient of %s is not 0", g->name, what, p.name);
            continue;
        }
        const double d = lm_rel_l2(r->grad + p.offset, g->grad + p.offset, p.count);
        CHECK_MSG(d <= LM_WANTED, "%s, %s: gradient of %s off by %g", g->name, what, p.name, d);
    }
}

static const char *const lm_names[] = {GOLDENS_LM};
enum { LM_NAMES = sizeof lm_names / sizeof *lm_names };

/* ---- one token after another ----------------------------------------------------------------- */

enum { LM_PROMPT = 21 };

struct lm_decode {
    struct lm_run r;
    int64_t sample;
    struct be_graphs graphs; /* a result: the graphs of rank 0's device */
};

/* Computes the first LM_PROMPT tokens by prefill, and then decodes the remaining tokens one by
 * one. Every rank gets the logits of every row. */
static inline void lm_decode_body(struct ranks *g, int rank, void *arg)
{
    struct lm_decode *d = arg;
    const struct lm_golden *x = d->r.g;
    struct err e = {0};
    struct tensor logits;
    struct lm_seat *s = calloc(1, sizeof *s);
    float *row = malloc((size_t)x->V * sizeof *row);
    int bad = 0;
    if (!s || !row) abort();
    lm_seat_open(s, &d->r, g, rank);
    /* the second pass starts again at the end of the prompt */
    for (int pass = 0; pass < 2 && !bad; pass++) {
        lm_fill(x, d->sample, &s->m.sp.shard, &s->m.batch);
        bad = model_forward(&s->m, &s->m.batch, &e);
        for (int64_t at = LM_PROMPT; at < x->S && !bad; at++) {
            const int64_t k = d->sample * x->S + at;
            bad = model_decode(&s->m, x->ids[k], &logits, &e);
            if (bad) break;
            engine_read(s->be, row, logits.data, x->V * 4);
            const double off = lm_rel_l2(row, x->logits + k * x->V, x->V);
            CHECK_MSG(off <= LM_WANTED, "%s, %d ranks: token %lld decoded, logits off by %g",
                      x->name, s->plan.n_ranks, (long long)at, off);
        }
    }
    CHECK_MSG(!bad, "%s on %d: %s", x->name, s->plan.n_ranks, e.text);
    if (bad && g) ranks_fail(g, rank, &e);
    if (rank == 0 && s->be->graphs) d->graphs = *s->be->graphs;
    free(row);
    free(s);
}

static inline struct be_graphs lm_decode_by(const struct lm_golden *g, int P,
                                            enum exchange_id exchange)
{
    static struct plan p;
    struct lm_decode d = {.r = {.g = g}, .sample = g->n - 1}; /* one document */
    struct job_spec *s = &d.r.spec;
    struct err e = {0};
    s->kind = JOB_GENERATE;
    s->model.shape = g->m;
    s->data.seq_len = LM_PROMPT;
    s->sampling.max_tokens = g->S - LM_PROMPT;
    s->resources.threads = 1;
    s->parallel.sp = P;
    s->parallel.exchange = (int32_t)exchange;
    s->text_used = 1;
    engine_on_device(s);
    const bool made = !plan_make(s, 0, &p, &e);
    CHECK_MSG(made, "%s: %s", g->name, e.text);
    if (made)
        engine_ranks(s, &p, NULL, &(struct comm_options){.delay_max_us = 50}, d.r.mem,
                     lm_decode_body, &d);
    return d.graphs;
}

static inline struct be_graphs lm_decode_go(const struct lm_golden *g, int P)
{
    return lm_decode_by(g, P, EXCHANGE_AUTO);
}

#endif
