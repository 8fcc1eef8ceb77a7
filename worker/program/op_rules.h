/* op_rules.h: one row per operator of a program (program.h): all that can be said of it without
 * running it. Beside it stands op_table[] (worker/model/op.h), which runs it. Both are made from
 * the list OPERATORS: an operator is a line of that list, its row in a worker/program/rule_*.c, its
 * execution in a worker/model/op_*.c, and its kernels.
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

/* The data of the context that generate keeps for an operation. */
enum op_cache {
    CACHE_NOTHING = 1,
    CACHE_ROWS, /* in[1], a row of keys and values for each token, where attention is causal */
    CACHE_STATE /* the state after the last token: out[1] of one sum chunk */
};

/* The data that an operation sends to other ranks: worker/plan/traffic_program.c counts them. */
enum op_moves {
    MOVES_NOTHING = 1,
    MOVES_KEYS,   /* keys and values of a sequence that is sharded, and their gradients */
    MOVES_STATES, /* one state of each head */
    MOVES_CARRY,  /* a state from each rank to the next (worker/sp/carry.h) */
    MOVES_MAP,    /* as MOVES_CARRY, or maps of states to all ranks */
    MOVES_ROWS,   /* all rows, which are sharded along another dimension afterwards */
    MOVES_HEADS,  /* all rows of the heads that go to other ranks */
    MOVES_PARTS,  /* rows between the ranks of tensor parallelism */
    MOVES_SPAN,   /* a number of each row, fp32, of a norm that spans tp ranks */
    MOVES_LOGITS, /* statistics of each rank's logits of a row: OP_LOGIT_STAT bytes */
    OP_MOVES_N
};

/* The rows that a row of the output is computed from, where rows are those of a grid of space and
 * time: a dimension along which it sees other rows must be whole on the rank (spread.h). */
enum op_along {
    ALONG_NOTHING = 1, /* from the same row, and from values that every rank has whole */
    ALONG_DIM,         /* from all rows along u.attn.dim; -1: ALONG_SEQUENCE */
    ALONG_BATCH,       /* from the same row of the batch, which is spread along dimension 0, or
                        * from rows of the tp ranks */
    ALONG_SEQUENCE     /* from all rows: spread.c never gets such an operator */
};

/* ---- scratch --------------------------------------------------------------------------------- */

#define OP_LOGIT_STAT 24  /* bytes of struct xent_stat */
#define MAP_ROWS      512 /* rows at a time in making the matrix of a delta rule's map */

/* Bytes of a step beside values and gradients, added up piece by piece in the order in which its
 * worker/model/op_*.c takes them (rule.h has the functions that add). */
struct op_ask {
    const struct program *p;
    const struct step *s;
    const struct op *op;
    const struct extent *x;
    int64_t total, staged; /* scratch; on the host, where the device has memory of its own */
};

/* The largest of each kind of buffer that operations share. */
struct op_need {
    int64_t kv, heads, head_dim; /* attention over the sequence: columns of a KV row, H, D */
    int64_t state, slopes;       /* linear attention: elements of a state, H */
    int64_t carry, map, summary; /* MOVES_CARRY, MOVES_MAP: elements of a state, of a map's
                                  * matrices, of both for MOVES_MAP */
    int64_t switched;            /* columns that an all-to-all moves */
    int64_t rotary, patch;       /* rotary: columns that are rotated; patch: columns of a patch */
    int64_t gradient;            /* elements of the largest gradient that is summed at once */
    bool types, text;            /* the batch has token types, a caption */
};

/* ---- work ------------------------------------------------------------------------------------ */

/* The surroundings of an operation that its work depends on. */
struct op_site {
    const struct program *p;
    const struct op *op;
    double rows[ROWS_N];      /* rows of the operation's values */
    double S, grid[2], vocab; /* sizes of the whole sequence */
    int sp;                   /* number of ranks of the sequence group */
    bool maps;                /* MOVES_MAP: each rank makes its maps, and none waits */
    bool back;
};

