/* Ring attention, forward and gradients, against float64 from the definition.
 *
 * The reference knows documents and positions only: query i sees key j iff doc(i) == doc(j) and
 * (not causal or j <= i). The visible intervals, the shard and the segment order of the code under
 * test do not enter it; local rows go to global order by this file's own formula.
 *
 * Every buffer that the strategy writes starts as NaN with guard bytes around it, and so does the
 * device's scratch; messages are delayed at random; every run is compared with the volume formulas.
 */
#include <math.h>
#include "kernels/backend.h"
#include "tests/ranks.h"
#include "worker/comm/ledger.h"
#include "worker/plan/volume.h"
#include "worker/sp/sp.h"

#define TOL_OUT  2e-6
#define TOL_GRAD 5e-6

enum { MAX_P = 8, GUARD = 16 }; /* GUARD floats on both sides of a buffer */
enum docs { DOCS_ONE, DOCS_FIVE, DOCS_EACH, DOCS_N };

static const int degrees[] = {1, 2, 3, 4, 5, 8};
enum { N_DEGREES = 6 };

struct problem {
    int64_t S, H, Hk, D;
    enum docs docs;
    bool causal;
    float *q, *kv, *d_o;                /* global order */
    double *o, *dq, *dkv;               /* the truth */
    double floor_out, floor_q, floor_k; /* norms without cancellation: see rel_l2 */
};

struct variant {
    int P;
    enum layout_id layout;
    bool rank_bits, fused; /* fused: q|k|v are windows of one wide tensor */
    enum strategy_id strategy;
    int n_threads, mutant;
    enum transport_id transport;
    int n_local; /* ranks per node; 0: one node */
};

struct result { /* global order, S rows */
    float *o, *dq, *dkv;
};

/* ---- inputs ---------------------------------------------------------------------------------- */

static uint64_t rng_state;

static float rng_uniform(void) /* (-1, 1) */
{
    rng_state += 0x9e3779b97f4a7c15u;
    uint64_t z = rng_state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (float)((double)((z ^ (z >> 31)) >> 11) / 4503599627370496.0 - 1.0);
}

static void *mem(int64_t n, size_t each)
{
    void *p = calloc((size_t)n, each);
    if (!p) abort();
    return p;
}

static float *random_floats(int64_t n, float scale)
{
    float *x = mem(n, 4);
    for (int64_t i = 0; i < n; i++) x[i] = rng_uniform() * scale;
    return x;
}

static int64_t doc_of(const struct problem *p, int64_t i)
{
    static const double cut[] = {0.03, 0.31, 0.5, 0.52};
    if (p->docs == DOCS_ONE) return 0;
    if (p->docs == DOCS_EACH) return i;
    int64_t d = 0;
    for (int k = 0; k < 4; k++) d += i >= (int64_t)ceil(cut[k] * (double)p->S);
    return d;
}

static bool sees(const struct problem *p, int64_t i, int64_t j)
{
    return doc_of(p, i) == doc_of(p, j) && (!p->causal || j <= i);
}

/* ---- the truth ------------------------------------------------------------------------------- */

struct truth_row { /* scratch of one query row */
    int64_t n, *j; /* the keys it sees */
    double *s, *dp;
    const double *kk; /* [S * Hk] squares of the keys */
};

static double dot(const float *a, const float *b, int64_t n)
{
    double sum[4] = {0}; /* four chains: this is where the test's time goes */
    int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (int c = 0; c < 4; c++) sum[c] += (double)a[i + c] * (double)b[i + c];
    for (; i < n; i++) sum[0] += (double)a[i] * (double)b[i];
    return sum[0] + sum[1] + (sum[2] + sum[3]);
}

