/* planner.c: starts the threads that make plans, and implements their clock. */
#include "daemon/loop/planner.h"

#include "api/core/clock.h"
#include "worker/plan/plan.h"

/* a plan uses two struct sections */
#define STACK_SIZE (3 * sizeof(struct sections) + ((size_t)2 << 20))

struct errands *planner_create(struct loop *l)
{
    return errands_create(l, &(struct errands_options){.stack_size = STACK_SIZE,
                                                       .n_threads = PLANNER_THREADS,
                                                       .most = PLANNER_WAITING,
                                                       .most_of_line = PLANNER_USER,
                                                       .what = "jobs that are to be planned"});
}

int64_t planner_clock_ms(void *planner)
{
    const struct errands *t = planner;
    return errands_ending(t) ? INT64_MAX : clock_thread_us() / 1000;
}
