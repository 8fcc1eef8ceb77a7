/* Computes the halves of a block with tensor parallelism. Compares the results with serial results
 * in float64, and checks the bytes that are sent. */
#include <math.h>
#include "tests/lib/ledger_check.h"
#include "tests/lib/ranks.h"
#include "tests/lib/ref.h"
#include "tests/lib/tensor_halves.h"
#include "worker/comm/ledger.h"
#include "worker/plan/volume.h"

enum kind { ATTENTION, MLP_GLU, MLP_GELU, KIND_N };
enum { H = 8, HK = 4, D = 8, C = 40, I = 48, MAX_P = 4 };

struct mode {
    int P;
    bool sp, again;
};

/* A half with random weights, and its true results. */
struct half {
    enum kind kind;
    int64_t S, n, m; /* S rows, n rows of the first matrix, m columns of the last matrix */
    bool bias, causal;
    float *x, *dy, *first, *b, *last;
    struct mat y, dx, d_first, d_b, d_last;
    int64_t *lo, *hi;
};

static uint64_t seed = 7;

static float *noise(int64_t n, double scale)
{
    float *x = malloc((size_t)n * 4);
    if (!x) abort();
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        x[i] = (float)(((double)(seed >> 11) / 9007199254740992.0 - 0.5) * scale);
    }
    return x;
}

static struct mat mat_from(const float *x, int64_t rows, int64_t cols)
{
    return mat_of(tensor_f32((float *)x, rows, cols, cols));
}

/* ---- the reference results ------------------------------------------------------------------- */

static struct mat columns(struct mat a, int64_t c0, int64_t n)
{
    struct mat m = mat_new(a.rows, n);
    for (int64_t i = 0; i < a.rows; i++)
        for (int64_t j = 0; j < n; j++) MAT(m, i, j) = MAT(a, i, c0 + j);
    return m;
}

static void put_columns(struct mat to, int64_t c0, struct mat from)
{
    for (int64_t i = 0; i < from.rows; i++)
        for (int64_t j = 0; j < from.cols; j++) MAT(to, i, c0 + j) = MAT(from, i, j);
}

static void attention_truth(const struct half *h, struct mat inner, struct mat act,
                            struct mat d_act, struct mat d_inner)
{
    const struct ref_attn a = {H, HK, D, 1 / sqrt((double)D), h->lo, h->hi, 0};
    struct mat q = columns(inner, 0, H * D), kv = columns(inner, H * D, 2 * HK * D);
    struct mat lse = mat_new(H, h->S), dq = mat_new(h->S, H * D), dkv = mat_new(h->S, 2 * HK * D);
    ref_attn_fwd(&a, q, kv, act, lse);
    if (d_act.p) {
        ref_attn_bwd(&a, q, kv, act, lse, d_act, dq, dkv);
        put_columns(d_inner, 0, dq);
        put_columns(d_inner, H * D, dkv);
    }
    mat_free(&q), mat_free(&kv), mat_free(&lse), mat_free(&dq), mat_free(&dkv);
}

static void gelu_truth(struct mat inner, struct mat act, struct mat d_act, struct mat d_inner)
{
    for (int64_t i = 0; i < inner.rows * inner.cols; i++) {
        const double x = inner.p[i], cdf = 0.5 * (1 + erf(x / sqrt(2)));
        act.p[i] = x * cdf;
        if (d_act.p) d_inner.p[i] = d_act.p[i] * (cdf + x * exp(-x * x / 2) / sqrt(2 * acos(-1)));
    }
}

static void middle(const struct half *h, struct mat inner, struct mat act, struct mat d_act,
                   struct mat d_inner)
{
    if (h->kind == ATTENTION) attention_truth(h, inner, act, d_act, d_inner);
    if (h->kind == MLP_GELU) gelu_truth(inner, act, d_act, d_inner);
    if (h->kind != MLP_GLU) return;
    ref_swiglu_fwd(inner, act);
    if (d_act.p) ref_swiglu_bwd(inner, d_act, d_inner);
}