/* One head of one query row: softmax, output, and its part of all three gradients. */
static void truth_of_row(struct problem *p, struct truth_row *w, int64_t i, int64_t h)
{
    int64_t D = p->D, kv_cols = 2 * p->Hk * D, g = h / (p->H / p->Hk);
    const float *q = p->q + (i * p->H + h) * D, *d_o = p->d_o + (i * p->H + h) * D;
    double *o = p->o + (i * p->H + h) * D, *dq = p->dq + (i * p->H + h) * D;
    double scale = 1 / sqrt((double)D), max = -INFINITY, sum = 0, delta = 0, qq = dot(q, q, D);
    for (int64_t t = 0; t < w->n; t++) {
        w->s[t] = scale * dot(q, p->kv + w->j[t] * kv_cols + g * D, D);
        max = fmax(max, w->s[t]);
    }
    for (int64_t t = 0; t < w->n; t++) sum += w->s[t] = exp(w->s[t] - max);
    for (int64_t t = 0; t < w->n; t++) {
        const float *v = p->kv + w->j[t] * kv_cols + (p->Hk + g) * D;
        w->s[t] /= sum;
        w->dp[t] = dot(d_o, v, D);
        delta += w->s[t] * w->dp[t];
        for (int64_t d = 0; d < D; d++) o[d] += w->s[t] * v[d];
    }
    for (int64_t t = 0; t < w->n; t++) {
        const float *k = p->kv + w->j[t] * kv_cols + g * D;
        double *dk = p->dkv + w->j[t] * kv_cols + g * D, *dv = dk + p->Hk * D;
        double pr = w->s[t], ds = scale * pr * (w->dp[t] - delta), raw = scale * pr * w->dp[t];
        for (int64_t d = 0; d < D; d++) {
            dq[d] += ds * k[d];
            dk[d] += ds * q[d];
            dv[d] += pr * d_o[d];
        }
        p->floor_q += raw * raw * w->kk[w->j[t] * p->Hk + g];
        p->floor_k += raw * raw * qq;
    }
}

static void truth(struct problem *p)
{
    double *kk = mem(p->S * p->Hk, 8);
    struct truth_row w = {.j = mem(p->S, 8), .s = mem(p->S, 8), .dp = mem(p->S, 8), .kk = kk};
    for (int64_t k = 0; k < p->S * p->Hk; k++) {
        const float *key = p->kv + (k / p->Hk * 2 * p->Hk + k % p->Hk) * p->D;
        kk[k] = dot(key, key, p->D);
    }
    p->o = mem(p->S * p->H * p->D, 8);
    p->dq = mem(p->S * p->H * p->D, 8);
    p->dkv = mem(p->S * 2 * p->Hk * p->D, 8);
    for (int64_t i = 0; i < p->S; i++) {
        w.n = 0;
        for (int64_t j = 0; j < p->S; j++)
            if (sees(p, i, j)) w.j[w.n++] = j;
        for (int64_t h = 0; h < p->H; h++) truth_of_row(p, &w, i, h);
    }
    p->floor_q = sqrt(p->floor_q);
    p->floor_k = sqrt(p->floor_k);
    free(w.j);
    free(w.s);
    free(w.dp);
    free(kk);
}

static struct problem problem_make(int64_t S, int64_t H, int64_t Hk, int64_t D, enum docs docs,
                                   bool causal)
{
    struct problem p = {.S = S, .H = H, .Hk = Hk, .D = D, .docs = docs, .causal = causal};
    rng_state = (uint64_t)(S * 131 + H * 17 + D);
    p.q = random_floats(S * H * D, 2);
    p.kv = random_floats(S * 2 * Hk * D, 2);
    p.d_o = random_floats(S * H * D, 1);
    return p;
}

static void problem_free(struct problem *p)
{
    free(p->q);
    free(p->kv);
    free(p->d_o);
    free(p->o);
    free(p->dq);
    free(p->dkv);
}

/* ---- one run of the code under test ---------------------------------------------------------- */

/* Where local row i of rank r lies in the sequence; >= S: padding. */
static int64_t global_of(const struct problem *p, const struct variant *v, int r, int64_t i)
{
    if (v->rank_bits) return r * (8 / v->P) * ((p->S + 7) / 8) + i;
    if (v->layout == LAYOUT_CONTIGUOUS) return r * ((p->S + v->P - 1) / v->P) + i;
    int64_t h = (p->S + 2 * v->P - 1) / (2 * v->P);
    return i < h ? r * h + i : (2 * v->P - 1 - r) * h + i - h;
}

static int64_t rows_of(const struct problem *p, const struct variant *v) /* T, by the definition */
{
    if (v->rank_bits) return 8 / v->P * ((p->S + 7) / 8);
    if (v->layout == LAYOUT_CONTIGUOUS) return (p->S + v->P - 1) / v->P;
    return 2 * ((p->S + 2 * v->P - 1) / (2 * v->P));
}

struct local { /* one rank's tensors, in one guarded allocation */
    struct tensor q, kv, o, d_o, dq, dkv;
    float *lse, *m, *delta;
    int64_t *lo, *hi;
    float *block;
};

/* Takes n floats from the block, which leaves GUARD on each side. */
static float *take(float **at, int64_t n)
{
    float *p = *at + GUARD;
    *at = p + n;
    return p;
}

