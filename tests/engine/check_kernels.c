/* check_kernels: compares every operation of struct be_ops with tests/lib/ref.h, on every
 * instruction set of this machine, with 1 and 2 threads, and with tensors of fp32, bf16 and fp16.
 * Outputs have sentinels around them, and scratch is filled with NaN before every call. The bits
 * of a row must not depend on the number of threads. Nor may they depend on the other rows that
 * the call computes.
 *
 * The tolerances of products and attention are explained at their checks. An operation on rows is
 * a chain of a few roundings, each of at most 2^-24 of the value. The number of roundings is
 * written beside each bound. In 16-bit types the reference reads the same inputs. The bounds are
 * the same as in fp32. They hold for the fp32 value before it is rounded to the output's type.
 * That last rounding is therefore subtracted from the error of each element. */
#include "tests/lib/kern.h"
#include "tests/lib/kern_angle.h"
#include "tests/lib/kern_attn.h"
#include "tests/lib/kern_cond.h"
#include "tests/lib/kern_delta.h"
#include "tests/lib/kern_drop.h"
#include "tests/lib/kern_elem.h"
#include "tests/lib/kern_few.h"
#include "tests/lib/kern_finite.h"
#include "tests/lib/kern_linear.h"
#include "tests/lib/kern_long.h"
#include "tests/lib/kern_merge.h"
#include "tests/lib/kern_naive.h"
#include "tests/lib/kern_paged.h"
#include "tests/lib/kern_panels.h"
#include "tests/lib/kern_quant.h"
#include "tests/lib/kern_sink.h"
#include "tests/lib/kern_transfer.h"
#include "tests/lib/kern_xent.h"

static const char *device_name = "cpu"; /* SEQD_TEST_DEVICE may name a different device */
#ifndef CHECK_NAME                      /* check_tiles.c has others */
#define CHECK_NAME "check_kernels"
#define CHECK_ISAS be_isas()
#endif

/* ---- products -------------------------------------------------------------------------------- */

/* Errors of c = op(a) op(b), with which the kernel's error is compared. `rounded` is the error of
 * a plain loop in float. `cut` is the additional error of tensor cores, which truncate sums
 * (kern.h). Both errors are |error| / |want|. */
struct naive_gemm {
    double rounded, cut;
};

static struct naive_gemm naive_gemm(struct mat a, bool ta, struct mat b, bool tb, struct mat c0,
                                    bool acc, struct mat want)
{
    double diff = 0, norm = 0, lost = 0;
    int64_t K = ta ? a.rows : a.cols;
    for (int64_t i = 0; i < c0.rows; i++)
        for (int64_t j = 0; j < c0.cols; j++) {
            const double c = acc ? MAT(c0, i, j) : 0; /* c is added to the complete sum */
            double cut = 0;
            float s = (float)c;
            for (int64_t k = 0; k < K; k++) {
                s += (float)(ta ? MAT(a, k, i) : MAT(a, i, k)) *
                     (float)(tb ? MAT(b, j, k) : MAT(b, k, j));
                if (k % CUT_K == CUT_K - 1 || k == K - 1) cut += cut_mean(s - c);
            }
            diff += (s - MAT(want, i, j)) * (s - MAT(want, i, j));
            norm += MAT(want, i, j) * MAT(want, i, j);
            lost += cut * cut;
        }
    if (norm == 0) return (struct naive_gemm){0, 0};
    return (struct naive_gemm){sqrt(diff / norm), sqrt(lost / norm)};
}

struct gemm_case {
    int64_t M, N, K;
    bool ta, tb, acc;
    enum dtype in, out;
    bool wide; /* rows begin at multiples of 16 bytes */
    bool bias; /* only products in any order use it */
    /* the block format of b, or DT_F32 if b has plain numbers; it is used only by products in any
     * order, which then have trans_b */
    enum dtype blocks;
};

/* Checks that the product has the same bits with another number of threads. Some of its rows must
 * also have the same bits if they are computed without the other rows. */
static void check_gemm_bits(const struct gemm_case *p, struct gemm_args args, struct box c0,
                            struct box c)
{
    struct box again = box_copy(c0, 0);
    int64_t r0 = p->M / 3, n = (p->M - r0 + 1) / 2;
    struct box part = box_new_as(p->out, n, p->N, 1);
    for (int64_t i = 0; i < n; i++)
        memcpy(box_ptr(part, i, 0), box_ptr(c0, r0 + i, 0), (size_t)(p->N * dtype_size(p->out)));
    args.c = again.t;
    CALL(be_other, gemm, &args);
    CHECK_MSG(box_same_bits(again, c, 0), "bits depend on threads");
    args.c = part.t;
    args.a = p->ta ? tensor_sub(args.a, 0, p->K, r0, n) : tensor_sub(args.a, r0, n, 0, p->K);
    CALL(be, gemm, &args);
    CHECK_MSG(box_same_bits(part, c, r0), "bits depend on other rows");
    CHECK(box_intact(part) && box_intact(again));
    box_free(&part), box_free(&again);
}

static void check_gemm(const struct gemm_case *p)
{
    const int failures = test_failures_now;
    int64_t M = p->M, N = p->N, K = p->K;
    struct box a = box_new_as(p->in, p->ta ? K : M, p->ta ? M : K, p->wide ? 8 : 3);
    struct box b = box_new_as(p->in, p->tb ? N : K, p->tb ? K : N, p->wide ? 16 : 5);
    struct box c = box_new_as(p->out, M, N, 2), c0;
    box_random(a, 1, 1);
    box_random(b, 2, 1);
    box_random(c, 3, 1);
    c0 = box_copy(c, 2);
    struct gemm_args args = {a.t, b.t, c.t, p->ta, p->tb, p->acc};
    struct mat ma = mat_of(a.t), mb = mat_of(b.t), mc = mat_of(c.t), want = mat_of(c.t);
    ref_gemm(ma, p->ta, mb, p->tb, want, p->acc);
    const struct naive_gemm naive = naive_gemm(ma, p->ta, mb, p->tb, mc, p->acc, want);
    const double cut = cuts(p->in) ? naive.cut : 0;
    if (!p->acc) box_fill(c, NAN);
    CALL(be, gemm, &args);
    double err = ref_rel_l2(c.t, want);
    /* the bound is the error of a plain loop, plus one rounding, because a plain loop may be exact
     * by chance */
    CHECK_MSG(err <= NAIVE_MORE * naive.rounded + ULP + cut, "%g, naive %g, cut off %g", err,
              naive.rounded, cut);
    CHECK(box_intact(c));
    check_gemm_bits(p, args, c0, c);
    if (test_failures_now > failures)
        printf("  ^ %lld x %lld x %lld, trans %d %d, accumulate %d, dtypes %d %d\n", (long long)M,
               (long long)N, (long long)K, p->ta, p->tb, p->acc, p->in, p->out);
    mat_free(&ma), mat_free(&mb), mat_free(&mc), mat_free(&want);
    box_free(&a), box_free(&b), box_free(&c), box_free(&c0);
}

