/* backend.h: the operations that a device must have. The operations form one table, and each
 * device fills one row of the table.
 *
 * An operation is a slot in struct be_ops and an args struct that is documented in this file; a
 * device is one implementation of the table (kernels/cpu, kernels/cuda). Code that calls the table
 * is device-neutral. Operations are asynchronous on devices that have streams; be->ops->sync waits
 * for them and reports their failures. A device may keep operations back, together with their
 * args, until the next upload, download, transfer or sync. For this reason only one thread at a
 * time may use an opened device. Every device asserts shapes by the functions of shapes.h.
 *
 * In the comments below, T is the number of rows (tokens) in this call, C the width, H the number
 * of query heads, Hk the number of KV heads, D the head size and V the size of the vocabulary. All
 * tensors are row-major 2-D views: fp32, bf16 or fp16.
 *
 * A device may have memory of its own (be->own_memory). Then all data that an operation reads or
 * writes must be in memory from the device's alloc. This holds for tensors and for arrays (pos,
 * lo, ids, slope, nll ...). The host can reach the device's memory only by upload and download. A
 * struct that an args struct points to (struct attn_drop) is in the host's memory, and the device
 * reads it before the call returns.
 *
 * bf16 and fp16 are formats of storage and of the inputs of products; every sum is fp32. "act"
 * below means a tensor of the model's precision. All act tensors of one call have the same dtype.
 * An output of 16 bits is rounded once, to nearest even, from its fp32 value. In fp16, a value of
 * 65520 or more becomes infinity. A sum over keys, rows or hops is never stored in 16 bits.
 * Statements about bf16 below hold for fp16 too. The following are fp32 at any precision: carried
 * (o, m, l), lse, delta, dq and dkv of attention, weight gradients, rstd, logits, master weights
 * and Adam's moments.
 *
 * NaN and infinity pass through. If an input is NaN or infinity, the output is NaN or infinity
 * too, or it is the function's value for that input. Infinity becomes finite only if the
 * function's value is finite (exp(-inf), tanh(inf)). NaN stays NaN. NaN and infinity may spread to
 * other rows of the call, but a row that sees no key is always 0.
 *
 * The bits of a result do not depend on the number of ranks. Unless a slot says otherwise, every
 * output row depends only on the row's inputs. The row's values are added in an order that does
 * not depend on the number of rows, on the thread count or on the row's position. Sums over rows
 * are formed in ascending order of the rows. */
#ifndef SEQD_KERNELS_BACKEND_H
#define SEQD_KERNELS_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/act.h"
#include "api/core/delta.h"
#include "api/core/device.h"
#include "api/core/err.h"
#include "api/core/limits.h"
#include "api/core/quant.h"

/* Only the tests' reference device uses DT_F64. DT_INT8 and DT_INT4 are the types of a weight [N,
 * K] in blocks (api/core/quant.h). A view of a weight in blocks has whole rows, its first row is a
 * multiple of QUANT_ROWS, and its ld is K. DT_F32_PANELS and DT_BF16_PANELS are the types of a
 * weight [N, K] of numbers in panels (panels.h). A view of a weight in panels consists of whole
 * panels, or begins with a panel and ends with the weight's last row. */
enum dtype { DT_F32, DT_BF16, DT_F64, DT_F16, DT_INT8, DT_INT4, DT_F32_PANELS, DT_BF16_PANELS };

