/* kern_drop.h: checks the masks of dropout, attention with these masks, and the softmax of
 * complete rows, as a part of check_kernels. */
#ifndef SEQD_TESTS_KERN_DROP_H
#define SEQD_TESTS_KERN_DROP_H

#include <stdio.h>
#include "tests/lib/kern.h"

/* Computes Philox4x32-10 as its paper describes it, using the high and low words of products, and
 * adding a constant to each key in each round. */
static void ref_philox(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4])
{
    uint32_t x[4] = {counter[0], counter[1], counter[2], counter[3]};
    for (uint32_t r = 0; r < 10; r++) {
        const uint64_t a = 0xD2511F53ull * x[0], b = 0xCD9E8D57ull * x[2];
        const uint32_t y[4] = {(uint32_t)(b >> 32) ^ x[1] ^ (key[0] + r * 0x9E3779B9u), (uint32_t)b,
                               (uint32_t)(a >> 32) ^ x[3] ^ (key[1] + r * 0xBB67AE85u),
                               (uint32_t)a};
        memcpy(x, y, sizeof x);
    }
    memcpy(out, x, sizeof x);
}

/* Returns the factor by which one probability is multiplied: 0 if it is dropped, and 1 / (1 -
 * rate) if it is kept. */
static double ref_drop(const struct attn_drop *d, int64_t row, int64_t key, int64_t head)
{
    const uint32_t counter[4] = {(uint32_t)row, (uint32_t)(key / 4),
                                 d->layer << 16 | (uint32_t)head, d->sample};
    uint32_t words[4];
    ref_philox(d->key, counter, words);
    return (double)words[key % 4] >= d->rate * 4294967296.0 ? 1 / (1 - d->rate) : 0;
}

/* ---- dropout --------------------------------------------------------------------------------- */

/* Compares the mask of a zero key and zero counters with the answer that the generator's authors
 * published. */
static void check_dropout_known(void)
{
    static const uint32_t answer[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    for (int w = 0; w < 4; w++)
        for (int above = 0; above < 2; above++) {
            /* An element is dropped if the generator's word for it is below the rate. So a rate
             * that equals the word keeps the element, and the next larger rate drops it. */
            const struct attn_drop d = {
                ((double)answer[w] + above) / 4294967296.0, {0, 0}, 0, 0, 0, 0};
            struct box x = box_new(1, 4, 0);
            box_fill(x, 1);
            CALL(be, dropout, &(struct dropout_args){x.t, &d, 0, 0});
            for (int k = 0; k < 4; k++)
                CHECK((*box_at(x, 0, k) != 0) == (answer[k] >= answer[w] + (uint32_t)above));
            box_free(&x);
        }
}

static void check_dropout(void)
{
    static const int64_t shapes[][3] = {{1, 1, 0}, {3, 17, 5}, {5, 64, 1023}, {20, 700, 4194301}};
    check_dropout_known();
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        const int64_t T = shapes[s][0], n = shapes[s][1], pos = shapes[s][2], head = (int64_t)s * 3;
        const struct attn_drop d = {0.1 + 0.2 * (double)s, {77, 0xfffffff0u}, 9, 2, pos * 2 + 1, 0};
        struct box x = box_new(T, n, 1), y, first;
        box_random(x, 1, 1);
        first = box_copy(x, 0), y = box_copy(x, 3);
        int64_t n_bad = 0, n_kept = 0;
        CALL(be, dropout, &(struct dropout_args){x.t, &d, pos, head});
        for (int64_t i = 0; i < T; i++)
            for (int64_t k = 0; k < n; k++) {
                const double f = ref_drop(&d, d.q_pos + i, pos + k, head);
                const double want = *box_at(first, i, k) * f;
                n_bad += !(fabs(*box_at(x, i, k) - want) <= 2 * ULP * fabs(want));
                n_kept += f != 0;
            }
        CHECK(n_bad == 0 && box_intact(x));
        /* if there are many elements, the number of elements that are kept must be within five
         * standard deviations of its expected value */
        const double p = 1 - d.rate, N = (double)(T * n);
        CHECK(N < 1000 || fabs((double)n_kept - N * p) <= 5 * sqrt(N * p * (1 - p)));
        /* several calls, each for some of the columns, must give the same mask as one call */
        const int64_t cut = n / 3;
        CALL(be_other, dropout,
             &(struct dropout_args){tensor_sub(y.t, 0, T, 0, cut), &d, pos, head});
        CALL(be_other, dropout,
             &(struct dropout_args){tensor_sub(y.t, 0, T, cut, n - cut), &d, pos + cut, head});
        CHECK(box_same_bits(y, x, 0) && box_intact(y));
        box_free(&x), box_free(&y), box_free(&first);
    }
}