static void check_gemm_all(void)
{
    /* The shape 3 x 1100 and the shapes after it have more than one block in K, in rows, or in
     * columns. With two threads, the last three shapes have more than one tile. */
    static const int64_t shapes[][3] = {
        {1, 1, 1},      {1, 7, 300},     {2, 33, 5},     {5, 64, 16},   {13, 31, 257},
        {14, 32, 256},  {29, 65, 100},   {128, 1, 64},   {64, 128, 1},  {100, 96, 768},
        {3, 1100, 40},  {530, 70, 33},   {5, 520, 401},  {9, 40, 1603}, {136, 264, 40},
        {2100, 20, 17}, {1300, 1, 1290}, {1, 1800, 1290}};
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (int f = 0; f < 8; f++) {
            if ((f & 3) == 3) continue; /* a and b are never both transposed */
            if (s >= sizeof shapes / sizeof shapes[0] - 3 && strcmp(be->isa, "amx")) continue;
            if (act == DT_F16 && (s + (size_t)f) % 3) continue;
            if (quick && shapes[s][0] * shapes[s][1] * shapes[s][2] > 200000) continue;
            struct gemm_case p = {shapes[s][0], shapes[s][1], shapes[s][2], f & 1,
                                  f & 2,        f & 4,        act,          act};
            p.wide = (s + (size_t)f / 4) % 2 == 0;
            check_gemm(&p);
            if (act == DT_F32) continue;
            p.out = DT_F32; /* as for a weight's gradient, or for logits */
            if ((s + (size_t)f) % 2) check_gemm(&p);
            p.in = DT_F32, p.out = act;
            if (s % 4 == 1) check_gemm(&p);
        }
}

/* Checks products with K = 0. A sum without terms is 0, so it adds nothing. */
static void check_gemm_empty(void)
{
    for (int f = 0; f < 4; f++) {
        const enum dtype out = f & 2 ? DT_F32 : act;
        struct box a = box_act(0, 5, 0), b = box_act(0, 40, 0), c = box_new_as(out, 5, 40, 3), c0;
        box_random(c, 3, 1);
        c0 = box_copy(c, 3);
        CALL(be, gemm, &(struct gemm_args){a.t, b.t, c.t, true, false, f & 1, {0}});
        for (int64_t i = 0; i < 5 && !(f & 1); i++)
            for (int64_t j = 0; j < 40; j++) box_set(c0, i, j, 0);
        CHECK_MSG(box_same_bits(c, c0, 0), "accumulate %d", f & 1);
        CHECK(box_intact(c));
        box_free(&a), box_free(&b), box_free(&c), box_free(&c0);
    }
}

/* Checks that tensor cores truncate. The sum of seven products of 2^-26 is 0.875 units of fp32's
 * last place at 1, and is lost when it is added to 1. Tensor cores of 8.0 and 9.0 lose each
 * product (kernels/cuda/emu.h); a device that adds the products first would lose them when it adds
 * their total to 1. Our bounds include this loss (kern.h). If a device rounds to nearest where we
 * expect it to truncate, the bounds may be wrong for this device. */
static void check_gemm_cut(void)
{
    if (!cuts(act)) return;
    struct box a = box_act(2, 8, 8), b = box_act(1, 8, 8), c = box_new(2, 1, 0);
    for (int k = 0; k < 8; k++) {
        box_set(a, 0, k, k < 7 ? 0x1p-13f : 1), box_set(a, 1, k, k < 7 ? -0x1p-13f : -1);
        box_set(b, 0, k, k < 7 ? 0x1p-13f : 1);
    }
    CALL(be, gemm, &(struct gemm_args){a.t, b.t, c.t, false, true, false, {0}});
    CHECK_MSG(*box_at(c, 0, 0) == 1 && *box_at(c, 1, 0) == -1, "1 %+.3g, -1 %+.3g",
              *box_at(c, 0, 0) - 1., *box_at(c, 1, 0) + 1.);
    box_free(&a), box_free(&b), box_free(&c);
}

/* Checks that a product with a bias has the same bits as a product followed by bias_fwd. */
static void check_gemm_bias(void)
{
    static const int64_t shapes[][3] = {
        {1, 7, 30}, {29, 65, 100}, {9, 40, 1603}, {29, 65, 1603}, {33, 112, 800}};
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (int f = 0; f < 4; f++) {
            const int64_t M = shapes[s][0], N = shapes[s][1], K = shapes[s][2];
            const enum dtype out = f & 2 ? DT_F32 : act;
            struct box a = box_act(M, K, 1), b = box_act(N, K, 0), bias = box_new_as(out, 1, N, 0);
            struct box c = box_new_as(out, M, N, 2), apart;
            box_random(a, 1, 1), box_random(b, 2, 1), box_random(bias, 3, 1), box_random(c, 4, 1);
            apart = box_copy(c, 2);
            struct gemm_args args = {a.t, b.t, c.t, false, true, f & 1, bias.t};
            CALL(be, gemm, &args);
            args.c = apart.t, args.bias = (struct tensor){0};
            CALL(be, gemm, &args);
            CALL(be, bias_fwd, &(struct bias_fwd_args){apart.t, bias.t});
            CHECK(box_intact(c) && box_same_bits(c, apart, 0));
            box_free(&a), box_free(&b), box_free(&bias), box_free(&c), box_free(&apart);
        }
}

/* Copies a box to the memory `to` of the device. Returns its tensor there. */
static struct tensor box_upload(struct be *b, struct box x, char *to)
{
    struct tensor t = x.t;
    b->ops->upload(b, to, x.mem, x.n * dtype_size(t.dtype));
    t.data = to + ((char *)t.data - (char *)x.mem);
    return t;
}

