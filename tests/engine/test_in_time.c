/* Computes a sequence in windows and computes it at once, in float64 on the reference device, and
 * compares the results. The model has three layers x += attention(a x, b x, x). Every number in
 * every layer therefore depends on all tokens before it. The loss is linear in the last x. */
#include "api/core/job.h"
#include "tests/lib/engine.h"
#include "tests/lib/ledger_check.h"
#include "tests/lib/linear.h"
#include "worker/plan/check.h"
#include "worker/family/family.h"
#include "worker/family/shape.h"
#include "worker/model/in_time.h"
#include "worker/plan/machine.h"

enum { LAYERS = 3, H = 2, D = 4, C = H * D, MAX_T = 128 };
static const double scale_q = 0.7, scale_k = -0.9;

struct toy {
    /* W is the number of tokens of a window on all ranks together. If W is S, the sequence is
     * computed at once */
    int64_t S, n_tokens, W;
    int P;
    enum exchange_id exchange;
    const double *x0, *weight; /* [S, C] */
    const int64_t *start;      /* [S] the first token of the document */
    double slope[LAYERS][H];
    double *dx; /* [S, C] out */
    /* sums for the gradients of the two scales, by rank */
    double dq_sum[LIN_MAX_P], dk_sum[LIN_MAX_P];
    struct comm_count moved[LIN_MAX_P][PURPOSE_N];
};

struct toy_rank {
    struct toy *t;
    struct be be;
    struct sp_linear sp;
    struct in_time walk;
    int rank;
    double x[LAYERS + 1][MAX_T * C], q[LAYERS][MAX_T * C], k[LAYERS][MAX_T * C];
    double state[LAYERS][H * D * D];
    double o[MAX_T * C], g[MAX_T * C], dq[MAX_T * C], dk[MAX_T * C], dv[MAX_T * C];
    int64_t lo[MAX_T], hi[MAX_T];
};

static struct tensor rows64(struct toy_rank *r, double *x)
{
    return tensor_of(DT_F64, x, r->sp.shard.T, C, C);
}

static const void *at(const char *states, const struct carry *c, int l)
{
    return states ? states + l * c->stride : NULL;
}

static int64_t first_token(const struct toy_rank *r, int64_t w)
{
    return w * r->t->W + r->sp.shard.pos[0];
}

static void load(struct toy_rank *r, int64_t w)
{
    const struct toy *t = r->t;
    for (int64_t i = 0; i < r->sp.shard.T; i++) {
        const int64_t token = first_token(r, w) + i;
        const bool real = token < t->n_tokens;
        r->lo[i] = real ? t->start[token] - w * t->W : 0;
        r->hi[i] = real ? token + 1 - w * t->W : 0;
        for (int64_t c = 0; c < C; c++) r->x[0][i * C + c] = real ? t->x0[token * C + c] : 1e6;
    }
}

static int toy_forward(void *arg, int64_t w, const struct carry *c, struct err *e)
{
    struct toy_rank *r = arg;
    load(r, w);
    for (int l = 0; l < LAYERS; l++) {
        for (int64_t i = 0; i < r->sp.shard.T * C; i++) {
            r->q[l][i] = scale_q * r->x[l][i];
            r->k[l][i] = scale_k * r->x[l][i];
        }
        struct linear_fwd f = {{H, D, D, 0.25f, r->t->slope[l]},
                               rows64(r, r->q[l]),
                               rows64(r, r->k[l]),
                               rows64(r, r->x[l]),
                               rows64(r, r->o),
                               r->state[l],
                               r->lo,
                               r->hi,
                               {NULL, NULL},
                               at(c->in, c, l),
                               (void *)at(c->out, c, l)};
        if (r->sp.ops->fwd(&r->sp, &f, e)) return -1;
        for (int64_t i = 0; i < r->sp.shard.T * C; i++) r->x[l + 1][i] = r->x[l][i] + r->o[i];
    }
    return linear_settle(&r->sp, e);
}

