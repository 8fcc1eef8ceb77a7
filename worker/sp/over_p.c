/* over_p.c: divides every element of a gradient, in its own dtype. */
#include "worker/sp/over_p.h"

void sp_divide(struct tensor grad, int P)
{
    for (int64_t i = 0; i < grad.rows; i++)
        for (int64_t j = 0; j < grad.cols; j++)
            if (grad.dtype == DT_F64)
                ((double *)grad.data)[i * grad.ld + j] /= P;
            else
                ((float *)grad.data)[i * grad.ld + j] /= (float)P;
}
