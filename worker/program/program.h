/* program.h: the computation of a model, as data.
 *
 * A family (family.h) describes its layers as programs, which are lists of operations on values.
 * Everything about a model that must agree is derived from that one list:
 *   weights     the names, shapes and places of the checkpoint's tensors
 *   schedule    the steps of forward and backward, and which values are kept or computed again
 *   plan        a place for every buffer, bytes on the wire, flops
 *   model       runs the steps
 * An operator's properties, apart from its computation, are in its row of op_rules.h; its
 * execution is in its row of worker/model/op.h.
 * Pure data and arithmetic: seqd links it.
 *
 * A model is a row of sections: `in` (embedding, conditioning), then layers 0 .. L-1, each of one
 * of a few kinds, then `out` (final norm, head, loss). The residual stream passes from section to
 * section: value PROG_X is a section's input (`in` has none), program.result its output. `in` may
 * also make shared values (conditioning), which every later section may read; their gradients are
 * summed over all readers.
 *
 * A value is written by one operation (single assignment) and read by any number of later ones.
 * Rows are this rank's; columns are features. A view is a window of columns of an earlier value
 * and owns no memory; its gradient is the same window of that value's gradient. A value is either
 * viewed in windows that together cover it without overlap, or read whole, but not both. No
 * operation reads a value twice.
 *
 * In the comments below, T is the number of rows of a rank, C the width, H the number of query
 * heads, Hk the number of KV heads, D the head size, Dv the head size of values, I the width of
 * the MLP and V the size of the vocabulary. All matrices are row-major; a weight is [out, in]. */
#ifndef SEQD_PROGRAM_PROGRAM_H
#define SEQD_PROGRAM_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/choices.h"
#include "api/core/limits.h"
#include "api/core/model_shape.h"

#define PROG_VALUES 80 /* most values of a section, including the shared values that it reads */
#define PROG_OPS    48
/* enough for 512 experts with three weights each, and the rest of a layer */
#define PROG_WEIGHTS 1600
/* elements: weights, and parts of shards, begin at multiples of it (one cache line in fp32) */
#define PROG_ALIGN  16
#define PROG_SHARED 8
#define HEAD_PARTS  4 /* parts of a tensor that a file groups by head */
#define FUSED_PARTS 3 /* parts of one tensor of a file that fuses several tensors */
#define PROG_SUMS   8 /* most sum chunks of a whole sequence */
#define PROG_X      0 /* index of the value with which every section except `in` begins */
#define PROG_NONE   (-1)

/* ---- weights --------------------------------------------------------------------------------- */

enum init_id {
    INIT_NORMAL, /* normal(0, 0.02) */
    /* normal(0, 0.02) / sqrt(2 L), for weights that lead into the residual stream */
    INIT_RESIDUAL,
    INIT_ONE,
    INIT_ZERO,
    INIT_LRPE,  /* 10000^(-2 j / C) at flat index j of [H, D], for TransNormerLLM's theta */
    INIT_TABLE, /* normal(0, 1) / sqrt(C), for adaLN's scale_shift_table */
    INIT_DECAY  /* log of a number between 0 and 16, for a_log of the gated delta rule */
};

/* One tensor of the checkpoint. */
struct weight {
    char name[64];      /* after the section's prefix: "self_attn.q_proj.weight" */
    int64_t rows, cols; /* cols is 0 if it has one dimension, of `rows` */
    bool joined;        /* follows the previous weight without a gap: one product uses both */
    enum init_id init;
    /* Order of rows in the file, if it differs from this tensor's. The file then has the rows by
     * head, [n][parts][D], and this tensor has them by part, [parts][n][D]. If head_major_parts is
     * 0, the order is the same. head_major_dim is D. Part i of a head has head_major_runs[i] runs
     * of D rows; the value 0 means 1. */
    int32_t head_major_parts, head_major_dim, head_major_runs[HEAD_PARTS];
    bool transposed; /* the file has [in, out] (GPT-2's Conv1D), and dims is in that order */
    /* Number of tensors, of rows / stack rows each, that follow each other in this tensor and that
     * the file has as one [stack, ...]. Within each of them the rows may have another order in the
     * file, or it may be transposed (the experts of gpt-oss). 0 means a single tensor. */
    int32_t stack;
    /* format of a product's blocks or panels (store_mark); WEIGHTS_MODEL if it has neither */
    enum weights_id stored;
    bool frozen; /* training does not change it, so it has no gradient */
    /* It has a row, or an element, for each id. The last of the tp slices may be short or
     * empty. */
    bool of_ids;
    /* Rows of the n_fused parts, which follow each other here and which other checkpoints keep as
     * separate tensors (queries, keys and values). Each tp rank has a slice of each part. If
     * n_fused is 0, it is a single tensor. */
    int32_t n_fused;
    int64_t fused[FUSED_PARTS];
    /* The file's dimensions, if they are not [rows, cols] but have the same number of elements,
     * such as [H, 1, D] of LRPE's theta or [C, 4, 1, 2, 2] of a convolution. If n_dims is 0, they
     * are rows, cols. */
    int32_t n_dims;
    int64_t dims[5];
    int64_t offset; /* elements from the start of the section, a multiple of 16 unless joined */
};
/* The first trained_size elements of a section are those of its trained weights. Gradients,
 * moments and master weights exist only for these elements, and have the same layout. */

