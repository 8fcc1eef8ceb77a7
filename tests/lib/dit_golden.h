/* dit_golden.h: runs diffusion transformers on any number of ranks and on any device
 * (engine_device). A model runs either operation by operation (tests/lib/dit.h), or as a job runs
 * it. The prediction, the loss and every gradient are compared with the golden results of PyTorch
 * in float64 (tests/golden/make_dit_golden.py). */
#ifndef SEQD_TESTS_DIT_GOLDEN_H
#define SEQD_TESTS_DIT_GOLDEN_H

#include "api/core/job.h"
#include "api/core/mem.h"
#include "tests/lib/dit.h"
#include "tests/lib/engine.h"
#include "tests/lib/goldens.h"
#include "tests/lib/mutant.h"
#include "worker/family/family.h"
#include "worker/hf/hf.h"
#include "worker/model/model.h"
#include "worker/plan/traffic.h"
#include "worker/plan/volume.h"

enum { DIT_MAX_P = 8 };

struct dit_golden {
    char name[32];
    struct model_shape m;
    struct family *family;
    struct st_file *weights, *gold;
    /* grid is the number of patches in time, height and width; the latents have the shape z, which
     * is [C, T, H, W] */
    int64_t grid[3], z[4];
    int64_t n_text, places; /* places is the number of values in a patch */
    /* rows in the order [space, time], which is the order on one rank */
    float *patches, *target, *weight;
    float *y, *mask, *prediction;
    double loss, n_counted;
};

/* The results of a run. Their rows are in the order [space, time]. */
struct outcome {
    double *nll;
    float *prediction;
    float *grad[COLUMN_SECTIONS]; /* gradients of each section, summed over all ranks */
    struct comm_count count[DIT_MAX_P];
};

struct dit_run {
    const struct dit_golden *g;
    int P;
    bool rank_bits;
    /* If it is true, the engine runs the model as in a job, with a schedule, a placement and a
     * plan. If it is false, the test runs the model operation by operation. */
    bool planned;
    enum recompute_id recompute;
    /* The number of rows in a piece of an MLP, if planned is set. 0 means that MLPs are not
     * computed in pieces. */
    int64_t mlp_chunk;
    bool offload; /* if planned is set, activations are offloaded */
    struct outcome *out;
    /* if planned is set, the memory of each rank during the run */
    struct engine_memory mem[DIT_MAX_P];
};

/* Returns the program of section k. Section 0 is `in`, the last section is `out`, and the sections
 * between them are the layers. */
static const struct program *section_program(const struct dit_golden *g, int k)
{
    return k == 0                   ? &g->family->in
           : k == g->m.n_layers + 1 ? &g->family->out
                                    : family_layer(g->family, &g->m, k - 1);
}

static inline float *gold_floats(const struct dit_golden *g, const char *name, int64_t *count)
{
    struct err e = {0};
    const struct st_tensor *t = st_find(g->gold, name);
    if (!t) {
        if (count) *count = 0;
        return NULL;
    }
    float *x = column_mem(t->count * 4);
    CHECK(st_read_f32(g->gold, t, x, &e) == 0);
    if (count) *count = t->count;
    return x;
}

static inline double gold_number(const struct dit_golden *g, const char *name)
{
    double x = NAN;
    const struct st_tensor *t = st_find(g->gold, name);
    CHECK_MSG(t && t->dtype == ST_F64, "%s has no %s", g->name, name);
    if (t) memcpy(&x, st_data(g->gold, t), 8);
    return x;
}

/* ---- samples in patches ---------------------------------------------------------------------- */

/* Returns the index of one element of the latents. Row (s, f) of the sequence is a patch, and the
 * element is at place k of this patch, in channel c. Returns -1 if the patch extends beyond the
 * latents and place k is outside of the latents. */
static inline int64_t element(const struct dit_golden *g, int64_t s, int64_t f, int64_t k,
                              int64_t c)
{
    const struct model_shape *m = &g->m;
    const int64_t t = f * m->patch_t + k / (m->patch_h * m->patch_w);
    const int64_t h = s / g->grid[2] * m->patch_h + k / m->patch_w % m->patch_h;
    const int64_t w = s % g->grid[2] * m->patch_w + k % m->patch_w;
    if (t >= g->z[1] || h >= g->z[2] || w >= g->z[3]) return -1;
    return ((c * g->z[1] + t) * g->z[2] + h) * g->z[3] + w;
}

