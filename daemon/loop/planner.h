/* planner.h: the threads that make plans. They are separate threads because a plan for a spec takes
 * up to two seconds. Each user has a line of its own (errands.h). Jobs that are submitted come
 * before plans that are only shown, which leave one thread free.
 * tested: tests/daemon/test_seqd_planner.c */
#ifndef SEQD_DAEMON_LOOP_PLANNER_H
#define SEQD_DAEMON_LOOP_PLANNER_H

#include "daemon/mailbox/errands.h"

#define PLANNER_THREADS 2
#define PLANNER_WAITING 256 /* specs that may wait at the same time; each takes about 0.4 MiB */
#define PLANNER_USER    64  /* specs of one user that may wait at the same time */

/* Creates the planner. Call errands_end before store_close. store_close gives answers that may ask
 * for a plan, and the planner must refuse that plan. errands_end need not finish a plan that is
 * under way, because the planner's clock soon ends the plan. */
struct errands *planner_create(struct loop *l);

/* Returns milliseconds of a clock that never runs backwards on a thread: the processor time of the
 * calling thread. So a loaded machine ends no search early. When the planner ends, the clock jumps
 * to the end of time. This stops all work whose time is measured by this clock. May be called on
 * any thread. */
int64_t planner_clock_ms(void *planner);

#endif
