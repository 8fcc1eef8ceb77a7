/* Checks stages of a pipeline (parallel.pp). If dp is fixed, the number of stages must not change
 * a bit of the training. Under determinism "ranks" this must hold for any ring. Under "run" the
 * training is compared with a training that has one stage and the same ring. Under "run" the two
 * parts of a tied embedding's gradient are summed separately, so a training with a tied embedding
 * must only be within the bounds of test_dp. The bytes that every rank sends are compared with
 * formulas that are written from the algorithm. The memory of every rank is counted here, too.
 * tests: needs golden */
#include "api/core/job.h"
#include "tests/lib/engine.h"
#include "tests/lib/mutant.h"
#include "worker/comm/ledger.h"
#include "worker/hf/hf.h"
#include "worker/plan/machine.h"

static struct job_spec spec; /* static because it has 75 KiB, too many for the stack */

enum { STEPS = 3, LAYERS = 5, MAX_RANKS = 16 };

/* A way to run the same training. */
struct way {
    int dp, pp, sp, zero, determinism;
    int64_t batch;
    int tied, precision, recompute, layout, group;
    double max_norm;
    int strategy, form;
    const char *family; /* NULL means the tiny Llama with LAYERS layers */
    int tp, offload;
};

static struct synth synth = {.S = 37, .doc_len = 11, .vocab = 61};

static void set_spec(const struct way *w)
{
    char dir[96];
    struct err e = {0};
    engine_spec(&spec, synth.S);
    spec.model.shape.n_layers = LAYERS;
    spec.model.shape.tied = w->tied;
    if (w->family) {
        snprintf(dir, sizeof dir, "tests/golden/%s", w->family);
        CHECK_MSG(!config_read_dir(dir, &spec.model.shape, &e), "%s", e.text);
    }
    spec.precision.params = w->precision;
    spec.train.global_batch = w->batch;
    spec.optim.max_grad_norm = w->max_norm;
    spec.guard.nonfinite = NONFINITE_FAIL;
    spec.parallel.zero = w->zero;
    spec.parallel.zero_group = w->group;
    spec.parallel.strategy = w->strategy;
    spec.parallel.form = w->form;
    spec.parallel.layout = w->layout ? w->layout : LAYOUT_CONTIGUOUS;
    spec.memory.recompute = w->recompute ? w->recompute : RECOMPUTE_NONE;
    spec.determinism = w->determinism;
    spec.memory.offload = w->offload ? OFFLOAD_ACTIVATIONS : OFFLOAD_NONE;
}

/* The ledger of each rank in the last step. */
struct seen {
    struct comm_count moved[MAX_RANKS][PURPOSE_N];
};

static void look(struct train *t, int rank, void *arg)
{
    struct seen *x = arg;
    if (x && t->model.job) memcpy(x->moved[rank], comm_ledger(t->model.job), sizeof x->moved[rank]);
}

static struct engine_run go(const struct way *w, struct seen *x)
{
    set_spec(w);
    struct engine_run r = {.P = w->sp,
                           .dp = w->dp,
                           .pp = w->pp,
                           .tp = w->tp,
                           .steps = STEPS,
                           .source = {synth_batch, synth_targets, &synth},
                           .after_step = look,
                           .arg = x};
    engine_go(&r, &spec);
    return r;
}

static const char *say(const struct way *w)
{
    static char text[200];
    snprintf(text, sizeof text,
             "%s dp %d pp %d sp %d zero %d group %d det %d batch %lld tied %d precision %d "
             "recompute %d norm %g",
             w->family ? w->family : "", w->dp, w->pp, w->sp, w->zero, w->group, w->determinism,
             (long long)w->batch, w->tied, w->precision, w->recompute, w->max_norm);
    return text;
}

/* ---- the same bits --------------------------------------------------------------------------- */