static inline void patchify(struct dit_golden *g, const float *z, const float *v)
{
    const int64_t S = g->grid[1] * g->grid[2], T = g->grid[0], n = g->places;
    const int64_t C = g->m.in_channels, targets = shape_targets(&g->m);
    g->patches = column_mem(S * T * n * C * 4);
    g->target = column_mem(S * T * n * targets * 4);
    g->weight = column_mem(S * T * n * 4);
    for (int64_t i = 0; i < S * T; i++)
        for (int64_t k = 0; k < n; k++) {
            const bool there = element(g, i / T, i % T, k, 0) >= 0;
            g->weight[i * n + k] = there && g->mask[i % T] > 0;
            g->n_counted += there && g->mask[i % T] > 0 ? (double)C : 0;
            for (int64_t c = 0; c < C; c++) {
                const int64_t at = element(g, i / T, i % T, k, c);
                /* columns are ordered like those of a convolution's weight */
                g->patches[(i * C + c) * n + k] = there ? z[at] : 0;
            }
            for (int64_t c = 0; c < targets; c++) {
                const int64_t at = element(g, i / T, i % T, k, c);
                g->target[(i * n + k) * targets + c] = there ? v[at] : 0;
            }
        }
}

static inline void dit_open(struct dit_golden *g, const char *name)
{
    char path[256];
    struct err e = {0};
    memset(g, 0, sizeof *g);
    snprintf(g->name, sizeof g->name, "%s", name);
    snprintf(path, sizeof path, "tests/golden/%s", name);
    CHECK_MSG(config_read_dir(path, &g->m, &e) == 0, "%s", e.text);
    g->family = column_mem(sizeof *g->family);
    family_write(&g->m, g->family);
    snprintf(path, sizeof path, "tests/golden/%s/model.safetensors", name);
    g->weights = st_open(path, &e);
    snprintf(path, sizeof path, "tests/golden/%s/golden.safetensors", name);
    g->gold = st_open(path, &e);
    if (!g->weights || !g->gold) {
        printf("%s\n", e.text);
        abort();
    }
    const struct st_tensor *z = st_find(g->gold, "z");
    memcpy(g->z, z->dims, sizeof g->z);
    g->grid[0] = (g->z[1] + g->m.patch_t - 1) / g->m.patch_t;
    g->grid[1] = (g->z[2] + g->m.patch_h - 1) / g->m.patch_h;
    g->grid[2] = (g->z[3] + g->m.patch_w - 1) / g->m.patch_w;
    g->places = g->m.patch_t * g->m.patch_h * g->m.patch_w;
    g->n_text = st_find(g->gold, "y")->dims[0];
    g->y = gold_floats(g, "y", NULL);
    g->mask = gold_floats(g, "x_mask", NULL);
    g->prediction = gold_floats(g, "prediction", NULL);
    g->loss = gold_number(g, "loss");
    float *x = gold_floats(g, "z", NULL), *v = gold_floats(g, "v", NULL);
    patchify(g, x, v);
    free(x);
    free(v);
}

static inline void dit_close(struct dit_golden *g)
{
    st_close(g->weights);
    st_close(g->gold);
    free(g->family);
    free(g->patches);
    free(g->target);
    free(g->weight);
    free(g->y);
    free(g->mask);
    free(g->prediction);
}

/* ---- one rank -------------------------------------------------------------------------------- */

static inline int64_t buffer_size(const struct dit_run *r)
{
    const int64_t n[2] = {r->g->grid[1] * r->g->grid[2], r->g->grid[0]};
    return (dsp_buffer_size(n, r->P, r->rank_bits, r->g->m.width, 4) + 63) / 64 * 64;
}

/* Returns an array with the group of each row of this rank. The group of a row is 1 if the latents
 * of its frame are a condition, to which no noise is added. The group of any other row is 0. */
static inline int32_t *groups(const struct dit_run *r, const struct dsp *d, enum rows_id rows)
{
    const int spread = rows == ROWS_ALT;
    const int64_t n = dsp_rows(d->n, d->P, d->rank_bits, spread);
    int32_t *group = column_mem(n * 4);
    for (int64_t i = 0; i < n; i++) {
        const int64_t out = d->r * shard_share(d->n[spread], d->P, d->rank_bits) +
                            i / d->n[!spread];
        const int64_t frame = spread ? out : i % d->n[1];
        group[i] = frame < d->n[1] && r->g->mask[frame] == 0;
    }
    return group;
}