struct tensor { /* a view; owns nothing */
    void *data;
    int64_t rows, cols;
    int64_t ld; /* elements from the start of a row to the start of the next row, >= cols */
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
/* Returns the bytes of an element of type t, which may not be a type in blocks. */
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
/* dtype_format returns the format that a dtype in blocks has. dtype_of_format returns the dtype of
 * a format that has blocks. */
static inline enum weights_id dtype_format(enum dtype t)
{
    return t == DT_INT4 ? WEIGHTS_INT4 : WEIGHTS_INT8;
}
static inline enum dtype dtype_of_format(enum weights_id w)
{
    return w == WEIGHTS_INT4 ? DT_INT4 : DT_INT8;
}
/* Returns the dtype that a weight of format w has in a model whose dtype is t. */
static inline enum dtype dtype_stored(enum weights_id w, enum dtype t)
{
    if (w == WEIGHTS_PANELS) return t == DT_BF16 ? DT_BF16_PANELS : DT_F32_PANELS;
    return w == WEIGHTS_MODEL ? t : dtype_of_format(w);
}
/* Returns the dtype of the numbers that panels of dtype t hold. */
static inline enum dtype dtype_of_panels(enum dtype t)
{
    return t == DT_BF16_PANELS ? DT_BF16 : DT_F32;
}
/* Returns a window of t: rows [r0, r0 + n) and columns [c0, c0 + m). A window of a tensor in
 * blocks or panels must have all columns. */
static inline struct tensor tensor_sub(struct tensor t, int64_t r0, int64_t n, int64_t c0,
                                       int64_t m)
{
    if (dtype_quant(t.dtype))
        return (struct tensor){(char *)t.data + quant_size(dtype_format(t.dtype), r0, t.cols), n, m,
                               t.ld, t.dtype};
    return (struct tensor){(char *)t.data + (r0 * t.ld + c0) * dtype_size(t.dtype), n, m, t.ld,
                           t.dtype};
}

struct be; /* an opened device: its threads or streams, and its scratch */
struct pool;

/* Computes c = op(a) op(b). Adds the old c if accumulate is set, and the bias if bias.data is not
 * NULL. The same bias is added to every row. op(a) is [M, K], op(b) is [K, N], c is [M, N].
 *
 * Each element is a sum over ascending k. The sum is formed in blocks whose bounds depend on K
 * alone. A block's sum starts from 0, and then the sums of the blocks are added in order. With
 * accumulate, the sums are added to the old c.
 *
 * There are three choices of dtypes. Either a and b have the same dtype; or b is in blocks, and
 * trans_a is not set; or b is in panels of a's dtype, and trans_b is set. The result has the same
 * bits whether the numbers of b are in panels or in rows. c may have any dtype. The values of
 * blocks are computed in fp32 (for int4: scale * code + least, rounded once). If a is bf16, a
 * device may round these values to bf16, or sum a block's codes first and scale the sum. If a and
 * b are bf16, a device may choose the order in which it adds the products of 2 or of 32
 * neighbouring k. A bf16 c is rounded once, from the fp32 sum that includes the old c. The bias is
 * added afterwards, as bias_fwd adds it; with be->any_order it may instead be part of the sum that
 * is rounded once. */
struct gemm_args {
    struct tensor a, b, c;
    /* If trans_a is set, a is stored as [K, M] (for a weight's gradient, dW = dY^T X). If trans_b
     * is set, b is stored as [N, K] (for a product with a weight, Y = X W^T). They are not both
     * set. */
    bool trans_a, trans_b;
    bool accumulate;
    struct tensor bias; /* [1, N], of c's dtype; data is NULL if there is no bias */
};

/* Computes softmax attention of one block of queries against one block of keys and values. The
 * state (o, m, l) is carried from call to call, so that ring attention is a sequence of these
 * calls (2310.01889; online softmax 1805.02867).
 *
 * Query row i (0 <= i < Tq) sees the keys whose global index is in [lo[i], hi[i]); key row t has
 * the global index kv_pos + t. Causal masks, documents, windows and padding are all expressed by
 * the interval of each row; a row with an empty interval sees no key. Tiles of keys that no query
 * sees are skipped.
 *
 *   q       [Tq, H*D] act
 *   kv      [Tk, 2*Hk*D] act: per row the Hk keys, then the Hk values; head h uses KV head
 *           h/(H/Hk)
 *   o       [Tq, H*D] fp32 in/out: sum of exp(s - m) v, not normalised; 0 before the first call
 *   m, l    [H, ml_ld] in/out: the running maximum and the running sum. Before the first call
 *           they are -inf and 0, or the results of attn_sink_fwd.
 *           Between calls m and l are in units that the device chooses; attn_finish converts
 *           them. As long as a row has seen no key, l is 0 and m is -inf. If a row has seen keys
 *           and all their scores were -inf, m is not -inf
 * Keys are processed in ascending tiles of a fixed width, counted from key row 0. */
struct attn_fwd_args {
    struct tensor q, kv, o;
    float *m, *l;
    int64_t ml_ld;
    const int64_t *lo, *hi;
    int64_t kv_pos;
    int64_t n_heads, n_kv_heads, head_dim;
    float scale;
    const struct attn_drop *drop; /* NULL if there is no dropout */
    /* Soft cap of the scores, applied before the mask: s = cap tanh(scale q k / cap). 0 means that
     * there is no cap. With a cap or with dropout, bf16 inputs use the fp32 products. */
    float cap;
    /* The page table of the keys; NULL if key row t is row t of kv. With a table, kv is a pool of
     * whole pages of CACHE_PAGE rows, n_keys is the number of key rows, and key row t is row
     * pages[t / CACHE_PAGE] * CACHE_PAGE + t % CACHE_PAGE of kv. Rows of kv that are no key row are
     * not read. The results have the bits that they would have without a table, except where a
     * device has a kernel that cannot read one (bf16 on compute capability 9.0). Dropout and
     * backward have no table. */
    const int32_t *pages; /* [n_keys / CACHE_PAGE, rounded up] */
    int64_t n_keys;       /* not read if there is no table */
};
/* Returns the number of key rows. */
static inline int64_t attn_keys(const struct attn_fwd_args *a)
{
    return a->pages ? a->n_keys : a->kv.rows;
}

/* Calls of attn_fwd, such as those for the new tokens of several sequences, each of which has its
 * own keys. Their o, m and l do not overlap. The results have the bits of the calls one after
 * another, in any order. */
struct attn_list_args {
    const struct attn_fwd_args *call;
    int64_t n;
};

/* Attention dropout. Each probability (row, key) of a head is either dropped, or kept and
 * multiplied by 1 / (1 - rate). A word of Philox4x32-10 decides whether it is dropped. The word
 * depends only on global indices. For this reason the mask does not depend on the number of ranks,
 * the layout, the order of blocks or the tile size. Philox's key is philox_key() of the seed and
 * the step (kernels/philox.h). Philox's counter is {row, key / 4, layer << 16 | head, sample}. The
 * word is lane (key mod 4) of the result.
 *
 * The running maximum, the sum and lse include every probability; only the factor of v is masked.
 * The mask is applied in fp32, so under dropout bf16 inputs use the fp32 products, at their speed.
 * The member `key` is the result of philox_key(). */
struct attn_drop {
    double rate; /* in [0, 1); a value is kept if its word is at least rate * 2^32 */
    uint32_t key[2];
    uint32_t layer, sample;
    int64_t q_pos; /* global index of query row 0; query row i has the global index q_pos + i */
    uint32_t head; /* index of the call's first head; dropout_args.head is added to this index */
};

/* Begins attention with a sink for each head. A sink is a learned logit that is part of every
 * row's softmax but has no value vector (2309.17453; gpt-oss). This operation is called once for
 * each row, before the first attn_fwd. It sets m and l to the values of a row that has seen only
 * the sink. A row that sees no key then gets out = 0 and lse = the head's sink.
 *   m, l    [n_heads, ml_ld] out, of `rows` rows
 *   sink    [1, n_heads] act or fp32 */
struct attn_sink_fwd_args {
    float *m, *l;
    int64_t ml_ld, rows, n_heads;
    struct tensor sink;
};

/* Subtracts from d_sink[h] the sum over rows of exp(sink_h - lse[h][i]) delta[h][i], formed in
 * double with the rows ascending. lse is the final value, which includes the sink. A row with lse
 * = -inf contributes 0.
 *   lse, delta  [n_heads, ml_ld]; d_sink [n_heads] fp32 in/out */
struct attn_sink_bwd_args {
    struct tensor sink; /* as in forward */
    const float *lse, *delta;
    int64_t ml_ld, rows, n_heads;
    float *d_sink;
};

/* Finishes attention after the last key block. Computes out = o / l and lse = m + log l. lse is
 * written over m. A row that saw neither a key nor a sink (l = 0, m = -inf) gets out = 0 and lse =
 * -inf. A row whose scores were all -inf gets NaN.
 *   o     [Tq, H*D] fp32
 *   out   [Tq, H*D] act; may be o itself if out is fp32
 *   m, l  [H, ml_ld] */
struct attn_finish_args {
    struct tensor o, out;
    float *m, *l;
    int64_t ml_ld;
    int64_t n_heads, head_dim;
};

/* Merges the partial results of n_parts ranks, which have attended to different keys, for each row
 * and head:
 *
 *   out = sum over p of w[p] o[p]     w[p] = exp(lse[p] - max lse) / sum of these
 *
 * The sum is in fp32, over ascending parts, and out is rounded once. A part with lse = -inf has
 * weight 0, and its o is not read. A row of a head whose parts all have lse = -inf is 0. Part p
 * begins at parts + p * stride, with the results of attn_finish: o [rows, H*D] fp32, directly
 * followed by lse [H, rows].
 *   out   [rows, H*D] act
 *   n_parts is at most JOB_MAX_RANKS */
struct attn_merge_args {
    const float *parts;
    int64_t n_parts, stride; /* stride: floats from one part to the next part */
    struct tensor out;
    int64_t n_heads, head_dim;
};

/* Computes delta[h][i], the sum over D of dO * O, once per layer from the final O (2205.14135, eq.
 * 4). o and d_o are [Tq, H*D] act; delta is [H, ld]. */
struct attn_delta_args {
    struct tensor o, d_o;
    float *delta;
    int64_t ld;
    int64_t n_heads, head_dim;
};

/* Computes the backward for one query block and one KV block, from the final lse:
 *
 *   p = exp(scale q k - lse)     dv += p' dO
 *   ds = p (dO v' - delta)       dq += scale ds k     dk += scale ds' q
 *
 * Under a soft cap the score in p is the capped one, and ds is multiplied by the cap's slope, 1 -
 * (s / cap)^2. A row with lse = -inf contributes exactly 0. dkv is summed over query tiles in
 * ascending order, and dq over key tiles in ascending order. With Hk < H the heads of a group are
 * added in ascending order. Tiles have 64 rows, counted from row 0 of the call. A tile's part is
 * summed from 0 and then added to the old value (in bf16 the sum may start from the old value). p
 * and ds may be rounded to bf16 for the products that use them.
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
    /* as in forward; dropout does not change the formula of delta */
    const struct attn_drop *drop;
    float cap; /* as in forward */
};

