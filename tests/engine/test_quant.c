/* test_quant: weights in blocks. Codes and scales are those of llama.cpp's reference, element by
 * element; products with them have the bits of products with the values that they stand for, on
 * every instruction set, for any number of rows, columns and threads, both ways round; rows of a
 * table are its values.
 * tests: needs golden/quant.bin */
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "kernels/half.h"
#include "kernels/quant.h"
#include "tests/lib/box.h"
#include "tests/lib/test.h"

enum { BLOCK = 128 + 34 + 20, BLOCKS = 64 };

static uint8_t golden[BLOCKS][BLOCK];
static int n_blocks;

static void read_golden(void)
{
    const int fd = open("tests/golden/quant.bin", O_RDONLY);
    const ssize_t n = fd < 0 ? -1 : read(fd, golden, sizeof golden);
    CHECK(n > 0 && n % (16 * BLOCK) == 0);
    n_blocks = n > 0 ? (int)(n / BLOCK) : 0;
    close(fd);
}

static uint16_t half_at(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

/* The value of a half, from its definition. */
static double half_of(uint16_t h)
{
    const int e = h >> 10 & 31, m = h & 1023;
    const double x = e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
    return h >> 15 ? -x : x;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* Quantises the golden blocks as a matrix of two blocks a row. */
static struct tensor of_golden(enum dtype t, char *room)
{
    const struct tensor w = tensor_of(t, room, n_blocks / 2, 2 * QUANT_K, 2 * QUANT_K);
    for (int i = 0; i < n_blocks; i++) {
        float x[QUANT_K];
        memcpy(x, golden[i], sizeof x);
        quant_put(w, (int64_t)i * QUANT_K, QUANT_K, x);
    }
    return w;
}

/* Returns the address of block i of the golden by api/core/quant.h, written out once more. */
static const uint8_t *panel_block(const char *room, int i, int size)
{
    const int row = i / 2, block = i % 2;
    return (const uint8_t *)room + (row / 16 * 2 + block) * size;
}

static void test_int8(void)
{
    static char room[BLOCKS * 34 + 4096];
    const struct tensor w = of_golden(DT_INT8, room);
    CHECK(quant_size(WEIGHTS_INT8, w.rows, w.cols) == n_blocks * 34);
    for (int i = 0; i < n_blocks; i++) {
        const uint8_t *want = golden[i] + 128, *got = panel_block(room, i, 544);
        const int r = i / 2 % 16;
        float back[QUANT_K];
        quant_get(w, (int64_t)i * QUANT_K, QUANT_K, back);
        CHECK_MSG(half_at(got + 2 * r) == half_at(want), "block %d", i);
        for (int k = 0; k < QUANT_K; k++) {
            CHECK_MSG(got[32 + 16 * k + r] == want[2 + k], "block %d, %d", i, k);
            CHECK(back[k] == half_of(half_at(want)) * (int8_t)want[2 + k]);
        }
    }
}

static void test_int4(void)
{
    static char room[BLOCKS * 20 + 4096];
    const struct tensor w = of_golden(DT_INT4, room);
    CHECK(quant_size(WEIGHTS_INT4, w.rows, w.cols) == n_blocks * 20);
    for (int i = 0; i < n_blocks; i++) {
        const uint8_t *want = golden[i] + 128 + 34, *got = panel_block(room, i, 320);
        const int r = i / 2 % 16;
        float back[QUANT_K];
        quant_get(w, (int64_t)i * QUANT_K, QUANT_K, back);
        CHECK_MSG(half_at(got + 2 * r) == half_at(want), "block %d", i);
        CHECK_MSG(half_at(got + 32 + 2 * r) == half_at(want + 2), "block %d", i);
        for (int k = 0; k < QUANT_K; k++) {
            const int two = got[64 + 16 * (k / 2) + r], code = k % 2 ? two >> 4 : two & 15;
            const int there = k < 16 ? want[4 + k] & 15 : want[4 + k - 16] >> 4;
            CHECK_MSG(code == there, "block %d, %d: %d, not %d", i, k, code, there);
            const double value = half_of(half_at(want)) * there + half_of(half_at(want + 2));
            CHECK(back[k] == (float)value);
        }
    }
}

/* An element that is not finite shows in its block, and in no other. */
static void test_not_finite(void)
{
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int t = 0; t < 2; t++)
        for (int i = 0; i < 3; i++)
            for (int at = 0; at < QUANT_K; at += 31) {
                char room[QUANT_INT8 * 2];
                float x[2 * QUANT_K], back[2 * QUANT_K];
                const struct tensor w = tensor_of(t ? DT_INT4 : DT_INT8, room, 1, 64, 64);
                for (int k = 0; k < 2 * QUANT_K; k++) x[k] = (float)k / 32;
                quant_put(w, 0, 2 * QUANT_K, x);
                CHECK(!quant_holds_nan(w));
                x[QUANT_K + at] = bad[i];
                quant_put(w, 0, 2 * QUANT_K, x);
                CHECK(quant_holds_nan(w));
                quant_get(w, 0, 2 * QUANT_K, back);
                for (int k = 0; k < QUANT_K; k++) CHECK(isfinite(back[k]));
                CHECK(!isfinite(back[QUANT_K + at]));
            }
}

/* ---- products -------------------------------------------------------------------------------- */

/* A matrix in blocks, and a plain one of the values that products take. */
struct pair {
    struct tensor blocks, plain;
    void *room, *values;
};

/* bits: the plain one has the type of the activations, as where pairs of bf16 are multiplied. */
static struct pair pair_new(enum dtype t, enum dtype plain, int64_t rows, int64_t cols, int seed)
{
    struct pair p = {0};
    const int64_t n = rows * cols;
    float *x = malloc((size_t)n * sizeof *x);
    p.room = calloc(1, (size_t)quant_size(dtype_format(t), rows, cols));
    p.values = malloc((size_t)n * sizeof *x);
    if (!x || !p.room || !p.values) abort();
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

static void pair_free(struct pair *p)
{
    free(p->room), free(p->values);
}

static struct be *be, *be_other;

/* Tells whether products of act and blocks are of pairs of bf16. */
static bool of_pairs(enum dtype act)
{
    return act == DT_BF16 && (!strcmp(be->isa, "avx512bf16") || !strcmp(be->isa, "neonbf16"));
}

/* The activations as the plain product takes them: as they are, or as floats. */
static struct box widened(struct box a, enum dtype plain)
{
    struct box w = box_new_as(plain, a.t.rows, a.t.cols, 1);
    be->ops->cast(be, &(struct cast_args){.dst = w.t, .src = a.t});
    return w;
}

struct shape {
    int64_t M, N, K;
};

/* c of the whole product equals that of other threads and that of some rows alone. */
static void check_parts(struct gemm_args args, struct box old, struct box c)
{
    const int64_t r0 = c.t.rows / 3, n = (c.t.rows - r0 + 1) / 2;
    struct box again = box_copy(old, 1), part = box_new_as(c.t.dtype, n, c.t.cols, 1);
    args.c = again.t;
    be_other->ops->gemm(be_other, &args);
    CHECK(box_same_bits(again, c, 0));
    for (int64_t i = 0; i < n; i++)
        memcpy(box_ptr(part, i, 0), box_ptr(old, r0 + i, 0),
               (size_t)(c.t.cols * dtype_size(c.t.dtype)));
    args.c = part.t;
    args.a = tensor_sub(args.a, r0, n, 0, args.a.cols);
    be->ops->gemm(be, &args);
    CHECK(box_same_bits(part, c, r0));
    box_free(&again), box_free(&part);
}

/* back: a [M, N] times w [N, K], as a gradient; else a [M, K] times w'. */
static void check_product(struct shape s, enum dtype t, enum dtype act, enum dtype out, bool back,
                          bool add)
{
    const enum dtype plain = of_pairs(act) ? act : DT_F32;
    struct pair w = pair_new(t, plain, s.N, s.K, 7);
    struct box a = box_new_as(act, s.M, back ? s.N : s.K, 3);
    struct box c = box_new_as(out, s.M, back ? s.K : s.N, 2),
               bias = box_new_as(out, 1, c.t.cols, 0);
    box_random(a, 1, 1), box_random(c, 2, 1), box_random(bias, 3, 1);
    struct box want = box_copy(c, 1), old = box_copy(c, 1), wide = widened(a, plain);
    struct gemm_args args = {
        .a = a.t, .b = w.blocks, .c = c.t, .trans_b = !back, .accumulate = add};
    if (add) args.bias = bias.t;
    be->ops->gemm(be, &args);
    CHECK(box_intact(c));
    check_parts(args, old, c);
    args.a = wide.t, args.b = w.plain, args.c = want.t;
    be->ops->gemm(be, &args);
    CHECK_MSG(box_same_bits(want, c, 0), "%s %lld x %lld x %lld, dtypes %d %d %d, back %d", be->isa,
              (long long)s.M, (long long)s.N, (long long)s.K, t, act, out, back);
    box_free(&a), box_free(&c), box_free(&bias), box_free(&want), box_free(&old), box_free(&wide);
    pair_free(&w);
}

static void check_products(void)
{
    /* one panel, parts of panels, one to several of what one and two rows take at a time, more rows
     * than a product of few, and blocks of K: 384 words, or 768 values in pairs */
    static const struct shape shapes[] = {
        {1, 1, 32},    {1, 16, 64},  {1, 300, 416}, {2, 129, 800},  {2, 65, 32},   {3, 40, 384},
        {5, 33, 1600}, {16, 50, 96}, {17, 31, 448}, {40, 130, 800}, {90, 16, 1568}};
    static const enum dtype acts[] = {DT_F32, DT_BF16, DT_F16};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int f = 0; f < 24; f++) {
            const enum dtype act = acts[f % 3], t = f & 8 ? DT_INT4 : DT_INT8;
            const bool back = f & 1 && act != DT_F16;
            check_product(shapes[i], t, act, f & 4 ? DT_F32 : act, back, f & 2);
        }
}

static void check_table(void)
{
    const int64_t V = 37, C = 96, first = 5;
    const int32_t ids[] = {5, 41, 20, 4, 42, 21, 5};
    const int n = sizeof ids / sizeof *ids;
    for (int f = 0; f < 6; f++) {
        static const enum dtype acts[] = {DT_F32, DT_BF16, DT_F16};
        const enum dtype act = acts[f % 3];
        struct pair w = pair_new(f < 3 ? DT_INT8 : DT_INT4, act, V, C, 9);
        struct box x = box_new_as(act, n, C, 2), want = box_new_as(act, n, C, 2);
        struct embed_fwd_args args = {.table = w.blocks, .x = x.t, .ids = ids, .first = first};
        be->ops->embed_fwd(be, &args);
        args.table = w.plain, args.x = want.t;
        be->ops->embed_fwd(be, &args);
        CHECK_MSG(box_intact(x) && box_same_bits(x, want, 0), "%s, dtype %d", be->isa, act);
        box_free(&x), box_free(&want);
        pair_free(&w);
    }
}

static struct be *device(const char *isa, int n_threads)
{
    struct err e = {0};
    struct be *b = be_open(
        &(struct be_options){.device = "cpu", .isa = isa, .n_threads = n_threads}, &e);
    CHECK_MSG(b, "%s", e.text);
    return b;
}

static void test_products(void)
{
    for (const char *const *isa = be_isas(); *isa; isa++) {
        be = device(*isa, 1);
        be_other = device(*isa, 3);
        check_products();
        check_table();
        be_close(be), be_close(be_other);
    }
}

int main(void)
{
    read_golden();
    RUN(test_int8);
    RUN(test_int4);
    RUN(test_not_finite);
    RUN(test_products);
    return test_done("test_quant");
}