static int toy_layer_back(struct toy_rank *r, int l, const struct carry *c, struct err *e)
{
    struct linear_bwd b = {{H, D, D, 0.25f, r->t->slope[l]},
                           rows64(r, r->q[l]),
                           rows64(r, r->k[l]),
                           rows64(r, r->x[l]),
                           rows64(r, r->g),
                           rows64(r, r->dq),
                           rows64(r, r->dk),
                           rows64(r, r->dv),
                           r->state[l],
                           r->lo,
                           r->hi,
                           {NULL, NULL},
                           at(c->d_out, c, l),
                           (void *)at(c->d_in, c, l)};
    if (r->sp.ops->bwd(&r->sp, &b, e)) return -1;
    for (int64_t i = 0; i < r->sp.shard.T * C; i++) {
        r->g[i] += scale_q * r->dq[i] + scale_k * r->dk[i] + r->dv[i];
        r->t->dq_sum[r->rank] += r->dq[i] * r->x[l][i];
        r->t->dk_sum[r->rank] += r->dk[i] * r->x[l][i];
    }
    return 0;
}

static int toy_grad(void *arg, int64_t w, const struct carry *c, struct err *e)
{
    struct toy_rank *r = arg;
    const int64_t first = first_token(r, w);
    if (toy_forward(arg, w, c, e)) return -1;
    for (int64_t i = 0; i < r->sp.shard.T; i++)
        for (int64_t d = 0; d < C; d++)
            r->g[i * C + d] = first + i < r->t->n_tokens ? r->t->weight[(first + i) * C + d] : 0;
    for (int l = LAYERS - 1; l >= 0; l--)
        if (toy_layer_back(r, l, c, e)) return -1;
    for (int64_t i = 0; i < r->sp.shard.T && first + i < r->t->n_tokens; i++)
        memcpy(r->t->dx + (first + i) * C, r->g + i * C, C * sizeof(double));
    return linear_settle(&r->sp, e);
}

enum { STATE = H * D * D * 8 };

static void toy_body(struct ranks *g, int rank, void *arg)
{
    struct toy *t = arg;
    struct toy_rank *r = lin_mem(1, sizeof *r);
    struct err e = {0};
    *r = (struct toy_rank){.t = t, .be = device64(), .rank = rank};
    r->sp = (struct sp_linear){.ops = linear_find(t->exchange, t->P),
                               .be = &r->be,
                               .comm = t->P > 1 ? g->comm[rank] : NULL,
                               .state_dtype = DT_F64,
                               .pieces = 2};
    if (shard_init(&r->sp.shard, t->W, t->P, rank, LAYOUT_CONTIGUOUS, false, &e)) abort();
    if (r->sp.shard.T > MAX_T) abort();
    char *seg = comm_segment(g->comm[rank]);
    memset(seg, 0xff, (size_t)((4 + t->P + 2 * LAYERS) * STATE));
    for (int i = 0; i < 2; i++) {
        r->sp.buf.send[i] = seg + i * STATE;
        r->sp.buf.recv[i] = seg + (2 + i) * STATE;
    }
    r->sp.buf.all = seg + 4 * STATE;
    r->sp.buf.m = lin_poison(STATE / 8, DT_F64);
    const int64_t n = (t->S + t->W - 1) / t->W, size = LAYERS * STATE;
    r->walk = (struct in_time){.be = &r->be,
                               .comm = r->sp.comm,
                               .n_windows = n,
                               .n_layers = LAYERS,
                               .size = size,
                               .borders = lin_poison((n - 1) * size / 8, DT_F64),
                               .out = seg + (4 + t->P) * STATE,
                               .d_in = seg + (4 + t->P + LAYERS) * STATE,
                               .d_out = lin_poison(size / 8, DT_F64),
                               .forward = toy_forward,
                               .grad = toy_grad,
                               .arg = r};
    if (in_time_walk(&r->walk, &e)) ranks_fail(g, rank, &e);
    memcpy(t->moved[rank], comm_ledger(g->comm[rank]), sizeof t->moved[rank]);
    free(r->sp.buf.m);
    free(r->walk.borders);
    free(r->walk.d_out);
    free(r);
}