static void local_place(struct local *l, const struct problem *p, bool fused, int64_t T)
{
    int64_t q_cols = p->H * p->D, kv_cols = 2 * p->Hk * p->D, wide = q_cols + kv_cols + 5;
    int64_t n_floats = T * (2 * wide + 2 * q_cols + 3 * p->H) + 10 * GUARD;
    l->block = mem(n_floats, 4);
    memset(l->block, 0xff, (size_t)n_floats * 4); /* NaN */
    float *at = l->block;
    l->o = tensor_f32(take(&at, T * q_cols), T, q_cols, q_cols);
    l->d_o = tensor_f32(take(&at, T * q_cols), T, q_cols, q_cols);
    l->lse = take(&at, p->H * T);
    l->m = take(&at, p->H * T);
    l->delta = take(&at, p->H * T);
    if (fused) {
        struct tensor x = tensor_f32(take(&at, T * wide), T, wide, wide);
        struct tensor dx = tensor_f32(take(&at, T * wide), T, wide, wide);
        l->q = tensor_sub(x, 0, T, 0, q_cols);
        l->kv = tensor_sub(x, 0, T, q_cols, kv_cols);
        l->dq = tensor_sub(dx, 0, T, 0, q_cols);
        l->dkv = tensor_sub(dx, 0, T, q_cols, kv_cols);
    } else {
        l->q = tensor_f32(take(&at, T * q_cols), T, q_cols, q_cols);
        l->kv = tensor_f32(take(&at, T * kv_cols), T, kv_cols, kv_cols);
        l->dq = tensor_f32(take(&at, T * q_cols), T, q_cols, q_cols);
        l->dkv = tensor_f32(take(&at, T * kv_cols), T, kv_cols, kv_cols);
    }
    l->lo = mem(T, 8);
    l->hi = mem(T, 8);
}

static float *row(struct tensor t, int64_t i)
{
    return (float *)t.data + i * t.ld;
}

/* Real rows from the problem; padding rows hold large numbers that must leave no trace. */
static void local_load(struct local *l, const struct problem *p, const struct variant *v, int r,
                       int64_t T)
{
    struct tensor to[3] = {l->q, l->kv, l->d_o};
    const float *from[3] = {p->q, p->kv, p->d_o};
    for (int64_t i = 0; i < T; i++) {
        int64_t at = global_of(p, v, r, i);
        for (int k = 0; k < 3; k++)
            for (int64_t c = 0; c < to[k].cols; c++)
                row(to[k], i)[c] = at < p->S ? from[k][at * to[k].cols + c] : 1e6f;
        l->lo[i] = l->hi[i] = at;
        if (at >= p->S) continue;
        while (l->lo[i] > 0 && doc_of(p, l->lo[i] - 1) == doc_of(p, at)) l->lo[i]--;
        while (l->hi[i] < p->S && doc_of(p, l->hi[i]) == doc_of(p, at)) l->hi[i]++;
        if (p->causal) l->hi[i] = at + 1;
    }
}

struct run {
    const struct problem *p;
    const struct variant *v;
    struct result *out;
    int64_t n_bad[MAX_P]; /* padding that is not exactly 0, and broken guards */
};

/* Devices are opened once per (rank, threads): 8 ranks, 1 or 2 threads; isa: NULL is the best. */
static struct be *devices[MAX_P][3];
static char *scratches[MAX_P][3];
static const char *isa;

static void devices_close(void)
{
    for (int r = 0; r < MAX_P; r++)
        for (int t = 1; t <= 2; t++) {
            be_close(devices[r][t]);
            free(scratches[r][t]);
            devices[r][t] = NULL;
            scratches[r][t] = NULL;
        }
}

static struct be *device(int rank, int n_threads)
{
    int64_t size = n_threads * BE_SCRATCH_PER_THREAD;
    if (!devices[rank][n_threads]) {
        struct err e;
        scratches[rank][n_threads] = aligned_alloc(64, (size_t)size);
        struct be_options o = {.device = "cpu",
                               .isa = isa,
                               .n_threads = n_threads,
                               .scratch = scratches[rank][n_threads]};
        devices[rank][n_threads] = be_open(&o, &e);
        if (!devices[rank][n_threads]) abort();
        CHECK(!isa || !strcmp(devices[rank][n_threads]->isa, isa));
    }
    memset(scratches[rank][n_threads], 0xff, (size_t)size);
    return devices[rank][n_threads];
}

/* The ring's buffers in the comm segment: kv[2], dkv[2], whatever P is. */
static int64_t ring_size(const struct problem *p, int64_t T)
{
    return 4 * T * 2 * p->Hk * p->D * 4;
}

