/* kern_sink.h: checks the sinks of attention, as a part of check_kernels. */
#ifndef SEQD_TESTS_KERN_SINK_H
#define SEQD_TESTS_KERN_SINK_H

#include "tests/lib/kern.h"

enum { SINK_T = 45, SINK_K = 83, SINK_H = 6, SINK_HK = 2, SINK_D = 16 };

/* Checks attention that starts with sinks. The expected values are computed from attention in
 * float64 without sinks: lse of each row gets one more term, which divides the row's weights by a
 * factor, and the output of the row is divided by this factor. Row 0 sees no key. If wide is set,
 * the sinks are in fp32. */
static void check_attn_sink_fwd(bool wide)
{
    const int64_t C = SINK_H * SINK_D, KV = 2 * SINK_HK * SINK_D;
    struct box q = box_act(SINK_T, C, 8), kv = box_act(SINK_K, KV, 8), o = box_new(SINK_T, C, 3);
    struct box m = box_new(SINK_H, SINK_T, 3), l = box_new(SINK_H, SINK_T, 3);
    struct box out = box_act(SINK_T, C, 1), sink = box_new_as(wide ? DT_F32 : act, 1, SINK_H, 0);
    int64_t *lo = ARRAY(int64_t, SINK_T), *hi = ARRAY(int64_t, SINK_T);
    box_random(q, 1, 1), box_random(kv, 2, 1), box_random(sink, 3, 2), box_fill(o, 0);
    for (int64_t i = 0; i < SINK_T; i++) lo[i] = i / 9, hi[i] = i ? i + 30 : 0;
    const double scale = 1 / sqrt((double)SINK_D);
    const struct ref_attn ra = {SINK_H, SINK_HK, SINK_D, scale, lo, hi, 0, 0};
    struct mat mq = mat_of(q.t), mkv = mat_of(kv.t), want = mat_new(SINK_T, C);
    struct mat lse = mat_new(SINK_H, SINK_T);
    ref_attn_fwd(&ra, mq, mkv, want, lse);
    CALL(be, attn_sink_fwd,
         &(struct attn_sink_fwd_args){m.t.data, l.t.data, m.t.ld, SINK_T, SINK_H, sink.t});
    for (int k = 0; k < 2; k++)
        CALL(be, attn_fwd,
             &(struct attn_fwd_args){q.t, tensor_sub(kv.t, k * 40, k ? SINK_K - 40 : 40, 0, KV),
                                     o.t, m.t.data, l.t.data, m.t.ld, lo, hi, k * 40, SINK_H,
                                     SINK_HK, SINK_D, (float)scale, NULL, 0, NULL, 0});
    CALL(be, attn_finish,
         &(struct attn_finish_args){o.t, act == DT_F32 ? o.t : out.t, m.t.data, l.t.data, m.t.ld,
                                    SINK_H, SINK_D});
    double worst = 0;
    for (int64_t h = 0; h < SINK_H; h++)
        for (int64_t i = 0; i < SINK_T; i++) {
            const double s = ref_at(sink.t, 0, h), e = exp(MAT(lse, h, i)), all = e + exp(s);
            for (int64_t d = 0; d < SINK_D; d++) MAT(want, i, h * SINK_D + d) *= e / all;
            worst = fmax(worst, fabs(*box_at(m, h, i) - log(all)) / (fabs(log(all)) + 4));
        }
    const double err = ref_rel_l2(act == DT_F32 ? o.t : out.t, want);
    CHECK_MSG(err <= (act == DT_F32 ? 2e-6 : ldexp(1, -7)), "o %g", err);
    CHECK_MSG(worst <= 8 * ULP, "lse %g", worst);
    CHECK(box_intact(m) && box_intact(l) && box_intact(o) && box_intact(out));
    mat_free(&mq), mat_free(&mkv), mat_free(&want), mat_free(&lse);
    box_free(&q), box_free(&kv), box_free(&o), box_free(&m), box_free(&l), box_free(&out);
    box_free(&sink);
}

/* Checks the gradient of sinks, which is summed in double and rounded once. A row that has neither
 * a key nor a sink adds nothing to it; its lse is -inf. */
static void check_attn_sink_bwd(int64_t T, bool wide)
{
    struct box lse = box_new(SINK_H, T, 2), delta = box_new(SINK_H, T, 2);
    struct box sink = box_new_as(wide ? DT_F32 : act, 1, SINK_H, 0);
    struct box d = box_new(1, SINK_H, 0), d0;
    box_random(lse, 1, 2), box_random(delta, 2, 1), box_random(sink, 3, 2), box_random(d, 4, 1);
    if (T > 3) *box_at(lse, 1, 3) = -INFINITY;
    d0 = box_copy(d, 0);
    struct mat want = mat_of(d.t);
    for (int64_t h = 0; h < SINK_H; h++)
        for (int64_t i = 0; i < T; i++) {
            const double x = *box_at(lse, h, i), s = ref_at(sink.t, 0, h);
            if (x != -INFINITY) MAT(want, 0, h) -= exp(s - x) * *box_at(delta, h, i);
        }
    const struct attn_sink_bwd_args a = {sink.t, lse.t.data, delta.t.data, delta.t.ld,
                                         T,      SINK_H,     d.t.data};
    struct attn_sink_bwd_args other = a;
    other.d_sink = d0.t.data;
    CALL(be, attn_sink_bwd, &a);
    CALL(be_other, attn_sink_bwd, &other);
    CHECK(ref_rel_l2(d.t, want) <= ULP && box_same_bits(d0, d, 0) && box_intact(d));
    mat_free(&want);
    box_free(&lse), box_free(&delta), box_free(&sink), box_free(&d), box_free(&d0);
}

static void check_attn_sink(void)
{
    for (int wide = 0; wide < 2; wide++) {
        check_attn_sink_fwd(wide);
        check_attn_sink_bwd(1, wide);
        check_attn_sink_bwd(77, wide);
        check_attn_sink_bwd(3000, wide);
    }
}

#endif
