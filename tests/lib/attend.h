/* attend.h: computes attention in float64 from its definition, for tests. The computation uses
 * only documents and positions. Query i sees key j if both are in the same document, which means
 * doc(i) == doc(j). If attention is causal, j <= i must hold, too. If there is a window, |i - j| <
 * window must also hold. tests/lib/philox.h computes the mask of dropout. */
#ifndef SEQD_TESTS_ATTEND_H
#define SEQD_TESTS_ATTEND_H

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include "kernels/half.h"
#include "tests/lib/philox.h"

enum docs { DOCS_ONE, DOCS_FIVE, DOCS_EACH, DOCS_N };

struct problem {
    int64_t S, H, Hk, D;
    enum docs docs;
    bool causal;
    int64_t window; /* 0 means that there is no window */
    double cap;     /* if it is not 0, each score s is replaced by cap tanh(s / cap) */
    /* [H] logits of the sinks, which are keys without a value. NULL means that there are no
     * sinks. */
    float *sink;
    double *d_sink; /* [H] the expected gradient of sink */
    /* the rate of dropout; the mask is computed from drop_key, layer 3 and sample 11 */
    double drop;
    int64_t *doc;         /* [S] the document of each position */
    float *q, *kv, *d_o;  /* row i is that of position i */
    double *o, *dq, *dkv; /* the expected results */
    /* norms of terms that may cancel in a sum; norms_ratio divides by these norms */
    double floor_q, floor_k;
};

static const uint32_t drop_key[2] = {0x1234567u, 0x89abcdefu};
enum { DROP_LAYER = 3, DROP_SAMPLE = 11 };

/* ---- inputs ---------------------------------------------------------------------------------- */

static uint64_t rng_state;

static inline float rng_uniform(void) /* (-1, 1) */
{
    rng_state += 0x9e3779b97f4a7c15u;
    uint64_t z = rng_state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (float)((double)((z ^ (z >> 31)) >> 11) / 4503599627370496.0 - 1.0);
}

static inline void *mem(int64_t n, size_t each)
{
    void *p = calloc((size_t)n, each);
    if (!p) abort();
    return p;
}

static inline float *random_floats(int64_t n, float scale)
{
    float *x = mem(n, 4);
    for (int64_t i = 0; i < n; i++) x[i] = rng_uniform() * scale;
    return x;
}

static inline bool sees(const struct problem *p, int64_t i, int64_t j)
{
    return p->doc[i] == p->doc[j] && (!p->causal || j <= i) &&
           (!p->window || (j > i - p->window && j < i + p->window));
}

/* ---- the reference results ------------------------------------------------------------------- */

static inline double mask_of(const struct problem *p, int64_t i, int64_t j, int64_t h)
{
    return philox_mask(drop_key, &(struct philox_at){i, j, DROP_LAYER, h, DROP_SAMPLE}, p->drop);
}

struct truth_row { /* the scratch of one query row */
    int64_t n, *j; /* the keys that the query sees */
    double *s, *dp, *mask, *slope;
    const double *kk; /* [S * Hk] the squared length of each key */
};

static inline double dot(const float *a, const float *b, int64_t n)
{
    /* four partial sums instead of one, for speed, because most of the test's time is spent in
     * this loop */
    double sum[4] = {0};
    int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (int c = 0; c < 4; c++) sum[c] += (double)a[i + c] * (double)b[i + c];
    for (; i < n; i++) sum[0] += (double)a[i] * (double)b[i];
    return sum[0] + sum[1] + (sum[2] + sum[3]);
}

/* Computes one head of one query row: its softmax, its output, and the terms that it adds to all
 * three gradients. */
static inline void truth_of_row(struct problem *p, struct truth_row *w, int64_t i, int64_t h)
{
    int64_t D = p->D, kv_cols = 2 * p->Hk * D, g = h / (p->H / p->Hk);
    const float *q = p->q + (i * p->H + h) * D, *d_o = p->d_o + (i * p->H + h) * D;
    double *o = p->o + (i * p->H + h) * D, *dq = p->dq + (i * p->H + h) * D;
    double scale = 1 / sqrt((double)D), max = -INFINITY, sum = 0, delta = 0, qq = dot(q, q, D);
    for (int64_t t = 0; t < w->n; t++) {
        w->s[t] = scale * dot(q, p->kv + w->j[t] * kv_cols + g * D, D);
        w->slope[t] = 1;
        if (p->cap > 0) {
            const double y = tanh(w->s[t] / p->cap);
            w->s[t] = p->cap * y;
            w->slope[t] = 1 - y * y;
        }
        max = fmax(max, w->s[t]);
    }
    if (p->sink) max = fmax(max, (double)p->sink[h]);
    const double sunk = p->sink ? exp((double)p->sink[h] - max) : 0;
    for (int64_t t = 0; t < w->n; t++) sum += w->s[t] = exp(w->s[t] - max);
    sum += sunk;
    for (int64_t t = 0; t < w->n; t++) {
        const float *v = p->kv + w->j[t] * kv_cols + (p->Hk + g) * D;
        w->s[t] /= sum;
        w->mask[t] = mask_of(p, i, w->j[t], h);
        w->dp[t] = dot(d_o, v, D) * w->mask[t];
        delta += w->s[t] * w->dp[t];
        for (int64_t d = 0; d < D; d++) o[d] += w->s[t] * w->mask[t] * v[d];
    }
    if (p->sink) p->d_sink[h] -= sunk / sum * delta;
    for (int64_t t = 0; t < w->n; t++) {
        const float *k = p->kv + w->j[t] * kv_cols + g * D;
        double *dk = p->dkv + w->j[t] * kv_cols + g * D, *dv = dk + p->Hk * D;
        const double pr = w->s[t], to = scale * pr * w->slope[t];
        const double ds = to * (w->dp[t] - delta), raw = to * w->dp[t];
        for (int64_t d = 0; d < D; d++) {
            dq[d] += ds * k[d];
            dk[d] += ds * q[d];
            dv[d] += pr * w->mask[t] * d_o[d];
        }
        p->floor_q += raw * raw * w->kk[w->j[t] * p->Hk + g];
        p->floor_k += raw * raw * qq;
    }
}

