/* program.h: the computation of a model, as data.
 *
 * A family (family.h) describes its layers as programs, which are lists of operations on values.
 * Several parts of the code must agree about a model. All of them are derived from this list:
 *   weights     the names, shapes and places of the checkpoint's tensors
 *   schedule    the steps of forward and backward, and which values are kept or computed again
 *   plan        a place for every buffer, bytes on the wire, flops
 *   model       runs the steps
 * The properties of an operator are in its row of op_rules.h. The functions that compute it are in
 * its row of worker/model/op.h. Pure data and arithmetic, because seqd uses it.
 *
 * A model is a sequence of sections: first `in` (embedding, conditioning), then layers 0 .. L-1,
 * and then `out` (final norm, head, loss). The layers are of a few kinds. The residual stream
 * passes from section to section. Value PROG_X is the input of a section (`in` has no input), and
 * program.result is its output. `in` may also make shared values (conditioning). Every later
 * section may read shared values, and their gradients are summed over all operations that read
 * them.
 *
 * A value is written by one operation (single assignment), and later operations read it. Its rows
 * are the rows of this rank, and its columns are features. A view is a window of columns of an
 * earlier value. It has no memory of its own, and its gradient is the same window of the earlier
 * value's gradient. A value is read whole, or through views that cover it without overlap, but not
 * both. No operation reads a value twice.
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

/* largest number of values of a section; this includes the shared values that it reads */
#define PROG_VALUES 80
#define PROG_OPS    48
/* enough for 512 experts with three weights each and for the other weights of a layer */
#define PROG_WEIGHTS 1600
/* weights and parts of shards begin at multiples of this number of elements (one cache line in
 * fp32) */
#define PROG_ALIGN  16
#define PROG_SHARED 8
/* largest number of parts of a tensor whose rows are grouped by head in a file */
#define HEAD_PARTS  4
#define FUSED_PARTS 3 /* largest number of tensors of a file that one tensor replaces */
#define ADAPT_PARTS 4 /* largest number of products that an adapter adapts in one ADAPT */
/* largest number of parts of an ADAPT, of all adapters */
#define ADAPT_ALL (ADAPT_PARTS * SHAPE_ADAPTERS)
#define PROG_SUMS 8 /* largest number of sum chunks of a whole sequence */
#define PROG_X    0 /* index of the input of a section; `in` has no input */
#define PROG_NONE (-1)

/* ---- weights --------------------------------------------------------------------------------- */

enum init_id {
    INIT_NORMAL, /* normal(0, 0.02) */
    /* normal(0, 0.02) / sqrt(2 L), for weights whose product is added to the residual stream */
    INIT_RESIDUAL,
    INIT_ONE,
    INIT_ZERO,
    INIT_LRPE,    /* 10000^(-2 j / C) at flat index j of [H, D], for theta of TransNormerLLM */
    INIT_TABLE,   /* normal(0, 1) / sqrt(C), for scale_shift_table of adaLN */
    INIT_UNIFORM, /* uniform between -1 / sqrt(C) and 1 / sqrt(C), for A of an adapter [r, C] */
    INIT_DECAY    /* log of a number between 0 and 16, for a_log of the gated delta rule */
};

