/* cgroup.h: a control group (cgroup v2) for one attempt. A control group is used only if systemd
 * has delegated a group to this process (Delegate=yes). When the attempt ends, the kernel kills
 * all processes in the group, including forked ones. Without delegation these functions do
 * nothing.
 *
 * The file cgroup in the attempt's directory DIR holds the path of the group. seqw makes the group
 * and writes the path; seqgang reads the path and joins the group; a later seqw ends the group. No
 * controller is enabled, because the unit's own group could then keep no processes of its own.
 * tested: tests/core/test_cgroup.c */
#ifndef SEQD_CORE_CGROUP_H
#define SEQD_CORE_CGROUP_H

#include <stdint.h>

/* Returns SEQD_CGROUP, the group that a test sets in place of the group of this process. Returns
 * NULL if it is unset or empty. */
const char *cgroup_given(void);
/* Makes a group for the attempt. Returns 1 if it was made. Returns 0 if no group is delegated, or
 * after a failure, which is logged. */
int cgroup_make(const char *dir, int64_t job, int64_t epoch);
/* Moves the calling process into the group. Processes that it starts later are then in the group
 * as well. */
void cgroup_join(const char *dir);
void cgroup_kill(const char *dir);
/* Kills the processes that are left in the group, and removes the group. The group is not removed
 * if some of these processes are still exiting. */
void cgroup_remove(const char *dir);

#endif
