/* sweep.h: removes data that is older than its time to live. It does so once a minute. It applies
 * the rules in sequence, removes the oldest data first, and makes one commit for each batch. Data
 * that a live job reads is kept until that job has ended.
 *
 * Ages are measured by the wall clock, which people can set. If the wall clock has advanced over
 * an hour more than the loop's clock since the last sweep, sweeps remove nothing for an hour. In
 * that hour a wrong year can be corrected before data is lost. All functions are called on the
 * loop thread. */
#ifndef SEQD_DAEMON_LOOP_SWEEP_H
#define SEQD_DAEMON_LOOP_SWEEP_H

#include "daemon/loop/removal.h"
#include "daemon/state/retain.h"

#define SWEEP_MS 60000
/* size of a jump of the wall clock, and the time for which removals wait after the jump */
#define SWEEP_JUMP_MS 3600000

struct sweep;

/* Creates a sweep. Borrows all and r, and copies policy. */
struct sweep *sweep_create(struct commits *all, struct removals *r,
                           const struct retain_policy *policy);
void sweep_destroy(struct sweep *s); /* call it after the store is closed; s may be NULL */
/* Removes old logs when j gets a new attempt. Removes the logs of the two newest attempts of j
 * that --keep-epochs does not keep. */
void sweep_epoch(struct sweep *s, const struct job *j);

#endif