/* Computes y = x * rsqrt(mean(x^2) + eps) * g for each row (1910.07467). x and y are [T, C] act; g
 * is [1, C] act; rstd [T] is an output. */
struct rmsnorm_fwd_args {
    struct tensor x, y, g;
    float *rstd;
    float eps;
};
/* Sets dx to the gradient of x, or adds the gradient to dx if accumulate is set. Adds to dg [C]
 * the sum of dy * x * rstd over all rows, in ascending order. dg is NULL if the gradient of g is
 * not wanted. dx may not be x. x, dy, dx and g are act; dg is fp32. */
struct rmsnorm_bwd_args {
    struct tensor x, dy, dx, g;
    const float *rstd;
    float *dg;
    bool accumulate; /* add to dx instead of setting it */
};

/* Applies a half-split rotary embedding (2104.09864; transformers' rotate_half) in place to
 * columns [0, n_heads*D) of x [T, ...] (act). The cosine and the sine of the angle pos * inv_freq
 * are computed in double, rounded to fp32, and multiplied by scale. pos is [T]. If inverse is set,
 * the rotation is by the negative angle, which the backward needs. */
struct rope_args {
    struct tensor x;
    const int64_t *pos;
    const double *inv_freq; /* [rotary_dim/2] */
    int64_t n_heads, head_dim;
    bool inverse;
    /* number of columns of each head, from its first column on, that are rotated; 0 means all D
     * columns */
    int64_t rotary_dim;
    /* a rotated pair is columns (2j, 2j+1) instead of columns (j, j + rotary_dim/2) */
    bool interleaved;
    float scale; /* > 0 */
    bool single; /* the angle is computed as an fp32 product, as in transformers */
};

/* Computes a = silu(gate) * up. gu is [T, 2*I], gate first and then up; a is [T, I]. All are
 * act. */
struct swiglu_fwd_args {
    struct tensor gu, a;
};
/* Sets dgu [T, 2*I] to the gradient of gu; dgu may be gu itself. Intermediate values are computed
 * again from gu. All tensors are act. */
struct swiglu_bwd_args {
    struct tensor gu, da, dgu;
};

/* Sets x[i] to row ids[i] - first of table [V, C], or to 0 if the table has no row with that
 * index. If the table is act, x is of the table's type or fp32. If the table is in blocks, x is
 * act. ids is [T]. */
struct embed_fwd_args {
    struct tensor table, x;
    const int32_t *ids;
    int64_t first;
};
/* Adds dx[i] to row ids[i] - first of dtable, if dtable has a row with that index. The rows i are
 * added in ascending order. dtable is fp32, dx is act. */
struct embed_bwd_args {
    struct tensor dtable, dx;
    const int32_t *ids;
    int64_t first;
};

/* Computes the cross-entropy of a chunk of logits, in place. logits is [T, V] fp32; targets is
 * [T]; if a row's entry is negative, the row has no target. Let lse be the log of the sum of a
 * row's e^x, s the smoothing, and z the z_loss.
 *   nll      [T] out: the row's loss in double, 0 where there is no target. It is
 *            lse - (1 - s) x(target) - s mean(x) + z lse^2, which is -log p(target) if s and z
 *            are 0
 *   dlogits  [T, V] act out, when backward: scale times the loss's gradient, which is
 *            (1 + 2 z lse) softmax - (1 - s) onehot - s / vocab. A row without target is
 *            exactly 0. dlogits may share memory with logits. If it does and is fp32, it is the
 *            same tensor. If it does and is bf16, its row i starts where row i of logits starts
 *            (ld = 2 * logits.ld), so that no write reaches a value that is still to be read
 *   cap      0 if there is no cap. Otherwise logits holds capped values z = cap tanh(x / cap),
 *            and dlogits is the gradient of x, which is the gradient of z times 1 - (z / cap)^2
 *   parts    NULL if logits has all columns; first and n_parts are then 0. Otherwise parts is
 *            [n_parts, T], the results of xent_part that cover all columns, and logits holds V
 *            columns, from `first` on (V may be 0)
 *   weight   [T]: each row's gradient is also multiplied by its weight; its nll is not. NULL if all
 *            weights are 1
 *   smoothing, vocab, z_loss  s, z and the number of columns of all parts. vocab is used only if
 *            smoothing is not 0 */
