/* kern_naive.h: makes two comparisons of attention's error, as a part of check_kernels. First, the
 * error is compared with the error of a plain computation in the same precision. Second, the keys
 * are divided into eight blocks, like those of eight ranks, and the error is compared with the
 * error of a single block. */
#ifndef SEQD_TESTS_KERN_NAIVE_H
#define SEQD_TESTS_KERN_NAIVE_H

#include "tests/lib/kern_attn.h"

/* the largest ratio of the error of attention to the error of the plain computation */
#define NAIVE_MORE 1.25
/* the largest ratio of the error with eight blocks to the error with one block */
#define BLOCKS_MORE 1.10

/* Rounds x to the precision that the inputs of products have: to 16 bits if the tensors have 16
 * bits. */
static float naive_round(float x)
{
    return act == DT_F32 ? x : (float)ref_half(act, box_half(act, x));
}

struct naive {
    const struct attn_case *c;
    struct mat q, kv, d_o;
    struct box o, dq, dkv; /* the results, which have the same types as the results of a device */
    float *p;
};

static float naive_dot(const struct naive *x, struct mat a, int64_t i, int64_t a0, struct mat b,
                       int64_t j, int64_t b0)
{
    float s = 0;
    for (int64_t d = 0; d < x->c->D; d++) s += (float)MAT(a, i, a0 + d) * (float)MAT(b, j, b0 + d);
    return s;
}

/* Computes one row in float. It computes the scores, one softmax over all of them, and each
 * product in a loop. */
static void naive_row(struct naive *x, int64_t h, int64_t i)
{
    const struct attn_case *c = x->c;
    const int64_t D = c->D, g = h / (c->H / c->Hk), k0 = g * D, v0 = (c->Hk + g) * D, q0 = h * D;
    const float scale = (float)(1 / sqrt((double)D));
    float max = -INFINITY, sum = 0, delta = 0;
    for (int64_t k = c->lo[i]; k < c->hi[i]; k++) {
        x->p[k] = scale * naive_dot(x, x->q, i, q0, x->kv, k, k0);
        max = fmaxf(max, x->p[k]);
    }
    for (int64_t k = c->lo[i]; k < c->hi[i]; k++) sum += x->p[k] = expf(x->p[k] - max);
    for (int64_t d = 0; d < D; d++) {
        float o = 0;
        for (int64_t k = c->lo[i]; k < c->hi[i]; k++)
            o += naive_round(x->p[k]) * (float)MAT(x->kv, k, v0 + d);
        box_set(x->o, i, q0 + d, o / sum);
        const double of = act != DT_F32 ? ref_at(c->o_act.t, i, q0 + d) : (double)(o / sum);
        delta += (float)of * (float)MAT(x->d_o, i, q0 + d);
    }
    for (int64_t k = c->lo[i]; k < c->hi[i]; k++) {
        const float p = x->p[k] / sum;
        const float ds = p * (naive_dot(x, x->d_o, i, q0, x->kv, k, v0) - delta);
        for (int64_t d = 0; d < D; d++) {
            *box_at(x->dq, i, q0 + d) += scale * naive_round(ds) * (float)MAT(x->kv, k, k0 + d);
            *box_at(x->dkv, k, k0 + d) += scale * naive_round(ds) * (float)MAT(x->q, i, q0 + d);
            *box_at(x->dkv, k, v0 + d) += naive_round(p) * (float)MAT(x->d_o, i, q0 + d);
        }
    }
}

static struct naive naive_new(const struct attn_case *c)
{
    struct naive x = {.c = c,
                      .q = mat_of(c->q.t),
                      .kv = mat_of(c->kv.t),
                      .d_o = mat_of(c->d_o.t),
                      .o = box_act(c->Tq, c->H * c->D, 0),
                      .dq = box_new(c->Tq, c->H * c->D, 0),
                      .dkv = box_new(c->Tk, 2 * c->Hk * c->D, 0),
                      .p = malloc((size_t)c->Tk * sizeof *x.p)};
    if (!x.p) abort();
    box_fill(x.dq, 0), box_fill(x.dkv, 0);
    for (int64_t h = 0; h < c->H; h++)
        for (int64_t i = 0; i < c->Tq; i++) naive_row(&x, h, i);
    return x;
}

static void naive_free(struct naive *x)
{
    mat_free(&x->q), mat_free(&x->kv), mat_free(&x->d_o);
    box_free(&x->o), box_free(&x->dq), box_free(&x->dkv), free(x->p);
}

/* Returns |got - want| / |want|. Errors of rounding to 16 bits are included, because both
 * computations have them. */
static double naive_error(struct tensor got, struct mat want)
{
    double diff = 0, norm = 0;
    for (int64_t i = 0; i < want.rows; i++)
        for (int64_t j = 0; j < want.cols; j++) {
            diff += pow(ref_at(got, i, j) - MAT(want, i, j), 2);
            norm += pow(MAT(want, i, j), 2);
        }
    return sqrt(diff / norm);
}

static void naive_compare(const char *what, struct box one, struct box eight, struct box naive,
                          struct mat want)
{
    const double e1 = naive_error(one.t, want), e8 = naive_error(eight.t, want);
    const double n = naive_error(naive.t, want);
    CHECK_MSG(e1 <= NAIVE_MORE * n && e8 <= NAIVE_MORE * n, "%s: %g, in eight %g, naive %g", what,
              e1, e8, n);
    CHECK_MSG(e8 <= BLOCKS_MORE * e1, "%s: in eight %g, at once %g", what, e8, e1);
}

/* Checks one shape. Both computations draw thousands of errors from the same distribution, so that
 * the root mean squares of their errors agree within a few percent. A second call of the operation
 * with the same arguments must give the same bits. */
static void check_naive_shape(const struct attn_shape *s)
{
    struct attn_case c = {0};
    attn_prepare(&c, s);
    struct naive x = naive_new(&c);
    c.n_calls = 1;
    struct attn_out one = attn_run(be, &c, 0, c.Tq), again = attn_run(be, &c, 0, c.Tq);
    c.n_calls = 8;
    struct attn_out eight = attn_run(be, &c, 0, c.Tq);
    const bool half = act != DT_F32;
    naive_compare("o", half ? one.out : one.o, half ? eight.out : eight.o, x.o, c.o);
    naive_compare("dq", one.dq, eight.dq, x.dq, c.dq);
    naive_compare("dkv", one.dkv, eight.dkv, x.dkv, c.dkv);
    CHECK(box_same_bits(again.o, one.o, 0) && box_same_bits(again.dq, one.dq, 0));
    CHECK(box_same_bits(again.dkv, one.dkv, 0) && box_same_bits(again.m, one.m, 0));
    attn_out_free(&one), attn_out_free(&again), attn_out_free(&eight), naive_free(&x);
    attn_case_free(&c);
}

static void check_naive(void)
{
    check_naive_shape(&(struct attn_shape){192, 192, 2, 1, 64, CAUSAL, 2, 1, 0});
    if (!quick) check_naive_shape(&(struct attn_shape){130, 390, 2, 2, 128, FULL, 2, 1, 0});
}

#endif
