/* strategy.h: the rules, buffers and traffic of each strategy. Each strategy has one row, in a
 * file strategy_NAME.c. The rows are pure arithmetic. seqd uses them for its answers. The ranks
 * use them to place buffers and to check the ledger. The list of strategies is in
 * api/core/strategy.h. The code of a strategy is in a row of worker/sp/sp.h.
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
    /* keys that each segment sees; NULL means that each segment may see every key */
    const struct reach_map *map;
    int64_t H, Hk, D;
    enum precision_id precision;
    bool back;
};

/* A form, which is one way to compute attention over the sequence. If `need` is NULL, no buffer is
 * needed. If `traffic` is NULL, no byte is sent. */
struct strategy_form {
    /* verb phrase for a plan's reason, such as "pass states"; its subject is "the ranks" */
    const char *what;
    /* The form computes the softmax over whole rows of scores, as published. It keeps fp32 [H, T,
     * P*T] of a layer, needs a model in fp32, and sums in no fixed order. */
    bool published;
    int grid_way; /* enum grid_way, for SPLITS_GRID */
    void (*need)(const struct attention_shape *s, struct attention_need *out); /* *out is zero */
    void (*traffic)(const struct attention_pass *a, struct comm_count out[PURPOSE_N]); /* adds */
};

/* The kind of sequences that a strategy splits. It depends on the layers of a family. */
enum splits_id {
    SPLITS_ANY,     /* one rank, so nothing is split */
    SPLITS_SOFTMAX, /* sequences whose layers all have softmax attention */
    SPLITS_LINEAR,  /* sequences with layers of linear attention */
    SPLITS_GRID,    /* sequences of space and time (diffusion) */
};

struct strategy_row {
    enum splits_id splits;
    /* [first_form] is the default form, which always exists */
    const struct strategy_form *form[FORM_N];
    enum form_id first_form;
    bool states;     /* ranks pass states; parallel.exchange says how */
    bool over_ranks; /* on one rank, "local" is used instead */
    /* each rank gathers the ranges of keys of the rows of all ranks that share heads with it */
    bool ranges;
    bool rings;  /* the ranks that share heads are groups in a ring (parallel.ulysses) */
    bool zigzag; /* causal attention gets the zigzag layout */
    /* reason why a plan's layout is contiguous; NULL if the job asked for it */
    const char *in_order;
    /* old jobs used this word for tensor parallelism, which is now parallel.tp */
    bool splits_model;
    /* Checks a job on more than one rank. If it fails, the error names the field and the remedy.
     * NULL if the strategy has no rules of its own. */
    int (*check)(const struct job_spec *s, struct err *e);
    /* Returns the time that attention of H heads takes on the slowest rank, divided by the mean
     * time of all ranks. u is ulysses of struct plan. NULL if the result is 1. */
    double (*imbalance)(int64_t H, int sp, int u, bool causal, enum layout_id layout);
};

/* Returns the row of a strategy. Returns NULL for STRATEGY_AUTO, and for an id that is not a
 * strategy. */
const struct strategy_row *strategy_row(int32_t id);
/* Returns the word of a strategy, such as "rsa". */
const char *strategy_word(int32_t id);
/* Returns `form` if the strategy has this form. Otherwise returns the strategy's default form. */
enum form_id strategy_form_id(int32_t id, int32_t form);
const struct strategy_form *strategy_form(int32_t id, int32_t form);
/* Tells whether the strategy has more than one form. */
bool strategy_has_forms(int32_t id);

/* Returns the kind of a family's sequences, which is never SPLITS_ANY. */
enum splits_id strategy_splits(const struct family_row *f);
bool strategy_fits(int32_t id, const struct family_row *f); /* STRATEGY_AUTO: yes */
/* Tells whether the zigzag layout fits a family. This layout balances only causal softmax
 * attention. It does not fit states, which pass from rank to rank in the order of the sequence. */
bool strategy_zigzag_fits(const struct family_row *f);
/* Returns the value of "auto" if no machine is known. With a known machine, strategies are weighed
 * instead (choice.h). */
enum strategy_id strategy_default(const struct model_shape *m, int sp);
/* Returns the layout that "auto" means. rings is the number of ranks of the ring round which keys
 * and values pass. It is sp; if there are groups (usp), it is sp / ulysses. */
enum layout_id strategy_layout(const struct model_shape *m, int32_t id, int rings, bool rank_bits);
/* Returns how many ranks share heads: sp for ulysses, the size of a group for usp, and 1
 * otherwise. asked is parallel.ulysses of usp, where 0 means the largest divisor of sp that
 * divides the KV heads. */
int strategy_group(const struct model_shape *m, int32_t id, int sp, int asked);
/* Tells whether sp ranks may run strategy id with this layout. family_check() refuses all other
 * combinations. Later code asserts this. */
bool strategy_takes(const struct model_shape *m, int32_t id, enum layout_id layout, int sp);

/* Compute the buffers and the traffic of the blockwise ring. The softmax layers of a hybrid model
 * use these functions as well (strategy_rsa.c). */
void strategy_ring_need(const struct attention_shape *s, struct attention_need *out);
void strategy_ring_traffic(const struct attention_pass *a, struct comm_count out[PURPOSE_N]);
double strategy_ring_imbalance(int64_t H, int sp, int u, bool causal, enum layout_id layout);

#endif
