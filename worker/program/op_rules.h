/* op_rules.h: one row per operator of a program (program.h), which describes everything about the
 * operator except how to run it. A second table, op_table[] (worker/model/op.h), runs it. Both
 * tables are made from the list OPERATORS: an operator is a line of that list, its row in a
 * worker/program/rule_*.c, its execution in a worker/model/op_*.c, and its kernels.
 *
 * A row must name its scratch and its moves, even when it has none: tests/engine/test_program.c
 * fails if a row leaves one out. Pure data and arithmetic: seqd links it. */
#ifndef SEQD_PROGRAM_OP_RULES_H
#define SEQD_PROGRAM_OP_RULES_H

#include "worker/program/program.h"

/* ---- values ---------------------------------------------------------------------------------- */

/* The values that the backward of an operation reads. */
enum op_reads {
    READS_NOTHING = 0,
    READS_A = 1, /* in[0] .. in[2] */
    READS_B = 2,
    READS_C = 4,
    READS_OUT = 8, /* out[0] .. out[2] */
    READS_SECOND = 16,
    READS_THIRD = 32
};

/* The data that generate keeps of the context for an operation. */
enum op_cache {
    CACHE_NOTHING = 1,
    CACHE_ROWS, /* keys and values of each token, as one row: in[1], where attention is causal */
    CACHE_STATE /* the state after the last token, which is out[1] of one sum chunk */
};

/* The data that an operation sends to other ranks. worker/plan/traffic_program.c counts it. */
enum op_moves {
    MOVES_NOTHING = 1,
    MOVES_KEYS,   /* keys and values of a sequence that is sharded, and the gradients of both */
    MOVES_STATES, /* one state of each head */
    MOVES_CARRY,  /* a state from each rank to the next (worker/sp/carry.h) */
    MOVES_MAP,    /* either as MOVES_CARRY, or maps of states to all ranks */
    MOVES_ROWS,   /* all rows, which are then sharded along another dimension */
    MOVES_HEADS,  /* all rows of the heads that go to other ranks */
    MOVES_PARTS,  /* rows between the ranks of tensor parallelism */
    MOVES_SPAN,   /* one fp32 number of each row, for a norm that spans tp ranks */
    MOVES_LOGITS, /* statistics of each rank's logits of a row, OP_LOGIT_STAT bytes */
    OP_MOVES_N
};

/* The rows from which a row of the output is computed, in a grid of space and time. A dimension
 * along which the operation sees other rows must be whole on the rank (spread.h). */
enum op_along {
    ALONG_NOTHING = 1, /* the same row, and values that every rank has whole */
    ALONG_DIM,         /* all rows along u.attn.dim; if that is -1, as ALONG_SEQUENCE */
    /* the same row of the batch, which is spread along dimension 0, or rows of the tp ranks */
    ALONG_BATCH,
    ALONG_SEQUENCE /* all rows; spread.c never meets such an operator */
};

/* ---- scratch --------------------------------------------------------------------------------- */

#define OP_LOGIT_STAT 24 /* bytes of struct xent_stat */
/* rows that are processed at a time when the matrix of a delta rule's map is made */
#define MAP_ROWS 512

/* Bytes that a step needs besides values and gradients. They are added up piece by piece, in the
 * order in which the operation's worker/model/op_*.c takes the pieces (rule.h has the functions
 * that add). */
struct op_ask {
    const struct program *p;
    const struct step *s;
    const struct op *op;
    const struct extent *x;
    int64_t total, staged; /* scratch; host memory, if the device has memory of its own */
};

/* The largest size of each kind of buffer that operations share. */
struct op_need {
    /* attention over the sequence: columns of a KV row, query heads, head size */
    int64_t kv, heads, head_dim;
    int64_t state, slopes; /* linear attention: elements of a state, heads */
    /* MOVES_CARRY and MOVES_MAP: elements of a state, of the matrices of a map, and of a state
     * with its map, which MOVES_MAP needs */
    int64_t carry, map, summary;
    int64_t switched; /* columns that an all-to-all moves */
    /* rotary embedding: columns that are rotated; patch: columns of a patch */
    int64_t rotary, patch;
    int64_t gradient; /* elements of the largest gradient that is summed in one piece */
    bool types, text; /* the batch has token types; the batch has a caption */
};

/* ---- work ------------------------------------------------------------------------------------ */

/* The surroundings of an operation on which the amount of its work depends. */
struct op_site {
    const struct program *p;
    const struct op *op;
    double rows[ROWS_N];      /* rows of the operation's values */
    double S, grid[2], vocab; /* sizes of the whole sequence */
    int sp;                   /* number of ranks of the sequence group */
    /* with MOVES_MAP: each rank makes its maps, so no rank waits for another */
    bool maps;
    bool back;
    bool no_dx, no_dw; /* backward computes no gradient of the first input, or of the weights */
};

