/* program.h: the computation of a model, as data.
 *
 * A family (family.h) writes down its layers as programs: lists of operations on values. All that
 * must agree about a model is derived from that one list:
 *   weights     the names, shapes and places of the checkpoint's tensors
 *   schedule    the steps of forward and backward: values kept, values computed again
 *   plan        a place for every buffer, bytes on the wire, flops
 *   model       runs the steps
 * An operator's properties, beside its computation, are a row of op_rules.h; its execution is a row
 * of worker/model/op.h.
 * Pure data and arithmetic: seqd links it.
 *
 * A model is a row of sections: `in` (embedding, conditioning), then layers 0 .. L-1, each of one
 * of a few kinds, then `out` (final norm, head, loss). The residual stream passes from section to
 * section: value PROG_X is a section's input (`in` has none), program.result its output. `in` may
 * also make shared values (conditioning), which every later section may read; their gradients are
 * summed over all readers.
 *
 * A value is written by one operation (single assignment) and read by any number of later ones.
 * Rows are this rank's; columns are features. A view is a window of columns of an earlier value and
 * owns no memory; its gradient is the same window of that value's gradient. A value is viewed in
 * windows that tile it, or read whole, not both. No operation reads a value twice.
 *
 * Letters: T rows of a rank, C width, H query heads, Hk KV heads, D head size, Dv value head size,
 * I MLP width, V vocabulary. All matrices row-major; a weight is [out, in]. */
#ifndef SEQD_PROGRAM_PROGRAM_H
#define SEQD_PROGRAM_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/choices.h"
#include "api/core/limits.h"
#include "api/core/model_shape.h"

#define PROG_VALUES  80 /* most values of a section, with the shared ones that it reads */
#define PROG_OPS     48
#define PROG_WEIGHTS 1600 /* 512 experts with three each, and the rest of a layer */
#define PROG_SHARED  8
#define HEAD_PARTS   4 /* parts of a tensor that a file groups by head */
#define FUSED_PARTS  3 /* parts of one tensor of a file that fuses several tensors */
#define PROG_SUMS    8 /* sum chunks of a whole sequence, at most */
#define PROG_X       0 /* value that every section but `in` begins with */
#define PROG_NONE    (-1)

/* ---- weights --------------------------------------------------------------------------------- */

enum init_id {
    INIT_NORMAL,   /* normal(0, 0.02) */
    INIT_RESIDUAL, /* normal(0, 0.02) / sqrt(2 L): weights that lead into the residual stream */
    INIT_ONE,
    INIT_ZERO,
    INIT_LRPE,  /* 10000^(-2 j / C) at flat index j of [H, D] (TransNormerLLM's theta) */
    INIT_TABLE, /* normal(0, 1) / sqrt(C): adaLN's scale_shift_table */
    INIT_DECAY  /* log of a number between 0 and 16: a_log of the gated delta rule */
};

/* One tensor of the checkpoint. */
struct weight {
    char name[64];      /* after the section's prefix: "self_attn.q_proj.weight" */
    int64_t rows, cols; /* cols 0: one-dimensional of `rows` */
    bool joined;        /* follows the one before without a gap: one product serves both */
    enum init_id init;
    /* Order of rows in the file, if it differs: the file has them by head, [n][parts][D], and this
     * tensor by part, [parts][n][D]. head_major_parts 0: the order is the same. head_major_dim: D.
     * Part i of a head has head_major_runs[i] runs of D rows; 0 stands for 1. */
    int32_t head_major_parts, head_major_dim, head_major_runs[HEAD_PARTS];
    bool transposed; /* the file has [in, out] (GPT-2's Conv1D), as dims are, too */
    /* Number of tensors, of rows / stack rows each, that this one joins one after another:
     * [stack, ...] in files. Each by itself may have another order there, or be transposed (the
     * experts of gpt-oss). 0: a single tensor. */
    int32_t stack;
    enum weights_id stored; /* a product's blocks or panels (store_mark); WEIGHTS_MODEL: neither */
    bool frozen;            /* part of the checkpoint that training does not change: no gradient */
    /* A row, or an element, for each id: the last of tp slices may be short, or empty. */
    bool of_ids;
    /* Rows of the n_fused parts, one after another, that other checkpoints keep as separate
     * tensors (queries, keys and values). tp ranks have a slice of each part. n_fused 0: a single
     * tensor. */
    int32_t n_fused;
    int64_t fused[FUSED_PARTS];
    /* The file's dimensions where they are not [rows, cols] but as many elements: [H, 1, D] of
     * LRPE's theta, [C, 4, 1, 2, 2] of a convolution. n_dims 0: rows, cols. */
    int32_t n_dims;
    int64_t dims[5];
    int64_t offset; /* elements from the section's start, a multiple of 16 unless joined */
};