/* A part of an operation's work, at a rate of its own (worker/plan/machine.h). */
enum op_term_id {
    TERM_PRODUCT,   /* a matrix product [rows, inner] x [inner, cols] */
    TERM_ATTENTION, /* softmax attention, of all ranks together */
    TERM_STATES,    /* linear attention, the gated delta rule */
    TERM_NORM,      /* elements of norms */
    TERM_POINT,     /* elements, one by one */
    TERM_ROTATE     /* sines and cosines */
};
struct op_term {
    enum op_term_id id;
    double n;                 /* number of multiply-adds, or of elements */
    double rows, inner, cols; /* sizes of a PRODUCT */
    double keys;              /* ATTENTION: keys that a row sees */
    double size;              /* ATTENTION, STATES: size of a head, which the rate depends on */
    bool uneven;              /* ATTENTION over the sequence: ranks may have unequal parts of it */
    bool in_turn;             /* STATES: ranks take turns, unless maps of states pass */
    bool beside;              /* work of the exchange alone, not of the model */
    double slow;              /* elements: factor on the time that the rate gives */
};
#define OP_TERMS 12
struct op_work {
    int n;
    struct op_term term[OP_TERMS];
};

/* ---- a row ----------------------------------------------------------------------------------- */

struct op_rule {
    const char *name;     /* in sentences: "the attention of model.layers.2" */
    int n_in, n_optional; /* inputs; the last n_optional may be PROG_NONE */
    bool loss;            /* it is the last of section `out` and has no output */
    bool logits;          /* works on the logits' buffer */
    /* Asserts that shapes fit; out NULL: a loss. */
    void (*check)(const struct program *p, const struct op *op, const struct value *out);
    /* out[1] and out[2], which backward needs beside the result: fills v[0] and v[1], which hold
     * fp32 without a gradient on the rows of in[0], and returns how many there are. NULL: none. */
    int (*extra)(const struct program *p, const struct op *op, struct value v[2]);

    unsigned reads;                             /* backward: enum op_reads */
    unsigned (*reads_too)(const struct op *op); /* further values, by its parameters; NULL: none */
    bool reads_weights;                         /* backward reads the weights themselves */
    bool attends;    /* makes gradients in fp32 of values that it alone reads (prog_grad_f32) */
    bool rotates;    /* applies the inverse to the output's gradient in place, also in fp32 */
    bool multiplies; /* takes an fp32 gradient, unless it has a base */
    bool spreads;    /* each reader of its output gives it a part of a gradient, in fp32 */
    bool sums;       /* in[0] is a part of a sum: its gradient is the sum's, which is rounded */
    bool in_mlp;     /* may stand between the two products of a dense MLP (prog_is_mlp) */

    unsigned over;                     /* inputs, as bits, over which out[0] may be computed */
    int (*alias)(const struct op *op); /* the input whose gradient equals the output's, or may be
                                         * computed over it; PROG_NONE. NULL: none */
    bool over_inputs;                  /* backward writes the gradients of in[0], in[1] over them */

    void (*scratch)(struct op_ask *a);
    /* Raises the needs of shared buffers, beside the weights' gradients. */
    void (*need)(const struct program *p, const struct op *op, struct op_need *n);
    /* Elements of the largest gradient that is summed at once; NULL: that of all its weights. */
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

/* Returns the values that the backward of an operation reads: bits of enum op_reads. */
unsigned op_reads_back(const struct op *op);
/* Tells whether out[1] is kept under every mode: a step that computes again finds it. */
bool op_finds_kept(const struct program *p, const struct op *op);

/* Returns the bytes of scratch that a step takes, each piece rounded up to 64: a bound where
 * pieces depend on the batch. In 16 bits the forward of ATTENTION over a sequence keeps
 * sp_buffers.o there, T * H * D * 4 bytes, after the key ranges of a window. */
int64_t op_scratch(const struct program *p, const struct step *s, const struct extent *x);
/* Returns the bytes of host memory that a step takes where the device has memory of its own: data
 * that the host works out for the operation, or reads of it. */
int64_t op_stage(const struct program *p, const struct step *s, const struct extent *x);
/* Returns the number of fp32 lines that are computed at a time: at most `rows`, and 64 KiB of
 * lines or a single longer line. */
int64_t rule_stage_lines(int64_t rows, int64_t cols);

/* Raises *n to the needs of the operation. */
void op_needs(const struct program *p, const struct op *op, struct op_need *n);

void op_work(const struct op_site *s, struct op_work *out);
/* Returns the multiply-adds of an operation's forward pass. */
double op_products(const struct op_site *s);

#endif