struct xent_stat {
    double max, sum; /* a row's largest logit, -inf if V is 0; sum of e^(x - max) */
    /* the target's logit if the target is among the columns of `logits`; otherwise 0 */
    double target;
    double total; /* the sum of the logits if xent_part was asked for it; otherwise 0 */
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
    const float *weight;
    double smoothing, z_loss;
    int64_t vocab;
};
/* Computes statistics of columns [first, first + V) of a chunk of logits [T, V] fp32. stat is [T];
 * rows without a target get zeros. If smooth is set, the rows' logits are summed too. */
struct xent_part_args {
    struct tensor logits;
    const int32_t *targets;
    int64_t first;
    struct xent_stat *stat;
    bool smooth;
};

/* Adds x to y, element by element (n floats). */
struct add_args {
    float *y;
    const float *x;
    int64_t n;
};

/* Takes one step of decoupled AdamW over a flat range of n elements (1711.05101):
 *
 *   g' = g * clip;  m = b1 m + (1 - b1) g';  v = b2 v + (1 - b2) g'^2
 *   p -= lr * (mh / (sqrt(vh) + eps) + wd p)
 *
 * Here mh and vh are m and v with the bias correction of step t. Steps are counted from 1. */
struct adamw_args {
    float *p, *m, *v; /* p: master weights */
    uint16_t *p_half; /* out: the new weights in 16 bits; NULL if the model reads p */
    enum dtype half;  /* dtype of p_half: DT_BF16 or DT_F16 */
    const float *g;
    int64_t n;
    double lr, beta1, beta2, eps, weight_decay, clip;
    int64_t t;
};

/* Sets out[u] to the sum of g^2, in double, over elements [u unit, (u + 1) unit) of [0, n). The
 * last unit may be short. The order of a device's additions depends only on the unit's length. */
struct sumsq_args {
    const float *g;
    int64_t n, unit;
    double *out;
};

/* Copies src to dst and converts it. A conversion to 16 bits rounds to nearest even (NaN is still
 * NaN); a conversion to fp32 is exact. dst and src have the same rows and cols, and each may have
 * any dtype. */
struct cast_args {
    struct tensor dst, src;
};

/* ---- other families ---------------------------------------------------------------------------
 *
 * Slots below take act tensors unless they say otherwise, and fp32 gradients of weights. If an
 * args struct has `accumulate` set, the gradient of an input is added to its tensor; otherwise it
 * is written there. */

/* Normalises each group of x.cols / groups columns: y = (x - mean) * rsqrt(var + eps) * g + b. If
 * rms is set, no mean is subtracted: y = x * rsqrt(mean(x^2) + eps) * g. g and b are [1, cols /
 * groups]; if their data is NULL, g is 1 and b is 0. g may be fp32 while act is 16 bits. mean and
 * rstd [T * groups] fp32 are outputs; with rms, mean is not written. If sums is NULL, x has all
 * columns. If sums is not NULL, other ranks have the other columns of each row, and sums [T] holds
 * norm_part's sums over all n_all columns of each row. This is possible only with rms and one
 * group. (1607.06450, 1910.07467) */
struct norm_fwd_args {
    struct tensor x, y, g, b;
    float *mean, *rstd;
    int64_t groups;
    bool rms;
    float eps;
    const float *sums;
    int64_t n_all;
};
/* Sets dx to the gradient of x, or adds the gradient to dx. Adds the gradients of g and b to dg
 * and db [cols / groups], over ascending rows. dg or db is NULL if it is not wanted. dx may not be
 * x. sums [T] is norm_part's result with dy, over all n_all columns and all ranks. n_same ranks
 * hold the same columns, and each of these ranks has only a part of the columns' dy. */
struct norm_bwd_args {
    struct tensor x, dy, dx, g;
    const float *mean, *rstd;
    float *dg, *db;
    int64_t groups;
    bool rms, accumulate;
    const float *sums;
    int64_t n_all, n_same;
};
/* Sets sum [T] fp32 to each row's sum of x^2 or, if dy has data, to each row's sum of x dy g. g is
 * [1, cols], fp32 or act. */
struct norm_part_args {
    struct tensor x, dy, g;
    float *sum;
};

/* Forward: y = act(x), where x and y have the same shape and y may be x. Backward: sets dx to
 * act'(x) dy, or adds act'(x) dy to dx. Without accumulate, dx may be dy. */
struct act_fwd_args {
    enum act_id fn;
    struct tensor x, y;
};
struct act_bwd_args {
    enum act_id fn;
    struct tensor x, dy, dx;
    bool accumulate;
};

/* Forward: y = act(a) * b, where y may be a. Backward: sets da to act'(a) b dy and db to act(a)
 * dy, or adds these values to da and db. data is NULL in da or db if that gradient is not wanted.
 * Without accumulate, da may be a and db may be b. */
struct glu_fwd_args {
    enum act_id fn;
    struct tensor a, b, y;
};
struct glu_bwd_args {
    enum act_id fn;
    struct tensor a, b, dy, da, db;
    bool accumulate_a, accumulate_b;
};

/* A gated unit with clamped inputs (gpt-oss). With g = min(a, limit) and u = b within [-limit,
 * limit], y = g sigmoid(alpha g) (u + 1); y may be a or b. da and db are set to the gradients,
 * which are 0 for inputs beyond the limit; da may be a and db may be b. All tensors are act; limit
 * and alpha are positive. */
struct clamp_glu_fwd_args {
    struct tensor a, b, y;
    float alpha, limit;
};
struct clamp_glu_bwd_args {
    struct tensor a, b, dy, da, db;
    float alpha, limit;
};

/* Computes y = alpha a + beta b, or y = alpha a if b.data is NULL. y may be a or b. The tensors
 * may have any dtypes; the sum is formed in fp32. */