/* Copies this rank's rows of x, which is [space, time, cols]. Rows of padding at the end of the
 * rank's share are 0. */
static inline float *own(const struct dsp *d, const float *x, int64_t cols)
{
    const int64_t rows = dsp_rows(d->n, d->P, d->rank_bits, 0);
    const int64_t first = d->r * shard_share(d->n[0], d->P, d->rank_bits) * d->n[1];
    const int64_t n = shard_count(d->n[0], d->P, d->r, d->rank_bits) * d->n[1];
    float *own = column_mem(rows * cols * 4);
    memset(own, 0, (size_t)(rows * cols * 4));
    if (n > 0) memcpy(own, x + first * cols, (size_t)(n * cols * 4));
    return own;
}

static inline struct batch batch_of(const struct dit_run *r, const struct dsp *d)
{
    const struct dit_golden *g = r->g;
    return (struct batch){.group = {groups(r, d, ROWS_T), groups(r, d, ROWS_ALT)},
                          .latents = {.grid = {g->grid[0], g->grid[1], g->grid[2]},
                                      .height = gold_number(g, "height"),
                                      .width = gold_number(g, "width"),
                                      .t = gold_number(g, "t"),
                                      .fps = gold_number(g, "fps"),
                                      .label = (int32_t)gold_number(g, "label"),
                                      .patches = own(d, g->patches, g->places * g->m.in_channels),
                                      .target = own(d, g->target, g->places * shape_targets(&g->m)),
                                      .weight = own(d, g->weight, g->places),
                                      .text = g->y,
                                      .n_text = g->m.caption_channels ? g->n_text : 0,
                                      .dropped = gold_number(g, "dropped") > 0}};
}

static inline void batch_free(struct batch *b)
{
    free((void *)b->group[0]);
    free((void *)b->group[1]);
    free((void *)b->latents.patches);
    free((void *)b->latents.target);
    free((void *)b->latents.weight);
}

/* Returns the prediction, which is the input of the last operation. That operation computes the
 * loss. */
static inline struct tensor predicted(const struct column *c)
{
    const struct column_section *s = &c->section[c->n_sections - 1];
    return s->value[s->p->op[s->p->n_ops - 1].in[0]];
}

static inline void hand_over(const struct dit_run *r, struct column *c, const struct dsp *d)
{
    const int64_t first = d->r * shard_share(d->n[0], d->P, d->rank_bits) * d->n[1];
    const int64_t n = shard_count(d->n[0], d->P, d->r, d->rank_bits) * d->n[1];
    const struct tensor y = predicted(c);
    if (n <= 0) return;
    for (int64_t i = 0; i < n; i++) r->out->nll[first + i] = column_nll(c, i);
    memcpy(r->out->prediction + first * y.cols, y.data, (size_t)(n * y.cols * 4));
}

static inline int sum_gradients(const struct dit_run *r, struct column *c, struct ranks *g,
                                int rank, struct err *e)
{
    for (int k = 0; k < c->n_sections; k++) {
        const int64_t n = c->section[k].p->weights_size;
        /* has room for n numbers and for the padding up to a multiple of 16 P numbers */
        float *sum = column_mem((n + 128) * 4);
        memset(sum, 0, (size_t)(n + 128) * 4);
        memcpy(sum, c->section[k].grad, (size_t)n * 4);
        void *bounce = g ? (char *)comm_segment(g->comm[rank]) + 2 * buffer_size(r) : NULL;
        const int64_t padded = (n + 16 * r->P - 1) / (16 * r->P) * (16 * r->P);
        if (g && comm_sum_f32(g->comm[rank], PURPOSE_GRAD, sum, padded, bounce, e)) return -1;
        if (rank == 0)
            r->out->grad[k] = sum;
        else
            free(sum);
    }
    return 0;
}

static inline double *frequencies(const struct model_shape *m)
{
    double *f = column_mem(m->head_dim * 8);
    for (int64_t i = 0; i < m->head_dim / 2; i++)
        f[i] = pow(10000, -2 * (double)i / (double)m->head_dim);
    return f;
}

