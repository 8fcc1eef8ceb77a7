/* Compares DSP with three other ways to compute training steps of a Transformer-2D. These are
 * Ulysses in spatial attention only, Ulysses in both attentions, and Megatron, which gathers and
 * scatters rows in both halves of a block. Ulysses must have the bits of one rank. Megatron must
 * have the loss and the gradients of one rank. The ledger of every rank must equal the plan, and
 * the bytes of a step must have the ratios of the paper (2403.10266). */
/* Not under sanitizers: test_dit and test_dsp run the same code. */
#include "tests/lib/grid_train.h"
#include "tests/lib/volume_pair.h"

#include "worker/plan/plan.h"

enum { STEPS = 3, MAX_P = 8 };

static const char *const names[] = {"DSP", "Ulysses along space", "Ulysses along both", "Megatron"};

/* The bytes that each rank sent and received for attention in all steps. */
struct moved {
    struct comm_count now[MAX_P];
    int n_steps;
};

static void add_step(struct train *t, int rank, void *arg)
{
    struct moved *m = arg;
    volume_add(&m->now[rank], grid_moved(t), 1);
    if (rank == 0) m->n_steps++;
}

static void run(struct grid_data *d, struct engine_run *r, enum grid_way way, int P,
                enum determinism_id bits, enum recompute_id recompute, struct moved *m)
{
    struct job_spec s;
    grid_spec(d, way, &s);
    s.determinism = bits;
    s.memory.recompute = recompute;
    *m = (struct moved){.n_steps = 0};
    *r = (struct engine_run){.steps = STEPS, .after_step = add_step, .arg = m};
    grid_go(d, r, &s, P);
}

/* ---- one rank's bits ------------------------------------------------------------------------- */

static void check_bits(struct grid_data *d, const struct engine_run *one, enum grid_way way, int P)
{
    struct engine_run more;
    struct moved m;
    run(d, &more, way, P, DET_RANKS, RECOMPUTE_SELECTIVE, &m);
    const size_t size = (size_t)one->plan.n_params * 4;
    for (int k = 0; k < STEPS; k++)
        CHECK_MSG(more.loss[k] == one->loss[k] && more.norm[k] == one->norm[k],
                  "%s, %d ranks, step %d: loss %.17g, %.17g", names[way], P, k, more.loss[k],
                  one->loss[k]);
    CHECK_MSG(!memcmp(more.weights, one->weights, size), "%s, %d ranks: other weights", names[way],
              P);
    CHECK_MSG(!memcmp(more.grad, one->grad, size), "%s, %d ranks: other gradients", names[way], P);
    engine_free(&more);
}

/* Checks bits with 9 places and 5 frames. With these numbers some ranks have padding, and some
 * ranks have only padding. The forward pass must have the same bits as with DSP. Gradients of
 * weights may differ, because in blocks that DSP divides along time they are sums over other
 * chunks. */
static void test_bits(void)
{
    static const struct grid_model uneven = {5, 6, 16, 4, 4};
    struct grid_data d;
    struct engine_run dsp, one;
    struct moved m;
    grid_open(&d, &uneven);
    run(&d, &dsp, GRID_SWITCHES, 1, DET_RANKS, RECOMPUTE_SELECTIVE, &m);
    CHECK(dsp.loss[0] > 0.5 && dsp.norm[0] > 1e-3 && dsp.loss[1] != dsp.loss[0]);
    for (int way = GRID_SWITCHES; way <= GRID_HEADS_BOTH; way++) {
        run(&d, &one, (enum grid_way)way, 1, DET_RANKS, RECOMPUTE_SELECTIVE, &m);
        CHECK_MSG(one.loss[0] == dsp.loss[0], "%s: loss %.17g, %.17g", names[way], one.loss[0],
                  dsp.loss[0]);
        const double off = rel_l2(one.grad, dsp.grad, dsp.plan.n_params);
        CHECK_MSG(off <= 1e-6, "%s: gradients %.3g from DSP's", names[way], off);
        for (int P = 2; P <= 4; P *= 2) check_bits(&d, &one, (enum grid_way)way, P);
        engine_free(&one);
    }
    engine_free(&dsp);
    grid_close(&d);
}

/* ---- Megatron: one rank's loss and gradients ------------------------------------------------- */

struct tensor_way {
    int P, recompute;
    int model; /* index in models[] */
    /* with `clean`, some frames are a condition; `noise` means iddpm */
    bool qk_norm, clean, noise;
};