static void toy_run(struct toy *t)
{
    struct ranks g;
    t->dx = lin_mem(t->S * C, 8);
    memset(t->dq_sum, 0, sizeof t->dq_sum);
    memset(t->dk_sum, 0, sizeof t->dk_sum);
    ranks_open(&g, t->P, (4 + t->P + 2 * LAYERS) * STATE,
               &(struct comm_options){.delay_seed = ++lin_n_runs, .delay_max_us = 100});
    ranks_run(&g, toy_body, t);
    ranks_check(&g);
    ranks_close(&g);
}

static double total(const double *x, int n)
{
    double s = 0;
    for (int i = 0; i < n; i++) s += x[i];
    return s;
}

/* Checks the number of bytes. In a pass over a window, ranks send as many bytes as in a pass over
 * a complete sequence. Each border between windows adds two messages. */
static void check_bytes(const struct toy *t)
{
    const int64_t n = (t->S + t->W - 1) / t->W;
    for (int r = 0; r < t->P; r++) {
        struct comm_count want[PURPOSE_N] = {0};
        struct err e;
        for (int back = 0; back < 2; back++) {
            struct comm_count *c = &want[back ? PURPOSE_DSTATE : PURPOSE_STATE];
            const int pieces = t->exchange == EXCHANGE_SCAN ? 2 : 1;
            const int from = back ? 0 : t->P - 1, to = back ? t->P - 1 : 0;
            volume_add(c, volume_state(t->exchange, t->P, r, H, D, D, 1, pieces, back),
                       LAYERS * (back ? n : 2 * n - 1));
            if (t->P > 1 && r == from)
                volume_add(c, (struct comm_count){LAYERS * STATE / 2, 0, 1, 0}, n - 1);
            if (t->P > 1 && r == to)
                volume_add(c, (struct comm_count){0, LAYERS * STATE / 2, 0, 1}, n - 1);
            c->bytes_sent *= 2; /* float64 */
            c->bytes_received *= 2;
        }
        CHECK_MSG(!ledger_check(t->moved[r], want, &e), "P %d rank %d: %s", t->P, r, e.text);
    }
}

static void check_walk(int64_t S, int64_t pad, enum lin_docs docs, enum lin_slopes slopes)
{
    struct lin_problem p = {.S = S, .docs = docs};
    int64_t *start = lin_mem(S, 8);
    lin_seed = (uint64_t)S;
    double *x0 = lin_randoms(S * C), *weight = lin_randoms(S * C);
    for (int64_t i = 0; i < S; i++) start[i] = lin_starts(&p, i) ? i : start[i - 1];
    struct toy whole = {.S = S, .n_tokens = S - pad, .W = S, .P = 1, .x0 = x0, .weight = weight};
    whole.start = start;
    for (int l = 0; l < LAYERS; l++)
        for (int64_t h = 0; h < H; h++) whole.slope[l][h] = lin_slope(slopes, h, H) * (1 + l);
    toy_run(&whole);
    for (int P = 1; P <= 3; P++)
        for (int64_t chunk = 3; chunk <= 17; chunk += 7)
            for (int x = EXCHANGE_RING; x <= EXCHANGE_SCAN; x++) {
                struct toy t = whole;
                t.W = chunk * P;
                t.P = P;
                t.exchange = (enum exchange_id)x;
                toy_run(&t);
                const double dq = total(t.dq_sum, P), dk = total(t.dk_sum, P);
                double e = lin_rel(t.dx, whole.dx, S * C);
                e = fmax(e, lin_rel(&dq, whole.dq_sum, 1));
                e = fmax(e, lin_rel(&dk, whole.dk_sum, 1));
                CHECK_MSG(e <= 1e-12, "S %lld-%lld docs %d P %d chunk %lld exchange %d: %.2e",
                          (long long)S, (long long)pad, (int)docs, P, (long long)chunk, x, e);
                check_bytes(&t);
                free(t.dx);
            }
    free(whole.dx);
    free(x0);
    free(weight);
    free(start);
}

