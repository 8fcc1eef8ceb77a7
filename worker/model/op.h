/* op.h: the operations of a program (worker/program/program.h), each forward, backward and for one
 * new token, on one rank's rows.
 *
 * A frame describes the section that runs: it points to its values, their gradients and its
 * weights. Every row of op_table[] reads its inputs from the frame and writes its outputs there;
 * none allocates memory. Values are of the model's precision unless the program says fp32;
 * gradients are too, unless prog_grad_f32 says otherwise. A result that a kernel cannot write in
 * its place is staged in the frame's scratch, whose size op_scratch() (worker/program) computes
 * beforehand.
 *
 * Values, weights, scratch and the batch's arrays are the device's. If the device has memory of
 * its own, the host reads the same arrays of the batch in frame.host; it makes the tables of
 * operations in frame.stage (op_stage() bytes) and uploads them: struct twin.
 *
 * Sums over rows (weight gradients, gradients of ROWS_COND and ROWS_TEXT values) are taken per
 * span: a sum chunk of the shard under determinism "ranks", else all rows of the rank. Gradients
 * of COND and TEXT values keep the spans apart, [parts, rows, cols], until they reach a weight;
 * there the spans' sums are added as a perfect binary tree. Such values are the same on every
 * rank, but each rank has only its part of their gradient. So weight gradients made of it are
 * summed over ranks like all others, and no part is counted twice. */
#ifndef SEQD_MODEL_OP_H
#define SEQD_MODEL_OP_H

#include <math.h>
#include "worker/model/batch.h"
#include "worker/program/op_rules.h"
#include "worker/sp/carry.h"
#include "worker/sp/dsp.h"
#include "worker/sp/linear.h"
#include "worker/sp/sp.h"

/* Counts of one kind of rows on this rank. */
struct frame_rows {
    int64_t n;       /* rows of a value */
    int64_t sum_len; /* T, ALT: rows of a sum chunk; the last chunks may have fewer, or none */
};

/* The ranks that share every layer by heads and columns. */
struct frame_tensor {
    struct comm *comm; /* NULL: this rank alone */
    int n, r;          /* ranks, and this one's number among them */
    void *bounce;
};

struct routing;

struct frame {
    struct be *be;
    const struct program *p;
    const struct model_shape *shape;
    enum dtype dtype; /* the model's precision */
    int layer;        /* number of the layer; -1 in `in` and `out` */
    struct frame_rows rows[ROWS_N];
    int parts;        /* spans that sums over rows are made of */
    bool tree;        /* the spans are added as a tree: determinism "ranks" */
    float *tree_room; /* one buffer of tree_stride floats for each level of the tree */
    int64_t tree_stride;

    struct tensor value[PROG_VALUES], grad[PROG_VALUES]; /* data NULL: not there */
    void *weights; /* the section's weights, numbers or blocks, as store_places lays them out */
    const int64_t *weight_at; /* each weight's place there, in bytes */
    float *weights_grad;      /* NULL when only inferring */
    struct tensor tied;       /* PROG_TIED: the embedding */
    float *tied_grad;
    float *embed_grad; /* EMBED: room for its gradient; NULL: its place in weights_grad */
    /* fresh: without a tree, gradients of weights are written instead of added. embed_joins:
     * EMBED's gradient is added even then, to the head's, which was written before. */
    bool fresh, embed_joins;
    char *scratch;
    int64_t scratch_size, scratch_used;
    char *stage; /* the host's memory for tables; NULL: be has no memory of its own */
    int64_t stage_size, stage_used;