/* One tensor of the checkpoint. */
struct weight {
    char name[64];      /* name after the section's prefix: "self_attn.q_proj.weight" */
    int64_t rows, cols; /* cols is 0 if the tensor has one dimension, whose size is rows */
    /* there is no gap between this weight and the previous weight, because one product uses
     * both */
    bool joined;
    enum init_id init;
    /* Order of the rows in the file, if it differs from the order in this tensor. The file groups
     * rows by head, [n][parts][D], and this tensor groups them by part, [parts][n][D]. If
     * head_major_parts is 0, the file has the rows in this tensor's order. head_major_dim is D.
     * Part i of a head has head_major_runs[i] runs of D rows, where 0 means 1. */
    int32_t head_major_parts, head_major_dim, head_major_runs[HEAD_PARTS];
    bool transposed; /* the file has [in, out], as GPT-2's Conv1D, and dims has this order */
    /* Number of tensors of rows / stack rows each that this tensor consists of. The file has them
     * as one tensor [stack, ...]. In the file, the rows of each of these tensors may have a
     * different order, or the tensor may be transposed (the experts of gpt-oss). 0 means that this
     * is one tensor. */
    int32_t stack;
    /* format of a product's blocks or panels (store_mark); WEIGHTS_MODEL if they are not used */
    enum weights_id stored;
    bool frozen;  /* the tensor never has a gradient, because training does not change it */
    bool adapter; /* the tensor is A or B of an adapter (prog_adapt), and in no file of a model */
    int32_t of_adapter; /* the index of that adapter; tensors of different adapters have one name */
    bool saved; /* the tensor is trained whole beside adapters (prog_save), and in their files */
    /* The tensor has a row, or an element, for each id. The last slices of the tp ranks may have
     * fewer ids, or none. */
    bool of_ids;
    /* n_fused is the number of tensors that this tensor replaces (queries, keys and values). Other
     * checkpoints have them as separate tensors. In this tensor, their rows follow each other.
     * Each tp rank has a slice of each of them. If n_fused is 0, this is one tensor. */
    int32_t n_fused;
    int64_t fused[FUSED_PARTS];
    /* Dimensions in the file, if they are not [rows, cols]. Their product is rows * cols. Examples
     * are [H, 1, D] of LRPE's theta and [C, 4, 1, 2, 2] of a convolution. If n_dims is 0, the
     * dimensions are rows, cols. */
    int32_t n_dims;
    int64_t dims[5];
    /* first element, counted from the start of the section; a multiple of 16 unless the weight is
     * joined */
    int64_t offset;
};
/* The first trained_size elements of a section are those of its trained weights. Gradients,
 * moments and master weights exist only for these elements, and have the same layout. */

/* ---- values ---------------------------------------------------------------------------------- */

/* The kind of rows that a value has on a rank. */
enum rows_id {
    /* the rank's rows of the sequence; for DSP, they are sharded along dimension 0 (space) */
    ROWS_T,
    ROWS_ALT,  /* for DSP: the rank's rows if they are sharded along dimension 1 (time) */
    ROWS_TEXT, /* rows of the conditioning text; every rank has all of them */
    /* 2 conditioning vectors: one for the sample's t, and one for t = 0 (clean frames) */
    ROWS_COND,
    /* tensor parallelism: this rank's part of the rows of ROWS_T, which its tp ranks share */
    ROWS_PART,
    ROWS_N
};

/* The recompute modes in which a value is kept from forward to backward. A value that is not kept
 * is computed again from values that are kept. Operations run again one at a time, each just
 * before its result is read. */
enum keep_id {
    /* never kept, because it is cheap to compute again (a norm's output, an activation) */
    KEEP_NEVER,
    KEEP_NONE_MODE, /* kept only under recompute "none" */
    KEEP_RING,      /* kept under "none" and "selective"; for results of an exchange (o, lse) */
    /* always kept; for a section's input, states that enter sum chunks, conditioning vectors */
    KEEP_ALWAYS
};

struct value {
    const char *name; /* name in the plan, such as "gate_up"; "" for views */
    enum rows_id rows;
    int64_t cols;
    enum keep_id keep;
    bool f32;   /* the value is fp32 for every precision of the model, such as lse and states */
    bool state; /* the value has no rows, but `cols` elements in all (a state for each head) */
    /* The value has no rows. It has the bytes that the form of attention keeps of a layer
     * (extent.attn_kept). Most forms keep none. */
    bool form;
    bool no_grad;          /* no gradient passes through the value (patches, sinusoids) */
    bool shared;           /* section `in` makes the value, and every section may read it */
    int view_of, view_col; /* view_of is PROG_NONE if the value is not a view */
};

/* ---- operations ------------------------------------------------------------------------------ */

enum norm_id {
    NORM_RMS,  /* x rsqrt(mean x^2 + eps) [* g] */
    NORM_LAYER /* (x - mean) rsqrt(var + eps) [* g + b] */
};

/* The columns over which a norm is computed, if a rank has only a part of them. They are the
 * columns of the queries or of the keys of all tp ranks. */
enum span_id { SPAN_NONE, SPAN_QUERIES, SPAN_KEYS };

/* Every operator, as X(its enum op_kind, the name of its rule and of its execution). The rules are
 * in op_rules.h, the executions in worker/model/op.h. */