static void tensor_spec(const struct grid_data *d, const struct tensor_way *w, enum grid_way way,
                        struct job_spec *s)
{
    grid_spec(d, way, s);
    s->memory.recompute = w->recompute;
    s->model.shape.qk_norm = w->qk_norm;
    if (w->clean) s->objective.frame_mask[0] = 1;
    if (w->noise) s->objective.type = s->model.shape.trained_on = OBJECTIVE_IDDPM;
}

static struct engine_run tensor_run(struct grid_data *d, const struct tensor_way *w,
                                    enum grid_way way, int P, const float *initial, int steps)
{
    struct job_spec s;
    struct engine_run r = {.steps = steps, .initial = initial};
    tensor_spec(d, w, way, &s);
    grid_go(d, &r, &s, P);
    return r;
}

static void compare_tensor(const struct tensor_way *w, const char *what,
                           const struct engine_run *got, const struct engine_run *want)
{
    for (int k = 0; k < STEPS; k++)
        CHECK_MSG(fabs(got->loss[k] - want->loss[k]) <= 1e-6 * fabs(want->loss[k]) &&
                      fabs(got->norm[k] - want->norm[k]) <= 2e-5 * want->norm[k],
                  "%s, %d ranks, step %d: loss %.9g, want %.9g; norm %.9g, want %.9g", what, w->P,
                  k, got->loss[k], want->loss[k], got->norm[k], want->norm[k]);
    CHECK_MSG(rel_l2(got->grad, want->grad, want->n) <= 2e-5, "%s, %d ranks: gradients %.3g off",
              what, w->P, rel_l2(got->grad, want->grad, want->n));
    CHECK_MSG(rel_l2(got->weights, want->weights, want->n) <= 1e-4,
              "%s, %d ranks: weights %.3g off", what, w->P,
              rel_l2(got->weights, want->weights, want->n));
}

/* Compares the gradient of each tensor separately, because the error of a small gradient would not
 * be visible in a norm over all tensors. */
static void compare_tensors(const struct tensor_way *w, const struct model_shape *m,
                            const struct engine_run *got, const struct engine_run *want)
{
    double all = 0;
    for (int64_t k = 0; k < want->n; k++) all += (double)want->grad[k] * want->grad[k];
    for (int i = 0; i < param_tensors(m); i++) {
        struct param p;
        double norm = 0;
        param_get(m, i, &p);
        for (int64_t k = 0; k < p.count; k++)
            norm += (double)want->grad[p.offset + k] * want->grad[p.offset + k];
        /* a bias of keys, whose gradient consists of rounding only */
        if (norm < 1e-9 * all) continue;
        const double off = rel_l2(got->grad + p.offset, want->grad + p.offset, p.count);
        CHECK_MSG(off <= 1e-4, "%s, %d ranks: gradient %.3g off", p.name, w->P, off);
    }
}

static void check_tensor(struct grid_data *d, const struct tensor_way *w)
{
    struct job_spec s;
    struct engine_run made = tensor_run(d, w, GRID_TENSOR, 1, NULL, 0);
    struct engine_run one = tensor_run(d, w, GRID_TENSOR, 1, NULL, STEPS);
    struct engine_run dsp = tensor_run(d, w, GRID_SWITCHES, 1, made.weights, STEPS);
    struct engine_run got = tensor_run(d, w, GRID_TENSOR, w->P, NULL, STEPS);
    CHECK(dsp.loss[0] > 0.1 && dsp.norm[0] > 1e-3 && dsp.loss[1] != dsp.loss[0]);
    CHECK(dsp.n == one.n && got.n == one.n && got.plan.n_params < one.n);
    /* both have their weights in the same order */
    compare_tensor(w, "one rank to DSP's", &one, &dsp);
    compare_tensor(w, "Megatron", &got, &one);
    tensor_spec(d, w, GRID_TENSOR, &s);
    compare_tensors(w, &s.model.shape, &got, &one);
    engine_free(&made), engine_free(&one), engine_free(&dsp), engine_free(&got);
}

/* Checks that the number of patches in a frame must be a multiple of parallel.tp, because ranks
 * share the places of a frame. */