/* Quantises b. Afterwards b contains, in fp32, the values that products of few rows use. */
static struct quant_pair box_quantised(struct box *b, enum dtype format)
{
    struct quant_pair q = quant_pair_new(format, DT_F32, b->t.rows, b->t.cols, 11);
    box_free(b);
    *b = box_new(q.plain.rows, q.plain.cols, 8);
    for (int64_t i = 0; i < b->t.rows; i++)
        memcpy(box_at(*b, i, 0), (float *)q.values + i * b->t.cols, (size_t)b->t.cols * 4);
    return q;
}

/* Checks products of a device that may add in any order. The bits of a row may depend on other
 * rows, but a second run must give the same bits. The bound of the error is the same as in a fixed
 * order. */
static void check_gemm_in_any_order(struct be *b, char *room, const struct gemm_case *p)
{
    const int64_t third = 1 << 20;
    struct box a = box_new_as(p->in, p->ta ? p->K : p->M, p->ta ? p->M : p->K, 4);
    struct box x = box_new_as(p->in, p->tb ? p->N : p->K, p->tb ? p->K : p->N, 8);
    struct box c = box_new_as(p->out, p->M, p->N, 3), bias = box_new_as(p->out, 1, p->N, 0), again;
    box_random(a, 4, 1), box_random(x, 5, 1), box_random(c, 6, 1), box_random(bias, 7, 1);
    struct quant_pair blocks = {0};
    if (p->blocks) blocks = box_quantised(&x, p->blocks);
    const int64_t size = c.n * dtype_size(p->out);
    CHECK(size <= third && a.n * dtype_size(p->in) <= third &&
          x.n * dtype_size(x.t.dtype) <= third);
    struct mat ma = mat_of(a.t), mx = mat_of(x.t), mc = mat_of(c.t), want = mat_of(c.t);
    ref_gemm(ma, p->ta, mx, p->tb, want, p->acc);
    const struct naive_gemm naive = naive_gemm(ma, p->ta, mx, p->tb, mc, p->acc, want);
    const double cut = cuts(p->in) && !p->blocks ? naive.cut : 0;
    again = box_copy(c, 3);
    struct gemm_args args = {
        box_upload(b, a, room), box_upload(b, x, room + third), {0}, p->ta, p->tb, p->acc};
    if (p->blocks) {
        args.b = blocks.blocks, args.b.data = room + third;
        b->ops->upload(b, room + third, blocks.room,
                       quant_size(dtype_format(p->blocks), p->N, p->K));
    }
    if (p->bias) {
        struct mat mb = mat_of(bias.t);
        args.bias = box_upload(b, bias, room + 3 * third);
        for (int64_t i = 0; i < p->M * p->N; i++) want.p[i] += mb.p[i % p->N];
        mat_free(&mb);
    }
    struct box *const runs[2] = {&c, &again};
    for (int i = 0; i < 2; i++) {
        args.c = box_upload(b, *runs[i], room + 2 * third);
        b->ops->gemm(b, &args);
        b->ops->download(b, runs[i]->mem, room + 2 * third, size);
    }
    const double err = ref_rel_l2(c.t, want);
    /* if the bias can only be added after the sum is rounded, the result is rounded twice */
    const double once = p->out == DT_BF16 ? 0x1p-9 : p->out == DT_F16 ? 0x1p-12 : 0;
    const double twice = p->bias ? once : 0;
    CHECK_MSG(err <= 2 * naive.rounded + ULP + cut + twice,
              "%g, naive %g, cut off %g: %lld x %lld x %lld", err, naive.rounded, cut,
              (long long)p->M, (long long)p->N, (long long)p->K);
    CHECK(box_intact(c) && box_intact(again) && box_same_bits(again, c, 0));
    mat_free(&ma), mat_free(&mx), mat_free(&mc), mat_free(&want);
    box_free(&a), box_free(&x), box_free(&c), box_free(&bias), box_free(&again);
    if (p->blocks) quant_pair_free(&blocks);
}

