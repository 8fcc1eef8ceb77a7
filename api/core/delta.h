/* delta.h: constants of the gated delta rule that plans and kernels share. */
#ifndef SEQD_CORE_DELTA_H
#define SEQD_CORE_DELTA_H

#include <stdint.h>

/* Number of rows between two kept states. The rule's backward pass needs the state of every head
 * before each DELTA_SPAN-th row of a call, and these states are kept. */
#define DELTA_SPAN     256
#define CONV_MAX_WIDTH 8 /* taps of a short convolution */

static inline int64_t delta_spans(int64_t rows)
{
    return (rows + DELTA_SPAN - 1) / DELTA_SPAN;
}

#endif