static void truth(struct half *h)
{
    struct mat x = mat_from(h->x, h->S, C), w = mat_from(h->first, h->n, C);
    struct mat last = mat_from(h->last, C, h->m), dy = mat_from(h->dy, h->S, C), none = {0};
    struct mat inner = mat_new(h->S, h->n), act = mat_new(h->S, h->m);
    struct mat d_act = mat_new(h->S, h->m), d_inner = mat_new(h->S, h->n);
    h->y = mat_new(h->S, C), h->dx = mat_new(h->S, C);
    h->d_first = mat_new(h->n, C), h->d_b = mat_new(1, h->n), h->d_last = mat_new(C, h->m);
    ref_gemm(x, false, w, true, inner, false);
    for (int64_t i = 0; h->bias && i < h->S; i++)
        for (int64_t j = 0; j < h->n; j++) MAT(inner, i, j) += h->b[j];
    middle(h, inner, act, none, none);
    ref_gemm(act, false, last, true, h->y, false);
    ref_gemm(dy, true, act, false, h->d_last, false);
    ref_gemm(dy, false, last, false, d_act, false);
    middle(h, inner, act, d_act, d_inner);
    ref_gemm(d_inner, true, x, false, h->d_first, false);
    ref_gemm(d_inner, false, w, false, h->dx, false);
    for (int64_t i = 0; i < h->S; i++)
        for (int64_t j = 0; j < h->n; j++) MAT(h->d_b, 0, j) += MAT(d_inner, i, j);
    mat_free(&x), mat_free(&w), mat_free(&last), mat_free(&dy), mat_free(&inner), mat_free(&act);
    mat_free(&d_act), mat_free(&d_inner);
}

static struct half half_make(enum kind kind, int64_t S)
{
    struct half h = {.kind = kind, .S = S, .bias = kind != MLP_GLU, .causal = S % 2};
    h.n = kind == ATTENTION ? (H + 2 * HK) * D : kind == MLP_GLU ? 2 * I : I;
    h.m = kind == ATTENTION ? H * D : I;
    h.x = noise(S * C, 2), h.dy = noise(S * C, 2), h.first = noise(h.n * C, 1);
    h.b = noise(h.n, 1), h.last = noise(C * h.m, 1);
    h.lo = malloc((size_t)S * 8), h.hi = malloc((size_t)S * 8);
    if (!h.lo || !h.hi) abort();
    for (int64_t i = 0; i < S; i++) { /* two documents */
        h.lo[i] = i < S / 3 ? 0 : S / 3;
        h.hi[i] = h.causal ? i + 1 : i < S / 3 ? S / 3 : S;
    }
    truth(&h);
    return h;
}

static void half_free(struct half *h)
{
    free(h->x), free(h->dy), free(h->first), free(h->b), free(h->last), free(h->lo), free(h->hi);
    mat_free(&h->y), mat_free(&h->dx), mat_free(&h->d_first), mat_free(&h->d_b);
    mat_free(&h->d_last);
}

/* ---- a run ----------------------------------------------------------------------------------- */

struct run {
    const struct half *h;
    const struct mode *m;
    double worst_y[MAX_P], worst_grad[MAX_P];
};

/* Returns the index that row i of rank r's slice has in the complete first matrix. */
static int64_t whole_row(const struct half *h, int P, int r, int64_t i)
{
    const int64_t nq = H * D / P, nk = HK * D / P, half = I / P;
    if (h->kind == MLP_GELU) return r * half + i;
    if (h->kind == MLP_GLU) return i < half ? r * half + i : I + r * half + i - half;
    if (i < nq) return r * nq + i;
    return i < nq + nk ? H * D + r * nk + i - nq : (H + HK) * D + r * nk + i - nq - nk;
}

struct slices { /* the tensors of one rank */
    float *first, *b, *last, *d_first, *d_b, *d_last, *whole, *inner, *act, *part, *d_act, *d_inner;
    float *lse, *m, *delta, *x, *y, *dy, *dx;
};

static float *poison(int64_t n)
{
    float *x = malloc((size_t)n * 4);
    if (!x) abort();
    memset(x, 0xff, (size_t)n * 4);
    return x;
}

