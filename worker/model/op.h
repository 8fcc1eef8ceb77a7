/* op.h: how the operations of a program (worker/program/program.h) run on one rank's rows:
 * forward, backward, and for one new token.
 *
 * A frame describes the section that runs. It points to the section's values, their gradients and
 * the section's weights. The functions of op_table[] read their inputs from the frame and write
 * their outputs there. They allocate no memory. Values have the model's precision unless the
 * program says fp32. Gradients have the model's precision unless prog_grad_f32 says fp32. If a
 * kernel cannot write a result directly to its place, the result is first written to the frame's
 * scratch. op_scratch() (worker/program) computes the size of the scratch beforehand.
 *
 * Values, weights, scratch and the batch's arrays are in the device's memory. If the device has
 * memory of its own, the host has copies of the batch's arrays and reads them through frame.host.
 * The host writes the tables that operations need into frame.stage (op_stage() bytes) and uploads
 * them (struct twin).
 *
 * Sums over rows (weight gradients, gradients of ROWS_COND and ROWS_TEXT values) are formed for
 * each span. Under determinism "ranks" a span is a sum chunk of the shard. Otherwise it has all
 * rows of the rank. Gradients of COND and TEXT values have one part for each span, [parts, rows,
 * cols], until they reach a weight. There the sums of the spans are added as a perfect binary
 * tree. COND and TEXT values are equal on all ranks, but each rank has only a part of their
 * gradient. Weight gradients are computed from this part. So they are summed over ranks like all
 * other gradients, and no part is counted twice. */
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
    int64_t n; /* rows of a value */
    /* T, ALT: rows of a sum chunk; the last chunks may have fewer rows, or none */
    int64_t sum_len;
};

/* The ranks that share every layer. Each rank has some of the layer's heads and columns. */
struct frame_tensor {
    struct comm *comm; /* NULL if there is only this rank */
    int n, r;          /* number of ranks, and the index of this rank */
    void *bounce;
};

struct routing;

/* A piece of a prompt in pages: room and ranges of struct sp_piece_args. */
struct frame_piece {
    void *room;
    const int64_t *lo, *hi;
};

struct frame {
    struct be *be;
    const struct program *p;
    const struct model_shape *shape;
    enum dtype dtype; /* the model's precision */
    int layer;        /* index of the layer; -1 in `in` and `out` */
    struct frame_rows rows[ROWS_N];
    /* the row of the rank that is the first row of the frame: 0, except in a piece of the rows */
    int64_t piece_row;
    int parts;        /* number of spans; each sum over rows has one part for each span */
    bool tree;        /* the sums of spans are added as a tree, because determinism is "ranks" */
    float *tree_room; /* one buffer of tree_stride floats for each level of the tree */
    int64_t tree_stride;

    /* data is NULL if the tensor does not exist now */
    struct tensor value[PROG_VALUES], grad[PROG_VALUES];
    /* The section's weights, as numbers or as blocks. store_places gives the place of each
     * weight. */
    void *weights;
    const int64_t *weight_at; /* the place of each weight in `weights`, in bytes */
    /* The gradients of the section's trained weights, in the layout of these weights. NULL if
     * there are no gradients. */
    float *weights_grad;
    /* The backward step that runs now. NULL means that gradients are computed for all inputs that
     * have room for a gradient. */
    const struct step *now;
    struct tensor tied; /* PROG_TIED: the embedding */
    float *tied_grad;
    float *embed_grad; /* room for EMBED's gradient; NULL if that gradient is in weights_grad */
    /* If fresh is set and there is no tree, gradients of weights are written instead of added. If
     * embed_joins is set, EMBED's gradient is added even if fresh is set. It is added to the
     * gradient of the head, which was written before. */
    bool fresh, embed_joins;
    char *scratch;
    int64_t scratch_size, scratch_used;
    char *stage; /* the host's memory for tables; NULL if be has no memory of its own */
    int64_t stage_size, stage_used;

    /* the batch that operations read, and the batch that the host reads; they may be the same */
    const struct batch *batch, *host;
    /* [u*T] lo and hi of the rows of all ranks of the group, or NULL */
    const int64_t *all_lo, *all_hi;
    /* the host's copies of all_lo and all_hi; NULL if there are no copies */
    const int64_t *host_all_lo, *host_all_hi;
    struct sp *sp; /* each operation sets sp->shape */
    struct sp_linear *linear;
    struct sp_carry *carry;
    struct dsp *dsp;
    struct frame_tensor tensor;
    /* [rotary_dim / 2] frequencies, followed by as many frequencies of the second base */
    const double *inv_freq;
    float rope_scale;     /* factor by which RoPE's cosines and sines are multiplied */
    bool rope_single;     /* the angles are computed in fp32 */
    const double *slope;  /* [H] decays of the linear attention of this layer */
    const void *carry_in; /* this layer's state before the sequence; NULL if it is 0 */
    /* memory for this layer's state after the sequence; NULL if it is not needed */
    void *carry_out;
    const void *d_carry_out; /* backward: gradient of the state after the sequence */
    void *d_carry_in;
    bool base; /* adapters are off: the model is computed without them */
    /* The adapter of each row, by its index, or ADAPTER_BASE if the row has none. If by_row is not
     * set, adapter[0] is that of all rows. */
    int32_t adapter[JOB_MAX_BATCH];
    bool by_row;
    /* forward: the operation is computed for the second time, and out[1] still has the contents of
     * the first time */
    bool again;

