/* backend.h: the operations that a device must have. One table of operations, one row per device.
 *
 * An operation is a slot in struct be_ops and an args struct documented here; a device is one
 * implementation of the table (kernels/cpu, kernels/cuda). Everything above this line of the
 * tree is device-neutral. Operations are asynchronous on devices that have streams; be->ops->sync
 * waits and reports. They may be kept back, args and all, until an upload, a download, a transfer
 * or a sync follows, so an opened device is one thread's at a time. Shapes are asserted by every
 * device with the lines of shapes.h.
 *
 * Letters: T rows (tokens) in this call, C width, H query heads, Hk KV heads, D head size, V vocab.
 * All tensors are row-major 2-D views: fp32, bf16 or fp16.
 *
 * A device may have memory of its own (be->own_memory): then all data that an operation reads or
 * writes, tensors and arrays (pos, lo, ids, slope, nll ...), lies in memory from its alloc, and the
 * host reaches it by upload and download alone. A struct that an args struct points to (struct
 * attn_drop) is the host's, and read before the call returns.
 *
 * bf16 and fp16 are storage and inputs of products; every sum is fp32. "act" below is a tensor of
 * the model's precision: all act tensors of one call have the same dtype. An output in 16 bits is
 * rounded once, to nearest even, from its fp32 value (fp16: infinity from 65520 on); a sum over
 * keys, rows or hops is never kept in 16 bits. Statements about bf16 below hold for fp16 too. Fixed
 * as fp32 whatever the precision: carried (o, m, l), lse, delta, dq and dkv of attention, weight
 * gradients, rstd, logits, master weights and Adam's moments.
 *
 * NaN and infinity pass through: an operation whose inputs hold one has it, or the function's value
 * for it, in its outputs. Infinity may become finite where the function does (exp(-inf),
 * tanh(inf)), NaN never; it may spread to other rows of the call. Rows that see no key are 0
 * whatever lies beside them.
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

/* DT_F64: the tests' reference device alone. */
enum dtype { DT_F32, DT_BF16, DT_F64, DT_F16 };

struct tensor { /* a view; owns nothing */
    void *data;
    int64_t rows, cols;
    int64_t ld; /* elements from one row to the next, >= cols */
    enum dtype dtype;
};

static inline int64_t dtype_size(enum dtype t)
{
    return t == DT_BF16 || t == DT_F16 ? 2 : t == DT_F64 ? 8 : 4;
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
/* Returns a window of rows [r0, r0 + n) and columns [c0, c0 + m). */
static inline struct tensor tensor_sub(struct tensor t, int64_t r0, int64_t n, int64_t c0,
                                       int64_t m)
{
    return (struct tensor){(char *)t.data + (r0 * t.ld + c0) * dtype_size(t.dtype), n, m, t.ld,
                           t.dtype};
}

struct be; /* an opened device: thread pool or streams, and its scratch */
struct pool;

/* c = op(a) op(b) (+ c when accumulate) (+ bias, the same for each row). op(a) is [M, K], op(b) is
 * [K, N], c is [M, N].
 * Sums over K ascending for each element, in a blocking that depends on K alone: a chain from 0 in
 * each block, blocks added in order, the first to the old c when accumulating.
 * dtypes: a and b alike; c any. With bf16 inputs K may be taken in groups (pairs, or 32 at a time)
 * that the device sums in one way of its own. With a bf16 c the whole sum, old c included, is
 * formed in fp32 and rounded once. A bias is added as bias_fwd adds it to the c without; if the
 * order of sums is free (be->any_order) it may be in the sum that is rounded once. */
struct gemm_args {
    struct tensor a, b, c;
    /* a is stored [K, M] (a weight's gradient: dW = dY^T X); b is stored [N, K] (a weight: Y = X
     * W^T); never both. */
    bool trans_a, trans_b;
    bool accumulate;
    struct tensor bias; /* [1, N], of c's dtype; data NULL: none */
};

/* Softmax attention of one block of queries against one block of keys and values, with carried
 * state, so that a ring is a sequence of these calls (2310.01889; online softmax 1805.02867).
 *
 * Query row i (0 <= i < Tq) sees the keys whose global index j lies in [lo[i], hi[i]); key row t
 * has global index kv_pos + t. Causal masks, documents, windows and padding are all such intervals;
 * an empty one sees no key. Tiles whose keys no query sees are skipped.
 *
 *   q       [Tq, H*D] act
 *   kv      [Tk, 2*Hk*D] act: per row the Hk keys, then the Hk values; head h uses KV head h/(H/Hk)
 *   o       [Tq, H*D] fp32 in/out: sum of exp(s - m) v, not normalised. Before the first call: 0
 *   m, l    [H, ml_ld] in/out: running maximum (-inf before the first call) and sum (0), or
 *           attn_sink_fwd's results;
 *           between calls in units of the device's own: only attn_finish makes them mean something.
 *           l is 0 and m -inf as long as a row has seen no key; a row whose scores were all -inf
 *           has another m
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
    /* Soft cap of the scores, before the mask: s = cap tanh(scale q k / cap); 0: none. Under one,
     * bf16 takes the fp32 products, as under dropout. */
    float cap;
};

