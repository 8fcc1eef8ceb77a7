/* Checks parts of a training on a device with memory of its own, in one process. The tests check
 * how often the host waits for the device in a step, the gradient's norm for units of all sizes,
 * and that the bits are the same on any number of ranks. SEQD_TEST_DEVICE names the device; if it
 * is not set, the device is "emulated".
 * tests: needs golden libkernels_emulated.so */
#include "api/core/job.h"
#include "tests/lib/engine.h"
#include "worker/hf/hf.h"

static struct job_spec spec; /* static because it has 75 KiB, too many for the stack */

/* ---- waits ----------------------------------------------------------------------------------- */

/* `counted` is a copy of the device's operations, in which the function below replaces one
 * operation and counts its calls */
static struct be_ops counted;
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

/* Checks that in this step the host waited once for the loss of each sample, and once for the
 * norm. */
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

/* the number of columns of down_proj. Each of its rows is a unit of the norm, and is larger than
 * units usually are. */
#define WIDE 65700

/* Returns the norm of the gradient of the first layer. The gradients of all other layers are set
 * to 0. */
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
    double sum = -1;
    ops->upload(m->be, there, g, (all.end - all.begin) * 4);
    optim_sums(&o, &x);
    CHECK_MSG(!optim_norm(&o, &sum, &e), "%s", e.text);
    return sqrt(sum);
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
    memset(g, 0, (size_t)n * 4); /* clears the gaps between tensors, which belong to no unit */
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

/* Tells whether the device has this instruction set. A GPU has "sm90" only if its compute
 * capability is 9.0. */
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

/* Checks that linear attention in bf16, with heads of 64 columns, has the same bits on any number
 * of ranks as on one rank. This is tested for each of the kernels with which the device can
 * compute it. The short form tests only the kernels for GPUs before Hopper, on one rank and on
 * eight. */