static bool sp_of(struct sp *sp, const struct run *x, struct comm *comm, int rank,
                  const struct local *l, struct err *e)
{
    const struct problem *p = x->p;
    *sp = (struct sp){
        .ops = sp_find(x->v->strategy),
        .be = device(rank, x->v->n_threads),
        .comm = x->v->strategy == STRATEGY_LOCAL ? NULL : comm,
        .shape = {p->H, p->Hk, p->D, (float)(1 / sqrt((double)p->D))},
        .buf = {.m = l->m, .delta = l->delta},
        .rank_bits = x->v->rank_bits,
        .mutant = x->v->mutant,
    };
    if (shard_init(&sp->shard, p->S, x->v->P, rank, x->v->layout, x->v->rank_bits, e)) return false;
    float *seg = comm_segment(comm);
    int64_t n = sp->shard.T * 2 * p->Hk * p->D;
    if (sp->shard.T != rows_of(p, x->v)) abort();
    memset(seg, 0xff, (size_t)ring_size(p, sp->shard.T));
    sp->buf.kv[0] = seg;
    sp->buf.kv[1] = seg + n;
    sp->buf.dkv[0] = seg + 2 * n;
    sp->buf.dkv[1] = seg + 3 * n;
    return true;
}

static void store(float *global, const struct run *x, int rank, struct tensor t, int64_t *n_bad)
{
    for (int64_t i = 0; i < t.rows; i++) {
        int64_t at = global_of(x->p, x->v, rank, i);
        if (at < x->p->S)
            memcpy(global + at * t.cols, row(t, i), (size_t)t.cols * 4);
        else
            for (int64_t c = 0; c < t.cols; c++) *n_bad += row(t, i)[c] != 0;
    }
}

static int64_t guards_broken(const struct local *l, const struct run *x, int64_t T)
{
    const float *starts[] = {l->o.data, l->d_o.data, l->lse, l->m, l->delta, l->q.data};
    int64_t q = T * x->p->H * x->p->D, h = x->p->H * T, sizes[] = {q, q, h, h, h}, n = 0;
    uint32_t word;
    for (int k = 0; k < 5; k++)
        for (int i = 1; i <= GUARD; i++) {
            memcpy(&word, starts[k] - i, 4);
            n += word != 0xffffffffu;
            memcpy(&word, starts[k] + sizes[k] + i - 1, 4);
            n += word != 0xffffffffu;
        }
    return n;
}

static void body(struct ranks *g, int rank, void *arg)
{
    struct run *x = arg;
    struct local l;
    struct sp sp;
    struct err e = {0};
    int64_t T = rows_of(x->p, x->v);
    local_place(&l, x->p, x->v->fused, T);
    local_load(&l, x->p, x->v, rank, T);
    if (!sp_of(&sp, x, g->comm[rank], rank, &l, &e)) goto out;
    if (sp.ops->attn_fwd(&sp, &(struct sp_fwd_args){l.q, l.kv, l.o, l.lse, l.lo, l.hi}, &e))
        goto out;
    struct sp_bwd_args b = {l.q, l.kv, l.o, l.d_o, l.lse, l.dq, l.dkv, l.lo, l.hi};
    if (sp.ops->attn_bwd(&sp, &b, &e)) goto out;
    store(x->out->o, x, rank, l.o, &x->n_bad[rank]);
    store(x->out->dq, x, rank, l.dq, &x->n_bad[rank]);
    store(x->out->dkv, x, rank, l.dkv, &x->n_bad[rank]);
    x->n_bad[rank] += guards_broken(&l, x, T);
    for (int64_t i = 0; i < T; i++)
        for (int64_t h = 0; h < x->p->H; h++)
            x->n_bad[rank] += (l.lse[h * T + i] == -INFINITY) != (l.lo[i] >= l.hi[i]);
out:
    free(l.block);
    free(l.lo);
    free(l.hi);
    if (e.code) ranks_fail(g, rank, &e);
}

static struct result result_make(const struct problem *p)
{
    return (struct result){random_floats(p->S * p->H * p->D, NAN),
                           random_floats(p->S * p->H * p->D, NAN),
                           random_floats(p->S * 2 * p->Hk * p->D, NAN)};
}

static void result_free(struct result *r)
{
    free(r->o);
    free(r->dq);
    free(r->dkv);
}

static uint64_t n_runs; /* seeds the delays */