/* Attention dropout: probability (row, key) of a head is kept iff a word of Philox4x32-10 says it,
 * and then counts 1 / (1 - rate). The word is a function of global indices alone, so that the mask
 * is the same for any number of ranks, layout, order of blocks and tile: key {seed, step} mixed as
 * philox_key() does; counter {row, key / 4, layer << 16 | head, sample}, lane key mod 4. Running
 * maximum, sum and lse see every probability; only the factor of v is masked, in fp32 (so that bf16
 * under dropout takes the fp32 products, at their speed). key: philox_key() of kernels/philox.h. */
struct attn_drop {
    double rate; /* in [0, 1): kept iff word >= rate * 2^32 */
    uint32_t key[2];
    uint32_t layer, sample;
    int64_t q_pos; /* global index of query row 0; row i has q_pos + i */
    uint32_t head; /* number of the call's first head (dropout: added to its `head`) */
};

/* A sink of each head: a learned logit that takes part in the softmax of every row and has no value
 * (2309.17453; gpt-oss). Instead of m = -inf and l = 0 before the first attn_fwd: m and l of rows
 * that have seen the sink alone. Once for a row, however many blocks follow. A row that sees no key
 * then has out = 0 and lse = its sink.
 *   m, l    [n_heads, ml_ld] out, of `rows` rows
 *   sink    [1, n_heads] act or fp32 */
struct attn_sink_fwd_args {
    float *m, *l;
    int64_t ml_ld, rows, n_heads;
    struct tensor sink;
};

/* d_sink[h] += - sum over rows of exp(sink_h - lse[h][i]) delta[h][i], with the final lse, which
 * knows the sink: rows ascending, in double. A row with lse = -inf contributes 0.
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

/* Backward of one (query block, KV block) pair with the final lse: p = exp(scale q k - lse),
 * dv += p' dO; ds = p (dO v' - delta); dq += scale ds k; dk += scale ds' q. Under a soft cap the
 * score is capped in p, and ds has the cap's slope as a factor, 1 - (s / cap)^2. A row with lse =
 * -inf contributes exactly 0. Query tiles ascending, summed into dkv in that order; key tiles
 * ascending into dq. With Hk < H the heads of a group are added in ascending order. A tile is 64
 * rows from row 0 of the call; each tile's part is a chain of its own that starts from 0 and is
 * added to the old value (in bf16 a chain may start from the old value). p and ds may be rounded to
 * bf16 for the products they feed.
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

/* Half-split rotary embedding in place (2104.09864; transformers' rotate_half): columns
 * [0, n_heads*D) of x [T, ...] (act) with angle pos * inv_freq, computed in double, rounded once;
 * cosine and sine are multiplied by scale.
 * pos [T]; inverse: rotate by the negative angle (the backward). */