struct mix_args {
    struct tensor a, b, y;
    float alpha, beta;
};

/* Adds b to every row of y; b is [1, cols] act. The backward adds to db [cols] the sum over rows
 * of dy, ascending. */
struct bias_fwd_args {
    struct tensor y, b;
};
struct bias_bwd_args {
    struct tensor dy;
    float *db;
};

/* adaLN (2212.09748). Forward: y = x (1 + scale[g(i)]) + shift[g(i)], where g(i) is group[i], or 0
 * if group is NULL. scale and shift are [G, cols]. Backward: sets dx to dy (1 + scale), or adds dy
 * (1 + scale) to dx, and computes dscale[g] += dy x and dshift[g] += dy with rows ascending.
 * dscale and dshift are fp32 [G, cols]. Without accumulate, dx may be dy. */
struct modulate_fwd_args {
    struct tensor x, scale, shift, y;
    const int32_t *group;
};
struct modulate_bwd_args {
    struct tensor x, dy, scale, dx, dscale, dshift;
    const int32_t *group;
    bool accumulate;
};

/* Forward: y = base + gate[g(i)] x; y may be base. Backward: sets dx to gate dy, or adds gate dy
 * to dx, and computes dgate[g] += dy x, in fp32. */
struct gate_fwd_args {
    struct tensor base, x, gate, y;
    const int32_t *group;
};
struct gate_bwd_args {
    struct tensor x, dy, gate, dx, dgate;
    const int32_t *group;
    bool accumulate;
};

/* LRPE of TransNormerLLM. y is [T, 2*H*D] and holds [x cos(theta pos), x sin(theta pos)] for each
 * head. theta is [H, D] fp32 or act. The angle is computed and reduced in double. The backward
 * sets dx to the gradient of x, or adds the gradient to dx. linear_angle computes the gradient of
 * theta. */
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

/* Softmax over rows of a whole attention matrix (two-pass RSA); x [rows, n] fp32 is changed in
 * place. Row i keeps the columns whose global index (col_pos + column) is in [lo[i], hi[i]); its
 * other columns become 0, and a row that sees no key becomes 0 throughout. lse [rows] is an output
 * and may be NULL. */
struct softmax_fwd_args {
    struct tensor x;
    const int64_t *lo, *hi;
    int64_t col_pos;
    float *lse;
};
/* Computes dx = p (dp - delta[i]) in place in dp. p and dp are [rows, n] fp32; delta is [rows]. */
struct softmax_bwd_args {
    struct tensor p, dp;
    const float *delta;
};
/* Multiplies x by dropout's mask / (1 - rate), in place. x [rows, n] fp32 is a part of the matrix
 * of head `head`. The first column of x has the global index col_pos, and its first row has the
 * global index drop->q_pos. */
struct dropout_args {
    struct tensor x;
    const struct attn_drop *drop;
    int64_t col_pos, head;
};

/* Copies src to dst at other strides, which means dst[i0, i1, i2, :] = src[i0, i1, i2, :]. It
 * packs and unpacks data for an all-to-all. n[3] holds the extents of i0, i1 and i2. The strides
 * are in bytes, and each element has `size` bytes. dst and src do not overlap. */
struct permute_args {
    void *dst;
    const void *src;
    int64_t n[3], dst_stride[3], src_stride[3];
    int64_t size;
};

/* Mean squared error: sets row_loss[i] (double) to weight[i] times the sum over columns of (x -
 * y)^2, and dx to 2 scale weight[i] (x - y). x and y are [T, cols]. weight is [T]; if it is NULL,
 * every weight is 1. row_loss is [T]. dx.data is NULL if dx is not wanted. */
struct mse_args {
    struct tensor x, y, dx;
    const float *weight;
    double *row_loss;
    float scale;
};

/* The loss of predicted noise and of its variance (IDDPM, 2102.09672). x [T, 2 C] fp32 has C
 * predicted values e of the noise and then C values v, which place the logarithm of the variance
 * between log_min and log_max. y [T, 2 C] fp32 has the noise n and then the sample z. A row's loss
 * is weight[i] times the sum over C of
 *   (e - n)^2 + bound / ln 2     d = slope (e - n), s = log_min + (v + 1) / 2 (log_max - log_min)
 *   bound = (s - log_min - 1 + exp(log_min - s) + d^2 exp(-s)) / 2
 *   bound = -log max(P, 1e-12) if last is set. P is the probability of the interval from z - 1/255
 *   to z + 1/255 under a normal distribution with the mean z - d and the deviation exp(s / 2). If
 *   z is below -0.999, the interval has no lower end. If z is above 0.999, it has no upper end. A
 *   tanh approximates the distribution function.
 * dx is scale times the loss's gradient. The bound trains only v, because e is a constant in the
 * bound. Sums are formed in double, columns ascending. dx.data is NULL if dx is not wanted. */
struct noise_args {
    struct tensor x, y, dx;
    const float *weight;
    double *row_loss;
    float scale;
    double slope, log_min, log_max;
    bool last;
};

/* Routing of a mixture of experts. Computes p, the softmax of each row of logits [T, E] fp32, and
 * chooses the k largest; if some are equal, the lower index comes first. A chosen expert's weight
 * is its p divided by the sum of p over the chosen experts or, if `plain` is set, p itself. expert
 * and weight [T, k] are outputs, in descending order of p. A logit that is NaN comes last and
 * makes the weights of its row NaN. The backward computes dlogits [T, E] (fp32) from dweight [T,
 * k]. */
struct route_args {
    struct tensor logits;
    int64_t k;
    int32_t *expert;
    float *weight;
    const float *dweight; /* backward; NULL in forward */
    struct tensor dlogits;
    /* the weights are p itself; the backward then reads logits, so dlogits may not share the
     * memory of logits */
    bool plain;
};

