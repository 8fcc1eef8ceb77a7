/* backend.h: the operations that a device must have. One table of operations, one row per device.
 *
 * An operation is a slot in struct be_ops and an args struct documented here; a device is one
 * implementation of the table (kernels/cpu, kernels/cuda). Code that calls the table is
 * device-neutral. Operations are asynchronous on devices that have streams; be->ops->sync waits
 * and reports. A device may keep operations back, with their args, until an upload, a download, a
 * transfer or a sync. So only one thread at a time may use an opened device. Every device asserts
 * shapes by the functions of shapes.h.
 *
 * Letters: T rows (tokens) in this call, C width, H query heads, Hk KV heads, D head size, V
 * vocab. All tensors are row-major 2-D views: fp32, bf16 or fp16.
 *
 * A device may have memory of its own (be->own_memory): then all data that an operation reads or
 * writes, tensors and arrays (pos, lo, ids, slope, nll ...), lies in memory from its alloc, and
 * the host reaches it by upload and download alone. A struct that an args struct points to (struct
 * attn_drop) is the host's, and read before the call returns.
 *
 * bf16 and fp16 are storage and inputs of products; every sum is fp32. "act" below is a tensor of
 * the model's precision: all act tensors of one call have the same dtype. An output in 16 bits is
 * rounded once, to nearest even, from its fp32 value (fp16: infinity from 65520 on); a sum over
 * keys, rows or hops is never kept in 16 bits. Statements about bf16 below hold for fp16 too.
 * These are fp32 at any precision: carried (o, m, l), lse, delta, dq and dkv of attention, weight
 * gradients, rstd, logits, master weights and Adam's moments.
 *
 * NaN and infinity pass through: if an input holds one, the outputs hold it or the function's
 * value for it. Infinity becomes finite only if the function's value is finite (exp(-inf),
 * tanh(inf)). NaN stays NaN. Both may spread to other rows of the call, but rows that see no key
 * are always 0.
 *
 * Rank-invariant bits: unless a slot says otherwise, every output row depends only on
 * its own inputs, in an order of additions that does not depend on the number of rows, on the
 * thread count or on where the row lies; reductions over rows go over ascending rows. */
#ifndef SEQD_KERNELS_BACKEND_H
#define SEQD_KERNELS_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/act.h"
#include "api/core/delta.h"
#include "api/core/device.h"
#include "api/core/err.h"
#include "api/core/quant.h"

/* DT_F64: used by the tests' reference device alone. DT_INT8, DT_INT4: a weight [N, K] in blocks
 * (api/core/quant.h). A view of it has whole rows, the first a multiple of QUANT_ROWS, and ld K.
 * DT_F32_PANELS, DT_BF16_PANELS: a weight [N, K] of numbers in panels (panels.h). A view of it has
 * whole panels, or all rows from the start of a panel. */
enum dtype { DT_F32, DT_BF16, DT_F64, DT_F16, DT_INT8, DT_INT4, DT_F32_PANELS, DT_BF16_PANELS };

struct tensor { /* a view; owns nothing */
    void *data;
    int64_t rows, cols;
    int64_t ld; /* elements from one row to the next, >= cols */
    enum dtype dtype;
};

static inline bool dtype_quant(enum dtype t)
{
    return t == DT_INT8 || t == DT_INT4;
}
static inline bool dtype_panels(enum dtype t)
{
    return t == DT_F32_PANELS || t == DT_BF16_PANELS;
}
/* Returns the bytes of an element. t: not in blocks. */
static inline int64_t dtype_size(enum dtype t)
{
    return t == DT_BF16 || t == DT_F16 || t == DT_BF16_PANELS ? 2 : t == DT_F64 ? 8 : 4;
}
static inline struct tensor tensor_f32(float *data, int64_t rows, int64_t cols, int64_t ld)
{
    return (struct tensor){data, rows, cols, ld, DT_F32};
}
static inline struct tensor tensor_of(enum dtype t, void *data, int64_t rows, int64_t cols,
                                      int64_t ld)
{
    return (struct tensor){data, rows, cols, ld, t};
}
/* dtype_format returns the format of a dtype in blocks. dtype_of_format returns the dtype of a
 * format that has blocks. */
static inline enum weights_id dtype_format(enum dtype t)
{
    return t == DT_INT4 ? WEIGHTS_INT4 : WEIGHTS_INT8;
}
static inline enum dtype dtype_of_format(enum weights_id w)
{
    return w == WEIGHTS_INT4 ? DT_INT4 : DT_INT8;
}
/* Returns the dtype of a weight of this format in a model of dtype t. */
static inline enum dtype dtype_stored(enum weights_id w, enum dtype t)
{
    if (w == WEIGHTS_PANELS) return t == DT_BF16 ? DT_BF16_PANELS : DT_F32_PANELS;
    return w == WEIGHTS_MODEL ? t : dtype_of_format(w);
}
/* Returns the dtype of the numbers in panels. */
static inline enum dtype dtype_of_panels(enum dtype t)
{
    return t == DT_BF16_PANELS ? DT_BF16 : DT_F32;
}
/* Returns a window of rows [r0, r0 + n) and columns [c0, c0 + m); in blocks or panels: all
 * columns. */
static inline struct tensor tensor_sub(struct tensor t, int64_t r0, int64_t n, int64_t c0,
                                       int64_t m)
{
    if (dtype_quant(t.dtype))
        return (struct tensor){(char *)t.data + quant_size(dtype_format(t.dtype), r0, t.cols), n, m,
                               t.ld, t.dtype};
    return (struct tensor){(char *)t.data + (r0 * t.ld + c0) * dtype_size(t.dtype), n, m, t.ld,
                           t.dtype};
}

struct be; /* an opened device: thread pool or streams, and its scratch */
struct pool;