static void test_walk_equals_the_whole(void)
{
    check_walk(61, 0, LIN_ONE, LIN_FLAT);
    check_walk(100, 0, LIN_ONE, LIN_LAST);
}

static void test_documents(void)
{
    check_walk(61, 0, LIN_MISS, LIN_LAST);
    check_walk(60, 0, LIN_HIT, LIN_FIRST);
    check_walk(61, 0, LIN_SPAN, LIN_FLAT);
}

/* Checks sequences whose last windows contain only padding; they are computed, too. */
static void test_padding(void)
{
    check_walk(90, 47, LIN_ONE, LIN_FLAT);
    check_walk(90, 47, LIN_MISS, LIN_LAST);
}

/* ---- whole trainings ------------------------------------------------------------------------- */

/* Makes a tiny TransNormerLLM, whose first layer has LRPE, or a model with normalised linear
 * attention. */
static void model_spec(struct job_spec *s, int family, int64_t S)
{
    engine_spec(s, S);
    s->model.shape = (struct model_shape){.family = family,
                                          .n_layers = 3,
                                          .width = 32,
                                          .n_heads = 2,
                                          .n_kv_heads = 2,
                                          .head_dim = 16,
                                          .ffn_width = 40,
                                          .vocab = 61,
                                          .norm_eps = 1e-6,
                                          .rope_theta = 10000};
    if (family == FAMILY_TNL) s->model.shape.layer_mask[0] = 1;
    if (family == FAMILY_LINEAR) s->model.shape.normalise = 1;
    CHECK(!family_complete(&s->model.shape, NULL));
    s->optim.max_grad_norm = 1;
    s->train.global_batch = 2;
}

static void train_once(struct engine_run *r, struct job_spec *s, struct synth *y, int P,
                       int64_t chunk, enum exchange_id x, const char *isa)
{
    *r = (struct engine_run){
        .source = {synth_batch, synth_targets, y}, .P = P, .steps = 2, .isa = isa};
    s->memory.time_chunk = chunk;
    s->parallel.exchange = x;
    engine_go(r, s);
}

/* Compares loss, norm and gradient of a step with two samples. With windows, tokens are summed in
 * other groups than without windows. In fp32, each sum is rounded by 6e-8 of its value. The bound
 * 5e-6 is also the bound for gradients on several ranks (tests/engine/test_attention.c). */
static void check_walked(struct job_spec *s, struct synth *y, const struct engine_run *whole,
                         double bound)
{
    const int family = s->model.shape.family;
    for (int P = 1; P <= 3; P++) {
        struct engine_run r;
        train_once(&r, s, y, P, 7, EXCHANGE_RING + (P + (int)y->S) % 3, NULL);
        CHECK(r.plan.n_windows == (y->S + 7 * P - 1) / (7 * P));
        const double e = rel_l2(r.grad, whole->grad, whole->plan.n_params);
        CHECK_MSG(e <= bound && fabs(r.loss[0] - whole->loss[0]) <= 1e-5 &&
                      fabs(r.loss[1] - whole->loss[1]) <= 1e-5 &&
                      fabs(r.norm[0] / whole->norm[0] - 1) <= 1e-5,
                  "family %d S %lld P %d: gradient %.2e of %.2e, loss %g %g, norm %g %g", family,
                  (long long)y->S, P, e, bound, r.loss[0], whole->loss[0], r.norm[0],
                  whole->norm[0]);
        engine_free(&r);
    }
}

