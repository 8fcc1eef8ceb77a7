/* kern.h: what the parts of check_kernels share. */
#ifndef SEQD_TESTS_KERN_H
#define SEQD_TESTS_KERN_H

#include <float.h>
#include <math.h>
#include <stdio.h>
#include "tests/box.h"
#include "tests/ref.h"
#include "tests/test.h"

#define ULP (FLT_EPSILON / 2) /* 2^-24: one rounding */

static struct be *be;       /* the device under test ... */
static struct be *be_other; /* ... and one of the same instruction set with 3 threads */
static bool quick;          /* SEQD_TEST_SHAPES=small: for tools that slow a device down */
static enum dtype act;      /* of the tensors that the contract calls "act" */
static int64_t least_dim;   /* attention's checks leave out heads of fewer columns */

static inline struct box box_act(int64_t rows, int64_t cols, int64_t gap)
{
    return box_new_as(act, rows, cols, gap);
}

/* Scratch is NaN before, and everything is on the host before and after. */
#define CALL(b, op, ...)                                                                           \
    do {                                                                                           \
        __auto_type call_args = *(__VA_ARGS__);                                                    \
        TWIN_CLEAR(&call_args);                                                                    \
        (b)->ops->op(b, twin_in(b, &call_args, sizeof call_args, TWIN_HOST(&call_args)));          \
        twin_back(b);                                                                              \
    } while (0)

#endif
