/* kern.h: declarations that the parts of check_kernels share. */
#ifndef SEQD_TESTS_KERN_H
#define SEQD_TESTS_KERN_H

#include <float.h>
#include <math.h>
#include <stdio.h>
#include "tests/lib/box.h"
#include "tests/lib/ref.h"
#include "tests/lib/test.h"

#define ULP (FLT_EPSILON / 2) /* 2^-24: one rounding */

static struct be *be;       /* the device under test ... */
static struct be *be_other; /* ... and one of the same instruction set with 3 threads */
static bool quick;          /* SEQD_TEST_SHAPES=small: for tools that slow a device down */
static enum dtype act;      /* type of the tensors that the contract calls "act" */
static int64_t least_dim;   /* attention's checks leave out heads of fewer columns */

/* Bounds the error of tensor cores' sums of products of 16 bits (kernels/cuda/emu.h names the
 * measurement). The total of CUT_K products, or more, and of the sum so far is cut off after
 * fp32's last place. A cut loses at most one unit of that place, half a unit on average, and
 * always toward zero, so that a long chain is biased. Before the cut each addend loses less than
 * half a unit, as often up as down, by 1 / sqrt(12) of a unit in root mean square, as in rounding
 * to nearest. */
#define CUT_K 8
static inline bool cuts(enum dtype in)
{
    return be->own_memory && in != DT_F32;
}
/* Returns half of x's last place in fp32: cutting it off costs this much on average. */
static inline double cut_mean(double x)
{
    int e = 0;
    if (x == 0) return 0;
    (void)frexp(x, &e); /* |x| in [1/2, 1) 2^e */
    return ref_power(e - 25);
}
/* Roundings to nearest (half a place each) that a sum of n products may lose in the worst case. */
static inline double cut_most(enum dtype in, double n)
{
    return cuts(in) ? n + 2 * ceil(n / CUT_K) : n;
}

static inline struct box box_act(int64_t rows, int64_t cols, int64_t gap)
{
    return box_new_as(act, rows, cols, gap);
}

/* Calls an operation. Scratch is filled with NaN first. All tensors are on the host before and
 * after. */
#define CALL(b, op, ...)                                                                           \
    do {                                                                                           \
        __auto_type call_args = *(__VA_ARGS__);                                                    \
        TWIN_CLEAR(&call_args);                                                                    \
        (b)->ops->op(b, twin_in(b, &call_args, sizeof call_args, TWIN_HOST(&call_args)));          \
        twin_back(b);                                                                              \
    } while (0)

#endif
