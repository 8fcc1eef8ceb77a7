/* Diffusion transformers against PyTorch in float64 (tests/golden/make_dit_golden.py): prediction,
 * loss and every gradient, on any number of ranks; bits that do not depend on it. */
#include "tests/dit.h"
#include "tests/mutant.h"

#include "worker/model/hf.h"
#include "worker/model/model.h"
#include "worker/plan/traffic.h"
#include "worker/plan/volume.h"

enum { MAX_P = 8 };

struct golden {
    char name[32];
    struct model_shape m;
    struct family *family;
    struct st_file *weights, *gold;
    int64_t grid[3], z[4];            /* patches; C, T, H, W */
    int64_t n_text, places;           /* places: of a patch */
    float *patches, *target, *weight; /* [space, time] order, as on one rank */
    float *y, *mask, *prediction;
    double loss, n_counted;
};

/* What a run leaves, in [space, time] order. */
struct outcome {
    double *nll;
    float *prediction;
    float *grad[COLUMN_SECTIONS]; /* summed over ranks */
    struct comm_count count[MAX_P];
};

struct run {
    const struct golden *g;
    int P, mutant;
    bool rank_bits;
    bool planned; /* by the engine as a job runs it: schedule, placement, plan; else by hand */
    enum recompute_id recompute;
    struct outcome *out;
};

/* Section k: in, the layers, out. */
static const struct program *section_program(const struct golden *g, int k)
{
    return k == 0                   ? &g->family->in
           : k == g->m.n_layers + 1 ? &g->family->out
                                    : family_layer(g->family, &g->m, k - 1);
}

static float *gold_floats(const struct golden *g, const char *name, int64_t *count)
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

static double gold_number(const struct golden *g, const char *name)
{
    double x = NAN;
    const struct st_tensor *t = st_find(g->gold, name);
    CHECK_MSG(t && t->dtype == ST_F64, "%s has no %s", g->name, name);
    if (t) memcpy(&x, st_data(g->gold, t), 8);
    return x;
}

/* ---- samples in patches ---------------------------------------------------------------------- */

/* Element [c, t, h, w] of what row (s, f) has at place k; -1: beyond the edge. */
static int64_t element(const struct golden *g, int64_t s, int64_t f, int64_t k, int64_t c)
{
    const struct model_shape *m = &g->m;
    const int64_t t = f * m->patch_t + k / (m->patch_h * m->patch_w);
    const int64_t h = s / g->grid[2] * m->patch_h + k / m->patch_w % m->patch_h;
    const int64_t w = s % g->grid[2] * m->patch_w + k % m->patch_w;
    if (t >= g->z[1] || h >= g->z[2] || w >= g->z[3]) return -1;
    return ((c * g->z[1] + t) * g->z[2] + h) * g->z[3] + w;
}

static void patchify(struct golden *g, const float *z, const float *v)
{
    const int64_t S = g->grid[1] * g->grid[2], T = g->grid[0], n = g->places;
    const int64_t C = g->m.in_channels;
    g->patches = column_mem(S * T * n * C * 4);
    g->target = column_mem(S * T * n * C * 4);
    g->weight = column_mem(S * T * n * 4);
    for (int64_t i = 0; i < S * T; i++)
        for (int64_t k = 0; k < n; k++) {
            const bool there = element(g, i / T, i % T, k, 0) >= 0;
            g->weight[i * n + k] = there && g->mask[i % T] > 0;
            g->n_counted += there && g->mask[i % T] > 0 ? (double)C : 0;
            for (int64_t c = 0; c < C; c++) {
                const int64_t at = element(g, i / T, i % T, k, c);
                g->patches[(i * C + c) * n + k] = there ? z[at] : 0; /* as a convolution's weight */
                g->target[(i * n + k) * C + c] = there ? v[at] : 0;
            }
        }
}

