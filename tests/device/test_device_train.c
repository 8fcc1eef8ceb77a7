/* A training's parts on a device with memory of its own, in one process: how often the host waits
 * for it in a step, the norm of units of all sizes, the same bits on any number of ranks.
 * SEQD_TEST_DEVICE names the device, "emulated" where nothing does. */
#include "api/core/job.h"
#include "tests/lib/engine.h"
#include "worker/hf/hf.h"

static struct job_spec spec; /* 75 KiB: off the stack */

/* ---- waits ----------------------------------------------------------------------------------- */

static struct be_ops counted; /* the device's table, but for: */
static const struct be_ops *own;
static int64_t n_downloads;

static void download(struct be *be, void *dst, const void *src, int64_t size)
{
    n_downloads++;
    own->download(be, dst, src, size);
}

struct waits {
    int64_t micro_batches;
    int n_steps;
};

static void before(struct train *t, int rank, void *arg)
{
    struct be *be = t->model.be;
    (void)rank, (void)arg;
    if (be->ops != &counted) {
        own = be->ops;
        counted = *own;
        counted.download = download;
        be->ops = &counted;
    }
    n_downloads = 0;
}

/* One for each sample's loss, one for the norm. */
static void after(struct train *t, int rank, void *arg)
{
    struct waits *w = arg;
    (void)rank;
    w->n_steps++;
    const int64_t want = t->model.be->own_memory ? w->micro_batches + 1 : 0;
    CHECK_MSG(n_downloads == want, "step %lld: %lld waits, %lld samples", (long long)t->step,
              (long long)n_downloads, (long long)w->micro_batches);
}

static void test_waits(void)
{
    const int recompute[] = {RECOMPUTE_NONE, RECOMPUTE_FULL};
    for (int i = 0; i < 2; i++) {
        struct synth y = {.S = 20, .doc_len = 9};
        struct waits w = {.micro_batches = 1 + i};
        engine_spec(&spec, y.S);
        y.vocab = (int32_t)spec.model.shape.vocab;
        spec.train.global_batch = w.micro_batches;
        spec.memory.recompute = recompute[i];
        spec.memory.mlp_chunk_tokens = 8 * i;
        engine_on_device(&spec);
        struct engine_run r = {.source = {synth_batch, synth_targets, &y},
                               .P = 1,
                               .steps = 2,
                               .before_step = before,
                               .after_step = after,
                               .arg = &w};
        engine_go(&r, &spec);
        CHECK(w.n_steps == 2);
        engine_free(&r);
    }
}

/* ---- the norm -------------------------------------------------------------------------------- */

#define WIDE 65700 /* columns of down_proj: a row is a unit, larger than usual ones */

/* Of the first layer's gradient alone; the others' sums are 0. */
static double norm_of(const struct plan *p, const struct engine_memory *m, const float *g)
{
    struct err e = {0};
    const struct be_ops *ops = m->be->ops;
    const struct plan_item *sums = &p->item[PLAN_SUMSQ];
    const struct zero_range all = {zero_begin(&p->shards, 1),
                                   zero_begin(&p->shards, 1) + zero_len(&p->shards, 1)};
    float *there = (float *)(m->arena + p->item[PLAN_GRAD].offset);
    const struct optim o = {.spec = &spec,
                            .plan = p,
                            .be = m->be,
                            .partial = (double *)(m->arena + sums->offset),
                            .mirror = plan_on_host(sums, m->arena, m->host)};
    const struct optim_part x = {.bucket = 1, .begin = all.begin, .end = all.end, .g = there};
    double norm = -1;
    ops->upload(m->be, there, g, (all.end - all.begin) * 4);
    optim_sums(&o, &x);
    CHECK_MSG(!optim_norm(&o, &norm, &e), "%s", e.text);
    return norm;
}

