/* kern_quant.h: checks products and tables whose weights are stored in blocks, as a part of
 * check_kernels. The results must have the same bits as products with the values that the blocks
 * encode. Products of pairs of bf16 with a weight [N, K] are an exception: they multiply codes, so
 * they are compared with a sum in fp64. */
#ifndef SEQD_TESTS_KERN_QUANT_H
#define SEQD_TESTS_KERN_QUANT_H

#include "kernels/half.h"
#include "kernels/quant.h"
#include "tests/lib/kern.h"

/* A matrix in blocks, and a plain matrix with the values that products use for it. */
struct quant_pair {
    struct tensor blocks, plain;
    void *room, *values;
};

/* Makes a pair. `plain` is the type of the plain matrix; the values are rounded to this type. */
static inline struct quant_pair quant_pair_new(enum dtype t, enum dtype plain, int64_t rows,
                                               int64_t cols, int seed)
{
    struct quant_pair p = {0};
    const int64_t n = rows * cols;
    float *x = malloc((size_t)n * sizeof *x);
    if (!x) abort();
    p.room = twin_new(quant_size(dtype_format(t), rows, cols));
    p.values = twin_new(n * dtype_size(plain));
    /* fills the memory with NaN, which remains after the last row */
    memset(p.room, 0xff, (size_t)quant_size(dtype_format(t), rows, cols));
    uint64_t state = (uint64_t)seed;
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)((int64_t)(box_rand(&state) >> 44) - 524288) * 0x1p-20f;
    p.blocks = tensor_of(t, p.room, rows, cols, cols);
    quant_put(p.blocks, 0, n, x);
    quant_get(p.blocks, 0, n, x);
    p.plain = tensor_of(plain, p.values, rows, cols, cols);
    if (plain == DT_F32)
        memcpy(p.values, x, (size_t)n * sizeof *x);
    else
        half_narrow(plain, x, p.values, n);
    free(x);
    return p;
}

static inline void quant_pair_free(struct quant_pair *p)
{
    twin_free(p->room), twin_free(p->values);
}

/* Tells whether products with a weight [N, K] in blocks multiply codes instead of values. */
static inline bool of_codes(void)
{
    return act == DT_BF16 && (!strcmp(be->isa, "avx512bf16") || !strcmp(be->isa, "neonbf16") ||
                              !strcmp(be->isa, "amx"));
}

/* Tells whether products round the values of blocks to the type act. Gradients of pairs do this,
 * and so do tensor cores. */
static inline bool of_pairs(void)
{
    return be->own_memory ? act != DT_F32 : of_codes() && strcmp(be->isa, "amx");
}

/* Returns the activations in the form that the plain product accepts: unchanged, or converted to
 * floats. */
static inline struct box widened(struct box a, enum dtype plain)
{
    struct box w = box_new_as(plain, a.t.rows, a.t.cols, 1);
    CALL(be, cast, &(struct cast_args){.dst = w.t, .src = a.t});
    return w;
}

struct quant_shape {
    int64_t M, N, K;
};

/* Checks products that compute a part of c. The bits must be those of c with another number of
 * threads, and if only some of the rows are computed. */
static inline void check_quant_parts(struct gemm_args args, struct box old, struct box c)
{
    const int64_t r0 = c.t.rows / 3, n = (c.t.rows - r0 + 1) / 2;
    struct box again = box_copy(old, 1), part = box_new_as(c.t.dtype, n, c.t.cols, 1);
    args.c = again.t;
    CALL(be_other, gemm, &args);
    CHECK(box_same_bits(again, c, 0));
    for (int64_t i = 0; i < n; i++)
        memcpy(box_ptr(part, i, 0), box_ptr(old, r0 + i, 0),
               (size_t)(c.t.cols * dtype_size(c.t.dtype)));
    args.c = part.t;
    args.a = tensor_sub(args.a, r0, n, 0, args.a.cols);
    CALL(be, gemm, &args);
    CHECK(box_same_bits(part, c, r0));
    box_free(&again), box_free(&part);
}

static inline double quant_at(struct box b, int64_t i, int64_t j)
{
    return b.t.dtype == DT_F32 ? *box_at(b, i, j) : bf16_value(*(uint16_t *)box_ptr(b, i, j));
}

/* Compares c = (old +) a w' (+ bias) with fp64. An element may differ by the rounding of c, and by
 * 2^-20 of the sum of |a| times the largest |w|, because exact terms are summed in fp32. If the
 * weight is rounded to bf16, this changes it by up to 2^-9 of its value. */