static inline void rank_body(struct ranks *g, int rank, void *arg)
{
    struct dit_run *r = arg;
    struct err e = {0};
    struct be *be = be_open(&(struct be_options){.device = "cpu", .n_threads = 1}, &e);
    char *segment = g ? comm_segment(g->comm[rank]) : NULL;
    struct dsp d = {.be = be,
                    .comm = g ? g->comm[rank] : NULL,
                    .P = r->P,
                    .r = rank,
                    .rank_bits = r->rank_bits,
                    .n = {r->g->grid[1] * r->g->grid[2], r->g->grid[0]},
                    .send = segment,
                    .recv = segment + buffer_size(r),
                    .purpose = PURPOSE_SWITCH};
    struct batch b = batch_of(r, &d);
    double *inv_freq = frequencies(&r->g->m);
    struct column *c = calloc(1, sizeof *c);
    *c = (struct column){.m = &r->g->m, .family = r->g->family};
    c->frame = (struct frame){.be = be,
                              .parts = r->rank_bits ? 8 / r->P : 1,
                              .tree = r->rank_bits,
                              .batch = &b,
                              .dsp = &d,
                              .inv_freq = inv_freq,
                              .rope_scale = 1,
                              .loss_scale = (float)(1 / r->g->n_counted)};
    for (int i = 0; i < 2; i++) {
        const int64_t n = dsp_rows(d.n, d.P, d.rank_bits, i);
        c->frame.rows[i ? ROWS_ALT : ROWS_T] = (struct frame_rows){n, n / c->frame.parts};
    }
    c->frame.rows[ROWS_TEXT].n = r->g->m.text_len;
    c->frame.rows[ROWS_COND].n = 2;
    column_open(c);
    column_load(c, r->g->weights);
    if (column_forward(c, &e) || column_backward(c, &e) || sum_gradients(r, c, g, rank, &e)) {
        CHECK_MSG(0, "%s P %d rank %d: %s", r->g->name, r->P, rank, e.text);
        if (g) ranks_fail(g, rank, &e);
    } else {
        hand_over(r, c, &d);
        if (g) r->out->count[rank] = comm_ledger(g->comm[rank])[PURPOSE_SWITCH];
    }
    column_free(c);
    free(c);
    free(inv_freq);
    batch_free(&b);
    be_close(be);
}

/* ---- the same run by the engine -------------------------------------------------------------- */

static inline void make_spec(const struct dit_run *r, struct job_spec *spec)
{
    const struct dit_golden *g = r->g;
    spec->kind = JOB_VERIFY;
    spec->model.shape = g->m;
    spec->data.frames = g->z[1];
    spec->data.height = g->z[2];
    spec->data.width = g->z[3];
    spec->train.global_batch = 1;
    spec->memory.recompute = (int32_t)r->recompute;
    spec->memory.mlp_chunk_tokens = r->mlp_chunk;
    spec->memory.offload = r->offload ? OFFLOAD_ACTIVATIONS : OFFLOAD_NONE;
    spec->resources.threads = 1;
    spec->parallel.sp = r->P;
    spec->parallel.strategy = STRATEGY_DSP;
    spec->determinism = r->rank_bits ? DET_RANKS : DET_RUN;
    spec->text_used = 1;
    engine_on_device(spec);
}

/* A rank of the engine. Its memory is filled with NaN, so that reading a value before it is
 * written is found. */
struct dit_seat {
    struct job_spec spec;
    struct plan plan;
    struct model m;
};

static inline int dit_seat_open(struct dit_seat *s, const struct dit_run *r, struct ranks *g,
                                int rank, struct err *e)
{
    char dir[64];
    make_spec(r, &s->spec);
    if (plan_make(&s->spec, 0, &s->plan, e)) return -1;
    const struct plan_item *scratch = &s->plan.item[PLAN_SCRATCH];
    const struct engine_memory *mem = &r->mem[rank];
    engine_poison(mem->be, mem->arena, scratch->offset);
    engine_poison(mem->be, mem->arena + scratch->offset + scratch->size,
                  s->plan.arena_size - scratch->offset - scratch->size);
    if (g) engine_poison(mem->be, comm_segment(g->comm[rank]), s->plan.segment_size);
    if (mem->host) memset(mem->host, 0xff, (size_t)s->plan.host_size);
    const struct model_options o = {.shape = &r->g->m,
                                    .plan = &s->plan,
                                    .arena = mem->arena,
                                    .host = mem->host,
                                    .offload = mem->offload,
                                    .segment = g ? comm_segment(g->comm[rank]) : NULL,
                                    .be = mem->be,
                                    .comm = g ? g->comm[rank] : NULL,
                                    .rank = rank,
                                    .n_ranks = s->plan.n_ranks};
    snprintf(dir, sizeof dir, "tests/golden/%s", r->g->name);
    if (model_init(&s->m, &o, e)) return -1;
    float *w = column_mem(s->plan.n_params * 4);
    const int rc = hf_load(dir, &r->g->m, s->m.dtype, w, e);
    if (!rc) engine_write(mem->be, s->m.params, w, s->plan.n_params * 4);
    mem->be->ops->fill(mem->be, s->m.grad, s->plan.n_grad, 0);
    CHECK(mem_round(s->m.host_end, PLAN_PAGE) == s->plan.reference_host_offset);
    free(w);
    return rc;
}