/* c = op(a) op(b) (+ c when accumulate) (+ bias, the same for each row). op(a) is [M, K], op(b) is
 * [K, N], c is [M, N].
 * Each element is a sum over ascending K, in blocks that depend on K alone. A block's sum starts
 * from 0. Blocks are added in order, to the old c when accumulating.
 * Dtypes: a and b have the same one; or b is in blocks, and trans_a is not set; or b is in panels
 * of a's dtype, and trans_b is set, which gives the bits of the same numbers in rows. c has any.
 * The values of blocks are formed in fp32 (int4: scale code + least, rounded once). If a is bf16, a
 * device may round them to bf16, or sum a block's codes first and scale the sum. A device may sum
 * bf16 inputs in groups of K (pairs, or 32 at a time) in its own order. A bf16 c is rounded once,
 * from the fp32 sum with the old c. The bias is then added as by bias_fwd; with be->any_order it
 * may be part of the sum that is rounded once. */
struct gemm_args {
    struct tensor a, b, c;
    /* trans_a: a is stored [K, M] (a weight's gradient: dW = dY^T X). trans_b: b is stored [N, K]
     * (a weight: Y = X W^T). At most one is set. */
    bool trans_a, trans_b;
    bool accumulate;
    struct tensor bias; /* [1, N], of c's dtype; data NULL: none */
};

/* Softmax attention of one block of queries against one block of keys and values, with carried
 * state, so that a ring is a sequence of these calls (2310.01889; online softmax 1805.02867).
 *
 * Query row i (0 <= i < Tq) sees the keys whose global index j lies in [lo[i], hi[i]); key row t
 * has global index kv_pos + t. Causal masks, documents, windows and padding are all such
 * intervals; an empty one sees no key. Tiles whose keys no query sees are skipped.
 *
 *   q       [Tq, H*D] act
 *   kv      [Tk, 2*Hk*D] act: per row the Hk keys, then the Hk values; head h uses KV head
 *           h/(H/Hk)
 *   o       [Tq, H*D] fp32 in/out: sum of exp(s - m) v, not normalised. Before the first call: 0
 *   m, l    [H, ml_ld] in/out: running maximum (-inf before the first call) and sum (0), or
 *           attn_sink_fwd's results.
 *           Between calls they are in the device's own units; attn_finish converts them. As long
 *           as a row has seen no key, l is 0 and m -inf. If all its scores were -inf, m is not
 *           -inf
 * Keys are taken in ascending tiles of a fixed width counted from key row 0. */
struct attn_fwd_args {
    struct tensor q, kv, o;
    float *m, *l;
    int64_t ml_ld;
    const int64_t *lo, *hi;
    int64_t kv_pos;
    int64_t n_heads, n_kv_heads, head_dim;
    float scale;
    const struct attn_drop *drop; /* NULL: none */
    /* Soft cap of the scores, before the mask: s = cap tanh(scale q k / cap); 0: none. With a cap,
     * bf16 takes the fp32 products, as under dropout. */
    float cap;
};

/* Attention dropout: each probability (row, key) of a head is kept, and multiplied by 1 / (1 -
 * rate), or dropped, as a word of Philox4x32-10 says. The word is a function of global indices
 * alone, so that the mask is the same for any number of ranks, layout, order of blocks and tile:
 * key {seed, step} mixed as philox_key() does; counter {row, key / 4, layer << 16 | head, sample},
 * lane key mod 4. Running maximum, sum and lse see every probability; only the factor of v is
 * masked, in fp32 (so that bf16 under dropout takes the fp32 products, at their speed). key:
 * philox_key() of kernels/philox.h. */
struct attn_drop {
    double rate; /* in [0, 1): kept iff word >= rate * 2^32 */
    uint32_t key[2];
    uint32_t layer, sample;
    int64_t q_pos; /* global index of query row 0; row i has q_pos + i */
    uint32_t head; /* number of the call's first head (struct dropout_args adds its `head`) */
};

/* A sink of each head: a learned logit that takes part in the softmax of every row and has no
 * value (2309.17453; gpt-oss). Called once for a row, before the first attn_fwd: sets m and l to
 * those of a row that has seen the sink alone. A row that sees no key then has out = 0 and lse =
 * its sink.
 *   m, l    [n_heads, ml_ld] out, of `rows` rows
 *   sink    [1, n_heads] act or fp32 */
struct attn_sink_fwd_args {
    float *m, *l;
    int64_t ml_ld, rows, n_heads;
    struct tensor sink;
};

/* d_sink[h] += - sum over rows of exp(sink_h - lse[h][i]) delta[h][i], rows ascending, in
 * double. lse is the final one, which includes the sink. A row with lse = -inf contributes 0.
 *   lse, delta  [n_heads, ml_ld]; d_sink [n_heads] fp32 in/out */
struct attn_sink_bwd_args {
    struct tensor sink; /* as in forward */
    const float *lse, *delta;
    int64_t ml_ld, rows, n_heads;
    float *d_sink;
};

/* After the last key block: out = o / l and lse = m + log l (m becomes lse).
 * A row that saw neither key nor sink (l 0, m -inf): out = 0, lse = -inf. A row whose scores were
 * all -inf: NaN.
 * o [Tq, H*D] fp32; out [Tq, H*D] act, may be o itself when fp32; m, l [H, ml_ld]. */
struct attn_finish_args {
    struct tensor o, out;
    float *m, *l;
    int64_t ml_ld;
    int64_t n_heads, head_dim;
};

/* delta[h][i] = sum over D of dO * O, once per layer from the final O (2205.14135, eq. 4).
 * o, d_o [Tq, H*D] act; delta [H, ld]. */
struct attn_delta_args {
    struct tensor o, d_o;
    float *delta;
    int64_t ld;
    int64_t n_heads, head_dim;
};

