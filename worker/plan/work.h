/* work.h: estimates the time of a step on the processor of the slowest rank. The time is the sum
 * over all steps of the model's schedule, including the steps that compute a value again. Each
 * operation counts at the machine's rate for its width. It is private to worker/plan. */
#ifndef SEQD_PLAN_WORK_H
#define SEQD_PLAN_WORK_H

#include "worker/plan/machine.h"

struct work {
    double products_s;  /* matrix products */
    double attention_s; /* softmax attention */
    double other_s;     /* linear attention, norms, elementwise operations, the optimizer */
    double update_s;    /* the part of other_s that AdamW takes */
};
/* Computes the seconds that one thread or one device takes. */
void work_count(const struct machine *m, const struct model_shape *shape, const struct plan *p,
                struct work *out);

#endif