static void golden_open(struct golden *g, const char *name)
{
    char path[256];
    struct err e = {0};
    memset(g, 0, sizeof *g);
    snprintf(g->name, sizeof g->name, "%s", name);
    snprintf(path, sizeof path, "tests/golden/%s", name);
    CHECK_MSG(hf_config_read(path, &g->m, &e) == 0, "%s", e.text);
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

static void golden_close(struct golden *g)
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

static int64_t buffer_size(const struct run *r)
{
    const int64_t n[2] = {r->g->grid[1] * r->g->grid[2], r->g->grid[0]};
    return (dsp_buffer_size(n, r->P, r->rank_bits, r->g->m.width, 4) + 63) / 64 * 64;
}

/* Rows of one kind: frames given clean, by the row's frame. */
static int32_t *groups(const struct run *r, const struct dsp *d, enum rows_id rows)
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

/* This rank's rows of x [space, time, cols]; pads 0. */
static float *own(const struct dsp *d, const float *x, int64_t cols)
{
    const int64_t rows = dsp_rows(d->n, d->P, d->rank_bits, 0);
    const int64_t first = d->r * shard_share(d->n[0], d->P, d->rank_bits) * d->n[1];
    const int64_t n = shard_count(d->n[0], d->P, d->r, d->rank_bits) * d->n[1];
    float *own = column_mem(rows * cols * 4);
    memset(own, 0, (size_t)(rows * cols * 4));
    if (n > 0) memcpy(own, x + first * cols, (size_t)(n * cols * 4));
    return own;
}

static struct batch batch_of(const struct run *r, const struct dsp *d)
{
    const struct golden *g = r->g;
    return (struct batch){.group = {groups(r, d, ROWS_T), groups(r, d, ROWS_ALT)},
                          .latents = {.grid = {g->grid[0], g->grid[1], g->grid[2]},
                                      .height = gold_number(g, "height"),
                                      .width = gold_number(g, "width"),
                                      .t = gold_number(g, "t"),
                                      .fps = gold_number(g, "fps"),
                                      .label = (int32_t)gold_number(g, "label"),
                                      .patches = own(d, g->patches, g->places * g->m.in_channels),
                                      .target = own(d, g->target, g->places * g->m.in_channels),
                                      .weight = own(d, g->weight, g->places),
                                      .text = g->y,
                                      .n_text = g->m.caption_channels ? g->n_text : 0,
                                      .dropped = gold_number(g, "dropped") > 0}};
}

static void batch_free(struct batch *b)
{
    free((void *)b->group[0]);
    free((void *)b->group[1]);
    free((void *)b->latents.patches);
    free((void *)b->latents.target);
    free((void *)b->latents.weight);
}

/* The prediction is what the loss reads. */
static struct tensor predicted(const struct column *c)
{
    const struct column_section *s = &c->section[c->n_sections - 1];
    return s->value[s->p->op[s->p->n_ops - 1].in[0]];
}

static void hand_over(const struct run *r, struct column *c, const struct dsp *d)
{
    const int64_t first = d->r * shard_share(d->n[0], d->P, d->rank_bits) * d->n[1];
    const int64_t n = shard_count(d->n[0], d->P, d->r, d->rank_bits) * d->n[1];
    const struct tensor y = predicted(c);
    if (n <= 0) return;
    for (int64_t i = 0; i < n; i++) r->out->nll[first + i] = column_nll(c, i);
    memcpy(r->out->prediction + first * y.cols, y.data, (size_t)(n * y.cols * 4));
}

static int sum_gradients(const struct run *r, struct column *c, struct ranks *g, int rank,
                         struct err *e)
{
    for (int k = 0; k < c->n_sections; k++) {
        const int64_t n = c->section[k].p->weights_size;
        float *sum = column_mem((n + 128) * 4); /* a multiple of 16 P */
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

static double *frequencies(const struct model_shape *m)
{
    double *f = column_mem(m->head_dim * 8);
    for (int64_t i = 0; i < m->head_dim / 2; i++)
        f[i] = pow(10000, -2 * (double)i / (double)m->head_dim);
    return f;
}

static void rank_body(struct ranks *g, int rank, void *arg)
{
    struct run *r = arg;
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
                    .purpose = PURPOSE_SWITCH,
                    .mutant = r->mutant};
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

/* ---- the same by the engine ------------------------------------------------------------------ */

static void make_spec(const struct run *r, struct job_spec *spec)
{
    const struct golden *g = r->g;
    spec->kind = JOB_VERIFY;
    spec->model.shape = g->m;
    spec->data.frames = g->z[1];
    spec->data.height = g->z[2];
    spec->data.width = g->z[3];
    spec->train.global_batch = 1;
    spec->memory.recompute = (int32_t)r->recompute;
    spec->resources.threads = 1;
    spec->parallel.sp = r->P;
    spec->parallel.strategy = STRATEGY_DSP;
    spec->determinism = r->rank_bits ? DET_RANKS : DET_RUN;
    spec->text_used = 1;
}

/* A rank of the engine. Its memory is full of NaN: what is read before it was written shows. */
struct seat {
    struct job_spec spec;
    struct plan plan;
    struct model m;
    struct be *be;
    char *arena;
};

static int seat_open(struct seat *s, const struct run *r, struct ranks *g, int rank, struct err *e)
{
    char dir[64];
    make_spec(r, &s->spec);
    if (plan_make(&s->spec, 0, &s->plan, e)) return -1;
    s->arena = column_mem((s->plan.arena_size + 4095) / 4096 * 4096);
    if (g) memset(comm_segment(g->comm[rank]), 0xff, (size_t)s->plan.segment_size);
    s->be = be_open(&(struct be_options){.device = "cpu",
                                         .n_threads = s->plan.n_threads,
                                         .scratch = s->arena + s->plan.item[PLAN_SCRATCH].offset},
                    e);
    const struct model_options o = {.shape = &r->g->m,
                                    .plan = &s->plan,
                                    .arena = s->arena,
                                    .segment = g ? comm_segment(g->comm[rank]) : NULL,
                                    .be = s->be,
                                    .comm = g ? g->comm[rank] : NULL,
                                    .rank = rank,
                                    .n_ranks = s->plan.n_ranks,
                                    .mutant = r->mutant};
    snprintf(dir, sizeof dir, "tests/golden/%s", r->g->name);
    if (model_init(&s->m, &o, e)) return -1;
    if (hf_load(dir, &r->g->m, s->m.dtype, s->m.params, e)) return -1;
    memset(s->m.grad, 0, (size_t)s->plan.n_grad * 4);
    return 0;
}

static void keep(const struct run *r, struct seat *s, const struct dsp *d)
{
    const int64_t first = d->r * shard_share(d->n[0], d->P, d->rank_bits) * d->n[1];
    const int64_t n = shard_count(d->n[0], d->P, d->r, d->rank_bits) * d->n[1];
    if (n <= 0) return;
    const struct tensor y = model_normed(&s->m, 0, n);
    memcpy(r->out->nll + first, s->m.nll, (size_t)n * 8);
    memcpy(r->out->prediction + first * y.cols, y.data, (size_t)(n * y.cols * 4));
}

static int seat_run(const struct run *r, struct seat *s, const struct dsp *d, struct batch *b,
                    struct err *e)
{
    double nll;
    if (model_forward(&s->m, b, e)) return -1;
    model_nll(&s->m, b);
    keep(r, s, d);
    if (s->m.comm) comm_ledger_reset(s->m.comm);
    if (model_grad(&s->m, b, (float)(1 / r->g->n_counted), &nll, e)) return -1;
    if (s->m.comm) r->out->count[d->r] = comm_ledger(s->m.comm)[PURPOSE_SWITCH];
    if (model_reduce_grad(&s->m, e)) return -1;
    int64_t at = 0;
    for (int k = 0; d->r == 0 && k < r->g->m.n_layers + 2; k++) {
        const int64_t n = section_program(r->g, k)->weights_size;
        r->out->grad[k] = column_mem(n * 4);
        memcpy(r->out->grad[k], s->m.grad + at, (size_t)n * 4);
        at += n;
    }
    return 0;
}

static void seat_body(struct ranks *g, int rank, void *arg)
{
    struct run *r = arg;
    struct err e = {0};
    struct seat *s = calloc(1, sizeof *s);
    const struct dsp d = {.P = r->P,
                          .r = rank,
                          .rank_bits = r->rank_bits,
                          .n = {r->g->grid[1] * r->g->grid[2], r->g->grid[0]}};
    struct batch b = batch_of(r, &d);
    if (seat_open(s, r, g, rank, &e) || seat_run(r, s, &d, &b, &e)) {
        CHECK_MSG(0, "%s P %d rank %d: %s", r->g->name, r->P, rank, e.text);
        if (g) ranks_fail(g, rank, &e);
    }
    batch_free(&b);
    be_close(s->be);
    free(s->arena);
    free(s);
}

static int64_t segment_of(const struct run *r)
{
    struct seat *s = calloc(1, sizeof *s);
    struct err e = {0};
    make_spec(r, &s->spec);
    CHECK_MSG(plan_make(&s->spec, 0, &s->plan, &e) == 0, "%s: %s", r->g->name, e.text);
    const int64_t size = s->plan.segment_size;
    free(s);
    return size;
}

/* ---- a run ----------------------------------------------------------------------------------- */

static void outcome_make(const struct golden *g, struct outcome *o)
{
    const int64_t rows = g->grid[0] * g->grid[1] * g->grid[2];
    memset(o, 0, sizeof *o);
    o->nll = column_mem(rows * 8);
    o->prediction = column_mem(rows * g->places * g->m.out_channels * 4);
}

static void outcome_free(struct outcome *o)
{
    free(o->nll);
    free(o->prediction);
    for (int k = 0; k < COLUMN_SECTIONS; k++) free(o->grad[k]);
}

static void run_all(struct run *r)
{
    void (*body)(struct ranks *, int, void *) = r->planned ? seat_body : rank_body;
    struct ranks ranks;
    outcome_make(r->g, r->out);
    if (r->P == 1) {
        body(NULL, 0, r);
        return;
    }
    const int64_t size = r->planned ? segment_of(r) : 2 * buffer_size(r) + comm_bounce_size(r->P);
    ranks_open(&ranks, r->P, size, &(struct comm_options){.delay_max_us = 20, .delay_seed = 9});
    ranks_run(&ranks, body, r);
    ranks_check(&ranks);
    ranks_close(&ranks);
}

static void run(const struct golden *g, int P, bool rank_bits, int mutant, struct outcome *out)
{
    struct run r = {.g = g, .P = P, .rank_bits = rank_bits, .mutant = mutant, .out = out};
    run_all(&r);
}

/* ---- against the golden ---------------------------------------------------------------------- */

struct distance {
    double diff, norm; /* squares */
};

static void measure(struct distance *d, double got, double want)
{
    d->diff += (got - want) * (got - want);
    d->norm += want * want;
}

static double relative(struct distance d)
{
    return sqrt(d.diff / d.norm);
}

static double prediction_distance(const struct golden *g, const struct outcome *o)
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

static double loss_of(const struct golden *g, const struct outcome *o)
{
    double sum = 0;
    for (int64_t i = 0; i < g->grid[0] * g->grid[1] * g->grid[2]; i++) sum += o->nll[i];
    return sum / g->n_counted;
}

/* Of one tensor: every row, or every fifth where the file has no more. */
static struct distance tensor_distance(const struct weight *w, const float *got, const float *want,
                                       int64_t n_want)
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
    char tensor[128]; /* whose gradient is worst */
};

/* A gradient that is 0 by right (one key to look at) is compared with the model's whole gradient.
 * */
static struct verdict compare(const struct golden *g, const struct outcome *o)
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

/* 1e-5 is the requirement. */
static bool holds(const struct verdict *v)
{
    return v->prediction <= 1e-5 && v->loss <= 1e-5 && v->worst <= 1e-5;
}

static const char *const names[] = {"stdit3", "stdit3_image", "stdit", "latte", "t2d", "t2d_plain"};
enum { N_NAMES = sizeof names / sizeof names[0] };

static void test_golden(void)
{
    static const int degrees[] = {1, 2, 3, 4, 8};
    for (int i = 0; i < N_NAMES; i++) {
        struct golden g;
        golden_open(&g, names[i]);
        for (int p = 0; p < 5; p++) {
            struct outcome o;
            run(&g, degrees[p], false, 0, &o);
            const struct verdict v = compare(&g, &o);
            CHECK_MSG(holds(&v), "%s P %d: prediction %.3g, loss %.3g, gradient of %s %.3g",
                      names[i], degrees[p], v.prediction, v.loss, v.tensor, v.worst);
            outcome_free(&o);
        }
        golden_close(&g);
    }
}

/* What each rank sent is what the plan counts. Recomputing makes no switch twice but in mode
 * full. */
static void check_traffic(const struct run *r)
{
    const int64_t n[2] = {r->g->grid[1] * r->g->grid[2], r->g->grid[0]}, row = r->g->m.width * 4;
    const int64_t pairs = r->g->m.family == FAMILY_STDIT ? r->g->m.n_layers : r->g->m.n_layers / 2;
    const struct traffic step = {.S = n[0] * n[1], .times = 1, .pass = TRAFFIC_BOTH};
    struct seat *s = calloc(1, sizeof *s);
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

static void check_planned(const struct golden *g, int P, enum recompute_id mode)
{
    struct outcome o;
    struct run r = {.g = g, .P = P, .planned = true, .recompute = mode, .out = &o};
    run_all(&r);
    const struct verdict v = compare(g, &o);
    CHECK_MSG(holds(&v), "%s P %d recompute %d: prediction %.3g, loss %.3g, gradient of %s %.3g",
              g->name, P, mode, v.prediction, v.loss, v.tensor, v.worst);
    check_traffic(&r);
    outcome_free(&o);
}

/* As a job runs them. */
static void test_planned(void)
{
    for (int i = 0; i < N_NAMES; i++) {
        struct golden g;
        golden_open(&g, names[i]);
        for (enum recompute_id mode = RECOMPUTE_NONE; mode <= RECOMPUTE_FULL; mode++)
            check_planned(&g, 1, mode);
        check_planned(&g, 2, RECOMPUTE_NONE);
        check_planned(&g, 3, RECOMPUTE_SELECTIVE);
        check_planned(&g, 4, RECOMPUTE_FULL);
        check_planned(&g, 8, RECOMPUTE_NONE);
        golden_close(&g);
    }
}

/* ---- bits, bytes ----------------------------------------------------------------------------- */

static bool same_bits(const struct golden *g, const struct outcome *a, const struct outcome *b)
{
    const int64_t rows = g->grid[0] * g->grid[1] * g->grid[2];
    bool same = !memcmp(a->nll, b->nll, (size_t)rows * 8) &&
                !memcmp(a->prediction, b->prediction,
                        (size_t)(rows * g->places * g->m.out_channels * 4));
    for (int k = 0; k < g->m.n_layers + 2; k++) {
        const struct program *p = section_program(g, k);
        same = same && !memcmp(a->grad[k], b->grad[k], (size_t)p->weights_size * 4);
    }
    return same;
}

static void run_bits(const struct golden *g, int P, bool planned, struct outcome *o)
{
    struct run r = {.g = g,
                    .P = P,
                    .rank_bits = true,
                    .planned = planned,
                    .recompute = RECOMPUTE_SELECTIVE,
                    .out = o};
    run_all(&r);
}

/* determinism "ranks": 1, 2, 4 and 8 ranks give the same loss, prediction and gradients, bit by
 * bit: 5 frames in chunks of one, so that ranks have none; 15 places in chunks of two. */
static void check_bits(const struct golden *g, bool planned)
{
    struct outcome one;
    run_bits(g, 1, planned, &one);
    const struct verdict v = compare(g, &one);
    CHECK_MSG(holds(&v), "%s: gradient of %s %.3g", g->name, v.tensor, v.worst);
    for (int P = 2; P <= 8; P *= 2) {
        struct outcome o;
        run_bits(g, P, planned, &o);
        CHECK_MSG(same_bits(g, &one, &o), "%s P %d has other bits than one rank", g->name, P);
        outcome_free(&o);
    }
    outcome_free(&one);
}

static void test_rank_bits(void)
{
    for (int i = 0; i < N_NAMES; i++) {
        struct golden g;
        golden_open(&g, names[i]);
        check_bits(&g, false);
        check_bits(&g, true);
        golden_close(&g);
    }
}

static int switches(const struct program *p, int to)
{
    int n = 0;
    for (int i = 0; i < p->n_ops; i++) n += p->op[i].kind == OP_SWITCH && p->op[i].u.dims.to == to;
    return n;
}

/* What each rank sent is two switches for each attention along space, forward and backward. */
static void check_bytes(const struct golden *g, int P, bool rank_bits)
{
    const int64_t n[2] = {g->grid[1] * g->grid[2], g->grid[0]}, row = g->m.width * 4;
    const int64_t pairs = g->m.family == FAMILY_STDIT ? g->m.n_layers : g->m.n_layers / 2;
    struct outcome o;
    run(g, P, rank_bits, 0, &o);
    for (int r = 0; r < P; r++) {
        struct comm_count want = {0};
        volume_add(&want, volume_switch(P, r, n, 0, row, rank_bits), 2 * pairs);
        volume_add(&want, volume_switch(P, r, n, 1, row, rank_bits), 2 * pairs);
        CHECK_MSG(!memcmp(&want, &o.count[r], sizeof want),
                  "%s P %d rank %d: %lld bytes, want %lld", g->name, P, r,
                  (long long)o.count[r].bytes_sent, (long long)want.bytes_sent);
    }
    outcome_free(&o);
}

static void test_bytes(void)
{
    for (int i = 0; i < N_NAMES; i++) {
        struct golden g;
        golden_open(&g, names[i]);
        check_bytes(&g, 3, false);
        check_bytes(&g, 4, true);
        golden_close(&g);
    }
}

/* ---- labels ---------------------------------------------------------------------------------- */

/* Each operation as a stage: an attention sees its own dimension whole, the others may be spread
 * along either. The programs switch as often as the labelling that moves the fewest rows. */
static void check_labels(const struct golden *g, int P)
{
    static struct dsp_stage stage[DSP_STAGES];
    static int label[DSP_STAGES];
    int n = 0, written = 0;
    int64_t moved = 0;
    for (int l = 0; l < g->m.n_layers; l++) {
        const struct program *p = family_layer(g->family, &g->m, l);
        written += switches(p, 0) + switches(p, 1);
        for (int i = 0; i < p->n_ops; i++) {
            const struct op *o = &p->op[i];
            if (o->kind == OP_SWITCH || p->value[o->in[0]].rows > ROWS_ALT) continue;
            stage[n++] = (struct dsp_stage){.whole = o->kind == OP_ATTENTION ? 1u << o->u.attn.dim
                                                                             : 0,
                                            .size = {g->grid[1] * g->grid[2], g->grid[0]}};
        }
    }
    CHECK(n > 0 && n <= DSP_STAGES);
    const int best = dsp_label(stage, n, 2, P, 0, 0, label, &moved);
    CHECK_MSG(best == written, "%s: %d switches, the fewest are %d", g->name, written, best);
}

static void test_labels(void)
{
    for (int i = 0; i < N_NAMES; i++) {
        struct golden g;
        golden_open(&g, names[i]);
        for (int P = 2; P <= 3; P++) check_labels(&g, P);
        golden_close(&g);
    }
}

/* ---- mutants --------------------------------------------------------------------------------- */

#ifdef SEQD_MUTANTS
static void test_mutants_are_caught(void)
{
    struct golden g;
    golden_open(&g, "stdit3"); /* 15 places on 2 ranks: a pad; 5 frames on 2 ranks: another */
    static const int faults[] = {MUTANT_PAD_SEEN, MUTANT_SWITCH_SWAPPED, MUTANT_REPLICATED_ROTATED};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        const int m = faults[i];
        struct outcome o;
        run(&g, 2, false, m, &o);
        const struct verdict v = compare(&g, &o);
        mutant_report(m, !holds(&v), "gradients of stdit3 on 2 ranks");
        outcome_free(&o);
    }
    golden_close(&g);
}
#endif

/* ---- sizes ----------------------------------------------------------------------------------- */

/* The released model has 1.2 billion weights. */
static void test_released(void)
{
    static const char text[] =
        "{\"model_type\":\"STDiT3\",\"hidden_size\":1152,\"depth\":28,\"num_heads\":16,"
        "\"qk_norm\":true,\"patch_size\":[1,2,2],\"caption_channels\":4096,"
        "\"model_max_length\":300,\"class_dropout_prob\":0.1,\"enable_flash_attn\":true}";
    struct model_shape m;
    struct err e = {0};
    struct family *f = column_mem(sizeof *f);
    int64_t n = 0;
    CHECK_MSG(hf_config_parse(text, sizeof text - 1, "config.json", &m, &e) == 0, "%s", e.text);
    CHECK(m.n_layers == 56 && m.head_dim == 72 && m.ffn_width == 4608 && m.out_channels == 8);
    family_write(&m, f);
    for (int l = -1; l <= m.n_layers; l++) {
        const struct program *p = l < 0             ? &f->in
                                  : l == m.n_layers ? &f->out
                                                    : family_layer(f, &m, l);
        for (int i = 0; i < p->n_weights; i++) n += column_count(&p->weight[i]);
    }
    /* By hand from the table of tensors. Per block: qkv, proj 4 C^2 + 4 C; cross-attention as many;
     * MLP 8 C^2 + 5 C; table 6 C; two norms of 72. */
    const int64_t C = 1152, block = 16 * C * C + 13 * C + 6 * C + 144;
    const int64_t in = 16 * C + C + 2 * (256 * C + C + C * C + C) + 6 * C * C + 6 * C + 300 * 4096 +
                       4096 * C + C + C * C + C;
    CHECK_MSG(n == 56 * block + in + 2 * C + 32 * C + 32, "%lld weights", (long long)n);
    free(f);
}

static void refuses(const char *text, const char *word)
{
    struct model_shape m;
    struct err e = {0};
    const int rc = hf_config_parse(text, strlen(text), "config.json", &m, &e);
    CHECK_MSG(rc && strstr(e.text, word), "%s: \"%s\", want %s", text, e.text, word);
}

static void test_refusals(void)
{
#define HEAD "{\"model_type\":\"STDiT3\",\"hidden_size\":48,"
    refuses(HEAD "\"num_heads\":5}", "num_attention_heads");
    refuses(HEAD "\"num_heads\":2,\"patch_size\":[1,0,2]}", "patch_size");
    refuses(HEAD "\"num_heads\":2,\"patch_size\":[1,2,2,2]}", "patch_size");
    refuses(HEAD "\"num_heads\":2,\"patch_size\":\"2\"}", "patch_size");
    refuses(HEAD "\"num_heads\":2,\"depth\":0}", "depth");
    refuses(HEAD "\"num_heads\":2,\"drop_path\":0.1}", "drop_path");
    refuses(HEAD "\"num_heads\":2,\"caption_channels\":0}", "caption_channels");
    refuses("{\"model_type\":\"STDiT3\",\"hidden_size\":50,\"num_heads\":5}", "hidden_size");
    refuses("{\"model_type\":\"Latte\",\"hidden_size\":48,\"num_heads\":2,\"depth\":2,"
            "\"patch_size\":[2,2,2]}",
            "patch_t");
#undef HEAD
}

int main(void)
{
#ifdef SEQD_MUTANTS
    RUN(test_mutants_are_caught);
#endif
    RUN(test_golden);
    RUN(test_planned);
    RUN(test_rank_bits);
    RUN(test_bytes);
    RUN(test_labels);
    RUN(test_released);
    RUN(test_refusals);
    return test_done("dit");
}