static inline void truth(struct problem *p)
{
    double *kk = mem(p->S * p->Hk, 8);
    struct truth_row w = {.j = mem(p->S, 8),
                          .s = mem(p->S, 8),
                          .dp = mem(p->S, 8),
                          .mask = mem(p->S, 8),
                          .slope = mem(p->S, 8),
                          .kk = kk};
    for (int64_t k = 0; k < p->S * p->Hk; k++) {
        const float *key = p->kv + (k / p->Hk * 2 * p->Hk + k % p->Hk) * p->D;
        kk[k] = dot(key, key, p->D);
    }
    p->o = mem(p->S * p->H * p->D, 8);
    p->dq = mem(p->S * p->H * p->D, 8);
    p->dkv = mem(p->S * 2 * p->Hk * p->D, 8);
    p->d_sink = mem(p->H, 8);
    for (int64_t i = 0; i < p->S; i++) {
        w.n = 0;
        for (int64_t j = 0; j < p->S; j++)
            if (sees(p, i, j)) w.j[w.n++] = j;
        for (int64_t h = 0; h < p->H; h++) truth_of_row(p, &w, i, h);
    }
    p->floor_q = sqrt(p->floor_q);
    p->floor_k = sqrt(p->floor_k);
    free(w.j);
    free(w.s);
    free(w.dp);
    free(w.mask);
    free(w.slope);
    free(kk);
}

static inline int64_t document_of(const struct problem *p, int64_t i)
{
    static const double cut[] = {0.03, 0.31, 0.5, 0.52};
    if (p->docs == DOCS_ONE) return 0;
    if (p->docs == DOCS_EACH) return i;
    int64_t d = 0;
    for (int k = 0; k < 4; k++) d += i >= (int64_t)ceil(cut[k] * (double)p->S);
    return d;
}

/* Computes the document of every position once, because each pair of positions looks it up. */
static inline void problem_documents(struct problem *p, enum docs docs)
{
    p->docs = docs;
    for (int64_t i = 0; i < p->S; i++) p->doc[i] = document_of(p, i);
}

static inline struct problem problem_make(int64_t S, int64_t H, int64_t Hk, int64_t D,
                                          enum docs docs, bool causal)
{
    struct problem p = {.S = S, .H = H, .Hk = Hk, .D = D, .causal = causal};
    rng_state = (uint64_t)(S * 131 + H * 17 + D);
    p.doc = mem(S, 8);
    problem_documents(&p, docs);
    p.q = random_floats(S * H * D, 2);
    p.kv = random_floats(S * 2 * Hk * D, 2);
    p.d_o = random_floats(S * H * D, 1);
    return p;
}

/* Gives each head a sink, some of them positive and some negative. A sink has about the size of
 * the scores. */
static inline void problem_sinks(struct problem *p)
{
    p->sink = random_floats(p->H, 3);
}

/* Rounds the inputs to values that a 16-bit type holds exactly. Call it before truth(). */
static inline void problem_round(struct problem *p, enum dtype t)
{
    const int64_t q = p->S * p->H * p->D, kv = p->S * 2 * p->Hk * p->D;
    for (int64_t i = 0; i < q; i++) p->q[i] = half_value(t, half_round(t, p->q[i]));
    for (int64_t i = 0; i < q; i++) p->d_o[i] = half_value(t, half_round(t, p->d_o[i]));
    for (int64_t i = 0; i < kv; i++) p->kv[i] = half_value(t, half_round(t, p->kv[i]));
    for (int64_t i = 0; p->sink && i < p->H; i++)
        p->sink[i] = half_value(t, half_round(t, p->sink[i]));
}

static inline void problem_free(struct problem *p)
{
    free(p->doc);
    free(p->q);
    free(p->kv);
    free(p->d_o);
    free(p->o);
    free(p->dq);
    free(p->dkv);
    free(p->sink);
    free(p->d_sink);
}

#endif