static void check_gemm_any_order(void)
{
    static const int64_t shapes[][3] = {
        {1, 7, 300}, {29, 65, 100}, {64, 128, 8}, {530, 70, 32}, {8, 520, 400}};
    struct err e;
    if (!be->own_memory) return; /* the CPU's bits do not depend on it */
    const struct be_options o = {.device = be->ops->name, .n_threads = 1, .any_order = true};
    struct be *b = be_open(&o, &e);
    CHECK_MSG(b, "%s", e.text);
    if (!b) return;
    char *room = b->ops->alloc(b, 4 << 20, &e);
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (int f = 0; f < 16; f++) {
            struct gemm_case p = {shapes[s][0], shapes[s][1], shapes[s][2], f & 1,
                                  f & 2,        f & 4,        act,          f & 8 ? DT_F32 : act};
            if ((f & 3) == 3 || (act == DT_F32 && f & 8)) continue;
            check_gemm_in_any_order(b, room, &p);
            p.bias = true;
            if ((s + (size_t)f) % 3 == 0) check_gemm_in_any_order(b, room, &p);
        }
    /* numbers of rows for which blocks are widened in registers */
    for (int64_t M = 1; M <= 2; M++)
        for (int f = 0; f < 16; f++) {
            /* In some shapes N is not a multiple of a panel. K has few blocks, or more blocks than
             * are summed side by side. */
            struct gemm_case p = {M,   f & 1 ? 37 : 128,     f & 2 ? 96 : 1056, false, true, f & 4,
                                  act, f & 8 ? DT_F32 : act, .bias = f & 1};
            for (p.blocks = DT_INT8; p.blocks <= DT_INT4; p.blocks++)
                check_gemm_in_any_order(b, room, &p);
        }
    CHECK(b->ops->sync(b, &e) == 0);
    b->ops->free(b, room, 4 << 20);
    be_close(b);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static const int64_t row_shapes[][2] = {{1, 1}, {3, 17}, {5, 64}, {37, 100}, {130, 768}};
#define EACH_ROW_SHAPE(s) for (size_t s = 0; s < sizeof row_shapes / sizeof row_shapes[0]; s++)

static void check_rmsnorm(void)
{
    EACH_ROW_SHAPE(s)
    {
        int64_t T = row_shapes[s][0], C = row_shapes[s][1];
        struct box x = box_act(T, C, 1), g = box_act(1, C, 0), y = box_act(T, C, 2);
        struct box r = box_new(1, T, 0), dy = box_act(T, C, 3), dx = box_act(T, C, 1);
        struct box dg = box_new(1, C, 0), dx2, dg2;
        box_random(x, 1, 2), box_random(g, 2, 1), box_random(dy, 3, 1);
        box_random(dx, 4, 1), box_random(dg, 5, 1);
        struct mat mx = mat_of(x.t), mg = mat_of(g.t), mdy = mat_of(dy.t), my = mat_new(T, C);
        struct mat mr = mat_new(T, 1), mdx = mat_of(dx.t), mdg = mat_of(dg.t);
        ref_rmsnorm_fwd(mx, mg, 1e-5, my, mr);
        ref_rmsnorm_bwd(mx, mg, mr, mdy, mdx, mdg);
        CALL(be, rmsnorm_fwd, &(struct rmsnorm_fwd_args){x.t, y.t, g.t, r.t.data, 1e-5f});
        /* the result is x r g, where r is computed from a sum of C squares; the error of this sum
         * grows more slowly than sqrt(C) */
        double sum = ULP * sqrt((double)C);
        CHECK(ref_rel_l2(y.t, my) <= 4 * ULP + sum);
        CHECK(box_intact(y) && box_intact(r));
        dx2 = box_copy(dx, 0), dg2 = box_copy(dg, 0);
        struct rmsnorm_bwd_args bwd = {x.t, dy.t, dx.t, g.t, r.t.data, dg.t.data, true};
        CALL(be, rmsnorm_bwd, &bwd);
        CHECK(ref_rel_l2(dx.t, mdx) <= 8 * ULP + 4 * sum);
        /* each term of dg has r's error and two roundings; the sum itself is in double */
        CHECK(ref_rel_l2(dg.t, mdg) <= 8 * ULP + sum);
        CHECK(box_intact(dx) && box_intact(dg));
        bwd.dx = dx2.t, bwd.dg = dg2.t.data;
        CALL(be_other, rmsnorm_bwd, &bwd);
        CHECK(box_same_bits(dx2, dx, 0) && box_same_bits(dg2, dg, 0));
        box_free(&dx2);
        dx2 = box_act(T, C, 0);
        bwd.dx = dx2.t, bwd.accumulate = false;
        CALL(be, rmsnorm_bwd, &bwd);
        struct mat plain = mat_new(T, C), unused = mat_new(1, C);
        ref_rmsnorm_bwd(mx, mg, mr, mdy, plain, unused);
        /* if C is 1, only the rounding of cancelled terms is left */
        CHECK(C == 1 || ref_rel_l2(dx2.t, plain) <= 8 * ULP + 4 * sum);
        mat_free(&mx), mat_free(&mg), mat_free(&mdy), mat_free(&my), mat_free(&mr);
        mat_free(&mdx), mat_free(&mdg), mat_free(&plain), mat_free(&unused);
        box_free(&x), box_free(&g), box_free(&y), box_free(&r), box_free(&dy);
        box_free(&dx), box_free(&dg), box_free(&dx2), box_free(&dg2);
    }
}

static void check_rope(void)
{
    static const int64_t dims[] = {2, 6, 16, 64, 128, 256};
    for (size_t s = 0; s < sizeof dims / sizeof dims[0]; s++) {
        int64_t D = dims[s], H = 3, T = 41, *pos = ARRAY(int64_t, T);
        double *freq = ARRAY(double, D / 2);
        for (int64_t j = 0; j < D / 2; j++) freq[j] = pow(10000, -2.0 * (double)j / (double)D);
        for (int64_t t = 0; t < T; t++) pos[t] = t < 20 ? t : (int64_t)1 << (t - 15); /* to 2^25 */
        /* x has two more heads, which rope must not change */
        struct box x = box_act(T, (H + 2) * D, 1);
        box_random(x, 9, 1);
        struct mat want = mat_of(x.t), first = mat_of(x.t);
        ref_rope(want, pos, freq, H, D, false);
        struct rope_args a = {x.t, pos, freq, H, D, false, .scale = 1};
        CALL(be, rope, &a);
        CHECK(ref_rel_l2(x.t, want) <= 3 * ULP); /* two products, and a sum of rounded sines */
        CHECK(box_intact(x));
        mat_free(&want);
        want = mat_of(x.t);
        ref_rope(want, pos, freq, H, D, true);
        a.inverse = true;
        CALL(be_other, rope, &a);
        CHECK(ref_rel_l2(x.t, want) <= 3 * ULP);
        /* x was rotated before and is now rotated back; in 16-bit types, the result of the first
         * rotation was rounded, too */
        CHECK(act != DT_F32 || ref_rel_l2(x.t, first) <= 6 * ULP);
        mat_free(&want), mat_free(&first), box_free(&x);
    }
}

static void check_swiglu(void)
{
    EACH_ROW_SHAPE(s)
    {
        int64_t T = row_shapes[s][0], I = row_shapes[s][1];
        struct box gu = box_act(T, 2 * I, 1), a = box_act(T, I, 2), da = box_act(T, I, 0);
        struct box dgu = box_act(T, 2 * I, 3);
        box_random(gu, 21, 3), box_random(da, 22, 1);
        if (I > 1) box_set(gu, 0, 0, -200); /* e^200 overflows */
        struct mat mgu = mat_of(gu.t), ma = mat_new(T, I), mda = mat_of(da.t);
        struct mat mdgu = mat_new(T, 2 * I);
        ref_swiglu_fwd(mgu, ma);
        ref_swiglu_bwd(mgu, mda, mdgu);
        CALL(be, swiglu_fwd, &(struct swiglu_fwd_args){gu.t, a.t});
        /* there are 3 roundings in exp, and one each in 1 + e, in a quotient and in two
         * products */
        CHECK(ref_rel_l2(a.t, ma) <= 8 * ULP);
        CALL(be, swiglu_bwd, &(struct swiglu_bwd_args){gu.t, da.t, dgu.t});
        CHECK(ref_rel_l2(dgu.t, mdgu) <= 12 * ULP);
        CHECK(box_intact(a) && box_intact(dgu));
        CALL(be_other, swiglu_bwd, &(struct swiglu_bwd_args){gu.t, da.t, gu.t}); /* in place */
        CHECK(box_same_bits(gu, dgu, 0) && box_intact(gu));
        mat_free(&mgu), mat_free(&ma), mat_free(&mda), mat_free(&mdgu);
        box_free(&gu), box_free(&a), box_free(&da), box_free(&dgu);
    }
}

/* Checks gradients of a table, in which some ids occur in thousands of rows. Each sum must have
 * the bits of a sum in fp32 over ascending rows, also if there is little scratch. */
static void check_embed_chains(void)
{
    enum { T = 9000, C = 3, V = 1000 };
    int32_t *ids = ARRAY(int32_t, T);
    struct box dx = box_act(T, C, 1), dt = box_new(V, C, 2), want, again;
    uint64_t seed = 35;
    box_random(dx, 33, 1), box_random(dt, 34, 1);
    want = box_copy(dt, 0), again = box_copy(dt, 0);
    for (int64_t t = 0; t < T; t++) {
        ids[t] = (int32_t)(box_rand(&seed) % (t % 3 ? V : 2));
        for (int64_t j = 0; j < C; j++) *box_at(want, ids[t], j) += (float)ref_at(dx.t, t, j);
    }
    CALL(be, embed_bwd, &(struct embed_bwd_args){dt.t, dx.t, ids});
    CHECK(box_same_bits(dt, want, 0) && box_intact(dt));
    const int64_t size = be->scratch_size;
    if (be->own_memory) be->scratch_size = 48 << 10;
    CALL(be, embed_bwd, &(struct embed_bwd_args){again.t, dx.t, ids});
    be->scratch_size = size;
    CHECK(box_same_bits(again, want, 0) && box_intact(again));
    box_free(&dx), box_free(&dt), box_free(&want), box_free(&again);
}

/* Checks a part of a table. Ids before and after that part must give rows of 0, and must get no
 * gradient. */
static void check_embed_part(void)
{
    enum { T = 300, C = 7, V = 600, N = 270 };
    for (int64_t first = 0; first < V + N; first += N) {
        const int64_t n = first >= V ? 0 : first + N < V ? N : V - first;
        int32_t *ids = ARRAY(int32_t, T);
        struct box table = box_act(n, C, 1), x = box_act(T, C, 2), wide = box_new(T, C, 1);
        struct box dt = box_new(n, C, 3), want = box_copy(dt, 0);
        for (int64_t t = 0; t < T; t++) ids[t] = (int32_t)(t * 7919 % V);
        box_random(table, 36, 1), box_random(x, 37, 1), box_random(dt, 38, 1);
        for (int64_t i = 0; i < n * C; i++) *box_at(want, i / C, i % C) = *box_at(dt, i / C, i % C);
        for (int64_t i = 0; i < T * C; i++)
            if (ids[i / C] >= first && ids[i / C] < first + n)
                *box_at(want, ids[i / C] - first, i % C) += (float)ref_at(x.t, i / C, i % C);
        CALL(be, embed_bwd, &(struct embed_bwd_args){dt.t, x.t, ids, first});
        CHECK(box_same_bits(dt, want, 0) && box_intact(dt));
        CALL(be, embed_fwd, &(struct embed_fwd_args){table.t, x.t, ids, first});
        CALL(be, embed_fwd, &(struct embed_fwd_args){table.t, wide.t, ids, first});
        CHECK(box_intact(x) && box_intact(wide));
        for (int64_t i = 0; i < T * C; i++) {
            const int64_t id = ids[i / C] - first, c = i % C;
            const double v = id >= 0 && id < n ? ref_at(table.t, id, c) : 0;
            CHECK(ref_at(x.t, i / C, c) == v && ref_at(wide.t, i / C, c) == v);
        }
        box_free(&table), box_free(&x), box_free(&wide), box_free(&dt), box_free(&want);
    }
}

static void check_embed(void)
{
    check_embed_chains();
    check_embed_part();
    EACH_ROW_SHAPE(s)
    {
        int64_t T = row_shapes[s][0], C = row_shapes[s][1], V = 11;
        int32_t *ids = ARRAY(int32_t, T);
        for (int64_t t = 0; t < T; t++) ids[t] = (int32_t)((t * t + 3) % V); /* many repeats */
        struct box table = box_act(V, C, 1), x = box_act(T, C, 2), dt = box_new(V, C, 3), dt2;
        box_random(table, 31, 1), box_random(dt, 32, 1);
        struct mat mt = mat_of(table.t), mx = mat_new(T, C), mdt = mat_of(dt.t);
        dt2 = box_copy(dt, 0);
        ref_embed_fwd(mt, ids, mx);
        CALL(be, embed_fwd, &(struct embed_fwd_args){table.t, x.t, ids});
        CHECK(ref_rel_l2(x.t, mx) == 0 && box_intact(x));
        ref_embed_bwd(mdt, ids, mx);
        CALL(be, embed_bwd, &(struct embed_bwd_args){dt.t, x.t, ids});
        /* the error of up to T additions of similar size */
        CHECK(ref_rel_l2(dt.t, mdt) <= ULP * (1 + (double)T) && box_intact(dt));
        CALL(be_other, embed_bwd, &(struct embed_bwd_args){dt2.t, x.t, ids});
        CHECK(box_same_bits(dt2, dt, 0));
        mat_free(&mt), mat_free(&mx), mat_free(&mdt);
        box_free(&table), box_free(&x), box_free(&dt), box_free(&dt2);
    }
}

/* ---- flat ranges ----------------------------------------------------------------------------- */

static const int64_t flat_sizes[] = {1, 15, 1000, 65536, 2 * 65536 + 77};
#define EACH_FLAT(s) for (size_t s = 0; s < sizeof flat_sizes / sizeof flat_sizes[0]; s++)

static void check_add(void)
{
    EACH_FLAT(s)
    {
        int64_t n = flat_sizes[s], n_bad = 0;
        struct box x = box_new(1, n, 0), y = box_new(1, n, 0);
        box_random(x, 51, 1), box_random(y, 52, 1);
        struct mat my = mat_of(y.t);
        CALL(be, add, &(struct add_args){y.t.data, x.t.data, n});
        for (int64_t i = 0; i < n; i++)
            n_bad += *box_at(y, 0, i) != (float)MAT(my, 0, i) + *box_at(x, 0, i);
        CHECK(n_bad == 0 && box_intact(y));
        mat_free(&my), box_free(&x), box_free(&y);
    }
}

static void check_adamw(void)
{
    EACH_FLAT(s)
    {
        int64_t n = flat_sizes[s];
        struct box p = box_new(1, n, 0), m = box_new(1, n, 0), v = box_new(1, n, 0);
        struct box g = box_new(1, n, 0), half;
        half = box_new_as(act == DT_F32 ? DT_BF16 : act, 1, n, 0);
        box_random(p, 61, 1), box_fill(m, 0), box_fill(v, 0);
        struct mat mp = mat_of(p.t), mm = mat_of(m.t), mv = mat_of(v.t);
        for (int64_t t = 1; t <= 3; t++) {
            box_random(g, (uint64_t)(70 + t), 0.1);
            struct mat mg = mat_of(g.t);
            ref_adamw(mp.p, mm.p, mv.p, mg.p, n, 1e-2, 0.9, 0.95, 1e-8, 0.1, 0.5, t);
            CALL(be, adamw,
                 &(struct adamw_args){p.t.data, m.t.data, v.t.data,
                                      act == DT_F32 ? NULL : half.t.data, half.t.dtype, g.t.data, n,
                                      1e-2, 0.9, 0.95, 1e-8, 0.1, 0.5, t});
            mat_free(&mg);
        }
        /* three steps have fewer than four roundings each, and their coefficients are rounded,
         * too */
        CHECK_MSG(ref_rel_l2(p.t, mp) <= 12 * ULP, "p %g", ref_rel_l2(p.t, mp));
        CHECK_MSG(ref_rel_l2(m.t, mm) <= 16 * ULP, "m %g", ref_rel_l2(m.t, mm));
        CHECK_MSG(ref_rel_l2(v.t, mv) <= 20 * ULP, "v %g", ref_rel_l2(v.t, mv));
        CHECK(box_intact(p) && box_intact(m) && box_intact(v) && box_intact(half));
        int64_t n_bad = 0;
        for (int64_t i = 0; i < n; i++) {
            uint16_t want = act == DT_F32 ? BOX_SENTINEL_HALF : box_half(act, *box_at(p, 0, i));
            n_bad += *(uint16_t *)box_ptr(half, 0, i) != want;
        }
        CHECK(n_bad == 0);
        mat_free(&mp), mat_free(&mm), mat_free(&mv);
        box_free(&p), box_free(&m), box_free(&v), box_free(&g), box_free(&half);
    }
}

/* Checks sums over units of `unit` elements each. Each unit must have the same bits in a call with
 * several units as in a call with that unit alone. */
static void check_units(const float *g, const double *want, int64_t n, int64_t unit)
{
    const int64_t n_units = (n + unit - 1) / unit;
    double *out = ARRAY(double, n_units), *again = ARRAY(double, n_units);
    double *alone = ARRAY(double, 1);
    CALL(be, sumsq, &(struct sumsq_args){g, n, unit, out});
    CALL(be_other, sumsq, &(struct sumsq_args){g, n, unit, again});
    for (int64_t u = 0; u < n_units; u++) {
        const int64_t len = n - u * unit < unit ? n - u * unit : unit;
        const double sum = ref_sumsq(want + u * unit, len);
        /* squares of floats are exact in double, and each of the two sums has at most n
         * additions */
        CHECK(fabs(out[u] - sum) <= DBL_EPSILON * (double)len * sum);
        if (u % 100) continue;
        CALL(be, sumsq, &(struct sumsq_args){g + u * unit, len, unit, alone});
        CHECK(!memcmp(alone, &out[u], sizeof *alone));
    }
    CHECK(!memcmp(out, again, (size_t)n_units * sizeof out[0]));
}

static void check_sumsq(void)
{
    EACH_FLAT(s)
    {
        const int64_t n = flat_sizes[s], units[] = {n, 7, 512, 65536, n + 1};
        struct box g = box_new(1, n, 0);
        box_random(g, 81, 1);
        struct mat mg = mat_of(g.t);
        for (size_t i = 0; i < sizeof units / sizeof *units; i++)
            check_units(g.t.data, mg.p, n, units[i]);
        mat_free(&mg), box_free(&g);
    }
}

/* ---- conversion ------------------------------------------------------------------------------ */

/* Casts all 16-bit numbers of a type, including subnormals, to fp32 and back. This must be exact,
 * and a NaN must remain a NaN. Also casts the numbers to the other 16-bit type. */
static void check_cast_all(enum dtype type, enum dtype to)
{
    struct box h = box_new_as(type, 256, 256, 3), f = box_new(256, 256, 1);
    struct box back = box_new_as(type, 256, 256, 0), other = box_new_as(to, 256, 256, 2);
    int64_t n_bad = 0;
    for (int64_t i = 0; i < 1 << 16; i++) *(uint16_t *)box_ptr(h, i / 256, i % 256) = (uint16_t)i;
    CALL(be, cast, &(struct cast_args){.dst = f.t, .src = h.t});
    CALL(be_other, cast, &(struct cast_args){.dst = back.t, .src = f.t});
    CALL(be, cast, &(struct cast_args){.dst = other.t, .src = h.t});
    for (int64_t i = 0; i < 1 << 16; i++) {
        const uint16_t there = *(uint16_t *)box_ptr(back, i / 256, i % 256);
        const uint16_t over = *(uint16_t *)box_ptr(other, i / 256, i % 256);
        const double x = ref_half(type, (uint16_t)i);
        const float y = *box_at(f, i / 256, i % 256), want = (float)x;
        n_bad += isnan(x) ? !isnan(ref_half(type, there)) : there != i;
        n_bad += isnan(x) ? !isnan(y) : memcmp(&y, &want, sizeof y) != 0;
        n_bad += isnan(x) ? !isnan(ref_half(to, over)) : over != box_half(to, x);
    }
    CHECK(n_bad == 0 && box_intact(f) && box_intact(back) && box_intact(other));
    box_free(&h), box_free(&f), box_free(&back), box_free(&other);
}

/* Casts fp32 numbers to 16 bits. Some numbers have random bits. Some are near ties or near the
 * ends of the range. Some are NaNs in whose significand only low bits are set. The last two thirds
 * of the numbers are within fp16's range or just outside of it. */
static void check_cast_rounding(enum dtype type)
{
    static const uint32_t special[] = {
        0x00000000, 0x80000000, 0x00000001, 0x00008000, 0x00008001, 0x00018000, 0x007fffff,
        0x3f808000, 0x3f808001, 0x3f807fff, 0x3f818000, 0xbf818000, 0x7f7f7fff, 0x7f7f8000,
        0x7f7fffff, 0x7f800000, 0xff800000, 0x7f800001, 0xff800001, 0x7fc00000, 0x7fffffff,
        0xffffffff, 0x7f80ffff,
        /* for fp16: 65504 to 65536, ties, 2^-14, 2^-24 and 2^-25 */
        0x477fe000, 0x477fefff, 0x477ff000, 0x477fffff, 0x47800000, 0xc77ff000, 0x3f801000,
        0x3f803000, 0x3f801001, 0x38800000, 0x387fffff, 0x387fe000, 0x387fdfff, 0x33800000,
        0x33000000, 0x33000001, 0xb3c00000, 0x34200000, 0x33ffffff};
    enum { N = 5000, N_SPECIAL = sizeof special / sizeof special[0] };
    struct box f = box_new(3, N, 1), h = box_new_as(type, 3, N, 5), same = box_new(3, N, 0);
    uint64_t seed = 91;
    int64_t n_bad = 0;
    for (int64_t i = 0; i < 3 * N; i++) {
        uint32_t bits = i < N_SPECIAL ? special[i] : (uint32_t)box_rand(&seed);
        if (i > N) bits = (bits & 0x807fffff) | (uint32_t)(127 - 27 + i % 45) << 23;
        memcpy(box_at(f, i / N, i % N), &bits, sizeof bits);
    }
    CALL(be, cast, &(struct cast_args){.dst = h.t, .src = f.t});
    for (int64_t i = 0; i < 3 * N; i++) {
        float x = *box_at(f, i / N, i % N);
        uint16_t got = *(uint16_t *)box_ptr(h, i / N, i % N);
        bool bad = isnan(x) ? !isnan(ref_half(type, got)) : got != box_half(type, x);
        if (bad && !n_bad++) printf("  %a became %a\n", (double)x, ref_half(type, got));
    }
    CHECK(n_bad == 0 && box_intact(h));
    CALL(be, cast, &(struct cast_args){.dst = same.t, .src = f.t});
    CHECK(box_same_bits(same, f, 0) && box_intact(same));
    box_free(&f), box_free(&h), box_free(&same);
}

static void check_cast(void)
{
    check_cast_all(DT_BF16, DT_F16), check_cast_rounding(DT_BF16);
    check_cast_all(DT_F16, DT_BF16), check_cast_rounding(DT_F16);
}

/* Copies n numbers at p from the device's memory. Returns how many of them differ from want. */
static int64_t check_memory_holds(const float *p, int64_t n, const float *want)
{
    int64_t n_bad = 0;
    float got[4096];
    CHECK(n <= 4096);
    be->ops->download(be, got, p, n * 4);
    for (int64_t i = 0; i < n; i++) n_bad += got[i] != want[i];
    return n_bad;
}

static void check_memory(void)
{
    enum { N = 3 * 1024 + 15 };
    struct err e;
    const int64_t size = N * 4;
    float *p = be->ops->alloc(be, size, &e), *q = be->ops->alloc(be, size, &e), want[N] = {0};
    CHECK(p && q && (uintptr_t)p % 64 == 0);
    int64_t n_bad = check_memory_holds(p, N, want);
    be->ops->fill(be, p, N - 1, 2.5f);
    for (int i = 0; i < N - 1; i++) want[i] = 2.5f;
    n_bad += check_memory_holds(p, N, want);
    for (int i = 0; i < 5; i++) want[7 + i] = (float)(1 + i);
    be->ops->upload(be, p + 7, want + 7, 5 * 4);
    be->ops->copy(be, q, p, size);
    be->ops->fill(be, p, 3, 0);
    n_bad += check_memory_holds(q, N, want);
    want[0] = want[1] = want[2] = 0;
    n_bad += check_memory_holds(p, N, want);
    CHECK(n_bad == 0);
    CHECK(!be->ops->sync || be->ops->sync(be, &e) == 0);
    be->ops->free(be, p, size);
    be->ops->free(be, q, size);
}

/* ---- the table ------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    void (*check)(void);
    int n_slots;  /* how many operations of struct be_ops the check covers */
    bool has_act; /* some of its tensors may have 16 bits */
} checks[] = {
    {"gemm", check_gemm_all, 1, true},
    {"gemm and tables of blocks", check_quant, 0, true},
    {"turn: gemm and tables of panels", check_panels, 1, true},
    {"gemm cuts off", check_gemm_cut, 0, true},
    {"gemm with a bias", check_gemm_bias, 0, true},
    {"gemm of no terms", check_gemm_empty, 0, true},
    {"gemm in any order", check_gemm_any_order, 0, true},
    {"gemm of few rows", check_gemm_few, 0, true},
    {"gemm of rows decoded together", check_gemm_batch, 0, true},
    {"attn_fwd, _finish, _delta, _bwd", check_attn, 4, true},
    {"attn of few queries", check_attn_few, 0, true},
    {"attn_list, attn_fwd by a page table", check_paged, 1, true},
    {"attn_sink_fwd, _bwd", check_attn_sink, 2, true},
    {"attn_merge", check_merge, 1, true},
    {"attn beside a plain computation", check_naive, 0, true},
    {"attn far below a maximum", check_attn_far, 0, true},
    {"few queries in any order", check_attn_any_order, 0, true},
    {"attn_*, NaN and infinity", check_finite_attn, 0, true},
    {"few queries in pieces, NaN and infinity", check_finite_pieces, 0, true},
    {"linear_*, NaN and infinity", check_finite_linear, 0, true},
    {"all others, NaN and infinity", check_finite_others, 0, true},
    {"rmsnorm_fwd, _bwd", check_rmsnorm, 2, true},
    {"rope", check_rope, 1, true},
    {"rope, parts of a head and neighbours", check_rope_variants, 0, true},
    {"swiglu_fwd, _bwd", check_swiglu, 2, true},
    {"embed_fwd, _bwd", check_embed, 2, true},
    {"xent, xent_part", check_xent, 2, true},
    {"xent with weights of rows", check_xent_weights, 0, true},
    {"add", check_add, 1, false},
    {"adamw", check_adamw, 1, true},
    {"sumsq", check_sumsq, 1, false},
    {"cast", check_cast, 1, false},
    {"norm_fwd, _bwd, _part", check_norm, 3, true},
    {"act_fwd, _bwd", check_act, 2, true},
    {"glu_fwd, _bwd", check_glu, 2, true},
    {"clamp_glu_fwd, _bwd", check_clamp_glu, 2, true},
    {"mix", check_mix, 1, true},
    {"bias_fwd, _bwd", check_bias, 2, true},
    {"attention under dropout", check_attn_drop, 0, true},
    {"dropout", check_dropout, 1, false},
    {"softmax_fwd, _bwd", check_softmax, 2, false},
    {"modulate_fwd, _bwd, gate_fwd, _bwd", check_groups, 4, true},
    {"lrpe_fwd, _bwd", check_lrpe, 2, true},
    {"route", check_route, 1, false},
    {"permute", check_permute, 1, false},
    {"mse", check_mse, 1, true},
    {"noise", check_noise, 1, false},
    {"linear_fwd, _enter, _bwd, _enter_bwd, _fold", check_linear, 5, true},
    {"linear_angle", check_angle, 1, true},
    {"delta_fwd, _bwd", check_delta, 2, true},
    {"conv_fwd, _bwd", check_conv, 2, true},
    {"sums over 100,000 tokens", check_long, 0, false},
    {"fill, copy, upload, download, sync, alloc, free, close", check_memory, 8, false},
    {"share to transfer_passed, pin to copy_await", check_transfers, 12, false},
};