static void test_large_units(void)
{
    struct plan *p = calloc(1, sizeof *p);
    struct err e = {0};
    engine_spec(&spec, 8);
    spec.model.shape.n_layers = 1;
    spec.model.shape.width = 8;
    spec.model.shape.n_heads = spec.model.shape.n_kv_heads = 1;
    spec.model.shape.ffn_width = WIDE;
    spec.parallel.sp = spec.parallel.dp = 1;
    engine_on_device(&spec);
    CHECK_MSG(!plan_make(&spec, 0, p, &e), "%s", e.text);
    CHECK(p->shards.largest_unit == WIDE);
    struct engine_memory m = engine_open(&spec, p, NULL);
    const int64_t n = zero_len(&p->shards, 1);
    float *g = malloc((size_t)n * 4);
    if (!g) abort();
    double sum = 0;
    struct param t;
    memset(g, 0, (size_t)n * 4); /* what lies between tensors is in no unit */
    for (int i = 0; i < param_tensors(&spec.model.shape); i++) {
        param_get(&spec.model.shape, i, &t);
        const int64_t at = t.offset - zero_begin(&p->shards, 1);
        for (int64_t k = 0; at >= 0 && at < n && k < t.count; k++) {
            g[at + k] = (float)((double)synth_hash((uint64_t)(at + k)) / 4294967296.0 - 0.3);
            sum += (double)g[at + k] * g[at + k];
        }
    }
    const double norm = norm_of(p, &m, g);
    CHECK_MSG(fabs(norm - sqrt(sum)) <= 1e-12 * norm, "%.17g, want %.17g", norm, sqrt(sum));
    free(g);
    engine_close(&m, p);
    free(p);
}

/* ---- ranks ----------------------------------------------------------------------------------- */

/* A GPU that is not of 9.0 has no "sm90". */
static bool runs(const char *isa)
{
    struct err e;
    struct be *be = be_open(
        &(struct be_options){
            .device = engine_device(), .isa = isa, .n_threads = 1, .scratch_later = true},
        &e);
    CHECK_MSG(be || !strcmp(engine_device(), "cuda"), "%s", e.text);
    if (!be) printf("not run: %s\n", e.text);
    be_close(be);
    return be != NULL;
}

/* Linear attention in bf16, heads of 64: the bits of one rank, by each of the device's ways. */
static void test_rank_bits(void)
{
    static const char *const isa[] = {"sm80", "sm90"};
    static const int P[] = {1, 2, 8};
    for (int i = 0; i < 2 && runs(isa[i]); i++) {
        struct engine_run run[3];
        struct synth y = {.S = 333, .doc_len = 150, .vocab = 250};
        for (int k = 0; k < 3; k++) {
            struct err e = {0};
            engine_spec(&spec, y.S);
            CHECK_MSG(!hf_config_read("tests/golden/tnl", &spec.model.shape, &e), "%s", e.text);
            spec.model.shape.n_heads = spec.model.shape.n_kv_heads = 3;
            spec.model.shape.head_dim = 64;
            spec.precision.params = PRECISION_BF16;
            spec.determinism = DET_RANKS;
            engine_on_device(&spec);
            run[k] = (struct engine_run){
                .source = {synth_batch, synth_targets, &y}, .P = P[k], .steps = 2, .isa = isa[i]};
            engine_go(&run[k], &spec);
            CHECK_MSG(!memcmp(run[k].weights, run[0].weights, (size_t)run[0].plan.n_params * 4) &&
                          run[k].norm[1] == run[0].norm[1] && run[0].norm[1] > 1e-3,
                      "%s, %d ranks: norm %.17g, %.17g", isa[i], P[k], run[k].norm[1],
                      run[0].norm[1]);
        }
        for (int k = 0; k < 3; k++) engine_free(&run[k]);
    }
}

int main(void)
{
    setenv("SEQD_TEST_DEVICE", "emulated", 0);
    RUN(test_waits);
    RUN(test_large_units);
    RUN(test_rank_bits);
    return test_done("device_train");
}
