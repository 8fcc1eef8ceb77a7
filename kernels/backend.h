/* backend.h: what a device must be able to do. One table of operations, one row per device.
 *
 * An operation is a slot in struct be_ops and an args struct documented here; a device is one
 * implementation of the table (kernels/cpu; kernels/cuda later). Everything above this line of the
 * tree is device-neutral. Operations are asynchronous on devices that have streams; be->ops->sync
 * waits and reports. Shapes are asserted by every device with the lines of shapes.h.
 *
 * Letters: T rows (tokens) in this call, C width, H query heads, Hk KV heads, D head size, V vocab.
 * All tensors are row-major 2-D views, fp32 or bf16.
 *
 * bf16 is storage and input of products; every sum is fp32. "act" below is a tensor of the model's
 * precision: all act tensors of one call have the same dtype. What is written to bf16 is rounded
 * once, to nearest even, from its fp32 value; a sum over keys, rows or hops is never kept in bf16.
 * Fixed as fp32 whatever the precision: carried (o, m, l), lse, delta, dq and dkv of attention,
 * weight gradients, rstd, logits, master weights and Adam's moments.
 *
 * Rank-invariant bits: unless a slot says otherwise, every output row depends only on
 * its own inputs, in an order of additions that does not depend on the number of rows, on the
 * thread count or on where the row lies; reductions over rows go over ascending rows. */
#ifndef SEQD_KERNELS_BACKEND_H
#define SEQD_KERNELS_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/job.h"

enum dtype { DT_F32, DT_BF16 };

struct tensor { /* a view; owns nothing */
    void *data;
    int64_t rows, cols;
    int64_t ld; /* elements from one row to the next, >= cols */
    enum dtype dtype;
};

static inline int64_t dtype_size(enum dtype t)
{
    return t == DT_BF16 ? 2 : 4;
}
static inline struct tensor tensor_f32(float *data, int64_t rows, int64_t cols, int64_t ld)
{
    return (struct tensor){data, rows, cols, ld, DT_F32};
}
static inline struct tensor tensor_of(enum dtype t, void *data, int64_t rows, int64_t cols, int64_t ld)
{
    return (struct tensor){data, rows, cols, ld, t};
}
/* A window of rows [r0, r0 + n) and columns [c0, c0 + m). */
static inline struct tensor tensor_sub(struct tensor t, int64_t r0, int64_t n, int64_t c0, int64_t m)
{
    return (struct tensor){(char *)t.data + (r0 * t.ld + c0) * dtype_size(t.dtype), n, m, t.ld,
                           t.dtype};
}

struct be; /* an opened device: thread pool or streams, and its scratch */

/* c = op(a) op(b) (+ c when accumulate). op(a) is [M, K], op(b) is [K, N], c is [M, N].
 * Sums over K ascending for each element, in a blocking that depends on K alone: a chain from 0 in
 * each block, blocks added in order, the first to the old c when accumulating.
 * dtypes: a and b both fp32 or both bf16; c fp32 or bf16. With bf16 inputs K may be taken in
 * groups (pairs, or 32 at a time) that the device sums in one way of its own. With a bf16 c the
 * whole sum, old c included, is formed in fp32 and rounded once. */
struct gemm_args {
    struct tensor a, b, c;
    bool trans_a, trans_b; /* a is stored [K, M]; b is stored [N, K] (a weight: y = x W^T) */
    bool accumulate;
};

/* Softmax attention of one block of queries against one block of keys and values, with carried
 * state, so that a ring is a sequence of these calls (2310.01889; online softmax 1805.02867).
 *
 * Query row i (0 <= i < Tq) sees the keys whose global index j lies in [lo[i], hi[i]); key row t
 * has global index kv_pos + t. Causal masks, documents, windows and padding are all such intervals;
 * an empty one sees nobody. Tiles that nobody sees are skipped.
 *
 *   q       [Tq, H*D] act
 *   kv      [Tk, 2*Hk*D] act: per row the Hk keys, then the Hk values; head h uses KV head h/(H/Hk)
 *   o       [Tq, H*D] fp32 in/out: sum of exp(s - m) v, not normalised. Before the first call: 0
 *   m, l    [H, ml_ld] in/out: running maximum (-inf before the first call) and sum (0)
 *           between calls in units of the device's own: only attn_finish makes them mean something
 * Keys are taken in ascending tiles of a fixed width counted from key row 0. */
struct attn_fwd_args {
    struct tensor q, kv, o;
    float *m, *l;
    int64_t ml_ld;
    const int64_t *lo, *hi;
    int64_t kv_pos;
    int64_t n_heads, n_kv_heads, head_dim;
    float scale;
};

