/* limits.h: reads the limits that control groups (v1 and v2) set for this process: the smallest of
 * all levels up to the mount, since a limit holds for all groups beneath it. */
#ifndef SEQD_AGENT_LIMITS_H
#define SEQD_AGENT_LIMITS_H

#include <stdint.h>

/* Return the limits. root: "" for this machine's /proc and /sys; in tests, a directory that has
 * both. INT64_MAX and INT32_MAX: no limit. tested: tests/agent/test_allocation.c */
int64_t limits_memory(const char *root); /* bytes */
int32_t limits_cores(const char *root);  /* whole cores, at least 1 */
/* Counts the processes of this group and of the groups beneath it (v1: this group alone) that the
 * kernel has killed for memory. If the group has no such count, returns the machine's. If
 * cgroup_given names a group, only that group is read. -1: not known. */
int64_t limits_oom_kills(const char *root);

#endif