static inline void check_quant_sums(struct box a, struct quant_pair w, const struct box *old,
                                    const struct box *bias, struct box c)
{
    const float *const values = w.values;
    const int64_t K = a.t.cols;
    double largest = 0;
    int64_t n_bad = 0;
    for (int64_t i = 0; i < c.t.cols * K; i++) largest = fmax(largest, fabs((double)values[i]));
    for (int64_t m = 0; m < c.t.rows; m++)
        for (int64_t n = 0; n < c.t.cols; n++) {
            double sum = old ? quant_at(*old, m, n) : 0, size = fabs(sum);
            for (int64_t k = 0; k < K; k++) {
                sum += quant_at(a, m, k) * values[n * K + k];
                size += fabs(quant_at(a, m, k)) * largest;
            }
            const double more = bias ? quant_at(*bias, 0, n) : 0;
            const double unit = c.t.dtype == DT_F32 ? ULP : 0x1p-8;
            const double most = size * 0x1p-20 + unit * (fabs(sum) + fabs(sum + more));
            n_bad += !(fabs(quant_at(c, m, n) - sum - more) <= most);
        }
    CHECK_MSG(n_bad == 0, "%s %lld x %lld x %lld: %lld elements", be->isa, (long long)c.t.rows,
              (long long)c.t.cols, (long long)K, (long long)n_bad);
}

/* Checks one product. If back is set, the product is a [M, N] times w [N, K], as in a gradient. If
 * not, it is a [M, K] times w'. */
static inline void check_quant_product(struct quant_shape s, enum dtype t, enum dtype out,
                                       bool back, bool add)
{
    const bool codes = of_codes() && !back;
    const enum dtype plain = of_pairs() && !codes ? act : DT_F32;
    struct quant_pair w = quant_pair_new(t, plain, s.N, s.K, 7);
    struct box a = box_new_as(act, s.M, back ? s.N : s.K, s.M > 100 ? 8 : 3);
    struct box c = box_new_as(out, s.M, back ? s.K : s.N, 2),
               bias = box_new_as(out, 1, c.t.cols, 0);
    box_random(a, 1, 1), box_random(c, 2, 1), box_random(bias, 3, 1);
    struct box want = box_copy(c, 1), old = box_copy(c, 1), wide = widened(a, plain);
    struct gemm_args args = {
        .a = a.t, .b = w.blocks, .c = c.t, .trans_b = !back, .accumulate = add};
    if (add) args.bias = bias.t;
    CALL(be, gemm, &args);
    CHECK(box_intact(c));
    check_quant_parts(args, old, c);
    if (codes) check_quant_sums(a, w, add ? &old : NULL, add ? &bias : NULL, c);
    args.a = wide.t, args.b = w.plain, args.c = want.t;
    CALL(be, gemm, &args);
    CHECK_MSG(codes || box_same_bits(want, c, 0), "%s %lld x %lld x %lld, dtypes %d %d %d, back %d",
              be->isa, (long long)s.M, (long long)s.N, (long long)s.K, t, act, out, back);
    box_free(&a), box_free(&c), box_free(&bias), box_free(&want), box_free(&old), box_free(&wide);
    quant_pair_free(&w);
}

static inline void check_quant_products(void)
{
    /* Together, the shapes have these properties. N is a part of a panel, one panel, or several
     * panels. A product of one or two rows processes several panels at a time, and N has one or
     * several such groups of panels. In some shapes, M exceeds the limit for products of few rows.
     * K has several blocks, which are 384 words or 768 codes. There are several tiles of 128, and
     * rows that consist of whole packs. */
    static const struct quant_shape shapes[] = {{1, 1, 32},     {1, 16, 64},    {1, 300, 416},
                                                {2, 129, 800},  {2, 65, 32},    {3, 40, 384},
                                                {5, 33, 1600},  {16, 50, 96},   {17, 31, 448},
                                                {40, 130, 800}, {90, 16, 1568}, {300, 152, 160}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int f = 0; f < 16; f++) {
            const enum dtype out = f & 4 ? DT_F32 : act;
            if (act == DT_F16 && f & 1) continue; /* no test trains with it */
            if (quick && (i + (size_t)f) % 3) continue;
            check_quant_product(shapes[i], f & 8 ? DT_INT4 : DT_INT8, out, f & 1, f & 2);
        }
}

static inline void check_quant_table(void)
{
    const int64_t V = 37, C = 96, first = 5;
    static const int32_t of[] = {5, 41, 20, 4, 42, 21, 5};
    const int n = sizeof of / sizeof *of;
    int32_t *const ids = ARRAY(int32_t, n);
    memcpy(ids, of, sizeof of);
    for (int f = 0; f < 2; f++) {
        struct quant_pair w = quant_pair_new(f ? DT_INT4 : DT_INT8, act, V, C, 9);
        struct box x = box_new_as(act, n, C, 2), want = box_new_as(act, n, C, 2);
        struct embed_fwd_args args = {.table = w.blocks, .x = x.t, .ids = ids, .first = first};
        CALL(be, embed_fwd, &args);
        args.table = w.plain, args.x = want.t;
        CALL(be, embed_fwd, &args);
        CHECK_MSG(box_intact(x) && box_same_bits(x, want, 0), "%s, dtype %d", be->isa, act);
        box_free(&x), box_free(&want);
        quant_pair_free(&w);
    }
}

static inline void check_quant(void)
{
    check_quant_products();
    check_quant_table();
}

#endif