struct rope_args {
    struct tensor x;
    const int64_t *pos;
    const double *inv_freq; /* [rotary_dim/2] */
    int64_t n_heads, head_dim;
    bool inverse;
    int64_t rotary_dim; /* columns of each head that rotate, the first; 0: all D */
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
 * type or fp32; ids [T]. */
struct embed_fwd_args {
    struct tensor table, x;
    const int32_t *ids;
    int64_t first;
};
/* dtable[ids[i] - first] += dx[i], rows ascending, where dtable has such a row; dtable fp32, dx
 * act. Rows with skip_below_zero target are not special. */
struct embed_bwd_args {
    struct tensor dtable, dx;
    const int32_t *ids;
    int64_t first;
};

/* Cross-entropy of a chunk of logits, in place. logits [T, V] fp32; targets [T], negative = no
 * target.
 *   nll      [T] out: -log p(target) in double, 0 where there is no target
 *   dlogits  [T, V] act out, when backward: (softmax - onehot) * scale, rows without target exactly
 *            0. It may share memory with logits: the very same tensor when fp32; when bf16, row i
 *            at the start of row i (ld = 2 * logits.ld): no write reaches a value still to be read
 *   cap      the logits z have been capped softly, z = cap tanh(x / cap): dlogits is the gradient
 *            of x, that of z times 1 - (z / cap)^2; 0: they have not
 *   parts    [n_parts, T] results of xent_part for all columns: logits are those from `first` on,
 *            none where V is 0. NULL: logits are all there are; first and n_parts are 0 */
struct xent_stat {
    double max, sum; /* a row's largest column, -inf without any; sum of e^(x - max) */
    double target;   /* the target's logit where it is among them, else 0 */
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
    enum dtype half;  /* its dtype: DT_BF16 or DT_F16 */
    const float *g;
    int64_t n;
    double lr, beta1, beta2, eps, weight_decay, clip;
    int64_t t;
};

/* out[u] = sum of g^2 in double over unit u: elements [u unit, (u + 1) unit) of [0, n), of which
 * the last may be short. A device adds in an order that depends on nothing but the length. */
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
 * If other ranks have the rest of a row (rms, one group), sums [T] are norm_part's over all of its
 * n_all columns; NULL: x has all. (1607.06450, 1910.07467) */
struct norm_fwd_args {
    struct tensor x, y, g, b;
    float *mean, *rstd;
    int64_t groups;
    bool rms;
    float eps;
    const float *sums;
    int64_t n_all;
};
/* dx (+)= ; dg [cols / groups] += , db likewise, rows ascending; NULL: not wanted. dx may not be x.
 * sums [T] of norm_part with dy: as above, of rows that n_same ranks have each a part of dy of. */
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

/* LRPE of TransNormerLLM: y [T, 2*H*D], per head [x cos(theta pos), x sin(theta pos)]; theta [H, D]
 * fp32 or act. The angle is formed and reduced in double. dx (+)= ; of theta: linear_angle. */
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

/* Mean squared error: *loss (double) = sum over rows and columns of weight[i] (x - y)^2, rows
 * ascending; dx = 2 scale weight[i] (x - y). x, y [T, cols]; weight [T], NULL: 1; row_loss [T]
 * doubles out; dx.data NULL: not wanted. */
struct mse_args {
    struct tensor x, y, dx;
    const float *weight;
    double *row_loss;
    float scale;
};

/* Noise and its variance (IDDPM, 2102.09672): x [T, 2 C] fp32, C values e of noise that are
 * predicted and C values v that say where between log_min and log_max the logarithm of the variance
 * is; y [T, 2 C] fp32, the noise n and the sample z. A row's loss is weight[i] times the sum over C
 * of
 *   (e - n)^2 + bound / ln 2     d = slope (e - n), s = log_min + (v + 1) / 2 (log_max - log_min)
 *   bound = (s - log_min - 1 + exp(log_min - s) + d^2 exp(-s)) / 2
 *   last: -log P of z's step of 2/255 under a normal of deviation exp(s / 2) whose mean is d away,
 *   the first and the last step of [-1, 1] being open; P is no less than 1e-12
 * dx = scale times its gradient, in which the bound trains v alone: e of it counts as a constant.
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
    bool plain; /* weighted by p itself; backward then reads logits, which are not dlogits */
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
 * Sums go over blocks of 64 rows counted from row 0 of the call and, from block to block, through
 * a state that is rounded to fp32 after each: o and dq of a row do not depend on how many rows
 * follow. Dk is at most JOB_MAX_LINEAR_HEAD, Dv one more. A device may add to o, and so round it,
 * once for each 256 columns of Dk.
 *
 * The chunk is computed from a state of zero, and the part of the entering state is added after
 * (attended), so that the sums do not depend on how many ranks there are: linear_fold folds chunks
 * left to right. */
struct linear_args {
    struct tensor q, k, v;  /* [n, H*Dk], [n, H*Dk], [n, H*Dv] act */
    const double *slope;    /* [H] */
    const int64_t *lo, *hi; /* [n] */
    int64_t pos;
    int64_t n_heads, key_dim, value_dim;
    float scale;
    /* Gates that depend on the data: log decay of each row, <= 0; scalar: [n, H]; diagonal:
     * [n, H*Dk] (GLA). No device has them yet (shapes.h refuses them): NULL, the slope alone. They
     * would need: in a block, powers that are no function of a distance, so exp(G_r - G_c) of sums
     * G of log decays for each pair of rows, and for a diagonal gate within each product of q and
     * k; a gradient dG of every row, from o dO and the states, summed from the right, of which a
     * part comes from the next ranks. Between chunks, linear_fold by the chunk's own decay, H or
     * H*Dk numbers that travel with its state (all_gather: with every summary, since others fold by
     * it), so that messages, their formulas and the memory kept for the backward grow by them. */
    const float *gate;
    bool gate_diagonal;
};
/* The summary and the output may be asked for apart, in two calls: the output hides the time in
 * which a summary travels to other ranks (LASP-2, 2502.07563). It costs as much as the output's own
 * way through the states, a third of the whole. The same bits as together. */
struct linear_fwd_args {
    struct linear_args in;
    struct tensor o; /* [n, H*Dv] act, written; data NULL: unwanted, and so is q */
    void *m; /* [H, Dk, Dv] out: the chunk's own summary, of the rows of its last document; NULL:
              * unwanted */
};
/* o += the part of the entering state. */
struct linear_enter_args {
    struct linear_args in;
    struct tensor o;
    const void *state;
};
/* Backward from a state of zero: dq, dk, dv [as q, k, v; fp32] written; dm [H, Dk, Dv] out: the
 * gradient this chunk has for the state that enters it. As forward, apart: dq, dk and dv with data
 * NULL: dm alone, and k and v are not read; dm NULL: the gradients alone. */
struct linear_bwd_args {
    struct linear_args in;
    struct tensor d_o, dq, dk, dv;
    void *dm;
};
/* dq += lambda^i dO S' where a row saw the entering state; dk, dv of the last document's rows +=
 * the part from d_state, the gradient of the state that leaves the chunk. state or d_state NULL:
 * not there. */
struct linear_enter_bwd_args {
    struct linear_args in;
    struct tensor d_o, dq, dk, dv;
    const void *state, *d_state;
};
/* How a chunk passes a state on, forward (m: its summary) and backward (m: its dm): out =
 * lambda^n_valid * in + m where the document of its last valid row began before it (`through`),
 * else m. A chunk of nothing but padding passes everything on: through, n_valid 0, m 0. out may be
 * in. */
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
 * of heads of D = Dk / 2. A pair of rows depends on theta by its distance alone, so the sum goes
 * over distances: weighed with positions, queries' and keys' parts grow with them and cancel, and
 * the rounding of dq and dk is as large as the difference.
 *
 *     A_i = sum over j <= i of (i - j) lambda^(i-j) k_j v_j',  [A1, A2] as k's halves
 *     dtheta = sum over i of scale (q1_i A2_i - q2_i A1_i) dO_i + rows (A2 dS1 - A1 dS2)
 *
 * The second term is the part of the state that leaves the chunk, at the row after the last.
 * Distances to and from other chunks add up: each chunk counts those within itself, from the border
 * that `state` passed and to the border that leads to d_state. state and d_state as in
 * linear_enter_bwd. dtheta [H, D] fp32, written. The states, A and the sums are double. */
struct linear_angle_args {
    struct linear_args in;
    struct tensor d_o;
    const void *state, *d_state;
    float *dtheta;
};

/* ---- gated delta networks ----------------------------------------------------------------------
 *
 * The gated delta rule (2412.06464; transformers' recurrent_gated_delta_rule), one chunk of n rows:
 * for each row of a document, with unit rows q, k (x / sqrt(sum x^2 + 1e-6)),
 *     g = -exp(a_log) softplus(a + dt_bias), beta = sigmoid(b)
 *     S = exp(g) S;  S = S + k (beta (v - S' k))';  o = scale S' q
 * States S [H, Dk, Dv] fp32, H contiguous matrices. lo, hi, pos and padding as of linear attention:
 * a row whose document began before the chunk continues from the entering state, a document that
 * begins in the chunk from 0. Rows go over blocks counted from row 0 of the call, of 64 or of one
 * by the device, and, from block to block, through a state that is rounded to fp32 after each.
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
        *state; /* [width - 1, C]; NULL: no row before row 0 is of a document of the chunk */
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

/* How a device that has CUDA's graphs used them so far. */
struct be_graphs {
    int64_t n_ops, n_by_graph; /* operations asked for, and their number launched by graphs */
    int64_t n_made, n_graphs;  /* graphs made, and their number still there */
    char why_off[640];         /* a failure: no graph is made or launched any more; "": none */
};

#define BE_MARKS  256
#define BE_COPIES 4 /* marks of copies beside */
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
    void (*copy)(struct be *, void *dst, const void *src, int64_t size); /* on the device */
    /* From the host: in the order of operations; src is the caller's again when it returns. */
    void (*upload)(struct be *, void *dst, const void *src, int64_t size);
    /* To the host: there when it returns. Failures before it are reported by sync. */
    void (*download)(struct be *, void *dst, const void *src, int64_t size);
    /* Waits for everything asked for so far, transfers too, and reports the first failure. NULL:
     * everything is synchronous. */
    int (*sync)(struct be *, struct err *);
    void *(*alloc)(struct be *, int64_t size, struct err *); /* zeroed pages, 64-byte aligned */
    void (*free)(struct be *, void *p, int64_t size);

