/* test_product_pieces: checks products with more rows and columns than one thread packs at a time.
 * Also checks a backward pass with more KV heads than fit into the columns of one run. Each case
 * is computed in one call, and in several calls whose parts are each within one piece. The bits
 * must be the same. */
#include <math.h>
#include <stdlib.h>
#include "kernels/backend.h"
#include "kernels/half.h"
#include "tests/lib/test.h"

static struct be *be;

static double next(uint32_t *x)
{
    *x = *x * 1664525u + 1013904223u;
    return (double)(*x >> 8) / (1 << 23) - 1;
}

static struct tensor filled(enum dtype type, int64_t rows, int64_t cols, uint32_t seed)
{
    const int64_t n = rows * cols;
    float *x = aligned_alloc(64, (size_t)(n * 4 + 63) / 64 * 64);
    if (!x) abort();
    for (int64_t i = 0; i < n; i++) {
        const float v = (float)next(&seed);
        if (type == DT_F32)
            x[i] = v;
        else
            ((uint16_t *)x)[i] = half_round(type, v);
    }
    return tensor_of(type, x, rows, cols, cols);
}

static bool same_bits(struct tensor a, struct tensor b)
{
    return !memcmp(a.data, b.data, (size_t)(a.rows * a.cols * dtype_size(a.dtype)));
}

/* ---- products -------------------------------------------------------------------------------- */

struct product {
    int64_t M, N, K;
    enum dtype out;
};

/* In 16-bit types, a thread packs at most 864 columns and 512 rows, and sums have several blocks
 * of K. In fp32 it packs 2,048 columns. All products have more than 16 rows, so they do not use
 * the kernels for few rows. */
static const struct product products[] = {
    {20, 1800, 1300, DT_BF16}, {1100, 20, 1300, DT_BF16}, {530, 900, 780, DT_F16},
    {70, 4200, 24, DT_F32},    {1100, 33, 400, DT_F32},
};

/* Computes the product in bands of 128 rows and 256 columns. */
static void in_bands(const struct gemm_args *a)
{
    const int64_t K = a->a.cols;
    for (int64_t i = 0; i < a->c.rows; i += 128)
        for (int64_t j = 0; j < a->c.cols; j += 256) {
            const int64_t m = a->c.rows - i < 128 ? a->c.rows - i : 128;
            const int64_t n = a->c.cols - j < 256 ? a->c.cols - j : 256;
            const struct gemm_args band = {.a = tensor_sub(a->a, i, m, 0, K),
                                           .b = tensor_sub(a->b, j, n, 0, K),
                                           .c = tensor_sub(a->c, i, m, j, n),
                                           .trans_b = true,
                                           .accumulate = a->accumulate};
            be->ops->gemm(be, &band);
        }
}

static void check_product(const struct product *p, bool accumulate)
{
    const enum dtype in = p->out;
    const struct tensor a = filled(in, p->M, p->K, 1), b = filled(in, p->N, p->K, 2);
    const struct tensor whole = filled(p->out, p->M, p->N, 3),
                        bands = filled(p->out, p->M, p->N, 3);
    struct gemm_args g = {.a = a, .b = b, .c = whole, .trans_b = true, .accumulate = accumulate};
    be->ops->gemm(be, &g);
    g.c = bands;
    in_bands(&g);
    CHECK_MSG(same_bits(whole, bands), "%s, %d threads: %lld x %lld x %lld, dtype %d", be->isa,
              be->n_threads, (long long)p->M, (long long)p->N, (long long)p->K, p->out);
    free(a.data), free(b.data), free(whole.data), free(bands.data);
}

/* ---- attention ------------------------------------------------------------------------------- */

enum { HEADS = 600, PART = 100, D = 2, ROWS = 9, LD = 16 }; /* a run has 256 columns */

static float lse[HEADS * LD], delta[HEADS * LD];

/* Copies columns [from, from + n) of x. If `values` is set, it also copies columns [from, from +
 * n) of the second half of x, which holds the values. */
static struct tensor part_of(struct tensor x, int64_t from, int64_t n, bool values)
{
    const int64_t unit = dtype_size(x.dtype), halves = values ? 2 : 1, half = x.cols / halves;
    struct tensor y = filled(x.dtype, x.rows, halves * n, 0);
    for (int64_t r = 0; r < x.rows; r++)
        for (int64_t k = 0; k < halves; k++)
            memcpy((char *)y.data + (r * y.ld + k * n) * unit,
                   (char *)x.data + (r * x.ld + k * half + from) * unit, (size_t)(n * unit));
    return y;
}