/* Backward of one (query block, KV block) pair with the final lse: p = exp(scale q k - lse), dv +=
 * p' dO; ds = p (dO v' - delta); dq += scale ds k; dk += scale ds' q. Under a soft cap the score
 * is capped in p, and ds has the cap's slope as a factor, 1 - (s / cap)^2. A row with lse = -inf
 * contributes exactly 0. dkv sums query tiles in ascending order, and dq sums key tiles. With Hk <
 * H the heads of a group are added in ascending order. Tiles have 64 rows, counted from row 0 of
 * the call. A tile's part is summed from 0, then added to the old value (in bf16 its sum may start
 * from the old value). p and ds may be rounded to bf16 for the products they feed.
 *   q, kv, d_o        act
 *   dq   [Tq, H*D]    fp32 in/out
 *   dkv  [Tk, 2*Hk*D] fp32 in/out, laid out as kv */
struct attn_bwd_args {
    struct tensor q, kv, d_o, dq, dkv;
    const float *lse, *delta;
    int64_t ml_ld;
    const int64_t *lo, *hi;
    int64_t kv_pos;
    int64_t n_heads, n_kv_heads, head_dim;
    float scale;
    const struct attn_drop *drop; /* as in forward; delta is unchanged by it */
    float cap;                    /* as in forward */
};

/* y = x * rsqrt(mean(x^2) + eps) * g per row (1910.07467). x, y [T, C] act; g [1, C] act;
 * rstd [T] out. */
struct rmsnorm_fwd_args {
    struct tensor x, y, g;
    float *rstd;
    float eps;
};
/* dx (+)= gradient; dg [C] += sum over rows of dy * x * rstd, rows ascending. dx may not be x.
 * x, dy, dx, g act; dg fp32. */
struct rmsnorm_bwd_args {
    struct tensor x, dy, dx, g;
    const float *rstd;
    float *dg;
    bool accumulate; /* dx += instead of dx = */
};

/* Half-split rotary embedding in place (2104.09864; transformers' rotate_half) of columns
 * [0, n_heads*D) of x [T, ...] (act). Cosine and sine of the angle pos * inv_freq are computed in
 * double, rounded to fp32, and multiplied by scale.
 * pos [T]; inverse: rotate by the negative angle (the backward). */
struct rope_args {
    struct tensor x;
    const int64_t *pos;
    const double *inv_freq; /* [rotary_dim/2] */
    int64_t n_heads, head_dim;
    bool inverse;
    int64_t rotary_dim; /* number of rotated columns, the first of each head; 0: all D */
    bool interleaved; /* pairs are neighbours (2j, 2j+1) instead of halves (j, j + rotary_dim/2) */
    float scale;      /* > 0 */
    bool single;      /* the angle is a product in fp32, as transformers forms it */
};

/* a = silu(gate) * up. gu [T, 2*I]: gate then up; a [T, I]. All act. */
struct swiglu_fwd_args {
    struct tensor gu, a;
};
/* dgu [T, 2*I] = gradient (may be gu itself); recomputes intermediate values from gu.
 * All act. */
struct swiglu_bwd_args {
    struct tensor gu, da, dgu;
};

/* x[i] = table[ids[i] - first], or 0 where the table [V, C] has no such row. table act, x of its
 * type or fp32; or table in blocks, x act; ids [T]. */
struct embed_fwd_args {
    struct tensor table, x;
    const int32_t *ids;
    int64_t first;
};
/* dtable[ids[i] - first] += dx[i], rows ascending, where dtable has such a row; dtable fp32, dx
 * act. */
struct embed_bwd_args {
    struct tensor dtable, dx;
    const int32_t *ids;
    int64_t first;
};

/* Cross-entropy of a chunk of logits, in place. logits [T, V] fp32; targets [T], negative = no
 * target.
 *   nll      [T] out: -log p(target) in double, 0 where there is no target
 *   dlogits  [T, V] act out, when backward: (softmax - onehot) * scale, rows without target
 *            exactly 0. It may share memory with logits. When fp32 it is then the same tensor.
 *            When bf16 its row i starts at row i of logits (ld = 2 * logits.ld), so that no write
 *            reaches a value that is still to be read
 *   cap      0: none. Else logits holds values z that are capped already, z = cap tanh(x / cap),
 *            and dlogits is the gradient of x: that of z times 1 - (z / cap)^2
 *   parts    [n_parts, T] results of xent_part that cover all columns; logits holds V columns,
 *            from `first` on (V may be 0). NULL: logits holds all; first and n_parts are 0 */
struct xent_stat {
    double max, sum; /* a row's largest logit, -inf if V is 0; sum of e^(x - max) */
    double target;   /* the target's logit if it is among these columns, else 0 */
};
struct xent_args {
    struct tensor logits, dlogits;
    const int32_t *targets;
    double *nll;
    float scale;
    bool backward;
    float cap;
    const struct xent_stat *parts;
    int n_parts;
    int64_t first;
};
/* Statistics of columns [first, first + V) of a chunk of logits [T, V] fp32: stat [T], zeros in
 * rows without a target. */
struct xent_part_args {
    struct tensor logits;
    const int32_t *targets;
    int64_t first;
    struct xent_stat *stat;
};

/* y += x elementwise (n floats). */
struct add_args {
    float *y;
    const float *x;
    int64_t n;
};

/* Decoupled AdamW over a flat range (1711.05101): g' = g*clip; m = b1 m + (1-b1) g'; v = ...;
 * p -= lr * (mh / (sqrt(vh) + eps) + wd p), bias-corrected with step t (1-based). */
struct adamw_args {
    float *p, *m, *v; /* p: master weights */
    uint16_t *p_half; /* out: the new weights in 16 bits; NULL: the model reads p */
    enum dtype half;  /* dtype of p_half: DT_BF16 or DT_F16 */
    const float *g;
    int64_t n;
    double lr, beta1, beta2, eps, weight_decay, clip;
    int64_t t;
};

/* out[u] = sum of g^2, in double, over elements [u unit, (u + 1) unit) of [0, n). The last unit
 * may be short. A device's order of additions depends on the unit's length alone. */