/* ---- linear attention --------------------------------------------------------------------------
 *
 * Causal, one chunk of n rows (2404.02882, eq. 6-10; 2401.04658): o_i = scale sum_{j <= i}
 * lambda^(i-j) (q_i k_j) v_j, where j is a row of i's document. A state S [H, Dk, Dv] is H
 * contiguous matrices in fp32, or in float64 if the tensors are float64. The state that enters a
 * chunk is decayed up to the chunk's first row, so row i adds lambda^i q_i S. The state that
 * leaves a chunk is decayed up to the row after the chunk's last row.
 *
 * lambda = exp(-slope[h]), and slope [H] >= 0. A power of lambda is computed as exp(-slope *
 * distance), from the distance of the two rows. lo[i] is the global index of the first row of i's
 * document, and pos is the global index of the chunk's row 0. A row whose document began before
 * the chunk (lo[i] < pos) sees the entering state. A row with hi[i] <= lo[i] is padding. Its o is
 * 0, and it changes no state. Padding is only at the end. The n_valid rows before the padding
 * decay the state.
 *
 * Rows are summed in blocks, which are counted from row 0 of the call and have 32 or 64 rows,
 * depending on the device. A state passes the sum from one block to the next, and is rounded to
 * fp32 after each block. So o and dq of a row do not depend on how many rows follow. Dk is at most
 * JOB_MAX_LINEAR_HEAD. Dv is at most JOB_MAX_LINEAR_HEAD + 1. A device may add to o once for each
 * 256 columns of Dk, and o is then rounded each time.
 *
 * The chunk is computed from a state of zero, and the contribution of the entering state is added
 * afterwards (linear_enter). linear_fold folds chunks from left to right. So the sums do not
 * depend on the number of ranks. */
struct linear_args {
    struct tensor q, k, v;  /* [n, H*Dk], [n, H*Dk], [n, H*Dv] act */
    const double *slope;    /* [H] */
    const int64_t *lo, *hi; /* [n] */
    int64_t pos;
    int64_t n_heads, key_dim, value_dim;
    float scale;
    /* Data-dependent gates: the log decay of each row, <= 0, as [n, H] (scalar) or [n, H*Dk]
     * (diagonal, GLA). No device implements them yet, and shapes.h refuses them; NULL means that
     * only the slope decays. Gates would need:
     * - within a block, powers exp(G_r - G_c) of sums G of log decays for each pair of rows; for a
     *   diagonal gate, inside each product of q and k
     * - a gradient dG of every row, from o dO and the states, summed from the right; a part of dG
     *   comes from the next ranks
     * - between chunks, a linear_fold by the decay of the chunk, which is H or H*Dk numbers that
     *   travel with each state and summary. Messages, their formulas and the memory kept for the
     *   backward grow by these numbers. */
    const float *gate;
    bool gate_diagonal;
};
/* The summary and the output may be computed by two calls. Then the summary travels to other ranks
 * while the output is computed (LASP-2, 2502.07563). The second pass over the states costs a third
 * of the whole computation. Two calls give the same bits as one call. */
struct linear_fwd_args {
    struct linear_args in;
    /* [n, H*Dv] act, written; data is NULL if it is unwanted, and q is then not read */
    struct tensor o;
    /* [H, Dk, Dv] out: the chunk's own summary, over the rows of its last document; NULL if it is
     * unwanted */
    void *m;
};
/* Adds the entering state's part to o. */
struct linear_enter_args {
    struct linear_args in;
    struct tensor o;
    const void *state;
};
/* Computes the backward from a state of zero. dq, dk and dv (shaped as q, k and v, in fp32) are
 * written. dm [H, Dk, Dv], an output, is this chunk's gradient of the state that enters it. If dq,
 * dk and dv have NULL data, only dm is computed, and k and v are not read. If dm is NULL, only dq,
 * dk and dv are computed. */
struct linear_bwd_args {
    struct linear_args in;
    struct tensor d_o, dq, dk, dv;
    void *dm;
};
/* For rows that saw the entering state, adds lambda^i dO S' to dq. For rows of the last document,
 * adds the part of d_state to dk and dv. d_state is the gradient of the state that leaves the
 * chunk. If state or d_state is NULL, its part is not added. */
struct linear_enter_bwd_args {
    struct linear_args in;
    struct tensor d_o, dq, dk, dv;
    const void *state, *d_state;
};
/* Passes a state through a chunk, forward (m is the chunk's summary) or backward (m is its dm). If
 * the document of the last valid row began before the chunk (`through`), out = lambda^n_valid * in
 * + m; else out = m. A chunk that has only padding passes the state unchanged, with through set,
 * n_valid 0 and m 0. out may be in. */
struct linear_fold_args {
    const double *slope;
    int64_t n_heads, key_dim, value_dim;
    int64_t n_valid;
    bool through;
    const void *in, *m;
    void *out;
    enum dtype dtype; /* dtype of the states */
};

/* Computes the gradient of LRPE's angles through linear attention, for one chunk. q and k are [x
 * cos, x sin] of heads of size D = Dk / 2. A pair of rows depends on theta only through the
 * distance between the rows, so the sum weighs each pair by this distance. If queries and keys
 * were weighed by their positions instead, the two parts of the sum would grow with the positions
 * and nearly cancel. The rounding of dq and dk would then be as large as the difference of the two
 * parts.
 *
 *     A_i = sum over j <= i of (i - j) lambda^(i-j) k_j v_j',  [A1, A2] as k's halves
 *     dtheta = sum over i of scale (q1_i A2_i - q2_i A1_i) dO_i + rows (A2 dS1 - A1 dS2)
 *
 * The second term is the part of the state that leaves the chunk, at the row after the last row. A
 * distance that spans chunks is split at their borders, and each chunk adds only the share of the
 * distance that is inside the chunk. state and d_state are as in linear_enter_bwd. dtheta [H, D]
 * fp32 is written. The states, A and the sums are double. */
struct linear_angle_args {
    struct linear_args in;
    struct tensor d_o;
    const void *state, *d_state;
    float *dtheta;
};

