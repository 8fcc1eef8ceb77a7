/* device64.h: a reference device. Its tensors are float64 (DT_F64), and its operations are
 * computed as their definitions read.
 *
 *  struct be be = device64();
 *
 * Linear attention goes token by token, S = lambda S + k v', o = scale q S: it uses no blocks and
 * no powers of lambda. The table has NULL for every other operation. */
#ifndef SEQD_TESTS_DEVICE64_H
#define SEQD_TESTS_DEVICE64_H

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "kernels/backend.h"

struct d64_head { /* one head of one chunk */
    const struct linear_args *a;
    int64_t h, Dk, Dv;
    double lambda;
};

static inline double *d64_at(struct tensor t, int64_t row, int64_t col)
{
    assert(t.dtype == DT_F64);
    return (double *)t.data + row * t.ld + col;
}
static inline double *d64_q(const struct d64_head *x, int64_t i)
{
    return d64_at(x->a->q, i, x->h * x->Dk);
}
static inline double *d64_k(const struct d64_head *x, int64_t i)
{
    return d64_at(x->a->k, i, x->h * x->Dk);
}
static inline double *d64_v(const struct d64_head *x, int64_t i)
{
    return d64_at(x->a->v, i, x->h * x->Dv);
}
static inline bool d64_valid(const struct d64_head *x, int64_t i)
{
    return i < x->a->q.rows && x->a->lo[i] < x->a->hi[i];
}
/* Tells whether row i continues the document of the row before it, which is in the chunk or in the
 * state that entered. */
static inline bool d64_goes_on(const struct d64_head *x, int64_t i)
{
    return x->a->lo[i] < x->a->pos + i;
}

static inline struct d64_head d64_head_of(const struct linear_args *a, int64_t h)
{
    assert(!a->gate && a->q.cols == a->n_heads * a->key_dim);
    assert(a->k.cols == a->q.cols && a->v.cols == a->n_heads * a->value_dim);
    return (struct d64_head){a, h, a->key_dim, a->value_dim, exp(-a->slope[h])};
}

static inline void d64_scale(double *S, int64_t n, double by)
{
    for (int64_t i = 0; i < n; i++) S[i] *= by;
}

/* S += by a b', a [Dk], b [Dv] */
static inline void d64_outer(const struct d64_head *x, double *S, double by, const double *a,
                             const double *b)
{
    for (int64_t i = 0; i < x->Dk; i++)
        for (int64_t j = 0; j < x->Dv; j++) S[i * x->Dv + j] += by * a[i] * b[j];
}

/* out [Dv] += by S' a */
static inline void d64_left(const struct d64_head *x, double *out, double by, const double *S,
                            const double *a)
{
    for (int64_t i = 0; i < x->Dk; i++)
        for (int64_t j = 0; j < x->Dv; j++) out[j] += by * a[i] * S[i * x->Dv + j];
}

/* out [Dk] += by S b */
static inline void d64_right(const struct d64_head *x, double *out, double by, const double *S,
                             const double *b)
{
    for (int64_t i = 0; i < x->Dk; i++)
        for (int64_t j = 0; j < x->Dv; j++) out[i] += by * b[j] * S[i * x->Dv + j];
}

static inline double *d64_zeros(const struct d64_head *x)
{
    double *S = calloc((size_t)(x->Dk * x->Dv), sizeof *S);
    if (!S) abort();
    return S;
}

/* Updates the state that row i-1 read to the state that row i reads; 0 before row 0. */
static inline void d64_step(const struct d64_head *x, double *S, int64_t i)
{
    d64_scale(S, x->Dk * x->Dv, d64_goes_on(x, i) ? x->lambda : 0);
    d64_outer(x, S, 1, d64_k(x, i), d64_v(x, i));
}

static inline double *d64_state(const struct d64_head *x, const void *states)
{
    return (double *)states + x->h * x->Dk * x->Dv;
}

static inline void d64_linear_fwd(struct be *be, const struct linear_fwd_args *f)
{
    for (int64_t h = 0; h < f->in.n_heads; h++) {
        struct d64_head x = d64_head_of(&f->in, h);
        double *S = d64_zeros(&x);
        for (int64_t i = 0; i < f->in.k.rows; i++) {
            double *o = f->o.data ? d64_at(f->o, i, h * x.Dv) : NULL;
            if (o) memset(o, 0, (size_t)x.Dv * sizeof *o);
            if (!d64_valid(&x, i)) continue;
            d64_step(&x, S, i);
            if (o) d64_left(&x, o, f->in.scale, S, d64_q(&x, i));
        }
        d64_scale(S, x.Dk * x.Dv, x.lambda); /* step to the row after the last */
        if (f->m) memcpy(d64_state(&x, f->m), S, (size_t)(x.Dk * x.Dv) * sizeof *S);
        free(S);
    }
}

static inline bool d64_sees(const struct d64_head *x, int64_t i)
{
    return d64_valid(x, i) && x->a->lo[i] < x->a->pos;
}

static inline void d64_linear_enter(struct be *be, const struct linear_enter_args *f)
{
    for (int64_t h = 0; h < f->in.n_heads; h++) {
        struct d64_head x = d64_head_of(&f->in, h);
        double *S = d64_zeros(&x);
        memcpy(S, d64_state(&x, f->state), (size_t)(x.Dk * x.Dv) * sizeof *S);
        for (int64_t i = 0; d64_sees(&x, i); i++) {
            d64_left(&x, d64_at(f->o, i, h * x.Dv), f->in.scale, S, d64_q(&x, i));
            d64_scale(S, x.Dk * x.Dv, x.lambda);
        }
        free(S);
    }
}

