/* over_p.h: injects a fault (api/core/mutant.h) that divides a gradient by the number of ranks.
 * It is private to worker/sp. */
#ifndef SEQD_SP_OVER_P_H
#define SEQD_SP_OVER_P_H

#include "api/core/mutant.h"
#include "kernels/backend.h"

/* Divides every element of grad, which is fp32 or fp64, by P. */
void sp_divide(struct tensor grad, int P);

static inline void sp_mutant_over_p(struct tensor grad, int P)
{
    if (mutant_on(MUTANT_GRAD_OVER_P)) sp_divide(grad, P);
}

#endif