    /* ---- devices with memory of their own; elsewhere NULL ----
     * The memory at p, which alloc gave, for another rank of this host: share makes a handle to
     * send, and attach the memory itself, good until detach. One process too. fails:
     * ERR_UNSUPPORTED if neither of the devices reaches the other's memory. */
    int (*share)(struct be *, void *p, struct be_handle *out, struct err *);
    void *(*attach)(struct be *, const struct be_handle *h, struct err *);
    void (*detach)(struct be *, void *p);
    /* Transfers between ranks run beside the operations, in a stream of their own and in the order
     * they were enqueued there. transfer_begin: transfers to come wait for the operations so far.
     * transfer_end: mark number `mark`, below BE_MARKS, stands after the transfers so far.
     * transfer_await: operations to come wait for the mark. transfer_passed: it has been reached,
     * or the device failed (sync then reports it): no wait is needed. */
    void *(*transfer_stream)(struct be *); /* a cudaStream_t */
    void (*transfer_begin)(struct be *);
    void (*transfer_end)(struct be *, int mark);
    void (*transfer_await)(struct be *, int mark);
    bool (*transfer_passed)(struct be *, int mark);
    /* Copies to and from the host beside operations and transfers, in a stream of their own and in
     * the order in which they were asked for: a copy waits for the operations so far, and mark
     * number `mark`, below BE_COPIES, stands after it; copy_await: operations to come wait for the
     * mark. The host's memory must have been given to pin, whole pages, until unpin; before that,
     * sync. fails: ERR_DEVICE. */
    int (*pin)(struct be *, void *host, int64_t size, struct err *);
    void (*unpin)(struct be *, void *host);
    void (*copy_beside)(struct be *, void *dst, const void *src, int64_t size, int mark);
    void (*copy_await)(struct be *, int mark);
    void (*close)(struct be *);
};

