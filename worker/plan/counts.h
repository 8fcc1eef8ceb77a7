/* counts.h: computes the messages and bytes of a rank from the algorithm, for a step, a proof, an
 * evaluation and every other part of a job. A rank's ledger must have these numbers. */
#ifndef SEQD_PLAN_COUNTS_H
#define SEQD_PLAN_COUNTS_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/model_shape.h"
#include "api/core/rank.h"

struct plan;
struct reach_map;
struct shard;

/* Computes the traffic of rank `rank` in a step (see plan_make), from the algorithm. With
 * parallel.zero 1 to 3 it differs between ranks whose shards differ. */
void plan_comm(const struct model_shape *m, const struct plan *p, int rank,
               struct comm_count out[PURPOSE_N]);

/* Corrects `out`, the traffic of any number of sequences, for one sequence whose documents are
 * known. The map of the documents decides how much is sent. sh is this rank's shard of that
 * sequence. */
void plan_met_comm(const struct model_shape *m, const struct plan *p, const struct shard *sh,
                   const struct reach_map *map, struct comm_count out[PURPOSE_N]);

/* Does the same as plan_met_comm, for a forward pass of the sequence without a backward pass. */
void plan_met_forward(const struct model_shape *m, const struct plan *p, const struct shard *sh,
                      const struct reach_map *map, struct comm_count out[PURPOSE_N]);

/* The traffic of rank `rank` while the references of answers are computed
 * (worker/train/prefer_reference.h). A sample counts as one pair (plan_met_pairs). */
struct plan_reference {
    /* S: number of tokens of a sample; n_samples: number of samples of all rings; n_documents:
     * number of references that are shared */
    int64_t S, n_samples, n_documents;
};
int plan_reference_comm(const struct model_shape *m, const struct plan *p, int rank,
                        const struct plan_reference *x, struct comm_count out[PURPOSE_N],
                        struct err *e);

/* Corrects `out`, the traffic of any number of sequences, for one sequence that has n pairs.
 * Without correction a sequence counts as one pair. `out` is of a rank that has the head. */
#define PLAN_PAIRS_AT_ONCE 256 /* largest number of pairs whose sums one message has */
void plan_met_pairs(const struct plan *p, int64_t n, struct comm_count out[PURPOSE_N]);

/* Corrects `out` for a sample whose grid is known (diffusion): replaces one pass over the plan's
 * grid by one pass over `grid`. grid is the number of patches of a frame, and the number of
 * frames. */
struct plan_pass {
    int64_t grid[2];
    bool forward; /* the pass has no backward */
};
void plan_grid_comm(const struct model_shape *m, const struct plan *p, int rank,
                    const struct plan_pass *x, struct comm_count out[PURPOSE_N]);

/* Adds to *out the traffic that only the weights cause in n forward passes with zero 3. */
void plan_fetch_comm(const struct plan *p, int rank, int64_t n, struct comm_count *out);

/* Computes the traffic of a training's proof before its first step, which is p->micro_batches
 * forward and backward passes whose gradients all ranks of a stage get. */
void plan_verify_comm(const struct model_shape *m, const struct plan *p, int rank,
                      struct comm_count out[PURPOSE_N]);

/* Returns the traffic of each rank in one pass that decodes the next token of n sequences (all
 * layers). */
struct comm_count plan_decode_comm(const struct model_shape *m, int n_ranks, int64_t n);

/* The traffic of the layers of rank `rank` in n_passes forward passes, each over S tokens. */
struct plan_forward {
    int64_t S, n_passes;
};
int plan_forward_comm(const struct model_shape *m, const struct plan *p, int rank,
                      const struct plan_forward *x, struct comm_count out[PURPOSE_N],
                      struct err *e);

/* The traffic of rank `rank` in a held-out evaluation inside a training. Ring d runs windows d, d
 * + dp, ... forward, and sums their losses over its ranks. Then all ranks sum over rings, and
 * check that they have the same counts. With zero 3, all ranks fetch the weights of one forward
 * pass in each round. With pairs, a window counts as one pair (plan_met_pairs). */
struct plan_eval {
    /* S: number of tokens of a window; n_windows: number of windows of all rings */
    int64_t S, n_windows;
};
int plan_eval_comm(const struct model_shape *m, const struct plan *p, int rank,
                   const struct plan_eval *v, struct comm_count out[PURPOSE_N], struct err *e);

#endif