static void check_training(int family, int64_t S, int64_t doc_len)
{
    struct job_spec s;
    struct engine_run whole;
    struct synth y = {.S = S, .doc_len = doc_len, .vocab = 61};
    model_spec(&s, family, S);
    if (family == FAMILY_LINEAR) s.model.shape.feature_map = ACT_ELU1;
    train_once(&whole, &s, &y, 1, 0, EXCHANGE_AUTO, NULL);
    CHECK(whole.plan.n_windows == 1 && whole.norm[0] > 0);
    check_walked(&s, &y, &whole, 5e-6);
    engine_free(&whole);
}

/* Compares trainings without a feature map. The divisor of an output may then be near 0, which
 * amplifies rounding errors. On one rank without windows, a different order of sums or a different
 * instruction set changes the gradient as much as windows do. This change is the noise. The
 * results with and without windows are each within the noise of the exact result. They may
 * therefore differ by twice the noise, but never by more than 4e-5. */
static void check_magnified(int64_t S, int64_t doc_len)
{
    struct job_spec s;
    struct engine_run whole, order, portable;
    struct synth y = {.S = S, .doc_len = doc_len, .vocab = 61};
    model_spec(&s, FAMILY_LINEAR, S);
    train_once(&whole, &s, &y, 1, 0, EXCHANGE_AUTO, NULL);
    train_once(&portable, &s, &y, 1, 0, EXCHANGE_AUTO, "portable");
    s.determinism = DET_RANKS;
    train_once(&order, &s, &y, 1, 0, EXCHANGE_AUTO, NULL);
    s.determinism = DET_RUN;
    const double noise = fmax(rel_l2(portable.grad, whole.grad, whole.plan.n_params),
                              rel_l2(order.grad, whole.grad, whole.plan.n_params));
    check_walked(&s, &y, &whole, fmin(fmax(5e-6, 2 * noise), 4e-5));
    engine_free(&whole), engine_free(&order), engine_free(&portable);
}

static void test_trainings(void)
{
    check_training(FAMILY_TNL, 61, 0);
    check_training(FAMILY_TNL, 100, 23);
    check_training(FAMILY_LINEAR, 61, 13);
    check_training(FAMILY_RETNET, 60, 0);
    check_magnified(61, 13);
}

/* Compares a 16-bit training with windows with an fp32 training without windows. With windows,
 * tokens are summed in other groups, but there are not more roundings. The error may be at most
 * twice the error of a 16-bit training without windows. */
static void check_half(enum precision_id precision, int family, int64_t S, int64_t doc_len)
{
    const double part = precision == PRECISION_FP16 ? 0.125 : 1;
    struct job_spec s;
    struct engine_run exact, whole, r;
    struct synth y = {.S = S, .doc_len = doc_len, .vocab = 61};
    model_spec(&s, family, S);
    /* The divisor of outputs must not be near 0, where any rounding is amplified. */
    if (family == FAMILY_LINEAR) s.model.shape.feature_map = ACT_ELU1;
    train_once(&exact, &s, &y, 1, 0, EXCHANGE_AUTO, NULL);
    s.precision.params = (int32_t)precision;
    train_once(&whole, &s, &y, 1, 0, EXCHANGE_AUTO, NULL);
    const double naive = rel_l2(whole.grad, exact.grad, exact.plan.n_params);
    CHECK_MSG(naive > 1e-4 * part && naive < 0.1 * part, "family %d: off by %.2e", family, naive);
    for (int P = 1; P <= 3; P++) {
        train_once(&r, &s, &y, P, 7, EXCHANGE_RING + (P + (int)S) % 3, NULL);
        CHECK(r.plan.n_windows == (S + 7 * P - 1) / (7 * P));
        const double e = rel_l2(r.grad, exact.grad, exact.plan.n_params);
        const double loss = fabs(r.loss[1] / exact.loss[1] - 1);
        CHECK_MSG(e <= 2 * naive && loss <= 0x1p-8 * part,
                  "family %d S %lld P %d: gradient %.2e, without windows %.2e; loss %.2e", family,
                  (long long)S, P, e, naive, loss);
        engine_free(&r);
    }
    engine_free(&whole);
    engine_free(&exact);
}

