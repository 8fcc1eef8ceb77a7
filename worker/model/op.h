/* op.h: how the operations of a program (worker/program/program.h) run on one rank's rows:
 * forward, backward, and for one new token.
 *
 * A frame describes the section that runs. It points to the section's values, their gradients and
 * the section's weights. Every row of op_table[] reads its inputs from the frame and writes its
 * outputs there; none allocates memory. Values have the model's precision unless the program says
 * fp32; gradients have it too, unless prog_grad_f32 says otherwise. A result that a kernel cannot
 * write directly to its place is staged in the frame's scratch, whose size op_scratch()
 * (worker/program) computes beforehand.
 *
 * Values, weights, scratch and the batch's arrays are in the device's memory. If the device has
 * memory of its own, the host reads its copies of the batch's arrays through frame.host. It makes
 * the tables that operations need in frame.stage (op_stage() bytes) and uploads them (struct
 * twin).
 *
 * Sums over rows (weight gradients, gradients of ROWS_COND and ROWS_TEXT values) are formed for
 * each span. A span is a sum chunk of the shard under determinism "ranks", else all rows of the
 * rank. Gradients of COND and TEXT values have one part for each span, [parts, rows, cols], until
 * they reach a weight; there the spans' sums are added as a perfect binary tree. COND and TEXT
 * values are the same on every rank, but each rank has only a part of their gradient. So weight
 * gradients that are computed from this part are summed over ranks like all other gradients, and
 * no part is counted twice. */
#ifndef SEQD_MODEL_OP_H
#define SEQD_MODEL_OP_H

#include <math.h>
#include "worker/model/batch.h"
#include "worker/program/op_rules.h"
#include "worker/sp/carry.h"
#include "worker/sp/dsp.h"
#include "worker/sp/linear.h"
#include "worker/sp/sp.h"

/* The rows of one kind that this rank has. */
struct frame_rows {
    int64_t n;       /* rows of a value */
    int64_t sum_len; /* T, ALT: rows of a sum chunk; the last chunks may have fewer, or none */
};

/* The ranks that share every layer, each with some of its heads and columns. */
struct frame_tensor {
    struct comm *comm; /* NULL if it is only this rank */
    int n, r;          /* count of ranks, and this rank's index among them */
    void *bounce;
};

struct routing;

struct frame {
    struct be *be;
    const struct program *p;
    const struct model_shape *shape;
    enum dtype dtype; /* the model's precision */
    int layer;        /* index of the layer; -1 in `in` and `out` */
    struct frame_rows rows[ROWS_N];
    int parts;        /* number of spans of which sums over rows are made */
    bool tree;        /* the spans are added as a tree, because determinism is "ranks" */
    float *tree_room; /* one buffer of tree_stride floats for each level of the tree */
    int64_t tree_stride;

    /* data is NULL if it does not exist now */
    struct tensor value[PROG_VALUES], grad[PROG_VALUES];
    /* the section's weights, as numbers or blocks, in the places that store_places gives */
    void *weights;
    const int64_t *weight_at; /* the place of each weight in `weights`, in bytes */
    /* the gradients of the section's trained weights, in the layout of these weights; NULL when
     * only inferring */
    float *weights_grad;
    /* the backward step that runs now; NULL means that the gradient of every input that has room
     * for one is wanted */
    const struct step *now;
    struct tensor tied; /* PROG_TIED: the embedding */
    float *tied_grad;
    float *embed_grad; /* room for EMBED's gradient; NULL if that gradient is in weights_grad */
    /* If fresh is set and there is no tree, gradients of weights are written instead of added. If
     * embed_joins is set, EMBED's gradient is added even then, because it is added to the head's,
     * which was written before. */
    bool fresh, embed_joins;
    char *scratch;
    int64_t scratch_size, scratch_used;
    char *stage; /* the host's memory for tables; NULL if be has no memory of its own */
    int64_t stage_size, stage_used;