/* clang-format off */
#define OPERATORS(X)                                                                               \
    /* out = table[ids] * scale. w is the table [V, C]. Under tensor parallelism, a rank has the   \
     * rows of some ids of the table. The output is 0 for all other ids. */                        \
    X(OP_EMBED, embed)                                                                             \
    /* out = a + table[index]. w is the table, and u.embed.index tells which index is used. */     \
    X(OP_EMBED_ADD, embed_add)                                                                     \
    /* out = the batch's rows of patches, [T, cols]. This is an input, which has no gradient. */   \
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
    /* out [ROWS_COND, cols] = [cos(u f_k) | sin(u f_k)] with f_k = 10000^(-k / (cols/2)). In row  \
     * 0, u is t, which is from 0 to 1000. In row 1, u is 0. If u.time.fps is set, u is fps in     \
     * both rows. */                                                                               \
    X(OP_TIMESTEP, timestep)                                                                       \
    /* out [ROWS_TEXT, cols] = the batch's caption. If the caption was dropped, rows of the weight \
     * w [text_len, cols] (y_embedding, frozen) replace it; their number is that of the caption's  \
     * rows. The rows after them are 0. */                                                         \
    X(OP_TEXT, text)                                                                               \
    /* out = [base +] a W' [+ b]. W is n_w joined weights. The inputs are a, and base or NONE. */  \
    X(OP_LINEAR, linear)                                                                           \
    /* out = a, and in the columns of part i: + scale (x A_i') B_i' (LoRA, 2106.09685). The        \
     * inputs are a, which is the output of a product, and x, which is the product's input. w is   \
     * A_i [rank, columns of x] and B_i [columns of the part, rank] of each part in turn. It is    \
     * computed in place where possible. With drops, each part has its own dropout of x. */        \
    X(OP_ADAPT, adapt)                                                                             \
    /* Normalises a as u.norm says. w is g and b, or none. If there are groups, each head is       \
     * normalised by itself. */                                                                    \
    X(OP_NORM, norm)                                                                               \
    /* out = act(a) */                                                                             \
    X(OP_ACT, act)                                                                                 \
    /* out = act(a) * b. The inputs are a and b. */                                                \
    X(OP_GLU, glu)                                                                                 \
    /* out = alpha a + beta b */                                                                   \
    X(OP_MIX, mix)                                                                                 \
    /* out = a in which the first n_heads * D columns are rotated. It is computed in place if that \
     * is possible. */                                                                             \
    X(OP_ROPE, rope)                                                                               \
    /* out [T, 2 cols] = [a cos(theta n), a sin(theta n)] for each head. w is theta [H, D]. a has  \
     * one or more sets of H heads (queries, keys). The gradient of theta is computed by           \
     * LINEAR_ATTENTION. Sums over rows are trees, so one operation of a section must compute all  \
     * of a weight's gradient. */                                                                  \
    X(OP_LRPE, lrpe)                                                                               \
    /* out is o [T, H*D], and lse. The inputs are q and kv [T, 2*Hk*D]. The softmax is over the    \
     * visible keys. If there is a w, it also includes the sink of the head: w [H] has for each    \
     * head a logit that has no value. Only dim -1 has sinks. */                                   \
    X(OP_ATTENTION, attention)                                                                     \
    /* out is o [T, H*D], and lse. The inputs are q and kv [ROWS_TEXT, 2*H*D]. Every row sees all  \
     * of the text. */                                                                             \
    X(OP_CROSS, cross)                                                                             \
    /* out is o [T, H*Dv], and the states [H, Dk, Dv + normalise] of each sum chunk. The inputs    \
     * are q [T, H*Dk], k [T, H*Dk] and v [T, H*Dv]. w is the theta with which LRPE has rotated q  \
     * and k, or none. w is read only to compute its gradient. */                                  \
    X(OP_LINEAR_ATTENTION, linear_attention)                                                       \
    /* out [T, C] = SiLU of a causal convolution of each column, within its document. out[1] has   \
     * the width - 1 rows before each sum chunk. The input is a. w has the taps [C, width]. */     \
    X(OP_SHORT_CONV, short_conv)                                                                   \
    /* out is o [T, H*Dv], by the gated delta rule (kernels/backend.h), and the states [H, Dk, Dv] \
     * that enter each sum chunk. The inputs are qkv and ba. qkv [T, 2*Hk*Dk + H*Dv] has queries,  \
     * keys and values. ba [T, 2*H] has b of each head and then a of each head. w is dt_bias [H],  \
     * and bias is a_log [H]. */                                                                   \
    X(OP_DELTA, delta)                                                                             \
    /* out = a (1 + scale[g]) + shift[g]. The inputs are a, shift and scale [ROWS_COND, C]. */     \
    X(OP_MODULATE, modulate)                                                                       \
    /* out = base + gate[g] a. g is the index of the row's vector. The inputs are base, a and gate \
     * [ROWS_COND, C]. */                                                                          \
    X(OP_GATE, gate)                                                                               \
    /* out = base + sigmoid(gate) a. The inputs are base, a and gate [T, 1], which has one gate    \
     * for each row. */                                                                            \
    X(OP_ROW_GATE, row_gate)                                                                       \
    /* out = a in the rows of vector 0, and b in the rows of vector 1 (frames that are given       \
     * without noise). The inputs are a and b. */                                                  \
    X(OP_SELECT, select)                                                                           \
    /* out [ROWS_COND, n C] = a + table. The table is added to each row. w is the table [n, C].    \
     * The input a has n C columns. If it has C columns, they are repeated n times. */             \
    X(OP_TABLE, table_add)                                                                         \
    /* out = a, sharded along the other dimension. This is an all-to-all. The input is a. */       \
    X(OP_SWITCH, switch)                                                                           \
    /* Exchanges rows for heads. The input a has all heads of the rank's rows, [T, cols]. The      \
     * result has all rows of 1/P of the heads, [P T, cols / P], in the memory of [T, cols]. With  \
     * u.heads.back, the exchange goes the other way. */                                           \
    X(OP_HEADS, heads)                                                                             \
    /* GATHER is for tensor parallelism (2205.05198). out [ROWS_T] has the rows of all tp ranks,   \
     * in the order of the ranks. The input a [ROWS_PART] has this rank's rows. Backward sums the  \
     * gradients of the ranks in fp32 and rounds the sum once. */                                  \
    X(OP_GATHER, gather)                                                                           \
    /* SCATTER sums a [ROWS_T, fp32] over tp ranks. out [ROWS_PART] = [base +] this rank's rows of \
     * the sum [+ b], rounded once. The inputs are a, and base or NONE. The sum is computed in the \
     * memory of a. */                                                                             \
    X(OP_SCATTER, scatter)                                                                         \
    /* out is a mixture of experts, and the routes. w is the router, and then w1, w3 and w2 of     \
     * each expert. With u.moe.joined, it is the router, then w1 and w3 of all experts, and then   \
     * w2 of all experts. Biases have the same order. */                                           \
    X(OP_MOE, moe)                                                                                 \
    /* Loss: logits a W' [+ b], computed in chunks, and their cross-entropy. This is the last      \
     * operation of `out`. Under tensor parallelism, W has the rows of some ids, and ranks         \
     * exchange statistics of each row (xent_stat). */                                             \
    X(OP_XENT, xent)                                                                               \
    /* Loss: the squared error of a against the batch's target. Each place has a weight. This is   \
     * the last operation of `out`. A row of a is a patch, with out_channels values for each       \
     * place; the channels are innermost. The first in_channels of each place are compared. The    \
     * others (a variance) are not trained here. */                                                \
    X(OP_MSE, mse)                                                                                 \
    /* Loss: the squared error of the noise, plus the bound that trains its variance               \
     * (worker/plan/noise.h). Rows are the same as for MSE. Each place has in_channels values of   \
     * the noise, and then as many variances. */                                                   \
    X(OP_NOISE, noise)
