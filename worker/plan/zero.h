/* zero.h: the part of the flat parameters that each rank owns (ZeRO, 1910.02054). Pure arithmetic.
 *
 * The flat layout (struct param) is cut into buckets, which travel as a whole:
 *   0          section `in`: the embedding (and the head, where they are tied)
 *   1 .. L     a layer each, of a few kinds that differ in size
 *   L + 1      section `out`: the final norm, and the head unless it is tied
 * A bucket is cut into units, groups of whole rows of one tensor that do not depend on the number
 * of ranks; a tensor of one dimension is one row. Rank w of W owns consecutive units of every
 * bucket: each border of a range is at most one unit away from that of an even share, and ranges
 * may be empty. The gap after a tensor belongs to the owner of the unit before it, so that ranges
 * tile the bucket.
 *
 * Ranks may be in groups of W consecutive ones (parallel.zero_group), each of which has all
 * shards: rank g W + w owns the same as rank w. Gradients are summed within a group, then each
 * part over the ranks that own it, one in every group. If W is a power of two, or there is one
 * group, the order of these sums is that of the tree over all ranks.
 *
 * A stage of a pipeline (worker/plan/pipe.h) holds consecutive buckets. Elements keep their number
 * in the flat layout of the whole model; zero_local() says where a stage has them. If the head is
 * tied, the last of several stages borrows bucket 0, which comes after its own buckets: it holds
 * the weights, cut as the owner cuts them, and none of the bucket's state.
 *
 * A rank's parts of all buckets of its stage, one after another, are its shard: optimizer state
 * under every zero but 0, gradients from 2 on, weights under 3. Memory is planned for the largest
 * shard, so that all ranks of a stage have one plan; bytes on the wire are those of the ranges
 * themselves.
 *
 * The gradient norm is a float64 sum over units in order of the flat layout. The owner of a unit
 * takes the unit's own sum, so the norm has the same bits for any number of ranks.
 *
 * A window holds the weights that are fetched, or the gradients that are computed, at a time: one
 * bucket, or the head's two where it is tied (the embedding first, then the norm). */
#ifndef SEQD_PLAN_ZERO_H
#define SEQD_PLAN_ZERO_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/choices.h"
#include "api/core/limits.h"
#include "api/core/model_shape.h"
#include "worker/family/family.h"
#include "worker/plan/axes.h"

/* A bucket has about 128 units, each a row at least. A large bucket has more, so that a unit of
 * several rows has at most 65536 elements, but about 4096 at most, which bounds the work of a
 * plan. */
#define ZERO_UNITS     128
#define ZERO_UNIT_SIZE 65536
#define ZERO_UNITS_MAX 4096

#define ZERO_LAYERS_MAX 1024 /* model.config.num_hidden_layers */

/* Kinds of bucket: ZERO_LAYER + k is a layer of the family's kind k. */
enum zero_kind { ZERO_EMBED, ZERO_HEAD, ZERO_LAYER, ZERO_KIND_N = ZERO_LAYER + FAMILY_KINDS };

struct zero {
    int W, n_groups; /* ranks of a group; groups */
    int n_layers;
    bool tied;
    int first, end;                 /* buckets of the stage: [first, end) */
    bool borrows;                   /* the stage also has bucket 0, which another one owns */
    int n_kinds;                    /* kinds of layer */
    uint8_t layer[ZERO_LAYERS_MAX]; /* the kind of each, 0 .. n_kinds - 1 */
    int64_t n_all[ZERO_KIND_N];     /* buckets of that kind in the model */
    int64_t n_of[ZERO_KIND_N];      /* buckets of that kind in the stage, with the borrowed one */
    int64_t len[ZERO_KIND_N];       /* elements of a bucket of the kind */
    int64_t n_units[ZERO_KIND_N];
    int64_t largest_unit; /* elements */
    int64_t shard_max;    /* elements of the largest shard */
    int64_t held_max;     /* shard_max with the borrowed bucket */
    /* Rank w owns [cut[w], cut[w + 1]) of a bucket: elements and units from the bucket's start. */
    int64_t cut[ZERO_KIND_N][JOB_MAX_RANKS + 1], unit_cut[ZERO_KIND_N][JOB_MAX_RANKS + 1];
};

/* Sets *z for a single stage, which holds all buckets. */
void zero_init(struct zero *z, const struct model_shape *m, int W, int n_groups);
/* Changes *z to a stage that holds buckets [first, end). */
void zero_set_stage(struct zero *z, int first, int end);

/* zero_group returns the ranks of the group of `rank`, of all W n_groups ranks. zero_place returns
 * its number there, by which it owns its parts. zero_owners returns the ranks of all groups that
 * own the same parts. */
struct rank_set zero_group(const struct zero *z, int rank);
int zero_place(const struct zero *z, int rank);
struct rank_set zero_owners(const struct zero *z, int rank);
/* Computes the borders of the pieces of a part of n elements that is summed over groups: cut
 * [n_groups + 1]. */
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

/* zero_owns: the bucket is the stage's own. zero_holds: the stage has it, or borrows it. */
static inline bool zero_owns(const struct zero *z, int b)
{
    return b >= z->first && b < z->end;
}
static inline bool zero_holds(const struct zero *z, int b)
{
    return zero_owns(z, b) || (z->borrows && b == 0);
}
/* zero_local returns the place in the stage of element `offset` of the flat layout, in a bucket
 * that the stage holds. zero_owned counts the elements of its own buckets, zero_held those of all
 * that it holds. */
int64_t zero_local(const struct zero *z, int64_t offset);
int64_t zero_owned(const struct zero *z);
int64_t zero_held(const struct zero *z);

/* zero_begin returns the first element of bucket b in the flat layout. zero_len counts its
 * elements. */
int64_t zero_begin(const struct zero *z, int b);
int64_t zero_len(const struct zero *z, int b);
/* Returns the bucket that holds element `offset` of the flat layout. */
int zero_bucket(const struct zero *z, int64_t offset);

struct zero_range {
    int64_t begin, end; /* elements of the flat layout */
};
struct zero_range zero_range(const struct zero *z, int b, int w);
/* Returns the start of rank w's part of bucket b in its shard, in elements; every part starts at a
 * multiple of 16. b = z->end: the shard's size. */
int64_t zero_at(const struct zero *z, int b, int w);

/* zero_window counts the elements of a window. zero_window_at returns the start of bucket b in
 * it. */
int64_t zero_window(const struct zero *z);
int64_t zero_window_at(const struct zero *z, int b);

/* zero_units counts the units of all buckets of the model. zero_first_unit returns the number of
 * bucket b's first unit. */
int64_t zero_units(const struct zero *z);
int64_t zero_first_unit(const struct zero *z, int b);

/* The units of a bucket in order: begin and end in elements of the flat layout. */
struct zero_walk {
    int tensor, n;
    struct {
        int64_t rows, cols, offset;
    } of[PROG_WEIGHTS]; /* tensors of the bucket, with tp the slices of slice_bucket() */
    int64_t row, target, begin, end;
    int64_t unit; /* number in the bucket of [begin, end) */
};
void zero_walk(struct zero_walk *w, const struct zero *z, const struct model_shape *m, int b);
bool zero_next(struct zero_walk *w);

#endif