static inline void keep(const struct dit_run *r, struct dit_seat *s, const struct dsp *d)
{
    const int64_t first = d->r * shard_share(d->n[0], d->P, d->rank_bits) * d->n[1];
    const int64_t n = shard_count(d->n[0], d->P, d->r, d->rank_bits) * d->n[1];
    if (n <= 0) return;
    const struct tensor y = model_normed(&s->m, 0, n);
    memcpy(r->out->nll + first, s->m.nll, (size_t)n * 8);
    engine_read(s->m.be, r->out->prediction + first * y.cols, y.data, n * y.cols * 4);
}

static inline int dit_seat_run(const struct dit_run *r, struct dit_seat *s, const struct dsp *d,
                               struct batch *b, struct err *e)
{
    double nll;
    if (model_forward(&s->m, b, e) || model_nll(&s->m, b, &nll, e)) return -1;
    keep(r, s, d);
    if (s->m.comm) comm_ledger_reset(s->m.comm);
    if (model_grad(&s->m, b, (float)(1 / r->g->n_counted), &nll, e)) return -1;
    if (s->m.comm) r->out->count[d->r] = comm_ledger(s->m.comm)[PURPOSE_SWITCH];
    if (model_reduce_grad(&s->m, e)) return -1;
    int64_t at = 0;
    for (int k = 0; d->r == 0 && k < r->g->m.n_layers + 2; k++) {
        const int64_t n = section_program(r->g, k)->weights_size;
        r->out->grad[k] = column_mem(n * 4);
        engine_read(s->m.be, r->out->grad[k], s->m.grad + at, n * 4);
        at += n;
    }
    return 0;
}

static inline void dit_seat_body(struct ranks *g, int rank, void *arg)
{
    struct dit_run *r = arg;
    struct err e = {0};
    struct dit_seat *s = calloc(1, sizeof *s);
    const struct dsp d = {.P = r->P,
                          .r = rank,
                          .rank_bits = r->rank_bits,
                          .n = {r->g->grid[1] * r->g->grid[2], r->g->grid[0]}};
    struct batch b = batch_of(r, &d);
    if (dit_seat_open(s, r, g, rank, &e) || dit_seat_run(r, s, &d, &b, &e)) {
        CHECK_MSG(0, "%s P %d rank %d: %s", r->g->name, r->P, rank, e.text);
        if (g) ranks_fail(g, rank, &e);
    }
    batch_free(&b);
    free(s);
}

/* Runs r by the engine on the device that engine_device() names. */
static inline void dit_planned(struct dit_run *r, const struct comm_options *extra)
{
    struct dit_seat *s = calloc(1, sizeof *s);
    struct err e = {0};
    if (!s) abort();
    make_spec(r, &s->spec);
    const bool made = !plan_make(&s->spec, 0, &s->plan, &e);
    CHECK_MSG(made, "%s: %s", r->g->name, e.text);
    if (made) engine_ranks(&s->spec, &s->plan, NULL, extra, r->mem, dit_seat_body, r);
    free(s);
}

/* ---- a run ----------------------------------------------------------------------------------- */

static inline void outcome_make(const struct dit_golden *g, struct outcome *o)
{
    const int64_t rows = g->grid[0] * g->grid[1] * g->grid[2];
    memset(o, 0, sizeof *o);
    o->nll = column_mem(rows * 8);
    o->prediction = column_mem(rows * g->places * g->m.out_channels * 4);
}