/* ---- values ---------------------------------------------------------------------------------- */

/* The rows that a value has on a rank. */
enum rows_id {
    ROWS_T,    /* the rank's rows of the sequence; DSP: sharded along dimension 0 (space) */
    ROWS_ALT,  /* DSP: the rank's rows when sharded along dimension 1 (time) */
    ROWS_TEXT, /* rows of the conditioning text, whole on every rank */
    ROWS_COND, /* conditioning vectors: 2, of the sample's t and of t = 0 (frames given clean) */
    ROWS_PART, /* tensor parallelism: this rank's part of the ROWS_T that its tp ranks share */
    ROWS_N
};

/* The condition on which a value survives from forward to backward. A value that is gone is
 * computed again from the values that are left, an operation at a time, just before it is read. */
enum keep_id {
    KEEP_NEVER,     /* cheap: a norm's output, an activation: computed again in every mode */
    KEEP_NONE_MODE, /* kept under recompute "none" only */
    KEEP_RING,      /* kept under "none" and "selective": results of an exchange (o, lse) */
    KEEP_ALWAYS     /* a section's input, states that enter sum chunks, conditioning vectors */
};

struct value {
    const char *name; /* "gate_up": its name in the plan; "" for views */
    enum rows_id rows;
    int64_t cols;
    enum keep_id keep;
    bool f32;              /* fp32 whatever the model's precision: lse, states */
    bool state;            /* not rows: `cols` elements in all (a state per head) */
    bool form;             /* not rows: the bytes that a way of attention keeps of a layer
                            * (extent.attn_kept), mostly none */
    bool no_grad;          /* no gradient flows back into it (patches, sinusoids) */
    bool shared;           /* made by `in`, read by any section */
    int view_of, view_col; /* PROG_NONE: not a view */
};

/* ---- operations ------------------------------------------------------------------------------ */

enum norm_id {
    NORM_RMS,  /* x rsqrt(mean x^2 + eps) [* g] */
    NORM_LAYER /* (x - mean) rsqrt(var + eps) [* g + b] */
};

/* Columns that a norm spans if a rank has only a part of them. They belong to the queries or the
 * keys of all tp ranks. */
enum span_id { SPAN_NONE, SPAN_QUERIES, SPAN_KEYS };

/* Every operator: X(its enum op_kind, the name of its rule and of its execution). Rules:
 * op_rules.h; executions: worker/model/op.h. */