static void check_bits(const struct way *w, const struct engine_run *want)
{
    struct engine_run r = go(w, NULL);
    const size_t n = (size_t)param_count(&spec.model.shape) * 4;
    const char *which = say(w);
    CHECK(r.plan.pp == w->pp && r.plan.n_ranks == w->dp * w->pp * w->sp);
    CHECK_MSG(!memcmp(r.loss, want->loss, STEPS * sizeof *r.loss), "%s: loss %.17g, want %.17g",
              which, r.loss[0], want->loss[0]);
    CHECK_MSG(!memcmp(r.norm, want->norm, STEPS * sizeof *r.norm), "%s: norm %.17g, want %.17g",
              which, r.norm[0], want->norm[0]);
    if (!r.plan.fused) CHECK_MSG(!memcmp(r.grad, want->grad, n), "%s: gradients", which);
    CHECK_MSG(!memcmp(r.weights, want->weights, n), "%s: weights", which);
    CHECK_MSG(!memcmp(r.adam_m, want->adam_m, n), "%s: m", which);
    CHECK_MSG(!memcmp(r.adam_v, want->adam_v, n), "%s: v", which);
    engine_free(&r);
}

/* Compares every ring, number of stages and stage of ZeRO with one rank, or, if dp is 2, with two
 * rings of one rank. */
static void test_ranks(void)
{
    const int stride = SANITIZED || small_tests() ? 5 : 1;
    for (int i = 0; i < 16; i += stride) {
        struct way w = {.dp = 1 + (i & 1),
                        .sp = 1,
                        .pp = 1,
                        .tied = i >> 1 & 1,
                        .batch = (1 + (i & 1)) * (i & 4 ? 3 : 1),
                        .max_norm = i & 8 ? 0 : 1,
                        .determinism = DET_RANKS};
        struct engine_run want = go(&w, NULL);
        for (w.pp = 2; w.pp <= 4; w.pp++)
            for (w.sp = 1; w.sp <= 2; w.sp++)
                for (w.zero = 0; w.zero <= 3; w.zero++)
                    if (w.dp * w.pp * w.sp <= 8 && !small_leaves(i + w.pp + w.sp + w.zero, 2))
                        check_bits(&w, &want);
        engine_free(&want);
    }
}

/* Checks that in "run" a ring with stages has the same sums as a ring without stages. */
static void test_without_ranks(void)
{
    static const struct way ways[] = {
        {.dp = 1, .pp = 5, .sp = 1, .batch = 1, .max_norm = 1},
        {.dp = 1, .pp = 2, .sp = 3, .batch = 2, .zero = 1, .max_norm = 1},
        {.dp = 3, .pp = 3, .sp = 1, .batch = 9, .zero = 2, .recompute = RECOMPUTE_FULL},
        {.dp = 2, .pp = 2, .sp = 2, .batch = 8, .zero = 3, .group = 2, .max_norm = 1},
        {.dp = 2, .pp = 4, .sp = 2, .batch = 10, .layout = LAYOUT_ZIGZAG, .max_norm = 0.5},
        {.dp = 1, .pp = 3, .sp = 2, .batch = 5, .zero = 3, .tied = 1, .max_norm = 1},
        {.dp = 2, .pp = 2, .sp = 1, .batch = 2, .zero = 2, .tied = 1}, /* fused */
        {.dp = 1, .pp = 3, .sp = 1, .batch = 1, .tied = 1},            /* fused */
        {.dp = 1, .pp = 2, .sp = 2, .batch = 4, .precision = PRECISION_BF16, .max_norm = 1},
        {.dp = 2, .pp = 2, .sp = 2, .batch = 4, .precision = PRECISION_BF16, .zero = 3, .tied = 1},
        {.dp = 1, .pp = 4, .sp = 1, .batch = 3, .precision = PRECISION_FP16, .max_norm = 1},
        {.dp = 1, .pp = 2, .sp = 2, .batch = 3, .strategy = STRATEGY_ULYSSES, .max_norm = 1},
        {.dp = 1, .pp = 3, .sp = 4, .batch = 3, .strategy = STRATEGY_USP, .max_norm = 1},
        {.dp = 2,
         .pp = 2,
         .sp = 4,
         .batch = 4,
         .layout = LAYOUT_ZIGZAG,
         .zero = 3,
         .strategy = STRATEGY_USP,
         .max_norm = 1}, /* groups of two ranks; there are also two KV heads */
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct way one = ways[i];
        one.pp = 1;
        struct engine_run want = go(&one, NULL);
        check_bits(&ways[i], &want);
        engine_free(&want);
    }
}