static void test_trainings_half(void)
{
    for (enum precision_id p = PRECISION_BF16; p <= PRECISION_FP16; p++) {
        check_half(p, FAMILY_TNL, 100, 23);
        check_half(p, FAMILY_LINEAR, 61, 0);
        check_half(p, FAMILY_RETNET, 60, 13);
    }
}

/* Checks the memory of a second sequence that is four times as long as the first, with the same
 * memory.time_chunk. It may need more memory only for the states at the borders of windows. Each
 * further window adds the states of three layers. */
static void test_memory_is_that_of_a_window(void)
{
    struct job_spec s;
    struct plan small, large;
    struct err e = {0};
    for (int P = 1; P <= 8; P *= 2) {
        model_spec(&s, FAMILY_TNL, 4096);
        s.memory.time_chunk = 64;
        s.parallel.sp = P;
        CHECK_MSG(!plan_make(&s, 0, &small, &e), "%s", e.text);
        s.data.seq_len = 4194304;
        CHECK_MSG(!plan_make(&s, 0, &large, &e), "%s", e.text);
        const int64_t more = (large.n_windows - small.n_windows) * large.carry_size;
        const int64_t grown = large.arena_size + large.segment_size - small.arena_size -
                              small.segment_size;
        CHECK(large.n_windows == 4194304 / 64 / P && large.carry_size == 3 * 2 * 32 * 16 * 4);
        CHECK_MSG(grown >= 0 && grown <= more + PLAN_PAGE, "P %d: %lld bytes more, %lld of states",
                  P, (long long)grown, (long long)more);
    }
}

/* Checks that the plan counts all tokens and all products of the complete sequence, and not only
 * of a window. Every window except the last is computed forward once more. This recomputation
 * needs the products of a job that embeds the same number of tokens. */
static void test_plan_is_of_the_whole(void)
{
    static char json[65536];
    const struct hardware h = {.given = 1,
                               .devices = 8,
                               .nodes = 1,
                               .memory_gib = 1,
                               .tflops = 1e-3,
                               .link_gbs = 1,
                               .link_us = 1};
    struct machine m;
    struct job_spec s;
    struct plan walk, whole, ahead;
    struct estimate t;
    struct err e = {0};
    const double S = 65536;
    machine_of_hardware(&h, &m);
    for (int P = 1; P <= 4; P *= 2) {
        model_spec(&s, FAMILY_TNL, (int64_t)S);
        s.parallel.sp = P;
        CHECK_MSG(!plan_make(&s, 0, &whole, &e), "%s", e.text);
        s.kind = JOB_EMBED;
        CHECK_MSG(!plan_make(&s, 0, &ahead, &e), "%s", e.text);
        s.kind = JOB_TRAIN;
        s.memory.time_chunk = 4096 / P; /* a step of two samples */
        CHECK_MSG(!plan_make(&s, 0, &walk, &e), "%s", e.text);
        CHECK(walk.n_windows == 16 && walk.S == 4096 && walk.seq_len == 65536);
        CHECK_MSG(fabs(walk.flops / (whole.flops + 2 * ahead.flops * 15 / 16) - 1) < 1e-12,
                  "%g flops, %g and %g by hand", walk.flops, whole.flops, ahead.flops);
        machine_estimate(&m, &s, &walk, &t);
        CHECK_MSG(fabs(t.tokens_s * t.step_s / (2 * S) - 1) < 1e-12, "%g tokens in %g s",
                  t.tokens_s, t.step_s);
        CHECK(t.compute_s >= walk.flops / P / 1e9 * (1 - 1e-12));
        CHECK(plan_json(&s, &walk, json, sizeof json) > 0 && strstr(json, "\"seq_len\":65536,"));
        CHECK(strstr(json, "\"windows\":16,\"window_tokens\":4096") &&
              strstr(json, "walked in 16 windows of 4096 tokens"));
    }
}