struct sumsq_args {
    const float *g;
    int64_t n, unit;
    double *out;
};

/* dst = src, converted: to 16 bits rounds to nearest even (NaN stays NaN), to fp32 is exact.
 * Same rows and cols, any dtype on either side. */
struct cast_args {
    struct tensor dst, src;
};

/* ---- other families ---------------------------------------------------------------------------
 *
 * Slots below take act tensors unless they say otherwise, and fp32 gradients of weights. With
 * `accumulate` in an args struct, input gradients are added to, otherwise written. */

/* y = (x - mean) * rsqrt(var + eps) * g + b per group of x.cols / groups columns; rms: without
 * mean, y = x * rsqrt(mean(x^2) + eps) * g. g, b [1, cols / groups], data NULL: 1 and 0; g may be
 * fp32 beside act of 16 bits. mean, rstd [T * groups] fp32 out (mean untouched when rms).
 * sums [T], if other ranks have the rest of each row (rms, one group): norm_part's sums over all
 * n_all columns of the row; NULL: x has all columns. (1607.06450, 1910.07467) */
struct norm_fwd_args {
    struct tensor x, y, g, b;
    float *mean, *rstd;
    int64_t groups;
    bool rms;
    float eps;
    const float *sums;
    int64_t n_all;
};
/* dx (+)= ; dg [cols / groups] += , db likewise, rows ascending; NULL: not wanted. dx may not be
 * x. sums [T]: norm_part's with dy, over all n_all columns and all ranks; n_same ranks hold the
 * same columns, each with a part of their dy. */
struct norm_bwd_args {
    struct tensor x, dy, dx, g;
    const float *mean, *rstd;
    float *dg, *db;
    int64_t groups;
    bool rms, accumulate;
    const float *sums;
    int64_t n_all, n_same;
};
/* sum [T] fp32 out: each row's sum of x^2; with dy (data NULL: without), its sum of x dy g. g [1,
 * cols], fp32 or act. */
struct norm_part_args {
    struct tensor x, dy, g;
    float *sum;
};

/* y = act(x); x, y same shape, y may be x. dx (+)= act'(x) dy; dx may be dy when not
 * accumulating. */
struct act_fwd_args {
    enum act_id fn;
    struct tensor x, y;
};
struct act_bwd_args {
    enum act_id fn;
    struct tensor x, dy, dx;
    bool accumulate;
};

/* y = act(a) * b, y may be a; da (+)= act'(a) b dy, db (+)= act(a) dy. data NULL in da or db: not
 * wanted. da may be a and db may be b when not accumulating. */
struct glu_fwd_args {
    enum act_id fn;
    struct tensor a, b, y;
};
struct glu_bwd_args {
    enum act_id fn;
    struct tensor a, b, dy, da, db;
    bool accumulate_a, accumulate_b;
};

/* A gated unit that is clamped (gpt-oss): with g = min(a, limit) and u = b within [-limit, limit],
 * y = g sigmoid(alpha g) (u + 1); y may be a or b. da, db = gradient, times 0 for inputs beyond the
 * limit; da may be a and db may be b. All act, limit and alpha > 0. */
struct clamp_glu_fwd_args {
    struct tensor a, b, y;
    float alpha, limit;
};
struct clamp_glu_bwd_args {
    struct tensor a, b, dy, da, db;
    float alpha, limit;
};

/* y = alpha a + beta b (b.data NULL: alpha a). y may be a or b. Any dtypes: formed in fp32. */
struct mix_args {
    struct tensor a, b, y;
    float alpha, beta;
};

/* y[i] += b for every row; b [1, cols] act. Its gradient: db [cols] += sum over rows of dy,
 * ascending. */
struct bias_fwd_args {
    struct tensor y, b;
};
struct bias_bwd_args {
    struct tensor dy;
    float *db;
};

/* adaLN (2212.09748): y = x (1 + scale[g(i)]) + shift[g(i)]; group NULL: g = 0. scale, shift
 * [G, cols]. Backward: dx (+)= dy (1 + scale), dscale[g] += dy x, dshift[g] += dy: fp32 [G, cols],
 * rows ascending. dx may be dy when not accumulating. */
struct modulate_fwd_args {
    struct tensor x, scale, shift, y;
    const int32_t *group;
};
struct modulate_bwd_args {
    struct tensor x, dy, scale, dx, dscale, dshift;
    const int32_t *group;
    bool accumulate;
};

/* y = base + gate[g(i)] x; y may be base. Backward: dx (+)= gate dy; dgate[g] += dy x, fp32. */
struct gate_fwd_args {
    struct tensor base, x, gate, y;
    const int32_t *group;
};
struct gate_bwd_args {
    struct tensor x, dy, gate, dx, dgate;
    const int32_t *group;
    bool accumulate;
};

/* LRPE of TransNormerLLM: y [T, 2*H*D], per head [x cos(theta pos), x sin(theta pos)]; theta [H,
 * D] fp32 or act. The angle is formed and reduced in double. dx (+)= ; linear_angle has the
 * gradient of theta. */
struct lrpe_fwd_args {
    struct tensor x, y, theta;
    const int64_t *pos;
    int64_t n_heads, head_dim;
};
struct lrpe_bwd_args {
    struct tensor dy, dx, theta;
    const int64_t *pos;
    int64_t n_heads, head_dim;
    bool accumulate;
};

/* Rows of a whole attention matrix (two-pass RSA): x [rows, n] fp32 in place. Row i keeps the
 * columns whose global index (col_pos + column) lies in [lo[i], hi[i]); the others become 0; a row
 * that sees no key becomes 0. lse [rows] out, may be NULL. */
struct softmax_fwd_args {
    struct tensor x;
    const int64_t *lo, *hi;
    int64_t col_pos;
    float *lse;
};
/* dx = p (dp - delta[i]) in place in dp. p, dp [rows, n] fp32; delta [rows]. */
struct softmax_bwd_args {
    struct tensor p, dp;
    const float *delta;
};
/* x *= dropout's mask / (1 - rate) in place: x [rows, n] fp32 holds columns from global
 * index col_pos, rows from drop->q_pos, of head `head`. */
