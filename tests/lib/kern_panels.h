/* kern_panels.h: checks products and tables whose weights are stored in panels (kernels/panels.h),
 * as a part of check_kernels. The results must have the same bits as with the same weights in
 * rows. */
#ifndef SEQD_TESTS_KERN_PANELS_H
#define SEQD_TESTS_KERN_PANELS_H

#include "kernels/panels.h"
#include "tests/lib/kern.h"

/* Returns a copy of w in panels. */
static inline struct box panels_copy(struct box w)
{
    struct box p = box_copy(w, 0);
    be->ops->turn(be, p.t);
    p.t.dtype = dtype_stored(WEIGHTS_PANELS, w.t.dtype);
    return p;
}

static inline void panels_free(struct box *p)
{
    p->t.dtype = dtype_of_panels(p->t.dtype);
    CHECK(box_intact(*p));
    box_free(p);
}

static inline void check_panels_product(int64_t M, int64_t N, int64_t K, enum dtype out, bool add)
{
    struct box a = box_new_as(act, M, K, 3), w = box_new_as(act, N, K, 0);
    struct box want = box_new_as(out, M, N, 2), bias = box_new_as(out, 1, N, 0);
    box_random(a, 1, 1), box_random(w, 2, 1), box_random(want, 3, 1), box_random(bias, 4, 1);
    struct box c = box_copy(want, 1), panels = panels_copy(w);
    struct gemm_args args = {.a = a.t, .b = w.t, .c = want.t, .trans_b = true, .accumulate = add};
    be->ops->gemm(be, &args);
    if (add) be->ops->bias_fwd(be, &(struct bias_fwd_args){want.t, bias.t});
    if (add) args.bias = bias.t;
    args.b = panels.t, args.c = c.t;
    be->ops->gemm(be, &args);
    CHECK(box_intact(c));
    CHECK_MSG(box_same_bits(want, c, 0), "%s %lld x %lld x %lld, dtypes %d, %d", be->isa,
              (long long)M, (long long)N, (long long)K, act, out);
    if (N >= 48) { /* a part of the weight that does not begin at the first panel */
        struct box part = box_new_as(out, M, N - 32, 0);
        args = (struct gemm_args){
            .a = a.t, .b = tensor_sub(w.t, 32, N - 32, 0, K), .trans_b = true};
        args.c = tensor_sub(want.t, 0, M, 32, N - 32);
        be->ops->gemm(be, &args);
        args.b = tensor_sub(panels.t, 32, N - 32, 0, K), args.c = part.t;
        be_other->ops->gemm(be_other, &args);
        const struct box view = {.t = tensor_sub(want.t, 0, M, 32, N - 32)};
        CHECK(box_same_bits(part, view, 0));
        box_free(&part);
    }
    box_free(&a), box_free(&w), box_free(&want), box_free(&bias), box_free(&c);
    panels_free(&panels);
}

static inline void check_panels_table(void)
{
    const int64_t V = 37, C = 96;
    const int32_t ids[] = {5, 41, 20, 4, 36, 21, 5, 31, 32};
    const int n = sizeof ids / sizeof *ids;
    for (int wide = 0; wide < 2; wide++) {
        const enum dtype to = wide ? DT_F32 : act;
        struct box w = box_new_as(act, V, C, 0), x = box_new_as(to, n, C, 2);
        struct box want = box_new_as(to, n, C, 2);
        box_random(w, 2, 1);
        struct box panels = panels_copy(w);
        struct embed_fwd_args args = {.table = w.t, .x = want.t, .ids = ids};
        be->ops->embed_fwd(be, &args);
        args.table = panels.t, args.x = x.t;
        be->ops->embed_fwd(be, &args);
        CHECK_MSG(box_intact(x) && box_same_bits(x, want, 0), "%s, dtype %d", be->isa, act);
        box_free(&w), box_free(&x), box_free(&want);
        panels_free(&panels);
    }
}

static inline void check_panels(void)
{
    /* the shapes have partial groups and panels, several blocks of K, few rows, and many rows */
    static const int64_t shapes[][3] = {
        {1, 5, 32},   {1, 16, 64},  {1, 100, 800},  {2, 64, 1600},  {2, 70, 96},   {3, 48, 384},
        {8, 33, 832}, {16, 80, 96}, {17, 130, 448}, {90, 67, 1568}, {33, 112, 800}};
    if (!be->ops->turn || act == DT_F16) return;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int f = 0; f < 4; f++) {
            if (quick && (i + (size_t)f) % 2) continue;
            check_panels_product(shapes[i][0], shapes[i][1], shapes[i][2], f & 1 ? DT_F32 : act,
                                 f & 2);
        }
    check_panels_table();
}

#endif