/* Runs v on p. Every rank's counts must equal the formulas. Returns zeros and guards broken. */
static int64_t run(const struct problem *p, const struct variant *v, struct result *out)
{
    struct run x = {.p = p, .v = v, .out = out};
    struct ranks g;
    int64_t T = rows_of(p, v), n_bad = 0;
    ranks_open(&g, v->P, ring_size(p, T),
               &(struct comm_options){.delay_seed = ++n_runs,
                                      .delay_max_us = v->P > 1 ? 100 : 0,
                                      .transport = v->transport,
                                      .n_local = v->n_local});
    ranks_run(&g, body, &x);
    ranks_check(&g);
    struct comm_count want[PURPOSE_N] = {0};
    volume_add(&want[PURPOSE_RING_KV], volume_ring_kv(v->P, T, p->Hk, p->D, PRECISION_FP32), 2);
    volume_add(&want[PURPOSE_RING_DKV], volume_ring_dkv(v->P, T, p->Hk, p->D, v->rank_bits), 1);
    for (int r = 0; r < v->P; r++) {
        struct err e;
        CHECK_MSG(!ledger_check(comm_ledger(g.comm[r]), want, &e), "P %d rank %d: %s", v->P, r,
                  e.text);
        n_bad += x.n_bad[r];
    }
    ranks_close(&g);
    return n_bad;
}

/* ---- comparison ------------------------------------------------------------------------------ */

struct norms {
    double err, ref;
};

/* Columns [c0, c0 + n) of all rows. */
static struct norms norms(const float *x, const double *ref, int64_t rows, int64_t cols, int64_t c0,
                          int64_t n)
{
    struct norms s = {0, 0};
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = c0; c < c0 + n; c++) {
            double d = x[i * cols + c] - ref[i * cols + c];
            s.err += d * d;
            s.ref += ref[i * cols + c] * ref[i * cols + c];
        }
    return (struct norms){sqrt(s.err), sqrt(s.ref)};
}

/* Relative L2 error. Where the truth is zero by cancellation (a token that sees one key has no
 * gradient to it), relative to what cancels. NaN stays NaN, which no bound admits. */
static double rel_l2(struct norms s, double cancelled)
{
    return s.err / (s.ref > 1e-9 * cancelled ? s.ref : cancelled);
}

struct errors {
    double o, dq, dk, dv;
};

static struct errors compare(const struct problem *p, const struct result *r)
{
    int64_t q = p->H * p->D, k = p->Hk * p->D;
    return (struct errors){
        rel_l2(norms(r->o, p->o, p->S, q, 0, q), 0),
        rel_l2(norms(r->dq, p->dq, p->S, q, 0, q), p->floor_q),
        rel_l2(norms(r->dkv, p->dkv, p->S, 2 * k, 0, k), p->floor_k),
        rel_l2(norms(r->dkv, p->dkv, p->S, 2 * k, k, k), 0),
    };
}

static bool within(struct errors e)
{
    return e.o <= TOL_OUT && e.dq <= TOL_GRAD && e.dk <= TOL_GRAD && e.dv <= TOL_GRAD;
}

static struct errors worst; /* over all cases that passed through check_variant */

static void worst_of(struct errors e)
{
    worst.o = fmax(worst.o, e.o);
    worst.dq = fmax(worst.dq, e.dq);
    worst.dk = fmax(worst.dk, e.dk);
    worst.dv = fmax(worst.dv, e.dv);
}

static void check_variant(const struct problem *p, const struct variant *v)
{
    struct result out = result_make(p);
    int64_t n_bad = run(p, v, &out);
    struct errors e = compare(p, &out);
    worst_of(e);
    CHECK_MSG(within(e) && n_bad == 0,
              "S %lld H %lld:%lld D %lld docs %d causal %d P %d layout %d: o %.2e dq %.2e dk %.2e "
              "dv %.2e, "
              "%lld bad",
              (long long)p->S, (long long)p->H, (long long)p->Hk, (long long)p->D, p->docs,
              p->causal, v->P, v->layout, e.o, e.dq, e.dk, e.dv, (long long)n_bad);
    result_free(&out);
}

/* Rank counts and layouts first, first + step, ... of all twelve pairs. */
static void check_problem(struct problem p, int first, int step)
{
    truth(&p);
    for (int i = first; i < 2 * N_DEGREES; i += step)
        check_variant(&p, &(struct variant){.P = degrees[i / 2],
                                            .layout = LAYOUT_CONTIGUOUS + i % 2,
                                            .strategy = STRATEGY_RSA,
                                            .fused = (i / 2 + i) & 1,
                                            .n_threads = 1});
    problem_free(&p);
}

/* ---- tests ----------------------------------------------------------------------------------- */

struct heads {
    int64_t H, Hk, D;
};

static void product(int64_t S, const struct heads *heads, int n_heads, int first, int step)
{
    for (int h = 0; h < n_heads; h++)
        for (int docs = 0; docs < DOCS_N; docs++)
            for (int causal = 0; causal < 2; causal++)
                check_problem(
                    problem_make(S, heads[h].H, heads[h].Hk, heads[h].D, (enum docs)docs, causal),
                    first, step);
}

/* More ranks than tokens, and a length that nothing divides: the whole product. */
static const struct heads small[] = {{2, 2, 24}, {6, 2, 8}, {8, 1, 64}};

