/* zero.h: computes which part of the flat parameters each rank owns (ZeRO, 1910.02054). Pure
 * arithmetic.
 *
 * The flat layout (struct param) is divided into buckets. A bucket is sent as a whole:
 *   0          section `in`: the embedding (and the head, if they are tied)
 *   1 .. L     one layer each; there are a few kinds of layers, which differ in size
 *   L + 1      section `out`: the final norm, and the head unless it is tied
 * A bucket is divided into units. A unit is a group of whole rows of one tensor, where a tensor of
 * one dimension counts as one row. Units do not depend on the number of ranks. Rank w of W owns
 * consecutive units of every bucket. Each border between two ranks is at most one unit away from
 * the border of even shares. A rank may own no unit. The gap after a tensor belongs to the owner
 * of the unit before the gap, so that the ranks' ranges cover the whole bucket.
 *
 * A bucket has the elements of its trained tensors first. The elements of its frozen tensors
 * follow, which train.freeze leaves unchanged. The rule above divides only the trained part,
 * because only trained tensors have gradients and state. The gradient of a bucket has the layout
 * of its trained part. Under zero 3 the frozen part is divided into equal shares. A rank's part of
 * the weights then has its trained elements, followed by its frozen elements. If weights are in
 * blocks (model.weights), shares are as equal as whole panels allow (zero_frozen.c), so that a
 * share is both one range of elements and one range of bytes.
 *
 * Ranks may be in groups of W consecutive ranks (parallel.zero_group). Each group has all shards,
 * so rank g W + w owns the same parts as rank w. Gradients are summed within each group. Then each
 * part is summed over its owners, one of which is in each group. If W is a power of two, or if
 * there is one group, these sums have the same order as the tree over all ranks.
 *
 * A stage of a pipeline (worker/plan/pipe.h) holds consecutive buckets. In every stage, elements
 * have the same indices as in the flat layout of the whole model. zero_local() returns the place
 * of an element in a stage. If the head is tied, the last of several stages borrows bucket 0,
 * which is stored after its own buckets. The last stage has only the weights of this bucket,
 * divided as in the owner's stage, and not its state.
 *
 * A rank has a part of each bucket of its stage. These parts, one after another, are its shard.
 * The optimizer state is sharded under zero 1, 2 and 3, the gradients under zero 2 and 3, and the
 * weights under zero 3. Memory is planned for the largest shard, so that all ranks of a stage have
 * the same plan. Messages have only the bytes of the ranges themselves.
 *
 * The gradient norm is a float64 sum over units in order of the flat layout. The owner of a unit
 * forms the sum of that unit, so the norm has the same bits for any number of ranks.
 *
 * A window has room for the weights that are fetched together, or for the gradients that are
 * computed together. Usually this is one bucket. For a tied head it is two buckets: first the
 * embedding's bucket, and then the norm's bucket. */
#ifndef SEQD_PLAN_ZERO_H
#define SEQD_PLAN_ZERO_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/choices.h"
#include "api/core/limits.h"
#include "api/core/model_shape.h"
#include "worker/family/family.h"
#include "worker/plan/axes.h"

/* A bucket has about 128 units, and each unit has at least one row. A unit of several rows has at
 * most 65536 elements, so a large bucket has more units. But it has at most about 4096 units,
 * which limits the work of making a plan. */
#define ZERO_UNITS     128
#define ZERO_UNIT_SIZE 65536
#define ZERO_UNITS_MAX 4096

#define ZERO_LAYERS_MAX 1024 /* model.config.num_hidden_layers */

/* Kinds of bucket. ZERO_LAYER + k is a layer of the family's kind k. */
enum zero_kind { ZERO_EMBED, ZERO_HEAD, ZERO_LAYER, ZERO_KIND_N = ZERO_LAYER + FAMILY_KINDS };

