/* precision.h: the element type that a job's precision means. */
#ifndef SEQD_KERNELS_PRECISION_H
#define SEQD_KERNELS_PRECISION_H

#include "api/core/formats.h"
#include "kernels/backend.h"

static inline enum dtype dtype_of_precision(enum precision_id p)
{
    return p == PRECISION_FP16 ? DT_F16 : p == PRECISION_BF16 ? DT_BF16 : DT_F32;
}

#endif