/* clang-format off */
#define OPERATORS(X)                                                                               \
    /* out = table[ids] * scale; w: table [V, C]; under tensor parallelism 0 for ids of others */  \
    X(OP_EMBED, embed)                                                                             \
    /* out = a + table[index]; w: table; u.embed.index says by what */                             \
    X(OP_EMBED_ADD, embed_add)                                                                     \
    /* out = the batch's patch rows [T, cols]: an input, no gradient */                            \
    X(OP_PATCH, patch)                                                                             \
    /* With e(u) = [sin(u f_k) | cos(u f_k)], f_k = 10000^(-k / n), n = half the columns of e:     \
     *   2D  out = a + [e(x) | e(y)], x and y of the row's patch in its frame: half of the columns \
     *       each, columns first. u.position.base_size 0: x = column / scale, y = row / scale; else\
     *       (STDiT3) x = column base / W / s, y = row base / H / s for a grid of H x W patches,   \
     *       base = round(sqrt(H W)), s = sqrt(height width) / base_size of the picture in pixels  \
     *   1D  out = a + e(frame / scale)                                                            \
     * No weights; formed in double, rounded once. (2212.09748, and Open-Sora's use of it) */      \
    X(OP_POSITION_2D, position_2d)                                                                 \
    X(OP_POSITION_1D, position_1d)                                                                 \
    /* out [ROWS_COND, cols] = [cos(u f_k) | sin(u f_k)], f_k = 10000^(-k / (cols/2)): u = t,      \
     * 0 .. 1000, in row 0, and 0 in row 1; u.time.fps: u = fps in both */                         \
    X(OP_TIMESTEP, timestep)                                                                       \
    /* out [ROWS_TEXT, cols] = the batch's caption; if it was dropped, as many rows of weight w    \
     * [text_len, cols] (y_embedding, frozen); 0 in the rows after them */                         \
    X(OP_TEXT, text)                                                                               \
    /* out = [base +] a W' [+ b]; W is n_w joined weights; in: a, base or NONE */                  \
    X(OP_LINEAR, linear)                                                                           \
    /* in: a; w: g, b or none; u.norm; groups: per head */                                         \
    X(OP_NORM, norm)                                                                               \
    /* out = act(a) */                                                                             \
    X(OP_ACT, act)                                                                                 \
    /* out = act(a) * b; in: a, b */                                                               \
    X(OP_GLU, glu)                                                                                 \
    /* out = alpha a + beta b */                                                                   \
    X(OP_MIX, mix)                                                                                 \
    /* out = a with its first n_heads * D columns rotated; in place where it may be */             \
    X(OP_ROPE, rope)                                                                               \
    /* out [T, 2 cols] = [a cos(theta n), a sin(theta n)] per head; w: theta [H, D]; a has one or  \
     * more sets of H heads (queries, keys). LINEAR_ATTENTION makes theta's gradient: one operation\
     * of a section makes all of a weight's gradient, since sums over rows are trees */            \
    X(OP_LRPE, lrpe)                                                                               \
    /* out o [T, H*D], lse; in: q, kv [T, 2*Hk*D]; softmax over visible keys and, where there is w,\
     * over the head's sink: w [H], a logit without a value; dim -1 alone has sinks */             \
    X(OP_ATTENTION, attention)                                                                     \
    /* out o [T, H*D], lse; in: q, kv [ROWS_TEXT, 2*H*D]: every row sees all text */               \
    X(OP_CROSS, cross)                                                                             \
    /* out o [T, H*Dv], states [H, Dk, Dv + normalise] of each sum chunk; in: q [T, H*Dk],         \
     * k [T, H*Dk], v [T, H*Dv]; w: the theta by which LRPE rotated q and k, or none: read for     \
     * its gradient alone */                                                                       \
    X(OP_LINEAR_ATTENTION, linear_attention)                                                       \
    /* out [T, C] = SiLU of a causal convolution of each column, within its document; out[1] the   \
     * width - 1 rows before each sum chunk; in: a; w: taps [C, width] */                          \
    X(OP_SHORT_CONV, short_conv)                                                                   \
    /* out o [T, H*Dv] by the gated delta rule (kernels/backend.h), states [H, Dk, Dv] that enter  \
     * each sum chunk; in: qkv [T, 2*Hk*Dk + H*Dv]: queries, keys, values; ba [T, 2*H]: b of each  \
     * head, then a; w: dt_bias [H]; bias: a_log [H] */                                            \
    X(OP_DELTA, delta)                                                                             \
    /* out = a (1 + scale[g]) + shift[g]; in: a, shift, scale [ROWS_COND, C] */                    \
    X(OP_MODULATE, modulate)                                                                       \
    /* out = base + gate[g] a, g: the row's vector; in: base, a, gate [ROWS_COND, C] */            \
    X(OP_GATE, gate)                                                                               \
    /* out = base + sigmoid(gate) a; in: base, a, gate [T, 1]: a gate for each row */              \
    X(OP_ROW_GATE, row_gate)                                                                       \
    /* out = a in rows of vector 0, b in rows of vector 1 (frames given clean); in: a, b */        \
    X(OP_SELECT, select)                                                                           \
    /* out [ROWS_COND, n C] = a + table (broadcast over rows); w: table [n, C]; in: a of n C       \
     * columns, or of C, which are then repeated */                                                \
    X(OP_TABLE, table_add)                                                                         \
    /* out = a, sharded along the other dimension: all-to-all; in: a */                            \
    X(OP_SWITCH, switch)                                                                           \
    /* out = a, all heads of the rank's rows, as all rows of 1/P of the heads, [P T, cols / P] in   \
     * the memory of [T, cols], or u.heads.back: the other way; in: a */                           \
    X(OP_HEADS, heads)                                                                             \
    /* Tensor parallelism (2205.05198). GATHER: out [ROWS_T] = the parts a [ROWS_PART] of all tp    \
     * ranks, in their order; backward sums the ranks' gradients, fp32, and rounds once */         \
    X(OP_GATHER, gather)                                                                           \
    /* SCATTER: out [ROWS_PART] = [base +] own part of the sum over tp ranks of a [ROWS_T, fp32]    \
     * [+ b], rounded once; in: a, base or NONE; the sum is formed in a's memory */                \
    X(OP_SCATTER, scatter)                                                                         \
    /* out = mixture of experts, routes; w: router, then w1, w3, w2 of each expert; u.moe.joined:  \
     * router, w1 and w3 of all, w2 of all, and biases likewise */                                 \
    X(OP_MOE, moe)                                                                                 \
    /* loss: chunked logits a W' [+ b] and cross-entropy; last of `out`. Under tensor parallelism  \
     * W has the columns of some ids, and ranks exchange each row's statistics (xent_stat) */      \
    X(OP_XENT, xent)                                                                               \
    /* loss: squared error of a against the batch's target, weighted by row; last of `out`. Rows of\
     * a are patches of out_channels, channels innermost; the first in_channels of each count, the \
     * others (a variance) are not trained here */                                                 \
    X(OP_MSE, mse)                                                                                 \
    /* loss: squared error of the noise, and the bound that trains its variance (worker/plan/      \
     * noise.h); rows as MSE's, of in_channels noises and then as many variances a place */        \
    X(OP_NOISE, noise)
