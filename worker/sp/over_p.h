/* over_p.h: injects a fault (api/core/mutant.h): divides a gradient by the number of ranks. For
 * worker/sp only. */
#ifndef SEQD_SP_OVER_P_H
#define SEQD_SP_OVER_P_H

#include "api/core/mutant.h"
#include "kernels/backend.h"

/* Divides every element by P; grad is fp32 or fp64. */
void sp_divide(struct tensor grad, int P);

static inline void sp_mutant_over_p(struct tensor grad, int P)
{
    if (mutant_on(MUTANT_GRAD_OVER_P)) sp_divide(grad, P);
}

#endif
