/* sched.h: which queued jobs start now, and why the others do not: a pure function.
 *
 * Gangs are all or nothing, on one node: no transport of this version crosses hosts. Order is
 * priority, then age. A job that would fit on an idle node and does not fit now is first in line:
 * nothing behind it is placed, so it cannot be overtaken for ever. Jobs that wait for their backoff
 * or that no node could ever hold do not block. The reason a job waits is written by the same code
 * that would have placed it: mend what it names and the job starts (tests/test_seqd_sched.c). */
#ifndef SEQD_DAEMON_SCHED_H
#define SEQD_DAEMON_SCHED_H

#include <stdbool.h>
#include <stdint.h>
#include "api/wire.h"

/* Preparations that may run at once on a node: each is one process that reads files. */
#define SCHED_MAX_PREPARE 4

struct sched_job {
    int64_t id;
    int32_t priority, n_ranks;
    bool prepare;          /* next task is TASK_PREPARE: needs a node, no slots */
    int64_t not_before_ms; /* backoff */
    int only;              /* the node that holds its data, as an index; -1: any will do */
    /* out */
    int node; /* index into nodes, or -1 */
    char reason_code[32], reason[192];
};

struct sched_node {
    char name[NODE_NAME];
    bool up;
    int32_t n_slots, n_reserved, n_preparing; /* in/out: placements are added */
};

/* Sorts jobs into scheduling order and fills every job's verdict. */
void sched_pick(struct sched_job *jobs, int n_jobs, struct sched_node *nodes, int n_nodes,
                int64_t now_ms);

#endif