/* ---- attention under dropout ----------------------------------------------------------------- */

struct drop_shape {
    /* the queries are the positions [first, first + Tq) of the Tk keys */
    int64_t Tq, Tk, H, Hk, D, first;
    int n_calls;
    double rate;
};

struct drop_case {
    struct drop_shape s;
    struct attn_drop drop;
    struct box q, kv, d_o;
    struct mat o, lse, dq, dkv, delta;
    int64_t *lo, *hi;
};

/* Computes one head of one query by the definition: its scores, softmax, mask, output and all
 * gradients. */
static void ref_drop_row(struct drop_case *c, struct mat q, struct mat kv, struct mat d_o,
                         int64_t h, int64_t i, double scale)
{
    const int64_t D = c->s.D, g = h / (c->s.H / c->s.Hk), v0 = (c->s.Hk + g) * D;
    double *p = calloc((size_t)c->s.Tk, sizeof *p), max = -INFINITY, sum = 0, delta = 0;
    for (int64_t k = c->lo[i]; k < c->hi[i]; k++) {
        for (int64_t d = 0; d < D; d++)
            p[k] += scale * MAT(q, i, h * D + d) * MAT(kv, k, g * D + d);
        max = fmax(max, p[k]);
    }
    for (int64_t k = c->lo[i]; k < c->hi[i]; k++) sum += p[k] = exp(p[k] - max);
    MAT(c->lse, h, i) = max + log(sum);
    for (int64_t k = c->lo[i]; k < c->hi[i]; k++) {
        const double f = ref_drop(&c->drop, c->drop.q_pos + i, k, h);
        for (int64_t d = 0; d < D; d++)
            MAT(c->o, i, h * D + d) += f * p[k] / sum * MAT(kv, k, v0 + d);
    }
    for (int64_t d = 0; d < D; d++) delta += MAT(c->o, i, h * D + d) * MAT(d_o, i, h * D + d);
    MAT(c->delta, h, i) = delta;
    for (int64_t k = c->lo[i]; k < c->hi[i]; k++) {
        const double f = ref_drop(&c->drop, c->drop.q_pos + i, k, h), a = p[k] / sum;
        double dp = 0;
        for (int64_t d = 0; d < D; d++) dp += MAT(d_o, i, h * D + d) * MAT(kv, k, v0 + d);
        const double ds = scale * a * (f * dp - delta);
        for (int64_t d = 0; d < D; d++) {
            MAT(c->dq, i, h * D + d) += ds * MAT(kv, k, g * D + d);
            MAT(c->dkv, k, g * D + d) += ds * MAT(q, i, h * D + d);
            MAT(c->dkv, k, v0 + d) += f * a * MAT(d_o, i, h * D + d);
        }
    }
    free(p);
}

static struct drop_case drop_new(const struct drop_shape *s)
{
    struct drop_case c = {.s = *s};
    c.drop = (struct attn_drop){s->rate, {123, 456}, 3, 7, s->first, 0};
    c.q = box_act(s->Tq, s->H * s->D, 4), c.kv = box_act(s->Tk, 2 * s->Hk * s->D, 6);
    c.d_o = box_act(s->Tq, s->H * s->D, 1);
    box_random(c.q, 11, 1), box_random(c.kv, 12, 1), box_random(c.d_o, 13, 1);
    c.o = mat_new(s->Tq, s->H * s->D), c.dq = mat_new(s->Tq, s->H * s->D);
    c.lse = mat_new(s->H, s->Tq), c.delta = mat_new(s->H, s->Tq);
    c.dkv = mat_new(s->Tk, 2 * s->Hk * s->D);
    c.lo = ARRAY(int64_t, s->Tq), c.hi = ARRAY(int64_t, s->Tq);
    for (int64_t i = 0; i < s->Tq; i++) c.lo[i] = 0, c.hi[i] = s->first + i + 1;
    struct mat q = mat_of(c.q.t), kv = mat_of(c.kv.t), d_o = mat_of(c.d_o.t);
    for (int64_t h = 0; h < s->H; h++)
        for (int64_t i = 0; i < s->Tq; i++)
            ref_drop_row(&c, q, kv, d_o, h, i, (float)(1 / sqrt((double)s->D)));
    mat_free(&q), mat_free(&kv), mat_free(&d_o);
    return c;
}

static void drop_free(struct drop_case *c)
{
    box_free(&c->q), box_free(&c->kv), box_free(&c->d_o);
    mat_free(&c->o), mat_free(&c->lse), mat_free(&c->dq), mat_free(&c->dkv), mat_free(&c->delta);
}

