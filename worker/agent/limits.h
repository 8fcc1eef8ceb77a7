/* limits.h: reads the limits that control groups (v1 and v2) set for this process. The result is
 * the smallest limit of this process's group and of all groups above it up to the mount, because
 * the limit of a group also holds for all groups beneath it. */
#ifndef SEQD_AGENT_LIMITS_H
#define SEQD_AGENT_LIMITS_H

#include <stdint.h>

/* Return the limits. root is "" for this machine's /proc and /sys, or, in tests, a directory that
 * has both. INT64_MAX and INT32_MAX mean no limit. tested: tests/agent/test_allocation.c */
int64_t limits_memory(const char *root); /* bytes */
int32_t limits_cores(const char *root);  /* whole cores, at least 1 */
/* Returns the number of processes that the kernel has killed for memory in this process's group
 * and in the groups beneath it (for v1 only in the group itself). If the group has no such number,
 * returns that of the whole machine. If cgroup_given names a group, reads only that group. Returns
 * -1 if the count is not known. */
int64_t limits_oom_kills(const char *root);

#endif