static void backward(struct tensor q, struct tensor kv, struct tensor d_o, struct tensor dq,
                     struct tensor dkv, int64_t head, int64_t n_heads)
{
    int64_t lo[ROWS], hi[ROWS];
    for (int i = 0; i < ROWS; i++) lo[i] = i / 5 * 3, hi[i] = i + 1;
    be->ops->attn_bwd(be, &(struct attn_bwd_args){.q = q,
                                                  .kv = kv,
                                                  .d_o = d_o,
                                                  .dq = dq,
                                                  .dkv = dkv,
                                                  .lse = lse + head * LD,
                                                  .delta = delta + head * LD,
                                                  .ml_ld = LD,
                                                  .lo = lo,
                                                  .hi = hi,
                                                  .n_heads = n_heads,
                                                  .n_kv_heads = n_heads,
                                                  .head_dim = D,
                                                  .scale = 0.7f});
}

static void check_heads(enum dtype type)
{
    const struct tensor q = filled(type, ROWS, HEADS * D, 1);
    const struct tensor kv = filled(type, ROWS, 2 * HEADS * D, 2);
    const struct tensor d_o = filled(type, ROWS, HEADS * D, 3);
    const struct tensor dq = filled(DT_F32, ROWS, HEADS * D, 4);
    const struct tensor dkv = filled(DT_F32, ROWS, 2 * HEADS * D, 5);
    struct tensor want_dq[HEADS / PART], want_dkv[HEADS / PART];
    for (int g = 0; g < HEADS / PART; g++) {
        const int64_t at = (int64_t)g * PART * D, n = PART * D;
        struct tensor x[3] = {part_of(q, at, n, false), part_of(kv, at, n, true),
                              part_of(d_o, at, n, false)};
        want_dq[g] = part_of(dq, at, n, false), want_dkv[g] = part_of(dkv, at, n, true);
        backward(x[0], x[1], x[2], want_dq[g], want_dkv[g], (int64_t)g * PART, PART);
        for (int i = 0; i < 3; i++) free(x[i].data);
    }
    backward(q, kv, d_o, dq, dkv, 0, HEADS);
    for (int g = 0; g < HEADS / PART; g++) {
        const int64_t at = (int64_t)g * PART * D, n = PART * D;
        const struct tensor a = part_of(dq, at, n, false), b = part_of(dkv, at, n, true);
        CHECK_MSG(same_bits(a, want_dq[g]) && same_bits(b, want_dkv[g]),
                  "%s, %d threads, dtype %d: heads from %d on", be->isa, be->n_threads, type,
                  g * PART);
        free(a.data), free(b.data), free(want_dq[g].data), free(want_dkv[g].data);
    }
    free(q.data), free(kv.data), free(d_o.data), free(dq.data), free(dkv.data);
}

/* ---- instruction sets ------------------------------------------------------------------------ */

static void with_each(void (*check)(void))
{
    for (const char *const *isa = be_isas(); *isa; isa++)
        for (int n_threads = 1; n_threads <= 2; n_threads++) {
            struct err e = {0};
            be = be_open(&(struct be_options){.device = "cpu", .isa = *isa, .n_threads = n_threads},
                         &e);
            CHECK_MSG(be, "%s", e.text);
            if (be) check();
            be_close(be);
        }
}

static void products_of(void)
{
    for (size_t i = 0; i < sizeof products / sizeof *products; i++)
        check_product(&products[i], i % 2 != (size_t)be->n_threads % 2);
}

static void test_products(void)
{
    with_each(products_of);
}

static void heads_of(void)
{
    uint32_t seed = 9;
    for (int i = 0; i < HEADS * LD; i++) {
        lse[i] = (float)(1 + next(&seed));
        delta[i] = (float)next(&seed);
    }
    check_heads(DT_F32);
    check_heads(DT_BF16);
}

static void test_heads(void)
{
    with_each(heads_of);
}

int main(void)
{
    RUN(test_products);
    RUN(test_heads);
    return test_done("product_pieces");
}
