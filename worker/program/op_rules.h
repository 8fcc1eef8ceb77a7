/* op_rules.h: the table of rules, with one row for each operator of a program (program.h). The row
 * describes everything about the operator except how to run it. A second table, op_table[]
 * (worker/model/op.h), runs the operators. Both tables are made from the list OPERATORS. A new
 * operator needs a line in this list, a row in a worker/program/rule_*.c, functions in a
 * worker/model/op_*.c, and kernels.
 *
 * A row must name its scratch and its moves, even if an operation has neither;
 * tests/engine/test_program.c fails otherwise. Pure data and arithmetic, because seqd uses it. */
#ifndef SEQD_PROGRAM_OP_RULES_H
#define SEQD_PROGRAM_OP_RULES_H

#include "worker/program/placement.h"
#include "worker/program/program.h"

/* ---- values ---------------------------------------------------------------------------------- */

/* The values that an operation reads in backward. */
enum op_reads {
    READS_NOTHING = 0,
    READS_A = 1, /* in[0] .. in[2] */
    READS_B = 2,
    READS_C = 4,
    READS_OUT = 8, /* out[0] .. out[2] */
    READS_SECOND = 16,
    READS_THIRD = 32
};

/* The data of the context that generate keeps for an operation. */
enum op_cache {
    CACHE_NOTHING = 1,
    CACHE_ROWS, /* keys and values of each token, as one row; they are in[1] of causal attention */
    CACHE_STATE /* the state after the last token; it is out[1] of one sum chunk */
};

/* The data that an operation sends to other ranks. worker/plan/traffic_program.c counts it. */
enum op_moves {
    MOVES_NOTHING = 1,
    MOVES_KEYS,   /* keys and values of a sharded sequence, and their gradients */
    MOVES_STATES, /* one state of each head */
    MOVES_CARRY,  /* a state from each rank to the next (worker/sp/carry.h) */
    MOVES_MAP,    /* the same as MOVES_CARRY, or maps of states to all ranks */
    MOVES_ROWS,   /* all rows, which are sharded along the other dimension afterwards */
    MOVES_HEADS,  /* all rows of the heads that go to other ranks */
    MOVES_PARTS,  /* rows between the ranks of tensor parallelism */
    MOVES_SPAN,   /* one fp32 number for each row, for a norm over the columns of all tp ranks */
    MOVES_LOGITS, /* statistics of a rank's logits, OP_LOGIT_STAT bytes for each row */
    OP_MOVES_N
};

/* The rows that the operation reads for one row of the output, in a grid of space and time. If the
 * operation reads, along a dimension, rows that differ from the output's row, this dimension must
 * be whole on the rank (spread.h). */
enum op_along {
    /* the row with the output row's index, and values that every rank has whole */
    ALONG_NOTHING = 1,
    /* all rows along u.attn.dim; the same as ALONG_SEQUENCE if u.attn.dim is -1 */
    ALONG_DIM,
    /* The row of the batch with the output row's index; the batch is spread along dimension 0. Or
     * rows of the tp ranks. */
    ALONG_BATCH,
    ALONG_SEQUENCE /* all rows; a grid has no such operator */
};

/* ---- scratch --------------------------------------------------------------------------------- */

#define OP_LOGIT_STAT 32 /* bytes of struct xent_stat */
/* rows of an embedding that get their noise at a time */
#define NOISE_ROWS 64
/* rows that are processed at a time to compute the matrix of a delta rule's map */
#define MAP_ROWS 512

/* Bytes that a step needs besides values and gradients. They are added up piece by piece. The
 * order is that in which the operation's worker/model/op_*.c takes the pieces. The functions that
 * add are in rule.h. */
struct op_ask {
    const struct program *p;
    const struct step *s;
    const struct op *op;
    const struct extent *x;
    /* total: scratch; staged: host memory, if the device has memory of its own */
    int64_t total, staged;
};

/* The sizes of the buffers that operations share. Each is the largest size that an operation
 * needs. */
struct op_need {
    /* attention over the sequence: columns of a KV row, number of query heads, size of a head */
    int64_t kv, heads, head_dim;
    int64_t state, slopes; /* linear attention: elements of a state, and number of heads */
    /* Numbers of elements. MOVES_CARRY and MOVES_MAP need `carry`, which is a state. MOVES_MAP
     * also needs `map`, the matrices of a map, and `summary`, a state with its map. */
    int64_t carry, map, summary;
    int64_t switched; /* number of columns that an all-to-all moves */
    /* rotary: columns that the rotary embedding rotates; patch: columns of a patch */
    int64_t rotary, patch;
    int64_t gradient; /* number of elements of the largest gradient that is summed at once */
    bool types, text; /* types: the batch has token types; text: the batch has a caption */
};

/* ---- work ------------------------------------------------------------------------------------ */

/* The properties of an operation's surroundings that change the amount of its work. */
struct op_site {
    const struct program *p;
    const struct op *op;
    double rows[ROWS_N];      /* number of rows of values of each kind */
    double S, grid[2], vocab; /* sizes of the whole sequence */
    int sp;                   /* number of ranks of the sequence's ring */
    /* with MOVES_MAP: ranks pass maps, so no rank waits for another rank */
    bool maps;
    bool back;
    /* no_dx, no_dw: backward computes no gradient of the first input, or of the weights */
    bool no_dx, no_dw;
};