static inline void outcome_free(struct outcome *o)
{
    free(o->nll);
    free(o->prediction);
    for (int k = 0; k < COLUMN_SECTIONS; k++) free(o->grad[k]);
}

static inline void dit_go(struct dit_run *r)
{
    const struct comm_options extra = {.delay_max_us = 20, .delay_seed = 9};
    struct ranks ranks;
    outcome_make(r->g, r->out);
    if (r->planned) {
        dit_planned(r, &extra);
        return;
    }
    if (r->P == 1) {
        rank_body(NULL, 0, r);
        return;
    }
    ranks_open(&ranks, r->P, 2 * buffer_size(r) + comm_bounce_size(r->P), &extra);
    ranks_run(&ranks, rank_body, r);
    ranks_check(&ranks);
    ranks_close(&ranks);
}

static inline void run(const struct dit_golden *g, int P, bool rank_bits, int mutant,
                       struct outcome *out)
{
    struct dit_run r = {.g = g, .P = P, .rank_bits = rank_bits, .out = out};
    mutant_choose(mutant);
    dit_go(&r);
    mutant_choose(MUTANT_NONE);
}

/* ---- against the golden ---------------------------------------------------------------------- */

struct distance {
    double diff, norm; /* sums of squares */
};

static inline void measure(struct distance *d, double got, double want)
{
    d->diff += (got - want) * (got - want);
    d->norm += want * want;
}

static inline double relative(struct distance d)
{
    return sqrt(d.diff / d.norm);
}

static inline double prediction_distance(const struct dit_golden *g, const struct outcome *o)
{
    const int64_t S = g->grid[1] * g->grid[2], T = g->grid[0], C = g->m.out_channels;
    struct distance d = {0};
    for (int64_t i = 0; i < S * T * g->places * C; i++) {
        const int64_t row = i / (g->places * C), k = i / C % g->places;
        const int64_t at = element(g, row / T, row % T, k, i % C);
        if (at >= 0) measure(&d, (double)o->prediction[i], (double)g->prediction[at]);
    }
    return relative(d);
}

static inline double loss_of(const struct dit_golden *g, const struct outcome *o)
{
    double sum = 0;
    for (int64_t i = 0; i < g->grid[0] * g->grid[1] * g->grid[2]; i++) sum += o->nll[i];
    return sum / g->n_counted;
}

/* Compares every row of one tensor. If the golden file holds only every fifth row, it compares
 * these rows. */
static inline struct distance tensor_distance(const struct weight *w, const float *got,
                                              const float *want, int64_t n_want)
{
    const int64_t cols = w->cols ? w->cols : 1, step = n_want == column_count(w) ? 1 : 5;
    struct distance d = {0};
    CHECK_MSG(n_want == (w->rows + step - 1) / step * cols, "%s: %lld numbers", w->name,
              (long long)n_want);
    for (int64_t i = 0; i < n_want; i++)
        measure(&d, (double)got[i / cols * step * cols + i % cols], (double)want[i]);
    return d;
}

struct verdict {
    double prediction, loss, worst;
    char tensor[128]; /* the name of the tensor whose gradient has the largest error */
};

/* Compares a run with its golden results. Some gradients are 0 in exact arithmetic, for example in
 * attention to a single key. If the exact gradient is 0, the error is divided by the norm of all
 * gradients of the model. */
static inline struct verdict dit_compare(const struct dit_golden *g, const struct outcome *o)
{
    struct verdict v = {.prediction = prediction_distance(g, o)};
    struct column *c = calloc(1, sizeof *c);
    double whole = 0;
    v.loss = fabs(loss_of(g, o) - g->loss) / g->loss;
    c->m = &g->m;
    for (int pass = 0; pass < 2; pass++)
        for (int k = 0; k < g->m.n_layers + 2; k++) {
            const struct program *p = k == 0 ? &g->family->in
                                      : k == g->m.n_layers + 1
                                          ? &g->family->out
                                          : family_layer(g->family, &g->m, k - 1);
            c->section[k].p = p;
            for (int i = 0; i < p->n_weights; i++) {
                char name[128], key[160];
                int64_t n;
                column_name(c, k, i, name);
                snprintf(key, sizeof key, "grad:%s", name);
                float *want = gold_floats(g, key, &n);
                const float *got = o->grad[k] + p->weight[i].offset;
                if (p->weight[i].frozen) {
                    for (int64_t j = 0; j < column_count(&p->weight[i]); j++) CHECK(got[j] == 0);
                    CHECK(!want);
                    continue;
                }
                CHECK_MSG(want, "%s: no gradient of %s", g->name, name);
                if (!want) continue;
                struct distance d = tensor_distance(&p->weight[i], got, want, n);
                free(want);
                if (pass == 0) whole += d.norm;
                if (d.norm == 0) d.norm = whole;
                if (pass == 1 && !(relative(d) <= v.worst)) {
                    v.worst = relative(d);
                    snprintf(v.tensor, sizeof v.tensor, "%s", name);
                }
            }
        }
    free(c);
    return v;
}