static void test_rank_bits(void)
{
    static const char *const isa[] = {"sm80", "sm90"};
    static const int P[] = {1, 2, 8};
    const int next = small_tests() ? 2 : 1;
    for (int i = 0; i < (small_tests() ? 1 : 2) && runs(isa[i]); i++) {
        struct engine_run run[3];
        struct synth y = {.S = 333, .doc_len = 150, .vocab = 250};
        for (int k = 0; k < 3; k += next) {
            struct err e = {0};
            engine_spec(&spec, y.S);
            CHECK_MSG(!config_read_dir("tests/golden/tnl", &spec.model.shape, &e), "%s", e.text);
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
        for (int k = 0; k < 3; k += next) engine_free(&run[k]);
    }
}

/* ---- offload --------------------------------------------------------------------------------- */

/* A device that makes each copy as late as possible, which is when an operation waits for the
 * copy. */
struct late {
    struct be *be;
    const struct be_ops *own;
    struct be_ops ops;
    struct {
        void *dst;
        const void *src;
        int64_t size;
        int mark;
    } queue[BE_COPIES];
    bool made[BE_COPIES]; /* a copy with this mark was made */
    int n, n_awaited;
};
static struct late late[JOB_MAX_RANKS];

static struct late *late_of(const struct be *be)
{
    int i = 0;
    while (late[i].be != be) i++;
    return &late[i];
}

static void late_copy(struct be *be, void *dst, const void *src, int64_t size, int mark)
{
    struct late *l = late_of(be);
    l->queue[l->n].dst = dst, l->queue[l->n].src = src;
    l->queue[l->n].size = size, l->queue[l->n].mark = mark;
    l->n++;
    CHECK_MSG(l->n <= 3, "%d copies under way", l->n);
}

static void late_await(struct be *be, int mark)
{
    struct late *l = late_of(be);
    int n = 0;
    while (n < l->n && l->queue[n].mark != mark) n++;
    if (n == l->n) { /* the copy was made before a later one that was awaited */
        CHECK(l->made[mark]);
        return;
    }
    for (int i = 0; i <= n; i++) {
        l->own->copy_beside(be, l->queue[i].dst, l->queue[i].src, l->queue[i].size, mark);
        l->made[l->queue[i].mark] = true;
    }
    l->own->copy_await(be, mark);
    for (int i = n + 1; i < l->n; i++) l->queue[i - n - 1] = l->queue[i];
    l->n -= n + 1;
    l->n_awaited++;
}

static void be_late(struct train *t, int rank, void *arg)
{
    struct late *l = &late[rank];
    (void)arg;
    if (l->be == t->model.be) return;
    *l = (struct late){.be = t->model.be, .own = t->model.be->ops, .ops = *t->model.be->ops};
    l->ops.copy_beside = late_copy;
    l->ops.copy_await = late_await;
    l->be->ops = &l->ops;
}

static void all_came(struct train *t, int rank, void *arg)
{
    (void)t, (void)arg;
    CHECK(late[rank].n == 0 && late[rank].n_awaited > 0);
}

static void train_away(struct engine_run *r, int P, int pp, enum offload_id offload, bool is_late)
{
    static struct synth y = {.S = 24, .doc_len = 15, .vocab = 61};
    struct job_spec s = spec;
    s.memory.offload = (int32_t)offload;
    *r = (struct engine_run){
        .source = {synth_batch, synth_targets, &y}, .P = P, .pp = pp, .steps = 2};
    memset(late, 0, sizeof late);
    if (is_late) r->before_step = be_late, r->after_step = all_came;
    engine_go(r, &s);
    CHECK(plan_offload_id(&r->plan) == offload);
}

static bool same(const struct engine_run *a, const struct engine_run *b)
{
    const size_t size = (size_t)a->n * 4;
    return a->norm[0] > 1e-4 && a->loss[1] == b->loss[1] && a->norm[1] == b->norm[1] &&
           !memcmp(a->weights, b->weights, size) && !memcmp(a->grad, b->grad, size);
}

/* Checks that offloading activations or the optimizer does not change the bits of a training. The
 * bits must not change, however late the copies are made, on one stage and on two. The host must
 * wait for the device as often as without offloading. */
static void test_offload(void)
{
    static const char *const names[] = {"mistral", "bert", "tnl"};
    for (int way = 0; way < 5; way++) {
        const int i = way % 3, pp = 1 + way / 3;
        char dir[64];
        struct err e = {0};
        struct engine_run kept;
        engine_spec(&spec, 24);
        snprintf(dir, sizeof dir, "tests/golden/%s", names[i]);
        CHECK_MSG(!config_read_dir(dir, &spec.model.shape, &e), "%s", e.text);
        spec.model.shape.n_layers = pp == 1 ? 5 : 8;
        spec.train.global_batch = 2 * pp - 1;
        spec.precision.params = i % 2 ? PRECISION_BF16 : PRECISION_FP32;
        spec.parallel.zero = 3 - i;
        spec.memory.recompute = RECOMPUTE_NONE + i;
        engine_on_device(&spec);
        const int P = 1 + i % 2;
        train_away(&kept, P, pp, OFFLOAD_NONE, false);
        for (int k = 0; k < 4; k++) {
            const bool is_late = k % 2;
            struct engine_run away;
            const enum offload_id state = way % 2 ? OFFLOAD_OPTIMIZER : OFFLOAD_ALL;
            train_away(&away, P, pp, k < 2 ? OFFLOAD_ACTIVATIONS : state, is_late);
            CHECK(away.plan.own_memory && away.plan.item[PLAN_OFFLOAD].in_host);
            CHECK_MSG(same(&kept, &away), "%s, %d x %d ranks, %d%s: other bits", names[i], pp, P,
                      plan_offload_id(&away.plan), is_late ? ", late" : "");
            engine_free(&away);
        }
        engine_free(&kept);
    }
    struct synth y = {.S = 20, .doc_len = 9};
    struct waits w = {.micro_batches = 2};
    engine_spec(&spec, y.S);
    y.vocab = (int32_t)spec.model.shape.vocab;
    spec.model.shape.n_layers = 5;
    spec.train.global_batch = 2;
    spec.memory.offload = OFFLOAD_ACTIVATIONS;
    engine_on_device(&spec);
    struct engine_run r = {.source = {synth_batch, synth_targets, &y},
                           .P = 1,
                           .steps = 2,
                           .before_step = before,
                           .after_step = after,
                           .arg = &w};
    engine_go(&r, &spec);
    CHECK(w.n_steps == 2 && r.plan.offload.n_out == 3);
    engine_free(&r);
}

int main(void)
{
    setenv("SEQD_TEST_DEVICE", "emulated", 0);
    RUN(test_waits);
    RUN(test_large_units);
    RUN(test_rank_bits);
    RUN(test_offload);
    return test_done("device_train");
}
