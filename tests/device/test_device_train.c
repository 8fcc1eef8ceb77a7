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
 * copy, or a copy from the host for a copy to it. If `eager` is set, copies from the host are made
 * as early as possible. */
enum lateness { IN_TIME, LATE, EAGER };
enum { LATE_COPIES = 64 };
struct late {
    struct be *be;
    const struct be_ops *own;
    struct be_ops ops;
    struct late_queue {
        struct late_entry {
            void *dst;
            const void *src;
            int64_t size;
            int mark, n_gone; /* n_gone: copies to the host that must be made before */
        } of[LATE_COPIES];
        int n_asked, n_made;
    } queue[2]; /* from the host, to the host */
    bool eager;
    unsigned seen;       /* marks that were set */
    int n_awaited, most; /* most: largest number of copies under way during an update */
    int n_beside;        /* products that were computed while a copy to the host was under way */
};
static struct late late[JOB_MAX_RANKS];

static struct late *late_of(const struct be *be)
{
    int i = 0;
    while (late[i].be != be) i++;
    return &late[i];
}

static int under_way(const struct late *l)
{
    return l->queue[0].n_asked - l->queue[0].n_made + l->queue[1].n_asked - l->queue[1].n_made;
}

/* Makes the copies of a direction up to copy n. */
static void late_make(struct late *l, bool out, int n)
{
    struct late_queue *q = &l->queue[out];
    while (q->n_made < n) {
        const struct late_entry x = q->of[q->n_made++ % LATE_COPIES];
        if (!out) late_make(l, true, x.n_gone);
        l->own->copy_beside(l->be, x.dst, x.src, x.size, out, x.mark);
        l->own->copy_await(l->be, x.mark);
    }
}

static void late_copy(struct be *be, void *dst, const void *src, int64_t size, bool out, int mark)
{
    struct late *l = late_of(be);
    struct late_queue *q = &l->queue[out];
    CHECK(q->n_asked - q->n_made < LATE_COPIES);
    l->seen |= 1u << mark;
    q->of[q->n_asked++ % LATE_COPIES] = (struct late_entry){dst, src, size, mark,
                                                            l->queue[1].n_asked};
    if (l->eager && !out) late_make(l, false, q->n_asked);
}

static void late_await(struct be *be, int mark)
{
    struct late *l = late_of(be);
    CHECK_MSG(l->seen >> mark & 1, "mark %d was never set", mark);
    for (int out = 0; out < 2; out++) {
        int n = l->queue[out].n_asked;
        while (n > l->queue[out].n_made && l->queue[out].of[(n - 1) % LATE_COPIES].mark != mark)
            n--;
        late_make(l, out, n);
    }
    l->n_awaited++;
}

static void late_adamw(struct be *be, const struct adamw_args *a)
{
    struct late *l = late_of(be);
    if (under_way(l) > l->most) l->most = under_way(l);
    l->own->adamw(be, a);
}

static void late_gemm(struct be *be, const struct gemm_args *a)
{
    struct late *l = late_of(be);
    l->n_beside += l->queue[1].n_asked > l->queue[1].n_made;
    l->own->gemm(be, a);
}

static void be_late(struct train *t, int rank, void *arg)
{
    struct late *l = &late[rank];
    const enum lateness *how = arg;
    if (l->be == t->model.be) return;
    *l = (struct late){.be = t->model.be, .own = t->model.be->ops, .ops = *t->model.be->ops};
    l->eager = *how == EAGER;
    l->ops.copy_beside = late_copy;
    l->ops.copy_await = late_await;
    l->ops.adamw = late_adamw;
    l->ops.gemm = late_gemm;
    l->be->ops = &l->ops;
}

static void all_came(struct train *t, int rank, void *arg)
{
    (void)t, (void)arg;
    CHECK(under_way(&late[rank]) == 0 && late[rank].n_awaited > 0);
}

static void train_away(struct engine_run *r, int P, int pp, enum offload_id offload,
                       enum lateness how)
{
    static struct synth y = {.S = 24, .doc_len = 15, .vocab = 61};
    struct job_spec s = spec;
    s.memory.offload = (int32_t)offload;
    *r = (struct engine_run){
        .source = {synth_batch, synth_targets, &y}, .P = P, .pp = pp, .steps = 2};
    memset(late, 0, sizeof late);
    if (how) r->before_step = be_late, r->after_step = all_came, r->arg = &how;
    engine_go(r, &s);
    CHECK(plan_offload_id(&r->plan) == offload);
}

static bool same(const struct engine_run *a, const struct engine_run *b)
{
    const size_t size = (size_t)a->n * 4;
    return a->norm[0] > 1e-4 && a->loss[1] == b->loss[1] && a->norm[1] == b->norm[1] &&
           !memcmp(a->weights, b->weights, size) && !memcmp(a->grad, b->grad, size);
}

/* Checks how much a late device does while copies are under way. While a piece is updated, all
 * arrays of the next one arrive, and those of the one before it leave. More products are computed
 * while copies leave than without the gradients. beside has their numbers. */
static void beside_is(const struct engine_run *r, int n_ranks, bool state, int *beside)
{
    const int master = r->plan.precision != PRECISION_FP32;
    for (int i = 0; i < n_ranks; i++) {
        CHECK_MSG(!state || late[i].most == 5 + 2 * master, "%d copies beside an update",
                  late[i].most);
        CHECK_MSG(!state || late[i].n_beside > (r->plan.offload.on ? beside[i] : 0),
                  "%d products while copies leave, without gradients %d", late[i].n_beside,
                  beside[i]);
        beside[i] = late[i].n_beside;
    }
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
        spec.parallel.zero = (7 - way) % 4;
        spec.memory.recompute = RECOMPUTE_NONE + i;
        engine_on_device(&spec);
        const int P = 1 + i % 2;
        int beside[JOB_MAX_RANKS] = {0};
        train_away(&kept, P, pp, OFFLOAD_NONE, IN_TIME);
        for (int k = 0; k < 4; k++) {
            const enum lateness how = k % 2 ? LATE : k ? EAGER : IN_TIME;
            struct engine_run away;
            const enum offload_id state = way % 2 ? OFFLOAD_OPTIMIZER : OFFLOAD_ALL;
            train_away(&away, P, pp, k < 2 ? OFFLOAD_ACTIVATIONS : state, how);
            CHECK(away.plan.own_memory && away.plan.item[PLAN_OFFLOAD].in_host);
            CHECK_MSG(same(&kept, &away), "%s, %d x %d ranks, %d, %s: other bits", names[i], pp, P,
                      plan_offload_id(&away.plan),
                      how == LATE ? "late"
                      : how       ? "eager"
                                  : "in time");
            if (k % 2) beside_is(&away, P * pp, k == 3, beside);
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