/* A library for products, on a device opened with any_order. Products that a graph launches count
 * once, when it is made. */
struct be_library {
    bool open;
    char text[640];         /* "cuBLASLt 13.0.2, /usr/..."; not open: why */
    int64_t n_done, n_left; /* products that it did; products that the device's own kernels did */
};

struct be {
    const struct be_ops *ops;
    /* "portable", "avx2", "avx512", "avx512bf16", "amx", "sm80", "sm86", "sm90": tests print it */
    const char *isa;
    const char *name;     /* the device's, for logs: "NVIDIA H100 80GB HBM3"; "cpu" */
    unsigned char id[16]; /* a GPU's: ranks on one have equal ones; zeros: it is none */
    int n_threads;
    struct pool *pool; /* be_host_run's threads; NULL: not started yet */
    char *scratch;     /* the plan's PLAN_SCRATCH, or be_open's own */
    int64_t scratch_size;
    bool own_memory; /* alloc's memory is not the host's */
    bool any_order;  /* be_options.any_order */
    /* Asked about every millisecond while sync, download or upload wait, NULL: not asked; -1 ends
     * this wait and all later ones, and sync fails with its error. A transfer whose peer is gone
     * would be waited for without end. */
    int (*watch)(void *arg, struct err *e);
    void *watch_arg;
    const struct be_graphs *graphs;   /* NULL: it has none, or is not to use them */
    const struct be_library *library; /* NULL: the device uses none, or not any_order */
};

