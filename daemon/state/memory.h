/* memory.h: how much memory of the nodes is held, and whether a plan fits into the free memory.
 * tested: tests/daemon/test_seqd_committed.c, test_seqd_rest.c, and by the simulator */
#ifndef SEQD_DAEMON_STATE_MEMORY_H
#define SEQD_DAEMON_STATE_MEMORY_H

#include "daemon/state/cluster.h"

/* Returns the bytes of the node's memory that are held by stale attempts and by running
 * descriptions of models, without the live attempts. If the job of a stale attempt has ended, the
 * attempt counts as all of the node's memory. */
int64_t memory_beside(const struct cluster *k, const struct node *n);
/* Returns the bytes that are held on the node in the committed state. */
int64_t memory_held(const struct cluster *k, const struct node *n);
/* Refuses a job whose ranks, by that plan, need more memory than the joined nodes have when they
 * are idle. If the transport is shm, one node must have enough memory; otherwise all nodes
 * together. While no node has joined, the check passes. A node that does not report its memory
 * counts as large enough. Fails with ERR_DOES_NOT_FIT. */
int memory_refuse(const struct nodes *t, const struct job_spec *s, const char *plan, struct err *e);

#endif
