/* memory.h: how much of the nodes' memory is held, and whether there is room in it for a plan.
 * tested: tests/daemon/test_seqd_committed.c, test_seqd_rest.c, and by the simulator */
#ifndef SEQD_DAEMON_STATE_MEMORY_H
#define SEQD_DAEMON_STATE_MEMORY_H

#include "daemon/state/cluster.h"

/* Returns the bytes of the node's memory that are held beside the live attempts. Stale attempts
 * hold them, and so do descriptions of models that run there. A stale attempt whose job has ended
 * counts as all of the node's memory. */
int64_t memory_beside(const struct cluster *k, const struct node *n);
/* Returns the bytes that are held on the node, as committed. */
int64_t memory_held(const struct cluster *k, const struct node *n);
/* Refuses a job whose ranks, according to that plan, would find too little memory even if all
 * nodes that have joined were idle. If the transport is shm, one node must have enough, and
 * otherwise all of them together. Passes while no node has joined. A node that does not report its
 * memory could hold any plan. Fails with ERR_DOES_NOT_FIT. */
int memory_refuse(const struct nodes *t, const struct job_spec *s, const char *plan, struct err *e);

#endif
