/* cgroup.h: the control groups of one attempt: a group of cgroup v2 that holds its processes, and
 * limits on their memory and their number.
 *
 * A group of v2 is used only if systemd has delegated a group to this process (Delegate=yes). When
 * the attempt ends, the kernel kills all processes in the group, including forked ones. The
 * controllers memory and pids are enabled beneath the delegated group, which may then keep no
 * processes of its own: seqw is in its child `agent`. If v1 has a controller, the attempt gets a
 * group of v1 beneath seqw's group of that controller. Without either these functions do nothing.
 *
 * The files cgroup, cgroup.memory and cgroup.pids in the attempt's directory DIR hold the paths of
 * its groups, the last two for v1. seqw makes the groups and writes the paths; seqgang reads the
 * paths and joins the groups; a later seqw ends them. A seqgang that ends leaves its groups of v1
 * and removes them.
 * tested: tests/core/test_cgroup.c */
#ifndef SEQD_CORE_CGROUP_H
#define SEQD_CORE_CGROUP_H

#include <stddef.h>
#include <stdint.h>

enum { CGROUP_MEMORY = 1, CGROUP_PIDS = 2 }; /* controllers, as bits */

struct cgroup_limits { /* limits on all processes of an attempt together; 0 means none */
    int64_t memory;    /* bytes */
    int64_t pids;      /* processes and threads */
};

/* Returns SEQD_CGROUP, the group that a test sets in place of the group of this process. Returns
 * NULL if it is unset or empty. */
const char *cgroup_given(void);
/* Prepares the group of this process, seqw, for limits of attempts: moves it into the child
 * `agent`, and enables the controllers. Returns the controllers by which attempts can be limited.
 * If one is missing, `why` gets the reason as a sentence. Call it before this process starts
 * others. */
int cgroup_begin(char *why, size_t size);
/* Makes a group for the attempt. Returns 1 if it was made. Returns 0 if no group is delegated, or
 * after a failure, which is logged. */
int cgroup_make(const char *dir, int64_t job, int64_t epoch);
/* Limits the attempt, after cgroup_make. Returns the controllers by which it is limited. */
int cgroup_limit(const char *dir, int64_t job, int64_t epoch, const struct cgroup_limits *limits);
/* Returns how many processes of the attempt the kernel has killed for memory, or -1 if the attempt
 * has no limit of memory. */
int64_t cgroup_kills(const char *dir);
/* Moves the calling process into the groups. Processes that it starts later are then in the groups
 * as well. */
void cgroup_join(const char *dir);
/* Moves the calling process, the last one, out of the attempt's groups of v1, and removes them. The
 * file kills in DIR then holds the result of cgroup_kills. */
void cgroup_leave(const char *dir);
void cgroup_kill(const char *dir);
/* Kills the processes that are left in the groups, and removes the groups. A group is not removed
 * if some of these processes are still exiting. */
void cgroup_remove(const char *dir);

#endif
