/* quarantine.h: nodes that get no jobs because three different jobs blamed them within an hour.
 *
 * The rows are in the store (tables blames, quarantine), so they are kept when seqd restarts. If a
 * job fails in the same way on another node, its blame is withdrawn, and a quarantine that
 * followed from the blame ends. The last node that could take jobs is never quarantined. There are
 * at most NODE_MAX rows. A further row replaces the oldest row of a node that is not up.
 *
 * Every ten minutes a toy run tests the node. It is a job of one or two ranks that reads no file.
 * If it succeeds, the quarantine ends. `seqctl nodes release` ends the quarantine, too. */
#ifndef SEQD_DAEMON_STATE_QUARANTINE_H
#define SEQD_DAEMON_STATE_QUARANTINE_H

#include "daemon/state/jobs.h"
#include "daemon/state/node.h"
#include "daemon/store/store.h"

#define QUARANTINE_JOBS   3
#define QUARANTINE_MS     ((int64_t)3600 * 1000)
#define QUARANTINE_TOY_MS ((int64_t)600 * 1000)
#define QUARANTINE_REASON 384

struct quarantined {
    char node[NODE_NAME];
    int64_t at_ms; /* UTC */
    char reason[QUARANTINE_REASON];
    int64_t toy_ms; /* when the next toy run is due, by the loop's clock */
};

struct quarantine;
struct quarantine *quarantine_create(void);
void quarantine_destroy(struct quarantine *q);
/* Returns the node's row, or NULL if it is not in quarantine. */
const struct quarantined *quarantine_find(const struct quarantine *q, const char *node);
/* Returns row i, or NULL past the last. */
const struct quarantined *quarantine_at(const struct quarantine *q, int i);

/* Take rows of the store. */
void quarantine_load(struct quarantine *q, const char *node, int64_t at_ms, const char *reason);
void quarantine_load_blame(struct quarantine *q, const char *node, int64_t job, int64_t at_ms);

/* Adds the consequences of ev for nodes to t. Call it after ev was folded into j. now_ms is the
 * loop's clock. */
void quarantine_take(struct quarantine *q, const struct nodes *nodes, int64_t now_ms,
                     struct store_txn *t, const struct job *j, const struct event *ev);
/* Returns a node whose toy run is due but is not a job yet, or NULL if there is no such node. The
 * next toy run of that node is due after QUARANTINE_TOY_MS. */
const struct node *quarantine_due(struct quarantine *q, const struct nodes *nodes,
                                  const struct jobs *jobs, int64_t now_ms);
/* Makes the spec of that node's toy run. It has two ranks, or one rank if there is no room for
 * two. It runs on GPUs if a GPU of the node has the health GPU_OK. */
int quarantine_toy(const struct node *n, struct job_spec *spec, struct err *e);
/* Adds the end of a node's quarantine to t. Returns what quarantine_ended takes when t is on disk;
 * the caller frees it with free. Returns NULL if the node is not in quarantine. */
struct quarantine_ending *quarantine_ending(const struct quarantine *q, struct store_txn *t,
                                            const char *node);
void quarantine_ended(struct quarantine *q, const struct quarantine_ending *k);

#endif