static void test_1(void)
{
    product(1, small, 3, 0, 1);
}

static void test_8(void)
{
    product(8, small, 3, 0, 1);
}

static void test_37(void)
{
    product(37, small, 3, 0, 1);
}

static void test_1000(void)
{
    static const struct heads heads[] = {{2, 2, 16}, {3, 1, 24}, {8, 1, 8}};
    product(1000, heads, 3, 0, 1);
}

/* The whole product again, but every one of the 18 cells takes 4 of the 12 pairs of rank count and
 * layout, another set than the cell before: the truth of 16 million pairs takes the time. */
static void test_4096(void)
{
    static const struct heads heads[] = {{1, 1, 16}, {3, 1, 16}, {8, 1, 16}};
    int cell = 0;
    for (int h = 0; h < 3; h++)
        for (int docs = 0; docs < DOCS_N; docs++)
            for (int causal = 0; causal < 2; causal++, cell++)
                check_problem(problem_make(4096, heads[h].H, heads[h].Hk, 16, docs, causal),
                              cell % 3, 3);
}

/* One key that all queries see outweighs the others by e^thousands: the merge of partial results
 * must neither overflow nor lose it, wherever it lies. */
static void test_extreme_scores(void)
{
    struct problem p = problem_make(40, 2, 1, 8, DOCS_ONE, false);
    for (int64_t i = 0; i < p.S; i++) {
        for (int64_t c = 0; c < 16; c++) p.q[i * 16 + c] = c % 8 == 0 ? 100 : 0;
        p.kv[i * 16] = i == 29 ? 300 : -300; /* scores of +-10607 */
    }
    check_problem(p, 0, 1);
}

/* "ranks": the same bits for 1, 2, 4 and 8 ranks and 1 and 2 threads, equal to one rank that knows
 * no ring; and right. */
static void check_bits(struct problem p)
{
    truth(&p);
    struct variant one = {.P = 1,
                          .layout = LAYOUT_CONTIGUOUS,
                          .rank_bits = true,
                          .strategy = STRATEGY_LOCAL,
                          .n_threads = 1};
    struct result want = result_make(&p), got = result_make(&p);
    int64_t n_bad = run(&p, &one, &want), q = p.S * p.H * p.D * 4, kv = p.S * 2 * p.Hk * p.D * 4;
    CHECK(n_bad == 0 && within(compare(&p, &want)));
    for (int P = 1; P <= 8; P *= 2)
        for (int n_threads = 1; n_threads <= 2; n_threads++) {
            struct variant v = one;
            v.P = P;
            v.n_threads = n_threads;
            v.strategy = STRATEGY_RSA;
            v.fused = n_threads == 2;
            CHECK(run(&p, &v, &got) == 0);
            CHECK_MSG(!memcmp(got.o, want.o, (size_t)q) && !memcmp(got.dq, want.dq, (size_t)q) &&
                          !memcmp(got.dkv, want.dkv, (size_t)kv),
                      "S %lld causal %d: %d ranks of %d threads differ from one rank",
                      (long long)p.S, p.causal, P, n_threads);
        }
    result_free(&want);
    result_free(&got);
    problem_free(&p);
}

static void test_rank_bits(void)
{
    check_bits(problem_make(1, 2, 2, 16, DOCS_ONE, true));
    for (int causal = 0; causal < 2; causal++) {
        check_bits(problem_make(37, 6, 2, 16, DOCS_ONE, causal));
        check_bits(problem_make(1000, 3, 1, 24, DOCS_FIVE, causal));
    }
    check_bits(problem_make(1000, 2, 2, 64, DOCS_ONE, true));
    check_bits(problem_make(4096, 1, 1, 16, DOCS_ONE, true));
}

/* One and the same run twice gives the same bits, whatever the delays. */
static void test_run_to_run_bits(void)
{
    struct problem p = problem_make(1000, 3, 1, 16, DOCS_FIVE, true);
    struct variant v = {.P = 3, .layout = LAYOUT_ZIGZAG, .strategy = STRATEGY_RSA, .n_threads = 2};
    struct result a = result_make(&p), b = result_make(&p);
    run(&p, &v, &a);
    run(&p, &v, &b);
    CHECK(!memcmp(a.o, b.o, (size_t)(p.S * p.H * p.D) * 4));
    CHECK(!memcmp(a.dq, b.dq, (size_t)(p.S * p.H * p.D) * 4));
    CHECK(!memcmp(a.dkv, b.dkv, (size_t)(p.S * 2 * p.Hk * p.D) * 4));
    result_free(&a);
    result_free(&b);
    problem_free(&p);
}