/* ---- values ---------------------------------------------------------------------------------- */

/* The kind of rows that a value has on a rank. */
enum rows_id {
    ROWS_T,    /* the rank's rows of the sequence; in DSP, sharded along dimension 0 (space) */
    ROWS_ALT,  /* in DSP, the rank's rows when they are sharded along dimension 1 (time) */
    ROWS_TEXT, /* rows of the conditioning text, all of them on every rank */
    ROWS_COND, /* 2 conditioning vectors, of the sample's t and of t = 0 (for clean frames) */
    /* tensor parallelism: this rank's part of the ROWS_T rows that its tp ranks share */
    ROWS_PART,
    ROWS_N
};

/* Condition on which a value is kept from forward to backward. A value that is not kept is
 * computed again from the values that are, one operation at a time, just before it is read. */
enum keep_id {
    KEEP_NEVER,     /* cheap (a norm's output, an activation), so computed again in every mode */
    KEEP_NONE_MODE, /* kept under recompute "none" only */
    KEEP_RING,      /* kept under "none" and "selective": the results of an exchange (o, lse) */
    KEEP_ALWAYS     /* a section's input, states that enter sum chunks, conditioning vectors */
};

struct value {
    const char *name; /* its name in the plan, such as "gate_up"; "" for views */
    enum rows_id rows;
    int64_t cols;
    enum keep_id keep;
    bool f32;   /* fp32 whatever the model's precision is, such as lse and states */
    bool state; /* has no rows, but `cols` elements in all (a state per head) */
    /* Has no rows. It has the bytes that the form of attention keeps of a layer
     * (extent.attn_kept), which most forms do not need. */
    bool form;
    bool no_grad;          /* no gradient flows back through it (patches, sinusoids) */
    bool shared;           /* made by section `in`, and any section may read it */
    int view_of, view_col; /* PROG_NONE: not a view */
};

/* ---- operations ------------------------------------------------------------------------------ */

enum norm_id {
    NORM_RMS,  /* x rsqrt(mean x^2 + eps) [* g] */
    NORM_LAYER /* (x - mean) rsqrt(var + eps) [* g + b] */
};

/* Columns that a norm spans, if a rank has only a part of them: the columns of the queries or of
 * the keys of all tp ranks. */
enum span_id { SPAN_NONE, SPAN_QUERIES, SPAN_KEYS };

/* Every operator, as X(its enum op_kind, the name of its rule and of its execution). The rules are
 * in op_rules.h, the executions in worker/model/op.h. */