/* Checks that the job `good` is accepted, and that it is refused after the function `spoil` has
 * changed it. The error must name the field. */
static void refused(const struct job_spec *good, void (*spoil)(struct job_spec *))
{
    struct job_spec s = *good;
    struct err e = {0};
    CHECK_MSG(!family_check(&s, &e), "%s: %s", e.field, e.text);
    spoil(&s);
    CHECK(family_check(&s, &e) && e.code == ERR_UNSUPPORTED);
    CHECK_STR(e.field, "memory.time_chunk");
    const char *fix = strrchr(e.text, ':');
    CHECK_MSG(fix && (strstr(fix, "memory.time_chunk") || strstr(fix, "to 0")), "%s", e.text);
}
static void spoil_kind(struct job_spec *s)
{
    s->kind = JOB_VERIFY;
}
static void spoil_score(struct job_spec *s)
{
    s->kind = JOB_SCORE;
    s->input.source = s->data.train[0];
    s->data.n_train = 0;
    s->train.steps = 0;
}
static void spoil_family(struct job_spec *s)
{
    s->model.shape.family = FAMILY_LLAMA;
}
/* The family is named first: without the pipeline the job would be refused again. */
static void spoil_two(struct job_spec *s)
{
    s->model.shape.family = FAMILY_LLAMA;
    s->parallel.pp = s->resources.ranks = 2;
}
static void spoil_stage(struct job_spec *s)
{
    s->parallel.pp = s->resources.ranks = 2;
}
static void spoil_bits(struct job_spec *s)
{
    s->determinism = DET_RANKS;
}
static void spoil_zero(struct job_spec *s)
{
    s->parallel.zero = 2;
}
static void spoil_stages(struct job_spec *s)
{
    s->n_stages = 1;
    s->stages[0].from_step = 5;
}
static void spoil_eval(struct job_spec *s)
{
    s->eval.n_data = 1;
    s->eval.data[0] = s->data.train[0];
}
static void spoil_first_step(struct job_spec *s)
{
    s->verify.first_step = 1;
}

static void test_what_cannot_be_walked_is_refused(void)
{
    static struct job_spec s;
    void (*const spoils[])(struct job_spec *) = {
        spoil_kind, spoil_score, spoil_family, spoil_two,  spoil_stage,
        spoil_bits, spoil_zero,  spoil_stages, spoil_eval, spoil_first_step};
    spec_defaults(&s);
    shape_defaults(&s.model.shape);
    s.model.shape = (struct model_shape){.family = FAMILY_RETNET,
                                         .n_layers = 3,
                                         .width = 32,
                                         .n_heads = 2,
                                         .ffn_width = 40,
                                         .vocab = 258,
                                         .max_pos = 256,
                                         .norm_eps = 1e-6,
                                         .rope_theta = 10000};
    s.data.seq_len = 256;
    s.data.n_train = 1;
    CHECK(!spec_intern(&s, "a.txt", 5, &s.data.train[0].path));
    s.train.steps = 10;
    s.memory.time_chunk = 64;
    for (size_t i = 0; i < sizeof spoils / sizeof *spoils; i++) refused(&s, spoils[i]);
    struct err e = {0};
    spoil_two(&s);
    CHECK_MSG(family_check(&s, &e) && strstr(e.text, "softmax attention"), "%s", e.text);
}

int main(void)
{
    RUN(test_walk_equals_the_whole);
    RUN(test_documents);
    RUN(test_padding);
    RUN(test_trainings);
    RUN(test_trainings_half);
    RUN(test_memory_is_that_of_a_window);
    RUN(test_plan_is_of_the_whole);
    RUN(test_what_cannot_be_walked_is_refused);
    return test_done("in_time");
}