/* After the last key block: out = o / l and lse = m + log l (m becomes lse).
 * A row that saw nobody: out = 0, lse = -inf. o [Tq, H*D] fp32; out [Tq, H*D] act, may be o itself
 * when fp32; m, l [H, ml_ld]. */
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
 * dv += p' dO; ds = p (dO v' - delta); dq += scale ds k; dk += scale ds' q. A row with lse = -inf
 * contributes exactly 0. Query tiles ascending, summed into dkv in that order; key tiles ascending
 * into dq. With Hk < H the heads of a group are added in ascending order. A tile is 64 rows from
 * row 0 of the call; each tile's part is a chain of its own that starts from 0 and is added to what
 * is there (in bf16 dq's chain may go on from what is there). p and ds may be rounded to bf16 for
 * the products they feed.
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
 * [0, n_heads*D) of x [T, ...] (act) with angle pos * theta^(-2j/D), computed in double, rounded
 * once.
 * pos [T]; inverse: rotate by the negative angle (the backward). inv_freq [D/2] doubles.  */
struct rope_args {
    struct tensor x;
    const int64_t *pos;
    const double *inv_freq;
    int64_t n_heads, head_dim;
    bool inverse;
};

/* a = silu(gate) * up. gu [T, 2*I]: gate then up; a [T, I]. All act. */
struct swiglu_fwd_args {
    struct tensor gu, a;
};
/* dgu [T, 2*I] = gradient (may be gu itself); recomputes what it needs from gu.
 * All act. */
struct swiglu_bwd_args {
    struct tensor gu, da, dgu;
};

/* x[i] = table[ids[i]]. table [V, C], x act; ids [T] in [0, V). */
struct embed_fwd_args {
    struct tensor table, x;
    const int32_t *ids;
};
/* dtable[ids[i]] += dx[i], rows ascending; dtable fp32, dx act. Rows with skip_below_zero target
 * are not special. */
struct embed_bwd_args {
    struct tensor dtable, dx;
    const int32_t *ids;
};

/* Cross-entropy of a chunk of logits, in place. logits [T, V] fp32; targets [T], negative = no
 * target.
 *   nll      [T] out: -log p(target) in double, 0 where there is no target
 *   dlogits  [T, V] act out, when backward: (softmax - onehot) * scale, rows without target exactly 0.
 *            It may share memory with logits: the very same tensor when fp32; when bf16, row i at the
 *            start of row i (ld = 2 * logits.ld): what is written lies behind what is still read */
struct xent_args {
    struct tensor logits, dlogits;
    const int32_t *targets;
    double *nll;
    float scale;
    bool backward;
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
    uint16_t *p_bf16; /* out: the new weights in bf16; NULL: p is what the model reads */
    const float *g;
    int64_t n;
    double lr, beta1, beta2, eps, weight_decay, clip;
    int64_t t;
};

/* out[b] = sum over block b of g^2 in double, in one pattern for all: 16 running sums, element i in
 * number i mod 16, then added as a tree. Blocks of SUMSQ_BLOCK elements; the last may be short. */
#define SUMSQ_BLOCK 65536
struct sumsq_args {
    const float *g;
    int64_t n;
    double *out;
};

/* dst = src, converted: fp32 to bf16 rounds to nearest even (NaN stays NaN), bf16 to fp32 is exact.
 * Same rows and cols, either dtype on either side. */
struct cast_args {
    struct tensor dst, src;
};

struct be_ops {
    const char *name; /* "cpu" */
    void (*gemm)(struct be *, const struct gemm_args *);
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
    void (*add)(struct be *, const struct add_args *);
    void (*adamw)(struct be *, const struct adamw_args *);
    void (*sumsq)(struct be *, const struct sumsq_args *);
    void (*cast)(struct be *, const struct cast_args *);
    void (*fill)(struct be *, float *p, int64_t n, float value);
    void (*copy)(struct be *, void *dst, const void *src, int64_t size); /* on the device */
    void (*upload)(struct be *, void *dst, const void *src, int64_t size);
    void (*download)(struct be *, void *dst, const void *src, int64_t size); /* synchronous */
    int (*sync)(struct be *, struct err *); /* NULL: everything is synchronous */
    void *(*alloc)(struct be *, int64_t size, struct err *); /* zeroed pages, 64-byte aligned */
    void (*free)(struct be *, void *p, int64_t size);
    void (*close)(struct be *);
};

struct be {
    const struct be_ops *ops;
    const char *isa; /* "portable", "avx2", "avx512", "avx512bf16", "amx": what the tests print */
    int n_threads;
    char *scratch; /* n_threads * BE_SCRATCH_PER_THREAD bytes: the engine's plan owns it */
};

struct be_options {
    const char *device; /* "cpu" */
    const char *isa;    /* NULL: the best this machine has; tests ask for each by name */
    int n_threads;
    void *scratch;      /* from the plan, or NULL: be_open allocates (tests) */
};

/* Opens a device by name. fails: ERR_UNSUPPORTED naming the rows there are. */
struct be *be_open(const struct be_options *o, struct err *e);
void be_close(struct be *be); /* NULL allowed */
/* The instruction sets compiled in that this machine can run, NULL-terminated. */
const char *const *be_isas(void);

#endif