/* A kind of work that has its own rate (worker/plan/machine.h). */
enum op_term_id {
    TERM_PRODUCT,   /* a matrix product [rows, inner] x [inner, cols] */
    TERM_ATTENTION, /* softmax attention, for all ranks together */
    TERM_STATES,    /* linear attention and the gated delta rule */
    TERM_NORM,      /* elements of norms */
    TERM_POINT,     /* operations on single elements */
    TERM_ROTATE     /* sines and cosines */
};
struct op_term {
    enum op_term_id id;
    double n;                 /* number of multiply-adds, or of elements */
    double rows, inner, cols; /* sizes of a PRODUCT */
    double keys;              /* ATTENTION: number of keys that each row sees */
    double size;              /* ATTENTION, STATES: size of a head; the rate depends on it */
    /* ATTENTION over the sequence: ranks may have parts of different size */
    bool uneven;
    /* STATES: ranks compute one after the other, unless they pass maps of states */
    bool in_turn;
    bool beside; /* this work is needed for the exchange between ranks, and not for the model */
    /* for elements: factor by which the time exceeds the time that the machine's rate gives */
    double slow;
};
#define OP_TERMS 12
struct op_work {
    int n;
    struct op_term term[OP_TERMS];
};

/* ---- a row ----------------------------------------------------------------------------------- */

struct op_rule {
    /* name of the operation in sentences, as in "the attention of model.layers.2" */
    const char *name;
    int n_in, n_optional; /* number of inputs; the last n_optional of them may be PROG_NONE */
    /* the operation is the last operation of section `out` and has no output */
    bool loss;
    bool logits; /* uses the buffer of logits */
    /* Asserts that the shapes fit. out is NULL for a loss. */
    void (*check)(const struct program *p, const struct op *op, const struct value *out);
    /* Describes out[1] and out[2], which backward needs in addition to the result. Fills v[0] and
     * v[1], and returns how many of them exist. They hold fp32 values, have the rows of in[0], and
     * have no gradient. NULL means that the operation has neither. */
    int (*extra)(const struct program *p, const struct op *op, struct value v[2]);

    unsigned reads; /* backward: enum op_reads */
    /* further values that backward reads, depending on the parameters of op; NULL if there are
     * none */
    unsigned (*reads_too)(const struct op *op);
    /* further values, which backward reads only if it computes the gradient of the weights */
    unsigned reads_to_learn;
    bool reads_weights; /* backward reads the weights themselves */
    /* backward computes one product for the gradient of in[0], and one for the gradient of the
     * weights */
    bool operands;
    /* bits of the inputs whose gradients backward always computes, even if they are not needed */
    unsigned joint;
    /* computes fp32 gradients of values that no other operation reads (prog_grad_f32) */
    bool attends;
    /* in backward, rotates the output's gradient back in place; this gradient may be fp32 */
    bool rotates;
    bool multiplies; /* accepts an fp32 gradient of the output, unless it has a base */
    /* its output is in[0] and an addition to it, so the gradients of both have the same type */
    bool adapts;
    /* every operation that reads the output adds a part of its gradient, in fp32 */
    bool spreads;
    /* in[0] is a part of a sum over ranks; its gradient is the gradient of the sum, which is
     * rounded */
    bool sums;
    bool in_mlp; /* may be the operation between the two products of a dense MLP (prog_is_mlp) */

    unsigned over; /* bits of the inputs whose memory out[0] may overwrite */
    /* Returns the input whose gradient equals the output's gradient or may overwrite it. Returns
     * PROG_NONE if no input has this property. If alias is NULL, no input of this operator ever
     * has the property. */
    int (*alias)(const struct op *op);
    /* backward writes the gradients of in[0] and in[1] to the memory of in[0] and in[1] */
    bool over_inputs;

    void (*scratch)(struct op_ask *a);
    /* Increases the sizes in *n to the operation's needs. Room for the gradients of its weights is
     * not included. */
    void (*need)(const struct program *p, const struct op *op, struct op_need *n);
    /* Returns the number of elements of the largest gradient that is summed at once. NULL means
     * that it is the gradient of all weights of the operation. */
    int64_t (*gradient)(const struct program *p, const struct op *op);

    enum op_cache cache;
    enum op_moves moves;
    enum op_along along;
    void (*work)(const struct op_site *s, struct op_work *out);
};

/* The rows of the table, by enum op_kind. */
extern const struct op_rule *const op_rules[OP_KIND_N];
#define OP_RULE(kind, name) extern const struct op_rule rule_##name;
OPERATORS(OP_RULE)
#undef OP_RULE

/* ---- asked of a row -------------------------------------------------------------------------- */

/* Returns the values that an operation reads in backward, as bits of enum op_reads. */
unsigned op_reads_back(const struct program *p, const struct op *op);
/* Tells whether out[1] is kept in every mode. If a step computes the operation again, out[1] still
 * has its contents. */
bool op_finds_kept(const struct program *p, const struct op *op);

/* Returns the bytes of scratch that a step takes. Each piece is rounded up to 64. If the size of
 * pieces depends on the batch, the result is an upper bound. In 16 bits, the forward of ATTENTION
 * over a sequence has sp_buffers.o (T * H * D * 4 bytes) in the scratch, after the ranges of keys
 * of a window. */
int64_t op_scratch(const struct program *p, const struct step *s, const struct extent *x);
/* Returns the bytes of host memory that a step takes if the device has memory of its own. They
 * hold data that the host computes for the operation, or that the host reads from its results. */
int64_t op_stage(const struct program *p, const struct step *s, const struct extent *x);
/* Returns the number of fp32 lines that are computed at a time. It is at most `rows`. The lines
 * take at most 64 KiB, unless a single line is longer. */
int64_t rule_stage_lines(int64_t rows, int64_t cols);

/* Increases each member of *n to the needs of the operation, if they are larger. */
void op_needs(const struct program *p, const struct op *op, struct op_need *n);

void op_work(const struct op_site *s, struct op_work *out);
/* Returns the multiply-adds of an operation's forward pass. */
double op_products(const struct op_site *s);

#endif