/* the value of SEQD_TEST_ONLY; only checks whose full name contains it are run */
static const char *only;

/* Checks that every operation has a check, by comparing the numbers of operations. */
static void test_every_slot(void)
{
    size_t n = 0;
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) n += (size_t)checks[i].n_slots;
    CHECK(n == (sizeof(struct be_ops) - sizeof(char *)) / sizeof(void (*)(void)));
}

static void test_unknown_names(void)
{
    struct err e;
    CHECK(!be_open(&(struct be_options){"abacus", NULL, 1, NULL}, &e));
    CHECK(e.code == ERR_UNSUPPORTED && strstr(e.text, "cpu"));
    CHECK(!be_open(&(struct be_options){"cpu", "mmx", 1, NULL}, &e));
    CHECK(e.code == ERR_UNSUPPORTED && strstr(e.text, "portable"));
    CHECK(!be_open(&(struct be_options){"cpu", NULL, 0, NULL}, &e));
    be_close(NULL);
}

static struct be *open_device(const char *isa, int n_threads)
{
    struct err e;
    struct be *b = be_open(
        &(struct be_options){
            .device = device_name, .isa = isa, .n_threads = n_threads, .scratch_later = true},
        &e);
    if (b) return b;
    printf("  %s\n", e.text);
    exit(1);
}

