/* slice.h: the part of a tensor that a rank of tensor parallelism holds. Pure arithmetic. If a
 * tensor stands in place of several (weight.fused), a rank has a slice of each.
 *
 * A shape with tp > 1 writes the program of one of tp ranks (family_write): its tensors stand in
 * the order of the whole model's and are slices of those. The two sizes show how a tensor is cut:
 * by rows of [out, in] if a product's columns are split, by columns if its inner dimension is
 * split. Rank t holds number t n / tp of n different slices. If n is less than tp (few KV heads)
 * or 1 (norms: the tensor itself), ranks in a row hold the same slice, and each has a part of its
 * gradient. If tp does not divide a vocabulary, all ranks have room for the same number of ids,
 * and the last ones hold fewer, or none. The rest of the room stays 0 and is not in files.
 * tested: tests/engine/test_tensor_jobs.c */
#ifndef SEQD_PLAN_SLICE_H
#define SEQD_PLAN_SLICE_H

#include <stdbool.h>
#include <stdint.h>
#include "worker/plan/plan.h"

struct slice {
    int tensor;                   /* number in the bucket */
    int n;                        /* different slices, a divisor of tp; 1: the tensor itself */
    int sharers;                  /* ranks in a row that hold the same slice: tp / n */
    int64_t rows, cols;           /* size of the room for a slice; one-dimensional: 1 row */
    int64_t whole_cols;           /* columns of the tensor; more than cols: it is cut along them */
    int64_t count;                /* elements of the tensor */
    int64_t offset, whole_offset; /* first element in the flat layouts, a rank's and the model's */
};
/* Returns the shape of the whole model, which files have. */
struct model_shape slice_whole(const struct model_shape *m);
/* Lists the slices of the tensors of a bucket, in the order of param_bucket(): out [PROG_WEIGHTS].
 * Returns how many. */
int slice_bucket(const struct model_shape *m, int bucket, struct slice *out);

/* Counts the elements that rank t's slice holds, from the beginning of its room on. */
int64_t slice_size(const struct slice *s, int t);
/* Computes the borders of the parts of a slice that its sharers sum: cut [sharers + 1]. */
void slice_cut(const struct slice *s, int64_t *cut);
/* Tells whether rank t is the first of the ranks that hold its slice: only that rank counts or
 * copies it. */
static inline bool slice_first(const struct slice *s, int t)
{
    return t % s->sharers == 0;
}

/* The elements of rank t's slice that lie in elements [from, from + n) of the tensor. They are
 * consecutive in the slice, from its element `at` on. */
struct slice_part {
    int64_t at, n;
};
struct slice_part slice_part(const struct slice *s, int t, int64_t from, int64_t n);
/* Finds element `at` of rank t's slice, counted from the slice's beginning. whole: its place in
 * the tensor; n: elements from there on that are consecutive in both. */
struct slice_run {
    int64_t whole, n;
};
struct slice_run slice_run(const struct slice *s, int t, int64_t at);

/* Slices of the bucket that was looked at last: files are read and written in order. */
enum { SLICE_TENSORS = 64 }; /* slices in a bucket, at most: layers of experts are not cut */
struct slice_cursor {
    int64_t begin, end; /* elements of the whole layout */
    int n;
    struct slice of[SLICE_TENSORS];
};
/* Returns the slice of the tensor that holds element `whole` of the whole layout. c: zero at
 * first. */
struct slice slice_find(struct slice_cursor *c, const struct model_shape *m, int64_t whole);

#endif
