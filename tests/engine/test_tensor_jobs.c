/* Checks parallel.tp, with which ranks share every layer by heads and columns. The losses and the
 * gradients of a training, and its weights after three steps, must equal those of a training on
 * one rank. The bytes that every rank sends are compared with formulas of this test.
 * tests/engine/test_tensor.c checks the two halves of a block. */
/* Not under sanitizers: test_tensor and test_rank run the same code. */
#include "api/core/file.h"
#include "api/core/job.h"
#include "tests/lib/checkpoint.h"
#include "tests/lib/engine.h"
#include "tests/lib/mutant.h"
#include "worker/ckpt/scatter.h"
#include "worker/comm/ledger.h"
#include "worker/family/shape.h"
#include "worker/plan/check.h"
#include "worker/plan/choice.h"

enum { STEPS = 3, SEQ = 45, MAX_RANKS = 16 };

struct way {
    int tp, sp, dp, zero, group;
    int pp;        /* 0 means one stage */
    int family;    /* 0 means Llama */
    int heads, kv; /* 0 means 4 and 2 */
    int vocab;     /* 0 means 61 */
    int tied, precision, recompute;
    int samples; /* samples of a ring in a step; 0 means one */
    int strategy, layout;
    bool biases, qk_norm, dropout, fused,
        /* if `whole` is set, there is one document, which has more tokens than packed documents
         * have */
        whole;
    int64_t pieces, loss_chunk;
};

static int stages(const struct way *w)
{
    return w->pp ? w->pp : 1;
}

static const char *say(const struct way *w)
{
    static char text[96];
    snprintf(text, sizeof text, "tp %d sp %d pp %d dp %d zero %d", w->tp, w->sp, stages(w), w->dp,
             w->zero);
    return text;
}

static struct job_spec spec;
static struct synth data;
static struct comm_count moved[MAX_RANKS][PURPOSE_N];

static void look(struct train *t, int rank, void *arg)
{
    (void)arg;
    if (t->model.all) memcpy(moved[rank], comm_ledger(t->model.all), sizeof moved[rank]);
}

static void spec_of(const struct way *w)
{
    struct model_shape *m = &spec.model.shape;
    engine_spec(&spec, SEQ);
    if (w->family) m->family = w->family;
    m->n_layers = 3;
    m->n_heads = w->heads ? w->heads : 4;
    m->n_kv_heads = w->kv ? w->kv : 2;
    if (m->ffn_width % w->tp) m->ffn_width = 12 * w->tp;
    m->tied = w->tied;
    m->qkv_bias = m->o_bias = m->mlp_bias = w->biases;
    m->qk_norm = w->qk_norm;
    spec.precision.params = w->precision;
    spec.memory.recompute = w->recompute;
    spec.memory.mlp_chunk_tokens = w->pieces;
    spec.memory.loss_chunk_tokens = w->loss_chunk;
    if (w->vocab) m->vocab = w->vocab;
    spec.parallel.strategy = w->sp > 1 ? w->strategy : STRATEGY_LOCAL;
    spec.parallel.layout = w->layout;
    spec.parallel.zero = w->zero;
    spec.parallel.zero_group = w->group;
    spec.train.global_batch = w->dp * (w->samples ? w->samples : 1);
    spec.train.attention_dropout = w->dropout ? 0.2 : 0;
    spec.optim.max_grad_norm = w->fused ? 0 : 1;
}

static struct engine_run go(const struct way *w, bool one)
{
    spec_of(w);
    data = (struct synth){
        .S = SEQ, .doc_len = w->whole ? 0 : 17, .vocab = w->vocab ? w->vocab : 61};
    if (one) {
        spec.parallel.strategy = STRATEGY_LOCAL;
        spec.parallel.layout = LAYOUT_CONTIGUOUS;
        spec.parallel.zero = spec.parallel.zero_group = 0;
    }
    struct engine_run r = {.P = one ? 1 : w->sp,
                           .dp = one ? 1 : w->dp,
                           .pp = one ? 1 : w->pp,
                           .tp = one ? 1 : w->tp,
                           .steps = STEPS,
                           .source = {synth_batch, synth_targets, &data},
                           .after_step = look};
    engine_go(&r, &spec);
    return r;
}