    const struct batch *batch, *host; /* batch: for operations; host: for the host; NULL: same */
    const int64_t *all_lo, *all_hi;   /* [u*T] lo and hi of the group's rows, or NULL */
    const int64_t *host_all_lo, *host_all_hi; /* copies for the host; NULL: it has none */
    struct sp *sp;                            /* sp->shape is set by each operation */
    struct sp_linear *linear;
    struct sp_carry *carry;
    struct dsp *dsp;
    struct frame_tensor tensor;
    const double *inv_freq;  /* [rotary_dim / 2] frequencies, then those of the second base */
    float rope_scale;        /* factor of RoPE's cosines and sines */
    bool rope_single;        /* angles are formed in fp32 */
    const double *slope;     /* [H] decays of this layer's linear attention */
    const void *carry_in;    /* this layer's state before the sequence; NULL: 0 */
    void *carry_out;         /* this layer's state after the sequence; NULL: not wanted */
    const void *d_carry_out; /* backward: gradients of these states */
    void *d_carry_in;
    bool again; /* forward: it is computed again, and out[1] still has its contents */

    struct routing *routing; /* experts that rows of a proof choose (routing.h); NULL: none */
    int32_t *chosen;         /* experts of this layer's rows, [T, k]; NULL: none */

    /* the loss */
    float *logits; /* [loss_chunk, V] */
    int64_t loss_chunk;
    double *nll; /* [T] losses; MSE, NOISE: one for each place, [T, places] */
    float loss_scale;

    /* decode. cache: keys and values of each row's context, with the new row's if this rank keeps
     * it. state: the state of the one row, in an operation whose states pass on */
    struct tensor cache[JOB_MAX_BATCH];
    void *state;
};

/* The functions of an operation. backward: s tells which inputs' gradients are written instead of
 * added to, and which one lies where the output's does. decode: rows of ROWS_T are new tokens,
 * each of another sequence. An operation with CACHE_ROWS gets all of them at once; any other gets
 * one at a time. */
struct op_row {
    int (*forward)(struct frame *f, const struct op *o, struct err *e);
    int (*backward)(struct frame *f, const struct op *o, const struct step *s, struct err *e);
    int (*decode)(struct frame *f, const struct op *o, struct err *e); /* NULL: forward serves */
};
/* The functions by enum op_kind. op_rules[] (worker/program/op_rules.h) says how much scratch each
 * operation may take. */
extern const struct op_row *const op_table[OP_KIND_N];
#define OP_ROW(kind, name) extern const struct op_row op_##name;
OPERATORS(OP_ROW)
#undef OP_ROW

/* ---- inside worker/model --------------------------------------------------------------------- */

/* Empty the scratch; take some of it, 64-byte aligned. */
void op_scratch_reset(struct frame *f);
void *op_scratch_take(struct frame *f, int64_t size);
struct tensor op_scratch_rows(struct frame *f, enum dtype t, int64_t rows, int64_t cols);
/* Scratch that the host fills. dev: the memory that operations read; host: the same memory, or the
 * host's copy until op_twin_up(). */
struct twin {
    void *dev, *host;
    int64_t size;
};
struct twin op_twin_take(struct frame *f, int64_t size);
void op_twin_up(struct frame *f, const struct twin *t);
/* Fetches `size` bytes that operations have written at p for the host: waits for them. */
const void *frame_fetch(struct frame *f, const void *p, int64_t size);
const struct batch *frame_host(const struct frame *f);

struct tensor frame_in(const struct frame *f, const struct op *o, int i);
struct tensor frame_out(const struct frame *f, const struct op *o, int i);
/* Returns the output's gradient in the model's precision: itself, or rounded into scratch. */
struct tensor frame_dy(struct frame *f, const struct op *o);
bool frame_wants(const struct frame *f, const struct op *o, int i); /* wants input i's gradient */

/* The gradient of input i, as a kernel of the model's precision may write it. */
struct back {
    struct tensor to;   /* the kernel writes here */
    bool accumulate;    /* the kernel adds instead; only if staged is false */
    struct tensor grad; /* the gradient's place in the frame */
    bool staged, first;
};
struct back op_back_begin(struct frame *f, const struct op *o, const struct step *s, int i);
/* Begins as op_back_begin does, for a kernel that writes tensors of type t and cannot add. */
struct back op_back_begin_new(struct frame *f, const struct op *o, const struct step *s, int i,
                              enum dtype t);
void op_back_end(struct frame *f, const struct back *b);