static void test_indivisible(void)
{
    static const struct grid_model nine = {4, 6, 16, 2, 4};
    struct grid_data d = {.model = nine};
    struct job_spec s;
    struct plan p;
    struct err e = {0};
    grid_spec(&d, GRID_TENSOR, &s);
    s.parallel.sp = 1;
    s.parallel.tp = s.model.shape.tp = 2;
    CHECK(plan_make(&s, 0, &p, &e) && !strcmp(e.field, "parallel.tp"));
    CHECK_MSG(strstr(e.text, "parallel.tp 2 does not divide the 9 patches of a frame"), "%s",
              e.text);
}

static void test_tensor(void)
{
    static const struct grid_model models[] = {
        {6, 8, 32, 4, 4},
        {6, 8, 32, 2, 4, true},
        {4, 8, 32, 4, 4, false, FAMILY_LATTE},
        {4, 8, 32, 2, 4, true, FAMILY_STDIT},
        {4, 8, 32, 2, 4, true, FAMILY_STDIT3},
    };
    static const struct tensor_way ways[] = {
        {.P = 2, .recompute = RECOMPUTE_SELECTIVE},
        {.P = 4, .recompute = RECOMPUTE_NONE},
        {.P = 4, .recompute = RECOMPUTE_FULL, .qk_norm = true},
        {.P = 2, .recompute = RECOMPUTE_NONE, .clean = true},
        {.P = 4, .recompute = RECOMPUTE_SELECTIVE, .noise = true},
        {.P = 2, .recompute = RECOMPUTE_SELECTIVE, .model = 1},
        {.P = 4, .recompute = RECOMPUTE_FULL, .model = 1, .clean = true},
        {.P = 2, .recompute = RECOMPUTE_SELECTIVE, .model = 2, .noise = true},
        {.P = 4, .recompute = RECOMPUTE_SELECTIVE, .model = 3},
        {.P = 4, .recompute = RECOMPUTE_FULL, .model = 4, .qk_norm = true},
    };
    for (int k = 0; k < (int)(sizeof models / sizeof *models); k++) {
        struct grid_data d;
        grid_open(&d, &models[k]);
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
            if (ways[i].model == k) check_tensor(&d, &ways[i]);
        grid_close(&d);
    }
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static const enum volume_way papers[] = {VOLUME_DSP, VOLUME_ULYSSES_ONE, VOLUME_ULYSSES_BOTH,
                                         VOLUME_MEGATRON_SP};
/* bytes of each way, as multiples of DSP's bytes; the last factor, Megatron's, is multiplied by
 * P */
static const int times[] = {1, 2, 4, 4};

/* Checks that ranks send as many bytes in the forward pass of a pair of blocks as in its backward
 * pass. This must hold in every recompute mode except "full". */
static void check_bytes(struct grid_data *d, int P, enum recompute_id recompute)
{
    const struct grid_model *g = &d->model;
    const int64_t rows = g->frames * (g->side / 2) * (g->side / 2), pairs = g->n_layers / 2;
    int64_t dsp = 0;
    for (int way = GRID_SWITCHES; way <= GRID_TENSOR; way++) {
        const int more = times[way] * (way == GRID_TENSOR ? P : 1);
        struct engine_run r;
        struct moved m;
        run(d, &r, (enum grid_way)way, P, DET_RUN, recompute, &m);
        const int64_t pair = volume_pair(papers[way], P, rows, g->width * 4);
        CHECK(m.n_steps == STEPS);
        for (int w = 0; w < P; w++) {
            const int64_t got = m.now[w].bytes_sent;
            if (way == GRID_SWITCHES && w == 0) dsp = got;
            CHECK_MSG(got == STEPS * 2 * pairs * pair && got == m.now[w].bytes_received,
                      "%s, rank %d of %d: %lld bytes, want %lld", names[way], w, P, (long long)got,
                      (long long)(STEPS * 2 * pairs * pair));
            CHECK(got == more * dsp); /* the ratios are 0.500, 0.250 and 1 / (4 P) */
        }
        engine_free(&r);
    }
}

static void test_bytes(void)
{
    static const struct grid_model even = {8, 16, 32, 4, 8};
    struct grid_data d;
    grid_open(&d, &even);
    for (int P = 2; P <= MAX_P; P *= 2) check_bytes(&d, P, RECOMPUTE_SELECTIVE);
    check_bytes(&d, 4, RECOMPUTE_NONE);
    grid_close(&d);
}

int main(void)
{
    setenv("SEQD_LOG", "error", 0);
    RUN(test_bits);
    RUN(test_tensor);
    RUN(test_indivisible);
    RUN(test_bytes);
    return test_done("grid_ways");
}