struct dropout_args {
    struct tensor x;
    const struct attn_drop *drop;
    int64_t col_pos, head;
};

/* dst[i0, i1, i2, :] = src[...]: n[3] counts, strides in bytes, `size` bytes each: packing and
 * unpacking for an all-to-all. dst and src do not overlap. */
struct permute_args {
    void *dst;
    const void *src;
    int64_t n[3], dst_stride[3], src_stride[3];
    int64_t size;
};

/* Mean squared error: row_loss[i] (double) = weight[i] times the sum over columns of (x - y)^2; dx
 * = 2 scale weight[i] (x - y). x, y [T, cols]; weight [T], NULL: 1; row_loss [T] out; dx.data
 * NULL: not wanted. */
struct mse_args {
    struct tensor x, y, dx;
    const float *weight;
    double *row_loss;
    float scale;
};

/* Noise and its variance (IDDPM, 2102.09672): x [T, 2 C] fp32, C predicted values e of noise
 * and C values v, which place the logarithm of the variance between log_min and log_max; y [T, 2
 * C] fp32, the noise n and the sample z. A row's loss is weight[i] times the sum over C of
 *   (e - n)^2 + bound / ln 2     d = slope (e - n), s = log_min + (v + 1) / 2 (log_max - log_min)
 *   bound = (s - log_min - 1 + exp(log_min - s) + d^2 exp(-s)) / 2
 *   bound, if last: -log P. P, at least 1e-12, is the probability of [z - 1/255, z + 1/255] under
 *   a normal of deviation exp(s / 2) with its mean d away from z. For z below -0.999 the
 *   interval has no lower end, above 0.999 no upper end. A tanh approximates the normal's
 *   distribution.
 * dx = scale times the loss's gradient. The bound trains v alone: in it, e counts as a constant.
 * Sums in double, columns ascending. dx.data NULL: not wanted. */
struct noise_args {
    struct tensor x, y, dx;
    const float *weight;
    double *row_loss;
    float scale;
    double slope, log_min, log_max;
    bool last;
};

/* Mixture of experts, routing: p = softmax(logits [T, E] fp32) per row; the k largest, ties to the
 * lower index, weighted by p over their sum, or by p itself. expert, weight [T, k] out, descending.
 * A logit that is NaN comes last and makes the weights of its row NaN. Backward: dlogits [T, E]
 * (fp32) from dweight [T, k]. */
struct route_args {
    struct tensor logits;
    int64_t k;
    int32_t *expert;
    float *weight;
    const float *dweight; /* backward; NULL: forward */
    struct tensor dlogits;
    bool plain; /* weights are p itself; backward then reads logits, and dlogits is other memory */
};

/* ---- linear attention --------------------------------------------------------------------------
 *
 * Causal, one chunk of n rows (2404.02882, eq. 6-10; 2401.04658): o_i = scale sum_{j <= i}
 * lambda^(i-j) (q_i k_j) v_j, j over rows of i's document. States S [H, Dk, Dv] are fp32 (float64
 * with float64 tensors), H contiguous matrices. A state that enters a chunk is decayed up to its
 * first row: row i takes lambda^i q_i S; the state that leaves is decayed up to the row after the
 * last.
 *
 * lambda = exp(-slope[h]), slope [H] >= 0; powers are exp(-slope * distance), from the difference.
 * lo[i]: global index of the first row of i's document, pos: of row 0. A row whose document began
 * before the chunk (lo[i] < pos) sees the entering state. hi[i] <= lo[i]: padding: o = 0, nothing
 * flows. Padding stands at the end only; n_valid rows decay the state.
 *
 * Sums go over blocks of rows (32 or 64, by device) counted from row 0 of the call and, from block
 * to block, through a state that is rounded to fp32 after each: o and dq of a row do not depend on
 * how many rows follow. Dk is at most JOB_MAX_LINEAR_HEAD, Dv one more. A device may add to o, and
 * so round it, once for each 256 columns of Dk.
 *
 * The chunk is computed from a state of zero, and the part of the entering state is added after it
 * (linear_enter), so that the sums do not depend on how many ranks there are: linear_fold folds
 * chunks left to right. */
struct linear_args {
    struct tensor q, k, v;  /* [n, H*Dk], [n, H*Dk], [n, H*Dv] act */
    const double *slope;    /* [H] */
    const int64_t *lo, *hi; /* [n] */
    int64_t pos;
    int64_t n_heads, key_dim, value_dim;
    float scale;
    /* Data-dependent gates: the log decay of each row, <= 0: [n, H] (scalar) or [n, H*Dk]
     * (diagonal, GLA). No device has them yet (shapes.h refuses them); NULL: the slope alone. They
     * would need:
     * - within a block, powers exp(G_r - G_c) of sums G of log decays for each pair of rows; for a
     *   diagonal gate, inside each product of q and k
     * - a gradient dG of every row, from o dO and the states, summed from the right; a part of it
     *   comes from the next ranks
     * - between chunks, a linear_fold by the chunk's own decay: H or H*Dk numbers that travel with
     *   each state and summary. Messages, their formulas and the memory kept for the backward grow
     *   by them. */
    const float *gate;
    bool gate_diagonal;
};
/* The summary and the output may be asked for in two calls: the output then hides the time in
 * which the summary travels to other ranks (LASP-2, 2502.07563). The extra pass through the states
 * costs a third of the whole. The bits are those of one call. */
