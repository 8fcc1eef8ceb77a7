/* delta.h: constants of the gated delta rule that plans and kernels share. */
#ifndef SEQD_CORE_DELTA_H
#define SEQD_CORE_DELTA_H

#include <stdint.h>

/* Rows between two kept states: backward of the rule keeps the state of every head before each
 * DELTA_SPAN-th row of a call. */
#define DELTA_SPAN     256
#define CONV_MAX_WIDTH 8 /* taps of a short convolution */

static inline int64_t delta_spans(int64_t rows)
{
    return (rows + DELTA_SPAN - 1) / DELTA_SPAN;
}

#endif