/* Copies x to y, of any types, or adds it; does nothing if they are one buffer. */
void frame_move(struct frame *f, struct tensor y, struct tensor x, bool add);
void frame_zero(struct frame *f, struct tensor t);
/* frame_ones: n ones in a row of scratch, fp32. frame_spread: x [T, 1], fp32, goes into each of
 * to's columns [T, ones]. */
struct tensor frame_ones(struct frame *f, int64_t n);
void frame_spread(struct frame *f, struct tensor x, struct tensor ones, struct tensor to);
/* Writes value n times, at p. */
void frame_repeat(struct frame *f, int64_t *p, int64_t n, int64_t value);

/* Returns weight i of the section as [rows, cols], or as [1, rows] if it has one dimension. n > 1:
 * weights i to i + n - 1, which are joined, as one. */
struct tensor frame_weight(const struct frame *f, int i, int n);
float *frame_weight_grad(const struct frame *f, int i);

/* Tells the transport of f->tensor where the frame is. */
void frame_mark(struct frame *f);
/* Rows of a table of ids that this rank holds, without pads, and the id of the first one. Without
 * tensor parallelism all rows, from 0. */
struct frame_ids {
    struct tensor w; /* the last ranks may have no row */
    int64_t first;
};
struct frame_ids frame_ids(const struct frame *f, struct tensor w);

/* Rows of a part: n rows, from value0 on in a value and from grad0 on in its gradient. */
struct span {
    int64_t value0, grad0, n;
};
struct span frame_span(const struct frame *f, enum rows_id rows, int i);
struct tensor op_span_value(struct tensor t, struct span s);
struct tensor op_span_grad(struct tensor t, struct span s);
enum rows_id frame_rows_of(const struct frame *f, int value);
/* Returns the number of a value's first row in the batch. */
int64_t frame_row0(const struct frame *f, enum rows_id rows);

/* Sums over spans into dst[n]. call() writes a span's sum to dst if fresh, else adds it. */
struct sum_leaf {
    void (*call)(struct frame *f, void *arg, struct span s, float *dst, bool fresh);
    void *arg;
};
void frame_sum(struct frame *f, enum rows_id rows, float *dst, int64_t n,
               const struct sum_leaf *leaf);
/* Takes the first row of x, fp32, as a finished sum over rows. It is written to dst [cols] where
 * frame_sum would write its sum, and added to dst where frame_sum would add it. */
void frame_add_sum(struct frame *f, float *dst, struct tensor x);
/* Computes dst [M, N] (+)= dy' x over rows: dy [grad rows, M], x [value rows, N], both of the
 * model's precision. */
void frame_sum_gemm(struct frame *f, enum rows_id rows, float *dst, struct tensor dy,
                    struct tensor x);

/* Computes dst [cols] (+)= sum over rows of dy, of the model's precision. */
void frame_sum_rows(struct frame *f, enum rows_id rows, float *dst, struct tensor dy);

/* frame_blocks returns the number of blocks into which an operation that sums nothing cuts rows.
 * If their gradients are kept in parts, each part is a block; else all rows are a single block.
 * frame_block returns block i. */
int frame_blocks(const struct frame *f, enum rows_id rows);
struct span frame_block(const struct frame *f, enum rows_id rows, int i);

/* Computes this rank's logits for rows [row0, row0 + n) of the input of o, an XENT, in the frame's
 * logits, and returns them. n is at most loss_chunk. */
struct tensor op_loss_logits(struct frame *f, const struct op *o, int64_t row0, int64_t n);

/* DSP: the global indices along dimension `dim` in this rank's rows of a kind: n of them from
 * `first` on. Row i has index first + (i / within) mod n. */
struct along {
    int64_t first, n, within;
};
struct along frame_along(const struct frame *f, enum rows_id rows, int dim);
/* Returns t, the output of HEADS, as rows of the whole grid, pads at the end, of this rank's
 * heads. */
struct tensor frame_by_heads(const struct frame *f, struct tensor t);

#endif