/* Returns the largest relative L2 error of a tensor's gradients. */
static double worst_gradient(const struct engine_run *got, const struct engine_run *want)
{
    struct model_shape m = spec.model.shape;
    double worst = 0;
    m.tp = 0;
    for (int i = 0; i < param_tensors(&m); i++) {
        struct param p;
        param_get(&m, i, &p);
        double d = rel_l2(got->grad + p.offset, want->grad + p.offset, p.count), norm = 0, all = 0;
        for (int64_t k = 0; k < p.count; k++)
            norm += (double)want->grad[p.offset + k] * want->grad[p.offset + k];
        for (int64_t k = 0; k < want->n; k++) all += (double)want->grad[k] * want->grad[k];
        /* a bias of keys, whose gradient consists of rounding only */
        if (norm < 1e-6 * all) continue;
        if (d > worst) worst = d;
    }
    return worst;
}

static void compare(const struct way *w, struct engine_run *got, struct engine_run *want)
{
    const bool half = w->precision != PRECISION_FP32;
    const double loss = half ? 2e-3 : 1e-6, grad = half ? 4e-2 : 2e-5, weights = half ? 2e-2 : 1e-4;
    for (int k = 0; k < STEPS; k++) {
        CHECK_MSG(fabs(got->loss[k] - want->loss[k]) <= loss * fabs(want->loss[k]),
                  "%s: loss %d %.9g, want %.9g", say(w), k, got->loss[k], want->loss[k]);
        CHECK_MSG(fabs(got->norm[k] - want->norm[k]) <= grad * want->norm[k],
                  "%s: norm %d %.9g, want %.9g", say(w), k, got->norm[k], want->norm[k]);
    }
    if (!w->fused)
        CHECK_MSG(worst_gradient(got, want) < grad, "%s: gradient off by %g", say(w),
                  worst_gradient(got, want));
    CHECK_MSG(rel_l2(got->weights, want->weights, want->n) < weights, "%s: weights off by %g",
              say(w), rel_l2(got->weights, want->weights, want->n));
}

#define EACH_WAY(w, ways)                                                                          \
    for (const struct way *w = ways; w < ways + sizeof ways / sizeof *ways; w++)