/* clang-format on */

#define OP_KIND(kind, name) kind,
enum op_kind { OPERATORS(OP_KIND) OP_KIND_N };
#undef OP_KIND

/* INDEX_LABEL is the class of the sample. It is used on ROWS_COND, and both rows have the same
 * class. */
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
     * weight is the embedding, which is the first weight of section `in`. */
    int w, n_w;
    /* biases [bias, bias + n_bias) of the section; n_bias is 0 if there are none */
    int bias, n_bias;
    union {
        struct {
            float scale;
            enum embed_index index;
            bool rounded;  /* the scale is rounded to the model's precision before it is applied */
            int64_t first; /* row of the table for position 0 */
        } embed;
        struct {
            enum norm_id kind;
            float eps;
            int64_t groups; /* number of norms for each row */
            /* Number of columns of each group. The columns after groups * dim (the values of a KV
             * row) are not changed. If dim is 0, the groups divide the row evenly. */
            int64_t dim;
            bool offset;       /* the factor is 1 + g, which is computed in fp32 */
            enum span_id span; /* if set, there is one group, with the columns of all tp ranks */
        } norm;
        struct {
            enum act_id kind;
        } act;
        struct {
            float alpha, beta;
        } mix;
        struct {
            int64_t rank; /* the largest rank of the adapters */
            int32_t n;    /* number of parts */
            bool drops;   /* a training may drop elements of x */
            bool cut;     /* x has only this rank's columns of the whole x */
            /* The parts, in the order of the adapters and of their columns. A part adds scale
             * (x A') B' to the columns from col on, in the rows that have its adapter. */
            struct adapt_place {
                int64_t col;
                float scale;
                int32_t adapter;
            } part[ADAPT_ALL];
        } adapt;
        struct {
            int64_t n_heads, head_dim, rotary_dim;
            /* a pair consists of two adjacent columns, not of one column from each half */
            bool interleaved;
            /* the position is the index of the frame, not the position of the token */
            bool frames;
            /* uses the second table of frequencies, which belongs to model_shape.rope_local */
            bool local;
        } rope;
        struct {
            int64_t n_heads, n_kv_heads, head_dim;
            float scale;
            bool causal;
            /* if it is not 0, scores s become cap tanh(s / cap) before the mask */
            float cap;
            /* A row sees itself and the window - 1 rows before it. If attention is not causal, the
             * row also sees the window - 1 rows after it. 0 means that there is no window. */
            int64_t window;
            /* DSP: dimension of the rows that a row sees; -1 means the sequence */
            int dim;
            /* set if dim is not -1 and q, kv and o have the order that HEADS makes */
            bool by_heads;
        } attn;
        struct {
            int64_t n_heads, key_dim, value_dim;
            int slopes;  /* enum slope_id, which gives the decay of each head and layer */
            float scale; /* factor by which q k is multiplied */
            /* the result is o / (q sum k); the sum is computed in an additional column of v */
            bool normalise;
        } linear;
        struct {
            int64_t width; /* number of taps */
        } conv;
        struct {
            int64_t n_heads, n_key_heads, key_dim, value_dim;
            float scale; /* factor by which q k is multiplied */
        } delta;
        struct {
            int from, to;
        } dims; /* OP_SWITCH: dimension along which the value is sharded before, and after */
        struct {
            int sets;  /* number of sets of heads in a row: 1 for queries, 2 for keys and values */
            bool back; /* from the order by heads to the order by rows */
        } heads;
        struct {
            int64_t n_experts, top_k, width;
            /* weights come from the softmax over all experts, not only over the chosen ones */
            bool plain;
            /* There are three weights: the router; gate and up of all experts, [E 2I, C]; and down
             * of all experts, [E C, I]. Either all of them have a bias, or none has. */
            bool joined;
            /* if limit > 0, the gated unit is clamped (struct clamp_glu_fwd_args) */
            float limit, alpha;
        } moe;
        struct {
            float cap; /* if it is not 0, logits x become cap tanh(x / cap) */
        } xent;
        struct {
            bool fps;
        } time;
        struct {
            double scale; /* > 0 */
            int64_t base_size;
        } position;
        struct {
            bool first; /* MODULATE, GATE: all rows use vector 0, even the rows of clean frames */
        } cond;
    } u;
};
#define PROG_TIED (-2)

