/* ref.h: computes every operation of kernels/backend.h in float64, as plainly as possible. It
 * shares no code and no memory layouts with the kernels: matrices are dense, and sums are plain
 * loops. */
#ifndef SEQD_TESTS_REF_H
#define SEQD_TESTS_REF_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "kernels/backend.h"

struct mat { /* dense and row-major; the matrix owns its memory */
    int64_t rows, cols;
    double *p;
};

#define MAT(m, i, j) ((m).p[(i) * (m).cols + (j)])

static inline struct mat mat_new(int64_t rows, int64_t cols) /* zeros */
{
    assert(rows >= 0 && cols >= 0 && rows * cols < (int64_t)1 << 30);
    return (struct mat){rows, cols, calloc((size_t)(rows * cols) + 1, sizeof(double))};
}
static inline void mat_free(struct mat *m)
{
    free(m->p);
    m->p = NULL;
}
/* Returns 2^e for -1022 <= e <= 1023. The result is the same as that of ldexp(1, e), but the slow
 * special cases of ldexp are left out. */
static inline double ref_power(int e)
{
    const uint64_t bits = (uint64_t)(e + 1023) << 52;
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
/* Returns the number that 16 bits of bf16 or fp16 encode. The bits are a sign, an exponent and a
 * significand. */
static inline double ref_half(enum dtype type, uint16_t bits)
{
    const int n = type == DT_F16 ? 10 : 7, bias = type == DT_F16 ? 15 : 127;
    const int e = (bits & 0x7fff) >> n, rest = bits & ((1 << n) - 1);
    double x = rest * ref_power(1 - bias - n);
    if (e == 2 * bias + 1)
        x = rest ? NAN : INFINITY;
    else if (e)
        x = (rest + (1 << n)) * ref_power(e - bias - n);
    return bits & 0x8000 ? -x : x;
}
static inline double ref_at(struct tensor t, int64_t i, int64_t j)
{
    if (t.dtype == DT_F32) return ((const float *)t.data)[i * t.ld + j];
    return ref_half(t.dtype, ((const uint16_t *)t.data)[i * t.ld + j]);
}
static inline struct mat mat_of(struct tensor t)
{
    struct mat m = mat_new(t.rows, t.cols);
    for (int64_t i = 0; i < t.rows; i++)
        for (int64_t j = 0; j < t.cols; j++) MAT(m, i, j) = ref_at(t, i, j);
    return m;
}

/* Returns the largest amount by which one rounding to nearest may change a value near x. In fp32
 * it returns 0, because the bounds of the operations include that rounding. In a 16-bit type it
 * returns half of the distance between neighbouring numbers, which is 2^-8 (bf16) or 2^-11 (fp16)
 * of the power of two at or below the value. For smaller values than the smallest normal number,
 * the distance is that of the smallest normal number. y is the computed result, and the larger one
 * of x and y determines the distance. */
static inline double ref_rounding(enum dtype type, double x, double y)
{
    int e = 0;
    if (type == DT_F32) return 0;
    (void)frexp(fmax(fabs(x), fabs(y)), &e);
    const int least = type == DT_F16 ? -13 : -125;
    return ref_power((e < least ? least : e) - (type == DT_F16 ? 12 : 9));
}

/* Returns |got - want| / |want| over all elements. If want is zero, it returns the norm of the
 * difference. If got has 16 bits, one rounding is subtracted from the difference of each element
 * first. If the fp32 value was rounded only once, the remaining difference is the error of the
 * fp32 value. */
static inline double ref_rel_l2(struct tensor got, struct mat want)
{
    double diff = 0, norm = 0;
    for (int64_t i = 0; i < want.rows; i++)
        for (int64_t j = 0; j < want.cols; j++) {
            double x = ref_at(got, i, j), y = MAT(want, i, j), d = fabs(x - y);
            if (isnan(d)) return INFINITY;
            d = fmax(0, d - ref_rounding(got.dtype, x, y));
            diff += d * d;
            norm += y * y;
        }
    return sqrt(norm > 0 ? diff / norm : diff);
}

/* Computes c = op(a) op(b), or c += op(a) op(b). */
static inline void ref_gemm(struct mat a, bool trans_a, struct mat b, bool trans_b, struct mat c,
                            bool accumulate)
{
    int64_t K = trans_a ? a.rows : a.cols;
    for (int64_t i = 0; i < c.rows; i++)
        for (int64_t j = 0; j < c.cols; j++) {
            double s = accumulate ? MAT(c, i, j) : 0;
            for (int64_t k = 0; k < K; k++)
                s += (trans_a ? MAT(a, k, i) : MAT(a, i, k)) *
                     (trans_b ? MAT(b, j, k) : MAT(b, k, j));
            MAT(c, i, j) = s;
        }
}

/* The sizes and the mask of an attention problem. Row t of the keys is the key with the global
 * index kv_pos + t. */
struct ref_attn {
    int64_t n_heads, n_kv_heads, head_dim;
    double scale;
    const int64_t *lo, *hi;
    int64_t kv_pos;
    double cap; /* the soft cap; 0 means none */
};

static inline double ref_score(const struct ref_attn *a, struct mat q, struct mat kv, int64_t h,
                               int64_t i, int64_t t)
{
    int64_t D = a->head_dim, g = h / (a->n_heads / a->n_kv_heads);
    double s = 0;
    for (int64_t d = 0; d < D; d++) s += MAT(q, i, h * D + d) * MAT(kv, t, g * D + d);
    s *= a->scale;
    return a->cap > 0 ? a->cap * tanh(s / a->cap) : s;
}

/* Returns the derivative of a capped score with respect to the score before the cap. */
static inline double ref_cap_slope(const struct ref_attn *a, double s)
{
    return a->cap > 0 ? 1 - s / a->cap * (s / a->cap) : 1;
}

static inline bool ref_sees(const struct ref_attn *a, int64_t i, int64_t t)
{
    return a->lo[i] <= a->kv_pos + t && a->kv_pos + t < a->hi[i];
}

/* Computes o [Tq, H*D], which is normalised, and lse [H, Tq], which uses natural logarithms. In a
 * row that sees no key, o is 0 and lse is -inf. */
static inline void ref_attn_fwd(const struct ref_attn *a, struct mat q, struct mat kv, struct mat o,
                                struct mat lse)
{
    int64_t D = a->head_dim, Hk = a->n_kv_heads;
    double *s = malloc((size_t)(kv.rows + 1) * sizeof *s);
    for (int64_t h = 0; h < a->n_heads; h++)
        for (int64_t i = 0; i < q.rows; i++) {
            int64_t g = h / (a->n_heads / Hk);
            double max = -INFINITY, sum = 0;
            for (int64_t t = 0; t < kv.rows; t++) {
                if (!ref_sees(a, i, t)) continue;
                s[t] = ref_score(a, q, kv, h, i, t);
                if (s[t] > max) max = s[t];
            }
            for (int64_t d = 0; d < D; d++) MAT(o, i, h * D + d) = 0;
            for (int64_t t = 0; t < kv.rows; t++) {
                if (!ref_sees(a, i, t)) continue;
                double p = exp(s[t] - max);
                sum += p;
                for (int64_t d = 0; d < D; d++)
                    MAT(o, i, h * D + d) += p * MAT(kv, t, (Hk + g) * D + d);
            }
            MAT(lse, h, i) = sum > 0 ? max + log(sum) : -INFINITY;
            for (int64_t d = 0; d < D && sum > 0; d++) MAT(o, i, h * D + d) /= sum;
        }
    free(s);
}

/* Adds the gradients to dq and dkv. o and lse are the results of ref_attn_fwd. */
static inline void ref_attn_bwd(const struct ref_attn *a, struct mat q, struct mat kv, struct mat o,
                                struct mat lse, struct mat d_o, struct mat dq, struct mat dkv)
{
    int64_t D = a->head_dim, Hk = a->n_kv_heads;
    for (int64_t h = 0; h < a->n_heads; h++)
        for (int64_t i = 0; i < q.rows; i++) {
            int64_t g = h / (a->n_heads / Hk);
            double delta = 0;
            for (int64_t d = 0; d < D; d++) delta += MAT(o, i, h * D + d) * MAT(d_o, i, h * D + d);
            for (int64_t t = 0; t < kv.rows; t++) {
                if (!ref_sees(a, i, t)) continue;
                const double s = ref_score(a, q, kv, h, i, t);
                double p = exp(s - MAT(lse, h, i)), dp = 0;
                for (int64_t d = 0; d < D; d++)
                    dp += MAT(d_o, i, h * D + d) * MAT(kv, t, (Hk + g) * D + d);
                double ds = p * (dp - delta) * a->scale * ref_cap_slope(a, s);
                for (int64_t d = 0; d < D; d++) {
                    MAT(dq, i, h * D + d) += ds * MAT(kv, t, g * D + d);
                    MAT(dkv, t, g * D + d) += ds * MAT(q, i, h * D + d);
                    MAT(dkv, t, (Hk + g) * D + d) += p * MAT(d_o, i, h * D + d);
                }
            }
        }
}

/* Computes, for each element, how far o, dq and dkv may be from their exact values, and adds this
 * to bo, bdq and bdkv. Every probability and every ds has an error of u times its value plus
 * `least`, because it is rounded to 16 bits before the products that use it. Every sum in fp32 has
 * an error of eps times the sum of the absolute values of its terms. */
static inline void ref_attn_bounds(const struct ref_attn *a, double u, double least, double eps,
                                   struct mat q, struct mat kv, struct mat o, struct mat lse,
                                   struct mat d_o, struct mat bo, struct mat bdq, struct mat bdkv)
{
    int64_t D = a->head_dim, Hk = a->n_kv_heads;
    for (int64_t h = 0; h < a->n_heads; h++)
        for (int64_t i = 0; i < q.rows; i++) {
            int64_t g = h / (a->n_heads / Hk);
            double delta = 0, delta_size = 0;
            for (int64_t d = 0; d < D; d++) {
                delta += MAT(o, i, h * D + d) * MAT(d_o, i, h * D + d);
                delta_size += fabs(MAT(o, i, h * D + d) * MAT(d_o, i, h * D + d));
            }
            for (int64_t t = 0; t < kv.rows; t++) {
                if (!ref_sees(a, i, t)) continue;
                double p = exp(ref_score(a, q, kv, h, i, t) - MAT(lse, h, i)), dp = 0, size = 0;
                for (int64_t d = 0; d < D; d++) {
                    dp += MAT(d_o, i, h * D + d) * MAT(kv, t, (Hk + g) * D + d);
                    size += fabs(MAT(d_o, i, h * D + d) * MAT(kv, t, (Hk + g) * D + d));
                }
                double ds = a->scale * p * (u * fabs(dp - delta) + eps * (size + delta_size));
                ds += least;
                const double off = (u + eps) * p + least;
                for (int64_t d = 0; d < D; d++) {
                    MAT(bo, i, h * D + d) += off * fabs(MAT(kv, t, (Hk + g) * D + d));
                    MAT(bdq, i, h * D + d) += ds * fabs(MAT(kv, t, g * D + d));
                    MAT(bdkv, t, g * D + d) += ds * fabs(MAT(q, i, h * D + d));
                    MAT(bdkv, t, (Hk + g) * D + d) += off * fabs(MAT(d_o, i, h * D + d));
                }
            }
        }
}

/* Tells whether the error of every element of got is within its bound. If got has 16 bits, it may
 * exceed the bound by one rounding. */
static inline bool ref_within(struct tensor got, struct mat want, struct mat bound)
{
    for (int64_t i = 0; i < want.rows; i++)
        for (int64_t j = 0; j < want.cols; j++) {
            double x = ref_at(got, i, j), y = MAT(want, i, j);
            if (!(fabs(x - y) <= MAT(bound, i, j) + ref_rounding(got.dtype, x, y))) return false;
        }
    return true;
}

/* Computes y and rstd [T, 1]; g is [1, C]. */
static inline void ref_rmsnorm_fwd(struct mat x, struct mat g, double eps, struct mat y,
                                   struct mat rstd)
{
    for (int64_t t = 0; t < x.rows; t++) {
        double ss = 0;
        for (int64_t c = 0; c < x.cols; c++) ss += MAT(x, t, c) * MAT(x, t, c);
        double r = 1 / sqrt(ss / (double)x.cols + eps);
        for (int64_t c = 0; c < x.cols; c++) MAT(y, t, c) = MAT(x, t, c) * r * MAT(g, 0, c);
        MAT(rstd, t, 0) = r;
    }
}

/* Adds the gradients to dx and to dg [1, C]. */
static inline void ref_rmsnorm_bwd(struct mat x, struct mat g, struct mat rstd, struct mat dy,
                                   struct mat dx, struct mat dg)
{
    for (int64_t t = 0; t < x.rows; t++) {
        double r = MAT(rstd, t, 0), dot = 0;
        for (int64_t c = 0; c < x.cols; c++) dot += MAT(dy, t, c) * MAT(g, 0, c) * MAT(x, t, c);
        for (int64_t c = 0; c < x.cols; c++) {
            MAT(dx, t, c) += r * MAT(g, 0, c) * MAT(dy, t, c) -
                             r * r * r * MAT(x, t, c) * dot / (double)x.cols;
            MAT(dg, 0, c) += MAT(dy, t, c) * MAT(x, t, c) * r;
        }
    }
}

static inline void ref_rope(struct mat x, const int64_t *pos, const double *inv_freq,
                            int64_t n_heads, int64_t D, bool inverse)
{
    for (int64_t t = 0; t < x.rows; t++)
        for (int64_t h = 0; h < n_heads; h++)
            for (int64_t j = 0; j < D / 2; j++) {
                double angle = (inverse ? -1.0 : 1.0) * (double)pos[t] * inv_freq[j];
                double u = MAT(x, t, h * D + j), v = MAT(x, t, h * D + D / 2 + j);
                MAT(x, t, h * D + j) = u * cos(angle) - v * sin(angle);
                MAT(x, t, h * D + D / 2 + j) = v * cos(angle) + u * sin(angle);
            }
}

static inline void ref_swiglu_fwd(struct mat gu, struct mat a)
{
    for (int64_t t = 0; t < a.rows; t++)
        for (int64_t c = 0; c < a.cols; c++) {
            double g = MAT(gu, t, c);
            MAT(a, t, c) = g / (1 + exp(-g)) * MAT(gu, t, a.cols + c);
        }
}

static inline void ref_swiglu_bwd(struct mat gu, struct mat da, struct mat dgu)
{
    for (int64_t t = 0; t < da.rows; t++)
        for (int64_t c = 0; c < da.cols; c++) {
            double g = MAT(gu, t, c), u = MAT(gu, t, da.cols + c), s = 1 / (1 + exp(-g));
            MAT(dgu, t, c) = MAT(da, t, c) * u * (s + g * s * (1 - s));
            MAT(dgu, t, da.cols + c) = MAT(da, t, c) * g * s;
        }
}

static inline void ref_embed_fwd(struct mat table, const int32_t *ids, struct mat x)
{
    for (int64_t t = 0; t < x.rows; t++)
        for (int64_t c = 0; c < x.cols; c++) MAT(x, t, c) = MAT(table, ids[t], c);
}

static inline void ref_embed_bwd(struct mat dtable, const int32_t *ids, struct mat dx)
{
    for (int64_t t = 0; t < dx.rows; t++)
        for (int64_t c = 0; c < dx.cols; c++) MAT(dtable, ids[t], c) += MAT(dx, t, c);
}

/* A cross-entropy. If cap is not 0, the logits are values after a soft cap, and the gradient is
 * taken with respect to the values before the cap. */
struct ref_xent {
    double scale, cap, smoothing, z_loss;
    const float *weight; /* [T] factors of the rows' gradients; NULL if they are 1 */
};

/* Replaces logits by their gradient, and sets nll [T]. A smoothed label is a distribution over the
 * ids, with whose probabilities the -log p of the ids are added. */
static inline void ref_xent(struct mat logits, const int32_t *targets, const struct ref_xent *x,
                            double *nll)
{
    for (int64_t t = 0; t < logits.rows; t++) {
        double max = -INFINITY, sum = 0;
        nll[t] = 0;
        for (int64_t c = 0; c < logits.cols; c++) max = fmax(max, MAT(logits, t, c));
        for (int64_t c = 0; c < logits.cols; c++) sum += exp(MAT(logits, t, c) - max);
        const double lse = max + log(sum),
                     scale = x->scale * (double)(x->weight ? x->weight[t] : 1);
        if (targets[t] >= 0) nll[t] = x->z_loss * lse * lse;
        for (int64_t c = 0; c < logits.cols; c++) {
            const double z = MAT(logits, t, c), p = exp(z - max) / sum;
            const double want = (c == targets[t] ? 1 - x->smoothing : 0) +
                                x->smoothing / (double)logits.cols;
            const double slope = x->cap > 0 ? 1 - z / x->cap * (z / x->cap) : 1;
            const double d = (1 + 2 * x->z_loss * lse) * p - want;
            MAT(logits, t, c) = targets[t] < 0 ? 0 : scale * slope * d;
            if (targets[t] >= 0 && want > 0) nll[t] += want * (lse - z);
        }
    }
}

static inline void ref_adamw(double *p, double *m, double *v, const double *g, int64_t n, double lr,
                             double b1, double b2, double eps, double wd, double clip, int64_t t)
{
    for (int64_t i = 0; i < n; i++) {
        double x = g[i] * clip;
        m[i] = b1 * m[i] + (1 - b1) * x;
        v[i] = b2 * v[i] + (1 - b2) * x * x;
        double mh = m[i] / (1 - pow(b1, (double)t)), vh = v[i] / (1 - pow(b2, (double)t));
        p[i] -= lr * (mh / (sqrt(vh) + eps) + wd * p[i]);
    }
}

static inline double ref_sumsq(const double *g, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += g[i] * g[i];
    return s;
}

#endif