struct drop_out {
    struct box o, out, m, l, dq, dkv;
};

/* Computes rows [r0, r0 + n). The keys are passed in blocks whose sizes are multiples neither of a
 * tile nor of four. */
static struct drop_out drop_run(struct be *b, const struct drop_case *c, int64_t r0, int64_t n)
{
    const struct drop_shape *s = &c->s;
    const int64_t w = 2 * s->Hk * s->D, C = s->H * s->D;
    struct drop_out x = {box_new(n, C, 2),    box_act(n, C, 0), box_new(s->H, n, 1),
                         box_new(s->H, n, 1), box_new(n, C, 3), box_new(s->Tk, w, 1)};
    struct box delta = box_new(s->H, n, 1);
    struct attn_drop drop = c->drop;
    drop.q_pos += r0;
    box_fill(x.o, 0), box_fill(x.m, -INFINITY), box_fill(x.l, 0);
    box_fill(x.dq, 0), box_fill(x.dkv, 0);
    const struct tensor q = tensor_sub(c->q.t, r0, n, 0, C),
                        d_o = tensor_sub(c->d_o.t, r0, n, 0, C);
    const float scale = (float)(1 / sqrt((double)s->D));
    for (int k = 0; k < s->n_calls; k++) {
        const int64_t t0 = s->Tk * k / s->n_calls, t1 = s->Tk * (k + 1) / s->n_calls;
        CALL(b, attn_fwd,
             &(struct attn_fwd_args){q, tensor_sub(c->kv.t, t0, t1 - t0, 0, w), x.o.t, x.m.t.data,
                                     x.l.t.data, x.m.t.ld, c->lo + r0, c->hi + r0, t0, s->H, s->Hk,
                                     s->D, scale, &drop, 0, NULL, 0});
    }
    CALL(b, attn_finish,
         &(struct attn_finish_args){x.o.t, act == DT_F32 ? x.o.t : x.out.t, x.m.t.data, x.l.t.data,
                                    x.m.t.ld, s->H, s->D});
    for (int64_t h = 0; h < s->H; h++)
        for (int64_t i = 0; i < n; i++) *box_at(delta, h, i) = (float)MAT(c->delta, h, r0 + i);
    for (int k = 0; k < s->n_calls; k++) {
        const int64_t t0 = s->Tk * k / s->n_calls, t1 = s->Tk * (k + 1) / s->n_calls;
        CALL(b, attn_bwd,
             &(struct attn_bwd_args){q, tensor_sub(c->kv.t, t0, t1 - t0, 0, w), d_o, x.dq.t,
                                     tensor_sub(x.dkv.t, t0, t1 - t0, 0, w), x.m.t.data,
                                     delta.t.data, delta.t.ld, c->lo + r0, c->hi + r0, t0, s->H,
                                     s->Hk, s->D, scale, &drop, 0});
    }
    CHECK(box_intact(x.o) && box_intact(x.m) && box_intact(x.dq) && box_intact(x.dkv));
    box_free(&delta);
    return x;
}

static void drop_out_free(struct drop_out *x)
{
    box_free(&x->o), box_free(&x->out), box_free(&x->m), box_free(&x->l), box_free(&x->dq);
    box_free(&x->dkv);
}

static void check_attn_drop_case(const struct drop_shape *s)
{
    struct drop_case c = drop_new(s);
    struct drop_out x = drop_run(be, &c, 0, s->Tq), y = drop_run(be_other, &c, 0, s->Tq);
    const struct box out = act == DT_F32 ? x.o : x.out;
    /* the bounds of attention also hold for 16-bit types, because masked probabilities remain in
     * fp32 */
    const double eo = ref_rel_l2(out.t, c.o), el = ref_rel_l2(x.m.t, c.lse);
    const double eq = ref_rel_l2(x.dq.t, c.dq), ekv = ref_rel_l2(x.dkv.t, c.dkv);
    CHECK_MSG(eo <= 2e-6 && el <= 2e-6 && eq <= 5e-6 && ekv <= 5e-6,
              "Tq %lld D %lld: o %g lse %g dq %g dkv %g", (long long)s->Tq, (long long)s->D, eo, el,
              eq, ekv);
    CHECK(box_same_bits(y.o, x.o, 0) && box_same_bits(y.dq, x.dq, 0));
    CHECK(box_same_bits(y.dkv, x.dkv, 0));
    const int64_t r0 = s->Tq / 3, n = (s->Tq - r0 + 1) / 2;
    /* computes some of these rows alone, so that they are in other tiles and lanes than before */
    struct drop_out part = drop_run(be, &c, r0, n);
    CHECK(box_same_bits(part.o, x.o, r0) && box_same_bits(part.dq, x.dq, r0));
    drop_out_free(&x), drop_out_free(&y), drop_out_free(&part), drop_free(&c);
}