/* clang-format off */
#define OPERATORS(X)                                                                               \
    /* out = table[ids] * scale. w is the table [V, C]. Under tensor parallelism, rows of ids      \
     * that another rank has are 0. */                                                             \
    X(OP_EMBED, embed)                                                                             \
    /* out = a + table[index]. w is the table, and u.embed.index says which index is used. */      \
    X(OP_EMBED_ADD, embed_add)                                                                     \
    /* out = the batch's patch rows [T, cols]. It is an input, which has no gradient. */           \
    X(OP_PATCH, patch)                                                                             \
    /* Both add a position to a, with e(u) = [sin(u f_k) | cos(u f_k)] and f_k = 10000^(-k / n),   \
     * where n is half the columns of e.                                                           \
     *   2D  out = a + [e(x) | e(y)], where x and y are those of the row's patch in its frame; each\
     *       has half of the columns. If u.position.base_size is 0, x = column / scale and         \
     *       y = row / scale. Else (STDiT3) x = column base / W / s and y = row base / H / s for a \
     *       grid of H x W patches, with base = round(sqrt(H W)) and                               \
     *       s = sqrt(height width) / base_size of the picture in pixels                           \
     *   1D  out = a + e(frame / scale)                                                            \
     * They have no weights. e is computed in double and rounded once. (2212.09748, and the way in \
     * which Open-Sora uses it) */                                                                 \
    X(OP_POSITION_2D, position_2d)                                                                 \
    X(OP_POSITION_1D, position_1d)                                                                 \
    /* out [ROWS_COND, cols] = [cos(u f_k) | sin(u f_k)] with f_k = 10000^(-k / (cols/2)). u is    \
     * t, from 0 to 1000, in row 0, and 0 in row 1; with u.time.fps, u is fps in both rows. */     \
    X(OP_TIMESTEP, timestep)                                                                       \
    /* out [ROWS_TEXT, cols] = the batch's caption. If the caption was dropped, as many rows of    \
     * the weight w [text_len, cols] (y_embedding, frozen) replace it. Rows after it are 0. */     \
    X(OP_TEXT, text)                                                                               \
    /* out = [base +] a W' [+ b]. W is n_w joined weights. The inputs are a, and base or NONE. */  \
    X(OP_LINEAR, linear)                                                                           \
    /* Normalises a, as u.norm says. w is g and b, or none. With groups, each head is              \
     * normalised. */                                                                              \
    X(OP_NORM, norm)                                                                               \
    /* out = act(a) */                                                                             \
    X(OP_ACT, act)                                                                                 \
    /* out = act(a) * b. The inputs are a and b. */                                                \
    X(OP_GLU, glu)                                                                                 \
    /* out = alpha a + beta b */                                                                   \
    X(OP_MIX, mix)                                                                                 \
    /* out = a with its first n_heads * D columns rotated. It is computed in place where           \
     * possible. */                                                                                \
    X(OP_ROPE, rope)                                                                               \
    /* out [T, 2 cols] = [a cos(theta n), a sin(theta n)] for each head. w is theta [H, D]. a      \
     * has one or more sets of H heads (queries, keys). LINEAR_ATTENTION computes the gradient     \
     * of theta, because sums over rows are trees, so a single operation of a section must         \
     * compute all of a weight's gradient. */                                                      \
    X(OP_LRPE, lrpe)                                                                               \
    /* out is o [T, H*D], and lse. The inputs are q and kv [T, 2*Hk*D]. The softmax is over the    \
     * visible keys and, if there is a w, over the head's sink: w [H] has a logit without a        \
     * value for each head. Only dim -1 has sinks. */                                              \
    X(OP_ATTENTION, attention)                                                                     \
    /* out is o [T, H*D], and lse. The inputs are q and kv [ROWS_TEXT, 2*H*D]. Every row sees      \
     * all text. */                                                                                \
    X(OP_CROSS, cross)                                                                             \
    /* out is o [T, H*Dv], and the states [H, Dk, Dv + normalise] of each sum chunk. The inputs    \
     * are q [T, H*Dk], k [T, H*Dk] and v [T, H*Dv]. w is the theta by which LRPE rotated q and    \
     * k, or none; it is read only to compute its gradient. */                                     \
    X(OP_LINEAR_ATTENTION, linear_attention)                                                       \
    /* out [T, C] = SiLU of a causal convolution of each column, within its document. out[1] is    \
     * the width - 1 rows before each sum chunk. The input is a; w is the taps [C, width]. */      \
    X(OP_SHORT_CONV, short_conv)                                                                   \
    /* out is o [T, H*Dv], by the gated delta rule (kernels/backend.h), and the states [H, Dk,     \
     * Dv] that enter each sum chunk. The inputs are qkv [T, 2*Hk*Dk + H*Dv], which is queries,    \
     * keys and values, and ba [T, 2*H], which is b of each head and then a of each. w is          \
     * dt_bias [H], and bias is a_log [H]. */                                                      \
    X(OP_DELTA, delta)                                                                             \
    /* out = a (1 + scale[g]) + shift[g]. The inputs are a, shift and scale [ROWS_COND, C]. */     \
    X(OP_MODULATE, modulate)                                                                       \
    /* out = base + gate[g] a, where g is the row's vector. The inputs are base, a and gate        \
     * [ROWS_COND, C]. */                                                                          \
    X(OP_GATE, gate)                                                                               \
    /* out = base + sigmoid(gate) a. The inputs are base, a and gate [T, 1], a gate for each       \
     * row. */                                                                                     \
    X(OP_ROW_GATE, row_gate)                                                                       \
    /* out = a in rows of vector 0 and b in rows of vector 1 (frames given without noise). The     \
     * inputs are a and b. */                                                                      \
    X(OP_SELECT, select)                                                                           \
    /* out [ROWS_COND, n C] = a + table, which is added to each row. w is the table [n, C]. The    \
     * input a has n C columns, or C columns, which are then repeated. */                          \
    X(OP_TABLE, table_add)                                                                         \
    /* out = a, sharded along the other dimension by an all-to-all. The input is a. */             \
    X(OP_SWITCH, switch)                                                                           \
    /* Turns a, which has all heads of the rank's rows, into all rows of 1/P of the heads, [P      \
     * T, cols / P] in the memory of [T, cols]; with u.heads.back, the other way. The input is     \
     * a. */                                                                                       \
    X(OP_HEADS, heads)                                                                             \
    /* GATHER is for tensor parallelism (2205.05198). out [ROWS_T] has the parts a [ROWS_PART]     \
     * of all tp ranks, in the order of the ranks. The backward sums the ranks' gradients in       \
     * fp32 and rounds once. */                                                                    \
    X(OP_GATHER, gather)                                                                           \
    /* SCATTER: out [ROWS_PART] = [base +] this rank's part of the sum over tp ranks of a          \
     * [ROWS_T, fp32] [+ b], rounded once. The inputs are a, and base or NONE. The sum is          \
     * formed in a's memory. */                                                                    \
    X(OP_SCATTER, scatter)                                                                         \
    /* out is a mixture of experts, and the routes. w is the router, and then w1, w3 and w2 of     \
     * each expert; with u.moe.joined it is the router, w1 and w3 of all experts, and w2 of all    \
     * experts. Biases are in the same order. */                                                   \
    X(OP_MOE, moe)                                                                                 \
    /* Loss: logits a W' [+ b], in chunks, and their cross-entropy. It is the last operation of    \
     * `out`. Under tensor parallelism, W has the columns of some ids, and ranks exchange each     \
     * row's statistics (xent_stat). */                                                            \
    X(OP_XENT, xent)                                                                               \
    /* Loss: the squared error of a against the batch's target, weighted by row. It is the last    \
     * operation of `out`. Rows of a are patches of out_channels, with channels innermost. The     \
     * first in_channels of each place count; the rest (a variance) is not trained here. */        \
    X(OP_MSE, mse)                                                                                 \
    /* Loss: the squared error of the noise, and the bound that trains its variance                \
     * (worker/plan/noise.h). Rows are as in MSE; each place has in_channels noises and then as    \
     * many variances. */                                                                          \
    X(OP_NOISE, noise)
