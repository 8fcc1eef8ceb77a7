/* strategy.h: the rules, buffers and traffic of each strategy. Each has one row, in its own file
 * strategy_NAME.c. The rows are pure arithmetic, which seqd uses for its answers and the ranks for
 * placing buffers and checking the ledger. api/core/strategy.h has the list of strategies; the
 * code that a strategy runs is in a row of worker/sp/sp.h.
 *
 * A new strategy needs a line in the list, its word in api/openapi.yaml, a strategy_NAME.c in this
 * folder, a NAME.c in worker/sp, and a test. No other file names it. */
#ifndef SEQD_PLAN_STRATEGY_H
#define SEQD_PLAN_STRATEGY_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/choices.h"
#include "api/core/model_shape.h"
#include "api/core/rank.h"
#include "worker/family/family.h"
#include "worker/plan/attention.h"
#include "worker/plan/reach.h"
#include "worker/plan/shard.h"

struct job_spec;

/* One pass of softmax attention over the sequence, in one layer and one direction. */
struct attention_pass {
    const struct shard *sh; /* the shard of the rank whose traffic is counted; P > 1 */
    /* keys that each segment sees; NULL means that it may see every key */
    const struct reach_map *map;
    int64_t H, Hk, D;
    enum precision_id precision;
    bool back;
};

/* A form, which is one way to compute attention over the sequence. If a function is NULL, no
 * buffer is needed, or no byte is sent. */
struct strategy_form {
    /* verb phrase for a plan's reason, such as "pass states", after "the ranks" */
    const char *what;
    /* It computes the softmax over whole rows of scores, as published. It keeps [H, T, P*T] fp32
     * of a layer, needs a model in fp32, and sums in no fixed order. */
    bool published;
    int grid_way; /* enum grid_way; for SPLITS_GRID */
    void (*need)(const struct attention_shape *s, struct attention_need *out); /* *out is zero */
    void (*traffic)(const struct attention_pass *a, struct comm_count out[PURPOSE_N]); /* adds */
};

/* The kind of sequences that a strategy splits, by the layers of a family. */
enum splits_id {
    SPLITS_ANY,     /* one rank: no split */
    SPLITS_SOFTMAX, /* sequences whose layers all have softmax attention */
    SPLITS_LINEAR,  /* sequences with layers of linear attention */
    SPLITS_GRID,    /* sequences of space and time: diffusion */
};

struct strategy_row {
    enum splits_id splits;
    const struct strategy_form *form[FORM_N]; /* [first_form]: the default, always there */
    enum form_id first_form;
    bool states;     /* passes states: parallel.exchange says how */
    bool over_ranks; /* is replaced by "local" on one rank */
    /* ranks share heads, and each gathers the key ranges of all rows of these ranks */
    bool ranges;
    bool rings;  /* the ranks that share heads are groups in a ring (parallel.ulysses) */
    bool zigzag; /* causal attention is given the zigzag layout */
    /* why a plan's layout is contiguous; NULL if the reason is that it was asked for */
    const char *in_order;
    bool splits_model; /* a word of old jobs, whose tensor parallelism is now parallel.tp */
    /* Checks a job on more than one rank. If it fails, the error names the field and what to do.
     * NULL if the strategy has no rules besides its family's. */
    int (*check)(const struct job_spec *s, struct err *e);
    /* Returns the ratio of the slowest rank's time of attention to the mean time, for H heads; u
     * is ulysses of struct plan. NULL if the ratio is 1. */
    double (*imbalance)(int64_t H, int sp, int u, bool causal, enum layout_id layout);
};

/* Returns the row of a strategy, or NULL for STRATEGY_AUTO and for an id that is not a
 * strategy. */
const struct strategy_row *strategy_row(int32_t id);
/* Returns the word of a strategy, such as "rsa". */
const char *strategy_word(int32_t id);
/* Returns the form if the strategy has it, else the strategy's default form. */
enum form_id strategy_form_id(int32_t id, int32_t form);
const struct strategy_form *strategy_form(int32_t id, int32_t form);
/* Tells whether the strategy has more than one form. */
bool strategy_has_forms(int32_t id);

/* Returns the kind of sequences that a family has, which is never SPLITS_ANY. */
enum splits_id strategy_splits(const struct family_row *f);
bool strategy_fits(int32_t id, const struct family_row *f); /* STRATEGY_AUTO: yes */
/* Tells whether the zigzag layout fits a family. It balances only causal softmax attention; states
 * pass from rank to rank in the order of the sequence. */
bool strategy_zigzag_fits(const struct family_row *f);
/* Returns the value of "auto" if no machine is known with which to weigh strategies (choice.h). */
enum strategy_id strategy_default(const struct model_shape *m, int sp);
/* Returns the layout that "auto" means. rings is the number of ranks of the ring round which a
 * sequence passes. It is sp; with groups (usp) it is sp / ulysses. */
enum layout_id strategy_layout(const struct model_shape *m, int32_t id, int rings, bool rank_bits);
/* Returns how many ranks share heads: sp with ulysses, a group with usp, otherwise 1. asked is
 * parallel.ulysses of usp, where 0 means the largest divisor of sp that divides the KV heads. */
int strategy_group(const struct model_shape *m, int32_t id, int sp, int asked);
/* Tells whether sp ranks may run strategy id with that layout. family_check() refuses all other
 * combinations, and later callers ask again. */
bool strategy_takes(const struct model_shape *m, int32_t id, enum layout_id layout, int sp);

/* Compute the needs and the traffic of the blockwise ring. The softmax layers of a hybrid model
 * use these functions as well (strategy_rsa.c). */
void strategy_ring_need(const struct attention_shape *s, struct attention_need *out);
void strategy_ring_traffic(const struct attention_pass *a, struct comm_count out[PURPOSE_N]);
double strategy_ring_imbalance(int64_t H, int sp, int u, bool causal, enum layout_id layout);

#endif
