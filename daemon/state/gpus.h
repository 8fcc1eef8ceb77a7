/* gpus.h: the GPUs of nodes and the jobs that hold them. The functions are pure. */
#ifndef SEQD_DAEMON_STATE_GPUS_H
#define SEQD_DAEMON_STATE_GPUS_H

#include "daemon/state/jobs.h"
#include "daemon/state/node.h"

/* Tells whether the attempt of j computes on a GPU of node n that is unfit or gone. If it does,
 * the attempt must fail by *ev, because the next attempt may get a GPU that works. If a driver
 * does not answer for a while, the attempt does not fail, because the ranks report their own
 * failures. */
bool gpus_fail(const struct job *j, const struct node *n, struct event *ev);
/* Returns the live job that holds that GPU in the committed state, or NULL. */
const struct job *gpus_holder(const struct jobs *t, const char *node, const char *uuid);

/* The GPUs that the cluster has for a job of n_ranks ranks. */
struct gpus_offer {
    int n_nodes; /* nodes that are up, whether they have GPUs or not */
    /* GPUs of all nodes in the table, also those that are away or unfit, because they may come
     * back */
    int n_gpus;
    int per_node; /* fewest GPUs of any node that has GPUs; 0 if no node has one */
    /* memory of the smallest of the n_ranks largest GPUs; 0 if there are fewer GPUs */
    int64_t memory_size;
    char gpu[GPU_NAME_SIZE], node[NODE_NAME]; /* the GPU that has this memory size, and its node */
};
void gpus_offer(const struct nodes *t, int n_ranks, struct gpus_offer *out);
/* Returns the bytes of a GPU that a rank's plan may take, or 0 if they are not known. */
int64_t gpus_limit(const struct gpus_offer *o);
/* Checks that the nodes can ever run a job with the spec's device and number of ranks. While no
 * node is up, the answer is not known, and the check passes. Fails with ERR_UNSUPPORTED or
 * ERR_DOES_NOT_FIT, and the error names the field, the demand and the GPUs of the cluster. */
int gpus_refuse(const struct nodes *t, const struct job_spec *s, struct err *e);

#endif