struct zero {
    int W, n_groups; /* W: number of ranks of a group; n_groups: number of groups */
    int n_layers;
    bool tied;
    /* set if the embedding is tied and trained; the head then adds to the embedding's gradient */
    bool tied_grads;
    int back_from;  /* first bucket with a backward pass (shape_freeze.first) */
    int first, end; /* buckets of the stage: [first, end) */
    /* set if the stage also has bucket 0, which another stage owns */
    bool borrows;
    /* set if the window of gradients has two places for layers, which they use in turn, so that a
     * layer's gradient may leave while the next layer's is computed */
    bool halves;
    int n_kinds;                    /* kinds of layer */
    uint8_t layer[ZERO_LAYERS_MAX]; /* kind of each layer, 0 .. n_kinds - 1 */
    int64_t n_all[ZERO_KIND_N];     /* number of buckets of each kind in the model */
    /* number of buckets of each kind in the stage, including the borrowed one */
    int64_t n_of[ZERO_KIND_N];
    int64_t len[ZERO_KIND_N]; /* number of elements of a bucket of each kind */
    /* number of elements of the trained part, which comes first, in a bucket of each kind */
    int64_t trained[ZERO_KIND_N];
    int64_t n_units[ZERO_KIND_N];
    int64_t largest_unit; /* elements */
    int64_t shard_max;    /* number of trained elements of the largest shard */
    int64_t unit;         /* bytes of a weight that is not in blocks */
    /* bytes in which a whole bucket of each kind is stored (store_places) */
    int64_t size[ZERO_KIND_N];
    /* Rank w owns elements [cut[w], cut[w + 1]) of a bucket. In units, this range is [unit_cut[w],
     * unit_cut[w + 1]). Both are counted from the start of the bucket. */
    int64_t cut[ZERO_KIND_N][JOB_MAX_RANKS + 1], unit_cut[ZERO_KIND_N][JOB_MAX_RANKS + 1];
    /* Under zero 3 rank w has frozen elements [frozen[w], frozen[w + 1]) of a bucket, counted from
     * the first frozen element. They are stored in bytes [frozen_at[w], frozen_at[w + 1]), counted
     * from the end of the bucket's trained part. */
    int64_t frozen[ZERO_KIND_N][JOB_MAX_RANKS + 1], frozen_at[ZERO_KIND_N][JOB_MAX_RANKS + 1];
};

/* Sets *z for a single stage, which has all buckets. A weight that is not in blocks has `unit`
 * bytes. */
void zero_init(struct zero *z, const struct model_shape *m, int W, int n_groups, int64_t unit);
/* Makes *z describe a stage of a pipeline that has buckets [first, end). */
void zero_set_stage(struct zero *z, int first, int end);

/* zero_group returns the ranks of the group of `rank`; there are W n_groups ranks in all.
 * zero_place returns the index of `rank` in its group, which decides its parts of all buckets.
 * zero_owners returns the ranks of all groups that own the same parts as `rank`. */
struct rank_set zero_group(const struct zero *z, int rank);
int zero_place(const struct zero *z, int rank);
struct rank_set zero_owners(const struct zero *z, int rank);
/* Divides a part of n elements into pieces, in order to sum the part over groups. Writes the
 * borders of the pieces to cut [n_groups + 1]. */
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

/* zero_owns tells whether the stage owns the bucket. zero_holds tells whether the stage owns or
 * borrows the bucket. */
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
/* zero_local returns the index in the stage of element `offset` of the flat layout. The stage must
 * have the element's bucket. zero_owned returns the number of elements of the buckets that the
 * stage owns. zero_held returns the number of elements of the buckets that it owns or borrows. */
int64_t zero_local(const struct zero *z, int64_t offset);
int64_t zero_owned(const struct zero *z);
int64_t zero_held(const struct zero *z);

/* zero_begin returns the index in the flat layout of bucket b's first element. zero_len returns
 * the number of the bucket's elements. */