/* clang-format on */

#define OP_KIND(kind, name) kind,
enum op_kind { OPERATORS(OP_KIND) OP_KIND_N };
#undef OP_KIND

/* INDEX_LABEL means the sample's class, on ROWS_COND, where both rows have the same. */
enum embed_index { INDEX_POSITION, INDEX_TYPE, INDEX_LABEL };

#define OP_INS  3
#define OP_OUTS 3
struct op {
    enum op_kind kind;
    int in[OP_INS]; /* values; PROG_NONE: absent */
    /* out[0] is the result.
     * out[1] is an fp32 value that backward needs as well:
     *   attention      lse [H, T], as a value [T, H]; KEEP_RING
     *   with states    states; KEEP_ALWAYS, so that no exchange is repeated
     *   norm           rstd [T, groups] and then, unless rms, the mean likewise;
     *                  KEEP_NEVER, because it is computed again with the norm
     *   experts        routes: [T, k] experts as int32, then [T, k] weights;
     *                  KEEP_NONE_MODE
     * out[2] is a value that ATTENTION over the sequence keeps besides lse, if its strategy needs
     * it; KEEP_RING (value.form). */
    int out[OP_OUTS];
    /* Weights [w, w + n_w) of the section; n_w is 0 if there are none. If w is PROG_TIED, the
     * weight is the first weight of section `in`, the embedding. */
    int w, n_w;
    int bias, n_bias; /* biases [bias, bias + n_bias) of the section, in the same way */
    union {
        struct {
            float scale;
            enum embed_index index;
            bool rounded;  /* the scale is first rounded to the model's precision */
            int64_t first; /* row of the table that belongs to position 0 */
        } embed;
        struct {
            enum norm_id kind;
            float eps;
            int64_t groups; /* number of norms per row */
            /* Columns of each group. Columns after groups * dim pass unchanged (the values of a KV
             * row). If it is 0, the groups divide the row evenly. */
            int64_t dim;
            bool offset;       /* the factor is 1 + g, computed in fp32 */
            enum span_id span; /* one group, which spans columns of all tp ranks */
        } norm;
        struct {
            enum act_id kind;
        } act;
        struct {
            float alpha, beta;
        } mix;
        struct {
            int64_t n_heads, head_dim, rotary_dim;
            bool interleaved; /* a pair is two neighbouring columns, not one column of each half */
            bool frames;      /* the position is the index of the frame, not that of the token */
            /* uses the second table of frequencies, that of model_shape.rope_local */
            bool local;
        } rope;
        struct {
            int64_t n_heads, n_kv_heads, head_dim;
            float scale;
            bool causal;
            /* scores s become cap tanh(s / cap), before the mask; 0 means that there is no cap */
            float cap;
            /* A row sees itself and the window - 1 rows before it, and, if attention is not
             * causal, also the window - 1 rows after it. 0 means that there is no window. */
            int64_t window;
            /* DSP: dimension along which rows see each other; -1 means the sequence */
            int dim;
            bool by_heads; /* with a dimension: q, kv and o are in the order that HEADS makes */
        } attn;
        struct {
            int64_t n_heads, key_dim, value_dim;
            int slopes;  /* enum slope_id, which gives the decay of head h in layer l */
            float scale; /* factor of q k */
            /* the result is o / (q sum k); the sum travels as one more column of v */
            bool normalise;
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
        } dims; /* OP_SWITCH: dimension along which it is sharded before and after */
        struct {
            int sets;  /* number of sets of heads in a row: 1 for queries, 2 for keys and values */
            bool back; /* from heads to rows */
        } heads;
        struct {
            int64_t n_experts, top_k, width;
            /* weights are the router's softmax over all experts, not over the chosen ones */
            bool plain;
            /* There are three weights: the router; gate and up of all experts, [E 2I, C]; and down
             * of all experts, [E C, I]. Either each of them has a bias, or none has. */
            bool joined;
            float limit, alpha; /* if > 0, the gated unit is clamped (struct clamp_glu_fwd_args) */
        } moe;
        struct {
            float cap; /* logits x become cap tanh(x / cap); 0 means that there is no cap */
        } xent;
        struct {
            bool fps;
        } time;
        struct {
            double scale; /* > 0 */
            int64_t base_size;
        } position;
        struct {
            bool first; /* MODULATE, GATE: all rows use vector 0, whatever their frame is */
        } cond;
    } u;
};
#define PROG_TIED (-2)

