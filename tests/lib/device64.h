/* device64.h: a reference device for linear attention. Its tensors are float64 (DT_F64), and it
 * computes each operation exactly as the definition is written.
 *
 *     struct be be = device64();
 *
 * Linear attention is computed token by token, without blocks and without powers of lambda:
 *
 *     S = lambda S + k v'
 *     o = scale q S
 *
 * In the device's table, every operation that is not part of linear attention is NULL. */
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
/* Tells whether row i belongs to the same document as the row before it. For row 0 of the chunk,
 * the row before it is the last row of the previous chunk. */
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

/* Computes S += by a b', where a is [Dk] and b is [Dv]. */
static inline void d64_outer(const struct d64_head *x, double *S, double by, const double *a,
                             const double *b)
{
    for (int64_t i = 0; i < x->Dk; i++)
        for (int64_t j = 0; j < x->Dv; j++) S[i * x->Dv + j] += by * a[i] * b[j];
}

/* Computes out += by S' a, where out is [Dv]. */
static inline void d64_left(const struct d64_head *x, double *out, double by, const double *S,
                            const double *a)
{
    for (int64_t i = 0; i < x->Dk; i++)
        for (int64_t j = 0; j < x->Dv; j++) out[j] += by * a[i] * S[i * x->Dv + j];
}

/* Computes out += by S b, where out is [Dk]. */
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

/* Updates S from the state that row i - 1 reads to the state that row i reads. If row i begins a
 * document, S is cleared before the term of row i is added. */
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
        /* m is the state after the last row, multiplied by lambda once more for the next row */
        d64_scale(S, x.Dk * x.Dv, x.lambda);
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

/* Computes the gradients of one head. The gradient of q is computed from the first row to the
 * last, and the gradients of k and v from the last row to the first. G is the gradient of the
 * state that row i reads. */
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

/* Adds the terms that come from the incoming state S to dq. Only the rows that see this state get
 * a term, and they are the first rows of the chunk. */
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

/* Adds the terms that come from the gradient of the outgoing state to dk and dv. Only the rows of
 * the last document get a term; the loop runs backward from the last row. */
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