struct linear_fwd_args {
    struct linear_args in;
    struct tensor o; /* [n, H*Dv] act, written; data NULL: unwanted, and q is not read */
    void *m; /* [H, Dk, Dv] out: the chunk's own summary, of the rows of its last document; NULL:
              * unwanted */
};
/* o += the part of the entering state. */
struct linear_enter_args {
    struct linear_args in;
    struct tensor o;
    const void *state;
};
/* Backward from a state of zero: dq, dk, dv [as q, k, v; fp32] written; dm [H, Dk, Dv] out: this
 * chunk's gradient of the state that enters it. dq, dk and dv with data NULL: only dm is computed,
 * and k and v are not read. dm NULL: only the gradients are computed. */
struct linear_bwd_args {
    struct linear_args in;
    struct tensor d_o, dq, dk, dv;
    void *dm;
};
/* dq += lambda^i dO S' for rows that saw the entering state. dk and dv of the last document's rows
 * += the part from d_state, the gradient of the state that leaves the chunk. state or d_state
 * NULL: none. */
struct linear_enter_bwd_args {
    struct linear_args in;
    struct tensor d_o, dq, dk, dv;
    const void *state, *d_state;
};
/* Passes a state on through a chunk, forward (m: its summary) or backward (m: its dm). out =
 * lambda^n_valid * in + m if the document of the last valid row began before the chunk
 * (`through`), else m. A chunk of padding alone passes the state on unchanged: through, n_valid 0,
 * m 0. out may be in. */
struct linear_fold_args {
    const double *slope;
    int64_t n_heads, key_dim, value_dim;
    int64_t n_valid;
    bool through;
    const void *in, *m;
    void *out;
    enum dtype dtype; /* dtype of the states */
};

/* The gradient of LRPE's angles through linear attention, of one chunk: q and k are [x cos, x sin]
 * of heads of D = Dk / 2. A pair of rows depends on theta through its distance alone, so the sum
 * weighs each pair by its distance. Weighed by positions, the parts of queries and keys would grow
 * with the positions and cancel. The rounding of dq and dk would then be as large as the
 * difference.
 *
 *     A_i = sum over j <= i of (i - j) lambda^(i-j) k_j v_j',  [A1, A2] as k's halves
 *     dtheta = sum over i of scale (q1_i A2_i - q2_i A1_i) dO_i + rows (A2 dS1 - A1 dS2)
 *
 * The second term is the part of the state that leaves the chunk, at the row after the last.
 * Distances between chunks add up: each chunk counts its own share, from the border where `state`
 * enters or to the border where d_state enters. state and d_state as in linear_enter_bwd. dtheta
 * [H, D] fp32, written. The states, A and the sums are double. */
struct linear_angle_args {
    struct linear_args in;
    struct tensor d_o;
    const void *state, *d_state;
    float *dtheta;
};

/* ---- gated delta networks ----------------------------------------------------------------------
 *
 * The gated delta rule (2412.06464; transformers' recurrent_gated_delta_rule), one chunk of n
 * rows: for each row of a document, with unit rows q, k (x / sqrt(sum x^2 + 1e-6)),
 *     g = -exp(a_log) softplus(a + dt_bias), beta = sigmoid(b)
 *     S = exp(g) S;  S = S + k (beta (v - S' k))';  o = scale S' q
 * States S [H, Dk, Dv] fp32, H contiguous matrices. lo, hi, pos and padding as of linear
 * attention: a row whose document began before the chunk continues from the entering state, a
 * document that begins in the chunk from 0. Rows are taken in blocks counted from row 0 of the
 * call, of 64 rows or of one, by device. The state is rounded to fp32 after each block.
 *
 * The state that leaves a chunk is an affine map of the state that enters it: chunks are computed
 * one after the other, each from the state that the one before left. */
struct delta_args {
    struct tensor q, k, v; /* [n, Hk*Dk], [n, Hk*Dk], [n, H*Dv] act; head h has key head h/(H/Hk) */
    struct tensor a, b;    /* [n, H] act */
    struct tensor a_log, dt_bias; /* [1, H] act */
    const int64_t *lo, *hi;       /* [n] */
    int64_t pos;
    int64_t n_heads, n_key_heads, key_dim, value_dim;
    float scale;
};
struct delta_fwd_args {
    struct delta_args in;
    struct tensor o;    /* [n, H*Dv] act, written; data NULL: unwanted */
    const float *state; /* [H, Dk, Dv] state that enters; NULL: 0 */
    float *state_out;   /* state that leaves; may be `state`; NULL: unwanted */
};
/* Gradients are written. Rows of d_log sum to the gradient of a_log, rows of da to dt_bias's. */
struct delta_bwd_args {
    struct delta_args in;
    struct tensor d_o;           /* act */
    struct tensor dq, dk, dv;    /* as q, k, v; fp32 */
    struct tensor da, db, d_log; /* [n, H] fp32 */
    const float *state;          /* state that entered; NULL: 0 */
    const float *d_state_out;    /* gradient of the state that leaves; NULL: 0 */
    float *d_state;              /* out: gradient of `state`; may be d_state_out; NULL: unwanted */
    float *room;                 /* [H, delta_spans(n), Dk, Dv], scratch */
};

/* A causal convolution of each column with taps of its own, and SiLU: y_i = silu(sum over j of
 * w[c][j] x_(i - width + 1 + j)), over rows of i's document. A state is the width - 1 rows before
 * row 0 in fp32, whatever their documents. */
struct conv_args {
    struct tensor x;        /* [n, C] act */
    struct tensor w;        /* [C, width] act */
    int64_t width;          /* 2 .. CONV_MAX_WIDTH */
    const int64_t *lo, *hi; /* [n] */
    int64_t pos;
    const float
        *state; /* [width - 1, C]; NULL: no document of the chunk has rows before its row 0 */
};
struct conv_fwd_args {
    struct conv_args in;
    struct tensor y;  /* [n, C] act, written; data NULL: unwanted */
    float *state_out; /* may be in.state; NULL: unwanted */
};
/* dx with data NULL: dw alone, and d_state is not touched. */
struct conv_bwd_args {
    struct conv_args in;
    struct tensor dy;         /* act */
    struct tensor dx;         /* [n, C] fp32, written */
    float *dw;                /* [C, width] += , rows ascending; NULL: unwanted */
    const float *d_state_out; /* gradient of the state that leaves; NULL: 0 */
    float *d_state;           /* out: gradient of in.state; not d_state_out; NULL: unwanted */
};