/* Sockets, and nodes of two ranks with sockets between them, give the bits of shared memory. */
static void test_transports_give_one_result(void)
{
    static const enum transport_id transports[] = {TRANSPORT_SHM, TRANSPORT_TCP, TRANSPORT_AUTO};
    struct problem p = problem_make(1000, 3, 1, 16, DOCS_FIVE, true);
    struct variant v = {.P = 4, .layout = LAYOUT_ZIGZAG, .strategy = STRATEGY_RSA, .n_threads = 1};
    struct result want = result_make(&p), got = result_make(&p);
    CHECK(run(&p, &v, &want) == 0);
    for (int i = 0; i < 3; i++) {
        v.transport = transports[i];
        v.n_local = i == 2 ? 2 : 0;
        CHECK(run(&p, &v, &got) == 0);
        CHECK_MSG(!memcmp(got.o, want.o, (size_t)(p.S * p.H * p.D) * 4) &&
                      !memcmp(got.dq, want.dq, (size_t)(p.S * p.H * p.D) * 4) &&
                      !memcmp(got.dkv, want.dkv, (size_t)(p.S * 2 * p.Hk * p.D) * 4),
                  "transport %d", (int)v.transport);
    }
    result_free(&want);
    result_free(&got);
    problem_free(&p);
}

/* At fixed T the ring's buffers are the same for every P: all runs above give the segment exactly
 * 4 T rows and guard everything else. Here T is fixed and P grows. */
static void test_workspace_is_independent_of_ranks(void)
{
    int64_t T = 24, size = 0;
    for (int P = 1; P <= 8; P++) {
        struct problem p = problem_make(T * P, 2, 1, 16, DOCS_ONE, true);
        struct variant v = {
            .P = P, .layout = LAYOUT_ZIGZAG, .strategy = STRATEGY_RSA, .n_threads = 1};
        CHECK(rows_of(&p, &v) == T);
        if (P == 1) size = ring_size(&p, T);
        CHECK(ring_size(&p, T) == size);
        truth(&p);
        check_variant(&p, &v);
        problem_free(&p);
    }
}

/* The instruction sets below the best one. */
static void test_other_isas(void)
{
    for (const char *const *i = be_isas() + 1; *i; i++) {
        devices_close();
        isa = *i;
        product(37, small, 3, 1, 2);
        check_problem(problem_make(1000, 3, 1, 24, DOCS_FIVE, true), 0, 1);
        check_problem(problem_make(4096, 1, 1, 16, DOCS_ONE, false), 2, 9);
        check_bits(problem_make(1000, 6, 2, 16, DOCS_ONE, true));
    }
    devices_close();
    isa = NULL;
}

/* ---- decoding -------------------------------------------------------------------------------- */

struct decode {
    const struct problem *p; /* the last row is the query; keys are split by `rows` */
    int64_t rows[MAX_P], start[MAX_P];
    float o[MAX_P][8 * 64];
};

static void decode_body(struct ranks *g, int rank, void *arg)
{
    struct decode *d = arg;
    const struct problem *p = d->p;
    int64_t q_cols = p->H * p->D, kv_cols = 2 * p->Hk * p->D;
    struct err e;
    float sums[64];
    struct sp sp = {.ops = sp_find(g->P == 1 ? STRATEGY_LOCAL : STRATEGY_RSA),
                    .be = device(rank, 1),
                    .comm = g->comm[rank],
                    .shape = {p->H, p->Hk, p->D, (float)(1 / sqrt((double)p->D))},
                    .buf = {.part = comm_segment(g->comm[rank]), .m = sums}};
    if (p->H > 64) abort();
    memset(sp.buf.part, 0xff, (size_t)volume_decode_size(g->P, p->H, p->D));
    if (shard_init(&sp.shard, p->S, g->P, rank, LAYOUT_CONTIGUOUS, false, &e)) abort();
    struct sp_decode_args a = {
        .q = tensor_f32(p->q + (p->S - 1) * q_cols, 1, q_cols, q_cols),
        .kv = tensor_f32(p->kv + d->start[rank] * kv_cols, d->rows[rank], kv_cols, kv_cols),
        .o = tensor_f32(d->o[rank], 1, q_cols, q_cols),
    };
    for (int again = 0; again < 3; again++) /* layers share the buffer */
        if (sp.ops->attn_decode(&sp, &a, &e)) {
            ranks_fail(g, rank, &e);
            return;
        }
}