/* ---- gated delta networks ----------------------------------------------------------------------
 *
 * The gated delta rule (2412.06464; transformers' recurrent_gated_delta_rule), for one chunk of n
 * rows. q and k are first divided by their length (x / sqrt(sum x^2 + 1e-6)). Then each row of a
 * document computes
 *     g = -exp(a_log) softplus(a + dt_bias), beta = sigmoid(b)
 *     S = exp(g) S;  S = S + k (beta (v - S' k))';  o = scale S' q
 * A state S [H, Dk, Dv] is H contiguous fp32 matrices. lo, hi, pos and padding have the same
 * meaning as in linear attention. A document that began before the chunk continues from the
 * entering state, and a document that begins in the chunk starts from 0. Rows are computed in
 * blocks, which are counted from row 0 of the call and have 64 rows or one, depending on the
 * device. The state is rounded to fp32 after each block.
 *
 * The state that leaves a chunk is an affine map of the state that enters it. Chunks are computed
 * one after the other, each from the state that left the previous chunk. */
struct delta_args {
    /* [n, Hk*Dk], [n, Hk*Dk], [n, H*Dv] act; head h uses key head h/(H/Hk) */
    struct tensor q, k, v;
    struct tensor a, b;           /* [n, H] act */
    struct tensor a_log, dt_bias; /* [1, H] act */
    const int64_t *lo, *hi;       /* [n] */
    int64_t pos;
    int64_t n_heads, n_key_heads, key_dim, value_dim;
    float scale;
};
struct delta_fwd_args {
    struct delta_args in;
    struct tensor o;    /* [n, H*Dv] act, written; data is NULL if it is unwanted */
    const float *state; /* [H, Dk, Dv] state that enters; NULL if it is 0 */
    float *state_out;   /* state that leaves; may be `state`; NULL if it is unwanted */
};
/* Computes gradients, which are written and not added. The sum of the rows of d_log is the
 * gradient of a_log, and the sum of the rows of da is the gradient of dt_bias. */
struct delta_bwd_args {
    struct delta_args in;
    struct tensor d_o;           /* act */
    struct tensor dq, dk, dv;    /* as q, k, v; fp32 */
    struct tensor da, db, d_log; /* [n, H] fp32 */
    const float *state;          /* state that entered; NULL if it is 0 */
    const float *d_state_out;    /* gradient of the state that leaves; NULL if it is 0 */
    /* out: gradient of `state`; may be d_state_out; NULL if it is unwanted */
    float *d_state;
    float *room; /* [H, delta_spans(n), Dk, Dv], scratch */
};

/* Applies a causal convolution with separate taps for each column, and then SiLU:
 *
 *     y_i = silu(sum over j of w[c][j] x_(i - width + 1 + j))
 *
 * The sum uses only rows of i's document. A state is the width - 1 rows before row 0, in fp32,
 * whichever documents these rows belong to. */
struct conv_args {
    struct tensor x;        /* [n, C] act */
    struct tensor w;        /* [C, width] act */
    int64_t width;          /* 2 .. CONV_MAX_WIDTH */
    const int64_t *lo, *hi; /* [n] */
    int64_t pos;
    const float
        *state; /* [width - 1, C]; NULL if no document of the chunk has rows before its row 0 */
};
struct conv_fwd_args {
    struct conv_args in;
    struct tensor y;  /* [n, C] act, written; data is NULL if it is unwanted */
    float *state_out; /* may be in.state; NULL if it is unwanted */
};
/* If dx has NULL data, only dw is computed, and d_state is not written. */
struct conv_bwd_args {
    struct conv_args in;
    struct tensor dy;         /* act */
    struct tensor dx;         /* [n, C] fp32, written */
    float *dw;                /* [C, width], added to, rows ascending; NULL if it is unwanted */
    const float *d_state_out; /* gradient of the state that leaves; NULL if it is 0 */
    /* out: gradient of in.state; may not be d_state_out; NULL if it is unwanted */
    float *d_state;
};

/* Counts of a device's use of CUDA graphs since it was opened. */
struct be_graphs {
    /* operations asked for, and operations among them that graphs launched */
    int64_t n_ops, n_by_graph;
    int64_t n_made, n_graphs; /* graphs made so far, and graphs that exist now */
    /* the failure after which no graph is made or launched; "" if there was none */
    char why_off[640];
};

#define BE_MARKS  256
#define BE_COPIES 16 /* marks of copy_beside */
struct be_handle {
    unsigned char bytes[128];
};

struct be_ops {
    const char *name; /* "cpu" */
    void (*gemm)(struct be *, const struct gemm_args *);
    void (*attn_sink_fwd)(struct be *, const struct attn_sink_fwd_args *);
    void (*attn_sink_bwd)(struct be *, const struct attn_sink_bwd_args *);
    void (*attn_fwd)(struct be *, const struct attn_fwd_args *);
    void (*attn_list)(struct be *, const struct attn_list_args *); /* NULL: see be_attn_list */
    void (*attn_finish)(struct be *, const struct attn_finish_args *);
    void (*attn_merge)(struct be *, const struct attn_merge_args *);
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
    /* Copies from the host. The copy is in order with the operations. The caller may use src again
     * when the call returns. */
    void (*upload)(struct be *, void *dst, const void *src, int64_t size);
    /* Copies to the host. The data has arrived when the call returns, unless the device has
     * failed; sync then reports the failure. */
    void (*download)(struct be *, void *dst, const void *src, int64_t size);
    /* Waits for everything that was asked for so far, including transfers, and reports the first
     * failure. NULL means that all operations of the device are synchronous. */
    int (*sync)(struct be *, struct err *);
    /* Converts a weight from rows to panels, in place; panels_fit (panels.h) must hold for it.
     * NULL means that the device's products accept only rows. */
    void (*turn)(struct be *, struct tensor w);
    void *(*alloc)(struct be *, int64_t size, struct err *); /* zeroed pages, 64-byte aligned */
    void (*free)(struct be *, void *p, int64_t size);

