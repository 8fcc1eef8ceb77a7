/* placement.h: the places of a section's values, and of their gradients, in a rank's memory. */
#ifndef SEQD_PROGRAM_PLACEMENT_H
#define SEQD_PROGRAM_PLACEMENT_H

#include "worker/program/program.h"

/* The sizes that are needed to place the values of a rank's sections. */
struct extent {
    int64_t rows[ROWS_N];
    int64_t unit; /* bytes of an element that is not f32 */
    /* Number of sum chunks of a rank (worker/plan/shard.h). A state enters each chunk. Each chunk
     * has its own gradients of ROWS_TEXT and ROWS_COND values, [parts, rows], because the bits of
     * a sum over rows must not depend on the number of ranks. */
    int64_t parts;
    bool train;
    /* generate: number of rows of keys and values that attention keeps; otherwise 0 */
    int64_t cache_rows;
    /* number of sequences that have their own rows of keys and values, and number of sequences that
     * have their own state */
    int64_t n_caches, n_states;
    /* generate: number of rows of one sequence that an operation with a state computes at most in
     * one call after the prompt; a page with pages, otherwise 1 */
    int64_t state_rows;
    /* loss_chunk: rows of logits that are computed at a time, or 0 without logits; vocab: columns
     * of logits */
    int64_t loss_chunk, vocab;
    bool logits_apart; /* set if the logits are outside the workspace */
    int64_t mlp_chunk; /* largest number of rows of a piece; 0 if MLPs do not run in pieces */
    bool noise;        /* EMBED may add noise to its output */
    int64_t grid[2];   /* DSP: number of indices of space, and of time */
    int64_t attn_kept; /* bytes of a value for which `form` is set */
    int sp;            /* number of ranks of the sequence's ring */
    int tp;            /* number of ranks that share every layer */
    bool maps;         /* set if operations with MOVES_MAP pass their states by maps */
    /* number of ranks whose ranges of keys attention reads; 0 if it reads only its own rank's */
    int ranges;
};

enum place_where {
    PLACE_NONE, /* the value is never written, or there is no gradient */
    PLACE_KEPT, /* in the section's record, at an offset from its start */
    PLACE_WORK, /* in the workspace that all sections share */
    /* the residual stream that the section reads; for a gradient, the gradient of that stream */
    PLACE_INPUT,
    /* the residual stream that the section writes; for a gradient, the gradient of that stream */
    PLACE_RESULT,
    PLACE_SHARED, /* in shared value number `shared`, at an offset from its start */
    PLACE_CACHE   /* generate: in the section's cache record */
};
/* The place of a value. The place of a view is its window. Its rows are as far apart as the rows
 * of the value of which it is a window. */
struct place {
    enum place_where where;
    int shared; /* the index k in shared[k] of struct program */
    /* in bytes; size is for all rows, and for a view, for all rows of its base */
    int64_t offset, size;
};
/* The places of a section's values. At any time, no two places share bytes, with three exceptions.
 * An operation may compute a value in place. Gradients with `alias` share bytes. The backward of
 * GLU writes the gradients of a and b over a and b, which no later step reads. */
struct placement {
    struct place value[PROG_VALUES], grad[PROG_VALUES];
    /* offset in the workspace of each step's scratch, with the indices of the schedule's lists */
    int64_t scratch_forward[PROG_OPS], scratch_backward[PROG_STEPS];
    /* XENT: [loss_chunk, V] fp32 in the workspace, unless the logits are placed elsewhere. The
     * gradients of the logits use the same memory. */
    struct place logits;
    /* generate: the fp32 state after the context of a CACHE_STATE operation (out[1] of one chunk),
     * in the cache record. This is the place for the first sequence. The place of each further
     * sequence is placement_state_stride() bytes after the previous one. A causal ATTENTION has no
     * state; its keys and values are its input in[1]. */
    struct place state[PROG_OPS];
    bool in_place;      /* inference: the result overwrites the input, so there is one stream */
    bool grad_in_place; /* the gradients of the input and of the result use one buffer */
    int64_t kept_size;  /* bytes of the record of one layer */
    int64_t cache_size; /* bytes of the cache record of one layer */
    int64_t work_size;  /* bytes of workspace that this section needs */
};
/* Returns the number of rows of one sequence in a cache record, which is cache_rows - 1. After the
 * rows of all sequences, the record has one more row for each sequence. New keys and values are
 * computed in these rows. */
static inline int64_t cache_stride(const struct extent *x)
{
    return x->cache_rows - 1;
}
int64_t placement_state_stride(const struct place *state);
/* placement_state_count returns the number of elements of the state of operation `op` after a
 * context, or 0 if it has no state. placement_states_size returns the bytes of all states of a
 * program in fp32; each state is rounded up to MEM_ALIGN. */
int64_t placement_state_count(const struct program *p, int op);
int64_t placement_states_size(const struct program *p);
/* Returns the largest number of rows that a piece has in a value whose rows are of kind `rows`. */
int64_t op_extent_piece(const struct extent *x, enum rows_id rows);
void placement_make(const struct program *p, const struct schedule *s, const struct extent *x,
                    struct placement *out);

#endif
