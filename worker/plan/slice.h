/* slice.h: computes a slice, which is the part of a tensor on one rank of tensor parallelism. Pure
 * arithmetic. If a tensor replaces several tensors (weight.fused), a rank has a slice of each of
 * these tensors.
 *
 * For a shape with tp > 1, family_write makes the program of one of tp ranks. Its tensors are
 * slices of the whole model's tensors, in the same order. The sizes of slice and tensor show how
 * the tensor is divided. If the columns of the product are split, the rows of [out, in] are
 * divided. If the inner dimension of the product is split, the columns are divided. There are n
 * different slices, and rank t holds slice t n / tp. n is less than tp if there are few KV heads.
 * n is 1 for norms, whose slice is the tensor itself. If n is less than tp, consecutive ranks have
 * the same slice, and each of them has a part of the slice's gradient. If tp does not divide a
 * vocabulary, all ranks have room for the same number of ids, and the last ranks have fewer ids,
 * or none. The room that has no ids is always 0 and is not in files. tested:
 * tests/engine/test_tensor_jobs.c */
#ifndef SEQD_PLAN_SLICE_H
#define SEQD_PLAN_SLICE_H

#include <stdbool.h>
#include <stdint.h>
#include "worker/plan/plan.h"

struct slice {
    int tensor; /* index of the tensor in the bucket */
    /* number of different slices, which divides tp; 1 if the slice is the whole tensor */
    int n;
    bool trained; /* the same as in struct param */
    /* number of consecutive ranks that have the same slice: tp / n */
    int sharers;
    /* size of the room for a slice; rows is 1 if the tensor has one dimension */
    int64_t rows, cols;
    /* number of columns of the whole tensor; if it is more than cols, the columns are divided */
    int64_t whole_cols;
    int64_t count; /* number of elements of the whole tensor */
    /* offset: first element in the flat layout of a rank; whole_offset: in the layout of the
     * model */
    int64_t offset, whole_offset;
};
/* Returns the shape of the whole model. Files have this shape. */
struct model_shape slice_whole(const struct model_shape *m);
/* Lists the slices of a bucket's tensors in out [PROG_WEIGHTS], in the order of param_bucket().
 * Returns the number of slices. */
int slice_bucket(const struct model_shape *m, int bucket, struct slice *out);

/* Returns the number of elements of rank t's slice. They are at the beginning of the slice's
 * room. */
int64_t slice_size(const struct slice *s, int t);
/* Divides a slice among the ranks that share it. Each of these ranks sums one part. Writes the
 * borders of the parts to cut [sharers + 1]. */
void slice_cut(const struct slice *s, int64_t *cut);
/* Tells whether rank t is the first rank that has its slice. Only this rank counts or copies the
 * slice. */
static inline bool slice_first(const struct slice *s, int t)
{
    return t % s->sharers == 0;
}

/* The elements of rank t's slice that are among elements [from, from + n) of the tensor. These
 * elements are consecutive in the slice and begin at element `at` of the slice. */
struct slice_part {
    int64_t at, n;
};
struct slice_part slice_part(const struct slice *s, int t, int64_t from, int64_t n);
/* A run that begins with element `at` of rank t's slice. whole is the index of this element in the
 * tensor. n is the number of elements that are consecutive both in the slice and in the tensor. */
struct slice_run {
    int64_t whole, n;
};
struct slice_run slice_run(const struct slice *s, int t, int64_t at);

/* The slices of the bucket that slice_find searched last. They are kept because files are read and
 * written in order. SLICE_TENSORS is the largest number of slices in a bucket. It is small because
 * layers of experts are not divided. */
enum { SLICE_TENSORS = 64 };
struct slice_cursor {
    int64_t begin, end; /* elements of the whole layout */
    int n;
    struct slice of[SLICE_TENSORS];
};
/* Returns the slice of the tensor that contains element `whole` of the whole layout. *c must be
 * all zeros before the first call. */
struct slice slice_find(struct slice_cursor *c, const struct model_shape *m, int64_t whole);

#endif
