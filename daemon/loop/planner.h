/* planner.h: the thread that plans: to weigh a spec takes up to two seconds.
 * tested: tests/daemon/test_seqd_planner.c */
#ifndef SEQD_DAEMON_LOOP_PLANNER_H
#define SEQD_DAEMON_LOOP_PLANNER_H

#include "daemon/mailbox/errands.h"

#define PLANNER_WAITING 256 /* specs at once; each is some 0.4 MiB of its request's */

/* Creates the planner. End it before the store closes, whose answers may still ask for plans
 * meanwhile. It need not finish: a plan that is under way ends soon by its clock. */
struct errands *planner_create(struct loop *l);

/* Any thread: returns milliseconds of a clock that does not go back. It jumps to the end of time
 * when the planner ends, which stops work that is bounded by it. */
int64_t planner_clock_ms(void *planner);

#endif