/* Decays of linear attention. lambda = exp(-s) for head h, counted from 0, of H heads, in layer l
 * of L layers. */
enum slope_id {
    SLOPE_NONE,    /* lambda = 1 */
    SLOPE_TNL,     /* s is the ALiBi slope of h, times (1 - l / (L - 1) + 1e-5) */
    SLOPE_MINIMAX, /* s = 2^(-8 (h + 1) / H) times (1 - l / (L - 1 + 1e-5) + 1e-5) */
    SLOPE_RETNET   /* lambda = 1 - 2^(-5 - h) */
};
double prog_slope(enum slope_id id, int64_t h, int64_t H, int64_t l, int64_t L);

struct program {
    int n_values, n_ops, n_weights;
    struct value value[PROG_VALUES];
    struct op op[PROG_OPS];
    struct weight weight[PROG_WEIGHTS]; /* weights in the order of the flat layout */
    int64_t weights_size;               /* number of elements, a multiple of 16 */
    /* number of elements of the trained weights, which come first; a multiple of 16 */
    int64_t trained_size;
    bool partial;     /* set if prog_freeze() has frozen some weights of the model */
    bool tied_frozen; /* set if the embedding (PROG_TIED) is frozen */
    bool has_input;   /* value PROG_X is the residual stream; true except in `in` */
    int result;       /* index of the section's output; PROG_NONE in `out` */
    /* Indices of the values that section `in` shares. Their order is the same in every section. If
     * the section does not read a shared value, the index is PROG_NONE. */
    int shared[PROG_SHARED], n_shared;
    /* prefix of the names of weights; a layer's prefix has one %d: "model.layers.%d." */
    const char *prefix;
    int layer_base, layer_step; /* the %d of layer l is replaced by layer_base + l / layer_step */
};