/* clang-format on */

#define OP_KIND(kind, name) kind,
enum op_kind { OPERATORS(OP_KIND) OP_KIND_N };
#undef OP_KIND

/* INDEX_LABEL: the sample's class, on ROWS_COND: the same in both rows. */
enum embed_index { INDEX_POSITION, INDEX_TYPE, INDEX_LABEL };

#define OP_INS  3
#define OP_OUTS 3
struct op {
    enum op_kind kind;
    int in[OP_INS];   /* values; PROG_NONE: absent */
    int out[OP_OUTS]; /* out[0]: the result.
                       * out[1]: an fp32 value that backward needs, too:
                       *   attention      lse [H, T], as a value [T, H]; KEEP_RING
                       *   with states    states; KEEP_ALWAYS, so that no exchange is repeated
                       *   norm           rstd [T, groups], then the mean likewise unless rms;
                       *                  KEEP_NEVER: computed again with the norm
                       *   experts        routes: [T, k] experts as int32, then [T, k] weights;
                       *                  KEEP_NONE_MODE
                       * out[2]: a value that ATTENTION over the sequence keeps beside lse, as its
                       * strategy needs it; KEEP_RING (value.form) */
    int w, n_w;       /* weights [w, w + n_w) of the section; n_w 0: none. w = PROG_TIED: the first
                       * weight of section `in`, the embedding */
    int bias, n_bias; /* biases [bias, bias + n_bias), likewise */
    union {
        struct {
            float scale;
            enum embed_index index;
            bool rounded;  /* the scale is rounded to the model's precision first */
            int64_t first; /* row of the table for position 0 */
        } embed;
        struct {
            enum norm_id kind;
            float eps;
            int64_t groups;    /* number of norms per row */
            int64_t dim;       /* columns of each; columns after groups * dim pass unchanged (the
                             * values of a KV row); 0: the groups tile the row */
            bool offset;       /* the factor is 1 + g, formed in fp32 */
            enum span_id span; /* one group, of columns of all tp ranks */
        } norm;
        struct {
            enum act_id kind;
        } act;
        struct {
            float alpha, beta;
        } mix;
        struct {
            int64_t n_heads, head_dim, rotary_dim;
            bool interleaved; /* pairs are neighbouring columns, not one of each half */
            bool frames;      /* the position is the frame, not the token */
            bool local;       /* by the second table of frequencies: model_shape.rope_local */
        } rope;
        struct {
            int64_t n_heads, n_kv_heads, head_dim;
            float scale;
            bool causal;
            float cap;      /* scores s become cap tanh(s / cap), before the mask; 0: no cap */
            int64_t window; /* a row sees itself and window - 1 rows before it, also window - 1
                             * after it if not causal; 0: all */
            int dim;        /* DSP: dimension along which rows see each other; -1: the sequence */
            bool by_heads;  /* with a dimension: q, kv and o lie as HEADS leaves them */
        } attn;
        struct {
            int64_t n_heads, key_dim, value_dim;
            int slopes;     /* enum slope_id: the decay of head h in layer l */
            float scale;    /* factor of q k */
            bool normalise; /* o / (q sum k): the sum travels as one more column of v */
        } linear;
        struct {
            int64_t width; /* number of taps */
        } conv;
        struct {
            int64_t n_heads, n_key_heads, key_dim, value_dim;
            float scale; /* factor of q k */
        } delta;
        struct {
            int from, to;
        } dims; /* OP_SWITCH: dimension it is sharded along before, after */
        struct {
            int sets;  /* sets of heads, side by side: queries 1, keys and values 2 */
            bool back; /* from heads to rows */
        } heads;
        struct {
            int64_t n_experts, top_k, width;
            bool plain; /* weights are the router's softmax over all experts, not over the chosen */
            /* Weights are three: the router, gate and up of all experts, [E 2I, C], down of all,
             * [E C, I]; and each has a bias, or none. */
            bool joined;
            float limit, alpha; /* > 0: the gated unit is clamped (struct clamp_glu_fwd_args) */
        } moe;
        struct {
            float cap; /* logits x become cap tanh(x / cap); 0: no cap */
        } xent;
        struct {
            bool fps;
        } time;
        struct {
            double scale; /* > 0 */
            int64_t base_size;
        } position;
        struct {
            bool first; /* MODULATE, GATE: all rows take vector 0, whatever their frame */
        } cond;
    } u;
};
#define PROG_TIED (-2)