static const struct way ways[] = {
    {.tp = 2, .sp = 1, .dp = 1},
    {.tp = 4, .sp = 1, .dp = 1, .heads = 8, .kv = 4},
    {.tp = 2, .sp = 1, .dp = 1, .kv = 1},
    {.tp = 4, .sp = 1, .dp = 1, .heads = 8, .kv = 2, .tied = 1},
    {.tp = 2, .sp = 2, .dp = 1, .strategy = STRATEGY_RSA, .layout = LAYOUT_ZIGZAG},
    {.tp = 2, .sp = 3, .dp = 1, .strategy = STRATEGY_RSA, .layout = LAYOUT_CONTIGUOUS, .zero = 1},
    {.tp = 2, .sp = 2, .dp = 1, .strategy = STRATEGY_ULYSSES, .layout = LAYOUT_CONTIGUOUS},
    {.tp = 2, .sp = 1, .dp = 2, .zero = 1, .biases = true, .samples = 2},
    {.tp = 2, .sp = 1, .dp = 2, .zero = 2, .tied = 1, .samples = 2},
    {.tp = 2,
     .sp = 2,
     .dp = 2,
     .zero = 3,
     .strategy = STRATEGY_RSA,
     .layout = LAYOUT_ZIGZAG,
     .tied = 1,
     .recompute = RECOMPUTE_FULL},
    {.tp = 2, .sp = 1, .dp = 1, .qk_norm = true, .recompute = RECOMPUTE_SELECTIVE, .whole = true},
    {.tp = 2, .sp = 1, .dp = 1, .dropout = true, .heads = 8, .kv = 2},
    {.tp = 2,
     .sp = 2,
     .dp = 1,
     .dropout = true,
     .heads = 8,
     .kv = 4,
     .strategy = STRATEGY_ULYSSES,
     .layout = LAYOUT_CONTIGUOUS},
    {.tp = 2,
     .sp = 2,
     .dp = 2,
     .zero = 3,
     .group = 2,
     .samples = 2,
     .strategy = STRATEGY_RSA,
     .layout = LAYOUT_CONTIGUOUS},
    {.tp = 2, .sp = 1, .dp = 2, .zero = 3, .fused = true},
    {.tp = 2, .sp = 1, .dp = 1, .precision = PRECISION_BF16},
    {.tp = 2,
     .sp = 2,
     .dp = 1,
     .precision = PRECISION_BF16,
     .zero = 1,
     .biases = true,
     .strategy = STRATEGY_RSA,
     .layout = LAYOUT_ZIGZAG,
     .recompute = RECOMPUTE_FULL},
    {.tp = 2, .sp = 1, .dp = 1, .pieces = 8},
    /* queries and keys that are normalised over the heads of all ranks */
    {.tp = 2, .sp = 1, .dp = 1, .family = FAMILY_OLMO2},
    {.tp = 4,
     .sp = 1,
     .dp = 2,
     .zero = 1,
     .family = FAMILY_OLMO2,
     .heads = 8,
     .kv = 2,
     .recompute = RECOMPUTE_FULL},
    {.tp = 3,
     .sp = 2,
     .dp = 1,
     .family = FAMILY_OLMO2,
     .heads = 6,
     .kv = 1,
     .strategy = STRATEGY_RSA,
     .layout = LAYOUT_ZIGZAG,
     .biases = true,
     .recompute = RECOMPUTE_SELECTIVE},
    {.tp = 2,
     .sp = 2,
     .dp = 1,
     .family = FAMILY_OLMO2,
     .precision = PRECISION_BF16,
     .strategy = STRATEGY_ULYSSES,
     .layout = LAYOUT_CONTIGUOUS},
    /* a family with queries, keys and values in one tensor, and gate and up in a second tensor */
    {.tp = 2, .sp = 1, .dp = 1, .family = FAMILY_PHI3},
    {.tp = 4,
     .sp = 1,
     .dp = 2,
     .zero = 2,
     .family = FAMILY_PHI3,
     .heads = 8,
     .kv = 2,
     .tied = 1,
     .recompute = RECOMPUTE_FULL},
    {.tp = 2,
     .sp = 2,
     .dp = 1,
     .zero = 3,
     .family = FAMILY_PHI3,
     .precision = PRECISION_BF16,
     .strategy = STRATEGY_RSA,
     .layout = LAYOUT_ZIGZAG,
     .pieces = 8},
    /* the last rank has one id or no id; logits are computed for some rows at a time */
    {.tp = 4, .sp = 1, .dp = 1, .heads = 8, .kv = 4, .vocab = 7, .loss_chunk = 11},
    {.tp = 4, .sp = 1, .dp = 1, .heads = 8, .kv = 4, .vocab = 5, .loss_chunk = 7, .tied = 1},
    {.tp = 8, .sp = 1, .dp = 1, .heads = 8, .kv = 4, .vocab = 4},
    {.tp = 4,
     .sp = 1,
     .dp = 2,
     .heads = 8,
     .kv = 2,
     .vocab = 5,
     .zero = 3,
     .samples = 2,
     .precision = PRECISION_BF16},
    {.tp = 2, .sp = 1, .dp = 2, .zero = 2, .tied = 1, .precision = PRECISION_BF16, .loss_chunk = 8},
    {.tp = 2,
     .sp = 2,
     .dp = 1,
     .pieces = 5,
     .strategy = STRATEGY_RSA,
     .layout = LAYOUT_CONTIGUOUS,
     .recompute = RECOMPUTE_SELECTIVE,
     .precision = PRECISION_BF16},
    /* on stages of a pipeline */
    {.tp = 2, .pp = 2, .sp = 1, .dp = 1, .samples = 3},
    {.tp = 2, .pp = 3, .sp = 1, .dp = 1, .samples = 2, .tied = 1, .kv = 1},
    {.tp = 4, .pp = 2, .sp = 1, .dp = 1, .heads = 8, .kv = 2, .samples = 3, .biases = true},
    {.tp = 2, .pp = 2, .sp = 1, .dp = 2, .samples = 2, .zero = 1, .tied = 1},
    {.tp = 2, .pp = 2, .sp = 1, .dp = 2, .samples = 3, .zero = 2, .tied = 1},
    {.tp = 2,
     .pp = 2,
     .sp = 2,
     .dp = 2,
     .samples = 2,
     .zero = 3,
     .group = 2,
     .strategy = STRATEGY_RSA,
     .layout = LAYOUT_ZIGZAG,
     .tied = 1,
     .recompute = RECOMPUTE_FULL},
    {.tp = 2, .pp = 2, .sp = 1, .dp = 2, .zero = 3, .tied = 1, .fused = true},
    {.tp = 2, .pp = 3, .sp = 1, .dp = 1, .fused = true, .tied = 1},
    {.tp = 2,
     .pp = 2,
     .sp = 2,
     .dp = 1,
     .samples = 2,
     .dropout = true,
     .heads = 8,
     .kv = 4,
     .strategy = STRATEGY_ULYSSES,
     .layout = LAYOUT_CONTIGUOUS},
    {.tp = 2,
     .pp = 3,
     .sp = 2,
     .dp = 1,
     .samples = 2,
     .precision = PRECISION_BF16,
     .zero = 1,
     .pieces = 8,
     .strategy = STRATEGY_RSA,
     .layout = LAYOUT_CONTIGUOUS,
     .recompute = RECOMPUTE_SELECTIVE},
};