    /* ---- devices with memory of their own; elsewhere NULL ----
     * share makes a handle of p, memory from alloc, for another rank of this host or of this
     * process. attach returns the memory of a handle, which is valid until detach. share and
     * attach fail with ERR_UNSUPPORTED if the memory cannot be shared, or if this process or its
     * device cannot access it. */
    int (*share)(struct be *, void *p, struct be_handle *out, struct err *);
    void *(*attach)(struct be *, const struct be_handle *h, struct err *);
    void (*detach)(struct be *, void *p);
    /* Transfers between ranks run beside the operations. They are in a separate stream, and run in
     * the order in which they were enqueued there. transfer_begin makes later transfers wait for
     * all operations that were asked for before it. transfer_end sets the mark with the index
     * `mark`, below BE_MARKS, after all transfers that were enqueued before it. transfer_await
     * makes later operations wait for the mark. transfer_passed returns true when the mark has
     * been reached or the device has failed (sync then reports the failure). */
    void *(*transfer_stream)(struct be *); /* a cudaStream_t */
    void (*transfer_begin)(struct be *);
    void (*transfer_end)(struct be *, int mark);
    void (*transfer_await)(struct be *, int mark);
    bool (*transfer_passed)(struct be *, int mark);
    /* Copies to and from the host run beside operations and transfers. `out` is set for a copy to
     * the host. There are two separate streams, one for each direction. The copies of a direction
     * run in the order in which they were asked for. A copy from the host also waits for all copies
     * to the host that were asked for before it; a copy to the host does not wait for copies from
     * the host. A copy waits for all operations that were asked for before the copy. When the copy
     * is done, it sets the mark with the index `mark`, below BE_COPIES. copy_await makes later
     * operations wait for the mark. The host's memory must be pinned, in whole pages; call sync
     * before unpin. pin fails with ERR_DEVICE. */
    int (*pin)(struct be *, void *host, int64_t size, struct err *);
    void (*unpin)(struct be *, void *host);
    void (*copy_beside)(struct be *, void *dst, const void *src, int64_t size, bool out, int mark);
    void (*copy_await)(struct be *, int mark);
    void (*close)(struct be *);
};

/* A library that computes products. A device uses the library if the device was opened with
 * any_order. A product in a graph is counted once, when the graph is made. */
struct be_library {
    bool open;
    char text[640]; /* "cuBLASLt 13.0.2, /usr/..."; if not open, the reason */
    /* products that the library computed, and products that the device's kernels computed */
    int64_t n_done, n_left;
};

struct be {
    const struct be_ops *ops;
    /* "portable", "avx2", "avx512", "avx512bf16", "amx", "neon", "neonbf16", "sm80", "sm86" or
     * "sm90"; tests print it */
    const char *isa;
    const char *name; /* the device's name, for logs: "NVIDIA H100 80GB HBM3"; "cpu" */
    /* id of the GPU; ranks that share a GPU have equal ids; zeros if there is no GPU */
    unsigned char id[16];
    int n_threads;
    struct pool *pool; /* threads of be_host_run; NULL until they are started */
    char *scratch;     /* the plan's PLAN_SCRATCH, or allocated by be_open */
    int64_t scratch_size;
    bool own_memory; /* memory from alloc is not the host's */
    bool any_order;  /* be_options.any_order */
    /* Called about every millisecond while sync, download or upload wait; NULL if no function is
     * to be called. If watch returns -1, this wait and all later waits end, and sync fails with
     * the error of watch. Without watch, the device would wait forever for a transfer whose peer
     * is gone. */
    int (*watch)(void *arg, struct err *e);
    void *watch_arg;
    /* NULL if the device has no graphs or was told not to use them */
    const struct be_graphs *graphs;
    /* NULL if the device uses no library, or any_order is not set */
    const struct be_library *library;
};

struct be_options {
    const char *device; /* "cpu", "cuda", "emulated" */
    /* instruction set. On a GPU, NULL means the value of SEQD_CUDA_ISA. On the CPU, or if
     * SEQD_CUDA_ISA is not set, NULL means the fastest instruction set that the machine can run.
     * Tests name each instruction set */
    const char *isa;
    int n_threads;
    void *scratch; /* device_scratch() bytes; NULL makes be_open allocate them */
    /* be_open allocates no scratch; be_give_scratch later gives memory of ops->alloc */
    bool scratch_later;
    /* Lets gemm and attn_fwd add in any order, as long as the order does not change from run to
     * run. Bits may then depend on other rows, and so on the number of ranks. This allows the
     * products of a library (unless SEQD_CUDA_BLAS=0 is in the environment) and a faster attention
     * of few queries to many keys. */
    bool any_order;
    /* Launches each operation when it is asked for. If no_graphs is false, a device may launch
     * several operations together, by a graph, once it has seen them before; the bits of the
     * results are the same. No graphs are used either if the environment has SEQD_CUDA_GRAPHS=0,
     * or CUDA_LAUNCH_BLOCKING with a value other than 0. */
    bool no_graphs;
    /* On the CPU, counts the tasks that the first thread has done (by an atomic add), so that the
     * count moves while an operation computes. NULL means that tasks are not counted. Borrowed. */
    int64_t *n_tasks;
};

/* Opens a device by name. Fails with ERR_UNSUPPORTED if no device has this name (the error lists
 * the names), or if the device's library is missing or comes from another build; otherwise it
 * fails as the device's own open does. */
struct be *be_open(const struct be_options *o, struct err *e);
void be_give_scratch(struct be *be, void *scratch, int64_t size);
void be_close(struct be *be); /* NULL allowed */

/* Computes a list of calls of attn_fwd: by attn_list or, if the device has none, call by call. */
void be_attn_list(struct be *be, const struct attn_list_args *a);

/* Runs fn(arg, t, worker) once for each t in [0, n_tasks), on n_threads threads of the host, of
 * which the caller is one. No operation may run meanwhile. The CPU device uses its own threads.
 * For other devices the first call starts threads; if they cannot be started, the caller runs all
 * tasks. If the device has memory of its own, fn must not use the device. If the device has no
 * memory of its own, fn may call only upload and download, on ranges that do not overlap; these
 * calls are then plain copies on the thread that runs fn. */
void be_host_run(struct be *be, void (*fn)(void *arg, int64_t task, int worker), void *arg,
                 int64_t n_tasks);
/* Makes the pages [p, p + size) of memory from the device's alloc resident, using the threads of
 * be_host_run; the contents are unchanged. Without this call, the first operation that writes a
 * page waits until the operating system has cleared the page, often on one thread only. Does
 * nothing if the device has memory of its own. */
void be_populate(struct be *be, void *p, int64_t size);
/* Returns the compiled instruction sets that this machine can run, as a NULL-terminated array. */
const char *const *be_isas(void);

#endif