/* Decays: lambda = exp(-s), s of head h (0-based) of H in layer l of L. */
enum slope_id {
    SLOPE_NONE,    /* lambda = 1 */
    SLOPE_TNL,     /* ALiBi slope of h, times (1 - l / (L - 1) + 1e-5) */
    SLOPE_MINIMAX, /* 2^(-8 (h + 1) / H) times (1 - l / (L - 1 + 1e-5) + 1e-5) */
    SLOPE_RETNET   /* lambda = 1 - 2^(-5 - h) */
};
double prog_slope(enum slope_id id, int64_t h, int64_t H, int64_t l, int64_t L);

struct program {
    int n_values, n_ops, n_weights;
    struct value value[PROG_VALUES];
    struct op op[PROG_OPS];
    struct weight weight[PROG_WEIGHTS]; /* in the order of the flat layout */
    int64_t weights_size;               /* elements, a multiple of 16 */
    bool has_input;                     /* value PROG_X is the residual stream; false in `in` */
    int result;                         /* the section's output; PROG_NONE for `out` */
    /* Values that `in` shares, in the same order in every section; PROG_NONE where a section does
     * not read them. */
    int shared[PROG_SHARED], n_shared;
    const char *prefix;         /* for weight names; a layer's with one %d: "model.layers.%d." */
    int layer_base, layer_step; /* the %d of layer l is layer_base + l / layer_step */
};

/* ---- writing one down (program.c) ------------------------------------------------------------ */

/* Starts an empty section. prefix: a literal. */
void prog_init(struct program *p, const char *prefix);
/* Adds the residual stream, of `width` columns, as value PROG_X: first, in every section but
 * `in`. */
int prog_input(struct program *p, int64_t width);
/* Add a weight or a value, and return its number. They assert on overflow and on shapes that do
 * not fit: families are code, not input. prog_weight sets offset; prog_value sets view_of and
 * view_col. */
int prog_weight(struct program *p, const struct weight *w);
/* Add a weight by its main fields; prog_joined: right after the weight before, without a gap. */
int prog_tensor(struct program *p, const char *name, int64_t rows, int64_t cols, enum init_id init);
int prog_joined(struct program *p, const char *name, int64_t rows, int64_t cols, enum init_id init);
int prog_value(struct program *p, const struct value *v);
int prog_view(struct program *p, int of, int64_t col, int64_t cols);
/* Adds the op and its out[0] as `out` says; returns that value. out[1] and out[2], where the kind
 * has them, are added automatically. OP_*'s `in` says how many inputs an op has: later ones may be
 * left 0 or PROG_NONE. An optional input that is left out (LINEAR's base, MIX's b) must be
 * PROG_NONE. A value's name is the plan's; it need not be unique. out NULL: the losses. */
int prog_op(struct program *p, const struct op *op, const struct value *out);
/* Adds a value that `in` shares, by its name there. */
int prog_shared(struct program *p, const struct program *in, const char *name);

/* ---- reading one ----------------------------------------------------------------------------- */

