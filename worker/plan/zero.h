/* zero.h: computes which part of the flat parameters each rank owns (ZeRO, 1910.02054). Pure
 * arithmetic.
 *
 * The flat layout (struct param) is divided into buckets, which are sent as a whole:
 *   0          section `in`: the embedding (and the head, where they are tied)
 *   1 .. L     a layer each, of a few kinds that differ in size
 *   L + 1      section `out`: the final norm, and the head unless it is tied
 * A bucket is divided into units, which are groups of whole rows of one tensor and do not depend
 * on the number of ranks; a tensor of one dimension is one row. Rank w of W owns consecutive units
 * of every bucket. Each border of a rank's range is at most one unit away from that of an even
 * share, and ranges may be empty. The gap after a tensor belongs to the owner of the unit before
 * the gap, so that the ranges together cover the bucket.
 *
 * The first elements of a bucket are those of its trained tensors; the rest are those of tensors
 * that train.freeze leaves unchanged. The rule above divides only the trained part, because only
 * trained tensors have gradients and state. A bucket's gradient has the layout of its trained
 * part. Under zero 3 the frozen part is divided into equal shares by a rule of its own, and a
 * rank's part of the weights is its trained elements followed by its frozen ones.
 *
 * Ranks may be in groups of W consecutive ranks (parallel.zero_group). Each group has all shards,
 * so rank g W + w owns the same parts as rank w. Gradients are summed within each group, and then
 * each part is summed over the ranks that own it, of which each group has one. If W is a power of
 * two, or there is one group, the order of these sums is that of the tree over all ranks.
 *
 * A stage of a pipeline (worker/plan/pipe.h) holds consecutive buckets. Elements are numbered in
 * every stage as in the flat layout of the whole model; zero_local() returns their place in a
 * stage. If the head is tied, the last of several stages borrows bucket 0, which is stored after
 * its own buckets. It has only the bucket's weights, divided as in the owner's stage, and none of
 * the bucket's state.
 *
 * A rank's parts of all buckets of its stage, one after another, are its shard. The optimizer
 * state is sharded under every zero except 0, the gradients under 2 and 3, and the weights under
 * 3. Memory is planned for the largest shard, so that all ranks of a stage have the same plan; the
 * bytes that are sent are those of the ranges themselves.
 *
 * The gradient norm is a float64 sum over units in order of the flat layout. The owner of a unit
 * forms the sum of that unit, so the norm has the same bits for any number of ranks.
 *
 * A window has room for the weights that are fetched together, or for the gradients that are
 * computed together. These are those of one bucket or, for a tied head, of two (first the
 * embedding's, then the norm's). */
#ifndef SEQD_PLAN_ZERO_H
#define SEQD_PLAN_ZERO_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/choices.h"
#include "api/core/limits.h"
#include "api/core/model_shape.h"
#include "worker/family/family.h"
#include "worker/plan/axes.h"

/* A bucket has about 128 units, of which each has at least one row. A large bucket has more units,
 * so that a unit of several rows has at most 65536 elements; but it has at most about 4096 units,
 * which limits the work of making a plan. */
#define ZERO_UNITS     128
#define ZERO_UNIT_SIZE 65536
#define ZERO_UNITS_MAX 4096

#define ZERO_LAYERS_MAX 1024 /* model.config.num_hidden_layers */

/* Kinds of bucket. ZERO_LAYER + k is a layer of the family's kind k. */
enum zero_kind { ZERO_EMBED, ZERO_HEAD, ZERO_LAYER, ZERO_KIND_N = ZERO_LAYER + FAMILY_KINDS };

struct zero {
    int W, n_groups; /* ranks of a group; groups */
    int n_layers;
    bool tied;
    bool tied_grads;                /* tied, and the embedding is trained, so that the head adds to
                                     * its gradient */
    int back_from;                  /* first bucket with a backward pass (shape_freeze.first) */
    int first, end;                 /* buckets of the stage: [first, end) */
    bool borrows;                   /* the stage also has bucket 0, which another stage owns */
    int n_kinds;                    /* kinds of layer */
    uint8_t layer[ZERO_LAYERS_MAX]; /* kind of each layer, 0 .. n_kinds - 1 */
    int64_t n_all[ZERO_KIND_N];     /* buckets of that kind in the model */
    /* buckets of that kind in the stage, including the borrowed one */
    int64_t n_of[ZERO_KIND_N];
    int64_t len[ZERO_KIND_N];     /* elements of a bucket of that kind */
    int64_t trained[ZERO_KIND_N]; /* elements of a bucket's trained part, which comes first */
    int64_t n_units[ZERO_KIND_N];
    int64_t largest_unit; /* elements */
    int64_t shard_max;    /* trained elements of the largest shard */
    int64_t held_max;     /* elements of the largest shard of weights, including borrowed ones */
    /* Rank w owns [cut[w], cut[w + 1]) of a bucket, in elements, and the same range of unit_cut,
     * in units, both counted from the bucket's start. */
    int64_t cut[ZERO_KIND_N][JOB_MAX_RANKS + 1], unit_cut[ZERO_KIND_N][JOB_MAX_RANKS + 1];
};

/* Sets *z for a single stage, which has all buckets. */
void zero_init(struct zero *z, const struct model_shape *m, int W, int n_groups);
/* Changes *z to a stage that has buckets [first, end). */
void zero_set_stage(struct zero *z, int first, int end);

/* zero_group returns the ranks of the group of `rank`, out of all W n_groups ranks. zero_place
 * returns the index of `rank` in its group, which decides its parts. zero_owners
 * returns the ranks of all groups that own the same parts. */