static void test_equal(void)
{
    EACH_WAY(w, ways)
    {
        struct engine_run want = go(w, true), got = go(w, false);
        CHECK(got.plan.tp == w->tp && got.plan.pp == stages(w) && got.plan.fused == w->fused);
        compare(w, &got, &want);
        engine_free(&want);
        engine_free(&got);
    }
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Returns the number of rows of one rank of a ring. It is a multiple of tp, so that the tp ranks
 * have equal segments of the rows. */
static int64_t rows_of(const struct way *w)
{
    const int64_t segs = w->layout == LAYOUT_ZIGZAG ? 2 : 1;
    const int64_t n = (SEQ + segs * w->sp - 1) / (segs * w->sp);
    return segs * ((n + w->tp - 1) / w->tp * w->tp);
}

/* The place of a rank in the job. */
struct at {
    const struct way *w;
    const struct plan *p;
    int rank, t, stage, layers; /* `layers` is the number of layers in its stage */
    bool first, last;
};

static struct at at_rank(const struct way *w, const struct plan *p, int rank)
{
    struct at a = {.w = w, .p = p, .rank = rank, .t = rank % w->tp};
    a.stage = rank / w->tp / w->sp % stages(w);
    a.first = a.stage == 0;
    a.last = a.stage == stages(w) - 1;
    a.layers = p->pipe.first[a.stage + 1] - p->pipe.first[a.stage] - a.first - a.last;
    return a;
}

static int samples_of(const struct way *w)
{
    return w->samples ? w->samples : 1;
}

static int64_t unit_of(const struct way *w)
{
    return w->precision == PRECISION_FP32 ? 4 : 2;
}

/* Returns the bytes that a rank sends in a step to the ranks with which it shares layers.
 * Attention and MLP each gather rows three times: for the products, for the gradients of their
 * weights, and for the gradient of a sum. They each sum rows twice: the results of the last
 * products, and the gradients of gathered rows. Recomputation sums the result of attention a
 * second time, but gathers no further rows. Rows of the embedding are summed, and their gradients
 * are gathered. Rows for the head are gathered, and their gradients are summed. For each row of
 * logits, three numbers of 8 bytes are exchanged. */
static int64_t want_rows(const struct at *a)
{
    const struct way *w = a->w;
    const int64_t part = rows_of(w) / w->tp * spec.model.shape.width;
    const bool again = w->recompute == RECOMPUTE_FULL || w->recompute == RECOMPUTE_SELECTIVE;
    /* the norms are over all heads, which needs sums over ranks */
    const bool spans = w->family == FAMILY_OLMO2;
    const int64_t gathers = 2 * 3, sums = 2 * 2 + (again ? 1 + spans : 0);
    const int64_t layers = a->layers * part * (gathers * unit_of(w) + sums * 4);
    const int64_t end = part * (unit_of(w) + 4);
    const int64_t ends = (a->first + a->last) * end + a->last * rows_of(w) * 32;
    /* For a norm over all heads, one number of each row is summed and gathered, both for queries
     * and for keys. This is done in forward and in backward, and once more if the norm is
     * recomputed for itself or for attention. */
    const int64_t numbers = spans ? 2 * (again ? 4 : 3) : 0;
    const int64_t norms = numbers * a->layers * rows_of(w) / w->tp * 2 * 4;
    return (w->tp - 1) * (layers + ends + norms) * samples_of(w);
}

/* Returns the bytes of the rows that a rank sends to other stages, for all sequences. It sends the
 * stream to the next stage, and the gradient of the stream to the previous stage. */
static int64_t want_streams(const struct at *a)
{
    const int64_t part = rows_of(a->w) / a->w->tp * spec.model.shape.width;
    return samples_of(a->w) * part * unit_of(a->w) * (!a->first + !a->last);
}

/* Returns the bytes of losses. All ranks of the last stage, including those that share layers, sum
 * the loss. The last stage then sends the sum to all earlier stages. */
static int64_t want_losses(const struct at *a)
{
    const struct way *w = a->w;
    return a->last ? (w->tp * w->sp * w->dp - 1) * 8 + (stages(w) - 1) * 8 : 0;
}

/* Returns the bytes that rank r sends in a sum of n floats over s ranks. Each rank sums one piece,
 * and then gathers all pieces. */
static int64_t shared_sum(int64_t n, int s, int r)
{
    const int64_t piece = n / s * (r + 1) + n % s * (r + 1) / s - n / s * r - n % s * r / s;
    return (n - piece) * 4 + (s - 1) * piece * 4;
}

/* Returns how many elements are summed over the ranks that hold the same slice. These are all
 * elements of the stage. If there are several stages, and the last one uses the embedding as its
 * head, the elements of the embedding are added for the last stage. */
static int64_t want_elements(const struct at *a)
{
    const struct zero *z = &a->p->shards;
    const int64_t pad = 16 * a->w->sp * a->w->dp;
    int64_t n = spec.model.shape.tied && a->last && !a->first ? zero_len(z, 0) : 0;
    for (int b = a->p->pipe.first[a->stage]; b < a->p->pipe.first[a->stage + 1]; b++)
        n += zero_len(z, b);
    return (n + pad - 1) / pad * pad;
}

/* Returns the bytes of the norm, which is summed over the units of each stage and then over tp. */
static int64_t want_norm(const struct at *a)
{
    const struct zero *z = &a->p->shards;
    const int64_t units = zero_first_unit(z, a->p->pipe.first[a->stage + 1]) -
                          zero_first_unit(z, a->p->pipe.first[a->stage]);
    return (stages(a->w) - 1) * units * 8 + (a->w->tp - 1) * 8;
}

/* Returns the bytes of gradients. Gradients of norms are summed over tp. Gradients of shared KV
 * heads are summed over the ranks that share them. All gradients of the rank are then summed over
 * the sp * dp ranks with the same slice. The head's part of a tied embedding, for the rank's ids,
 * is sent to the first stage. The bytes of the norm are included. */
static int64_t want_gradients(const struct at *a)
{
    const struct model_shape *m = &spec.model.shape;
    const struct way *w = a->w;
    const int W = w->sp * w->dp, tp = w->tp;
    const int64_t kv = m->n_kv_heads, C = m->width, ids = (m->vocab + tp - 1) / tp;
    int64_t sent = (2 * a->layers + a->last) * shared_sum(C, tp, a->t);
    if (a->last && !a->first && m->tied) sent += ids * C * 4;
    if (kv < tp && m->family == FAMILY_OLMO2)
        sent += a->layers * shared_sum(m->head_dim, tp / (int)kv, a->t % (tp / (int)kv));
    if (kv < tp)
        sent += 2 * a->layers * shared_sum(m->head_dim * C, tp / (int)kv, a->t % (tp / (int)kv));
    return sent + 2 * (W - 1) * (want_elements(a) / W) * 4 + want_norm(a);
}

static const struct way counted[] = {
    {.tp = 2, .sp = 1, .dp = 1},
    {.tp = 4, .sp = 1, .dp = 1, .heads = 8, .kv = 2, .tied = 1, .samples = 3},
    {.tp = 2, .sp = 2, .dp = 2, .strategy = STRATEGY_RSA, .layout = LAYOUT_ZIGZAG},
    {.tp = 3, .sp = 1, .dp = 2, .heads = 6, .kv = 3, .recompute = RECOMPUTE_FULL},
    {.tp = 4, .sp = 1, .dp = 1, .heads = 8, .kv = 4, .vocab = 5, .loss_chunk = 7},
    {.tp = 2, .sp = 1, .dp = 1, .recompute = RECOMPUTE_SELECTIVE},
    {.tp = 2, .sp = 1, .dp = 1, .recompute = RECOMPUTE_FULL, .pieces = 8},
    {.tp = 2, .sp = 1, .dp = 1, .family = FAMILY_OLMO2},
    {.tp = 2, .sp = 1, .dp = 1, .family = FAMILY_OLMO2, .recompute = RECOMPUTE_FULL},
    {.tp = 4,
     .sp = 2,
     .dp = 1,
     .heads = 8,
     .kv = 2,
     .family = FAMILY_OLMO2,
     .strategy = STRATEGY_RSA},
    {.tp = 4, .sp = 1, .dp = 2, .heads = 8, .kv = 2, .family = FAMILY_PHI3},
    {.tp = 2,
     .sp = 3,
     .dp = 1,
     .precision = PRECISION_BF16,
     .strategy = STRATEGY_RSA,
     .layout = LAYOUT_CONTIGUOUS,
     .recompute = RECOMPUTE_FULL},
    {.tp = 2, .pp = 2, .sp = 1, .dp = 1, .samples = 3},
    {.tp = 4, .pp = 3, .sp = 1, .dp = 1, .heads = 8, .kv = 2, .tied = 1, .samples = 3},
    {.tp = 2,
     .pp = 2,
     .sp = 2,
     .dp = 2,
     .tied = 1,
     .samples = 2,
     .precision = PRECISION_BF16,
     .strategy = STRATEGY_RSA,
     .layout = LAYOUT_ZIGZAG,
     .recompute = RECOMPUTE_FULL},
};

static void check_sent(const struct at *a)
{
    const struct comm_count *c = moved[a->rank];
    const struct {
        enum purpose of;
        int64_t sent;
    } want[] = {{PURPOSE_TENSOR, want_rows(a)},
                {PURPOSE_STAGE, want_streams(a)},
                {PURPOSE_LOSS, want_losses(a)},
                {PURPOSE_GRAD, want_gradients(a)}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        CHECK_MSG(c[want[i].of].bytes_sent == want[i].sent, "%s rank %d: %s %lld, want %lld",
                  say(a->w), a->rank, purpose_name(want[i].of), (long long)c[want[i].of].bytes_sent,
                  (long long)want[i].sent);
    CHECK(c[PURPOSE_TENSOR].bytes_received == want_rows(a));
    CHECK(c[PURPOSE_STAGE].bytes_received == want_streams(a));
}

static void test_bytes(void)
{
    EACH_WAY(w, counted)
    {
        struct engine_run r = go(w, false);
        for (int rank = 0; rank < r.plan.n_ranks; rank++) {
            const struct at a = at_rank(w, &r.plan, rank);
            check_sent(&a);
        }
        engine_free(&r);
    }
}

/* ---- files ----------------------------------------------------------------------------------- */

/* A training that continues on several products of axes. Each leg loads the files that the
 * previous leg has saved. */
struct journey {
    char dir[64];
    struct ckpt_info info;
    int leg;
    /* the weights, m and v: `was` has their values at the end of the previous leg, and `got` the
     * values that this leg has loaded */
    float *was[3], *got[3];
};
static const enum sharded_array arrays[3] = {SHARDED_WEIGHTS, SHARDED_M, SHARDED_V};

static void load_first(struct train *t, int rank, void *arg)
{
    struct journey *j = arg;
    struct err e = {0};
    const struct ckpt_arrays a = scatter_arrays(&t->state);
    struct model_shape whole = t->model.shape;
    struct ckpt_state s;
    whole.tp = 0;
    if (j->leg == 0 || t->step != j->leg) return;
    if (rank) {
        CHECK_MSG(!scatter_serve(&t->state, &e), "%s", e.text);
    } else {
        CHECK_MSG(!checkpoint_load(j->info.path, &whole, &a, &s, &e), "%s", e.text);
        CHECK_MSG(!scatter_end(&t->state, &e), "%s", e.text);
    }
    for (int i = 0; i < 3; i++) engine_collect(t, arrays[i], j->got[i]);
}

static void save_last(struct train *t, int rank, void *arg)
{
    struct journey *j = arg;
    struct err e = {0};
    const struct ckpt_arrays a = scatter_arrays(&t->state);
    struct model_shape whole = t->model.shape;
    whole.tp = 0;
    if (rank) {
        CHECK_MSG(!scatter_serve(&t->state, &e), "%s", e.text);
        return;
    }
    const struct ckpt_state s = {.step = t->step, .next_sample = t->step};
    CHECK_MSG(!ckpt_save(j->dir, 1, &whole, &a, &s, &j->info, &e), "%s", e.text);
    CHECK_MSG(!scatter_end(&t->state, &e), "%s", e.text);
}

static void one_leg(struct journey *j, const struct way *w)
{
    spec_of(w);
    spec.model.shape.vocab = 258; /* the vocabulary of the byte tokenizer */
    spec.model.shape.max_pos = 4096;
    spec.train.global_batch = 4;
    data = (struct synth){.S = SEQ, .doc_len = 17, .vocab = 61};
    const int64_t n = param_count(&spec.model.shape);
    for (int i = 0; i < 3; i++) j->got[i] = calloc((size_t)n, 4);
    struct engine_run r = {.P = w->sp,
                           .dp = w->dp,
                           .pp = w->pp,
                           .tp = w->tp,
                           .steps = 1,
                           .first_step = j->leg,
                           .before_step = load_first,
                           .after_step = save_last,
                           .arg = j,
                           .source = {synth_batch, synth_targets, &data}};
    engine_go(&r, &spec);
    const float *now[3] = {r.weights, r.adam_m, r.adam_v};
    for (int i = 0; i < 3; i++) {
        CHECK_MSG(j->leg == 0 || !memcmp(j->got[i], j->was[i], (size_t)n * 4),
                  "leg %d, tp %d: array %d has not come back", j->leg, w->tp, i);
        free(j->got[i]);
        free(j->was[i]);
        engine_keep(&j->was[i], now[i], n);
    }
    engine_free(&r);
    j->leg++;
}

/* Checks that files do not depend on the axes. */
static void test_files(void)
{
    enum { LEGS = 7 };
    static const struct way legs[3][LEGS] = {
        {{.tp = 2, .sp = 1, .dp = 1, .family = FAMILY_PHI3, .heads = 8},
         {.tp = 1, .sp = 2, .dp = 1, .zero = 3, .family = FAMILY_PHI3, .heads = 8},
         {.tp = 4, .sp = 1, .dp = 2, .zero = 1, .family = FAMILY_PHI3, .heads = 8},
         {.tp = 8, .sp = 1, .dp = 1, .family = FAMILY_PHI3, .heads = 8},
         {.tp = 2, .sp = 1, .dp = 1, .pp = 3, .family = FAMILY_PHI3, .heads = 8},
         {.tp = 4, .sp = 1, .dp = 1, .pp = 2, .zero = 1, .family = FAMILY_PHI3, .heads = 8},
         {.tp = 2, .sp = 2, .dp = 1, .zero = 2, .family = FAMILY_PHI3, .heads = 8}},
        {{.tp = 2, .sp = 1, .dp = 2, .zero = 3},
         {.tp = 1, .sp = 2, .dp = 1, .zero = 1},
         {.tp = 4, .sp = 1, .dp = 1},
         {.tp = 2, .sp = 2, .dp = 2, .zero = 1, .group = 2},
         {.tp = 2, .pp = 2, .sp = 1, .dp = 2, .zero = 3},
         {.tp = 2, .sp = 4, .dp = 1},
         {.tp = 1, .sp = 1, .dp = 1}},
        {{.tp = 1, .sp = 1, .dp = 1, .precision = PRECISION_BF16, .biases = true, .tied = 1},
         {.tp = 2,
          .sp = 1,
          .dp = 2,
          .zero = 2,
          .precision = PRECISION_BF16,
          .biases = true,
          .tied = 1},
         {.tp = 4,
          .sp = 2,
          .dp = 1,
          .zero = 3,
          .precision = PRECISION_BF16,
          .biases = true,
          .tied = 1},
         {.tp = 2,
          .pp = 2,
          .sp = 1,
          .dp = 2,
          .zero = 2,
          .precision = PRECISION_BF16,
          .biases = true,
          .tied = 1},
         {.tp = 1,
          .sp = 2,
          .dp = 2,
          .zero = 3,
          .precision = PRECISION_BF16,
          .biases = true,
          .tied = 1},
         {.tp = 2,
          .pp = 3,
          .sp = 2,
          .dp = 1,
          .zero = 1,
          .precision = PRECISION_BF16,
          .biases = true,
          .tied = 1},
         {.tp = 2, .sp = 1, .dp = 1, .precision = PRECISION_BF16, .biases = true, .tied = 1}}};
    for (int i = 0; i < 3; i++) {
        struct journey j = {.leg = 0};
        struct err e = {0};
        snprintf(j.dir, sizeof j.dir, "/tmp/test_tensor_jobs.XXXXXX");
        if (!mkdtemp(j.dir)) abort();
        for (int leg = 0; leg < LEGS; leg++) one_leg(&j, &legs[i][leg]);
        CHECK_MSG(!file_remove(j.dir, &e), "%s", e.text);
        for (int k = 0; k < 3; k++) free(j.was[k]);
    }
}

/* ---- plans ----------------------------------------------------------------------------------- */

/* Sets a job in the form in which it is submitted. */
static void submit(int ranks, int tp)
{
    engine_spec(&spec, SEQ);
    const struct model_shape tiny = spec.model.shape;
    spec_defaults(&spec);
    shape_defaults(&spec.model.shape);
    spec.kind = JOB_TRAIN;
    spec.model.shape = tiny;
    spec.model.shape.vocab = 260;
    spec.data.seq_len = SEQ;
    spec.data.n_train = 1;
    spec.data.train[0] = (struct spec_source){.format = DATA_JSONL, .eod = -1};
    CHECK(!spec_intern(&spec, "/text.jsonl", 11, &spec.data.train[0].path));
    spec.train.steps = 20;
    spec.train.global_batch = 8;
    spec.resources.ranks = ranks;
    spec.parallel.tp = tp;
}

/* Checks axes that "auto" chooses. Ranks that share layers are not available for these axes. Also
 * checks that the error for a job that does not fit names settings with which the job would
 * fit. */
static void test_planned(void)
{
    static struct machine slow;
    static struct choice c;
    static struct plan p;
    static char json[1 << 18];
    struct err e = {0};
    submit(8, 2);
    choice_make(&spec, &slow, &(struct choice_how){.limits = true}, &c);
    CHECK(c.n > 0);
    choice_apply(&c, &spec);
    CHECK_MSG(!family_check(&spec, &e) && !plan_make(&spec, 0, &p, &e), "%s: %s", e.field, e.text);
    CHECK(p.tp == 2 && p.sp * p.dp == 4 && p.n_ranks == 8);
    CHECK(strstr(p.reason, "tp 2"));
    CHECK(plan_json(&spec, &p, json, sizeof json) > 0 && strstr(json, "\"tp\":2"));
    char all[64];
    struct model_shape whole = spec.model.shape;
    whole.tp = 0;
    snprintf(all, sizeof all, "\"parameters\":%lld", (long long)param_count(&whole));
    CHECK_MSG(strstr(json, all), "want %s", all);
    CHECK(plan_make(&spec, 1 << 16, &p, &e) && e.code == ERR_DOES_NOT_FIT);
    submit(4, 1);
    CHECK(!family_check(&spec, &e) && !plan_make(&spec, 0, &p, &e));
    CHECK(!strstr(p.reason, "tp "));
    /* With stages, the remaining ranks are for rings. */
    submit(16, 2);
    spec.parallel.pp = 2;
    choice_make(&spec, &slow, &(struct choice_how){.limits = true}, &c);
    choice_apply(&c, &spec);
    CHECK_MSG(c.n > 0 && !family_check(&spec, &e) && !plan_make(&spec, 0, &p, &e), "%s: %s",
              e.field, e.text);
    CHECK(p.tp == 2 && p.pp == 2 && p.sp * p.dp == 4 && p.n_ranks == 16);
    CHECK(strstr(p.reason, "tp 2") && strstr(p.reason, "2 stages"));
    CHECK(plan_json(&spec, &p, json, sizeof json) > 0 && strstr(json, "\"stages\":["));
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void refuse(void (*change)(struct job_spec *), const char *part)
{
    struct err e = {0};
    submit(0, 2);
    change(&spec);
    CHECK_MSG(family_check(&spec, &e) && !strcmp(e.field, "parallel.tp") && strstr(e.text, part),
              "%s: %s, want \"%s\"", e.field, e.text, part);
}

static void generates(struct job_spec *s)
{
    s->kind = JOB_SCORE;
    CHECK(!spec_intern(s, "in.bin", 6, &s->input.source.path));
}

static void wants_bits(struct job_spec *s)
{
    s->determinism = DET_RANKS;
}

static void has_odd_heads(struct job_spec *s)
{
    s->model.shape.n_heads = s->model.shape.n_kv_heads = 3;
}

static void has_odd_width(struct job_spec *s)
{
    s->model.shape.ffn_width = 41;
}

static void has_kv_between(struct job_spec *s)
{
    s->parallel.tp = 4;
    s->model.shape.n_heads = 12;
    s->model.shape.n_kv_heads = 6;
}

static void is_gpt2(struct job_spec *s)
{
    s->model.shape.family = FAMILY_GPT2;
    s->model.shape.n_kv_heads = 4;
    s->model.shape.max_pos = 64;
}

static void test_refused(void)
{
    refuse(generates, "only trainings share layers");
    refuse(wants_bits, "determinism");
    refuse(has_odd_heads, "num_attention_heads 3: make parallel.tp 1");
    refuse(has_odd_width, "intermediate_size 41: make parallel.tp 1");
    refuse(has_kv_between, "num_key_value_heads 6: one must divide the other: make parallel.tp ");
    refuse(is_gpt2, "layers of this family");
}

int main(void)
{
    RUN(test_equal);
    RUN(test_bytes);
    RUN(test_files);
    RUN(test_planned);
    RUN(test_refused);
    return test_done("tensor_jobs");
}
