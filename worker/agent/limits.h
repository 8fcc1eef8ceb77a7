/* limits.h: reads the limits that the control groups above this process set, v1 and v2: the least
 * of every level up to the mount, since a limit holds for all beneath it. */
#ifndef SEQD_AGENT_LIMITS_H
#define SEQD_AGENT_LIMITS_H

#include <stdint.h>

/* Return the limits. root: "" for this machine's own /proc and /sys, a directory with both in
 * tests. INT64_MAX and INT32_MAX: no limit. tested: tests/agent/test_allocation.c */
int64_t limits_memory(const char *root); /* bytes */
int32_t limits_cores(const char *root);  /* whole cores, at least 1 */
/* Counts the processes of this group and of the groups beneath it (v1: this group alone) that
 * the kernel has killed for memory. If the group has no such count, the machine's is taken. If
 * cgroup_given names a group, that group alone is asked. -1: not known. */
int64_t limits_oom_kills(const char *root);

#endif
