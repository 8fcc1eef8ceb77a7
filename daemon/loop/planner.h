/* planner.h: the thread that plans: to weigh a spec takes up to two seconds.
 * tested: tests/daemon/test_seqd_planner.c */
#ifndef SEQD_DAEMON_LOOP_PLANNER_H
#define SEQD_DAEMON_LOOP_PLANNER_H

#include "daemon/mailbox/errands.h"

#define PLANNER_WAITING 256 /* specs that wait at once; each has about 0.4 MiB */

/* Creates the planner. Call errands_end before store_close: answers that store_close gives may ask
 * for plans, which are refused then. A plan under way need not finish: its clock ends it soon. */
struct errands *planner_create(struct loop *l);

/* Any thread: returns milliseconds of a clock that does not go back. It jumps to the end of time
 * when the planner ends, which stops work that is bounded by it. */
int64_t planner_clock_ms(void *planner);

#endif