static void (*check_now)(void);

static void run_check(void)
{
    check_now();
    twin_forget();
}

/* Two further instruction sets of kernels/cuda. With compute capability 9.0, attention and linear
 * attention in bf16 have kernels of their own (hopper.h). If a block has little shared memory, all
 * kinds of attention use smaller tiles, which give the same bits. */
#define OTHER_WAY   "sm90"
#define SMALL_SHAPE "sm86"

static bool runs(const char *isa)
{
    struct err e;
    struct be *b = be_open(
        &(struct be_options){
            .device = device_name, .isa = isa, .n_threads = 1, .scratch_later = true},
        &e);
    const bool ok = b != NULL;
    CHECK(ok || !strcmp(device_name, "cuda"));
    if (!ok) printf("not run: %s\n", e.text);
    be_close(b);
    return ok;
}

/* Tells whether a check is run for the instruction set. For the two sets above, only those checks
 * are run whose kernels differ from the kernels of the other sets. */
static bool concerns(const char *isa, const char *check)
{
    const bool linear = !strncmp(check, "linear", 6);
    if (!strcmp(isa, OTHER_WAY)) return act == DT_BF16 && (linear || !strncmp(check, "attn", 4));
    if (strcmp(isa, SMALL_SHAPE)) return true;
    return linear || (act != DT_F32 && !strncmp(check, "attn_", 5));
}

