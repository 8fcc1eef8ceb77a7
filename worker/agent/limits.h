/* limits.h: reads the limits that control groups (v1 and v2) set for this process. The limit of a
 * group also holds for all groups beneath it. For that reason the result is the smallest limit of
 * this process's group and all groups above it, up to the mount. */
#ifndef SEQD_AGENT_LIMITS_H
#define SEQD_AGENT_LIMITS_H

#include <stdint.h>

/* Return the limits. root is "", which means this machine's /proc and /sys. In tests it is a
 * directory that has a proc and a sys. INT64_MAX and INT32_MAX mean no limit. tested:
 * tests/agent/test_allocation.c */
int64_t limits_memory(const char *root); /* bytes */
int32_t limits_cores(const char *root);  /* number of whole cores; it is at least 1 */
/* Returns the number of processes that the kernel has killed for lack of memory in this
 * process's control group. In version 2, processes in the groups beneath this group are
 * counted, too. If the group has no count, returns the count of the whole machine. If
 * cgroup_given names a group, reads only that group. Returns -1 if the number is not known. */
int64_t limits_oom_kills(const char *root);

#endif
