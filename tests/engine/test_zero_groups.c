/* Checks parallel.zero_group, with which each group of ranks shards the state among its ranks. The
 * bytes that every rank sends are compared with a formula that is derived from the algorithm. The
 * memory of every rank is checked. All groups must have the same weights, bit by bit. A gradient
 * that is not summed over groups must be found. test_dp compares products with one rank. */
#include "api/core/job.h"
#include "tests/lib/engine.h"
#include "tests/lib/mutant.h"
#include "worker/comm/ledger.h"

enum { STEPS = 3, MAX_RANKS = 8, SEQ = 40 };

struct way {
    int dp, sp, zero, group, precision, tied;
    int64_t samples; /* samples of a ring in a step */
    bool fused, bits;
};

/* The state of the ranks at the end of a run, and the bytes that they sent and received in the
 * last step. */
struct seen {
    const struct way *way;
    float *held[MAX_RANKS][3]; /* weights, m and v, for each group */
    struct comm_count moved[MAX_RANKS][PURPOSE_N];
};

static const enum sharded_array arrays[3] = {SHARDED_WEIGHTS, SHARDED_M, SHARDED_V};

static struct job_spec spec;

static void look(struct train *t, int rank, void *arg)
{
    struct seen *x = arg;
    struct err e = {0};
    if (t->step != STEPS) return;
    memcpy(x->moved[rank], comm_ledger(t->model.world), sizeof x->moved[rank]);
    for (int i = 0; i < 3; i++)
        CHECK_MSG(!sharded_read(&t->state, arrays[i], 0, t->plan->n_params,
                                x->held[rank / t->plan->zero_group][i], &e),
                  "%s", e.text);
}

/* Runs a training. If `alone` is set, gradients are not summed over groups, and the ledger must
 * also report a difference. */
static struct engine_run go(const struct way *w, struct seen *x, bool alone)
{
    static struct synth y = {.S = SEQ, .doc_len = 17, .vocab = 61};
    engine_spec(&spec, SEQ);
    spec.model.shape.tied = w->tied;
    spec.precision.params = w->precision;
    spec.train.global_batch = w->dp * w->samples;
    spec.optim.max_grad_norm = w->fused ? 0 : 1;
    spec.determinism = w->bits ? DET_RANKS : DET_RUN;
    spec.parallel.layout = LAYOUT_CONTIGUOUS;
    spec.parallel.zero = w->zero;
    spec.parallel.zero_group = w->group;
    const int64_t n = param_count(&spec.model.shape);
    *x = (struct seen){.way = w};
    for (int i = 0; i < MAX_RANKS * 3; i++) {
        x->held[i / 3][i % 3] = calloc((size_t)n, 4);
        if (!x->held[i / 3][i % 3]) abort();
    }
    struct engine_run r = {.P = w->sp,
                           .dp = w->dp,
                           .steps = STEPS,
                           .source = {synth_batch, synth_targets, &y},
                           .ledger_differs = alone,
                           .after_step = look,
                           .arg = x};
    if (alone) mutant_choose(MUTANT_GROUP_ALONE);
    engine_go(&r, &spec);
    if (alone) mutant_choose(MUTANT_NONE);
    return r;
}

