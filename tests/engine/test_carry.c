/* test_carry.c: checks the gated delta rule and its short convolution over several ranks, forward
 * and backward. States are passed by every exchange of worker/sp/carry.h. The results are compared
 * with one call of the kernels for the complete sequence. (check_kernels compares the kernels with
 * float64.) The numbers of messages and bytes must equal the formula. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/backend.h"
#include "tests/lib/ledger_check.h"
#include "tests/lib/ranks.h"
#include "tests/lib/test.h"
#include "worker/comm/ledger.h"
#include "worker/plan/volume.h"
#include "worker/sp/carry.h"

enum { H = 4, HK = 2, DK = 8, DV = 12, TAPS = 4, MAX_S = 400 };
enum { CONV_C = 2 * HK * DK + H * DV, STATE = H * DK * DV, HALO = (TAPS - 1) * CONV_C };
enum { MAP = H * DK * DK };
enum { OUT_ROW = 2 * CONV_C + H * DV + HK * DK * 2 + H * DV + 3 * H };
#define BAR 5e-6 /* the bound of check_kernels for backward */

/* The rows of all inputs of the complete sequence. `made` has the results in this order: y, o, and
 * the gradients. */
struct whole {
    int64_t S;
    float x[MAX_S * CONV_C], dy[MAX_S * CONV_C], d_o[MAX_S * H * DV];
    float a[MAX_S * H], b[MAX_S * H], w[CONV_C * TAPS], a_log[H], dt_bias[H];
    int64_t lo[MAX_S + 16], hi[MAX_S + 16];
};

/* The tensors of one rank, of T rows each. */
struct part {
    const struct whole *in;
    struct be *be;
    int64_t T, r0;
    float *x, *dy, *d_o, *a, *b, *y, *o, *dx, *dq, *dk, *dv, *da, *db, *d_log, *room;
    float *halo, *state, *d_room; /* the states that entered each chunk, and scratch */
    float *zero;                  /* [T, H*DK] */
    int64_t *lo, *hi;
};

static struct whole whole;
static double made[2][MAX_S * OUT_ROW]; /* by one rank, and by several ranks */

static float *rows(const float *from, int64_t r0, int64_t T, int64_t S, int64_t cols)
{
    float *x = aligned_alloc(64, ((size_t)(T * cols) * 4 + 63) / 64 * 64);
    if (!x) abort();
    for (int64_t i = 0; i < T * cols; i++)
        x[i] = from && r0 + i / cols < S ? from[r0 * cols + i]
                                         : NAN; /* padding, and results that are not written */
    return x;
}

static struct part part_new(const struct whole *w, struct be *be, const struct shard *sh)
{
    const int64_t T = sh->T, r0 = sh->pos[0], S = w->S;
    struct part p = {.in = w, .be = be, .T = T, .r0 = r0};
    p.x = rows(w->x, r0, T, S, CONV_C), p.dy = rows(w->dy, r0, T, S, CONV_C);
    p.d_o = rows(w->d_o, r0, T, S, H * DV);
    p.a = rows(w->a, r0, T, S, H), p.b = rows(w->b, r0, T, S, H);
    p.y = rows(NULL, 0, T, 0, CONV_C), p.o = rows(NULL, 0, T, 0, H * DV);
    p.dx = rows(NULL, 0, T, 0, CONV_C), p.dq = rows(NULL, 0, T, 0, HK * DK);
    p.dk = rows(NULL, 0, T, 0, HK * DK), p.dv = rows(NULL, 0, T, 0, H * DV);
    p.da = rows(NULL, 0, T, 0, H), p.db = rows(NULL, 0, T, 0, H);
    p.d_log = rows(NULL, 0, T, 0, H);
    p.room = rows(NULL, 0, delta_spans(T), 0, STATE);
    p.halo = rows(NULL, 0, sh->n_sums, 0, HALO), p.state = rows(NULL, 0, sh->n_sums, 0, STATE);
    p.d_room = rows(NULL, 0, 2, 0, STATE > HALO ? STATE : HALO);
    p.zero = calloc((size_t)(T * H * DK), sizeof *p.zero);
    p.lo = calloc((size_t)T, 8), p.hi = calloc((size_t)T, 8);
    for (int64_t i = 0; i < T && r0 + i < S; i++) p.lo[i] = w->lo[r0 + i], p.hi[i] = w->hi[r0 + i];
    return p;
}

