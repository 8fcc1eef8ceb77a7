/* strategy.h: the rules, buffers and traffic of each strategy: one row each, in a file of its own,
 * strategy_NAME.c: pure arithmetic, for seqd's answers and for the ranks' placement and ledger.
 * api/core/strategy.h has the list; the code that a strategy runs is a row as well
 * (worker/sp/sp.h).
 *
 * A new strategy: its line in the list, its word in api/openapi.yaml, strategy_NAME.c here, NAME.c
 * in worker/sp, a test. No other file names it. */
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

/* Softmax attention over the sequence, in one layer and one direction. */
struct attention_pass {
    const struct shard *sh;      /* the shard of the rank that counts; P > 1 */
    const struct reach_map *map; /* keys that each segment sees; NULL: all, the most possible */
    int64_t H, Hk, D;
    enum precision_id precision;
    bool back;
};

/* A form: one way to compute attention over the sequence. NULL functions: no buffer is needed, no
 * byte is sent. */
struct strategy_form {
    const char *what; /* verb phrase of a plan's reason: the ranks "pass states" */
    /* Softmax over whole rows of scores, as published. It keeps [H, T, P*T] fp32 of a layer, needs
     * a model in fp32, and sums in no fixed order. */
    bool published;
    int grid_way; /* enum grid_way; for SPLITS_GRID */
    void (*need)(const struct attention_shape *s, struct attention_need *out); /* *out is zero */
    void (*traffic)(const struct attention_pass *a, struct comm_count out[PURPOSE_N]); /* adds */
};

/* The sequences that a strategy splits, by the layers of a family. */
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
    bool states;          /* passes states: parallel.exchange says how */
    bool over_ranks;      /* on one rank it is "local" */
    bool ranges;          /* ranks share heads; each gathers the key ranges of all their rows */
    bool rings;           /* ranks that share heads are groups in a ring: parallel.ulysses */
    bool zigzag;          /* causal attention gets the zigzag layout */
    const char *in_order; /* why a plan's layout is contiguous; NULL: because it was asked for */
    bool splits_model;    /* a word of old jobs: their tensor parallelism is parallel.tp */
    /* Checks a job on more than one rank; fails with the field and the way out. NULL: no more rules
     * than its family's. */
    int (*check)(const struct job_spec *s, struct err *e);
    /* Returns the ratio of the slowest rank's time of attention to the mean, for H heads; u:
     * struct plan's ulysses. NULL: 1. */
    double (*imbalance)(int64_t H, int sp, int u, bool causal, enum layout_id layout);
};

/* Returns the row of a strategy. NULL: STRATEGY_AUTO, or no strategy. */
const struct strategy_row *strategy_row(int32_t id);
/* Returns a word such as "rsa". */
const char *strategy_word(int32_t id);
/* Returns the form if the strategy has it, else its default. */
enum form_id strategy_form_id(int32_t id, int32_t form);
const struct strategy_form *strategy_form(int32_t id, int32_t form);
/* Tells whether the strategy has more than one form. */
bool strategy_has_forms(int32_t id);

/* Returns the kind of sequences that a family has: never SPLITS_ANY. */
enum splits_id strategy_splits(const struct family_row *f);
bool strategy_fits(int32_t id, const struct family_row *f); /* STRATEGY_AUTO: yes */
/* Tells whether the zigzag layout fits a family: it balances causal softmax attention alone.
 * States pass from rank to rank in the order of the sequence. */
bool strategy_zigzag_fits(const struct family_row *f);
/* Returns the value of "auto" if no machine is known by which to weigh strategies (choice.h). */
enum strategy_id strategy_default(const struct model_shape *m, int sp);
/* Returns the layout that "auto" gets. rings: ranks of the ring that a sequence passes round: sp
 * or, with groups (usp), sp / ulysses. */
enum layout_id strategy_layout(const struct model_shape *m, int32_t id, int rings, bool rank_bits);
/* Returns how many ranks share heads: sp under ulysses, a group under usp, else 1. asked:
 * parallel.ulysses of usp; 0 is the largest divisor of sp that divides the KV heads. */
int strategy_group(const struct model_shape *m, int32_t id, int sp, int asked);
/* Tells whether sp ranks may run strategy id with that layout: family_check() refuses the rest, and
 * later callers ask again. */
bool strategy_takes(const struct model_shape *m, int32_t id, enum layout_id layout, int sp);

/* The blockwise ring, which softmax layers of a hybrid take as well (strategy_rsa.c). */
void strategy_ring_need(const struct attention_shape *s, struct attention_need *out);
void strategy_ring_traffic(const struct attention_pass *a, struct comm_count out[PURPOSE_N]);
double strategy_ring_imbalance(int64_t H, int sp, int u, bool causal, enum layout_id layout);

#endif