/* even: equal parts; otherwise rank 0 has none and the last one the odd rest. */
static void decode_case(const struct problem *p, int P, bool even)
{
    static struct decode d;
    struct ranks g;
    int64_t q_cols = p->H * p->D, at = 0;
    d.p = p;
    for (int r = 0; r < P; r++) {
        d.rows[r] = r == P - 1 ? p->S - at : even || r ? p->S / P : 0;
        d.start[r] = at;
        at += d.rows[r];
    }
    ranks_open(&g, P, volume_decode_size(P, p->H, p->D),
               &(struct comm_options){.delay_seed = ++n_runs, .delay_max_us = 100});
    ranks_run(&g, decode_body, &d);
    ranks_check(&g);
    struct comm_count want[PURPOSE_N] = {0};
    volume_add(&want[PURPOSE_DECODE], volume_decode(P, p->H, p->D), 3);
    for (int r = 0; r < P; r++) {
        struct err e;
        CHECK_MSG(!ledger_check(comm_ledger(g.comm[r]), want, &e), "P %d rank %d: %s", P, r,
                  e.text);
        double err = rel_l2(norms(d.o[r], p->o + (p->S - 1) * q_cols, 1, q_cols, 0, q_cols), 0);
        CHECK_MSG(err <= TOL_OUT, "P %d rank %d: %.2e", P, r, err);
        CHECK(!memcmp(d.o[r], d.o[0], (size_t)q_cols * 4));
    }
    ranks_close(&g);
}

static void test_decode(void)
{
    for (int h = 0; h < 3; h++) {
        struct problem p = problem_make(101, small[h].H, small[h].Hk, small[h].D, DOCS_ONE, true);
        truth(&p);
        for (int i = 0; i < N_DEGREES; i++) {
            decode_case(&p, degrees[i], true);
            decode_case(&p, degrees[i], false);
        }
        problem_free(&p);
    }
    struct problem one = problem_make(1, 2, 2, 24, DOCS_ONE, true); /* most ranks have no key */
    truth(&one);
    for (int i = 0; i < N_DEGREES; i++) decode_case(&one, degrees[i], true);
    problem_free(&one);
}

/* ---- mutants: each must be caught by the comparison above ------------------------------------ */

#ifdef SEQD_MUTANTS
static void check_mutant(int mutant, enum layout_id layout)
{
    for (int P = 2; P <= 3; P++)
        for (int causal = 0; causal < 2; causal++) {
            struct problem p = problem_make(37, 2, 1, 16, DOCS_ONE, causal);
            struct variant v = {.P = P, .layout = layout, .strategy = STRATEGY_RSA, .n_threads = 1};
            struct result out = result_make(&p);
            truth(&p);
            CHECK(run(&p, &v, &out) == 0 && within(compare(&p, &out)));
            v.mutant = mutant;
            run(&p, &v, &out);
            bool caught = !within(compare(&p, &out));
            /* Without a mask no position matters but for the padding. */
            bool visible = causal || mutant == MUTANT_GRAD_OVER_P || mutant == MUTANT_STALE_KV;
            CHECK_MSG(caught || !visible, "mutant %d layout %d P %d causal %d passes", mutant,
                      layout, P, causal);
            result_free(&out);
            problem_free(&p);
        }
}

static void test_mutants_are_caught(void)
{
    check_mutant(MUTANT_GRAD_OVER_P, LAYOUT_CONTIGUOUS);
    check_mutant(MUTANT_GRAD_OVER_P, LAYOUT_ZIGZAG);
    check_mutant(MUTANT_STALE_KV, LAYOUT_CONTIGUOUS);
    check_mutant(MUTANT_STALE_KV, LAYOUT_ZIGZAG);
    check_mutant(MUTANT_HOP_OFF_BY_ONE, LAYOUT_CONTIGUOUS);
    check_mutant(MUTANT_HOP_OFF_BY_ONE, LAYOUT_ZIGZAG);
    check_mutant(MUTANT_ZIGZAG_SWAPPED, LAYOUT_ZIGZAG);
}
#endif

int main(void)
{
    bool quick = getenv("SEQD_TEST_SMALL") != NULL;
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    quick = true;
#endif
#ifdef SEQD_MUTANTS
    quick = true;
    RUN(test_mutants_are_caught);
#endif
    RUN(test_1);
    RUN(test_8);
    RUN(test_37);
    if (!quick) RUN(test_1000);
    if (!quick) RUN(test_4096);
    RUN(test_extreme_scores);
    if (!quick) RUN(test_rank_bits);
    if (!quick) RUN(test_other_isas);
    RUN(test_run_to_run_bits);
    RUN(test_transports_give_one_result);
    RUN(test_workspace_is_independent_of_ranks);
    RUN(test_decode);
    devices_close();
    printf("  worst: o %.2e dq %.2e dk %.2e dv %.2e\n", worst.o, worst.dq, worst.dk, worst.dv);
    return test_done("attention");
}
