/* memory.h: how much of the nodes' memory is held, and whether a plan finds room in it.
 * tested: tests/daemon/test_seqd_committed.c, test_seqd_rest.c, and by the simulator */
#ifndef SEQD_DAEMON_STATE_MEMORY_H
#define SEQD_DAEMON_STATE_MEMORY_H

#include "daemon/state/cluster.h"

/* Returns the bytes of the node's memory held beside live attempts: by stale attempts, and by
 * descriptions of models that run there. A stale attempt whose job has ended counts as all of the
 * node's memory. */
int64_t memory_beside(const struct cluster *k, const struct node *n);
/* Returns the bytes held on the node, as committed. */
int64_t memory_held(const struct cluster *k, const struct node *n);
/* Refuses a job whose ranks, by that plan, would find too little memory on all nodes that have
 * joined, even if those were idle: on all of them together, or on one of them if the transport is
 * shm. Passes while no node has joined. A node that does not report its memory could hold any
 * plan. fails: ERR_DOES_NOT_FIT. */
int memory_refuse(const struct nodes *t, const struct job_spec *s, const char *plan, struct err *e);

#endif