/* Checks three kinds of families. In the first kind, layers differ. In the second, the first stage
 * reads positions or token types. In the third, states are passed along a ring. */
static void test_families(void)
{
    static const char *const names[] = {"bert",    "tnl",       "linear",      "retnet",
                                        "minimax", "ministral", "qwen3_mixed", "gpt_oss",
                                        "qwen3_5", "gpt2",      "gemma3",      "modernbert"};
    synth.vocab = 250;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct way w = {.dp = 1,
                        .pp = 1,
                        .sp = 1,
                        .batch = 3,
                        .max_norm = 1,
                        .determinism = DET_RANKS,
                        .recompute = RECOMPUTE_SELECTIVE,
                        .family = names[i]};
        struct engine_run want = go(&w, NULL);
        for (w.zero = 0; w.zero <= 3; w.zero += 3)
            for (w.pp = 2; w.pp <= spec.model.shape.n_layers; w.pp++, w.sp = 1 + w.pp % 2)
                check_bits(&w, &want);
        engine_free(&want);
    }
    synth.vocab = 61;
}

/* ---- a tied embedding in "run" --------------------------------------------------------------- */

/* Checks a tied embedding in "run". With one stage, the gradients of the head and of the embedding
 * are added to one buffer, sample by sample. With two stages, each of them has its own buffer, and
 * the buffers are added at the end. The same sum is therefore computed in two orders. The results
 * may differ by 4 times the difference between two orders of sums on one rank (test_dp explains
 * the 4). */
static void test_tied_in_run(void)
{
    for (int64_t batch = 1; batch <= 5; batch++) {
        struct way w = {.dp = 1, .pp = 1, .sp = 1, .batch = batch, .tied = 1, .max_norm = 1};
        struct engine_run one = go(&w, NULL);
        w.determinism = DET_RANKS;
        struct engine_run other = go(&w, NULL);
        w.determinism = DET_RUN;
        w.pp = 2 + (int)batch % 3;
        struct engine_run r = go(&w, NULL);
        const int64_t n = param_count(&spec.model.shape);
        const double grad = rel_l2(other.grad, one.grad, n), got = rel_l2(r.grad, one.grad, n);
        const double weights = rel_l2(other.weights, one.weights, n),
                     w_got = rel_l2(r.weights, one.weights, n);
        CHECK_MSG(got <= fmax(4 * grad, 0x1p-22), "%s: gradients %.3g, %.3g", say(&w), got, grad);
        CHECK_MSG(w_got <= fmax(4 * weights, 0x1p-22), "%s: weights %.3g, %.3g", say(&w), w_got,
                  weights);
        for (int k = 0; k < STEPS; k++)
            CHECK_MSG(fabs(r.loss[k] - one.loss[k]) <= 1e-5, "%s: loss %.9g, %.9g", say(&w),
                      r.loss[k], one.loss[k]);
        engine_free(&one), engine_free(&other), engine_free(&r);
    }
}

/* ---- bytes ----------------------------------------------------------------------------------- */

struct bytes {
    int64_t sent, received;
};

/* A rank of the job, and how it is connected to other ranks. All members are computed from the
 * way, except for the rows that the rank owns. */
struct view {
    const struct way *w;
    const struct plan *p;
    int W, place, stage;
    int64_t unit;
    /* `each` is set if gradients are summed over ranks after every sample */
    bool first, last, each;
};

