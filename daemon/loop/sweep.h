/* sweep.h: removes data that has outlived its time: once a minute, rule by rule, oldest first, in
 * batches, each batch in one commit. Data that a live job reads stays until the job has ended.
 *
 * Ages are of the wall clock, which people set. If it has gained more than an hour on the loop's
 * clock since the last sweep, sweeps remove nothing for an hour, so that a wrong year can be
 * corrected before data is lost. Loop thread. */
#ifndef SEQD_DAEMON_LOOP_SWEEP_H
#define SEQD_DAEMON_LOOP_SWEEP_H

#include "daemon/loop/removal.h"
#include "daemon/state/retain.h"

#define SWEEP_MS      60000
#define SWEEP_JUMP_MS 3600000 /* size of a jump of the wall clock; and the wait after it */

struct sweep;

/* Creates a sweep, which borrows all and r, and copies policy. */
struct sweep *sweep_create(struct commits *all, struct removals *r,
                           const struct retain_policy *policy);
void sweep_destroy(struct sweep *s); /* after the store; NULL allowed */
/* Removes, when j gets a new attempt, the logs of the two newest attempts beyond --keep-epochs. */
void sweep_epoch(struct sweep *s, const struct job *j);

#endif
