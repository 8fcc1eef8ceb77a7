/* work.h: the time of a step on the slowest rank's processor. It is added up over the steps that
 * the model's schedule runs, recomputing included, each operation at the machine's rate for its
 * width. Inside worker/plan. */
#ifndef SEQD_PLAN_WORK_H
#define SEQD_PLAN_WORK_H

#include "worker/plan/machine.h"

struct work {
    double products_s;  /* matrix products */
    double attention_s; /* softmax attention */
    double other_s;     /* linear attention, norms, elementwise operations, the optimizer */
};
/* Counts the seconds of one thread or device. */
void work_count(const struct machine *m, const struct model_shape *shape, const struct plan *p,
                struct work *out);

#endif