    /* the batch for operations and the one for the host, which may be the same */
    const struct batch *batch, *host;
    const int64_t *all_lo, *all_hi; /* [u*T] lo and hi of the rows of the whole group, or NULL */
    const int64_t *host_all_lo, *host_all_hi; /* the host's copies of both; NULL if it has none */
    struct sp *sp;                            /* each operation sets sp->shape */
    struct sp_linear *linear;
    struct sp_carry *carry;
    struct dsp *dsp;
    struct frame_tensor tensor;
    /* [rotary_dim / 2] frequencies, followed by as many frequencies of the second base */
    const double *inv_freq;
    float rope_scale;        /* factor by which RoPE's cosines and sines are multiplied */
    bool rope_single;        /* angles are formed in fp32 */
    const double *slope;     /* [H] decays of the linear attention of this layer */
    const void *carry_in;    /* this layer's state before the sequence; NULL if it is 0 */
    void *carry_out;         /* this layer's state after the sequence; NULL if it is not wanted */
    const void *d_carry_out; /* backward: gradients of these states */
    void *d_carry_in;
    /* forward: the operation runs again, and out[1] still has the contents of the first run */
    bool again;

    /* experts that rows of a proof choose (routing.h); NULL if it is no proof */
    struct routing *routing;
    int32_t *chosen; /* experts of this layer's rows, [T, k]; NULL if they are not kept */

    /* the loss */
    float *logits; /* [loss_chunk, V] */
    int64_t loss_chunk;
    double *nll; /* [T] losses; for MSE and NOISE one for each place, [T, places] */
    float loss_scale;

    /* For decode. cache has the keys and values of each row's context. It includes those of the
     * new row if this rank keeps them. state is the state of the row; it is used by operations
     * that pass states on, which get one row at a time. */
    struct tensor cache[JOB_MAX_BATCH];
    void *state;
};

/* The functions of an operation. In backward, s says which inputs' gradients are written and which
 * are added to. It also says which input's gradient has the same memory as the output's gradient.
 * In decode, rows of ROWS_T are new tokens, each of another sequence. An operation with CACHE_ROWS
 * gets all of them together; any other operation gets one at a time. */
struct op_row {
    int (*forward)(struct frame *f, const struct op *o, struct err *e);
    int (*backward)(struct frame *f, const struct op *o, const struct step *s, struct err *e);
    /* NULL if forward can be used */
    int (*decode)(struct frame *f, const struct op *o, struct err *e);
};
/* The functions of each operation, by enum op_kind. op_rules[] (worker/program/op_rules.h) says
 * how much scratch each operation may take. */
extern const struct op_row *const op_table[OP_KIND_N];
#define OP_ROW(kind, name) extern const struct op_row op_##name;
OPERATORS(OP_ROW)
#undef OP_ROW

/* ---- inside worker/model --------------------------------------------------------------------- */

/* op_scratch_reset empties the scratch; op_scratch_take takes some of it, 64-byte aligned. */
void op_scratch_reset(struct frame *f);
void *op_scratch_take(struct frame *f, int64_t size);
struct tensor op_scratch_rows(struct frame *f, enum dtype t, int64_t rows, int64_t cols);
/* Scratch that the host fills. dev is the memory that operations read. host is the same memory, or
 * the host's copy, which op_twin_up() uploads. */
struct twin {
    void *dev, *host;
    int64_t size;
};
struct twin op_twin_take(struct frame *f, int64_t size);
void op_twin_up(struct frame *f, const struct twin *t);
/* Fetches for the host `size` bytes that operations write at p, and waits for them. */
const void *frame_fetch(struct frame *f, const void *p, int64_t size);
const struct batch *frame_host(const struct frame *f);

struct tensor frame_in(const struct frame *f, const struct op *o, int i);
struct tensor frame_out(const struct frame *f, const struct op *o, int i);
/* Returns the output's gradient in the model's precision: either the gradient itself, or a copy in
 * scratch that is rounded. */
struct tensor frame_dy(struct frame *f, const struct op *o);
bool frame_wants(const struct frame *f, const struct op *o, int i); /* wants input i's gradient */

/* The gradient of input i, in a form that a kernel of the model's precision may write. */
struct back {
    struct tensor to; /* the kernel writes here */
    /* the kernel adds to `to` instead of writing it; set only if staged is false */
    bool accumulate;
    struct tensor grad; /* the gradient, in its place in the frame */
    bool staged, first;
};
struct back op_back_begin(struct frame *f, const struct op *o, const struct step *s, int i);
/* Begins a gradient as op_back_begin does, for a kernel that writes tensors of type t and cannot
 * add. */
struct back op_back_begin_new(struct frame *f, const struct op *o, const struct step *s, int i,
                              enum dtype t);
void op_back_end(struct frame *f, const struct back *b);