    /* experts that the rows choose in a proof (routing.h); NULL if there is no proof */
    struct routing *routing;
    int32_t *chosen; /* experts of this layer's rows, [T, k]; NULL if they are not kept */

    /* the loss */
    float *logits; /* [loss_chunk, V] */
    int64_t loss_chunk;
    double *nll; /* [T] losses; MSE and NOISE have one loss for each place, [T, places] */
    float loss_scale;
    /* XENT: terms of the loss, as in struct plan; 0 if a pass computes -log p alone */
    double label_smoothing, z_loss;

    /* For decode. keys has the keys and values of each row's context on this rank. If this rank
     * keeps the key and value of the new row, keys includes them. In a piece of a prompt, keys[0]
     * is that of all rows. state is the state of the row. Operations
     * that pass states use it; they get one row at a time. */
    struct sp_keys keys[JOB_MAX_BATCH];
    struct frame_piece piece; /* room is NULL unless a piece of a prompt runs */
    void *state;
};

/* The functions of an operation. In backward, s says for each input whether its gradient is
 * written or added to. s also says which input's gradient has the same memory as the output's
 * gradient. In decode, rows of ROWS_T are new tokens, and each row belongs to a different
 * sequence. An operation with CACHE_ROWS gets all these rows together. Every operation without
 * CACHE_ROWS gets one row at a time. */
struct op_row {
    int (*forward)(struct frame *f, const struct op *o, struct err *e);
    int (*backward)(struct frame *f, const struct op *o, const struct step *s, struct err *e);
    /* NULL if forward can be used */
    int (*decode)(struct frame *f, const struct op *o, struct err *e);
};
/* The functions of each operation, by enum op_kind. op_rules[] (worker/program/op_rules.h) gives
 * the largest amount of scratch that each operation may take. */
extern const struct op_row *const op_table[OP_KIND_N];
#define OP_ROW(kind, name) extern const struct op_row op_##name;
OPERATORS(OP_ROW)
#undef OP_ROW

/* ---- inside worker/model --------------------------------------------------------------------- */

/* op_scratch_reset makes the scratch empty. op_scratch_take takes some of the scratch, aligned to
 * 64 bytes. */
void op_scratch_reset(struct frame *f);
void *op_scratch_take(struct frame *f, int64_t size);
struct tensor op_scratch_rows(struct frame *f, enum dtype t, int64_t rows, int64_t cols);
/* Scratch that the host writes. Operations read `dev`. If the host can reach `dev`, `host` is
 * equal to `dev`. Otherwise `host` is a copy in the host's memory, which op_twin_up() uploads. */
struct twin {
    void *dev, *host;
    int64_t size;
};
struct twin op_twin_take(struct frame *f, int64_t size);
void op_twin_up(struct frame *f, const struct twin *t);
/* Copies the `size` bytes at p to the host's memory. Operations write these bytes, so the function
 * waits for the operations first. */
const void *frame_fetch(struct frame *f, const void *p, int64_t size);
const struct batch *frame_host(const struct frame *f);

struct tensor frame_in(const struct frame *f, const struct op *o, int i);
struct tensor frame_out(const struct frame *f, const struct op *o, int i);
/* Returns the output's gradient in the model's precision. It is the gradient itself, or a rounded
 * copy in scratch. */
struct tensor frame_dy(struct frame *f, const struct op *o);
/* tells whether the gradient of input i is needed */
bool frame_wants(const struct frame *f, const struct op *o, int i);

/* The gradient of input i, in a form that a kernel of the model's precision can write. */
struct back {
    struct tensor to; /* the kernel writes here */
    /* The kernel adds to `to` instead of overwriting it. This is set only if staged is false. */
    bool accumulate;
    struct tensor grad; /* the gradient in the frame, to which the result belongs */
    bool staged, first;
};
struct back op_back_begin(struct frame *f, const struct op *o, const struct step *s, int i);
/* Does the same as op_back_begin, for a kernel that writes tensors of type t and cannot add. */
struct back op_back_begin_new(struct frame *f, const struct op *o, const struct step *s, int i,
                              enum dtype t);