/* Returns the value whose memory this is: a view's base, or itself. */
int prog_base(const struct program *p, int value);
/* Returns the operation that writes it; PROG_NONE: it is the input or a shared value. */
int prog_writer(const struct program *p, int value);
/* Tells whether its gradient is fp32 whatever the precision. This holds for an output whose rule
 * `spreads`. It holds, except for a part of a sum (`sums`), for fp32 values, for rows that all
 * others read (ROWS_TEXT, ROWS_COND, shared), and for the output of a product without a base that
 * an attention alone reads, rotated or not: such a gradient goes from the attention through RoPE
 * to the product without being rounded. Any other gradient is of the model's precision; an
 * attention then adds its fp32 one to it from scratch. */
bool prog_grad_f32(const struct program *p, int value);
/* Tells whether a dense MLP begins with operation `op`: MLP_OPS operations on the rows of a
 * sequence, LINEAR without a base, an operator of its output whose rule has in_mlp (ACT, GLU), and
 * LINEAR. No other operation reads the values between them. */
bool prog_is_mlp(const struct program *p, int op);
#define MLP_OPS 3
/* The place of an MLP's weights in the section's layout, in elements: [begin, end). */
struct program_span {
    int64_t begin, end;
};
struct program_span prog_mlp_weights(const struct program *p, int op);

/* ---- weights in memory (store.c) ------------------------------------------------------------- */

/* Marks the weights of the products of a model's sections as stored in blocks (api/core/quant.h) or
 * in panels (kernels/panels.h). Products are those of LINEAR, of experts, and of the head; a table
 * that is the head's, too, is stored as the head is, in blocks in 8 bits. The products
 * that make gates of rows or of states stay as they are. in: section `in`, which has the table; p
 * may be `in`. */
void store_mark(struct program *p, struct program *in, enum weights_id format);
/* Returns the bytes of a section's weights; an element outside blocks has `unit` bytes. Writes the
 * offset of each weight to at[], unless at is NULL. If no weight is stored in blocks, the offsets
 * are those of the flat layout, in bytes. Otherwise each weight that is not joined begins at a
 * multiple of MEM_ALIGN. */
int64_t store_places(const struct program *p, int64_t unit, int64_t *at);
/* Returns why weight i cannot be stored in blocks or panels, as the end of a sentence; NULL: it
 * can. Each row must be whole blocks. A matrix that another one follows must end with a whole
 * panel, and so must half of a matrix that is taken by halves. room: for the text. */
const char *store_fault(const struct program *p, int i, char room[160]);

/* ---- the schedule (schedule.c) --------------------------------------------------------------- */

enum step_way {
    STEP_FORWARD,
    STEP_BACKWARD,
};
/* A run of an operation. A backward step makes the gradients of its inputs and its weights from
 * the complete gradient of its output. */
struct step {
    enum step_way kind;
    int op;
    bool first[OP_INS];  /* backward: the input's gradient is written; false: it is added to */
    bool wanted[OP_INS]; /* backward: the input has a gradient */
    int alias; /* backward: this input's gradient lies where the output's does: equal to it (base
                * of LINEAR, SCATTER, GATE and ROW_GATE, MIX with 1, the value that embeddings or
                * positions are added to) or computed in place (ROPE, ACT); PROG_NONE */
    /* piece: the step runs on a piece of the rows, as do all steps of its dense MLP. n_piece: on
     * the first of these steps, how many there are. All of them run on a piece before the next
     * piece begins. */
    bool piece;
    int n_piece;
};
#define PROG_STEPS (3 * PROG_OPS)
/* Forward of `out` in a training is part of its backward list, loss included (the loss's backward
 * step makes both), so that it is never computed twice: the forward list is for callers that only
 * want the loss or the logits. Gradients of shared values are never `first`: they are cleared
 * before a backward pass and summed over all sections. In the recomputing steps of the backward
 * list an operation that passes states between ranks finds them kept: no exchange. */
struct schedule {
    int n_forward, n_backward;
    bool piece[PROG_VALUES];          /* exists only for a piece of the rows, like its gradient */
    struct step forward[PROG_OPS];    /* the forward pass; inference: all there is */
    struct step backward[PROG_STEPS]; /* recomputing included; gradient of result -> of PROG_X */
};
/* Says which values are kept. pieces: dense MLPs of layers keep their input alone, and run, forward
 * and backward, on a piece of the rows at a time; trainings only. */