static void check_attn_drop(void)
{
    static const struct drop_shape shapes[] = {
        {37, 37, 3, 1, 16, 0, 3, 0.1},     {130, 200, 2, 2, 64, 70, 3, 0.5},
        {3, 150, 6, 2, 24, 147, 2, 0.25},  {200, 200, 1, 1, 72, 0, 1, 0.9},
        {70, 131, 2, 1, 128, 61, 2, 0.01},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) check_attn_drop_case(&shapes[i]);
}

/* ---- softmax of complete rows
 * ------------------------------------------------------------------- */

static void check_softmax_shape(int64_t T, int64_t n, int64_t col_pos)
{
    struct box x = box_new(T, n, 2), y, dp = box_new(T, n, 0), dp2, lse = box_new(1, T, 0);
    int64_t *lo = ARRAY(int64_t, T), *hi = ARRAY(int64_t, T), n_bad = 0;
    float *delta = ARRAY(float, T);
    uint64_t seed = 5;
    box_random(x, 1, 3), box_random(dp, 2, 1);
    y = box_copy(x, 0), dp2 = box_copy(dp, 1);
    struct mat want = mat_of(x.t), mdp = mat_of(dp.t);
    for (int64_t t = 0; t < T; t++) {
        lo[t] = col_pos + (int64_t)(box_rand(&seed) % (uint64_t)(n + 6)) - 3;
        hi[t] = t % 7 == 3 ? lo[t] - 1 : col_pos + n - (int64_t)(box_rand(&seed) % 4) + 2;
        if (t == 0) lo[t] = col_pos, hi[t] = col_pos + n;
        delta[t] = box_normal(&seed, 1);
    }
    CALL(be, softmax_fwd, &(struct softmax_fwd_args){x.t, lo, hi, col_pos, lse.t.data});
    for (int64_t t = 0; t < T; t++) {
        double max = -INFINITY, sum = 0;
        for (int64_t k = 0; k < n; k++)
            if (lo[t] <= col_pos + k && col_pos + k < hi[t]) max = fmax(max, MAT(want, t, k));
        for (int64_t k = 0; k < n; k++) {
            const bool seen = lo[t] <= col_pos + k && col_pos + k < hi[t];
            sum += MAT(want, t, k) = seen ? exp(MAT(want, t, k) - max) : 0;
            n_bad += !seen && *box_at(x, t, k) != 0;
        }
        for (int64_t k = 0; k < n && sum > 0; k++) MAT(want, t, k) /= sum;
        const double l = max + log(sum), got = *box_at(lse, 0, t);
        n_bad += sum > 0 ? !(fabs(got - l) <= 2 * ULP * (fabs(l) + 20)) : got != -INFINITY;
    }
    /* the bound covers the rounding of exp's argument, whose absolute value is up to about 20 */
    CHECK_MSG(n_bad == 0 && ref_rel_l2(x.t, want) <= 14 * ULP, "%lld bad, p %g", (long long)n_bad,
              ref_rel_l2(x.t, want));
    CHECK(box_intact(x) && box_intact(lse));
    CALL(be_other, softmax_fwd, &(struct softmax_fwd_args){y.t, lo, hi, col_pos, NULL});
    CHECK(box_same_bits(y, x, 0));
    const struct mat p = mat_of(x.t);
    for (int64_t i = 0; i < T * n; i++) mdp.p[i] = p.p[i] * (mdp.p[i] - (double)delta[i / n]);
    CALL(be, softmax_bwd, &(struct softmax_bwd_args){x.t, dp.t, delta});
    CHECK(ref_rel_l2(dp.t, mdp) <= 3 * ULP && box_intact(dp));
    CALL(be_other, softmax_bwd, &(struct softmax_bwd_args){x.t, dp2.t, delta});
    CHECK(box_same_bits(dp2, dp, 0));
    struct mat unused = p;
    mat_free(&want), mat_free(&mdp), mat_free(&unused);
    box_free(&x), box_free(&y), box_free(&dp), box_free(&dp2), box_free(&lse);
}

static void check_softmax(void)
{
    check_softmax_shape(1, 1, 0), check_softmax_shape(9, 17, 100), check_softmax_shape(40, 64, 7);
    check_softmax_shape(33, 1003, 0);
}

#endif