/* Decays of linear attention. lambda is exp(-s), where s belongs to head h (from 0) of H heads in
 * layer l of L layers. */
enum slope_id {
    SLOPE_NONE,    /* lambda = 1 */
    SLOPE_TNL,     /* ALiBi slope of h, times (1 - l / (L - 1) + 1e-5) */
    SLOPE_MINIMAX, /* s = 2^(-8 (h + 1) / H) times (1 - l / (L - 1 + 1e-5) + 1e-5) */
    SLOPE_RETNET   /* lambda = 1 - 2^(-5 - h) */
};
double prog_slope(enum slope_id id, int64_t h, int64_t H, int64_t l, int64_t L);

struct program {
    int n_values, n_ops, n_weights;
    struct value value[PROG_VALUES];
    struct op op[PROG_OPS];
    struct weight weight[PROG_WEIGHTS]; /* in the order of the flat layout */
    int64_t weights_size;               /* elements, a multiple of 16 */
    int64_t trained_size; /* elements of the trained weights, which come first; a multiple of 16 */
    bool partial;         /* prog_freeze() has frozen some weights of the model */
    bool tied_frozen;     /* PROG_TIED, which is the embedding, is frozen */
    bool has_input;       /* value PROG_X is the residual stream; false only in `in` */
    int result;           /* value that is the section's output; PROG_NONE in `out` */
    /* Values that section `in` shares, in the same order in every section. An entry is PROG_NONE
     * if the section does not read that value. */
    int shared[PROG_SHARED], n_shared;
    /* prefix of weight names; a layer's has one %d: "model.layers.%d." */
    const char *prefix;
    int layer_base, layer_step; /* the %d of layer l is layer_base + l / layer_step */
};