/* Runs all checks on one instruction set. be_other has 3 threads, whatever be has, so only fp32 is
 * also run with 1 thread. When be uses the small shapes, be_other uses the large ones. */
static void check_device(const char *isa, int n_threads)
{
    static const struct {
        enum dtype type;
        const char *name;
    } types[] = {{DT_F32, "fp32"}, {DT_BF16, "bf16"}, {DT_F16, "fp16"}};
    if ((!strcmp(isa, OTHER_WAY) || !strcmp(isa, SMALL_SHAPE)) && !runs(isa)) return;
    be = open_device(isa, n_threads);
    const bool small = !strcmp(isa, SMALL_SHAPE);
    be_other = open_device(small ? "sm80" : isa, 3);
    least_dim = small ? 65 : 0;
    CHECK((strcmp(isa, OTHER_WAY) && !small) || !strcmp(be->isa, isa));
    twin_open(be);
    twin_give_scratch(be), twin_give_scratch(be_other);
    for (size_t k = 0; k < sizeof types / sizeof *types; k++)
        for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
            char name[128];
            act = types[k].type;
            if (act != DT_F32 && (!checks[i].has_act || n_threads == 1)) continue;
            /* checks that only compare numbers take minutes under a sanitizer */
            if (SANITIZED && (checks[i].check == check_naive || checks[i].check == check_long))
                continue;
            if (!concerns(isa, checks[i].name)) continue;
            snprintf(name, sizeof name, "%s, %s, %s, %d threads", checks[i].name, types[k].name,
                     isa, n_threads);
            if (only && !strstr(name, only)) continue;
            check_now = checks[i].check;
            test_run(name, run_check);
        }
    twin_take_scratch(be), twin_take_scratch(be_other);
    twin_close();
    be_close(be_other), be_close(be);
}

int main(int argc, char **argv)
{
    if (argc == 4 && !strcmp(argv[1], "peer")) return check_share_peer(argv[2], argv[3]);
    const bool small = small_tests();
    only = getenv("SEQD_TEST_ONLY");
    const char *shapes = getenv("SEQD_TEST_SHAPES");
    quick = small || (shapes && !strcmp(shapes, "small"));
    if (getenv("SEQD_TEST_DEVICE")) device_name = getenv("SEQD_TEST_DEVICE");
    RUN(test_every_slot);
    RUN(test_every_slot_finite);
    RUN(test_unknown_names);
    static const char *const itself[] = {"sm80", SMALL_SHAPE, OTHER_WAY, NULL};
    const bool cpu = !strcmp(device_name, "cpu");
    for (const char *const *isa = cpu ? CHECK_ISAS : itself; *isa; isa++)
        for (int n_threads = small || !cpu ? 2 : 1; n_threads <= 2; n_threads++)
            check_device(*isa, n_threads);
    char name[64];
    snprintf(name, sizeof name, "check_%s", device_name);
    return test_done(cpu ? CHECK_NAME : name);
}