/* Counts of a device's use of CUDA graphs so far. */
struct be_graphs {
    int64_t n_ops, n_by_graph; /* operations asked for, and those that graphs launched */
    int64_t n_made, n_graphs;  /* graphs made so far; graphs that exist */
    char why_off[640];         /* the failure after which no graph is made or launched; "": none */
};

#define BE_MARKS  256
#define BE_COPIES 4 /* marks of copy_beside */
struct be_handle {
    unsigned char bytes[128];
};

struct be_ops {
    const char *name; /* "cpu" */
    void (*gemm)(struct be *, const struct gemm_args *);
    void (*attn_sink_fwd)(struct be *, const struct attn_sink_fwd_args *);
    void (*attn_sink_bwd)(struct be *, const struct attn_sink_bwd_args *);
    void (*attn_fwd)(struct be *, const struct attn_fwd_args *);
    void (*attn_finish)(struct be *, const struct attn_finish_args *);
    void (*attn_delta)(struct be *, const struct attn_delta_args *);
    void (*attn_bwd)(struct be *, const struct attn_bwd_args *);
    void (*rmsnorm_fwd)(struct be *, const struct rmsnorm_fwd_args *);
    void (*rmsnorm_bwd)(struct be *, const struct rmsnorm_bwd_args *);
    void (*rope)(struct be *, const struct rope_args *);
    void (*swiglu_fwd)(struct be *, const struct swiglu_fwd_args *);
    void (*swiglu_bwd)(struct be *, const struct swiglu_bwd_args *);
    void (*embed_fwd)(struct be *, const struct embed_fwd_args *);
    void (*embed_bwd)(struct be *, const struct embed_bwd_args *);
    void (*xent)(struct be *, const struct xent_args *);
    void (*xent_part)(struct be *, const struct xent_part_args *);
    void (*add)(struct be *, const struct add_args *);
    void (*adamw)(struct be *, const struct adamw_args *);
    void (*sumsq)(struct be *, const struct sumsq_args *);
    void (*cast)(struct be *, const struct cast_args *);
    void (*norm_fwd)(struct be *, const struct norm_fwd_args *);
    void (*norm_bwd)(struct be *, const struct norm_bwd_args *);
    void (*norm_part)(struct be *, const struct norm_part_args *);
    void (*act_fwd)(struct be *, const struct act_fwd_args *);
    void (*act_bwd)(struct be *, const struct act_bwd_args *);
    void (*glu_fwd)(struct be *, const struct glu_fwd_args *);
    void (*glu_bwd)(struct be *, const struct glu_bwd_args *);
    void (*clamp_glu_fwd)(struct be *, const struct clamp_glu_fwd_args *);
    void (*clamp_glu_bwd)(struct be *, const struct clamp_glu_bwd_args *);
    void (*mix)(struct be *, const struct mix_args *);
    void (*bias_fwd)(struct be *, const struct bias_fwd_args *);
    void (*bias_bwd)(struct be *, const struct bias_bwd_args *);
    void (*modulate_fwd)(struct be *, const struct modulate_fwd_args *);
    void (*modulate_bwd)(struct be *, const struct modulate_bwd_args *);
    void (*gate_fwd)(struct be *, const struct gate_fwd_args *);
    void (*gate_bwd)(struct be *, const struct gate_bwd_args *);
    void (*lrpe_fwd)(struct be *, const struct lrpe_fwd_args *);
    void (*lrpe_bwd)(struct be *, const struct lrpe_bwd_args *);
    void (*softmax_fwd)(struct be *, const struct softmax_fwd_args *);
    void (*softmax_bwd)(struct be *, const struct softmax_bwd_args *);
    void (*dropout)(struct be *, const struct dropout_args *);
    void (*permute)(struct be *, const struct permute_args *);
    void (*mse)(struct be *, const struct mse_args *);
    void (*noise)(struct be *, const struct noise_args *);
    void (*route)(struct be *, const struct route_args *);
    void (*linear_fwd)(struct be *, const struct linear_fwd_args *);
    void (*linear_enter)(struct be *, const struct linear_enter_args *);
    void (*linear_bwd)(struct be *, const struct linear_bwd_args *);
    void (*linear_enter_bwd)(struct be *, const struct linear_enter_bwd_args *);
    void (*linear_fold)(struct be *, const struct linear_fold_args *);
    void (*linear_angle)(struct be *, const struct linear_angle_args *);
    void (*delta_fwd)(struct be *, const struct delta_fwd_args *);
    void (*delta_bwd)(struct be *, const struct delta_bwd_args *);
    void (*conv_fwd)(struct be *, const struct conv_fwd_args *);
    void (*conv_bwd)(struct be *, const struct conv_bwd_args *);
    void (*fill)(struct be *, float *p, int64_t n, float value);
    void (*copy)(struct be *, void *dst, const void *src, int64_t size); /* copies on the device */
    /* Copies from the host, in the order of operations. The caller may reuse src when it
     * returns. */
    void (*upload)(struct be *, void *dst, const void *src, int64_t size);
    /* Copies to the host. The data are there when it returns. A failure before it is reported by
     * sync. */
    void (*download)(struct be *, void *dst, const void *src, int64_t size);
    /* Waits for everything asked for so far, transfers too, and reports the first failure. NULL:
     * everything is synchronous. */
    int (*sync)(struct be *, struct err *);
    /* Converts a weight from rows to panels, in place; panels_fit (panels.h) holds for it. NULL:
     * products take rows alone. */
    void (*turn)(struct be *, struct tensor w);
    void *(*alloc)(struct be *, int64_t size, struct err *); /* zeroed pages, 64-byte aligned */
    void (*free)(struct be *, void *p, int64_t size);