/* ---- writing one down (program.c) ------------------------------------------------------------ */

/* Starts an empty section. prefix must be a string literal. */
void prog_init(struct program *p, const char *prefix);
/* Adds the residual stream, with `width` columns, as value PROG_X. Every section except `in` does
 * this first. */
int prog_input(struct program *p, int64_t width);
/* Add a weight or a value, and return its index. They check only by assertions that nothing
 * overflows and that shapes fit, because families are code and not input. prog_weight sets offset.
 * prog_value sets view_of and view_col. */
int prog_weight(struct program *p, const struct weight *w);
/* Returns the number of elements of a weight. */
int64_t prog_count(const struct weight *w);
/* Returns the element at which a weight that follows w may begin. */
int64_t prog_end(const struct weight *w);
/* Both functions add a weight from its main fields. prog_joined leaves no gap between the previous
 * weight and the new weight. */
int prog_tensor(struct program *p, const char *name, int64_t rows, int64_t cols, enum init_id init);
int prog_joined(struct program *p, const char *name, int64_t rows, int64_t cols, enum init_id init);
int prog_value(struct program *p, const struct value *v);
int prog_view(struct program *p, int of, int64_t col, int64_t cols);
/* Adds the operation `op` and its output out[0], which the parameter `out` describes. Returns the
 * index of out[0]. If the kind has out[1] and out[2], they are added automatically. The list
 * OPERATORS says how many inputs an operation has. Further inputs may be 0 or PROG_NONE. An
 * optional input that is not used (LINEAR's base, MIX's b) must be PROG_NONE. The name of a value
 * is for the plan and need not be unique. For losses, `out` is NULL. */
int prog_op(struct program *p, const struct op *op, const struct value *out);
/* Adds a value that section `in` shares. The value is found by its name in `in`. */
int prog_shared(struct program *p, const struct program *in, const char *name);

/* ---- freezing (freeze.c) --------------------------------------------------------------------- */

/* The weights that prog_freeze freezes. prog_freeze places all frozen weights after the trained
 * weights. */
struct program_freeze {
    const uint64_t *frozen; /* [FREEZE_WORDS] a bit for each weight */
    /* An earlier section has trained weights. If this is false, the gradient of the section's
     * input is not needed. */
    bool input;
    /* section `in`, which prog_freeze has already changed; NULL if p is section `in` */
    const struct program *in;
    bool tied; /* the embedding is also the weight of the head */
};
void prog_freeze(struct program *p, const struct program_freeze *z);
/* Copies a program, but not the unused room for weights. */
void prog_copy(struct program *to, const struct program *from);
/* Tells whether at least one of the weights [first, first + n) is trained. */
bool prog_learns(const struct program *p, int first, int n);

/* ---- reading one ----------------------------------------------------------------------------- */

/* Returns the value that owns the memory of `value`. For a view, this is the value of which it is
 * a window. Otherwise it is the value itself. */
int prog_base(const struct program *p, int value);
/* Returns the operation that writes the value. Returns PROG_NONE for the input and for a shared
 * value. */
int prog_writer(const struct program *p, int value);
/* Tells whether the value's gradient is fp32 for every precision of the model. The gradient of a
 * part of a sum (rule `sums`) is not fp32. Otherwise the gradient is fp32 in four cases. First, an
 * operation whose rule `spreads` writes the value. Second, the value itself is fp32. Third, all
 * rows read the value's rows (ROWS_TEXT, ROWS_COND, shared). Fourth, a product without a base
 * writes the value, and only an attention reads it, directly or after RoPE. In the fourth case the
 * gradient passes from the attention through RoPE to the product, and is not rounded. Every other
 * gradient has the model's precision. If an attention reads a value whose gradient has the model's
 * precision, it computes the fp32 gradient in scratch and then adds it. */
