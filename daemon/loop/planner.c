/* planner.c: starts the thread that makes plans, and implements its clock. */
#include "daemon/loop/planner.h"

#include "api/core/clock.h"
#include "worker/plan/plan.h"

/* a plan uses two struct sections */
#define STACK_SIZE (3 * sizeof(struct sections) + ((size_t)2 << 20))

struct errands *planner_create(struct loop *l)
{
    return errands_create(l, &(struct errands_options){.stack_size = STACK_SIZE,
                                                       .most = PLANNER_WAITING,
                                                       .what = "jobs that are to be planned"});
}

int64_t planner_clock_ms(void *planner)
{
    const struct errands *t = planner;
    return errands_ending(t) ? INT64_MAX : clock_ms();
}