struct rank_set zero_group(const struct zero *z, int rank);
int zero_place(const struct zero *z, int rank);
struct rank_set zero_owners(const struct zero *z, int rank);
/* Computes the borders of the pieces into which a part of n elements is divided in order to be
 * summed over groups: cut [n_groups + 1]. */
void zero_cut_part(const struct zero *z, int64_t n, int64_t *cut);

static inline int zero_buckets(const struct zero *z)
{
    return z->n_layers + 2;
}

static inline enum zero_kind zero_kind(const struct zero *z, int b)
{
    if (b == 0) return ZERO_EMBED;
    return b <= z->n_layers ? (enum zero_kind)(ZERO_LAYER + z->layer[b - 1]) : ZERO_HEAD;
}

/* zero_owns tells whether the bucket is the stage's own, and zero_holds whether the stage has or
 * borrows it. */
static inline bool zero_owns(const struct zero *z, int b)
{
    return b >= z->first && b < z->end;
}
static inline bool zero_holds(const struct zero *z, int b)
{
    return zero_owns(z, b) || (z->borrows && b == 0);
}
/* Tells whether the stage has a gradient of bucket b. */
static inline bool zero_sums(const struct zero *z, int b)
{
    return zero_owns(z, b) || (z->borrows && b == 0 && z->tied_grads);
}
/* zero_local returns the place in the stage of element `offset` of the flat layout, which must be
 * in a bucket that the stage has. zero_owned returns the number of elements of the stage's own
 * buckets, zero_held that of all buckets that it has. */
int64_t zero_local(const struct zero *z, int64_t offset);
int64_t zero_owned(const struct zero *z);
int64_t zero_held(const struct zero *z);

/* zero_begin returns the first element of bucket b in the flat layout. zero_len returns the number
 * of its elements. */
int64_t zero_begin(const struct zero *z, int b);
int64_t zero_len(const struct zero *z, int b);
/* These functions count in elements. zero_trained returns the size of bucket b's trained part.
 * zero_grad_begin returns where the bucket begins in the layout of gradients, which has only
 * trained parts. zero_grad_local returns where it begins among the gradients of the stage.
 * zero_grad_owned returns the number of trained elements in the stage's own buckets.
 * zero_grad_held adds to this number the embedding's elements if the stage borrows the embedding
 * and sums a gradient of it. */
int64_t zero_trained(const struct zero *z, int b);
int64_t zero_grad_begin(const struct zero *z, int b);
int64_t zero_grad_local(const struct zero *z, int b);
int64_t zero_grad_owned(const struct zero *z);
int64_t zero_grad_held(const struct zero *z);
/* zero_goes_back tells whether some bucket of the stage has a backward pass. zero_sends_back tells
 * whether a bucket of an earlier stage has one, so that this stage sends a gradient to the stage
 * before it. zero_gets_back tells whether the stage receives a gradient from the stage after
 * it. */
static inline bool zero_goes_back(const struct zero *z)
{
    return z->back_from < z->end;
}
static inline bool zero_sends_back(const struct zero *z)
{
    return z->back_from < z->first;
}
static inline bool zero_gets_back(const struct zero *z)
{
    return zero_goes_back(z) && z->end < zero_buckets(z);
}
/* Returns the bucket that contains element `offset` of the flat layout. */
int zero_bucket(const struct zero *z, int64_t offset);

struct zero_range {
    int64_t begin, end; /* elements of the flat layout */
};
/* Returns the trained elements of bucket b that rank w owns. */
struct zero_range zero_range(const struct zero *z, int b, int w);
/* Returns the range of frozen elements of bucket b that rank w has under zero 3. zero_frozen_cut
 * sets cut[0 .. W] to the borders of all ranks' ranges, counted from the bucket's first frozen
 * element. */
struct zero_range zero_frozen_range(const struct zero *z, int b, int w);
void zero_frozen_cut(const struct zero *z, enum zero_kind k, int64_t *cut);
/* Both functions return the start of rank w's part of bucket b in a shard of the rank, in
 * elements; every part starts at a multiple of 16. If b is z->end, they return the size of the
 * shard. The shard of zero_at has only trained elements. The shard of zero_held_at is the one of
 * weights under zero 3, in which the frozen elements of each part follow its trained elements, from
 * a multiple of 16 on. */
int64_t zero_at(const struct zero *z, int b, int w);
int64_t zero_held_at(const struct zero *z, int b, int w);

/* zero_window returns the number of elements of a window. zero_window_at returns the start of
 * bucket b in the window. zero_grad_window and zero_grad_window_at return the same for a window of
 * gradients. */
int64_t zero_window(const struct zero *z);
int64_t zero_window_at(const struct zero *z, int b);
int64_t zero_grad_window(const struct zero *z);
int64_t zero_grad_window_at(const struct zero *z, int b);

/* zero_units returns the number of units of all buckets of the model. zero_first_unit returns the
 * index of the first unit of bucket b. */
int64_t zero_units(const struct zero *z);
int64_t zero_first_unit(const struct zero *z, int b);

/* Walks the units of a bucket's trained tensors in order. begin and end are in elements of the
 * flat layout. */
struct zero_walk {
    int tensor, n;
    struct {
        int64_t rows, cols, offset;
        int number; /* index of the tensor in the bucket; with tp, of its slice (slice_bucket) */
    } of[PROG_WEIGHTS]; /* trained tensors of the bucket; with tp, their slices */
    int64_t row, target, begin, end;
    int64_t unit; /* index of the unit [begin, end) in the bucket */
};
void zero_walk(struct zero_walk *w, const struct zero *z, const struct model_shape *m, int b);
bool zero_next(struct zero_walk *w);

#endif