struct schedule_mode {
    bool train, pieces;
    enum recompute_id recompute;
};
void schedule_make(const struct program *p, const struct schedule_mode *mode, struct schedule *s);

/* ---- places (placement.c) -------------------------------------------------------------------- */

/* The sizes that a rank's sections are placed for. */
struct extent {
    int64_t rows[ROWS_N];
    int64_t unit; /* bytes of an element that is not f32 */
    /* Sum chunks of a rank (worker/plan/shard.h). A state enters each chunk. Gradients of
     * ROWS_TEXT and ROWS_COND values are kept apart for each chunk's rows, [parts, rows], since
     * the bits of a sum over rows may not depend on the number of ranks. */
    int64_t parts;
    bool train;
    int64_t cache_rows; /* generate: rows that causal attentions keep of keys and values; else 0 */
    int64_t n_caches;   /* sequences that have such rows and a state each */
    int64_t loss_chunk, vocab; /* rows of logits at a time, 0: no logits; their columns */
    bool logits_apart;         /* they lie outside the workspace */
    int64_t mlp_chunk;         /* rows of a piece, at most; 0: schedules have no pieces */
    int64_t grid[2];           /* DSP: indices of space and of time */
    int64_t attn_kept;         /* bytes of a value with `form` */
    int sp;                    /* ranks of the sequence group */
    int tp;                    /* ranks that share every layer */
    bool maps;                 /* MOVES_MAP states are passed on by their maps */
    int ranges; /* ranks whose rows' key ranges attention reads; 0: only its own rows' */
};

enum place_where {
    PLACE_NONE,   /* never written: no gradient */
    PLACE_KEPT,   /* in the section's own record: offset from its start */
    PLACE_WORK,   /* in the workspace that all sections share */
    PLACE_INPUT,  /* the section's residual stream; gradient: the residual's gradient buffer */
    PLACE_RESULT, /* the next section's residual stream; gradient: that stream's */
    PLACE_SHARED, /* in shared value number `shared`: offset from its start */
    PLACE_CACHE   /* generate: in the section's own cache record */
};
/* A view's place is its window: rows lie cols of its base apart. */
struct place {
    enum place_where where;
    int shared;           /* k of struct program's shared[k] */
    int64_t offset, size; /* bytes; size: all rows (a view's: all rows of its base) */
};
/* No two places share bytes at the same time, but for values that an operation may compute in
 * place, gradients with `alias`, and GLU's gradients, which lie over the values to which they
 * belong (its backward writes over a and b, which no later step reads). */
struct placement {
    struct place value[PROG_VALUES], grad[PROG_VALUES];
    /* Offsets of the steps' scratch in the workspace, by their place in the schedule's lists. */
    int64_t scratch_forward[PROG_OPS], scratch_backward[PROG_STEPS];
    /* XENT: [loss_chunk, V] fp32 in the workspace, unless apart; gradients in their memory */
    struct place logits;
    /* generate: the state after the context of a CACHE_STATE operation (out[1] of one chunk),
     * fp32, in the cache record. The place is the first sequence's; the others' follow,
     * placement_state_stride() bytes apart. Keys and values of a causal ATTENTION are its value
     * in[1] itself. */
    struct place state[PROG_OPS];
    bool in_place;      /* inference: the result lies where the input did: one stream suffices */
    bool grad_in_place; /* the same for the residual's gradient */
    int64_t kept_size;  /* bytes of one layer's record */
    int64_t cache_size; /* bytes of one layer's cache record */
    int64_t work_size;  /* bytes of workspace that this section needs */
};
/* In a cache record each sequence has cache_rows - 1 rows of keys and values; after those of all
 * there is one row more for each, where new ones are made. */
static inline int64_t cache_stride(const struct extent *x)
{
    return x->cache_rows - 1;
}
int64_t placement_state_stride(const struct place *state);
/* placement_state_count returns the elements of the state that operation `op` has after a context,
 * 0 if it has none; placement_states_size the bytes of all states of a program in fp32, each
 * rounded up to MEM_ALIGN. */
int64_t placement_state_count(const struct program *p, int op);
int64_t placement_states_size(const struct program *p);
/* Returns the rows of a piece of a value on `rows`, at most. */
int64_t op_extent_piece(const struct extent *x, enum rows_id rows);
void placement_make(const struct program *p, const struct schedule *s, const struct extent *x,
                    struct placement *out);

#endif