static void slices_make(struct slices *s, const struct half *h, const struct mode *m, int r)
{
    const int64_t n = h->n / m->P, k = h->m / m->P, S = h->S;
    s->first = poison(n * C), s->b = poison(n), s->last = poison(C * k);
    s->d_first = calloc((size_t)(n * C), 4), s->d_b = calloc((size_t)n, 4);
    s->d_last = calloc((size_t)(C * k), 4);
    s->whole = poison(S * C), s->inner = poison(S * n), s->act = poison(S * k);
    s->part = poison(S * C), s->d_act = poison(S * k), s->d_inner = poison(S * n);
    s->lse = poison(H * S), s->m = poison(H * S), s->delta = poison(H * S);
    s->y = poison(S * C), s->dx = poison(S * C);
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = whole_row(h, m->P, r, i);
        memcpy(s->first + i * C, h->first + at * C, C * 4);
        s->b[i] = h->b[at];
    }
    for (int64_t i = 0; i < C; i++)
        memcpy(s->last + i * k, h->last + i * h->m + r * k, (size_t)k * 4);
}

static void slices_free(struct slices *s)
{
    float **all = (float **)s;
    for (size_t i = 0; i < sizeof *s / sizeof *all - 4; i++) free(all[i]);
    free(s->y), free(s->dx); /* x and dy belong to the problem */
}

static double error_of(const float *x, struct mat want, int64_t row0, int64_t rows)
{
    double diff = 0, norm = 0;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < want.cols; j++) {
            const double w = MAT(want, row0 + i, j), d = x[i * want.cols + j] - w;
            diff += d * d;
            norm += w * w;
        }
    return rows ? sqrt(diff / norm) : 0;
}

/* Compares the gradients of a rank's slices with the corresponding rows and columns of the
 * complete gradients. */
static double slice_error(const struct half *h, const struct mode *m, int r, const struct slices *s)
{
    const int64_t n = h->n / m->P, k = h->m / m->P;
    double diff = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = whole_row(h, m->P, r, i);
        for (int64_t j = 0; j < C; j++) {
            diff += pow(s->d_first[i * C + j] - MAT(h->d_first, at, j), 2);
            norm += pow(MAT(h->d_first, at, j), 2);
        }
        if (h->bias) diff += pow(s->d_b[i] - MAT(h->d_b, 0, at), 2);
    }
    const double first = sqrt(diff / norm);
    diff = norm = 0;
    for (int64_t i = 0; i < C; i++)
        for (int64_t j = 0; j < k; j++) {
            diff += pow(s->d_last[i * k + j] - MAT(h->d_last, i, r * k + j), 2);
            norm += pow(MAT(h->d_last, i, r * k + j), 2);
        }
    return fmax(first, sqrt(diff / norm));
}

static int both_ways(struct tensor_group *g, const struct half *h, const struct slices *s,
                     struct err *e)
{
    const int64_t n = h->n / g->P, k = h->m / g->P;
    const int64_t r0 = g->sp ? tensor_row(g, g->r) : 0;
    const int64_t rows = g->sp ? tensor_row(g, g->r + 1) - r0 : g->S;
    const struct tensor x = tensor_f32(h->x + r0 * C, rows, C, C), y = tensor_f32(s->y, rows, C, C);
    const struct tensor dy = tensor_f32(h->dy + r0 * C, rows, C, C);
    const struct tensor dx = tensor_f32(s->dx, rows, C, C);
    struct tensor_half half = {.first = tensor_f32(s->first, n, C, C),
                               .last = tensor_f32(s->last, C, k, k),
                               .d_first = s->d_first,
                               .d_bias = s->d_b,
                               .d_last = s->d_last,
                               .whole = s->whole,
                               .inner = s->inner,
                               .act = s->act,
                               .part = s->part,
                               .d_act = s->d_act,
                               .d_inner = s->d_inner};
    if (h->bias) half.bias = tensor_f32(s->b, 1, n, n);
    const struct tensor_mlp mlp = {half, h->kind == MLP_GLU};
    const struct tensor_attention a = {.half = half,
                                       .n_heads = H / g->P,
                                       .n_kv_heads = HK / g->P,
                                       .head_dim = D,
                                       .scale = (float)(1 / sqrt((double)D)),
                                       .lo = h->lo,
                                       .hi = h->hi,
                                       .lse = s->lse,
                                       .m = s->m,
                                       .delta = s->delta};
    if (h->kind == ATTENTION)
        return tensor_attention_fwd(g, &a, x, y, e) || tensor_attention_bwd(g, &a, x, dy, dx, e);
    if (tensor_mlp_fwd(g, &mlp, x, y, e)) return -1;
    if (g->again) memset(s->whole, 0xff, (size_t)(g->S * C) * 4); /* forward must not keep it */
    return tensor_mlp_bwd(g, &mlp, x, dy, dx, e);
}