/* Tells whether every distance is at most 1e-5, which is the bound that the project requires. */
static inline bool dit_holds(const struct verdict *v)
{
    return v->prediction <= 1e-5 && v->loss <= 1e-5 && v->worst <= 1e-5;
}

static const char *const dit_names[] = {GOLDENS_DIT};
enum { DIT_NAMES = sizeof dit_names / sizeof dit_names[0] };

/* Checks that each rank sent as many bytes as the plan counts. Also checks that recomputation
 * repeated the messages of a switch only in mode full. */
static inline void check_traffic(const struct dit_run *r)
{
    const int64_t n[2] = {r->g->grid[1] * r->g->grid[2], r->g->grid[0]}, row = r->g->m.width * 4;
    const int64_t pairs = r->g->m.family == FAMILY_STDIT ? r->g->m.n_layers : r->g->m.n_layers / 2;
    const struct traffic step = {.S = n[0] * n[1], .times = 1, .pass = TRAFFIC_BOTH};
    struct dit_seat *s = calloc(1, sizeof *s);
    struct err e = {0};
    make_spec(r, &s->spec);
    CHECK_MSG(plan_make(&s->spec, 0, &s->plan, &e) == 0, "%s", e.text);
    for (int rank = 0; rank < r->P; rank++) {
        struct comm_count want[PURPOSE_N] = {0}, least = {0};
        const struct comm_count *got = &r->out->count[rank];
        CHECK_MSG(traffic_program(&r->g->m, &s->plan, rank, &step, want, &e) == 0, "%s", e.text);
        CHECK_MSG(!memcmp(&want[PURPOSE_SWITCH], got, sizeof *got),
                  "%s P %d recompute %d rank %d: %lld bytes, planned %lld", r->g->name, r->P,
                  r->recompute, rank, (long long)got->bytes_sent,
                  (long long)want[PURPOSE_SWITCH].bytes_sent);
        volume_add(&least, volume_switch(r->P, rank, n, 0, row, r->rank_bits), 2 * pairs);
        volume_add(&least, volume_switch(r->P, rank, n, 1, row, r->rank_bits), 2 * pairs);
        if (r->recompute != RECOMPUTE_FULL) CHECK(got->bytes_sent == least.bytes_sent);
    }
    free(s);
}

/* Runs a model and compares it with its golden results. Only the members P, recompute, mlp_chunk
 * and offload of `asked` are used. */
static inline void dit_check_asked(const struct dit_golden *g, struct dit_run asked)
{
    struct outcome o;
    struct dit_run r = asked;
    r.g = g, r.planned = true, r.out = &o;
    dit_go(&r);
    const struct verdict v = dit_compare(g, &o);
    CHECK_MSG(dit_holds(&v),
              "%s P %d recompute %d, pieces of %lld%s: prediction %.3g, loss %.3g, gradient of %s "
              "%.3g",
              g->name, r.P, r.recompute, (long long)r.mlp_chunk, r.offload ? ", offloaded" : "",
              v.prediction, v.loss, v.tensor, v.worst);
    check_traffic(&r);
    outcome_free(&o);
}

/* Checks a run whose MLPs are computed in pieces of mlp_chunk rows. If mlp_chunk is 0, MLPs are
 * not computed in pieces. */
static inline void dit_check_pieces(const struct dit_golden *g, int P, enum recompute_id mode,
                                    int64_t mlp_chunk)
{
    dit_check_asked(g, (struct dit_run){.P = P, .recompute = mode, .mlp_chunk = mlp_chunk});
}

static inline void dit_check_planned(const struct dit_golden *g, int P, enum recompute_id mode)
{
    dit_check_pieces(g, P, mode, 0);
}

#endif