static void done(struct seen *x, struct engine_run *r)
{
    for (int i = 0; i < MAX_RANKS * 3; i++) free(x->held[i / 3][i % 3]);
    engine_free(r);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

struct bytes {
    int64_t sent, received;
};

/* Counts a gather in a group of W ranks, in which this rank has `own` of all `n` elements. */
static void gather(struct bytes *b, int W, int64_t own, int64_t n, int64_t size)
{
    b->sent += (W - 1) * own * size;
    b->received += (n - own) * size;
}

/* Counts a reduce-scatter of n floats in a group of W ranks, after which this rank has `own` of
 * the sums. */
static void scatter(struct bytes *b, int W, int64_t own, int64_t n)
{
    b->sent += (n - own) * 4;
    b->received += (W - 1) * own * 4;
}

/* Counts the sum of `own` floats over the groups. The floats are divided into K pieces, which are
 * summed and then gathered. */
static void across(struct bytes *b, int K, int g, int64_t own)
{
    const int64_t piece = own * (g + 1) / K - own * g / K;
    scatter(b, K, piece, own);
    gather(b, K, piece, own, 4);
}

/* Returns how often the gradient of bucket b is summed in a step. */
static int64_t sums_of(const struct way *w, int b)
{
    /* summed after each sample; otherwise once */
    const bool each = w->zero >= 2 || w->fused || w->bits;
    return (each ? w->samples : 1) * (each && w->tied && b == 0 ? 2 : 1);
}

static int64_t gathers_of(const struct way *w, int b, int n_layers)
{
    if (w->zero < 3) return 1;
    if (b >= 1 && b <= n_layers) return 2 * w->samples; /* forward and backward */
    return w->samples * (b == 0 && w->tied ? 2 : 1);    /* and once more as the head */
}

static void want_bytes(const struct way *w, const struct plan *p, int rank, struct bytes *grad,
                       struct bytes *param)
{
    const struct zero *z = &p->shards;
    const int W = w->group, K = w->dp * w->sp / W, L = spec.model.shape.n_layers, own = rank % W;
    *grad = *param = (struct bytes){0};
    for (int b = 0; b < L + 2; b++) {
        const struct zero_range r = zero_range(z, b, own);
        const int64_t n = zero_len(z, b), part = r.end - r.begin;
        const int64_t *units = z->unit_cut[zero_kind(z, b)];
        for (int64_t i = 0; i < sums_of(w, b); i++) {
            scatter(grad, W, part, n);
            across(grad, K, rank / W, part);
        }
        gather(grad, W, units[own + 1] - units[own], units[W], 8); /* the norm */
        for (int64_t i = 0; i < gathers_of(w, b, L); i++)
            gather(param, W, part, n, w->precision == PRECISION_FP32 ? 4 : 2);
    }
}

static void check_bytes(const struct seen *x, const struct plan *p)
{
    const struct way *w = x->way;
    for (int r = 0; r < p->n_ranks; r++) {
        struct bytes grad, param;
        const struct comm_count *g = &x->moved[r][PURPOSE_GRAD], *v = &x->moved[r][PURPOSE_PARAM];
        want_bytes(w, p, r, &grad, &param);
        CHECK_MSG(
            g->bytes_sent == grad.sent && g->bytes_received == grad.received,
            "dp %d sp %d zero %d group %d rank %d: gradients %lld out %lld in, want %lld %lld",
            w->dp, w->sp, w->zero, w->group, r, (long long)g->bytes_sent,
            (long long)g->bytes_received, (long long)grad.sent, (long long)grad.received);
        CHECK_MSG(v->bytes_sent == param.sent && v->bytes_received == param.received,
                  "dp %d sp %d zero %d group %d rank %d: weights %lld out %lld in, want %lld %lld",
                  w->dp, w->sp, w->zero, w->group, r, (long long)v->bytes_sent,
                  (long long)v->bytes_received, (long long)param.sent, (long long)param.received);
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Returns the size of the largest shard of a group. It has parts of all buckets, each of which
 * begins at a multiple of 16. */
static int64_t largest_shard(const struct plan *p, int W)
{
    int64_t most = 0;
    for (int w = 0; w < W; w++) {
        int64_t sum = 0;
        for (int b = 0; b < zero_buckets(&p->shards); b++) {
            const struct zero_range r = zero_range(&p->shards, b, w);
            sum += (r.end - r.begin + 15) / 16 * 16;
        }
        if (sum > most) most = sum;
    }
    return most;
}

static void check_memory(const struct way *w, const struct plan *p)
{
    const int64_t shard = largest_shard(p, w->group), act = w->precision == PRECISION_FP32 ? 4 : 2;
    CHECK(p->zero_group == w->group && p->shards.W == w->group);
    CHECK(p->shards.n_groups == w->dp * w->sp / w->group);
    CHECK(p->item[PLAN_ADAM_M].size == shard * 4 && p->item[PLAN_ADAM_V].size == shard * 4);
    CHECK(p->item[PLAN_PARAMS].size == (w->zero == 3 ? shard : p->n_params) * act);
    CHECK((p->shards.n_groups > 1) == (strstr(p->reason, " groups") != NULL));
}

/* ---- groups ---------------------------------------------------------------------------------- */

static void check_replicas(const struct seen *x, const struct engine_run *r)
{
    const struct way *w = x->way;
    const float *first[3] = {r->weights, r->adam_m, r->adam_v};
    const size_t size = (size_t)r->plan.n_params * 4;
    for (int g = 0; g < r->plan.shards.n_groups; g++)
        for (int i = 0; i < 3; i++)
            CHECK_MSG(!memcmp(x->held[g][i], first[i], size),
                      "dp %d sp %d zero %d group %d: array %d of group %d", w->dp, w->sp, w->zero,
                      w->group, i, g);
}

/* A group is a part of a ring, a complete ring, several rings, a part of two rings, or a single
 * rank. */
static const struct way ways[] = {
    {.dp = 1, .sp = 4, .zero = 1, .group = 2, .samples = 2},
    {.dp = 2, .sp = 2, .zero = 1, .group = 2, .samples = 1, .tied = 1, .bits = true},
    {.dp = 4, .sp = 1, .zero = 1, .group = 1, .samples = 2},
    {.dp = 4, .sp = 2, .zero = 1, .group = 4, .samples = 1, .precision = PRECISION_BF16},
    {.dp = 2, .sp = 2, .zero = 2, .group = 2, .samples = 3, .tied = 1},
    {.dp = 4, .sp = 2, .zero = 2, .group = 2, .samples = 1, .fused = true, .tied = 1},
    {.dp = 2, .sp = 3, .zero = 2, .group = 2, .samples = 2},
    {.dp = 3, .sp = 2, .zero = 2, .group = 3, .samples = 1},
    {.dp = 2, .sp = 2, .zero = 3, .group = 2, .samples = 2, .tied = 1},
    {.dp = 2, .sp = 4, .zero = 3, .group = 2, .samples = 1, .bits = true},
    {.dp = 4, .sp = 1, .zero = 3, .group = 2, .samples = 1, .fused = true},
    {.dp = 3, .sp = 2, .zero = 3, .group = 3, .samples = 2, .precision = PRECISION_BF16},
    {.dp = 2, .sp = 1, .zero = 3, .group = 1, .samples = 1},
    {.dp = 1, .sp = 3, .zero = 3, .group = 3, .samples = 1}, /* all ranks are one group */
};
#define EACH_WAY(w) for (const struct way *w = ways; w < ways + sizeof ways / sizeof *ways; w++)

static void test_groups(void)
{
    EACH_WAY(w)
    {
        struct seen x;
        struct engine_run r = go(w, &x, false);
        CHECK(r.plan.fused == w->fused);
        check_bytes(&x, &r.plan);
        check_memory(w, &r.plan);
        check_replicas(&x, &r);
        done(&x, &r);
    }
}

/* ---- a gradient that is not summed over groups ----------------------------------------------- */

#ifdef SEQD_MUTANTS
static void test_mutant(void)
{
    EACH_WAY(w)
    {
        struct seen x, y;
        if (w->group == w->dp * w->sp) continue;
        struct engine_run want = go(w, &x, false), got = go(w, &y, true);
        mutant_report(MUTANT_GROUP_ALONE,
                      rel_l2(got.weights, want.weights, want.plan.n_params) > 1e-4,
                      "weights of a training in groups");
        done(&x, &want);
        done(&y, &got);
    }
}
#endif

int main(void)
{
    RUN(test_groups);
#ifdef SEQD_MUTANTS
    RUN(test_mutant);
#endif
    return test_done("zero_groups");
}