int64_t zero_begin(const struct zero *z, int b);
int64_t zero_len(const struct zero *z, int b);
/* These functions count elements. zero_trained returns the size of bucket b's trained part.
 * zero_grad_begin returns the index of the bucket's first element in the layout of gradients,
 * which has only trained parts. zero_grad_local returns the index of its first element among the
 * gradients of the stage. zero_grad_owned returns the number of trained elements in the buckets
 * that the stage owns. zero_grad_held returns zero_grad_owned, plus the embedding's elements if
 * the stage borrows the embedding and sums the embedding's gradient. */
int64_t zero_trained(const struct zero *z, int b);
int64_t zero_grad_begin(const struct zero *z, int b);
int64_t zero_grad_local(const struct zero *z, int b);
int64_t zero_grad_owned(const struct zero *z);
int64_t zero_grad_held(const struct zero *z);
/* zero_goes_back tells whether a bucket of the stage has a backward pass. zero_sends_back tells
 * whether a bucket of an earlier stage has a backward pass, which means that this stage sends a
 * gradient to the previous stage. zero_gets_back tells whether this stage receives a gradient from
 * the next stage. */
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
/* Returns the range of trained elements of bucket b that rank w owns. */
struct zero_range zero_range(const struct zero *z, int b, int w);
/* Returns the range of frozen elements of bucket b that rank w has under zero 3. */
struct zero_range zero_frozen_range(const struct zero *z, int b, int w);
/* Divides the frozen part of a bucket of kind k among the ranks. p is the bucket's program. Sets
 * z->frozen[k] and z->frozen_at[k], and reads only the members of *z before them. */
void zero_frozen_cut(struct zero *z, enum zero_kind k, const struct program *p);
/* Returns the start of rank w's part of bucket b in a shard of trained elements, in elements. It is
 * a multiple of 16. If b is z->end, returns the size of the shard. */
int64_t zero_at(const struct zero *z, int b, int w);
/* These functions count bytes of weights. zero_held_at is the same as zero_at for rank w's shard of
 * weights under zero 3. There each part has its trained elements first. zero_frozen_held_at
 * returns the start of its frozen elements, which is a multiple of 16 units. zero_held_max returns
 * the size of the largest shard, including borrowed weights. zero_size returns the size of all
 * buckets that the stage owns or borrows, and zero_size_before the size of the model's buckets
 * before b. */
int64_t zero_held_at(const struct zero *z, int b, int w);
int64_t zero_frozen_held_at(const struct zero *z, int b, int w);
int64_t zero_held_max(const struct zero *z);
int64_t zero_size(const struct zero *z);
int64_t zero_size_before(const struct zero *z, int b);

/* zero_window returns the bytes of a window of weights. zero_window_at returns the byte at which
 * bucket b begins in this window. zero_grad_window and zero_grad_window_at return these two values
 * for a window of gradients, in elements. */
int64_t zero_window(const struct zero *z);
int64_t zero_window_at(const struct zero *z, int b);
int64_t zero_grad_window(const struct zero *z);
int64_t zero_grad_window_at(const struct zero *z, int b);

/* zero_units returns the number of units of all buckets of the model. zero_first_unit returns the
 * index of the first unit of bucket b. */
int64_t zero_units(const struct zero *z);
int64_t zero_first_unit(const struct zero *z, int b);

/* A loop over the units of a bucket's trained tensors, in order. begin and end are the elements of
 * the current unit in the flat layout. */
struct zero_walk {
    int tensor, n;
    struct {
        int64_t rows, cols, offset;
        /* index of the tensor in the bucket; with tp, index of its slice (slice_bucket) */
        int number;
    } of[PROG_WEIGHTS]; /* the trained tensors of the bucket; with tp, their slices */
    int64_t row, target, begin, end;
    int64_t unit; /* index in the bucket of the current unit [begin, end) */
};
void zero_walk(struct zero_walk *w, const struct zero *z, const struct model_shape *m, int b);
bool zero_next(struct zero_walk *w);

#endif