static void gather(struct bytes *b, int W, int64_t own, int64_t n, int64_t size)
{
    b->sent += (W - 1) * own * size;
    b->received += (n - own) * size;
}

static void scatter(struct bytes *b, int W, int64_t own, int64_t n)
{
    b->sent += (n - own) * 4;
    b->received += (W - 1) * own * 4;
}

static int64_t part_of(const struct view *v, int b)
{
    const struct zero_range r = zero_range(&v->p->shards, b, v->place);
    return r.end - r.begin;
}

static bool borrows(const struct view *v)
{
    return v->w->tied && v->last;
}

static bool in_stage(const struct view *v, int b)
{
    const int *first = v->p->pipe.first;
    return b >= first[v->stage] && b < first[v->stage + 1];
}

/* Returns the number of units of a bucket (zero.h), computed from its tensors. */
static int64_t units_of(int b)
{
    struct param p[PROG_WEIGHTS];
    const int n = param_bucket(&spec.model.shape, b, p, NULL);
    const int64_t begin = param_section(&spec.model.shape, b);
    int64_t units = 0, len = p[n - 1].offset + (p[n - 1].count + 15) / 16 * 16 - begin;
    for (int i = 0; i < n; i++) {
        const int64_t rows = p[i].cols ? p[i].rows : 1, cols = p[i].cols ? p[i].cols : p[i].rows;
        const int64_t step = len / 128 > cols ? len / 128 / cols : 1;
        units += (rows + step - 1) / step;
    }
    return units;
}

static int64_t units_of_stage(const struct view *v, int stage)
{
    int64_t n = 0;
    for (int b = v->p->pipe.first[stage]; b < v->p->pipe.first[stage + 1]; b++) n += units_of(b);
    return n;
}

static void want_tied(const struct view *v, struct bytes *grad, struct bytes *param)
{
    const int64_t own = v->w->zero ? part_of(v, 0)
                                   : spec.model.shape.vocab * spec.model.shape.width;
    const int64_t up = own * 4 * (v->each ? v->w->batch / v->w->dp : 1), down = own * v->unit;
    if (!v->w->tied) return;
    if (v->last) grad->sent += up, param->received += down;
    if (v->first) grad->received += up, param->sent += down;
}

/* Counts the bytes if nothing is sharded. There is one all-reduce of the gradients of all weights
 * of the stage, padded to a multiple of the number of ranks. */
static void want_whole(const struct view *v, struct bytes *grad)
{
    const int64_t n = v->w->batch / v->w->dp;
    int64_t elements = 0;
    for (int b = 0; b < LAYERS + 2; b++)
        if (in_stage(v, b) || (b == 0 && borrows(v))) elements += zero_len(&v->p->shards, b);
    elements = (elements + 16 * v->W - 1) / (16 * v->W) * 16 * v->W;
    const int64_t moved = 2 * (v->W - 1) * (elements / v->W) * 4 * (v->each ? n : 1);
    grad->sent += moved;
    grad->received += moved;
}

static void want_shards(const struct view *v, struct bytes *grad, struct bytes *param)
{
    const int64_t n = v->w->batch / v->w->dp;
    for (int b = 0; b < LAYERS + 2; b++) {
        const int64_t part = part_of(v, b), len = zero_len(&v->p->shards, b);
        const bool own = in_stage(v, b), read = own || (b == 0 && borrows(v));
        const int64_t *units = v->p->shards.unit_cut[zero_kind(&v->p->shards, b)];
        if (!read) continue;
        for (int64_t i = 0; i < (v->each ? n : 1); i++) scatter(grad, v->W, part, len);
        if (own) gather(grad, v->W, units[v->place + 1] - units[v->place], units[v->W], 8);
        /* Weights are gathered before a forward and before a backward pass; the embedding and the
         * head are read only once. */
        const int64_t times = v->w->zero < 3 ? 1 : b >= 1 && b <= LAYERS ? 2 * n : n;
        for (int64_t i = 0; i < times; i++) gather(param, v->W, part, len, v->unit);
    }
}