/* A part of an operation's work that has a rate of its own (worker/plan/machine.h). */
enum op_term_id {
    TERM_PRODUCT,   /* a matrix product [rows, inner] x [inner, cols] */
    TERM_ATTENTION, /* softmax attention, counted for all ranks together */
    TERM_STATES,    /* linear attention and the gated delta rule */
    TERM_NORM,      /* elements of norms */
    TERM_POINT,     /* elements, one by one */
    TERM_ROTATE     /* sines and cosines */
};
struct op_term {
    enum op_term_id id;
    double n;                 /* number of multiply-adds, or of elements */
    double rows, inner, cols; /* sizes of a PRODUCT */
    double keys;              /* ATTENTION: number of keys that a row sees */
    double size;              /* ATTENTION, STATES: size of a head, on which the rate depends */
    /* ATTENTION over the sequence: ranks may have unequal parts of the work */
    bool uneven;
    /* STATES: ranks compute one after the other, unless they send maps of states */
    bool in_turn;
    bool beside; /* work that only the exchange causes, not the model */
    double slow; /* elements: factor by which the time exceeds that of the rate */
};
#define OP_TERMS 12
struct op_work {
    int n;
    struct op_term term[OP_TERMS];
};

/* ---- a row ----------------------------------------------------------------------------------- */

struct op_rule {
    const char *name;     /* how sentences name it: "the attention of model.layers.2" */
    int n_in, n_optional; /* count of inputs; the last n_optional inputs may be PROG_NONE */
    bool loss;            /* it is the last operation of section `out` and has no output */
    bool logits;          /* works on the logits' buffer */
    /* Asserts that the shapes fit. out is NULL for a loss. */
    void (*check)(const struct program *p, const struct op *op, const struct value *out);
    /* Describes out[1] and out[2], which the backward needs besides the result. Fills v[0] and
     * v[1], which hold fp32 values without a gradient on the rows of in[0], and returns how many
     * of them there are. NULL means that there are none. */
    int (*extra)(const struct program *p, const struct op *op, struct value v[2]);

    unsigned reads; /* backward: enum op_reads */
    /* further values that it reads, which depend on its parameters; NULL if none do */
    unsigned (*reads_too)(const struct op *op);
    /* the values that backward reads only to compute the gradient of its weights */
    unsigned reads_to_learn;
    bool reads_weights; /* backward reads the weights themselves */
    /* backward computes one product for the gradient of in[0] and one for that of the weights */
    bool operands;
    /* bits of the inputs whose gradients backward computes even if they are not wanted */
    unsigned joint;
    /* computes gradients in fp32 of values that no other operation reads (prog_grad_f32) */
    bool attends;
    bool rotates;    /* applies its inverse to the output's gradient in place, which may be fp32 */
    bool multiplies; /* accepts an fp32 gradient, unless it has a base */
    bool spreads;    /* each reader of its output adds a part of a gradient, in fp32 */
    /* in[0] is a part of a sum; its gradient is that of the sum, which is rounded */
    bool sums;
    bool in_mlp; /* may stand between the two products of a dense MLP (prog_is_mlp) */

    unsigned over; /* bits of the inputs over which out[0] may be written */
    /* Returns the input whose gradient equals the output's or may be computed over it, or
     * PROG_NONE. NULL means that there is never such an input. */
    int (*alias)(const struct op *op);
    /* the backward writes the gradients of in[0] and in[1] over these inputs */
    bool over_inputs;

    void (*scratch)(struct op_ask *a);
    /* Raises the sizes of the shared buffers that the operation needs, except the room for its
     * weights' gradients. */
    void (*need)(const struct program *p, const struct op *op, struct op_need *n);
    /* Returns the elements of the largest gradient that is summed in one piece. NULL means the
     * gradient of all weights of the operation. */
    int64_t (*gradient)(const struct program *p, const struct op *op);

    enum op_cache cache;
    enum op_moves moves;
    enum op_along along;
    void (*work)(const struct op_site *s, struct op_work *out);
};

/* The rules, by enum op_kind. */
extern const struct op_rule *const op_rules[OP_KIND_N];
#define OP_RULE(kind, name) extern const struct op_rule rule_##name;
OPERATORS(OP_RULE)
#undef OP_RULE

/* ---- asked of a row -------------------------------------------------------------------------- */

/* Returns the values that the backward of an operation reads, as bits of enum op_reads. */
unsigned op_reads_back(const struct program *p, const struct op *op);
/* Tells whether out[1] is kept under every mode, so that a step that computes the operation again
 * still finds it. */
bool op_finds_kept(const struct program *p, const struct op *op);

/* Returns the bytes of scratch that a step takes, each piece rounded up to 64. If pieces depend on
 * the batch, this is an upper bound. In 16 bits the forward of ATTENTION over a sequence keeps
 * sp_buffers.o, of T * H * D * 4 bytes, in the scratch, after the key ranges of a window. */
int64_t op_scratch(const struct program *p, const struct step *s, const struct extent *x);
/* Returns the bytes of host memory that a step takes if the device has memory of its own. They are
 * for data that the host computes for the operation or reads from its results. */
int64_t op_stage(const struct program *p, const struct step *s, const struct extent *x);
/* Returns the number of fp32 lines that are computed at a time. It is at most `rows`, and the
 * lines take at most 64 KiB, unless a single line is longer. */
int64_t rule_stage_lines(int64_t rows, int64_t cols);

/* Raises each member of *n to at least the needs of the operation. */
void op_needs(const struct program *p, const struct op *op, struct op_need *n);

void op_work(const struct op_site *s, struct op_work *out);
/* Returns the multiply-adds of an operation's forward pass. */
double op_products(const struct op_site *s);

#endif
