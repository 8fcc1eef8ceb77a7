/* cgroup.h: a control group (cgroup v2) for one attempt, if systemd has delegated one to this
 * process (Delegate=yes). When the attempt ends the kernel kills all processes in the group,
 * forked ones too. Without delegation these functions do nothing.
 *
 * DIR/cgroup, in the attempt's directory DIR, has the group's path. seqw makes the group and
 * writes the path, seqgang reads the path and joins the group, and a later seqw ends the group. No
 * controller is enabled, so that the unit's own group may keep its processes. tested:
 * tests/core/test_cgroup.c */
#ifndef SEQD_CORE_CGROUP_H
#define SEQD_CORE_CGROUP_H

#include <stdint.h>

/* Returns SEQD_CGROUP, a group that a test sets in place of this process's own; NULL: not set, or
 * empty. */
const char *cgroup_given(void);
/* Makes a group for the attempt. Returns 1, or 0 if no group is delegated or after a failure,
 * which is logged. */
int cgroup_make(const char *dir, int64_t job, int64_t epoch);
/* Moves the calling process into the group. Processes that it starts later are in the group,
 * too. */
void cgroup_join(const char *dir);
void cgroup_kill(const char *dir);
/* Kills the processes that are left, and removes the group. The group stays if some of them are
 * still exiting. */
void cgroup_remove(const char *dir);

#endif