static void check_count(const struct view *v, int rank, const char *what,
                        const struct comm_count *c, struct bytes b)
{
    CHECK_MSG(c->bytes_sent == b.sent && c->bytes_received == b.received,
              "%s: rank %d: %s %lld out %lld in, want %lld %lld", say(v->w), rank, what,
              (long long)c->bytes_sent, (long long)c->bytes_received, (long long)b.sent,
              (long long)b.received);
}

static void check_rank(const struct view *v, int rank, const struct comm_count *c)
{
    struct bytes grad = {0}, param = {0}, stage = {0}, loss = {0};
    const int64_t n = v->w->batch / v->w->dp, rows = (synth.S + v->w->sp - 1) / v->w->sp;
    const int64_t stream = n * rows * spec.model.shape.width * v->unit;
    stage.sent = stream * (!v->first + !v->last);
    stage.received = stage.sent;
    if (v->w->zero)
        want_shards(v, &grad, &param);
    else
        want_whole(v, &grad);
    want_tied(v, &grad, &param);
    int64_t units = 0;
    for (int i = 0; i < v->w->pp; i++) units += units_of_stage(v, i);
    gather(&grad, v->w->pp, units_of_stage(v, v->stage), units, 8);
    if (v->last) gather(&loss, v->W, 1, v->W, 8);
    if (v->last) loss.sent += (v->w->pp - 1) * 8;
    if (!v->last) loss.received += 8;
    check_count(v, rank, "streams", &c[PURPOSE_STAGE], stage);
    check_count(v, rank, "gradients", &c[PURPOSE_GRAD], grad);
    check_count(v, rank, "weights", &c[PURPOSE_PARAM], param);
    check_count(v, rank, "losses", &c[PURPOSE_LOSS], loss);
}

static const struct way counted[] = {
    {.dp = 1, .pp = 2, .sp = 1, .batch = 3, .max_norm = 1},
    {.dp = 2, .pp = 3, .sp = 2, .batch = 8, .max_norm = 1, .tied = 1},
    {.dp = 2, .pp = 2, .sp = 2, .batch = 6, .zero = 1, .max_norm = 1, .tied = 1},
    {.dp = 1, .pp = 4, .sp = 3, .batch = 2, .zero = 2, .max_norm = 1},
    {.dp = 3, .pp = 2, .sp = 1, .batch = 6, .zero = 2, .max_norm = 1, .tied = 1},
    {.dp = 2, .pp = 3, .sp = 2, .batch = 4, .zero = 3, .max_norm = 1, .tied = 1},
    {.dp = 4, .pp = 2, .sp = 1, .batch = 4, .zero = 3, .precision = PRECISION_BF16, .max_norm = 1},
};
#define EACH_COUNTED(w)                                                                            \
    for (const struct way *w = counted; w < counted + sizeof counted / sizeof *counted; w++)