/* ---- writing one down (program.c) ------------------------------------------------------------ */

/* Starts an empty section. prefix must be a string literal. */
void prog_init(struct program *p, const char *prefix);
/* Adds the residual stream, of `width` columns, as value PROG_X. Every section but `in` does this
 * first. */
int prog_input(struct program *p, int64_t width);
/* Add a weight or a value, and return its index. They assert that nothing overflows and that
 * shapes fit, because families are code, not input. prog_weight sets offset; prog_value sets
 * view_of and view_col. */
int prog_weight(struct program *p, const struct weight *w);
/* Returns the number of elements of a weight. */
int64_t prog_count(const struct weight *w);
/* Returns the element at which a weight that follows w may begin. */
int64_t prog_end(const struct weight *w);
/* Add a weight from its main fields. prog_joined adds it right after the previous weight, without
 * a gap. */
int prog_tensor(struct program *p, const char *name, int64_t rows, int64_t cols, enum init_id init);
int prog_joined(struct program *p, const char *name, int64_t rows, int64_t cols, enum init_id init);
int prog_value(struct program *p, const struct value *v);
int prog_view(struct program *p, int of, int64_t col, int64_t cols);
/* Adds the operation op and its out[0], which is described by `out`, and returns that value.
 * out[1] and out[2] are added automatically if the kind has them. The list OPERATORS says how many
 * inputs an operation has; later inputs may be left 0 or PROG_NONE. An optional input that is left
 * out (LINEAR's base, MIX's b) must be PROG_NONE. A value's name is for the plan; it need not be
 * unique. out is NULL for the losses. */
int prog_op(struct program *p, const struct op *op, const struct value *out);
/* Adds a value that section `in` shares, by the name that it has there. */
int prog_shared(struct program *p, const struct program *in, const char *name);

/* ---- freezing (freeze.c) --------------------------------------------------------------------- */

/* Names the weights that prog_freeze freezes. It places all frozen weights after the trained
 * ones. */
struct program_freeze {
    const uint64_t *frozen; /* [FREEZE_WORDS] a bit for each weight */
    /* a section before this one has trained weights; if none has, no gradient of this section's
     * input is wanted */
    bool input;
    /* section `in`, for which prog_freeze has been called before; NULL if p is that section */
    const struct program *in;
    bool tied; /* the embedding is also the weight of the head */
};
void prog_freeze(struct program *p, const struct program_freeze *z);
/* Copies a program, except for the room of weights that it does not have. */
void prog_copy(struct program *to, const struct program *from);
/* Tells whether at least one of the weights first .. first + n - 1 is trained. */
bool prog_learns(const struct program *p, int first, int n);

/* ---- reading one ----------------------------------------------------------------------------- */

/* Returns the value that owns the memory of `value`: the base of a view, or the value itself. */
int prog_base(const struct program *p, int value);
/* Returns the operation that writes the value, or PROG_NONE if the value is the input or a shared
 * value. */
int prog_writer(const struct program *p, int value);
/* Tells whether the value's gradient is fp32 whatever the precision is. This is so for an output
 * whose rule `spreads`. A part of a sum (`sums`) has no such gradient. Three other kinds of values
 * have one: fp32 values, rows that all other rows read (ROWS_TEXT, ROWS_COND, shared), and the
 * output of a product without a base that only an attention reads, with or without RoPE between
 * them. In the last case the gradient passes from the attention through RoPE to the product
 * without being rounded. Every other gradient has the model's precision; an attention then
 * computes its fp32 gradient in scratch and adds it. */
