/* cluster.h: the data that seqd decides upon: live jobs, nodes, quarantines, cordons and users.
 * Plain data of the loop thread, with the questions that concern several of these. */
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
    char no_node[512]; /* why no node is up; "": it is not known, or a node is up */
};

void cluster_init(struct cluster *k);
void cluster_fini(struct cluster *k);

/* Returns a node that is up and not in `but`, if possible one without quarantine; or NULL. */
const char *cluster_any_node(const struct cluster *k, const char (*but)[NODE_NAME], int n_but);
/* Returns the slots held on a node: by jobs, and by ranks of attempts that are over for seqd but
 * not yet at the node. */
int32_t cluster_reserved(const struct cluster *k, const char *node);
/* Tells whether nothing of an attempt is left on the node, as committed. */
bool cluster_is_empty(const struct cluster *k, const char *node);
/* Forgets a node that is down and that no job needs, after a look at every job. Returns false if
 * there is none. Moves other nodes, as node_forget_one does. */
bool cluster_forget_node(struct cluster *k);

#endif