static void test_bytes(void)
{
    EACH_COUNTED(w)
    {
        static struct seen x;
        struct engine_run r = go(w, &x);
        for (int rank = 0; rank < r.plan.n_ranks; rank++) {
            const int d = rank / (w->pp * w->sp), p = rank / w->sp % w->pp, s = rank % w->sp;
            check_rank(&(struct view){.w = w,
                                      .p = &r.plan,
                                      .W = w->dp * w->sp,
                                      .place = d * w->sp + s,
                                      .stage = p,
                                      .unit = w->precision == PRECISION_FP32 ? 4 : 2,
                                      .first = p == 0,
                                      .last = p == w->pp - 1,
                                      .each = w->zero >= 2},
                       rank, x.moved[rank]);
        }
        engine_free(&r);
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Checks the head's part of a tied embedding. While the stages between the first and the last
 * compute, the gradients of several samples are waiting. Each rank needs memory for its own part
 * of each of these gradients. */
static void check_tied(const struct way *w, const struct plan *p, int stage)
{
    const int64_t n = w->zero >= 2 ? w->batch / w->dp : 1, C = spec.model.shape.width;
    const int64_t room = n < w->pp - 1 ? n : w->pp - 1;
    int64_t most = spec.model.shape.vocab * C;
    if (w->zero) most = 0;
    for (int place = 0; place < w->dp * w->sp && w->zero; place++) {
        const struct zero_range r = zero_range(&p->shards, 0, place);
        if (r.end - r.begin > most) most = r.end - r.begin;
    }
    const int64_t stride = (most * 4 + 63) / 64 * 64;
    const bool sends = w->tied && stage == w->pp - 1;
    CHECK_MSG(p->item[PLAN_TIED_SEND].size == (sends ? (room - 1) * stride + most * 4 : 0),
              "%s stage %d: %lld bytes to send", say(w), stage,
              (long long)p->item[PLAN_TIED_SEND].size);
}

/* Checks the items of the plan of each stage. engine_steps has checked that all items of a plan
 * are placed. */
static void check_stage(const struct way *w, const struct plan *p, int stage)
{
    const int layers = p->pipe.first[stage + 1] - p->pipe.first[stage] - (stage == 0) -
                       (stage == w->pp - 1);
    const int64_t n = w->batch / w->dp, kept = n < w->pp - stage ? n : w->pp - stage;
    const int64_t unit = w->precision == PRECISION_FP32 ? 4 : 2, C = spec.model.shape.width;
    const int64_t stream = (p->T * C * unit + 63) / 64 * 64;
    int64_t elements = 0;
    for (int b = p->pipe.first[stage]; b < p->pipe.first[stage + 1]; b++)
        elements += zero_len(&p->shards, b);
    const int64_t lent = w->tied && stage == w->pp - 1 ? spec.model.shape.vocab * C : 0;
    CHECK_MSG(p->item[PLAN_X].size == (kept * (layers + 1) - 1) * stream + p->T * C * unit,
              "%s stage %d: streams of %lld bytes", say(w), stage, (long long)p->item[PLAN_X].size);
    CHECK(p->item[PLAN_PIPE_SEND].size == stream + p->T * C * unit);
    if (!w->zero) CHECK(p->item[PLAN_ADAM_M].size == elements * 4);
    if (w->zero < 3) CHECK(p->item[PLAN_PARAMS].size == (elements + lent) * unit);
    CHECK(!p->item[PLAN_LOGITS].name == (stage < w->pp - 1));
    check_tied(w, p, stage);
}

static void test_memory(void)
{
    EACH_COUNTED(w)
    {
        struct plan p, of;
        struct err e = {0};
        int64_t most = 0;
        set_spec(w);
        spec.parallel.dp = w->dp, spec.parallel.pp = w->pp, spec.parallel.sp = w->sp;
        CHECK_MSG(!plan_make(&spec, 0, &p, &e), "%s", e.text);
        for (int rank = 0; rank < p.n_ranks; rank++) {
            CHECK_MSG(!plan_of_rank(&spec, &p, rank, &of, &e), "%s", e.text);
            CHECK(of.segment_size == p.segment_size && of.pipe.at == rank / w->sp % w->pp);
            CHECK(of.arena_size == p.stage_size[of.pipe.at]);
            check_stage(w, &of, of.pipe.at);
            if (of.arena_size > most) most = of.arena_size;
        }
        CHECK(p.arena_size == most);
        /* The limit of memory must apply to the stage that needs the largest number of bytes. If
         * the limit is smaller than that, the layers must be distributed in a different way, or
         * the job must be refused. */
        const int64_t need = most + p.segment_size;
        CHECK(!plan_make(&spec, need, &of, &e) && !of.cut_by_memory);
        const bool made = !plan_make(&spec, need - 1, &of, &e);
        CHECK(made == of.cut_by_memory && (made || e.code == ERR_DOES_NOT_FIT));
        if (made) CHECK(of.arena_size + of.segment_size < need);
        CHECK(plan_make(&spec, need / 4, &of, &e) && e.code == ERR_DOES_NOT_FIT);
    }
}

/* ---- time ------------------------------------------------------------------------------------ */

static struct estimate estimate_of(int pp, int64_t batch, int tied)
{
    const struct way w = {.dp = 1,
                          .pp = pp,
                          .sp = 1,
                          .batch = batch,
                          .tied = tied,
                          .determinism = tied ? DET_RANKS : DET_RUN,
                          .max_norm = 1};
    struct hardware h;
    struct machine m;
    struct estimate t = {0};
    struct plan p;
    struct err e = {0};
    hardware_defaults(&h);
    h.tflops = 1, h.link_gbs = 10, h.link_us = 1;
    machine_of_hardware(&h, &m);
    set_spec(&w);
    spec.model.shape.n_layers = 8;
    spec.parallel.dp = spec.parallel.sp = 1, spec.parallel.pp = pp;
    spec.resources.ranks = pp;
    CHECK_MSG(!plan_make(&spec, 0, &p, &e), "%s", e.text);
    machine_estimate(&m, &spec, &p, &t);
    return t;
}

/* Checks the estimate. The bubble is the fraction (pp - 1) / (n + pp - 1) of the step. No stage
 * computes less than its share. */
static void test_estimate(void)
{
    const struct estimate one = estimate_of(1, 8, 0), four = estimate_of(4, 8, 0);
    const double all = four.compute_s + four.bubble_s;
    CHECK(one.bubble_s == 0 && one.compute_s > 0);
    CHECK_MSG(fabs(four.bubble_s / all - 3.0 / 11) < 1e-12, "bubble %.9g", four.bubble_s / all);
    CHECK_MSG(four.compute_s < 0.5 * one.compute_s && 4 * four.compute_s > 0.99 * one.compute_s,
              "compute %.3g of %.3g", four.compute_s, one.compute_s);
    /* no stage waits for the gradient of a tied embedding, as test_tied.c explains */
    const struct estimate tied = estimate_of(4, 8, 1);
    CHECK_MSG(fabs(tied.bubble_s / tied.compute_s - 3.0 / 8) < 1e-12, "tied: bubble %.9g",
              tied.bubble_s / tied.compute_s);
    CHECK(four.exchange_s > 0 && fabs(four.step_s - all - four.exchange_s + four.hidden_s) < 1e-15);
}

/* ---- bad steps ------------------------------------------------------------------------------- */

enum { BAD = 1 };

static struct guard guards[MAX_RANKS];

/* Makes a weight of the last stage NaN during one step. No other stage has that weight. */
static void poison(struct train *t, int rank, void *arg)
{
    float *kept = arg;
    struct err e = {0};
    const int64_t at = param_section(&t->model.shape, t->model.shape.n_layers + 1);
    const float nan = NAN;
    if (t->step != BAD) return;
    if (pipe_last(&t->plan->pipe))
        CHECK(!sharded_read(&t->state, SHARDED_WEIGHTS, at, 1, &kept[rank], &e));
    sharded_write(&t->state, SHARDED_WEIGHTS, at, 1, &nan);
}

static void heal(struct train *t, int rank, void *arg)
{
    const float *kept = arg;
    const int64_t at = param_section(&t->model.shape, t->model.shape.n_layers + 1);
    CHECK((t->verdict == GUARD_SKIP) == (t->step == BAD + 1));
    if (t->step == BAD + 1 && pipe_last(&t->plan->pipe))
        sharded_write(&t->state, SHARDED_WEIGHTS, at, 1, &kept[rank]);
}

/* Checks a step that is bad on one stage. Every stage must skip this step. */
static void test_skip(void)
{
    struct engine_run r[2];
    for (int i = 0; i < 2; i++) {
        static float kept[MAX_RANKS];
        const struct way w = {.dp = 1, .pp = 1, .sp = 1, .batch = 2, .max_norm = 1};
        set_spec(&w);
        spec.guard.nonfinite = NONFINITE_SKIP;
        for (int k = 0; k < MAX_RANKS; k++) guards[k] = (struct guard){.spec = &spec};
        r[i] = (struct engine_run){.P = 1,
                                   .pp = i ? 3 : 1,
                                   .steps = STEPS,
                                   .guard = guards,
                                   .before_step = poison,
                                   .after_step = heal,
                                   .arg = kept,
                                   .source = {synth_batch, synth_targets, &synth}};
        engine_go(&r[i], &spec);
        CHECK(isnan(r[i].loss[BAD]) && isfinite(r[i].loss[BAD + 1]));
        CHECK(guards[i ? 2 : 0].state.skipped == 1);
    }
    const size_t n = (size_t)param_count(&spec.model.shape) * 4;
    CHECK(!memcmp(r[0].weights, r[1].weights, n) && !memcmp(r[0].adam_v, r[1].adam_v, n));
    engine_free(&r[0]), engine_free(&r[1]);
}

/* ---- faults ---------------------------------------------------------------------------------- */

#ifdef SEQD_MUTANTS
/* Returns the name of the tensor whose gradient has the largest error. */
static const char *worst(const struct engine_run *got, const struct engine_run *want)
{
    static struct param p, most;
    struct model_shape m = spec.model.shape;
    double far = -1;
    m.tp = 0;
    for (int i = 0; i < param_tensors(&m); i++) {
        param_get(&m, i, &p);
        const double d = rel_l2(got->grad + p.offset, want->grad + p.offset, p.count);
        if (d > far) far = d, most = p;
    }
    return most.name;
}

static void inject(const struct way *w, int mutant)
{
    char by[200];
    struct engine_run want = go(w, NULL);
    mutant_choose(mutant);
    struct engine_run got = go(w, NULL);
    mutant_choose(MUTANT_NONE);
    const double d = rel_l2(got.weights, want.weights, want.n);
    snprintf(by, sizeof by, "weights of a training on %d stages%s%s", w->pp,
             got.plan.fused ? "" : ", most ", got.plan.fused ? "" : worst(&got, &want));
    mutant_report(mutant, d > 1e-4, by);
    engine_free(&want), engine_free(&got);
}

static void test_mutants(void)
{
    static const struct way ways[] = {
        {.dp = 1, .pp = 2, .sp = 1, .batch = 3, .tied = 1, .max_norm = 1},
        {.dp = 2, .pp = 2, .sp = 2, .batch = 4, .tied = 1, .zero = 3, .max_norm = 1},
        {.dp = 1, .pp = 3, .sp = 1, .batch = 1, .tied = 1, .zero = 2}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        inject(&ways[i], MUTANT_TIED_TWICE);
        inject(&ways[i], MUTANT_STREAM_STALE);
    }
    for (int zero = 0; zero <= 3; zero += 3) {
        struct way w = {.dp = 2, .pp = 2, .sp = 1, .batch = 6, .zero = zero, .max_norm = 1};
        w.tp = 2;
        inject(&w, MUTANT_STAGE_ALONE);
        w.offload = 1;
        inject(&w, MUTANT_SLOT_SHARED);
    }
}
#endif

int main(void)
{
    RUN(test_ranks);
    RUN(test_without_ranks);
    RUN(test_families);
    RUN(test_tied_in_run);
    RUN(test_bytes);
    RUN(test_memory);
    RUN(test_estimate);
    RUN(test_skip);
#ifdef SEQD_MUTANTS
    RUN(test_mutants);
#endif
    return test_done("pipeline");
}
