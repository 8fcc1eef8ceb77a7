/* kern.h: declarations that all parts of check_kernels share. */
#ifndef SEQD_TESTS_KERN_H
#define SEQD_TESTS_KERN_H

#include <float.h>
#include <math.h>
#include <stdio.h>
#include "tests/lib/box.h"
#include "tests/lib/ref.h"
#include "tests/lib/test.h"

#define ULP (FLT_EPSILON / 2) /* 2^-24, which is one rounding */

static struct be *be;       /* the device under test */
static struct be *be_other; /* a second device of the same instruction set, which has 3 threads */
/* true if SEQD_TEST_SHAPES is "small", which is meant for tools under which a device is slow */
static bool quick;
/* the type of the tensors whose type is "act" in the contract (kernels/backend.h) */
static enum dtype act;
/* checks of attention leave out shapes whose heads have fewer columns than this */
static int64_t least_dim;

/* Bounds the error of tensor cores that add products of 16-bit numbers (kernels/cuda/emu.h names
 * the measurement). A tensor core adds CUT_K or more products to the sum so far, and then
 * truncates the total after the last place of fp32. A truncation loses at most one unit of that
 * place, and half a unit on average. It always rounds toward zero, so the sum of a long chain is
 * biased. Before the truncation, each addend is changed by less than half a unit, upward as often
 * as downward. The root mean square of this loss is 1 / sqrt(12) of a unit, as in rounding to
 * nearest. */
#define CUT_K 8
static inline bool cuts(enum dtype in)
{
    return be->own_memory && in != DT_F32;
}
/* Returns half a unit of x's last place in fp32. This is the average loss when x is truncated
 * after that place. */
static inline double cut_mean(double x)
{
    int e = 0;
    if (x == 0) return 0;
    (void)frexp(x, &e); /* |x| is in [1/2, 1) 2^e */
    return ref_power(e - 25);
}
/* Returns the largest loss of a sum of n products. The unit of the loss is half a unit of the last
 * place, which is the largest loss of one rounding to nearest. */
static inline double cut_most(enum dtype in, double n)
{
    return cuts(in) ? n + 2 * ceil(n / CUT_K) : n;
}

static inline struct box box_act(int64_t rows, int64_t cols, int64_t gap)
{
    return box_new_as(act, rows, cols, gap);
}

/* Fills the scratch with NaN, and then calls an operation. All tensors are in host memory before
 * and after the call. */
#define CALL(b, op, ...)                                                                           \
    do {                                                                                           \
        __auto_type call_args = *(__VA_ARGS__);                                                    \
        TWIN_CLEAR(&call_args);                                                                    \
        (b)->ops->op(b, twin_in(b, &call_args, sizeof call_args, TWIN_HOST(&call_args)));          \
        twin_back(b);                                                                              \
    } while (0)

#endif
