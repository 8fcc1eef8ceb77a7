/* slice.h: the part of a tensor that a rank of tensor parallelism has. Pure arithmetic. If a
 * tensor replaces several tensors (weight.fused), a rank has a slice of each of them.
 *
 * For a shape with tp > 1, family_write makes the program of one of tp ranks. Its tensors are
 * slices of the whole model's tensors, in the same order. The sizes of slice and tensor show how
 * the tensor is divided: by rows of [out, in] if the product's columns are split, by columns if
 * its inner dimension is split. There are n different slices, and rank t holds the slice with the
 * index t n / tp. n is less than tp if there are few KV heads; it is 1 for norms, whose slice is
 * the tensor itself. Consecutive ranks then have the same slice, and each of them has a part of
 * the slice's gradient. If tp does not divide a vocabulary, all ranks have room for the same
 * number of ids, and the last ranks have fewer ids, or none. The rest of their room is always 0
 * and is not in files. tested: tests/engine/test_tensor_jobs.c */
#ifndef SEQD_PLAN_SLICE_H
#define SEQD_PLAN_SLICE_H

#include <stdbool.h>
#include <stdint.h>
#include "worker/plan/plan.h"

struct slice {
    int tensor; /* index in the bucket */
    /* number of different slices, a divisor of tp; 1 if the slice is the tensor itself */
    int n;
    bool trained; /* as in struct param */
    /* number of consecutive ranks that have the same slice: tp / n */
    int sharers;
    /* size of the room for a slice; a one-dimensional tensor has 1 row */
    int64_t rows, cols;
    /* columns of the tensor; if they are more than cols, it is divided along them */
    int64_t whole_cols;
    int64_t count; /* elements of the tensor */
    /* first element in the flat layout of a rank, and in that of the model */
    int64_t offset, whole_offset;
};
/* Returns the shape of the whole model, which is the shape that files have. */
struct model_shape slice_whole(const struct model_shape *m);
/* Lists the slices of the tensors of a bucket in out [PROG_WEIGHTS], in the order of
 * param_bucket(). Returns how many there are. */
int slice_bucket(const struct model_shape *m, int bucket, struct slice *out);

/* Returns the number of elements that rank t's slice has, which are at the beginning of its
 * room. */
int64_t slice_size(const struct slice *s, int t);
/* Computes the borders of the parts of a slice that its sharers sum, one part each: cut [sharers +
 * 1]. */
void slice_cut(const struct slice *s, int64_t *cut);
/* Tells whether rank t is the first of the ranks that have its slice. Only that rank counts or
 * copies the slice. */
static inline bool slice_first(const struct slice *s, int t)
{
    return t % s->sharers == 0;
}

/* The elements of rank t's slice that are among elements [from, from + n) of the tensor. They are
 * consecutive in the slice, from its element `at` on. */
struct slice_part {
    int64_t at, n;
};
struct slice_part slice_part(const struct slice *s, int t, int64_t from, int64_t n);
/* Finds element `at` of rank t's slice, counted from the slice's beginning. whole is its place in
 * the tensor. n counts the element and those after it that follow each other both in the slice and
 * in the tensor. */
struct slice_run {
    int64_t whole, n;
};
struct slice_run slice_run(const struct slice *s, int t, int64_t at);

/* The slices of the bucket that slice_find searched last. They are kept because files are read and
 * written in order. SLICE_TENSORS is the largest number of slices in a bucket; it is small because
 * layers of experts are not divided. */
enum { SLICE_TENSORS = 64 };
struct slice_cursor {
    int64_t begin, end; /* elements of the whole layout */
    int n;
    struct slice of[SLICE_TENSORS];
};
/* Returns the slice of the tensor that contains element `whole` of the whole layout. *c must be
 * zero at first. */
struct slice slice_find(struct slice_cursor *c, const struct model_shape *m, int64_t whole);

#endif
