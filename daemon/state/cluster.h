/* cluster.h: the data on which seqd bases its decisions, which are live jobs, nodes, quarantines,
 * cordons and users. It is plain data of the loop thread, with those queries that concern several
 * of these tables. */
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

/* Returns a node that is up and not in `but`, if possible one without quarantine, or NULL if there
 * is none. */
const char *cluster_any_node(const struct cluster *k, const char (*but)[NODE_NAME], int n_but);
/* Returns the number of slots of a node that are in use. Jobs use them, and so do ranks that still
 * run on the node although seqd has ended their attempt. */
int32_t cluster_reserved(const struct cluster *k, const char *node);
/* Tells whether, as committed, nothing of an attempt is left on the node. */
bool cluster_is_empty(const struct cluster *k, const char *node);
/* Forgets a node that is down and that no job needs, after looking at every job. Returns false if
 * there is no such node. Moves other nodes, as node_forget_one does. */
bool cluster_forget_node(struct cluster *k);

#endif
