/* gpus.h: the GPUs of nodes and the jobs that hold them. Pure. */
#ifndef SEQD_DAEMON_STATE_GPUS_H
#define SEQD_DAEMON_STATE_GPUS_H

#include "daemon/state/jobs.h"
#include "daemon/state/node.h"

/* Tells whether the attempt of j computes on a GPU of node n that is unfit or gone. The attempt
 * fails by *ev, since another GPU may do. A driver that is silent for a while is no reason: the
 * ranks report their own failures. */
bool gpus_fail(const struct job *j, const struct node *n, struct event *ev);
/* Returns the live job that holds that GPU, as committed, or NULL. */
const struct job *gpus_holder(const struct jobs *t, const char *node, const char *uuid);

/* The GPUs that the cluster has for a job of n_ranks ranks. */
struct gpus_offer {
    int n_nodes;         /* nodes that are up, whatever they have */
    int n_gpus;          /* on all nodes of the table: GPUs that are away or unfit may come back */
    int per_node;        /* fewest GPUs of a node that has any; 0: no node has */
    int64_t memory_size; /* memory of the smallest of the n_ranks largest; 0: fewer GPUs */
    char gpu[GPU_NAME_SIZE], node[NODE_NAME]; /* the GPU of that size, and its node */
};
void gpus_offer(const struct nodes *t, int n_ranks, struct gpus_offer *out);
/* Returns the bytes that a rank's plan may take of the offered GPU; 0: not known. */
int64_t gpus_limit(const struct gpus_offer *o);
/* Checks that nodes can ever run a job of the spec's device and ranks. Passes while no node is up:
 * that is unknown then. fails: ERR_UNSUPPORTED, ERR_DOES_NOT_FIT, naming the field, the demand and
 * the GPUs that there are. */
int gpus_refuse(const struct nodes *t, const struct job_spec *s, struct err *e);

#endif