    /* ---- devices with memory of their own; elsewhere NULL ----
     * share makes a handle of the memory at p, from alloc, for another rank of this host or of
     * this process. attach returns that memory, which is valid until detach. fails:
     * ERR_UNSUPPORTED if the memory cannot be shared, or if this process and device do not reach
     * it. */
    int (*share)(struct be *, void *p, struct be_handle *out, struct err *);
    void *(*attach)(struct be *, const struct be_handle *h, struct err *);
    void (*detach)(struct be *, void *p);
    /* Transfers between ranks run beside the operations, in a stream of their own and in the order
     * they were enqueued there. transfer_begin: transfers to come wait for the operations so far.
     * transfer_end: sets mark number `mark`, below BE_MARKS, after the transfers so far.
     * transfer_await: operations to come wait for the mark. transfer_passed: true when the mark
     * has been reached or the device has failed (sync then reports it). */
    void *(*transfer_stream)(struct be *); /* a cudaStream_t */
    void (*transfer_begin)(struct be *);
    void (*transfer_end)(struct be *, int mark);
    void (*transfer_await)(struct be *, int mark);
    bool (*transfer_passed)(struct be *, int mark);
    /* Copies to and from the host beside operations and transfers, in a stream of their own and in
     * the order in which they were asked for: a copy waits for the operations so far, and mark
     * number `mark`, below BE_COPIES, stands after it; copy_await: operations to come wait for the
     * mark. The host's memory must be pinned, in whole pages; call sync before unpin. fails:
     * ERR_DEVICE. */
    int (*pin)(struct be *, void *host, int64_t size, struct err *);
    void (*unpin)(struct be *, void *host);
    void (*copy_beside)(struct be *, void *dst, const void *src, int64_t size, int mark);
    void (*copy_await)(struct be *, int mark);
    void (*close)(struct be *);
};

/* A library for products, on a device opened with any_order. A product in a graph counts once,
 * when the graph is made. */
struct be_library {
    bool open;
    char text[640];         /* "cuBLASLt 13.0.2, /usr/..."; not open: why */
    int64_t n_done, n_left; /* products by the library; products by the device's own kernels */
};

struct be {
    const struct be_ops *ops;
    /* "portable", "avx2", "avx512", "avx512bf16", "amx", "neon", "neonbf16", "sm80", "sm86",
     * "sm90": tests print it */
    const char *isa;
    const char *name;     /* the device's name, for logs: "NVIDIA H100 80GB HBM3"; "cpu" */
    unsigned char id[16]; /* id of the GPU: equal for ranks on one; zeros: no GPU */
    int n_threads;
    struct pool *pool; /* be_host_run's threads; NULL: not started yet */
    char *scratch;     /* the plan's PLAN_SCRATCH, or be_open's own */
    int64_t scratch_size;
    bool own_memory; /* alloc's memory is not the host's */
    bool any_order;  /* be_options.any_order */
    /* Called about every millisecond while sync, download or upload wait; NULL: never. If it
     * returns -1, this wait and all later ones end, and sync fails with its error. Without it, a
     * transfer whose peer is gone would be awaited forever. */
    int (*watch)(void *arg, struct err *e);
    void *watch_arg;
    const struct be_graphs *graphs;   /* NULL: the device has none, or is not to use them */
    const struct be_library *library; /* NULL: the device uses none, or not any_order */
};

struct be_options {
    const char *device; /* "cpu", "cuda", "emulated" */
    const char *isa;    /* NULL: SEQD_CUDA_ISA on a GPU, else the fastest; tests ask for each */
    int n_threads;
    void *scratch;      /* device_scratch() bytes; NULL: be_open allocates them */
    bool scratch_later; /* be_open allocates none: be_give_scratch gives memory of ops->alloc */
    /* gemm and attn_fwd may add in any order that is the same from run to run: bits may then
     * depend on other rows, and so on the number of ranks. It allows a library's products (unless
     * SEQD_CUDA_BLAS=0 is in the environment) and a faster attention of few queries to many
     * keys. */
    bool any_order;
    /* Launches each operation when it is asked for. Otherwise a device may launch several at once,
     * by a graph, if it has seen them before; the bits are the same. SEQD_CUDA_GRAPHS=0 in the
     * environment sets it too, and so does CUDA_LAUNCH_BLOCKING unless it is 0. */
    bool no_graphs;
    /* CPU: counts the tasks that the first thread has done (an atomic add), so it moves while an
     * operation computes. NULL: not counted. Borrowed. */
    int64_t *n_tasks;
};

/* Opens a device by name. fails: ERR_UNSUPPORTED if no device has this name (the error lists the
 * names), or if the device's library is missing or of another build; else as the device's open. */
struct be *be_open(const struct be_options *o, struct err *e);
void be_give_scratch(struct be *be, void *scratch, int64_t size);
void be_close(struct be *be); /* NULL allowed */

/* Runs fn(arg, t, worker) once for each t in [0, n_tasks), on n_threads threads of the host, the
 * caller among them. No operation runs meanwhile. The CPU device uses its own threads. For other
 * devices the first call starts them; if that fails, the caller does all. fn must not use the
 * device, with one exception: if the device has no memory of its own, fn may upload and download
 * ranges that do not overlap. These are then copies on the thread that runs fn. */
void be_host_run(struct be *be, void (*fn)(void *arg, int64_t task, int worker), void *arg,
                 int64_t n_tasks);
/* Makes the pages of [p, p + size) of the device's alloc resident, by the same threads; their
 * contents stay. Without it, the first operation that writes a page waits until the kernel has
 * cleared it, and often on one thread. Does nothing if the device has memory of its own. */
void be_populate(struct be *be, void *p, int64_t size);
/* Returns the instruction sets compiled in that this machine can run, NULL-terminated. */
const char *const *be_isas(void);

#endif