bool prog_grad_f32(const struct program *p, int value);

/* ---- weights in memory (store.c) ------------------------------------------------------------- */

/* Marks the weights that the products of a model's sections read as stored in blocks
 * (api/core/quant.h) or in panels (kernels/panels.h). These are the weights of LINEAR, of experts
 * and of the head. Weights of products that make gates of rows or of states are not marked. If the
 * embedding's table is also the weight of the head, it is stored like the head's weight. If that
 * is in blocks, the table is in blocks of 8 bits. `in` is section `in`, which has the table; p may
 * be the same program. */
void store_mark(struct program *p, struct program *in, enum weights_id format);
/* Returns the bytes of a section's weights. An element outside blocks has `unit` bytes. If `at` is
 * not NULL, writes the offset of each weight to at[]. If no weight is stored in blocks, the
 * offsets are those of the flat layout, in bytes. Otherwise each weight that is not joined begins
 * at a multiple of MEM_ALIGN. */
int64_t store_places(const struct program *p, int64_t unit, int64_t *at);
/* Returns the reason why weight i cannot be stored in blocks or panels, as the end of a sentence.
 * Returns NULL if it can be stored. Each row must consist of whole blocks. If a matrix is followed
 * by a second matrix without a gap, the first matrix must end with a whole panel. If a matrix is
 * used by halves, each half must end with a whole panel. room is memory for the text. */
const char *store_fault(const struct program *p, int i, char room[160]);

/* ---- the schedule (schedule.c) --------------------------------------------------------------- */

enum step_way {
    STEP_FORWARD,
    STEP_BACKWARD,
};
/* One run of an operation. A backward step computes the gradients of the operation's inputs and
 * weights. The gradient of its output must be complete. */
struct step {
    enum step_way kind;
    int op;
    /* backward: the gradient of the input is written; if false, the step adds to it */
    bool first[OP_INS];
    bool wanted[OP_INS]; /* backward: the input has a gradient */
    /* Backward: the input whose gradient has the same memory as the gradient of the output, or
     * PROG_NONE if no input has this property. Some of these gradients are equal to the gradient
     * of the output. These are the gradients of the base of LINEAR, SCATTER, GATE and ROW_GATE, of
     * an input of MIX with factor 1, and of the value to which embeddings or positions are added.
     * Other gradients are computed in place (ROPE, ACT). */
    int alias;
    /* piece is set if the step runs on a piece of the rows. If it is set in one step of a dense
     * MLP, it is set in all of them. In the first of these steps, n_piece is their number. All of
     * them run on one piece before the next piece begins. */
    bool piece;
    int n_piece;
};
#define PROG_STEPS (3 * PROG_OPS)
/* The steps of a section. In a training, the forward of `out`, including the loss, is part of its
 * backward list. The reason is that the backward step of the loss computes both the loss and its
 * gradient, so it is not computed twice. The forward list of `out` is for callers that need only
 * the loss or the logits. `first` is never set for gradients of shared values, because these are
 * cleared before a backward pass and summed over all sections. If a step of the backward list
 * computes an operation again that passes states between ranks, no exchange is needed, because the
 * states were kept. */
struct schedule {
    int n_forward, n_backward;
    /* set if only one piece of the rows of the value, and of its gradient, exists at a time */
    bool piece[PROG_VALUES];
    struct step forward[PROG_OPS]; /* the forward pass; inference has no other list */
    /* from the gradient of result to the gradient of PROG_X, with steps that compute values
     * again */
    struct step backward[PROG_STEPS];
};
/* The choices that decide which values are kept. If `pieces` is set, the dense MLPs of layers keep
 * only their input. They run on one piece of the rows at a time, in forward and in backward. Only
 * trainings use this. */
struct schedule_mode {
    bool train, pieces;
    enum recompute_id recompute;
};
void schedule_make(const struct program *p, const struct schedule_mode *mode, struct schedule *s);
/* Sets flows[v] to whether a gradient passes back through value v, for all n_values values. */
void schedule_flows(const struct program *p, bool *flows);

#endif
