/* plan.h: what a job will hold and send, before it runs: pure arithmetic.
 *
 * seqd links this to answer POST /v1/plan and to refuse what cannot fit; seqrank links the same code
 * to place its buffers: one arena and one comm segment per rank, allocated once, every buffer at
 * base + offset. So the plan is right to the byte by construction of the addresses, and tests check
 * it against the pages the process really touched.
 *
 * Communication formulas are written here from the algorithm (docs: README, "What is sent"), never
 * from the transport's counters, which are compared with them: ==. */
#ifndef SEQD_PLAN_PLAN_H
#define SEQD_PLAN_PLAN_H

#include "api/core/job.h"
#include "api/core/rank.h"
#include "worker/plan/shard.h"

/* Flat parameter layout: every tensor of the model by its transformers name, in a fixed order with
 * q|k|v and gate|up adjacent so that one matrix product serves them. Offsets in elements. */
struct param {
    char name[64]; /* "model.layers.3.self_attn.q_proj.weight" */
    int64_t rows, cols; /* cols 0: one-dimensional of `rows` */
    int64_t offset, count;
    bool decay;    /* weight decay applies (2-D tensors) */
};
int64_t param_count(const struct model_shape *m);   /* elements, every tensor start 16-aligned */
int param_list(const struct model_shape *m, struct param *out, int max); /* how many there are */

enum plan_class { PLAN_WEIGHTS, PLAN_GRADIENTS, PLAN_OPTIMIZER, PLAN_ACTIVATIONS, PLAN_WORKSPACE,
                  PLAN_RING, PLAN_CACHE, PLAN_DATA, PLAN_CLASS_N };

struct plan_item {
    const char *name;     /* "kv", "layer_input", ...; NULL: not used by this job */
    enum plan_class cls;
    bool in_segment;      /* offset is into the comm segment, else into the arena */
    int64_t offset, size; /* bytes; size of all instances */
    int64_t stride;       /* bytes from one layer's instance to the next; 0: one instance serves all */
};

#define PLAN_ITEMS 64

struct plan {
    int n_items;
    struct plan_item item[PLAN_ITEMS]; /* indexed by enum in plan.c's users: see plan_id below */
    int64_t arena_size, segment_size;  /* bytes per rank */
    int64_t T;                         /* rows per rank */
    int n_ranks, n_threads;
    enum strategy_id strategy;
    enum layout_id layout;
    enum recompute_id recompute;
    int64_t loss_chunk;                /* tokens */
    int64_t n_params;
    int64_t micro_batches;             /* per optimizer step */
    struct comm_count comm[PURPOSE_N]; /* per rank and optimizer step; every rank the same */
    double flops;                      /* per optimizer step, all ranks, causal counted once */
    char reason[256];                  /* why this strategy, layout and recompute */
};

/* spec must have passed job_check and have its model.shape. memory_limit: bytes per rank, 0 = none.
 * fails: ERR_DOES_NOT_FIT with the numbers and what would help; ERR_INVALID. */
int plan_make(const struct job_spec *spec, int64_t memory_limit, struct plan *p, struct err *e);

/* The plan as JSON: memory by class and by tensor, communication by purpose, flops, reason.
 * Returns the length or -1 if it does not fit. */
int64_t plan_json(const struct job_spec *spec, const struct plan *p, char *out, size_t size);

#endif