void op_back_end(struct frame *f, const struct back *b);

/* Copies x to y, or adds x to y. x and y may have any types. Does nothing if x and y are the same
 * buffer. */
void frame_move(struct frame *f, struct tensor y, struct tensor x, bool add);
void frame_zero(struct frame *f, struct tensor t);
/* frame_ones returns a row of n ones, fp32, in scratch. frame_spread copies x [T, 1], fp32, into
 * each column of `to`, which has as many columns as there are ones. */
struct tensor frame_ones(struct frame *f, int64_t n);
void frame_spread(struct frame *f, struct tensor x, struct tensor ones, struct tensor to);
/* Writes value n times, beginning at p. */
void frame_repeat(struct frame *f, int64_t *p, int64_t n, int64_t value);

/* Returns weight i of the section as [rows, cols], or as [1, rows] if it has one dimension. If n >
 * 1, returns weights i to i + n - 1 as one tensor; they must be joined. */
struct tensor frame_weight(const struct frame *f, int i, int n);
/* frame_weight_grad returns the address at which the gradient of weight i is summed. frame_learns
 * tells whether weight i has a gradient, which is true unless weight i is frozen. */
float *frame_weight_grad(const struct frame *f, int i);
bool frame_learns(const struct frame *f, int i);

/* Tells the endpoint of f->tensor which step and layer the frame runs. */
void frame_mark(struct frame *f);
/* The rows of a table of ids that this rank has, without padding, and the id of the first row.
 * Without tensor parallelism these are all rows, and the first id is 0. */
struct frame_ids {
    struct tensor w; /* may have no rows on the last ranks */
    int64_t first;
};
struct frame_ids frame_ids(const struct frame *f, struct tensor w);

/* A part of the rows. It has n rows, which begin at row value0 of a value and at row grad0 of the
 * value's gradient. */
struct span {
    int64_t value0, grad0, n;
};
struct span frame_span(const struct frame *f, enum rows_id rows, int i);
struct tensor op_span_value(struct tensor t, struct span s);
struct tensor op_span_grad(struct tensor t, struct span s);
enum rows_id frame_rows_of(const struct frame *f, int value);
/* Returns the index in the batch of the first row of values of this kind. */
int64_t frame_row0(const struct frame *f, enum rows_id rows);

/* A function whose results are summed over spans into dst[n]. call() writes the sum of a span to
 * dst if fresh is set. Otherwise it adds the sum to dst. */
struct sum_leaf {
    void (*call)(struct frame *f, void *arg, struct span s, float *dst, bool fresh);
    void *arg;
};
void frame_sum(struct frame *f, enum rows_id rows, float *dst, int64_t n,
               const struct sum_leaf *leaf);
/* Uses the first row of x, fp32, as a sum over rows that is already complete. Writes this row to
 * dst [cols] in the cases in which frame_sum writes its sum, and adds it to dst in the cases in
 * which frame_sum adds its sum. */
void frame_add_sum(struct frame *f, float *dst, struct tensor x);
/* Computes dy' x, summed over rows, and writes it to dst [M, N] or adds it to dst. dy is [grad
 * rows, M] and x is [value rows, N], both in the model's precision. */
void frame_sum_gemm(struct frame *f, enum rows_id rows, float *dst, struct tensor dy,
                    struct tensor x);

/* Computes the sum of dy over rows, and writes it to dst [cols] or adds it to dst. dy has the
 * model's precision. */
void frame_sum_rows(struct frame *f, enum rows_id rows, float *dst, struct tensor dy);

/* frame_blocks returns the number of blocks of rows of an operation that forms no sum over rows.
 * If the gradients of the operation's rows are kept in parts, each part is a block. Otherwise all
 * rows are one block. frame_block returns block i. */
int frame_blocks(const struct frame *f, enum rows_id rows);
struct span frame_block(const struct frame *f, enum rows_id rows, int i);

/* Computes and returns this rank's logits for rows [row0, row0 + n) of o's input. o is an XENT.
 * The logits are in the frame's memory for logits. n is at most loss_chunk. */
struct tensor op_loss_logits(struct frame *f, const struct op *o, int64_t row0, int64_t n);

/* DSP: the global indices along dimension `dim` of this rank's rows of a kind. There are n of
 * these indices, and the first index is `first`. Row i has the index first + (i / within) mod
 * n. */
struct along {
    int64_t first, n, within;
};
struct along frame_along(const struct frame *f, enum rows_id rows, int dim);
/* Returns t, the output of HEADS, as rows of the whole grid, for this rank's heads. The rows of
 * padding are at the end. */
struct tensor frame_by_heads(const struct frame *f, struct tensor t);

#endif
