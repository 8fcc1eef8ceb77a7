/* kern_few.h: checks products and attention of few rows, as a part of check_kernels. The CPU has
 * kernels of its own for few rows. A row must have the same bits in a call with few rows as in a
 * call with many rows. */
#ifndef SEQD_TESTS_KERN_FEW_H
#define SEQD_TESTS_KERN_FEW_H

#include "tests/lib/kern_attn.h"
#include "tests/lib/kern_panels.h"
#include "tests/lib/kern_quant.h"

enum { FEW_MANY = 40 }; /* more rows than the kernels for few rows can process */

/* Checks products of few rows. In some shapes the N columns are complete groups; in others the
 * last group is incomplete. K is several blocks, an odd number, or less than a vector. */
static void check_gemm_few_of(int64_t N, int64_t K, bool acc, enum dtype out)
{
    struct box a = box_act(FEW_MANY, K, 3), b = box_act(N, K, 5);
    struct box c0 = box_new_as(out, FEW_MANY, N, 2), c;
    box_random(a, 1, 1), box_random(b, 2, 1), box_random(c0, 3, 1);
    c = box_copy(c0, 2);
    CALL(be, gemm, &(struct gemm_args){a.t, b.t, c.t, false, true, acc, {0}});
    for (int64_t n = 1; n <= 17; n += n < 5 ? 1 : 4)
        for (int i = 0; i < 2; i++) {
            struct box part = box_new_as(out, n, N, 1);
            for (int64_t r = 0; r < n; r++)
                memcpy(box_ptr(part, r, 0), box_ptr(c0, 7 + r, 0), (size_t)(N * dtype_size(out)));
            CALL(i ? be_other : be, gemm,
                 &(struct gemm_args){
                     tensor_sub(a.t, 7, n, 0, K), b.t, part.t, false, true, acc, {0}});
            CHECK_MSG(box_same_bits(part, c, 7) && box_intact(part),
                      "%lld rows x %lld x %lld, accumulate %d, dtypes %d %d", (long long)n,
                      (long long)N, (long long)K, acc, act, out);
            box_free(&part);
        }
    box_free(&a), box_free(&b), box_free(&c0), box_free(&c);
}

static void check_gemm_few(void)
{
    static const int64_t shapes[][2] = {{1, 1}, {7, 45}, {64, 768}, {101, 1601}};
    /* left out on a device with memory of its own, because it may add in another order if there
     * are few rows */
    if (be->own_memory) return;
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (int acc = 0; acc < 2; acc++) {
            check_gemm_few_of(shapes[s][0], shapes[s][1], acc, act);
            if (act != DT_F32) check_gemm_few_of(shapes[s][0], shapes[s][1], acc, DT_F32);
        }
}

/* Checks products of the rows that are decoded together, which may be more than few, with a weight
 * in rows, in panels and in blocks. Rows must have the bits that they have one at a time. */
static void check_gemm_batch_of(struct tensor w)
{
    struct box a = box_act(JOB_MAX_BATCH, w.cols, 8), all = box_act(JOB_MAX_BATCH, w.rows, 1);
    box_random(a, 1, 1), box_fill(all, NAN);
    for (int64_t r = 0; r < JOB_MAX_BATCH; r++)
        CALL(be, gemm,
             &(struct gemm_args){.a = tensor_sub(a.t, r, 1, 0, w.cols),
                                 .b = w,
                                 .c = tensor_sub(all.t, r, 1, 0, w.rows),
                                 .trans_b = true});
    for (int64_t n = 2; n <= JOB_MAX_BATCH; n += n < 15 ? 7 : 1 + n / 2) {
        struct box part = box_act(n, w.rows, 3);
        CALL(n % 2 ? be : be_other, gemm,
             &(struct gemm_args){.a = tensor_sub(a.t, JOB_MAX_BATCH - n, n, 0, w.cols),
                                 .b = w,
                                 .c = part.t,
                                 .trans_b = true});
        CHECK_MSG(box_same_bits(part, all, JOB_MAX_BATCH - n) && box_intact(part),
                  "%lld rows x %lld x %lld, dtypes %d %d", (long long)n, (long long)w.rows,
                  (long long)w.cols, act, w.dtype);
        box_free(&part);
    }
    box_free(&a), box_free(&all);
}

static void check_gemm_batch(void)
{
    static const int64_t shapes[][2] = {{48, 96}, {112, 832}};
    if (be->own_memory) return;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        struct box w = box_act(shapes[s][0], shapes[s][1], 0);
        box_random(w, 2, 1);
        check_gemm_batch_of(w.t);
        if (act != DT_F16) {
            struct box panels = panels_copy(w);
            check_gemm_batch_of(panels.t);
            panels_free(&panels);
        }
        for (int f = 0; f < 2; f++) {
            struct quant_pair q = quant_pair_new(f ? DT_INT4 : DT_INT8, DT_F32, shapes[s][0],
                                                 shapes[s][1], 7);
            check_gemm_batch_of(q.blocks);
            quant_pair_free(&q);
        }
        box_free(&w);
    }
}

static void check_attn_few(void)
{
    static const struct attn_shape shapes[] = {
        {FEW_MANY, 300, 2, 2, 64, CAUSAL, 2, 1, 0}, {FEW_MANY, 333, 4, 2, 66, RAGGED, 3, 1, 0},
        {FEW_MANY, 129, 3, 1, 24, WINDOW, 1, 2, 0}, {FEW_MANY, 257, 6, 2, 256, DOCS, 2, 1, 0},
        {FEW_MANY, 70, 8, 1, 10, NO_KEY, 2, 1, 0},
    };
    if (be->own_memory) return;
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        struct attn_case c = {0};
        attn_prepare(&c, &shapes[s]);
        struct attn_out all = attn_run(be, &c, 0, FEW_MANY);
        (act == DT_F32 ? check_attn_fp32 : check_attn_half)(&c, &all);
        for (int64_t n = 1; n <= 9; n++)
            for (int i = 0; i < 2; i++) {
                struct attn_out x = attn_run(i ? be_other : be, &c, 17, n);
                CHECK_MSG(box_same_bits(x.o, all.o, 17) && box_same_bits(x.out, all.out, 17) &&
                              box_intact(x.o) && box_intact(x.m) && box_intact(x.l),
                          "%lld queries, shape %zu, dtype %d", (long long)n, s, act);
                for (int64_t h = 0; h < c.H; h++)
                    CHECK(!memcmp(box_at(x.m, h, 0), box_at(all.m, h, 17),
                                  (size_t)n * sizeof(float)));
                attn_out_free(&x);
            }
        attn_out_free(&all);
        attn_case_free(&c);
    }
}

#endif