/* Goes from the last row to the first: G is the gradient of the state that row i reads. */
static inline void d64_bwd_head(const struct linear_bwd_args *f, const struct d64_head *x)
{
    double *S = d64_zeros(x), *G = d64_zeros(x), scale = f->in.scale;
    const int64_t n = f->in.q.rows;
    for (int64_t i = 0; i < n && f->dq.data; i++) {
        double *dq = d64_at(f->dq, i, x->h * x->Dk);
        memset(dq, 0, (size_t)x->Dk * sizeof *dq);
        if (!d64_valid(x, i)) continue;
        d64_step(x, S, i);
        d64_right(x, dq, scale, S, d64_at(f->d_o, i, x->h * x->Dv));
    }
    for (int64_t i = n - 1; i >= 0; i--) {
        double *dk = f->dk.data ? d64_at(f->dk, i, x->h * x->Dk) : NULL;
        double *dv = f->dv.data ? d64_at(f->dv, i, x->h * x->Dv) : NULL;
        if (dk) memset(dk, 0, (size_t)x->Dk * sizeof *dk);
        if (dv) memset(dv, 0, (size_t)x->Dv * sizeof *dv);
        if (!d64_valid(x, i)) continue;
        bool same = d64_valid(x, i + 1) && d64_goes_on(x, i + 1);
        d64_scale(G, x->Dk * x->Dv, same ? x->lambda : 0);
        d64_outer(x, G, scale, d64_q(x, i), d64_at(f->d_o, i, x->h * x->Dv));
        if (dk) d64_right(x, dk, 1, G, d64_v(x, i));
        if (dv) d64_left(x, dv, 1, G, d64_k(x, i));
    }
    if (!d64_sees(x, 0)) d64_scale(G, x->Dk * x->Dv, 0);
    if (f->dm) memcpy(d64_state(x, f->dm), G, (size_t)(x->Dk * x->Dv) * sizeof *G);
    free(S);
    free(G);
}

static inline void d64_linear_bwd(struct be *be, const struct linear_bwd_args *f)
{
    for (int64_t h = 0; h < f->in.n_heads; h++) {
        struct d64_head x = d64_head_of(&f->in, h);
        d64_bwd_head(f, &x);
    }
}

/* Adds to dq the part of the incoming state S, for the rows that see it, from the first row on. */
static inline void d64_enter_dq(const struct linear_enter_bwd_args *f, const struct d64_head *x)
{
    double *S = d64_zeros(x);
    memcpy(S, d64_state(x, f->state), (size_t)(x->Dk * x->Dv) * sizeof *S);
    for (int64_t i = 0; d64_sees(x, i); i++) {
        d64_right(x, d64_at(f->dq, i, x->h * x->Dk), f->in.scale, S,
                  d64_at(f->d_o, i, x->h * x->Dv));
        d64_scale(S, x->Dk * x->Dv, x->lambda);
    }
    free(S);
}

/* Adds to dk and dv the part of the outgoing state's gradient, for the rows of the last document,
 * from the last row back. */
static inline void d64_enter_dkv(const struct linear_enter_bwd_args *f, const struct d64_head *x)
{
    double *G = d64_zeros(x);
    int64_t i = 0;
    memcpy(G, d64_state(x, f->d_state), (size_t)(x->Dk * x->Dv) * sizeof *G);
    while (d64_valid(x, i)) i++;
    while (--i >= 0) {
        d64_scale(G, x->Dk * x->Dv, x->lambda);
        d64_right(x, d64_at(f->dk, i, x->h * x->Dk), 1, G, d64_v(x, i));
        d64_left(x, d64_at(f->dv, i, x->h * x->Dv), 1, G, d64_k(x, i));
        if (!d64_goes_on(x, i)) break;
    }
    free(G);
}

static inline void d64_linear_enter_bwd(struct be *be, const struct linear_enter_bwd_args *f)
{
    for (int64_t h = 0; h < f->in.n_heads; h++) {
        struct d64_head x = d64_head_of(&f->in, h);
        if (f->state) d64_enter_dq(f, &x);
        if (f->d_state) d64_enter_dkv(f, &x);
    }
}

static inline void d64_linear_fold(struct be *be, const struct linear_fold_args *f)
{
    const int64_t n = f->key_dim * f->value_dim;
    assert(f->dtype == DT_F64);
    for (int64_t h = 0; h < f->n_heads; h++)
        for (int64_t i = h * n; i < (h + 1) * n; i++) {
            double decay = exp(-f->slope[h] * (double)f->n_valid), x = ((const double *)f->m)[i];
            if (f->through) x += decay * ((const double *)f->in)[i];
            ((double *)f->out)[i] = x;
        }
}

static inline void d64_fill(struct be *be, float *p, int64_t n, float value)
{
    for (int64_t i = 0; i < n; i++) p[i] = value;
}
static inline void d64_copy(struct be *be, void *dst, const void *src, int64_t size)
{
    memcpy(dst, src, (size_t)size);
}

static inline struct be device64(void)
{
    static const struct be_ops ops = {.name = "float64",
                                      .linear_fwd = d64_linear_fwd,
                                      .linear_enter = d64_linear_enter,
                                      .linear_bwd = d64_linear_bwd,
                                      .linear_enter_bwd = d64_linear_enter_bwd,
                                      .linear_fold = d64_linear_fold,
                                      .fill = d64_fill,
                                      .copy = d64_copy};
    return (struct be){.ops = &ops, .isa = "float64", .n_threads = 1};
}

#endif
