/* planner.h: the thread that plans: to weigh a spec takes up to two seconds.
 * tested: tests/daemon/test_seqd_planner.c */
#ifndef SEQD_DAEMON_LOOP_PLANNER_H
#define SEQD_DAEMON_LOOP_PLANNER_H

#include "daemon/mailbox/errands.h"

#define PLANNER_WAITING 256 /* specs at once; each is some 0.4 MiB of its request's */

/* To be ended (not finished: a plan that is under way ends soon by its clock) before the store
 * closes: the store's answers meanwhile may still ask for plans. */
struct errands *planner_create(struct loop *l);

/* Any thread: milliseconds of a clock that does not go back, and which jumps to the end of time
 * when the planner ends: work that is bounded by it stops then. */
int64_t planner_clock_ms(void *planner);

#endif