static void body(struct ranks *ranks, int rank, void *arg)
{
    struct run *x = arg;
    const struct half *h = x->h;
    struct err e = {0};
    struct slices s;
    struct tensor_group g = {
        .be = be_open(&(struct be_options){.device = "cpu", .n_threads = 1}, &e),
        .comm = ranks->comm[rank],
        .P = x->m->P,
        .r = rank,
        .sp = x->m->sp,
        .again = x->m->again,
        .S = h->S,
        .C = C,
        .bounce = comm_segment(ranks->comm[rank])};
    if (!g.be) abort();
    slices_make(&s, h, x->m, rank);
    if (both_ways(&g, h, &s, &e)) {
        ranks_fail(ranks, rank, &e);
    } else {
        const int64_t r0 = g.sp ? tensor_row(&g, rank) : 0;
        const int64_t n = g.sp ? tensor_row(&g, rank + 1) - r0 : h->S;
        x->worst_y[rank] = error_of(s.y, h->y, r0, n);
        x->worst_grad[rank] = fmax(error_of(s.dx, h->dx, r0, n), slice_error(h, x->m, rank, &s));
    }
    slices_free(&s);
    be_close(g.be);
}

static void check(const struct half *h, const struct mode *m)
{
    struct run x = {.h = h, .m = m};
    struct ranks g;
    ranks_open(&g, m->P, volume_bounce_size(m->P) + 4096,
               &(struct comm_options){.delay_seed = ++seed, .delay_max_us = 50});
    ranks_run(&g, body, &x);
    ranks_check(&g);
    for (int r = 0; r < m->P; r++) {
        struct err e;
        struct comm_count want[PURPOSE_N] = {0};
        volume_add(&want[PURPOSE_TENSOR], volume_tensor(m->P, r, h->S, C, false), 1);
        volume_add(&want[PURPOSE_TENSOR], volume_tensor(m->P, r, h->S, C, m->again), 1);
        CHECK_MSG(!ledger_check(comm_ledger(g.comm[r]), want, &e), "P %d rank %d: %s", m->P, r,
                  e.text);
        CHECK_MSG(x.worst_y[r] <= 2e-6 && x.worst_grad[r] <= 5e-6,
                  "kind %d S %lld P %d sp %d again %d rank %d: y %.2e gradients %.2e", h->kind,
                  (long long)h->S, m->P, m->sp, m->again, r, x.worst_y[r], x.worst_grad[r]);
    }
    ranks_close(&g);
}

static void each(int64_t S)
{
    for (int kind = 0; kind < KIND_N; kind++) {
        struct half h = half_make((enum kind)kind, S);
        for (int P = 1; P <= MAX_P; P *= 2) {
            check(&h, &(struct mode){P, false, false});
            check(&h, &(struct mode){P, true, false});
            check(&h, &(struct mode){P, true, P > 1});
        }
        half_free(&h);
    }
}

static void test_short(void)
{
    each(3); /* fewer rows than there are ranks */
    each(8);
}

static void test_37(void)
{
    each(37);
}

static void test_129(void)
{
    each(128);
    each(129);
}

/* Checks the published volumes of a block of two halves. They are 4 (P-1) T C in each direction.
 * If inputs are gathered again, backward has 6 (P-1) T C. */
static void test_published_volumes(void)
{
    for (int P = 1; P <= 8; P++) {
        const int64_t T = 64, width = 1024, unit = (P - 1) * T * width * 4;
        for (int r = 0; r < P; r++) {
            const struct comm_count half = volume_tensor(P, r, P * T, width, false);
            const struct comm_count again = volume_tensor(P, r, P * T, width, true);
            CHECK(2 * half.bytes_sent == 4 * unit && 2 * half.bytes_received == 4 * unit);
            CHECK(2 * again.bytes_sent == 6 * unit);
        }
    }
}

int main(void)
{
    RUN(test_short);
    RUN(test_37);
    RUN(test_129);
    RUN(test_published_volumes);
    return test_done("tensor");
}