/* Copies x to y, or adds it to y; each may have any type. Does nothing if they are the same
 * buffer. */
void frame_move(struct frame *f, struct tensor y, struct tensor x, bool add);
void frame_zero(struct frame *f, struct tensor t);
/* frame_ones makes n ones, fp32, as a row of scratch. frame_spread copies x [T, 1], fp32, into
 * each column of `to` [T, the number of ones]. */
struct tensor frame_ones(struct frame *f, int64_t n);
void frame_spread(struct frame *f, struct tensor x, struct tensor ones, struct tensor to);
/* Writes value n times, from p on. */
void frame_repeat(struct frame *f, int64_t *p, int64_t n, int64_t value);

/* Returns weight i of the section as [rows, cols], or as [1, rows] if it has one dimension. If n >
 * 1, returns weights i to i + n - 1, which must be joined, as one tensor. */
struct tensor frame_weight(const struct frame *f, int i, int n);
/* frame_weight_grad returns the address at which weight i's gradient is summed. frame_learns tells
 * whether the weight has a gradient, which it has if it is not frozen. */
float *frame_weight_grad(const struct frame *f, int i);
bool frame_learns(const struct frame *f, int i);

/* Tells the endpoint of f->tensor the step and layer that the frame runs. */
void frame_mark(struct frame *f);
/* The rows of a table of ids that this rank has, without padding, and the id of the first row.
 * Without tensor parallelism these are all rows, from id 0 on. */
struct frame_ids {
    struct tensor w; /* on the last ranks it may have no rows */
    int64_t first;
};
struct frame_ids frame_ids(const struct frame *f, struct tensor w);

/* The rows of a part: n rows, which begin at row value0 of a value and at row grad0 of the value's
 * gradient. */
struct span {
    int64_t value0, grad0, n;
};
struct span frame_span(const struct frame *f, enum rows_id rows, int i);
struct tensor op_span_value(struct tensor t, struct span s);
struct tensor op_span_grad(struct tensor t, struct span s);
enum rows_id frame_rows_of(const struct frame *f, int value);
/* Returns the index that a value's first row has in the batch. */
int64_t frame_row0(const struct frame *f, enum rows_id rows);

/* Sums over spans into dst[n]. call() writes a span's sum to dst if fresh is set, else adds it to
 * dst. */
struct sum_leaf {
    void (*call)(struct frame *f, void *arg, struct span s, float *dst, bool fresh);
    void *arg;
};
void frame_sum(struct frame *f, enum rows_id rows, float *dst, int64_t n,
               const struct sum_leaf *leaf);
/* Uses the first row of x, fp32, as a finished sum over rows. Writes it to dst [cols], or adds it
 * to dst, in the same cases in which frame_sum would write or add its sum. */
void frame_add_sum(struct frame *f, float *dst, struct tensor x);
/* Writes dy' x, summed over rows, to dst [M, N], or adds it. dy is [grad rows, M] and x is [value
 * rows, N], both of the model's precision. */
void frame_sum_gemm(struct frame *f, enum rows_id rows, float *dst, struct tensor dy,
                    struct tensor x);

/* Writes the sum over rows of dy, which has the model's precision, to dst [cols], or adds it. */
void frame_sum_rows(struct frame *f, enum rows_id rows, float *dst, struct tensor dy);

/* frame_blocks returns the number of blocks into which an operation that does not sum divides its
 * rows. If gradients of such rows are kept in parts, each part is a block; else all rows are a
 * single block. frame_block returns block i. */
int frame_blocks(const struct frame *f, enum rows_id rows);
struct span frame_block(const struct frame *f, enum rows_id rows, int i);

/* Computes this rank's logits for rows [row0, row0 + n) of o's input, and returns them. o is an
 * XENT. The logits are in the frame's memory for logits. n is at most loss_chunk. */
struct tensor op_loss_logits(struct frame *f, const struct op *o, int64_t row0, int64_t n);

/* DSP: the global indices along dimension `dim` that this rank's rows of a kind have. There are n
 * such indices, from `first` on. Row i has index first + (i / within) mod n. */
struct along {
    int64_t first, n, within;
};
struct along frame_along(const struct frame *f, enum rows_id rows, int dim);
/* Returns t, the output of HEADS, as all rows of the grid, with the rows of padding at the end,
 * for this rank's heads. */
struct tensor frame_by_heads(const struct frame *f, struct tensor t);

#endif