bool prog_grad_f32(const struct program *p, int value);
/* Tells whether a dense MLP begins with operation `op`. A dense MLP is MLP_OPS operations on the
 * rows of a sequence: LINEAR without a base, an operator of its output whose rule has in_mlp (ACT,
 * GLU), and LINEAR. No other operation reads the values between them. */
bool prog_is_mlp(const struct program *p, int op);
#define MLP_OPS 3
/* The range of an MLP's trained weights in the section's layout, in elements: [begin, end). */
struct program_span {
    int64_t begin, end;
};
struct program_span prog_mlp_weights(const struct program *p, int op);

/* ---- weights in memory (store.c) ------------------------------------------------------------- */

/* Marks the weights of the products in a model's sections as stored in blocks (api/core/quant.h)
 * or in panels (kernels/panels.h). These products are those of LINEAR, of experts, and of the
 * head. A table that is also the head's weight is stored as the head's, and if that is in blocks,
 * in blocks of 8 bits. The products that make gates of rows or of states are not marked. `in` is
 * section `in`, which has the table; p may be `in`. */
void store_mark(struct program *p, struct program *in, enum weights_id format);
/* Returns the bytes of a section's weights, where an element outside blocks has `unit` bytes.
 * Unless at is NULL, writes the offset of each weight to at[]. If no weight is stored in blocks,
 * the offsets are those of the flat layout, in bytes. Otherwise each weight that is not joined
 * begins at a multiple of MEM_ALIGN. */
int64_t store_places(const struct program *p, int64_t unit, int64_t *at);
/* Returns why weight i cannot be stored in blocks or panels, as the end of a sentence, or NULL if
 * it can. Each row must consist of whole blocks. A matrix that another one follows must end with a
 * whole panel, and so must each half of a matrix that is used by halves. room is memory for the
 * text. */
const char *store_fault(const struct program *p, int i, char room[160]);

/* ---- the schedule (schedule.c) --------------------------------------------------------------- */

enum step_way {
    STEP_FORWARD,
    STEP_BACKWARD,
};
/* One run of an operation. A backward step computes the gradients of the operation's inputs and
 * weights from the complete gradient of its output. */
struct step {
    enum step_way kind;
    int op;
    bool first[OP_INS];  /* backward: the input's gradient is written; if false, it is added to */
    bool wanted[OP_INS]; /* backward: the input has a gradient */
    /* Backward: the input whose gradient has the same memory as the gradient of the output, or
     * PROG_NONE if there is no such input. Some of these gradients equal the output's. This
     * is so for the base of LINEAR, SCATTER, GATE and ROW_GATE, for an input of MIX with factor 1,
     * and for the value to which embeddings or positions are added. Other gradients are computed
     * in place (ROPE, ACT). */
    int alias;
    /* piece is set if the step runs on a piece of the rows, as do all steps of its dense MLP.
     * n_piece is the number of these steps, on the first of them. All of them run on a piece
     * before the next piece begins. */
    bool piece;
    int n_piece;
};
#define PROG_STEPS (3 * PROG_OPS)
/* In a training, the forward of `out`, including the loss, is part of its backward list, because
 * the loss's backward step computes both the loss and its gradient; so it is never computed twice.
 * The forward list is for callers that want only the loss or the logits. Gradients of shared
 * values are never `first`: they are cleared before a backward pass and summed over all sections.
 * When a recomputing step of the backward list runs an operation that passes states between ranks,
 * the states were kept, so it needs no exchange. */
struct schedule {
    int n_forward, n_backward;
    /* the value exists only for a piece of the rows, and so does its gradient */
    bool piece[PROG_VALUES];
    struct step forward[PROG_OPS]; /* the forward pass; in inference, there is no other */
    /* from the gradient of result to that of PROG_X, with steps that compute values again */
    struct step backward[PROG_STEPS];
};
/* The choices that decide which values are kept. With `pieces`, dense MLPs of layers keep only
 * their input and run, forward and backward, on one piece of the rows at a time; only trainings
 * use this. */
struct schedule_mode {
    bool train, pieces;
    enum recompute_id recompute;
};
void schedule_make(const struct program *p, const struct schedule_mode *mode, struct schedule *s);
/* Sets flows[v] to whether a gradient flows back through value v, for all n_values values. */
void schedule_flows(const struct program *p, bool *flows);

/* ---- places (placement.c) -------------------------------------------------------------------- */

