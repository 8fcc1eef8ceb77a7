/* cluster.h: the data on which seqd bases its decisions: the tables of live jobs, nodes,
 * quarantines, cordons and users. It is plain data of the loop thread. The queries here need
 * several of these tables. */
#ifndef SEQD_DAEMON_STATE_CLUSTER_H
#define SEQD_DAEMON_STATE_CLUSTER_H

#include "daemon/state/cordon.h"
#include "daemon/state/jobs.h"
#include "daemon/state/node.h"
#include "daemon/state/quarantine.h"
#include "daemon/state/users.h"

struct cluster {
    struct jobs jobs;
    struct nodes nodes;
    struct quarantine *quarantine; /* owns */
    struct cordons *cordons;       /* owns */
    struct users users;
    char no_node[512]; /* why no node is up, or "" if the reason is not known or a node is up */
};

void cluster_init(struct cluster *k);
void cluster_fini(struct cluster *k);

/* Returns a node that is up and is not in the set `but`. A node without quarantine is preferred.
 * Returns NULL if there is no such node. */
const char *cluster_any_node(const struct cluster *k, const char (*but)[NODE_NAME], int n_but);
/* Returns the number of slots of a node that are in use. They are used by jobs, and by ranks that
 * still run on the node although their attempt is over for seqd. */
int32_t cluster_reserved(const struct cluster *k, const char *node);
/* Tells whether, in the committed state, no live or stale attempt is on the node. */
bool cluster_is_empty(const struct cluster *k, const char *node);
/* Forgets nodes that are down and that no job needs, as nodes_forget does. It looks at every job.
 * Returns the number of nodes that it has forgotten. */
int cluster_forget_nodes(struct cluster *k);

#endif