static void part_free(struct part *p)
{
    void *all[] = {p->x,     p->dy,   p->d_o,  p->a,     p->b,      p->y,  p->o,
                   p->dx,    p->dq,   p->dk,   p->dv,    p->da,     p->db, p->lo,
                   p->d_log, p->room, p->halo, p->state, p->d_room, p->hi, p->zero};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static struct tensor cut(float *x, const struct carry_step *s, int64_t col, int64_t cols,
                         int64_t all)
{
    return tensor_f32(x + s->row0 * all + col, s->n_rows, cols, all);
}

static struct conv_args conv_of(struct part *p, const struct carry_step *s)
{
    return (struct conv_args){.x = cut(p->x, s, 0, CONV_C, CONV_C),
                              .w = tensor_f32((float *)p->in->w, CONV_C, TAPS, TAPS),
                              .width = TAPS,
                              .lo = p->lo + s->row0,
                              .hi = p->hi + s->row0,
                              .pos = s->pos};
}

static struct delta_args delta_of(struct part *p, const struct carry_step *s)
{
    return (struct delta_args){.q = cut(p->x, s, 0, HK * DK, CONV_C),
                               .k = cut(p->x, s, HK * DK, HK * DK, CONV_C),
                               .v = cut(p->x, s, 2 * HK * DK, H * DV, CONV_C),
                               .a = cut(p->a, s, 0, H, H),
                               .b = cut(p->b, s, 0, H, H),
                               .a_log = tensor_f32((float *)p->in->a_log, 1, H, H),
                               .dt_bias = tensor_f32((float *)p->in->dt_bias, 1, H, H),
                               .lo = p->lo + s->row0,
                               .hi = p->hi + s->row0,
                               .pos = s->pos,
                               .n_heads = H,
                               .n_key_heads = HK,
                               .key_dim = DK,
                               .value_dim = DV,
                               .scale = 0.4f};
}

static void conv_step(void *arg, const struct carry_step *s)
{
    struct part *p = arg;
    struct conv_fwd_args a = {.in = conv_of(p, s), .y = cut(p->y, s, 0, CONV_C, CONV_C)};
    a.in.state = s->in;
    a.state_out = s->out;
    p->be->ops->conv_fwd(p->be, &a);
}

static void conv_step_back(void *arg, const struct carry_step *s)
{
    struct part *p = arg;
    struct conv_bwd_args a = {.in = conv_of(p, s),
                              .dy = cut(p->dy, s, 0, CONV_C, CONV_C),
                              .dx = cut(p->dx, s, 0, CONV_C, CONV_C),
                              .d_state_out = s->in,
                              .d_state = s->out};
    a.in.state = p->halo + s->chunk * HALO;
    p->be->ops->conv_bwd(p->be, &a);
}

static void delta_step(void *arg, const struct carry_step *s)
{
    struct part *p = arg;
    p->be->ops->delta_fwd(p->be, &(struct delta_fwd_args){.in = delta_of(p, s),
                                                          .o = cut(p->o, s, 0, H * DV, H * DV),
                                                          .state = s->in,
                                                          .state_out = s->out});
}

static void delta_step_back(void *arg, const struct carry_step *s)
{
    struct part *p = arg;
    struct delta_bwd_args a = {.in = delta_of(p, s),
                               .d_o = cut(p->d_o, s, 0, H * DV, H * DV),
                               .dq = cut(p->dq, s, 0, HK * DK, HK * DK),
                               .dk = cut(p->dk, s, 0, HK * DK, HK * DK),
                               .dv = cut(p->dv, s, 0, H * DV, H * DV),
                               .da = cut(p->da, s, 0, H, H),
                               .db = cut(p->db, s, 0, H, H),
                               .d_log = cut(p->d_log, s, 0, H, H),
                               .state = p->state + s->chunk * STATE,
                               .d_state_out = s->in,
                               .d_state = s->out,
                               .room = p->room};
    p->be->ops->delta_bwd(p->be, &a);
}

/* ---- maps of all rows, each made in one call
 * ------------------------------------------------- */

static struct carry_step all_rows(const struct part *p, float *out)
{
    return (struct carry_step){.n_rows = p->T, .pos = p->r0, .out = out};
}

static int64_t valid(const struct part *p)
{
    int64_t n = 0;
    while (n < p->T && p->lo[n] < p->hi[n]) n++;
    return n;
}

static void make_map(struct part *p, float *a)
{
    const struct carry_step s = all_rows(p, NULL);
    struct delta_fwd_args x = {.in = delta_of(p, &s), .state = a, .state_out = a};
    for (int64_t i = 0; i < MAP; i++) a[i] = i / DK % DK == i % DK ? 1 : 0;
    x.in.v = tensor_f32(p->zero, p->T, H * DK, H * DK);
    x.in.value_dim = DK;
    p->be->ops->delta_fwd(p->be, &x);
}

static bool delta_ahead(void *arg, float *b, float *a)
{
    struct part *p = arg;
    struct carry_step s = all_rows(p, b);
    delta_step(p, &s);
    make_map(p, a);
    return true;
}

static bool delta_ahead_back(void *arg, float *b, float *a)
{
    struct part *p = arg;
    struct carry_step s = all_rows(p, b);
    delta_step_back(p, &s);
    make_map(p, a);
    return true;
}

static bool conv_ahead(void *arg, float *b, float *a)
{
    struct carry_step s = all_rows(arg, b);
    if (valid(arg) >= TAPS - 1) conv_step(arg, &s);
    return valid(arg) >= TAPS - 1;
}

static bool conv_ahead_back(void *arg, float *b, float *a)
{
    struct carry_step s = all_rows(arg, b);
    if (valid(arg) >= TAPS - 1) conv_step_back(arg, &s);
    return valid(arg) >= TAPS - 1;
}

static void store(double *to, const struct part *p, const float *x, int64_t *at, int64_t cols)
{
    for (int64_t i = 0; i < p->T && p->r0 + i < p->in->S; i++)
        for (int64_t c = 0; c < cols; c++)
            to[*at * p->in->S + (p->r0 + i) * cols + c] = (double)x[i * cols + c];
    *at += cols;
}

static void part_store(const struct part *p, double *to)
{
    int64_t at = 0;
    store(to, p, p->y, &at, CONV_C), store(to, p, p->o, &at, H * DV);
    store(to, p, p->dx, &at, CONV_C), store(to, p, p->dq, &at, HK * DK);
    store(to, p, p->dk, &at, HK * DK), store(to, p, p->dv, &at, H * DV);
    store(to, p, p->da, &at, H), store(to, p, p->db, &at, H), store(to, p, p->d_log, &at, H);
    CHECK(at == OUT_ROW);
}

static int passes(struct sp_carry *sp, struct part *p, struct err *e)
{
    const struct carry_pass list[] = {
        {HALO, false, p->halo, NULL, conv_step, p, 0, 0, 0, conv_ahead},
        {STATE, false, p->state, NULL, delta_step, p, H, DK, DV, delta_ahead},
        {STATE, true, p->d_room, NULL, delta_step_back, p, H, DK, DV, delta_ahead_back},
        {HALO, true, p->d_room, NULL, conv_step_back, p, 0, 0, 0, conv_ahead_back},
    };
    for (int i = 0; i < 4; i++)
        if (carry_run(sp, &list[i], e)) return -1;
    return carry_settle(sp, e);
}

struct run {
    enum exchange_id exchange;
    bool rank_bits;
    double *out;
};

static int64_t state_size(void)
{
    return 4 * (STATE > HALO ? STATE : HALO) + 64;
}

static int64_t segment_size(int P)
{
    return 2 * state_size() + 4 * P * (STATE + MAP);
}

static void body(struct ranks *g, int rank, void *arg)
{
    const struct run *x = arg;
    struct err e = {0};
    struct be *be = be_open(&(struct be_options){.device = "cpu", .n_threads = 1}, &e);
    struct sp_carry sp = {
        .be = be, .comm = g->P > 1 ? g->comm[rank] : NULL, .exchange = x->exchange};
    CHECK(be);
    if (shard_init(&sp.shard, whole.S, g->P, rank, LAYOUT_CONTIGUOUS, x->rank_bits, &e)) abort();
    for (int i = 0; i < 2; i++)
        sp.send[i] = (char *)comm_segment(g->comm[rank]) + i * (state_size() / 64 * 64);
    sp.all = (float *)((char *)comm_segment(g->comm[rank]) + 2 * (state_size() / 64 * 64));
    sp.map = rows(NULL, 0, 1, 0, MAP);
    struct part p = part_new(&whole, be, &sp.shard);
    if (passes(&sp, &p, &e))
        ranks_fail(g, rank, &e);
    else
        part_store(&p, x->out);
    part_free(&p);
    free(sp.map);
    be_close(be);
}

static void check_bytes(struct ranks *g, int rank, enum exchange_id x)
{
    const int64_t cols = DV + (x == EXCHANGE_ALL_GATHER ? DK : 0);
    const int pieces = x == EXCHANGE_SCAN ? 4 : 1;
    struct comm_count want[PURPOSE_N] = {0};
    struct err e;
    for (int back = 0; back < 2; back++) {
        struct comm_count *c = &want[back ? PURPOSE_DSTATE : PURPOSE_STATE];
        if (g->P == 1) continue;
        volume_add(c, volume_state(x, g->P, rank, H, DK, cols, 1, pieces, back), 1);
        volume_add(c, volume_state(EXCHANGE_RING, g->P, rank, 1, TAPS - 1, CONV_C, 1, 1, back), 1);
    }
    CHECK_MSG(!ledger_check(comm_ledger(g->comm[rank]), want, &e), "%s", e.text);
}

static void run(int P, enum exchange_id exchange, bool rank_bits, double *out)
{
    struct run x = {exchange, rank_bits, out};
    struct ranks g;
    ranks_open(&g, P, segment_size(P), &(struct comm_options){.delay_seed = 1, .delay_max_us = 50});
    ranks_run(&g, body, &x);
    ranks_check(&g);
    for (int r = 0; r < P; r++) check_bytes(&g, r, exchange);
    ranks_close(&g);
}

static float number(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
    return (float)((double)(*seed >> 11) / 9007199254740992.0 * 2 - 1);
}

static void fill(float *x, int64_t n, float scale, uint64_t *seed)
{
    for (int64_t i = 0; i < n; i++) x[i] = scale * number(seed);
}

/* Draws the whole sequence. If docs is 0, it is one document; otherwise a new document begins
 * every `docs` rows. */
static void make(int64_t S, int64_t docs)
{
    uint64_t seed = (uint64_t)(S * 7 + docs);
    whole.S = S;
    fill(whole.x, S * CONV_C, 1, &seed), fill(whole.dy, S * CONV_C, 1, &seed);
    fill(whole.d_o, S * H * DV, 1, &seed), fill(whole.a, S * H, 1, &seed);
    fill(whole.b, S * H, 2, &seed), fill(whole.w, CONV_C * TAPS, 1, &seed);
    fill(whole.dt_bias, H, 1, &seed);
    for (int h = 0; h < H; h++) whole.a_log[h] = (float)(-1 - 2 * h);
    for (int64_t i = 0; i < S; i++) {
        whole.lo[i] = docs ? i / docs * docs : 0;
        whole.hi[i] = i + 1;
    }
}

static double apart(int64_t S)
{
    double err = 0, norm = 0;
    for (int64_t i = 0; i < S * OUT_ROW; i++) {
        const double d = made[1][i] - made[0][i];
        err += d * d, norm += made[0][i] * made[0][i];
    }
    return err <= 0 ? 0 : sqrt(err / norm); /* NaN stays */
}

static const int64_t lengths[] = {1, 2, 3, 5, 8, 37, 130, 400}, documents[] = {0, 3, 29, 150};

/* Checks one exchange. If segments have only one or two rows, the rows before a segment that its
 * convolution reads are on several ranks. */
static void check_exchange(enum exchange_id x)
{
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (size_t d = 0; d < sizeof documents / sizeof *documents; d++) {
            make(lengths[i], documents[d]);
            run(1, x, false, made[0]);
            for (int P = 2; P <= 5; P++) {
                memset(made[1], 0xff, sizeof made[1]);
                run(P, x, false, made[1]);
                const double e = apart(whole.S);
                CHECK_MSG(e <= BAR, "exchange %d S %lld documents of %lld P %d: %g", x,
                          (long long)whole.S, (long long)documents[d], P, e);
            }
        }
}

static void test_ring(void)
{
    check_exchange(EXCHANGE_RING);
}

static void test_all_gather(void)
{
    check_exchange(EXCHANGE_ALL_GATHER);
}

static void test_scan(void)
{
    check_exchange(EXCHANGE_SCAN);
}

/* Checks that under determinism "ranks" the bits do not depend on the number of ranks. */
static void test_bits(void)
{
    for (int64_t S = 5; S <= 400; S += 79) {
        make(S, 61);
        run(1, EXCHANGE_RING, true, made[0]);
        for (int P = 2; P <= 8; P *= 2) {
            memset(made[1], 0xff, sizeof made[1]);
            run(P, EXCHANGE_RING, true, made[1]);
            CHECK_MSG(!memcmp(made[0], made[1], (size_t)(S * OUT_ROW) * sizeof made[0][0]),
                      "S %lld P %d", (long long)S, P);
        }
    }
}

int main(void)
{
    RUN(test_ring);
    RUN(test_all_gather);
    RUN(test_scan);
    RUN(test_bits);
    return test_done("carry");
}