struct be_options {
    const char *device; /* "cpu", "cuda", "emulated" */
    const char *isa;    /* NULL: the best this machine has; tests ask for each by name */
    int n_threads;
    void *scratch;      /* device_scratch() bytes; NULL: be_open allocates them */
    bool scratch_later; /* be_open does not: be_give_scratch follows, with alloc's memory */
    /* gemm and attn_fwd may add in any order that is the same from run to run: bits may then depend
     * on other rows, and so on the number of ranks. It makes these faster: a library's products
     * (SEQD_CUDA_BLAS=0 in the environment: the device's own), few queries of many keys. */
    bool any_order;
    /* Each operation is launched when it is asked for. Otherwise a device may launch several at
     * once, by a graph if it has seen them before: the same bits. SEQD_CUDA_GRAPHS=0 in the
     * environment sets it too. */
    bool no_graphs;
    /* CPU: moves while an operation computes, a task of its first thread at a time (an atomic add);
     * NULL: none is counted. Borrowed. */
    int64_t *n_tasks;
};

/* Opens a device by name. fails: ERR_UNSUPPORTED naming the rows there are. */
struct be *be_open(const struct be_options *o, struct err *e);
void be_give_scratch(struct be *be, void *scratch, int64_t size);
void be_close(struct be *be); /* NULL allowed */

/* Work of the host beside no operation: fn(arg, t, worker) for t in [0, n_tasks), each once, by
 * n_threads threads of which the caller is one: the CPU's own; for other devices the first call
 * starts some, and where it cannot the caller does all. fn asks the device for nothing. */
void be_host_run(struct be *be, void (*fn)(void *arg, int64_t task, int worker), void *arg,
                 int64_t n_tasks);
/* Returns the instruction sets compiled in that this machine can run, NULL-terminated. */
const char *const *be_isas(void);

#endif