/* The sizes for which the values of a rank's sections are placed. */
struct extent {
    int64_t rows[ROWS_N];
    int64_t unit; /* bytes of an element that is not f32 */
    /* Number of sum chunks of a rank (worker/plan/shard.h). A state enters each chunk. Gradients
     * of ROWS_TEXT and ROWS_COND values are kept separately for the rows of each chunk, [parts,
     * rows], because the bits of a sum over rows may not depend on the number of ranks. */
    int64_t parts;
    bool train;
    int64_t cache_rows; /* generate: rows of keys and values that attentions keep; else 0 */
    int64_t n_caches;   /* number of sequences that each have such rows and a state */
    /* rows of logits that are computed at a time, or 0 for no logits; columns of logits */
    int64_t loss_chunk, vocab;
    bool logits_apart; /* logits are outside the workspace */
    int64_t mlp_chunk; /* most rows of a piece; 0 if schedules have no pieces */
    int64_t grid[2];   /* DSP: numbers of indices of space and of time */
    int64_t attn_kept; /* bytes of a value with `form` */
    int sp;            /* ranks of the sequence group */
    int tp;            /* ranks that share every layer */
    bool maps;         /* operations with MOVES_MAP pass states by their maps */
    /* number of ranks whose rows' key ranges attention reads; 0 if only its own rank's */
    int ranges;
};

enum place_where {
    PLACE_NONE, /* never written: no gradient */
    PLACE_KEPT, /* in the section's own record, at an offset from its start */
    PLACE_WORK, /* in the workspace that all sections share */
    /* the section's residual stream; for a gradient, the residual's gradient buffer */
    PLACE_INPUT,
    PLACE_RESULT, /* the next section's residual stream; for a gradient, that stream's gradient */
    PLACE_SHARED, /* in the shared value with the index `shared`, at an offset from its start */
    PLACE_CACHE   /* generate: in the section's own cache record */
};
/* The place of a view is its window, in which consecutive rows are as far apart as in its base. */
struct place {
    enum place_where where;
    int shared;           /* k of struct program's shared[k] */
    int64_t offset, size; /* bytes; size covers all rows (of a view, all rows of its base) */
};
/* No two places share bytes at the same time, with these exceptions: values that an operation may
 * compute in place, gradients with `alias`, and GLU's gradients. The backward of GLU writes the
 * gradients of a and b over a and b, which no later step reads. */
struct placement {
    struct place value[PROG_VALUES], grad[PROG_VALUES];
    /* Offsets of the steps' scratch in the workspace, indexed as the schedule's lists are. */
    int64_t scratch_forward[PROG_OPS], scratch_backward[PROG_STEPS];
    /* XENT: [loss_chunk, V] fp32 in the workspace, unless logits are placed apart; the gradients
     * of logits use the same memory. */
    struct place logits;
    /* generate: the state of a CACHE_STATE operation after the context (out[1] of one chunk), in
     * fp32, in the cache record. This is the place of the first sequence; the places of the other
     * sequences follow, placement_state_stride() bytes apart. A causal ATTENTION has keys and
     * values as its value in[1]. */
    struct place state[PROG_OPS];
    bool in_place;      /* inference: the result is written over the input, in one stream */
    bool grad_in_place; /* the same for the residual's gradient */
    int64_t kept_size;  /* bytes of one layer's record */
    int64_t cache_size; /* bytes of one layer's cache record */
    int64_t work_size;  /* bytes of workspace that this section needs */
};
/* A cache record has cache_rows - 1 rows of keys and values for each sequence. After the rows of
 * all sequences follows one more row for each sequence, in which new keys and values are made. */
static inline int64_t cache_stride(const struct extent *x)
{
    return x->cache_rows - 1;
}
int64_t placement_state_stride(const struct place *state);
/* placement_state_count returns the elements of the state that operation `op` has after a context,
 * or 0 if it has none. placement_states_size returns the bytes of all states of a program in fp32,
 * each rounded up to MEM_ALIGN. */
int64_t placement_state_count(const struct program *p, int op);
int64_t placement_states_size(const struct program *p);
/* Returns the most rows that a piece of a value with rows of kind `rows` has. */
int64_t op_extent_piece(const struct extent *x, enum rows_id rows);
void placement_make(const struct program *p, const struct schedule *s, const struct extent *x,
                    struct placement *out);

#endif
